//! Starting the pager's threads, which libc knows nothing of ([`spillway_sys::raw_thread`]).
#![allow(unsafe_code)]

use std::ptr;

use rustix::io::{Errno, Result};
use rustix::thread::{CpuSet, sched_getaffinity};
use spillway_sys::raw::{self, SYS_CLOSE_RANGE};
use spillway_sys::raw_thread::{self, FileTable, ThreadMemory};

/// What a thread that is started finds: where to go, and with what.
struct Start<T> {
    run: fn(T) -> !,
    with: T,
}

extern "C" fn enter<T>(start: usize) -> ! {
    // SAFETY: `start_owning` leaked it for this one thread, with this type.
    let start = unsafe { Box::from_raw(ptr::with_exposed_provenance_mut::<Start<T>>(start)) };
    let Start { run, with } = *start;
    run(with)
}

/// Starts a pager thread that runs `run` on what it is given.
///
/// # Errors
/// The kernel's, where it makes no thread; EAGAIN mostly.
pub(crate) fn start_owning<T: Send + 'static>(
    memory: &'static ThreadMemory,
    files: FileTable,
    run: fn(T) -> !,
    with: T,
) -> Result<()> {
    let start = Box::into_raw(Box::new(Start { run, with }));
    // SAFETY: each memory is used by one thread of the process, which never ends; in a forked child that
    // thread does not run. Pager threads use neither malloc nor libc's threads.
    let started = unsafe { raw_thread::start(memory, files, enter::<T>, start.expose_provenance()) };
    if started.is_err() {
        // SAFETY: no thread was made that would take it.
        drop(unsafe { Box::from_raw(start) });
    }
    started.map(|_| ())
}

/// The same on a value that is never dropped.
///
/// # Errors
/// As [`start_owning`].
pub(crate) fn start_with<T: Sync>(
    memory: &'static ThreadMemory,
    files: FileTable,
    run: fn(&'static T) -> !,
    with: &'static T,
) -> Result<()> {
    start_owning(memory, files, run, with)
}

/// Gives this thread, which shares the program's file table so far, an empty one of its own. The kernel
/// copies none of the descriptors that are to be closed, of which there may be very many.
///
/// # Errors
/// ENOMEM where the kernel has no memory for a table.
pub(crate) fn leave_file_table() -> Result<()> {
    const CLOSE_RANGE_UNSHARE: usize = 1 << 1;
    let arguments = [0, u32::MAX as usize, CLOSE_RANGE_UNSHARE, 0, 0, 0];
    // SAFETY: takes no address, and leaves the table of the program's threads as it is.
    let result = unsafe { raw::syscall(SYS_CLOSE_RANGE, arguments) };
    if result < 0 { Err(Errno::from_raw_os_error(-result as i32)) } else { Ok(()) }
}

/// The CPUs on which this process may run, the first few.
pub(crate) fn allowed_cpus() -> Vec<usize> {
    const MOST: usize = 8;
    let set = sched_getaffinity(None).unwrap_or_default();
    (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).take(MOST).collect()
}
