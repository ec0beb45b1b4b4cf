//! Ranges of 2 MiB that came as one huge page leave as one: moved into frames in one step of the page table,
//! or dropped where they lie in one call ([`crate::evict::in_place`]). What cannot leave so is taken apart:
//! its pages enter the queues one by one.
//!
//! A range is old enough once half as much has left since it came as the process has local; sooner only where
//! nothing else can leave. Whether it is in use is not asked: what comes by streams is seldom used again
//! soon.

use spillway_core::page_word::{PageInfo, PageState, Queue};
use spillway_core::transitions::unmapped;

use crate::evict::victim::{Place, Victim};
use crate::kernel::Kernel;
use crate::pages::address::{address_of, target};
use crate::process::in_flight::Pace;
use crate::process::worker::Worker;
use crate::run::state::Counter;

impl<K: Kernel> Worker<K> {
    /// Evicts the oldest range that came whole: one that is old enough, or with `any_age` whichever. Returns
    /// how many frames that freed.
    pub(crate) fn evict_whole_range(&mut self, any_age: bool) -> usize {
        let engine = self.engine;
        if self.pace != Pace::Batch || !self.may_write() {
            return 0;
        }
        let young_pages = if any_age { 0 } else { self.local_pages() / 2 };
        let came_before = (engine.departures.count() + 1).saturating_sub(young_pages);
        let Some(first_page) = engine.whole.take_oldest::<K>(&engine.table, came_before) else { return 0 };
        let range = first_page..first_page + K::HUGE_PAGES as u64;
        let (locked, is_busy) = self.lock_range(range.clone(), None);
        let is_held = is_busy || range.clone().any(|page_number| engine.holds.covers(page_number));
        if is_held {
            self.unlock_all(locked);
            engine.whole.note::<K>(&engine.table, first_page, engine.departures.count());
            return 0;
        }
        let is_open = |info: &PageInfo| info.is_mapped() && info.protected_in().is_none();
        let is_whole = locked.iter().all(|(_, _, info)| is_open(info))
            && engine.regions().cover(&(address_of(range.start)..address_of(range.end)));
        let pages: Vec<(u64, PageInfo)> =
            locked.into_iter().map(|(page_number, _, info)| (page_number, info)).collect();
        if !is_whole || engine.stores_full.load(std::sync::atomic::Ordering::Relaxed) {
            self.take_apart(&pages);
            return 0;
        }
        let freed =
            if self.may_evict_in_place() { self.evict_in_place(&pages) } else { self.move_out(&pages) };
        if freed == pages.len() {
            self.at.run.count(Counter::HugeRangesOut, 1);
        }
        freed
    }

    /// Has the locked pages of a range leave one by one, or stay, as any others.
    fn take_apart(&self, pages: &[(u64, PageInfo)]) {
        for &(page_number, info) in pages {
            let next = info.moved_to(Queue::Active);
            self.unlock_page(page_number, next);
            if info.is_mapped() {
                self.enqueue(page_number, next);
            }
        }
    }

    /// Moves the locked pages of a range into frames, and writes them back. Returns how many frames that
    /// freed.
    fn move_out(&mut self, pages: &[(u64, PageInfo)]) -> usize {
        let (kernel, frames) = (&self.at.kernel, &self.engine.frames);
        let Some(first) = frames.take_whole(pages.len()) else {
            self.take_apart(pages);
            return 0;
        };
        let to = frames.range(first, pages.len());
        // They are empty, but may have a page table, and the kernel would split what it moves there.
        let _ = kernel.discard_frames(to);
        let outcome = kernel.move_to_frames(to, target(pages[0].0, pages.len()));
        let moved = outcome.map_or(0, |bytes| bytes / spillway_core::page::PAGE_SIZE);
        frames.give_back(first + moved as u32, pages.len() - moved);
        let (gone, left) = pages.split_at(moved);
        self.take_apart(left);
        let mut victims = Vec::with_capacity(moved);
        for (&(page_number, info), frame) in gone.iter().zip(first..) {
            let info = unmapped(info, frame, self.engine.epoch());
            let old_slot = info.slot();
            self.unlock_page(page_number, PageInfo { state: PageState::Writeback { frame }, ..info });
            victims.push(Victim::new(page_number, Place::Frame(frame), old_slot));
        }
        self.write_back(victims)
    }
}
