//! Which streams of far pages are read ahead, and what is asked for next: while a program uses one block of a
//! stream ([`crate::streams`]), the next is fetched on another CPU.
//!
//! No I/O, no clock, no allocation: a fault may ask.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::streams::Direction;

/// Streams that are followed at a time.
pub const STREAMS: usize = 4;
/// Requests that are looked at for who makes them.
const RECENT: usize = 8;

/// No node in particular.
pub const ANYWHERE: u32 = u32::MAX;

const PAGES_BITS: u32 = 8;
const WRITE_BIT: u32 = PAGES_BITS;
const DOWN_BIT: u32 = PAGES_BITS + 1;
const PAGE_NUMBER_SHIFT: u32 = PAGES_BITS + 2;

/// A block to read ahead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Those that are to come, as far as they are far.
    pub pages: Range<u64>,
    /// Which way their stream goes.
    pub direction: Direction,
    /// They will be written to.
    pub write: bool,
}

impl Request {
    /// What is left of it behind its first far page, that one included: its marker, which stays far, so that
    /// its fault tells how far the stream has come.
    pub fn behind_marker(&self, is_far: impl Fn(u64) -> bool) -> Option<Range<u64>> {
        let Range { start, end } = self.pages;
        match self.direction {
            Direction::Up => (start..end).find(|&page| is_far(page)).map(|marker| marker..end),
            Direction::Down => (start..end).rfind(|&page| is_far(page)).map(|marker| start..marker + 1),
        }
    }

    /// The marker of what [`Self::behind_marker`] has left.
    #[must_use]
    pub fn marker_of(&self, pages: &Range<u64>) -> u64 {
        match self.direction {
            Direction::Up => pages.start,
            Direction::Down => pages.end.saturating_sub(1),
        }
    }

    fn unpack(packed: u64) -> Self {
        let start = packed >> PAGE_NUMBER_SHIFT;
        let count = packed & ((1 << PAGES_BITS) - 1);
        let direction = if packed >> DOWN_BIT & 1 != 0 { Direction::Down } else { Direction::Up };
        Self { pages: start..start + count, direction, write: packed >> WRITE_BIT & 1 != 0 }
    }

    fn pack(&self) -> u64 {
        let count = (self.pages.end - self.pages.start).min((1 << PAGES_BITS) - 1);
        let is_down = u64::from(self.direction == Direction::Down);
        self.pages.start << PAGE_NUMBER_SHIFT
            | is_down << DOWN_BIT
            | u64::from(self.write) << WRITE_BIT
            | count
    }
}

/// One stream. Several threads may change it at once, which costs time and nothing else.
#[derive(Debug, Default)]
pub struct ReadStream {
    /// What nobody has taken up yet; 0 if nothing.
    open: AtomicU64,
    /// What was asked for last.
    last: AtomicU64,
    /// Pages that came ahead since the last marker.
    pub came_pages: AtomicU64,
    /// Whose CPU the last fault was raised on, as far as nodes are told apart; [`ANYWHERE`] otherwise.
    pub node: AtomicU32,
    /// Pages that came ahead before that: in use now, by what the markers say.
    in_use_pages: AtomicU64,
}

impl ReadStream {
    fn last_pages(&self) -> Range<u64> {
        Request::unpack(self.last.load(Ordering::Relaxed)).pages
    }

    /// Asks for the block behind the one that a fault goes on with. Returns whether that is the block that
    /// was asked for last, and how many pages read ahead were used since then.
    fn ask(&self, ask: &Ask) -> (bool, u64) {
        let last = self.last_pages();
        let goes_on = last.contains(&ask.page_number);
        let before = if goes_on { &last } else { &ask.block };
        let pages = match ask.direction {
            Direction::Up => before.end..before.end.saturating_add(ask.pages),
            Direction::Down => before.start.saturating_sub(ask.pages)..before.start,
        };
        let came_pages = self.came_pages.swap(0, Ordering::Relaxed);
        let used_pages = self.in_use_pages.swap(if goes_on { came_pages } else { 0 }, Ordering::Relaxed);
        let packed = Request { pages, direction: ask.direction, write: ask.write }.pack();
        self.last.store(packed, Ordering::Relaxed);
        self.open.store(packed, Ordering::Release);
        (goes_on, if goes_on { used_pages } else { 0 })
    }

