//! A counter in shared memory that one side rings and the other waits on.
//!
//! One word holds the count (31 bits, wrapping) and, in its lowest bit, whether the waiting side sleeps. Both
//! change it only by read-modify-write, so a ring is either seen before the bit is set, or sees the bit and
//! wakes: no wake-up is lost. Checked for all interleavings by the loom model below
//! (`make loom`).

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::futex;
use rustix::time::Timespec;

const PARKED: u32 = 1;

/// Counts are taken modulo this.
pub const COUNT_MASK: u32 = u32::MAX >> 1;

/// A word that can be slept on.
pub trait Word {
    /// Its value; what was written before it was stored is seen.
    fn load(&self) -> u32;
    /// Replaces the value; what was written before is seen by who loads it.
    fn swap(&self, value: u32) -> u32;
    /// Replaces `current` by `new`; what is there otherwise.
    fn compare_exchange(&self, current: u32, new: u32) -> Result<u32, u32>;
    /// Sleeps while the value is `expected`, until woken, for `patience`, or for no reason.
    fn park(&self, expected: u32, patience: Duration);
    /// Wakes who sleeps.
    fn unpark(&self);
}

impl Word for AtomicU32 {
    fn load(&self) -> u32 {
        self.load(Ordering::Acquire)
    }

    fn swap(&self, value: u32) -> u32 {
        self.swap(value, Ordering::AcqRel)
    }

    fn compare_exchange(&self, current: u32, new: u32) -> Result<u32, u32> {
        self.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire)
    }

    fn park(&self, expected: u32, patience: Duration) {
        let seconds = i64::try_from(patience.as_secs()).unwrap_or(i64::MAX);
        let timeout = Timespec { tv_sec: seconds, tv_nsec: patience.subsec_nanos().into() };
        // However it ends, the caller looks again. No PRIVATE flag: the other side is another process.
        let _ = futex::wait(self, futex::Flags::empty(), expected, Some(&timeout));
    }

    fn unpark(&self) {
        // Fails only for a bad address.
        let _ = futex::wake(self, futex::Flags::empty(), 1);
    }
}

/// The count that was rung last.
pub fn count(word: &impl Word) -> u32 {
    word.load() >> 1
}

/// Sets the count and wakes the other side if it sleeps.
pub fn ring(word: &impl Word, count: u32) {
    if word.swap(count << 1) & PARKED != 0 {
        word.unpark();
    }
}

/// Watches a doorbell for a while before sleeping: a page takes 1 us, falling asleep and being woken some 10
/// us. For how long adapts: watching is no use while both sides share a processor, or nothing comes.
#[derive(Clone, Debug)]
pub struct Watcher {
    longest: Duration,
    patience: Duration,
    misses: u32,
}

impl Watcher {
    /// Little enough to cost nothing beside a sleep.
    const SHORTEST: Duration = Duration::from_nanos(500);
    /// After so many misses in a row the longest time is tried again.
    const RETRY: u32 = 64;

    /// Watches for `longest` at most.
    #[must_use]
    pub fn new(longest: Duration) -> Self {
        Self { longest, patience: longest, misses: 0 }
    }

    /// Watches until the count is no longer `seen`, or it is time to sleep; whether it changed.
    pub fn watch(&mut self, word: &impl Word, seen: u32) -> bool {
        let changed = changes(word, seen, self.patience);
        if changed {
            self.misses = 0;
            self.patience = (self.patience * 2).min(self.longest);
        } else {
            self.misses += 1;
            self.patience = (self.patience / 2).max(Self::SHORTEST);
            if self.misses.is_multiple_of(Self::RETRY) {
                self.patience = self.longest;
            }
        }
        changed
    }
}

/// Whether the count becomes other than `seen` within `patience`.
fn changes(word: &impl Word, seen: u32, patience: Duration) -> bool {
    const LOOKS_A_CLOCK: u32 = 16;
    let begin = Instant::now();
    loop {
        for _ in 0..LOOKS_A_CLOCK {
            if count(word) != seen {
                return true;
            }
            std::hint::spin_loop();
        }
        if begin.elapsed() >= patience {
            return false;
        }
    }
}

