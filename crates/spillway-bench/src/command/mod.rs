//! A user's own command with little memory: under Spillway, beside what it takes with all memory, and beside
//! swap on zram with as much.
//!
//! - `given`: the command; [`text`]: what comes out

mod given;
pub mod text;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use serde::Serialize;

use crate::BenchError;
use crate::machine::Machine;
use crate::programs::report::{Configuration, EQUAL_SHARE, Outcome, Rival, Sample, Side};
use crate::programs::turns::{Bench, LEAST_LOCAL_BYTES, Under, best_of};
use crate::rows::Spread;
use crate::swap::Kind;
use crate::whole::workload::{Scale, Site, Workload};
use given::Given;

/// How much of a command's memory may be local.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Local {
    /// As many bytes as this.
    Bytes(u64),
    /// This share of what it takes at its peak.
    Share(f64),
}

/// What to run, and how.
#[derive(Clone, Debug)]
pub struct Extent {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// How much of its memory may be local.
    pub local: Local,
    /// Further flags of `spillway run`.
    pub flags: Vec<String>,
    /// Files that the command writes: removed before each run, and compared after it.
    pub outputs: Vec<PathBuf>,
    /// Whether runs may write other things than the first.
    pub any_output: bool,
    /// Turns; the median counts.
    pub repetitions: usize,
}

/// What the command ran under.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Condition {
    /// All memory that it wants.
    Unlimited,
    /// `spillway run` with the same local memory.
    Spillway,
    /// Linux swap on zram.
    Zram,
}

/// The command under one condition: medians of the runs that ended well.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// What it ran under.
    pub condition: Condition,
    /// What that was set to, such as `page-cluster 3`.
    pub setting: String,
    /// How its runs ended.
    pub outcome: Outcome,
    /// Why the first that did not end well did not.
    pub reason: Option<String>,
    /// By the clock on the wall.
    pub seconds: f64,
    /// How many times as long as with all memory; none where it is killed or wrong.
    pub times_as_long: Option<f64>,
    /// Processor time of all its processes.
    pub cpu_s: f64,
    /// Resident anonymous memory: with all memory the most, else the median over the run. None where it
    /// cannot be counted.
    pub anonymous_bytes: Option<u64>,
    /// What Spillway or the kernel needs besides at most.
    pub besides_bytes: Option<u64>,
    /// Pages that Spillway fetched, or the kernel swapped in.
    pub pages_in: u64,
}

/// All that was measured.
#[derive(Clone, Debug, Serialize)]
pub struct CommandReport {
    /// The machine that it was measured on.
    pub machine: Machine,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Further flags of `spillway run`.
    pub flags: Vec<String>,
    /// What could be local of its memory, in bytes.
    pub local_bytes: u64,
    /// Whether runs could write other things than the first.
    pub any_output: bool,
    /// How many turns there were.
    pub repetitions: usize,
    /// What it took under each condition.
    pub rows: Vec<Row>,
    /// What could not be measured, and why.
    pub not_measured: Vec<String>,
}

impl CommandReport {
    /// Whether every run under Spillway ended well; a rival's may be killed.
    #[must_use]
    pub fn is_well(&self) -> bool {
        let is_well = |row: &Row| row.outcome == Outcome::Ok;
        self.rows.iter().filter(|row| row.condition != Condition::Zram).all(is_well)
    }

    /// How many times as fast as on zram it was under Spillway; whether both held as much memory.
    #[must_use]
    pub fn against_zram(&self) -> Option<(f64, bool)> {
        let (ours, theirs) = (self.row(Condition::Spillway)?, self.row(Condition::Zram)?);
        let both_end_well = ours.outcome == Outcome::Ok && theirs.outcome == Outcome::Ok;
        let held = |row: &Row| row.anonymous_bytes.unwrap_or(0) as f64;
        let is_equal = (held(ours) - held(theirs)).abs() <= EQUAL_SHARE * held(theirs);
        both_end_well.then(|| (theirs.seconds / ours.seconds, is_equal))
    }

    /// The row of a condition, where it was measured.
    #[must_use]
    pub fn row(&self, condition: Condition) -> Option<&Row> {
        self.rows.iter().find(|row| row.condition == condition)
    }
}

/// What can be done where nothing counts what the command takes.
const SHARE_REMEDY: &str = "a share is of what the command takes, which a control group counts: run it \
    as root, or give a size, such as --local 128M";

