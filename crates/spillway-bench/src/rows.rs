//! What comes out of a comparison.

use serde::{Deserialize, Serialize};

use crate::access::{AccessResult, Data, Pattern};
use crate::cells::{Setting, StoreKind};
use crate::machine::Machine;

/// Linux swap, in one of the ways in which people set it up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Versus {
    /// On a loop device on tmpfs.
    SwapRamdisk,
    /// Linux swap on zram.
    SwapZram,
    /// Over the kernel's nbd, to the donor that Spillway has too.
    SwapNbd,
}

impl Versus {
    /// What it swaps to, in a word.
    #[must_use]
    pub fn device(self) -> &'static str {
        match self {
            Self::SwapRamdisk => "ramdisk",
            Self::SwapZram => "zram",
            Self::SwapNbd => "nbd",
        }
    }
}

/// One measurement of one side.
#[derive(Clone, Debug)]
pub struct Sample {
    /// What the process measured.
    pub result: AccessResult,
    /// Pages that came in, or faults for them under swap, for each access.
    pub misses_per_access: f64,
    /// How Spillway took faults, where its statistics say so.
    pub fault_mode: Option<String>,
}

/// One comparison that was made. The medians are those of all repetitions.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Order of the accesses.
    pub pattern: Pattern,
    /// How many threads accessed memory.
    pub threads: usize,
    /// Share of the memory that may be local, in percent.
    pub local_pct: u64,
    /// What the memory held.
    pub data: Data,
    /// Where far pages go.
    pub store: StoreKind,
    /// How faults reach Spillway.
    pub fault_mode: String,
    /// What it is compared with.
    pub versus: Versus,
    /// Swap's read-ahead: `2^page_cluster` pages.
    pub page_cluster: u32,
    /// Memory of the process.
    pub memory_bytes: u64,
    /// How often both were measured.
    pub repetitions: usize,
    /// Spillway's median over all repetitions.
    pub ns_per_access: f64,
    /// Spillway's time in its best repetition.
    pub ns_per_access_min: f64,
    /// Spillway's time in its worst repetition.
    pub ns_per_access_max: f64,
    /// Swap's median over all repetitions.
    pub versus_ns_per_access: f64,
    /// Swap's time in its best repetition.
    pub versus_ns_per_access_min: f64,
    /// Swap's time in its worst repetition.
    pub versus_ns_per_access_max: f64,
    /// How many times faster Spillway was, in the median repetition.
    pub ratio_median: f64,
    /// The ratio of the worst pair.
    pub ratio_min: f64,
    /// The ratio of the best pair.
    pub ratio_max: f64,
    /// Spillway's bandwidth where whole pages are accessed.
    pub gb_per_s: Option<f64>,
    /// Swap's bandwidth in the same case.
    pub versus_gb_per_s: Option<f64>,
    /// Pages that Spillway fetched, per access.
    pub misses_per_access: f64,
    /// Major faults of swap, per access.
    pub versus_misses_per_access: f64,
    /// Processor time per access of the process, its pager and the kernel for it; not of a donor.
    pub cpu_ns_per_access: f64,
    /// The same under swap; not of the kernel's own threads.
    pub versus_cpu_ns_per_access: f64,
    /// The command that gives Spillway's side by itself.
    pub command: String,
}

/// All of it, with what is needed to do it again.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PagingReport {
    /// Where it was measured.
    pub machine: Machine,
    /// Memory of the measured process.
    pub memory_bytes: u64,
    /// Time of one measurement, after a warm-up of the same time.
    pub measured_ms: u64,
    /// How often each pair was measured.
    pub repetitions: usize,
    /// What `spillway run` was given beside the limit and the store.
    pub run_options: Vec<String>,
    /// Settings for which the time did not suffice.
    pub settings_left_out: usize,
    /// A row for each comparison.
    pub rows: Vec<Row>,
}

/// The least, the middle one and the most of some values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The least of the values.
    pub min: f64,
    /// The middle one of the values.
    pub median: f64,
    /// The largest of the values.
    pub max: f64,
}

impl Spread {
    /// Of these values; zeros where there are none.
    #[must_use]
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let at = |index: usize| values.get(index).copied().unwrap_or(0.0);
        Self { min: at(0), median: at(values.len() / 2), max: at(values.len().saturating_sub(1)) }
    }
}

