//! Real programs, unmodified, with little memory: Spillway beside what a user would take instead. Inputs are
//! fixed, outputs are checked, and both sides hold as much memory, as seen from outside.
//!
//! - [`list`]: the programs; `job`, `jobs`: those that are one command; `keys`, `server`: key-value servers
//! - `watch`: what their processes hold; `turns`: one program at one share, side by side
//! - [`report`], [`text`]: what comes out

mod job;
mod jobs;
mod keys;
pub mod list;
pub mod report;
mod server;
pub mod text;
pub(crate) mod turns;
mod watch;

use std::path::Path;
use std::sync::atomic::AtomicBool;

use crate::BenchError;
use crate::donor::Donor;
use crate::machine::Machine;
use crate::swap::Kind;
use crate::whole::workload::{Site, Workload};
use list::ProgramKind;
use report::{Configuration, Outcome, Program, ProgramsReport, Rival, Row, Side};
use turns::{Bench, LEAST_LOCAL_BYTES, Under, best_of};

/// Shares of the program's memory that may be local, in percent.
pub const SHARES: [u64; 3] = [75, 50, 25];

/// How much to measure.
#[derive(Clone, Debug)]
pub struct Extent {
    /// Whether inputs are small.
    pub quick: bool,
    /// The programs that are measured.
    pub programs: Vec<ProgramKind>,
    /// Shares of the memory that may be local, in percent.
    pub shares: Vec<u64>,
    /// How Spillway is set up.
    pub configurations: Vec<Configuration>,
    /// Turns; the median counts.
    pub repetitions: usize,
}

/// What a caller hears of as it goes on.
pub enum Progress<'a> {
    /// A program's inputs are made.
    Preparing(&'static str),
    /// So many runs of so many are done, of all programs.
    Ran(&'static str, usize, usize),
    /// A program could not be measured.
    Failed(&'static str, &'a BenchError),
    /// A program is done: what there is so far.
    Measured(&'a ProgramsReport),
}

impl Extent {
    fn sides(&self) -> Vec<Under> {
        let spillway = self.configurations.iter().map(|&configuration| Under::Spillway(configuration));
        let kinds: &[Kind] = if self.quick { &[Kind::Zram] } else { &[Kind::Zram, Kind::RamDisk] };
        spillway.chain(kinds.iter().flat_map(|&kind| Under::swap(kind))).collect()
    }

    fn runs_of_program(&self) -> usize {
        (1 + self.shares.len() * self.sides().len()) * self.repetitions
    }
}

/// Measures the programs that `report` has not yet. One that cannot be measured is reported as such, and the
/// others go on. After an interruption `report` has what was measured.
///
/// # Errors
/// What programs run under cannot be set up.
pub fn evaluate(
    spillway: &Path,
    extent: &Extent,
    interrupted: &AtomicBool,
    report: &mut ProgramsReport,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<(), BenchError> {
    let site = Site::new(spillway, extent.quick, interrupted)?;
    let wanted: Vec<_> = extent.programs.iter().map(|kind| kind.workload()).collect();
    let is_there = |name: &str| report.programs.iter().any(|program| program.name == name);
    let mut wanted: Vec<_> = wanted.into_iter().filter(|workload| !is_there(workload.name())).collect();
    let total = wanted.len() * extent.runs_of_program();
    for (number, workload) in wanted.iter_mut().enumerate() {
        let name = workload.name();
        progress(Progress::Preparing(name));
        let mut done = number * extent.runs_of_program();
        let mut ran = || {
            done += 1;
            progress(Progress::Ran(name, done, total));
        };
        match measure(&site, workload.as_mut(), extent, &mut ran) {
            Ok((program, rows)) => {
                report.programs.push(program);
                report.rows.extend(rows);
                progress(Progress::Measured(report));
            }
            Err(BenchError::Interrupted) => {
                report.interrupted = true;
                return Ok(());
            }
            Err(error) => {
                progress(Progress::Failed(name, &error));
                report.not_measured.push(format!("{name}: {error}"));
            }
        }
    }
    Ok(())
}

/// A report in which nothing is yet.
#[must_use]
pub fn empty_report(extent: &Extent) -> ProgramsReport {
    ProgramsReport {
        machine: Machine::this(),
        quick: extent.quick,
        shares: extent.shares.clone(),
        repetitions: extent.repetitions,
        programs: Vec::new(),
        rows: Vec::new(),
        not_measured: Vec::new(),
        interrupted: false,
    }
}

fn measure(
    site: &Site<'_>,
    workload: &mut dyn Workload,
    extent: &Extent,
    ran: &mut dyn FnMut(),
) -> Result<(Program, Vec<Row>), BenchError> {
    workload.prepare(site)?;
    let workload = &*workload;
    let mut bench =
        Bench { site, workload, peak_anonymous_bytes: 0, donor: None, needs_memory: true, flags: Vec::new() };
    let mut unlimited = Side { setting: String::new(), samples: Vec::new() };
    for _ in 0..extent.repetitions {
        unlimited.samples.push(bench.run(Under::Unlimited, 0, 0)?);
        ran();
    }
    let peaks = unlimited.samples.iter().map(|sample| sample.memory.peak_anonymous_bytes);
    bench.peak_anonymous_bytes = peaks.max().unwrap_or(0);
    if unlimited.outcome() != Outcome::Ok || bench.peak_anonymous_bytes < LEAST_LOCAL_BYTES {
        return Err(BenchError::Measured {
            command: workload.name().to_owned(),
            reason: "it does not run to its end with all memory, or uses next to none".to_owned(),
        });
    }
    if extent.configurations.contains(&Configuration::DonorTcp) {
        // The run before may be there for a moment yet.
        let lent_bytes = bench.peak_anonymous_bytes * 3 + (64 << 20);
        bench.donor = Some(Donor::start(site.spillway, lent_bytes, site.scratch())?);
    }
    let mut rows = Vec::new();
    for &local_pct in &extent.shares {
        let local_bytes = bench.share_bytes(local_pct);
        let sides = bench.turns(&extent.sides(), local_bytes, extent.repetitions, ran)?;
        rows.extend(compare(&bench, local_pct, &unlimited, &sides));
    }
    let program = Program {
        name: workload.name().to_owned(),
        about: workload.about(site),
        measure: workload.measure(),
        unlimited: unlimited.value(),
        peak_anonymous_bytes: bench.peak_anonymous_bytes,
    };
    Ok((program, rows))
}

fn compare(bench: &Bench<'_>, local_pct: u64, unlimited: &Side, sides: &[(Under, Side)]) -> Vec<Row> {
    let program = (bench.workload.name(), bench.workload.measure());
    let rivals: Vec<(Rival, Side)> = Rival::ALL
        .into_iter()
        .filter_map(|rival| match rival {
            Rival::Unlimited => Some((rival, unlimited.clone())),
            rival => Some((rival, best_of(rival, sides, bench.workload)?)),
        })
        .collect();
    let ours = sides.iter().filter_map(|(under, side)| match under {
        Under::Spillway(configuration) => Some((*configuration, side)),
        _ => None,
    });
    ours.flat_map(|ours| {
        rivals.iter().map(move |(rival, theirs)| Row::new(program, local_pct, ours, (*rival, theirs)))
    })
    .collect()
}