    fn take(&self) -> Option<Request> {
        if self.open.load(Ordering::Acquire) == 0 {
            return None;
        }
        let packed = self.open.swap(0, Ordering::AcqRel);
        (packed != 0).then(|| Request::unpack(packed))
    }
}

/// A fault that goes on with a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Whose fault it is.
    pub thread: u32,
    /// The page that faulted.
    pub page_number: u64,
    /// Which way its stream goes.
    pub direction: Direction,
    /// What comes with it.
    pub block: Range<u64>,
    /// Pages that are worth a read.
    pub pages: u64,
    /// Its faults are writes.
    pub write: bool,
}

/// What becomes of what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// A CPU is to spare; else nothing is read ahead.
    pub has_cpu: bool,
    /// The place of the stream.
    pub place: u8,
    /// The fault went on with what was asked for last.
    pub goes_on: bool,
}

/// What the faults of a process and who reads ahead for them know of each other.
#[derive(Debug)]
pub struct ReadStreams {
    cpus: usize,
    streams: [ReadStream; STREAMS],
    /// The stream that is given up for a new one next.
    oldest: AtomicU32,
    /// Threads whose faults went on with a stream lately; 0 where there were none yet.
    threads: [AtomicU32; RECENT],
    next_thread: AtomicU32,
}

impl ReadStreams {
    /// For a process that may run on so many CPUs.
    #[must_use]
    pub fn new(cpus: usize) -> Self {
        Self {
            cpus,
            streams: Default::default(),
            oldest: AtomicU32::new(0),
            threads: Default::default(),
            next_thread: AtomicU32::new(0),
        }
    }

    /// The stream of a place.
    #[must_use]
    pub fn stream(&self, place: u8) -> &ReadStream {
        &self.streams[usize::from(place) % STREAMS]
    }

    /// Asks for the next block of a stream. Returns what becomes of it, and how many pages read ahead before
    /// were used.
    pub fn ask(&self, ask: &Ask) -> (Answer, u64) {
        if !self.note_thread(ask.thread) {
            return (Answer { has_cpu: false, place: 0, goes_on: false }, 0);
        }
        let place = self.place_of(ask.page_number);
        let (goes_on, used_pages) = self.stream(place).ask(ask);
        (Answer { has_cpu: true, place, goes_on }, used_pages)
    }

    /// What was asked for last of the stream of a place, if nobody has taken it up.
    pub fn take(&self, place: u8) -> Option<Request> {
        self.stream(place).take()
    }

    /// Notes who has a stream; whether a CPU is to spare.
    pub fn note_thread(&self, thread: u32) -> bool {
        let next = self.next_thread.fetch_add(1, Ordering::Relaxed) as usize % RECENT;
        self.threads[next].store(thread, Ordering::Relaxed);
        let thread_at = |index: usize| self.threads[index].load(Ordering::Relaxed);
        let is_first = |index: &usize| {
            thread_at(*index) != 0 && (0..*index).all(|before| thread_at(before) != thread_at(*index))
        };
        (0..RECENT).filter(is_first).count() < self.cpus
    }

    /// The place of the stream that a page belongs to, or that for a new one.
    fn place_of(&self, page_number: u64) -> u8 {
        let known = self.streams.iter().position(|stream| stream.last_pages().contains(&page_number));
        known.unwrap_or_else(|| self.oldest.fetch_add(1, Ordering::Relaxed) as usize % STREAMS) as u8
    }

    /// Something is to be read ahead.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.streams.iter().any(|stream| stream.open.load(Ordering::Acquire) != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asks for 64 pages; returns how many were used since the last time.
    fn ask(
        stream: &ReadStream,
        page_number: u64,
        direction: Direction,
        block: Range<u64>,
        write: bool,
    ) -> u64 {
        stream.ask(&Ask { thread: 1, page_number, direction, block, pages: 64, write }).1
    }

