//! One program at one share of its memory: every side once in each turn, with as much memory for each.

use std::cmp::Ordering;
use std::time::{Duration, Instant};

use super::report::{Configuration, EQUAL_SHARE, Outcome, Rival, Sample, Side};
use super::watch::{Seen, Spent, watching};
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
/// How often swap's first limit at a share is changed until it holds as much memory as Spillway.
const MOST_ADJUSTMENTS: usize = 3;
/// How often that of its other settings is, which begin with what was found.
const LATER_ADJUSTMENTS: usize = 1;
/// A limit is found when memory is this near, for runs differ.
const SETTLED_SHARE: f64 = EQUAL_SHARE * 2.0 / 3.0;

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
            Self::Swap { kind: Kind::ZramZstd, page_cluster } => format!("zstd, page-cluster {page_cluster}"),
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
            Self::Swap { kind: Kind::Zram | Kind::ZramZstd, .. } => Some(Rival::Zram),
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
    /// What the kernel needed besides, with all memory.
    pub(crate) besides_bytes: u64,
    /// A run that takes longer is hopeless.
    pub(crate) cut_off: Option<Duration>,
}

/// The limits under which kinds of swap leave as much memory to the program as Spillway does.
#[derive(Default)]
struct Limits {
    /// What Spillway's first side held.
    target_bytes: Option<u64>,
    settled: Vec<Settled>,
}

/// The limit that was found for a side.
struct Settled {
    under: Under,
    limit_bytes: u64,
    /// What the program held in the run that settled it. One run may hold as much by luck: a second at the
    /// same limit must bear it out, and then this is none.
    held_once_bytes: Option<u64>,
}

impl Bench<'_> {
    /// This share of its memory, or the least that Spillway accepts.
    pub(crate) fn share_bytes(&self, local_pct: u64) -> u64 {
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
            Configuration::Thread => add("--fault-mode", "thread".to_owned()),
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
        let (before, begun) = (Spent::now(), Instant::now());
        let run = || conditions.run(self.site, self.workload);
        let (run, Seen { memory, is_cut_off }) = watching(group, device_bytes, self.cut_off, run);
        let wall_s = begun.elapsed().as_secs_f64();
        let (swapped_in_pages, cpu_s) = Spent::now().since(before);
        let lost = |outcome, reason| Sample {
            outcome,
            value: 0.0,
            wall_s,
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
            Err(BenchError::Interrupted) => Err(BenchError::Interrupted),
            // Whatever it says then, that is why.
            Err(_) if is_cut_off => Ok(lost(Outcome::Killed, Some(format!("{CUT_OFF_AFTER} {wall_s:.0} s")))),
            Err(BenchError::Measured { reason, .. }) => Ok(lost(Outcome::Killed, Some(reason))),
            Err(BenchError::Wrong { reason, .. }) => Ok(lost(Outcome::Wrong, Some(reason))),
            Err(error) => Err(error),
        }
    }

    /// Runs it on swap, a turn: adds to the samples that were taken before.
    fn run_on_swap(
        &self,
        under: Under,
        local_bytes: u64,
        limits: &mut Limits,
        samples: &mut Vec<Sample>,
    ) -> Result<(), BenchError> {
        let Some(at) = limits.settled.iter().position(|settled| settled.under == under) else {
            samples.push(self.settle(under, local_bytes, limits, None)?);
            return Ok(());
        };
        let limit_bytes = limits.settled[at].limit_bytes;
        let sample = self.run(under, local_bytes, limit_bytes)?;
        let target_bytes = limits.target_bytes.unwrap_or(local_bytes);
        let held_bytes = limits.settled[at].held_once_bytes.take();
        let held_bytes = held_bytes.filter(|_| sample.outcome == Outcome::Ok);
        let correction = held_bytes.and_then(|first_bytes| {
            correction_bytes([first_bytes, sample.memory.anonymous_bytes], target_bytes)
        });
        match correction {
            None => samples.push(sample),
            // Luck: what was measured at that limit is of no use.
            Some(correction_bytes) => {
                limits.settled.remove(at);
                let limit_bytes = limit_bytes.saturating_add_signed(correction_bytes).max(LEAST_LOCAL_BYTES);
                let settling = self.settle(under, local_bytes, limits, Some(limit_bytes))?;
                let limit_bytes = limits.settled.last().map_or(limit_bytes, |settled| settled.limit_bytes);
                *samples = vec![settling, self.run(under, local_bytes, limit_bytes)?];
            }
        }
        Ok(())
    }

    /// Changes its limit until the program holds as much memory as under Spillway, and returns the last of
    /// these runs.
    fn settle(
        &self,
        under: Under,
        local_bytes: u64,
        limits: &mut Limits,
        again_from_bytes: Option<u64>,
    ) -> Result<Sample, BenchError> {
        let target_bytes = limits.target_bytes.unwrap_or(local_bytes);
        let begin = again_from_bytes.or(limits.settled.last().map(|settled| settled.limit_bytes));
        let (mut limit_bytes, most) = match begin {
            Some(limit_bytes) => (limit_bytes, LATER_ADJUSTMENTS),
            None => (target_bytes + self.besides_bytes + SLACK_BYTES, MOST_ADJUSTMENTS),
        };
        let (mut adjustments, mut deadly_bytes) = (0, 0);
        loop {
            let sample = self.run(under, local_bytes, limit_bytes)?;
            if sample.outcome == Outcome::Killed {
                deadly_bytes = limit_bytes.max(deadly_bytes);
            }
            match next_limit(&sample, limit_bytes, target_bytes) {
                // Half way to where it was killed, at least.
                Some(next_bytes) if adjustments < most => {
                    limit_bytes = next_bytes.max((limit_bytes + deadly_bytes) / 2);
                }
                _ => {
                    let is_first = again_from_bytes.is_none() && sample.outcome == Outcome::Ok;
                    let held_once_bytes = is_first.then_some(sample.memory.anonymous_bytes);
                    limits.settled.push(Settled { under, limit_bytes, held_once_bytes });
                    return Ok(sample);
                }
            }
            adjustments += 1;
        }
    }

    /// Every side once a turn. Swap holds as much as Spillway's first side.
    pub(crate) fn turns(
        &self,
        sides: &[Under],
        local_bytes: u64,
        repetitions: usize,
        ran: &mut dyn FnMut(),
    ) -> Result<Vec<(Under, Side)>, BenchError> {
        let side = |&under: &Under| (under, Side { setting: under.setting(), samples: Vec::new() });
        let mut taken: Vec<(Under, Side)> = sides.iter().map(side).collect();
        let mut limits = Limits::default();
        for _ in 0..repetitions {
            for (under, side) in &mut taken {
                if let Under::Swap { .. } = under {
                    self.run_on_swap(*under, local_bytes, &mut limits, &mut side.samples)?;
                } else {
                    let sample = self.run(*under, local_bytes, 0)?;
                    if limits.target_bytes.is_none() && sample.outcome == Outcome::Ok {
                        limits.target_bytes = Some(sample.memory.anonymous_bytes);
                    }
                    side.samples.push(sample);
                }
                ran();
            }
        }
        Ok(taken)
    }
}

