//! What ties one process to its run, made anew by each forked child.

use std::ops::Range;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use spillway_store::{Lane, Store, StoreError};

use crate::kernel::Kernel;
use crate::run::settings::Settings;
use crate::run::state::{Process, RunState};
use crate::seal::lane::SealedLane;
use crate::seal::sealing::Sealing;
use crate::threads::leader::FaultHandlers;
use crate::threads::placement::Placement;

/// A store and the run's slots that lie on it.
pub struct OpenStore {
    /// The store, as this process has opened it.
    pub store: Arc<dyn Store>,
    /// Its slots among the run's.
    pub range: Range<u32>,
    /// What its pages are sealed with; `None` where they lie there as they are.
    pub sealing: Option<Arc<Sealing>>,
}

impl OpenStore {
    /// Its pages are sealed.
    #[must_use]
    pub fn is_sealed(&self) -> bool {
        self.sealing.is_some()
    }

    /// A way to it for one thread, which seals and opens what is to be sealed.
    pub(crate) fn open_lane<K: Kernel>(&self) -> Result<Box<dyn Lane>, StoreError> {
        let lane = self.store.open_lane()?;
        let Some(sealing) = &self.sealing else { return Ok(lane) };
        let (sealing, store) = (Arc::clone(sealing), self.store.uri());
        Ok(Box::new(SealedLane::<K>::new(lane, sealing, store, self.range.start)))
    }
}

/// What ties one process to its run.
pub struct Attachment<K: Kernel> {
    /// The kernel, as this process uses it.
    pub kernel: K,
    /// In inline mode, the descriptors that serving a fault takes, here and of the stores: the program's
    /// table has them by the same numbers.
    pub descriptors: Vec<RawFd>,
    /// Shared with the other processes.
    pub run: &'static RunState,
    /// This process's entry in the run.
    pub entry: usize,
    /// Where far pages are, in the order in which they are filled.
    pub stores: Vec<OpenStore>,
    /// The settings of the run.
    pub settings: Settings,
    /// Which of the handlers read faults.
    pub handlers: FaultHandlers,
    /// Where the machine has several memory nodes.
    pub placement: Option<Placement>,
    /// Free pages below which the evictor always works.
    pub low_headroom_pages: u64,
    /// Free pages below which it works while that pays: see [`crate::evict::written_share`].
    pub headroom_pages: u64,
    /// Writing to a store takes longer than waking the evictor.
    pub writes_long: bool,
    /// Pages in the largest block.
    pub max_block_pages: usize,
}

impl<K: Kernel> Attachment<K> {
    /// This process's entry in the run's table of processes.
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
        // A process that is killed between the two takes as many of the limit with it.
        const AT_ONCE: u64 = 64;
        let mut left = pages;
        while left != 0 {
            let part = left.min(AT_ONCE);
            self.process().local_pages().fetch_sub(part, Ordering::AcqRel);
            K::turn();
            self.run.budget().release(part);
            left -= part;
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

    /// Wakes the evictor of a process of the run.
    pub(crate) fn wake_evictor_of(&self, entry: usize) {
        K::turn();
        let word = self.run.evictor_futex(entry);
        if word.swap(0, Ordering::AcqRel) != 0 {
            K::futex_wake(word);
        }
    }

    /// Wakes this process's evictor.
    pub(crate) fn wake_evictor(&self) {
        self.wake_evictor_of(self.entry);
    }
}
