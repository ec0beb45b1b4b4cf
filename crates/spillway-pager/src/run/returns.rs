//! Faults that fetched a page, by how many others of its process had left since it did: had so much more been
//! local, the page would not have gone. Known as the refault distance (Linux, mm/workingset.c).

use std::sync::atomic::{AtomicU64, Ordering};

use spillway_core::distances::{DISTANCES, bucket_of, end_of};

/// Words that this takes: two for each bucket of distances.
pub(super) const RETURN_WORDS: usize = DISTANCES * 2;

/// Faults that fetched pages which had been away about as long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Return {
    /// Fewer pages than this had left since theirs did.
    pub within_pages: u64,
    /// How many faults these are.
    pub faults: u64,
    /// What they took together, in nanoseconds.
    pub ns: u64,
}

/// What is counted of them, all processes of the run together.
#[derive(Clone, Copy)]
pub struct Returns<'a>(pub(super) &'a [AtomicU64]);

impl Returns<'_> {
    /// Notes a fault that fetched a page which so many others have left after, and what it took.
    pub fn note(&self, away_pages: u64, latency_ns: u64) {
        let at = bucket_of(away_pages) * 2;
        self.0[at].fetch_add(1, Ordering::Relaxed);
        self.0[at + 1].fetch_add(latency_ns, Ordering::Relaxed);
    }

    /// Those that there were, the nearest first.
    #[must_use]
    pub fn read(&self) -> Vec<Return> {
        let (pairs, _) = self.0.as_chunks::<2>();
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let each = pairs.iter().enumerate().map(|(bucket, [faults, ns])| Return {
            within_pages: end_of(bucket),
            faults: load(faults),
            ns: load(ns),
        });
        each.filter(|returned| returned.faults > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_told_by_how_far_their_pages_were() {
        let words: Vec<AtomicU64> = (0..RETURN_WORDS).map(|_| AtomicU64::new(0)).collect();
        let returns = Returns(&words);
        assert_eq!(returns.read(), []);
        for (away_pages, latency_ns) in [(100, 5_000), (1 << 20, 900_000), (101, 7_000)] {
            returns.note(away_pages, latency_ns);
        }
        let near = Return { within_pages: 112, faults: 2, ns: 12_000 };
        let far = Return { within_pages: 5 << 18, faults: 1, ns: 900_000 };
        assert_eq!(returns.read(), [near, far]);
    }
}
