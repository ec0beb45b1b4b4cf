//! dcm's own evaluation again: whole programs with less and less local memory, under Spillway and under Linux
//! swap.
//!
//! - [`sequential`], [`snap`], [`postgres`], [`spark`]: the programs; [`programs`]: their list; [`cells`]:
//!   what is measured of each
//! - [`report`], [`tables`], `of_snap`, `means`, `goals`: what comes out, beside the paper's figures

pub mod cells;
mod goals;
mod means;
mod of_snap;
pub mod postgres;
pub mod programs;
pub mod report;
pub mod sequential;
pub mod snap;
pub mod spark;
pub mod tables;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;

use crate::BenchError;
use crate::cells::StoreKind;
use crate::cgroup::MemoryGroup;
use crate::donor::{self, Donor};
use crate::machine::Machine;
use crate::swap::{Kind, PageCluster, SwapDevice};
use crate::whole::conditions::Conditions;
use crate::whole::workload::{Run, Scale, Site, Workload};
use cells::{Subject, Wanted, subjects};
pub use report::SHARES;
use report::{Cell, DcmReport, FabricMessage, Far, Row, WorkloadReport};

/// What swap gets of the limit beside the program's and the kernel's memory, for files on their way: where
/// the kernel kills the program, it is tried again with more.
const SLACKS_BYTES: [u64; 3] = [2 << 20, 6 << 20, 16 << 20];
/// `spillway run` accepts no less.
const LEAST_LOCAL_BYTES: u64 = 4 << 20;
/// Swap's usual read-ahead, eight pages.
const PAGE_CLUSTER: u32 = 3;

/// How much to measure.
#[derive(Clone, Debug)]
pub struct Extent {
    /// Whether inputs are small.
    pub quick: bool,
    /// What is measured, where that is not the usual.
    pub wanted: Wanted,
    /// How often each run is repeated; the median counts.
    pub repetitions: usize,
    /// Where inputs that take long to make stay from one measurement to the next.
    pub inputs: Option<PathBuf>,
}

