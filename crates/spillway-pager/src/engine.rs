//! The state of paging in one process.
//!
//! [`Engine`] is memory that a forked child inherits as it is; [`Attachment`] is what it must make anew: descriptors
//! and its place in the run. Each pager thread works with a [`Worker`], its own ways to the stores included.

use std::cell::Cell;
use std::ops::Range;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::io::Errno;
use spillway_core::fifo::Entry;
use spillway_core::page::{PAGE_SHIFT, Page};
use spillway_core::page_word::{Departures, MAX_FRAMES, PageInfo, PageWord, State};
use spillway_policy::dcm::Replacement;
use spillway_store::{Lane, Store, StoreError};
use spillway_sys::memory::{Area, PageMap, ProcessStatus};
use spillway_sys::uffd::Uffd;
use thiserror::Error;

use crate::ahead::WrittenShare;
use crate::calls::Calls;
use crate::frames::Frames;
use crate::gate::Gate;
use crate::holds::Holds;
use crate::page_table::PageTable;
use crate::placement::Placement;
use crate::read_ahead::ReadAhead;
use crate::readers::Readers;
use crate::regions::{OnFork, Regions};
use crate::reserve::Reserve;
use crate::run_state::{Process, RunState};
use crate::settings::Settings;

/// Why a page cannot be had.
#[derive(Debug, Error)]
pub enum Lost {
    /// The store has failed.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// The store returned something other than what was stored.
    #[error(
        "store {store} returned a page with a wrong checksum: it was restarted, or has corrupted the page"
    )]
    Checksum {
        /// URI of the store.
        store: String,
    },
    /// The slot holds another page than the one that should lie there: a mistake of Spillway's.
    #[error("its slot holds another page: please report this mistake of Spillway's")]
    ForeignSlot,
    /// Nothing local can be evicted to make room.
    #[error("no page can be evicted: {reason}; give more --local, or a larger or further --store")]
    NoRoom {
        /// What stands in the way.
        reason: String,
    },
    /// A frame that should hold a page does not: a mistake of Spillway's.
    #[error("a frame that should hold the page is empty: please report this mistake of Spillway's")]
    EmptyFrame,
    /// The kernel refused.
    #[error("the kernel refused to {what}: {error}")]
    Kernel {
        /// The operation.
        what: &'static str,
        /// Its error.
        error: Errno,
    },
}

/// How a fault's service can fail.
#[derive(Debug)]
pub enum Failure {
    /// Not now: the thread will fault again.
    Retry,
    /// Never.
    Lost(Lost),
}

impl<E: Into<Lost>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Lost(error.into())
    }
}

/// A range that mremap(2) moves, and what was managed there.
pub struct Remap {
    /// Where it was.
    pub range: Range<usize>,
    /// Its managed parts.
    pub parts: Vec<(Range<usize>, OnFork)>,
    /// Pages that held something.
    pub words: Vec<(u64, PageInfo)>,
    /// It is native instead, and charged.
    pub is_native: bool,
}

/// Paging state that a forked child inherits.
pub struct Engine {
    /// Words of all managed pages.
    pub table: PageTable,
    /// Where unmapped local pages lie.
    pub frames: Frames,
    /// Which page goes next.
    pub replacement: Mutex<Replacement>,
    /// See [`crate::clean`]; never 0.
    pub protection_epoch: AtomicU32,
    /// When pages left.
    pub departures: Departures,
    /// What is managed.
    pub regions: Mutex<Regions>,
    /// What is charged and left to the kernel; see [`crate::native`]. Locked before `regions`.
    pub native: Mutex<Regions>,
    /// Ranges that mremap(2) moves at this moment.
    pub remaps: Mutex<Vec<Remap>>,
    /// Closed during forks.
    pub gate: Gate,
    /// How the program's threads ask for something.
    pub calls: Calls,
    /// Ranges that are being given up: no region has them any more, but the kernel may still ask us for their pages.
    pub(crate) leaving_ranges: AtomicU32,
    /// Inline mode was left for good, by this process or one that it was forked from.
    pub served_by_handlers: Arc<AtomicBool>,
    /// What system calls are using.
    pub holds: Holds,
    /// Other processes write to this one's memory: see [`crate::foreign`].
    pub(crate) has_foreign_writers: AtomicBool,
    /// Whether evictions are writes, lately.
    pub(crate) written_share: WrittenShare,
    /// What the evictor is to fetch.
    pub read_ahead: ReadAhead,
    /// Zeros, as many as are copied at once.
    pub zeros: Area,
    /// Zeros that are ready to be moved.
    pub reserve: Reserve,
    /// The last failure of a store, for the message when memory runs out because of it.
    pub last_store_error: Mutex<Option<StoreError>>,
    /// A store has refused a page for want of room, and no room was seen since: slots are for far pages alone.
    pub stores_full: AtomicBool,
    /// Slots that nobody needs any more, to be given back together, or written anew while the stores are full. Still
    /// held by this process, and shared with no other.
    pub(crate) unneeded_slots: Mutex<Vec<u32>>,
}

