//! How a server is reached: a socket on which nothing blocks for longer than one attempt may take, and why
//! there is no connection.

use std::io::IoSlice;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::sockopt::{set_tcp_nodelay, socket_error};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use spillway_nbd::WireError;
use spillway_sys::socket::limit_retransmission_pause;
use thiserror::Error;

use super::progress::{Progress, wait_for};
use super::socket::Socket;

/// Longest pause before the kernel sends once more what got no acknowledgement: so a way that was cut for a
/// while is found open soon.
const RETRANSMISSION_PAUSE: Duration = Duration::from_secs(1);

/// Why there is no connection.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ConnectError {
    /// The server cannot be reached, or hung up: trying again may help.
    #[error("{0}")]
    Unreachable(String),
    /// Nobody listens there: whoever did has ended, or has not begun. Trying again may help.
    #[error("cannot connect: {}", Errno::CONNREFUSED)]
    NobodyListens,
    /// The server hung up before the export was open: it has no room, or ends.
    #[error("the server closed the connection")]
    TurnedAway,
    /// The server cannot be reached in this time.
    #[error("cannot connect: no answer within {} s", seconds(*.0))]
    NoWay(Duration),
    /// The server did not answer in time.
    #[error("the server has not answered for {} s", seconds(*.0))]
    Silent(Duration),
    /// It took the connection, and did not even greet.
    #[error(
        "the server has not answered for {} s, though an NBD server greets first: it is of another kind, is \
         stopped, or serves no further connection",
        seconds(*.0)
    )]
    Mute(Duration),
    /// The export was private to the run, and is not any more.
    #[error("another server listens there now, and what the donor held is lost")]
    AnotherServer,
    /// The server said no, or speaks another protocol: trying again does not help.
    #[error("{0}")]
    Refused(String),
    /// The donor knows nothing of the run: what it held is lost.
    #[error("the donor holds no memory of this run: it was restarted, or the run was away for too long")]
    Lost,
    /// There is no export of that name to drop.
    #[error("the donor has no export of that name")]
    Absent,
}

impl ConnectError {
    /// Trying again does not help.
    #[must_use]
    pub fn is_final(&self) -> bool {
        !matches!(
            self,
            Self::Unreachable(_)
                | Self::NobodyListens
                | Self::TurnedAway
                | Self::NoWay(_)
                | Self::Silent(_)
                | Self::Mute(_)
        )
    }
}

/// A duration for a message, in seconds: never 0 of something that took time.
#[must_use]
pub fn seconds(duration: Duration) -> f64 {
    match duration.as_secs_f64() {
        short if short < 1.0 => (short * 100.0).round().max(1.0) / 100.0,
        long if long < 10.0 => (long * 10.0).round() / 10.0,
        long => long.round(),
    }
}

/// How long one attempt to connect may take.
#[derive(Clone, Copy, Debug)]
pub struct Attempt {
    /// Until the server takes the connection.
    pub connect: Duration,
    /// When the export must be open.
    pub until: Instant,
}

impl Attempt {
    /// One that may take so long in all.
    #[must_use]
    pub fn of(most: Duration) -> Self {
        Self { connect: most, until: Instant::now() + most }
    }
}

impl From<WireError> for ConnectError {
    fn from(error: WireError) -> Self {
        Self::Refused(error.to_string())
    }
}

/// A socket that does not block, until one attempt is over.
pub struct Wire {
    socket: Socket,
    begun: Instant,
    until: Instant,
}

fn unreachable(errno: Errno) -> ConnectError {
    match errno {
        Errno::CONNREFUSED => ConnectError::NobodyListens,
        errno => ConnectError::Unreachable(format!("cannot connect: {errno}")),
    }
}

/// The address of a Unix socket, or why it is none.
pub fn unix_address(address: Result<SocketAddrUnix, Errno>) -> Result<SocketAddrUnix, ConnectError> {
    address.map_err(unreachable)
}

