//! The store of `nbd://` and `nbd+unix://`.
//!
//! [`prepare`] opens the export, and keeps the connection in [`SharedParts::fd`]. With a Spillway donor the
//! export is private to the run, and lives for as long as anybody holds that connection, or a lane, and the
//! donor's grace time longer. The connection also carries the server's address to the processes of the run,
//! so that none of them needs to look up a name. With a server that is not ours the named export is used as
//! it is; if such a server loses its contents, the pager's checksums tell.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustix::net::{SendFlags, getpeername, send};
use spillway_core::page::PAGE_SIZE;
use spillway_core::size::Size;
use spillway_nbd::errno;
use spillway_nbd::handshake::ExportFlags;
use spillway_nbd::proof::{Purpose, RunKey};
use spillway_nbd::transmission::{Command, Request, RequestFlags};

use super::connection::{Address, ConnectError, Connection};
use super::exchange::{Exchange, INPUT_BYTES, Interruption, Pages, Run, Sent, plan};
use crate::posted::{Kept, are_of};
use crate::{
    Lane, LatencyClass, Patience, ReadRequest, SharedParts, Store, StoreError, StoreSpec, WriteRequest,
};

/// Most pages in one READ or WRITE: larger ones are no faster, and occupy both sides' buffers for longer.
const MAX_RUN_PAGES: usize = 256;
/// Most pages in one TRIM.
const MAX_TRIM_PAGES: usize = 1 << 18;
/// Pauses between attempts to connect again.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Checks that the export can be used, as [`StoreSpec::prepare`] says.
pub fn prepare(spec: &StoreSpec, run_token: &str) -> Result<SharedParts, StoreError> {
    let (_, patience) = target(spec)?;
    let remedy = format!("check that a donor or NBD server listens there ({})", start_hint(spec));
    let key = RunKey::derive(run_token, &spec.to_string());
    let asked = match spec {
        StoreSpec::Nbd { size, .. } | StoreSpec::NbdUnix { size, .. } => *size,
        _ => None,
    };
    let purpose = Purpose::Run { size_bytes: asked.map_or(0, Size::bytes) };
    let mut last = ConnectError::Unreachable("the name has no address".to_owned());
    for address in resolve(spec)? {
        let deadline = Instant::now() + patience.timeout;
        match Connection::open(&address, export_of(spec), (&key, purpose), deadline, patience.timeout) {
            Ok(connection) => {
                let capacity_slots = usable(spec, &connection)?;
                let capacity_slots =
                    asked.map_or(capacity_slots, |asked| slots_of(asked).min(capacity_slots));
                return Ok(SharedParts { capacity_slots, fd: Some(connection.into()) });
            }
            Err(error) => last = error,
        }
    }
    Err(spec.unusable(last, remedy))
}

/// Ends the run, as [`StoreSpec::end`] says.
pub fn end(socket: &std::os::fd::OwnedFd) {
    let request = Request {
        flags: RequestFlags::empty(),
        command: Command::Disconnect,
        cookie: 0,
        offset: 0,
        length: 0,
    };
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    // Who does not listen any more holds nothing any more, or notices that the connection is gone.
    let _ = send(socket, &request.encode(), flags);
    crate::ending::await_end(socket);
}

fn slots_of(size: Size) -> u32 {
    u32::try_from(size.bytes().div_ceil(PAGE_SIZE as u64)).unwrap_or(u32::MAX)
}

