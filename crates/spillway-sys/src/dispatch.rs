//! Syscall User Dispatch (`Documentation/admin-guide/syscall-user-dispatch.rst`): system calls that a thread
//! makes from outside this library's code become SIGSYS, whose handler makes them in the thread's stead.
//!
//! The kernel forgets the setting in a new thread or process and at exec, so a clone that is made in the
//! handler switches it on in the child before anything else runs there ([`clone_onto`]).

use std::arch::global_asm;
use std::ptr;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use rustix::io::{Errno, Result};

use crate::call_stubs;
use crate::maps;
use crate::raw;
use crate::signal::{AltStack, Context};

/// `si_code` of a SIGSYS that dispatch raises (`SYS_USER_DISPATCH`).
pub const SYS_USER_DISPATCH: i32 = 2;

/// The operation of prctl(2) by which a thread asks for it.
pub const PR_SET_SYSCALL_USER_DISPATCH: usize = 59;
/// Says to that operation that the thread wants it no more.
pub const PR_SYS_DISPATCH_OFF: usize = 0;
const PR_SYS_DISPATCH_ON: usize = 1;
const SYSCALL_DISPATCH_FILTER_ALLOW: u8 = 0;
const SYSCALL_DISPATCH_FILTER_BLOCK: u8 = 1;

/// Read by the kernel at each system call from outside our code, of whatever thread. Changes once: see
/// [`let_all_pass`].
static SELECTOR: AtomicU8 = AtomicU8::new(SYSCALL_DISPATCH_FILTER_BLOCK);
static CODE_START: AtomicUsize = AtomicUsize::new(0);
static CODE_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Finds the code of the library that this function is linked into: system calls from there pass, but for
/// those of [traps](crate::call_stubs::traps). Once: what is changed of the code later splits its mapping.
pub fn find_own_code() -> Result<()> {
    if CODE_BYTES.load(Ordering::Relaxed) != 0 {
        return Ok(());
    }
    let here = find_own_code as *const () as usize;
    let mappings = maps::read().map_err(|_| Errno::NOENT)?;
    let own = mappings.iter().find(|mapping| (mapping.start..mapping.end).contains(&here));
    let own = own.ok_or(Errno::NOENT)?;
    let traps = call_stubs::traps();
    let (start, end) =
        if here < traps.start { (own.start, own.end.min(traps.start)) } else { (traps.end, own.end) };
    CODE_START.store(start, Ordering::Relaxed);
    CODE_BYTES.store(end - start, Ordering::Relaxed);
    Ok(())
}

fn arguments_to_enable() -> [usize; 6] {
    [
        PR_SET_SYSCALL_USER_DISPATCH,
        PR_SYS_DISPATCH_ON,
        CODE_START.load(Ordering::Relaxed),
        CODE_BYTES.load(Ordering::Relaxed),
        SELECTOR.as_ptr().expose_provenance(),
        0,
    ]
}

/// Whether `address` lies in what [`find_own_code`] has found.
#[must_use]
pub fn is_own_code(address: usize) -> bool {
    address.wrapping_sub(CODE_START.load(Ordering::Relaxed)) < CODE_BYTES.load(Ordering::Relaxed)
}

/// Switches dispatch on for the calling thread, which must have a SIGSYS handler and [`find_own_code`] behind
/// it.
pub fn enable() -> Result<()> {
    // SAFETY: the selector is a static; the handler is there by the caller's word, or the next call ends the
    // process.
    let result = unsafe { raw::syscall(libc::SYS_prctl as usize, arguments_to_enable()) };
    if result < 0 { Err(Errno::from_raw_os_error(-result as i32)) } else { Ok(()) }
}

/// Lets the system calls of all threads of this process pass from now on. A call may be on its way to the
/// handler of SIGSYS: that may send it [back](Context::go_back_to_system_call).
pub fn let_all_pass() {
    SELECTOR.store(SYSCALL_DISPATCH_FILTER_ALLOW, Ordering::SeqCst);
}

/// Whether [`let_all_pass`] was called.
#[must_use]
pub fn lets_all_pass() -> bool {
    SELECTOR.load(Ordering::SeqCst) == SYSCALL_DISPATCH_FILTER_ALLOW
}

/// Switches it off for the calling thread. False where the kernel has no dispatch.
pub fn disable() -> bool {
    // SAFETY: takes no address.
    unsafe { raw::syscall(libc::SYS_prctl as usize, [PR_SET_SYSCALL_USER_DISPATCH, 0, 0, 0, 0, 0]) == 0 }
}

/// Gives the calling thread this address as the one of its thread-local storage.
///
/// # Safety
/// From now on the thread uses only storage that lies there.
pub unsafe fn set_thread_pointer(address: usize) {
    const ARCH_SET_FS: usize = 0x1002;
    // SAFETY: by the caller's word.
    unsafe { raw::syscall(libc::SYS_arch_prctl as usize, [ARCH_SET_FS, address, 0, 0, 0, 0]) };
}

