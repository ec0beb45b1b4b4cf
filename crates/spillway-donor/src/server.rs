//! A donor from its start to its end: a thread for each connection, housekeeping, and the end.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, read};
use rustix::net::sockopt::{set_socket_keepalive, set_tcp_keepidle, set_tcp_nodelay};
use rustix::net::{Shutdown, SocketFlags, accept_with, shutdown};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use spillway_core::page::PAGE_SIZE;
use spillway_core::size::Size;
use spillway_nbd::standing::Standing;
use spillway_tls::ServerSide;

use crate::connections::{Connections, Stage};
use crate::error::DonorError;
use crate::frames::FramePool;
use crate::journal::{Event, Journal};
use crate::lending::Sample;
use crate::limits::Limits;
use crate::listening::{Listener, Protection, listen_shm, listen_tcp, listen_unix};
use crate::peer::Peer;
use crate::place::Place;
use crate::registry::{Offer, Registry, Terms};
use crate::status::{ClientStatus, MemoryStatus, Pressure, Status};
use crate::stream::{Stream, StreamError};
use crate::transmission::Activity;
use crate::{handshake, lane, protection, transmission};

/// How often grace times and idle memory are looked after.
const HOUSEKEEPING: Duration = Duration::from_millis(500);
/// How often a donor that waits for its runs looks whether they have ended.
const ENDING_CHECK: Duration = Duration::from_millis(50);
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
    /// Most memory that one run is promised, and what a run is promised that does not say what it may need;
    /// all of it where this is `None`.
    pub per_run: Option<Size>,
    /// Most memory that one client may have, by its runs' promises and in named exports; all of it where this
    /// is `None`.
    pub per_client: Option<Size>,
    /// Addresses for NBD by TCP.
    pub listen: Vec<SocketAddr>,
    /// TLS, which clients by TCP must then speak.
    pub tls: Option<ServerSide>,
    /// Listens without TLS on addresses that other machines reach.
    pub plain: bool,
    /// Path for NBD by a Unix socket.
    pub unix: Option<PathBuf>,
    /// Name for shared-memory rings.
    pub shm: Option<String>,
    /// How long a private export outlives its run's last connection, where that was lost.
    pub grace: Duration,
    /// How long the end waits for connections.
    pub drain: Duration,
    /// Limits against clients that take without giving others a turn.
    pub limits: Limits,
    /// Lend more than the machine has free now, or the control group may have.
    pub force: bool,
    /// What is kept free on the machine; a share of all where this is `None`. Where it is said, more may be
    /// lent than there is now.
    pub keep_free: Option<Size>,
    /// Lock the memory, and ask the kernel to end other processes first when it runs out.
    pub protect: bool,
}

/// What a donor did in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Connections that were served.
    pub connections: u64,
    /// Of these, connections that ended by the client's fault: garbage, truncation, stalling.
    pub failed_connections: u64,
    /// Connections that were turned away, or ended for the sake of others.
    pub refused_connections: u64,
    /// Bytes that clients had stored at the end.
    pub stored_bytes: u64,
}

/// A donor that listens.
#[derive(Debug)]
pub struct Donor {
    listeners: Vec<Listener>,
    drain: Duration,
    shared: Arc<Shared>,
    /// Times that grace times and idle memory were looked after.
    rounds: Arc<AtomicU64>,
}

#[derive(Debug)]
struct Shared {
    registry: Arc<Registry>,
    connections: Connections,
    journal: Arc<Journal>,
    limits: Limits,
    tls: Option<ServerSide>,
    /// It waits for its runs to end.
    is_ending: AtomicBool,
    /// All connections are to end.
    is_over: AtomicBool,
    started: Instant,
    places: Vec<String>,
    is_locked: bool,
}

