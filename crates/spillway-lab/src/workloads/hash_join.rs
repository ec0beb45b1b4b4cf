//! Hash join of two tables on equal keys (INDIGO Table 3): builds a chained hash table over the smaller one,
//! probes it with each row of the larger one, writes the joined rows.

use rand::RngExt;
use rand::seq::SliceRandom;
use serde::Deserialize;

use super::entry::{Registered, WorkloadError, at_least, within};
use super::random::{mix, rng, zipf};
use crate::access::{Access, Accesses};
use crate::memory::{AddressSpace, Array};
use crate::workload::{Region, Workload};

const STEP_ROWS: usize = 256;
const NO_ROW: u32 = u32::MAX;
/// Rows of the larger table for each of the smaller one.
const PROBES_PER_BUILD: usize = 4;

/// What a run may set of [`HashJoin`].
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HashJoinConfig {
    /// Working set: both tables, the hash table and the result.
    pub bytes: u64,
    /// The seed that all lots are drawn from.
    pub seed: u64,
    /// How many tasks share the work.
    pub tasks: usize,
    /// Zipf exponent of how often the larger table names a key; 0: each as often.
    pub skew: f64,
    /// How often the join is done.
    pub rounds: u64,
    /// Work on a row.
    pub compute_ns_per_row: u64,
}

impl Default for HashJoinConfig {
    fn default() -> Self {
        Self { bytes: 64 << 20, seed: 1, tasks: 4, skew: 0.0, rounds: 2, compute_ns_per_row: 5 }
    }
}

/// A row of either table.
#[derive(Clone, Copy, Default)]
struct Row {
    key: u32,
    payload: u32,
}

/// Joins two tables through a hash table of the smaller one.
pub struct HashJoin {
    config: HashJoinConfig,
    regions: Vec<Region>,
    small: Array<Row>,
    large: Array<Row>,
    heads: Array<u32>,
    links: Array<u32>,
    joined: Array<(u32, u32)>,
    joined_len: usize,
    round: u64,
    phase: Phase,
}

#[derive(Clone, Copy)]
enum Phase {
    /// Empties the hash table, from this head on.
    Clear(usize),
    /// Enters the smaller table's rows, from this one on.
    Build(usize),
    /// Looks up the larger table's rows, from this one on.
    Probe(usize),
    Done,
}

impl HashJoin {
    fn bucket(&self, key: u32) -> usize {
        (mix(key.into()) % self.heads.len() as u64) as usize
    }

    fn clear(&mut self, from: usize, accesses: &mut Accesses) -> Phase {
        let end = self.heads.len().min(from + 16 * STEP_ROWS);
        self.heads.write_run(from..end, accesses).fill(NO_ROW);
        if end < self.heads.len() { Phase::Clear(end) } else { Phase::Build(0) }
    }

    fn build(&mut self, from: usize, accesses: &mut Accesses) -> Phase {
        let end = self.small.len().min(from + STEP_ROWS);
        let mut line = u64::MAX;
        for row in from..end {
            let bucket = self.bucket(self.small.get_next(row, &mut line, accesses).key);
            let head = self.heads.get(bucket, accesses);
            self.links.set(row, head, accesses);
            self.heads.set(bucket, row as u32, accesses);
        }
        accesses.push(Access::compute_ns(self.config.compute_ns_per_row * (end - from) as u64));
        if end < self.small.len() { Phase::Build(end) } else { Phase::Probe(0) }
    }

    fn probe(&mut self, from: usize, accesses: &mut Accesses) -> Phase {
        let end = self.large.len().min(from + STEP_ROWS);
        let mut line = u64::MAX;
        for index in from..end {
            let row = self.large.get_next(index, &mut line, accesses);
            let mut candidate = self.heads.get(self.bucket(row.key), accesses);
            while candidate != NO_ROW {
                let found = self.small.get(candidate as usize, accesses);
                if found.key == row.key {
                    self.joined.set(self.joined_len, (found.payload, row.payload), accesses);
                    self.joined_len += 1;
                }
                candidate = self.links.get(candidate as usize, accesses);
            }
        }
        accesses.push(Access::compute_ns(self.config.compute_ns_per_row * (end - from) as u64));
        if end < self.large.len() {
            return Phase::Probe(end);
        }
        self.round += 1;
        if self.round == self.config.rounds {
            return Phase::Done;
        }
        self.joined_len = 0;
        Phase::Clear(0)
    }
}

