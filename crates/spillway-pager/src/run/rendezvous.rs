//! How a process of a run meets its supervisor: three messages over a connection that then stays open, so
//! that the supervisor learns of the process's end by the end of the connection, however the process ends. A
//! process that may not read its accessed bits asks for them there ([`crate::run::told_uses`]).

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, recvmsg, sendmsg, socket_with,
};
use rustix::process::getpid;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::run::settings::Settings;
use crate::run::state::Child;

/// Which build this is: the library in a program and its run's supervisor are to be of one, since messages
/// and the run's memory have other forms in another.
pub const BUILD: &str = concat!("spillway-build-", env!("SPILLWAY_BUILD"));

/// The same as a number, for messages of words.
pub const BUILD_NUMBER: u64 = match u64::from_str_radix(env!("SPILLWAY_BUILD"), 16) {
    Ok(number) => number,
    Err(_) => panic!("build.rs writes hexadecimal digits"),
};

const MAX_MESSAGE_BYTES: usize = 64 << 10;
const MAX_FDS: usize = 32;

/// Process to supervisor: I am here.
#[derive(Debug, Serialize, Deserialize)]
pub struct Hello {
    /// The run's token, which only its processes know.
    pub token: String,
    /// What a forked child got from its parent.
    pub forked: Option<Child>,
    /// [`BUILD`] of the process's library. Libraries of before this was had none.
    #[serde(default)]
    pub build: String,
}

/// Supervisor to process: what you need. Descriptors come with it, in this order: the run's state, each
/// store's shared part and then its last resort where it has them, `/dev/userfaultfd` where the supervisor
/// could open it, the ring for a fault trace where the process is to write one, the log of its tape, and the
/// tape where it is to play one.
#[derive(Debug, Serialize, Deserialize)]
pub struct Welcome {
    /// [`BUILD`] of the supervisor. Those of before this was had none.
    #[serde(default)]
    pub build: String,
    /// The process's entry in the run's state.
    pub entry: usize,
    /// What the run was started with.
    pub settings: Settings,
    /// Whether descriptors come for each store: of its shared part, and of its last resort.
    pub store_has_fds: Vec<[bool; 2]>,
    /// Whether a descriptor of `/dev/userfaultfd` comes.
    pub has_device: bool,
    /// Whether a descriptor of a [ring](crate::run::trace_ring) comes.
    pub has_trace_ring: bool,
    /// Whether a descriptor of a [log](crate::run::tape_log) comes.
    pub has_tape_log: bool,
    /// Whether a descriptor of a tape comes.
    pub has_tape: bool,
    /// Why the process cannot be managed, in place of everything else.
    pub refusal: Option<String>,
}

/// Process to supervisor, once it is welcome.
#[derive(Debug, Serialize, Deserialize)]
pub enum FromProcess {
    /// Paging works. The process's userfaultfd comes with it; while the supervisor holds that, a page that is
    /// not there blocks its reader rather than read as zeros, even while the process dies.
    Ready,
    /// Which of my pages were used?
    WhichUsed(Question),
    /// I have a connection to a server, by this number of mine, and it comes with this: so that the
    /// supervisor can wait, after my end, until the server has done the last of what I sent.
    Connected(u64),
    /// The connection of this number can be closed: nothing is on its way by it.
    Disconnected(u64),
}

/// Which of these pages of mine were used? See [`crate::run::told_uses`].
#[derive(Debug, Serialize, Deserialize)]
pub struct Question {
    /// Comes back with the answer, so that one that comes too late is told from the next.
    pub number: u64,
    /// The first of them.
    pub first_page: u64,
    /// How many they are.
    pub pages: usize,
}

/// What can go wrong at the meeting.
#[derive(Debug, Error)]
pub enum RendezvousError {
    /// The connection cannot be made, or breaks.
    #[error(
        "the supervisor of this run cannot be reached: {0}; has 'spillway run' ended, or is \
             the program in a network namespace that it may not leave?"
    )]
    Connection(#[from] Errno),
    /// The library was replaced since the run began.
    #[error(
        "the library is of another build than the supervisor of this run: if Spillway was upgraded \
         meanwhile, end the run and start it again, else install or build both anew"
    )]
    OtherBuild,
    /// A message is not what it should be.
    #[error("the supervisor of this run speaks another version of Spillway: {0}")]
    Message(String),
}

