//! The same chance for all: each policy's settings are searched on the training set with the same budget.
//!
//! A trial multiplies numbers among a policy's settings by factors between a quarter and four that are drawn,
//! each second one only some of them. Trials begin on small working sets, which take a fraction of the time;
//! those that are best there go on to larger ones, and the settings as they are always do (successive
//! halving). What is first on the training set as it is wins by the geometric mean of run times, and the next
//! round draws around it. What was found is kept ([`Tuned::shipped`]). What is a share stays one.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use spillway_policy::registry;

use super::OURS;
use super::cells::{Cell, TRAINING_BYTES, training_of};
use super::doings::Doings;
use super::jobs::{Jobs, geometric_mean};
use crate::run::{RunError, RunSpec, platform};

/// By what a trial multiplies a setting.
const FACTORS: [f64; 6] = [0.25, 0.5, 1.0, 1.0, 2.0, 4.0];
/// The most and the least that all rounds together may multiply one by.
const FARTHEST: f64 = 16.0;
/// Settings that a trial changes which changes but some, on average.
const SOME: u64 = 2;

/// The least that a trial must win by over the settings as they are: less is chance.
const LEAST_GAIN: f64 = 0.002;

/// Which part of the training set's working sets the trials of a rung have, the last ones all of it.
const RUNGS: [u64; 3] = [3, 2, 1];
/// One trial in so many goes on to the next rung.
const ONE_IN: u64 = 4;

/// By what the settings of each policy are multiplied.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tuned(BTreeMap<String, Factors>);

type Factors = BTreeMap<String, f64>;

impl Tuned {
    /// What the last search found, as it is brought along.
    ///
    /// # Errors
    /// The file that is brought along is broken.
    pub fn shipped() -> Result<Self, serde_json::Error> {
        serde_json::from_str(include_str!("tuned.json"))
    }

    /// What these searches found.
    #[must_use]
    pub fn of(searched: &[Searched]) -> Self {
        let kept = searched.iter().filter(|one| !one.factors.is_empty());
        Self(kept.map(|one| (one.policy.clone(), one.factors.clone())).collect())
    }

    /// A program of a cell under a policy, with that policy's settings.
    ///
    /// # Errors
    /// There is no such policy or platform.
    pub fn apply(&self, spec: &RunSpec, policy: &str) -> Result<RunSpec, RunError> {
        let none = BTreeMap::new();
        scaled(spec, policy, self.0.get(policy).unwrap_or(&none))
    }

    /// Whether all but our own policy have the same settings there.
    #[must_use]
    pub fn rivals_are_as_in(&self, other: &Self) -> bool {
        let rivals = |tuned: &Self| {
            let mut factors = tuned.0.clone();
            factors.remove(OURS);
            factors
        };
        rivals(self) == rivals(other)
    }
}

fn scaled(spec: &RunSpec, policy: &str, factors: &Factors) -> Result<RunSpec, RunError> {
    let mut spec = RunSpec { policy: policy.to_owned(), ..spec.clone() };
    let (_, size_factor) = platform(&spec, None)?;
    let settings = registry::find(policy)?.settings(size_factor)?;
    let changed = factors.iter().filter_map(|(name, factor)| {
        let value = settings.get(name)?;
        Some((name.clone(), times(name, value, *factor)?))
    });
    spec.policy_settings = changed.collect();
    Ok(spec)
}

/// A setting, so many times; none where it is no number.
fn times(name: &str, value: &Value, factor: f64) -> Option<Value> {
    let most = if name.ends_with("_share") || name.ends_with("_ratio") { 1.0 } else { f64::MAX };
    let number = (value.as_f64()? * factor).min(most);
    Some(if value.is_u64() { Value::from(number.round().max(1.0) as u64) } else { number.into() })
}

/// How much is searched for each policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// Trials of a round, one of them with what was best before it.
    pub trials: u64,
    /// Rounds, each around what was best in the one before.
    pub rounds: u64,
}

