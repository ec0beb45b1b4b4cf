//! LinUCB with a model of its own for each action ("A Contextual-Bandit Approach to Personalized News Article
//! Recommendation", Li et al. 2010, Algorithm 1): a linear bandit beside the network.

use spillway_policy::indigo_context::FEATURES;
use spillway_policy::indigo_model::Layer;

use crate::outcomes::Outcomes;

/// Features, and one that is always 1.
const TERMS: usize = FEATURES + 1;

/// How much more an action is hoped to bring than its model says, in deviations of the model (alpha).
const HOPE: f64 = 1.0;

/// Ridge regression of one action's rewards.
#[derive(Clone, Debug)]
struct Ridge {
    /// The inverse of the terms' covariance.
    inverse: [[f64; TERMS]; TERMS],
    /// The terms weighted by the rewards.
    weighted: [f64; TERMS],
}

fn terms(features: &[f32; FEATURES]) -> [f64; TERMS] {
    let mut terms = [1.0; TERMS];
    for (term, feature) in terms[1..].iter_mut().zip(features) {
        *term = f64::from(*feature);
    }
    terms
}

fn dot(one: &[f64; TERMS], other: &[f64; TERMS]) -> f64 {
    one.iter().zip(other).map(|(one, other)| one * other).sum()
}

impl Ridge {
    fn new() -> Self {
        let mut inverse = [[0.0; TERMS]; TERMS];
        (0..TERMS).for_each(|at| inverse[at][at] = 1.0);
        Self { inverse, weighted: [0.0; TERMS] }
    }

    fn times_inverse(&self, terms: &[f64; TERMS]) -> [f64; TERMS] {
        self.inverse.map(|row| dot(&row, terms))
    }

    fn coefficients(&self) -> [f64; TERMS] {
        self.times_inverse(&self.weighted)
    }

    fn hoped_for(&self, terms: &[f64; TERMS]) -> f64 {
        dot(&self.coefficients(), terms) + HOPE * dot(terms, &self.times_inverse(terms)).max(0.0).sqrt()
    }

    /// Takes in a reward; the inverse follows by the formula of Sherman and Morrison.
    fn add(&mut self, terms: &[f64; TERMS], reward: f64) {
        let along = self.times_inverse(terms);
        let scale = 1.0 + dot(terms, &along);
        for (row, first) in self.inverse.iter_mut().zip(along) {
            for (number, second) in row.iter_mut().zip(along) {
                *number -= first * second / scale;
            }
        }
        for (weighted, term) in self.weighted.iter_mut().zip(terms) {
            *weighted += reward * term;
        }
    }
}

/// Trains it, stage by stage, with so many episodes each, and returns it as one layer. Tells `progress` now
/// and then how many episodes of how many are done.
pub fn train(outcomes: &Outcomes, episodes: u64, progress: &mut dyn FnMut(u64, u64)) -> Vec<Layer> {
    let mut models = vec![Ridge::new(); outcomes.actions()];
    let all = episodes * outcomes.stages.len() as u64;
    let mut done = 0;
    for stage in outcomes.stages.iter().filter(|stage| !stage.is_empty() && outcomes.actions() > 0) {
        for episode in 0..episodes as usize {
            let context = stage[episode % stage.len()];
            let terms = terms(&outcomes.contexts[context]);
            let hopes: Vec<f64> = models.iter().map(|model| model.hoped_for(&terms)).collect();
            let mut chosen = 0;
            for (at, hope) in hopes.iter().enumerate() {
                if hope.total_cmp(&hopes[chosen]).is_gt() {
                    chosen = at;
                }
            }
            models[chosen].add(&terms, f64::from(outcomes.rewards[context][chosen]));
            done += 1;
            if done % 1000 == 0 {
                progress(done, all);
            }
        }
    }
    let coefficients: Vec<_> = models.iter().map(Ridge::coefficients).collect();
    let weights = coefficients.iter().flat_map(|model| model[1..].iter().map(|&number| number as f32));
    let biases = coefficients.iter().map(|model| model[0] as f32).collect();
    vec![Layer { inputs: FEATURES, weights: weights.collect(), biases }]
}

#[cfg(test)]
mod tests {
    use spillway_policy::indigo_model::best_of;

    use super::*;
    use crate::outcomes::tests::known;

    /// Rewards that are linear in the features.
    fn linear() -> Outcomes {
        let mut outcomes = Outcomes::default();
        for step in 1..10 {
            let limit = step as f32 / 10.0;
            outcomes.stages.push(vec![outcomes.contexts.len()]);
            outcomes.contexts.push([limit, 1.0, 1.0 - limit, 0.5]);
            outcomes.rewards.push(vec![-1.0 - limit, -1.5, -2.0 + limit]);
        }
        outcomes
    }

    #[test]
    fn what_is_linear_is_learnt() {
        let outcomes = linear();
        let layers = train(&outcomes, 500, &mut |_, _| {});
        let score = outcomes.score(|features| best_of(&layers[0].apply(features)));
        assert!(score.mean_loss < 0.02, "{score:?}");
        assert_eq!(layers, train(&outcomes, 500, &mut |_, _| {}), "the same again");
    }

    /// Where the best action is no matter of a line it loses, and the network is worth its effort.
    #[test]
    fn what_is_not_linear_is_not() {
        let outcomes = known(6);
        let layers = train(&outcomes, 2000, &mut |_, _| {});
        let score = outcomes.score(|features| best_of(&layers[0].apply(features)));
        assert!(score.best_share < 0.9, "{score:?}");
    }

    #[test]
    fn its_estimate_is_the_least_squares_one() {
        let mut ridge = Ridge::new();
        for step in 0..20_000 {
            let features = [10, 7, 3, 2].map(|most| (step % most) as f32 / most as f32);
            let reward = 2.0 - 3.0 * f64::from(features[0]) + f64::from(features[2]);
            ridge.add(&terms(&features), reward);
        }
        let expected = [2.0, -3.0, 0.0, 1.0, 0.0];
        let found = ridge.coefficients();
        assert!(found.iter().zip(expected).all(|(one, other)| (one - other).abs() < 0.1), "{found:?}");
    }
}
