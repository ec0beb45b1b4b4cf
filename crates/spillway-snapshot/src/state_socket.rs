//! The socket on which a run or a donor tells of itself. It is in the user's own directory, one for each, and
//! goes with it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use rustix::fs::{Mode, RenameFlags, fchmod, renameat_with};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};
use rustix::rand::{GetRandomFlags, getrandom};
use thiserror::Error;

use crate::directory::{Directory, DirectoryError, Of, socket_names, unfinished_name};
use crate::server::Listener;

/// Why a run or a donor cannot be looked at.
#[derive(Debug, Error)]
pub enum StateSocketError {
    /// There is no directory for it.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// It cannot be made there.
    #[error("{0}: no socket can be made there: {1}; free room on that file system, or set XDG_RUNTIME_DIR")]
    Kernel(PathBuf, Errno),
}

/// A socket that tells of somebody, which is removed when the value is dropped.
#[derive(Debug)]
pub struct StateSocket {
    directory: Directory,
    name: String,
}

impl StateSocket {
    /// Makes the socket of process `pid` in this user's own directory, and removes there what processes left
    /// that were killed.
    ///
    /// # Errors
    /// There is no directory of this user's alone, or the kernel makes no socket there.
    pub fn open(of: Of, pid: u32) -> Result<(Self, Listener), StateSocketError> {
        Self::open_in(Directory::of_own()?, of, pid)
    }

    fn open_in(directory: Directory, of: Of, pid: u32) -> Result<(Self, Listener), StateSocketError> {
        directory.remove_unfinished();
        remove_abandoned(&directory);
        match make(&directory, of, pid) {
            Ok((name, socket)) => Ok((Self { directory, name }, Listener { socket, is_private: true })),
            Err(error) => Err(StateSocketError::Kernel(directory.path().to_owned(), error)),
        }
    }

    /// Where the socket lies.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.directory.path().join(&self.name)
    }
}

impl Drop for StateSocket {
    fn drop(&mut self) {
        self.directory.remove(&self.name);
    }
}

fn stream() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

/// It has its name only once somebody listens: whatever has such a name and refuses is left of the dead.
fn make(directory: &Directory, of: Of, pid: u32) -> rustix::io::Result<(String, OwnedFd)> {
    let mut token = [0; 8];
    getrandom(&mut token, GetRandomFlags::empty())?;
    let unfinished = unfinished_name(pid, u64::from_le_bytes(token));
    let socket = stream()?;
    // The file gets this mode, whatever the umask lets through.
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    bind(&socket, &SocketAddrUnix::new(directory.path_of(&unfinished))?)?;
    let named = listen(&socket, 64).and_then(|()| {
        socket_names(of, pid)
            .find_map(|name| {
                match renameat_with(directory, &unfinished, directory, &name, RenameFlags::NOREPLACE) {
                    Ok(()) => Some(Ok(name)),
                    Err(Errno::EXIST) => None,
                    Err(error) => Some(Err(error)),
                }
            })
            .unwrap_or(Err(Errno::EXIST))
    });
    if named.is_err() {
        directory.remove(&unfinished);
    }
    named.map(|name| (name, socket))
}

/// Removes the sockets of this user's on which nobody listens.
pub(crate) fn remove_abandoned(directory: &Directory) {
    for name in directory.sockets() {
        if matches!(try_connect(directory, &name), Err(Errno::CONNREFUSED)) {
            directory.remove(&name);
        }
    }
}

/// Connects to a socket, without waiting: AGAIN where too many do.
pub(crate) fn try_connect(directory: &Directory, name: &str) -> rustix::io::Result<OwnedFd> {
    let socket = stream()?;
    connect(&socket, &SocketAddrUnix::new(directory.path_of(name))?)?;
    Ok(socket)
}

/// The user on the other side of a connection.
pub(crate) fn uid_of_peer(socket: &OwnedFd) -> io::Result<u32> {
    Ok(rustix::net::sockopt::socket_peercred(socket.as_fd())?.uid.as_raw())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn directory(of: &tempfile::TempDir) -> Directory {
        Directory::open(of.path(), rustix::process::geteuid().as_raw()).unwrap()
    }

    fn names(of: &tempfile::TempDir) -> Vec<String> {
        let entries = fs::read_dir(of.path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_socket_is_its_users_alone_and_goes_with_the_run() {
        let place = tempfile::tempdir().unwrap();
        let (socket, _listener) = StateSocket::open_in(directory(&place), Of::Run, 7).unwrap();
        assert_eq!(names(&place), ["run-7.sock"]);
        let mode = fs::metadata(socket.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        try_connect(&directory(&place), "run-7.sock").unwrap();
        drop(socket);
        assert!(names(&place).is_empty());
    }

    #[test]
    fn what_dead_runs_left_goes_and_what_lives_stays() {
        let place = tempfile::tempdir().unwrap();
        let (dead, listener) = StateSocket::open_in(directory(&place), Of::Run, 7).unwrap();
        drop(listener);
        std::mem::forget(dead);
        assert_eq!(names(&place), ["run-7.sock"]);
        let (alive, _listener) = StateSocket::open_in(directory(&place), Of::Run, 8).unwrap();
        assert_eq!(names(&place), ["run-8.sock"]);
        // A process of the same number in another namespace.
        let (other, _listener) = StateSocket::open_in(directory(&place), Of::Run, 8).unwrap();
        let (donor, _listener) = StateSocket::open_in(directory(&place), Of::Donor, 8).unwrap();
        assert_eq!(names(&place), ["donor-8.sock", "run-8-1.sock", "run-8.sock"]);
        drop((alive, other, donor));
        assert!(names(&place).is_empty());
    }
}
