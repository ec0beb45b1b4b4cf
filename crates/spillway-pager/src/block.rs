//! Blocks: how many neighbouring pages are fetched at once.
//!
//! dcm (section 4) stretches a block when its buddy is local too, and reduces it when less than half of it was used,
//! which it learns from accessed bits. A process cannot see these. So a block stretches where a fault says that the last
//! one was used up to its end: the next fault comes behind it, past nothing but what is local. Each such fault doubles the
//! block; any other fault reduces it to a page, but for one amid the last block, whose page left before its turn. What was
//! fetched for nothing is thereby at most what was fetched for use. Static blocks, as the paper's systems of comparison
//! have them, are always fetched whole.

use std::ops::Range;
use std::sync::atomic::Ordering;

use spillway_core::page::PAGE_SHIFT;
use spillway_core::page_word::{PageInfo, State};

use crate::engine::Worker;
use crate::run_state::Counter;
use crate::settings::Block;

/// Pages in the largest block: 256 KiB.
pub const MAX_BLOCK_PAGES: usize = 64;

/// A stream is looked for so many blocks behind its last one.
const STAYED_BLOCKS: u64 = 4;

const LEAF_PAGES: u64 = 512;
const PART_MASK: u64 = 0xFFFF;
const PAGES_SHIFT: u32 = 16;
const AHEAD_SHIFT: u32 = 32;
const ZEROS_SHIFT: u32 = 48;

/// Where the last block in a leaf ended, and how long it was: fetched, or mapped for the first time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Stream {
    /// Pages from the leaf's start; it may lie in the next leaf.
    end: u64,
    block_pages: u64,
    /// Pages of the block that no fault had asked for.
    ahead_pages: u64,
    /// They were never written: see [`crate::zeros`].
    is_zeros: bool,
}

impl Stream {
    fn unpack(word: u64) -> Self {
        let part = |shift: u32| word >> shift & PART_MASK;
        let is_zeros = part(ZEROS_SHIFT) != 0;
        Self { end: part(0), block_pages: part(PAGES_SHIFT), ahead_pages: part(AHEAD_SHIFT), is_zeros }
    }

    fn pack(self) -> u64 {
        let is_zeros = u64::from(self.is_zeros) << ZEROS_SHIFT;
        self.end | self.block_pages << PAGES_SHIFT | self.ahead_pages << AHEAD_SHIFT | is_zeros
    }

    /// The block that goes on with this stream, at most `most` pages.
    fn next_block_pages(self, most: u64) -> u64 {
        (self.block_pages * 2).min(most)
    }

    /// How far behind the last block's end a page lies, if not too far for what happened to stay local in between.
    fn gap(self, within: u64) -> Option<u64> {
        let longest = self.block_pages.checked_sub(1)? * STAYED_BLOCKS;
        within.checked_sub(self.end).filter(|&gap| gap <= longest)
    }

    /// Whether the last block holds a page.
    fn holds(self, within: u64) -> bool {
        within < self.end && self.end - within <= self.block_pages
    }
}

/// Pages in the largest block under a limit. Several blocks must fit, or one would push out what it brings; and each thread of
/// the pager has room for one.
#[must_use]
pub fn max_block_pages(block: Block, limit_pages: u64) -> usize {
    match block {
        Block::Elastic => (limit_pages / 128).clamp(1, MAX_BLOCK_PAGES as u64) as usize,
        Block::Static(size) => {
            let most = (limit_pages / 16).max(1);
            (size.bytes() >> PAGE_SHIFT).min(1 << most.ilog2()) as usize
        }
    }
}

impl Worker {
    /// Which pages to fetch for a fault on a far page.
    pub(crate) fn block(&self, page_number: u64) -> Range<u64> {
        match self.at.settings.block {
            Block::Elastic => page_number..page_number + self.elastic_pages(page_number) as u64,
            Block::Static(_) => {
                let pages = self.at.max_block_pages as u64;
                let start = page_number - page_number % pages;
                start..start + pages
            }
        }
    }

    /// How many pages from this one on a fault may ask for at once.
    pub(crate) fn elastic_pages(&self, page_number: u64) -> usize {
        let Some(stream) = self.stream_before(page_number) else { return 1 };
        let used = if stream.is_zeros { Counter::ZerosAheadUsed } else { Counter::PagesAheadUsed };
        self.at.run.count(used, stream.ahead_pages);
        stream.next_block_pages(self.at.max_block_pages as u64) as usize
    }