impl Row {
    /// The row but for what is compared with what.
    #[must_use]
    pub fn new(setting: &Setting, ours: &[Sample], theirs: &[Sample]) -> Self {
        let ns = |samples: &[Sample]| Spread::of(samples.iter().map(|sample| sample.result.ns_per_access));
        let cpu =
            |samples: &[Sample]| Spread::of(samples.iter().map(|sample| sample.result.cpu_ns_per_access));
        let misses =
            |samples: &[Sample]| Spread::of(samples.iter().map(|sample| sample.misses_per_access)).median;
        let ratio = Spread::of(
            ours.iter()
                .zip(theirs)
                .map(|(ours, theirs)| theirs.result.ns_per_access / ours.result.ns_per_access),
        );
        let bandwidth = |ns: f64| setting.pattern.is_streaming().then(|| 4096.0 / ns);
        let (our_ns, their_ns) = (ns(ours), ns(theirs));
        let fault_mode = ours.iter().find_map(|sample| sample.fault_mode.clone());
        Self {
            pattern: setting.pattern,
            threads: setting.threads,
            local_pct: setting.local_pct,
            data: setting.data,
            store: StoreKind::Ram,
            // Older statistics do not say: there was one mode only.
            fault_mode: fault_mode.unwrap_or_else(|| "thread".to_owned()),
            versus: Versus::SwapRamdisk,
            page_cluster: 0,
            memory_bytes: 0,
            repetitions: ours.len(),
            ns_per_access: our_ns.median,
            ns_per_access_min: our_ns.min,
            ns_per_access_max: our_ns.max,
            versus_ns_per_access: their_ns.median,
            versus_ns_per_access_min: their_ns.min,
            versus_ns_per_access_max: their_ns.max,
            ratio_median: ratio.median,
            ratio_min: ratio.min,
            ratio_max: ratio.max,
            gb_per_s: bandwidth(our_ns.median),
            versus_gb_per_s: bandwidth(their_ns.median),
            misses_per_access: misses(ours),
            versus_misses_per_access: misses(theirs),
            cpu_ns_per_access: cpu(ours).median,
            versus_cpu_ns_per_access: cpu(theirs).median,
            command: String::new(),
        }
    }
}

#[cfg(test)]
impl Sample {
    /// One that took so long.
    pub(crate) fn of_us(us: f64) -> Self {
        let result = AccessResult {
            accesses: 100,
            accesses_in_all: 200,
            ns_per_access: us * 1000.0,
            cpu_ns_per_access: us * 500.0,
            major_faults: 50,
            peak_resident_bytes: 0,
        };
        Self { result, misses_per_access: 0.75, fault_mode: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(ns: f64, fault_mode: Option<&str>) -> Sample {
        Sample { fault_mode: fault_mode.map(str::to_owned), ..Sample::of_us(ns / 1000.0) }
    }

    #[test]
    fn spreads_have_the_middle_and_both_ends() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Spread { min: 1.0, median: 2.0, max: 3.0 });
        assert_eq!(Spread::of([]), Spread { min: 0.0, median: 0.0, max: 0.0 });
    }

    #[test]
    fn a_row_pairs_repetition_with_repetition() {
        let setting =
            Setting { pattern: Pattern::SequentialRead, threads: 1, local_pct: 25, data: Data::Random };
        let (ours, theirs) = ([10.0, 20.0, 30.0], [40.0, 20.0, 90.0]);
        let row = Row::new(
            &setting,
            &ours.map(|ns| sample(ns, Some("inline"))),
            &theirs.map(|ns| sample(ns, None)),
        );
        assert_eq!((row.ratio_min, row.ratio_median, row.ratio_max), (1.0, 3.0, 4.0));
        assert_eq!((row.ns_per_access_min, row.ns_per_access, row.ns_per_access_max), (10.0, 20.0, 30.0));
        assert_eq!((row.cpu_ns_per_access, row.versus_cpu_ns_per_access), (10.0, 20.0));
        assert_eq!((row.fault_mode.as_str(), row.misses_per_access), ("inline", 0.75));
        assert_eq!(row.gb_per_s, Some(4096.0 / 20.0));
    }
}