/// What a run hears of as it goes on.
pub enum Progress<'a> {
    /// A program's inputs are made.
    Preparing(&'static str),
    /// So many runs of so many are done, of all programs.
    Ran(&'static str, usize, usize),
    /// A program, or one of its runs on swap, could not be measured.
    Failed(&'static str, &'a BenchError),
    /// A run is done: what there is so far.
    Measured(&'a DcmReport),
}

/// Whether this `spillway run` lets the user choose blocks.
fn has_blocks(spillway: &Path) -> bool {
    let help = Command::new(spillway).args(["run", "--help"]).output();
    help.is_ok_and(|help| String::from_utf8_lossy(&help.stdout).contains("--block"))
}

/// `--store` for this far memory.
fn store_uri(far: Far, donor: Option<&Donor>, site: &Site<'_>, lent_bytes: u64) -> String {
    let uri = |store| donor::uri(store, donor).unwrap_or_default();
    match far {
        Far::ShmFdr => uri(StoreKind::Shm) + "?fabric=fdr",
        Far::RamFdr => uri(StoreKind::Ram) + "?fabric=fdr",
        Far::NbdTcp | Far::SwapRamdisk => uri(StoreKind::NbdTcp),
        // A file without a name, in the directory for temporary files.
        Far::File => format!("file:{}?size={lent_bytes}", site.scratch().display()),
    }
}

/// Whether it needs a donor.
fn needs_donor(cell: &Cell) -> bool {
    matches!(cell.far, Far::ShmFdr | Far::NbdTcp)
}

/// The flags of `spillway run`.
fn run_flags(local_bytes: u64, store: &str, block: Option<&str>) -> Vec<String> {
    let mut flags =
        vec!["--local".to_owned(), local_bytes.to_string(), "--store".to_owned(), store.to_owned()];
    flags.extend(block.into_iter().flat_map(|block| ["--block".to_owned(), block.to_owned()]));
    flags
}

/// A report in which nothing is yet.
#[must_use]
pub fn empty_report(extent: &Extent) -> DcmReport {
    DcmReport {
        machine: Machine::this(),
        quick: extent.quick,
        repetitions: extent.repetitions,
        fabric: FabricMessage::of_fdr(),
        blocks: Vec::new(),
        workloads: Vec::new(),
        failures: Vec::new(),
        interrupted: false,
    }
}

/// Runs what `report` has not yet of the evaluation. A program that cannot be measured is reported as such,
/// and the others go on. After an interruption what was measured is reported.
///
/// # Errors
/// What programs run under cannot be set up.
pub fn evaluate(
    spillway: &Path,
    extent: &Extent,
    interrupted: &AtomicBool,
    report: &mut DcmReport,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<(), BenchError> {
    let scale = if extent.quick { Scale::Quick } else { Scale::Paper };
    let site = Site::new(spillway, scale, interrupted)?.keeping(extent.inputs.as_deref());
    let mut subjects = subjects(extent.quick, &extent.wanted, has_blocks(spillway));
    subjects.iter_mut().for_each(|subject| leave_missing(subject, report));
    subjects.retain(|subject| !subject.cells.is_empty());
    let total = subjects.iter().map(|subject| runs(subject, report)).sum();
    let mut done = 0;
    for subject in &subjects {
        let mut workload = subject.kind.workload(subject.threads);
        let name = workload.name();
        let after = done + runs(subject, report);
        progress(Progress::Preparing(name));
        let measured = workload.prepare(&site).and_then(|()| {
            let repetitions = extent.repetitions.max(1);
            let workload = workload.as_ref();
            let (site, report, progress) = (&site, &mut *report, &mut *progress);
            Measuring { site, workload, subject, repetitions, done, total, report, progress }.all()
        });
        match measured {
            Ok(()) => {}
            Err(BenchError::Interrupted) => {
                report.interrupted = true;
                return Ok(());
            }
            Err(error) => {
                progress(Progress::Failed(name, &error));
                report.failures.push(format!("{name}: {error}"));
            }
        }
        site.clear();
        done = after;
    }
    Ok(())
}

/// Takes away what a report has already.
fn leave_missing(subject: &mut Subject, report: &DcmReport) {
    let name = subject.kind.workload(subject.threads).name();
    let Some(had) = report.find(name, subject.threads) else { return };
    subject.cells.retain(|cell| had.find(cell.far, cell.local_pct, cell.block).is_none());
}

/// One run without a limit beside those with one, and one under Spillway with all local where there is none
/// yet.
fn runs(subject: &Subject, report: &DcmReport) -> usize {
    let name = subject.kind.workload(subject.threads).name();
    let is_known = report.find(name, subject.threads).is_some_and(|had| had.all_local.is_some());
    1 + usize::from(!is_known) + subject.cells.len()
}

/// One program, and where its runs go.
struct Measuring<'a, 'b> {
    site: &'a Site<'a>,
    workload: &'a dyn Workload,
    subject: &'a Subject,
    repetitions: usize,
    done: usize,
    total: usize,
    report: &'b mut DcmReport,
    progress: &'b mut dyn FnMut(Progress<'_>),
}

impl Measuring<'_, '_> {
    /// Without a limit, with all local, and then with less and less.
    fn all(&mut self) -> Result<(), BenchError> {
        let alone = self.alone()?;
        if self.mine().all_local.is_none() {
            // With more local memory than it wants; what Spillway keeps of its own grows with the limit.
            let flags = run_flags(self.mine().anonymous_bytes * 4 + (1 << 30), "ram:", None);
            let all_local = self.run(&Conditions::Spillway { flags, group: None })?;
            let measure = self.workload.measure();
            self.mine().all_local = Some(measure.normalised(alone.value, all_local.value));
            (self.progress)(Progress::Measured(self.report));
        }
        self.with_little_local(&alone)
    }

    /// A run as it is, beside which the others of this measurement stand. What it used at most when it was
    /// first measured is what shares are shares of.
    fn alone(&mut self) -> Result<Run, BenchError> {
        let unlimited = MemoryGroup::new()?;
        let alone = self.run(&Conditions::Unlimited { group: Some(&unlimited) })?;
        drop(unlimited);
        if alone.most.anonymous_bytes < LEAST_LOCAL_BYTES {
            return Err(BenchError::Measured {
                command: self.workload.name().to_owned(),
                reason: format!("it has only {} bytes of anonymous memory", alone.most.anonymous_bytes),
            });
        }
        if self.report.find(self.workload.name(), self.subject.threads).is_none() {
            self.report.workloads.push(WorkloadReport {
                name: self.workload.name().to_owned(),
                about: self.workload.about(self.site),
                threads: self.subject.threads,
                measure: self.workload.measure(),
                unlimited: 0.0,
                unlimited_stages: Vec::new(),
                anonymous_bytes: alone.most.anonymous_bytes,
                shared_bytes: alone.most.shared_bytes,
                kernel_bytes: alone.most.kernel_bytes,
                all_local: None,
                rows: Vec::new(),
            });
        }
        let mine = self.mine();
        (mine.unlimited, mine.unlimited_stages) = (alone.value, alone.stages.clone());
        Ok(alone)
    }

    /// What there is of the program.
    fn mine(&mut self) -> &mut WorkloadReport {
        let (name, threads) = (self.workload.name(), self.subject.threads);
        let at = self.report.workloads.iter().position(|had| had.name == name && had.threads == threads);
        &mut self.report.workloads[at.unwrap_or(0)]
    }

    /// Each share of local memory; a row for each run.
    fn with_little_local(&mut self, alone: &Run) -> Result<(), BenchError> {
        let anonymous_bytes = self.mine().anonymous_bytes;
        // The run before may be there for a moment yet.
        let lent_bytes = anonymous_bytes * 3 + (64 << 20);
        let needs_donor = self.subject.cells.iter().any(needs_donor);
        let site = self.site;
        let donor =
            needs_donor.then(|| Donor::start(site.spillway, lent_bytes, site.scratch(), site.interrupted));
        let donor = donor.transpose()?;
        let subject = self.subject;
        for &cell in &subject.cells {
            let local_bytes = (anonymous_bytes / 100 * cell.local_pct).max(LEAST_LOCAL_BYTES);
            let (run, uri) = match cell.far {
                Far::SwapRamdisk => (self.run_on_swap_patiently(local_bytes)?, None),
                far => {
                    let uri = store_uri(far, donor.as_ref(), self.site, lent_bytes);
                    let flags = run_flags(local_bytes, &uri, cell.block);
                    (Some(self.run(&Conditions::Spillway { flags, group: None })?), Some(uri))
                }
            };
            let Some(run) = run else { continue };
            let measure = self.workload.measure();
            self.mine().rows.push(Row::new(cell, uri.as_deref(), alone.value, &run, measure));
            self.report.note_block(cell.block);
            (self.progress)(Progress::Measured(self.report));
        }
        Ok(())
    }

    /// Swap gets as much less than the program wants as Spillway does. Under a limit the kernel sometimes
    /// kills a program rather than wait for its swap device. Where it does so every time, there is nothing to
    /// compare with.
    fn run_on_swap_patiently(&mut self, local_bytes: u64) -> Result<Option<Run>, BenchError> {
        let mine = self.mine();
        let far_bytes = mine.anonymous_bytes.saturating_sub(local_bytes);
        let limit_bytes = mine.anonymous_bytes - far_bytes + mine.shared_bytes + mine.kernel_bytes;
        for slack_bytes in SLACKS_BYTES {
            match self.run_on_swap(limit_bytes + slack_bytes, far_bytes) {
                Err(error @ BenchError::Measured { .. }) => {
                    (self.progress)(Progress::Failed(self.workload.name(), &error));
                }
                Err(error) => return Err(error),
                Ok(run) => return Ok(Some(run)),
            }
        }
        Ok(None)
    }

    fn run_on_swap(&mut self, limit_bytes: u64, far_bytes: u64) -> Result<Run, BenchError> {
        let cluster = PageCluster::new()?;
        cluster.set(PAGE_CLUSTER)?;
        let _device = SwapDevice::new(Kind::RamDisk, far_bytes * 2 + (64 << 20))?;
        let group = MemoryGroup::new()?;
        group.set_limit(limit_bytes)?;
        self.run(&Conditions::Swap { group: &group })
    }

    /// The median of the repetitions.
    fn run(&mut self, conditions: &Conditions<'_>) -> Result<Run, BenchError> {
        let mut runs = Vec::new();
        for _ in 0..self.repetitions {
            runs.push(conditions.run(self.site, self.workload)?);
        }
        runs.sort_by(|a, b| a.value.total_cmp(&b.value));
        self.done += 1;
        (self.progress)(Progress::Ran(self.workload.name(), self.done, self.total));
        let middle = runs.len() / 2;
        Ok(runs.swap_remove(middle))
    }
}
