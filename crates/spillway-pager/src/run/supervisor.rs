//! The supervisor of a run: makes what its processes share, lets them in, and gives back what each held when
//! it ends.

mod reaping;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{SocketFlags, SocketType, accept_with, bind, listen, socket_with, sockopt};
use rustix::process::{PidfdFlags, pidfd_open};
use spillway_core::page::PAGE_SIZE;
use spillway_store::{SharedParts, StoreError, StoreSpec, Tell};
use thiserror::Error;

use crate::run::connections::{Endings, ServerConnections};
use crate::run::own_stores::{self, OwnStores};
use crate::run::reaper::Reaper;
use crate::run::rendezvous::{self, BUILD, FromProcess, Hello, RendezvousError, Welcome};
use crate::run::settings::Settings;
use crate::run::state::{Child, RunState, slot_ranges};
use crate::run::store_counts::MAX_STORES;
use crate::run::told_uses::Teller;
use crate::run::trace_ring::TraceRing;
use crate::run::views::{BusyPagers, RunView};

/// Why a run cannot begin.
#[derive(Debug, Error)]
pub enum SupervisorError {
    /// A store's URI is wrong.
    #[error("{0}")]
    Uri(String),
    /// It would hold two pages in one place, or count one room twice.
    #[error("--store {0} is given twice; name each store once, with all of its size")]
    Twice(String),
    /// More than are counted apart.
    #[error("{0} stores are more than a run can have; name at most {MAX_STORES}")]
    TooMany(usize),
    /// A store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// One of several stores cannot be used.
    #[error("{0}; or start without it: --allow-missing-stores")]
    Missing(StoreError),
    /// The kernel refuses something.
    #[error("the kernel refused to {0}: {1}")]
    Kernel(&'static str, Errno),
    /// The socket cannot be made.
    #[error(transparent)]
    Rendezvous(#[from] RendezvousError),
}

/// How long a process may take to end after its connection has.
const DYING: Duration = Duration::from_secs(2);

/// How long a child whose parent was killed in the middle of a fork may take to come here.
const ORPHANS_PATIENCE: Duration = Duration::from_secs(10);

/// How long to wait for the end of a process.
const ENDING: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// A process's descriptor can be read once it has ended.
fn has_ended(process: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(process, PollFlags::IN)];
    poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
}

/// A connection to a process of the run.
struct Connection {
    socket: OwnedFd,
    pid: u32,
    /// The process itself: its number may be another's once it has ended.
    process: Option<OwnedFd>,
    entry: Option<usize>,
    /// Kept so that the process's missing pages block rather than read as zeros while it dies.
    uffd: Option<OwnedFd>,
    /// What it is connected to itself.
    servers: ServerConnections,
}

/// Who writes down what the processes' pagers do.
pub trait Recorder: Send {
    /// A program begins, and writes its fault trace into `ring`.
    fn begin(&mut self, ring: TraceRing);
    /// A forked child begins. It writes none, for its queues do not begin empty.
    fn leave_out(&mut self);
}

/// What a program needs to record a tape, or to play one.
pub struct TapeParts {
    /// Where its recording goes, and its counts.
    pub log: OwnedFd,
    /// The tape that it plays: words that are sealed ([`spillway_sys::sealed_memory`]).
    pub tape: Option<OwnedFd>,
}

/// Who keeps the tapes of programs.
pub trait TapeKeeper: Send {
    /// A program begins in a process of this number. `None` where nothing is to be done with a tape.
    fn begin(&mut self, pid: u32) -> Option<TapeParts>;
    /// It has ended, or goes on as another program. What came of its tape is counted in `run`.
    fn end(&mut self, pid: u32, run: &RunState);
}

/// What a program gets of its own.
#[derive(Default)]
struct Parts {
    trace_ring: Option<OwnedFd>,
    tape: Option<TapeParts>,
}

/// Supervises one run, from its first process to its last.
pub struct Supervisor {
    listener: OwnedFd,
    name: String,
    token: String,
    settings: Settings,
    run: RunState,
    run_fd: OwnedFd,
    stores: OwnStores,
    notices: Vec<String>,
    device: Option<OwnedFd>,
    connections: Vec<Connection>,
    /// Every process that was ever connected and still lives. Between two programs of one process (exec) it
    /// is not connected, and comes back.
    known: Vec<OwnedFd>,
    /// Userfaultfds of processes whose connection has ended, and since when.
    dying: Vec<(Instant, OwnedFd)>,
    /// Processes that have ended amid a change of what a server holds.
    endings: Endings,
    reaper: Reaper,
    /// Entries claimed for children whose parent is gone, and since when that is known.
    orphans: Vec<(usize, Instant)>,
    recorder: Option<Box<dyn Recorder>>,
    tapes: Option<Box<dyn TapeKeeper>>,
    teller: Teller,
}

impl Supervisor {
    /// Makes a run. `token` is unique to it and known to its processes only.
    ///
    /// # Errors
    /// What is wrong with a store, or what the kernel refused: see [`SupervisorError`].
    pub fn new(settings: Settings, token: String) -> Result<Self, SupervisorError> {
        Self::with_stores(settings, token, false)
    }

