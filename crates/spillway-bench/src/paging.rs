//! Spillway and Linux swap, side by side: the same process, pattern and local limit, in turns within one run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use tempfile::TempDir;

use crate::BenchError;
use crate::access::{AccessPlan, AccessResult, Data, Pattern};
use crate::cgroup::MemoryGroup;
use crate::swap::{Kind, PageCluster, SwapDevice};

/// What the kernel needs of the limit beside the measured memory: the program, its stacks and page tables.
const SLACK_BYTES: u64 = 12 << 20;
/// A measured process that takes longer than this is given up.
const LONGEST: Duration = Duration::from_secs(300);

/// Where far pages go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StoreKind {
    /// `ram:`
    Ram,
    /// `compressed:`
    Compressed,
    /// A donor on this machine, by shared memory.
    Shm,
    /// A donor on this machine, by TCP.
    NbdTcp,
    /// A donor on this machine, by a Unix socket.
    NbdUnix,
}

/// One comparison to make, but for what it is compared with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// Order of the accesses.
    pub pattern: Pattern,
    /// Threads.
    pub threads: usize,
    /// Share of the memory that may be local, in percent.
    pub local_pct: u64,
    /// Contents.
    pub data: Data,
    /// Where far pages go.
    pub store: StoreKind,
}

/// Linux swap, in one of the ways in which people set it up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Versus {
    /// On a loop device on tmpfs.
    SwapRamdisk,
    /// On zram.
    SwapZram,
}

/// How much to measure.
#[derive(Clone, Debug)]
pub struct Extent {
    /// Memory of the measured process.
    pub memory_bytes: u64,
    /// Time of one measurement.
    pub measured_ms: u64,
    /// How often each pair is repeated.
    pub repetitions: usize,
    /// The cells.
    pub cells: Vec<Cell>,
    /// Read-ahead of swap, as powers of two of pages.
    pub page_clusters: Vec<u32>,
    /// Arguments for `spillway run` beside the limit and the store.
    pub run_arguments: Vec<String>,
}

/// The usual selection of cells, or a few of them.
#[must_use]
pub fn usual_cells(quick: bool) -> Vec<Cell> {
    use Pattern::{RandomRead, RandomWrite, SequentialRead, SequentialRw, Strided, TwoPhase, Zipf};
    let base =
        Cell { pattern: RandomWrite, threads: 1, local_pct: 25, data: Data::Random, store: StoreKind::Ram };
    let mut cells: Vec<Cell> =
        [RandomRead, RandomWrite, Zipf, SequentialRead, SequentialRw, Strided, TwoPhase]
            .map(|pattern| Cell { pattern, ..base })
            .to_vec();
    if !quick {
        for local_pct in [50, 75] {
            cells.extend([RandomRead, RandomWrite, SequentialRead].map(|pattern| Cell {
                pattern,
                local_pct,
                ..base
            }));
        }
    }
    let counts: &[usize] = if quick { &[2] } else { &[2, 4] };
    for &threads in counts {
        cells.extend([RandomRead, RandomWrite, SequentialRead, SequentialRw].map(|pattern| Cell {
            pattern,
            threads,
            ..base
        }));
    }
    let compressed = Cell { data: Data::Compressible, store: StoreKind::Compressed, ..base };
    cells.extend(
        [RandomRead, RandomWrite, SequentialRead, SequentialRw].map(|pattern| Cell { pattern, ..compressed }),
    );
    for store in [StoreKind::Shm, StoreKind::NbdTcp, StoreKind::NbdUnix] {
        let patterns: &[Pattern] = if quick {
            &[RandomRead, SequentialRead]
        } else {
            &[RandomRead, RandomWrite, SequentialRead, SequentialRw]
        };
        cells.extend(patterns.iter().map(|&pattern| Cell { pattern, store, ..base }));
    }
    cells
}

