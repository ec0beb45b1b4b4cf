//! Where a run's processes and its relay ([`super::relay`]) meet, and what they say to each other before NBD
//! begins: each shows a secret that only the run has, and the relay says how far it has come.
//!
//! | lane | relay |
//! |---|---|
//! | its secret, and a [`Wish`] | |
//! | | the relay's secret, at once |
//! | | [`CONNECTED`], when the server has taken the TCP connection |
//! | | to [`Wish::Expect`]: [`READY`], and that is all; else: |
//! | | [`READY`] and the server's NBD greeting, when it has answered by TLS; or [`FAILED`] and why |
//! | NBD's client flags, which end here | |
//! | NBD goes on | [`Wish::PassOn`]: the same, to and from the server |
//! | NBD goes on by the server's connection | [`Wish::TakeOver`]: the session's keys, and this connection |
//!
//! The processes of a run may be different users', so it is not the user that counts. What one side is shown
//! is of no use without the other's: who takes the name once the relay is gone can show nothing.

use std::fmt;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, sendmsg};
use spillway_nbd::private::{SECRET_BYTES, relay_secrets};
use spillway_tls::KeyPrint;
use spillway_tls::key_print::PRINT_BYTES;
use spillway_tls::records::{KEYS_BYTES, Keys};

use super::reaching::{Attempt, ConnectError, Wire, unix_address};
use super::socket::Socket;
use super::tls_socket::TlsSocket;
use crate::with_descriptor;

/// The relay has a TCP connection to the server.
pub const CONNECTED: u8 = 1;
/// The server has answered by TLS; its greeting follows.
pub const READY: u8 = 2;
/// There will be no connection; a [`Failure`] follows.
pub const FAILED: u8 = 3;

/// Longest text in a failure, in bytes.
const MAX_TEXT_BYTES: usize = 1000;

/// What a lane wants of the relay once that has reached the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// To pass on what either side says.
    PassOn,
    /// To leave the connection to the lane.
    TakeOver,
    /// Nothing of the server now: from now on it must have this key. The supervisor says so.
    Expect(KeyPrint),
    /// Nothing of the server: to stay for as long as this connection does.
    Stay,
}

impl Wish {
    /// Appends it as it is sent.
    fn put(self, out: &mut Vec<u8>) {
        match self {
            Self::PassOn => out.push(0),
            Self::TakeOver => out.push(1),
            Self::Expect(key) => {
                out.push(2);
                out.extend_from_slice(&key.to_bytes());
            }
            Self::Stay => out.push(3),
        }
    }

    /// Hears one; `None` where it is another version's.
    fn receive(wire: &mut Wire) -> Result<Option<Self>, ConnectError> {
        let [kind] = wire.array::<1>()?;
        Ok(match kind {
            0 => Some(Self::PassOn),
            1 => Some(Self::TakeOver),
            2 => Some(Self::Expect(KeyPrint::from_bytes(wire.array::<PRINT_BYTES>()?))),
            3 => Some(Self::Stay),
            _ => None,
        })
    }
}

/// Where a run's processes find the relay to one server, and how they know it.
#[derive(Clone, PartialEq, Eq)]
pub struct Meeting {
    name: [u8; SECRET_BYTES],
    lanes: [u8; SECRET_BYTES],
    relays: [u8; SECRET_BYTES],
}

impl fmt::Debug for Meeting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Meeting")
    }
}

impl Meeting {
    /// The same in every process of a run, for the store of this URI.
    pub fn of(run_token: &str, uri: &str) -> Self {
        let [name, lanes, relays] = relay_secrets(run_token, uri);
        Self { name, lanes, relays }
    }

    /// The relay's address: abstract, so that nothing is left behind in a file system.
    pub fn address(&self) -> Result<SocketAddrUnix, rustix::io::Errno> {
        let digits = self.name.iter().take(16).map(|byte| format!("{byte:02x}")).collect::<String>();
        SocketAddrUnix::new_abstract_name(format!("spillway-tls-{digits}").as_bytes())
    }

