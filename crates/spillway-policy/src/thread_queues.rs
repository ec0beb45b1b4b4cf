//! What a thread has of its own of dcm's queues, so that threads seldom meet at the shared ones.
//!
//! From "Disaggregated Cloud Memory with Elastic Block Management", section 3.4 and Fig. 7, where each vCPU
//! has them:
//!
//! - a *buffer* before the tails of the active and the proactive queue: what comes in waits there, and moves
//!   to the shared queues a buffer at a time ([`Config::thread_buffer_pages`]);
//! - an *inactive sub-queue*: what a thread unmaps lies in its own, and it writes back from its own
//!   ([`Config::thread_inactive`]). All of them together are no FIFO any more; each is one.
//!
//! The paper says nothing of a thread that comes to rest, whose sub-queue would keep its pages for ever. So
//! one time in eight a thread begins with another's ([`ThreadQueues::next_source`]), and a thread whose own
//! is empty goes round.

use std::collections::VecDeque;

use spillway_core::fifo::{Entry, Fifo, Pool, PoolFull};
use spillway_core::page_word::Queue;

use crate::dcm::{Config, Replacement};
use crate::newcomers::Newcomers;

/// Of so many times that a thread looks for inactive pages, it begins with another's once.
const TURNS: u32 = 8;
/// Pages that may be inactive beyond the length of the queue: on their way out.
const ON_THEIR_WAY: usize = 4096;

/// What one thread has of its own.
///
/// Invariant: who owns the shared queues and looks into every thread's finds each queued page, for a buffer
/// is emptied into the shared queues while both are held.
#[derive(Clone)]
pub struct ThreadQueues {
    newcomers: Newcomers,
    /// Bound for the tails of the shared queues, the oldest first.
    buffer: VecDeque<(Queue, Entry)>,
    buffer_pages: usize,
    pool: Pool,
    inactive: Fifo,
    turn: u32,
    next_other: usize,
}

/// The buffer has no room: [`ThreadQueues::flush`] it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferFull;

/// What became of a buffer that was to be emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flushed {
    /// So many pages are in the shared queues now.
    pub moved: u64,
    /// There was no room for the others, which wait still: [`Replacement::drop_stale`], and try again.
    pub is_full: bool,
}

