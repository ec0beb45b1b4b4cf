//! How much local memory a run would need for how much loss: an estimate out of what its pager counts.
//!
//! Of each fault that fetches a page it is known how many others of its process had left since the page did:
//! how long it was away, by that clock. Pages that stay away for as long are thought to be touched as often,
//! at random times, and to stay local for as long as the limit has pages, as in a queue that they enter when
//! they come: the model of FIFO under independent references (Gelenbe, "A unified approach to the evaluation
//! of a class of replacement algorithms", 1973). So there are known numbers of pages with known pauses, and
//! with more memory all stay the longer that all of them fit. It says nothing of sizes below the limit that
//! the run has. Faults on pages that were local still, but unmapped to leave soon, are thought to go as
//! fetches do; first touches stay.
//!
//! What faults cost is the run's own: the time that they took, as its pager counted it, by how long the pages
//! were away. Beside it stands what a pager cannot count, for each fault the same.

use serde::Serialize;
use spillway_snapshot::past::Past;
use spillway_snapshot::snapshot::{Faults, Return, Run};

/// Losses that are asked for.
pub const TARGETS: [f64; 3] = [0.05, 0.1, 0.2];
/// Fewer fetching faults say little.
const FEW_FAULTS: u64 = 1000;
/// No more of the time is thought to be saved.
const MOST_SAVED: f64 = 0.95;
/// What a fault costs a program beside what is counted of it, in microseconds: the trap up to where the pager
/// hears of it, and the way back. What a program gains by fewer faults is the more, and the rest of them a
/// larger share of its time. Of samples of random accesses (docs/research/pager-speed.md): 31% to 35% of 7 us
/// where the program serves itself, 40% of 12.6 us where a thread of the pager's does.
const UNCOUNTED_INLINE_US: f64 = 2.4;
const UNCOUNTED_THREAD_US: f64 = 5.0;
/// What is lost with a limit that was told has been up to so many times what was aimed at, where a program
/// did the same as before (docs/operate/limits.md): so much less is aimed at.
const MARGIN: f64 = 1.25;
/// A program that has come to hold so much more, by what it holds, is said to grow.
const GROWS_BY: f64 = 0.02;
/// Sizes that a curve has beyond the limit.
const SIZES: u64 = 64;

/// What a run did in some time.
#[derive(Clone, Debug)]
pub struct Observed {
    /// How long it was watched, in seconds.
    pub passed_s: f64,
    /// What all its faults took together in that time, in microseconds.
    pub lost_us: f64,
    /// Its fetching faults in that time, the nearest pages first.
    pub returns: Vec<Return>,
    /// What faults on pages that were local still took together, in microseconds: by their share of those
    /// that fetched nothing.
    pub still_local_us: f64,
    /// What a fault costs the program beside what is counted of it, in microseconds.
    pub uncounted_us: f64,
    /// Most of its memory that may be local.
    pub local_limit_bytes: u64,
    /// What it holds, local and far: with so much local nothing is far.
    pub whole_bytes: u64,
    /// How much of that has come in that time; 0 where it is not known.
    pub grown_bytes: u64,
    /// Processes that share the limit.
    pub processes: u64,
}

/// The least local memory for a loss.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Need {
    /// The time lost to paging, by the time that passes: 1 where one thread waits all the time.
    pub lost_share: f64,
    /// What is needed for at most that; none where more memory does not bring it there.
    pub local_bytes: Option<u64>,
}

/// The loss at a size of local memory.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// So much local memory.
    pub local_bytes: u64,
    /// The time lost to paging, by the time that passes.
    pub lost_share: f64,
}

/// What an estimate does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Caveat {
    /// It has fetched too little to go by.
    FewFaults,
    /// Processes share the limit, and each is counted by itself.
    SeveralProcesses,
    /// It loses less than is asked for already; whether less memory would do is not known.
    LessUnknown,
    /// It has come to hold more while it was watched.
    Grows,
}

