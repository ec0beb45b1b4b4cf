//! What a pager thread works with.

use std::cell::Cell;
use std::ops::Range;
use std::sync::atomic::Ordering;

use spillway_core::page::{PAGE_SIZE, Page};
use spillway_core::page_word::{PageInfo, PageWord};
use spillway_policy::first_reads::FirstReads;
use spillway_store::{Lane, Notice, StoreError};
use spillway_sys::ranges::BounceRange;

use crate::evict::slab_search::SlabSearch;
use crate::kernel::{Kernel, planted};
use crate::pages::address::target;
use crate::process::attachment::{Attachment, OpenStore};
use crate::process::engine::{Engine, UNNEEDED_SLOTS};
use crate::process::in_flight::{Pace, Posted};
use crate::process::unanswered;
use crate::run::stacks::Origin;

/// What a pager thread works with.
pub struct Worker<K: Kernel> {
    /// The paging state of this process.
    pub engine: &'static Engine<K>,
    /// Of this process, since its last fork.
    pub at: &'static Attachment<K>,
    /// This thread's ways to the stores.
    pub lanes: Vec<Box<dyn Lane>>,
    /// Where fetched pages land before they are mapped, if their store does not have them at hand.
    pub(crate) bounce: Vec<Bounce>,
    /// What is its own of dcm's queues has this number: see [`crate::process::queues`].
    pub(crate) place: u16,
    /// The pages that were fetched last.
    pub(crate) fetched: FetchedPages,
    /// While this worker serves a fault, no thread of the program runs: see [`crate::evict::in_place`].
    pub(crate) is_alone: bool,
    /// It works in threads of the program, which serve their own faults.
    pub(crate) is_in_program: bool,
    /// When the fault was answered that is being served, where that must be noted.
    pub(crate) answered_ns: Cell<Option<u64>>,
    /// How many pages had left since the page did that the fault being served has fetched.
    pub(crate) away_pages: Cell<Option<u64>>,
    /// Where the thread is whose fault is served, where the fault came with it.
    pub(crate) origin: Option<Origin>,
    /// Time lost to fetches that no sample stands for yet: see [`crate::fault::sites`].
    pub(crate) unsampled_ns: u64,
    /// The node that this thread's frames come from, where one was chosen.
    pub(crate) placed_on: Option<u16>,
    /// Whose fault is served, as far as it tells threads apart.
    pub(crate) faulting_thread: u32,
    /// Pages of the block fetched last: as many will be wanted next.
    pub(crate) last_block_pages: usize,
    /// Whether who reads first writes soon.
    pub(crate) first_reads: FirstReads,
    /// Pages that left and are to be settled: see [`crate::evict::blocks`].
    pub(crate) left: Vec<u64>,
    /// What the fault that is served has posted.
    pub(crate) posted: Option<Posted>,
    /// How much is evicted at a time.
    pub(crate) pace: Pace,
    /// Where in the stores pages go.
    pub(crate) slabs: SlabSearch,
    /// The last store was nearly full when its slots were last counted.
    pub(crate) crowded: bool,
    /// There were too many copies of local pages then: see [`crate::evict::copies`].
    pub(crate) copies_abound: bool,
    pub(crate) pages_until_count: u32,
}

/// A page on a page boundary, as direct I/O wants it. Several lie one behind the other.
#[repr(align(4096))]
pub(crate) struct Bounce(pub(crate) Page);

/// Where the pages lie that a worker fetched last: in its bounce pages, or in a store's memory by way of one
/// of its lanes.
///
/// Invariant: they stay, unchanged, until this worker's next use of its lanes or its bounce pages, for the
/// slots of pages under way are written by nobody. Then [`Self::clear`] comes first.
#[derive(Default)]
pub(crate) struct FetchedPages(Vec<*const Page>);

// Safe to move: the pages belong to the worker that moves with it, or to memory of the whole process.
#[allow(unsafe_code)]
// SAFETY: as the comment above says; nothing is read through it but by the worker.
unsafe impl Send for FetchedPages {}

impl FetchedPages {
    fn with_room_for(pages: usize) -> Self {
        Self(Vec::with_capacity(pages))
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn push(&mut self, page: *const Page) {
        self.0.push(page);
    }

    /// Whether page `index` lies right behind the one before it.
    pub(crate) fn goes_on_at(&self, index: usize) -> bool {
        self.0[index].addr() == self.0[index - 1].addr() + PAGE_SIZE
    }

    /// `count` pages from `first` on that lie one behind the other. Panics where there are not as many.
    #[allow(unsafe_code)]
    pub(crate) fn run(&self, first: usize, count: usize) -> BounceRange<'_> {
        assert!(first + count <= self.0.len(), "no such pages were fetched");
        debug_assert!((first + 1..first + count).all(|index| self.goes_on_at(index)), "not neighbours");
        // SAFETY: by the invariant of this type, and neighbours by the caller's look at `goes_on_at`.
        unsafe { BounceRange::from_raw(self.0[first], count * PAGE_SIZE) }
    }
}

