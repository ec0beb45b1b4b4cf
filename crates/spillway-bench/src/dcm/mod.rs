//! dcm's own evaluation again: whole programs with less and less local memory, under Spillway and under Linux
//! swap.
//!
//! - [`sequential`], [`snap`], [`postgres`], [`spark`]: the programs; [`programs`]: their list
//! - [`report`], [`tables`], `means`, `goals`: what comes out, beside the paper's figures

mod goals;
mod means;
pub mod postgres;
pub mod programs;
pub mod report;
pub mod sequential;
pub mod snap;
pub mod spark;
pub mod tables;

use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;

use crate::BenchError;
use crate::cells::StoreKind;
use crate::cgroup::{MemoryGroup, Used};
use crate::donor::{self, Donor};
use crate::machine::Machine;
use crate::swap::{Kind, PageCluster, SwapDevice};
use crate::whole::conditions::Conditions;
use crate::whole::workload::{Run, Site, Workload};
use programs::WorkloadKind;
use report::{DcmReport, FabricMessage, Far, Row, WorkloadReport};

/// What swap gets of the limit beside the program's and the kernel's memory, for files on their way: where
/// the kernel kills the program, it is tried again with more.
const SLACKS_BYTES: [u64; 3] = [2 << 20, 6 << 20, 16 << 20];
/// `spillway run` accepts no less.
const LEAST_LOCAL_BYTES: u64 = 4 << 20;
/// Shares of the memory that stay local, as in the paper.
pub const SHARES: [u64; 3] = [75, 50, 25];
/// The paper's own static sizes and elastic blocks, and what a run has where none is named.
const BLOCKS: [&str; 7] = ["4K", "8K", "16K", "32K", "64K", "elastic", "streams"];
const QUICK_BLOCKS: [&str; 4] = ["4K", "64K", "elastic", "streams"];
/// Swap's usual read-ahead, eight pages.
const PAGE_CLUSTER: u32 = 3;

/// How much to measure.
#[derive(Clone, Debug)]
pub struct Extent {
    /// Whether inputs are small.
    pub quick: bool,
    /// The programs that are measured.
    pub workloads: Vec<WorkloadKind>,
    /// Shares of the memory that stay local, in percent, of [`SHARES`].
    pub shares: Vec<u64>,
    /// How often each run is repeated; the median counts.
    pub repetitions: usize,
}

