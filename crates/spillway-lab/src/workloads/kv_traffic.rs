//! Requests to a [`KvStore`]: which task asks for which key, and whether it got what it should.

use rand::RngExt;
use rand::seq::SliceRandom;

use super::kv_store::KvStore;
use super::random::{WorkloadRng, rng};
use crate::access::{Access, Accesses};

/// What the requests are like.
pub struct TrafficConfig {
    /// The seed that all lots are drawn from.
    pub seed: u64,
    /// Tasks, each with its own requests.
    pub tasks: usize,
    /// Requests of all tasks together.
    pub requests: u64,
    /// Share of the keys that are hot.
    pub hot_keys: f64,
    /// Share of the requests that ask for hot keys.
    pub hot_requests: f64,
    /// Share of the requests that set.
    pub sets: f64,
    /// Work for a request beside its memory accesses: parsing, network.
    pub compute_ns: u64,
}

/// Clients of a store.
pub struct Traffic {
    config: TrafficConfig,
    /// Keys; the hot ones first.
    keys: Vec<u32>,
    hot_keys: usize,
    clients: Vec<Client>,
    set_last: Vec<u32>,
    wrong: u64,
}

struct Client {
    rng: WorkloadRng,
    left: u64,
}

impl Traffic {
    /// Clients of a store with `keys` keys.
    pub fn new(config: TrafficConfig, keys: usize) -> Self {
        let mut shuffled: Vec<u32> = (0..keys as u32).collect();
        shuffled.shuffle(&mut rng(config.seed, 1));
        let clients = (0..config.tasks)
            .map(|task| Client {
                rng: rng(config.seed, 2 + task as u64),
                left: config.requests / config.tasks as u64,
            })
            .collect();
        let hot_keys = ((keys as f64 * config.hot_keys) as usize).clamp(1, keys.max(1));
        Self { config, keys: shuffled, hot_keys, clients, set_last: vec![0; keys], wrong: 0 }
    }

    /// How many tasks there are.
    pub fn tasks(&self) -> usize {
        self.clients.len()
    }

    /// Requests of all tasks that are still to be done.
    pub fn requests_left(&self) -> u64 {
        self.clients.iter().map(|client| client.left).sum()
    }

    /// Does one request of a task. False when it has no more.
    pub fn step(&mut self, store: &mut KvStore, task: usize, accesses: &mut Accesses) -> bool {
        let client = &mut self.clients[task];
        if client.left == 0 {
            return false;
        }
        client.left -= 1;
        let hot = client.rng.random_bool(self.config.hot_requests);
        let keys = if hot || self.hot_keys == self.keys.len() {
            0..self.hot_keys
        } else {
            self.hot_keys..self.keys.len()
        };
        let key = self.keys[client.rng.random_range(keys)];
        accesses.push(Access::compute_ns(self.config.compute_ns));
        let right = if client.rng.random_bool(self.config.sets) {
            self.set_last[key as usize] += 1;
            store.set(key.into(), self.set_last[key as usize], accesses)
        } else {
            store.get(key.into(), accesses) == Some(self.set_last[key as usize])
        };
        self.wrong += u64::from(!right);
        client.left > 0
    }

    /// Whether every request got what it should, and the store holds what was set last.
    pub fn verify(&self, store: &KvStore) -> Result<(), String> {
        if self.wrong > 0 {
            return Err(format!("{} requests failed", self.wrong));
        }
        let mut none = Accesses::new();
        for (key, &set_last) in (0..).zip(&self.set_last) {
            none.clear();
            let version = store.get(key, &mut none);
            if version != Some(set_last) {
                return Err(format!("key {key} is {version:?}, not {set_last}"));
            }
        }
        Ok(())
    }
}
