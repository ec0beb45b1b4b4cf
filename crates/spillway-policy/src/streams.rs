//! Streams of faults: which neighbours are fetched with a page because faults have come one behind the other.
//!
//! A block stretches where a fault says that the last one was used up to its end: the next fault comes behind
//! it, past nothing but what is local. Each such fault but the first doubles the block; any other fault
//! reduces it to a page, but for one amid the last block, whose page left before its turn. What was fetched
//! for nothing is thereby at most what was fetched for use. Streams go up or down; a fault that goes on with
//! one of each goes on with that of the longer block.
//!
//! What is known of a stream is a word for each [`LEAF_PAGES`] pages and direction. Where the words lie is
//! the caller's ([`Places`]); what was far is asked of the caller too. No I/O, no clock, no allocation: a
//! fault may ask.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;

/// Pages in the largest block of a stream: 256 KiB.
pub const MAX_BLOCK_PAGES: usize = 64;

/// Pages that share what is known of streams: 2 MiB.
pub const LEAF_PAGES: u64 = 512;

/// A stream is looked for so many blocks behind its last one.
const STAYED_BLOCKS: u64 = 4;

const PART_MASK: u64 = 0xFFFF;
const PAGES_SHIFT: u32 = 16;
const AHEAD_SHIFT: u32 = 32;
const ZEROS_SHIFT: u32 = 48;
const PROVEN_SHIFT: u32 = 49;

/// Which way a stream goes. One that goes down is seen in a mirror: its leaf's last page is the first there,
/// so that all else is the same for both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From lower addresses to higher ones.
    #[default]
    Up,
    /// From higher addresses to lower ones.
    Down,
}

impl Direction {
    /// Both of them, upwards first.
    pub const BOTH: [Self; 2] = [Self::Up, Self::Down];

    /// Pages from where a page's leaf begins for such a stream.
    #[must_use]
    pub fn within(self, page_number: u64) -> u64 {
        let within = page_number % LEAF_PAGES;
        match self {
            Self::Up => within,
            Self::Down => LEAF_PAGES - 1 - within,
        }
    }

    /// The page that such a stream comes to so many pages sooner.
    #[must_use]
    pub fn sooner(self, page_number: u64, pages: u64) -> Option<u64> {
        match self {
            Self::Up => page_number.checked_sub(pages),
            Self::Down => page_number.checked_add(pages),
        }
    }

    /// The block of so many pages of which a page comes first.
    #[must_use]
    pub fn block(self, page_number: u64, pages: u64) -> Range<u64> {
        match self {
            Self::Up => page_number..page_number.saturating_add(pages),
            Self::Down => (page_number + 1).saturating_sub(pages)..page_number + 1,
        }
    }
}

/// Where the last block in a leaf ended, and how long it was: fetched, or mapped for the first time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stream {
    /// Pages from the leaf's start, by [`Direction::within`]; it may lie in the next leaf.
    end: u64,
    /// Length of the last block.
    block_pages: u64,
    /// Pages of the block that no fault had asked for.
    ahead_pages: u64,
    /// They were never written.
    is_zeros: bool,
    /// The block itself went on with another. One fault behind another is no stream yet: an object that lies
    /// across two pages makes as much.
    is_proven: bool,
}

impl Stream {
    fn unpack(word: u64) -> Self {
        let part = |shift: u32| word >> shift & PART_MASK;
        let (is_zeros, is_proven) = (word >> ZEROS_SHIFT & 1 != 0, word >> PROVEN_SHIFT & 1 != 0);
        let (end, block_pages, ahead_pages) = (part(0), part(PAGES_SHIFT), part(AHEAD_SHIFT));
        Self { end, block_pages, ahead_pages, is_zeros, is_proven }
    }

    fn pack(self) -> u64 {
        let flags = u64::from(self.is_zeros) << ZEROS_SHIFT | u64::from(self.is_proven) << PROVEN_SHIFT;
        self.end | self.block_pages << PAGES_SHIFT | self.ahead_pages << AHEAD_SHIFT | flags
    }

    /// The block that goes on with this stream, at most `most` pages.
    fn next_block_pages(self, most: u64) -> u64 {
        if self.is_proven { (self.block_pages * 2).min(most) } else { 1 }
    }

    /// How far behind the last block's end a page lies, if not too far for what happened to stay local in
    /// between.
    fn gap(self, within: u64) -> Option<u64> {
        let longest = self.block_pages.checked_sub(1)? * STAYED_BLOCKS;
        within.checked_sub(self.end).filter(|&gap| gap <= longest)
    }

