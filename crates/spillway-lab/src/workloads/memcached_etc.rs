//! memcached under Facebook's ETC traffic (HotBox section 6.2: 90% of requests to 10% of the keys, whose
//! places in memory are random; one task).
//!
//! Sizes are ETC's as the load generator Mutilate draws them (`fb_key`, `fb_value`; Atikoglu et al.,
//! SIGMETRICS 2012, sections 5.2 to 5.4): keys of a generalised extreme value distribution, values of up to
//! 14 bytes by a table and the others of a generalised Pareto distribution from 15 bytes on; one request in
//! 31 sets. An item then takes 332 bytes on average, so 30 million of them are the 10 GB of the paper.
//! Simplified: keys are numbers that are not compared byte by byte, and the one value in ten thousand that is
//! longer than 16 KB is cut there.

use rand::RngExt;
use serde::Deserialize;

use super::entry::{Registered, WorkloadError, at_least, within};
use super::kv_store::{ItemSize, KvStore, VALUE_MAX_BYTES};
use super::kv_traffic::{Traffic, TrafficConfig};
use super::random::{WorkloadRng, rng};
use crate::access::Accesses;
use crate::memory::AddressSpace;
use crate::workload::{Region, Workload};

const KEY_LOCATION: f64 = 30.7984;
const KEY_SCALE: f64 = 8.20449;
const KEY_SHAPE: f64 = 0.078_688;
/// The longest key that memcached takes.
const KEY_MAX_BYTES: f64 = 250.0;

/// How likely values of 0, 1, 2, ... bytes are (Atikoglu et al., Table 5, as rounded by Mutilate).
const SHORT_VALUES: [f64; 15] = [
    0.00536, 0.00047, 0.1782, 0.09239, 0.00018, 0.0274, 0.00065, 0.00606, 0.00023, 0.00837, 0.00837, 0.08989,
    0.00092, 0.00326, 0.0198,
];
const VALUE_LOCATION: f64 = 15.0;
const VALUE_SCALE: f64 = 214.476;
const VALUE_SHAPE: f64 = 0.348_238;
/// With its share of the hash table.
const MEAN_ITEM_BYTES: u64 = 340;

/// The sizes of the next item.
fn item_size(rng: &mut WorkloadRng) -> ItemSize {
    // Above 0, so that the logarithm is finite.
    let spread = libm::pow(-libm::log(1.0 - rng.random::<f64>()), -KEY_SHAPE);
    let key_bytes = (KEY_LOCATION + KEY_SCALE / KEY_SHAPE * (spread - 1.0)).clamp(1.0, KEY_MAX_BYTES) as u64;
    let mut left = rng.random::<f64>();
    for (bytes, share) in (0..).zip(SHORT_VALUES) {
        if left < share {
            return ItemSize { key_bytes, value_bytes: bytes };
        }
        left -= share;
    }
    let tail = libm::pow(1.0 - rng.random::<f64>(), -VALUE_SHAPE);
    let value_bytes = VALUE_LOCATION + VALUE_SCALE / VALUE_SHAPE * (tail - 1.0);
    ItemSize { key_bytes, value_bytes: value_bytes.min(VALUE_MAX_BYTES as f64) as u64 }
}

/// What a run may set of [`MemcachedEtc`].
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MemcachedEtcConfig {
    /// The working set to fill, in bytes.
    pub bytes: u64,
    /// The seed that all lots are drawn from.
    pub seed: u64,
    /// How many tasks share the work (HotBox: 1).
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
        let store = KvStore::fill(&mut space, config.bytes, MEAN_ITEM_BYTES, |_| item_size(&mut sizes));
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
    use crate::access::Action;
    use crate::workloads::testing::run;
    use spillway_core::page::PAGE_BYTES;

    #[test]
    fn answers_right_with_several_tasks() {
        let config =
            MemcachedEtcConfig { bytes: 4 << 20, tasks: 4, sets: 0.3, ..MemcachedEtcConfig::default() };
        let mut workload = MemcachedEtc::new(config).unwrap();
        run(&mut workload);
        assert_eq!(workload.verify(), Ok(()));
    }

    #[test]
    fn sizes_are_those_of_the_etc_pool() {
        let mut rng = rng(1, 0);
        let sizes: Vec<_> = (0..100_000).map(|_| item_size(&mut rng)).collect();
        let mean = |of: fn(&ItemSize) -> u64| sizes.iter().map(of).sum::<u64>() as f64 / sizes.len() as f64;
        assert!((34.0..38.0).contains(&mean(|size| size.key_bytes)));
        assert!((185.0..200.0).contains(&mean(|size| size.value_bytes)));
        let short = sizes.iter().filter(|size| size.value_bytes < 15).count();
        assert!((43_000..45_000).contains(&short), "{short}");
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
                Action::Read(address) | Action::Write(address) => Some(address / PAGE_BYTES),
                Action::ComputeNs(_) | Action::Release(..) => None,
            })
            .collect();
        pages.sort_unstable();
        pages.dedup();
        // A page holds some ten items: most have a hot one among them, though only a tenth are hot.
        assert!((900..1900).contains(&pages.len()), "{}", pages.len());
    }
}
