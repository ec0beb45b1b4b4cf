//! Where metrics are told, or the dashboard is: `ADDR:PORT`, `:PORT` or `unix:PATH`.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::str::FromStr;

use spillway_snapshot::server::Listener;
use thiserror::Error;

/// Why there is no such place.
#[derive(Debug, Error)]
pub enum EndpointError {
    /// It was not understood.
    #[error("'{0}' is no place to listen: write ADDR:PORT, :PORT (of this machine alone) or unix:PATH")]
    Form(String),
    /// It cannot be listened on.
    #[error("{0}: {1}; {remedy}", remedy = remedy(.1))]
    Bind(String, io::Error),
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "name a port above 1023, or a directory of yours",
        io::ErrorKind::AddrNotAvailable => "name an address of this machine",
        _ => "name another, or end what listens there",
    }
}

/// A place that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A TCP port; without an address, of this machine alone.
    Tcp {
        /// As it was written, or 127.0.0.1.
        host: String,
        /// The port; 0 for one that the kernel chooses.
        port: u16,
    },
    /// A Unix socket, for this user and root.
    Unix(PathBuf),
}

impl FromStr for Place {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let wrong = || EndpointError::Form(text.to_owned());
        if let Some(path) = text.strip_prefix("unix:") {
            let path = (!path.is_empty()).then(|| PathBuf::from(path));
            return path.map(Self::Unix).ok_or_else(wrong);
        }
        let (host, port) = text.rsplit_once(':').unwrap_or(("", text));
        let port = port.parse().map_err(|_| wrong())?;
        let host = if host.is_empty() { Ipv4Addr::LOCALHOST.to_string() } else { host.to_owned() };
        Ok(Self::Tcp { host, port })
    }
}

/// A place that is listened on. A Unix socket's file is removed when the value is dropped.
pub struct Endpoint {
    socket: OwnedFd,
    names: Vec<String>,
    path: Option<PathBuf>,
    shown: String,
}

impl Endpoint {
    /// Begins to listen.
    ///
    /// # Errors
    /// The place is not this machine's, or taken.
    pub fn bind(place: &Place) -> Result<Self, EndpointError> {
        match place {
            Place::Tcp { host, port } => {
                let failed = |error| EndpointError::Bind(format!("{host}:{port}"), error);
                let listener = listen_by_tcp(host, *port).map_err(failed)?;
                let shown = listener.local_addr().map_err(failed)?;
                let names = vec![host.trim_matches(['[', ']']).to_ascii_lowercase()];
                Ok(Self { socket: listener.into(), names, path: None, shown: format!("http://{shown}") })
            }
            Place::Unix(path) => {
                let shown = format!("unix:{}", path.display());
                let failed = |error| EndpointError::Bind(shown.clone(), error);
                // What a run that was killed left behind.
                let is_socket = path.symlink_metadata().is_ok_and(|file| file.file_type().is_socket());
                if is_socket && UnixStream::connect(path).is_err() {
                    std::fs::remove_file(path).map_err(failed)?;
                }
                let listener = UnixListener::bind(path).map_err(failed)?;
                listener.set_nonblocking(true).map_err(failed)?;
                Ok(Self { socket: listener.into(), names: Vec::new(), path: Some(path.clone()), shown })
            }
        }
    }

    /// The socket, once more.
    ///
    /// # Errors
    /// The kernel has no descriptor left.
    pub fn listener(&self) -> io::Result<Listener> {
        Ok(Listener { socket: self.socket.try_clone()?, is_private: self.path.is_some() })
    }

    /// Where a path is asked for: `http://ADDR:PORT/PATH`, or the socket.
    pub fn url(&self, path: &str) -> String {
        match &self.path {
            Some(_) => self.shown.clone(),
            None => format!("{}{path}", self.shown),
        }
    }

    /// The names by which a request may call this machine, besides addresses and `localhost`.
    pub fn host_names(&self) -> &[String] {
        &self.names
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn listen_by_tcp(host: &str, port: u16) -> io::Result<TcpListener> {
    let addresses: Vec<SocketAddr> = (host.trim_matches(['[', ']']), port).to_socket_addrs()?.collect();
    let listener = TcpListener::bind(&addresses[..])?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_of_this_machine_alone() {
        let tcp = |host: &str, port| Place::Tcp { host: host.to_owned(), port };
        for (text, place) in [
            ("9100", tcp("127.0.0.1", 9100)),
            (":9100", tcp("127.0.0.1", 9100)),
            ("10.0.0.1:9100", tcp("10.0.0.1", 9100)),
            ("[::1]:0", tcp("[::1]", 0)),
            ("unix:/run/x.sock", Place::Unix("/run/x.sock".into())),
        ] {
            assert_eq!(text.parse::<Place>().unwrap(), place, "{text}");
        }
        for text in ["", "unix:", "host", "host:", ":70000", "a:b:c"] {
            assert!(matches!(text.parse::<Place>(), Err(EndpointError::Form(_))), "{text}");
        }
    }

    #[test]
    fn a_socket_that_a_killed_run_left_is_taken_over_and_a_live_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("metrics");
        drop(UnixListener::bind(&path).unwrap());
        let place = Place::Unix(path.clone());
        let endpoint = Endpoint::bind(&place).unwrap();
        assert!(matches!(Endpoint::bind(&place), Err(EndpointError::Bind(..))));
        drop(endpoint);
        assert!(!path.exists());
        std::fs::write(&path, "a file").unwrap();
        assert!(matches!(Endpoint::bind(&place), Err(EndpointError::Bind(..))));
    }
}
