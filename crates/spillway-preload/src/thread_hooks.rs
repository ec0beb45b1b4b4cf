//! What the kernel writes to as a thread ends stays local, where the pager's threads serve faults.
//!
//! The kernel tells a thread's end by clearing its number in memory (`CLONE_CHILD_CLEARTID`), for which
//! pthread_join(3) waits. A thread that ends has no fault served any more (`handle_userfault`, `PF_EXITING`):
//! if the number is far the kernel gives up, and who waits does so for ever. In inline mode the same is seen
//! to where threads are made (`inline/clone.rs`).
//!
//! The same holds for a robust mutex, whose owner's end the kernel writes into it, in either mode.

use std::ffi::{c_int, c_long, c_void};

use spillway_core::page::PAGE_SIZE;
use spillway_pager::threads::calls::Operation;

use crate::inline::presence;
use crate::originals::{ORIGINAL_MUTEX_INIT, ORIGINAL_PTHREAD_CREATE};
use crate::process::{call, up};

/// glibc's `struct pthread` and its alignment at the upper end of a stack: 2,304 bytes in 2.36.
const DESCRIPTOR_BYTES: usize = 4096;

/// Brings in where the kernel clears a thread's number, for good.
pub fn keep_thread_number(address: usize) {
    keep(address, size_of::<u32>());
}

/// The same for what set_tid_address(2) and set_robust_list(2) name.
pub fn keep_thread_words(number: usize, [address, bytes, ..]: [usize; 6]) {
    match number as c_long {
        libc::SYS_set_robust_list => keep(address, bytes),
        _ => keep_thread_number(address),
    }
}

fn keep(address: usize, bytes: usize) {
    let start = address & !(PAGE_SIZE - 1);
    let end = up(address.saturating_add(bytes));
    if address != 0 && start < end {
        call(Operation::Unmanage, [start, end - start]);
    }
}

pub type Start = extern "C" fn(*mut c_void) -> *mut c_void;
pub type PthreadCreate =
    unsafe extern "C" fn(*mut libc::pthread_t, *const libc::pthread_attr_t, Start, *mut c_void) -> c_int;

/// pthread_create(3). On a stack of the program's own libc puts its description of the thread, with its
/// number, at the upper end.
pub unsafe extern "C" fn pthread_create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    let Some(&original) = ORIGINAL_PTHREAD_CREATE.get() else { return libc::EAGAIN };
    if presence::pager().is_none()
        && !attributes.is_null()
        // SAFETY: the program's attributes, which libc reads in any case.
        && let Some(top) = unsafe { stack_top(attributes) }
    {
        keep(top.saturating_sub(DESCRIPTOR_BYTES), DESCRIPTOR_BYTES);
    }
    // SAFETY: the moved beginning of `pthread_create`, which has this signature.
    let original: PthreadCreate = unsafe { std::mem::transmute(original) };
    // SAFETY: the program's own call.
    unsafe { original(thread, attributes, start, argument) }
}

pub type MutexInit =
    unsafe extern "C" fn(*mut libc::pthread_mutex_t, *const libc::pthread_mutexattr_t) -> c_int;

/// pthread_mutex_init(3). A robust mutex stays local.
pub unsafe extern "C" fn pthread_mutex_init(
    mutex: *mut libc::pthread_mutex_t,
    attributes: *const libc::pthread_mutexattr_t,
) -> c_int {
    let Some(&original) = ORIGINAL_MUTEX_INIT.get() else { return libc::EAGAIN };
    // SAFETY: the program's attributes, which libc reads in any case.
    if unsafe { is_robust(attributes) } {
        keep(mutex.expose_provenance(), size_of::<libc::pthread_mutex_t>());
    }
    // SAFETY: the moved beginning of `pthread_mutex_init`, which has this signature.
    let original: MutexInit = unsafe { std::mem::transmute(original) };
    // SAFETY: the program's own call.
    unsafe { original(mutex, attributes) }
}

/// Whether a mutex of these attributes is robust.
///
/// # Safety
/// They are initialised, or null.
pub unsafe fn is_robust(attributes: *const libc::pthread_mutexattr_t) -> bool {
    let mut robustness = libc::PTHREAD_MUTEX_STALLED;
    if !attributes.is_null() {
        // SAFETY: by the caller's word.
        let _ = unsafe { libc::pthread_mutexattr_getrobust(attributes, &raw mut robustness) };
    }
    robustness == libc::PTHREAD_MUTEX_ROBUST
}

/// The upper end of the stack that attributes name, if they name one.
///
/// # Safety
/// They are initialised.
unsafe fn stack_top(attributes: *const libc::pthread_attr_t) -> Option<usize> {
    let (mut lowest, mut bytes) = (std::ptr::null_mut(), 0);
    // SAFETY: by the caller's word, and the two outlive the call.
    let result = unsafe { libc::pthread_attr_getstack(attributes, &raw mut lowest, &raw mut bytes) };
    // Without a stack libc says that it ends at 0.
    Some(lowest.expose_provenance().wrapping_add(bytes)).filter(|&top| result == 0 && top != 0)
}
