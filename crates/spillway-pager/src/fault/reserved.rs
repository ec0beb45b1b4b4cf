//! The reserve at work: filled ahead of need, moved to where a stream of first writes wants it, given up when
//! room runs short.

use spillway_core::frame_pool::MAX_RUN_FRAMES;
use spillway_core::page::PAGE_SIZE;

use crate::kernel::{Kernel, planted};
use crate::pages::address::target;
use crate::pages::reserve::{LEAST_RUN_PAGES, Reserved};
use crate::process::worker::Worker;
use crate::run::state::Counter;

impl<K: Kernel> Worker<K> {
    /// Takes up to `wanted` pages of zeros, neighbours, if there are enough to be worth it.
    pub(crate) fn take_reserved(&self, wanted: usize) -> Option<Reserved> {
        let reserve = &self.engine.reserve;
        if reserve.full.frames() == 0 || !self.at.kernel.has_page_map() {
            return None;
        }
        reserve.note_asked();
        let taken = reserve.full.take_run(wanted);
        if taken.is_some_and(|(_, pages)| pages >= LEAST_RUN_PAGES) {
            reserve.note_taken();
        }
        if reserve.is_low() && self.may_fill_reserve() {
            self.at.wake_evictor();
        }
        let (first, pages) = taken?;
        if pages >= LEAST_RUN_PAGES {
            return Some(Reserved { first, pages });
        }
        reserve.full.give_back(first, pages);
        None
    }

    /// Moves up to `wanted` pages of a run to this page and those behind it, all locked and untouched; puts
    /// the rest back. Returns how many are there.
    pub(crate) fn move_reserved(&self, run: Reserved, page_number: u64, wanted: usize) -> usize {
        let reserve = &self.engine.reserve;
        let asked = Reserved { pages: run.pages.min(wanted), ..run };
        self.note_answer();
        let to = target(page_number, asked.pages);
        let counted = self.at.kernel.move_reserved(to, reserve.range(asked)) / PAGE_SIZE;
        // The kernel may have moved more than it says (`docs/concepts/userfaultfd.md`). What is not here any
        // more is there.
        let moved = if counted < asked.pages && !planted!(K, "reserve-miscounted") {
            let entry_of = |address| self.at.kernel.page_map_entry(address);
            reserve.moved_pages(entry_of, asked).max(counted)
        } else {
            counted
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
            if !reserve.empty_out(&self.at.kernel, Reserved { first, pages }) {
                break;
            }
            freed += pages;
        }
        self.at.release_local(freed as u64);
        reserve.begin_small();
        freed
    }

    /// A stream may want more, and the limit has room.
    pub(crate) fn may_fill_reserve(&self) -> bool {
        let reserve = &self.engine.reserve;
        let room_pages = self.at.run.budget().headroom_pages() as usize;
        let wanted_pages = 4 * reserve.full.frames() + 2 * self.at.low_headroom_pages as usize;
        reserve.wants_more() && room_pages >= wanted_pages
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
        if self.at.kernel.populate_reserve(reserve.range(run)).is_err() {
            if reserve.empty_out(&self.at.kernel, run) {
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
        if !self.engine.reserve.was_asked() {
            self.give_up_reserve();
        }
    }
}
