//! The load on a key-value server: keys by a distribution, some of them written, every value checked.

use std::io::Error;
use std::time::Instant;

use crate::BenchError;
use crate::access::mix;
use crate::whole::workload::Latency;

/// Bytes of a value: from here on.
const LEAST_VALUE_BYTES: usize = 100;
/// Bytes of a value: up to here.
const MOST_VALUE_BYTES: usize = 4096;
/// The exponent of Zipf's law that key-value benchmarks use.
const ZIPF_EXPONENT: f64 = 0.99;

/// How keys are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Draw {
    /// Each as often as any other.
    Uniform,
    /// By Zipf's law with exponent 0.99, in a scattered order.
    Zipf,
    /// One after the other.
    Scan,
}

/// What the clients do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) keys: u64,
    pub(super) requests: u64,
    pub(super) draw: Draw,
    /// Of so many requests in a hundred the value is written anew.
    pub(super) write_percent: u64,
}

/// Requests that are on their way together, as of so many clients at once.
const TOGETHER: u64 = 16;

/// A connection to a server, which answers in the order of the requests.
pub(super) trait Client {
    /// Asks to store a value, with the next [`Client::send`].
    fn set(&mut self, key: &str, value: &[u8]);
    /// Asks for the value of a key, with the next [`Client::send`].
    fn get(&mut self, key: &str);
    /// Sends what was asked.
    fn send(&mut self) -> std::io::Result<()>;
    /// The answer to a [`Client::set`].
    fn stored(&mut self) -> std::io::Result<()>;
    /// The answer to a [`Client::get`], into `value`. False where the server has none.
    fn found(&mut self, value: &mut Vec<u8>) -> std::io::Result<bool>;
}

/// What a load came to.
pub(super) struct Outcome {
    pub(super) requests_per_s: f64,
    pub(super) latency: Latency,
}

impl Load {
    fn key(&self, random: &mut u64, request: u64) -> u64 {
        *random = random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let draw = mix(*random);
        let uniform = (draw >> 11) as f64 / (1_u64 << 53) as f64;
        match self.draw {
            Draw::Uniform => (uniform * self.keys as f64) as u64,
            Draw::Zipf => {
                let rest = 1.0 - ZIPF_EXPONENT;
                let whole = (self.keys as f64 + 1.0).powf(rest) - 1.0;
                let rank = (uniform * whole + 1.0).powf(1.0 / rest) - 1.0;
                mix(rank as u64 + 1) % self.keys
            }
            Draw::Scan => request % self.keys,
        }
    }

    /// Fills the server, and puts the load on it.
    pub(super) fn put_on(&self, server: &str, client: &mut dyn Client) -> Result<Outcome, BenchError> {
        self.fill(client).map_err(|error| silent(server, &error))?;
        let mut versions = vec![0_u32; self.keys as usize];
        let mut waits_ns = Vec::with_capacity(self.requests as usize);
        let (mut random, begun) = (1, Instant::now());
        for first in (0..self.requests).step_by(TOGETHER as usize) {
            let asked = self.ask(first, &mut random, &mut versions, client);
            let sent = Instant::now();
            client.send().map_err(|error| silent(server, &error))?;
            for (key, version, writes) in asked {
                self.expect(server, client, key, (version, writes))?;
                waits_ns.push(sent.elapsed().as_nanos() as u64);
            }
        }
        let seconds = begun.elapsed().as_secs_f64();
        let requests_per_s = waits_ns.len() as f64 / seconds;
        let waits_us = waits_ns.into_iter().map(|wait| wait as f64 / 1000.0).collect();
        let latency = Latency::of(waits_us).ok_or_else(|| silent(server, &Error::other("no request")))?;
        Ok(Outcome { requests_per_s, latency })
    }

    fn fill(&self, client: &mut dyn Client) -> std::io::Result<()> {
        let mut contents = Vec::new();
        for first in (0..self.keys).step_by(TOGETHER as usize) {
            let keys = first..(first + TOGETHER).min(self.keys);
            for key in keys.clone() {
                value(key, 0, &mut contents);
                client.set(&name(key), &contents);
            }
            client.send()?;
            keys.into_iter().try_for_each(|_| client.stored())?;
        }
        Ok(())
    }