    /// Whether the last block holds a page.
    fn holds(self, within: u64) -> bool {
        within < self.end && self.end - within <= self.block_pages
    }
}

/// Where what is known of streams lies: a word for each leaf and direction. Threads may look and change at
/// once, which costs time and nothing else.
pub trait Places {
    /// The word of a page's leaf; 0 where nothing is known of it.
    fn load(&self, page_number: u64, direction: Direction) -> u64;
    /// Changes the word of a page's leaf, if it has one.
    fn store(&self, page_number: u64, direction: Direction, word: u64);
}

impl<P: Places> Places for &P {
    fn load(&self, page_number: u64, direction: Direction) -> u64 {
        (*self).load(page_number, direction)
    }

    fn store(&self, page_number: u64, direction: Direction, word: u64) {
        (*self).store(page_number, direction, word);
    }
}

/// What a fault may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Earned {
    /// Which way its stream goes.
    pub direction: Direction,
    /// Pages from the one that faulted on; 1 where it goes on with no stream.
    pub pages: u64,
    /// Pages that came ahead with blocks before, and that this fault shows to have been used.
    pub used_pages: u64,
    /// The same for pages of zeros.
    pub used_zeros: u64,
}

/// Pages that come together, to be noted before the fault is answered: the next one may be served at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coming {
    /// The page that faulted.
    pub page_number: u64,
    /// Which way its stream goes.
    pub direction: Direction,
    /// Pages that were asked for; 1 where there is no stream.
    pub wanted_pages: u64,
    /// Pages from the one that faulted to the last of them that comes.
    pub span_pages: u64,
    /// Pages that come and that no fault has asked for.
    pub ahead_pages: u64,
    /// They were never written.
    pub is_zeros: bool,
}

/// The streams of faults that are known.
pub struct Streams<P> {
    places: P,
    most_pages: u64,
}

impl<P: Places> Streams<P> {
    /// The streams that `places` tell of; blocks have at most `most_pages`.
    pub const fn over(places: P, most_pages: u64) -> Self {
        Self { places, most_pages }
    }

    /// What a fault at a page may ask for.
    pub fn earned(&self, page_number: u64, is_far: impl Fn(u64) -> bool) -> Earned {
        let [up, down] = Direction::BOTH.map(|direction| self.earned_along(page_number, direction, &is_far));
        let longer = if down.pages > up.pages { down } else { up };
        let (used_pages, used_zeros) = (up.used_pages + down.used_pages, up.used_zeros + down.used_zeros);
        Earned { used_pages, used_zeros, ..longer }
    }

    /// What a fault at a page may ask for, by the streams of one direction.
    pub fn earned_along(
        &self,
        page_number: u64,
        direction: Direction,
        is_far: impl Fn(u64) -> bool,
    ) -> Earned {
        let none = Earned { direction, pages: 1, used_pages: 0, used_zeros: 0 };
        let Some(stream) = self.stream_before(page_number, direction, is_far) else { return none };
        let pages = stream.next_block_pages(self.most_pages);
        match stream.is_zeros {
            true => Earned { pages, used_zeros: stream.ahead_pages, ..none },
            false => Earned { pages, used_pages: stream.ahead_pages, ..none },
        }
    }

    /// The stream that a fault at this page goes on with: what is not far between it and the last block did
    /// not fault.
    fn stream_before(
        &self,
        page_number: u64,
        direction: Direction,
        is_far: impl Fn(u64) -> bool,
    ) -> Option<Stream> {
        let goes_on = |stream: Stream, within: u64| {
            let gap = stream.gap(within)?;
            let between = |sooner| direction.sooner(page_number, sooner);
            let stayed = (1..=gap).all(|sooner| between(sooner).is_none_or(|page| !is_far(page)));
            stayed.then_some(stream)
        };
        let within = direction.within(page_number);
        goes_on(self.stream(page_number, direction), within).or_else(|| {
            // From the leaf before.
            let before = direction.sooner(page_number, LEAF_PAGES)?;
            goes_on(self.stream(before, direction), within + LEAF_PAGES)
        })
    }

    fn stream(&self, page_number: u64, direction: Direction) -> Stream {
        Stream::unpack(self.places.load(page_number, direction))
    }

    /// Notes which pages come. A single page is no stream: what comes next tells which way it goes.
    pub fn note(&self, coming: &Coming, is_far: impl Fn(u64) -> bool) {
        if coming.wanted_pages > 1 {
            self.note_along(coming, &is_far);
            return;
        }
        for direction in Direction::BOTH {
            let single = Coming { direction, span_pages: 1, ahead_pages: 0, ..*coming };
            self.note_along(&single, &is_far);
        }
    }

