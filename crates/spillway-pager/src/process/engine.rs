//! Paging state that a forked child inherits.

use std::ops::{Deref, DerefMut, Range};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use rustix::io::{Errno, Result};
use spillway_core::fifo::Entry;
use spillway_core::frame_pool::RANGE_FRAMES;
use spillway_core::page::PAGE_SIZE;
use spillway_core::page_word::{Departures, Epoch, MAX_EPOCH, MAX_FRAMES, PageInfo, Queue};
use spillway_policy::blocks::{Blocks, LARGEST_ORDER};
use spillway_policy::dcm::{Config, Replacement};
use spillway_policy::fault_trace::{BlockKind, BlockRule, Event, Header, Sink, Traced, TracedBlocks};
use spillway_policy::read_streams::ReadStreams;
use spillway_policy::scan_clock::ScanClock;
use spillway_policy::streams::MAX_BLOCK_PAGES;
use spillway_policy::use_forecast::{self, UseValues};
use spillway_policy::use_history::UseHistory;
use spillway_store::StoreError;
use spillway_sys::memory::Area;
use spillway_sys::ranges::BounceRange;

use crate::evict::written_share::WrittenShare;
use crate::fault::followed::Followers;
use crate::kernel::{Kernel, planted};
use crate::pages::address::page_numbers;
use crate::pages::frames::Frames;
use crate::pages::reserve::Reserve;
use crate::pages::stages::Stages;
use crate::pages::table::PageTable;
use crate::pages::whole_ranges::WholeRanges;
use crate::process::deck::Deck;
use crate::process::gate::{Gate, Pass};
use crate::process::own_queues::OwnQueues;
use crate::space::holds::Holds;
use crate::space::outline::Outline;
use crate::space::regions::{OnFork, Regions};
use crate::threads::calls::Calls;

/// A range that mremap(2) moves, and what was managed there.
#[derive(Clone)]
pub struct Remap {
    /// Where it was before the move.
    pub range: Range<usize>,
    /// Its parts that were managed, each with its wish for forks.
    pub parts: Vec<(Range<usize>, OnFork)>,
    /// Pages that held something.
    pub words: Vec<(u64, PageInfo)>,
    /// It is native instead, and charged.
    pub is_native: bool,
}

/// What an engine is made for.
#[derive(Clone, Copy, Debug)]
pub struct EngineConfig {
    /// The local limit, or what the machine has if that is less.
    pub limit_pages: usize,
    /// Settings of the replacement.
    pub replacement: Config,
    /// Of the replacement's coin.
    pub seed: u64,
    /// Of so many of the oldest pages those leave first that lie together.
    pub victim_window_pages: usize,
    /// Pages of zeros that may lie ready.
    pub reserve_bytes: u64,
    /// CPUs that the process may run on.
    pub cpus: usize,
    /// Streams go by huge pages.
    pub huge_streams: bool,
}

/// Ranges of 2 MiB among the frames beyond those that the inactive queue fills. They are addresses only.
const FREE_RANGES: usize = 4;

/// Pager threads: two handlers a CPU and a place to serve faults inline, and the evictor with what few CPUs
/// have beyond that.
const THREADS_A_CPU: usize = 3;
const MORE_THREADS: usize = 2;

/// Slots given up before they are given back.
pub(crate) const UNNEEDED_SLOTS: usize = 256;

