//! Real programs, unmodified, with little memory: Spillway beside what a user would take instead. Inputs are
//! fixed, outputs are checked, and both sides hold as much memory, as seen from outside.
//!
//! - [`list`]: the programs; `job`, `jobs`, `jobs_data`: those that are one command; `keys`, `server`:
//!   key-value servers; `pgbench`: PostgreSQL; `guest`: a virtual machine
//! - `watch`: what their processes hold; `turns`: one program at one share, side by side
//! - [`report`], [`goals`], [`promises`], [`text`], [`parts`]: what comes out

mod cell;
pub mod goals;
mod guest;
mod job;
mod jobs;
mod jobs_data;
mod keys;
pub mod list;
pub mod parts;
mod pgbench;
pub mod promises;
pub mod report;
mod server;
pub mod text;
pub(crate) mod turns;
mod watch;

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::BenchError;
use crate::donor::Donor;
use crate::machine::Machine;
use crate::swap::{Kind, ZSTD, zram_knows};
use crate::whole::workload::{Scale, Site, Workload};
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
    /// What it is compared with, besides a run with all memory.
    pub rivals: Vec<Rival>,
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
    /// A program is done at a share: what there is so far.
    Measured(&'a ProgramsReport),
}

/// A run under little memory that takes longer than so many times what the program takes with all is
/// hopeless.
const HOPELESS: (f64, f64) = (8.0, 20.0);
/// And so many seconds more: in a quick run, and in a whole one.
const GRACE_S: (f64, f64) = (3.0, 60.0);

/// What all programs of a measurement have in common.
struct Plan<'a> {
    site: Site<'a>,
    extent: &'a Extent,
    sides: Vec<Under>,
}

impl Plan<'_> {
    /// The shares at which the report has not yet got a program.
    fn missing(&self, report: &ProgramsReport, name: &str) -> Vec<u64> {
        self.extent.shares.iter().copied().filter(|&share| !report.has(name, share)).collect()
    }

    fn runs(&self, report: &ProgramsReport, name: &str) -> usize {
        let alone = usize::from(known(report, name).is_none());
        (alone + self.missing(report, name).len() * self.sides.len()) * self.extent.repetitions
    }
}

/// A program of a report that was begun before.
fn known<'a>(report: &'a ProgramsReport, name: &str) -> Option<&'a Program> {
    report.programs.iter().find(|program| program.name == name)
}

/// Spillway's sides first: swap's limits follow from what they hold. A quick run has the RAM disk with the
/// usual read-ahead only.
fn sides(extent: &Extent) -> Result<Vec<Under>, BenchError> {
    let mut sides: Vec<Under> = extent.configurations.iter().map(|&one| Under::Spillway(one)).collect();
    if extent.rivals.contains(&Rival::Zram) {
        sides.extend(Under::swap(Kind::Zram));
        if zram_knows(ZSTD)? {
            sides.extend(Under::swap(Kind::ZramZstd));
        }
    }
    if extent.rivals.contains(&Rival::Ramdisk) {
        let [_, usual] = Under::swap(Kind::RamDisk);
        match extent.quick {
            true => sides.push(usual),
            false => sides.extend(Under::swap(Kind::RamDisk)),
        }
    }
    Ok(sides)
}

/// Measures the programs at the shares that `report` has not yet. A program that cannot be measured is
/// reported as such, and the others go on. After an interruption `report` has what was measured.
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
    let site = Site::new(spillway, Scale::of_suite(extent.quick), interrupted)?;
    let plan = Plan { site, extent, sides: sides(extent)? };
    let wanted = extent.programs.iter().map(|kind| kind.workload());
    let mut wanted: Vec<_> =
        wanted.filter(|workload| !plan.missing(report, workload.name()).is_empty()).collect();
    let total: usize = wanted.iter().map(|workload| plan.runs(report, workload.name())).sum();
    let mut before = 0;
    for workload in &mut wanted {
        let name = workload.name();
        let runs = plan.runs(report, name);
        match measure(&plan, workload.as_mut(), report, (before, total), progress) {
            Ok(()) => {}
            Err(BenchError::Interrupted) => {
                report.interrupted = true;
                return Ok(());
            }
            Err(error) => {
                progress(Progress::Failed(name, &error));
                report.not_measured.push(format!("{name}: {error}"));
            }
        }
        plan.site.clear();
        before += runs;
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
        configurations: extent.configurations.clone(),
        rivals: extent.rivals.clone(),
        repetitions: extent.repetitions,
        programs: Vec::new(),
        rows: Vec::new(),
        not_measured: Vec::new(),
        interrupted: false,
    }
}

