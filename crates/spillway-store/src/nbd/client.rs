//! The store of `nbd://` and `nbd+unix://`.
//!
//! [`prepare`] opens the export, sees whether the server takes as many connections as a run needs, and keeps
//! the connection in [`SharedParts::fd`]. With a Spillway donor the export is private to the run, and lives
//! for as long as anybody holds that connection, or a lane, and the donor's grace time longer. The connection
//! also carries the server's address to the processes of the run, so that none of them needs to look up a
//! name. With a server that is not ours the named export is used as it is; if such a server loses its
//! contents, the pager's checksums tell.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::fd::IntoRawFd;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustix::net::getpeername;
use spillway_core::page::PAGE_SIZE;
use spillway_core::size::Size;
use spillway_nbd::handshake::ExportFlags;
use spillway_nbd::proof::{Purpose, RunKey};
use spillway_tls::{ClientSide, KeyPrint, TlsError};

use super::connection::{Address, Attempt, ConnectError, Connection};
use super::effort::Effort;
use super::lane::NbdLane;
use super::mark;
use super::meeting::{Meeting, Wish};
use super::pool::Pool;
use super::relay::{self, Target};
use crate::spec::{Tls, Transport};
use crate::{Lane, LatencyClass, Listener, Patience, SharedParts, Store, StoreError, StoreSpec};

/// How long a run's start waits for a server: one that is well answers at once.
const START_PATIENCE: Duration = Duration::from_secs(5);
/// How long of it may pass with one connection beyond the first.
const FURTHER_PATIENCE: Duration = Duration::from_secs(2);
/// Connections that a run cannot do without: the one that keeps a private export, the command's own and the
/// first process's.
const NEEDED_CONNECTIONS: usize = 3;

/// Checks that the export can be used, as [`StoreSpec::prepare`] says.
pub fn prepare(spec: &StoreSpec, run_token: &str) -> Result<SharedParts, StoreError> {
    let asked = match spec {
        StoreSpec::Nbd { size, .. } | StoreSpec::NbdUnix { size, .. } => *size,
        _ => None,
    };
    let_relays_start();
    keep_relay(spec, run_token)?;
    prepare_sized(spec, run_token, asked)
}

/// The same, asking for so much, where the run's relay has been started if it needs one.
pub(crate) fn prepare_sized(
    spec: &StoreSpec,
    run_token: &str,
    asked: Option<Size>,
) -> Result<SharedParts, StoreError> {
    let (_, patience) = target(spec)?;
    let key = RunKey::derive(run_token, &spec.to_string());
    let purpose = Purpose::Run { size_bytes: asked.map_or(0, Size::bytes) };
    let mut last = ConnectError::Unreachable("the name has no address".to_owned());
    let until = Instant::now() + patience.timeout.min(START_PATIENCE);
    for address in addresses(spec, run_token)? {
        let attempt = Attempt { connect: FURTHER_PATIENCE, until };
        match Connection::open(&address, export_of(spec), (&key, purpose), attempt, patience.timeout) {
            Ok(connection) => {
                let usable = usable(spec, &connection)
                    .and_then(|slots| takes_enough(spec, &address, &key, until).map(|()| slots));
                let capacity_slots = match usable {
                    Ok(slots) => asked.map_or(slots, |asked| slots_of(asked).min(slots)),
                    Err(error) => {
                        // A donor would keep what it has promised for a run that was lost.
                        end(&connection.into_fd());
                        return Err(error);
                    }
                };
                let fd = Some(connection.into_fd());
                return Ok(SharedParts { capacity_slots, fd, held: Vec::new(), spill: None, notice: None });
            }
            Err(error) => last = error,
        }
    }
    let is_about_tls = tls_of(spec).is_some() && last.is_final();
    Err(match is_about_tls {
        true => spec.unusable(last, "then start the run again"),
        false => {
            let hint = start_hint(spec);
            spec.unusable(last, format!("check that a donor or NBD server listens there ({hint})"))
        }
    })
}

/// Ends the run, as [`StoreSpec::end`] says.
pub fn end(socket: &std::os::fd::OwnedFd) {
    super::connection::say_goodbye(socket);
    crate::ending::await_end(socket);
}

