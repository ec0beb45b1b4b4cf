//! Blocks: how many neighbouring pages are fetched at once.
//!
//! - [`Block::Streams`]: as many as faults have earned that come one behind the other, by the types that a
//!   replay runs too ([`spillway_policy::streams`]).
//! - [`Block::Elastic`]: dcm's, see [`crate::fault::elastic`].
//! - [`Block::Static`]: what is far of so many bytes, always, as the paper's systems of comparison have it.

use std::ops::Range;

use spillway_core::page_word::PageInfo;
use spillway_policy::blocks::static_block;
use spillway_policy::fault_trace::{Purpose, TracedStreams};
use spillway_policy::streams::{Coming, Direction, Earned, Streams};

use crate::fault::elastic::HeldBlock;
use crate::kernel::{Kernel, planted};
use crate::pages::table::PageTable;
use crate::process::worker::Worker;
use crate::run::settings::Block;
use crate::run::state::Counter;

impl<K: Kernel> Worker<K> {
    /// Which pages to fetch for a fault on a far page of a store, which is locked.
    pub(crate) fn block(&self, page_number: u64, store: usize) -> HeldBlock {
        match self.at.settings.block {
            Block::Streams => self.stream_block(page_number, store),
            Block::Static(_) => HeldBlock::of(static_block(page_number, self.at.max_block_pages as u64)),
            Block::Elastic(_) => self.lock_block(page_number, Purpose::Fetch),
        }
    }

    /// What a tape has goes before what a stream has earned: the tape knows where the stream ends.
    fn stream_block(&self, page_number: u64, store: usize) -> HeldBlock {
        let by_tape = self.foresee_by_tape(page_number).filter(|foreseen| !foreseen.is_empty());
        let is_far = |page_number| self.is_far(page_number);
        let earned = self.with_streams(|streams| streams.earned(page_number, is_far));
        self.count_earned(earned);
        let Earned { direction, pages, .. } = earned;
        let block = match (by_tape, pages) {
            (Some(foreseen), _) => HeldBlock::foreseen(page_number, foreseen),
            (None, 1) => HeldBlock::foreseen(page_number, self.foresee(page_number, store)),
            (None, pages) => {
                let pages = direction.block(page_number, pages);
                HeldBlock::along(direction, self.before_stage(pages, direction))
            }
        };
        self.record_on_tape(page_number, &block);
        block
    }

    /// How many pages of zeros from this one on a fault may ask for at once.
    pub(crate) fn stream_of_zeros(&self, page_number: u64) -> usize {
        let (is_far, up) = (|page_number| self.is_far(page_number), Direction::Up);
        let earned = self.with_streams(|streams| streams.earned_along(page_number, up, is_far));
        self.count_earned(earned);
        earned.pages as usize
    }

    fn count_earned(&self, earned: Earned) {
        self.at.run.count(Counter::PagesAheadUsed, earned.used_pages);
        self.at.run.count(Counter::ZerosAheadUsed, earned.used_zeros);
    }

    /// Asks of streams: written down where that is done. The caller does not hold the queues' lock.
    fn with_streams<T>(&self, ask: impl FnOnce(&mut TracedStreams<'_, &'static PageTable>) -> T) -> T {
        let mut trace = self.engine.trace();
        let streams = Streams::over(&self.engine.table, self.at.max_block_pages as u64);
        ask(&mut TracedStreams { streams, trace: trace.as_deref_mut() })
    }

    /// Notes that of a block this page and its far `followers` are fetched. Before the fault is answered: the
    /// next one may be served by another thread at once. Returns the pages from its first to its last.
    pub(crate) fn note_block(
        &self,
        page_number: u64,
        block: &HeldBlock,
        followers: &[(u64, PageInfo)],
    ) -> Range<u64> {
        let wanted_pages = block.pages.end - block.pages.start;
        let direction = block.direction;
        let furthest = match direction {
            Direction::Up => followers.last(),
            Direction::Down => followers.first(),
        };
        // What is foreseen lies elsewhere, and is no stream.
        let (span_pages, ahead_pages) = match furthest {
            Some((furthest, _)) if wanted_pages > 1 => {
                (furthest.abs_diff(page_number) + 1, followers.len() as u64)
            }
            _ => (1, 0),
        };
        let coming =
            Coming { page_number, direction, wanted_pages, span_pages, ahead_pages, is_zeros: false };
        self.with_streams(|streams| streams.note(&coming, |page_number| self.is_far(page_number)));
        direction.block(page_number, span_pages)
    }

    /// Notes that of `wanted` pages of zeros from `page_number` on `mapped` come.
    pub(crate) fn note_zeros(&self, page_number: u64, wanted: usize, mapped: usize) {
        let (wanted_pages, span_pages) = (wanted as u64, mapped as u64);
        self.note_along(Coming {
            page_number,
            direction: Direction::Up,
            wanted_pages,
            span_pages,
            ahead_pages: span_pages - 1,
            is_zeros: true,
        });
    }

    /// Notes that a whole range came in answer to one fault, of a stream of the largest blocks.
    pub(crate) fn note_range(&self, first_page: u64, pages: u64, direction: Direction) {
        let wanted_pages = (self.at.max_block_pages as u64).min(pages);
        let page_number = match direction {
            Direction::Up => first_page + pages - wanted_pages,
            Direction::Down => first_page + wanted_pages - 1,
        };
        let (span_pages, ahead_pages, is_zeros) = (wanted_pages, 0, false);
        self.note_along(Coming { page_number, direction, wanted_pages, span_pages, ahead_pages, is_zeros });
    }

    fn note_along(&self, coming: Coming) {
        self.with_streams(|streams| streams.note_along(&coming, |page_number| self.is_far(page_number)));
    }

    pub(crate) fn is_far(&self, page_number: u64) -> bool {
        self.engine.table.find(page_number).is_some_and(|word| word.peek().is_far())
    }

    /// Locks the other far pages of a page's block that lie on the same store, in the order in which they are
    /// wanted. What is local already or busy is passed over.
    pub(crate) fn lock_followers(
        &self,
        page_number: u64,
        store: usize,
        block: &HeldBlock,
    ) -> Vec<(u64, PageInfo)> {
        let mut followers = Vec::with_capacity(block.wanted() - 1);
        for follower in block.others(page_number) {
            let Some(word) = self.engine.table.find(follower) else { continue };
            if !word.peek().is_far() {
                continue;
            }
            let waits = planted!(K, "taped-waited-for") && block.foreseen.is_by_tape;
            let Some(info) = (if waits { Some(self.lock(word)) } else { self.try_lock(word) }) else {
                continue;
            };
            let here = info.slot().is_some_and(|slot| self.at.store_of(slot) == Some(store));
            if info.is_far() && here {
                followers.push((follower, info));
            } else {
                self.unlock(follower, word, info);
            }
        }
        followers
    }
}
