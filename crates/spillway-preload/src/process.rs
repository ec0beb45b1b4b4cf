//! What this process has of Spillway's, and how hooks speak to the pager, to the user and to libc.

use std::sync::OnceLock;

use spillway_core::page::PAGE_SIZE;
use spillway_pager::attach::Startup;
use spillway_pager::threads::calls::{Calls, Operation};
use spillway_sys::raw::MAX_ERRNO;
use spillway_sys::raw_thread::is_raw_thread;

/// The pager of this process, once the library has started.
pub static STARTUP: OnceLock<Startup> = OnceLock::new();

/// This library as the loader was told of it, and the run's variable: what the next program needs too.
pub static OWN_VARIABLES: OnceLock<(Vec<u8>, Vec<u8>)> = OnceLock::new();

/// The pager of this process. Hooks are in place only once it is there.
fn calls() -> Option<&'static Calls> {
    Some(&STARTUP.get()?.engine()?.calls)
}

/// Has the pager do an operation. Returns its answer; 0 where there is no pager to ask, and in the pager's
/// own threads.
pub fn call<const N: usize>(operation: Operation, arguments: [usize; N]) -> usize {
    if is_raw_thread() {
        return 0;
    }
    calls().map_or(0, |calls| calls.call(operation, arguments))
}

/// Tells the user, in the program's own thread.
pub fn complain(text: &str) {
    let line = format!("spillway: {text}\n");
    let _ = rustix::io::write(rustix::stdio::stderr(), line.as_bytes());
}

/// Ends the program where going on would mean wrong data.
pub fn stop(text: &str) -> ! {
    complain(text);
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    std::process::abort()
}

pub fn set_errno(errno: i32) {
    // SAFETY: libc's own thread-local errno, on a thread of the program.
    unsafe { *libc::__errno_location() = errno };
}

/// A raw result as libc's wrappers return it.
pub fn to_libc(result: isize) -> isize {
    if (-MAX_ERRNO..0).contains(&result) {
        set_errno(-result as i32);
        -1
    } else {
        result
    }
}

/// Rounded up to whole pages.
pub fn up(bytes: usize) -> usize {
    bytes.saturating_add(PAGE_SIZE - 1) & !(PAGE_SIZE - 1)
}

/// Whether a raw result is an error.
pub fn failed(result: isize) -> bool {
    (-MAX_ERRNO..0).contains(&result)
}
