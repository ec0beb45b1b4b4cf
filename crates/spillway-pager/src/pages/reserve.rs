//! Pages of zeros that are ready before they are wanted: a few, for streams of first writes.
//!
//! An area of the pager's own whose pages the background thread has the kernel zero in advance, and which a
//! fault moves to where they belong, a run at a time: a tenth of what copying a run costs there
//! (`docs/research/pager-speed.md`); a single page would gain nothing. What is ready is charged to the local
//! limit, which all processes of a run share. So it is kept only while first writes form streams, grows with
//! what they take, is filled only where the limit has room for far more, and is the first thing to go when
//! that ends.
//!
//! Nobody else ever sees these pages before they are the program's, so nothing of others can come along in
//! them.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::io::Result;
use spillway_core::frame_pool::{FramePool, MAX_RUN_FRAMES};
use spillway_core::page::PAGE_SIZE;
use spillway_sys::memory::{Area, PageMapEntry};
use spillway_sys::ranges::FrameRange;

use crate::kernel::Kernel;

/// Shorter runs are copied as fast as they are moved.
pub(crate) const LEAST_RUN_PAGES: usize = 16;

/// The reserve may take at most this part of the local limit.
const LEAST_LIMIT_SHARE: usize = 16;

/// Pages of zeros. Each is empty, full or in somebody's hands; those that are full or in hands are charged.
pub struct Reserve {
    area: Area,
    pub(crate) empty: FramePool,
    /// Pages that are ready.
    pub full: FramePool,
    /// A stream has asked since the background thread last reviewed the reserve.
    asked: AtomicBool,
    /// So many pages are to be ready: at first few, for most streams are short.
    goal_pages: AtomicUsize,
}

/// Neighbouring full pages, taken out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reserved {
    pub(crate) first: u32,
    pub(crate) pages: usize,
}

impl Reserve {
    /// Room for `bytes`, at most a sixteenth of the limit. Nothing is taken from the machine yet.
    ///
    /// # Errors
    /// ENOMEM where there is no address space.
    pub fn new(bytes: u64, limit_pages: usize) -> Result<Self> {
        let pages = (bytes as usize / PAGE_SIZE).min(limit_pages / LEAST_LIMIT_SHARE);
        let pages = pages / MAX_RUN_FRAMES * MAX_RUN_FRAMES;
        let area = Area::new(pages.max(1) * PAGE_SIZE)?;
        let (empty, full) = (FramePool::all_free(pages), FramePool::all_taken(pages));
        Ok(Self { area, empty, full, asked: AtomicBool::new(false), goal_pages: AtomicUsize::new(0) })
    }

    /// An empty reserve of the same size, as a fork leaves it, which gives it up before. For a simulated
    /// fork.
    ///
    /// # Errors
    /// ENOMEM where there is no address space.
    pub fn for_child(&self) -> Result<Self> {
        let area = Area::new(self.area.bytes())?;
        let (empty, full) = (self.empty.clone(), self.full.clone());
        Ok(Self { area, empty, full, asked: AtomicBool::new(false), goal_pages: AtomicUsize::new(0) })
    }

