//! Whether this process serves its own faults, and what its threads have for that.

use std::sync::atomic::{AtomicU32, Ordering};

use spillway_pager::attach::Startup;
use spillway_pager::inline::Inline;
use spillway_pager::space::holds::Frame;
use spillway_sys::at_rest::other_threads;
use spillway_sys::memory::ProcessStatus;
use spillway_sys::signal::{self, AltStacks};
use spillway_sys::{call_stubs, dispatch};

use crate::process::STARTUP;

/// What the threads' signal handlers run on.
pub static ALT_STACKS: AltStacks = AltStacks::new();

/// The process that these threads are in.
static PROCESS: AtomicU32 = AtomicU32::new(0);
/// The thread that is about to fork in a hook of ours, which has made everything ready.
static FORKING: AtomicU32 = AtomicU32::new(0);

/// What serves faults in this process; `None` in thread mode.
pub fn pager() -> Option<&'static Inline> {
    STARTUP.get().and_then(Startup::inline)
}

/// The same, and what has served them until inline mode was left.
pub fn former_pager() -> Option<&'static Inline> {
    STARTUP.get().and_then(Startup::served_inline)
}

/// This is a process of its own.
pub fn note_process() {
    PROCESS.store(signal::own_process(), Ordering::Relaxed);
}

/// False in a child that shares this memory until it calls exec (posix_spawn).
pub fn is_own_process() -> bool {
    PROCESS.load(Ordering::Relaxed) == signal::own_process()
}

/// Has a forked child, which has inherited the handlers, serve its faults too. False where it may not.
#[must_use]
pub fn enter_child() -> bool {
    let Some(pager) = pager() else { return true };
    pager.note_alone();
    ALT_STACKS.keep_own_alone();
    // It may have been cloned onto other stacks than its parent's thread has.
    // SAFETY: libc's own thread, which has just returned from libc.
    unsafe { call_stubs::refuse_stack(false) };
    note_process();
    dispatch::enable().is_ok()
}

/// The calling thread is within [`forking`].
pub fn is_forking() -> bool {
    let forking = FORKING.load(Ordering::Relaxed);
    forking != 0 && forking == signal::own_thread()
}

/// A fork by libc's own code within `fork`.
pub fn forking<T>(fork: impl FnOnce() -> T) -> T {
    if pager().is_none() {
        return fork();
    }
    FORKING.store(signal::own_thread(), Ordering::Relaxed);
    let result = fork();
    FORKING.store(0, Ordering::Relaxed);
    result
}

/// Where this is called from, if that is in the stack of the thread's handlers: only there does a deeper
/// place mean a later call.
pub fn frame() -> Frame {
    let here = 0_u8;
    let address = std::ptr::from_ref(&here).expose_provenance();
    ALT_STACKS.start_of(address).map_or(Frame::default(), |stack| Frame { stack, address })
}

/// Whether the calling thread is the program's only one.
pub fn is_single_threaded() -> bool {
    let pager_threads = STARTUP.get().map_or(0, Startup::thread_count);
    other_threads() == Ok(pager_threads)
}

/// Whether a debugger watches the process.
pub fn is_traced() -> bool {
    ProcessStatus::open().and_then(|status| status.outsiders()).is_ok_and(|outsiders| outsiders.is_traced)
}
