//! What comes out of the evaluation.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use spillway_store::fabric::Fabric;

use crate::machine::Machine;
use crate::rows::Spread;
use crate::whole::workload::{Measure, Run, Stage};

use super::snap::USUAL_THREADS;

/// Shares of the memory that stay local, as in the paper, in percent.
pub const SHARES: [u64; 3] = [75, 50, 25];
/// The paper's own static sizes and elastic blocks, and Spillway's own.
pub const BLOCKS: [&str; 7] = ["4K", "8K", "16K", "32K", "64K", "elastic", "streams"];

/// Where what is not local goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum Far {
    /// Spillway, RAM of this machine, which takes at least as long as InfiniBand FDR: like one-sided RDMA, it
    /// takes no processor's time at the other end. This compares with the paper.
    RamFdr,
    /// Spillway, a donor on this machine by shared memory, which takes at least as long as InfiniBand FDR.
    ShmFdr,
    /// Spillway, a donor on this machine by TCP.
    NbdTcp,
    /// Spillway, a file of this machine.
    File,
    /// Linux swap on a RAM disk.
    SwapRamdisk,
}

impl Far {
    /// All kinds, in the order of the tables.
    pub const ALL: [Self; 5] = [Self::RamFdr, Self::ShmFdr, Self::NbdTcp, Self::File, Self::SwapRamdisk];
    /// Memory elsewhere, as Spillway has it.
    pub const SPILLWAY: [Self; 3] = [Self::RamFdr, Self::ShmFdr, Self::NbdTcp];

    /// Its name in tables and plots.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ShmFdr => "shm: donor, as over FDR",
            Self::RamFdr => "RAM, as over FDR",
            Self::NbdTcp => "TCP donor",
            Self::File => "a file",
            Self::SwapRamdisk => "swap on a RAM disk",
        }
    }
}

/// One run, or the median one of several.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Where what is not local goes.
    pub far: Far,
    /// Share of the program's memory that is local, in percent.
    pub local_pct: u64,
    /// `--block`; none where there is no choice.
    pub block: Option<String>,
    /// `--store`; none for swap.
    pub store: Option<String>,
    /// In the workload's unit.
    pub value: f64,
    /// Performance as a share of the unlimited run's of the same measurement.
    pub normalised: f64,
    /// The stages of the program, where it tells them apart.
    #[serde(default)]
    pub stages: Vec<Stage>,
    /// Pages that Spillway fetched.
    pub pages_fetched: Option<u64>,
    /// Of the pages that came in with others, the share that was used.
    pub prefetch_accuracy: Option<f64>,
    /// Sizes of the blocks that came in, from the smallest, and the share of the memory that came in with
    /// each.
    pub block_composition: Option<Vec<(String, f64)>>,
}

impl Row {
    /// The row of one run.
    #[must_use]
    pub fn new(cell: Cell, store: Option<&str>, unlimited: f64, run: &Run, measure: Measure) -> Self {
        Self {
            far: cell.far,
            local_pct: cell.local_pct,
            block: cell.block.map(str::to_owned),
            store: store.map(str::to_owned),
            value: run.value,
            normalised: measure.normalised(unlimited, run.value),
            stages: run.stages.clone(),
            pages_fetched: run.stats["pages_fetched"].as_u64(),
            prefetch_accuracy: run.stats["prefetch_accuracy"].as_f64(),
            block_composition: composition(&run.stats["blocks"]),
        }
    }

    fn is_static(&self) -> bool {
        self.block.as_deref().is_some_and(is_static)
    }
}

/// Whether a block is of one size, which is then its name.
pub(super) fn is_static(block: &str) -> bool {
    block.starts_with(|first: char| first.is_ascii_digit())
}

/// From the counts of blocks by their size in bytes.
fn composition(blocks: &serde_json::Value) -> Option<Vec<(String, f64)>> {
    let counts = blocks.as_object()?.iter();
    let mut sizes: Vec<(u64, f64)> =
        counts.filter_map(|(size, count)| Some((size.parse().ok()?, count.as_f64()?))).collect();
    sizes.sort_by_key(|&(size, _)| size);
    let all: f64 = sizes.iter().map(|&(size, count)| size as f64 * count).sum();
    let share = |(size, count): (u64, f64)| (format!("{}K", size >> 10), size as f64 * count / all);
    (all > 0.0).then(|| sizes.into_iter().map(share).collect())
}

