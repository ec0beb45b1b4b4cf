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
/// `spillway run` accepts no less.
pub(crate) const LEAST_LOCAL_BYTES: u64 = 4 << 20;
/// Swap's read-ahead, `2^n` pages: none, and the usual.
const PAGE_CLUSTERS: [u32; 2] = [0, 3];
/// How often swap's limit is changed until it holds as much memory as Spillway.
const MOST_ADJUSTMENTS: usize = 4;

/// What a program is run under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Under {
    /// All memory that it wants.
    Unlimited,
    Spillway(Configuration),
    Swap {
        kind: Kind,
        page_cluster: u32,
    },
}

impl Under {
    pub(crate) fn setting(self) -> String {
        match self {
            Self::Unlimited => String::new(),
            Self::Spillway(configuration) => configuration.name().to_owned(),
            Self::Swap { page_cluster, .. } => format!("page-cluster {page_cluster}"),
        }
    }

    /// The sides that swap of a kind has: the better of the two counts.
    pub(crate) fn swap(kind: Kind) -> [Self; 2] {
        PAGE_CLUSTERS.map(|page_cluster| Self::Swap { kind, page_cluster })
    }

    pub(crate) fn rival(self) -> Option<Rival> {
        match self {
            Self::Unlimited => Some(Rival::Unlimited),
            Self::Spillway(_) => None,
            Self::Swap { kind: Kind::Zram, .. } => Some(Rival::Zram),
            Self::Swap { kind: Kind::RamDisk, .. } => Some(Rival::Ramdisk),
        }
    }
}

/// A program, with what its sides have in common.
pub(crate) struct Bench<'a> {
    pub(crate) site: &'a Site<'a>,
    pub(crate) workload: &'a dyn Workload,
    /// Anonymous memory at its peak; not known before it has run.
    pub(crate) peak_anonymous_bytes: u64,
    pub(crate) donor: Option<Donor>,
    /// Runs are of no use without numbers of memory.
    pub(crate) needs_memory: bool,
    /// Further flags of `spillway run`.
    pub(crate) flags: Vec<String>,
}

