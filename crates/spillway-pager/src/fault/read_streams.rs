//! Which streams of far pages are read ahead, and what is asked for next. How it is done:
//! [`crate::fault::read_ahead`].

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::fault::streams::Direction;

/// Streams that are followed at a time.
const STREAMS: usize = 4;
/// Requests that are looked at for who makes them.
const RECENT: usize = 8;

/// No node in particular.
pub(crate) const ANYWHERE: u32 = u32::MAX;

const PAGES_BITS: u32 = 8;
const WRITE_BIT: u32 = PAGES_BITS;
const DOWN_BIT: u32 = PAGES_BITS + 1;
const PAGE_NUMBER_SHIFT: u32 = PAGES_BITS + 2;

/// A block to read ahead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) pages: Range<u64>,
    pub(crate) direction: Direction,
    pub(crate) write: bool,
}

impl Request {
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
pub(crate) struct ReadStream {
    /// What nobody has taken up yet; 0 if nothing.
    open: AtomicU64,
    /// What was asked for last.
    last: AtomicU64,
    /// Pages that came ahead since the last marker.
    pub(crate) came_pages: AtomicU64,
    /// Whose CPU the last fault was raised on, as far as nodes are told apart; [`ANYWHERE`] otherwise.
    pub(crate) node: AtomicU32,
    /// Pages that came ahead before that: in use now, by what the markers say.
    in_use_pages: AtomicU64,
}

impl ReadStream {
    fn last_pages(&self) -> Range<u64> {
        Request::unpack(self.last.load(Ordering::Relaxed)).pages
    }

    /// Asks for the block behind the one that a fault at `page_number` goes on with, which brings `block`.
    /// Returns how many pages read ahead were used since the last time.
    pub(crate) fn ask(
        &self,
        page_number: u64,
        direction: Direction,
        block: &Range<u64>,
        pages: u64,
        write: bool,
    ) -> u64 {
        let last = self.last_pages();
        let goes_on = last.contains(&page_number);
        let before = if goes_on { &last } else { block };
        let next = match direction {
            Direction::Up => before.end..before.end + pages,
            Direction::Down => before.start.saturating_sub(pages)..before.start,
        };
        let came_pages = self.came_pages.swap(0, Ordering::Relaxed);
        let used_pages = self.in_use_pages.swap(if goes_on { came_pages } else { 0 }, Ordering::Relaxed);
        let packed = Request { pages: next, direction, write }.pack();
        self.last.store(packed, Ordering::Relaxed);
        self.open.store(packed, Ordering::Release);
        if goes_on { used_pages } else { 0 }
    }

    pub(crate) fn take(&self) -> Option<Request> {
        if self.open.load(Ordering::Acquire) == 0 {
            return None;
        }
        let packed = self.open.swap(0, Ordering::AcqRel);
        (packed != 0).then(|| Request::unpack(packed))
    }
}

/// What the faults of a process and its evictor know of each other.
#[derive(Debug)]
pub struct ReadStreams {
    cpus: usize,
    pub(crate) streams: [ReadStream; STREAMS],
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

    /// Notes who has a stream; whether a CPU is to spare.
    pub(crate) fn note_thread(&self, thread: u32) -> bool {
        let next = self.next_thread.fetch_add(1, Ordering::Relaxed) as usize % RECENT;
        self.threads[next].store(thread, Ordering::Relaxed);
        let thread_at = |index: usize| self.threads[index].load(Ordering::Relaxed);
        let is_first = |index: &usize| {
            thread_at(*index) != 0 && (0..*index).all(|before| thread_at(before) != thread_at(*index))
        };
        (0..RECENT).filter(is_first).count() < self.cpus
    }

    /// The stream that a page belongs to, or the place for a new one.
    pub(crate) fn stream_of(&self, page_number: u64) -> &ReadStream {
        let known = self.streams.iter().find(|stream| stream.last_pages().contains(&page_number));
        known.unwrap_or_else(|| &self.streams[self.oldest.fetch_add(1, Ordering::Relaxed) as usize % STREAMS])
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

    #[test]
    fn each_marker_asks_for_the_block_behind_the_one_that_was_read_ahead() {
        let ahead = ReadStream::default();
        let up = Direction::Up;
        let wanted = |pages, write| Some(Request { pages, direction: up, write });
        assert_eq!((ahead.take(), ahead.ask(1000, up, &(1000..1064), 64, false)), (None, 0));
        assert_eq!(ahead.take(), wanted(1064..1128, false));
        ahead.came_pages.fetch_add(63, Ordering::Relaxed);
        // The marker's fault finds the rest of its block local, or on its way.
        assert_eq!(ahead.ask(1064, up, &(1064..1065), 64, true), 0);
        ahead.came_pages.fetch_add(60, Ordering::Relaxed);
        assert_eq!(ahead.take(), wanted(1128..1192, true));
        assert_eq!(ahead.ask(1131, up, &(1131..1132), 64, false), 63);
        assert_eq!(ahead.take(), wanted(1192..1256, false));
        // Another stream: what came for the first may not have been used.
        assert_eq!(ahead.ask(5, up, &(5..69), 64, false), 0);
        assert_eq!(ahead.take(), wanted(69..133, false));
        assert_eq!(ahead.take(), None);
    }

    #[test]
    fn a_stream_that_goes_down_asks_for_what_lies_before_it() {
        let (ahead, down) = (ReadStream::default(), Direction::Down);
        let wanted = |pages| Some(Request { pages, direction: down, write: false });
        assert_eq!(ahead.ask(1063, down, &(1000..1064), 64, false), 0);
        assert_eq!(ahead.take(), wanted(936..1000));
        ahead.came_pages.fetch_add(63, Ordering::Relaxed);
        assert_eq!(ahead.ask(999, down, &(999..1000), 64, false), 0);
        assert_eq!(ahead.take(), wanted(872..936));
        assert_eq!(ahead.ask(935, down, &(935..936), 64, false), 63);
        // Before the first page there is nothing.
        assert_eq!((ahead.take(), ahead.ask(30, down, &(5..31), 64, false)), (wanted(808..872), 0));
        assert_eq!(ahead.take(), wanted(0..5));
    }

    #[test]
    fn streams_are_told_apart_and_a_cpu_must_be_to_spare() {
        let ahead = ReadStreams::new(2);
        let (one, other) = (1 << 20, 1 << 30);
        for round in 0..4 {
            for base in [one, other] {
                let page_number = base + 64 * round;
                let block = page_number..page_number + 64;
                ahead.stream_of(page_number).ask(page_number, Direction::Up, &block, 64, false);
            }
        }
        let open = |base: u64| ahead.stream_of(base + 256).last_pages() == (base + 256..base + 320);
        assert!(open(one) && open(other) && ahead.is_asked());
        assert!((0..8).all(|_| ahead.note_thread(7)));
        assert!(!ahead.note_thread(8) && !ahead.note_thread(7));
        assert!((0..RECENT).fold(false, |_, _| ahead.note_thread(7)));
        assert!(!ReadStreams::new(1).note_thread(7));
    }
}
