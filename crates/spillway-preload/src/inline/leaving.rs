//! The end of inline mode in a process, for good.

use spillway_pager::threads::calls::Operation;
use spillway_sys::dispatch;

use super::presence::{is_own_process, is_single_threaded, pager};
use super::signals;
use crate::process::{STARTUP, call};

/// Leaves inline mode for good: handlers serve the faults of all threads from then on, and the kernel makes
/// their system calls as it finds them.
pub fn leave() {
    if pager().is_none() {
        return;
    }
    call(Operation::LeaveInline, [0; 4]);
    // Of several threads one may be on its way to our handlers, which stay: they send it back, and hand the
    // program's own signals on.
    if is_own_process() && is_single_threaded() {
        if let Some(startup) = STARTUP.get() {
            startup.drop_inline();
        }
        signals::give_back();
        dispatch::disable();
    }
}