impl Donor {
    /// Reserves address space and listens.
    pub fn bind(config: &Config) -> Result<Self, DonorError> {
        let memory = config.memory;
        let frames = u32::try_from(memory.bytes() / PAGE_SIZE as u64).ok().filter(|frames| *frames > 0);
        let frames = frames.ok_or(DonorError::Memory { memory })?;
        match config.keep_free {
            Some(keep_free) => protection::check_keep_free(keep_free)?,
            None if config.force => {}
            None => protection::check_available(memory)?,
        }
        raise_file_limit(config.limits.connections)?;
        let pool = FramePool::new(frames).map_err(|reason| DonorError::Reserve { memory, reason })?;
        let protection = match (&config.tls, config.plain) {
            (Some(_), _) => Protection::Tls,
            (None, true) => Protection::Plain,
            (None, false) => Protection::Loopback,
        };
        let tcp = config.listen.iter().map(|address| listen_tcp(*address, protection));
        let unix = config.unix.iter().map(|path| listen_unix(path.clone()));
        let shm = config.shm.iter().map(|name| listen_shm(name.clone()));
        let listeners = tcp.chain(unix).chain(shm).collect::<Result<Vec<_>, _>>()?;
        let journal = Arc::new(Journal::default());
        let note = |text: String| journal.tell(&Event::Note(text));
        let mut is_locked = false;
        if config.protect {
            let (locked, text) = protection::lock_memory(&pool);
            is_locked = locked;
            note(text);
            note(protection::ask_to_be_spared());
        }
        let size_bytes = u64::from(frames) * PAGE_SIZE as u64;
        let terms = Terms {
            grace: config.grace,
            per_run: config.per_run,
            per_client: config.per_client,
            limits: config.limits,
            keep_free: config.keep_free.unwrap_or_else(|| match config.force {
                true => Size::default(),
                false => protection::usual_keep_free(),
            }),
        };
        let shared = Shared {
            registry: Registry::new(Arc::new(pool), size_bytes, terms, Arc::clone(&journal)),
            connections: Connections::new(config.limits, Arc::clone(&journal)),
            journal,
            limits: config.limits,
            tls: config.tls.clone(),
            is_ending: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            started: Instant::now(),
            places: listeners.iter().map(|listener| listener.place.to_string()).collect(),
            is_locked,
        };
        shared.look_at_machine();
        let (drain, shared) = (config.drain, Arc::new(shared));
        Ok(Self { listeners, drain, shared, rounds: Arc::default() })
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

    /// How it stands in few words, for whoever registers it while it serves.
    pub fn standing(&self) -> impl Fn() -> Standing + Send + use<> {
        let shared = Arc::clone(&self.shared);
        move || shared.registry.standing()
    }

    /// How it stands, for whoever holds the answer while it serves.
    pub fn status(&self) -> impl Fn() -> Status + Send + use<> {
        let shared = Arc::clone(&self.shared);
        move || shared.status()
    }

    /// Serves until `stop` can be read; then lets in nobody new, and waits until all connections have ended,
    /// for as long as it was configured to. Another byte, or the end of `stop`, ends all connections at once.
    /// `hung_up` is set when its terminal is gone, or somebody wants it to look at its configuration again.
    pub fn serve(self, stop: BorrowedFd<'_>, hung_up: &AtomicBool) -> Result<Summary, DonorError> {
        let outcome = self.wait_and_accept(stop, hung_up);
        self.shared.is_over.store(true, Ordering::Relaxed);
        let stored_bytes = self.shared.registry.pool().standing().taken as u64 * PAGE_SIZE as u64;
        self.shared.connections.end_all(STOP_TIMEOUT);
        let counts = self.shared.journal.counts();
        outcome.map(|()| Summary {
            connections: counts.connections,
            failed_connections: counts.failed_connections,
            refused_connections: counts.refused_connections,
            stored_bytes,
        })
    }

    fn wait_and_accept(&self, stop: BorrowedFd<'_>, hung_up: &AtomicBool) -> Result<(), DonorError> {
        let mut housekeeping = Instant::now() + HOUSEKEEPING;
        let mut end_at = None;
        loop {
            let timeout = match end_at {
                Some(_) => ENDING_CHECK,
                None => housekeeping.saturating_duration_since(Instant::now()),
            };
            let Ready { stops, listeners } = self.wait(stop, timeout)?;
            if hung_up.swap(false, Ordering::Relaxed) {
                let text = "SIGHUP: there is nothing to read again; the donor goes on".to_owned();
                self.shared.journal.tell(&Event::Note(text));
            }
            if stops {
                let is_first = end_at.is_none();
                match signals(stop) {
                    1 if is_first => end_at = Some(Instant::now() + self.begin_to_end()),
                    0 => {}
                    _ => return Ok(()),
                }
            }
            for (listener, is_ready) in self.listeners.iter().zip(listeners) {
                if is_ready {
                    self.accept(listener);
                }
            }
            let now = Instant::now();
            if now >= housekeeping {
                housekeeping = now + HOUSEKEEPING;
                self.shared.registry.drop_expired(now);
                self.shared.registry.pool().cool_idle();
                self.shared.look_at_machine();
                self.shared.connections.look_after(now);
                self.rounds.fetch_add(1, Ordering::Relaxed);
            }
            if end_at.is_some_and(|end_at| now >= end_at || !self.shared.is_used()) {
                return Ok(());
            }
        }
    }

    fn wait(&self, stop: BorrowedFd<'_>, timeout: Duration) -> Result<Ready, DonorError> {
        let listeners = self.listeners.iter().map(|listener| PollFd::new(&listener.socket, PollFlags::IN));
        let mut fds: Vec<_> =
            std::iter::once(PollFd::from_borrowed_fd(stop, PollFlags::IN)).chain(listeners).collect();
        let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) => {}
            // Nothing is said about the descriptors then.
            Err(Errno::INTR) => return Ok(Ready::default()),
            Err(errno) => return Err(DonorError::Wait(errno)),
        }
        let mut ready = fds.iter().map(|fd| !fd.revents().is_empty());
        let stops = ready.next().unwrap_or(false);
        Ok(Ready { stops, listeners: ready.collect() })
    }

    /// Lets in nobody new; how long to wait for those who are there.
    fn begin_to_end(&self) -> Duration {
        let shared = &self.shared;
        shared.is_ending.store(true, Ordering::Relaxed);
        shared.registry.begin_to_end();
        let (runs, connections) = (shared.registry.run_count(), shared.connections.count());
        if connections > 0 && !self.drain.is_zero() {
            let (runs, connections) = (runs as u64, connections as u64);
            shared.journal.tell(&Event::Ending { runs, connections, drain: self.drain });
        }
        self.drain
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
        let peer = if matches!(listener.place, Place::Tcp(_) | Place::Tls(_)) {
            // Without these the connection is slower, or lingers after a power cut, and works all the same.
            let _ = set_tcp_nodelay(&socket, true);
            let _ = set_socket_keepalive(&socket, true);
            let _ = set_tcp_keepidle(&socket, KEEPALIVE);
            Peer::of_tcp(&socket)
        } else {
            Peer::of_unix(&socket)
        };
        let speech = match listener.place {
            Place::Shm(_) => Speech::Ring,
            Place::Tls(_) => Speech::NbdByTls,
            Place::Tcp(_) | Place::Unix(_) => Speech::Nbd,
        };
        Shared::start(&self.shared, Arc::new(socket), peer, speech);
    }
}