impl Wire {
    /// Connects to a server by TCP.
    pub fn by_tcp(address: &SocketAddr, attempt: Attempt) -> Result<Self, ConnectError> {
        let family = match address {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let wire = Self::by(family, attempt, |socket| connect(socket, address))?;
        set_tcp_nodelay(wire.socket.fd(), true).map_err(unreachable)?;
        // Kernels before Linux 6.15 wait twice as long each time.
        let _ = limit_retransmission_pause(wire.socket.fd(), RETRANSMISSION_PAUSE);
        Ok(wire)
    }

    /// Connects by a Unix socket.
    pub fn by_unix(address: &SocketAddrUnix, attempt: Attempt) -> Result<Self, ConnectError> {
        Self::by(AddressFamily::UNIX, attempt, |socket| connect(socket, address))
    }

    fn by(
        family: AddressFamily,
        attempt: Attempt,
        connect: impl FnOnce(&OwnedFd) -> Result<(), Errno>,
    ) -> Result<Self, ConnectError> {
        let begun = Instant::now();
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(family, SocketType::STREAM, flags, None).map_err(unreachable)?;
        match connect(&socket) {
            Ok(()) => {}
            Err(Errno::INPROGRESS | Errno::INTR) => {
                let left = attempt.until.saturating_duration_since(begun).min(attempt.connect);
                if !wait_for(&socket, PollFlags::OUT, left).map_err(unreachable)? {
                    return Err(ConnectError::NoWay(begun.elapsed()));
                }
                socket_error(&socket).map_err(unreachable)?.map_err(unreachable)?;
            }
            // A Unix server whose queue of connections is full says so at once.
            Err(errno) => return Err(unreachable(errno)),
        }
        Ok(Self { socket: Socket::Bare(socket), begun, until: attempt.until })
    }

    /// A socket that somebody else has connected, and that does not block.
    pub fn over(socket: OwnedFd, until: Instant) -> Self {
        Self { socket: Socket::Bare(socket), begun: Instant::now(), until }
    }

    /// The same attempt by another socket, which does not block, in place of its own.
    pub(super) fn go_on_by(
        self,
        other: impl FnOnce(Socket) -> Result<Socket, ConnectError>,
    ) -> Result<Self, ConnectError> {
        Ok(Self { socket: other(self.socket)?, ..self })
    }

    /// The socket, which does not block.
    pub(super) fn into_socket(self) -> Socket {
        self.socket
    }

    /// How long the attempt has taken so far.
    pub fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    fn await_ready(&self, events: PollFlags) -> Result<(), ConnectError> {
        let left = self.until.saturating_duration_since(Instant::now());
        match self.socket.wait(events, left) {
            Ok(true) => Ok(()),
            Ok(false) => Err(ConnectError::Silent(self.begun.elapsed())),
            Err(errno) => Err(ConnectError::Unreachable(errno.to_string())),
        }
    }

    /// Waits until something comes.
    pub(super) fn await_more(&mut self) -> Result<(), ConnectError> {
        self.await_ready(PollFlags::IN)
    }

    /// Sends all of it.
    pub fn send(&mut self, mut bytes: &[u8]) -> Result<(), ConnectError> {
        while !bytes.is_empty() {
            match self.socket.send(&[IoSlice::new(bytes)]) {
                Ok(Progress::Bytes(sent)) => bytes = &bytes[sent..],
                Ok(Progress::None) => self.await_ready(PollFlags::OUT)?,
                Err(error) => return Err(ConnectError::Unreachable(format!("connection lost: {error}"))),
            }
        }
        Ok(())
    }

    /// Receives as much as the buffer holds.
    pub fn receive(&mut self, bytes: &mut [u8]) -> Result<(), ConnectError> {
        let mut filled = 0;
        while filled < bytes.len() {
            filled += self.receive_some(&mut bytes[filled..])?;
        }
        Ok(())
    }

    /// Receives what comes next, at least a byte.
    pub fn receive_some(&mut self, bytes: &mut [u8]) -> Result<usize, ConnectError> {
        loop {
            match self.socket.receive(bytes, false) {
                Ok(Progress::Bytes(0)) => return Err(ConnectError::TurnedAway),
                Ok(Progress::Bytes(received)) => return Ok(received),
                Ok(Progress::None) => self.await_ready(PollFlags::IN)?,
                Err(error) => return Err(ConnectError::Unreachable(format!("connection lost: {error}"))),
            }
        }
    }

    /// Receives as many bytes as the array has.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], ConnectError> {
        let mut bytes = [0; N];
        self.receive(&mut bytes)?;
        Ok(bytes)
    }

    /// Receives a byte within this time, if the attempt lasts as long; `None` where it does not come.
    pub fn byte_within(&mut self, time: Duration) -> Result<Option<u8>, ConnectError> {
        let left = self.until.saturating_duration_since(Instant::now()).min(time);
        match self.socket.wait(PollFlags::IN, left) {
            Ok(true) => Ok(Some(self.array::<1>()?[0])),
            Ok(false) => Ok(None),
            Err(errno) => Err(ConnectError::Unreachable(errno.to_string())),
        }
    }
}
