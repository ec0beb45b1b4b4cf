//! Spillway and Linux swap, side by side: the same process, pattern and local limit, in turns within one run.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use crate::cells::{FaultMode, Group, Setting, StoreKind};
use crate::cgroup::MemoryGroup;
use crate::donor::{self, Donor};
use crate::machine::Machine;
use crate::measured::under;
use crate::on_access::OnAccess;
use crate::rows::{PagingReport, Row, Sample, Versus};
use crate::swap::{Kind, PageCluster, SwapDevice, nbd_lacks};
use crate::{BenchError, complain};

/// What the kernel needs of the limit beside the measured memory: the program, its stacks and page tables.
const SLACK_BYTES: u64 = 12 << 20;

/// The donor's export that the kernel swaps to.
const SWAP_EXPORT: &str = "swap";

/// How much to measure.
#[derive(Clone, Debug)]
pub struct Extent {
    /// Memory of the measured process.
    pub memory_bytes: u64,
    /// Time of one measurement.
    pub measured_ms: u64,
    /// How often each pair is repeated.
    pub repetitions: usize,
    /// What is compared, in groups of one setting.
    pub groups: Vec<Group>,
    /// Who serves faults, where the store allows it.
    pub fault_modes: Vec<FaultMode>,
    /// Read-ahead of swap, as powers of two of pages.
    pub page_clusters: Vec<u32>,
    /// Arguments for `spillway run` beside the limit and the store.
    pub run_options: Vec<String>,
    /// No group is begun after so long.
    pub time_limit: Option<Duration>,
}

impl Extent {
    /// How many measurements of one process it takes.
    fn measurements(&self) -> usize {
        let variants = |group: &Group| ways_to_swap(group).len() * self.page_clusters.len();
        let of_group = |group: &Group| (self.ways(group).count() + variants(group)) * self.repetitions;
        self.groups.iter().map(of_group).sum()
    }

    /// Each store of a group with each fault mode that suits it.
    fn ways(&self, group: &Group) -> impl Iterator<Item = (StoreKind, FaultMode)> {
        let stores = group.stores.iter();
        stores
            .flat_map(|&store| self.fault_modes.iter().map(move |&mode| (store, mode)))
            .filter(|(store, mode)| mode.suits(*store))
    }
}

/// What a run hears of as it goes on.
pub enum Progress<'a> {
    /// A setting begins to be measured.
    Setting(&'a Setting),
    /// One of its comparisons is ready.
    Row(&'a Row),
    /// So many measurements of so many are done.
    Measured(usize, usize),
}

/// Makes the comparisons, one after the other.
pub fn compare(
    spillway: &Path,
    extent: &Extent,
    interrupted: &AtomicBool,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<PagingReport, BenchError> {
    let cluster = PageCluster::new()?;
    let total = extent.measurements();
    let mut bench = Bench::new(spillway, extent, interrupted, progress)?;
    let started = Instant::now();
    let mut report = PagingReport {
        machine: Machine::this(),
        memory_bytes: extent.memory_bytes,
        measured_ms: extent.measured_ms,
        repetitions: extent.repetitions,
        run_options: extent.run_options.clone(),
        settings_left_out: 0,
        rows: Vec::new(),
    };
    for group in &extent.groups {
        if extent.time_limit.is_some_and(|limit| started.elapsed() > limit) {
            report.settings_left_out += 1;
            continue;
        }
        (bench.progress)(Progress::Setting(&group.setting));
        let rows = bench.compare_group(group, &cluster, total)?;
        rows.iter().for_each(|row| (bench.progress)(Progress::Row(row)));
        report.rows.extend(rows);
    }
    Ok(report)
}

struct Bench<'a> {
    on_access: OnAccess<'a>,
    extent: &'a Extent,
    progress: &'a mut dyn FnMut(Progress<'_>),
    group: MemoryGroup,
    measured: usize,
}

/// One store of a group in one fault mode, and what was measured on it.
struct OnStore {
    store: StoreKind,
    fault_mode: FaultMode,
    uri: String,
    samples: Vec<Sample>,
}

/// One way to swap, and what was measured on it. `None` where the kernel would not run the program to its
/// end.
struct OnSwap {
    versus: Versus,
    page_cluster: u32,
    samples: Vec<Option<Sample>>,
}

