//! Key-value store in which each key is as likely: migrations cannot help (HotBox section 4.2).

use serde::Deserialize;

use super::entry::{Registered, WorkloadError, at_least, within};
use super::kv_store::{ItemSize, KvStore, VALUE_MAX_BYTES};
use super::kv_traffic::{Traffic, TrafficConfig};
use crate::access::Accesses;
use crate::memory::AddressSpace;
use crate::workload::{Region, Workload};

/// A key (Mutilate's default: 30 bytes, as its default value of 200).
const KEY_BYTES: u64 = 30;

/// What a run may set of [`UniformKv`].
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct UniformKvConfig {
    /// The working set to fill, in bytes.
    pub bytes: u64,
    /// The seed that all lots are drawn from.
    pub seed: u64,
    /// How many tasks share the work.
    pub tasks: usize,
    /// Requests of all tasks together; 0: 8 for each key.
    pub requests: u64,
    /// Bytes of a value.
    pub value_bytes: u64,
    /// Share of the requests that set.
    pub sets: f64,
    /// Work for a request beside its memory accesses.
    pub compute_ns: u64,
}

impl Default for UniformKvConfig {
    fn default() -> Self {
        Self { bytes: 64 << 20, seed: 1, tasks: 1, requests: 0, value_bytes: 200, sets: 0.0, compute_ns: 300 }
    }
}

/// A key-value store in which each key is as likely.
pub struct UniformKv {
    regions: Vec<Region>,
    store: KvStore,
    traffic: Traffic,
}

impl Registered for UniformKv {
    type Config = UniformKvConfig;
    const NAME: &'static str = "uniform-kv";
    const ABOUT: &'static str = "key-value store in which each key is as likely";

    fn new(config: UniformKvConfig) -> Result<Self, WorkloadError> {
        let name = Self::NAME;
        within(name, "sets", config.sets, 0.0..=1.0)?;
        within(name, "value_bytes", config.value_bytes, 1..=VALUE_MAX_BYTES)?;
        at_least(name, config.bytes, 1 << 20)?;
        let mut space = AddressSpace::default();
        let size = ItemSize { key_bytes: KEY_BYTES, value_bytes: config.value_bytes };
        let store = KvStore::fill(&mut space, config.bytes, size.item_bytes(), |_| size);
        let requests = if config.requests == 0 { 8 * store.keys() as u64 } else { config.requests };
        let traffic = TrafficConfig {
            seed: config.seed,
            tasks: config.tasks,
            requests,
            hot_keys: 1.0,
            hot_requests: 1.0,
            sets: config.sets,
            compute_ns: config.compute_ns,
        };
        let traffic = Traffic::new(traffic, store.keys());
        Ok(Self { regions: space.into_regions(), store, traffic })
    }
}

impl Workload for UniformKv {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn regions(&self) -> &[Region] {
        &self.regions
    }

    fn tasks(&self) -> usize {
        self.traffic.tasks()
    }

    fn work_left(&self) -> Option<u64> {
        Some(self.traffic.requests_left())
    }

    fn step(&mut self, task: usize, accesses: &mut Accesses) -> bool {
        self.traffic.step(&mut self.store, task, accesses)
    }

    fn verify(&self) -> Result<(), String> {
        self.traffic.verify(&self.store)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::testing::run;

    #[test]
    fn answers_right_with_gets_and_sets() {
        for (tasks, sets) in [(1, 0.0), (3, 0.5)] {
            let config = UniformKvConfig { bytes: 2 << 20, tasks, sets, ..UniformKvConfig::default() };
            let mut workload = UniformKv::new(config).unwrap();
            run(&mut workload);
            assert_eq!(workload.verify(), Ok(()));
        }
    }
}