/// Paging state that a forked child inherits.
pub struct Engine<K: Kernel> {
    /// Words of all managed pages.
    pub table: PageTable,
    /// Where unmapped local pages lie.
    pub frames: Frames,
    config: EngineConfig,
    replacement: Mutex<Traced>,
    /// What each thread has of its own of the queues: see [`crate::process::queues`].
    pub(crate) own_queues: OwnQueues,
    /// The kernel did not let some page go: such pages are noted in the table.
    refuses: AtomicBool,
    /// What happens is written down: see [`Self::note`].
    is_recorded: AtomicBool,
    protection_epoch: AtomicU32,
    /// Counts the pages that leave, so that each can say when it left.
    pub departures: Departures,
    regions: Mutex<Regions>,
    native: Mutex<Regions>,
    remaps: Mutex<Vec<Remap>>,
    /// Closed for the moment of a fork.
    pub gate: Gate,
    /// How the program's threads ask for something.
    pub calls: Calls<K>,
    /// Ranges that are being given up: no region has them any more, but the kernel may still ask us for their
    /// pages.
    pub leaving_ranges: AtomicU32,
    /// Inline mode was left for good, by this process or one that it was forked from.
    pub served_by_handlers: Arc<AtomicBool>,
    /// What system calls are using.
    pub holds: Holds,
    /// The managed ranges, for who must not wait.
    pub outline: Outline,
    /// Other processes write to this one's memory: see [`crate::inline::foreign`].
    pub has_foreign_writers: AtomicBool,
    /// The last batch that a handler evicted left from where it lay ([`crate::evict::in_place`]).
    pub evicts_in_place: AtomicBool,
    /// Whether evictions are writes, lately.
    pub written_share: WrittenShare,
    /// When the accessed bits are scanned next.
    pub use_scan: ScanClock,
    /// What it foretells how a page was used: [`crate::threads::use_scan`] learns it.
    pub use_values: UseValues,
    /// What the evictor is to fetch.
    pub read_streams: ReadStreams,
    /// Where threads are expected to fault next.
    pub followers: Followers,
    /// A tape that is recorded or played.
    deck: OnceLock<Deck>,
    /// It is this process's, not its parent's.
    is_taped: AtomicBool,
    /// Zeros that are ready to be moved.
    pub reserve: Reserve,
    /// Huge pages in which the next ranges of streams are made ready.
    pub stages: Stages,
    /// What came as huge pages, and leaves so.
    pub whole: WholeRanges,
    last_store_error: Mutex<Option<StoreError>>,
    /// A store has refused a page for want of room, and no room was seen since: slots are for far pages
    /// alone.
    pub stores_full: AtomicBool,
    unneeded_slots: Mutex<Vec<u32>>,
    /// As many as are copied at once. Never written.
    zeros: Area,
}

/// The managed ranges while they change: see [`Outline`].
pub struct RegionsChange<'a> {
    regions: MutexGuard<'a, Regions>,
    outline: &'a Outline,
}

impl Deref for RegionsChange<'_> {
    type Target = Regions;

    fn deref(&self) -> &Regions {
        &self.regions
    }
}

impl DerefMut for RegionsChange<'_> {
    fn deref_mut(&mut self) -> &mut Regions {
        &mut self.regions
    }
}

impl Drop for RegionsChange<'_> {
    fn drop(&mut self) {
        self.outline.publish(&self.regions);
    }
}

impl<K: Kernel> Engine<K> {
    /// An engine that manages nothing yet.
    ///
    /// # Errors
    /// ENOMEM where the machine gives no address space.
    pub fn new(config: EngineConfig) -> Result<Self> {
        let replacement = Replacement::new(config.replacement, config.limit_pages, config.seed)
            .with_victim_window(config.victim_window_pages);
        let inactive_pages = config.replacement.inactive_pages(config.limit_pages);
        let frames = inactive_pages + FREE_RANGES * RANGE_FRAMES;
        Ok(Self {
            table: PageTable::new()?,
            frames: Frames::new(frames.min(MAX_FRAMES / 2))?,
            config,
            replacement: Mutex::new(Traced::new(replacement)),
            own_queues: OwnQueues::new(
                &config.replacement,
                config.limit_pages,
                config.seed,
                THREADS_A_CPU * config.cpus + MORE_THREADS,
            ),
            refuses: AtomicBool::new(false),
            is_recorded: AtomicBool::new(false),
            protection_epoch: AtomicU32::new(1),
            departures: Departures::default(),
            regions: Mutex::new(Regions::new()),
            native: Mutex::new(Regions::new()),
            remaps: Mutex::new(Vec::new()),
            gate: Gate::new(),
            calls: Calls::new()?,
            leaving_ranges: AtomicU32::new(0),
            served_by_handlers: Arc::new(AtomicBool::new(false)),
            holds: Holds::new()?,
            outline: Outline::default(),
            has_foreign_writers: AtomicBool::new(false),
            evicts_in_place: AtomicBool::new(false),
            written_share: WrittenShare::default(),
            use_scan: ScanClock::new(config.replacement.scan_share, config.limit_pages),
            use_values: UseValues::default(),
            read_streams: ReadStreams::new(config.cpus),
            followers: Followers::default(),
            deck: OnceLock::new(),
            is_taped: AtomicBool::new(false),
            reserve: Reserve::new(config.reserve_bytes, config.limit_pages)?,
            stages: Stages::new(config.huge_streams, K::HUGE_PAGES, config.limit_pages)?,
            whole: WholeRanges::new(K::HUGE_PAGES, if config.huge_streams { config.limit_pages } else { 0 }),
            last_store_error: Mutex::new(None),
            stores_full: AtomicBool::new(false),
            unneeded_slots: Mutex::new(Vec::with_capacity(UNNEEDED_SLOTS)),
            zeros: Area::new(MAX_BLOCK_PAGES * PAGE_SIZE)?,
        })
    }

