//! Redis-like key-value store behind a socket that lets so many requests a second through (INDIGO Table 3:
//! memtier, 10,000 requests a second; footnote 4: the network hides what memory costs).
//!
//! As in Redis, a hash table of entries that point to a key and to a value, each kind in memory of its own as
//! the allocator's size classes put them, and for each client a buffer that its requests and replies go
//! through. The rate limit is work for each request: 1 / rate, in which the network is waited for. Keys are
//! drawn uniformly, one request in 11 sets (memtier's defaults). Simplified: keys are numbers; the table does
//! not grow while requests come.

use rand::RngExt;
use serde::Deserialize;

use super::entry::{Registered, WorkloadError, at_least, within};
use super::random::{WorkloadRng, mix, rng};
use crate::access::{Access, Accesses};
use crate::memory::{AddressSpace, Array};
use crate::workload::{Region, Workload};

const NO_ENTRY: u32 = u32::MAX;
const CLIENT_BUFFER_WORDS: usize = 16384 / 8;
const REQUEST_WORDS: usize = 16;

/// What a run may set of [`Redis`].
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RedisConfig {
    /// The working set to fill, in bytes.
    pub bytes: u64,
    /// The seed that all lots are drawn from.
    pub seed: u64,
    /// Tasks (Redis serves from one).
    pub tasks: usize,
    /// Requests of all tasks together; 0: one for each key.
    pub requests: u64,
    /// Requests a second that the network lets through to each task (INDIGO: 10,000).
    pub requests_per_s: u64,
    /// Share of the requests that set.
    pub sets: f64,
    /// Bytes of a value.
    pub value_bytes: u64,
    /// Clients, each with a buffer of 16 KiB.
    pub clients: usize,
}

impl Default for RedisConfig {
    fn default() -> Self {
        Self {
            bytes: 64 << 20,
            seed: 1,
            tasks: 1,
            requests: 0,
            requests_per_s: 10_000,
            sets: 1.0 / 11.0,
            value_bytes: 512,
            clients: 16,
        }
    }
}

/// An entry of the hash table; its number is that of its key and its value.
#[derive(Clone, Copy)]
struct Entry {
    next: u32,
    _key_and_value: [u64; 2],
}

/// A key-value store behind a socket.
pub struct Redis {
    regions: Vec<Region>,
    table: Array<u32>,
    entries: Array<Entry>,
    keys: Array<[u64; 4]>,
    values: Array<u64>,
    value_words: usize,
    buffers: Array<u64>,
    clients: usize,
    gap_ns: u64,
    sets: f64,
    servers: Vec<Server>,
    set_last: Vec<u64>,
    wrong: u64,
}

struct Server {
    rng: WorkloadRng,
    left: u64,
}

impl Redis {
    fn find(&self, key: u64, accesses: &mut Accesses) -> Option<usize> {
        let slot = (mix(key) % self.table.len() as u64) as usize;
        let mut entry = self.table.get(slot, accesses);
        while entry != NO_ENTRY {
            let next = self.entries.get(entry as usize, accesses).next;
            if self.keys.get(entry as usize, accesses)[0] == key {
                return Some(entry as usize);
            }
            entry = next;
        }
        None
    }

    fn serve(&mut self, client: usize, key: u64, sets: bool, accesses: &mut Accesses) -> bool {
        let buffer = client * CLIENT_BUFFER_WORDS;
        self.buffers.write_run(buffer..buffer + REQUEST_WORDS, accesses).fill(key);
        let Some(entry) = self.find(key, accesses) else { return false };
        let words = entry * self.value_words..(entry + 1) * self.value_words;
        if sets {
            self.set_last[entry] += 1;
            let version = self.set_last[entry];
            for (word, slot) in (0..).zip(self.values.write_run(words, accesses)) {
                *slot = value(key, version, word);
            }
            return true;
        }
        let found = self.values.read_run(words, accesses);
        let reply = CLIENT_BUFFER_WORDS.min(found.len());
        self.buffers.write_run(buffer..buffer + reply, accesses).copy_from_slice(&found[..reply]);
        (0..).zip(found).all(|(word, &held)| held == value(key, self.set_last[entry], word))
    }
}