/// The name of the run that the calling process supervises.
#[must_use]
pub fn name(token: &str) -> String {
    format!("spillway-{}-{}", getpid().as_raw_nonzero(), token.get(..16).unwrap_or(token))
}

/// The address of a run's socket: abstract, so that nothing is left behind in a file system.
///
/// # Errors
/// ENAMETOOLONG where the name is too long for a socket.
pub fn address(name: &str) -> rustix::io::Result<SocketAddrUnix> {
    SocketAddrUnix::new_abstract_name(name.as_bytes())
}

/// Connects to a supervisor, on a thread of the pager. The program may be in a network namespace of its own,
/// where neither the supervisor nor a donor is to be found: then this thread, and those that it starts, go
/// back to the supervisor's.
///
/// # Errors
/// [`RendezvousError::Connection`] where nobody listens.
pub fn connect(name: &str) -> Result<OwnedFd, RendezvousError> {
    match connect_here(name) {
        Err(RendezvousError::Connection(Errno::CONNREFUSED))
            if enter_network_of_supervisor(name).is_some() =>
        {
            connect_here(name)
        }
        other => other,
    }
}

fn enter_network_of_supervisor(name: &str) -> Option<()> {
    let pid: u32 = name.split('-').nth(1)?.parse().ok()?;
    let path = format!("/proc/{pid}/ns/net");
    let network = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network)).ok()
}

fn connect_here(name: &str) -> Result<OwnedFd, RendezvousError> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    rustix::net::connect(&socket, &address(name)?)?;
    Ok(socket)
}

/// Sends a message and descriptors.
///
/// # Errors
/// [`RendezvousError::Connection`] where the other side has gone.
pub fn send(to: impl AsFd, message: &impl Serialize, fds: &[BorrowedFd<'_>]) -> Result<(), RendezvousError> {
    send_as(to, message, fds, SendFlags::empty())
}

/// Sends a message, or fails where the other side has left no room for it.
///
/// # Errors
/// [`RendezvousError::Connection`] with EAGAIN; or as [`send`].
pub fn send_now(to: impl AsFd, message: &impl Serialize) -> Result<(), RendezvousError> {
    send_as(to, message, &[], SendFlags::DONTWAIT)
}

fn send_as(
    to: impl AsFd,
    message: &impl Serialize,
    fds: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> Result<(), RendezvousError> {
    let text = serde_json::to_vec(message).map_err(|error| RendezvousError::Message(error.to_string()))?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(fds));
    }
    sendmsg(to, &[IoSlice::new(&text)], &mut control, flags | SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives a message and descriptors; `None` when the other side has gone.
///
/// # Errors
/// [`RendezvousError::Message`] where it is no such message; [`RendezvousError::Connection`].
pub fn receive<M: DeserializeOwned>(from: impl AsFd) -> Result<Option<(M, Vec<OwnedFd>)>, RendezvousError> {
    let mut text = vec![0; MAX_MESSAGE_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let slices = &mut [IoSliceMut::new(&mut text)];
        match recvmsg(&from, slices, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            Err(Errno::CONNRESET) => return Ok(None),
            other => break other?.bytes,
        }
    };
    let fds = control
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        })
        .flatten()
        .collect();
    if received == 0 {
        return Ok(None);
    }
    let message = serde_json::from_slice(&text[..received])
        .map_err(|error| RendezvousError::Message(error.to_string()))?;
    Ok(Some((message, fds)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_and_descriptors_arrive_together() {
        let (a, b) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        let hello =
            Hello { token: "t".into(), forked: Some(Child { entry: 3, claim: 9 }), build: BUILD.into() };
        send(&a, &hello, &[file.as_fd(), file.as_fd()]).unwrap();
        let (back, fds) = receive::<Hello>(&b).unwrap().unwrap();
        assert_eq!((back.token.as_str(), back.forked, fds.len()), ("t", hello.forked, 2));
        rustix::io::write(&a, b"garbage").unwrap();
        assert!(matches!(receive::<Hello>(&b), Err(RendezvousError::Message(_))));
        drop(a);
        assert!(receive::<Hello>(&b).unwrap().is_none());
    }
}