/// A store and the run's slots that lie on it.
pub struct OpenStore {
    /// The store.
    pub store: Arc<dyn Store>,
    /// Its slots among the run's.
    pub range: Range<u32>,
}

/// What ties one process to its run.
pub struct Attachment {
    /// Faults come from here, and calls.
    pub uffd: Uffd,
    /// In inline mode, the one that managed memory is registered with: its faults are signals. Frames and doorbells are
    /// with the other.
    pub signalling: Option<Uffd>,
    /// In inline mode, the descriptors that serving a fault takes, here and of the stores: the program's table has them by
    /// the same numbers.
    pub descriptors: Vec<RawFd>,
    /// As in [`Engine`].
    pub served_by_handlers: Arc<AtomicBool>,
    /// Shared with the other processes.
    pub run: &'static RunState,
    /// This process's entry in the run.
    pub entry: usize,
    /// Where far pages are, in the order in which they are filled.
    pub stores: Vec<OpenStore>,
    /// The supervisor sees the end of the process by the end of this connection; the pager's threads alone have it.
    pub control: OwnedFd,
    /// Of the run.
    pub settings: Settings,
    /// Which handlers read faults.
    pub readers: Readers,
    /// Where the machine has several memory nodes.
    pub placement: Option<Placement>,
    /// This process, to advise itself; without it no page is kept clean.
    pub own_process: Option<OwnedFd>,
    /// Who uses its memory; without it nothing counts as free of devices and debuggers.
    pub status: Option<ProcessStatus>,
    /// Which pages of this process are populated; without it nothing is left to the kernel.
    pub page_map: Option<PageMap>,
    /// Free pages below which the evictor always works.
    pub low_headroom_pages: u64,
    /// Free pages below which it works while that pays: see [`crate::ahead`].
    pub headroom_pages: u64,
    /// Writing to a store takes longer than waking the evictor.
    pub writes_long: bool,
    /// The largest block.
    pub max_block_pages: usize,
}

impl Attachment {
    /// The userfaultfd of managed memory.
    #[must_use]
    pub fn managed(&self) -> &Uffd {
        match &self.signalling {
            Some(uffd) if self.is_inline() => uffd,
            _ => &self.uffd,
        }
    }

    /// Threads of the program serve their faults.
    #[must_use]
    pub fn is_inline(&self) -> bool {
        self.signalling.is_some() && !self.served_by_handlers.load(Ordering::Acquire)
    }

