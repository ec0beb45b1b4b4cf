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

    /// The counts by powers of two, from the first that has any to the last, those between that have none
    /// included: the bound in nanoseconds that latencies are below, and how many are.
    #[must_use]
    pub fn octaves(&self) -> Vec<(u64, u64)> {
        let octave = |bound_ns: u64| bound_ns.max(1).ilog2();
        let octaves = || self.buckets.iter().map(|(bound_ns, _)| octave(*bound_ns));
        let (Some(first), Some(last)) = (octaves().min(), octaves().max()) else { return Vec::new() };
        let bound_ns = |octave: u32| 1_u64.checked_shl(octave + 1).unwrap_or(u64::MAX);
        let mut counts: Vec<(u64, u64)> = (first..=last).map(|octave| (bound_ns(octave), 0)).collect();
        for (bound_ns, count) in &self.buckets {
            if let Some((_, sum)) = counts.get_mut((octave(*bound_ns) - first) as usize) {
                // Who tells of itself may tell anything.
                *sum = sum.saturating_add(*count);
            }
        }
        counts
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
    fn octaves_are_without_gaps_and_lose_nothing_whatever_is_told() {
        let told = latency(&[(10, 5), (15, 1), (100, 2)]);
        assert_eq!(told.octaves(), [(16, 6), (32, 0), (64, 0), (128, 2)]);
        assert!(Latency::default().octaves().is_empty());
        let strange = latency(&[(u64::MAX, u64::MAX), (0, 1), (u64::MAX, 1)]).octaves();
        assert_eq!(strange.len(), 64);
        assert_eq!((strange[0], strange[63]), ((2, 1), (u64::MAX, u64::MAX)));
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