    /// Has the relay connect to the server. The server's greeting comes next, but where it is only told what
    /// to expect.
    pub fn knock(&self, wish: Wish, attempt: Attempt) -> Result<Wire, ConnectError> {
        let mut wire =
            Wire::by_unix(&unix_address(self.address())?, attempt).map_err(|error| match error {
                // Not the server: whether that is there, nobody knows.
                ConnectError::Unreachable(_) | ConnectError::NobodyListens => {
                    ConnectError::Unreachable(format!("the run's relay for TLS is gone: {error}"))
                }
                other => other,
            })?;
        let mut knock = self.lanes.to_vec();
        wish.put(&mut knock);
        wire.send(&knock)?;
        if wire.array::<SECRET_BYTES>()? != self.relays {
            return Err(ConnectError::Refused("what answers in the relay's place is not of this run".into()));
        }
        let stage = match wire.byte_within(attempt.connect)? {
            Some(CONNECTED) => wire.array::<1>()?[0],
            Some(other) => other,
            None => return Err(ConnectError::NoWay(wire.elapsed())),
        };
        match stage {
            READY => Ok(wire),
            FAILED => Err(receive_failure(&mut wire)?),
            _ => Err(ConnectError::Refused("the run's relay is another version's".into())),
        }
    }

    /// The relay's side: hears a lane, and answers it; what it wishes. `None` where it is none of this run.
    pub fn answer(&self, wire: &mut Wire) -> Result<Option<Wish>, ConnectError> {
        let shown = wire.array::<SECRET_BYTES>()?;
        // As long for every wrong answer, though nobody could ask often enough to make use of it.
        let differences = shown.iter().zip(&self.lanes).fold(0, |all, (a, b)| all | (a ^ b));
        if differences != 0 {
            return Ok(None);
        }
        let wish = Wish::receive(wire)?;
        wire.send(&self.relays)?;
        Ok(wish)
    }
}

/// The relay's side: leaves a connection to the server to the lane.
pub fn hand_over(lane: impl AsFd, keys: &Keys, server: &OwnedFd) -> Result<(), ConnectError> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [server.as_fd()];
    control.push(SendAncillaryMessage::ScmRights(&fds));
    // Nothing has been sent before of which the lane has not heard yet: there is room.
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(lane, &[IoSlice::new(keys.encode())], &mut control, flags).map_err(not_handed_over)?;
    Ok(())
}

fn not_handed_over(reason: impl fmt::Display) -> ConnectError {
    ConnectError::Unreachable(format!("the run's relay for TLS does not hand its connection over: {reason}"))
}

/// The lane's side: goes on by the connection that the relay has made.
pub fn take_over(mut wire: Wire) -> Result<Wire, ConnectError> {
    wire.await_more()?;
    wire.go_on_by(|relay| {
        // It was sent at once, and is small: all of it has come.
        let mut keys = [0; KEYS_BYTES];
        let (filled, server) = with_descriptor::receive(relay.fd(), &mut keys).map_err(not_handed_over)?;
        let reason = if filled == 0 { "it has hung up" } else { "the kernel has not let it through" };
        let server = server.ok_or_else(|| not_handed_over(reason))?;
        let ways = if filled == KEYS_BYTES { Keys::decode(&keys) } else { None };
        let ways = ways.ok_or_else(|| not_handed_over("it is another version's"))?;
        Ok(Socket::Tls(Box::new(TlsSocket::new(server, relay.into_fd(), ways))))
    })
}

/// A failure as it is sent: its kind, and its text where the kind does not say everything.
pub fn encode_failure(error: &ConnectError) -> Vec<u8> {
    let (kind, text) = match error {
        ConnectError::Unreachable(text) => (0, text.as_str()),
        ConnectError::TurnedAway => (1, ""),
        ConnectError::NoWay(_) => (2, ""),
        ConnectError::Silent(_) => (3, ""),
        ConnectError::Mute(_) => (4, ""),
        ConnectError::Refused(text) => (5, text.as_str()),
        ConnectError::NobodyListens => (6, ""),
        // None of these comes before NBD's options do.
        ConnectError::AnotherServer | ConnectError::Lost | ConnectError::Absent => (1, ""),
    };
    let text = &text[..text.floor_char_boundary(MAX_TEXT_BYTES)];
    let mut bytes = vec![FAILED, kind];
    bytes.extend_from_slice(&(text.len() as u16).to_be_bytes());
    bytes.extend_from_slice(text.as_bytes());
    bytes
}

fn receive_failure(wire: &mut Wire) -> Result<ConnectError, ConnectError> {
    let [kind, high, low] = wire.array::<3>()?;
    let mut text = vec![0; usize::from(u16::from_be_bytes([high, low])).min(MAX_TEXT_BYTES)];
    wire.receive(&mut text)?;
    Ok(decode_failure(kind, &String::from_utf8_lossy(&text), wire.elapsed()))
}

