//! The local limit: one counter that all processes of a run charge before they take a frame.

use std::sync::atomic::{AtomicU64, Ordering};

/// Local pages in use, never more than the limit. Several processes may count in it at once.
#[derive(Clone, Copy)]
pub struct Budget<'a> {
    /// Pages that may be local, all processes together.
    pub limit_pages: &'a AtomicU64,
    /// Pages that are local, all processes together.
    pub local_pages: &'a AtomicU64,
    /// The most that ever were.
    pub peak_local_pages: &'a AtomicU64,
}

impl Budget<'_> {
    /// Charges `pages`, or charges nothing and returns false when that would exceed the limit.
    #[must_use]
    pub fn try_charge(&self, pages: u64) -> bool {
        self.try_charge_beyond(pages, 0)
    }

    /// As [`Self::try_charge`], with up to `reserve_pages` more than the limit: for what must come in before
    /// anything can go out.
    #[must_use]
    pub fn try_charge_beyond(&self, pages: u64, reserve_pages: u64) -> bool {
        let limit = self.limit_pages.load(Ordering::Relaxed) + reserve_pages;
        let charged = self.local_pages.try_update(Ordering::AcqRel, Ordering::Relaxed, |local| {
            local.checked_add(pages).filter(|&sum| sum <= limit)
        });
        if let Ok(before) = charged {
            self.peak_local_pages.fetch_max(before + pages, Ordering::Relaxed);
        }
        charged.is_ok()
    }

    /// Gives back pages that were charged.
    pub fn release(&self, pages: u64) {
        self.local_pages.fetch_sub(pages, Ordering::AcqRel);
    }

    /// Pages that may still be charged.
    #[must_use]
    pub fn headroom_pages(&self) -> u64 {
        let limit = self.limit_pages.load(Ordering::Relaxed);
        limit.saturating_sub(self.local_pages.load(Ordering::Relaxed))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn many_chargers_never_exceed_the_limit() {
        let [limit, local, peak] = [AtomicU64::new(100), AtomicU64::new(0), AtomicU64::new(0)];
        let budget = Budget { limit_pages: &limit, local_pages: &local, peak_local_pages: &peak };
        std::thread::scope(|scope| {
            for thread in 1..=4 {
                scope.spawn(move || {
                    for _ in 0..20_000 {
                        if budget.try_charge(thread * 10) {
                            assert!(budget.local_pages.load(Ordering::SeqCst) <= 100);
                            budget.release(thread * 10);
                        }
                    }
                });
            }
        });
        assert_eq!((budget.headroom_pages(), local.into_inner()), (100, 0));
        assert!((10..=100).contains(&peak.into_inner()));
    }
}
