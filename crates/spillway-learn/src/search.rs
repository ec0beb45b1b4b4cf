//! Bayesian search: finds settings that cost least, where each trial is costly ("Practical Bayesian
//! Optimization of Machine Learning Algorithms", Snoek et al. 2012, in its simplest form).
//!
//! What is known of the costs is a Gaussian process with a squared exponential kernel of fixed length, over
//! settings that are brought to the unit cube. The next trial is the one of a thousand drawn at random that
//! is expected to improve most on the best so far. The first trials are drawn in strata.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// How far the cost of one setting tells of another, in the unit cube.
const LENGTH: f64 = 0.25;
/// What of the costs' variance is noise.
const NOISE: f64 = 1e-3;
/// Settings from which the next trial is chosen.
const CANDIDATES: usize = 1000;

/// The range of a setting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    /// The least that it may be.
    pub least: f64,
    /// The most that it may be.
    pub most: f64,
    /// Whether it is searched by its logarithm.
    pub logarithmic: bool,
}

impl Range {
    /// The setting at a place between 0 and 1.
    #[must_use]
    pub fn at(&self, place: f64) -> f64 {
        let Self { least, most, logarithmic } = *self;
        if logarithmic {
            libm::exp(libm::log(least) + (libm::log(most) - libm::log(least)) * place)
        } else {
            least + (most - least) * place
        }
    }
}

/// A trial: settings, and what they cost.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// The settings, in the order of their ranges.
    pub settings: Vec<f64>,
    /// What a run with them costs.
    pub cost: f64,
}

/// How many trials a search makes.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Trials that are drawn.
    pub first: usize,
    /// Trials that are chosen by what is known.
    pub then: usize,
}

/// Searches for the settings that cost least, and returns all trials in their order.
///
/// # Errors
/// The first error of a trial.
pub fn search<E>(
    ranges: &[Range],
    budget: Budget,
    seed: u64,
    mut cost: impl FnMut(&[f64]) -> Result<f64, E>,
) -> Result<Vec<Trial>, E> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let (mut places, mut trials): (Vec<Vec<f64>>, Vec<Trial>) = (Vec::new(), Vec::new());
    let first = strata(ranges.len(), budget.first, &mut random);
    for round in 0..budget.first + budget.then {
        let place = match first.get(round) {
            Some(place) => place.clone(),
            None => most_promising(&places, &trials, ranges.len(), &mut random),
        };
        let settings: Vec<f64> = ranges.iter().zip(&place).map(|(range, &place)| range.at(place)).collect();
        let cost = cost(&settings)?;
        places.push(place);
        trials.push(Trial { settings, cost });
    }
    Ok(trials)
}

/// The trial that cost least, of equals the first.
#[must_use]
pub fn cheapest(trials: &[Trial]) -> Option<&Trial> {
    trials.iter().min_by(|one, other| one.cost.total_cmp(&other.cost))
}

/// Places such that each stratum of each setting has one (a Latin hypercube).
fn strata(settings: usize, count: usize, random: &mut Xoshiro256PlusPlus) -> Vec<Vec<f64>> {
    let mut places = vec![vec![0.0; settings]; count];
    for setting in 0..settings {
        let mut order: Vec<usize> = (0..count).collect();
        for at in (1..count).rev() {
            order.swap(at, random.random_range(0..=at));
        }
        for (place, stratum) in places.iter_mut().zip(order) {
            place[setting] = (stratum as f64 + random.random::<f64>()) / count as f64;
        }
    }
    places
}

fn most_promising(
    places: &[Vec<f64>],
    trials: &[Trial],
    settings: usize,
    random: &mut Xoshiro256PlusPlus,
) -> Vec<f64> {
    let costs: Vec<f64> = trials.iter().map(|trial| trial.cost).collect();
    let process = Process::fit(places, &costs);
    let mut best = (f64::NEG_INFINITY, Vec::new());
    for _ in 0..CANDIDATES {
        let place: Vec<f64> = (0..settings).map(|_| random.random::<f64>()).collect();
        let improvement = process.expected_improvement(&place);
        if improvement > best.0 {
            best = (improvement, place);
        }
    }
    best.1
}

/// A Gaussian process through what is known.
struct Process<'a> {
    places: &'a [Vec<f64>],
    least: f64,
    /// The lower triangle of the kernel's root.
    root: Vec<Vec<f64>>,
    /// The inverse of the kernel times the costs.
    weights: Vec<f64>,
}

fn kernel(one: &[f64], other: &[f64]) -> f64 {
    let square: f64 = one.iter().zip(other).map(|(one, other)| (one - other) * (one - other)).sum();
    libm::exp(-square / (2.0 * LENGTH * LENGTH))
}

impl<'a> Process<'a> {
    fn fit(places: &'a [Vec<f64>], costs: &[f64]) -> Self {
        let count = costs.len().max(1) as f64;
        let mean = costs.iter().sum::<f64>() / count;
        let variance = costs.iter().map(|cost| (cost - mean) * (cost - mean)).sum::<f64>() / count;
        let deviation = variance.sqrt().max(1e-12);
        let scaled: Vec<f64> = costs.iter().map(|cost| (cost - mean) / deviation).collect();
        let root = root_of(places);
        let half = forward(&root, &scaled);
        let weights = backward(&root, &half);
        let least = scaled.iter().copied().fold(f64::INFINITY, f64::min);
        Self { places, least, root, weights }
    }