/// One comparison that was made.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Order of the accesses.
    pub pattern: &'static str,
    /// Threads.
    pub threads: usize,
    /// Share of the memory that may be local, in percent.
    pub local_pct: u64,
    /// Contents.
    pub data: Data,
    /// Where far pages go.
    pub store: StoreKind,
    /// How faults reach Spillway.
    pub fault_mode: &'static str,
    /// What it is compared with.
    pub versus: Versus,
    /// Swap's read-ahead: `2^page_cluster` pages.
    pub page_cluster: u32,
    /// Memory of the process.
    pub memory_bytes: u64,
    /// How often both were measured.
    pub repetitions: usize,
    /// Spillway's median.
    pub ns_per_access: f64,
    /// Swap's median.
    pub versus_ns_per_access: f64,
    /// How many times faster Spillway was, in the median repetition.
    pub ratio_median: f64,
    /// In the worst.
    pub ratio_min: f64,
    /// In the best.
    pub ratio_max: f64,
    /// Spillway's bandwidth where whole pages are accessed.
    pub gb_per_s: Option<f64>,
    /// Swap's.
    pub versus_gb_per_s: Option<f64>,
    /// Pages that Spillway fetched, per access, fill and warm-up included.
    pub misses_per_access: f64,
    /// Major faults of swap, per access.
    pub versus_misses_per_access: f64,
    /// Processor time per access under Spillway.
    pub cpu_ns_per_access: f64,
    /// The same under swap.
    pub versus_cpu_ns_per_access: f64,
    /// The command that gives Spillway's side by itself.
    pub command: String,
}

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub struct PagingReport {
    /// One a comparison.
    pub rows: Vec<Row>,
}

/// Makes the comparisons. `progress` hears of each row as it is done, with how many are done and how many there are.
pub fn compare(
    spillway: &Path,
    extent: &Extent,
    interrupted: &AtomicBool,
    mut progress: impl FnMut(&Row, usize, usize),
) -> Result<PagingReport, BenchError> {
    let bench = Bench::new(spillway, extent, interrupted)?;
    let cluster = PageCluster::new()?;
    let mut report = PagingReport { rows: Vec::new() };
    let total = extent.cells.len() * 2 * extent.page_clusters.len();
    for cell in &extent.cells {
        for row in bench.compare_cell(cell, &cluster)? {
            progress(&row, report.rows.len() + 1, total);
            report.rows.push(row);
        }
    }
    Ok(report)
}

struct Bench<'a> {
    spillway: &'a Path,
    extent: &'a Extent,
    interrupted: &'a AtomicBool,
    group: MemoryGroup,
    scratch: TempDir,
}

/// One measurement of one side.
struct Sample {
    result: AccessResult,
    misses: u64,
}

impl<'a> Bench<'a> {
    fn new(spillway: &'a Path, extent: &'a Extent, interrupted: &'a AtomicBool) -> Result<Self, BenchError> {
        let scratch = TempDir::new().map_err(|error| {
            BenchError::setup("make a directory for temporary files", error, "make room, or set TMPDIR")
        })?;
        Ok(Self { spillway, extent, interrupted, group: MemoryGroup::new()?, scratch })
    }

    /// Spillway in turns with each kind of swap: one row each.
    fn compare_cell(&self, cell: &Cell, cluster: &PageCluster) -> Result<Vec<Row>, BenchError> {
        let donor =
            Donor::start_for(cell.store, self.spillway, self.extent.memory_bytes, self.scratch.path())?;
        let uri = donor.as_ref().map_or_else(|| plain_uri(cell.store), |donor| donor.uri.clone());
        let kinds = [(Kind::RamDisk, Versus::SwapRamdisk), (Kind::Zram, Versus::SwapZram)];
        let variants: Vec<(Kind, Versus, u32)> = kinds
            .iter()
            .flat_map(|&(kind, versus)| {
                self.extent.page_clusters.iter().map(move |&pages| (kind, versus, pages))
            })
            .collect();
        let mut ours = Vec::new();
        let mut theirs: Vec<Vec<Sample>> = variants.iter().map(|_| Vec::new()).collect();
        for _ in 0..self.extent.repetitions {
            ours.push(self.measure_spillway(cell, &uri)?);
            for ((kind, _, pages), samples) in variants.iter().zip(&mut theirs) {
                cluster.set(*pages)?;
                samples.extend(self.measure_swap_patiently(cell, *kind)?);
            }
        }
        let command = self.command_line(cell, &uri);
        let rows = variants.iter().zip(&theirs).filter(|(_, theirs)| theirs.len() == ours.len());
        Ok(rows
            .map(|(&(_, versus, page_cluster), theirs)| Row {
                versus,
                page_cluster,
                ..row(cell, self.extent, &ours, theirs, &command)
            })
            .collect())
    }

    fn local_bytes(&self, cell: &Cell) -> u64 {
        self.extent.memory_bytes / 100 * cell.local_pct
    }

    fn plan(&self, cell: &Cell) -> AccessPlan {
        AccessPlan {
            pattern: cell.pattern,
            data: cell.data,
            memory_bytes: self.extent.memory_bytes,
            threads: cell.threads,
            measured_ms: self.extent.measured_ms,
        }
    }

