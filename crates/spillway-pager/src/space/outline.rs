//! The managed ranges as somebody may see them who must not wait, nor take a lock: a system call of the
//! program's, with signals let in.
//!
//! Invariant: what [`Outline::excludes`] says is managed nowhere was not managed when it was asked, and
//! nobody was about to manage it. Who is, says so first and then looks at what system calls hold; a system
//! call says what it holds first and then asks. So one of the two sees the other (both fence).

use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

use crate::space::regions::Regions;

/// Ranges that are told apart. Of more nothing is known.
const RANGES: usize = 1024;

/// The bounds of managed ranges, in the order of their addresses.
pub struct Outline {
    /// Odd while the ranges change.
    version: AtomicU64,
    count: AtomicUsize,
    ranges: Box<[(AtomicUsize, AtomicUsize)]>,
}

impl Default for Outline {
    fn default() -> Self {
        Self {
            version: AtomicU64::new(0),
            count: AtomicUsize::new(0),
            ranges: (0..RANGES).map(|_| (AtomicUsize::new(0), AtomicUsize::new(0))).collect(),
        }
    }
}

impl Outline {
    /// The managed ranges are about to change. Under their lock, as what follows.
    pub fn begin(&self) {
        self.version.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// They have changed, and are as `regions` has them.
    pub fn publish(&self, regions: &Regions) {
        let mut count = 0;
        for (range, _) in regions.iter() {
            if let Some((start, end)) = self.ranges.get(count) {
                start.store(range.start, Ordering::Relaxed);
                end.store(range.end, Ordering::Relaxed);
            }
            count += 1;
        }
        self.count.store(count, Ordering::Relaxed);
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Whether nothing of a range is managed, or about to be. False also where that cannot be known.
    #[must_use]
    pub fn excludes(&self, range: &Range<usize>) -> bool {
        let version = self.version.load(Ordering::Acquire);
        let count = self.count.load(Ordering::Relaxed);
        if !version.is_multiple_of(2) || count > RANGES {
            return false;
        }
        let before =
            self.ranges[..count].partition_point(|(_, end)| end.load(Ordering::Relaxed) <= range.start);
        let next = self.ranges[..count].get(before);
        let is_free = next.is_none_or(|(start, _)| start.load(Ordering::Relaxed) >= range.end);
        fence(Ordering::Acquire);
        is_free && self.version.load(Ordering::Relaxed) == version
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::regions::OnFork;
    use proptest::prelude::*;
    use std::sync::atomic::AtomicBool;

    fn publish(outline: &Outline, regions: &Regions) {
        outline.begin();
        outline.publish(regions);
    }

    proptest! {
        #[test]
        fn it_excludes_what_the_regions_have_nothing_of(
            ranges in proptest::collection::vec((0_usize..200, 1_usize..20), 0..20),
            asked in proptest::collection::vec((0_usize..220, 1_usize..20), 1..20),
        ) {
            let (outline, mut regions) = (Outline::default(), Regions::new());
            for (start, length) in ranges {
                regions.insert(start..start + length, OnFork::default());
            }
            publish(&outline, &regions);
            for (start, length) in asked {
                let range = start..start + length;
                prop_assert_eq!(outline.excludes(&range), regions.within(&range).is_empty());
            }
        }
    }

    #[test]
    fn nothing_is_known_of_a_change_under_way_and_of_too_many() {
        let (outline, mut regions) = (Outline::default(), Regions::new());
        outline.begin();
        assert!(!outline.excludes(&(5..6)));
        outline.publish(&regions);
        assert!(outline.excludes(&(5..6)));
        (0..=RANGES).for_each(|i| regions.insert(i * 10 + 100..i * 10 + 101, OnFork::default()));
        publish(&outline, &regions);
        assert!(!outline.excludes(&(5..6)));
    }

    #[test]
    fn who_asks_meanwhile_is_never_told_wrong() {
        let (outline, stop) = (Outline::default(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut regions = Regions::new();
                regions.insert(1000..1010, OnFork::default());
                for round in 0..200_000 {
                    outline.begin();
                    // Always managed, whatever lies before it.
                    match round % 2 {
                        0 => (0..10).for_each(|i| regions.insert(i * 20..i * 20 + 1, OnFork::default())),
                        _ => regions.remove(&(0..500)),
                    }
                    outline.publish(&regions);
                }
                stop.store(true, Ordering::Relaxed);
            });
            while !stop.load(Ordering::Relaxed) {
                let is_known = outline.version.load(Ordering::Relaxed) > 1;
                assert!(!(is_known && outline.excludes(&(1005..1006))));
            }
        });
    }
}
