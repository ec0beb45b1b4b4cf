//! How fast copies are made anew by several workers: at most so many bytes a second in all. While somebody
//! waits for pages, the first worker alone begins copies, and each rests three quarters of the time: what was
//! begun by the others is ended, or nobody would look at the table again while a program reads on and on.

use spillway_core::page::PAGE_SIZE;

use crate::planted::Planted;

/// Of the time that copying takes, how often a worker rests while somebody waits.
const YIELD: u64 = 3;
/// Who waited for a page a moment ago is about to wait for the next; or waits still, behind a chunk that
/// takes long: so it is never less than the rest after the last chunk.
const WANTED_US: u64 = 20_000;
/// A chunk that took long, from a donor that was silent, is not rested for any longer.
const MOST_YIELD_US: u64 = 1_000_000;
/// Longest rest at a time: then the worker looks again.
const MOST_REST_US: u64 = 20_000;

/// Most workers, counted from 0.
pub const MOST_WORKERS: usize = 8;

/// The pace of all workers together. Times are microseconds of one clock.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    bytes_per_s: u64,
    /// Until then the bound is used up.
    due_us: u64,
    /// Reads that somebody has waited for, at the last look.
    reads: u64,
    /// When somebody was last seen to wait, and for how long that counts.
    wanted_us: Option<u64>,
    wanted_for_us: u64,
    /// Until then each worker rests, where somebody waits.
    quiet_until_us: [u64; MOST_WORKERS],
    bug: Planted,
}

impl Pace {
    /// At most so many bytes a second.
    #[must_use]
    pub fn new(bytes_per_s: u64) -> Self {
        let bytes_per_s = bytes_per_s.max(PAGE_SIZE as u64);
        Self {
            bytes_per_s,
            due_us: 0,
            reads: 0,
            wanted_us: None,
            wanted_for_us: WANTED_US,
            quiet_until_us: [0; MOST_WORKERS],
            bug: Planted::default(),
        }
    }

    /// The same with a mistake in it, for the simulation to find.
    #[must_use]
    pub fn with_bug(self, bug: &'static str) -> Self {
        Self { bug: Planted(bug), ..self }
    }

    /// How long a worker is to rest before its next chunk, and then ask again, in microseconds; 0 where it
    /// may go on. `reads` counts the reads that somebody has waited for so far.
    pub fn rest_us(&mut self, worker: usize, now_us: u64, reads: u64) -> u64 {
        let yields_until_us = match self.makes_way(now_us, reads) {
            false => 0,
            true if self.bug.is("no-rest-for-readers") => 0,
            true => self.quiet_until_us[worker % MOST_WORKERS],
        };
        self.due_us.max(yields_until_us).saturating_sub(now_us).min(MOST_REST_US)
    }

    /// Whether somebody waits for pages, or did a moment ago.
    pub fn makes_way(&mut self, now_us: u64, reads: u64) -> bool {
        if reads != self.reads {
            (self.reads, self.wanted_us) = (reads, Some(now_us));
        }
        let is_over = |wanted_us| now_us >= wanted_us + self.wanted_for_us && !self.bug.is("yields-for-ever");
        self.wanted_us.is_some_and(|wanted_us| !is_over(wanted_us))
    }

    /// Whether a worker may begin another copy.
    pub fn may_begin(&mut self, worker: usize, now_us: u64, reads: u64) -> bool {
        if worker == 0 && self.bug.is("first-worker-does-not-look") {
            return true;
        }
        // Asked in any case: what was read long ago, and not seen, would count as read now.
        let makes_way = self.makes_way(now_us, reads);
        let is_first = worker == 0 && !self.bug.is("none-begins-beside-readers");
        is_first || !makes_way || self.bug.is("all-begin-beside-readers")
    }

    /// Hears that a worker has copied so many bytes, which took so long and is over now.
    pub fn copied(&mut self, worker: usize, bytes: u64, took_us: u64, now_us: u64) {
        let least_us = bytes.saturating_mul(1_000_000) / self.bytes_per_s;
        // What was not used before this chunk began is not made up for.
        let begin_us = if self.bug.is("idle-time-made-up-for") { 0 } else { now_us.saturating_sub(took_us) };
        let least_us = if self.bug.is("one-worker-counted") && worker > 0 { 0 } else { least_us };
        self.due_us = self.due_us.max(begin_us).saturating_add(least_us);
        let yield_us = took_us.saturating_mul(YIELD).min(MOST_YIELD_US);
        self.quiet_until_us[worker % MOST_WORKERS] = now_us + yield_us;
        self.wanted_for_us = yield_us.max(WANTED_US);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rebuilding_keeps_to_its_rate_and_makes_way_for_reads() {
        let mut pace = Pace::new(100_000_000);
        pace.copied(0, 1_000_000, 4_000, 100_000);
        assert_eq!(pace.rest_us(0, 100_000, 0), 6_000, "10 ms at 100 MB/s");
        assert_eq!(pace.rest_us(1, 106_000, 0), 0);
        pace.copied(0, 1_000_000, 20_000, 200_000);
        assert_eq!(pace.rest_us(0, 200_000, 0), 0, "slower than the bound");
        assert_eq!(pace.rest_us(0, 205_000, 5), MOST_REST_US, "somebody reads: three times as long");
        assert!(pace.may_begin(0, 205_000, 5) && !pace.may_begin(1, 205_000, 5));
        // A read that takes as long as the chunk did is not counted anew: who waits for it is not forgotten.
        assert_eq!(pace.rest_us(0, 259_999, 5), 1);
        assert!(!pace.may_begin(1, 264_999, 5));
        assert!(pace.may_begin(1, 265_000, 5), "nobody has read for a while");
        pace.copied(0, 1_000_000, 6_000, 300_000);
        assert_eq!(pace.rest_us(0, 300_000, 5), 4_000, "as little as the bound says");
        assert_eq!(pace.rest_us(0, 301_000, 6), 17_000, "somebody reads again");
        // What another worker has begun goes on though somebody reads all the time.
        pace.copied(1, 1_000, 2_000, 400_000);
        assert_eq!(pace.rest_us(1, 401_000, 7), 5_000);
        assert_eq!(pace.rest_us(1, 406_000, 8), 0);
        assert!(!pace.may_begin(1, 425_999, 8) && pace.may_begin(1, 426_000, 8));
    }

    #[test]
    fn what_was_read_before_the_first_worker_looked_last_keeps_no_other_from_beginning() {
        let mut pace = Pace::new(100_000_000);
        assert!(pace.may_begin(0, 200_000, 5));
        assert!(pace.may_begin(0, 400_000, 5), "nothing was to be made meanwhile");
        assert!(pace.may_begin(1, 400_000, 5));
        assert!(pace.may_begin(0, 600_000, 6) && !pace.may_begin(1, 600_000, 6));
    }

    #[test]
    fn several_workers_together_keep_to_the_rate() {
        let mut pace = Pace::new(100_000_000);
        let (mut now_us, mut bytes) = (1_000_000, 0);
        let mut ready_us = [now_us; 4];
        while now_us < 2_000_000 {
            for (worker, ready_us) in ready_us.iter_mut().enumerate() {
                if *ready_us <= now_us && pace.rest_us(worker, now_us, 0) == 0 {
                    pace.copied(worker, 250_000, 1_000, now_us + 1_000);
                    (bytes, *ready_us) = (bytes + 250_000, now_us + 1_000);
                }
            }
            now_us += 100;
        }
        assert!((95_000_000..=102_000_000).contains(&bytes), "{bytes} in a second");
    }
}