/// What is spoken on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Speech {
    Nbd,
    NbdByTls,
    Ring,
}

/// Where one connection comes in.
struct Entrance<'a> {
    shared: &'a Shared,
    id: u64,
    tls: Option<&'a ServerSide>,
}

impl handshake::Door for Entrance<'_> {
    fn tls(&self) -> Option<&ServerSide> {
        self.tls
    }

    fn identify(&self, peer: Peer) -> bool {
        self.shared.connections.identify(self.id, peer)
    }

    fn asks(&self, is_look: bool) {
        let connections = &self.shared.connections;
        if is_look { connections.look(self.id) } else { connections.come(self.id) }
    }

    fn opens(&self, begins_run: bool) {
        self.shared.connections.advance(self.id, if begins_run { Stage::Lasting } else { Stage::Open });
    }
}

/// What can be read.
#[derive(Debug, Default)]
struct Ready {
    stops: bool,
    listeners: Vec<bool>,
}

/// How many signals have come, of which there are some; more than any at the end of the stream.
fn signals(stop: BorrowedFd<'_>) -> usize {
    let mut bytes = [0; 16];
    match read(stop, &mut bytes) {
        Ok(0) => usize::MAX,
        Ok(count) => count,
        Err(Errno::AGAIN | Errno::INTR) => 0,
        Err(_) => usize::MAX,
    }
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

impl Shared {
    /// Gives a connection its thread, if there is room for one.
    fn start(shared: &Arc<Self>, socket: Arc<OwnedFd>, peer: Peer, speech: Speech) {
        let Some((id, activity)) =
            shared.connections.admit(&socket, peer, speech == Speech::NbdByTls, Instant::now())
        else {
            return;
        };
        let this = Arc::clone(shared);
        let serve = move || {
            let outcome = this.converse(id, &socket, peer, speech, &activity);
            // The peer learns of the end now, whoever else still holds the socket.
            let _ = shutdown(&*socket, Shutdown::Both);
            this.connections.leave(id, outcome);
        };
        let thread = thread::Builder::new().name("connection".into()).stack_size(THREAD_STACK_BYTES);
        if thread.spawn(serve).is_err() {
            // No thread, no connection; the socket closes.
            shared.connections.leave(id, Err(StreamError::Socket(Errno::NOMEM)));
        }
    }

    /// All of one connection.
    fn converse(
        &self,
        id: u64,
        socket: &Arc<OwnedFd>,
        peer: Peer,
        speech: Speech,
        activity: &Activity,
    ) -> Result<(), StreamError> {
        if speech == Speech::Ring {
            self.connections.come(id);
            let caller = lane::Caller { socket, peer, activity };
            let welcomed = || self.connections.advance(id, Stage::Lasting);
            return lane::serve(&caller, &self.registry, &self.limits, &self.is_over, welcomed);
        }
        let deadline = Instant::now() + self.limits.handshake;
        let sizes = (handshake::INPUT_BYTES, handshake::OUTPUT_BYTES);
        let mut stream = Stream::new(Arc::clone(socket), &self.limits, sizes, Some(deadline))?;
        let door =
            Entrance { shared: self, id, tls: self.tls.as_ref().filter(|_| speech == Speech::NbdByTls) };
        let Some(session) = handshake::negotiate(&mut stream, &self.registry, peer, &door)? else {
            stream.end();
            return Ok(());
        };
        let mut stream = stream.after_handshake(transmission::INPUT_BYTES, transmission::OUTPUT_BYTES)?;
        transmission::serve(&mut stream, &session, activity)?;
        stream.end();
        Ok(())
    }

    /// Whether somebody is there who would lose something. Who has left and only looks would not.
    fn is_used(&self) -> bool {
        self.connections.count() > 0 && self.registry.has_users()
    }

    fn pressure(&self) -> Pressure {
        let keep_free_bytes = self.registry.keep_free().bytes();
        Pressure { keep_free_bytes, is_short: self.registry.is_short(), ..protection::pressure() }
    }

    /// Lends by what the machine has, where the kernel says it.
    fn look_at_machine(&self) {
        let Pressure { available_bytes, stalled_share, .. } = protection::pressure();
        if let Some(available_bytes) = available_bytes {
            let now_ms = self.started.elapsed().as_millis() as u64;
            let stalled_share = stalled_share.unwrap_or(0.0);
            self.registry.note_available(Sample { now_ms, available_bytes, stalled_share });
        }
    }

    fn status(&self) -> Status {
        let standing = self.registry.pool().standing();
        let bytes = |frames: usize| (frames * PAGE_SIZE) as u64;
        let exports = self.registry.status();
        let Offer { free_bytes, offered_bytes } = self.registry.offer();
        let mut clients: BTreeMap<String, ClientStatus> = BTreeMap::new();
        for (peer, connections) in self.connections.by_client() {
            clients.entry(peer.to_string()).or_default().connections = connections as u64;
        }
        for export in &exports {
            let client = clients.entry(export.client.clone()).or_default();
            client.exports += 1;
            client.held_bytes += export.held_bytes;
            client.promised_bytes += export.promised_bytes.unwrap_or(0);
        }
        let clients =
            clients.into_iter().map(|(name, client)| ClientStatus { client: name, ..client }).collect();
        Status {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_s: self.started.elapsed().as_secs_f64(),
            listening_on: self.places.clone(),
            is_ending: self.is_ending.load(Ordering::Relaxed),
            memory: MemoryStatus {
                offered_bytes,
                used_bytes: bytes(standing.taken),
                promised_bytes: bytes(standing.promised),
                free_bytes,
                is_locked: self.is_locked,
            },
            pressure: self.pressure(),
            clients,
            exports,
            counts: self.connections.add_to(self.journal.counts()),
        }
    }
}