/// A run with little local memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Where what is not local goes.
    pub far: Far,
    /// Share of the program's memory that is local, in percent.
    pub local_pct: u64,
    /// `--block`; none on swap, and where there is no choice.
    pub block: Option<&'static str>,
}

/// All runs of a program.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WorkloadReport {
    /// The program's name in tables.
    pub name: String,
    /// What the program does with what.
    pub about: String,
    /// How many threads it runs, where that can be chosen.
    #[serde(default)]
    pub threads: Option<u32>,
    /// What its value is.
    pub measure: Measure,
    /// Its value when it runs as it is, in the last measurement.
    pub unlimited: f64,
    /// The stages of that run, where it tells them apart.
    #[serde(default)]
    pub unlimited_stages: Vec<Stage>,
    /// Anonymous memory that it uses at most when it runs as it is: the shares are shares of this.
    pub anonymous_bytes: u64,
    /// Shared memory that it uses beside, which stays local.
    pub shared_bytes: u64,
    /// What the kernel needed for it beside: page tables, stacks.
    #[serde(default)]
    pub kernel_bytes: u64,
    /// Normalised performance under Spillway with more local memory than it wants; none before that has run.
    pub all_local: Option<f64>,
    /// The runs under less local memory.
    pub rows: Vec<Row>,
}

/// What the static block sizes gave, and the choice at run time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// The best and the worst static size; none where there is no choice.
    pub fixed: Option<(f64, f64)>,
    /// dcm's elastic blocks, or whatever is done where there is no choice.
    pub elastic: Option<f64>,
    /// Blocks along streams of faults, which are Spillway's own.
    pub streams: Option<f64>,
}

impl Choice {
    /// The better of what is chosen at run time.
    #[must_use]
    pub fn best(&self) -> Option<f64> {
        self.elastic.into_iter().chain(self.streams).reduce(f64::max)
    }
}

impl WorkloadReport {
    /// Takes what a later report of the program has; rows of runs that it did not repeat stay.
    fn renew(&mut self, later: &Self) {
        let is_kept = |row: &Row| later.find(row.far, row.local_pct, row.block.as_deref()).is_none();
        let kept = std::mem::take(&mut self.rows).into_iter().filter(is_kept).collect::<Vec<_>>();
        let all_local = later.all_local.or(self.all_local);
        *self = Self { rows: [kept, later.rows.clone()].concat(), all_local, ..later.clone() };
    }

    /// Whether it ran as many threads as in all figures but that of threads.
    #[must_use]
    pub fn is_usual(&self) -> bool {
        self.threads.is_none_or(|threads| threads == USUAL_THREADS)
    }

    /// The run with this block.
    #[must_use]
    pub fn find(&self, far: Far, local_pct: u64, block: Option<&str>) -> Option<&Row> {
        let is = |row: &&Row| row.far == far && row.local_pct == local_pct && row.block.as_deref() == block;
        self.rows.iter().find(is)
    }

    /// Normalised performance at one share, as Fig. 13 has it.
    #[must_use]
    pub fn choice(&self, far: Far, local_pct: u64) -> Option<Choice> {
        let rows = || self.rows.iter().filter(|row| row.far == far && row.local_pct == local_pct);
        let with = |block| Some(self.find(far, local_pct, block)?.normalised);
        let (elastic, streams) = (with(Some("elastic")).or_else(|| with(None)), with(Some("streams")));
        let fixed = Spread::of(rows().filter(|row| row.is_static()).map(|row| row.normalised));
        let has_fixed = rows().any(Row::is_static);
        let fixed = has_fixed.then_some((fixed.max, fixed.min));
        rows().next().map(|_| Choice { fixed, elastic, streams })
    }
}

/// What the model of InfiniBand FDR has for a message of a size.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FabricMessage {
    /// Bytes of one message.
    pub message_bytes: u64,
    /// How long it takes on an idle link.
    pub latency_ns: u64,
    /// How long it keeps others off the link.
    pub occupancy_ns: u64,
}

