//! A histogram of latencies over plain shared counters, so that several processes add to one.

use std::sync::atomic::{AtomicU64, Ordering};

const SUB_BUCKET_BITS: u32 = 4;
const SUB_BUCKETS: u64 = 1 << SUB_BUCKET_BITS;
const OCTAVES: u64 = 36;

/// Counters that a histogram needs.
pub const BUCKETS: usize = (OCTAVES * SUB_BUCKETS) as usize;

/// Latencies in nanoseconds, in buckets that are at most 1/16 wide: exact below 16 ns, then 16 a power of
/// two.
#[derive(Clone, Copy)]
pub struct LatencyHistogram<'a> {
    /// One counter for each of the [`BUCKETS`] buckets.
    pub buckets: &'a [AtomicU64],
    /// The largest latency, in nanoseconds.
    pub max_ns: &'a AtomicU64,
}

fn bucket_of(latency_ns: u64) -> usize {
    if latency_ns < SUB_BUCKETS {
        return latency_ns as usize;
    }
    let octave = u64::from(63 - latency_ns.leading_zeros() - SUB_BUCKET_BITS);
    let within = latency_ns >> octave & (SUB_BUCKETS - 1);
    ((((octave + 1) << SUB_BUCKET_BITS) + within) as usize).min(BUCKETS - 1)
}

fn upper_bound_ns(bucket: usize) -> u64 {
    let (octave, within) = (bucket as u64 >> SUB_BUCKET_BITS, bucket as u64 & (SUB_BUCKETS - 1));
    match octave {
        0 => within,
        _ => ((SUB_BUCKETS + within + 1) << (octave - 1)) - 1,
    }
}

impl LatencyHistogram<'_> {
    /// Counts one latency, in nanoseconds, in its bucket.
    pub fn record(&self, latency_ns: u64) {
        self.buckets[bucket_of(latency_ns)].fetch_add(1, Ordering::Relaxed);
        // Mostly a load: the largest seldom changes.
        if latency_ns > self.max_ns.load(Ordering::Relaxed) {
            self.max_ns.fetch_max(latency_ns, Ordering::Relaxed);
        }
    }

    /// Each bucket that is not empty, in ascending order: its upper bound in nanoseconds, and its count.
    pub fn counts(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let counts = self.buckets.iter().map(|count| count.load(Ordering::Relaxed)).enumerate();
        counts.filter(|(_, count)| *count > 0).map(|(bucket, count)| (upper_bound_ns(bucket), count))
    }

    /// The latency that `share` (0 to 1) of all do not exceed, in nanoseconds; 0 when there are none.
    #[must_use]
    pub fn quantile_ns(&self, share: f64) -> u64 {
        let counts: Vec<u64> = self.buckets.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let total: u64 = counts.iter().sum();
        let bucket = bucket_at(&counts, total, share);
        bucket.map_or(0, |bucket| upper_bound_ns(bucket).min(self.max_ns.load(Ordering::Relaxed)))
    }
}

/// The bucket of the latency that `share` of `total` do not exceed.
fn bucket_at(counts: &[u64], total: u64, share: f64) -> Option<usize> {
    let wanted = ((total as f64 * share).ceil() as u64).max(1);
    let mut seen = 0;
    counts.iter().position(|count| {
        seen += count;
        seen >= wanted
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_bucket_holds_its_latency(latency_ns in 0_u64..1 << 38) {
            let bucket = bucket_of(latency_ns);
            prop_assert!(latency_ns <= upper_bound_ns(bucket));
            prop_assert!(bucket == 0 || latency_ns > upper_bound_ns(bucket - 1));
        }

        #[test]
        fn quantiles_are_within_a_sixteenth(
            mut latencies_ns in proptest::collection::vec(0_u64..1 << 30, 1..300),
        ) {
            let buckets: Vec<_> = (0..BUCKETS).map(|_| AtomicU64::new(0)).collect();
            let max_ns = AtomicU64::new(0);
            let histogram = LatencyHistogram { buckets: &buckets, max_ns: &max_ns };
            latencies_ns.iter().for_each(|&ns| histogram.record(ns));
            latencies_ns.sort_unstable();
            for share in [0.5, 0.9, 0.99, 1.0] {
                let exact = latencies_ns[((latencies_ns.len() as f64 * share).ceil() as usize).max(1) - 1];
                let measured = histogram.quantile_ns(share);
                prop_assert!(measured >= exact && measured as f64 <= exact as f64 * (1.0 + 1.0 / 16.0) + 1.0);
            }
        }
    }

    #[test]
    fn an_empty_histogram_and_the_largest_latency() {
        let buckets: Vec<_> = (0..BUCKETS).map(|_| AtomicU64::new(0)).collect();
        let max_ns = AtomicU64::new(0);
        let histogram = LatencyHistogram { buckets: &buckets, max_ns: &max_ns };
        assert_eq!(histogram.quantile_ns(0.99), 0);
        histogram.record(u64::MAX);
        assert_eq!(max_ns.load(Ordering::Relaxed), u64::MAX);
    }
}
