//! The same chance for all: each policy's settings are searched on the training set with the same budget.
//!
//! A trial multiplies each number among a policy's settings by 1, or by a factor between a quarter and four
//! that is drawn; the first trial leaves all as they are. The trial with the least geometric mean of run
//! times wins, and its factors are kept ([`Tuned::shipped`]). What is a share stays one.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use spillway_policy::registry;

use super::cells::{Cell, training};
use super::jobs::{Jobs, geometric_mean, time_s};
use crate::run::{RunError, RunSpec, platform};

/// Factors that a trial draws from.
const FACTORS: [f64; 6] = [0.25, 0.5, 1.0, 1.0, 2.0, 4.0];

/// The least that a trial must win by over the settings as they are: less is chance.
const LEAST_GAIN: f64 = 0.002;

/// By what the settings of each policy are multiplied.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tuned(BTreeMap<String, BTreeMap<String, f64>>);

impl Tuned {
    /// What the last search found, as it is brought along.
    ///
    /// # Errors
    /// The file that is brought along is broken.
    pub fn shipped() -> Result<Self, serde_json::Error> {
        serde_json::from_str(include_str!("tuned.json"))
    }

    /// A program of a cell under a policy, with that policy's settings.
    ///
    /// # Errors
    /// There is no such policy or platform.
    pub fn apply(&self, spec: &RunSpec, policy: &str) -> Result<RunSpec, RunError> {
        let none = BTreeMap::new();
        scaled(spec, policy, self.0.get(policy).unwrap_or(&none))
    }
}

fn scaled(spec: &RunSpec, policy: &str, factors: &BTreeMap<String, f64>) -> Result<RunSpec, RunError> {
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

/// A trial of a policy, and how it came out.
#[derive(Clone, Debug, Serialize)]
pub struct Searched {
    /// The policy whose settings were searched.
    pub policy: String,
    /// Its geometric mean of run times with the settings as they are, in seconds.
    pub before_s: f64,
    /// The same with the best that were found.
    pub after_s: f64,
    /// The factors that were found, by setting.
    pub factors: BTreeMap<String, f64>,
}

/// What was drawn for a trial.
fn draw(policy: &str, settings: &Map<String, Value>, trial: u64) -> BTreeMap<String, f64> {
    let mut random = policy.bytes().fold(trial.wrapping_mul(0x9E37_79B9_7F4A_7C15), |state, byte| {
        (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
    });
    let mut next = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        FACTORS[(random >> 33) as usize % FACTORS.len()]
    };
    let numbers = settings.iter().filter(|(_, value)| value.is_number());
    let drawn: Vec<(String, f64)> = numbers.map(|(name, _)| (name.clone(), next())).collect();
    drawn.into_iter().filter(|(_, factor)| trial > 0 && *factor != 1.0).collect()
}

/// Searches the settings of these policies, with so many trials each. Tells `ended` each time that a run has
/// ended.
///
/// # Errors
/// A run with the settings as they are failed.
pub fn tune(
    policies: &[&str],
    trials: u64,
    threads: usize,
    ended: &(dyn Fn() + Sync),
) -> Result<(Vec<Searched>, Tuned), RunError> {
    let cells = training();
    let mut searched = Vec::new();
    for &policy in policies {
        searched.push(search(policy, &cells, trials, threads, ended)?);
    }
    let kept = searched.iter().filter(|one| !one.factors.is_empty());
    let tuned = Tuned(kept.map(|one| (one.policy.clone(), one.factors.clone())).collect());
    Ok((searched, tuned))
}

fn search(
    policy: &str,
    cells: &[Cell],
    trials: u64,
    threads: usize,
    ended: &(dyn Fn() + Sync),
) -> Result<Searched, RunError> {
    let settings = registry::find(policy)?.settings(1.0)?;
    let drawn: Vec<_> = (0..trials.max(1)).map(|trial| draw(policy, &settings, trial)).collect();
    let jobs: Vec<_> =
        drawn.iter().flat_map(|factors| cells.iter().map(move |cell| (factors, cell))).collect();
    let run = |(factors, cell): &(&BTreeMap<String, f64>, &Cell)| {
        let programs =
            cell.programs.iter().map(|spec| scaled(spec, policy, factors)).collect::<Result<Vec<_>, _>>();
        programs.and_then(|programs| time_s(&programs))
    };
    let mut times = Jobs { threads, ended }.all(&jobs, run);
    // What a trial asks for may make no sense; as they are, settings must.
    let later = times.split_off(cells.len());
    let before = times.into_iter().collect::<Result<Vec<f64>, RunError>>()?;
    let before_s = geometric_mean(before);
    let mut best =
        Searched { policy: policy.to_owned(), before_s, after_s: before_s, factors: BTreeMap::new() };
    let mut later = later.into_iter();
    for factors in &drawn[1..] {
        let times: Result<Vec<f64>, RunError> = later.by_ref().take(cells.len()).collect();
        let Ok(mean_s) = times.map(geometric_mean) else { continue };
        if mean_s < best.after_s * (1.0 - LEAST_GAIN) {
            (best.after_s, best.factors) = (mean_s, factors.clone());
        }
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::{OURS, RIVALS};

    #[test]
    fn the_first_trial_leaves_settings_as_they_are_and_others_are_drawn_the_same_each_time() {
        let settings = registry::find("hotbox").unwrap().settings(1.0).unwrap();
        assert!(draw("hotbox", &settings, 0).is_empty());
        let drawn = draw("hotbox", &settings, 1);
        assert!(!drawn.is_empty() && drawn == draw("hotbox", &settings, 1));
        assert_ne!(drawn, draw("hotbox", &settings, 2));
        assert!(!drawn.contains_key("throttle"), "no number");
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
