//! What an experiment stands on: the tiers, the settings, the memory that it may take, and the user who may
//! interrupt.

use std::cell::RefCell;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use super::settings::Settings;
use super::tier::Tier;
use crate::BenchError;

/// What stays free for others at the least: this, or a tenth of the memory.
const KEPT_FREE_BYTES: u64 = 512 << 20;

/// What a user hears of as it goes on.
#[derive(Debug)]
pub enum Progress<'a> {
    /// An experiment begins: its name, and what it will do to the machine.
    Begins(&'a str, &'a str),
    /// So many steps of so many of an experiment are done.
    Step(&'a str, u64, u64),
    /// An experiment has ended.
    Ended(&'a super::report::ExperimentReport),
    /// Something that the user should know now.
    Note(&'a str),
}

/// Where an experiment runs.
pub struct Stage<'a> {
    /// Measure little.
    pub quick: bool,
    /// Nobody takes more memory at a time.
    pub most_bytes: u64,
    /// What is measured; never empty.
    pub tiers: Vec<Tier>,
    /// Settings of the machine.
    pub settings: Settings,
    /// CPUs that may be used.
    pub cpus: Vec<usize>,
    /// Set when the user interrupts.
    pub interrupted: &'a AtomicBool,
    /// Hears what goes on.
    pub progress: RefCell<&'a mut dyn FnMut(Progress<'_>)>,
}

impl Stage<'_> {
    /// Goes on, unless the user has interrupted.
    pub fn check(&self) -> Result<(), BenchError> {
        if self.interrupted.load(Ordering::Relaxed) { Err(BenchError::Interrupted) } else { Ok(()) }
    }

    /// So much of an experiment is done.
    pub fn step(&self, what: &str, done: usize, total: usize) -> Result<(), BenchError> {
        (self.progress.borrow_mut())(Progress::Step(what, done as u64, total as u64));
        self.check()
    }

    /// Title of a tier's panel: the first tier's is plain.
    #[must_use]
    pub fn title(&self, what: &str, tier: &Tier) -> String {
        if self.tiers.first() == Some(tier) { what.to_owned() } else { format!("{what}, {}", tier.name()) }
    }

    /// One value for a quick run, another for a whole one.
    #[must_use]
    pub fn amount(&self, quick: u64, whole: u64) -> u64 {
        if self.quick { quick } else { whole }
    }

    /// As much of `bytes` as the user allows.
    #[must_use]
    pub fn allowed(&self, bytes: u64) -> u64 {
        bytes.min(self.most_bytes)
    }

    /// `wanted` bytes of memory for each of `shares` users, or less where others would have too little; a
    /// multiple of `unit`.
    ///
    /// # Errors
    /// There is not even one unit for each.
    pub fn memory(&self, wanted: u64, shares: u64, unit: u64) -> Result<u64, BenchError> {
        let free = spare_bytes().min(self.most_bytes);
        let bytes = wanted.min(free / shares.max(1)) / unit * unit;
        if bytes == 0 {
            let what = format!("take {} of memory {shares} times", super::bytes::size(unit));
            let reason = format!("only {} can be spared", super::bytes::size(free));
            return Err(BenchError::setup(what, reason, "end other programs"));
        }
        Ok(bytes)
    }
}

/// A number of /proc/meminfo, in bytes.
#[must_use]
pub fn meminfo(key: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    line.trim().trim_end_matches(" kB").parse::<u64>().ok().map(|kib| kib << 10)
}

/// A counter of /proc/vmstat.
#[must_use]
pub fn vmstat(key: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/vmstat").ok()?;
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.parse().ok())
}

/// Memory that can be taken while enough stays free for others.
#[must_use]
pub fn spare_bytes() -> u64 {
    meminfo("MemAvailable").unwrap_or(0).saturating_sub(kept_bytes())
}

/// The same of memory that holds nothing, not even files.
#[must_use]
pub fn empty_bytes() -> u64 {
    meminfo("MemFree").unwrap_or(0).saturating_sub(kept_bytes())
}

fn kept_bytes() -> u64 {
    KEPT_FREE_BYTES.max(meminfo("MemTotal").unwrap_or(0) / 10)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A quick stage without root's means, for tests.
    pub fn quick_stage<T>(run: impl FnOnce(&Stage<'_>) -> T) -> T {
        let interrupted = AtomicBool::new(false);
        let mut progress = |_: Progress<'_>| {};
        let stage = Stage {
            quick: true,
            most_bytes: u64::MAX,
            tiers: Tier::nodes(&[]).unwrap(),
            settings: Settings::none(),
            cpus: super::super::tier::allowed_cpus(),
            interrupted: &interrupted,
            progress: RefCell::new(&mut progress),
        };
        run(&stage)
    }

    #[test]
    fn memory_stays_free_for_others() {
        quick_stage(|stage| {
            assert_eq!(stage.memory(3 << 20, 1, 2 << 20).unwrap(), 2 << 20);
            let all = stage.memory(u64::MAX, 1, 4096).unwrap();
            assert!(all + KEPT_FREE_BYTES / 2 < meminfo("MemAvailable").unwrap());
            assert!(stage.memory(u64::MAX, 4, 4096).unwrap() <= all / 3);
            assert!(stage.memory(1 << 20, 1, 1 << 60).is_err());
        });
    }

    #[test]
    fn an_interrupt_is_heard() {
        quick_stage(|stage| {
            assert!(stage.step("anything", 1, 2).is_ok());
            stage.interrupted.store(true, Ordering::Relaxed);
            assert!(matches!(stage.step("anything", 2, 2), Err(BenchError::Interrupted)));
        });
    }
}
