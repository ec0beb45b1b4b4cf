//! Copies between a lane and a server until one of them leaves. Each way has one buffer: what is in it must
//! be gone before more is taken, so whoever does not read holds up this connection alone.
//!
//! What a lane may rely on as with a bare connection:
//! - when it sees the end, the connection to the server is closed already: nothing that it sent is on its
//!   way any more;
//! - when it hangs up before the server has all that it sent, the server's connection is reset, and what was
//!   not sent yet never is.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use spillway_tls::Session;

use super::upstream::Upstream;
use crate::nbd::progress::{Progress, acknowledge_small, progress};

/// Most that is taken at once from either side.
const CHUNK_BYTES: usize = 64 << 10;

/// Bytes on their way out.
#[derive(Default)]
struct Outgoing {
    bytes: Vec<u8>,
    sent: usize,
}

impl Outgoing {
    fn is_empty(&self) -> bool {
        self.sent == self.bytes.len()
    }

    /// Sends what the socket takes now.
    fn send(&mut self, to: &OwnedFd) -> Result<(), Errno> {
        while !self.is_empty() {
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match progress(send(to, &self.bytes[self.sent..], flags))? {
                Progress::Bytes(sent) => self.sent += sent,
                Progress::None => return Ok(()),
            }
        }
        self.bytes.clear();
        self.sent = 0;
        Ok(())
    }
}

/// Why copying comes to its end.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// The lane has hung up, and all that it sent has been passed on.
    LaneLeft,
    /// The lane has hung up amid something.
    LaneBroke,
    /// The server has left, or what came from it is not to be believed.
    ServerLeft,
}

/// A connection of a lane's and its continuation.
pub(super) struct Pump {
    lane: OwnedFd,
    server: OwnedFd,
    session: Session,
    to_lane: Outgoing,
    to_server: Outgoing,
    /// The lane has said that it sends nothing more.
    is_lane_done: bool,
    /// The server has been told so.
    is_server_told: bool,
    input: Box<[u8]>,
}

impl Pump {
    pub(super) fn new(lane: OwnedFd, upstream: Upstream) -> Self {
        let Upstream { socket, session, .. } = upstream;
        Self {
            lane,
            server: socket,
            session,
            to_lane: Outgoing::default(),
            to_server: Outgoing::default(),
            is_lane_done: false,
            is_server_told: false,
            input: vec![0; CHUNK_BYTES].into_boxed_slice(),
        }
    }

    pub(super) fn run(mut self) {
        let end = loop {
            if let Err(end) = self.step() {
                break end;
            }
        };
        let Self { lane, server, session, to_lane, .. } = self;
        close_server(server, session, &end);
        if end == End::ServerLeft {
            end_lane(&lane, to_lane);
        }
    }

    /// Waits for one of the two, and moves what can be moved.
    fn step(&mut self) -> Result<(), End> {
        let mut lane_events = PollFlags::empty();
        lane_events.set(PollFlags::IN, self.to_server.is_empty() && !self.is_lane_done);
        lane_events.set(PollFlags::OUT, !self.to_lane.is_empty());
        let mut server_events = PollFlags::empty();
        server_events.set(PollFlags::IN, self.to_lane.is_empty());
        server_events.set(PollFlags::OUT, !self.to_server.is_empty());
        let mut polled = vec![PollFd::new(&self.lane, lane_events)];
        // One that nothing is wanted of would be told of as gone again and again.
        if !server_events.is_empty() {
            polled.push(PollFd::new(&self.server, server_events));
        }
        match poll(&mut polled, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return Err(End::ServerLeft),
        }
        let lane = polled[0].revents();
        let server = polled.get(1).map_or(PollFlags::empty(), PollFd::revents);
        drop(polled);
        let gone = PollFlags::HUP | PollFlags::ERR;
        if lane.intersects(gone) {
            return Err(self.lane_hung_up());
        }
        if lane.contains(PollFlags::IN) {
            self.take_from_lane()?;
        }
        if server.contains(PollFlags::IN) || server.intersects(gone) && self.to_lane.is_empty() {
            self.take_from_server()?;
        }
        self.to_lane.send(&self.lane).map_err(|_| End::LaneBroke)?;
        self.to_server.send(&self.server).map_err(|_| End::ServerLeft)?;
        if self.is_lane_done && !self.is_server_told && self.to_server.is_empty() {
            self.is_server_told = true;
            let _ = shutdown(&self.server, Shutdown::Write);
        }
        Ok(())
    }

    /// Both ways of the lane are closed. Where it has left bytes behind, or some are here, it broke off.
    fn lane_hung_up(&mut self) -> End {
        let left = recv(&self.lane, &mut *self.input, RecvFlags::DONTWAIT);
        match left {
            Ok((_, 0)) if self.to_server.is_empty() => End::LaneLeft,
            _ => End::LaneBroke,
        }
    }

    fn take_from_lane(&mut self) -> Result<(), End> {
        match progress(recv(&self.lane, &mut *self.input, RecvFlags::DONTWAIT).map(|(bytes, _)| bytes)) {
            Ok(Progress::None) => Ok(()),
            Ok(Progress::Bytes(0)) => {
                self.is_lane_done = true;
                self.session.end(&mut self.to_server.bytes);
                Ok(())
            }
            Ok(Progress::Bytes(count)) => {
                let plain = self.input.get(..count).unwrap_or_default();
                self.session.seal(plain, &mut self.to_server.bytes).map_err(|_| End::ServerLeft)
            }
            Err(_) => Err(End::LaneBroke),
        }
    }

    fn take_from_server(&mut self) -> Result<(), End> {
        match progress(recv(&self.server, &mut *self.input, RecvFlags::DONTWAIT).map(|(bytes, _)| bytes)) {
            Ok(Progress::None) => Ok(()),
            Ok(Progress::Bytes(0)) | Err(_) => Err(End::ServerLeft),
            Ok(Progress::Bytes(count)) => {
                acknowledge_small(&self.server, count);
                let sealed = self.input.get(..count).unwrap_or_default();
                let opened = self.session.open(sealed, &mut self.to_lane.bytes);
                self.session.pending(&mut self.to_server.bytes);
                match opened {
                    Ok(()) if !self.session.has_ended() => Ok(()),
                    _ => Err(End::ServerLeft),
                }
            }
        }
    }
}

/// Closes the way to the server: with a word where all is said, and else so that nothing more arrives.
fn close_server(server: OwnedFd, mut session: Session, end: &End) {
    if *end == End::LaneLeft {
        let mut last = Outgoing::default();
        session.end(&mut last.bytes);
        let _ = last.send(&server);
    } else {
        let _ = set_socket_linger(&server, Some(Duration::ZERO));
    }
}

/// Gives the lane what came from the server in order, and then the end; stays until it has hung up, since who
/// keeps a connection keeps the relay.
fn end_lane(lane: &OwnedFd, mut to_lane: Outgoing) {
    let mut is_told = false;
    loop {
        if to_lane.send(lane).is_err() {
            return;
        }
        if to_lane.is_empty() && !is_told {
            is_told = true;
            let _ = shutdown(lane, Shutdown::Write);
        }
        let events = if is_told { PollFlags::empty() } else { PollFlags::OUT };
        let mut polled = [PollFd::new(lane, events)];
        match poll(&mut polled, None) {
            Ok(_) if polled[0].revents().intersects(PollFlags::HUP | PollFlags::ERR) => return,
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
    }
}
