//! Sequential scan: sums an array from end to end, again and again (dcm section 4.1, Fig. 9).

use rand::RngExt;
use serde::Deserialize;
use spillway_core::page::PAGE_BYTES;

use super::entry::{Registered, WorkloadError, at_least};
use super::random::rng;
use crate::access::{Access, Accesses};
use crate::memory::{AddressSpace, Array};
use crate::workload::{Region, Workload};

/// Elements that one step sums: those of a page.
const STEP_LEN: usize = 512;

/// What a run may set of [`Scan`].
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScanConfig {
    /// The working set to fill, in bytes.
    pub bytes: u64,
    /// Seed of the numbers that it sums.
    pub seed: u64,
    /// Tasks; each scans a part of its own.
    pub tasks: usize,
    /// How often the array is scanned.
    pub passes: u64,
    /// Work on a page.
    pub compute_ns_per_page: u64,
}

impl Default for ScanConfig {
    fn default() -> Self {
        Self { bytes: 64 << 20, seed: 1, tasks: 1, passes: 4, compute_ns_per_page: 256 }
    }
}

/// Sums an array from end to end.
pub struct Scan {
    config: ScanConfig,
    regions: Vec<Region>,
    numbers: Array<u64>,
    scanners: Vec<Scanner>,
}

struct Scanner {
    start: usize,
    end: usize,
    next: usize,
    passes_left: u64,
    sum: u64,
}

impl Registered for Scan {
    type Config = ScanConfig;
    const NAME: &'static str = "scan";
    const ABOUT: &'static str = "sums an array from end to end, again and again";

    fn new(config: ScanConfig) -> Result<Self, WorkloadError> {
        let name = Self::NAME;
        at_least(name, config.bytes, PAGE_BYTES * config.tasks as u64)?;
        let mut rng = rng(config.seed, 0);
        let len = (config.bytes / 8) as usize;
        let mut space = AddressSpace::default();
        let numbers = space.array("numbers", (0..len).map(|_| rng.random()).collect());
        let part = |task: usize| {
            if task == config.tasks { len } else { len / STEP_LEN * task / config.tasks * STEP_LEN }
        };
        let scanners = (0..config.tasks)
            .map(|task| Scanner {
                start: part(task),
                end: part(task + 1),
                next: part(task),
                passes_left: config.passes,
                sum: 0,
            })
            .collect();
        Ok(Self { config, regions: space.into_regions(), numbers, scanners })
    }
}

impl Workload for Scan {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn regions(&self) -> &[Region] {
        &self.regions
    }

    fn tasks(&self) -> usize {
        self.scanners.len()
    }

    fn work_left(&self) -> Option<u64> {
        let left = |scanner: &Scanner| {
            let done = scanner.next - scanner.start;
            (scanner.passes_left * (scanner.end - scanner.start) as u64).saturating_sub(done as u64)
        };
        Some(self.scanners.iter().map(left).sum())
    }

    fn step(&mut self, task: usize, accesses: &mut Accesses) -> bool {
        let scanner = &mut self.scanners[task];
        if scanner.passes_left == 0 {
            return false;
        }
        let end = scanner.end.min(scanner.next + STEP_LEN);
        let run = self.numbers.read_run(scanner.next..end, accesses);
        scanner.sum = run.iter().fold(scanner.sum, |sum, &number| sum.wrapping_add(number));
        accesses.push(Access::compute_ns(self.config.compute_ns_per_page));
        scanner.next = end;
        if end == scanner.end {
            scanner.next = scanner.start;
            scanner.passes_left -= 1;
        }
        scanner.passes_left > 0
    }

    fn verify(&self) -> Result<(), String> {
        let once = self.numbers.data().iter().fold(0u64, |sum, &number| sum.wrapping_add(number));
        let expected = once.wrapping_mul(self.config.passes);
        let sum = self.scanners.iter().fold(0u64, |sum, scanner| sum.wrapping_add(scanner.sum));
        if sum != expected {
            return Err(format!("the sum is {sum}, not {expected}"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::testing::run;

    #[test]
    fn reads_every_line_once_a_pass() {
        for tasks in [1, 3] {
            let config = ScanConfig { bytes: 1 << 20, passes: 2, tasks, ..ScanConfig::default() };
            let mut scan = Scan::new(config).unwrap();
            let ran = run(&mut scan);
            assert_eq!(scan.verify(), Ok(()));
            let lines = 2 * (1 << 20) / 64;
            assert!((lines..=lines + 4 * tasks as u64).contains(&ran.accesses), "{}", ran.accesses);
        }
    }
}