impl Bench<'_> {
    /// This share of its memory, or the least that Spillway accepts.
    pub(super) fn share_bytes(&self, local_pct: u64) -> u64 {
        (self.peak_anonymous_bytes / 100 * local_pct).max(LEAST_LOCAL_BYTES)
    }

    /// Counts what the program holds, where the machine lets us or that is needed.
    fn group(&self) -> Result<Option<MemoryGroup>, BenchError> {
        match MemoryGroup::new() {
            Err(_) if !self.needs_memory => Ok(None),
            group => group.map(Some),
        }
    }

    /// Runs it once. `limit_bytes` is swap's.
    pub(crate) fn run(&self, under: Under, local_bytes: u64, limit_bytes: u64) -> Result<Sample, BenchError> {
        match under {
            Under::Unlimited => {
                let group = self.group()?;
                self.sample(&Conditions::Unlimited { group: group.as_ref() }, group.as_ref(), &|| 0)
            }
            Under::Spillway(configuration) => {
                let (group, flags) = (self.group()?, self.flags_of(configuration, local_bytes));
                self.sample(&Conditions::Spillway { flags, group: group.as_ref() }, group.as_ref(), &|| 0)
            }
            Under::Swap { kind, page_cluster } => {
                let group = MemoryGroup::new()?;
                let cluster = PageCluster::new()?;
                cluster.set(page_cluster)?;
                let device = SwapDevice::new(kind, self.peak_anonymous_bytes * 2 + (64 << 20))?;
                group.set_limit(limit_bytes)?;
                self.sample(&Conditions::Swap { group: &group }, Some(&group), &|| device.used_bytes())
            }
        }
    }

    fn flags_of(&self, configuration: Configuration, local_bytes: u64) -> Vec<String> {
        let mut flags = vec!["--local".to_owned(), local_bytes.to_string()];
        flags.extend_from_slice(&self.flags);
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
        group: Option<&MemoryGroup>,
        device_bytes: &(dyn Fn() -> u64 + Sync),
    ) -> Result<Sample, BenchError> {
        let before = Spent::now();
        let (run, memory) = watching(group, device_bytes, || conditions.run(self.site, self.workload));
        let (swapped_in_pages, cpu_s) = Spent::now().since(before);
        let lost = |outcome, reason| Sample {
            outcome,
            value: 0.0,
            memory,
            cpu_s,
            fetched_pages: 0,
            swapped_in_pages,
            latency: None,
            reason,
        };
        match run {
            Ok(run) => Ok(Sample {
                value: run.value,
                fetched_pages: run.stats["pages_fetched"].as_u64().unwrap_or(0),
                latency: run.latency,
                ..lost(Outcome::Ok, None)
            }),
            Err(BenchError::Measured { reason, .. }) => Ok(lost(Outcome::Killed, Some(reason))),
            Err(BenchError::Wrong { reason, .. }) => Ok(lost(Outcome::Wrong, Some(reason))),
            Err(error) => Err(error),
        }
    }

    /// The limit under which this kind of swap leaves as much memory to the program as `target_bytes`.
    fn equal_limit(
        &self,
        under: Under,
        local_bytes: u64,
        target_bytes: u64,
        limits: &mut Vec<u64>,
    ) -> Result<u64, BenchError> {
        let mut limit_bytes = limits.last().copied().unwrap_or(local_bytes + SLACK_BYTES);
        for _ in 0..MOST_ADJUSTMENTS {
            let sample = self.run(under, local_bytes, limit_bytes)?;
            let held_bytes = sample.memory.anonymous_bytes;
            let difference = target_bytes as f64 - held_bytes as f64;
            if sample.outcome == Outcome::Ok && difference.abs() <= EQUAL_SHARE / 2.0 * target_bytes as f64 {
                break;
            }
            limit_bytes = match sample.outcome {
                // More is wanted for it to live at all.
                Outcome::Killed => limit_bytes + SLACK_BYTES,
                _ => limit_bytes.saturating_add_signed(difference as i64).max(LEAST_LOCAL_BYTES),
            };
        }
        limits.push(limit_bytes);
        Ok(limit_bytes)
    }

    /// Every side once a turn. Swap's limits are settled first, by what Spillway's first configuration holds.
    pub(crate) fn turns(
        &self,
        sides: &[Under],
        local_bytes: u64,
        repetitions: usize,
        ran: &mut dyn FnMut(),
    ) -> Result<Vec<(Under, Side)>, BenchError> {
        let is_ours = |under: &&Under| matches!(under, Under::Spillway(_));
        let first = sides.iter().find(is_ours).copied().unwrap_or(Under::Spillway(Configuration::Default));
        let target_bytes = self.run(first, local_bytes, 0)?.memory.anonymous_bytes;
        let mut limits = Vec::new();
        let mut taken = Vec::new();
        for &under in sides {
            let limit_bytes = match under {
                Under::Swap { .. } => self.equal_limit(under, local_bytes, target_bytes, &mut limits)?,
                _ => 0,
            };
            taken.push((under, limit_bytes, Side { setting: under.setting(), samples: Vec::new() }));
        }
        for _ in 0..repetitions {
            for (under, limit_bytes, side) in &mut taken {
                side.samples.push(self.run(*under, local_bytes, *limit_bytes)?);
                ran();
            }
        }
        Ok(taken.into_iter().map(|(under, _, side)| (under, side)).collect())
    }
}

/// The best of the sides of a rival: of those that end well the fastest.
pub(crate) fn best_of(rival: Rival, sides: &[(Under, Side)], workload: &dyn Workload) -> Option<Side> {
    let of_rival = sides.iter().filter(|(under, _)| under.rival() == Some(rival)).map(|(_, side)| side);
    let score = |side: &Side| match side.outcome() {
        Outcome::Ok => workload.measure().normalised(1.0, side.value()),
        _ => 0.0,
    };
    of_rival.max_by(|a, b| score(a).total_cmp(&score(b))).cloned()
}