    /// This process's entry.
    #[must_use]
    pub fn process(&self) -> Process<'_> {
        self.run.process(self.entry)
    }

    /// The store on which a slot lies, as an index.
    #[must_use]
    pub fn store_of(&self, slot: u32) -> Option<usize> {
        self.stores.iter().position(|store| store.range.contains(&slot))
    }

    /// Notes that pages of this process became local, which the budget was charged for.
    pub fn add_local(&self, pages: u64) {
        self.process().local_pages().fetch_add(pages, Ordering::AcqRel);
    }

    /// Notes that local pages are gone, and gives them back to the budget.
    pub fn release_local(&self, pages: u64) {
        if pages != 0 {
            self.process().local_pages().fetch_sub(pages, Ordering::AcqRel);
            self.run.budget().release(pages);
        }
    }

    /// Counts pages that come under management.
    pub fn add_managed(&self, pages: u64) {
        self.process().managed_pages().fetch_add(pages, Ordering::AcqRel);
        self.run.count_managed(pages);
    }

    /// Counts pages that the program gave up.
    pub fn remove_managed(&self, pages: u64) {
        if pages != 0 {
            self.process().managed_pages().fetch_sub(pages, Ordering::AcqRel);
            self.run.uncount_managed(pages);
        }
    }
}

impl Engine {
    /// The queues, also after a thread has died with them: its state is a cache of what the words say.
    pub fn replacement(&self) -> MutexGuard<'_, Replacement> {
        self.replacement.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The ranges that are being moved.
    pub fn remaps(&self) -> MutexGuard<'_, Vec<Remap>> {
        self.remaps.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(crate) fn unneeded_slots(&self) -> MutexGuard<'_, Vec<u32>> {
        self.unneeded_slots.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The managed ranges.
    pub fn regions(&self) -> MutexGuard<'_, Regions> {
        self.regions.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// No page is write-protected any more, whatever the words say.
    pub(crate) fn forget_protection(&self) {
        let epoch = &self.protection_epoch;
        epoch.store(epoch.load(Ordering::Relaxed) % (MAX_FRAMES as u32 - 1) + 1, Ordering::Relaxed);
    }

    /// Puts a page, whose word was just unlocked as `info`, at the tail of its queue.
    pub fn enqueue(&self, page_number: u64, info: PageInfo) {
        let entry = Entry { page_number, generation: info.generation };
        let mut replacement = self.replacement();
        if replacement.enqueue(info.state, entry).is_err() {
            replacement.drop_stale(|entry, state| self.is_queued(entry, state));
            // The pool holds a quarter more entries than pages can be local, so there is room now.
            let _ = replacement.enqueue(info.state, entry);
        }
    }

    fn is_queued(&self, entry: Entry, state: State) -> bool {
        self.table.find(entry.page_number).is_some_and(|word| {
            let info = word.peek();
            info.generation == entry.generation && info.state == state
        })
    }
}

/// What a pager thread works with.
pub struct Worker {
    /// Of this process.
    pub engine: &'static Engine,
    /// Of this process, since its last fork.
    pub at: &'static Attachment,
    /// This thread's ways to the stores.
    pub lanes: Vec<Box<dyn Lane>>,
    /// Where fetched pages land before they are mapped, if their store does not have them at hand.
    pub bounce: Vec<Bounce>,
    /// Where the pages lie that were fetched last.
    pub(crate) fetched_at: Vec<usize>,
    /// While this worker serves a fault, no thread of the program runs: see [`crate::alone`].
    pub(crate) is_alone: bool,
    /// When the fault was answered that is being served, where that must be noted.
    pub(crate) answered_ns: Cell<Option<u64>>,
    /// The node that this thread's frames come from, where one was chosen.
    pub(crate) placed_on: Option<u16>,
    /// Whose fault is served, as far as it tells threads apart.
    pub(crate) faulting_thread: u32,
    /// Pages of the block fetched last: as many will be wanted next.
    pub(crate) last_block_pages: usize,
    /// Where the search for an empty slab goes on.
    pub(crate) next_slab: u32,
    /// The last store was nearly full when its slots were last counted.
    pub(crate) crowded: bool,
    pub(crate) pages_until_count: u32,
}

/// A page on a page boundary, as direct I/O wants it. Several lie one behind the other.
#[repr(align(4096))]
pub struct Bounce(pub Page);