    /// What a forked child has of it, as fork(2) leaves it, but for what lies in frames. For a simulated
    /// fork: a real child has its parent's memory.
    ///
    /// # Errors
    /// EBUSY where a lock is held, which nobody would ever release in the child; the kernel's, where it gives
    /// no memory.
    pub fn for_child(&self) -> Result<Self> {
        fn copy<T: Clone>(mutex: &Mutex<T>) -> Result<Mutex<T>> {
            Ok(Mutex::new(mutex.try_lock().map_err(|_| Errno::BUSY)?.clone()))
        }
        let gate = Gate::new();
        gate.freeze_alone();
        let departures = Departures::default();
        departures.add(self.departures.count());
        let (regions, outline) = (copy(&self.regions)?, Outline::default());
        outline.begin();
        outline.publish(&*regions.try_lock().map_err(|_| Errno::BUSY)?);
        Ok(Self {
            table: self.table.for_child()?,
            frames: self.frames.for_child()?,
            config: self.config,
            replacement: copy(&self.replacement)?,
            own_queues: self.own_queues.for_child()?,
            refuses: AtomicBool::new(self.refuses()),
            is_recorded: AtomicBool::new(false),
            protection_epoch: AtomicU32::new(self.protection_epoch.load(Ordering::Relaxed)),
            departures,
            regions,
            native: copy(&self.native)?,
            remaps: copy(&self.remaps)?,
            gate,
            calls: Calls::new()?,
            leaving_ranges: AtomicU32::new(self.leaving_ranges.load(Ordering::Relaxed)),
            served_by_handlers: Arc::new(AtomicBool::new(self.served_by_handlers.load(Ordering::Relaxed))),
            holds: Holds::new()?,
            outline,
            has_foreign_writers: AtomicBool::new(false),
            evicts_in_place: AtomicBool::new(false),
            written_share: WrittenShare::default(),
            use_scan: self.use_scan.for_child(),
            use_values: self.use_values.clone(),
            read_streams: ReadStreams::new(self.config.cpus),
            followers: Followers::default(),
            deck: OnceLock::new(),
            is_taped: AtomicBool::new(false),
            reserve: self.reserve.for_child()?,
            stages: self.stages.for_child()?,
            whole: self.whole.for_child()?,
            last_store_error: copy(&self.last_store_error)?,
            stores_full: AtomicBool::new(self.stores_full.load(Ordering::Relaxed)),
            unneeded_slots: copy(&self.unneeded_slots)?,
            zeros: Area::new(MAX_BLOCK_PAGES * PAGE_SIZE)?,
        })
    }

