//! Blocks: how many neighbouring pages are fetched at once.
//!
//! - [`Block::Streams`]: a block stretches where a fault says that the last one was used up to its end: the
//!   next fault comes behind it, past nothing but what is local. Each such fault but the first doubles the
//!   block; any other fault reduces it to a page, but for one amid the last block, whose page left before its
//!   turn. What was fetched for nothing is thereby at most what was fetched for use. Streams go up or down; a
//!   fault that goes on with one of each goes on with that of the longer block.
//! - [`Block::Elastic`]: dcm's, see [`crate::fault::elastic`].
//! - [`Block::Static`]: what is far of so many bytes, always, as the paper's systems of comparison have it.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use spillway_core::page_word::PageInfo;

use crate::fault::elastic::HeldBlock;
use crate::fault::streams::{Direction, LEAF_PAGES, Stream};
use crate::kernel::{Kernel, planted};
use crate::process::worker::Worker;
use crate::run::settings::Block;
use crate::run::state::Counter;

impl<K: Kernel> Worker<K> {
    /// Which pages to fetch for a fault on a far page of a store, which is locked.
    pub(crate) fn block(&self, page_number: u64, store: usize) -> HeldBlock {
        match self.at.settings.block {
            Block::Streams => self.stream_block(page_number, store),
            Block::Static(_) => {
                let pages = self.at.max_block_pages as u64;
                let start = page_number - page_number % pages;
                HeldBlock::of(start..start + pages)
            }
            Block::Elastic(_) => self.lock_block(page_number),
        }
    }

    /// What a tape has goes before what a stream has earned: the tape knows where the stream ends.
    fn stream_block(&self, page_number: u64, store: usize) -> HeldBlock {
        let by_tape = self.foresee_by_tape(page_number).filter(|foreseen| !foreseen.is_empty());
        let along = Direction::BOTH.map(|direction| self.stream_pages(page_number, direction));
        let direction = Direction::BOTH[usize::from(along[1] > along[0])];
        let block = match (by_tape, along[direction as usize]) {
            (Some(foreseen), _) => HeldBlock::foreseen(page_number, foreseen),
            (None, 1) => HeldBlock::foreseen(page_number, self.foresee(page_number, store)),
            (None, pages) => {
                let pages = direction.block(page_number, pages as u64);
                HeldBlock::along(direction, self.before_stage(pages, direction))
            }
        };
        self.record_on_tape(page_number, &block);
        block
    }

    /// How many pages from this one on a fault may ask for at once.
    pub(crate) fn stream_pages(&self, page_number: u64, direction: Direction) -> usize {
        let Some(stream) = self.stream_before(page_number, direction) else { return 1 };
        let used = if stream.is_zeros { Counter::ZerosAheadUsed } else { Counter::PagesAheadUsed };
        self.at.run.count(used, stream.ahead_pages);
        stream.next_block_pages(self.at.max_block_pages as u64) as usize
    }

    /// The stream that a fault at this page goes on with: what is not far between it and the last block did
    /// not fault.
    fn stream_before(&self, page_number: u64, direction: Direction) -> Option<Stream> {
        let goes_on = |stream: Stream, within: u64| {
            let gap = stream.gap(within)?;
            let between = |sooner| direction.sooner(page_number, sooner);
            let stayed = (1..=gap).all(|sooner| between(sooner).is_none_or(|page| !self.is_far(page)));
            stayed.then_some(stream)
        };
        let within = direction.within(page_number);
        goes_on(self.stream(page_number, direction), within).or_else(|| {
            // From the leaf before.
            let before = direction.sooner(page_number, LEAF_PAGES)?;
            goes_on(self.stream(before, direction), within + LEAF_PAGES)
        })
    }

    fn stream_word(&self, page_number: u64, direction: Direction) -> Option<&AtomicU64> {
        match direction {
            Direction::Up => self.engine.table.stream_of(page_number),
            Direction::Down => self.engine.table.downward_stream_of(page_number),
        }
    }

    fn stream(&self, page_number: u64, direction: Direction) -> Stream {
        let word = self.stream_word(page_number, direction);
        word.map_or(Stream::default(), |word| Stream::unpack(word.load(Ordering::Relaxed)))
    }

    /// Notes that of a block this page and its far `followers` are fetched. Before the fault is answered: the
    /// next one may be served by another thread at once. Returns the pages from its first to its last.
    pub(crate) fn note_block(
        &self,
        page_number: u64,
        block: &HeldBlock,
        followers: &[(u64, PageInfo)],
    ) -> Range<u64> {
        let wanted = (block.pages.end - block.pages.start) as usize;
        if wanted == 1 {
            // What is foreseen lies elsewhere, and is no stream. What comes next tells which way it goes.
            for direction in Direction::BOTH {
                self.note(page_number, direction, 1, 1, 0, false);
            }
            return block.pages.clone();
        }
        let furthest = match block.direction {
            Direction::Up => followers.last(),
            Direction::Down => followers.first(),
        };
        let span_pages = furthest.map_or(1, |(furthest, _)| furthest.abs_diff(page_number) + 1);
        self.note(page_number, block.direction, wanted, span_pages, followers.len(), false);
        block.direction.block(page_number, span_pages)
    }

    /// Notes that of `wanted` pages of zeros from `page_number` on `mapped` come.
    pub(crate) fn note_zeros(&self, page_number: u64, wanted: usize, mapped: usize) {
        self.note(page_number, Direction::Up, wanted, mapped as u64, mapped - 1, true);
    }

    /// Notes that a whole range came in answer to one fault, of a stream of the largest blocks.
    pub(crate) fn note_range(&self, first_page: u64, pages: u64, direction: Direction) {
        let last_block = (self.at.max_block_pages as u64).min(pages);
        let page_number = match direction {
            Direction::Up => first_page + pages - last_block,
            Direction::Down => first_page + last_block - 1,
        };
        self.note(page_number, direction, last_block as usize, last_block, 0, false);
    }

    fn note(
        &self,
        page_number: u64,
        direction: Direction,
        wanted: usize,
        span_pages: u64,
        ahead_pages: usize,
        is_zeros: bool,
    ) {
        let Some(word) = self.stream_word(page_number, direction) else { return };
        let within = direction.within(page_number);
        // A page of the last block that left before its turn breaks no stream.
        if wanted == 1 && Stream::unpack(word.load(Ordering::Relaxed)).holds(within) {
            return;
        }
        let (end, block_pages, ahead_pages) = (within + span_pages, wanted as u64, ahead_pages as u64);
        let is_proven = wanted > 1 || self.stream_before(page_number, direction).is_some();
        let stream = Stream { end, block_pages, ahead_pages, is_zeros, is_proven };
        word.store(stream.pack(), Ordering::Relaxed);
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