impl Worker {
    /// A worker with lanes of its own.
    pub fn new(engine: &'static Engine, at: &'static Attachment) -> Result<Self, StoreError> {
        let lanes = at.stores.iter().map(|open| open.store.open_lane()).collect::<Result<_, _>>()?;
        // Room that is not touched before blocks are as long: most workers never fetch.
        let bounce = Vec::with_capacity(at.max_block_pages);
        Ok(Self {
            engine,
            at,
            lanes,
            bounce,
            fetched_at: Vec::with_capacity(at.max_block_pages),
            is_alone: false,
            answered_ns: Cell::new(None),
            placed_on: None,
            faulting_thread: 0,
            last_block_pages: 1,
            next_slab: 0,
            crowded: false,
            pages_until_count: 0,
        })
    }

    /// Unlocks a page's word and wakes who waits for it.
    pub fn unlock(&self, page_number: u64, word: PageWord<'_>, info: PageInfo) {
        if word.unlock(info) {
            let _ = self.at.managed().wake(address_of(page_number), 1 << PAGE_SHIFT);
        }
    }

    /// Locks a page's word, waiting for who has it: another thread of the pager, which waits for no word.
    pub fn lock(&self, word: PageWord<'_>) -> PageInfo {
        let mut tries = 0_u32;
        loop {
            if let Some(info) = word.try_lock() {
                return info;
            }
            tries += 1;
            if tries > 100 {
                std::thread::sleep(std::time::Duration::from_micros(50));
            } else {
                std::hint::spin_loop();
            }
        }
    }

    /// Gives up this process's hold on a slot. The last holder drops its contents, a batch at a time.
    pub fn drop_slot(&mut self, slot: Option<u32>) {
        let Some(slot) = slot else { return };
        if self.at.run.slots().is_shared(slot) {
            let lanes = &mut self.lanes;
            let at = self.at;
            at.run.slots().release(at.run.held(at.entry), slot, |slot| discard(at, lanes, &[slot]));
            return;
        }
        let mut unneeded = self.engine.unneeded_slots();
        unneeded.push(slot);
        if unneeded.len() >= UNNEEDED_SLOTS {
            let slots: Vec<u32> = unneeded.drain(..).collect();
            drop(unneeded);
            self.give_back_slots(slots);
        }
    }

    /// A slot within `range` that nobody needs any more, its contents dropped: this process holds it still.
    pub(crate) fn reuse_slot(&mut self, range: &Range<u32>) -> Option<u32> {
        let mut unneeded = self.engine.unneeded_slots();
        let position = unneeded.iter().position(|slot| range.contains(slot))?;
        let slot = unneeded.swap_remove(position);
        drop(unneeded);
        discard(self.at, &mut self.lanes, &[slot]);
        Some(slot)
    }

    /// Gives the slots back that nobody needs any more.
    pub fn flush_slots(&mut self) {
        let slots: Vec<u32> = self.engine.unneeded_slots().drain(..).collect();
        if !slots.is_empty() {
            self.give_back_slots(slots);
        }
    }

    fn give_back_slots(&mut self, mut unneeded: Vec<u32>) {
        unneeded.sort_unstable();
        discard(self.at, &mut self.lanes, &unneeded);
        let (slots, held) = (self.at.run.slots(), self.at.run.held(self.at.entry));
        unneeded.into_iter().for_each(|slot| slots.release(held, slot, |_| {}));
    }
}

pub(crate) const UNNEEDED_SLOTS: usize = 256;

/// Tells the stores that the contents of slots are not needed any more.
fn discard(at: &Attachment, lanes: &mut [Box<dyn Lane>], slots: &[u32]) {
    for (open, lane) in at.stores.iter().zip(lanes) {
        let own: Vec<u32> = slots
            .iter()
            .filter(|slot| open.range.contains(slot))
            .map(|slot| slot - open.range.start)
            .collect();
        if !own.is_empty() {
            lane.discard(&own);
        }
    }
}

/// Address of a page.
#[must_use]
pub fn address_of(page_number: u64) -> usize {
    (page_number as usize) << PAGE_SHIFT
}

/// Number of the page at an address.
#[must_use]
pub fn page_number_of(address: usize) -> u64 {
    address as u64 >> PAGE_SHIFT
}

/// Nanoseconds of the monotonic clock.
#[must_use]
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Adds to a counter shared by all threads.
pub fn add(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}
