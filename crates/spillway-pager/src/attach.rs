//! Bringing paging to life in a process: at its start, and anew in each forked child.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, getpid, pidfd_open};
use rustix::thread::futex;
use spillway_core::page::PAGE_SIZE;
use spillway_policy::dcm;
use spillway_store::{LatencyClass, SharedParts, StoreError, StoreSpec};
use spillway_sys::memory::{self, PageMap, ProcessStatus};
use spillway_sys::page_pipe::{FrameChanges, PagePipe};
use spillway_sys::raw_thread::{FileTable, ThreadMemory, TlsLayout, exit_thread};
use spillway_sys::sealed_memory::SealedMemory;
use spillway_sys::uffd::{Features, Uffd};
use thiserror::Error;

use crate::fault::block_size::{block_kind, max_block_pages};
use crate::inline::descriptors::{RaisedLimit, SharedDescriptors, free_numbers};
use crate::inline::{Inline, InlineError};
use crate::kernel::live::{LiveKernel, ReferencePlaces};
use crate::kernel::message;
use crate::process::attachment::{Attachment, OpenStore};
use crate::process::deck::Deck;
use crate::process::engine::{Engine, EngineConfig};
use crate::process::worker::Worker;
use crate::run::known_sites::KnownSites;
use crate::run::rendezvous::{self, BUILD, FromProcess, Hello, RendezvousError, Welcome};
use crate::run::settings::{Block, FaultMode};
use crate::run::state::{Child, Counter, RunState, slot_ranges};
use crate::run::store_health::{self, Voice};
use crate::run::tape_log::TapeLog;
use crate::run::trace_ring::{RingSink, TraceRing};
use crate::seal::sealing::Sealing;
use crate::threads::calls::Operation;
use crate::threads::handlers;
use crate::threads::leader::FaultHandlers;
use crate::threads::placement::Placement;
use crate::threads::raw;

type LiveEngine = Engine<LiveKernel>;
type LiveAttachment = Attachment<LiveKernel>;
type LiveWorker = Worker<LiveKernel>;

