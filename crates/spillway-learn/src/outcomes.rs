//! What came of each action in each context: the agent's world, since an outcome is looked up where the same
//! context and action were tried before ("INDIGO: Page Migration for Hardware Memory Disaggregation Across a
//! Network", 6.2).

use spillway_policy::indigo_context::FEATURES;

/// The outcomes of all actions in all contexts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcomes {
    /// The contexts, as the agent sees them.
    pub contexts: Vec<[f32; FEATURES]>,
    /// For each context, the reward of each action.
    pub rewards: Vec<Vec<f32>>,
    /// The contexts of each stage of the training, by their places: the first stage first.
    pub stages: Vec<Vec<usize>>,
}

/// How good an agent's choices are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    /// Share of the contexts in which it chooses an action that none beats.
    pub best_share: f64,
    /// What it loses to the best action of each context, on average, in units of the reward.
    pub mean_loss: f64,
}

impl Outcomes {
    /// How many actions there are.
    #[must_use]
    pub fn actions(&self) -> usize {
        self.rewards.first().map_or(0, Vec::len)
    }

    /// The greatest reward of a context.
    #[must_use]
    pub fn best_reward(&self, context: usize) -> f32 {
        self.rewards[context].iter().copied().fold(f32::NEG_INFINITY, f32::max)
    }

    /// How good the choices are that `choose` makes.
    #[must_use]
    pub fn score(&self, mut choose: impl FnMut(&[f32; FEATURES]) -> usize) -> Score {
        let (mut best, mut loss) = (0_usize, 0.0);
        for (at, features) in self.contexts.iter().enumerate() {
            let (found, most) = (self.rewards[at][choose(features)], self.best_reward(at));
            best += usize::from(found >= most);
            loss += f64::from(most - found);
        }
        let contexts = self.contexts.len().max(1) as f64;
        Score { best_share: best as f64 / contexts, mean_loss: loss / contexts }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    /// Contexts on a grid, in which the best of some actions follows from the first and the last feature, by
    /// a rule that no linear model has.
    pub(crate) fn known(actions: usize) -> Outcomes {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(77);
        let mut outcomes = Outcomes::default();
        for step in (1..10).rev() {
            let limit = step as f32 / 10.0;
            let mut stage = Vec::new();
            for traffic in [0.1, 0.3, 0.5, 0.7, 0.9] {
                let best = best_action(limit, traffic, actions);
                stage.push(outcomes.contexts.len());
                outcomes.contexts.push([limit, 1.0, 1.0 - limit, traffic]);
                // Each step away from the best costs some percent more, by how much is drawn.
                let cost = |action: usize| 0.1 * action.abs_diff(best) as f32;
                let rewards = (0..actions).map(|action| -1.0 - cost(action) * random.random_range(0.9..1.1));
                outcomes.rewards.push(rewards.collect());
            }
            outcomes.stages.push(stage);
        }
        outcomes
    }

    /// The action that is best of `known`'s.
    fn best_action(limit: f32, traffic: f32, actions: usize) -> usize {
        let scarce = if traffic > 0.4 { 1.0 - limit } else { limit };
        ((scarce * actions as f32) as usize).min(actions - 1)
    }

    #[test]
    fn a_score_counts_the_best_and_what_others_lose() {
        let outcomes = Outcomes {
            contexts: vec![[0.0; FEATURES], [1.0; FEATURES]],
            rewards: vec![vec![-1.0, -2.0], vec![-3.0, -1.0]],
            stages: vec![vec![0, 1]],
        };
        assert_eq!(outcomes.actions(), 2);
        assert_eq!(outcomes.score(|_| 0), Score { best_share: 0.5, mean_loss: 1.0 });
        assert_eq!(
            outcomes.score(|features| features[0] as usize),
            Score { best_share: 1.0, mean_loss: 0.0 }
        );
        let known = known(6);
        assert_eq!((known.contexts.len(), known.actions(), known.stages.len()), (45, 6, 9));
        assert_eq!(known.rewards[0].iter().filter(|&&reward| reward == -1.0).count(), 1);
    }
}
