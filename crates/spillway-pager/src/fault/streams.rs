//! What is known of a stream of faults: which way it goes, where its last block ended, and how long it was.

use std::ops::Range;

use spillway_core::page::PAGE_SHIFT;

use crate::run::settings::Block;

/// Pages in the largest block of a stream: 256 KiB.
pub const MAX_BLOCK_PAGES: usize = 64;

/// A stream is looked for so many blocks behind its last one.
const STAYED_BLOCKS: u64 = 4;

pub(crate) const LEAF_PAGES: u64 = 512;
const PART_MASK: u64 = 0xFFFF;
const PAGES_SHIFT: u32 = 16;
const AHEAD_SHIFT: u32 = 32;
const ZEROS_SHIFT: u32 = 48;
const PROVEN_SHIFT: u32 = 49;

/// Which way a stream goes. One that goes down is seen in a mirror: its leaf's last page is the first there,
/// so that all else is the same for both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From lower addresses to higher ones.
    #[default]
    Up,
    /// From higher addresses to lower ones.
    Down,
}

impl Direction {
    pub(crate) const BOTH: [Self; 2] = [Self::Up, Self::Down];

    /// Pages from where a page's leaf begins for such a stream.
    pub(crate) fn within(self, page_number: u64) -> u64 {
        let within = page_number % LEAF_PAGES;
        match self {
            Self::Up => within,
            Self::Down => LEAF_PAGES - 1 - within,
        }
    }

    /// The page that such a stream comes to so many pages sooner.
    pub(crate) fn sooner(self, page_number: u64, pages: u64) -> Option<u64> {
        match self {
            Self::Up => page_number.checked_sub(pages),
            Self::Down => page_number.checked_add(pages),
        }
    }

    /// The block of so many pages of which a page comes first.
    pub(crate) fn block(self, page_number: u64, pages: u64) -> Range<u64> {
        match self {
            Self::Up => page_number..page_number + pages,
            Self::Down => (page_number + 1).saturating_sub(pages)..page_number + 1,
        }
    }
}

/// Where the last block in a leaf ended, and how long it was: fetched, or mapped for the first time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stream {
    /// Pages from the leaf's start, by [`Direction::within`]; it may lie in the next leaf.
    pub(crate) end: u64,
    /// Length of the last block.
    pub(crate) block_pages: u64,
    /// Pages of the block that no fault had asked for.
    pub(crate) ahead_pages: u64,
    /// They were never written: see [`crate::fault::zeros`].
    pub(crate) is_zeros: bool,
    /// The block itself went on with another. One fault behind another is no stream yet: an object that lies
    /// across two pages makes as much.
    pub(crate) is_proven: bool,
}

impl Stream {
    pub(crate) fn unpack(word: u64) -> Self {
        let part = |shift: u32| word >> shift & PART_MASK;
        let (is_zeros, is_proven) = (word >> ZEROS_SHIFT & 1 != 0, word >> PROVEN_SHIFT & 1 != 0);
        let (end, block_pages, ahead_pages) = (part(0), part(PAGES_SHIFT), part(AHEAD_SHIFT));
        Self { end, block_pages, ahead_pages, is_zeros, is_proven }
    }

    pub(crate) fn pack(self) -> u64 {
        let flags = u64::from(self.is_zeros) << ZEROS_SHIFT | u64::from(self.is_proven) << PROVEN_SHIFT;
        self.end | self.block_pages << PAGES_SHIFT | self.ahead_pages << AHEAD_SHIFT | flags
    }

    /// The block that goes on with this stream, at most `most` pages.
    pub(crate) fn next_block_pages(self, most: u64) -> u64 {
        if self.is_proven { (self.block_pages * 2).min(most) } else { 1 }
    }

    /// How far behind the last block's end a page lies, if not too far for what happened to stay local in
    /// between.
    pub(crate) fn gap(self, within: u64) -> Option<u64> {
        let longest = self.block_pages.checked_sub(1)? * STAYED_BLOCKS;
        within.checked_sub(self.end).filter(|&gap| gap <= longest)
    }

