//! The inactive queue where it has a length (`[replacement] inactive_share` above 0), as dcm has it (section
//! 3.2, Fig. 4): whatever leaves is unmapped first and stays local for a while, and a touch meanwhile brings
//! it back without a store.
//!
//! - *Length.* Frames in use are inactive pages, and pages under write-back. An eviction unmaps as many pages
//!   as make the queue longer by a batch than it should be, and a batch leaves from its head: what is beyond
//!   its length. At most 16 batches are unmapped at a time, so that no fault waits for a queue
//!   to be filled from its beginning, or anew after its pages were touched.
//! - *What leaves.* A page that was write-protected until it was unmapped is as its slot has it, and is gone
//!   without a look at it. Others are compared and written ([`super::write_back`]).
//! - *The limit.* An inactive page is charged as it was while it was mapped. Room comes of what leaves.
//!
//! A range that came as one huge page leaves as one, past the queue ([`super::whole_ranges`]).
//!
//! A program in which nothing mapped can leave empties the queue below its length: room comes first.
//!
//! With a share of 0 only what is on its way out is inactive: see `fill_inactive` in [`super::batch`].

use std::sync::atomic::Ordering;

use spillway_core::fifo::Entry;
use spillway_core::page_word::{PageInfo, PageState, PageWord, Queue};
use spillway_core::transitions::{gone, is_queued_inactive};
use spillway_policy::fault_trace::{Event, Left};
use spillway_policy::use_history::UseHistory;

use crate::kernel::Kernel;
use crate::process::in_flight::Pace;
use crate::process::worker::Worker;
use crate::run::state::Counter;

/// Of two batches each.
const MOST_ROUNDS: usize = 8;

impl<K: Kernel> Worker<K> {
    /// The inactive queue has a length.
    pub(crate) fn keeps_inactive(&self) -> bool {
        self.engine.inactive_share() > 0.0
    }

    /// Makes the queue as long as it should be, and lets a batch leave. Returns how many pages left.
    pub(crate) fn turn_inactive_over(&mut self) -> usize {
        self.refill_inactive();
        if self.may_write() { self.write_back_batch() } else { self.let_clean_go() }
    }

    fn refill_inactive(&mut self) {
        let rounds = if self.pace == Pace::Batch { MOST_ROUNDS } else { 1 };
        for _ in 0..rounds {
            let before = self.engine.frames.full_count();
            let wanted = self.unmap_for_queue(before);
            let unmapped = self.engine.frames.full_count().saturating_sub(before);
            // What is pinned would be tried again and again.
            if wanted < 2 * self.batch_pages() || unmapped < wanted / 2 {
                return;
            }
        }
    }

    /// Unmaps what a queue of `length` lacks, and a batch more; two batches at most. Returns how many pages
    /// that would be.
    fn unmap_for_queue(&mut self, length: usize) -> usize {
        let local_pages = self.at.process().local_pages().load(Ordering::Relaxed) as usize;
        let batch = self.batch_pages();
        let full = self.engine.inactive_target(local_pages) + batch;
        let wanted = full.saturating_sub(length).min(2 * batch);
        let mut victims = self.take_victims(wanted.min(self.engine.frames.free_count()));
        self.read_uses(&victims);
        victims.sort_unstable_by_key(|(page_number, _)| *page_number);
        self.unmap(&mut victims);
        wanted
    }

    /// Lets those go from the head of the queue that need no write, up to the first that does.
    fn let_clean_go(&mut self) -> usize {
        let (mut freed, most) = (Vec::new(), self.batch_pages());
        let first = self.inactive_source();
        while freed.len() < most
            && let Some(entry) = self.next_inactive_if(first, |entry| !self.must_be_looked_at(entry))
        {
            let Some(word) = self.engine.table.find(entry.page_number) else { continue };
            let Some(info) = self.try_lock(word) else {
                self.put(Queue::Inactive, entry);
                break;
            };
            match self.let_one_go(entry, word, info) {
                Ok(frame) => freed.push(frame),
                Err(info) => self.unlock(entry.page_number, word, info),
            }
        }
        self.settle_clean(&mut freed)
    }

    /// Neither stale nor known to be as its slot has it.
    fn must_be_looked_at(&self, entry: Entry) -> bool {
        self.engine.table.find(entry.page_number).is_some_and(|word| {
            let info = word.peek();
            is_queued_inactive(info, entry.generation)
                && !matches!(info.state, PageState::Inactive { is_clean: true, .. })
        })
    }

    /// Makes a locked page far if the entry speaks of it and it is as its slot has it; otherwise leaves it
    /// locked. Returns its frame, which is full until it is given back.
    pub(crate) fn let_one_go(
        &mut self,
        entry: Entry,
        word: PageWord<'_>,
        info: PageInfo,
    ) -> Result<u32, PageInfo> {
        let PageState::Inactive { frame, slot: Some(slot), is_clean: true } = info.state else {
            return Err(info);
        };
        if !is_queued_inactive(info, entry.generation) {
            return Err(info);
        }
        let page_number = entry.page_number;
        self.engine.note(|| Event::Left { how: Left::Clean, page_number, pages: 1 });
        self.note_use(page_number, false);
        self.note_left(page_number);
        self.unlock(page_number, word, gone(info, Some(slot), self.engine.departures.now()));
        Ok(frame)
    }

    /// Gives back what pages took that left as their slots have them. Returns how many they were.
    pub(crate) fn settle_clean(&mut self, freed: &mut Vec<u32>) -> usize {
        if freed.is_empty() {
            return 0;
        }
        self.engine.written_share.note(0, freed.len());
        self.at.run.count(Counter::CleanDrops, freed.len() as u64);
        self.give_back_frames(freed)
    }

    /// A page was touched while it was inactive: that is a use, as if the last of the scans had found it.
    pub(crate) fn note_re_reference(&self, page_number: u64) {
        if self.keeps_inactive() {
            self.engine.table.set_use(page_number, UseHistory::USED_LAST);
        }
    }

    /// The page needs no room: it is local.
    pub(crate) fn is_inactive(&self, page_number: u64) -> bool {
        let word = self.engine.table.find(page_number);
        word.is_some_and(|word| matches!(word.peek().state, PageState::Inactive { .. }))
    }
}
