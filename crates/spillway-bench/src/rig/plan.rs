//! What the rig runs: workloads, policies, and the cases that they make.

use std::collections::VecDeque;
use std::path::PathBuf;

/// The workloads, by the names that `rig/workload.c` knows.
pub const WORKLOADS: [&str; 5] = ["bfs", "pagerank", "kv-hot-tenth", "phases", "uniform"];
/// The policies: the daemon's, and what else `rig/init.c` knows.
pub const POLICIES: [&str; 9] =
    ["hotbox", "indigo", "tpp", "hemem", "memtis", "spillway", KERNEL, NONE, ALL_LOCAL];
/// Those of [`POLICIES`] that the daemon runs.
pub const DAEMONS: [&str; 6] = ["hotbox", "indigo", "tpp", "hemem", "memtis", "spillway"];
/// Those of [`POLICIES`] that learn of accesses through marks of the kernel's scans, whose runs differ by
/// when they begin.
const BY_SCANS: [&str; 2] = ["indigo", KERNEL];
const KERNEL: &str = "kernel";
const NONE: &str = "none";
const ALL_LOCAL: &str = "all-local";

/// What guests are to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Directory of the guest's kernel.
    pub kernel: PathBuf,
    /// The workloads, each run under every policy.
    pub workloads: Vec<String>,
    /// The policies that are compared.
    pub policies: Vec<String>,
    /// Local memory, in percent of the workload's.
    pub local_pct: Vec<u32>,
    /// Latencies of far memory.
    pub latency_ns: Vec<u32>,
    /// Memory of a workload.
    pub memory_mib: u32,
    /// Runs of a case whose outcome hangs on when the kernel's scans come by, each begun a little later; the
    /// median counts.
    pub starts: u32,
    /// What a neighbour takes of the link to far memory while it is there, in percent, of a link whose
    /// latency rises with its traffic; none for a link that is never busy.
    pub contention_pct: Vec<u32>,
    /// Seconds of the guest before those that are measured.
    pub warm_s: u32,
    /// Seconds of the guest that are measured.
    pub measured_s: u32,
    /// Least time between two looks of the daemon.
    pub scan_ms: u32,
    /// Most of the guest's processor that scans, policy and moves take, in percent.
    pub telemetry_cpu_pct: u32,
    /// What decides when the daemon's scans come.
    pub scan_pace: String,
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
            contention_pct: Vec::new(),
            warm_s: 4,
            measured_s: 4,
            scan_ms: 20,
            telemetry_cpu_pct: 80,
            scan_pace: "budget".to_owned(),
            source: None,
            settings: Vec::new(),
            consoles: None,
            jobs: 1,
        }
    }
}

/// What one guest is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// The workload that it runs.
    pub workload: String,
    /// The policy that moves its pages.
    pub policy: String,
    /// Local memory, in percent of the workload's.
    pub local_pct: u32,
    /// Latency of far memory.
    pub latency_ns: u32,
    /// What a neighbour takes of the link while it is there, where the link can be busy.
    pub contention_pct: Option<u32>,
    /// Which of the runs of this case: each begins a little later than the one before.
    pub start: u32,
}

impl Plan {
    /// Its runs. Latencies after the first are run with the first share of local memory only. Where all
    /// memory is local, neither matters. Each is run with each neighbour.
    #[must_use]
    pub fn cases(&self) -> VecDeque<Case> {
        let more =
            self.latency_ns.iter().skip(1).map(|&latency_ns| (self.local_pct.first().copied(), latency_ns));
        let first = self.latency_ns.first().copied().unwrap_or_default();
        let platforms = self.local_pct.iter().map(|&local_pct| (Some(local_pct), first)).chain(more);
        let platforms: Vec<_> = platforms.filter_map(|(local_pct, ns)| Some((local_pct?, ns))).collect();
        let neighbours = match self.contention_pct.as_slice() {
            [] => vec![None],
            several => several.iter().copied().map(Some).collect(),
        };
        let with_neighbours =
            platforms.iter().flat_map(|&platform| neighbours.iter().map(move |&pct| (platform, pct)));
        let platforms: Vec<_> = with_neighbours.collect();
        let mut cases = VecDeque::new();
        for workload in &self.workloads {
            for (at, &((local_pct, latency_ns), contention_pct)) in platforms.iter().enumerate() {
                for policy in self.policies.iter().filter(|policy| *policy != ALL_LOCAL || at == 0) {
                    let local_pct = if policy == ALL_LOCAL { 100 } else { local_pct };
                    let starts = if BY_SCANS.contains(&policy.as_str()) { self.starts } else { 1 };
                    cases.extend((0..starts).map(|start| {
                        let (workload, policy) = (workload.clone(), policy.clone());
                        Case { workload, policy, local_pct, latency_ns, contention_pct, start }
                    }));
                }
            }
        }
        cases
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_local_runs_once_a_workload_and_more_latencies_with_one_share() {
        let plan = Plan { workloads: vec!["bfs".into(), "uniform".into()], starts: 2, ..Plan::default() };
        let cases = plan.cases();
        assert_eq!(cases.len(), 2 * (10 * 3 + 1), "two policies begin twice");
        let all_local: Vec<_> = cases.iter().filter(|case| case.policy == ALL_LOCAL).collect();
        assert_eq!(all_local.len(), 2);
        assert!(all_local.iter().all(|case| case.local_pct == 100));
        assert!(cases.iter().all(|case| case.local_pct != 40 || case.latency_ns == 750));
        assert!(cases.iter().any(|case| case.local_pct == 20 && case.latency_ns == 1500));
        assert!(cases.iter().all(|case| case.contention_pct.is_none()));
    }

    #[test]
    fn every_case_but_all_local_is_run_with_every_neighbour() {
        let plan = Plan {
            workloads: vec!["bfs".into()],
            policies: vec!["indigo".into(), "tpp".into(), ALL_LOCAL.into()],
            local_pct: vec![20],
            latency_ns: vec![750],
            contention_pct: vec![0, 36],
            ..Plan::default()
        };
        let cases = plan.cases();
        assert_eq!(cases.len(), 2 * (3 + 1) + 1, "three starts of one policy, one of the other");
        let with = |pct| cases.iter().filter(|case| case.contention_pct == Some(pct)).count();
        assert_eq!((with(0), with(36)), (5, 4));
    }
}