/// What a run hears of as it goes on.
pub enum Progress<'a> {
    /// A program's inputs are made.
    Preparing(&'static str),
    /// So many of a program's runs of so many are done.
    Ran(&'static str, usize, usize),
    /// A program, or one of its runs on swap, could not be measured.
    Failed(&'static str, &'a BenchError),
}

/// Whether this `spillway run` lets the user choose blocks.
fn has_blocks(spillway: &Path) -> bool {
    let help = Command::new(spillway).args(["run", "--help"]).output();
    help.is_ok_and(|help| String::from_utf8_lossy(&help.stdout).contains("--block"))
}

/// Whether a run is left out of a quick evaluation: only on the donor with the model of the paper's fabric
/// are static block sizes measured too.
fn is_left_out(extent: &Extent, far: Far, block: Option<&str>) -> bool {
    extent.quick && far != Far::ShmFdr && block.is_some_and(report::is_static)
}

/// `--store` for this far memory.
fn store_uri(far: Far, donor: &Donor) -> String {
    let uri = |store| donor::uri(store, Some(donor)).unwrap_or_default();
    match far {
        Far::ShmFdr => uri(StoreKind::Shm) + "?fabric=fdr",
        Far::RamFdr => uri(StoreKind::Ram) + "?fabric=fdr",
        Far::NbdTcp | Far::SwapRamdisk => uri(StoreKind::NbdTcp),
    }
}

/// The flags of `spillway run`.
fn run_flags(local_bytes: u64, store: &str, block: Option<&str>) -> Vec<String> {
    let mut flags =
        vec!["--local".to_owned(), local_bytes.to_string(), "--store".to_owned(), store.to_owned()];
    flags.extend(block.into_iter().flat_map(|block| ["--block".to_owned(), block.to_owned()]));
    flags
}

/// Runs the evaluation. A program that cannot be measured is reported as such, and the others go on. After an
/// interruption what was measured is reported; an error only where that is nothing.
pub fn evaluate(
    spillway: &Path,
    extent: &Extent,
    interrupted: &AtomicBool,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<DcmReport, BenchError> {
    let site = Site::new(spillway, extent.quick, interrupted)?;
    let blocks = match (has_blocks(spillway), extent.quick) {
        (false, _) => &[][..],
        (true, true) => &QUICK_BLOCKS[..],
        (true, false) => &BLOCKS[..],
    };
    let mut report = DcmReport {
        machine: Machine::this(),
        quick: extent.quick,
        repetitions: extent.repetitions,
        fabric: FabricMessage::of_fdr(),
        blocks: blocks.iter().map(|&block| block.to_owned()).collect(),
        workloads: Vec::new(),
        failures: Vec::new(),
        interrupted: false,
    };
    for kind in &extent.workloads {
        let mut workload = kind.workload();
        match measure(&site, workload.as_mut(), extent, blocks, progress) {
            Ok((measured, was_interrupted)) => {
                report.workloads.push(measured);
                report.interrupted = was_interrupted;
            }
            Err(BenchError::Interrupted) if report.workloads.is_empty() => {
                return Err(BenchError::Interrupted);
            }
            Err(BenchError::Interrupted) => report.interrupted = true,
            Err(error) => {
                progress(Progress::Failed(workload.name(), &error));
                report.failures.push(format!("{}: {error}", workload.name()));
            }
        }
        if report.interrupted {
            break;
        }
    }
    Ok(report)
}

struct Measuring<'a, 'b> {
    site: &'a Site<'a>,
    workload: &'a dyn Workload,
    repetitions: usize,
    done: usize,
    total: usize,
    progress: &'b mut dyn FnMut(Progress<'_>),
}

/// All runs of one program, or those before an interruption (`true`).
fn measure(
    site: &Site<'_>,
    workload: &mut dyn Workload,
    extent: &Extent,
    blocks: &[&'static str],
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<(WorkloadReport, bool), BenchError> {
    progress(Progress::Preparing(workload.name()));
    workload.prepare(site)?;
    let blocks: Vec<_> =
        if blocks.is_empty() { vec![None] } else { blocks.iter().map(|&block| Some(block)).collect() };
    let runs = Far::SPILLWAY.iter().flat_map(|&far| blocks.iter().map(move |&block| (far, block)));
    let runs: Vec<_> = runs.filter(|&(far, block)| !is_left_out(extent, far, block)).collect();
    let total = 2 + extent.shares.len() * (runs.len() + 1);
    let mut measuring =
        Measuring { site, workload, repetitions: extent.repetitions.max(1), done: 0, total, progress };
    measuring.all(&runs, &extent.shares)
}

impl Measuring<'_, '_> {
    /// On these kinds of far memory with these blocks, and on swap; what there is of it after an interruption
    /// (`true`).
    fn all(
        &mut self,
        runs: &[(Far, Option<&'static str>)],
        shares: &[u64],
    ) -> Result<(WorkloadReport, bool), BenchError> {
        let unlimited = MemoryGroup::new()?;
        let alone = self.run(&Conditions::Unlimited { group: Some(&unlimited) })?;
        let anonymous_bytes = alone.most.anonymous_bytes;
        drop(unlimited);
        if anonymous_bytes < LEAST_LOCAL_BYTES {
            return Err(BenchError::Measured {
                command: self.workload.name().to_owned(),
                reason: format!("it has only {anonymous_bytes} bytes of anonymous memory"),
            });
        }
        // With more local memory than it wants; what Spillway keeps of its own grows with the limit.
        let flags = run_flags(anonymous_bytes * 4 + (1 << 30), "ram:", None);
        let all_local = self.run(&Conditions::Spillway { flags, group: None })?;
        let mut rows = Vec::new();
        let was_interrupted = match self.with_little_local(&alone, runs, shares, &mut rows) {
            Ok(()) => false,
            Err(BenchError::Interrupted) => true,
            Err(error) => return Err(error),
        };
        let report = WorkloadReport {
            name: self.workload.name().to_owned(),
            about: self.workload.about(self.site),
            measure: self.workload.measure(),
            unlimited: alone.value,
            anonymous_bytes,
            shared_bytes: alone.most.shared_bytes,
            all_local: self.workload.measure().normalised(alone.value, all_local.value),
            rows,
        };
        Ok((report, was_interrupted))
    }

    /// Each share of local memory; a row for each run.
    fn with_little_local(
        &mut self,
        alone: &Run,
        runs: &[(Far, Option<&'static str>)],
        shares: &[u64],
        rows: &mut Vec<Row>,
    ) -> Result<(), BenchError> {
        let anonymous_bytes = alone.most.anonymous_bytes;
        // The run before may be there for a moment yet.
        let lent_bytes = anonymous_bytes * 3 + (64 << 20);
        let donor = Donor::start(self.site.spillway, lent_bytes, self.site.scratch())?;
        for &local_pct in shares {
            let local_bytes = (anonymous_bytes / 100 * local_pct).max(LEAST_LOCAL_BYTES);
            for &(far, block) in runs {
                let uri = store_uri(far, &donor);
                let flags = run_flags(local_bytes, &uri, block);
                let run = self.run(&Conditions::Spillway { flags, group: None })?;
                let measure = self.workload.measure();
                rows.push(Row::new(far, local_pct, block, Some(&uri), alone.value, &run, measure));
            }
            // Swap gets as much less than the program wants as Spillway does.
            let far_bytes = anonymous_bytes.saturating_sub(local_bytes);
            let Used { shared_bytes, kernel_bytes, .. } = alone.most;
            let limit_bytes = anonymous_bytes - far_bytes + shared_bytes + kernel_bytes;
            if let Some(run) = self.run_on_swap_patiently(limit_bytes, far_bytes)? {
                let measure = self.workload.measure();
                rows.push(Row::new(Far::SwapRamdisk, local_pct, None, None, alone.value, &run, measure));
            }
        }
        Ok(())
    }

    /// Under a limit the kernel sometimes kills a program rather than wait for its swap device. Where it does
    /// so every time, there is nothing to compare with.
    fn run_on_swap_patiently(&mut self, limit_bytes: u64, far_bytes: u64) -> Result<Option<Run>, BenchError> {
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