/// Why a process cannot be managed.
#[derive(Debug, Error)]
pub enum AttachError {
    /// The supervisor does not answer as it should.
    #[error(transparent)]
    Rendezvous(#[from] RendezvousError),
    /// The supervisor says no.
    #[error("{0}")]
    Refused(String),
    /// A store cannot be used from this process.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A store's URI is not understood, which the supervisor did.
    #[error("the store '{0}' is not understood")]
    Uri(String),
    /// Pages are to be sealed, and there is no key.
    #[error("the run has no key to seal pages with: please report this mistake of Spillway's")]
    NoKey,
    /// The kernel refuses something.
    #[error("the kernel refused to {0}: {1}; 'spillway doctor' says what is missing")]
    Kernel(&'static str, Errno),
}

fn kernel(what: &'static str) -> impl Fn(Errno) -> AttachError {
    move |error| AttachError::Kernel(what, error)
}

/// Redirects libc's system calls, by what is known of them, and returns how many; or why not, in words.
pub type PatchCalls<'a> = &'a dyn Fn(KnownSites<'_>) -> Result<usize, String>;

/// What a process needs to start its pager threads, made once before the program runs and inherited by
/// children.
pub struct Startup {
    threads: Vec<ThreadMemory>,
    run_name: String,
    token: String,
    /// For a forked child, what its parent announced it as.
    forked: Mutex<Option<Child>>,
    started: AtomicU32,
    /// How many descriptors the program may have.
    descriptor_limit: AtomicU64,
    outcome: AtomicU32,
    reason: Mutex<String>,
    engine: OnceLock<&'static LiveEngine>,
    run: OnceLock<&'static RunState>,
    /// The first pager thread.
    pager_thread: AtomicU32,
    /// Of this process, since its last fork.
    attachment: Mutex<Option<&'static LiveAttachment>>,
    /// The leaked [`Inline`] of this process; null in thread mode.
    inline: AtomicPtr<Inline>,
}

const PENDING: u32 = 0;
const READY: u32 = 1;
const FAILED: u32 = 2;
/// The program's thread is asked to change libc's code.
const PATCHING: u32 = 3;
/// The program's thread can have its faults served.
const SERVED: u32 = 4;

const MAX_HANDLERS: usize = 16;

const UNNUMBERED: &str = "give a descriptor a number that the program does not use";

impl Startup {
    /// Prepares the threads of a process of the run `run_variable` (see
    /// [`crate::run::settings::RUN_VARIABLE`]).
    ///
    /// # Errors
    /// [`AttachError::Refused`] where the variable names no run; [`AttachError::Kernel`] where there is no
    /// memory.
    pub fn new(run_variable: &str) -> Result<Self, AttachError> {
        // The pager's threads have no standard error of their own.
        std::panic::set_hook(Box::new(|panic| {
            message::to_program(&format!("{panic}; please report this mistake of Spillway's"));
        }));
        let (name, token) = run_variable
            .rsplit_once('/')
            .ok_or_else(|| AttachError::Refused(format!("'{run_variable}' does not name a run")))?;
        let layout = Arc::new(TlsLayout::of_this_thread());
        let threads = (0..=MAX_HANDLERS)
            .map(|_| ThreadMemory::new(&layout))
            .collect::<Result<_, _>>()
            .map_err(kernel("give memory for the pager's threads"))?;
        Ok(Self {
            threads,
            run_name: name.to_owned(),
            token: token.to_owned(),
            forked: Mutex::new(None),
            started: AtomicU32::new(0),
            descriptor_limit: AtomicU64::new(0),
            outcome: AtomicU32::new(PENDING),
            reason: Mutex::new(String::new()),
            engine: OnceLock::new(),
            run: OnceLock::new(),
            pager_thread: AtomicU32::new(0),
            attachment: Mutex::new(None),
            inline: AtomicPtr::new(std::ptr::null_mut()),
        })
    }

    /// The pager's threads in this process.
    #[must_use]
    pub fn thread_count(&self) -> usize {
        self.started.load(Ordering::Relaxed) as usize
    }

    /// The engine, once paging works.
    #[must_use]
    pub fn engine(&self) -> Option<&'static LiveEngine> {
        self.engine.get().copied()
    }

    /// What serves faults in their own threads; `None` in thread mode. Async-signal-safe.
    #[must_use]
    pub fn inline(&self) -> Option<&'static Inline> {
        self.served_inline().filter(|inline| !inline.was_left())
    }

    /// The same, and what has done so until inline mode was left.
    #[must_use]
    #[allow(unsafe_code)]
    pub fn served_inline(&self) -> Option<&'static Inline> {
        // SAFETY: null, or leaked by `ready_inline` and never freed.
        unsafe { self.inline.load(Ordering::Acquire).as_ref() }
    }

    /// Inline mode was left by a program's only thread: what served its faults goes. Where there are more,
    /// one of them may be about to look at it.
    pub fn drop_inline(&self) {
        if let Some(inline) = self.served_inline() {
            inline.close();
        }
        self.inline.store(std::ptr::null_mut(), Ordering::Release);
    }

    /// Readies inline mode, if this run has it, on a thread of the program. In a forked child as well, in
    /// place of what it inherited. An error where the kernel, a filter or the program's descriptors do not
    /// allow it.
    fn ready_inline(&self) -> Result<(), InlineError> {
        let attachment = self.attachment.lock().ok().and_then(|attachment| *attachment);
        let (Some(at), Some(engine)) = (attachment, self.engine()) else { return Ok(()) };
        let pager_thread = Pid::from_raw(self.pager_thread.load(Ordering::Relaxed).cast_signed());
        let (Some(_), Some(pager_thread)) = (&at.kernel.signalling, pager_thread) else { return Ok(()) };
        if let Some(inherited) = self.inline() {
            inherited.close();
        }
        let inline = Inline::new(engine, at, pager_thread)?;
        self.inline.store(Box::into_raw(Box::new(inline)), Ordering::Release);
        Ok(())
    }

    /// Starts the pager and waits until it works. On an ordinary thread, before the program's main.
    ///
    /// `patch_calls` has libc's own system calls be made by jumps and returns how many places that are. It is
    /// called in inline mode, while the pager has one thread, which waits in code of ours, and told what
    /// another program of the run has found out.
    ///
    /// # Errors
    /// Why the process cannot be managed, in words: see [`AttachError`].
    pub fn attach(&'static self, patch_calls: PatchCalls<'_>) -> Result<(), String> {
        self.start_and_wait(patch_calls)
    }

