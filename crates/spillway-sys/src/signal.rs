//! Signal handlers below libc: their own way back from the handler, stacks of their own, and the interrupted
//! thread's registers.

use std::arch::global_asm;
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use rustix::io::{Errno, Result};

use crate::memory::Area;
use crate::raw;

/// The kernel's `struct sigaction`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Action {
    /// 0: default, 1: ignore, else the function's address.
    pub handler: usize,
    /// Its `SA_` flags, as the kernel takes them.
    pub flags: usize,
    /// Where the handler returns to.
    pub restorer: usize,
    /// Blocked while the handler runs.
    pub mask: u64,
}

const SA_RESTORER: usize = 0x0400_0000;

/// A handler as the kernel calls it. It may be unwound: pthread_cancel(3) takes that way out of a system
/// call.
pub type Handler = extern "C-unwind" fn(i32, &libc::siginfo_t, &mut libc::ucontext_t);

// In our own code, so that dispatch lets the system call pass. Unwinders know a signal's frame by these very
// bytes (`mov rax, 15; syscall`), and look one byte before them for a function that they know.
global_asm!(
    ".pushsection .text.spillway_signal_return,\"ax\",@progbits",
    "nop",
    ".globl spillway_signal_return",
    ".hidden spillway_signal_return",
    ".type spillway_signal_return,@function",
    "spillway_signal_return:",
    ".byte 0x48, 0xC7, 0xC0, 0x0F, 0, 0, 0",
    "syscall",
    "ud2",
    ".size spillway_signal_return, . - spillway_signal_return",
    ".popsection",
);

unsafe extern "C" {
    fn spillway_signal_return();
}

/// Bit of a signal in a mask.
#[must_use]
pub const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// rt_sigaction(2) as it is. Null addresses are left out.
///
/// # Safety
/// `new` must be readable and `old` writable, or null; the handler must keep to what signal handlers may do.
pub unsafe fn raw_action(signal: i32, new: *const Action, old: *mut Action) -> isize {
    let arguments = [signal as usize, new.expose_provenance(), old.expose_provenance(), 8, 0, 0];
    // SAFETY: by the caller's word.
    unsafe { raw::syscall(libc::SYS_rt_sigaction as usize, arguments) }
}

/// Sets a handler that runs on the thread's alternative stack with `mask` blocked, and may be interrupted by
/// its own signal. Returns the action that was there.
///
/// # Safety
/// The handler must keep to what signal handlers may do.
pub unsafe fn set_handler(signal: i32, handler: Handler, mask: u64) -> Result<Action> {
    let action = Action {
        handler: handler as *const () as usize,
        flags: SA_RESTORER | (libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER) as usize,
        restorer: spillway_signal_return as *const () as usize,
        mask,
    };
    let mut old = Action::default();
    // SAFETY: both are ours; the handler by the caller's word.
    let result = unsafe { raw_action(signal, &action, &mut old) };
    if result < 0 { Err(Errno::from_raw_os_error(-result as i32)) } else { Ok(old) }
}

/// Sets the calling thread's mask of blocked signals and returns the one before.
pub fn set_mask(mask: u64) -> u64 {
    let mut before = 0_u64;
    // SAFETY: reads one mask of eight bytes and writes the other.
    unsafe { raw::syscall(libc::SYS_rt_sigprocmask as usize, mask_arguments(&mask, &mut before)) };
    before
}

/// The arguments of rt_sigprocmask(2) that set a mask.
pub(crate) fn mask_arguments(mask: &u64, before: &mut u64) -> [usize; 6] {
    let (mask, before) = (ptr::from_ref(mask).expose_provenance(), ptr::from_mut(before).expose_provenance());
    [libc::SIG_SETMASK as usize, mask, before, 8, 0, 0]
}

/// The registers and the mask of the thread that a signal has interrupted. Changes take effect when the
/// handler returns.
pub struct Context<'a>(pub &'a mut libc::ucontext_t);

