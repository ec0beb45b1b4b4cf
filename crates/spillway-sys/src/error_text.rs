//! What an error number means, in words.
//!
//! libc says it too, and that is no answer for a pager's thread: `strerror_r` translates, so it reads the
//! program's environment, which may lie in managed memory, and holds a lock on libc's locales meanwhile. The
//! thread would wait for a page that it should bring itself, and whoever loads or frees a locale for it.
//!
//! std and rustix ask `__xpg_strerror_r` by that name. It is defined here, for what is linked with this crate
//! and for nobody else: the symbol is hidden.

use std::arch::global_asm;
use std::ffi::{c_char, c_int};

// In the binary and in the library the linker takes this one; the program's own calls go to libc.
global_asm!(
    ".pushsection .text.spillway_strerror_r,\"ax\",@progbits",
    ".globl __xpg_strerror_r",
    ".hidden __xpg_strerror_r",
    ".type __xpg_strerror_r,@function",
    "__xpg_strerror_r:",
    "jmp {write}",
    ".size __xpg_strerror_r, . - __xpg_strerror_r",
    ".popsection",
    write = sym write_text,
);

unsafe extern "C" {
    fn __xpg_strerror_r(error: c_int, buffer: *mut c_char, bytes: usize) -> c_int;
}

/// Has the linker take the texts from here. To be called once by what must not ask libc.
pub fn use_own() {
    let own: unsafe extern "C" fn(c_int, *mut c_char, usize) -> c_int = __xpg_strerror_r;
    std::hint::black_box(own);
}

/// What an error number means, as libc says it without a translation; nothing where there is none such.
#[must_use]
pub fn error_text(error: i32) -> Option<&'static str> {
    let at = usize::try_from(error).ok()?.checked_sub(1)?;
    TEXTS.get(at).copied().filter(|text| !text.is_empty())
}

/// `strerror_r` of POSIX: the text, cut where there is no room for all of it.
unsafe extern "C" fn write_text(error: c_int, buffer: *mut c_char, bytes: usize) -> c_int {
    const EINVAL: c_int = 22;
    const ERANGE: c_int = 34;
    let text = error_text(error);
    let words = text.unwrap_or("unknown error").as_bytes();
    let Some(room) = bytes.checked_sub(1) else { return ERANGE };
    let taken = words.len().min(room);
    // SAFETY: the caller gives a buffer of so many bytes; `taken` and the zero behind it fit in.
    unsafe {
        buffer.cast::<u8>().copy_from_nonoverlapping(words.as_ptr(), taken);
        buffer.add(taken).write(0);
    }
    match text {
        _ if taken < words.len() => ERANGE,
        Some(_) => 0,
        None => EINVAL,
    }
}