impl FabricMessage {
    /// Of blocks from 4 to 64 KiB.
    #[must_use]
    pub fn of_fdr() -> Vec<Self> {
        let message = |pages: u32| Self {
            message_bytes: u64::from(pages) << 12,
            latency_ns: Fabric::Fdr.latency_ns(pages),
            occupancy_ns: Fabric::Fdr.occupancy_ns(pages),
        };
        [1, 2, 4, 8, 16].map(message).into()
    }
}

/// All that came out of the evaluation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DcmReport {
    /// Where it was measured.
    pub machine: Machine,
    /// Whether inputs were small.
    pub quick: bool,
    /// How often each run was repeated.
    pub repetitions: usize,
    /// The model of InfiniBand FDR.
    pub fabric: Vec<FabricMessage>,
    /// The choices of `--block` that were measured; none where there is no choice.
    pub blocks: Vec<String>,
    /// The programs that were measured.
    pub workloads: Vec<WorkloadReport>,
    /// Programs that could not be measured, and why.
    pub failures: Vec<String>,
    /// The user ended it before all was measured.
    #[serde(default)]
    pub interrupted: bool,
}

impl DcmReport {
    /// The programs with their usual number of threads.
    pub(crate) fn usual(&self) -> impl Iterator<Item = &WorkloadReport> {
        self.workloads.iter().filter(|workload| workload.is_usual())
    }

    /// A choice of `--block` was measured.
    pub(super) fn note_block(&mut self, block: Option<&str>) {
        let is_new = |block: &&str| !self.blocks.iter().any(|had| had == block);
        self.blocks.extend(block.filter(is_new).map(str::to_owned));
        let place = |block: &String| BLOCKS.iter().position(|known| known == block);
        self.blocks.sort_by_key(place);
    }

    /// Whether blocks could not be chosen.
    pub(super) fn is_without_choice(&self) -> bool {
        let rows = || self.workloads.iter().flat_map(|workload| &workload.rows);
        rows().any(|row| row.far != Far::SwapRamdisk && row.block.is_none())
    }

    /// A program with so many threads.
    pub(super) fn find(&self, name: &str, threads: Option<u32>) -> Option<&WorkloadReport> {
        self.workloads.iter().find(|workload| workload.name == name && workload.threads == threads)
    }

    /// One report of several, each of other programs or shares, or of the same once more: of a run that is
    /// there more than once, the last counts.
    #[must_use]
    pub fn merged(reports: &[&Self]) -> Option<Self> {
        let mut merged = (*reports.last()?).clone();
        merged.quick = reports.iter().any(|report| report.quick);
        merged.blocks = all_blocks(reports);
        merged.interrupted = reports.iter().any(|report| report.interrupted);
        merged.failures = reports.iter().flat_map(|report| report.failures.clone()).collect();
        merged.workloads = Vec::new();
        for workload in reports.iter().flat_map(|report| &report.workloads) {
            let is_same =
                |had: &&mut WorkloadReport| (&had.name, had.threads) == (&workload.name, workload.threads);
            match merged.workloads.iter_mut().find(is_same) {
                Some(had) => had.renew(workload),
                None => merged.workloads.push(workload.clone()),
            }
        }
        let measured = |failure: &String| {
            merged.workloads.iter().any(|had| failure.starts_with(&format!("{}:", had.name)))
        };
        merged.failures.retain(|failure| !measured(failure));
        Some(merged)
    }
}