impl Budget {
    /// Trials that a rung of a round has.
    fn field(self, rung: usize) -> usize {
        self.trials.div_ceil(ONE_IN.pow(rung as u32)).max(2) as usize
    }

    /// How much work the search of a policy is, in sixths of a run of the training set's working sets.
    #[must_use]
    pub fn work(self) -> u64 {
        let cells = training_of(TRAINING_BYTES).len() as u64;
        let rungs = (0..RUNGS.len()).map(|rung| self.field(rung) as u64 * work_of(rung));
        cells * self.rounds * rungs.sum::<u64>()
    }
}

/// A run on a rung, in sixths of one of the training set's working sets.
fn work_of(rung: usize) -> u64 {
    6 / RUNGS[rung]
}

/// The search of a policy, and how it came out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Searched {
    /// The policy whose settings were searched.
    pub policy: String,
    /// Its settings as they are, at the size of the real platform.
    pub settings: Map<String, Value>,
    /// Its geometric mean of run times with the settings as they are, in seconds.
    pub before_s: f64,
    /// The same with the best that were found.
    pub after_s: f64,
    /// The factors that were found, by setting.
    pub factors: Factors,
}

/// Numbers that are the same for the same trial of the same policy.
struct Lots(u64);

impl Lots {
    fn of(policy: &str, round: u64, trial: u64) -> Self {
        let first = (round << 32 | trial).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mix = |state: u64, byte| (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
        Self(policy.bytes().fold(first, mix))
    }

    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end.max(1)
    }
}

/// What is drawn for a trial, around `best`; the first of a round is that.
fn draw(settings: &Map<String, Value>, best: &Factors, lots: &mut Lots, trial: u64) -> Factors {
    let numbers: Vec<&String> =
        settings.iter().filter(|(_, value)| value.is_number()).map(|(name, _)| name).collect();
    let mut drawn = best.clone();
    if trial == 0 {
        return drawn;
    }
    let changes_all = trial.is_multiple_of(2);
    let always = lots.below(numbers.len() as u64) as usize;
    for (at, name) in numbers.iter().enumerate() {
        let factor = FACTORS[lots.below(FACTORS.len() as u64) as usize];
        let is_some = at == always || lots.below(numbers.len() as u64) < SOME;
        if changes_all || is_some {
            let times = drawn.get(*name).unwrap_or(&1.0) * factor;
            drawn.insert((*name).clone(), times.clamp(1.0 / FARTHEST, FARTHEST));
        }
    }
    drawn.retain(|_, factor| *factor != 1.0);
    drawn
}

/// Searches the settings of a policy. Tells `ended` of work that is done ([`Budget::work`]).
///
/// # Errors
/// A run with the settings as they are failed.
pub fn search(
    policy: &str,
    budget: Budget,
    threads: usize,
    ended: &(dyn Fn(u64) + Sync),
) -> Result<Searched, RunError> {
    let settings = registry::find(policy)?.settings(1.0)?;
    let mut searched = Searched {
        policy: policy.to_owned(),
        before_s: f64::NAN,
        after_s: f64::NAN,
        factors: BTreeMap::new(),
        settings,
    };
    for round in 0..budget.rounds.max(1) {
        let draw = |trial| {
            let mut lots = Lots::of(policy, round, trial);
            draw(&searched.settings, &searched.factors, &mut lots, trial)
        };
        let mut field: Vec<Factors> = Vec::new();
        for drawn in (0..budget.trials.max(2)).map(draw) {
            // A trial that was drawn twice says nothing new.
            if !field.contains(&drawn) {
                field.push(drawn);
            }
        }
        let mut means = Vec::new();
        for (rung, part) in RUNGS.into_iter().enumerate() {
            let places = budget.field(rung);
            field.truncate(places);
            let one_ended = || ended(work_of(rung));
            let jobs = Jobs { threads, ended: &one_ended };
            let cells = training_of(TRAINING_BYTES / part);
            means = means_s(policy, &cells, &field, &jobs)?;
            ended((places - field.len()) as u64 * cells.len() as u64 * work_of(rung));
            if rung + 1 < RUNGS.len() {
                field = in_order(&field, &means);
            }
        }
        searched.note(&field, &means);
    }
    Ok(searched)
}

