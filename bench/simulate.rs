//! How many accesses a second are simulated in hybrid mode, with caches, TLB and link, on one core: the
//! simulator alone, its accesses preloaded, and with the workload's algorithm in between.
//! `cargo bench -p spillway-lab --bench simulate [-- MIB]`

use std::error::Error;

use rustix::time::{ClockId, clock_gettime};
use spillway_lab::access::{Access, Accesses, Action};
use spillway_lab::simulator::platform::Platform;
use spillway_lab::simulator::{Interleave, Setup, Simulation, Tenant};
use spillway_lab::workload::{Region, Workload};
use spillway_lab::workloads::{Overrides, build};
use spillway_policy::knowledge::Knowledge;
use spillway_policy::registry;

const SEED: u64 = 1;
const POLICY: &str = "hotbox";
const LOCAL_SHARE: f64 = 0.2;
const WORKLOADS: [&str; 9] = [
    "graph500-bfs",
    "graph500-sssp",
    "ligra-bfs",
    "ligra-pagerank",
    "tpcc",
    "memcached-etc",
    "hash-join",
    "transformer",
    "amg",
];
/// Accesses of a workload that are preloaded at most, all tasks together.
const MOST: usize = 16 << 20;
/// Accesses of a preloaded step.
const STEP: usize = 1024;
const RUNS: usize = 3;
const WANTED_M_PER_S: f64 = 20.0;

/// Processor time of this thread, which others on the machine do not lengthen.
fn cpu_s() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// A workload's accesses without its algorithm.
#[derive(Clone)]
struct Preloaded {
    name: &'static str,
    regions: Vec<Region>,
    tasks: Vec<(Vec<Access>, usize)>,
}

impl Preloaded {
    fn record(workload: &mut dyn Workload) -> Self {
        let mut tasks = vec![(Vec::new(), 0); workload.tasks()];
        let mut running = vec![true; tasks.len()];
        let mut recorded = 0;
        while running.contains(&true) && recorded < MOST {
            for (task, running) in running.iter_mut().enumerate().filter(|(_, running)| **running) {
                let before = tasks[task].0.len();
                *running = workload.step(task, &mut tasks[task].0);
                recorded += tasks[task].0.len() - before;
            }
        }
        Self { name: workload.name(), regions: workload.regions().to_vec(), tasks }
    }

    fn accesses(&self) -> usize {
        let is_access = |access: &&Access| !matches!(access.action(), Action::ComputeNs(_));
        self.tasks.iter().map(|(all, _)| all.iter().filter(is_access).count()).sum()
    }
}

impl Workload for Preloaded {
    fn name(&self) -> &'static str {
        self.name
    }

    fn regions(&self) -> &[Region] {
        &self.regions
    }

    fn tasks(&self) -> usize {
        self.tasks.len()
    }

    fn step(&mut self, task: usize, accesses: &mut Accesses) -> bool {
        let (all, next) = &mut self.tasks[task];
        let step = &all[*next..all.len().min(*next + STEP)];
        *next += step.len();
        accesses.extend_from_slice(step);
        !step.is_empty()
    }

    fn verify(&self) -> Result<(), String> {
        Ok(())
    }
}

/// Simulates it; the accesses, and the seconds that took.
fn simulate(workload: Box<dyn Workload>, bytes: u64) -> Result<(u64, f64), Box<dyn Error>> {
    let full = Platform::hotbox();
    let factor = (bytes as f64 / full.working_set_bytes as f64).min(1.0);
    let used: u64 = workload.regions().iter().map(|region| region.bytes.div_ceil(full.page_bytes)).sum();
    let policy = registry::find(POLICY)?.build(factor, &Overrides::new(), SEED, &Knowledge::default())?;
    let setup = Setup {
        platform: full.scaled(factor),
        contention: 0.0,
        interleave: Interleave::Clock,
        series_ns: (1e9 * factor) as u64,
        profile: false,
        epoch_ps: None,
        tenants: vec![Tenant { workload, policy, local_pages: (used as f64 * LOCAL_SHARE) as u32 }],
    };
    let simulation = Simulation::new(setup)?;
    let start = cpu_s();
    let outcomes = simulation.run()?;
    let seconds = cpu_s() - start;
    Ok((outcomes.iter().map(|outcome| outcome.counts.accesses).sum(), seconds))
}

fn main() -> Result<(), Box<dyn Error>> {
    let mib: u64 = std::env::args().skip(1).find_map(|arg| arg.parse().ok()).unwrap_or(64);
    println!("{POLICY}, {mib} MiB, {:.0}% local, median and worst of {RUNS}", LOCAL_SHARE * 100.0);
    println!("{:16} {:>12} {:>8} {:>8} {:>14}", "", "accesses", "M/s", "worst", "with workload");
    for name in WORKLOADS {
        // Measuring begins after loading, which would leave those accesses uncounted.
        let settings = Overrides::from_iter([("load".to_owned(), false.into())]);
        let fresh = || build(name, mib << 20, SEED, &settings);
        let preloaded = Preloaded::record(fresh()?.as_mut());
        let accesses = preloaded.accesses();
        let mut rates = Vec::new();
        for _ in 0..RUNS {
            rates.push(accesses as f64 / simulate(Box::new(preloaded.clone()), mib << 20)?.1 / 1e6);
        }
        rates.sort_by(f64::total_cmp);
        drop(preloaded);
        let (made, seconds) = simulate(fresh()?, mib << 20)?;
        let median = rates[RUNS / 2];
        let verdict = if median >= WANTED_M_PER_S { "holds" } else { "too slow" };
        let with_workload = made as f64 / seconds / 1e6;
        println!("{name:16} {accesses:>12} {median:8.1} {:8.1} {with_workload:14.1}  {verdict}", rates[0]);
    }
    Ok(())
}
