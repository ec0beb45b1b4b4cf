//! Listening, a thread for each connection, limits, and the end.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{set_socket_keepalive, set_tcp_keepidle, set_tcp_nodelay};
use rustix::net::{Shutdown, SocketFlags, accept_with, shutdown};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use spillway_core::page::PAGE_SIZE;
use spillway_core::size::Size;
use spillway_store::shm::hello::socket_name;
use thiserror::Error;

use crate::frames::FramePool;
use crate::registry::Registry;
use crate::stream::{Stream, StreamError};
use crate::{handshake, lane, lock, transmission};

/// A client must have chosen its export by then.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How often grace times and idle memory are looked after.
const HOUSEKEEPING: Duration = Duration::from_millis(500);
/// How long the end waits for connections to notice it.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// A silent TCP peer is asked after this time whether its machine is still there.
const KEEPALIVE: Duration = Duration::from_secs(60);
const THREAD_STACK_BYTES: usize = 128 << 10;

/// What a donor lends, and where.
#[derive(Clone, Debug)]
pub struct Config {
    /// Memory to lend, in bytes.
    pub memory: Size,
    /// Addresses for NBD by TCP.
    pub listen: Vec<SocketAddr>,
    /// Path for NBD by a Unix socket.
    pub unix: Option<PathBuf>,
    /// Name for shared-memory rings.
    pub shm: Option<String>,
    /// How long a private export outlives its run's last connection.
    pub grace: Duration,
    /// Most connections at once.
    pub max_connections: usize,
    /// Lend more than the machine has free now.
    pub force: bool,
}

/// Why a donor cannot start, or go on.
#[derive(Debug, Error)]
pub enum DonorError {
    /// Too little to hold a page, or more than exports can number.
    #[error("--memory {memory} is not between 4 KiB and 16 TiB: give another size")]
    Memory {
        /// What was asked for.
        memory: Size,
    },
    /// More than the machine has free.
    #[error(
        "--memory {memory} is more than the {available} that this machine has available: lend less, or add \
             --force if that memory will be free in time"
    )]
    Unavailable {
        /// What was asked for.
        memory: Size,
        /// How much the machine has available.
        available: Size,
    },
    /// More connections than a process may have open files.
    #[error(
        "--max-connections {connections} needs more open files than the limit of {limit}: raise 'ulimit -n'"
    )]
    Files {
        /// What was asked for.
        connections: usize,
        /// The hard limit of open files.
        limit: u64,
    },
    /// The address space has no room.
    #[error("--memory {memory} cannot be reserved: {reason}; lend less, or raise 'ulimit -v'")]
    Reserve {
        /// What was asked for.
        memory: Size,
        /// What the kernel says.
        reason: Errno,
    },
    /// An address is taken, or not ours.
    #[error("cannot listen on {place}: {reason}; {remedy}")]
    Listen {
        /// Which place cannot be listened at.
        place: Place,
        /// What the kernel says.
        reason: io::Error,
        /// What the user can do.
        remedy: &'static str,
    },
    /// Waiting for connections failed.
    #[error("cannot wait for connections: {0}; free memory or file descriptors, and start the donor again")]
    Wait(Errno),
}

/// Where a donor listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// NBD by TCP, at an address and port.
    Tcp(SocketAddr),
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
            Self::Unix(path) => write!(f, "nbd+unix:///?socket={}", path.display()),
            Self::Shm(name) => write!(f, "shm:{name}"),
        }
    }
}

/// What a donor did in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Connections that were served.
    pub connections: u64,
    /// Of these, connections that ended by the client's fault: garbage, truncation, stalling.
    pub failed_connections: u64,
    /// Connections that were turned away because there were too many.
    pub refused_connections: u64,
    /// Bytes that clients had stored at the end.
    pub stored_bytes: u64,
}

/// A donor that listens.
#[derive(Debug)]
pub struct Donor {
    listeners: Vec<Listener>,
    shared: Arc<Shared>,
    /// Times that grace times and idle memory were looked after.
    rounds: Arc<AtomicU64>,
}

#[derive(Debug)]
struct Listener {
    place: Place,
    socket: OwnedFd,
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Place::Unix(path) = &self.place {
            // Already gone is as good.
            let _ = std::fs::remove_file(path);
        }
    }
}

#[derive(Debug)]
struct Shared {
    registry: Arc<Registry>,
    max_connections: usize,
    connections: Mutex<HashMap<u64, Connection>>,
    /// Signalled when a connection ends.
    ended: Condvar,
    stopping: AtomicBool,
    served: AtomicU64,
    failed: AtomicU64,
    refused: AtomicU64,
}

/// What the listening thread knows of a connection.
#[derive(Debug)]
struct Connection {
    socket: Arc<OwnedFd>,
    since: Instant,
    in_handshake: bool,
}