    /// Mean and deviation of the scaled cost at a place.
    fn at(&self, place: &[f64]) -> (f64, f64) {
        let near: Vec<f64> = self.places.iter().map(|known| kernel(known, place)).collect();
        let mean = near.iter().zip(&self.weights).map(|(near, weight)| near * weight).sum();
        let told: f64 = forward(&self.root, &near).iter().map(|part| part * part).sum();
        (mean, (1.0 - told).max(0.0).sqrt())
    }

    fn expected_improvement(&self, place: &[f64]) -> f64 {
        let (mean, deviation) = self.at(place);
        let gain = self.least - mean;
        if deviation < 1e-9 {
            return gain.max(0.0);
        }
        let score = gain / deviation;
        let below = 0.5 * (1.0 + libm::erf(score / std::f64::consts::SQRT_2));
        let density = libm::exp(-score * score / 2.0) / (2.0 * std::f64::consts::PI).sqrt();
        gain * below + deviation * density
    }
}

/// The Cholesky root of the kernel between all places, with noise.
fn root_of(places: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let mut root: Vec<Vec<f64>> = Vec::new();
    for (row, place) in places.iter().enumerate() {
        let mut line = Vec::with_capacity(row + 1);
        for column in 0..=row {
            let noise = if row == column { NOISE } else { 0.0 };
            let other: &[f64] = if row == column { &line } else { &root[column] };
            let told: f64 = line.iter().zip(other).map(|(one, other): (&f64, &f64)| one * other).sum();
            let rest = kernel(place, &places[column]) + noise - told;
            line.push(if row == column { rest.max(1e-12).sqrt() } else { rest / root[column][column] });
        }
        root.push(line);
    }
    root
}

/// Solves `root x = right`.
fn forward(root: &[Vec<f64>], right: &[f64]) -> Vec<f64> {
    let mut solved: Vec<f64> = Vec::with_capacity(right.len());
    for (line, right) in root.iter().zip(right) {
        let told: f64 = line.iter().zip(&solved).map(|(one, other)| one * other).sum();
        solved.push((right - told) / line[solved.len()]);
    }
    solved
}

/// Solves `root transposed x = right`.
fn backward(root: &[Vec<f64>], right: &[f64]) -> Vec<f64> {
    let mut solved = right.to_vec();
    for row in (0..root.len()).rev() {
        let told: f64 = (row + 1..root.len()).map(|below| root[below][row] * solved[below]).sum();
        solved[row] = (right[row] - told) / root[row][row];
    }
    solved
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    const RANGES: [Range; 2] = [
        Range { least: 0.1, most: 1000.0, logarithmic: true },
        Range { least: 1.0, most: 4.0, logarithmic: false },
    ];

    /// A valley whose floor is at 10 and 2.
    fn valley(settings: &[f64]) -> Result<f64, Infallible> {
        let (first, second) = (libm::log(settings[0] / 10.0) / 5.0, settings[1] - 2.0);
        Ok(3.0 + first * first + second * second + 0.1 * libm::sin(5.0 * first))
    }

    #[test]
    fn the_floor_of_a_valley_is_found_in_few_trials_and_found_again() {
        let budget = Budget { first: 6, then: 14 };
        let trials = search(&RANGES, budget, 1, valley).unwrap();
        assert_eq!(trials.len(), 20);
        let ranges = |trial: &Trial| {
            RANGES.iter().zip(&trial.settings).all(|(range, x)| (range.least..=range.most).contains(x))
        };
        assert!(trials.iter().all(ranges));
        let found = cheapest(&trials).unwrap().cost;
        let drawn = search(&RANGES, Budget { first: 20, then: 0 }, 1, valley).unwrap();
        assert!(found < 2.96, "{found}");
        assert!(found < cheapest(&drawn).unwrap().cost, "more than chance");
        assert_eq!(search(&RANGES, budget, 1, valley).unwrap(), trials);
    }

    #[test]
    fn what_is_known_is_expected() {
        let places: Vec<Vec<f64>> = (0..6).map(|at| vec![f64::from(at) / 5.0]).collect();
        let costs: Vec<f64> = places.iter().map(|place| 7.0 + libm::sin(3.0 * place[0])).collect();
        let process = Process::fit(&places, &costs);
        let mean = costs.iter().sum::<f64>() / 6.0;
        let deviation = (costs.iter().map(|cost| (cost - mean) * (cost - mean)).sum::<f64>() / 6.0).sqrt();
        let expected = |place: &[f64]| mean + deviation * process.at(place).0;
        for (place, cost) in places.iter().zip(&costs) {
            assert!((expected(place) - cost).abs() < 0.01);
        }
        assert!((expected(&[0.5]) - 7.0 - libm::sin(1.5)).abs() < 0.02, "between them, too");
        let (_, known) = process.at(&places[2]);
        let (_, unknown) = process.at(&[3.0]);
        assert!(known < 0.1 && unknown > 0.9);
    }

    #[test]
    fn an_error_of_a_trial_ends_the_search() {
        let mut tried = 0;
        let error = search(&RANGES, Budget { first: 5, then: 5 }, 1, |_| {
            tried += 1;
            if tried == 7 { Err("broken") } else { Ok(1.0) }
        });
        assert_eq!((error, tried), (Err("broken"), 7));
    }
}