    #[test]
    fn each_marker_asks_for_the_block_behind_the_one_that_was_read_ahead() {
        let ahead = ReadStream::default();
        let up = Direction::Up;
        let wanted = |pages, write| Some(Request { pages, direction: up, write });
        assert_eq!((ahead.take(), ask(&ahead, 1000, up, 1000..1064, false)), (None, 0));
        assert_eq!(ahead.take(), wanted(1064..1128, false));
        ahead.came_pages.fetch_add(63, Ordering::Relaxed);
        // The marker's fault finds the rest of its block local, or on its way.
        assert_eq!(ask(&ahead, 1064, up, 1064..1065, true), 0);
        ahead.came_pages.fetch_add(60, Ordering::Relaxed);
        assert_eq!(ahead.take(), wanted(1128..1192, true));
        assert_eq!(ask(&ahead, 1131, up, 1131..1132, false), 63);
        assert_eq!(ahead.take(), wanted(1192..1256, false));
        // Another stream: what came for the first may not have been used.
        assert_eq!(ask(&ahead, 5, up, 5..69, false), 0);
        assert_eq!(ahead.take(), wanted(69..133, false));
        assert_eq!(ahead.take(), None);
    }

    #[test]
    fn a_stream_that_goes_down_asks_for_what_lies_before_it() {
        let (ahead, down) = (ReadStream::default(), Direction::Down);
        let wanted = |pages| Some(Request { pages, direction: down, write: false });
        assert_eq!(ask(&ahead, 1063, down, 1000..1064, false), 0);
        assert_eq!(ahead.take(), wanted(936..1000));
        ahead.came_pages.fetch_add(63, Ordering::Relaxed);
        assert_eq!(ask(&ahead, 999, down, 999..1000, false), 0);
        assert_eq!(ahead.take(), wanted(872..936));
        assert_eq!(ask(&ahead, 935, down, 935..936, false), 63);
        // Before the first page there is nothing.
        assert_eq!((ahead.take(), ask(&ahead, 30, down, 5..31, false)), (wanted(808..872), 0));
        assert_eq!(ahead.take(), wanted(0..5));
    }

    #[test]
    fn the_first_far_page_is_the_marker_whichever_way_a_stream_goes() {
        let request = |direction| Request { pages: 100..110, direction, write: false };
        let found = |direction| {
            let pages = request(direction).behind_marker(|page| page == 103 || page == 107)?;
            Some((request(direction).marker_of(&pages), pages))
        };
        assert_eq!(found(Direction::Up), Some((103, 103..110)));
        assert_eq!(found(Direction::Down), Some((107, 100..108)));
        assert_eq!(request(Direction::Down).behind_marker(|_| false), None);
    }

    #[test]
    fn streams_are_told_apart_and_a_cpu_must_be_to_spare() {
        let ahead = ReadStreams::new(2);
        let (one, other) = (1 << 20, 1 << 30);
        for round in 0..4 {
            for base in [one, other] {
                let page_number = base + 64 * round;
                let (thread, direction, block) = (7, Direction::Up, page_number..page_number + 64);
                let ask = Ask { thread, page_number, direction, block, pages: 64, write: false };
                let place = u8::from(base == other);
                assert_eq!(ahead.ask(&ask).0, Answer { has_cpu: true, place, goes_on: round > 0 });
            }
        }
        let open = |place| ahead.stream(place).last_pages().start;
        assert!((open(0), open(1)) == (one + 256, other + 256) && ahead.is_asked());
        assert!((0..8).all(|_| ahead.note_thread(7)));
        assert!(!ahead.note_thread(8) && !ahead.note_thread(7));
        assert!((0..RECENT).fold(false, |_, _| ahead.note_thread(7)));
        assert!(!ReadStreams::new(1).note_thread(7));
    }
}
