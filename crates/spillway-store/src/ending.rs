//! The end of a run, as its donors are told it.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};

/// How long the end of a run waits until a donor has given its memory back, so that the next run finds it.
const PATIENCE: Duration = Duration::from_secs(2);

/// Waits until the other side has hung up, for a bounded time.
pub fn await_end(socket: &OwnedFd) {
    let deadline = Instant::now() + PATIENCE;
    let _ = shutdown(socket, Shutdown::Write);
    let mut bytes = [0; 256];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
        match recv(socket, &mut bytes, RecvFlags::DONTWAIT) {
            Ok((_, 0)) => return,
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => return,
        }
    }
}