/// How the reason begins of a run that took too long.
const CUT_OFF_AFTER: &str = "cut off after";

/// The limit to try next; none where this one will do, or no other would help.
fn next_limit(sample: &Sample, limit_bytes: u64, target_bytes: u64) -> Option<u64> {
    let difference = target_bytes as f64 - sample.memory.anonymous_bytes as f64;
    let is_hopeless = sample.reason.as_deref().is_some_and(|reason| reason.starts_with(CUT_OFF_AFTER));
    match sample.outcome {
        _ if is_hopeless => None,
        // More is wanted for it to live at all.
        Outcome::Killed => Some(limit_bytes + SLACK_BYTES),
        Outcome::Wrong => None,
        Outcome::Ok if difference.abs() <= SETTLED_SHARE * target_bytes as f64 => None,
        Outcome::Ok => Some(limit_bytes.saturating_add_signed(difference as i64).max(LEAST_LOCAL_BYTES)),
    }
}

/// By how much to change the limit under which two runs held this much; none where their mean is as much as
/// is wanted.
fn correction_bytes(held_bytes: [u64; 2], target_bytes: u64) -> Option<i64> {
    let mean_bytes = (held_bytes[0] + held_bytes[1]) as f64 / 2.0;
    let difference = target_bytes as f64 - mean_bytes;
    (difference.abs() > SETTLED_SHARE * target_bytes as f64).then_some(difference as i64)
}

/// The best of the sides of a rival: of those that end well the fastest, if there is one of those that hold
/// as much as Spillway's first side.
pub(crate) fn best_of(rival: Rival, sides: &[(Under, Side)], workload: &dyn Workload) -> Option<Side> {
    let of_rival = sides.iter().filter(|(under, _)| under.rival() == Some(rival)).map(|(_, side)| side);
    let held = |side: &Side| side.median(|sample| sample.memory.anonymous_bytes as f64);
    let ours = sides.iter().find(|(under, _)| under.rival().is_none()).map(|(_, side)| held(side));
    let is_equal = |side: &Side| ours.is_some_and(|ours| (held(side) - ours).abs() <= EQUAL_SHARE * ours);
    let score = |side: &Side| match side.outcome() {
        Outcome::Ok => (is_equal(side), workload.measure().normalised(1.0, side.value())),
        _ => (false, 0.0),
    };
    of_rival.max_by(|a, b| score(a).partial_cmp(&score(b)).unwrap_or(Ordering::Equal)).cloned()
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::side;
    use super::*;

    fn sample(outcome: Outcome, reason: Option<&str>) -> Sample {
        let sample = side("", &[(outcome, 1.0)]).samples.remove(0);
        Sample { reason: reason.map(str::to_owned), ..sample }
    }

    #[test]
    fn a_limit_moves_until_memory_is_equal_and_a_hopeless_run_is_not_repeated() {
        let ok = sample(Outcome::Ok, None);
        let held_bytes = ok.memory.anonymous_bytes;
        assert_eq!(next_limit(&ok, 1 << 30, held_bytes), None);
        assert_eq!(next_limit(&ok, 1 << 30, held_bytes + held_bytes / 100), None);
        assert_eq!(next_limit(&ok, 1 << 30, held_bytes + 50), Some((1 << 30) + 50));
        let killed = sample(Outcome::Killed, Some("signal: 9"));
        assert_eq!(next_limit(&killed, 1 << 30, held_bytes), Some((1 << 30) + SLACK_BYTES));
        let hopeless = sample(Outcome::Killed, Some("cut off after 20 s"));
        assert_eq!(next_limit(&hopeless, 1 << 30, held_bytes), None);
    }

    #[test]
    fn a_limit_that_one_run_bore_out_by_luck_is_corrected() {
        assert_eq!(correction_bytes([1000, 1005], 1000), None);
        assert_eq!(correction_bytes([1000, 900], 1000), Some(50));
        assert_eq!(correction_bytes([1000, 1300], 1000), Some(-150));
    }
}