    /// The same in a forked child, on its only thread, before it does anything else. `child` is what
    /// [`Operation::ForkBegin`] gave the parent.
    ///
    /// # Errors
    /// As [`Self::attach`]; the child must not run on.
    pub fn attach_forked(&'static self, child: usize) -> Result<(), String> {
        if let Ok(mut forked) = self.forked.lock() {
            *forked = Some(Child::from_word(child));
        }
        self.outcome.store(PENDING, Ordering::Release);
        self.start_and_wait(&|_| Ok(0))
    }

    fn start_and_wait(&'static self, patch_calls: PatchCalls<'_>) -> Result<(), String> {
        // In thread mode a forked child makes no more calls than it must: there may be a filter.
        let mut limit = None;
        let inherited = self.inline().map_or(&[][..], Inline::descriptors);
        if self.engine().is_none() || !inherited.is_empty() {
            let raised = RaisedLimit::new(inherited);
            self.descriptor_limit.store(raised.of_program(), Ordering::Relaxed);
            limit = Some(raised);
        }
        raw::start_with(&self.threads[0], FileTable::Shared, pager_main, self)
            .map_err(|error| format!("the pager's thread cannot be started: {error}"))?;
        self.wait_while(PENDING);
        if self.outcome.load(Ordering::Acquire) == PATCHING {
            // The pager's thread has mapped the run's state before it asked.
            let patched = self.run.get().map_or(Ok(()), |run| {
                let count = patch_calls(run.known_sites())?;
                run.count(Counter::PatchedSites, count as u64);
                Ok::<_, String>(())
            });
            self.settle(PENDING);
            self.wait_while(PENDING);
            patched?;
        }
        if self.outcome.load(Ordering::Acquire) == READY {
            if self.ready_inline().is_err()
                && let Some(engine) = self.engine()
            {
                // Handlers can do it all the same.
                engine.calls.call(Operation::LeaveInline, [0; 4]);
            }
            if let (Some(inline), Some(limit), true) = (self.inline(), &mut limit, inherited.is_empty()) {
                limit.leave_out(inline.descriptors());
            }
            return Ok(());
        }
        Err(self.reason.lock().map_or_else(|_| "unknown".to_owned(), |reason| reason.clone()))
    }

    /// The program's thread can serve its own faults from now on. In inline mode nothing leaves before that
    /// but what it asks for: a forked child waits for its pager on a stack that may be managed memory, and a
    /// fault of it there would come again for ever.
    pub fn note_served(&self) {
        self.settle(SERVED);
    }

    fn wait_while(&self, outcome: u32) {
        while self.outcome.load(Ordering::Acquire) == outcome {
            let _ = futex::wait(&self.outcome, futex::Flags::PRIVATE, outcome, None);
        }
    }

    fn settle(&self, outcome: u32) {
        self.outcome.store(outcome, Ordering::Release);
        let _ = futex::wake(&self.outcome, futex::Flags::PRIVATE, u32::MAX);
    }

