//! `spillway bench rig`: the daemon's policies, the kernel's own tiering and no migration, on a real kernel with two
//! memory nodes, without special hardware.
//!
//! An emulator without hardware support boots a kernel with a fast and a slow node; a plugin of its translator models
//! the last-level cache and counts, by physical address, which node serves each miss. Time in the guest passes with
//! its instructions, so that results do not depend on how fast or busy this machine is.
//!
//! - [`guest`]: the guest and the emulator's command line, with [`archive`] for the guest's first files; the programs in
//!   C lie under `rig/`
//! - [`outcome`]: what a guest left; [`report`]: rows and goals
//! - [`lab`]: the same runs in the lab, beside those of the rig
//! - [`page`]: the results for people

pub mod archive;
pub mod guest;
pub mod lab;
pub mod outcome;
pub mod page;
pub mod report;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::BenchError;
use guest::Guest;
use report::Row;

/// The workloads, by the names that `rig/workload.c` knows.
pub const WORKLOADS: [&str; 5] = ["bfs", "pagerank", "kv-hot-tenth", "phases", "uniform"];
/// The policies: the daemon's, and what else `rig/init.c` knows.
pub const POLICIES: [&str; 6] = ["hotbox", "indigo", "tpp", KERNEL, NONE, ALL_LOCAL];
/// Those of [`POLICIES`] that the daemon runs.
pub const DAEMONS: [&str; 3] = ["hotbox", "indigo", "tpp"];
/// Those of [`POLICIES`] that learn of accesses through marks of the kernel's scans, whose runs differ by when they begin.
const BY_SCANS: [&str; 2] = ["indigo", KERNEL];
const KERNEL: &str = "kernel";
const NONE: &str = "none";
const ALL_LOCAL: &str = "all-local";

/// What to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Directory of the guest's kernel.
    pub kernel: PathBuf,
    /// The workloads.
    pub workloads: Vec<String>,
    /// The policies.
    pub policies: Vec<String>,
    /// Local memory, in percent of the workload's.
    pub local_pct: Vec<u32>,
    /// Latencies of far memory.
    pub latency_ns: Vec<u32>,
    /// Memory of a workload.
    pub memory_mib: u32,
    /// Runs of a case whose outcome hangs on when the kernel's scans come by, each begun a little later; the median counts.
    pub starts: u32,
    /// Seconds of the guest before those that are measured.
    pub warm_s: u32,
    /// Seconds of the guest that are measured.
    pub measured_s: u32,
    /// Least time between two looks of the daemon.
    pub look_ms: u32,
    /// Telemetry source of the daemon, where one is named.
    pub source: Option<String>,
    /// More settings of the daemon's policies, as KEY=VALUE.
    pub settings: Vec<String>,
    /// Where what each guest printed goes.
    pub consoles: Option<PathBuf>,
    /// Guests at a time.
    pub jobs: usize,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            kernel: PathBuf::from("guest-kernel"),
            workloads: WORKLOADS.map(str::to_owned).to_vec(),
            policies: POLICIES.map(str::to_owned).to_vec(),
            local_pct: vec![20, 40],
            latency_ns: vec![750, 1500],
            memory_mib: 32,
            starts: 3,
            warm_s: 4,
            measured_s: 4,
            look_ms: 20,
            source: None,
            settings: Vec::new(),
            consoles: None,
            jobs: 1,
        }
    }
}

/// One guest's work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// The workload.
    pub workload: String,
    /// The policy.
    pub policy: String,
    /// Local memory, in percent of the workload's.
    pub local_pct: u32,
    /// Latency of far memory.
    pub latency_ns: u32,
    /// Which of the runs of this case: each begins a little later than the one before.
    pub start: u32,
}

impl Plan {
    /// Its runs. Latencies after the first are run with the first share of local memory only. Where all memory is local, neither
    /// matters.
    #[must_use]
    pub fn cases(&self) -> VecDeque<Case> {
        let more =
            self.latency_ns.iter().skip(1).map(|&latency_ns| (self.local_pct.first().copied(), latency_ns));
        let first = self.latency_ns.first().copied().unwrap_or_default();
        let platforms = self.local_pct.iter().map(|&local_pct| (Some(local_pct), first)).chain(more);
        let platforms: Vec<_> = platforms.filter_map(|(local_pct, ns)| Some((local_pct?, ns))).collect();
        let mut cases = VecDeque::new();
        for workload in &self.workloads {
            for (at, &(local_pct, latency_ns)) in platforms.iter().enumerate() {
                for policy in self.policies.iter().filter(|policy| *policy != ALL_LOCAL || at == 0) {
                    let local_pct = if policy == ALL_LOCAL { 100 } else { local_pct };
                    let starts = if BY_SCANS.contains(&policy.as_str()) { self.starts } else { 1 };
                    cases.extend((0..starts).map(|start| {
                        let (workload, policy) = (workload.clone(), policy.clone());
                        Case { workload, policy, local_pct, latency_ns, start }
                    }));
                }
            }
        }
        cases
    }
}

