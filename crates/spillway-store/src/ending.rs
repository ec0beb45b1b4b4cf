//! The end of what a server was told by one connection: once the server has hung up, nothing of it is on its
//! way any more.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};

/// How long the end of a run waits until a donor has given its memory back, so that the next run finds it.
const PATIENCE: Duration = Duration::from_secs(2);

/// Tells the server that nothing more comes.
pub fn hang_up(socket: &OwnedFd) {
    let _ = shutdown(socket, Shutdown::Write);
}

/// From now on closing a connection throws away what is on its way to the server, where the network can.
pub fn reset_when_closed(socket: &OwnedFd) {
    let _ = set_socket_linger(socket, Some(Duration::ZERO));
}

/// What is known of a connection on which nothing more is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The server has not hung up yet.
    Awaited,
    /// The server has hung up.
    Over,
    /// It broke for another reason: what the server has received of it may still be done.
    Unknown,
}

/// Takes what the server has answered, and says whether it has hung up.
#[must_use]
pub fn look(socket: &OwnedFd) -> Ending {
    let mut bytes = [0; 8 << 10];
    loop {
        match recv(socket, &mut bytes, RecvFlags::DONTWAIT) {
            Ok((_, 0)) | Err(Errno::CONNRESET | Errno::PIPE) => return Ending::Over,
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ending::Awaited,
            Err(_) => return Ending::Unknown,
        }
    }
}

/// Waits until the server has hung up, for a bounded time.
pub fn await_end(socket: &OwnedFd) {
    hang_up(socket);
    await_all(&[socket]);
}

/// The same for several connections, on which [`hang_up`] was called.
pub fn await_all(sockets: &[&OwnedFd]) {
    let deadline = Instant::now() + PATIENCE;
    let mut open = sockets.to_vec();
    loop {
        open.retain(|socket| look(socket) == Ending::Awaited);
        let left = deadline.saturating_duration_since(Instant::now());
        if open.is_empty() || left.is_zero() {
            return;
        }
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        let mut polled: Vec<PollFd<'_>> =
            open.iter().map(|socket| PollFd::new(*socket, PollFlags::IN)).collect();
        match poll(&mut polled, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
    }
}
