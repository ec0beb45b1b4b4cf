//! System calls of the program's from within which its thread may be unwound: libc cancels a thread
//! (pthread_cancel(3)) by a signal whose handler unwinds all frames below it.
//!
//! The compiler takes for granted that Rust code is unwound from calls alone, and never from an `asm!`: from
//! anywhere else a frame with something to drop ends the process. So the system call stands in a function of
//! which the compiler knows nothing, and it alone is [unwound from](can_unwind_from). A thread that is
//! cancelled elsewhere in our code [notes](note) it, and is cancelled in its next call.

use std::arch::{asm, global_asm};

use crate::{call_stubs, signal};

/// libc's signal that cancels a thread (nptl's `SIGCANCEL`).
pub const CANCEL_SIGNAL: i32 = 32;

/// What the function below returns, like no system call, where a cancellation is noted.
const IS_NOTED: isize = isize::MIN;

// Its own address range is known by the symbol behind it. Whatever happens between the look at the note and
// the system call happens within it.
global_asm!(
    ".pushsection .tbss.spillway_cancel_note,\"awT\",@nobits",
    ".p2align 3",
    ".globl spillway_cancel_note",
    ".hidden spillway_cancel_note",
    ".type spillway_cancel_note,@object",
    "spillway_cancel_note:",
    ".zero 8",
    ".size spillway_cancel_note, 8",
    ".popsection",
    ".pushsection .text.spillway_cancellable_call,\"ax\",@progbits",
    ".globl spillway_cancellable_call",
    ".hidden spillway_cancellable_call",
    ".type spillway_cancellable_call,@function",
    "spillway_cancellable_call:",
    ".cfi_startproc",
    "mov rax, qword ptr [rip + spillway_cancel_note@GOTTPOFF]",
    "cmp qword ptr fs:[rax], 0",
    "jne 2f",
    "mov rax, rdi",
    "mov rdi, rsi",
    "mov rsi, rdx",
    "mov rdx, rcx",
    "mov r10, r8",
    "mov r8, r9",
    "mov r9, qword ptr [rsp + 8]",
    "syscall",
    "ret",
    "2:",
    "movabs rax, {is_noted}",
    "ret",
    ".cfi_endproc",
    ".globl spillway_cancellable_call_end",
    ".hidden spillway_cancellable_call_end",
    "spillway_cancellable_call_end:",
    ".size spillway_cancellable_call, . - spillway_cancellable_call",
    ".popsection",
    is_noted = const IS_NOTED,
);

unsafe extern "C-unwind" {
    fn spillway_cancellable_call(
        number: usize,
        a: usize,
        b: usize,
        c: usize,
        d: usize,
        e: usize,
        f: usize,
    ) -> isize;
}

unsafe extern "C" {
    fn spillway_cancellable_call_end();
}

/// Makes a system call as [`raw::syscall`](crate::raw::syscall) does, and may be unwound.
///
/// # Safety
/// As for [`raw::syscall`](crate::raw::syscall), on a thread whose storage libc has laid out.
pub unsafe fn syscall(number: usize, arguments: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = arguments;
    loop {
        // SAFETY: by the caller's word.
        let result = unsafe { spillway_cancellable_call(number, a, b, c, d, e, f) };
        if result != IS_NOTED {
            return result;
        }
        set_note(0);
        let (process, thread) = (signal::own_process() as usize, signal::own_thread() as usize);
        let (number, signal) = (libc::SYS_tgkill as usize, CANCEL_SIGNAL as usize);
        // SAFETY: takes no address.
        unsafe { spillway_cancellable_call(number, process, thread, signal, 0, 0, 0) };
    }
}

/// Sets the calling thread's mask of blocked signals, and may be unwound by one that it lets in.
///
/// # Safety
/// On a thread whose storage libc has laid out.
pub unsafe fn set_mask(mask: u64) {
    let mut before = 0_u64;
    let arguments = signal::mask_arguments(&mask, &mut before);
    // SAFETY: reads one mask of eight bytes and writes the other.
    unsafe { syscall(libc::SYS_rt_sigprocmask as usize, arguments) };
}

/// Whether a thread that is at `address` in our code may be unwound.
#[must_use]
pub fn can_unwind_from(address: usize) -> bool {
    let call =
        spillway_cancellable_call as *const () as usize..spillway_cancellable_call_end as *const () as usize;
    call.contains(&address) || call_stubs::contains(address)
}

/// The calling thread is to be cancelled in its next call. Safe amid one: what the signal interrupts looks at
/// the note first.
pub fn note() {
    set_note(1);
}

fn set_note(value: usize) {
    // SAFETY: the thread's own word.
    unsafe {
        asm!(
            "mov {at}, qword ptr [rip + spillway_cancel_note@GOTTPOFF]",
            "mov qword ptr fs:[{at}], {value}",
            at = out(reg) _,
            value = in(reg) value,
            options(nostack, preserves_flags),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own_thread() -> isize {
        // SAFETY: takes no address.
        unsafe { syscall(libc::SYS_gettid as usize, [0; 6]) }
    }

    #[test]
    fn calls_are_the_kernels_and_a_note_is_a_signal_before_the_next() {
        use std::sync::atomic::{AtomicU32, Ordering};
        static CAME: AtomicU32 = AtomicU32::new(0);
        extern "C-unwind" fn came(_: i32, _: &libc::siginfo_t, context: &mut libc::ucontext_t) {
            let at = signal::Context(context).register(libc::REG_RIP);
            CAME.fetch_add(if can_unwind_from(at) { 1 } else { 100 }, Ordering::Relaxed);
        }
        // SAFETY: it adds to a number.
        unsafe { signal::set_handler(CANCEL_SIGNAL, came, 0) }.unwrap();
        assert_eq!(own_thread(), signal::own_thread() as isize);
        assert_eq!(CAME.load(Ordering::Relaxed), 0);
        note();
        assert_eq!(own_thread(), signal::own_thread() as isize);
        assert_eq!(own_thread(), signal::own_thread() as isize);
        assert_eq!(CAME.load(Ordering::Relaxed), 1);
        let mut numbers = [0_u8; 6];
        let into = numbers.as_mut_ptr().expose_provenance();
        // SAFETY: writes three bytes there.
        let got = unsafe { syscall(libc::SYS_getrandom as usize, [into, 3, 0, 0, 0, 0]) };
        assert_eq!((got, &numbers[3..]), (3, &[0_u8; 3][..]));
        // SAFETY: refused before anything is looked at: all six arguments count.
        let refused = unsafe { syscall(libc::SYS_mmap as usize, [0, 4096, 3, 2, usize::MAX, 1]) };
        assert_eq!(refused, -(libc::EINVAL as isize));
    }
}