/// What happens meanwhile.
pub enum Progress<'a> {
    /// So many runs are to be made.
    Begins(usize),
    /// One is done, after so many seconds.
    Ended(&'a Row, f64),
    /// One failed.
    Failed(&'a Case, &'a str),
}

fn keep(console: &str, directory: &std::path::Path, case: &Case) -> Result<(), BenchError> {
    let Case { workload, policy, local_pct, latency_ns, start } = case;
    let path = directory.join(format!("{workload}-{policy}-{local_pct}-{latency_ns}-{start}.txt"));
    std::fs::create_dir_all(directory).and_then(|()| std::fs::write(&path, console)).map_err(|error| {
        BenchError::setup(format!("write {}", path.display()), error, "name another directory")
    })
}

/// Makes the runs; a row a case, in their order, and how many runs failed. `spillway` is the daemon's command. After an
/// interruption there are the rows of the runs before.
///
/// # Errors
/// Nothing can be run, or the user interrupts before the first run is done.
pub fn measure(
    plan: &Plan,
    spillway: &std::path::Path,
    interrupted: &AtomicBool,
    tell: &mut (dyn FnMut(Progress<'_>) + Send),
) -> Result<(Vec<Row>, usize), BenchError> {
    let guest = Guest::prepare(spillway, &plan.kernel)?;
    let cases = plan.cases();
    tell(Progress::Begins(cases.len()));
    let left = Mutex::new(cases.into_iter().enumerate().collect::<VecDeque<_>>());
    let done = Mutex::new((Vec::new(), 0, tell));
    let work = || -> Result<(), BenchError> {
        loop {
            let next = left.lock().unwrap_or_else(std::sync::PoisonError::into_inner).pop_front();
            let Some((at, case)) = next else { return Ok(()) };
            let began = Instant::now();
            let outcome = guest.boot(plan, &case, interrupted);
            if let (Some(directory), Ok((console, _))) = (&plan.consoles, &outcome) {
                keep(console, directory, &case)?;
            }
            let mut done = done.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let (rows, failed, tell) = &mut *done;
            match outcome {
                // What is done is kept.
                Err(BenchError::Interrupted) => return Ok(()),
                Err(error) => {
                    *failed += 1;
                    tell(Progress::Failed(&case, &error.to_string()));
                }
                Ok((console, counters)) => match outcome::row(plan, &case, &console, &counters) {
                    Some(row) => {
                        tell(Progress::Ended(&row, began.elapsed().as_secs_f64()));
                        rows.push((at, row));
                    }
                    None => {
                        *failed += 1;
                        tell(Progress::Failed(&case, &format!("the guest printed:\n{console}")));
                    }
                },
            }
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..plan.jobs.max(1)).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().unwrap_or(Err(BenchError::Interrupted)))
    })?;
    let (mut rows, failed, _) = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    if rows.is_empty() && interrupted.load(Ordering::Relaxed) {
        return Err(BenchError::Interrupted);
    }
    rows.sort_by_key(|(at, _)| *at);
    let rows: Vec<Row> = rows.into_iter().map(|(_, row)| row).collect();
    let cases = rows.chunk_by(Row::is_of_the_case_of);
    Ok((cases.filter_map(report::median_of_starts).collect(), failed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_local_runs_once_a_workload_and_more_latencies_with_one_share() {
        let plan = Plan { workloads: vec!["bfs".into(), "uniform".into()], starts: 2, ..Plan::default() };
        let cases = plan.cases();
        assert_eq!(cases.len(), 2 * (7 * 3 + 1), "two policies begin twice");
        let all_local: Vec<_> = cases.iter().filter(|case| case.policy == ALL_LOCAL).collect();
        assert_eq!(all_local.len(), 2);
        assert!(all_local.iter().all(|case| case.local_pct == 100));
        assert!(cases.iter().all(|case| case.local_pct != 40 || case.latency_ns == 750));
        assert!(cases.iter().any(|case| case.local_pct == 20 && case.latency_ns == 1500));
    }
}
