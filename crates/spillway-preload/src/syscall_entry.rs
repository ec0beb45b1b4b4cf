//! What stands in place of libc's `syscall`. It returns once, or twice in memory of its own; a clone(2)
//! onto another stack returns there, where nothing of ours lies, so libc's own code makes that one.

use std::arch::global_asm;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::number_hooks;

/// The body of libc's `syscall` after its beginning was overwritten.
static ORIGINAL: AtomicUsize = AtomicUsize::new(0);

const CLONE_VM: usize = libc::CLONE_VM as usize;

// rdi: number; rsi: flags and rdx: stack of a clone. Nothing is changed before one of the two takes over.
global_asm!(
    ".pushsection .text.spillway_syscall_entry,\"ax\",@progbits",
    ".globl spillway_syscall_entry",
    ".hidden spillway_syscall_entry",
    ".type spillway_syscall_entry,@function",
    "spillway_syscall_entry:",
    "cmp rdi, {clone}",
    "jne 2f",
    "test esi, {clone_vm}",
    "jz 2f",
    "test rdx, rdx",
    "jz 2f",
    "jmp qword ptr [rip + {original}]",
    "2:",
    "jmp {hook}",
    ".size spillway_syscall_entry, . - spillway_syscall_entry",
    ".popsection",
    clone = const libc::SYS_clone,
    clone_vm = const CLONE_VM,
    original = sym ORIGINAL,
    hook = sym number_hooks::syscall,
);

unsafe extern "C" {
    fn spillway_syscall_entry();
}

/// The address to redirect `syscall` to, whose moved beginning is `original`.
pub fn before(original: usize) -> usize {
    ORIGINAL.store(original, Ordering::Relaxed);
    spillway_syscall_entry as *const () as usize
}
