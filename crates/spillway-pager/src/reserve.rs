//! Pages of zeros that are ready before they are wanted: a few, for streams of first writes.
//!
//! An area of the pager's own whose pages the background thread has the kernel zero in advance, and which a fault moves to
//! where they belong, a run at a time: a tenth of what copying a run costs there (`docs/pager-speed.md`); a single page
//! would gain nothing. What is ready is charged to the local limit. It is kept only while first writes form streams, filled
//! only where the limit has room for far more, and the first thing to go when that ends.
//!
//! Nobody else ever sees these pages before they are the program's, so nothing of others can come along in them.

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Result;
use spillway_core::frame_pool::{FramePool, MAX_RUN_FRAMES};
use spillway_core::page::PAGE_SIZE;
use spillway_sys::memory::{self, Area, PageMap};

use crate::charge::wake_evictor;
use crate::engine::{Worker, address_of};
use crate::run_state::Counter;

/// Shorter runs are copied as fast as they are moved.
pub(crate) const LEAST_RUN_PAGES: usize = 16;

/// The reserve may take at most this part of the local limit.
const LEAST_LIMIT_SHARE: usize = 16;

/// Pages of zeros. Each is empty, full or in somebody's hands; those that are full or in hands are charged.
pub struct Reserve {
    area: Area,
    empty: FramePool,
    full: FramePool,
    /// A stream has asked since the background thread looked last.
    wanted: AtomicBool,
}

/// Neighbouring full pages, taken out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reserved {
    first: u32,
    pub(crate) pages: usize,
}

impl Reserve {
    /// Room for `bytes`, at most a sixteenth of the limit. Nothing is taken from the machine yet.
    pub fn new(bytes: u64, limit_pages: usize) -> Result<Self> {
        let pages = (bytes as usize / PAGE_SIZE).min(limit_pages / LEAST_LIMIT_SHARE);
        let pages = pages / MAX_RUN_FRAMES * MAX_RUN_FRAMES;
        let area = Area::new(pages.max(1) * PAGE_SIZE)?;
        // Pages of a huge one would have to be torn out of it.
        let _ = memory::refuse_huge_pages(area.address(), area.bytes());
        let (empty, full) = (FramePool::all_free(pages), FramePool::all_taken(pages));
        Ok(Self { area, empty, full, wanted: AtomicBool::new(false) })
    }

    fn address(&self, page: u32) -> usize {
        self.area.address() + page as usize * PAGE_SIZE
    }

    /// How many pages of a run, from the first on, are gone.
    fn moved_pages(&self, page_map: &PageMap, run: Reserved) -> usize {
        let is_gone =
            |page: &u32| page_map.entry(self.address(*page)).is_ok_and(|entry| !entry.is_populated());
        (run.first..run.first + run.pages as u32).take_while(is_gone).count()
    }

    /// Gives memory back to the machine. False when it stays.
    fn empty_out(&self, run: Reserved) -> bool {
        let dropped = self.area.discard(run.first as usize * PAGE_SIZE, run.pages * PAGE_SIZE).is_ok();
        let pool = if dropped { &self.empty } else { &self.full };
        pool.give_back(run.first, run.pages);
        dropped
    }
}

impl Worker {
    /// Takes up to `wanted` pages of zeros, neighbours, if there are enough to be worth it.
    pub(crate) fn take_reserved(&self, wanted: usize) -> Option<Reserved> {
        let reserve = &self.engine.reserve;
        if reserve.full.frames() == 0 || self.at.page_map.is_none() {
            return None;
        }
        if !reserve.wanted.load(Ordering::Relaxed) {
            reserve.wanted.store(true, Ordering::Relaxed);
        }
        if reserve.full.free_count() <= reserve.full.frames() / 2 && self.may_fill_reserve() {
            wake_evictor(self.at, self.at.entry);
        }
        let (first, pages) = reserve.full.take_run(wanted)?;
        let run = Reserved { first, pages };
        if pages >= LEAST_RUN_PAGES {
            return Some(run);
        }
        reserve.full.give_back(first, pages);
        None
    }