impl ThreadQueues {
    /// For the thread of number `place`, of a process with at most `local_pages` pages. Each thread throws a
    /// coin of its own.
    #[must_use]
    pub fn new(config: &Config, local_pages: usize, seed: u64, place: usize) -> Self {
        let own_seed = seed.wrapping_add(place as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let inactive_pages = (config.inactive_pages(local_pages) + ON_THEIR_WAY).min(local_pages);
        // A quarter more than can be inactive, for entries of pages that have left.
        let entries = if config.thread_inactive { inactive_pages + inactive_pages / 4 + 1024 } else { 0 };
        let buffer_pages = config.thread_buffer_pages as usize;
        Self {
            newcomers: Newcomers::new(config.random_promotion, config.return_share, own_seed),
            buffer: VecDeque::with_capacity(buffer_pages),
            buffer_pages,
            pool: Pool::new(entries, 1),
            inactive: Fifo::new(),
            turn: 0,
            next_other: 0,
        }
    }

    /// The queue of a page that comes in for the first time: [`Newcomers::queue_of_newcomer`].
    pub fn queue_of_newcomer(&mut self) -> Queue {
        self.newcomers.queue_of_newcomer()
    }

    /// The queue of a page that comes back: [`Newcomers::queue_of_returner`].
    pub fn queue_of_returner(&mut self, away_pages: u64, local_pages: u64) -> Queue {
        self.newcomers.queue_of_returner(away_pages, local_pages)
    }

    /// Puts a page into the buffer, on its way to the tail of `queue`.
    ///
    /// # Errors
    /// The buffer is full.
    pub fn collect(&mut self, queue: Queue, entry: Entry) -> Result<(), BufferFull> {
        if self.buffer.len() >= self.buffer_pages {
            return Err(BufferFull);
        }
        self.buffer.push_back((queue, entry));
        Ok(())
    }

    /// Pages in the buffer.
    #[must_use]
    pub fn buffered(&self) -> usize {
        self.buffer.len()
    }

    /// What waits in the buffer, the oldest first.
    pub fn iter_buffered(&self) -> impl Iterator<Item = (Queue, Entry)> {
        self.buffer.iter().copied()
    }

    /// Drops what waits in the buffer.
    pub fn forget_buffered(&mut self) {
        self.buffer.clear();
    }

    /// Moves what the buffer holds to the tails of the shared queues, in the order in which it came.
    pub fn flush(&mut self, shared: &mut Replacement) -> Flushed {
        let mut moved = 0;
        while let Some(&(queue, entry)) = self.buffer.front() {
            if shared.enqueue(queue, entry).is_err() {
                return Flushed { moved, is_full: true };
            }
            self.buffer.pop_front();
            moved += 1;
        }
        Flushed { moved, is_full: false }
    }

    /// Puts an unmapped page at the tail of the thread's inactive sub-queue.
    ///
    /// # Errors
    /// There is no room: call [`Self::drop_stale`] and try again.
    pub fn enqueue_inactive(&mut self, entry: Entry) -> Result<(), PoolFull> {
        self.inactive.push(&mut self.pool, entry)
    }

    /// The page that has been in the sub-queue longest.
    pub fn next_inactive(&mut self) -> Option<Entry> {
        self.inactive.pop(&mut self.pool)
    }

    /// What [`Self::next_inactive`] would give.
    #[must_use]
    pub fn peek_inactive(&self) -> Option<Entry> {
        self.inactive.peek(&self.pool)
    }

    /// The entries of the sub-queue, stale ones included, the oldest first; they stay.
    pub fn inactive_in_order(&self) -> impl Iterator<Item = Entry> {
        self.inactive.iter(&self.pool)
    }

    /// Entries in the sub-queue, stale ones included.
    #[must_use]
    pub fn inactive_len(&self) -> usize {
        self.inactive.len()
    }

    /// Drops the entries that no longer speak of an inactive page.
    pub fn drop_stale(&mut self, is_current: impl FnMut(Entry) -> bool) {
        self.inactive.retain(&mut self.pool, is_current);
    }

    /// Of the sub-queues of `threads` threads, numbered in a ring, the one that the thread of number `own`
    /// looks into first; from there it goes round.
    pub fn next_source(&mut self, own: usize, threads: usize) -> usize {
        self.turn = (self.turn + 1) % TURNS;
        if self.turn != 0 || threads < 2 {
            return own;
        }
        self.next_other = (self.next_other + 1) % (threads - 1);
        (own + 1 + self.next_other) % threads
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dcm::Step;
    use crate::use_history::UNKNOWN;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn entry(page_number: u64) -> Entry {
        Entry { page_number, generation: 1 }
    }

    fn config(thread_buffer_pages: u32) -> Config {
        Config { thread_buffer_pages, thread_inactive: true, inactive_share: 0.25, ..Config::default() }
    }

    fn drain(shared: &mut Replacement) -> Vec<u64> {
        let mut pages = Vec::new();
        while let Some(step) = shared.next_mapped(|_| UNKNOWN) {
            match step {
                Step::ToInactive(entry) => pages.push(entry.page_number),
                Step::ToActive(entry) => shared.enqueue(Queue::Active, entry).unwrap(),
                Step::ToProactive(entry) => shared.enqueue(Queue::Proactive, entry).unwrap(),
            }
        }
        pages
    }

    #[test]
    fn a_full_buffer_moves_as_one_and_in_order() {
        let config = config(3);
        let (mut shared, mut own) = (Replacement::new(config, 100, 7), ThreadQueues::new(&config, 100, 7, 0));
        for page in 0..3 {
            assert_eq!(own.collect(Queue::Active, entry(page)), Ok(()));
        }
        assert_eq!(own.collect(Queue::Active, entry(3)), Err(BufferFull));
        assert_eq!(shared.next_mapped(|_| UNKNOWN), None, "what is buffered is not in the shared queues");
        assert_eq!(own.flush(&mut shared), Flushed { moved: 3, is_full: false });
        assert_eq!((own.buffered(), drain(&mut shared)), (0, vec![0, 1, 2]));
        assert_eq!(own.flush(&mut shared), Flushed { moved: 0, is_full: false });
        let off = Config { thread_buffer_pages: 0, ..config };
        assert_eq!(ThreadQueues::new(&off, 100, 7, 0).collect(Queue::Active, entry(0)), Err(BufferFull));
    }

    #[test]
    fn what_finds_no_room_waits_still() {
        let config = config(64);
        let (mut shared, mut own) = (Replacement::new(config, 10, 7), ThreadQueues::new(&config, 10, 7, 0));
        let mut queued = 0;
        while shared.enqueue(Queue::Proactive, entry(queued)).is_ok() {
            queued += 1;
        }
        // Its queue has no chunk yet, and the pool none to give.
        (0..5).for_each(|page| own.collect(Queue::Active, entry(10_000 + page)).unwrap());
        assert_eq!(own.flush(&mut shared), Flushed { moved: 0, is_full: true });
        assert_eq!(own.buffered(), 5);
        shared.drop_stale(|entry, _| entry.page_number < 10);
        assert_eq!(own.flush(&mut shared), Flushed { moved: 5, is_full: false });
        assert_eq!(drain(&mut shared).len(), 15);
    }

    #[test]
    fn threads_throw_coins_of_their_own() {
        let config = Config { random_promotion: 0.5, ..config(4) };
        let throws = |place| {
            let mut own = ThreadQueues::new(&config, 100, 42, place);
            (0..200).map(|_| own.queue_of_newcomer() == Queue::Proactive).collect::<Vec<_>>()
        };
        assert_eq!(throws(1), throws(1));
        assert_ne!(throws(1), throws(2));
        let proactive = throws(3).into_iter().filter(|is| *is).count();
        assert!((60..140).contains(&proactive), "{proactive} of 200");
    }

    #[test]
    fn a_thread_begins_with_its_own_and_passes_no_other_by() {
        let config = config(0);
        let mut own = ThreadQueues::new(&config, 100, 1, 2);
        let sources: Vec<usize> = (0..8 * 4).map(|_| own.next_source(2, 5)).collect();
        assert_eq!(sources.iter().filter(|source| **source == 2).count(), 28);
        assert_eq!(sources.iter().collect::<BTreeSet<_>>().len(), 5, "{sources:?}");
        assert!((0..100).all(|_| own.next_source(0, 1) == 0));
    }

    proptest! {
        /// Several threads: each page that went in comes out once, and each sub-queue in its order.
        #[test]
        fn nothing_is_lost_between_threads(
            calls in prop::collection::vec((0_usize..3, 0_u8..6), 0..3000), buffer_pages in 1_u32..40,
        ) {
            let config = config(buffer_pages);
            let mut shared = Replacement::new(config, 4000, 3);
            let mut threads: Vec<ThreadQueues> =
                (0..3).map(|place| ThreadQueues::new(&config, 4000, 3, place)).collect();
            let (mut mapped, mut inactive, mut out) = (BTreeSet::new(), [0_u64; 3], [0_u64; 3]);
            for (page, (place, call)) in calls.into_iter().enumerate() {
                let page = page as u64;
                match call {
                    0..=2 => {
                        let queue = threads[place].queue_of_newcomer();
                        if threads[place].collect(queue, entry(page)).is_err() {
                            prop_assert!(!threads[place].flush(&mut shared).is_full);
                            threads[place].collect(queue, entry(page)).unwrap();
                        }
                        mapped.insert(page);
                    }
                    3 => {
                        let number = inactive[place];
                        threads[place].enqueue_inactive(entry(number)).unwrap();
                        inactive[place] += 1;
                    }
                    _ => if let Some(entry) = threads[place].next_inactive() {
                        prop_assert_eq!(entry.page_number, out[place]);
                        out[place] += 1;
                    }
                }
                prop_assert!(threads[place].buffered() <= buffer_pages as usize);
            }
            for (place, own) in threads.iter_mut().enumerate() {
                prop_assert!(!own.flush(&mut shared).is_full);
                prop_assert_eq!(own.inactive_len() as u64, inactive[place] - out[place]);
            }
            let drained = drain(&mut shared);
            prop_assert_eq!(drained.len(), mapped.len());
            prop_assert_eq!(drained.into_iter().collect::<BTreeSet<_>>(), mapped);
        }
    }
}