/// One program at all shares that are missing; `before` of `total` runs are done.
fn measure(
    plan: &Plan<'_>,
    workload: &mut dyn Workload,
    report: &mut ProgramsReport,
    (before, total): (usize, usize),
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<(), BenchError> {
    let (site, name) = (&plan.site, workload.name());
    progress(Progress::Preparing(name));
    workload.prepare(site)?;
    let workload = &*workload;
    let mut bench = Bench {
        site,
        workload,
        peak_anonymous_bytes: 0,
        donor: None,
        needs_memory: true,
        flags: Vec::new(),
        besides_bytes: 0,
        cut_off: None,
    };
    let mut done = before;
    let missing = plan.missing(report, name);
    let program = match known(report, name) {
        Some(program) => program.clone(),
        None => {
            let program = alone(&bench, plan.extent.repetitions, &mut || {
                done += 1;
                progress(Progress::Ran(name, done, total));
            })?;
            report.programs.push(program.clone());
            program
        }
    };
    bench.peak_anonymous_bytes = program.peak_anonymous_bytes;
    bench.besides_bytes = program.alone.median(|sample| sample.memory.besides_bytes as f64) as u64;
    let pick = |(quick, whole)| site.pick(quick, whole);
    let longest_s = program.alone.median(|sample| sample.wall_s) * pick(HOPELESS) + pick(GRACE_S);
    bench.cut_off = Some(Duration::from_secs_f64(longest_s));
    if plan.extent.configurations.contains(&Configuration::DonorTcp) {
        // The run before may be there for a moment yet.
        let lent_bytes = bench.peak_anonymous_bytes * 3 + (64 << 20);
        bench.donor = Some(Donor::start(site.spillway, lent_bytes, site.scratch(), site.interrupted)?);
    }
    for local_pct in missing {
        let local_bytes = bench.share_bytes(local_pct);
        let sides = bench.turns(&plan.sides, local_bytes, plan.extent.repetitions, &mut || {
            done += 1;
            progress(Progress::Ran(name, done, total));
        })?;
        report.rows.extend(compare(&bench, local_pct, &program.alone, &sides));
        progress(Progress::Measured(report));
    }
    Ok(())
}

/// A program with all memory.
pub(crate) fn alone(
    bench: &Bench<'_>,
    repetitions: usize,
    ran: &mut dyn FnMut(),
) -> Result<Program, BenchError> {
    let mut alone = Side { setting: String::new(), samples: Vec::new() };
    for _ in 0..repetitions {
        alone.samples.push(bench.run(Under::Unlimited, 0, 0)?);
        ran();
    }
    let peaks = alone.samples.iter().map(|sample| sample.memory.peak_anonymous_bytes);
    let peak_anonymous_bytes = peaks.max().unwrap_or(0);
    let workload = bench.workload;
    if alone.outcome() != Outcome::Ok || peak_anonymous_bytes < LEAST_LOCAL_BYTES {
        let reason = alone.reason().unwrap_or("it uses next to no memory");
        let reason = format!("with all memory: {reason}");
        return Err(BenchError::Measured { command: workload.name().to_owned(), reason });
    }
    Ok(Program {
        name: workload.name().to_owned(),
        about: workload.about(bench.site),
        measure: workload.measure(),
        unlimited: alone.value(),
        peak_anonymous_bytes,
        alone,
    })
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