/// What was best before stays first; the others follow, the best of them first, and those that failed last.
fn in_order(field: &[Factors], means: &[Option<f64>]) -> Vec<Factors> {
    let mut others: Vec<usize> = (1..field.len()).collect();
    others.sort_by(|a, b| means[*a].unwrap_or(f64::MAX).total_cmp(&means[*b].unwrap_or(f64::MAX)));
    [0].into_iter().chain(others).map(|at| field[at].clone()).collect()
}

/// The geometric mean of run times of each trial; none where its settings make no sense. Those of the first
/// must.
fn means_s(
    policy: &str,
    cells: &[Cell],
    field: &[Factors],
    jobs: &Jobs<'_>,
) -> Result<Vec<Option<f64>>, RunError> {
    let runs: Vec<(&Factors, &Cell)> =
        field.iter().flat_map(|factors| cells.iter().map(move |cell| (factors, cell))).collect();
    let run = |(factors, cell): &(&Factors, &Cell)| {
        let programs = cell.programs.iter().map(|spec| scaled(spec, policy, factors));
        Ok(Doings::of(&programs.collect::<Result<Vec<_>, _>>()?)?.run_s)
    };
    let mut times = jobs.all(&runs, run).into_iter();
    let mut mean = || {
        let of_trial: Vec<Result<f64, RunError>> = times.by_ref().take(cells.len()).collect();
        of_trial.into_iter().collect::<Result<Vec<f64>, RunError>>().map(geometric_mean)
    };
    let mut means = vec![Some(mean()?)];
    means.extend((1..field.len()).map(|_| mean().ok()));
    Ok(means)
}