    /// Whether the last block holds a page.
    pub(crate) fn holds(self, within: u64) -> bool {
        within < self.end && self.end - within <= self.block_pages
    }
}

/// Pages in the largest block under a limit. Several blocks must fit, or one would push out what it brings;
/// and each thread of the pager has room for one.
#[must_use]
pub fn max_block_pages(block: Block, limit_pages: u64) -> usize {
    match block {
        Block::Streams => (limit_pages / 128).clamp(1, MAX_BLOCK_PAGES as u64) as usize,
        Block::Elastic(size) | Block::Static(size) => {
            let most = (limit_pages / 16).max(1);
            (size.bytes() >> PAGE_SHIFT).min(1 << most.ilog2()) as usize
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spillway_core::size::Size;

    #[test]
    fn a_block_is_as_large_as_asked_or_as_the_limit_lets_it_be() {
        let pages =
            |kib: u64, limit_pages| max_block_pages(Block::Static(Size::from_bytes(kib << 10)), limit_pages);
        assert_eq!((pages(4, 1024), pages(64, 1024), pages(2048, 1 << 20)), (1, 16, 512));
        assert_eq!(pages(2048, 1024 + 512), 64);
        assert_eq!(max_block_pages(Block::Streams, 1 << 20), MAX_BLOCK_PAGES);
        assert_eq!((max_block_pages(Block::PAPER, 1 << 20), max_block_pages(Block::PAPER, 128)), (16, 8));
    }

    #[test]
    fn a_stream_that_goes_down_is_one_that_goes_up_in_a_mirror() {
        let (up, down) = (Direction::Up, Direction::Down);
        assert_eq!((up.within(1024 + 5), down.within(1024 + 5), down.within(1535)), (5, 506, 0));
        assert_eq!((up.sooner(7, 3), down.sooner(7, 3), up.sooner(2, 3)), (Some(4), Some(10), None));
        assert_eq!((up.block(70, 4), down.block(70, 4), down.block(1, 4)), (70..74, 67..71, 0..2));
        // Whichever way it goes, the page behind a block is its end.
        for direction in Direction::BOTH {
            let block = direction.block(700, 8);
            let behind = if direction == up { block.end } else { block.start - 1 };
            assert_eq!(direction.within(behind), direction.within(700) + 8);
            assert_eq!(direction.sooner(behind, 8), Some(700));
        }
    }

    #[test]
    fn a_block_doubles_where_the_last_one_was_used_up_and_falls_back_elsewhere() {
        let mut stream = Stream::default();
        let mut at = 7;
        let mut blocks = Vec::new();
        for _ in 0..10 {
            let goes_on = stream.gap(at).is_some();
            let pages = if goes_on { stream.next_block_pages(64) } else { 1 };
            let is_zeros = pages % 4 == 0;
            let (end, is_proven) = (at + pages, goes_on);
            let noted = Stream { end, block_pages: pages, ahead_pages: pages - 1, is_zeros, is_proven };
            stream = Stream::unpack(noted.pack());
            assert_eq!(stream, noted);
            blocks.push(pages);
            at += pages;
        }
        assert_eq!(blocks, [1, 1, 2, 4, 8, 16, 32, 64, 64, 64]);
        let gap = |within| stream.gap(within);
        assert_eq!((gap(at - 1), gap(at), gap(at + 252), gap(at + 253)), (None, Some(0), Some(252), None));
        let single = Stream { end: 8, block_pages: 1, ..Stream::default() };
        assert_eq!((single.gap(8), single.gap(9), Stream::default().gap(0)), (Some(0), None, None));
        let holds = |within| stream.holds(within);
        assert!(holds(at - 1) && holds(at - 64) && !holds(at) && !holds(at - 65));
    }
}