    /// Connects, opens everything and registers what is managed already.
    fn bring_up(&'static self) -> Result<LiveWorker, AttachError> {
        let inherited = self.inline().map_or(&[][..], Inline::descriptors);
        let free = match self.engine() {
            Some(_) if inherited.is_empty() => Vec::new(),
            _ => free_numbers(self.descriptor_limit.load(Ordering::Relaxed), inherited),
        };
        own_file_table().map_err(kernel("give the pager a file table of its own"))?;
        let forked = self.forked.lock().ok().and_then(|forked| *forked);
        let control = Arc::new(rendezvous::connect(&self.run_name)?);
        let hello = Hello { token: self.token.clone(), forked, build: BUILD.to_owned() };
        rendezvous::send(&control, &hello, &[])?;
        let (welcome, fds) = rendezvous::receive::<Welcome>(&control)?
            .ok_or_else(|| AttachError::Refused("the supervisor has hung up".to_owned()))?;
        // Before anything else of it is believed.
        if welcome.build != BUILD {
            return Err(RendezvousError::OtherBuild.into());
        }
        if let Some(reason) = welcome.refusal {
            return Err(AttachError::Refused(reason));
        }
        let mut fds = fds.into_iter();
        let run_fd = fds.next().ok_or_else(missing_fd)?;
        let run = self.map_run(run_fd)?;
        let placement = Placement::of_machine();
        let engine = self.engine_for(&welcome, placement.is_some())?;
        if forked.is_some() {
            engine.stop_recording();
            engine.stop_taping();
        }
        let served_by_handlers = engine.served_by_handlers.clone();
        let is_inline =
            welcome.settings.fault_mode == FaultMode::Inline && !served_by_handlers.load(Ordering::Relaxed);
        if is_inline && forked.is_none() {
            self.started.store(1, Ordering::Relaxed);
            self.settle(PATCHING);
            self.wait_while(PATCHING);
        }
        let mut shared = SharedDescriptors::new(is_inline, free);
        let voice = Voice::Program {
            entry: welcome.entry,
            say: message::to_program,
            supervisor: Arc::clone(&control),
        };
        let stores = open_stores(&welcome, &self.token, (run, &voice), &mut fds, &mut shared)?;
        let device = if welcome.has_device { fds.next() } else { None };
        if let Some(fd) = if welcome.has_trace_ring { fds.next() } else { None } {
            let limit_pages = run.budget().limit_pages.load(Ordering::Relaxed);
            begin_trace(engine, &welcome, limit_pages, fd)?;
        }
        if let Some(log) = if welcome.has_tape_log { fds.next() } else { None } {
            let tape = fds.next().filter(|_| welcome.has_tape);
            engine.tape(deck(log, tape).map_err(kernel("map a tape"))?);
        }
        let features = Features::PAGEFAULT_FLAG_WP | Features::POISON | Features::MOVE | Features::THREAD_ID;
        let uffd = Uffd::open(device.as_ref().map(AsFd::as_fd), features)
            .map_err(kernel("open a userfaultfd with MOVE, POISON and write protection"))?;
        let signalling =
            is_inline.then(|| Uffd::open(device.as_ref().map(AsFd::as_fd), features | Features::SIGBUS));
        let signalling = signalling.transpose().map_err(kernel("open a userfaultfd with SIGBUS"))?;
        let limit_pages = run.budget().limit_pages.load(Ordering::Relaxed);
        // Where the store is memory of this machine, the handler itself evicts, on the CPU of the fault: a
        // second thread would cost more than it takes over. A donor of this machine answers within
        // microseconds, and its threads for two of ours would be in each other's way.
        let classes = || stores.iter().map(|open| open.store.latency_class());
        let waits = classes().any(|class| class == LatencyClass::Remote);
        let has_donor = classes().any(LatencyClass::waits_for_others);
        let writes_long = classes().any(|class| class == LatencyClass::Compression);
        let headroom_pages = (limit_pages / 64).clamp(16, 512);
        let status = ProcessStatus::open().ok().map(|status| shared.share(status));
        let page_map = PageMap::open().ok().map(|map| shared.share(map));
        let own_process = pidfd_open(getpid(), PidfdFlags::empty()).ok().map(|fd| shared.share(fd));
        let references = if is_inline && welcome.settings.pool.by_reference {
            reference_places(&mut shared)
        } else {
            ReferencePlaces::default()
        };
        let unnumbered = kernel(UNNUMBERED);
        let at = Box::leak(Box::new(Attachment {
            kernel: LiveKernel {
                uffd: shared.share(uffd).map_err(&unnumbered)?,
                signalling: signalling.map(|uffd| shared.share(uffd)).transpose().map_err(&unnumbered)?,
                served_by_handlers,
                status: status.transpose().map_err(&unnumbered)?,
                page_map: page_map.transpose().map_err(&unnumbered)?,
                own_process: own_process.transpose().map_err(&unnumbered)?,
                references,
                accesses: Mutex::default(),
                control,
            },
            run,
            entry: welcome.entry,
            stores,
            handlers: FaultHandlers::new(has_donor),
            placement,
            writes_long,
            low_headroom_pages: if waits { headroom_pages } else { 0 },
            headroom_pages,
            max_block_pages: max_block_pages(welcome.settings.block, limit_pages),
            settings: welcome.settings,
            descriptors: shared.finish().map_err(&unnumbered)?,
        }));
        let mut worker = Worker::new(engine, at)?;
        register_own(engine, at)?;
        if forked.is_some() {
            engine.gate.freeze_alone();
            worker.adopt_after_fork().map_err(kernel("register memory after a fork"))?;
        }
        run.count(Counter::Processes, 1);
        at.process().serves_inline().store(is_inline.into(), Ordering::Relaxed);
        self.pager_thread
            .store(rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned(), Ordering::Relaxed);
        if let Ok(mut attachment) = self.attachment.lock() {
            *attachment = Some(at);
        }
        rendezvous::send(&at.kernel.control, &FromProcess::Ready, &[at.kernel.managed_fd()])?;
        Ok(worker)
    }