impl Observed {
    /// What a run did since its start.
    pub fn since_start(run: &Run, uptime_s: f64) -> Self {
        Self {
            passed_s: uptime_s,
            lost_us: run.fault_latency.total_us,
            still_local_us: still_local_us(&run.returns, run.fault_latency.total_us, &run.faults),
            returns: run.returns.clone(),
            uncounted_us: if run.fault_mode == "inline" { UNCOUNTED_INLINE_US } else { UNCOUNTED_THREAD_US },
            local_limit_bytes: run.local_limit_bytes,
            whole_bytes: run.local_bytes + run.far_bytes,
            grown_bytes: 0,
            processes: run.processes.len() as u64 + run.processes_unlisted,
        }
    }

    /// What a run did between what it had counted before and a look at it; `whole_bytes` is the most that it
    /// held.
    pub fn since(before: &Past, run: &Run, uptime_s: f64, whole_bytes: u64) -> Self {
        let old = |within_bytes: u64| before.returns.iter().find(|old| old.within_bytes == within_bytes);
        let new = run.returns.iter().map(|now| match old(now.within_bytes) {
            Some(old) => Return {
                faults: now.faults.saturating_sub(old.faults),
                total_us: (now.total_us - old.total_us).max(0.0),
                ..*now
            },
            None => *now,
        });
        let returns: Vec<Return> = new.filter(|returned| returned.faults > 0).collect();
        let lost_us = (run.fault_latency.total_us - before.lost_us).max(0.0);
        let passed_s = (uptime_s - before.uptime_s).max(0.0);
        Self {
            passed_s,
            lost_us,
            still_local_us: still_local_us(&returns, lost_us, &run.faults.since(&before.faults)),
            returns,
            whole_bytes,
            grown_bytes: (run.local_bytes + run.far_bytes)
                .saturating_sub(before.held_bytes.unwrap_or(u64::MAX)),
            ..Self::since_start(run, passed_s)
        }
    }

    /// Faults that the estimate goes by.
    pub fn faults(&self) -> u64 {
        self.returns.iter().map(|returned| returned.faults).sum()
    }

    /// What one of them took, on average, in microseconds, as its pager counted it.
    pub fn fetch_us(&self) -> Option<f64> {
        let faults = self.faults();
        (faults > 0)
            .then(|| self.returns.iter().map(|returned| returned.total_us).sum::<f64>() / faults as f64)
    }

    /// What a fault cost the program, by what was counted of it.
    fn cost_by_counted(&self) -> f64 {
        let fetch_us = self.fetch_us().filter(|fetch_us| *fetch_us > 0.0);
        fetch_us.map_or(1.0, |fetch_us| 1.0 + self.uncounted_us / fetch_us)
    }

    /// The loss as it was.
    pub fn lost_share(&self) -> f64 {
        self.share_after(0.0)
    }

    /// The loss where faults that took so long would not have been. The time that passes is shorter then, by
    /// as much as each of the threads that waited would have waited less.
    fn share_after(&self, saved_us: f64) -> f64 {
        let passed_us = self.passed_s * 1e6;
        if passed_us <= 0.0 {
            return 0.0;
        }
        // The fewest that can have waited so long, with some time for their work.
        let threads = (self.lost_us / passed_us).floor() + 1.0;
        // No more than half of the time that is not lost goes with faults.
        let by_counted = passed_us * threads / self.lost_us.max(1.0);
        let by_counted = self.cost_by_counted().min(0.5 + 0.5 * by_counted);
        let saved_passed_us = (saved_us / threads * by_counted).min(MOST_SAVED * passed_us);
        (self.lost_us - saved_us).max(0.0) / (passed_us - saved_passed_us)
    }