    /// Begins a piece of work; `None` while paging is stopped.
    #[must_use]
    pub fn enter(&self) -> Option<Pass<'_>> {
        let pass = self.gate.enter();
        K::turn();
        pass
    }

    /// Which page goes next. Its state is a cache of what the words say.
    pub fn replacement(&self) -> MutexGuard<'_, Traced> {
        K::lock(&self.replacement)
    }

    /// The inactive queue's share of what is local.
    pub(crate) fn inactive_share(&self) -> f64 {
        self.config.replacement.inactive_share
    }

    /// How many of `local_pages` are to be inactive.
    pub(crate) fn inactive_target(&self, local_pages: usize) -> usize {
        let most = self.frames.count().saturating_sub(FREE_RANGES * RANGE_FRAMES);
        self.config.replacement.inactive_pages(local_pages).min(most)
    }

    /// Writes down what happens from now on, for a replay. Before anything does. `settings` are the run's,
    /// `most_pages` those of the largest block.
    pub fn record(
        &self,
        kind: BlockKind,
        most_pages: usize,
        settings: serde_json::Value,
        sink: Box<dyn Sink>,
    ) {
        let EngineConfig { replacement, victim_window_pages, limit_pages, seed, cpus, .. } = self.config;
        let blocks = Some(BlockRule { kind, most_pages: most_pages as u64, cpus });
        let local_pages = limit_pages;
        let start = Header { replacement, victim_window_pages, local_pages, seed, blocks, settings };
        self.replacement().record(&Event::Start(start), sink);
        self.is_recorded.store(true, Ordering::Relaxed);
    }

    /// Whether what happens is written down.
    pub(crate) fn is_recorded(&self) -> bool {
        self.is_recorded.load(Ordering::Relaxed)
    }

    /// A forked child is not recorded: its queues did not begin empty.
    pub fn stop_recording(&self) {
        self.is_recorded.store(false, Ordering::Relaxed);
        self.replacement().stop_recording();
    }

    /// Records or plays a tape from now on. Before anything happens.
    pub fn tape(&self, deck: Deck) {
        let is_first = self.deck.set(deck).is_ok();
        self.is_taped.store(is_first, Ordering::Relaxed);
    }

    /// A forked child is another program by now: it neither writes on its parent's tape nor follows it.
    pub fn stop_taping(&self) {
        self.is_taped.store(false, Ordering::Relaxed);
    }

    /// The tape that is recorded or played.
    pub(crate) fn deck(&self) -> Option<&Deck> {
        if self.is_taped.load(Ordering::Relaxed) { self.deck.get() } else { None }
    }

    /// Whether a tape is recorded.
    pub(crate) fn is_taping(&self) -> bool {
        self.deck().is_some_and(Deck::is_recording)
    }

    /// Where what happens is written down, if it is: with the lock of the queues, which the caller does not
    /// hold. Of locks that are taken too, that of the regions comes first.
    pub(crate) fn trace(&self) -> Option<MutexGuard<'_, Traced>> {
        self.is_recorded().then(|| self.replacement())
    }

    /// Writes an event down, where this process is recorded. The caller does not hold the queues' lock.
    pub(crate) fn note(&self, event: impl FnOnce() -> Event) {
        if self.is_recorded.load(Ordering::Relaxed) {
            let event = event();
            self.replacement().note(&event);
        }
    }

    /// How much a page is in use, as far as scans tell, by whichever measure the settings ask for.
    pub(crate) fn use_rank(&self, page_number: u64) -> u8 {
        let history = self.table.use_of(page_number);
        match self.foretells_use() {
            // What the kernel did not let go is tried again when as many scans have come as ranks look at.
            true if self.is_refused(page_number) && history.rank() > 0 => use_forecast::NEVER_TO_LEAVE,
            true => self.use_values.of(history),
            false => history.rank(),
        }
    }

    /// What scans find is learned from, and pages leave by that.
    pub(crate) fn foretells_use(&self) -> bool {
        self.config.replacement.use_forecast
    }

    /// The kernel did not let a page go when its turn had come last.
    pub(crate) fn is_refused(&self, page_number: u64) -> bool {
        self.refuses() && self.table.is_refused(page_number)
    }

    /// A page's turn to leave has come: what was known of its use is of before. It may come back.
    pub(crate) fn begin_to_leave(&self, page_number: u64) {
        self.table.set_use(page_number, UseHistory::RETURNED);
        if self.refuses() {
            self.table.forget_refusal(page_number);
        }
    }

    /// The kernel does not let a page go.
    pub(crate) fn note_refusal(&self, page_number: u64) {
        self.table.note_refused(page_number);
        self.refuses.store(true, Ordering::Relaxed);
    }

    /// Some page could not leave.
    pub(crate) fn refuses(&self) -> bool {
        self.refuses.load(Ordering::Relaxed)
    }

    /// The ranges that are registered and paged.
    pub fn regions(&self) -> impl Deref<Target = Regions> + '_ {
        K::lock(&self.regions)
    }

    /// Ends the management of a range, and parts its pages from the blocks beside it. Returns its managed
    /// parts.
    pub(crate) fn take_regions(&self, range: &Range<usize>) -> Vec<(Range<usize>, OnFork)> {
        // Blocks are stretched under this lock too, by what is a region then.
        let mut regions = self.change_regions();
        let parts = regions.take(range);
        if !planted!(K, "block-outlives-its-region") {
            let mut trace = self.trace();
            let blocks = Blocks::over(&self.table, LARGEST_ORDER);
            let mut blocks = TracedBlocks { blocks, trace: trace.as_deref_mut() };
            parts.iter().for_each(|(part, _)| {
                let (from, to) = page_numbers(part);
                blocks.part(from..to);
            });
        }
        parts
    }

    /// The ranges that are registered and paged, to be changed.
    pub fn change_regions(&self) -> RegionsChange<'_> {
        let regions = K::lock(&self.regions);
        self.outline.begin();
        RegionsChange { regions, outline: &self.outline }
    }

    /// The managed ranges, if nobody else looks at them at this moment: for who must not wait.
    #[must_use]
    pub fn regions_now(&self) -> Option<MutexGuard<'_, Regions>> {
        self.regions.try_lock().ok()
    }

    /// What is left to the kernel, as [`Self::regions_now`].
    #[must_use]
    pub fn native_now(&self) -> Option<MutexGuard<'_, Regions>> {
        self.native.try_lock().ok()
    }

    /// Everything that is queued, stale entries too, as [`Self::regions_now`].
    #[must_use]
    pub fn entries_now(&self) -> Option<Vec<(Queue, Entry)>> {
        let mut shared = self.replacement.try_lock().ok()?;
        let mut entries = self.own_queues.entries_now()?;
        shared.for_each(|queue, entry| entries.push((queue, entry)));
        Some(entries)
    }

    /// The slots that nobody needs any more, as [`Self::regions_now`].
    #[must_use]
    pub fn unneeded_slots_now(&self) -> Option<Vec<u32>> {
        self.unneeded_slots.try_lock().ok().map(|slots| slots.clone())
    }

    /// What is charged and left to the kernel; see [`crate::space::native`]. Locked before [`Self::regions`].
    pub fn native(&self) -> MutexGuard<'_, Regions> {
        K::lock(&self.native)
    }

    /// Ranges that mremap(2) moves at this moment.
    pub fn remaps(&self) -> MutexGuard<'_, Vec<Remap>> {
        K::lock(&self.remaps)
    }

    /// Slots that nobody needs any more, to be given back together, or written anew while the stores are
    /// full. Still held by this process, and shared with no other.
    pub fn unneeded_slots(&self) -> MutexGuard<'_, Vec<u32>> {
        K::lock(&self.unneeded_slots)
    }

    /// The last failure of a store, for the message when memory runs out because of it.
    pub fn last_store_error(&self) -> MutexGuard<'_, Option<StoreError>> {
        K::lock(&self.last_store_error)
    }

    /// Zeros to copy. Panics beyond [`MAX_BLOCK_PAGES`] pages.
    #[allow(unsafe_code)]
    pub(crate) fn zeros(&self, pages: usize) -> BounceRange<'_> {
        let range = self.zeros.pages(0, pages);
        // SAFETY: the area lives as long as the engine, and nobody writes to it.
        unsafe { BounceRange::from_raw(std::ptr::with_exposed_provenance(range.start()), range.bytes()) }
    }

    /// The epoch of write protection; see [`crate::evict::clean`].
    pub fn epoch(&self) -> Epoch {
        Epoch::new(self.protection_epoch.load(Ordering::Relaxed)).unwrap_or(Epoch::MIN)
    }

    /// No page is write-protected any more, whatever the words say.
    pub(crate) fn forget_protection(&self) {
        let next = self.epoch().get() % MAX_EPOCH + 1;
        self.protection_epoch.store(next, Ordering::Relaxed);
    }

    /// The native parts of a range.
    pub(crate) fn native_within(&self, range: &Range<usize>) -> Vec<Range<usize>> {
        self.native().within(range).into_iter().map(|(part, _)| part).collect()
    }

    /// Puts an entry at the tail of a shared queue, of which the caller has the lock.
    pub(crate) fn put(&self, replacement: &mut Traced, queue: Queue, entry: Entry) {
        if replacement.enqueue(queue, entry).is_err() {
            replacement.drop_stale(|entry, queue| self.is_queued(entry, queue));
            // The pool holds a quarter more entries than pages can be local, so there is room now.
            let _ = replacement.enqueue(queue, entry);
        }
    }

    /// An entry that was met while its page was busy may be in the other queue of mapped pages.
    pub(crate) fn is_queued(&self, entry: Entry, queue: Queue) -> bool {
        self.table.find(entry.page_number).is_some_and(|word| {
            let info = word.peek();
            let found = match queue {
                Queue::Inactive => info.queue() == Some(queue),
                Queue::Active | Queue::Proactive => info.is_mapped(),
            };
            info.generation == entry.generation && found
        })
    }
}