fn slots_of(size: Size) -> u32 {
    u32::try_from(size.bytes().div_ceil(PAGE_SIZE as u64)).unwrap_or(u32::MAX)
}

/// Checks that the server takes more than the connection that there is.
fn takes_enough(spec: &StoreSpec, address: &Address, key: &RunKey, until: Instant) -> Result<(), StoreError> {
    let mut further = Vec::with_capacity(NEEDED_CONNECTIONS);
    while further.len() + 1 < NEEDED_CONNECTIONS {
        let attempt =
            Attempt { connect: FURTHER_PATIENCE, until: until.min(Instant::now() + FURTHER_PATIENCE) };
        match Connection::open(address, export_of(spec), (key, Purpose::Lane), attempt, FURTHER_PATIENCE) {
            Ok(connection) => further.push(connection),
            Err(error) => {
                let has = 1 + further.len();
                let connections = if has == 1 { "connection" } else { "connections" };
                return Err(spec.unusable(
                    format!(
                        "the server takes {has} {connections} at a time, and a run needs at least \
                         {NEEDED_CONNECTIONS} ({error})"
                    ),
                    "let it take more: 'qemu-nbd --shared=16', nbdkit without 'limit', \
                     'spillway donor --max-connections 1024'",
                ));
            }
        }
    }
    Ok(())
}

/// Opens the export in one process, as [`StoreSpec::open`] says.
pub fn open(spec: &StoreSpec, parts: SharedParts, run_token: &str) -> Result<Arc<dyn Store>, StoreError> {
    open_by(spec, parts, run_token, |pool| pool)
}

/// The same with another patience than the specification's, by which the donor knows the run; and as one of
/// several: what it has, others have too.
pub(crate) fn open_one_of_several(
    spec: &StoreSpec,
    parts: SharedParts,
    run_token: &str,
    patience: Patience,
) -> Result<Arc<dyn Store>, StoreError> {
    open_by(spec, parts, run_token, |pool| pool.one_of_several(patience))
}

fn open_by(
    spec: &StoreSpec,
    parts: SharedParts,
    run_token: &str,
    with: impl FnOnce(Pool) -> Pool,
) -> Result<Arc<dyn Store>, StoreError> {
    let (export, patience) = target(spec)?;
    let address = match known_address(spec, run_token) {
        Some(address) => address,
        // Looking up names is not for the inside of somebody else's process.
        None => parts
            .fd
            .as_ref()
            .and_then(|fd| getpeername(fd).ok()?)
            .and_then(|peer| SocketAddr::try_from(peer).ok())
            .map(Address::Tcp)
            .ok_or_else(|| {
                spec.unusable("the server's address was not handed over", "name it by IP address")
            })?,
    };
    let key = RunKey::derive(run_token, &spec.to_string());
    let (uri, export) = (spec.to_string(), export.to_owned());
    let pool = Pool::new(uri, parts.capacity_slots, address, export, key, patience);
    Ok(Arc::new(NbdStore { pool: Arc::new(with(pool)) }))
}

/// The name by which a run claims the export of a pool's donor, where that is a server of another kind, in
/// the life of the donor to which the token belongs.
pub(crate) fn mark_of(spec: &StoreSpec, token: &str) -> String {
    mark::mark_of(&RunKey::derive(token, &spec.to_string()))
}

/// Tells the donor that `spec` names to drop the export that `spec` names, with all it holds.
pub fn drop_export(spec: &StoreSpec) -> Result<(), StoreError> {
    let (export, patience) = target(spec)?;
    let mut last = ConnectError::Unreachable("the name has no address".to_owned());
    let token = random_token();
    let_relays_start();
    need_relay(spec, &token)?;
    for address in addresses(spec, &token)? {
        match super::connection::drop_export(&address, export, patience.timeout) {
            Ok(()) => return Ok(()),
            Err(error) => last = error,
        }
    }
    Err(spec.unusable(last, "nothing was dropped; 'nbdinfo --list' shows what a donor holds"))
}

