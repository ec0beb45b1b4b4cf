//! What a call on a socket comes to.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::set_tcp_quickack;
use spillway_tls::records::RecordError;
use thiserror::Error;

/// Why nothing more comes or goes by a socket.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum SocketError {
    /// The kernel says so.
    #[error("{0}")]
    Errno(#[from] Errno),
    /// What comes is not to be believed, or the session has ended.
    #[error("{0}")]
    Tls(#[from] RecordError),
}

/// Whether a socket was ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// This many bytes were moved.
    Bytes(usize),
    /// Nothing was moved: it would block.
    None,
}

/// What a call on a socket has done.
pub fn progress(result: Result<usize, Errno>) -> Result<Progress, Errno> {
    match result {
        Ok(bytes) => Ok(Progress::Bytes(bytes)),
        Err(Errno::AGAIN | Errno::INTR) => Ok(Progress::None),
        Err(errno) => Err(errno),
    }
}

/// So little may be the head of a reply, whose rest some servers (qemu-nbd by TLS) send once that is
/// acknowledged.
const HEAD_OF_REPLY_BYTES: usize = 512;

/// Acknowledges what was received at once where it is so little: the kernel would keep such a server waiting
/// for 40 ms.
pub fn acknowledge_small(socket: &OwnedFd, received_bytes: usize) {
    if received_bytes < HEAD_OF_REPLY_BYTES {
        let _ = set_tcp_quickack(socket, true);
    }
}

/// Waits until a socket is ready. `false` when `timeout` is over.
pub fn wait_for(socket: &OwnedFd, events: PollFlags, timeout: Duration) -> Result<bool, Errno> {
    let timeout = Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    match poll(&mut [PollFd::new(socket, events)], Some(&timeout)) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(true),
        Err(errno) => Err(errno),
    }
}