fn decode_failure(kind: u8, text: &str, waited: Duration) -> ConnectError {
    match kind {
        0 => ConnectError::Unreachable(text.to_owned()),
        1 => ConnectError::TurnedAway,
        2 => ConnectError::NoWay(waited),
        3 => ConnectError::Silent(waited),
        4 => ConnectError::Mute(waited),
        6 => ConnectError::NobodyListens,
        _ => ConnectError::Refused(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_meeting_is_the_same_in_a_run_and_another_elsewhere() {
        let (uri, other) = ("nbds://a:1/?tls-certificates=/c", "nbds://a:2/?tls-certificates=/c");
        let meeting = Meeting::of("run", uri);
        assert_eq!(meeting, Meeting::of("run", uri));
        for stranger in [Meeting::of("ru", uri), Meeting::of("run", other), Meeting::of("", uri)] {
            assert!(stranger.name != meeting.name && stranger.lanes != meeting.lanes);
            assert!(stranger.relays != meeting.relays && meeting.lanes != meeting.relays);
        }
        assert_eq!(format!("{meeting:?}"), "Meeting");
    }

    #[test]
    fn what_is_no_connection_with_its_keys_is_not_taken_over() {
        let until = || std::time::Instant::now() + Duration::from_secs(30);
        let taken = |send: &dyn Fn(&OwnedFd)| {
            let (lane, relay) = std::os::unix::net::UnixStream::pair().unwrap();
            send(&relay.into());
            take_over(Wire::over(lane.into(), until())).map(|_| ()).unwrap_err().to_string()
        };
        let send = |relay: &OwnedFd, bytes: &[u8], is_with_socket: bool| {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let server = std::os::unix::net::UnixStream::pair().unwrap().0;
            let fds = [server.as_fd()];
            if is_with_socket {
                control.push(SendAncillaryMessage::ScmRights(&fds));
            }
            sendmsg(relay, &[IoSlice::new(bytes)], &mut control, SendFlags::empty()).unwrap();
        };
        assert!(taken(&|_| {}).contains("has hung up"));
        assert!(taken(&|relay| send(relay, &[0; KEYS_BYTES], false)).contains("not let it through"));
        assert!(taken(&|relay| send(relay, &[0; KEYS_BYTES - 1], true)).contains("another version"));
        assert!(taken(&|relay| send(relay, &[9; KEYS_BYTES], true)).contains("another version"));
    }

    #[test]
    fn wishes_arrive_as_they_were() {
        let meeting = Meeting::of("run", "nbds://a:1/");
        let heard = |bytes: &[u8]| {
            let (lane, relay) = std::os::unix::net::UnixStream::pair().unwrap();
            std::io::Write::write_all(&mut &lane, &[&meeting.lanes, bytes].concat()).unwrap();
            let until = std::time::Instant::now() + Duration::from_secs(30);
            drop(relay.set_nonblocking(true));
            let wish = meeting.answer(&mut Wire::over(relay.into(), until));
            drop(lane);
            wish
        };
        let key = KeyPrint::from_bytes(std::array::from_fn(|at| at as u8));
        for wish in [Wish::PassOn, Wish::TakeOver, Wish::Expect(key), Wish::Stay] {
            let mut bytes = Vec::new();
            wish.put(&mut bytes);
            assert_eq!(heard(&bytes), Ok(Some(wish)));
        }
        assert_eq!(heard(&[4]), Ok(None), "a later version's");
    }

    #[test]
    fn failures_arrive_as_they_were() {
        let waited = Duration::from_secs(3);
        for error in [
            ConnectError::Unreachable("cannot connect: no".into()),
            ConnectError::TurnedAway,
            ConnectError::NoWay(waited),
            ConnectError::Silent(waited),
            ConnectError::Mute(waited),
            ConnectError::NobodyListens,
            ConnectError::Refused("the server's certificate has expired".into()),
        ] {
            let bytes = encode_failure(&error);
            let text = std::str::from_utf8(&bytes[4..]).unwrap();
            assert_eq!(usize::from(u16::from_be_bytes([bytes[2], bytes[3]])), text.len());
            assert_eq!((bytes[0], decode_failure(bytes[1], text, waited)), (FAILED, error));
        }
        assert_eq!(encode_failure(&ConnectError::Refused("\u{e4}".repeat(900))).len(), 4 + MAX_TEXT_BYTES);
    }
}
