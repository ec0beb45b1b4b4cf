//! What stands in place of fork: paging stops while the kernel copies the address space, and the child brings up
//! paging of its own before it does anything else.

use std::ffi::{c_int, c_void};

use spillway_pager::calls::Operation;
use spillway_pager::undisturbed::undisturbed;
use spillway_sys::raw;
use spillway_sys::raw_thread::SignalsBlocked;
use spillway_sys::signal::bit;

use crate::heap;
use crate::inline::presence::{self, forking};
use crate::originals::{ORIGINAL_CLONE, ORIGINAL_FORK};
use crate::process::{BIRTH, call, set_errno, stop};

/// Does what belongs to a fork with signals blocked: a handler that touches far memory would wait for the fork's end. In inline
/// mode two cannot be blocked, since libc's own fork raises them; those that somebody sends wait.
fn without_signals<T>(work: impl FnOnce(&SignalsBlocked) -> T) -> T {
    if presence::pager().is_none() {
        return work(&SignalsBlocked::but(0));
    }
    undisturbed(|| work(&SignalsBlocked::but(bit(libc::SIGBUS) | bit(libc::SIGSYS))))
}

/// libc's `_Fork`, on which fork(3) stands.
pub unsafe extern "C" fn fork() -> c_int {
    around_fork(|| {
        let Some(&original) = ORIGINAL_FORK.get() else { return -1 };
        // SAFETY: the moved beginning of `_Fork`, which takes nothing and returns a pid.
        let original: extern "C" fn() -> c_int = unsafe { std::mem::transmute(original) };
        forking(|| original())
    })
    .unwrap_or_else(|| {
        set_errno(libc::ENOMEM);
        -1
    })
}

/// fork or clone by syscall(2): returns the raw result.
pub fn by_system_call(number: usize, arguments: [usize; 6]) -> isize {
    around_fork(|| {
        // SAFETY: the program's own call; it shares no memory with its child.
        unsafe { raw::syscall(number, arguments) as c_int }
    })
    .map_or(-libc::ENOMEM as isize, |result| result as isize)
}

/// Forks by `fork`, which returns a pid, 0 in the child, or a negative number. `None` when the local limit has no
/// room for the child.
fn around_fork(fork: impl FnOnce() -> c_int) -> Option<c_int> {
    // No handler may run in the child before its memory is whole.
    without_signals(|signals| {
        let here = std::ptr::from_ref(signals).expose_provenance();
        let entry = call(Operation::ForkBegin, [here, 0, 0, 0]).checked_sub(1)?;
        let heap = heap::hold();
        let pid = fork();
        drop(heap);
        if pid == 0 {
            attach_child(entry);
        } else {
            call(Operation::ForkEnd, [pid.max(0) as usize, entry, 0, 0]);
        }
        Some(pid)
    })
}

fn attach_child(entry: usize) {
    let Some(birth) = BIRTH.get() else { return };
    if let Err(reason) = birth.attach_forked(entry) {
        stop(&format!("a forked process cannot be managed, so it is stopped: {reason}"));
    }
    presence::enter_child();
}

struct CloneStart {
    function: extern "C" fn(*mut c_void) -> c_int,
    argument: *mut c_void,
    entry: usize,
    heap: heap::Held,
}

extern "C" fn clone_child(start: *mut c_void) -> c_int {
    // SAFETY: the parent's value, which the child has a copy of: its memory is not shared.
    let CloneStart { function, argument, entry, heap } = unsafe { start.cast::<CloneStart>().read() };
    drop(heap);
    attach_child(entry);
    let status = function(argument);
    // libc would end this thread only, which the pager's would outlive. SAFETY: ends the process.
    unsafe { libc::_exit(status) }
}

type Clone = unsafe extern "C" fn(
    extern "C" fn(*mut c_void) -> c_int,
    *mut c_void,
    c_int,
    *mut c_void,
    usize,
    usize,
    usize,
) -> c_int;

/// clone(2) as libc's wrapper. With CLONE_VM the child shares this address space and its pager.
pub unsafe extern "C" fn clone(
    function: extern "C" fn(*mut c_void) -> c_int,
    stack: *mut c_void,
    flags: c_int,
    argument: *mut c_void,
    parent_tid: usize,
    tls: usize,
    child_tid: usize,
) -> c_int {
    let Some(&original) = ORIGINAL_CLONE.get() else {
        set_errno(libc::ENOSYS);
        return -1;
    };
    // SAFETY: the moved beginning of `clone`, which has this signature.
    let original: Clone = unsafe { std::mem::transmute(original) };
    if flags & libc::CLONE_VM != 0 {
        // SAFETY: the program's own call.
        return unsafe { original(function, stack, flags, argument, parent_tid, tls, child_tid) };
    }
    without_signals(|signals| {
        let here = std::ptr::from_ref(signals).expose_provenance();
        let begun = call(Operation::ForkBegin, [here, stack.expose_provenance(), 0, 0]);
        let Some(entry) = begun.checked_sub(1) else {
            set_errno(libc::ENOMEM);
            return -1;
        };
        let mut start = CloneStart { function, argument, entry, heap: heap::hold() };
        let start_at = std::ptr::from_mut(&mut start).cast();
        // SAFETY: the program's own call, with a child that attaches first.
        let pid =
            forking(|| unsafe { original(clone_child, stack, flags, start_at, parent_tid, tls, child_tid) });
        drop(start);
        call(Operation::ForkEnd, [pid.max(0) as usize, entry, 0, 0]);
        pid
    })
}