impl Donor {
    /// Reserves address space and listens.
    pub fn bind(config: &Config) -> Result<Self, DonorError> {
        let memory = config.memory;
        let frames = u32::try_from(memory.bytes() / PAGE_SIZE as u64).ok().filter(|frames| *frames > 0);
        let frames = frames.ok_or(DonorError::Memory { memory })?;
        let available = available_memory().filter(|available| *available < memory && !config.force);
        if let Some(available) = available {
            return Err(DonorError::Unavailable { memory, available });
        }
        raise_file_limit(config.max_connections)?;
        let pool = FramePool::new(frames).map_err(|reason| DonorError::Reserve { memory, reason })?;
        let size_bytes = u64::from(frames) * PAGE_SIZE as u64;
        let tcp = config.listen.iter().map(|address| listen_tcp(*address));
        let unix = config.unix.iter().map(|path| listen_unix(path.clone()));
        let shm = config.shm.iter().map(|name| listen_shm(name.clone()));
        Ok(Self {
            listeners: tcp.chain(unix).chain(shm).collect::<Result<_, _>>()?,
            shared: Arc::new(Shared {
                registry: Registry::new(Arc::new(pool), size_bytes, config.grace),
                max_connections: config.max_connections,
                connections: Mutex::default(),
                ended: Condvar::new(),
                stopping: AtomicBool::new(false),
                served: AtomicU64::new(0),
                failed: AtomicU64::new(0),
                refused: AtomicU64::new(0),
            }),
            rounds: Arc::default(),
        })
    }