impl Context<'_> {
    /// A register, by libc's index.
    #[must_use]
    pub fn register(&self, index: i32) -> usize {
        self.0.uc_mcontext.gregs[index as usize] as usize
    }

    fn set_register(&mut self, index: i32, value: usize) {
        self.0.uc_mcontext.gregs[index as usize] = value as i64;
    }

    /// Number and arguments of the system call that dispatch has kept from being made.
    #[must_use]
    pub fn system_call(&self) -> (usize, [usize; 6]) {
        let indexes =
            [libc::REG_RDI, libc::REG_RSI, libc::REG_RDX, libc::REG_R10, libc::REG_R8, libc::REG_R9];
        (self.register(libc::REG_RAX), indexes.map(|index| self.register(index)))
    }

    /// What that system call returns.
    pub fn set_result(&mut self, result: isize) {
        self.set_register(libc::REG_RAX, result as usize);
    }

    /// Where the thread's stack is when it goes on.
    pub fn set_stack_pointer(&mut self, address: usize) {
        self.set_register(libc::REG_RSP, address);
    }

    /// The error code of a page fault (Intel SDM 3A, 4.7): whether it was a write, and to a page that was
    /// there.
    #[must_use]
    pub fn fault_was(&self) -> (bool, bool) {
        let error = self.register(libc::REG_ERR);
        (error & 2 != 0, error & 1 != 0)
    }

    /// The signals that are blocked again when the handler returns.
    #[must_use]
    pub fn signal_mask(&self) -> u64 {
        // The kernel's mask has 64 bits; libc's type is longer.
        // SAFETY: within the structure, whose first eight bytes of mask the kernel has written.
        unsafe { ptr::from_ref(&self.0.uc_sigmask).cast::<u64>().read() }
    }

    /// Changes the signals that are blocked once the handler returns.
    pub fn set_signal_mask(&mut self, mask: u64) {
        // SAFETY: as above.
        unsafe { ptr::from_mut(&mut self.0.uc_sigmask).cast::<u64>().write(mask) };
    }

    /// Has the thread make its system call itself, as soon as dispatch is off.
    pub fn go_back_to_system_call(&mut self) {
        const INSTRUCTION_BYTES: usize = 2;
        self.set_register(libc::REG_RIP, self.register(libc::REG_RIP) - INSTRUCTION_BYTES);
    }

    /// Has the thread make its rt_sigreturn(2) from our code, on the stack where it is.
    pub fn go_to_signal_return(&mut self) {
        self.set_register(libc::REG_RIP, spillway_signal_return as *const () as usize);
    }
}

/// Memory for a thread's signal handlers. Only [`AltStacks`] makes one, of memory that is never unmapped.
#[derive(Clone, Copy, Debug)]
pub struct AltStack {
    /// Its number among the stacks.
    index: usize,
    /// The lowest of its addresses.
    pub(crate) address: usize,
    /// Its length, in bytes.
    pub(crate) bytes: usize,
}

/// Bytes of a stack for signal handlers.
pub(crate) const STACK_BYTES: usize = 256 << 10;
const GUARD_BYTES: usize = 4096;
const MOST_THREADS: usize = 8192;

const FREE: u32 = 0;
const CLAIMED: u32 = u32::MAX;

/// The alternative stacks of a process. A stack belongs to a thread until that has ended: only its end tells
/// that nothing runs on it any more.
pub struct AltStacks {
    owners: [AtomicU32; MOST_THREADS],
    areas: [AtomicUsize; MOST_THREADS],
    next: AtomicUsize,
}

