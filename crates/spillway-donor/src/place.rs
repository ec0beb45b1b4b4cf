//! Where a donor listens.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Where a donor listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// NBD by TCP, at an address and port.
    Tcp(SocketAddr),
    /// The same by TLS.
    Tls(SocketAddr),
    /// NBD by a Unix socket.
    Unix(PathBuf),
    /// Rings in shared memory, by the donor's name.
    Shm(String),
}

impl fmt::Display for Place {
    /// As the URI of a store, so that it can be pasted behind `--store`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "nbd://{address}"),
            Self::Tls(address) => write!(f, "nbds://{address}"),
            Self::Unix(path) => write!(f, "nbd+unix:///?socket={}", path.display()),
            Self::Shm(name) => write!(f, "shm:{name}"),
        }
    }
}
