//! How a marker comes to be connected: the daemon listens, programs call.

use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Result;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType, connect, sendmsg, socket_with,
};

use crate::marker::Marker;
use crate::wire::Hello;

/// A packet socket that is not there for a program that it executes.
///
/// # Errors
/// The kernel's, where it makes none.
pub fn packet_socket() -> Result<OwnedFd> {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

/// Calls the daemon that listens by this abstract name, as a program of a build. The marker, which has said
/// hello and has to run.
///
/// # Errors
/// ECONNREFUSED: no daemon listens. What [`Marker::new`] says: the daemon was told.
pub fn call(name: &[u8], build: u64) -> Result<Marker> {
    let socket = packet_socket()?;
    connect(&socket, &SocketAddrUnix::new_abstract_name(name)?)?;
    introduce(socket, build)
}

/// The same over a socket that is connected.
///
/// # Errors
/// As [`call`].
pub fn introduce(socket: OwnedFd, build: u64) -> Result<Marker> {
    let told = socket.try_clone().map_err(|_| rustix::io::Errno::MFILE)?;
    match Marker::new(socket) {
        Ok(marker) => {
            say(&told, &marker.hello(build), Some(&marker))?;
            Ok(marker)
        }
        Err(error) => {
            say(&told, &Hello { build, frames: 0..0, refused: Some(error) }, None)?;
            Err(error)
        }
    }
}

fn say(socket: &OwnedFd, hello: &Hello, marker: Option<&Marker>) -> Result<()> {
    let packet = hello.encode();
    let fds: Vec<_> = marker.iter().map(|marker| marker.uffd().as_fd()).collect();
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&fds));
    }
    sendmsg(socket, &[IoSlice::new(&packet)], &mut control, SendFlags::NOSIGNAL).map(|_| ())
}