fn value(key: u64, version: u64, word: u64) -> u64 {
    (key.rotate_left(32) ^ version).wrapping_add(word)
}

impl Registered for Redis {
    type Config = RedisConfig;
    const NAME: &'static str = "redis";
    const ABOUT: &'static str = "Redis-like key-value store behind a rate-limited socket";

    fn new(config: RedisConfig) -> Result<Self, WorkloadError> {
        let name = Self::NAME;
        within(name, "requests_per_s", config.requests_per_s, 1..=1_000_000_000)?;
        within(name, "sets", config.sets, 0.0..=1.0)?;
        within(name, "value_bytes", config.value_bytes, 8..=65536)?;
        within(name, "clients", config.clients, 1..=10_000)?;
        let buffer_bytes = (config.clients * CLIENT_BUFFER_WORDS * 8) as u64;
        at_least(name, config.bytes, buffer_bytes + (64 << 10))?;
        let value_words = config.value_bytes.div_ceil(8) as usize;
        let item_bytes = 4 + size_of::<Entry>() + 32 + 8 * value_words;
        let keys = (config.bytes - buffer_bytes) as usize / item_bytes;
        let mut table = vec![NO_ENTRY; keys];
        let mut entries = Vec::with_capacity(keys);
        for key in 0..keys as u32 {
            let slot = (mix(key.into()) % keys as u64) as usize;
            entries.push(Entry { next: std::mem::replace(&mut table[slot], key), _key_and_value: [0; 2] });
        }
        let values =
            (0..keys as u64).flat_map(|key| (0..value_words as u64).map(move |word| value(key, 0, word)));
        let mut space = AddressSpace::default();
        let requests = if config.requests == 0 { keys as u64 } else { config.requests };
        let server =
            |task: usize| Server { rng: rng(config.seed, task as u64), left: requests / config.tasks as u64 };
        Ok(Self {
            table: space.array("hash table", table),
            entries: space.array("entries", entries),
            keys: space.array("keys", (0..keys as u64).map(|key| [key; 4]).collect()),
            values: space.array("values", values.collect()),
            value_words,
            buffers: space.filled("client buffers", 0, config.clients * CLIENT_BUFFER_WORDS),
            clients: config.clients,
            gap_ns: 1_000_000_000 / config.requests_per_s,
            sets: config.sets,
            servers: (0..config.tasks).map(server).collect(),
            set_last: vec![0; keys],
            wrong: 0,
            regions: space.into_regions(),
        })
    }
}

impl Workload for Redis {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn regions(&self) -> &[Region] {
        &self.regions
    }

    fn tasks(&self) -> usize {
        self.servers.len()
    }

    fn work_left(&self) -> Option<u64> {
        Some(self.servers.iter().map(|server| server.left).sum())
    }

    fn step(&mut self, task: usize, accesses: &mut Accesses) -> bool {
        let server = &mut self.servers[task];
        if server.left == 0 {
            return false;
        }
        server.left -= 1;
        let go_on = server.left > 0;
        accesses.push(Access::compute_ns(self.gap_ns));
        let client = server.rng.random_range(0..self.clients);
        let key = server.rng.random_range(0..self.set_last.len() as u64);
        let sets = server.rng.random_bool(self.sets);
        let right = self.serve(client, key, sets, accesses);
        self.wrong += u64::from(!right);
        go_on
    }

    fn verify(&self) -> Result<(), String> {
        if self.wrong > 0 {
            return Err(format!("{} requests failed", self.wrong));
        }
        for (key, version) in (0..).zip(&self.set_last) {
            let held = self.values.data()[key as usize * self.value_words];
            if held != value(key, *version, 0) {
                return Err(format!("key {key} holds {held}, which is not version {version}"));
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
    fn answers_right_at_its_rate() {
        let config = RedisConfig { bytes: 2 << 20, requests: 5000, sets: 0.5, ..RedisConfig::default() };
        let mut redis = Redis::new(config).unwrap();
        let ran = run(&mut redis);
        assert_eq!(redis.verify(), Ok(()));
        assert_eq!(ran.compute_ns, 5000 * 100_000);
        redis.values.data_mut()[0] ^= 1;
        assert!(redis.verify().is_err());
    }
}
