//! How a donor listens.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener, UnixStream};
use std::path::PathBuf;

use spillway_store::shm::hello::socket_name;

use crate::error::DonorError;
use crate::place::Place;

/// A socket that listens; the path of a Unix socket goes with it.
#[derive(Debug)]
pub struct Listener {
    /// Where clients find the donor.
    pub place: Place,
    /// The socket, which does not block.
    pub socket: OwnedFd,
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Place::Unix(path) = &self.place {
            // Already gone is as good.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// How NBD by TCP is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// By TLS, which every client must speak.
    Tls,
    /// By nothing, on addresses that only this machine reaches.
    Loopback,
    /// By nothing, on any address.
    Plain,
}

/// Listens for NBD by TCP.
pub fn listen_tcp(address: SocketAddr, protection: Protection) -> Result<Listener, DonorError> {
    if protection == Protection::Loopback && !address.ip().to_canonical().is_loopback() {
        return Err(DonorError::Bare(address));
    }
    let place = if protection == Protection::Tls { Place::Tls } else { Place::Tcp };
    let fail = |reason: io::Error| DonorError::Listen {
        place: place(address),
        remedy: match reason.kind() {
            io::ErrorKind::AddrInUse => "another program listens there: choose another port",
            io::ErrorKind::PermissionDenied => "choose a port above 1023",
            _ => "name an address of this machine",
        },
        reason,
    };
    let listener = TcpListener::bind(address).map_err(fail)?;
    listener.set_nonblocking(true).map_err(fail)?;
    let place = place(listener.local_addr().map_err(fail)?);
    Ok(Listener { place, socket: listener.into() })
}

/// Listens for NBD on a Unix socket, and takes over one on which nobody listens.
pub fn listen_unix(path: PathBuf) -> Result<Listener, DonorError> {
    let fail = |reason: io::Error| DonorError::Listen {
        place: Place::Unix(path.clone()),
        remedy: match reason.kind() {
            io::ErrorKind::AddrInUse => {
                "another program listens there, or it is no socket: choose another path"
            }
            _ => "choose a path of at most 107 bytes in a directory that you may write to",
        },
        reason,
    };
    let listener = match UnixListener::bind(&path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_stale_socket(&path) => {
            // Left behind by a donor that was killed.
            std::fs::remove_file(&path).map_err(fail)?;
            UnixListener::bind(&path)
        }
        other => other,
    }
    .map_err(fail)?;
    listener.set_nonblocking(true).map_err(fail)?;
    Ok(Listener { place: Place::Unix(path), socket: listener.into() })
}

/// Whether `path` is a socket on which nobody listens.
fn is_stale_socket(path: &PathBuf) -> bool {
    use std::os::unix::fs::FileTypeExt;
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket());
    is_socket
        && UnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

/// Listens for clients of rings.
pub fn listen_shm(name: String) -> Result<Listener, DonorError> {
    let fail = |reason: io::Error| DonorError::Listen {
        place: Place::Shm(name.clone()),
        remedy: match reason.kind() {
            io::ErrorKind::AddrInUse => "another donor has that name: choose another",
            _ => "choose another name",
        },
        reason,
    };
    let address = UnixAddr::from_abstract_name(socket_name(&name)).map_err(fail)?;
    let listener = UnixListener::bind_addr(&address).map_err(fail)?;
    listener.set_nonblocking(true).map_err(fail)?;
    Ok(Listener { place: Place::Shm(name), socket: listener.into() })
}
