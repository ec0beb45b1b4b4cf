//! What comes out: each of Spillway's configurations beside each rival.

use serde::{Deserialize, Serialize};

use super::watch::Memory;
use crate::machine::Machine;
use crate::rows::Spread;
use crate::whole::workload::{Latency, Measure};

/// How Spillway is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Configuration {
    /// No flag but `--local`.
    Default,
    /// With `--fault-mode inline` as well.
    Inline,
    /// With `--store ram:` as well.
    Ram,
    /// A donor on this machine by TCP.
    DonorTcp,
}

impl Configuration {
    /// All, in the order of the tables.
    pub const ALL: [Self; 4] = [Self::Default, Self::Inline, Self::Ram, Self::DonorTcp];

    /// Its name in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Inline => "inline",
            Self::Ram => "ram",
            Self::DonorTcp => "donor_tcp",
        }
    }
}

/// What Spillway is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rival {
    /// Linux swap on zram.
    Zram,
    /// Linux swap on a RAM disk.
    Ramdisk,
    /// All memory that the program wants.
    Unlimited,
}

impl Rival {
    /// All, in the order of the tables.
    pub const ALL: [Self; 3] = [Self::Zram, Self::Ramdisk, Self::Unlimited];

    /// Its name in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Zram => "zram",
            Self::Ramdisk => "ramdisk",
            Self::Unlimited => "unlimited",
        }
    }
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// To its end, with the right result.
    Ok,
    /// Before its end, such as for want of memory.
    Killed,
    /// With a wrong result.
    Wrong,
}

/// One run of one side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// How it ended. All numbers are of a run that ended well, or 0.
    pub outcome: Outcome,
    /// In the program's unit.
    pub value: f64,
    /// What its processes held.
    pub memory: Memory,
    /// Processor time of all its processes, in seconds.
    pub cpu_s: f64,
    /// Pages that Spillway fetched.
    pub fetched_pages: u64,
    /// Pages that the kernel swapped in.
    pub swapped_in_pages: u64,
    /// How long its clients waited.
    pub latency: Option<Latency>,
    /// Why it did not end well.
    pub reason: Option<String>,
}

/// All runs of one side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// What this side was set to, such as `page-cluster 3`.
    pub setting: String,
    /// Its runs, in the order of the turns.
    pub samples: Vec<Sample>,
}

impl Side {
    /// The worst that became of its runs: one that is killed or wrong is not made good by others.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        let any = |outcome| self.samples.iter().any(|sample| sample.outcome == outcome);
        match (any(Outcome::Wrong), any(Outcome::Killed) || self.samples.is_empty()) {
            (true, _) => Outcome::Wrong,
            (false, true) => Outcome::Killed,
            (false, false) => Outcome::Ok,
        }
    }

    /// Why the first run that did not end well did not.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        self.samples.iter().find_map(|sample| sample.reason.as_deref())
    }

    fn median(&self, of: impl Fn(&Sample) -> f64) -> f64 {
        let good = self.samples.iter().filter(|sample| sample.outcome == Outcome::Ok);
        Spread::of(good.map(of)).median
    }

    /// The median value of the runs that ended well.
    #[must_use]
    pub fn value(&self) -> f64 {
        self.median(|sample| sample.value)
    }
}

/// Spillway beside one rival, of one program at one share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Which program was run.
    pub program: String,
    /// Share of its anonymous memory that may be local, in percent.
    pub local_pct: u64,
    /// How Spillway was set up.
    pub configuration: Configuration,
    /// What it is compared with.
    pub versus: Rival,
    /// The rival's setting: of several its best.
    pub versus_setting: String,
    /// How many times as fast as the rival Spillway is, turn by turn; none where either was killed or wrong.
    pub ratio_median: Option<f64>,
    /// The least of the turns.
    pub ratio_min: Option<f64>,
    /// The most of the turns.
    pub ratio_max: Option<f64>,
    /// In the program's unit.
    pub value: f64,
    /// The same of the rival.
    pub versus_value: f64,
    /// Pages that Spillway fetched.
    pub fetched_pages: u64,
    /// Pages that the rival swapped in.
    pub swapped_in_pages: u64,
    /// Processor time, in seconds.
    pub cpu_s: f64,
    /// The same of the rival.
    pub versus_cpu_s: f64,
    /// Resident anonymous memory, the median over the run.
    pub anonymous_bytes: u64,
    /// The same of the rival.
    pub versus_anonymous_bytes: u64,
    /// What Spillway needs besides.
    pub besides_bytes: u64,
    /// What the kernel needs besides.
    pub versus_besides_bytes: u64,
    /// How long the program's clients waited, in the median run.
    pub latency: Option<Latency>,
    /// The same under the rival.
    pub versus_latency: Option<Latency>,
    /// How Spillway's runs ended.
    pub outcome: Outcome,
    /// How the rival's runs ended.
    pub versus_outcome: Outcome,
}

/// How far apart the two sides' memory may be to count as equal.
pub(crate) const EQUAL_SHARE: f64 = 0.03;