    /// The stream that a fault at this page goes on with: what is not far between it and the last block did not fault.
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

    /// Notes that of a block of `wanted` pages from `page_number` on this page and its far `followers` are fetched. Before
    /// the fault is answered: the next one may be served by another thread at once. Returns the block's end.
    pub(crate) fn note_block(&self, page_number: u64, wanted: usize, followers: &[(u64, PageInfo)]) -> u64 {
        let last = followers.last().map_or(page_number, |(last, _)| *last);
        self.note(page_number, wanted, last + 1 - page_number, followers.len(), false);
        last + 1
    }

    /// Notes that of `wanted` pages of zeros from `page_number` on `mapped` come.
    pub(crate) fn note_zeros(&self, page_number: u64, wanted: usize, mapped: usize) {
        self.note(page_number, wanted, mapped as u64, mapped - 1, true);
    }

    fn note(&self, page_number: u64, wanted: usize, span_pages: u64, ahead_pages: usize, is_zeros: bool) {
        let Some(word) = self.engine.table.stream_of(page_number) else { return };
        let within = page_number % LEAF_PAGES;
        // A page of the last block that left before its turn breaks no stream.
        if wanted == 1 && Stream::unpack(word.load(Ordering::Relaxed)).holds(within) {
            return;
        }
        let (end, block_pages, ahead_pages) = (within + span_pages, wanted as u64, ahead_pages as u64);
        let stream = Stream { end, block_pages, ahead_pages, is_zeros };
        word.store(stream.pack(), Ordering::Relaxed);
    }

    pub(crate) fn is_far(&self, page_number: u64) -> bool {
        self.engine.table.find(page_number).is_some_and(|word| word.peek().state == State::Far)
    }

    /// Locks the other far pages of a page's block that lie on the same store, those behind it first. What is local
    /// already or busy is passed over.
    pub(crate) fn lock_followers(
        &self,
        page_number: u64,
        store: usize,
        block: &Range<u64>,
    ) -> Vec<(u64, PageInfo)> {
        let mut followers = Vec::with_capacity((block.end - block.start) as usize - 1);
        for follower in (page_number + 1..block.end).chain(block.start..page_number) {
            let Some(word) = self.engine.table.find(follower) else { continue };
            if word.peek().state != State::Far {
                continue;
            }
            let Some(info) = word.try_lock() else { continue };
            let here = info.slot.is_some_and(|slot| self.at.store_of(slot) == Some(store));
            if info.state == State::Far && here {
                followers.push((follower, info));
            } else {
                self.unlock(follower, word, info);
            }
        }
        followers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spillway_core::size::Size;

    #[test]
    fn a_static_block_is_as_large_as_asked_or_as_the_limit_lets_it_be() {
        let pages =
            |kib: u64, limit_pages| max_block_pages(Block::Static(Size::from_bytes(kib << 10)), limit_pages);
        assert_eq!((pages(4, 1024), pages(64, 1024), pages(2048, 1 << 20)), (1, 16, 512));
        assert_eq!(pages(2048, 1024 + 512), 64);
        assert_eq!(max_block_pages(Block::Elastic, 1 << 20), MAX_BLOCK_PAGES);
    }

    #[test]
    fn a_block_doubles_where_the_last_one_was_used_up_and_falls_back_elsewhere() {
        let mut stream = Stream::default();
        let mut at = 7;
        let mut blocks = Vec::new();
        for _ in 0..9 {
            let pages = stream.gap(at).map_or(1, |_| stream.next_block_pages(64));
            let is_zeros = pages % 4 == 0;
            let noted = Stream { end: at + pages, block_pages: pages, ahead_pages: pages - 1, is_zeros };
            stream = Stream::unpack(noted.pack());
            assert_eq!(stream, noted);
            blocks.push(pages);
            at += pages;
        }
        assert_eq!(blocks, [1, 2, 4, 8, 16, 32, 64, 64, 64]);
        let gap = |within| stream.gap(within);
        assert_eq!((gap(at - 1), gap(at), gap(at + 252), gap(at + 253)), (None, Some(0), Some(252), None));
        let single = Stream { end: 8, block_pages: 1, ahead_pages: 0, is_zeros: false };
        assert_eq!((single.gap(8), single.gap(9), Stream::default().gap(0)), (Some(0), None, None));
        let holds = |within| stream.holds(within);
        assert!(holds(at - 1) && holds(at - 64) && !holds(at) && !holds(at - 65));
    }
}