    /// The same; with `may_miss_stores` it goes without those that cannot be used, as long as there is one.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_stores(
        mut settings: Settings,
        token: String,
        may_miss_stores: bool,
    ) -> Result<Self, SupervisorError> {
        let kernel = |what| move |error| SupervisorError::Kernel(what, error);
        if settings.stores.len() > MAX_STORES {
            return Err(SupervisorError::TooMany(settings.stores.len()));
        }
        let (mut stores, mut notices) = open_stores(&mut settings, &token, may_miss_stores)?;
        notices.extend(stores.claim()?);
        let slots = slot_ranges(&settings.store_slots).last().map_or(0, |range| range.end);
        let limit_pages = settings.local_bytes.bytes() / PAGE_SIZE as u64;
        let made = match settings.seals_any() {
            true => RunState::create_sealed(limit_pages, slots),
            false => RunState::create(limit_pages, slots),
        };
        let (run_fd, run) = made.map_err(kernel("give memory for the run's state"))?;
        let name = rendezvous::name(&token);
        let listener =
            socket_with(rustix::net::AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(kernel("make a socket"))?;
        let address = rendezvous::address(&name).map_err(kernel("name a socket"))?;
        bind(&listener, &address).map_err(kernel("bind the run's socket"))?;
        listen(&listener, 128).map_err(kernel("listen on the run's socket"))?;
        let device = rustix::fs::open("/dev/userfaultfd", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).ok();
        Ok(Self {
            listener,
            name,
            token,
            settings,
            run,
            run_fd,
            stores,
            notices,
            device,
            connections: Vec::new(),
            known: Vec::new(),
            dying: Vec::new(),
            endings: Endings::default(),
            reaper: Reaper::default(),
            orphans: Vec::new(),
            recorder: None,
            tapes: None,
            teller: Teller::default(),
        })
    }

    /// What the user should know of how the run begins.
    #[must_use]
    pub fn notices(&self) -> &[String] {
        &self.notices
    }

    /// Looks after the stores from now on, and has what happens to them told.
    ///
    /// # Errors
    /// Where the kernel gives no second view of the run's state.
    pub fn watch_stores(&mut self, tell: Tell) -> Result<(), SupervisorError> {
        let run = RunState::map(&self.run_fd);
        let run = run.map_err(|error| SupervisorError::Kernel("map the run's state", error))?;
        self.stores.watch(run, tell);
        Ok(())
    }

    /// Before this process is copied: no other thread of it is to be amid something.
    pub fn pause_watch(&mut self) {
        self.reaper.finish();
        self.stores.pause_watch();
    }

    /// The value of [`crate::run::settings::RUN_VARIABLE`] for this run's programs.
    #[must_use]
    pub fn run_variable(&self) -> String {
        format!("{}/{}", self.name, self.token)
    }

    /// Has programs that begin from now on write their fault traces.
    pub fn record(&mut self, recorder: Box<dyn Recorder>) {
        self.recorder = Some(recorder);
    }

    /// Has programs that begin from now on record tapes, and play them.
    pub fn keep_tapes(&mut self, keeper: Box<dyn TapeKeeper>) {
        self.tapes = Some(keeper);
    }

    /// Ends the tape of a program whose end may not have been heard of yet.
    pub fn end_tape(&mut self, pid: u32) {
        if let Some(tapes) = &mut self.tapes {
            tapes.end(pid, &self.run);
        }
    }

    /// This process is a copy of the supervisor that was, and goes on in its place. The kernel has not copied
    /// the mappings over which accessed bits are read, so they are opened anew.
    pub fn go_on_as_copy(&mut self) {
        // Its end would look into them.
        std::mem::forget(std::mem::take(&mut self.teller));
        self.stores.go_on_in_copy();
    }

    /// What the processes share.
    #[must_use]
    pub fn run(&self) -> &RunState {
        &self.run
    }

    /// A view of the run for another thread, which tells whether a pager is at work.
    pub fn busy_pagers(&self) -> Result<BusyPagers, SupervisorError> {
        let run = RunState::map(&self.run_fd);
        let run = run.map_err(|error| SupervisorError::Kernel("map the run's state", error))?;
        Ok(BusyPagers::new(Arc::new(run)))
    }

    /// A view of the run for a thread that tells others of it.
    ///
    /// # Errors
    /// The kernel does not map the run's state a second time.
    pub fn view(&self) -> Result<RunView, SupervisorError> {
        let run = RunState::map(&self.run_fd);
        let run = run.map_err(|error| SupervisorError::Kernel("map the run's state", error))?;
        Ok(RunView { run, settings: self.settings.clone(), stores: self.stores.opened() })
    }

    /// The settings, with the capacities that the stores have offered.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Whether processes of the run are left: managed, about to be, or gone on to a program that is not.
    #[must_use]
    pub fn has_processes(&mut self) -> bool {
        self.known.retain(|process| !has_ended(process));
        !self.known.is_empty() || !self.connections.is_empty() || self.live_entries().next().is_some()
    }

    /// Serves processes until `also` (a descriptor of the caller's) can be read or a second has passed.
    pub fn serve(&mut self, also: BorrowedFd<'_>) {
        let mut polled =
            vec![PollFd::from_borrowed_fd(also, PollFlags::IN), PollFd::new(&self.listener, PollFlags::IN)];
        polled
            .extend(self.connections.iter().map(|connection| PollFd::new(&connection.socket, PollFlags::IN)));
        polled.extend(self.endings.awaited().map(|socket| PollFd::new(socket, PollFlags::IN)));
        let second = Timespec { tv_sec: 1, tv_nsec: 0 };
        if poll(&mut polled, Some(&second)).is_err() {
            return;
        }
        let ready: Vec<bool> = polled.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(polled);
        for index in (0..self.connections.len()).rev() {
            if ready[index + 2] && !self.hear(index) {
                let connection = self.connections.swap_remove(index);
                self.teller.forget(connection.pid);
                if connection.entry.is_some() {
                    self.end_tape(connection.pid);
                }
                self.dying.extend(connection.uffd.map(|uffd| (Instant::now(), uffd)));
                if let Some(entry) = connection.entry {
                    self.end(entry, connection.servers);
                }
            }
        }
        if ready[1] {
            self.accept();
        }
        for entry in self.endings.take_over() {
            self.reap(entry);
        }
        self.reap_unborn();
        self.stores.tend();
        self.dying.retain(|(since, _)| since.elapsed() < DYING);
    }

    fn accept(&mut self) {
        let Ok(socket) = accept_with(&self.listener, SocketFlags::CLOEXEC) else { return };
        let Ok(peer) = sockopt::socket_peercred(&socket) else { return };
        let pid = peer.pid.as_raw_nonzero().get() as u32;
        self.known.retain(|process| !has_ended(process));
        let process = pidfd_open(peer.pid, PidfdFlags::empty()).ok();
        self.known.extend(process.as_ref().and_then(|process| process.try_clone().ok()));
        self.connections.push(Connection {
            socket,
            pid,
            process,
            entry: None,
            uffd: None,
            servers: ServerConnections::default(),
        });
    }

    /// Hears a connection; false when it has ended or talks nonsense.
    fn hear(&mut self, index: usize) -> bool {
        if self.connections[index].entry.is_some() {
            return self.hear_managed(index);
        }
        let Ok(Some((hello, _))) = rendezvous::receive::<Hello>(&self.connections[index].socket) else {
            return false;
        };
        if hello.token != self.token {
            return false;
        }
        if hello.build != BUILD {
            let refusal = RendezvousError::OtherBuild.to_string();
            return self.send_welcome(index, 0, Some(refusal), &Parts::default()).is_ok();
        }
        self.welcome(index, hello.forked).is_ok()
    }

    fn hear_managed(&mut self, index: usize) -> bool {
        let Self { connections, teller, .. } = self;
        let connection = &mut connections[index];
        match rendezvous::receive(&connection.socket) {
            Ok(Some((FromProcess::Ready, fds))) => connection.uffd = fds.into_iter().next(),
            Ok(Some((FromProcess::Connected(number), fds))) => {
                connection.servers.add(number, fds.into_iter().next());
            }
            Ok(Some((FromProcess::Disconnected(number), _))) => connection.servers.remove(number),
            Ok(Some((FromProcess::WhichUsed(question), _))) => {
                let answer = teller.answer(connection.pid, &question);
                if connection.process.as_ref().is_some_and(|process| !has_ended(process)) {
                    // Who does not listen goes without.
                    let _ = rendezvous::send_now(&connection.socket, &answer);
                }
            }
            Ok(None) | Err(_) => return false,
        }
        true
    }

    fn welcome(&mut self, index: usize, forked: Option<Child>) -> Result<(), RendezvousError> {
        let pid = self.connections[index].pid;
        let entry = match forked {
            Some(child) if self.is_expected(child) => {
                self.run.process(child.entry).set_pid(pid);
                Some(child.entry)
            }
            Some(_) => {
                let refusal = "its parent ended before it came, and it was given up".to_owned();
                return self.send_welcome(index, 0, Some(refusal), &Parts::default());
            }
            None => self.run.claim_process(pid),
        };
        let Some(entry) = entry else {
            let refusal = "the run has as many processes as it can manage (1024)".to_owned();
            return self.send_welcome(index, 0, Some(refusal), &Parts::default());
        };
        self.connections[index].entry = Some(entry);
        let trace_ring = self.begin_trace(forked.is_some());
        let tape = self.tapes.as_mut().filter(|_| forked.is_none()).and_then(|tapes| tapes.begin(pid));
        self.send_welcome(index, entry, None, &Parts { trace_ring, tape })
    }

    /// The ring that a process is to write its fault trace into.
    fn begin_trace(&mut self, is_forked: bool) -> Option<OwnedFd> {
        let recorder = self.recorder.as_mut()?;
        if is_forked {
            recorder.leave_out();
            return None;
        }
        let (fd, ring) = TraceRing::create().ok()?;
        recorder.begin(ring);
        Some(fd)
    }

    fn send_welcome(
        &self,
        index: usize,
        entry: usize,
        refusal: Option<String>,
        parts: &Parts,
    ) -> Result<(), RendezvousError> {
        let message = Welcome {
            build: BUILD.to_owned(),
            entry,
            settings: self.settings.clone(),
            store_has_fds: self.stores.fds().map(|fds| fds.map(|fd| fd.is_some())).collect(),
            has_device: self.device.is_some(),
            has_trace_ring: parts.trace_ring.is_some(),
            has_tape_log: parts.tape.is_some(),
            has_tape: parts.tape.as_ref().is_some_and(|tape| tape.tape.is_some()),
            refusal,
        };
        let fds: Vec<BorrowedFd<'_>> = std::iter::once(self.run_fd.as_fd())
            .chain(self.stores.fds().flatten().flatten().map(AsFd::as_fd))
            .chain(self.device.as_ref().map(AsFd::as_fd))
            .chain(parts.trace_ring.as_ref().map(AsFd::as_fd))
            .chain(parts.tape.iter().map(|tape| tape.log.as_fd()))
            .chain(parts.tape.iter().filter_map(|tape| tape.tape.as_ref().map(AsFd::as_fd)))
            .collect();
        rendezvous::send(&self.connections[index].socket, &message, &fds)
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.reaper.spare_stores();
        // An export of the run's own goes with it.
        if self.stores.may_be_used_by_others() {
            self.reaper.finish();
            self.endings.await_all();
        }
    }
}

/// Prepares and opens a run's stores, notes in its settings what they offer, and returns what the user should
/// know.
fn open_stores(
    settings: &mut Settings,
    token: &str,
    may_miss_stores: bool,
) -> Result<(OwnStores, Vec<String>), SupervisorError> {
    let (mut prepared, mut notices) = (Vec::new(), Vec::new());
    match prepare_stores(settings, token, may_miss_stores, &mut prepared, &mut notices) {
        Ok(()) => Ok((OwnStores::open(token.to_owned(), prepared), notices)),
        Err(error) => {
            own_stores::end(&prepared);
            Err(error)
        }
    }
}

fn prepare_stores(
    settings: &mut Settings,
    token: &str,
    may_miss_stores: bool,
    prepared: &mut Vec<(StoreSpec, SharedParts)>,
    notices: &mut Vec<String>,
) -> Result<(), SupervisorError> {
    let mut missing = None;
    settings.store_slots.clear();
    for uri in std::mem::take(&mut settings.stores) {
        let spec: StoreSpec = uri.parse().map_err(|error| SupervisorError::Uri(format!("{error}")))?;
        if prepared.iter().any(|(other, _)| *other == spec) {
            return Err(SupervisorError::Twice(uri));
        }
        match spec.prepare(token) {
            Ok(mut parts) => {
                notices.extend(parts.notice.take());
                settings.store_slots.push(parts.capacity_slots);
                settings.stores.push(uri);
                prepared.push((spec, parts));
            }
            Err(error) => {
                notices.push(format!("starts without a store: {error}"));
                missing.get_or_insert(error);
            }
        }
    }
    match missing {
        Some(error) if prepared.is_empty() => Err(error.into()),
        Some(error) if !may_miss_stores => Err(SupervisorError::Missing(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::settings::{Block, FaultMode, FetchSettings, PoolSettings, Seal};
    use crate::run::state::MAX_PROCESSES;
    use spillway_core::size::Size;
    use spillway_policy::dcm;

    fn settings(stores: &[&str]) -> Settings {
        Settings {
            local_bytes: Size::from_bytes(4 << 20),
            stores: stores.iter().map(|&uri| uri.to_owned()).collect(),
            store_slots: Vec::new(),
            block: Block::default(),
            fault_mode: FaultMode::default(),
            fault_mode_reason: String::new(),
            replacement: dcm::Config::default(),
            pool: PoolSettings::default(),
            fetch: FetchSettings::default(),
            seal: Seal::default(),
        }
    }

    #[test]
    fn a_run_has_a_key_where_a_store_is_sealed() {
        let run = |seal| {
            let settings = Settings { seal, ..settings(&["ram:?size=1M"]) };
            Supervisor::new(settings, "3".repeat(32)).unwrap()
        };
        let has_key = |seal| run(seal).run.key().is_some();
        assert_eq!([Seal::Remote, Seal::All, Seal::None].map(has_key), [false, true, false]);
    }

    #[test]
    fn a_parent_that_is_killed_in_a_fork_leaves_nothing_claimed() {
        let mut supervisor = Supervisor::new(settings(&["compressed:?size=1M"]), "1".repeat(32)).unwrap();
        let parent = supervisor.run.claim_process(u32::MAX).unwrap();
        let child = supervisor.run.claim_child(parent).unwrap();
        supervisor.reap_unborn();
        assert_eq!(supervisor.live_entries().collect::<Vec<_>>(), [child.entry]);
        supervisor.reaper.finish();
        assert_eq!(
            supervisor.run.processes().collect::<Vec<_>>(),
            [child.entry],
            "the parent is gone, the child may come"
        );
        assert!(supervisor.is_expected(child));
        supervisor.orphans[0].1 = Instant::now().checked_sub(ORPHANS_PATIENCE * 2).unwrap();
        supervisor.reap_unborn();
        assert!(!supervisor.has_processes() && !supervisor.is_expected(child));
    }

    #[test]
    fn a_child_is_expected_by_its_claim_and_not_by_its_place() {
        let supervisor = Supervisor::new(settings(&["compressed:?size=1M"]), "2".repeat(32)).unwrap();
        let parent = supervisor.run.claim_process(1).unwrap();
        let first = supervisor.run.claim_child(parent).unwrap();
        supervisor.run.reap(first.entry, |_| {});
        let second = supervisor.run.claim_child(parent).unwrap();
        assert_eq!(first.entry, second.entry);
        assert!(!supervisor.is_expected(first) && supervisor.is_expected(second));
        assert!(!supervisor.is_expected(Child { entry: MAX_PROCESSES, ..second }));
    }

    #[test]
    fn the_same_store_twice_is_refused() {
        let refused =
            Supervisor::new(settings(&["compressed:?size=1M", "compressed:?size=1024K"]), "0".repeat(32));
        let message = refused.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(message.contains("compressed:?size=1024K is given twice"), "{message}");
    }
}
