//! Runs workloads for tests.

use crate::access::{Access, Action};
use crate::workload::Workload;

/// What a run touched: enough to tell two runs apart.
#[derive(Debug, PartialEq, Eq)]
pub struct Run {
    pub accesses: u64,
    pub hash: u64,
    pub compute_ns: u64,
    pub longest_step: usize,
    pub steps: u64,
}

/// Runs all tasks to their end, one step each in turn, and checks that every access lies in a region.
pub fn run(workload: &mut dyn Workload) -> Run {
    let mut turn = 0;
    run_ordered(workload, |tasks| {
        turn += 1;
        turn % tasks
    })
}

/// The same, but `next` of so many tasks that are not done is stepped next.
pub fn run_ordered(workload: &mut dyn Workload, mut next: impl FnMut(usize) -> usize) -> Run {
    let regions = workload.regions().to_vec();
    let mut running: Vec<usize> = (0..workload.tasks()).collect();
    let mut accesses = Vec::new();
    let mut run = Run { accesses: 0, hash: 0, compute_ns: 0, longest_step: 0, steps: 0 };
    while !running.is_empty() {
        let turn = next(running.len());
        accesses.clear();
        let goes_on = workload.step(running[turn], &mut accesses);
        run.longest_step = run.longest_step.max(accesses.len());
        run.steps += 1;
        for &access in &accesses {
            note(&mut run, access, |address| {
                let after = regions.partition_point(|region| region.start <= address);
                after > 0 && address < regions[after - 1].start + regions[after - 1].bytes
            });
        }
        assert!(run.steps < 50_000_000, "{} does not end", workload.name());
        if !goes_on {
            running.remove(turn);
        }
    }
    run
}

fn note(run: &mut Run, access: Access, is_mapped: impl Fn(u64) -> bool) {
    let (kind, value) = match access.action() {
        Action::Read(address) => (0, address),
        Action::Write(address) => (1, address),
        Action::ComputeNs(ns) => {
            run.compute_ns += ns;
            return;
        }
        Action::Release(..) => return,
    };
    assert!(is_mapped(value), "an access outside all regions: {value:#x}");
    run.accesses += 1;
    run.hash = (run.hash.rotate_left(5) ^ (value << 2 | kind)).wrapping_mul(0x517c_c1b7_2722_0a95);
}