/// The choices of all of them, in the order of the tables.
fn all_blocks(reports: &[&DcmReport]) -> Vec<String> {
    let has = |block: &str| reports.iter().any(|report| report.blocks.iter().any(|had| had == block));
    BLOCKS.into_iter().filter(|block| has(block)).map(str::to_owned).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::cgroup::Used;

    pub(crate) fn row(far: Far, block: Option<&'static str>, seconds: f64) -> Row {
        let stats = serde_json::json!({
            "pages_fetched": 5, "prefetch_accuracy": 0.9, "blocks": {"65536": 3, "4096": 16}
        });
        let stats = if far == Far::SwapRamdisk { serde_json::Value::Null } else { stats };
        let stage = |name: &str, seconds| Stage { name: name.to_owned(), seconds };
        let stages = vec![stage("loading", seconds / 4.0), stage("alignment", seconds * 3.0 / 4.0)];
        let run = Run { value: seconds, most: Used::default(), stats, latency: None, stages };
        let cell = Cell { far, local_pct: 50, block };
        Row::new(cell, Some("shm:near?fabric=fdr"), 10.0, &run, Measure::Seconds)
    }

    pub(crate) fn report(rows: Vec<Row>) -> DcmReport {
        let mut blocks: Vec<String> = rows.iter().filter_map(|row| row.block.clone()).collect();
        blocks.dedup();
        let workload = WorkloadReport {
            name: "snap".to_owned(),
            about: "aligns".to_owned(),
            threads: Some(USUAL_THREADS),
            measure: Measure::Seconds,
            unlimited: 10.0,
            unlimited_stages: vec![
                Stage { name: "loading".to_owned(), seconds: 2.0 },
                Stage { name: "alignment".to_owned(), seconds: 8.0 },
            ],
            anonymous_bytes: 3 << 20,
            shared_bytes: 2 << 20,
            kernel_bytes: 1 << 20,
            all_local: Some(0.98),
            rows,
        };
        DcmReport {
            machine: Machine::this(),
            quick: true,
            repetitions: 1,
            fabric: FabricMessage::of_fdr(),
            blocks,
            workloads: vec![workload],
            failures: vec!["postgres: not installed".to_owned()],
            interrupted: false,
        }
    }

    #[test]
    fn of_a_run_that_was_measured_twice_the_last_counts() {
        let first = report(vec![row(Far::ShmFdr, None, 20.0), row(Far::NbdTcp, None, 30.0)]);
        let mut second = report(vec![row(Far::ShmFdr, None, 40.0)]);
        let mut other = first.clone();
        other.workloads[0].name = "postgres".to_owned();
        second.failures.clear();
        let merged = DcmReport::merged(&[&first, &other, &second]).unwrap();
        let names: Vec<_> = merged.workloads.iter().map(|workload| workload.name.as_str()).collect();
        assert_eq!(names, ["snap", "postgres"]);
        let values: Vec<_> = merged.workloads[0].rows.iter().map(|row| (row.far, row.value)).collect();
        assert_eq!(values, [(Far::NbdTcp, 30.0), (Far::ShmFdr, 40.0)]);
        assert!(merged.failures.is_empty(), "PostgreSQL was measured after it failed: {:?}", merged.failures);
        assert!(DcmReport::merged(&[]).is_none());
    }

    #[test]
    fn less_time_and_more_transactions_are_better() {
        assert_eq!(Measure::Seconds.normalised(10.0, 20.0), 0.5);
        assert_eq!(Measure::PerSecond.normalised(100.0, 50.0), 0.5);
    }

    #[test]
    fn the_choice_is_between_the_best_and_the_worst_static_size_and_elastic() {
        let rows = vec![
            row(Far::ShmFdr, Some("4K"), 20.0),
            row(Far::ShmFdr, Some("8K"), 12.5),
            row(Far::ShmFdr, Some("elastic"), 16.0),
            row(Far::ShmFdr, Some("streams"), 25.0),
            row(Far::SwapRamdisk, None, 40.0),
        ];
        let report = report(rows);
        let workload = &report.workloads[0];
        let shm = Choice { fixed: Some((0.8, 0.5)), elastic: Some(0.625), streams: Some(0.4) };
        assert_eq!(workload.choice(Far::ShmFdr, 50), Some(shm));
        let swap = Choice { fixed: None, elastic: Some(0.25), streams: None };
        assert_eq!(workload.choice(Far::SwapRamdisk, 50), Some(swap));
        assert_eq!(workload.choice(Far::NbdTcp, 50), None);
        let row = workload.find(Far::ShmFdr, 50, Some("8K")).unwrap();
        assert_eq!((row.prefetch_accuracy, row.pages_fetched), (Some(0.9), Some(5)));
        let composition = [("4K".to_owned(), 0.25), ("64K".to_owned(), 0.75)];
        assert_eq!(row.block_composition.as_deref(), Some(&composition[..]));
    }
}