    /// The loss at its limit, and at sizes beyond it up to all that it holds.
    pub fn curve(&self) -> Vec<Point> {
        let here = Point { local_bytes: self.local_limit_bytes, lost_share: self.lost_share() };
        let more_bytes = self.whole_bytes.saturating_sub(self.local_limit_bytes);
        let pauses = Pauses::of(self);
        if pauses.0.is_empty() || more_bytes == 0 {
            return vec![here];
        }
        let fetched_us: f64 = pauses.0.iter().map(|pause| pause.total_us).sum();
        let with_others = if fetched_us > 0.0 { 1.0 + self.still_local_us / fetched_us } else { 1.0 };
        let beyond = (1..=SIZES).map(|size| {
            let local_bytes =
                self.local_limit_bytes + (more_bytes as f64 * size as f64 / SIZES as f64) as u64;
            let saved_us = match size {
                SIZES => fetched_us,
                _ => pauses.saved_us(self.local_limit_bytes as f64, local_bytes as f64),
            };
            Point { local_bytes, lost_share: self.share_after(saved_us * with_others) }
        });
        std::iter::once(here).chain(beyond).collect()
    }

    /// The least that does for each of the losses. What it has does where it loses no more; of more memory it
    /// is only estimated what it would lose, so less is aimed at, as far as there is anything to be had.
    pub fn needs(&self) -> Vec<Need> {
        let curve = self.curve();
        let does = |point: &&Point, lost_share: f64| point.lost_share <= lost_share;
        let least = |lost_share: f64| {
            let found = curve
                .first()
                .filter(|here| does(here, lost_share))
                .or_else(|| curve.iter().find(|point| does(point, lost_share / MARGIN)))
                .or_else(|| curve.last().filter(|all| does(all, lost_share)));
            Need { lost_share, local_bytes: found.map(|point| point.local_bytes) }
        };
        TARGETS.into_iter().map(least).collect()
    }

    /// What is not known.
    pub fn caveats(&self) -> Vec<Caveat> {
        let is_low = self.lost_share() <= TARGETS[TARGETS.len() - 1];
        let grows = self.grown_bytes as f64 > GROWS_BY * self.whole_bytes as f64;
        [
            (self.faults() < FEW_FAULTS, Caveat::FewFaults),
            (self.processes > 1, Caveat::SeveralProcesses),
            (is_low, Caveat::LessUnknown),
            (grows, Caveat::Grows),
        ]
        .into_iter()
        .filter_map(|(is_so, caveat)| is_so.then_some(caveat))
        .collect()
    }
}

/// Pages that are away for as long, and those among them that are local.
struct Pause {
    /// How much leaves while one of them is away, in bytes.
    away_bytes: f64,
    /// How much memory they are.
    bytes: f64,
    /// What their faults took, in microseconds.
    total_us: f64,
}

/// What a run fetches again and again, by how long it pauses.
struct Pauses(Vec<Pause>);

impl Pauses {
    /// A page is fetched once in the time that it stays local and then away: so many faults are of so many
    /// pages.
    fn of(observed: &Observed) -> Self {
        let faults = observed.faults() as f64;
        let stay_bytes = observed.local_limit_bytes as f64;
        let each = observed.returns.iter().filter(|returned| returned.faults > 0).map(|returned| {
            let away_bytes = returned.within_bytes as f64;
            let bytes = returned.faults as f64 / faults * (stay_bytes + away_bytes);
            Pause { away_bytes, bytes, total_us: returned.total_us }
        });
        Self(each.collect())
    }

    /// How much is local where pages stay for so long.
    fn local_bytes(&self, stay_bytes: f64) -> f64 {
        self.0.iter().map(|pause| pause.bytes * stay_bytes / (stay_bytes + pause.away_bytes)).sum()
    }