    /// Notes that a stream asks.
    pub(crate) fn note_asked(&self) {
        if !self.asked.load(Ordering::Relaxed) {
            self.asked.store(true, Ordering::Relaxed);
            let _ = self.goal_pages.compare_exchange(0, MAX_RUN_FRAMES, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// A stream took pages that were ready. Where few are left, twice as many are to be from now on.
    pub(crate) fn note_taken(&self) {
        if self.is_low() {
            let goal_pages = self.goal_pages.load(Ordering::Relaxed);
            self.goal_pages.store((goal_pages * 2).min(self.full.frames()), Ordering::Relaxed);
        }
    }

    /// Whether a stream has asked since this was asked last.
    pub(crate) fn was_asked(&self) -> bool {
        self.asked.swap(false, Ordering::Relaxed)
    }

    /// Nobody is expected to ask again soon.
    pub(crate) fn begin_small(&self) {
        self.goal_pages.store(0, Ordering::Relaxed);
        self.asked.store(false, Ordering::Relaxed);
    }

    /// Whether half of what is to be ready is gone.
    pub(crate) fn is_low(&self) -> bool {
        self.full.free_count() <= self.goal_pages.load(Ordering::Relaxed) / 2
    }

    /// Whether a stream may want more than is ready.
    pub(crate) fn wants_more(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
            && self.full.free_count() < self.goal_pages.load(Ordering::Relaxed)
            && self.empty.free_count() > 0
    }

    /// All pages of it, ready or not.
    #[must_use]
    pub fn all(&self) -> FrameRange<'_> {
        self.area.pages(0, self.area.bytes() / PAGE_SIZE)
    }

    /// The pages of a run.
    pub(crate) fn range(&self, run: Reserved) -> FrameRange<'_> {
        self.area.pages(run.first as usize, run.pages)
    }

    /// How many pages of a run, from the first on, are gone.
    pub(crate) fn moved_pages(
        &self,
        entry_of: impl Fn(usize) -> Option<PageMapEntry>,
        run: Reserved,
    ) -> usize {
        let start = self.range(run).start();
        let is_gone =
            |page: &usize| entry_of(start + page * PAGE_SIZE).is_some_and(|entry| !entry.is_populated());
        (0..run.pages).take_while(is_gone).count()
    }

    /// Gives memory back to the machine. False when it stays.
    pub(crate) fn empty_out(&self, kernel: &impl Kernel, run: Reserved) -> bool {
        let dropped = kernel.discard_frames(self.range(run)).is_ok();
        let pool = if dropped { &self.empty } else { &self.full };
        pool.give_back(run.first, run.pages);
        dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spillway_sys::memory;

    #[test]
    fn a_reserve_is_bounded_and_takes_memory_only_when_it_is_filled() {
        assert_eq!(Reserve::new(4 << 20, 1024).unwrap().empty.frames(), 64);
        assert_eq!(Reserve::new(0, 1 << 20).unwrap().empty.frames(), 0);
        let page_map = spillway_sys::memory::PageMap::open().unwrap();
        let entry_of = |address| page_map.entry(address).ok();
        let reserve = Reserve::new(1 << 20, 1 << 20).unwrap();
        assert_eq!((reserve.empty.free_count(), reserve.full.free_count()), (256, 0));
        let (first, pages) = reserve.empty.take_run(64).unwrap();
        let run = Reserved { first, pages };
        assert_eq!(reserve.moved_pages(entry_of, run), 64);
        memory::populate(reserve.range(run)).unwrap();
        assert_eq!(reserve.moved_pages(entry_of, run), 0);
        memory::discard_own(reserve.range(run)).unwrap();
        assert_eq!(reserve.moved_pages(entry_of, run), 64);
    }

    #[test]
    fn a_reserve_grows_with_what_is_taken_of_it() {
        let reserve = Reserve::new(4 << 20, 1 << 20).unwrap();
        let fill = || {
            let mut filled = 0;
            while reserve.wants_more() {
                let (first, pages) = reserve.empty.take_run(MAX_RUN_FRAMES).unwrap();
                reserve.full.give_back(first, pages);
                filled += pages;
            }
            filled
        };
        assert_eq!(fill(), 0);
        // However often a stream asks in vain.
        (0..10).for_each(|_| reserve.note_asked());
        assert_eq!((reserve.is_low(), fill(), reserve.is_low()), (true, 64, false));
        for goal_pages in [128, 256, 512, 1024, 1024] {
            reserve.note_asked();
            while let Some((first, pages)) = reserve.full.take_run(MAX_RUN_FRAMES) {
                reserve.empty.give_back(first, pages);
            }
            reserve.note_taken();
            assert_eq!(fill(), goal_pages);
        }
        assert!(reserve.was_asked() && !reserve.was_asked());
        reserve.begin_small();
        assert!(!reserve.wants_more());
    }
}
