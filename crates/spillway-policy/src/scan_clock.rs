//! When the accessed bits are scanned: by how much has come. A page that is to leave must be told from those
//! in use, and it takes two scans to tell them: so the first come before anything must leave. The pager's and
//! the lab's.

use std::sync::atomic::{AtomicU64, Ordering};

/// Fewer that came do not change what is oldest: a batch.
const LEAST_PAGES: u64 = 64;
/// The first scan is due when the run holds so many shares of its limit less than all of it.
const SHARES_BEFORE_FULL: u64 = 2;
const NEVER: u64 = u64::MAX;
const FIRST: u64 = 0;

/// What is due hangs on this.
#[derive(Clone, Copy, Debug)]
pub struct Arrivals {
    /// Pages that came to this process since it began, but for those that it gave up: what it holds, and what
    /// has left.
    pub own_pages: u64,
    /// What the run holds.
    pub local_pages: u64,
}

/// Says when the next scan is due.
pub struct ScanClock {
    every_pages: u64,
    first_pages: u64,
    /// What a scan told is out of date after so many: a whole limit, or two scans where they come seldom.
    told_pages: u64,
    due: AtomicU64,
    /// Arrivals up to which the last whole scan says who is in use.
    told_until: AtomicU64,
}

impl ScanClock {
    /// Each time that `share` of `limit_pages` has come; of 0, never. First when the run has room for two
    /// such shares.
    #[must_use]
    pub fn new(share: f64, limit_pages: usize) -> Self {
        let every_pages = ((limit_pages as f64 * share) as u64).max(LEAST_PAGES);
        let first_pages = (limit_pages as u64).saturating_sub(SHARES_BEFORE_FULL * every_pages);
        let told_pages = (limit_pages as u64).max(2 * every_pages);
        let (due, told_until) = (AtomicU64::new(if share > 0.0 { FIRST } else { NEVER }), AtomicU64::new(0));
        Self { every_pages, first_pages, told_pages, due, told_until }
    }

    /// The child's, whose arrivals are counted on.
    #[must_use]
    pub fn for_child(&self) -> Self {
        let Self { every_pages, first_pages, told_pages, .. } = *self;
        let copy = |word: &AtomicU64| AtomicU64::new(word.load(Ordering::Relaxed));
        Self {
            every_pages,
            first_pages,
            told_pages,
            due: copy(&self.due),
            told_until: copy(&self.told_until),
        }
    }

    /// So many pages come between two scans.
    #[must_use]
    pub fn interval_pages(&self) -> u64 {
        self.every_pages
    }

    /// Whether so many arrivals call for a scan.
    #[must_use]
    pub fn is_due(&self, arrivals: Arrivals) -> bool {
        match self.due.load(Ordering::Relaxed) {
            FIRST => arrivals.local_pages >= self.first_pages,
            due => arrivals.own_pages >= due,
        }
    }

    /// A scan was made, or left out.
    pub fn go_on(&self, arrivals: Arrivals) {
        self.due.store(arrivals.own_pages + self.every_pages, Ordering::Relaxed);
    }

    /// A scan has seen all memory of the process.
    pub fn note_whole(&self, arrivals: Arrivals) {
        self.told_until.store(arrivals.own_pages + self.told_pages, Ordering::Relaxed);
    }

    /// Whether what scans told is not out of date.
    #[must_use]
    pub fn has_told(&self, arrivals: Arrivals) -> bool {
        arrivals.own_pages < self.told_until.load(Ordering::Relaxed)
    }

    /// Whether no scan will ever be due.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.due.load(Ordering::Relaxed) == NEVER
    }

    /// There is nothing to scan with.
    pub fn stop(&self) {
        self.due.store(NEVER, Ordering::Relaxed);
        self.told_until.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(own_pages: u64) -> Arrivals {
        Arrivals { own_pages, local_pages: 0 }
    }

    #[test]
    fn what_a_scan_told_is_out_of_date_when_a_limit_has_come_since() {
        let clock = ScanClock::new(0.125, 80_000);
        assert!(!clock.has_told(own(0)));
        clock.note_whole(own(50_000));
        assert!(clock.has_told(own(129_999)) && !clock.has_told(own(130_000)));
        assert!(clock.for_child().has_told(own(129_999)));
        clock.stop();
        assert!(!clock.has_told(own(50_000)));
        let seldom = ScanClock::new(1.0, 80_000);
        seldom.note_whole(own(0));
        assert!(seldom.has_told(own(159_999)) && !seldom.has_told(own(160_000)));
    }

    #[test]
    fn two_scans_are_due_before_the_limit_is_reached_and_then_one_as_enough_has_come() {
        let clock = ScanClock::new(0.125, 80_000);
        assert!(!clock.is_due(Arrivals { own_pages: 10, local_pages: 59_999 }));
        assert!(clock.is_due(Arrivals { own_pages: 10, local_pages: 60_000 }));
        clock.go_on(own(60_000));
        assert!(!clock.is_due(own(69_999)) && clock.is_due(own(70_000)));
        clock.go_on(own(72_000));
        assert!(!clock.is_due(own(81_999)) && clock.is_due(own(82_000)));
        assert!(clock.for_child().is_due(own(82_000)));
        clock.stop();
        assert!(clock.is_stopped() && !clock.is_due(own(u64::MAX - 1)));
        let never = ScanClock::new(0.0, 80_000);
        assert!(never.is_stopped() && !never.is_due(Arrivals { own_pages: 1 << 40, local_pages: 80_000 }));
    }
}