    /// What faults take less, by time, with `more` local memory in place of `limit`.
    fn saved_us(&self, limit: f64, more: f64) -> f64 {
        // What is local and never fetched again stays so.
        let others = limit - self.local_bytes(limit);
        let wanted = more - others;
        let (mut short, mut long) = (limit, limit * 1e6);
        for _ in 0..80 {
            let middle = (short * long).sqrt();
            if self.local_bytes(middle) < wanted { short = middle } else { long = middle }
        }
        let spared = |pause: &Pause| 1.0 - (limit + pause.away_bytes) / (short + pause.away_bytes);
        self.0.iter().map(|pause| pause.total_us * spared(pause)).sum()
    }
}

/// What faults on pages that were local still took, of all that fetched nothing.
fn still_local_us(returns: &[Return], lost_us: f64, faults: &Faults) -> f64 {
    let fetched_us: f64 = returns.iter().map(|returned| returned.total_us).sum();
    let still_local = faults.inactive + faults.writeback + faults.other;
    let others = still_local + faults.first_touch + faults.refused;
    if others == 0 { 0.0 } else { (lost_us - fetched_us).max(0.0) * still_local as f64 / others as f64 }
}

impl Caveat {
    /// In a sentence, with what can be done.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::FewFaults => "It has fetched too few pages to go by: look again when it has run longer.",
            Self::SeveralProcesses => {
                "Its processes share the limit, and each was counted by itself: it may take more."
            }
            Self::LessUnknown => {
                "Whether less than it has would do is not known: 'spillway run --record FILE' with less, and \
                 'spillway lab replay FILE', tell."
            }
            Self::Grows => {
                "It grows: this is of what it has now. With more memory it comes further, and will need more."
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Of 10 s one thread waited for 5: for pages that 16, 32 and 64 MiB more would have kept, and for one
    /// second for pages that were new.
    pub(crate) fn observed() -> Observed {
        let returned =
            |mib: u64, faults, s: f64| Return { within_bytes: mib * MIB, faults, total_us: s * 1e6 };
        Observed {
            passed_s: 10.0,
            lost_us: 5e6,
            still_local_us: 0.0,
            returns: vec![returned(16, 1000, 1.0), returned(32, 2000, 2.0), returned(64, 500, 1.0)],
            // Half as much again as is counted of a fault.
            uncounted_us: 0.5 * 4e6 / 3500.0,
            local_limit_bytes: 64 * MIB,
            whole_bytes: 120 * MIB,
            grown_bytes: 2 * MIB,
            processes: 1,
        }
    }

    /// Pages that are touched at random, all as often: half of them are local, of 128 MiB.
    fn at_random() -> Observed {
        let returns = vec![Return { within_bytes: 64 * MIB, faults: 9_000, total_us: 3.6e6 }];
        Observed { lost_us: 3.6e6, returns, uncounted_us: 200.0, whole_bytes: 128 * MIB, ..observed() }
    }

    #[test]
    fn of_pages_that_are_touched_at_random_as_many_are_fetched_as_are_far() {
        let observed = at_random();
        let pauses = Pauses::of(&observed);
        let mib = MIB as f64;
        assert!((pauses.0[0].bytes - 128.0 * mib).abs() < 1.0, "as many as there are");
        for (local_mib, far_share) in [(64.0, 1.0), (80.0, 0.75), (96.0, 0.5), (127.0, 1.0 / 64.0)] {
            let saved_us = pauses.saved_us(64.0 * mib, local_mib * mib);
            assert!((saved_us - 3.6e6 * (1.0 - far_share)).abs() < 1e3, "{local_mib}: {saved_us}");
        }
        let curve = observed.curve();
        assert_eq!((curve[0].local_bytes, curve.len()), (64 * MIB, 1 + SIZES as usize));
        assert_eq!(curve.last(), Some(&Point { local_bytes: 128 * MIB, lost_share: 0.0 }));
        // At 96 MiB 1.8 s are lost less, and 2.7 s pass less.
        let middle = curve[SIZES as usize / 2];
        assert!(middle.local_bytes == 96 * MIB && (middle.lost_share - 1.8 / 7.3).abs() < 1e-3, "{middle:?}");
    }

    #[test]
    fn the_advice_follows_from_what_faults_cost_the_run_itself() {
        // The same faults, a tenth as dear, in a time that is shorter by what they took less.
        let dear = at_random();
        let mut cheap = at_random();
        cheap.lost_us /= 10.0;
        cheap.passed_s -= 3.6 * 0.9;
        cheap.returns[0].total_us /= 10.0;
        assert_eq!((dear.fetch_us(), cheap.fetch_us()), (Some(400.0), Some(40.0)));
        let need = |observed: &Observed| observed.needs()[1].local_bytes.unwrap();
        assert!(need(&cheap) < need(&dear), "{} {}", need(&cheap), need(&dear));
        // What is not counted weighs the more, the less is: half as much again, and six times as much, which
        // is more than there is to save.
        assert!((dear.cost_by_counted() - 1.5).abs() < 1e-9 && (cheap.cost_by_counted() - 6.0).abs() < 1e-9);
        // By hand: at 96 MiB half of the faults are left.
        let in_the_middle = |observed: &Observed| observed.curve()[SIZES as usize / 2].lost_share;
        let with = |uncounted_us: f64| in_the_middle(&Observed { uncounted_us, ..dear.clone() });
        for (uncounted_us, passed_s) in [(0.0, 10.0 - 1.8), (100.0, 10.0 - 1.8 * 1.25), (200.0, 7.3)] {
            assert!((with(uncounted_us) - 1.8 / passed_s).abs() < 1e-3, "{uncounted_us}");
        }
        assert_eq!(Observed { returns: Vec::new(), ..dear }.cost_by_counted(), 1.0);
    }

    #[test]
    fn less_is_aimed_at_than_is_asked_for_but_what_a_run_has_is_no_estimate() {
        let observed = at_random();
        let curve = observed.curve();
        for need in observed.needs() {
            let at = curve.iter().position(|point| Some(point.local_bytes) == need.local_bytes).unwrap();
            assert!(curve[at].lost_share <= need.lost_share / MARGIN, "{need:?}");
            assert!(curve[at - 1].lost_share > need.lost_share / MARGIN, "{need:?}");
        }
        // It loses 9.5%: that is measured, and does for 10%.
        let now = Observed { passed_s: 3.6 / 0.095, ..observed.clone() };
        assert_eq!(now.needs()[1].local_bytes, Some(now.local_limit_bytes));
        // With all memory 9.5% is left, and there is no more to be had.
        let most = Observed { lost_us: 3.6e6 + 0.095 * 4.6e6, ..observed };
        let (all, needs) = (most.curve().pop().unwrap(), most.needs());
        assert!((0.08..0.1).contains(&all.lost_share), "{all:?}");
        assert_eq!((needs[0].local_bytes, needs[1].local_bytes), (None, Some(all.local_bytes)));
    }

    #[test]
    fn pages_with_short_pauses_are_spared_before_those_with_long_ones() {
        let curve = observed().curve();
        for pair in curve.windows(2) {
            assert!(pair[1].lost_share <= pair[0].lost_share, "{curve:?}");
        }
        assert!(curve[SIZES as usize / 2].lost_share < 0.9 * curve[0].lost_share, "{curve:?}");
        let pauses = Pauses::of(&observed());
        let (limit, more) = (64.0 * MIB as f64, 90.0 * MIB as f64);
        let saved = pauses.saved_us(limit, more);
        assert!(saved > 0.0 && saved < 4e6, "{saved}");
        let one = |at: usize| Pauses(vec![Pauses::of(&observed()).0.swap_remove(at)]);
        let share = |pauses: &Pauses| pauses.saved_us(limit, more) / pauses.0[0].total_us;
        assert!(share(&one(0)) > share(&one(2)));
    }

    #[test]
    fn faults_on_what_was_local_still_go_as_fetches_do_and_first_touches_stay() {
        let faults = Faults { first_touch: 300, inactive: 90, other: 10, fetch: 5, ..Faults::default() };
        let still_local_us = still_local_us(&observed().returns, 5e6, &faults);
        assert!((still_local_us - 0.25e6).abs() < 1.0, "a quarter of the second that is no fetch's");
        let last = Observed { still_local_us, ..observed() }.curve().pop().unwrap();
        assert!((last.lost_share - 0.75 / (10.0 - 4.25 * 1.5)).abs() < 1e-6, "{last:?}");
        assert_eq!(super::still_local_us(&[], 5e6, &Faults::default()), 0.0);
    }

    #[test]
    fn the_least_that_does_is_named_and_what_cannot_be_had_is_not() {
        let mut observed = observed();
        let needs =
            |observed: &Observed| observed.needs().iter().map(|need| need.local_bytes).collect::<Vec<_>>();
        // A second is lost to new pages whatever there is local: a quarter of the time that is left.
        assert_eq!(needs(&observed), [None, None, None]);
        observed.lost_us = 4.05e6;
        let [five, ten, twenty] = needs(&observed)[..] else { panic!("three losses") };
        assert!(five >= ten && ten > twenty && twenty > Some(64 * MIB) && five <= Some(120 * MIB));
        assert_eq!(observed.caveats(), []);
        let idle = Observed { lost_us: 1e5, returns: Vec::new(), processes: 2, ..observed };
        assert_eq!(needs(&idle), [Some(64 * MIB); 3]);
        assert_eq!(idle.caveats(), [Caveat::FewFaults, Caveat::SeveralProcesses, Caveat::LessUnknown]);
        let growing = Observed { grown_bytes: 3 * MIB, ..self::observed() };
        assert_eq!(growing.caveats(), [Caveat::Grows]);
    }

    #[test]
    fn threads_that_wait_at_once_are_not_each_thought_to_save_all_the_time() {
        let mut many = observed();
        // Four threads, each of which waits half of the time.
        many.lost_us = 20e6;
        many.returns.iter_mut().for_each(|returned| returned.total_us *= 4.0);
        let curve = many.curve();
        assert!((curve[0].lost_share - 2.0).abs() < 1e-9);
        for pair in curve.windows(2) {
            assert!(pair[1].lost_share <= pair[0].lost_share, "{curve:?}");
        }
        assert!(curve.last().is_some_and(|last| last.lost_share > 0.3), "{curve:?}");
        let nothing = Observed { passed_s: 0.0, ..many };
        assert!(nothing.curve().iter().all(|point| point.lost_share == 0.0));
    }

    #[test]
    fn what_came_between_two_looks_alone_counts() {
        let (first, mut last) = (observed(), observed());
        last.returns[1].faults += 7;
        last.returns[1].total_us += 3e5;
        let crate_run = |observed: &Observed| {
            let snapshot = crate::watch::metrics::tests::whole_snapshot();
            let spillway_snapshot::snapshot::Body::Run { mut run } = snapshot.body else { panic!("no run") };
            run.returns = observed.returns.clone();
            *run
        };
        let before = Past::of(&crate_run(&first), 5.0);
        let since = Observed::since(&before, &crate_run(&last), 7.0, 99 * MIB);
        let [one] = &since.returns[..] else { panic!("{:?}", since.returns) };
        assert_eq!((one.within_bytes, one.faults), (32 * MIB, 7));
        assert!((one.total_us - 3e5).abs() < 1.0);
        assert_eq!((since.whole_bytes, since.passed_s, since.grown_bytes), (99 * MIB, 2.0, 0));
        let held_bytes = before.held_bytes.map(|held_bytes| held_bytes - MIB);
        let since = Observed::since(&Past { held_bytes, ..before }, &crate_run(&last), 7.0, 99 * MIB);
        assert_eq!(since.grown_bytes, MIB);
    }
}