impl AltStacks {
    /// None is taken yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            owners: [const { AtomicU32::new(FREE) }; MOST_THREADS],
            areas: [const { AtomicUsize::new(0) }; MOST_THREADS],
            next: AtomicUsize::new(0),
        }
    }

    /// A stack for a thread that [`Self::give`] names later. `may_reuse` those of threads that this process
    /// has not got any more: a process that shares another's memory does not know that one's threads.
    pub fn claim(&self, may_reuse: bool) -> Result<AltStack> {
        let used = self.next.load(Ordering::Relaxed).min(MOST_THREADS);
        let old = (0..used).find(|&index| may_reuse && self.claim_unused(index));
        let index = match old {
            Some(index) => index,
            None => {
                let index = self.next.fetch_add(1, Ordering::Relaxed);
                let owner = self.owners.get(index).ok_or(Errno::AGAIN)?;
                owner.store(CLAIMED, Ordering::Release);
                index
            }
        };
        let address = match self.areas[index].load(Ordering::Relaxed) {
            0 => {
                let area = Area::reserve(GUARD_BYTES + STACK_BYTES)?;
                area.commit(GUARD_BYTES, GUARD_BYTES + STACK_BYTES)?;
                let address = area.address() + GUARD_BYTES;
                std::mem::forget(area);
                self.areas[index].store(address, Ordering::Relaxed);
                address
            }
            address => address,
        };
        Ok(AltStack { index, address, bytes: STACK_BYTES })
    }

    fn claim_unused(&self, index: usize) -> bool {
        let owner = self.owners[index].load(Ordering::Acquire);
        let is_unused = owner == FREE || (owner != CLAIMED && !is_alive(owner));
        is_unused
            && self.owners[index]
                .compare_exchange(owner, CLAIMED, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
    }

    /// The thread that a claimed stack belongs to; 0 when it came to nothing.
    pub fn give(&self, stack: AltStack, thread: u32) {
        self.owners[stack.index].store(thread, Ordering::Release);
    }

    /// Where the one begins that an address lies in.
    pub fn start_of(&self, address: usize) -> Option<usize> {
        let used = self.next.load(Ordering::Relaxed).min(MOST_THREADS);
        let starts = self.areas[..used].iter().map(|area| area.load(Ordering::Relaxed));
        starts.filter(|&start| start != 0).find(|start| (*start..start + STACK_BYTES).contains(&address))
    }

    /// In a forked child: the calling thread keeps the stack that it has, the others are free.
    pub fn keep_own_alone(&self) {
        let own = current_alt_stack();
        for (owner, area) in self.owners.iter().zip(&self.areas).take(self.next.load(Ordering::Relaxed)) {
            let is_own = own != 0 && area.load(Ordering::Relaxed) == own;
            owner.store(if is_own { own_thread() } else { FREE }, Ordering::Relaxed);
        }
    }
}

impl Default for AltStacks {
    fn default() -> Self {
        Self::new()
    }
}

/// The calling thread's number, as the kernel knows it.
#[must_use]
pub fn own_thread() -> u32 {
    // SAFETY: takes no address.
    unsafe { raw::syscall(libc::SYS_gettid as usize, [0; 6]) as u32 }
}

/// Sends a signal to the calling thread.
pub fn raise(number: i32) {
    let arguments = [own_process() as usize, own_thread() as usize, number as usize, 0, 0, 0];
    // SAFETY: takes no address.
    unsafe { raw::syscall(libc::SYS_tgkill as usize, arguments) };
}

/// The calling process's number, as the kernel knows it.
#[must_use]
pub fn own_process() -> u32 {
    // SAFETY: takes no address.
    unsafe { raw::syscall(libc::SYS_getpid as usize, [0; 6]) as u32 }
}

/// Whether the calling process has its memory together with `process`: it is the process itself, or was made
/// by clone(2) with `CLONE_VM`. False where the kernel does not tell (kcmp(2)).
#[must_use]
pub fn shares_memory_with(process: u32) -> bool {
    const KCMP_VM: usize = 1;
    let own = own_process();
    if process == own {
        return true;
    }
    // SAFETY: takes no address.
    unsafe { raw::syscall(libc::SYS_kcmp as usize, [own as usize, process as usize, KCMP_VM, 0, 0, 0]) == 0 }
}

fn is_alive(thread: u32) -> bool {
    let arguments = [own_process() as usize, thread as usize, 0, 0, 0, 0];
    // SAFETY: signal 0 only asks.
    unsafe { raw::syscall(libc::SYS_tgkill as usize, arguments) == 0 }
}

/// Has the calling thread's handlers run on `stack`.
pub fn use_alt_stack(stack: AltStack) {
    let words = [stack.address, 0, stack.bytes];
    let arguments = [words.as_ptr().expose_provenance(), 0, 0, 0, 0, 0];
    // SAFETY: reads a `stack_t`; the memory is the thread's for as long as it lives.
    unsafe { raw::syscall(libc::SYS_sigaltstack as usize, arguments) };
}

/// Where the stack begins that the calling thread's handlers run on; 0 where there is none.
pub(crate) fn current_alt_stack() -> usize {
    let mut words = [0_usize; 3];
    let arguments = [0, words.as_mut_ptr().expose_provenance(), 0, 0, 0, 0];
    // SAFETY: writes a `stack_t`.
    unsafe { raw::syscall(libc::SYS_sigaltstack as usize, arguments) };
    words[0]
}
