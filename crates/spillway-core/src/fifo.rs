//! FIFO queues of pages that share one pool of chunks, so that their memory is bounded by the number of
//! entries in all of them together and nothing is allocated while they are used.

/// A page in a queue: its number and the generation of its word when it entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Address of the page divided by the page size.
    pub page_number: u64,
    /// [`PageInfo::generation`](crate::page_word::PageInfo) at that time.
    pub generation: u8,
}

impl Entry {
    fn encode(self) -> u64 {
        self.page_number << 7 | u64::from(self.generation)
    }

    fn decode(word: u64) -> Self {
        Self { page_number: word >> 7, generation: (word & 0x7F) as u8 }
    }
}

const CHUNK_ENTRIES: usize = 63;
const NONE: u32 = u32::MAX;
const RETAIN_RESERVE: usize = 1;

/// A chunk has entries, and behind them the number of the next chunk.
const NEXT: usize = CHUNK_ENTRIES;
const CHUNK_WORDS: usize = CHUNK_ENTRIES + 1;

/// Where a word of a chunk lies.
fn at(chunk: u32, word: usize) -> usize {
    chunk as usize * CHUNK_WORDS + word
}

/// The memory of a set of queues.
#[derive(Clone)]
pub struct Pool {
    /// One chunk behind the other. Of words, not of arrays: only so the allocator is asked for zeros, which
    /// take memory where they are used, and local limits are large.
    words: Vec<u64>,
    /// The first of those that were given back.
    free: u32,
    /// From here on none was ever taken.
    fresh: u32,
    free_count: usize,
}

impl Pool {
    /// Room for `entries` in `queues` queues, in whatever proportion.
    #[must_use]
    pub fn new(entries: usize, queues: usize) -> Self {
        let count = entries.div_ceil(CHUNK_ENTRIES) + 2 * queues + RETAIN_RESERVE;
        Self { words: vec![0; count * CHUNK_WORDS], free: NONE, fresh: 0, free_count: count }
    }

    /// Ordinary entries leave `RETAIN_RESERVE` chunks, so that [`Fifo::retain`] always has room to move.
    fn take(&mut self, reserve: usize) -> Option<u32> {
        if self.free_count <= reserve {
            return None;
        }
        let taken = if self.free == NONE {
            self.fresh += 1;
            self.fresh - 1
        } else {
            let taken = self.free;
            self.free = self.next(taken);
            taken
        };
        self.free_count -= 1;
        self.set_next(taken, NONE);
        Some(taken)
    }

    fn give_back(&mut self, chunk: u32) {
        self.set_next(chunk, self.free);
        self.free = chunk;
        self.free_count += 1;
    }

    fn next(&self, chunk: u32) -> u32 {
        self.words[at(chunk, NEXT)] as u32
    }

    fn set_next(&mut self, chunk: u32, next: u32) {
        self.words[at(chunk, NEXT)] = u64::from(next);
    }
}

/// A FIFO queue. Entries of pages that have left meanwhile stay until they come to the head or
/// [`Fifo::retain`] drops them.
#[derive(Clone)]
pub struct Fifo {
    head: u32,
    head_at: usize,
    tail: u32,
    tail_at: usize,
    len: usize,
}

/// The pool has no room: drop stale entries with [`Fifo::retain`].
#[derive(Debug, PartialEq, Eq)]
pub struct PoolFull;

impl Fifo {
    /// A queue without entries, which holds no chunk of the pool.
    #[must_use]
    pub const fn new() -> Self {
        Self { head: NONE, head_at: 0, tail: NONE, tail_at: 0, len: 0 }
    }

    /// Entries, stale ones included.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no entries, not even stale ones.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds at the tail.
    ///
    /// # Errors
    /// The pool has no room, until entries are popped or [`Self::retain`] drops some.
    pub fn push(&mut self, pool: &mut Pool, entry: Entry) -> Result<(), PoolFull> {
        self.push_leaving(pool, entry, RETAIN_RESERVE)
    }