impl<K: Kernel> Worker<K> {
    /// Says something to the user, and has the supervisor know it.
    pub(crate) fn tell(&self, notice: &Notice<'_>) {
        self.at.run.note(self.at.entry, notice);
        K::tell(notice.text);
    }

    /// A worker with lanes of its own.
    ///
    /// # Errors
    /// A store's, where it lets no further lane be opened.
    pub fn new(engine: &'static Engine<K>, at: &'static Attachment<K>) -> Result<Self, StoreError> {
        let lanes = at.stores.iter().map(OpenStore::open_lane::<K>).collect::<Result<_, _>>()?;
        // Room that is not touched before blocks are as long: most workers never fetch.
        let bounce = Vec::with_capacity(at.max_block_pages);
        Ok(Self {
            engine,
            at,
            lanes,
            bounce,
            place: engine.own_queues.take_place(),
            fetched: FetchedPages::with_room_for(at.max_block_pages),
            is_alone: false,
            is_in_program: false,
            answered_ns: Cell::new(None),
            away_pages: Cell::new(None),
            origin: None,
            unsampled_ns: 0,
            placed_on: None,
            faulting_thread: 0,
            last_block_pages: 1,
            first_reads: FirstReads::default(),
            left: Vec::new(),
            posted: None,
            pace: Pace::Batch,
            slabs: SlabSearch::default(),
            crowded: false,
            copies_abound: false,
            pages_until_count: 0,
        })
    }

    /// Unlocks a page's word and wakes who waits for it.
    pub fn unlock(&self, page_number: u64, word: PageWord<'_>, info: PageInfo) {
        K::turn();
        let waited_for = word.unlock(info);
        K::turn();
        if waited_for && !planted!(K, "wake-lost") {
            let _ = self.at.kernel.wake(target(page_number, 1));
        }
    }

    /// Locks a page's word, waiting for who has it: another thread of the pager, which waits for no word.
    pub fn lock(&self, word: PageWord<'_>) -> PageInfo {
        let mut tries = 0_u32;
        loop {
            if let Some(info) = self.try_lock(word) {
                return info;
            }
            tries += 1;
            K::relax(tries);
        }
    }

    /// Locks a page's word if nobody has it.
    pub(crate) fn try_lock(&self, word: PageWord<'_>) -> Option<PageInfo> {
        K::turn();
        let info = word.try_lock();
        K::turn();
        info
    }

    /// Gives up this process's hold on a slot. The last holder drops its contents, a batch at a time.
    pub fn drop_slot(&mut self, slot: Option<u32>) {
        let Some(slot) = slot else { return };
        K::turn();
        if self.at.run.slots().is_shared(slot) && !planted!(K, "shared-slot-reused") {
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
            self.engine.stores_full.store(false, Ordering::Relaxed);
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

    /// Drops what slots hold, and lets go of them.
    pub(crate) fn give_back_slots(&mut self, mut unneeded: Vec<u32>) {
        unneeded.sort_unstable();
        for (open, lane) in self.at.stores.iter().zip(&mut self.lanes) {
            // What may be dropped at any later time can be nobody's.
            if !discard_on(self.at, open, &mut **lane, &unneeded) {
                unneeded.retain(|slot| !open.range.contains(slot));
            }
        }
        let (slots, held) = (self.at.run.slots(), self.at.run.held(self.at.entry));
        for slot in unneeded {
            K::turn();
            slots.release(held, slot, |_| {});
        }
    }
}

/// Tells the stores that the contents of slots are not needed any more.
fn discard<K: Kernel>(at: &Attachment<K>, lanes: &mut [Box<dyn Lane>], slots: &[u32]) {
    for (open, lane) in at.stores.iter().zip(lanes) {
        discard_on(at, open, &mut **lane, slots);
    }
}

/// Tells one store so of its slots. Whether it has done all that it was told.
fn discard_on<K: Kernel>(at: &Attachment<K>, open: &OpenStore, lane: &mut dyn Lane, slots: &[u32]) -> bool {
    let own = slots.iter().filter(|slot| open.range.contains(slot)).map(|slot| slot - open.range.start);
    let own: Vec<u32> = own.collect();
    own.is_empty() || unanswered::change(at, open, lane, |lane| lane.discard(&own))
}