impl Searched {
    /// The last rung of a round is over.
    fn note(&mut self, field: &[Factors], means: &[Option<f64>]) {
        let Some(Some(best_s)) = means.first() else { return };
        if self.before_s.is_nan() {
            (self.before_s, self.after_s) = (*best_s, *best_s);
        }
        for (factors, mean_s) in field.iter().zip(means) {
            if let Some(mean_s) = mean_s.filter(|mean_s| *mean_s < self.after_s * (1.0 - LEAST_GAIN)) {
                (self.after_s, self.factors) = (mean_s, factors.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::judge::RIVALS;

    fn drawn(policy: &str, round: u64, trial: u64, best: &Factors) -> Factors {
        let settings = registry::find(policy).unwrap().settings(1.0).unwrap();
        draw(&settings, best, &mut Lots::of(policy, round, trial), trial)
    }

    #[test]
    fn the_first_trial_is_what_was_best_and_others_are_drawn_around_it_the_same_each_time() {
        let none = Factors::new();
        assert!(drawn("hotbox", 0, 0, &none).is_empty());
        let all: Vec<Factors> = (1..9).map(|trial| drawn("hotbox", 0, trial, &none)).collect();
        assert!(all.iter().all(|one| !one.contains_key("throttle")), "no number");
        let again: Vec<Factors> = (1..9).map(|trial| drawn("hotbox", 0, trial, &none)).collect();
        assert_eq!(all, again);
        let other_round: Vec<Factors> = (1..9).map(|trial| drawn("hotbox", 1, trial, &none)).collect();
        assert_ne!(all, other_round);
        let best = Factors::from([("window_us".to_owned(), 4.0)]);
        assert_eq!(drawn("hotbox", 1, 0, &best), best);
        let around: Vec<Factors> = (1..9).map(|trial| drawn("hotbox", 1, trial, &best)).collect();
        assert!(around.iter().any(|one| one.get("window_us") == Some(&4.0)), "{around:?}");
        let far = Factors::from([("window_us".to_owned(), FARTHEST)]);
        let within = |one: &Factors| one.values().all(|factor| (1.0 / FARTHEST..=FARTHEST).contains(factor));
        assert!((1..40).all(|trial| within(&drawn("hotbox", 1, trial, &far))));
    }

    #[test]
    fn those_that_are_best_go_on_and_what_was_best_before_always_does() {
        let trial = |factor: f64| Factors::from([("window_us".to_owned(), factor)]);
        let field = [trial(1.0), trial(2.0), trial(3.0), trial(4.0)];
        let order = in_order(&field, &[Some(9.0), Some(3.0), None, Some(2.0)]);
        assert_eq!(order, [trial(1.0), trial(4.0), trial(2.0), trial(3.0)]);
        let budget = Budget { trials: 24, rounds: 2 };
        assert_eq!([0, 1, 2].map(|rung| budget.field(rung)), [24, 6, 2]);
        let cells = training_of(TRAINING_BYTES).len() as u64;
        assert_eq!(budget.work(), 2 * cells * (24 * 2 + 6 * 3 + 2 * 6));
    }

    /// A policy without settings: there is nothing to draw, and all work is told all the same.
    #[test]
    fn a_search_tells_of_all_its_work_and_finds_nothing_where_there_is_nothing_to_set() {
        let (told, budget) = (AtomicU64::new(0), Budget { trials: 3, rounds: 1 });
        let ended = |work| _ = told.fetch_add(work, Ordering::Relaxed);
        let found = search("first-touch", budget, 2, &ended).map_err(|error| error.to_string()).unwrap();
        assert_eq!((told.load(Ordering::Relaxed), found.factors.len()), (budget.work(), 0));
        assert!(found.before_s > 0.0 && found.before_s == found.after_s);
    }

    #[test]
    fn a_trial_wins_by_more_than_chance_and_the_next_round_is_held_against_it() {
        let trial = |factor: f64| Factors::from([("window_us".to_owned(), factor)]);
        let mut searched = Searched {
            policy: "hotbox".into(),
            settings: Map::new(),
            before_s: f64::NAN,
            after_s: f64::NAN,
            factors: Factors::new(),
        };
        searched.note(&[Factors::new(), trial(2.0)], &[Some(1.0), Some(0.999)]);
        assert_eq!((searched.after_s, searched.factors.len()), (1.0, 0));
        searched.note(&[Factors::new(), trial(2.0)], &[Some(1.0), Some(0.9)]);
        searched.note(&[trial(2.0), trial(4.0)], &[Some(0.9), None]);
        assert_eq!((searched.before_s, searched.after_s, searched.factors), (1.0, 0.9, trial(2.0)));
    }

    #[test]
    fn settings_are_multiplied_at_the_size_of_the_run_and_shares_stay_shares() {
        let spec = RunSpec { workload: "tpcc".into(), ..RunSpec::default() };
        let factors = BTreeMap::from([("inactive_share".to_owned(), 8.0), ("window_us".to_owned(), 2.0)]);
        let (_, size_factor) = platform(&spec, None).unwrap();
        let given = scaled(&spec, "hotbox", &factors).unwrap().policy_settings;
        assert_eq!(given["inactive_share"], 1.0);
        assert_eq!(given["window_us"].as_f64().unwrap(), 2.0 * (1e6 * size_factor).round());
        assert_eq!(given.len(), 2);
    }

    #[test]
    fn what_is_brought_along_is_of_policies_and_settings_that_there_are() {
        for (policy, factors) in Tuned::shipped().unwrap().0 {
            assert!(policy == OURS || RIVALS.contains(&policy.as_str()), "{policy}");
            let settings = registry::find(&policy).unwrap().settings(1.0).unwrap();
            assert!(factors.keys().all(|name| settings[name].is_number()), "{policy}: {factors:?}");
        }
    }
}
