//! The end of inline mode in a process, for good.

use spillway_pager::threads::calls::Operation;
use spillway_sys::{call_stubs, dispatch};

use super::presence::{is_single_threaded, pager};
use super::signals;
use crate::process::{STARTUP, call, complain};

/// Leaves inline mode for good, where the calling thread is the program's only one. It makes its own system
/// calls from then on, and handlers serve its faults.
pub fn leave() -> bool {
    if pager().is_none() || !is_single_threaded() {
        return false;
    }
    call(Operation::LeaveInline, [0; 4]);
    if let Some(startup) = STARTUP.get() {
        startup.leave_inline();
    }
    signals::give_back();
    call_stubs::set_direct(|_| true);
    dispatch::disable();
    true
}

/// The answer to a call after which it must be left, in a program with several threads, of which none may be
/// left between two modes.
pub fn refuse(number: usize) -> isize {
    complain(&format!(
        "system call {number} is refused, since the program has several threads in inline mode; \
         run it with --fault-mode thread"
    ));
    -libc::ENOSYS as isize
}