/// Runs the command under each condition. `running` hears under what it runs now.
///
/// # Errors
/// The command cannot be run with all memory, its memory is not known where a share of it is asked for, or
/// the user has interrupted it. A rival that this machine has not got is named in the report.
pub fn measure(
    spillway: &Path,
    extent: &Extent,
    interrupted: &AtomicBool,
    running: &mut dyn FnMut(&str),
) -> Result<CommandReport, BenchError> {
    let site = Site::new(spillway, Scale::Whole, interrupted)?;
    let mut given = Given::new(&extent.command, &extent.outputs, extent.any_output)?;
    running("once, to know what it writes");
    given.prepare(&site)?;
    let is_share = matches!(extent.local, Local::Share(_));
    let mut bench = Bench {
        site: &site,
        workload: &given,
        peak_anonymous_bytes: 0,
        donor: None,
        needs_memory: is_share,
        flags: extent.flags.clone(),
        besides_bytes: 0,
        cut_off: None,
    };
    running("with all memory");
    let unlimited = alone(&bench, extent.repetitions).map_err(|error| match error {
        BenchError::Setup { action, reason, .. } if is_share => {
            BenchError::Setup { action, reason, remedy: SHARE_REMEDY }
        }
        error => error,
    })?;
    let peaks = unlimited.samples.iter().map(|sample| sample.memory.peak_anonymous_bytes);
    bench.peak_anonymous_bytes = peaks.max().unwrap_or(0);
    let local_bytes = match extent.local {
        Local::Bytes(bytes) => bytes,
        Local::Share(share) => (bench.peak_anonymous_bytes as f64 * share) as u64,
    };
    let local_bytes = local_bytes.max(LEAST_LOCAL_BYTES);
    let mut report = CommandReport {
        machine: Machine::this(),
        command: extent.command.clone(),
        flags: extent.flags.clone(),
        local_bytes,
        any_output: extent.any_output,
        repetitions: extent.repetitions,
        rows: vec![Row::new(Condition::Unlimited, &unlimited, &unlimited)],
        not_measured: Vec::new(),
    };
    beside_zram(&bench, extent, &unlimited, &mut report, running)?;
    Ok(report)
}

fn alone(bench: &Bench<'_>, repetitions: usize) -> Result<Side, BenchError> {
    let samples: Result<Vec<Sample>, BenchError> =
        (0..repetitions).map(|_| bench.run(Under::Unlimited, 0, 0)).collect();
    let side = Side { setting: String::new(), samples: samples? };
    match side.outcome() {
        Outcome::Ok => Ok(side),
        Outcome::Killed => Err(bench.fails("a second time it does not run to its end")),
        Outcome::Wrong => Err(bench.fails("two runs differ in what they write; say --any-output")),
    }
}

impl Bench<'_> {
    fn fails(&self, reason: &str) -> BenchError {
        BenchError::Measured { command: self.workload.name().to_owned(), reason: reason.to_owned() }
    }
}

/// Spillway and zram in turns, or Spillway alone where the machine has no zram for us.
fn beside_zram(
    bench: &Bench<'_>,
    extent: &Extent,
    unlimited: &Side,
    report: &mut CommandReport,
    running: &mut dyn FnMut(&str),
) -> Result<(), BenchError> {
    let ours = [Under::Spillway(Configuration::Default)];
    let both = [&ours[..], &Under::swap(Kind::Zram)].concat();
    running("under Spillway, and with zram and as much memory");
    let turns = |sides: &[Under]| bench.turns(sides, report.local_bytes, extent.repetitions, &mut || {});
    let sides = match turns(&both) {
        Err(BenchError::Setup { action, reason, remedy }) => {
            report.not_measured.push(format!("zram: cannot {action}: {reason}; {remedy}"));
            turns(&ours)?
        }
        sides => sides?,
    };
    let spillway = sides.iter().find(|(under, _)| under.rival().is_none());
    if let Some((_, side)) = spillway {
        report.rows.push(Row::new(Condition::Spillway, side, unlimited));
    }
    if let Some(side) = best_of(Rival::Zram, &sides, bench.workload) {
        report.rows.push(Row::new(Condition::Zram, &side, unlimited));
    }
    Ok(())
}

impl Row {
    fn new(condition: Condition, side: &Side, unlimited: &Side) -> Self {
        let good: Vec<&Sample> = side.samples.iter().filter(|sample| sample.outcome == Outcome::Ok).collect();
        let median = |of: &dyn Fn(&Sample) -> f64| Spread::of(good.iter().map(|sample| of(sample))).median;
        let bytes = |of: fn(&Sample) -> u64| Some(median(&|sample| of(sample) as f64) as u64);
        let outcome = side.outcome();
        let seconds = median(&|sample| sample.value);
        let held: fn(&Sample) -> u64 = match condition {
            Condition::Unlimited => |sample| sample.memory.peak_anonymous_bytes,
            _ => |sample| sample.memory.anonymous_bytes,
        };
        let is_known = good.iter().any(|sample| sample.memory.peak_anonymous_bytes > 0);
        Self {
            condition,
            setting: if condition == Condition::Zram { side.setting.clone() } else { String::new() },
            outcome,
            reason: side.reason().map(str::to_owned),
            seconds,
            times_as_long: (outcome == Outcome::Ok).then(|| seconds / unlimited.value()),
            cpu_s: median(&|sample| sample.cpu_s),
            anonymous_bytes: bytes(held).filter(|_| is_known),
            besides_bytes: bytes(|sample| sample.memory.besides_bytes).filter(|_| is_known),
            pages_in: median(&|sample| (sample.fetched_pages + sample.swapped_in_pages) as f64) as u64,
        }
    }
}
