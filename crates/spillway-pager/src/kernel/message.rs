//! Messages to the user from inside the program.

use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::Timespec;
use rustix::io::{Errno, IoSlice, ReadWriteFlags, pwritev2};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

/// Writes one line to the program's standard error. The pager's threads have a file table of their own, so
/// the program's descriptor is borrowed from its own table, as it is at this moment. Where nobody reads, the
/// line is lost: paging must not wait for a reader.
pub fn to_program(text: &str) {
    let line = format!("spillway: {text}\n");
    let Ok(stderr) = stderr_of_program() else { return };
    if poll(&mut [PollFd::new(&stderr, PollFlags::OUT)], Some(&A_MOMENT)) != Ok(1) {
        return;
    }
    let now = pwritev2(&stderr, &[IoSlice::new(line.as_bytes())], AT_ITS_POSITION, ReadWriteFlags::NOWAIT);
    if matches!(now, Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS)) {
        let _ = rustix::io::write(&stderr, line.as_bytes());
    }
}

const A_MOMENT: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
const AT_ITS_POSITION: u64 = u64::MAX;

fn stderr_of_program() -> rustix::io::Result<OwnedFd> {
    let program = pidfd_open(getpid(), PidfdFlags::empty())?;
    pidfd_getfd(program, 2, PidfdGetfdFlags::empty())
}

/// Ends the program at once, where going on would mean wrong data.
pub fn stop_program() -> ! {
    let _ = rustix::process::kill_process(getpid(), rustix::process::Signal::KILL);
    std::process::abort()
}