    fn push_leaving(&mut self, pool: &mut Pool, entry: Entry, reserve: usize) -> Result<(), PoolFull> {
        if self.tail == NONE || self.tail_at == CHUNK_ENTRIES {
            let chunk = pool.take(reserve).ok_or(PoolFull)?;
            if self.tail == NONE {
                (self.head, self.head_at) = (chunk, 0);
            } else {
                pool.set_next(self.tail, chunk);
            }
            (self.tail, self.tail_at) = (chunk, 0);
        }
        pool.words[at(self.tail, self.tail_at)] = entry.encode();
        self.tail_at += 1;
        self.len += 1;
        Ok(())
    }

    /// What is at the head.
    #[must_use]
    pub fn peek(&self, pool: &Pool) -> Option<Entry> {
        (self.len > 0).then(|| Entry::decode(pool.words[at(self.head, self.head_at)]))
    }

    /// The entries, the oldest first; they stay.
    pub fn iter<'a>(&self, pool: &'a Pool) -> impl Iterator<Item = Entry> + use<'a> {
        let (mut chunk, mut place) = (self.head, self.head_at);
        (0..self.len).map(move |_| {
            if place == CHUNK_ENTRIES {
                (chunk, place) = (pool.next(chunk), 0);
            }
            place += 1;
            Entry::decode(pool.words[at(chunk, place - 1)])
        })
    }

    /// Takes from the head.
    pub fn pop(&mut self, pool: &mut Pool) -> Option<Entry> {
        if self.len == 0 {
            return None;
        }
        let word = pool.words[at(self.head, self.head_at)];
        self.head_at += 1;
        self.len -= 1;
        if self.len == 0 {
            pool.give_back(self.head);
            *self = Self::new();
        } else if self.head_at == CHUNK_ENTRIES {
            let spent = self.head;
            (self.head, self.head_at) = (pool.next(spent), 0);
            pool.give_back(spent);
        }
        Some(Entry::decode(word))
    }

    /// Drops the entries for which `keep` is false; order stays.
    pub fn retain(&mut self, pool: &mut Pool, mut keep: impl FnMut(Entry) -> bool) {
        for _ in 0..self.len {
            let Some(entry) = self.pop(pool) else { return };
            // One chunk of reserve is enough: 63 entries moved empty the chunk they came from.
            if keep(entry) && self.push_leaving(pool, entry, 0).is_err() {
                return;
            }
        }
    }
}

impl Default for Fifo {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    fn entry(n: u64) -> Entry {
        Entry { page_number: n, generation: (n % 128) as u8 }
    }

    proptest! {
        #[test]
        fn behaves_as_a_deque(
            operations in proptest::collection::vec((0_usize..3, 0_u64..1 << 40), 0..2000),
        ) {
            let mut pool = Pool::new(1000, 2);
            let mut queues = [Fifo::new(), Fifo::new()];
            let mut models = [VecDeque::new(), VecDeque::new()];
            for (operation, n) in operations {
                let which = (n % 2) as usize;
                let (queue, model) = (&mut queues[which], &mut models[which]);
                match operation {
                    0 if model.len() < 480 => {
                        prop_assert_eq!(queue.push(&mut pool, entry(n)), Ok(()));
                        model.push_back(entry(n));
                    }
                    1 => {
                        prop_assert_eq!(queue.peek(&pool), model.front().copied());
                        prop_assert_eq!(queue.pop(&mut pool), model.pop_front());
                    }
                    2 if n % 50 == 0 => {
                        queue.retain(&mut pool, |entry| entry.page_number % 3 == 0);
                        model.retain(|entry| entry.page_number % 3 == 0);
                    }
                    _ => {}
                }
                prop_assert_eq!(queue.len(), model.len());
                prop_assert!(queue.iter(&pool).eq(model.iter().copied()));
            }
        }
    }

    #[test]
    fn a_full_pool_says_so_and_recovers() {
        let mut pool = Pool::new(100, 1);
        let mut queue = Fifo::new();
        let mut pushed = 0;
        while queue.push(&mut pool, entry(pushed)).is_ok() {
            pushed += 1;
        }
        assert!(pushed >= 100);
        queue.retain(&mut pool, |entry| entry.page_number % 2 == 0);
        assert_eq!(queue.len() as u64, pushed.div_ceil(2));
        assert_eq!(queue.push(&mut pool, entry(1)), Ok(()));
        assert_eq!(queue.pop(&mut pool), Some(entry(0)));
        assert_eq!(queue.pop(&mut pool), Some(entry(2)));
    }
}