    fn access_arguments(&self, cell: &Cell) -> Vec<String> {
        let plan = serde_json::to_string(&self.plan(cell)).unwrap_or_default();
        ["bench", "access", "--plan"].map(str::to_owned).into_iter().chain([plan]).collect()
    }

    fn run_arguments(&self, cell: &Cell, uri: &str) -> Vec<String> {
        let local = self.local_bytes(cell).to_string();
        let mut arguments = ["run", "--local", &local, "--store", uri].map(str::to_owned).to_vec();
        arguments.extend(self.extent.run_arguments.iter().cloned());
        arguments
    }

    fn command_line(&self, cell: &Cell, uri: &str) -> String {
        let access = self.access_arguments(cell);
        let plan = access.last().map_or("", String::as_str);
        format!(
            "spillway {} -- spillway bench access --plan '{plan}'",
            self.run_arguments(cell, uri).join(" ")
        )
    }

    fn measure_spillway(&self, cell: &Cell, uri: &str) -> Result<Sample, BenchError> {
        let stats = self.scratch.path().join("stats.json");
        let mut command = Command::new(self.spillway);
        command.args(self.run_arguments(cell, uri)).arg("--stats").arg(&stats).arg("--").arg(self.spillway);
        command.args(self.access_arguments(cell));
        let result = self.finish(&mut command)?;
        let text = fs::read_to_string(&stats).unwrap_or_default();
        let stats: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        Ok(Sample { result, misses: stats["pages_fetched"].as_u64().unwrap_or(0) })
    }

    /// Under a limit the kernel sometimes kills a process rather than wait for its swap device. Where it does so every
    /// time, there is nothing to compare with.
    fn measure_swap_patiently(&self, cell: &Cell, kind: Kind) -> Result<Option<Sample>, BenchError> {
        const TRIES: usize = 3;
        for _ in 0..TRIES {
            match self.measure_swap(cell, kind) {
                Err(BenchError::Measured { reason, .. }) => {
                    eprintln!(
                        "spillway: bench: under Linux swap ({kind:?}) {}: {reason}",
                        cell.pattern.name()
                    );
                }
                Err(error) => return Err(error),
                Ok(sample) => return Ok(Some(sample)),
            }
        }
        Ok(None)
    }

    fn measure_swap(&self, cell: &Cell, kind: Kind) -> Result<Sample, BenchError> {
        // All of the memory may be swapped out, and zram may need more than it holds.
        let _device = SwapDevice::new(kind, self.extent.memory_bytes * 5 / 4)?;
        self.group.set_limit(self.local_bytes(cell) + SLACK_BYTES)?;
        let mut command = Command::new("/bin/sh");
        let procs = self.group.procs().display().to_string();
        command.args(["-c", "echo $$ > \"$0\" && exec \"$@\"", &procs]).arg(self.spillway);
        command.args(self.access_arguments(cell));
        let result = self.finish(&mut command)?;
        let misses = result.major_faults;
        Ok(Sample { result, misses })
    }

    /// Runs a measured process to its end, unless the user interrupts.
    fn finish(&self, command: &mut Command) -> Result<AccessResult, BenchError> {
        let line = format!("{command:?}");
        let failed = |reason: String| BenchError::Measured { command: line.clone(), reason };
        let output = self.scratch.path().join("result.json");
        let file = fs::File::create(&output).map_err(|error| failed(error.to_string()))?;
        let child =
            command.stdin(Stdio::null()).stdout(file).spawn().map_err(|error| failed(error.to_string()))?;
        let mut child = Ended(child);
        let started = Instant::now();
        let status = loop {
            match child.0.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if self.interrupted.load(Ordering::Relaxed) => return Err(BenchError::Interrupted),
                Ok(None) if started.elapsed() > LONGEST => {
                    return Err(failed("it takes too long".to_owned()));
                }
                Ok(None) => std::thread::sleep(Duration::from_millis(5)),
                Err(error) => return Err(failed(error.to_string())),
            }
        };
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(BenchError::Interrupted);
        }
        if !status.success() {
            return Err(failed(status.to_string()));
        }
        let text = fs::read_to_string(&output).unwrap_or_default();
        serde_json::from_str(&text).map_err(|error| failed(format!("{error} in '{text}'")))
    }
}

/// A child that has ended when this is dropped.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn plain_uri(store: StoreKind) -> String {
    if store == StoreKind::Ram { "ram:".to_owned() } else { "compressed:".to_owned() }
}

