//! Syscall user dispatch (`PR_SET_SYSCALL_USER_DISPATCH` of prctl(2)): a thread has its system calls
//! delivered to it as signals. A thread can have one such wish. In inline mode that is Spillway's; in thread
//! mode the calls that the hooks make would come to the program's handler, which knows nothing of them. So a
//! program is told what a kernel without it says, and those that use it, such as Wine, go without.

use std::sync::atomic::{AtomicBool, Ordering};

use spillway_pager::kernel::message;
use spillway_sys::dispatch::{PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_OFF};

static IS_TOLD: AtomicBool = AtomicBool::new(false);

/// The answer to a wish for it, or for no more of it; `None` for any other call.
pub fn by_number(number: usize, [operation, mode, offset, bytes, selector, _]: [usize; 6]) -> Option<isize> {
    if number as i64 != libc::SYS_prctl || operation as u32 as usize != PR_SET_SYSCALL_USER_DISPATCH {
        return None;
    }
    if (mode, offset, bytes, selector) == (PR_SYS_DISPATCH_OFF, 0, 0, 0) {
        return Some(0);
    }
    if !IS_TOLD.swap(true, Ordering::Relaxed) {
        message::to_program(
            "the program asks for syscall user dispatch (prctl), which it cannot have with Spillway: it is \
             told that the kernel has none",
        );
    }
    Some(-(libc::EINVAL as isize))
}
