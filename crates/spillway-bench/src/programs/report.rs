//! What comes out: each of Spillway's configurations beside each rival.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::watch::Memory;
use crate::machine::Machine;
use crate::rows::Spread;
use crate::whole::workload::{Latency, Measure};

/// How Spillway is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum Configuration {
    /// No flag but '--local'
    Default,
    /// With '--fault-mode inline' as well
    Inline,
    /// With '--fault-mode thread' as well
    Thread,
    /// With '--store ram:' as well
    Ram,
    /// With a donor on this machine by TCP
    DonorTcp,
}

impl Configuration {
    /// All, in the order of the tables.
    pub const ALL: [Self; 5] = [Self::Default, Self::Inline, Self::Thread, Self::Ram, Self::DonorTcp];
    /// Those of a quick run.
    pub const QUICK: [Self; 3] = [Self::Default, Self::Ram, Self::DonorTcp];

    /// Its name in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Inline => "inline",
            Self::Thread => "thread",
            Self::Ram => "ram",
            Self::DonorTcp => "donor_tcp",
        }
    }
}

/// What Spillway is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Rival {
    /// Linux swap on zram
    Zram,
    /// Linux swap on a RAM disk
    Ramdisk,
    /// All memory that the program wants: it is always measured, for the shares are of it
    #[value(skip)]
    Unlimited,
}

impl Rival {
    /// All, in the order of the tables.
    pub const ALL: [Self; 3] = [Self::Zram, Self::Ramdisk, Self::Unlimited];
    /// Those that have as little memory.
    pub const SWAP: [Self; 2] = [Self::Zram, Self::Ramdisk];

    /// Its name in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Zram => "zram",
            Self::Ramdisk => "ramdisk",
            Self::Unlimited => "unlimited",
        }
    }

    /// Its name in sentences.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Zram => "zram",
            Self::Ramdisk => "swap on a RAM disk",
            Self::Unlimited => "a run with all memory",
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
    /// The whole run by the clock on the wall, in seconds.
    pub wall_s: f64,
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

    /// The median of the runs that ended well.
    pub(super) fn median(&self, of: impl Fn(&Sample) -> f64) -> f64 {
        let good = self.samples.iter().filter(|sample| sample.outcome == Outcome::Ok);
        Spread::of(good.map(of)).median
    }

    fn latency(&self) -> Option<Latency> {
        let good = self.samples.iter().filter(|sample| sample.outcome == Outcome::Ok);
        let waits: Vec<Latency> = good.filter_map(|sample| sample.latency).collect();
        let median = |of: fn(&Latency) -> f64| Spread::of(waits.iter().map(of)).median;
        let latency = Latency { p50_us: median(|wait| wait.p50_us), p99_us: median(|wait| wait.p99_us) };
        (!waits.is_empty()).then_some(latency)
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
    /// Resident anonymous memory, the median since it has grown.
    pub anonymous_bytes: u64,
    /// The same of the rival.
    pub versus_anonymous_bytes: u64,
    /// What Spillway needs besides.
    pub besides_bytes: u64,
    /// What the kernel needs besides.
    pub versus_besides_bytes: u64,
    /// How long the program's clients waited: the median of its runs.
    pub latency: Option<Latency>,
    /// The same under the rival.
    pub versus_latency: Option<Latency>,
    /// How Spillway's runs ended.
    pub outcome: Outcome,
    /// Why the first that did not end well did not.
    pub reason: Option<String>,
    /// How the rival's runs ended.
    pub versus_outcome: Outcome,
    /// Why the first of these did not end well.
    pub versus_reason: Option<String>,
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
            latency: ours.latency(),
            versus_latency: theirs.latency(),
            outcome: ours.outcome(),
            reason: ours.reason().map(str::to_owned),
            versus_outcome: theirs.outcome(),
            versus_reason: theirs.reason().map(str::to_owned),
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
    /// Its runs with all memory, for a run that goes on from here.
    pub alone: Side,
}

/// What a report from before there was a choice was compared with.
fn all_swap() -> Vec<Rival> {
    Rival::SWAP.to_vec()
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
    /// How Spillway was set up.
    #[serde(default)]
    pub configurations: Vec<Configuration>,
    /// What it was compared with, besides a run with all memory.
    #[serde(default = "all_swap")]
    pub rivals: Vec<Rival>,
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

/// What the ratios of a configuration over a rival come to.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// The geometric mean of the ratios of programs that both sides end well with as much memory.
    pub mean: f64,
    /// Of how many programs.
    pub programs: usize,
    /// Programs that a rival could not be made to run in as much memory: these say nothing of speed.
    pub unequal: Vec<String>,
    /// The program with the least ratio, and that.
    pub worst: (String, f64),
    /// Programs that Spillway has lost: killed, or wrong.
    pub lost: Vec<String>,
}

