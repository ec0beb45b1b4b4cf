//! Latencies, as a snapshot has them: counts by the upper bound of their bucket, and what follows from them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use spillway_core::latency::LatencyHistogram;

/// A histogram of latencies since the start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// How many there were.
    pub count: u64,
    /// What they took together, in microseconds: the sum over all threads.
    pub total_us: f64,
    /// The median, in microseconds.
    pub p50_us: f64,
    /// The 99th percentile, in microseconds.
    pub p99_us: f64,
    /// The longest, in microseconds.
    pub max_us: f64,
    /// Each bucket that is not empty: its upper bound in nanoseconds, at most 1/16 above any latency in it,
    /// and how many are in it.
    pub buckets: Vec<(u64, u64)>,
}

impl Latency {
    /// Reads a histogram that others add to; `total_ns` is what all took together.
    #[must_use]
    pub fn read(histogram: &LatencyHistogram<'_>, total_ns: u64) -> Self {
        let us = |ns: u64| ns as f64 / 1e3;
        let buckets: Vec<(u64, u64)> = histogram.counts().collect();
        Self {
            count: buckets.iter().map(|(_, count)| count).sum(),
            total_us: us(total_ns),
            p50_us: us(histogram.quantile_ns(0.5)),
            p99_us: us(histogram.quantile_ns(0.99)),
            max_us: us(histogram.max_ns.load(std::sync::atomic::Ordering::Relaxed)),
            buckets,
        }
    }

    /// What came since `before`, which is an earlier look at the same histogram: the counts by bucket.
    #[must_use]
    pub fn since(&self, before: &Self) -> Vec<(u64, u64)> {
        let before: BTreeMap<u64, u64> = before.buckets.iter().copied().collect();
        let new = |&(bound, count): &(u64, u64)| {
            (bound, count.saturating_sub(before.get(&bound).copied().unwrap_or(0)))
        };
        self.buckets.iter().map(new).filter(|(_, count)| *count > 0).collect()
    }
}

/// The latency in microseconds that `share` of those in `buckets` do not exceed, to 1/16; none where there
/// are none.
#[must_use]
pub fn quantile_us(buckets: &[(u64, u64)], share: f64) -> Option<f64> {
    // Who tells of itself may tell anything.
    let total = buckets.iter().fold(0u64, |sum, (_, count)| sum.saturating_add(*count));
    let wanted = ((total as f64 * share).ceil() as u64).max(1);
    let mut seen = 0u64;
    let found = buckets.iter().find(|(_, count)| {
        seen = seen.saturating_add(*count);
        seen >= wanted
    });
    found.map(|(bound_ns, _)| *bound_ns as f64 / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn latency(buckets: &[(u64, u64)]) -> Latency {
        Latency { buckets: buckets.to_vec(), ..Latency::default() }
    }

    #[test]
    fn what_came_between_two_looks_has_quantiles_of_its_own() {
        let (before, now) = (latency(&[(10, 5), (20, 1)]), latency(&[(10, 5), (20, 4), (4000, 1)]));
        let new = now.since(&before);
        assert_eq!(new, [(20, 3), (4000, 1)]);
        assert_eq!(quantile_us(&new, 0.5), Some(0.02));
        assert_eq!(quantile_us(&new, 0.99), Some(4.0));
        assert_eq!(quantile_us(&[], 0.5), None);
        assert!(now.since(&now).is_empty());
        assert_eq!(quantile_us(&[(10, u64::MAX), (20, u64::MAX)], 0.99), Some(0.01), "whatever is told");
    }
}