/// The token of a command that asks something of a donor and is no run.
pub(super) fn random_token() -> String {
    let mut token = [0_u8; 16];
    let _ = rustix::rand::getrandom(&mut token, rustix::rand::GetRandomFlags::empty());
    format!("{:032x}", u128::from_ne_bytes(token))
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
        StoreSpec::Nbd { host, port, transport, .. } => {
            let (place, protection) = match transport {
                Transport::Unsaid => (host.as_str(), ""),
                Transport::Plain => ("0.0.0.0", " --plain"),
                Transport::Tls(_) => ("0.0.0.0", " --tls-certificates DIR"),
            };
            format!("there: spillway donor --memory SIZE --listen {place}:{port}{protection}")
        }
        _ => String::new(),
    }
}

fn tls_of(spec: &StoreSpec) -> Option<&Tls> {
    match spec {
        StoreSpec::Nbd { transport: Transport::Tls(tls), .. } => Some(tls),
        _ => None,
    }
}

/// The address that every process of the run knows without asking anybody.
pub(crate) fn known_address(spec: &StoreSpec, run_token: &str) -> Option<Address> {
    match spec {
        StoreSpec::NbdUnix { socket, .. } => Some(Address::Unix(socket.clone())),
        StoreSpec::Nbd { host, port, transport: Transport::Tls(tls), .. } => {
            Some(Address::Relay(meeting(run_token, host, *port, tls)))
        }
        StoreSpec::Nbd { host, port, .. } => {
            host.parse::<IpAddr>().ok().map(|ip| Address::Tcp(SocketAddr::new(ip, *port)))
        }
        _ => None,
    }
}

/// Stores of a run that differ in their export only, or in how patient they are, have one relay.
fn meeting(run_token: &str, host: &str, port: u16, tls: &Tls) -> Meeting {
    // A pool's donor has another token in each of its lives, and the same relay.
    let run = run_token.split('/').next().unwrap_or_default();
    Meeting::of(run, &format!("{host} {port} {tls:?}"))
}

/// Where lanes of the run connect to: the run's relay, where the server is spoken to by TLS. Refuses to go to
/// other machines where nobody has said how.
fn addresses(spec: &StoreSpec, run_token: &str) -> Result<Vec<Address>, StoreError> {
    let StoreSpec::Nbd { transport, .. } = spec else {
        return known_address(spec, run_token).map(|address| vec![address]).ok_or_else(|| not_nbd(spec));
    };
    if let Transport::Tls(_) = transport {
        return Ok(known_address(spec, run_token).into_iter().collect());
    }
    let found = resolve(spec)?;
    let other = found.iter().find(|address| !address.ip().to_canonical().is_loopback());
    match (transport, other) {
        (Transport::Unsaid, Some(other)) => Err(spec.unusable(
            format!(
                "{} is not this machine, and nbd:// is neither encrypted nor asks who answers",
                other.ip()
            ),
            "write nbds:// and ?tls-certificates=DIR (pool: ?tls-certificates=DIR), or ?plain where the \
                 network is yours alone",
        )),
        _ => Ok(found.into_iter().map(Address::Tcp).collect()),
    }
}

fn resolve(spec: &StoreSpec) -> Result<Vec<SocketAddr>, StoreError> {
    let StoreSpec::Nbd { host, port, .. } = spec else { return Err(not_nbd(spec)) };
    let found = (host.as_str(), *port).to_socket_addrs().map_err(|error| {
        spec.unusable(format!("'{host}' has no address: {error}"), "name the server by IP address")
    })?;
    Ok(found.collect())
}

type RelayStarter = fn(&StoreSpec, &str) -> Result<bool, StoreError>;

static RELAY_STARTER: OnceLock<RelayStarter> = OnceLock::new();

/// Lets this process start relays from now on. Only the command does so: none of what they need is in the
/// library that enters programs, and what looks after a pool would bring it there.
pub(crate) fn let_relays_start() {
    let _ = RELAY_STARTER.set(start_relay);
}