/// Sleeps while the count is `seen`, for at most `patience`. May return early.
pub fn wait(word: &impl Word, seen: u32, patience: Duration) {
    let quiet = seen << 1;
    match word.compare_exchange(quiet, quiet | PARKED) {
        Ok(_) => word.park(quiet | PARKED, patience),
        // Still marked from a wait that timed out.
        Err(now) if now == quiet | PARKED => word.park(now, patience),
        Err(_) => {}
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_ring_ends_the_wait() {
        let word = AtomicU32::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| ring(&word, 1));
            while count(&word) == 0 {
                wait(&word, 0, Duration::from_secs(60));
            }
        });
        assert_eq!(count(&word), 1);
    }

    #[test]
    fn waits_are_bounded_even_when_nobody_rings() {
        let word = AtomicU32::new(10);
        let begin = Instant::now();
        for _ in 0..3 {
            wait(&word, 5, Duration::from_millis(2));
        }
        assert!(begin.elapsed() >= Duration::from_millis(5));
        assert_eq!(count(&word), 5);
    }

    #[test]
    fn watching_is_cut_short_where_it_is_no_use() {
        let word = AtomicU32::new(0);
        let mut watcher = Watcher::new(Duration::from_millis(1));
        for _ in 0..20 {
            assert!(!watcher.watch(&word, 0));
        }
        assert_eq!(watcher.patience, Watcher::SHORTEST);
        for _ in 0..44 {
            watcher.watch(&word, 0);
        }
        assert_eq!(watcher.patience, watcher.longest, "tried again");
        watcher.watch(&word, 0);
        ring(&word, 1);
        assert!(watcher.watch(&word, 0));
        assert_eq!(watcher.patience, watcher.longest);
    }

    #[test]
    fn counts_wrap() {
        let word = AtomicU32::new(0);
        ring(&word, COUNT_MASK);
        assert_eq!(count(&word), COUNT_MASK);
        ring(&word, COUNT_MASK.wrapping_add(1) & COUNT_MASK);
        assert_eq!(count(&word), 0);
    }
}

/// All interleavings of a client that submits and awaits two requests, and a donor that serves them.
#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::sync::atomic::AtomicU32 as Atomic;
    use loom::sync::{Arc, Condvar, Mutex};

    /// A word whose futex is a lock and a condition variable: the kernel compares and queues under one lock.
    struct Modelled {
        value: Atomic,
        queue: Mutex<()>,
        woken: Condvar,
    }

    impl Modelled {
        fn new() -> Self {
            Self { value: Atomic::new(0), queue: Mutex::new(()), woken: Condvar::new() }
        }
    }

    impl Word for Modelled {
        fn load(&self) -> u32 {
            self.value.load(Ordering::Acquire)
        }
        fn swap(&self, value: u32) -> u32 {
            self.value.swap(value, Ordering::AcqRel)
        }
        fn compare_exchange(&self, current: u32, new: u32) -> Result<u32, u32> {
            self.value.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire)
        }
        fn park(&self, expected: u32, _: Duration) {
            let queue = self.queue.lock().unwrap();
            if self.value.load(Ordering::SeqCst) == expected {
                // Without a time limit: a lost wake-up is a deadlock, which loom reports.
                drop(self.woken.wait(queue).unwrap());
            }
        }
        fn unpark(&self) {
            let _queue = self.queue.lock().unwrap();
            self.woken.notify_one();
        }
    }

    struct Ring {
        submitted: Modelled,
        completed: Modelled,
        /// One entry a request: the donor answers with the value plus 100.
        entries: [Atomic; 2],
    }

    fn await_change(word: &Modelled, seen: u32) -> u32 {
        loop {
            match count(word) {
                now if now != seen => return now,
                _ => wait(word, seen, Duration::ZERO),
            }
        }
    }

    #[test]
    fn loom_every_request_is_seen_whole_and_answered() {
        loom::model(|| {
            let ring_of = Arc::new(Ring {
                submitted: Modelled::new(),
                completed: Modelled::new(),
                entries: [Atomic::new(0), Atomic::new(0)],
            });
            let donor_ring = Arc::clone(&ring_of);
            let donor = loom::thread::spawn(move || {
                let mut done = 0;
                while done < 2 {
                    let submitted = await_change(&donor_ring.submitted, done);
                    while done < submitted {
                        let entry = &donor_ring.entries[done as usize];
                        let request = entry.load(Ordering::Relaxed);
                        assert_eq!(request, done + 1, "a request is seen before it is written");
                        entry.store(request + 100, Ordering::Relaxed);
                        done += 1;
                    }
                    ring(&donor_ring.completed, done);
                }
            });
            let mut done = 0;
            for submitted in 1..=2 {
                ring_of.entries[submitted as usize - 1].store(submitted, Ordering::Relaxed);
                ring(&ring_of.submitted, submitted);
            }
            while done < 2 {
                let completed = await_change(&ring_of.completed, done);
                while done < completed {
                    done += 1;
                    let answer = ring_of.entries[done as usize - 1].load(Ordering::Relaxed);
                    assert_eq!(answer, done + 100, "an answer is seen before it is written");
                }
            }
            donor.join().unwrap();
        });
    }
}