impl Row {
    pub(super) fn new(
        (program, measure): (&str, Measure),
        local_pct: u64,
        (configuration, ours): (Configuration, &Side),
        (versus, theirs): (Rival, &Side),
    ) -> Self {
        let pairs = ours.samples.iter().zip(&theirs.samples);
        let good = pairs.filter(|(a, b)| a.outcome == Outcome::Ok && b.outcome == Outcome::Ok);
        let ratios: Vec<f64> = good.map(|(a, b)| measure.normalised(b.value, a.value)).collect();
        let both_end_well = ours.outcome() == Outcome::Ok && theirs.outcome() == Outcome::Ok;
        let spread = (both_end_well && !ratios.is_empty()).then(|| Spread::of(ratios));
        let pages = |side: &Side, of: fn(&Sample) -> u64| side.median(|sample| of(sample) as f64) as u64;
        let latency =
            |side: &Side| side.samples.get(side.samples.len() / 2).and_then(|sample| sample.latency);
        Self {
            program: program.to_owned(),
            local_pct,
            configuration,
            versus,
            versus_setting: theirs.setting.clone(),
            ratio_median: spread.as_ref().map(|spread| spread.median),
            ratio_min: spread.as_ref().map(|spread| spread.min),
            ratio_max: spread.as_ref().map(|spread| spread.max),
            value: ours.value(),
            versus_value: theirs.value(),
            fetched_pages: pages(ours, |sample| sample.fetched_pages),
            swapped_in_pages: pages(theirs, |sample| sample.swapped_in_pages),
            cpu_s: ours.median(|sample| sample.cpu_s),
            versus_cpu_s: theirs.median(|sample| sample.cpu_s),
            anonymous_bytes: pages(ours, |sample| sample.memory.anonymous_bytes),
            versus_anonymous_bytes: pages(theirs, |sample| sample.memory.anonymous_bytes),
            besides_bytes: pages(ours, |sample| sample.memory.besides_bytes),
            versus_besides_bytes: pages(theirs, |sample| sample.memory.besides_bytes),
            latency: latency(ours),
            versus_latency: latency(theirs),
            outcome: ours.outcome(),
            versus_outcome: theirs.outcome(),
        }
    }

    /// Whether the two sides had the same memory; unlimited is meant to have more.
    #[must_use]
    pub fn memory_is_equal(&self) -> bool {
        let (ours, theirs) = (self.anonymous_bytes as f64, self.versus_anonymous_bytes as f64);
        self.versus == Rival::Unlimited || (ours - theirs).abs() <= EQUAL_SHARE * theirs
    }
}

/// A program that was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Program {
    /// Its name in tables.
    pub name: String,
    /// What it does with what.
    pub about: String,
    /// What its value is.
    pub measure: Measure,
    /// Its value with all memory.
    pub unlimited: f64,
    /// Anonymous memory at its peak: the shares are shares of this.
    pub peak_anonymous_bytes: u64,
}

/// All that was measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProgramsReport {
    /// The machine that it was measured on.
    pub machine: Machine,
    /// Whether inputs were small.
    pub quick: bool,
    /// Shares of the memory that could be local, in percent.
    #[serde(default)]
    pub shares: Vec<u64>,
    /// How many turns there were.
    pub repetitions: usize,
    /// The programs that were measured.
    pub programs: Vec<Program>,
    /// All comparisons that were made.
    pub rows: Vec<Row>,
    /// What could not be measured, and why.
    pub not_measured: Vec<String>,
    /// The user has interrupted it.
    pub interrupted: bool,
}

impl ProgramsReport {
    /// The geometric mean of the ratios of a configuration over a rival, and of how many programs.
    #[must_use]
    pub fn mean(&self, local_pct: u64, configuration: Configuration, versus: Rival) -> Option<(f64, usize)> {
        let rows = self.rows.iter().filter(|row| {
            (row.local_pct, row.configuration, row.versus) == (local_pct, configuration, versus)
        });
        let logs: Vec<f64> = rows.filter_map(|row| row.ratio_median).map(f64::ln).collect();
        let mean = logs.iter().sum::<f64>() / logs.len() as f64;
        (!logs.is_empty()).then(|| (mean.exp(), logs.len()))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn side(setting: &str, runs: &[(Outcome, f64)]) -> Side {
        let sample = |&(outcome, value): &(Outcome, f64)| Sample {
            outcome,
            value,
            memory: Memory { anonymous_bytes: 100, ..Memory::default() },
            cpu_s: 1.0,
            fetched_pages: 7,
            swapped_in_pages: 9,
            latency: None,
            reason: None,
        };
        Side { setting: setting.to_owned(), samples: runs.iter().map(sample).collect() }
    }

    pub(crate) fn row(ours: &Side, theirs: &Side, measure: Measure) -> Row {
        Row::new(("sort", measure), 50, (Configuration::Default, ours), (Rival::Zram, theirs))
    }

    #[test]
    fn a_ratio_above_one_says_that_spillway_is_faster() {
        let (fast, slow) = (side("", &[(Outcome::Ok, 2.0); 3]), side("", &[(Outcome::Ok, 3.0); 3]));
        assert_eq!(row(&fast, &slow, Measure::Seconds).ratio_median, Some(1.5));
        assert_eq!(row(&slow, &fast, Measure::PerSecond).ratio_median, Some(1.5));
    }

    #[test]
    fn a_side_that_is_killed_once_or_wrong_has_no_ratio_and_says_so() {
        let good = side("", &[(Outcome::Ok, 2.0), (Outcome::Ok, 2.0)]);
        for outcome in [Outcome::Killed, Outcome::Wrong] {
            let bad = side("", &[(Outcome::Ok, 2.0), (outcome, 0.0)]);
            let row = row(&bad, &good, Measure::Seconds);
            assert_eq!((row.ratio_median, row.outcome, row.versus_outcome), (None, outcome, Outcome::Ok));
        }
        assert_eq!(side("", &[]).outcome(), Outcome::Killed);
    }
}