/// By number, from 1 (errno(3), asm-generic/errno.h).
const TEXTS: [&str; 133] = [
    "Operation not permitted",
    "No such file or directory",
    "No such process",
    "Interrupted system call",
    "Input/output error",
    "No such device or address",
    "Argument list too long",
    "Exec format error",
    "Bad file descriptor",
    "No child processes",
    "Resource temporarily unavailable",
    "Cannot allocate memory",
    "Permission denied",
    "Bad address",
    "Block device required",
    "Device or resource busy",
    "File exists",
    "Invalid cross-device link",
    "No such device",
    "Not a directory",
    "Is a directory",
    "Invalid argument",
    "Too many open files in system",
    "Too many open files",
    "Inappropriate ioctl for device",
    "Text file busy",
    "File too large",
    "No space left on device",
    "Illegal seek",
    "Read-only file system",
    "Too many links",
    "Broken pipe",
    "Numerical argument out of domain",
    "Numerical result out of range",
    "Resource deadlock avoided",
    "File name too long",
    "No locks available",
    "Function not implemented",
    "Directory not empty",
    "Too many levels of symbolic links",
    "",
    "No message of desired type",
    "Identifier removed",
    "Channel number out of range",
    "Level 2 not synchronized",
    "Level 3 halted",
    "Level 3 reset",
    "Link number out of range",
    "Protocol driver not attached",
    "No CSI structure available",
    "Level 2 halted",
    "Invalid exchange",
    "Invalid request descriptor",
    "Exchange full",
    "No anode",
    "Invalid request code",
    "Invalid slot",
    "",
    "Bad font file format",
    "Device not a stream",
    "No data available",
    "Timer expired",
    "Out of streams resources",
    "Machine is not on the network",
    "Package not installed",
    "Object is remote",
    "Link has been severed",
    "Advertise error",
    "Srmount error",
    "Communication error on send",
    "Protocol error",
    "Multihop attempted",
    "RFS specific error",
    "Bad message",
    "Value too large for defined data type",
    "Name not unique on network",
    "File descriptor in bad state",
    "Remote address changed",
    "Can not access a needed shared library",
    "Accessing a corrupted shared library",
    ".lib section in a.out corrupted",
    "Attempting to link in too many shared libraries",
    "Cannot exec a shared library directly",
    "Invalid or incomplete multibyte or wide character",
    "Interrupted system call should be restarted",
    "Streams pipe error",
    "Too many users",
    "Socket operation on non-socket",
    "Destination address required",
    "Message too long",
    "Protocol wrong type for socket",
    "Protocol not available",
    "Protocol not supported",
    "Socket type not supported",
    "Operation not supported",
    "Protocol family not supported",
    "Address family not supported by protocol",
    "Address already in use",
    "Cannot assign requested address",
    "Network is down",
    "Network is unreachable",
    "Network dropped connection on reset",
    "Software caused connection abort",
    "Connection reset by peer",
    "No buffer space available",
    "Transport endpoint is already connected",
    "Transport endpoint is not connected",
    "Cannot send after transport endpoint shutdown",
    "Too many references: cannot splice",
    "Connection timed out",
    "Connection refused",
    "Host is down",
    "No route to host",
    "Operation already in progress",
    "Operation now in progress",
    "Stale file handle",
    "Structure needs cleaning",
    "Not a XENIX named type file",
    "No XENIX semaphores available",
    "Is a named type file",
    "Remote I/O error",
    "Disk quota exceeded",
    "No medium found",
    "Wrong medium type",
    "Operation canceled",
    "Required key not available",
    "Key has expired",
    "Key has been revoked",
    "Key was rejected by service",
    "Owner died",
    "State not recoverable",
    "Operation not possible due to RF-kill",
    "Memory page has hardware error",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_those_of_libc() {
        unsafe extern "C" {
            fn strerror(error: c_int) -> *const c_char;
        }
        for error in 1..=TEXTS.len() as i32 {
            // SAFETY: it returns a text that ends with a zero, and no other thread of this test asks.
            let told = unsafe { std::ffi::CStr::from_ptr(strerror(error)) }.to_str().unwrap();
            match error_text(error) {
                Some(text) => assert_eq!(text, told),
                None => assert!(told.starts_with("Unknown error"), "{error}: {told}"),
            }
        }
        assert_eq!((error_text(0), error_text(-1), error_text(1000)), (None, None, None));
    }

    #[test]
    fn what_std_says_comes_from_here() {
        use_own();
        let said = |error| std::io::Error::from_raw_os_error(error).to_string();
        assert_eq!(said(111), "Connection refused (os error 111)");
        // libc would say "Unknown error 1000".
        assert_eq!(said(1000), "unknown error (os error 1000)");
    }

    #[test]
    fn a_text_is_cut_where_there_is_no_room() {
        let write = |error, room: usize| {
            let mut buffer = [0x55_u8; 32];
            // SAFETY: there are at least so many bytes.
            let answer = unsafe { write_text(error, buffer.as_mut_ptr().cast(), room) };
            let text = buffer.split(|byte| *byte == 0).next().unwrap().to_vec();
            (answer, String::from_utf8(text).unwrap(), buffer[room])
        };
        assert_eq!(write(2, 31), (0, "No such file or directory".to_owned(), 0x55));
        assert_eq!(write(2, 8), (34, "No such".to_owned(), 0x55));
        assert_eq!(write(2, 1), (34, String::new(), 0x55));
        assert_eq!(write(0, 31), (22, "unknown error".to_owned(), 0x55));
        let mut nothing = [0x55_u8];
        // SAFETY: nothing is written.
        assert_eq!(unsafe { write_text(2, nothing.as_mut_ptr().cast(), 0) }, 34);
        assert_eq!(nothing, [0x55]);
    }
}