/// Opens the export in one process, as [`StoreSpec::open`] says.
pub fn open(spec: &StoreSpec, parts: SharedParts, run_token: &str) -> Result<Arc<dyn Store>, StoreError> {
    let (export, patience) = target(spec)?;
    let address = match spec {
        StoreSpec::NbdUnix { socket, .. } => Address::Unix(socket.clone()),
        StoreSpec::Nbd { host, port, .. } => match host.parse::<IpAddr>() {
            Ok(ip) => Address::Tcp(SocketAddr::new(ip, *port)),
            // Looking up names is not for the inside of somebody else's process.
            Err(_) => parts
                .fd
                .as_ref()
                .and_then(|fd| getpeername(fd).ok()?)
                .and_then(|peer| SocketAddr::try_from(peer).ok())
                .map(Address::Tcp)
                .ok_or_else(|| {
                    spec.unusable("the server's address was not handed over", "name it by IP address")
                })?,
        },
        _ => return Err(not_nbd(spec)),
    };
    Ok(Arc::new(NbdStore {
        target: Arc::new(Target {
            capacity_slots: parts.capacity_slots,
            uri: spec.to_string(),
            address,
            export: export.to_owned(),
            key: RunKey::derive(run_token, &spec.to_string()),
            patience,
            given_up: OnceLock::new(),
        }),
    }))
}

/// Tells the donor that `spec` names to drop the export that `spec` names, with all it holds.
pub fn drop_export(spec: &StoreSpec) -> Result<(), StoreError> {
    let (export, patience) = target(spec)?;
    let mut last = ConnectError::Unreachable("the name has no address".to_owned());
    for address in resolve(spec)? {
        match super::connection::drop_export(&address, export, patience.timeout) {
            Ok(()) => return Ok(()),
            Err(error) => last = error,
        }
    }
    Err(spec.unusable(last, "nothing was dropped; 'nbdinfo --list' shows what a donor holds"))
}

fn not_nbd(spec: &StoreSpec) -> StoreError {
    spec.unusable("it is no NBD store", "name it as nbd://HOST:PORT/EXPORT or nbd+unix:///EXPORT?socket=PATH")
}

fn target(spec: &StoreSpec) -> Result<(&str, Patience), StoreError> {
    match spec {
        StoreSpec::Nbd { export, patience, .. } | StoreSpec::NbdUnix { export, patience, .. } => {
            Ok((export, *patience))
        }
        _ => Err(not_nbd(spec)),
    }
}

fn export_of(spec: &StoreSpec) -> &str {
    target(spec).map_or("", |(export, _)| export)
}

fn start_hint(spec: &StoreSpec) -> String {
    match spec {
        StoreSpec::NbdUnix { socket, .. } => {
            format!("spillway donor --memory SIZE --unix {}", socket.display())
        }
        StoreSpec::Nbd { port, .. } => format!("there: spillway donor --memory SIZE --listen 0.0.0.0:{port}"),
        _ => String::new(),
    }
}

fn resolve(spec: &StoreSpec) -> Result<Vec<Address>, StoreError> {
    match spec {
        StoreSpec::NbdUnix { socket, .. } => Ok(vec![Address::Unix(socket.clone())]),
        StoreSpec::Nbd { host, port, .. } => {
            let addresses = (host.as_str(), *port).to_socket_addrs();
            let addresses = addresses.map_err(|error| {
                spec.unusable(format!("'{host}' has no address: {error}"), "name the server by IP address")
            })?;
            Ok(addresses.map(Address::Tcp).collect())
        }
        _ => Err(not_nbd(spec)),
    }
}

/// Checks that pages can be kept in the export; its number of slots.
fn usable(spec: &StoreSpec, connection: &Connection) -> Result<u32, StoreError> {
    let page = PAGE_SIZE as u32;
    if connection.flags.contains(ExportFlags::READ_ONLY) {
        return Err(spec.unusable("the export is read-only", "name one that can be written"));
    }
    let (minimum, maximum) = (connection.blocks.minimum_bytes, connection.blocks.maximum_bytes);
    if minimum > page || !minimum.is_power_of_two() || maximum < page {
        return Err(spec.unusable(
            format!("the server takes requests of {minimum} to {maximum} bytes, which are no pages of 4096"),
            "let the server use blocks of 4096 bytes or less",
        ));
    }
    match connection.size_bytes / u64::from(page) {
        0 => Err(spec.unusable("the export does not hold a page of 4 KiB", "give it more")),
        slots => Ok(u32::try_from(slots).unwrap_or(u32::MAX)),
    }
}