/// What the child of [`clone_onto`] finds at the end of its stack. The assembly below knows the order.
#[repr(C)]
struct ChildBlock {
    prctl: [usize; 5],
    /// `stack_t`: address, flags, bytes.
    alt_stack: [usize; 3],
    signal_mask: u64,
    rbx: usize,
    rbp: usize,
    r12: usize,
    r13: usize,
    r14: usize,
    r15: usize,
    rdi: usize,
    rsi: usize,
    rdx: usize,
    r10: usize,
    r8: usize,
    r9: usize,
    rip: usize,
}

const BLOCK_BYTES: usize = size_of::<ChildBlock>();
const _: () = assert!(BLOCK_BYTES == 22 * 8);

// rdi: system call number, rsi: its six arguments. The child starts on its own stack, at its ChildBlock.
global_asm!(
    ".pushsection .text.spillway_clone_onto,\"ax\",@progbits",
    ".globl spillway_clone_onto",
    ".hidden spillway_clone_onto",
    ".type spillway_clone_onto,@function",
    "spillway_clone_onto:",
    "mov rax, rdi",
    "mov rcx, rsi",
    "mov rdi, [rcx]",
    "mov rsi, [rcx + 8]",
    "mov rdx, [rcx + 16]",
    "mov r10, [rcx + 24]",
    "mov r8, [rcx + 32]",
    "mov r9, [rcx + 40]",
    "syscall",
    "test rax, rax",
    "jz 2f",
    "ret",
    "2:",
    // sigaltstack(&block.alt_stack, 0)
    "mov eax, 131",
    "lea rdi, [rsp + 40]",
    "xor esi, esi",
    "syscall",
    // prctl(block.prctl): without dispatch the child could not go on safely.
    "mov eax, 157",
    "mov rdi, [rsp]",
    "mov rsi, [rsp + 8]",
    "mov rdx, [rsp + 16]",
    "mov r10, [rsp + 24]",
    "mov r8, [rsp + 32]",
    "syscall",
    "test rax, rax",
    "jz 3f",
    "ud2",
    "3:",
    // rt_sigprocmask(SIG_SETMASK, &block.signal_mask, 0, 8)
    "mov eax, 14",
    "mov edi, 2",
    "lea rsi, [rsp + 64]",
    "xor edx, edx",
    "mov r10d, 8",
    "syscall",
    "mov rbx, [rsp + 72]",
    "mov rbp, [rsp + 80]",
    "mov r12, [rsp + 88]",
    "mov r13, [rsp + 96]",
    "mov r14, [rsp + 104]",
    "mov r15, [rsp + 112]",
    "mov rdi, [rsp + 120]",
    "mov rsi, [rsp + 128]",
    "mov rdx, [rsp + 136]",
    "mov r10, [rsp + 144]",
    "mov r8, [rsp + 152]",
    "mov r9, [rsp + 160]",
    "xor eax, eax",
    "add rsp, 168",
    "ret",
    ".size spillway_clone_onto, . - spillway_clone_onto",
    ".popsection",
);

unsafe extern "C" {
    fn spillway_clone_onto(number: usize, arguments: *const usize) -> isize;
}

/// Makes a clone(2) or clone3(2) that the program asked for with a stack of its own: the child goes on where
/// the interrupted thread would, on that stack, with `alt_stack` for its handlers and, if `dispatched`,
/// dispatch on. All signals must be blocked; the child has the interrupted thread's mask.
///
/// # Safety
/// As safe as the program's own call, but that its arguments name a stack [`CHILD_BYTES`] below `stack_top`.
pub unsafe fn clone_onto(
    number: usize,
    arguments: [usize; 6],
    stack_top: usize,
    context: &Context<'_>,
    alt_stack: AltStack,
    dispatched: bool,
) -> isize {
    let on = arguments_to_enable();
    let prctl = if dispatched { [on[0], on[1], on[2], on[3], on[4]] } else { [on[0], 0, 0, 0, 0] };
    let register = |index: i32| context.register(index);
    let block = ChildBlock {
        prctl,
        alt_stack: [alt_stack.address, 0, alt_stack.bytes],
        signal_mask: context.signal_mask(),
        rbx: register(libc::REG_RBX),
        rbp: register(libc::REG_RBP),
        r12: register(libc::REG_R12),
        r13: register(libc::REG_R13),
        r14: register(libc::REG_R14),
        r15: register(libc::REG_R15),
        rdi: register(libc::REG_RDI),
        rsi: register(libc::REG_RSI),
        rdx: register(libc::REG_RDX),
        r10: register(libc::REG_R10),
        r8: register(libc::REG_R8),
        r9: register(libc::REG_R9),
        rip: register(libc::REG_RIP),
    };
    // SAFETY: the memory below a new thread's stack pointer is nobody's yet.
    unsafe { ptr::with_exposed_provenance_mut::<ChildBlock>(stack_top - BLOCK_BYTES).write_unaligned(block) };
    // SAFETY: the program's own call with a lower stack, which the assembly brings back to where it should
    // be.
    unsafe { spillway_clone_onto(number, arguments.as_ptr()) }
}

/// By how much the stack that the kernel is given lies below the one that the program asked for.
pub const CHILD_BYTES: usize = BLOCK_BYTES;
