//! memcached under Facebook's ETC traffic (HotBox section 6.2: 90% of requests to 10% of the keys, whose
//! places in memory are random; one task).
//!
//! Value sizes are ETC's as the load generator Mutilate draws them: generalised Pareto with location 0, scale
//! 214.476, shape 0.348238; one request in 31 sets (Atikoglu et al., SIGMETRICS 2012, section 5.3).
//! Simplified: keys are numbers, and the one value in ten thousand that is longer than 16 KB is cut there.

use rand::RngExt;
use serde::Deserialize;

use super::kv_store::{KvStore, VALUE_MAX_BYTES};
use super::kv_traffic::{Traffic, TrafficConfig};
use super::random::rng;
use super::registry::{Registered, WorkloadError, at_least, within};
use crate::access::Accesses;
use crate::memory::AddressSpace;
use crate::workload::{Region, Workload};

const VALUE_SCALE: f64 = 214.476;
const VALUE_SHAPE: f64 = 0.348_238;
const MEAN_ITEM_BYTES: u64 = 400;

/// Settings of [`MemcachedEtc`].
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MemcachedEtcConfig {
    /// Working set.
    pub bytes: u64,
    /// Seed.
    pub seed: u64,
    /// Tasks (HotBox: 1).
    pub tasks: usize,
    /// Requests of all tasks together; 0: 8 for each key.
    pub requests: u64,
    /// Share of the keys that are hot (HotBox: 0.1).
    pub hot_keys: f64,
    /// Share of the requests that ask for hot keys (HotBox: 0.9).
    pub hot_requests: f64,
    /// Share of the requests that set.
    pub sets: f64,
    /// Work for a request beside its memory accesses.
    pub compute_ns: u64,
}

impl Default for MemcachedEtcConfig {
    fn default() -> Self {
        Self {
            bytes: 64 << 20,
            seed: 1,
            tasks: 1,
            requests: 0,
            hot_keys: 0.1,
            hot_requests: 0.9,
            sets: 1.0 / 31.0,
            compute_ns: 300,
        }
    }
}

/// memcached under ETC traffic.
pub struct MemcachedEtc {
    regions: Vec<Region>,
    store: KvStore,
    traffic: Traffic,
}

impl Registered for MemcachedEtc {
    type Config = MemcachedEtcConfig;
    const NAME: &'static str = "memcached-etc";
    const ABOUT: &'static str = "memcached, 90% of requests to 10% of its keys, scattered";

    fn new(config: MemcachedEtcConfig) -> Result<Self, WorkloadError> {
        let name = Self::NAME;
        within(name, "hot_keys", config.hot_keys, 0.0..=1.0)?;
        within(name, "hot_requests", config.hot_requests, 0.0..=1.0)?;
        within(name, "sets", config.sets, 0.0..=1.0)?;
        at_least(name, config.bytes, 1 << 20)?;
        let mut space = AddressSpace::default();
        let mut sizes = rng(config.seed, 0);
        let value_bytes = |_| {
            let tail = libm::pow(1.0 - sizes.random::<f64>(), -VALUE_SHAPE);
            (VALUE_SCALE / VALUE_SHAPE * (tail - 1.0)).clamp(1.0, VALUE_MAX_BYTES as f64) as u64
        };
        let store = KvStore::fill(&mut space, config.bytes, MEAN_ITEM_BYTES, value_bytes);
        let requests = if config.requests == 0 { 8 * store.keys() as u64 } else { config.requests };
        let traffic = TrafficConfig {
            seed: config.seed,
            tasks: config.tasks,
            requests,
            hot_keys: config.hot_keys,
            hot_requests: config.hot_requests,
            sets: config.sets,
            compute_ns: config.compute_ns,
        };
        let traffic = Traffic::new(traffic, store.keys());
        Ok(Self { regions: space.into_regions(), store, traffic })
    }
}

impl Workload for MemcachedEtc {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn regions(&self) -> &[Region] {
        &self.regions
    }

    fn tasks(&self) -> usize {
        self.traffic.tasks()
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
    use crate::access::Action;
    use crate::workloads::testing::run;

    #[test]
    fn answers_right_with_several_tasks() {
        let config =
            MemcachedEtcConfig { bytes: 4 << 20, tasks: 4, sets: 0.3, ..MemcachedEtcConfig::default() };
        let mut workload = MemcachedEtc::new(config).unwrap();
        run(&mut workload);
        assert_eq!(workload.verify(), Ok(()));
    }

    #[test]
    fn hot_items_are_scattered_over_all_pages() {
        let config =
            MemcachedEtcConfig { bytes: 8 << 20, hot_requests: 1.0, ..MemcachedEtcConfig::default() };
        let mut workload = MemcachedEtc::new(config).unwrap();
        let mut accesses = Accesses::new();
        while workload.step(0, &mut accesses) {}
        let mut pages: Vec<_> = accesses
            .iter()
            .filter_map(|access| match access.action() {
                Action::Read(address) | Action::Write(address) => Some(address / 4096),
                Action::ComputeNs(_) => None,
            })
            .collect();
        pages.sort_unstable();
        pages.dedup();
        // A page holds some ten items: most have a hot one among them, though only a tenth are hot.
        assert!((900..1900).contains(&pages.len()), "{}", pages.len());
    }
}