    /// Moves up to `wanted` pages of a run to this page and those behind it, all locked and untouched; puts the rest back.
    /// Returns how many are there.
    pub(crate) fn move_reserved(&self, run: Reserved, page_number: u64, wanted: usize) -> usize {
        let reserve = &self.engine.reserve;
        let asked = Reserved { pages: run.pages.min(wanted), ..run };
        let bytes = asked.pages * PAGE_SIZE;
        self.note_answer();
        let counted =
            self.at.managed().move_pages(address_of(page_number), reserve.address(run.first), bytes)
                / PAGE_SIZE;
        // The kernel may have moved more than it says (`docs/userfaultfd.md`). What is not here any more is there.
        let moved = match &self.at.page_map {
            Some(page_map) if counted < asked.pages => reserve.moved_pages(page_map, asked).max(counted),
            _ => counted,
        };
        self.at.run.count(Counter::ReservePagesUsed, moved as u64);
        reserve.empty.give_back(run.first, moved);
        reserve.full.give_back(run.first + moved as u32, run.pages - moved);
        moved
    }

    /// Gives all pages that are ready back to the machine and the limit. Returns how many.
    pub(crate) fn give_up_reserve(&self) -> usize {
        let reserve = &self.engine.reserve;
        let mut freed = 0;
        while let Some((first, pages)) = reserve.full.take_run(MAX_RUN_FRAMES) {
            if !reserve.empty_out(Reserved { first, pages }) {
                break;
            }
            freed += pages;
        }
        self.at.release_local(freed as u64);
        freed
    }

    /// A stream may want more, and the limit has room.
    pub(crate) fn may_fill_reserve(&self) -> bool {
        let reserve = &self.engine.reserve;
        let room_pages = self.at.run.budget().headroom_pages() as usize;
        let wanted_pages = 4 * reserve.full.frames() + 2 * self.at.low_headroom_pages as usize;
        reserve.wanted.load(Ordering::Relaxed) && reserve.empty.free_count() > 0 && room_pages >= wanted_pages
    }

    /// Makes a run of pages ready. False where that cannot be.
    pub(crate) fn fill_reserve(&self) -> bool {
        let reserve = &self.engine.reserve;
        let Some((first, pages)) = reserve.empty.take_run(MAX_RUN_FRAMES) else { return false };
        let run = Reserved { first, pages };
        if !self.try_charge(pages as u64) {
            reserve.empty.give_back(first, pages);
            return false;
        }
        if memory::populate(reserve.address(first), pages * PAGE_SIZE).is_err() {
            if reserve.empty_out(run) {
                self.at.release_local(pages as u64);
            }
            return false;
        }
        self.at.run.count(Counter::ZeroedPages, pages as u64);
        reserve.full.give_back(first, pages);
        true
    }

    /// Gives the reserve up where no stream has asked for a while. Called about once a second.
    pub(crate) fn review_reserve(&self) {
        if !self.engine.reserve.wanted.swap(false, Ordering::Relaxed) {
            self.give_up_reserve();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserve_is_bounded_and_takes_memory_only_when_it_is_filled() {
        let page_map = PageMap::open().unwrap();
        assert_eq!(Reserve::new(4 << 20, 1024).unwrap().empty.frames(), 64);
        assert_eq!(Reserve::new(0, 1 << 20).unwrap().empty.frames(), 0);
        let reserve = Reserve::new(1 << 20, 1 << 20).unwrap();
        assert_eq!((reserve.empty.free_count(), reserve.full.free_count()), (256, 0));
        let (first, pages) = reserve.empty.take_run(64).unwrap();
        let run = Reserved { first, pages };
        assert_eq!(reserve.moved_pages(&page_map, run), 64);
        memory::populate(reserve.address(first), pages * PAGE_SIZE).unwrap();
        assert_eq!(reserve.moved_pages(&page_map, run), 0);
        assert!(reserve.empty_out(run));
        assert_eq!((reserve.empty.free_count(), reserve.moved_pages(&page_map, run)), (256, 64));
    }
}
