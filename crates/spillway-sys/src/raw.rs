//! System calls by number. For the hooks that stand in for libc's own wrappers, which must pass on whatever
//! the program asked for, word by word.

use std::arch::asm;

/// The largest error number: a raw result from `-MAX_ERRNO` to -1 is a negated errno, any other a value.
pub const MAX_ERRNO: isize = 4095;

/// The number of close_range(2).
pub const SYS_CLOSE_RANGE: usize = libc::SYS_close_range as usize;

/// Makes system call `number` and returns the kernel's raw result: a value, or a negated errno.
///
/// # Safety
/// As safe as the call that the arguments make: the caller vouches for every address among them.
pub unsafe fn syscall(number: usize, arguments: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = arguments;
    let result;
    // SAFETY: the x86-64 system call convention; clobbers declared. The caller vouches for the arguments.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    result
}