impl ProgramsReport {
    /// The rows of a configuration beside a rival.
    pub(crate) fn beside(
        &self,
        local_pct: u64,
        configuration: Configuration,
        versus: Rival,
    ) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| {
            (row.local_pct, row.configuration, row.versus) == (local_pct, configuration, versus)
        })
    }

    /// What the ratios of a configuration over a rival come to; none where there is no row.
    #[must_use]
    pub fn summary(&self, local_pct: u64, configuration: Configuration, versus: Rival) -> Option<Summary> {
        let rows: Vec<&Row> = self.beside(local_pct, configuration, versus).collect();
        let equal = rows.iter().filter(|row| row.memory_is_equal());
        let ratios = || equal.clone().filter_map(|row| Some((row.program.clone(), row.ratio_median?)));
        let unequal = rows.iter().filter(|row| row.ratio_median.is_some() && !row.memory_is_equal());
        let unequal: Vec<String> = unequal.map(|row| row.program.clone()).collect();
        let lost = rows.iter().filter(|row| row.outcome != Outcome::Ok).map(|row| row.program.clone());
        let lost: Vec<String> = lost.collect();
        let Some(worst) = ratios().min_by(|a, b| a.1.total_cmp(&b.1)) else {
            let worst = (String::new(), f64::NAN);
            let nothing = Summary { mean: f64::NAN, programs: 0, unequal, worst, lost };
            return (!rows.is_empty()).then_some(nothing);
        };
        let mean = geometric_mean(ratios().map(|(_, ratio)| ratio));
        Some(Summary { mean, programs: ratios().count(), unequal, worst, lost })
    }

    /// Whether this program is measured at this share.
    #[must_use]
    pub fn has(&self, program: &str, local_pct: u64) -> bool {
        self.rows.iter().any(|row| row.program == program && row.local_pct == local_pct)
    }
}

/// Not a number where there are no values.
pub(crate) fn geometric_mean(values: impl Iterator<Item = f64>) -> f64 {
    let logs: Vec<f64> = values.map(f64::ln).collect();
    (logs.iter().sum::<f64>() / logs.len() as f64).exp()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn side(setting: &str, runs: &[(Outcome, f64)]) -> Side {
        let sample = |&(outcome, value): &(Outcome, f64)| Sample {
            outcome,
            value,
            wall_s: value,
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

    /// A report of these rows, at 50%.
    pub(crate) fn report_of(rows: Vec<Row>) -> ProgramsReport {
        let program = |row: &Row| Program {
            name: row.program.clone(),
            about: "does what it does".to_owned(),
            measure: Measure::Seconds,
            unlimited: 1.0,
            peak_anonymous_bytes: 100 << 20,
            alone: side("", &[(Outcome::Ok, 1.0)]),
        };
        ProgramsReport {
            machine: Machine::this(),
            quick: true,
            shares: vec![50],
            configurations: vec![Configuration::Default],
            rivals: Rival::SWAP.to_vec(),
            repetitions: 1,
            programs: rows.iter().map(program).collect(),
            rows,
            not_measured: Vec::new(),
            interrupted: false,
        }
    }

    #[test]
    fn a_summary_has_the_mean_the_worst_and_what_was_lost() {
        let of = |program: &str, ratio: f64| {
            let (ours, theirs) = (side("", &[(Outcome::Ok, 1.0)]), side("", &[(Outcome::Ok, ratio)]));
            Row { program: program.to_owned(), ..row(&ours, &theirs, Measure::Seconds) }
        };
        let lost = Row { outcome: Outcome::Wrong, ratio_median: None, ..of("node", 1.0) };
        let roomy = Row { versus_anonymous_bytes: 104, ..of("git", 0.01) };
        let report = report_of(vec![of("sort", 4.0), of("xz", 0.25), lost, roomy]);
        let summary = report.summary(50, Configuration::Default, Rival::Zram).unwrap();
        assert!((summary.mean - 1.0).abs() < 1e-9 && summary.programs == 2, "{summary:?}");
        assert_eq!(summary.worst, ("xz".to_owned(), 0.25));
        assert_eq!((summary.lost, summary.unequal), (vec!["node".to_owned()], vec!["git".to_owned()]));
        assert_eq!(report.summary(25, Configuration::Default, Rival::Zram), None);
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
