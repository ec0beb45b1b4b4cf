//! Real programs, each at work on memory whose contents it, or its client, checks.

mod caches;
mod command_line;
mod interpreters;
mod postgres;

use std::time::{Duration, Instant};

use super::MIB;
use super::child::PATIENCE;
use super::launch::Launch;

/// How much work is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// A few seconds, for every run of the tests.
    Quick,
    /// Work for some minutes.
    Full,
}

impl Scale {
    /// One of two values.
    pub fn pick<T>(self, quick: T, full: T) -> T {
        match self {
            Self::Quick => quick,
            Self::Full => full,
        }
    }

    fn patience(self) -> Duration {
        self.pick(PATIENCE, PATIENCE * 5)
    }
}

/// A program at work.
#[derive(Clone, Copy)]
pub struct Workload {
    /// The name by which messages call it.
    pub name: &'static str,
    /// Runs it. Fails the test where something is wrong; the answer must be the same under all conditions.
    pub run: fn(&Launch, Scale) -> String,
}

pub use caches::{MEMCACHED, REDIS, RedisAtWork};
pub use command_line::{BRK, PIPELINE, SEGMENTS, SORT, SQLITE, STRESS, THREADS};
pub use interpreters::{GUILE, JVM, MULTIPROCESSING, NODE, NUMPY, SBCL};
pub use postgres::{POSTGRES, PostgresAtWork};

/// The smallest `--local` that is tried.
const LEAST_LOCAL_BYTES: u64 = 4 * MIB;

impl Workload {
    /// Runs it as it is; returns its answer and the most memory that it held.
    pub fn unlimited(&self, scale: Scale) -> (String, u64) {
        let launch = Launch::unlimited().watched().with_patience(scale.patience());
        let begun = Instant::now();
        let answer = (self.run)(&launch, scale);
        println!(
            "{} unlimited: peak {} MiB, {:.1} s",
            self.name,
            launch.peak_bytes() / MIB,
            begun.elapsed().as_secs_f64()
        );
        (answer, launch.peak_bytes())
    }

    /// Runs it with a share of the memory that it wants, and compares its answer.
    pub fn limited(&self, scale: Scale, (answer, peak_bytes): &(String, u64), percent: u64, store: &str) {
        let local_bytes = (peak_bytes * percent / 100).max(LEAST_LOCAL_BYTES);
        let launch = Launch::limited(local_bytes, store).with_patience(scale.patience());
        let begun = Instant::now();
        let limited = (self.run)(&launch, scale);
        println!(
            "{} at {percent}% on {store}: local {} MiB, {:.1} s",
            self.name,
            local_bytes / MIB,
            begun.elapsed().as_secs_f64()
        );
        assert_eq!(&limited, answer, "{} answers otherwise at {percent}% on {store}", self.name);
        check_stats(&launch, local_bytes);
    }

    /// Runs it as it is, and then with a share of the memory that it wanted.
    pub fn compare(&self, scale: Scale, percent: u64, store: &str) {
        let unlimited = self.unlimited(scale);
        self.limited(scale, &unlimited, percent, store);
    }
}

fn check_stats(launch: &Launch, local_bytes: u64) {
    let all = launch.all_stats();
    let mut left_local = 0;
    for stats in &all {
        assert!(stats.count("peak_local_bytes") <= local_bytes, "more local than allowed: {}", stats.0);
        assert_eq!(stats.count("faults.refused"), 0, "a page could not be had: {}", stats.0);
        assert_eq!(stats.count("writebacks_failed"), 0, "a page could not be stored: {}", stats.0);
        left_local += stats.count("pages_written_back") + stats.count("zero_drops");
    }
    assert!(
        left_local > 0,
        "nothing was ever far: {:?}",
        all.iter().map(|stats| &stats.0).collect::<Vec<_>>()
    );
}
