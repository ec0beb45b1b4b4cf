//! The end of inline mode in a process, for good.

use spillway_pager::calls::Operation;
use spillway_sys::dispatch;

use super::presence::pager;
use super::signals;
use crate::memory_hooks::is_single_threaded;
use crate::process::{BIRTH, call};

/// Leaves inline mode for good, where the calling thread is the program's only one. It makes its own system calls from
/// then on, and handlers serve its faults.
pub fn leave() -> bool {
    if pager().is_none() || !is_single_threaded() {
        return false;
    }
    call(Operation::LeaveInline, [0; 4]);
    if let Some(birth) = BIRTH.get() {
        birth.leave_inline();
    }
    signals::give_back();
    dispatch::disable();
    true
}