    /// Notes which pages come, for the streams of one direction.
    pub fn note_along(&self, coming: &Coming, is_far: impl Fn(u64) -> bool) {
        let &Coming { page_number, direction, span_pages, ahead_pages, is_zeros, .. } = coming;
        let within = direction.within(page_number);
        let is_single = coming.wanted_pages == 1;
        // A page of the last block that left before its turn breaks no stream.
        if is_single && self.stream(page_number, direction).holds(within) {
            return;
        }
        let (end, block_pages) = (within.saturating_add(span_pages), coming.wanted_pages);
        let is_proven = !is_single || self.stream_before(page_number, direction, is_far).is_some();
        let stream = Stream { end, block_pages, ahead_pages, is_zeros, is_proven };
        self.places.store(page_number, direction, stream.pack());
    }
}

/// What is known of streams, leaf by leaf, where no table has it.
#[derive(Default)]
pub struct SparsePlaces(RefCell<HashMap<(u64, Direction), u64>>);

impl Places for SparsePlaces {
    fn load(&self, page_number: u64, direction: Direction) -> u64 {
        self.0.borrow().get(&(page_number / LEAF_PAGES, direction)).copied().unwrap_or_default()
    }

    fn store(&self, page_number: u64, direction: Direction, word: u64) {
        self.0.borrow_mut().insert((page_number / LEAF_PAGES, direction), word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fault at a far page, all of whose block comes. Returns the block.
    fn fault(streams: &Streams<SparsePlaces>, page_number: u64, is_far: impl Fn(u64) -> bool) -> Range<u64> {
        let Earned { direction, pages, .. } = streams.earned(page_number, &is_far);
        let (span_pages, ahead_pages) = (pages, pages - 1);
        let coming =
            Coming { page_number, direction, wanted_pages: pages, span_pages, ahead_pages, is_zeros: false };
        streams.note(&coming, is_far);
        direction.block(page_number, pages)
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

    #[test]
    fn streams_go_up_and_down_over_the_ends_of_leaves() {
        let streams = Streams::over(SparsePlaces::default(), 16);
        let mut at = 500;
        let up: Vec<u64> = (0..7)
            .map(|_| {
                let block = fault(&streams, at, |_| true);
                assert_eq!(block.start, at);
                at = block.end;
                block.end - block.start
            })
            .collect();
        assert_eq!(up, [1, 1, 2, 4, 8, 16, 16]);
        let streams = Streams::over(SparsePlaces::default(), 16);
        let mut at = 1030;
        let down: Vec<u64> = (0..7)
            .map(|_| {
                let block = fault(&streams, at, |_| true);
                assert_eq!(block.end, at + 1);
                at = block.start - 1;
                block.end - block.start
            })
            .collect();
        assert_eq!(down, up);
    }

    #[test]
    fn what_stayed_local_between_breaks_no_stream_and_what_is_far_does() {
        let streams = Streams::over(SparsePlaces::default(), 16);
        let mut at = 0;
        for _ in 0..4 {
            at = fault(&streams, at, |_| true).end;
        }
        let asked = |is_far: bool| streams.earned(at + 5, |_| is_far);
        assert_eq!((asked(false).pages, asked(true).pages), (8, 1));
        assert_eq!((asked(false).used_pages, asked(true).used_pages), (3, 0));
        // A page of the last block that left before its turn.
        assert_eq!(fault(&streams, at - 1, |_| true), at - 1..at);
        assert_eq!(asked(false).pages, 8);
        // A page elsewhere.
        assert_eq!(fault(&streams, at + 300, |_| true), at + 300..at + 301);
        assert_eq!(asked(false).pages, 1);
    }

    #[test]
    fn zeros_that_were_used_are_told_from_fetched_pages() {
        let streams = Streams::over(SparsePlaces::default(), 16);
        let mut at = 0;
        for _ in 0..4 {
            let Earned { direction, pages, .. } = streams.earned_along(at, Direction::Up, |_| true);
            let (wanted_pages, span_pages, ahead_pages) = (pages, pages, pages - 1);
            let page_number = at;
            let is_zeros = true;
            streams.note_along(
                &Coming { page_number, direction, wanted_pages, span_pages, ahead_pages, is_zeros },
                |_| true,
            );
            at += pages;
        }
        let next = streams.earned(at, |_| true);
        assert_eq!((next.pages, next.used_pages, next.used_zeros), (8, 0, 3));
    }
}