    fn map_run(&self, fd: OwnedFd) -> Result<&'static RunState, AttachError> {
        // A child has its parent's mapping.
        if let Some(run) = self.run.get() {
            return Ok(run);
        }
        let run = RunState::map(fd).map_err(kernel("map the run's state"))?;
        Ok(self.run.get_or_init(|| Box::leak(Box::new(run))))
    }

    fn engine_for(&self, welcome: &Welcome, has_nodes: bool) -> Result<&'static LiveEngine, AttachError> {
        if let Some(engine) = self.engine.get() {
            return Ok(engine);
        }
        // No more can be local than the machine and its swap hold; queues for more would only take time and
        // memory.
        let local_bytes = welcome.settings.local_bytes.bytes().min(machine_bytes());
        let limit_pages = (local_bytes / PAGE_SIZE as u64) as usize;
        let pool = welcome.settings.pool;
        // What lies ready lies on one node, and may be wanted on another.
        let reserve_bytes = if has_nodes { 0 } else { pool.reserve_bytes.bytes() };
        // A tape is worth most where the same pages leave in each run, and which part a program keeps of what
        // it goes over in rounds is another one each time.
        let use_forecast = welcome.settings.replacement.use_forecast && !welcome.has_tape_log;
        let config = EngineConfig {
            limit_pages,
            replacement: dcm::Config { use_forecast, ..welcome.settings.replacement },
            seed: seed(),
            victim_window_pages: pool.victim_window_pages,
            reserve_bytes,
            cpus: raw::allowed_cpus().len(),
            huge_streams: welcome.settings.fetch.huge_streams
                && welcome.settings.block == Block::Streams
                && !has_nodes
                && memory::may_have_huge_pages(),
        };
        let engine = Engine::new(config).map_err(kernel("give memory for the pager"))?;
        Ok(self.engine.get_or_init(|| Box::leak(Box::new(engine))))
    }

    fn start_handlers(&'static self, worker: &LiveWorker) -> Result<(), AttachError> {
        let cpus = raw::allowed_cpus();
        let is_remote = |open: &OpenStore| open.store.latency_class() == LatencyClass::Remote;
        let wanted =
            if worker.at.stores.iter().any(is_remote) { (2 * cpus.len()).max(4) } else { cpus.len().max(2) };
        self.started.store(1, Ordering::Relaxed);
        for (index, memory) in self.threads[1..].iter().take(wanted).enumerate() {
            self.started.fetch_add(1, Ordering::Relaxed);
            let handler = Worker::new(worker.engine, worker.at)?;
            let cpu = cpus.get(index % cpus.len().max(1)).copied();
            handlers::start(memory, handler, cpu, index == 0).map_err(kernel("start a pager thread"))?;
        }
        Ok(())
    }
}

/// From here on writes down what the pager does, before there is anything.
fn begin_trace(
    engine: &LiveEngine,
    welcome: &Welcome,
    limit_pages: u64,
    fd: OwnedFd,
) -> Result<(), AttachError> {
    let ring = TraceRing::map(fd).map_err(kernel("map the ring for the fault trace"))?;
    let settings = serde_json::to_value(&welcome.settings).unwrap_or_default();
    let block = welcome.settings.block;
    let (kind, most_pages) = (block_kind(block), max_block_pages(block, limit_pages));
    engine.record(kind, most_pages, settings, Box::new(RingSink::<LiveKernel>::new(ring)));
    Ok(())
}

/// What a tape is recorded with, or played.
fn deck(log: OwnedFd, tape: Option<OwnedFd>) -> rustix::io::Result<Deck> {
    let tape = tape.map(SealedMemory::map).transpose()?;
    Ok(Deck::new(TapeLog::map(log)?, tape))
}