/// A donor for one cell.
struct Donor {
    uri: String,
    _child: Ended,
    socket: PathBuf,
}

impl Donor {
    fn start_for(
        store: StoreKind,
        spillway: &Path,
        memory_bytes: u64,
        scratch: &Path,
    ) -> Result<Option<Self>, BenchError> {
        if matches!(store, StoreKind::Ram | StoreKind::Compressed) {
            return Ok(None);
        }
        const REMEDY: &str = "run 'spillway donor' by itself to see why";
        let failed = |reason: String| BenchError::setup("start a donor", reason, REMEDY);
        let (socket, output) = (scratch.join("donor.socket"), scratch.join("donor.json"));
        let name = format!("spillway-bench-{}", std::process::id());
        let file = fs::File::create(&output).map_err(|error| failed(error.to_string()))?;
        let child = Command::new(spillway)
            .args(["donor", "--json", "--memory", &(memory_bytes * 5 / 4).to_string()])
            .args(["--listen", "127.0.0.1:0", "--shm", &name, "--unix"])
            .arg(&socket)
            .stdin(Stdio::null())
            .stdout(file)
            .spawn()
            .map_err(|error| failed(error.to_string()))?;
        let child = Ended(child);
        let started = Instant::now();
        while started.elapsed() < Duration::from_secs(10) {
            let text = fs::read_to_string(&output).unwrap_or_default();
            if let Some(line) = text.lines().next()
                && let Ok(ready) = serde_json::from_str::<serde_json::Value>(line)
            {
                let tcp = ready["listening_on"][0].as_str().unwrap_or_default().to_owned();
                let uri = match store {
                    StoreKind::Shm => format!("shm:{name}"),
                    StoreKind::NbdUnix => format!("nbd+unix:///bench?socket={}", socket.display()),
                    _ => format!("{tcp}/bench"),
                };
                return Ok(Some(Self { uri, _child: child, socket }));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Err(failed("it does not get ready".to_owned()))
    }
}

impl Drop for Donor {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.socket);
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// The row but for what it is compared with.
fn row(cell: &Cell, extent: &Extent, ours: &[Sample], theirs: &[Sample], command: &str) -> Row {
    let ns = |samples: &[Sample]| median(samples.iter().map(|sample| sample.result.ns_per_access).collect());
    let cpu =
        |samples: &[Sample]| median(samples.iter().map(|sample| sample.result.cpu_ns_per_access).collect());
    let misses = |samples: &[Sample]| {
        let each = samples.iter().map(|sample| sample.misses as f64 / sample.result.accesses.max(1) as f64);
        median(each.collect())
    };
    let mut ratios: Vec<f64> = ours
        .iter()
        .zip(theirs)
        .map(|(ours, theirs)| theirs.result.ns_per_access / ours.result.ns_per_access)
        .collect();
    ratios.sort_by(f64::total_cmp);
    let bandwidth = |ns: f64| cell.pattern.is_streaming().then(|| 4096.0 / ns);
    Row {
        pattern: cell.pattern.name(),
        threads: cell.threads,
        local_pct: cell.local_pct,
        data: cell.data,
        store: cell.store,
        fault_mode: "thread",
        versus: Versus::SwapRamdisk,
        page_cluster: 0,
        memory_bytes: extent.memory_bytes,
        repetitions: extent.repetitions,
        ns_per_access: ns(ours),
        versus_ns_per_access: ns(theirs),
        ratio_median: median(ratios.clone()),
        ratio_min: ratios.first().copied().unwrap_or(0.0),
        ratio_max: ratios.last().copied().unwrap_or(0.0),
        gb_per_s: bandwidth(ns(ours)),
        versus_gb_per_s: bandwidth(ns(theirs)),
        misses_per_access: misses(ours),
        versus_misses_per_access: misses(theirs),
        cpu_ns_per_access: cpu(ours),
        versus_cpu_ns_per_access: cpu(theirs),
        command: command.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_in_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![]), 0.0);
    }

    #[test]
    fn every_pattern_is_among_the_cells() {
        for quick in [true, false] {
            let cells = usual_cells(quick);
            for pattern in <Pattern as clap::ValueEnum>::value_variants() {
                assert!(cells.iter().any(|cell| cell.pattern == *pattern), "{pattern:?}");
            }
            assert!([1, 2].iter().all(|&threads| cells.iter().any(|cell| cell.threads == threads)));
        }
    }
}
