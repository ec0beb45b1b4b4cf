//! How fast workloads make accesses, and how many the longest step makes:
//! `cargo bench -p spillway-lab --bench workloads [-- MIB]`

use rustix::time::{ClockId, clock_gettime};
use spillway_lab::access::Action;
use spillway_lab::workloads::{Overrides, build, entries};

const SEED: u64 = 1;

/// Processor time of this thread, which others on the machine do not lengthen.
fn cpu_s() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mib = std::env::args().nth(1).and_then(|arg| arg.parse().ok()).unwrap_or(64);
    println!(
        "{:16} {:>9} {:>9} {:>12} {:>9} {:>8}",
        format!("{mib} MiB"),
        "build s",
        "run s",
        "accesses",
        "M/s",
        "longest"
    );
    for entry in entries() {
        let start = cpu_s();
        let mut workload = build(entry.name, mib << 20, SEED, &Overrides::new())?;
        let build_s = cpu_s() - start;
        let mut running = vec![true; workload.tasks()];
        let (mut accesses, mut made, mut longest) = (Vec::new(), 0u64, 0);
        let start = cpu_s();
        while running.contains(&true) {
            for (task, running) in running.iter_mut().enumerate().filter(|(_, running)| **running) {
                accesses.clear();
                *running = workload.step(task, &mut accesses);
                longest = longest.max(accesses.len());
                made +=
                    accesses.iter().filter(|access| !matches!(access.action(), Action::ComputeNs(_))).count()
                        as u64;
            }
        }
        let run_s = cpu_s() - start;
        workload.verify()?;
        println!(
            "{:16} {build_s:9.2} {run_s:9.2} {made:12} {:9.1} {longest:8}",
            entry.name,
            made as f64 / run_s / 1e6
        );
    }
    Ok(())
}