/// What it takes to connect.
struct Target {
    uri: String,
    capacity_slots: u32,
    address: Address,
    export: String,
    /// By which the donor knows that a lane is the run's.
    key: RunKey,
    patience: Patience,
    /// Why one of the lanes has given the server up: the others need not find out by waiting once more.
    given_up: OnceLock<StoreError>,
}

impl Target {
    fn connect(&self, deadline: Instant) -> Result<Connection, ConnectError> {
        let claim = (&self.key, Purpose::Lane);
        Connection::open(&self.address, &self.export, claim, deadline, self.patience.timeout)
    }

    fn gone(&self, reason: impl Into<String>) -> StoreError {
        StoreError::Gone { store: self.uri.clone(), reason: reason.into() }
    }

    /// Connects, again and again until `deadline`. A refusal that will not change ends it at once.
    fn connect_patiently(&self, deadline: Instant) -> Result<Connection, StoreError> {
        let mut pause = FIRST_PAUSE;
        loop {
            let error = match self.connect(deadline) {
                Ok(connection) => return Ok(connection),
                Err(error @ ConnectError::Unreachable(_)) => error,
                Err(error) => return Err(self.gone(error.to_string())),
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(self.gone(error.to_string()));
            }
            sleep(pause.min(left));
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

/// A system call of our own, because the process that this runs in may have replaced libc's.
fn sleep(duration: Duration) {
    let request = rustix::time::Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    };
    // Woken early by a signal: the caller's clock decides.
    let _ = rustix::thread::nanosleep(&request);
}

/// A server as one process sees it.
struct NbdStore {
    target: Arc<Target>,
}

impl Store for NbdStore {
    fn latency_class(&self) -> LatencyClass {
        LatencyClass::Remote
    }

    fn uri(&self) -> &str {
        &self.target.uri
    }

    fn capacity_slots(&self) -> u32 {
        self.target.capacity_slots
    }

    fn open_lane(&self) -> Result<Box<dyn Lane>, StoreError> {
        let target = Arc::clone(&self.target);
        let connection = target.connect_patiently(Instant::now() + target.patience.reconnect)?;
        Ok(Box::new(NbdLane {
            is_private: connection.is_private,
            connection: Some(connection),
            target,
            epoch: 0,
            posted: None,
            input: vec![0; INPUT_BYTES].into_boxed_slice(),
        }))
    }
}

/// The connection of one thread to the server.
struct NbdLane {
    target: Arc<Target>,
    connection: Option<Connection>,
    /// Whether the export was private, and must be found so again.
    is_private: bool,
    epoch: u32,
    posted: Option<Posted>,
    input: Box<[u8]>,
}

/// A batch in the order in which it travels.
struct Batch {
    order: Vec<usize>,
    runs: Vec<Run>,
    /// What the connection has been told of it, by the attempt of this lane's latest epoch.
    sent: Option<Sent>,
}

/// Reads that were posted.
enum Posted {
    /// Their requests are sent, and their replies come by the connection next.
    UnderWay(Vec<u32>, Batch),
    /// All of them are fetched.
    Kept(Kept),
}

impl NbdLane {
    fn max_run_pages(&self) -> usize {
        let maximum =
            self.connection.as_ref().map_or(0, |connection| connection.blocks.maximum_bytes as usize);
        (maximum / PAGE_SIZE).clamp(1, MAX_RUN_PAGES)
    }

    fn has(&self, flag: ExportFlags) -> bool {
        self.connection.as_ref().is_some_and(|connection| connection.flags.contains(flag))
    }

    /// Gets every run its answer, over as many connections as it takes. Requests can be made twice without
    /// harm.
    fn exchange(
        &mut self,
        pages: &mut Pages<'_, '_>,
        Batch { order, runs, sent }: &mut Batch,
    ) -> Result<(), StoreError> {
        if let Some(error) = self.target.given_up.get() {
            return Err(error.clone());
        }
        let mut give_up_at = None;
        let mut pause = FIRST_PAUSE;
        loop {
            let open = runs.iter().filter(|run| run.answer.is_none()).count();
            // What was sent, was to this connection.
            let sent = sent.take();
            let reason = match &self.connection {
                Some(connection) => {
                    if sent.is_none() {
                        self.epoch = self.epoch.wrapping_add(1);
                    }
                    let exchange = Exchange::new(connection, pages, order, runs, self.epoch, &mut self.input);
                    let exchange = match sent {
                        Some(sent) => exchange.resume(sent),
                        None => exchange,
                    };
                    match exchange.finish(self.target.patience.timeout) {
                        Ok(()) => return Ok(()),
                        Err(Interruption::Lost(reason)) => reason,
                        Err(Interruption::Silent) => {
                            let seconds = self.target.patience.timeout.as_secs_f64();
                            return Err(self.fail(format!("the server has not answered for {seconds} s")));
                        }
                    }
                }
                None => "connection lost".to_owned(),
            };
            self.connection = None;
            // A server that answers something before it hangs up gets the full time again.
            if runs.iter().filter(|run| run.answer.is_none()).count() < open {
                (give_up_at, pause) = (None, FIRST_PAUSE);
            }
            let give_up_at =
                *give_up_at.get_or_insert_with(|| Instant::now() + self.target.patience.reconnect);
            if give_up_at <= Instant::now() {
                return Err(self.fail(reason));
            }
            sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
            self.reconnect(give_up_at, &reason)?;
        }
    }

    fn reconnect(&mut self, give_up_at: Instant, reason: &str) -> Result<(), StoreError> {
        match self.target.connect_patiently(give_up_at) {
            Ok(connection) if connection.is_private || !self.is_private => {
                self.connection = Some(connection);
                Ok(())
            }
            Ok(_) => Err(self.fail("another server listens there now, and what the donor held is lost")),
            Err(StoreError::Gone { reason: second, .. }) => {
                Err(self.fail(format!("{reason}; then {second}")))
            }
            Err(other) => Err(other),
        }
    }

    fn fail(&mut self, reason: impl Into<String>) -> StoreError {
        self.target.given_up.get_or_init(|| self.target.gone(reason)).clone()
    }

    fn outcome(&self, answer: u32) -> Result<(), StoreError> {
        let store = || self.target.uri.clone();
        match answer {
            0 => Ok(()),
            errno::ENOSPC => Err(StoreError::Full { store: store() }),
            errno::ESHUTDOWN => {
                Err(self.target.gone("the server is shutting down, or the export was dropped"))
            }
            other => Err(StoreError::Io {
                store: store(),
                reason: format!("the server answered {}", errno::name(other)),
            }),
        }
    }

    /// Sends a batch and receives its answers: an outcome for each index.
    fn transact(&mut self, pages: &mut Pages<'_, '_>, max_pages: usize) -> Vec<Result<(), StoreError>> {
        self.settle_posted();
        let (order, runs) = plan(pages, max_pages, self.target.capacity_slots);
        self.finish(pages, Batch { order, runs, sent: None })
    }

    /// The same for a batch of which a part may be sent already.
    fn finish(&mut self, pages: &mut Pages<'_, '_>, mut batch: Batch) -> Vec<Result<(), StoreError>> {
        let mut outcomes = vec![Ok(()); batch.order.len()];
        let mut ended = self.exchange(pages, &mut batch);
        // A full server refuses a request as a whole, though some of its pages may have a place already.
        let is_full = |run: &Run| run.answer == Some(errno::ENOSPC) && run.count > 1;
        if ended.is_ok() && batch.runs.iter().any(is_full) {
            let (full, rest): (Vec<_>, Vec<_>) = batch.runs.into_iter().partition(is_full);
            batch.runs = full.iter().flat_map(Run::singly).collect();
            ended = self.exchange(pages, &mut batch);
            batch.runs.extend(rest);
        }
        let Batch { order, runs, .. } = batch;
        for run in &runs {
            let outcome = match (run.answer, &ended) {
                (Some(answer), _) => self.outcome(answer),
                (None, Err(error)) => Err(error.clone()),
                (None, Ok(())) => self.outcome(errno::EIO),
            };
            for index in &order[run.first..run.first + run.count] {
                outcomes[*index] = outcome.clone();
            }
        }
        outcomes
    }
}

/// Reading ahead of the time when the pages are asked for.
impl NbdLane {
    /// Sends requests for these slots, as far as the socket takes them now.
    fn post(&mut self, slots: &[u32]) -> Option<Batch> {
        let max_pages = self.max_run_pages();
        let connection = self.connection.as_ref().filter(|_| self.target.given_up.get().is_none())?;
        let mut pages = Pages::Post(slots);
        let (order, mut runs) = plan(&pages, max_pages, self.target.capacity_slots);
        self.epoch = self.epoch.wrapping_add(1);
        let exchange = Exchange::new(connection, &mut pages, &order, &mut runs, self.epoch, &mut self.input);
        match exchange.post() {
            Ok(sent) => Some(Batch { order, runs, sent: Some(sent) }),
            Err(_) => {
                // Who reads then connects again.
                self.connection = None;
                None
            }
        }
    }

    /// Frees the connection for something else: what was posted is fetched, and kept until somebody asks for
    /// it.
    fn settle_posted(&mut self) {
        self.posted = match self.posted.take() {
            Some(Posted::UnderWay(slots, posted)) => {
                Some(Posted::Kept(Kept::fetch(slots, |batch| self.finish_read(batch, posted))))
            }
            other => other,
        };
    }

    fn finish_read(&mut self, batch: &mut [ReadRequest<'_>], posted: Batch) {
        let outcomes = self.finish(&mut Pages::Read(batch), posted);
        for (request, outcome) in batch.iter_mut().zip(outcomes) {
            request.outcome = outcome;
        }
    }
}

impl Lane for NbdLane {
    fn write(&mut self, batch: &mut [WriteRequest<'_>]) {
        let max_pages = self.max_run_pages();
        let outcomes = self.transact(&mut Pages::Write(batch), max_pages);
        for (request, outcome) in batch.iter_mut().zip(outcomes) {
            request.outcome = outcome;
        }
    }

    fn read(&mut self, batch: &mut [ReadRequest<'_>]) {
        let max_pages = self.max_run_pages();
        let outcomes = self.transact(&mut Pages::Read(batch), max_pages);
        for (request, outcome) in batch.iter_mut().zip(outcomes) {
            request.outcome = outcome;
        }
    }

    fn can_post(&self) -> bool {
        true
    }

    fn post_reads(&mut self, slots: &[u32]) {
        self.settle_posted();
        self.posted = self.post(slots).map(|batch| Posted::UnderWay(slots.to_vec(), batch));
    }

    fn complete_reads(&mut self, batch: &mut [ReadRequest<'_>]) {
        match self.posted.take() {
            Some(Posted::UnderWay(slots, posted)) if are_of(&slots, batch) => {
                return self.finish_read(batch, posted);
            }
            Some(Posted::Kept(kept)) if kept.hand_over(batch) => return,
            other => self.posted = other,
        }
        self.read(batch);
        self.posted = None;
    }

    fn discard(&mut self, slots: &[u32]) {
        if self.has(ExportFlags::SEND_TRIM) {
            // Failure is not an error: the slots can be reused.
            let _ = self.transact(&mut Pages::Discard(slots), MAX_TRIM_PAGES);
        }
    }
}