/// The run's state, which is mapped as long as the process lives.
struct RunOfProcess(&'static RunState);

impl AsRef<RunState> for RunOfProcess {
    fn as_ref(&self) -> &RunState {
        self.0
    }
}

fn missing_fd() -> AttachError {
    AttachError::Rendezvous(RendezvousError::Message("a descriptor is missing".to_owned()))
}

fn open_stores(
    welcome: &Welcome,
    token: &str,
    (run, voice): (&'static RunState, &Voice),
    fds: &mut impl Iterator<Item = OwnedFd>,
    shared: &mut SharedDescriptors,
) -> Result<Vec<OpenStore>, AttachError> {
    let settings = &welcome.settings;
    let sealing = Sealing::of_run(run, welcome.entry).ok().map(Arc::new);
    let ranges = slot_ranges(&settings.store_slots);
    let mut stores = Vec::with_capacity(ranges.len());
    for (index, range) in ranges.into_iter().enumerate() {
        let uri = settings.stores.get(index).ok_or_else(missing_fd)?;
        let spec: StoreSpec = uri.parse().map_err(|_| AttachError::Uri(uri.clone()))?;
        let [has_fd, has_spill] = welcome.store_has_fds.get(index).copied().unwrap_or_default();
        let mut next = |is_there: bool| -> Result<Option<OwnedFd>, AttachError> {
            let fd = if is_there { Some(fds.next().ok_or_else(missing_fd)?) } else { None };
            fd.map(|fd| shared.share(fd)).transpose().map_err(kernel(UNNUMBERED))
        };
        let (fd, spill) = (next(has_fd)?, next(has_spill)?);
        let parts = SharedParts {
            capacity_slots: range.end - range.start,
            fd,
            held: Vec::new(),
            spill,
            notice: None,
        };
        let store = spec.open(parts, token)?;
        store.listen(store_health::listener(RunOfProcess(run), index, voice.clone()));
        let sealing =
            settings.seal.covers(&spec).then(|| sealing.clone().ok_or(AttachError::NoKey)).transpose()?;
        stores.push(OpenStore { store, range, sealing });
    }
    Ok(stores)
}

/// What pages leave by reference with: as many pipes as threads may evict at a time, or as can be had.
fn reference_places(shared: &mut SharedDescriptors) -> ReferencePlaces {
    const MOST_PIPES: usize = 4;
    let Ok(changes) = FrameChanges::open().and_then(|fd| fd.map(|fd| shared.share(fd)).transpose()) else {
        return ReferencePlaces::default();
    };
    let count = std::thread::available_parallelism().map_or(2, usize::from).min(MOST_PIPES);
    let pipe = || {
        let (out, into) = PagePipe::ends().ok()?;
        Some(PagePipe::new(shared.share(out).ok()?, shared.share(into).ok()?).into())
    };
    let pipes = std::iter::repeat_with(pipe).take(count).map_while(|pipe| pipe).collect();
    ReferencePlaces { pipes, frame_changes: Some(FrameChanges::new(changes)) }
}

/// Registers the pager's own areas: frames, which UFFDIO_MOVE wants registered, and doorbells.
fn register_own(engine: &LiveEngine, at: &LiveAttachment) -> Result<(), AttachError> {
    for pages in [engine.frames.all(), engine.calls.doorbells()] {
        at.kernel.uffd.register_own(pages).map_err(kernel("register the pager's own memory"))?;
    }
    Ok(())
}

/// Memory and swap of the machine.
fn machine_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    (info.totalram + info.totalswap) * u64::from(info.mem_unit)
}

/// An empty file table, but for where stray output goes.
fn own_file_table() -> rustix::io::Result<()> {
    raw::leave_file_table()?;
    // Nothing of ours may come to lie where stray output goes. Not /dev/null: the process may be in a chroot.
    for _ in 0..3 {
        std::mem::forget(memfd_create("spillway-no-output", MemfdFlags::CLOEXEC)?);
    }
    Ok(())
}

/// A seed for the replacement's coin: the same run of the same program need not be repeatable, but
/// `SPILLWAY_SEED` makes it so.
fn seed() -> u64 {
    std::env::var("SPILLWAY_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or_else(|| {
        let mut bytes = [0_u8; 8];
        let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
        u64::from_ne_bytes(bytes)
    })
}

/// The first pager thread: brings everything up, starts the others and becomes the evictor.
fn pager_main(startup: &'static Startup) -> ! {
    let worker = startup.bring_up().and_then(|worker| {
        startup.start_handlers(&worker)?;
        Ok(worker)
    });
    match worker {
        Ok(mut worker) => {
            worker.engine.gate.thaw();
            startup.settle(READY);
            if worker.at.kernel.signalling.is_some() {
                startup.wait_while(READY);
            }
            worker.evict_forever()
        }
        Err(error) => {
            if let Ok(mut reason) = startup.reason.lock() {
                *reason = error.to_string();
            }
            startup.settle(FAILED);
            exit_thread()
        }
    }
}
