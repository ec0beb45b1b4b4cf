//! STREAM's copy kernel: c[i] = a[i] from end to end, the neighbour that takes a part of the link (INDIGO
//! section 6.3).

use rand::RngExt;
use serde::Deserialize;

use super::entry::{Registered, WorkloadError, at_least};
use super::random::rng;
use crate::access::{Access, Accesses};
use crate::memory::{AddressSpace, Array};
use crate::workload::{Region, Workload};

/// Elements that one step copies: those of a page.
const STEP_LEN: usize = 512;

/// What a run may set of [`Stream`].
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StreamConfig {
    /// Working set: both arrays.
    pub bytes: u64,
    /// Seed of the numbers that it copies.
    pub seed: u64,
    /// Tasks; each copies a part of its own.
    pub tasks: usize,
    /// How often the array is copied; 0: without end, as a neighbour does.
    pub passes: u64,
    /// Work on a page.
    pub compute_ns_per_page: u64,
}

impl Default for StreamConfig {
    fn default() -> Self {
        Self { bytes: 64 << 20, seed: 1, tasks: 1, passes: 4, compute_ns_per_page: 128 }
    }
}

/// Copies an array from end to end.
pub struct Stream {
    passes: u64,
    regions: Vec<Region>,
    from: Array<u64>,
    to: Array<u64>,
    compute_ns_per_page: u64,
    copiers: Vec<Copier>,
}

struct Copier {
    start: usize,
    end: usize,
    next: usize,
    passed: u64,
}

impl Registered for Stream {
    type Config = StreamConfig;
    const NAME: &'static str = "stream";
    const ABOUT: &'static str = "STREAM copy: takes bandwidth";

    fn new(config: StreamConfig) -> Result<Self, WorkloadError> {
        let name = Self::NAME;
        at_least(name, config.bytes, 8192 * config.tasks as u64)?;
        let mut rng = rng(config.seed, 0);
        let len = (config.bytes / 16) as usize;
        let mut space = AddressSpace::default();
        let from = space.array("from", (0..len).map(|_| rng.random()).collect());
        let to = space.filled("to", 0, len);
        let part = |task: usize| {
            if task == config.tasks { len } else { len / STEP_LEN * task / config.tasks * STEP_LEN }
        };
        let copiers = (0..config.tasks)
            .map(|task| Copier { start: part(task), end: part(task + 1), next: part(task), passed: 0 })
            .collect();
        let (passes, compute_ns_per_page) = (config.passes, config.compute_ns_per_page);
        Ok(Self { passes, regions: space.into_regions(), from, to, compute_ns_per_page, copiers })
    }
}

impl Workload for Stream {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn regions(&self) -> &[Region] {
        &self.regions
    }

    fn tasks(&self) -> usize {
        self.copiers.len()
    }

    fn step(&mut self, task: usize, accesses: &mut Accesses) -> bool {
        let copier = &mut self.copiers[task];
        let end = copier.end.min(copier.next + STEP_LEN);
        for line in (copier.next..end).step_by(8) {
            let run = line..end.min(line + 8);
            let numbers = self.from.read_run(run.clone(), accesses);
            self.to.write_run(run, accesses).copy_from_slice(numbers);
        }
        accesses.push(Access::compute_ns(self.compute_ns_per_page));
        copier.next = end;
        if end == copier.end {
            copier.next = copier.start;
            copier.passed += 1;
        }
        self.passes == 0 || copier.passed < self.passes
    }

    fn verify(&self) -> Result<(), String> {
        for copier in self.copiers.iter().filter(|copier| copier.passed > 0) {
            if self.from.data()[copier.start..copier.end] != self.to.data()[copier.start..copier.end] {
                return Err(format!("elements {} to {} differ from their copy", copier.start, copier.end));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::testing::run;

    #[test]
    fn copies_everything() {
        for tasks in [1, 3] {
            let mut stream =
                Stream::new(StreamConfig { bytes: 1 << 20, tasks, passes: 2, ..StreamConfig::default() })
                    .unwrap();
            let ran = run(&mut stream);
            assert_eq!(stream.verify(), Ok(()));
            assert!(stream.copiers.iter().all(|copier| copier.passed == 2));
            assert_eq!(ran.accesses, 2 * (1 << 20) / 64);
        }
    }

    #[test]
    fn a_neighbour_goes_on_without_end() {
        let mut stream =
            Stream::new(StreamConfig { bytes: 8192, passes: 0, ..StreamConfig::default() }).unwrap();
        let mut accesses = Accesses::new();
        assert!((0..100).all(|_| stream.step(0, &mut accesses)));
        assert_eq!(stream.verify(), Ok(()));
    }
}
