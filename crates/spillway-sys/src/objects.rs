//! What the dynamic linker has loaded (`dl_iterate_phdr(3)`).

use std::ffi::{CStr, c_int, c_void};
use std::ops::Range;

use crate::page::PAGE_SIZE;

/// The zeroed part of a loaded object's data (`.bss`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZeroedData {
    /// The object's file; empty for the program itself.
    pub name: String,
    /// Its whole pages. The mapping there may be longer: the kernel merges neighbours, such as the main
    /// thread's thread-local storage.
    pub pages: Range<usize>,
}

/// Those of all objects.
#[must_use]
pub fn zeroed_data() -> Vec<ZeroedData> {
    let mut found: Vec<ZeroedData> = Vec::new();
    // SAFETY: the callback adds to the vector that it is given, which lives until the call returns.
    unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut found).cast::<c_void>()) };
    found
}

/// Where the calling thread's storage and its control block lie, for the main thread: whole pages, and some
/// more. The kernel writes there whenever the thread has changed its CPU (rseq(2)), and when it ends.
#[must_use]
pub fn thread_storage() -> Range<usize> {
    /// For what libraries that come later may put there, and for alignment.
    const SLACK_BYTES: usize = 64 << 10;
    let mut bytes = 0_usize;
    // SAFETY: the callback adds to the number that it is given, which lives until the call returns.
    unsafe { libc::dl_iterate_phdr(Some(add_storage), (&raw mut bytes).cast::<c_void>()) };
    // SAFETY: takes nothing. In glibc it is the address of the control block, above the storage.
    let control = unsafe { libc::pthread_self() } as usize;
    let page = control & !(PAGE_SIZE - 1);
    page - (bytes + SLACK_BYTES).next_multiple_of(PAGE_SIZE)..page + SLACK_BYTES
}

unsafe extern "C" fn add_storage(object: *mut libc::dl_phdr_info, _: usize, bytes: *mut c_void) -> c_int {
    // SAFETY: dl_iterate_phdr passes a valid structure, whose headers are as many as it says.
    let (headers, bytes) = unsafe {
        let object = &*object;
        let headers = std::slice::from_raw_parts(object.dlpi_phdr, usize::from(object.dlpi_phnum));
        (headers, &mut *bytes.cast::<usize>())
    };
    for header in headers.iter().filter(|header| header.p_type == libc::PT_TLS) {
        *bytes += (header.p_memsz + header.p_align) as usize;
    }
    0
}

unsafe extern "C" fn add(object: *mut libc::dl_phdr_info, _: usize, found: *mut c_void) -> c_int {
    // SAFETY: dl_iterate_phdr passes a valid structure, whose name ends with null and whose headers are as
    // many as it says.
    let (base, name, headers, found) = unsafe {
        let object = &*object;
        let name = match object.dlpi_name.is_null() {
            true => String::new(),
            false => CStr::from_ptr(object.dlpi_name).to_string_lossy().into_owned(),
        };
        let headers = std::slice::from_raw_parts(object.dlpi_phdr, usize::from(object.dlpi_phnum));
        (object.dlpi_addr as usize, name, headers, &mut *found.cast::<Vec<ZeroedData>>())
    };
    let writable =
        |header: &&libc::Elf64_Phdr| header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_W != 0;
    for header in headers.iter().filter(writable) {
        let start = base + header.p_vaddr as usize;
        let page_up = |address: usize| address.next_multiple_of(PAGE_SIZE);
        let pages = page_up(start + header.p_filesz as usize)..page_up(start + header.p_memsz as usize);
        if !pages.is_empty() {
            found.push(ZeroedData { name: name.clone(), pages });
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU8, Ordering};

    use super::*;

    static ZEROS: [AtomicU8; 4 << 20] = [const { AtomicU8::new(0) }; 4 << 20];

    #[test]
    fn the_programs_own_is_found_and_holds_no_thread_local_storage() {
        thread_local!(static LOCAL: AtomicU8 = const { AtomicU8::new(1) });
        let middle = ZEROS[2 << 20].as_ptr().addr();
        let found = zeroed_data();
        let own = found.iter().find(|data| data.pages.contains(&middle)).unwrap();
        assert!(own.pages.len() >= 3 << 20, "{own:?}");
        ZEROS[2 << 20].store(1, Ordering::Relaxed);
        let local = LOCAL.with(|local| local.as_ptr().addr());
        assert!(thread_storage().contains(&local));
        assert!(!found.iter().any(|data| data.pages.contains(&local)));
    }
}
