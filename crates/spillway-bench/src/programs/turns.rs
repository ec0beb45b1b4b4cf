//! One program at one share of its memory: every side once in each turn, with as much memory for each.

use super::report::{Configuration, EQUAL_SHARE, Outcome, Rival, Sample, Side};
use super::watch::{Spent, watching};
use crate::BenchError;
use crate::cells::StoreKind;
use crate::cgroup::MemoryGroup;
use crate::donor::{self, Donor};
use crate::swap::{Kind, PageCluster, SwapDevice};
use crate::whole::conditions::Conditions;
use crate::whole::workload::{Site, Workload};

/// What swap gets at first of the limit beside the program's memory, for files on their way.
const SLACK_BYTES: u64 = 8 << 20;
/// How often swap's limit is changed until it holds as much memory as Spillway.
const MOST_ADJUSTMENTS: usize = 4;

/// What a program is run under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Under {
    /// All memory that it wants.
    Unlimited,
    Spillway(Configuration),
    Swap {
        kind: Kind,
        page_cluster: u32,
    },
}

impl Under {
    pub(super) fn setting(self) -> String {
        match self {
            Self::Unlimited => String::new(),
            Self::Spillway(configuration) => configuration.name().to_owned(),
            Self::Swap { page_cluster, .. } => format!("page-cluster {page_cluster}"),
        }
    }

    pub(super) fn rival(self) -> Option<Rival> {
        match self {
            Self::Unlimited => Some(Rival::Unlimited),
            Self::Spillway(_) => None,
            Self::Swap { kind: Kind::Zram, .. } => Some(Rival::Zram),
            Self::Swap { kind: Kind::RamDisk, .. } => Some(Rival::Ramdisk),
        }
    }
}

/// A program, with what its sides have in common.
pub(super) struct Bench<'a> {
    pub(super) site: &'a Site<'a>,
    pub(super) workload: &'a dyn Workload,
    /// Anonymous memory at its peak; not known before it has run.
    pub(super) peak_anonymous_bytes: u64,
    pub(super) donor: Option<Donor>,
}

impl Bench<'_> {
    fn local_bytes(&self, local_pct: u64) -> u64 {
        (self.peak_anonymous_bytes / 100 * local_pct).max(4 << 20)
    }

    /// Runs it once. `limit_bytes` is swap's.
    pub(super) fn run(&self, under: Under, local_pct: u64, limit_bytes: u64) -> Result<Sample, BenchError> {
        let group = MemoryGroup::new()?;
        match under {
            Under::Unlimited => self.sample(&Conditions::Unlimited { group: &group }, &group, &|| 0),
            Under::Spillway(configuration) => {
                let flags = self.flags(configuration, local_pct);
                let conditions = Conditions::Spillway { flags, group: Some(&group) };
                self.sample(&conditions, &group, &|| 0)
            }
            Under::Swap { kind, page_cluster } => {
                let cluster = PageCluster::new()?;
                cluster.set(page_cluster)?;
                let device = SwapDevice::new(kind, self.peak_anonymous_bytes * 2 + (64 << 20))?;
                group.set_limit(limit_bytes)?;
                self.sample(&Conditions::Swap { group: &group }, &group, &|| device.used_bytes())
            }
        }
    }

    fn flags(&self, configuration: Configuration, local_pct: u64) -> Vec<String> {
        let mut flags = vec!["--local".to_owned(), self.local_bytes(local_pct).to_string()];
        let mut add = |flag: &str, value: String| flags.extend([flag.to_owned(), value]);
        match configuration {
            Configuration::Default => {}
            Configuration::Inline => add("--fault-mode", "inline".to_owned()),
            Configuration::Ram => add("--store", "ram:".to_owned()),
            Configuration::DonorTcp => {
                add("--store", donor::uri(StoreKind::NbdTcp, self.donor.as_ref()).unwrap_or_default());
            }
        }
        flags
    }

    fn sample(
        &self,
        conditions: &Conditions<'_>,
        group: &MemoryGroup,
        device_bytes: &(dyn Fn() -> u64 + Sync),
    ) -> Result<Sample, BenchError> {
        let before = Spent::now();
        let (run, memory) = watching(group, device_bytes, || conditions.run(self.site, self.workload));
        let (swapped_in_pages, cpu_s) = Spent::now().since(before);
        let lost = |outcome| Sample {
            outcome,
            value: 0.0,
            memory,
            cpu_s,
            fetched_pages: 0,
            swapped_in_pages,
            latency: None,
        };
        match run {
            Ok(run) => Ok(Sample {
                value: run.value,
                fetched_pages: run.stats["pages_fetched"].as_u64().unwrap_or(0),
                latency: run.latency,
                ..lost(Outcome::Ok)
            }),
            Err(BenchError::Measured { .. }) => Ok(lost(Outcome::Killed)),
            Err(BenchError::Wrong { .. }) => Ok(lost(Outcome::Wrong)),
            Err(error) => Err(error),
        }
    }

    /// The limit under which this kind of swap leaves as much memory to the program as `target_bytes`.
    pub(super) fn equal_limit(
        &self,
        under: Under,
        local_pct: u64,
        target_bytes: u64,
        limits: &mut Vec<u64>,
    ) -> Result<u64, BenchError> {
        let mut limit_bytes = limits.last().copied().unwrap_or(self.local_bytes(local_pct) + SLACK_BYTES);
        for _ in 0..MOST_ADJUSTMENTS {
            let sample = self.run(under, local_pct, limit_bytes)?;
            let held_bytes = sample.memory.anonymous_bytes;
            let difference = target_bytes as f64 - held_bytes as f64;
            if sample.outcome == Outcome::Ok && difference.abs() <= EQUAL_SHARE / 2.0 * target_bytes as f64 {
                break;
            }
            limit_bytes = match sample.outcome {
                // More is wanted for it to live at all.
                Outcome::Killed => limit_bytes + SLACK_BYTES,
                _ => limit_bytes.saturating_add_signed(difference as i64).max(4 << 20),
            };
        }
        limits.push(limit_bytes);
        Ok(limit_bytes)
    }
}

/// The best of the sides of a rival: of those that end well the fastest.
pub(super) fn best_of(rival: Rival, sides: &[(Under, Side)], workload: &dyn Workload) -> Option<Side> {
    let of_rival = sides.iter().filter(|(under, _)| under.rival() == Some(rival)).map(|(_, side)| side);
    let score = |side: &Side| match side.outcome() {
        Outcome::Ok => workload.measure().normalised(1.0, side.value()),
        _ => 0.0,
    };
    of_rival.max_by(|a, b| score(a).total_cmp(&score(b))).cloned()
}