/// Starts the run's relay, where the server is spoken to by TLS and there is none yet, and has it stay for as
/// long as this process, or a copy of it, goes on. Else it would end with the server, and nobody could find
/// out whether that has come back.
pub(crate) fn keep_relay(spec: &StoreSpec, run_token: &str) -> Result<(), StoreError> {
    if need_relay(spec, run_token)?
        && let Some(Address::Relay(meeting)) = known_address(spec, run_token)
    {
        let stays = meeting.knock(Wish::Stay, Attempt::of(START_PATIENCE));
        let stays = stays.map_err(|error| spec.unusable(error, "then try again"))?;
        // One for each server that the run has had: closed as this process ends.
        let _ = stays.into_socket().into_fd().into_raw_fd();
    }
    Ok(())
}

/// Starts the run's relay, where the server is spoken to by TLS and there is none yet; whether it did.
pub(crate) fn need_relay(spec: &StoreSpec, run_token: &str) -> Result<bool, StoreError> {
    match (tls_of(spec), RELAY_STARTER.get()) {
        (None, _) => Ok(false),
        (Some(_), Some(start)) => start(spec, run_token),
        (Some(_), None) => {
            Err(spec.unusable("no relay for TLS is started here", "start it by 'spillway run'"))
        }
    }
}

/// Has the run's relay, which has been started, take this server for itself from now on only by this key.
/// Where no TLS is spoken nothing is to be done.
///
/// # Errors
/// The relay is gone.
pub(crate) fn expect_key(spec: &StoreSpec, run_token: &str, key: KeyPrint) -> Result<(), StoreError> {
    let Some(Address::Relay(meeting)) = known_address(spec, run_token) else { return Ok(()) };
    let told = meeting.knock(Wish::Expect(key), Attempt::of(START_PATIENCE));
    told.map(|_| ()).map_err(|error| spec.unusable(error, "then try again"))
}

fn start_relay(spec: &StoreSpec, run_token: &str) -> Result<bool, StoreError> {
    let StoreSpec::Nbd { host, port, transport: Transport::Tls(wishes), .. } = spec else { return Ok(false) };
    let addresses = resolve(spec)?;
    let meeting = meeting(run_token, host, *port, wishes);
    let unusable = |error: TlsError| {
        let (reason, remedy) = error.reason_and_remedy();
        spec.unusable(reason, remedy)
    };
    let tls = ClientSide::load(&wishes.certificates).map_err(unusable)?;
    let host = wishes.hostname.as_ref().unwrap_or(host).clone();
    // So that a name that cannot be is refused here.
    tls.begin(&host).map_err(unusable)?;
    relay::start(&meeting, Target { addresses, host, tls }).map_err(|error| {
        spec.unusable(format!("no relay for TLS can be started: {error}"), "let there be more processes")
    })
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
    // An export that others may open too has its last page for the claim on it.
    let claim_pages = u64::from(!connection.is_private);
    match (connection.size_bytes / u64::from(page)).saturating_sub(claim_pages) {
        0 if claim_pages > 0 && connection.size_bytes >= u64::from(page) => Err(spec.unusable(
            "the export holds a page of 4 KiB and no second, for the run's claim on it",
            "give it more",
        )),
        0 => Err(spec.unusable("the export does not hold a page of 4 KiB", "give it more")),
        slots => Ok(u32::try_from(slots).unwrap_or(u32::MAX - 1)),
    }
}

/// A server as one process sees it.
struct NbdStore {
    pool: Arc<Pool>,
}

impl Store for NbdStore {
    fn latency_class(&self) -> LatencyClass {
        LatencyClass::Remote
    }

    fn uri(&self) -> &str {
        &self.pool.uri
    }

    fn capacity_slots(&self) -> u32 {
        self.pool.capacity_slots
    }

    fn open_lane(&self) -> Result<Box<dyn Lane>, StoreError> {
        // The first finds out whether the server can be had at all. Later ones borrow.
        if self.pool.is_without_connection() {
            Pool::take(&self.pool, &Effort::of(self.pool.patience.reconnect, None))?.give_back();
        }
        Ok(Box::new(NbdLane::new(Arc::clone(&self.pool))))
    }

    fn listen(&self, listener: Listener) {
        self.pool.listen(listener);
    }

    fn tend(&self) {
        self.pool.tend();
    }

    fn is_given_up(&self) -> bool {
        self.pool.given_up().is_some()
    }

    fn claim_slot(&self) -> Option<u32> {
        self.pool.open_claim_slot()
    }
}
