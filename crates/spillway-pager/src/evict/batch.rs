//! Which pages leave: a batch of the oldest.

use std::sync::atomic::Ordering;

use spillway_core::fifo::Entry;
use spillway_core::page_word::{PageInfo, Queue};
use spillway_core::transitions::is_queued_mapped;
use spillway_policy::dcm::Step;
use spillway_policy::use_history;

use crate::evict::write_back::BATCH_PAGES;
use crate::kernel::{Kernel, planted};
use crate::process::in_flight::Pace;
use crate::process::worker::Worker;
use crate::run::state::Counter;

impl<K: Kernel> Worker<K> {
    /// Evicts up to a batch of this process's pages. Returns how many frames that freed.
    pub(crate) fn evict_batch(&mut self) -> usize {
        let freed = self.give_up_reserve();
        if freed > 0 {
            return freed;
        }
        if let Some(freed) = self.manage_piece().filter(|&freed| freed > 0) {
            return freed as usize;
        }
        let freed = self.evict_whole_range(false);
        if freed > 0 {
            return freed;
        }
        let freed = if self.keeps_inactive() {
            self.turn_inactive_over()
        } else {
            let unmapped = self.fill_inactive();
            if self.may_write() { unmapped + self.write_back_batch() } else { unmapped }
        };
        self.settle_left();
        if self.is_scan_due() {
            self.at.wake_evictor();
        }
        if freed > 0 {
            return freed;
        }
        // What was drawn may all be such as cannot go, while others wait in buffers.
        if self.engine.own_queues.has_buffers {
            self.flush_all(&mut self.engine.replacement());
        }
        match self.evict_whole_range(true) {
            0 => self.give_up_stages(false),
            freed => freed,
        }
    }

    /// Far away, writing takes longer than a read: the evictor does it.
    pub(crate) fn may_write(&self) -> bool {
        self.pace == Pace::Batch || self.at.low_headroom_pages == 0
    }

    /// While the stores are full, what cannot be stored comes back: no more is tried than has a chance.
    pub(crate) fn batch_pages(&self) -> usize {
        const TRIED_WITHOUT_ROOM: usize = 2;
        let most = match self.pace {
            Pace::Batch => BATCH_PAGES,
            Pace::Beside(pages) => pages.min(BATCH_PAGES),
        };
        if !self.engine.stores_full.load(Ordering::Relaxed) {
            return most;
        }
        self.engine.unneeded_slots().len().clamp(TRIED_WITHOUT_ROOM, most)
    }

    /// Evicts what can go at once of the oldest mapped pages, and unmaps the others, which are written next.
    /// Returns how many went at once.
    fn fill_inactive(&mut self) -> usize {
        let length = self.inactive_len();
        let wanted = BATCH_PAGES.saturating_sub(length).min(self.batch_pages());
        let mut victims = self.take_victims(wanted.min(self.engine.frames.free_count()));
        self.read_uses(&victims);
        let dropped = self.drop_clean(&mut victims);
        victims.sort_unstable_by_key(|(page_number, _)| *page_number);
        let in_place = self.may_evict_in_place();
        // The evictor's own batches say nothing of who serves faults.
        if self.is_in_program || !self.at.kernel.is_inline() {
            self.engine.evicts_in_place.store(in_place, Ordering::Relaxed);
        }
        if in_place {
            return dropped + self.evict_in_place(&victims);
        }
        self.unmap(&mut victims);
        dropped
    }

    /// Locks up to `wanted` mapped pages that the policy gives up.
    pub(crate) fn take_victims(&mut self, wanted: usize) -> Vec<(u64, PageInfo)> {
        let mut victims = Vec::with_capacity(wanted);
        let mut replacement = self.engine.replacement();
        self.flush_before_draw(&mut replacement, wanted);
        let mut busy = Vec::new();
        let uses_are_told = self.uses_are_told();
        let rank = |page_number| if uses_are_told { self.rank(page_number) } else { use_history::UNKNOWN };
        // As many steps as could at worst be stale or promotions, and an end in every case.
        for _ in 0..wanted * 16 {
            if victims.len() >= wanted {
                break;
            }
            let step = match replacement.next_mapped(rank) {
                Some(step) => step,
                None if self.flush_all(&mut replacement) > 0 => continue,
                None => break,
            };
            let (Step::ToActive(entry) | Step::ToProactive(entry) | Step::ToInactive(entry)) = step;
            // It leaves with its range.
            if self.engine.table.is_whole(entry.page_number) {
                continue;
            }
            let Some(word) = self.engine.table.find(entry.page_number) else { continue };
            let Some(info) = self.try_lock(word) else {
                busy.push(entry);
                continue;
            };
            if !is_queued_mapped(info, entry.generation) {
                self.unlock(entry.page_number, word, info);
            } else if let Some(queue) = queue_of(step) {
                let next = info.moved_to(queue);
                self.unlock(entry.page_number, word, next);
                let entry = Entry { generation: next.generation, ..entry };
                if !planted!(K, "moved-page-not-queued") {
                    self.engine.put(&mut replacement, queue, entry);
                }
                self.take_block_along(entry.page_number, Some(queue), &mut victims, &mut replacement);
            } else if self.engine.holds.covers(entry.page_number) && !planted!(K, "held-page-evicted") {
                self.unlock(entry.page_number, word, info);
                busy.push(entry);
            } else {
                self.engine.begin_to_leave(entry.page_number);
                victims.push((entry.page_number, info));
                self.take_block_along(entry.page_number, None, &mut victims, &mut replacement);
            }
        }
        self.at.run.count(Counter::PagesKeptInUse, replacement.take_kept_in_use());
        for entry in busy {
            self.engine.put(&mut replacement, Queue::Active, entry);
        }
        victims
    }
}

/// The queue of a page that stays mapped.
fn queue_of(step: Step) -> Option<Queue> {
    match step {
        Step::ToActive(_) => Some(Queue::Active),
        Step::ToProactive(_) => Some(Queue::Proactive),
        Step::ToInactive(_) => None,
    }
}
