//! Blocks: how many neighbouring pages are fetched at once.
//!
//! - [`Block::Streams`]: a block stretches where a fault says that the last one was used up to its end: the
//!   next fault comes behind it, past nothing but what is local. Each such fault but the first doubles the
//!   block; any other fault reduces it to a page, but for one amid the last block, whose page left before its
//!   turn. What was fetched for nothing is thereby at most what was fetched for use.
//! - [`Block::Elastic`]: dcm's, see [`crate::fault::elastic`].
//! - [`Block::Static`]: what is far of so many bytes, always, as the paper's systems of comparison have it.

use std::sync::atomic::Ordering;

use spillway_core::page_word::PageInfo;

use crate::fault::elastic::HeldBlock;
use crate::fault::streams::{LEAF_PAGES, Stream};
use crate::kernel::{Kernel, planted};
use crate::process::worker::Worker;
use crate::run::settings::Block;
use crate::run::state::Counter;

impl<K: Kernel> Worker<K> {
    /// Which pages to fetch for a fault on a far page, which is locked.
    pub(crate) fn block(&self, page_number: u64) -> HeldBlock {
        match self.at.settings.block {
            Block::Streams => self.stream_block(page_number),
            Block::Static(_) => {
                let pages = self.at.max_block_pages as u64;
                let start = page_number - page_number % pages;
                HeldBlock::of(start..start + pages)
            }
            Block::Elastic(_) => self.lock_block(page_number),
        }
    }

    /// What a tape has goes before what a stream has earned: the tape knows where the stream ends.
    fn stream_block(&self, page_number: u64) -> HeldBlock {
        let by_tape = self.foresee_by_tape(page_number).filter(|foreseen| !foreseen.is_empty());
        let block = match (by_tape, self.stream_pages(page_number)) {
            (Some(foreseen), _) => HeldBlock::foreseen(page_number, foreseen),
            (None, 1) => HeldBlock::foreseen(page_number, self.foresee(page_number)),
            (None, pages) => {
                let end = page_number + pages as u64;
                HeldBlock::of(page_number..self.end_before_stage(page_number, end))
            }
        };
        self.record_on_tape(page_number, block.pages.end);
        block
    }

    /// How many pages from this one on a fault may ask for at once.
    pub(crate) fn stream_pages(&self, page_number: u64) -> usize {
        let Some(stream) = self.stream_before(page_number) else { return 1 };
        let used = if stream.is_zeros { Counter::ZerosAheadUsed } else { Counter::PagesAheadUsed };
        self.at.run.count(used, stream.ahead_pages);
        stream.next_block_pages(self.at.max_block_pages as u64) as usize
    }

    /// The stream that a fault at this page goes on with: what is not far between it and the last block did
    /// not fault.
    fn stream_before(&self, page_number: u64) -> Option<Stream> {
        let goes_on = |stream: Stream, within: u64| {
            let gap = stream.gap(within)?;
            let stayed = (page_number - gap..page_number).all(|between| !self.is_far(between));
            stayed.then_some(stream)
        };
        let within = page_number % LEAF_PAGES;
        goes_on(self.stream(page_number), within).or_else(|| {
            // From the leaf before.
            goes_on(self.stream(page_number.checked_sub(LEAF_PAGES)?), within + LEAF_PAGES)
        })
    }

    fn stream(&self, page_number: u64) -> Stream {
        let word = self.engine.table.stream_of(page_number);
        word.map_or(Stream::default(), |word| Stream::unpack(word.load(Ordering::Relaxed)))
    }

    /// Notes that of a block this page and its far `followers` are fetched. Before the fault is answered: the
    /// next one may be served by another thread at once. Returns the block's end.
    pub(crate) fn note_block(
        &self,
        page_number: u64,
        block: &HeldBlock,
        followers: &[(u64, PageInfo)],
    ) -> u64 {
        let wanted = (block.pages.end - page_number) as usize;
        // What is foreseen lies elsewhere, and is no stream.
        let followers = if wanted == 1 { &[] } else { followers };
        let last = followers.last().map_or(page_number, |(last, _)| *last);
        self.note(page_number, wanted, last + 1 - page_number, followers.len(), false);
        last + 1
    }

    /// Notes that of `wanted` pages of zeros from `page_number` on `mapped` come.
    pub(crate) fn note_zeros(&self, page_number: u64, wanted: usize, mapped: usize) {
        self.note(page_number, wanted, mapped as u64, mapped - 1, true);
    }

    /// Notes that a whole range came in answer to one fault, of a stream of the largest blocks.
    pub(crate) fn note_range(&self, first_page: u64, pages: u64) {
        let last_block = (self.at.max_block_pages as u64).min(pages);
        self.note(first_page + pages - last_block, last_block as usize, last_block, 0, false);
    }

    fn note(&self, page_number: u64, wanted: usize, span_pages: u64, ahead_pages: usize, is_zeros: bool) {
        let Some(word) = self.engine.table.stream_of(page_number) else { return };
        let within = page_number % LEAF_PAGES;
        // A page of the last block that left before its turn breaks no stream.
        if wanted == 1 && Stream::unpack(word.load(Ordering::Relaxed)).holds(within) {
            return;
        }
        let (end, block_pages, ahead_pages) = (within + span_pages, wanted as u64, ahead_pages as u64);
        let is_proven = wanted > 1 || self.stream_before(page_number).is_some();
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
