//! The socket of a connection to a server: bare, or with TLS on it.

use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, send, sendmsg};

use super::progress::{Progress, SocketError, progress, wait_for};
use super::tls_socket::TlsSocket;

/// A socket and what is spoken on it.
#[derive(Debug)]
pub(super) enum Socket {
    /// Bytes travel as they are.
    Bare(OwnedFd),
    /// Bytes travel sealed, by a session that the relay has begun.
    Tls(Box<TlsSocket>),
}

impl Socket {
    /// The kernel's, to wait for or to hand on.
    pub fn fd(&self) -> &OwnedFd {
        match self {
            Self::Bare(socket) => socket,
            Self::Tls(tls) => tls.socket(),
        }
    }

    /// The kernel's alone. Who goes on by it must know that no TLS is spoken on it.
    pub fn into_fd(self) -> OwnedFd {
        match self {
            Self::Bare(socket) => socket,
            Self::Tls(tls) => tls.into_fd(),
        }
    }

    /// Sends what is taken now.
    pub fn send(&mut self, slices: &[IoSlice<'_>]) -> Result<Progress, SocketError> {
        match self {
            Self::Bare(socket) => {
                let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
                Ok(progress(sendmsg(socket, slices, &mut SendAncillaryBuffer::default(), flags))?)
            }
            Self::Tls(tls) => tls.send(slices),
        }
    }

    /// Receives what is there now, or, where `patiently`, waits for it as long as the socket is set to. 0
    /// bytes at the end of the stream.
    pub fn receive(&mut self, buffer: &mut [u8], patiently: bool) -> Result<Progress, SocketError> {
        match self {
            Self::Bare(socket) => {
                let flags = if patiently { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
                Ok(progress(recv(socket, buffer, flags).map(|(bytes, _)| bytes))?)
            }
            Self::Tls(tls) => tls.receive(buffer, patiently),
        }
    }

    /// Waits for these events, after a call that could move nothing. `false` when `timeout` is over.
    pub fn wait(&self, mut events: PollFlags, timeout: Duration) -> Result<bool, Errno> {
        events.set(
            PollFlags::OUT,
            matches!(self, Self::Tls(tls) if tls.has_unsent()) || events.contains(PollFlags::OUT),
        );
        wait_for(self.fd(), events, timeout)
    }

    /// Says these last bytes, and that nothing more comes, if the socket takes it now.
    pub fn end(&mut self, last: &[u8]) {
        match self {
            Self::Bare(socket) => {
                let _ = send(socket, last, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
            }
            Self::Tls(tls) => tls.end(last),
        }
    }

    /// A new connection is to be made for what comes next.
    pub fn is_worn_out(&self) -> bool {
        matches!(self, Self::Tls(tls) if tls.is_worn_out())
    }
}