    /// Asks for the next requests. Of each its key, the version that the key has then, and whether that is
    /// written.
    fn ask(
        &self,
        first: u64,
        random: &mut u64,
        versions: &mut [u32],
        client: &mut dyn Client,
    ) -> Vec<(u64, u32, bool)> {
        let (mut asked, mut contents) = (Vec::new(), Vec::new());
        for request in first..(first + TOGETHER).min(self.requests) {
            let key = self.key(random, request);
            let writes = mix(request ^ 0x5e7) % 100 < self.write_percent;
            let version = &mut versions[key as usize];
            *version += u32::from(writes);
            if writes {
                value(key, *version, &mut contents);
                client.set(&name(key), &contents);
            } else {
                client.get(&name(key));
            }
            asked.push((key, *version, writes));
        }
        asked
    }

    fn expect(
        &self,
        server: &str,
        client: &mut dyn Client,
        key: u64,
        (version, writes): (u32, bool),
    ) -> Result<(), BenchError> {
        if writes {
            return client.stored().map_err(|error| silent(server, &error));
        }
        let (mut wanted, mut found) = (Vec::new(), Vec::new());
        value(key, version, &mut wanted);
        let is_there = client.found(&mut found).map_err(|error| silent(server, &error))?;
        if is_there && found == wanted {
            return Ok(());
        }
        let reason = format!("not the value that key {key} was given in version {version}");
        Err(BenchError::Wrong { command: server.to_owned(), reason })
    }
}

fn silent(server: &str, error: &Error) -> BenchError {
    BenchError::Measured { command: server.to_owned(), reason: format!("it does not answer: {error}") }
}

fn name(key: u64) -> String {
    format!("key:{key:012}")
}

/// The value of a key in a version: letters of a length that the key says, every eight of them twice, so that
/// any compressor makes it about half as long.
fn value(key: u64, version: u32, value: &mut Vec<u8>) {
    let spread = (MOST_VALUE_BYTES - LEAST_VALUE_BYTES + 1) as u64;
    let bytes = LEAST_VALUE_BYTES + (mix(key + 1) % spread) as usize;
    value.clear();
    let mut word = mix(key << 32 | u64::from(version));
    while value.len() < bytes {
        let letters = word.to_le_bytes().map(|byte| b'a' + byte % 26);
        value.extend_from_slice(&letters);
        value.extend_from_slice(&letters);
        word = mix(word);
    }
    value.truncate(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashMap, VecDeque};

    #[derive(Default)]
    struct Table {
        values: HashMap<String, Vec<u8>>,
        forgets: bool,
        answers: VecDeque<Option<Vec<u8>>>,
    }

    impl Client for Table {
        fn set(&mut self, key: &str, value: &[u8]) {
            if !self.forgets || !self.values.contains_key(key) {
                self.values.insert(key.to_owned(), value.to_vec());
            }
        }

        fn get(&mut self, key: &str) {
            self.answers.push_back(self.values.get(key).cloned());
        }

        fn send(&mut self) -> std::io::Result<()> {
            Ok(())
        }

        fn stored(&mut self) -> std::io::Result<()> {
            Ok(())
        }

        fn found(&mut self, value: &mut Vec<u8>) -> std::io::Result<bool> {
            let answer = self.answers.pop_front().flatten();
            value.clone_from(answer.as_ref().unwrap_or(&Vec::new()));
            Ok(answer.is_some())
        }
    }

    fn load(draw: Draw) -> Load {
        Load { keys: 500, requests: 5_000, draw, write_percent: 50 }
    }

    #[test]
    fn a_server_that_forgets_a_write_gives_a_wrong_result() {
        for draw in [Draw::Uniform, Draw::Zipf, Draw::Scan] {
            load(draw).put_on("table", &mut Table::default()).unwrap();
            let mut forgetful = Table { forgets: true, ..Table::default() };
            let error = load(draw).put_on("table", &mut forgetful).err();
            assert!(matches!(error, Some(BenchError::Wrong { .. })), "{draw:?}: {error:?}");
        }
    }

    #[test]
    fn zipf_prefers_few_keys_and_uniform_none() {
        let most = |draw| {
            let (mut random, mut counts) = (1, vec![0; 500]);
            (0..50_000).for_each(|request| counts[load(draw).key(&mut random, request) as usize] += 1);
            counts.into_iter().max().unwrap()
        };
        assert!(most(Draw::Uniform) < 200 && most(Draw::Zipf) > 5_000);
        assert_eq!(most(Draw::Scan), 100);
    }
}
