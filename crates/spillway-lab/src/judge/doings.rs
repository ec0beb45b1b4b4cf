//! What a policy did in a cell: the time, and what tells why it was so long.

use serde::{Deserialize, Serialize};

use crate::run::{Report, RunError, RunSpec, execute_together};

/// What came of a policy's run of a cell, all of its programs together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Doings {
    /// Run time in seconds; of several programs their sum.
    pub run_s: f64,
    /// Far accesses, as a share of those that missed the caches.
    pub far_share: f64,
    /// Pages that came to local memory.
    pub came_pages: u64,
    /// Faults at far pages that had to be fetched.
    pub fetch_faults: u64,
    /// What of the cores' time went to moving pages, fetches included.
    pub moving_share: f64,
    /// What of the cores' time went to scans of accessed bits.
    pub scanning_share: f64,
}

impl Doings {
    /// Runs these programs at once.
    pub(crate) fn of(programs: &[RunSpec]) -> Result<Self, RunError> {
        Ok(Self::sum(&execute_together(programs)?))
    }

    fn sum(reports: &[Report]) -> Self {
        let (mut all, mut misses, mut far, mut cores_s) = (Self::default(), 0.0, 0.0, 0.0);
        for report in reports {
            let time = &report.time;
            all.run_s += report.run_s;
            all.came_pages += report.promotions;
            all.fetch_faults += report.missing_faults;
            all.moving_share += time.migration_s;
            all.scanning_share += time.scan_local_s + time.scan_far_s;
            cores_s += time.app_s + time.fault_s + time.migration_s + time.scan_local_s + time.scan_far_s;
            misses += report.llc_misses as f64;
            far += report.llc_misses as f64 * (1.0 - report.local_hit_ratio);
        }
        all.far_share = if misses > 0.0 { far / misses } else { 0.0 };
        if cores_s > 0.0 {
            all.moving_share /= cores_s;
            all.scanning_share /= cores_s;
        }
        all
    }

    /// In a few words, but for the run time.
    #[must_use]
    pub fn in_words(&self) -> String {
        let Self { far_share, came_pages, fetch_faults, moving_share, scanning_share, .. } = self;
        format!(
            "{:.1}% far, {came_pages} pages came in {fetch_faults} fetches, {:.1}% moving, {:.1}% scanning",
            far_share * 100.0,
            moving_share * 100.0,
            scanning_share * 100.0
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_at_once_are_summed_and_shares_are_of_all_their_time() {
        let spec = RunSpec { workload: "uniform-kv".into(), bytes: 1 << 20, ..RunSpec::default() };
        let spec = RunSpec { policy: "dcm".into(), ..spec };
        let other = RunSpec { seed: 2, ..spec.clone() };
        let of = |programs: &[RunSpec]| Doings::of(programs).map_err(|error| error.to_string()).unwrap();
        let both = of(&[spec.clone(), other.clone()]);
        let each = execute_together(&[spec, other]).map_err(|error| error.to_string()).unwrap();
        assert_eq!(both.run_s, each.iter().map(|report| report.run_s).sum::<f64>());
        assert_eq!(both.fetch_faults, each.iter().map(|report| report.missing_faults).sum::<u64>());
        assert!(both.fetch_faults > 0 && (0.01..1.0).contains(&both.moving_share), "{both:?}");
        assert_eq!(both.far_share, 0.0, "dcm accesses no page where it lies");
    }
}
