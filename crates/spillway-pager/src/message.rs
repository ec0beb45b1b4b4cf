//! Messages to the user from inside the program.

use std::os::fd::OwnedFd;

use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

/// Writes one line to the program's standard error. The pager's threads have a file table of their own, so
/// the program's descriptor is borrowed from its own table, as it is at this moment.
pub fn to_program(text: &str) {
    let line = format!("spillway: {text}\n");
    if let Ok(stderr) = stderr_of_program() {
        let _ = rustix::io::write(stderr, line.as_bytes());
    }
}

fn stderr_of_program() -> rustix::io::Result<OwnedFd> {
    let program = pidfd_open(getpid(), PidfdFlags::empty())?;
    pidfd_getfd(program, 2, PidfdGetfdFlags::empty())
}

/// Ends the program at once, where going on would mean wrong data.
pub fn stop_program() -> ! {
    let _ = rustix::process::kill_process(getpid(), rustix::process::Signal::KILL);
    std::process::abort()
}
