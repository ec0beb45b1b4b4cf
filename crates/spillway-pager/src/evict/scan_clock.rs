//! When the accessed bits are scanned: by how much has left, for what does not leave need not be chosen from.

use std::sync::atomic::{AtomicU64, Ordering};

/// Fewer that left do not change what is oldest: a batch.
const LEAST_PAGES: u64 = 64;
const NEVER: u64 = u64::MAX;

/// Says when the next scan is due, on the count of departures.
pub struct ScanClock {
    every_pages: u64,
    due: AtomicU64,
}

impl ScanClock {
    /// Each time that `share` of `limit_pages` has left; of 0, never.
    #[must_use]
    pub fn new(share: f64, limit_pages: usize) -> Self {
        let every_pages = ((limit_pages as f64 * share) as u64).max(LEAST_PAGES);
        let due = if share > 0.0 { every_pages } else { NEVER };
        Self { every_pages, due: AtomicU64::new(due) }
    }

    /// The child's, whose departures are counted on.
    #[must_use]
    pub fn for_child(&self) -> Self {
        Self { every_pages: self.every_pages, due: AtomicU64::new(self.due.load(Ordering::Relaxed)) }
    }

    /// Whether so many departures call for a scan.
    #[must_use]
    pub fn is_due(&self, departures: u64) -> bool {
        departures >= self.due.load(Ordering::Relaxed)
    }

    /// A scan was made, or left out.
    pub fn go_on(&self, departures: u64) {
        self.due.store(departures + self.every_pages, Ordering::Relaxed);
    }

    /// Whether no scan will ever be due.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.due.load(Ordering::Relaxed) == NEVER
    }

    /// There is nothing to scan with.
    pub fn stop(&self) {
        self.due.store(NEVER, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_is_due_when_enough_has_left() {
        let clock = ScanClock::new(0.125, 80_000);
        assert!(!clock.is_due(9_999) && clock.is_due(10_000));
        clock.go_on(12_000);
        assert!(!clock.is_due(21_999) && clock.is_due(22_000) && clock.for_child().is_due(22_000));
        clock.stop();
        assert!(clock.is_stopped() && !ScanClock::new(0.125, 80_000).is_stopped());
        assert!(!clock.is_due(u64::MAX - 1));
        assert!(!ScanClock::new(0.0, 80_000).is_due(u64::MAX - 1));
    }
}
