//! How fast donors come to hold more while what was lost is made anew.

use std::time::{Duration, Instant};

/// A stretch without a copy that is so long is the wait for the donor that has died, which is 2 s.
const WAIT: Duration = Duration::from_secs(1);

/// Megabytes made anew a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Repair {
    /// Over the time in which that was possible.
    pub(super) while_possible: f64,
    /// Over all the time from the first page to the last.
    pub(super) with_the_wait: f64,
}

/// What donors hold more and more of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Growth {
    begun: Instant,
    before: u64,
    ended: Instant,
    held: u64,
    /// Stretches in which nothing was copied since the dead donor was waited for, and what was copied by the
    /// first look after: when, is not known.
    waited: Duration,
    uncounted: u64,
}

impl Growth {
    pub(super) fn new(begun: Instant, held: u64) -> Self {
        Self { begun, before: held, ended: begun, held, waited: Duration::ZERO, uncounted: 0 }
    }

    /// So much is held at this moment.
    pub(super) fn note(&mut self, now: Instant, held: u64) {
        if held <= self.held {
            return;
        }
        let gap = now.saturating_duration_since(self.ended);
        if gap >= WAIT {
            self.waited += gap;
            self.uncounted += held - self.held;
        }
        (self.ended, self.held) = (now, held);
    }

    pub(super) fn repair(&self) -> Repair {
        let all = self.ended.saturating_duration_since(self.begun);
        let copied = self.held - self.before;
        Repair {
            while_possible: rate(copied - self.uncounted, all.saturating_sub(self.waited)),
            with_the_wait: rate(copied, all),
        }
    }

    /// Where pages are moved, donors come to hold less than was written: what they held of the pages before
    /// is used again. So how much it was is known of the run, which has `said` so, since donors have `died`.
    pub(super) fn repair_of(&self, moved_bytes: u64, died: Instant, said: Instant) -> Repair {
        let possible = said.saturating_duration_since(self.begun).saturating_sub(self.waited);
        Repair {
            while_possible: rate(moved_bytes, possible),
            with_the_wait: rate(moved_bytes, said.saturating_duration_since(died)),
        }
    }
}

fn rate(bytes: u64, time: Duration) -> f64 {
    bytes as f64 / 1e6 / time.as_secs_f64().max(f64::MIN_POSITIVE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_for_a_dead_donor_is_no_time_in_which_copying_was_possible() {
        let begun = Instant::now();
        let at = |ms| begun + Duration::from_millis(ms);
        let mut growth = Growth::new(begun, 5_000_000);
        for (ms, held) in [(100, 15_000_000), (110, 15_000_000), (2_100, 20_000_000), (2_400, 50_000_000)] {
            growth.note(at(ms), held);
        }
        let Repair { while_possible, with_the_wait } = growth.repair();
        assert!((while_possible - 100.0).abs() < 0.1, "40 MB in 0.4 s: {while_possible}");
        assert!((with_the_wait - 18.75).abs() < 0.1, "45 MB in 2.4 s: {with_the_wait}");
    }

    #[test]
    fn what_was_moved_counts_from_the_first_move_and_from_the_death() {
        let died = Instant::now();
        let at = |ms| died + Duration::from_millis(ms);
        let growth = Growth::new(at(2_000), 5_000_000);
        let Repair { while_possible, with_the_wait } = growth.repair_of(100_000_000, died, at(2_500));
        assert!((while_possible - 200.0).abs() < 0.1, "100 MB in 0.5 s: {while_possible}");
        assert!((with_the_wait - 40.0).abs() < 0.1, "100 MB in 2.5 s: {with_the_wait}");
    }
}