impl<'a> Bench<'a> {
    fn new(
        spillway: &'a Path,
        extent: &'a Extent,
        interrupted: &'a AtomicBool,
        progress: &'a mut dyn FnMut(Progress<'_>),
    ) -> Result<Self, BenchError> {
        let on_access = OnAccess::new(spillway, extent.memory_bytes, extent.measured_ms, interrupted)?;
        let group = MemoryGroup::new()?;
        Ok(Self { on_access, extent, progress, group, measured: 0 })
    }

    /// Spillway on each store in turns with each kind of swap: one row each pair.
    fn compare_group(
        &mut self,
        group: &Group,
        cluster: &PageCluster,
        total: usize,
    ) -> Result<Vec<Row>, BenchError> {
        let swaps = ways_to_swap(group);
        // For Spillway, and for swap over nbd beside it.
        let sides = if swaps.contains(&Versus::SwapNbd) { 2 } else { 1 };
        let lent_bytes = self.extent.memory_bytes * 5 / 4 * sides;
        let donor = if group.stores.iter().any(|&store| donor::is_needed(store)) {
            let site = &self.on_access;
            Some(Donor::start(site.spillway, lent_bytes, site.scratch(), site.interrupted)?)
        } else {
            None
        };
        let on_store = |(store, fault_mode)| {
            let uri = donor::uri(store, donor.as_ref())?;
            Some(OnStore { store, fault_mode, uri, samples: Vec::new() })
        };
        let mut ours: Vec<OnStore> = self.extent.ways(group).filter_map(on_store).collect();
        let on_swap = |versus| {
            let clusters = self.extent.page_clusters.iter();
            clusters.map(move |&page_cluster| OnSwap { versus, page_cluster, samples: Vec::new() })
        };
        let mut theirs: Vec<OnSwap> = swaps.into_iter().flat_map(on_swap).collect();
        for _ in 0..self.extent.repetitions {
            for on_store in &mut ours {
                let run = self.run_arguments(&group.setting, on_store);
                let sample = self.on_access.under_spillway(&group.setting, &run)?;
                on_store.samples.push(sample);
                self.count(total);
            }
            for on_swap in &mut theirs {
                cluster.set(on_swap.page_cluster)?;
                on_swap.samples.push(self.measure_swap_patiently(
                    &group.setting,
                    on_swap.versus,
                    donor.as_ref(),
                )?);
                self.count(total);
            }
        }
        Ok(self.rows(&group.setting, &ours, &theirs))
    }

    fn count(&mut self, total: usize) {
        self.measured += 1;
        (self.progress)(Progress::Measured(self.measured, total));
    }

    fn rows(&self, setting: &Setting, ours: &[OnStore], theirs: &[OnSwap]) -> Vec<Row> {
        let mut rows = Vec::new();
        for on_store in ours {
            let command = self.command_line(setting, on_store);
            for on_swap in theirs {
                let complete: Option<Vec<Sample>> = on_swap.samples.iter().cloned().collect();
                let Some(theirs) = complete else { continue };
                let row = Row::new(setting, &on_store.samples, &theirs);
                rows.push(Row {
                    store: on_store.store,
                    versus: on_swap.versus,
                    page_cluster: on_swap.page_cluster,
                    memory_bytes: self.extent.memory_bytes,
                    command: command.clone(),
                    ..row
                });
            }
        }
        rows
    }

    /// The arguments of `spillway run`.
    fn run_arguments(&self, setting: &Setting, on_store: &OnStore) -> Vec<String> {
        let local = self.on_access.local_bytes(setting).to_string();
        let mode = on_store.fault_mode.name();
        let arguments = ["--local", &local, "--store", &on_store.uri, "--fault-mode", mode];
        let mut arguments = arguments.map(str::to_owned).to_vec();
        arguments.extend(self.extent.run_options.iter().cloned());
        arguments
    }

    fn command_line(&self, setting: &Setting, on_store: &OnStore) -> String {
        let access = self.on_access.arguments(setting);
        let plan = access.last().map_or("", String::as_str);
        let run = self.run_arguments(setting, on_store).join(" ");
        format!("spillway run {run} -- spillway bench access --plan '{plan}'")
    }

    /// Under a limit the kernel sometimes kills a process rather than wait for its swap device. Where it does
    /// so every time, there is nothing to compare with.
    fn measure_swap_patiently(
        &self,
        setting: &Setting,
        versus: Versus,
        donor: Option<&Donor>,
    ) -> Result<Option<Sample>, BenchError> {
        const TRIES: usize = 3;
        for _ in 0..TRIES {
            match self.measure_swap(setting, versus, donor) {
                Err(BenchError::Measured { reason, .. }) => {
                    let pattern = setting.pattern.name();
                    let device = versus.device();
                    complain(format_args!("under Linux swap on {device}, {pattern}: {reason}"));
                }
                Err(error) => return Err(error),
                Ok(sample) => return Ok(Some(sample)),
            }
        }
        Ok(None)
    }

    fn measure_swap(
        &self,
        setting: &Setting,
        versus: Versus,
        donor: Option<&Donor>,
    ) -> Result<Sample, BenchError> {
        // All of the memory may be swapped out, and zram may need more than it holds.
        let bytes = self.extent.memory_bytes * 5 / 4;
        let _device = match (versus, donor) {
            (Versus::SwapNbd, Some(donor)) => SwapDevice::over_nbd(donor.address(), SWAP_EXPORT)?,
            (Versus::SwapZram, _) => SwapDevice::new(Kind::Zram, bytes)?,
            (Versus::SwapRamdisk | Versus::SwapNbd, _) => SwapDevice::new(Kind::RamDisk, bytes)?,
        };
        self.group.set_limit(self.on_access.local_bytes(setting) + SLACK_BYTES)?;
        let mut command = under(&self.group.procs(), self.on_access.spillway);
        let result = self.on_access.finish(command.args(self.on_access.arguments(setting)))?;
        let misses_per_access = result.major_faults as f64 / result.accesses.max(1) as f64;
        Ok(Sample { result, misses_per_access, fault_mode: None })
    }
}

/// What a group's stores are compared with: one on a donor with swap over nbd to that too, where the machine
/// has it.
fn ways_to_swap(group: &Group) -> Vec<Versus> {
    let mut ways = vec![Versus::SwapRamdisk, Versus::SwapZram];
    if group.stores.contains(&StoreKind::NbdTcp) && nbd_lacks().is_none() {
        ways.push(Versus::SwapNbd);
    }
    ways
}