    /// How often it has dropped what nobody came back for, as long as it serves.
    #[must_use]
    pub fn housekeeping_rounds(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.rounds)
    }

    /// Where it listens; a port of 0 has become the chosen one.
    pub fn places(&self) -> impl Iterator<Item = &Place> {
        self.listeners.iter().map(|listener| &listener.place)
    }

    /// Serves until `stop` becomes readable; then ends all connections.
    pub fn serve(self, stop: BorrowedFd<'_>) -> Result<Summary, DonorError> {
        let outcome = self.wait_and_accept(stop);
        self.shared.stopping.store(true, Ordering::Relaxed);
        let stored_bytes = self.shared.registry.pool().taken_bytes();
        self.shared.end_connections();
        outcome.map(|()| Summary {
            connections: self.shared.served.load(Ordering::Relaxed),
            failed_connections: self.shared.failed.load(Ordering::Relaxed),
            refused_connections: self.shared.refused.load(Ordering::Relaxed),
            stored_bytes,
        })
    }

    fn wait_and_accept(&self, stop: BorrowedFd<'_>) -> Result<(), DonorError> {
        let mut housekeeping = Instant::now() + HOUSEKEEPING;
        loop {
            let mut fds: Vec<_> = self
                .listeners
                .iter()
                .map(|listener| PollFd::new(&listener.socket, PollFlags::IN))
                .chain([PollFd::from_borrowed_fd(stop, PollFlags::IN)])
                .collect();
            let left = housekeeping.saturating_duration_since(Instant::now());
            let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            match poll(&mut fds, Some(&timeout)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(DonorError::Wait(errno)),
            }
            let (stop_fd, listener_fds) = match fds.split_last() {
                Some((stop_fd, listener_fds)) => (stop_fd, listener_fds),
                None => return Ok(()),
            };
            if !stop_fd.revents().is_empty() {
                return Ok(());
            }
            for (listener, fd) in self.listeners.iter().zip(listener_fds) {
                if !fd.revents().is_empty() {
                    self.accept(listener);
                }
            }
            let now = Instant::now();
            if now >= housekeeping {
                housekeeping = now + HOUSEKEEPING;
                self.shared.registry.drop_expired(now);
                self.shared.registry.pool().cool_idle();
                self.rounds.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn accept(&self, listener: &Listener) {
        let socket = match accept_with(&listener.socket, SocketFlags::CLOEXEC) {
            Ok(socket) => socket,
            Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                // The connection stays in the queue; do not spin on it.
                thread::sleep(Duration::from_millis(50));
                return;
            }
            // The client left already.
            Err(_) => return,
        };
        if matches!(listener.place, Place::Tcp(_)) {
            // Without these the connection is slower, or lingers after a power cut, and works all the same.
            let _ = set_tcp_nodelay(&socket, true);
            let _ = set_socket_keepalive(&socket, true);
            let _ = set_tcp_keepidle(&socket, KEEPALIVE);
        }
        let is_ring = matches!(listener.place, Place::Shm(_));
        Shared::start(&self.shared, Arc::new(socket), is_ring);
    }
}

/// Memory that the machine can spare now; `None` where the kernel does not say.
fn available_memory() -> Option<Size> {
    let info = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(Size::from_bytes(kib.saturating_mul(1024)))
}

/// Lets this process have as many open files as its connections need.
fn raise_file_limit(connections: usize) -> Result<(), DonorError> {
    /// Listeners, standard streams, and a ring's memory file on its way to its client.
    const OTHER_FILES: u64 = 64;
    let needed = (connections as u64).saturating_add(OTHER_FILES);
    let limit = getrlimit(Resource::Nofile);
    let enough = |limit: Option<u64>| limit.is_none_or(|limit| limit >= needed);
    if enough(limit.current) {
        return Ok(());
    }
    if !enough(limit.maximum) {
        return Err(DonorError::Files { connections, limit: limit.maximum.unwrap_or(u64::MAX) });
    }
    // Within the hard limit, so that it is allowed.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum: limit.maximum });
    Ok(())
}

fn listen_tcp(address: SocketAddr) -> Result<Listener, DonorError> {
    let fail = |reason: io::Error| DonorError::Listen {
        place: Place::Tcp(address),
        remedy: match reason.kind() {
            io::ErrorKind::AddrInUse => "another program listens there: choose another port",
            io::ErrorKind::PermissionDenied => "choose a port above 1023",
            _ => "name an address of this machine",
        },
        reason,
    };
    let listener = TcpListener::bind(address).map_err(fail)?;
    listener.set_nonblocking(true).map_err(fail)?;
    let place = Place::Tcp(listener.local_addr().map_err(fail)?);
    Ok(Listener { place, socket: listener.into() })
}

fn listen_unix(path: PathBuf) -> Result<Listener, DonorError> {
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

fn listen_shm(name: String) -> Result<Listener, DonorError> {
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

impl Shared {
    /// Gives a connection its thread, if there is room for one.
    fn start(shared: &Arc<Self>, socket: Arc<OwnedFd>, is_ring: bool) {
        let id = shared.served.load(Ordering::Relaxed);
        if !shared.admit(id, &socket) {
            shared.refused.fetch_add(1, Ordering::Relaxed);
            return;
        }
        shared.served.fetch_add(1, Ordering::Relaxed);
        let this = Arc::clone(shared);
        let serve = move || {
            let outcome = this.converse(id, &socket, is_ring);
            // The peer learns of the end now, whoever else still holds the socket.
            let _ = shutdown(&*socket, Shutdown::Both);
            if outcome.is_err() {
                this.failed.fetch_add(1, Ordering::Relaxed);
            }
            lock(&this.connections).remove(&id);
            this.ended.notify_all();
        };
        let thread = thread::Builder::new().name("connection".into()).stack_size(THREAD_STACK_BYTES);
        if thread.spawn(serve).is_err() {
            // No thread, no connection; the socket closes.
            lock(&shared.connections).remove(&id);
            shared.refused.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Enters a connection. Where there are too many, the one that has dawdled longest in its handshake goes,
    /// so that clients that hang do not keep others out.
    fn admit(&self, id: u64, socket: &Arc<OwnedFd>) -> bool {
        let mut connections = lock(&self.connections);
        if connections.len() >= self.max_connections {
            let dawdling = connections.iter().filter(|(_, connection)| connection.in_handshake);
            let Some((oldest, _)) = dawdling.min_by_key(|(_, connection)| connection.since) else {
                return false;
            };
            let oldest = *oldest;
            if let Some(connection) = connections.remove(&oldest) {
                // Its thread sees the end of the stream, and ends.
                let _ = shutdown(&*connection.socket, Shutdown::Both);
            }
        }
        let connection = Connection { socket: Arc::clone(socket), since: Instant::now(), in_handshake: true };
        connections.insert(id, connection);
        true
    }

    fn handshake_is_over(&self, id: u64) {
        if let Some(connection) = lock(&self.connections).get_mut(&id) {
            connection.in_handshake = false;
        }
    }

    /// All of one connection.
    fn converse(&self, id: u64, socket: &Arc<OwnedFd>, is_ring: bool) -> Result<(), StreamError> {
        let deadline = Instant::now() + HANDSHAKE_TIMEOUT;
        if is_ring {
            let welcomed = || self.handshake_is_over(id);
            return lane::serve(socket, &self.registry, deadline, &self.stopping, welcomed);
        }
        let mut stream = Stream::new(Arc::clone(socket), handshake::INPUT_BYTES, handshake::OUTPUT_BYTES);
        stream.set_deadline(Some(deadline))?;
        let Some(session) = handshake::negotiate(&mut stream, &self.registry)? else { return Ok(()) };
        self.handshake_is_over(id);
        let mut stream = stream.resize(transmission::INPUT_BYTES, transmission::OUTPUT_BYTES);
        stream.set_deadline(None)?;
        transmission::serve(&mut stream, &session)
    }

    /// Ends all connections and waits, for a bounded time, until their threads have ended.
    fn end_connections(&self) {
        let deadline = Instant::now() + STOP_TIMEOUT;
        let mut connections = lock(&self.connections);
        for connection in connections.values() {
            let _ = shutdown(connection.socket.as_fd(), Shutdown::Both);
        }
        while !connections.is_empty() {
            let Some(left) = deadline.checked_duration_since(Instant::now()) else { return };
            connections =
                self.ended.wait_timeout(connections, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