/// What the smaller table says of a key.
fn payload(key: u32) -> u32 {
    mix(key.into()) as u32
}

impl Registered for HashJoin {
    type Config = HashJoinConfig;
    const NAME: &'static str = "hash-join";
    const ABOUT: &'static str = "builds on the smaller table, probes with the larger";

    fn new(config: HashJoinConfig) -> Result<Self, WorkloadError> {
        let name = Self::NAME;
        within(name, "skew", config.skew, 0.0..=4.0)?;
        at_least(name, config.bytes, 16 << 10)?;
        let rows = config.bytes as usize / (8 + 4 + 4 + 16 * PROBES_PER_BUILD);
        let mut rng = rng(config.seed, 0);
        let mut keys: Vec<u32> = (0..rows as u32).collect();
        keys.shuffle(&mut rng);
        let keys_drawn = zipf(rows, config.skew);
        let mut key = || match &keys_drawn {
            Some(ranks) if config.skew > 0.0 => keys[rng.sample(ranks)],
            _ => rng.random_range(0..rows as u32),
        };
        let large =
            (0..(rows * PROBES_PER_BUILD) as u32).map(|payload| Row { key: key(), payload }).collect();
        let small = keys.iter().map(|&key| Row { key, payload: payload(key) }).collect();
        let mut space = AddressSpace::default();
        let phase = if config.rounds == 0 { Phase::Done } else { Phase::Clear(0) };
        Ok(Self {
            small: space.array("smaller table", small),
            large: space.array("larger table", large),
            heads: space.filled("heads", NO_ROW, rows),
            links: space.filled("links", NO_ROW, rows),
            joined: space.filled("joined", (0, 0), rows * PROBES_PER_BUILD),
            joined_len: 0,
            round: 0,
            phase,
            config,
            regions: space.into_regions(),
        })
    }
}

impl Workload for HashJoin {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn regions(&self) -> &[Region] {
        &self.regions
    }

    fn tasks(&self) -> usize {
        self.config.tasks
    }

    fn step(&mut self, _task: usize, accesses: &mut Accesses) -> bool {
        self.phase = match self.phase {
            Phase::Clear(from) => self.clear(from, accesses),
            Phase::Build(from) => self.build(from, accesses),
            Phase::Probe(from) => self.probe(from, accesses),
            Phase::Done => Phase::Done,
        };
        !matches!(self.phase, Phase::Done)
    }

    /// Each row of the larger table is in the result once, beside what the smaller table says of its key.
    fn verify(&self) -> Result<(), String> {
        if self.round == 0 {
            return Ok(());
        }
        if self.joined_len != self.large.len() {
            return Err(format!("{} rows joined, not {}", self.joined_len, self.large.len()));
        }
        let mut seen = vec![false; self.large.len()];
        for &(small, large) in &self.joined.data()[..self.joined_len] {
            let row = self.large.data()[large as usize];
            if small != payload(row.key) || std::mem::replace(&mut seen[large as usize], true) {
                return Err(format!("row {large} with key {} is joined with {small}", row.key));
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
    fn joins_every_row_once() {
        for (tasks, skew) in [(1, 0.0), (4, 1.0)] {
            let config = HashJoinConfig { bytes: 1 << 20, tasks, skew, ..HashJoinConfig::default() };
            let mut join = HashJoin::new(config).unwrap();
            run(&mut join);
            assert_eq!(join.verify(), Ok(()));
            join.joined.data_mut()[5].0 ^= 1;
            assert!(join.verify().is_err());
        }
    }
}
