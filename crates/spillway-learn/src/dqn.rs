//! INDIGO's agent: a deep Q-network with gamma 0, which is a contextual bandit ("INDIGO: Page Migration for
//! Hardware Memory Disaggregation Across a Network", 5.3 and Table 2).
//!
//! What the paper's table leaves open is as in the publication whose hyperparameters it took, "Human-level
//! control through deep reinforcement learning" (Mnih et al. 2015): an update every four episodes, errors cut
//! at 1, a memory of a million episodes. The optimiser is Adam, and exploration ends at 5%: chosen. With
//! gamma 0 there is no next state, so there is no target network.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use spillway_policy::indigo_context::FEATURES;
use spillway_policy::indigo_model::{Layer, best_of};

use crate::network::{Example, Network};
use crate::outcomes::Outcomes;

/// How an agent is trained.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schedule {
    /// Numbers of each hidden layer.
    pub hidden: [usize; 2],
    /// Size of a step of the optimiser.
    pub learning_rate: f32,
    /// Share of a stage's episodes over which exploration falls.
    pub exploration_fraction: f64,
    /// Share of episodes that explore from then on.
    pub last_exploration: f64,
    /// Episodes that an update learns from.
    pub batch: usize,
    /// Episodes of each stage (`MAX_TRAIN`).
    pub episodes: u64,
    /// Episodes from one update to the next.
    pub update_every: u64,
    /// Episodes before the first update.
    pub warm_up: u64,
    /// Most episodes that are remembered; the oldest go.
    pub memory: usize,
}

impl Default for Schedule {
    fn default() -> Self {
        Self {
            hidden: [64, 64],
            learning_rate: 5e-4,
            exploration_fraction: 0.1,
            last_exploration: 0.05,
            batch: 32,
            episodes: 100_000,
            update_every: 4,
            warm_up: 1000,
            memory: 1_000_000,
        }
    }
}

impl Schedule {
    /// The share of episodes that explore, at one of a stage's.
    #[must_use]
    pub fn exploration(&self, episode: u64) -> f64 {
        let end = (self.episodes as f64 * self.exploration_fraction).max(1.0);
        let gone = (episode as f64 / end).min(1.0);
        1.0 - (1.0 - self.last_exploration) * gone
    }
}

/// What an episode was: which context, which action. Its outcome is looked up.
type Episode = (u32, u16);

/// Trains an agent, stage by stage, and returns its network. Tells `progress` now and then how many episodes
/// of how many are done.
pub fn train(
    outcomes: &Outcomes,
    schedule: &Schedule,
    seed: u64,
    progress: &mut dyn FnMut(u64, u64),
) -> Vec<Layer> {
    let actions = outcomes.actions();
    let [first, second] = schedule.hidden;
    let mut network = Network::new(&[FEATURES, first, second, actions], seed);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x5eed);
    let mut memory: Vec<Episode> = Vec::new();
    let mut done = 0;
    let all = schedule.episodes * outcomes.stages.len() as u64;
    for stage in outcomes.stages.iter().filter(|stage| !stage.is_empty() && actions > 0) {
        for episode in 0..schedule.episodes {
            let context = stage[random.random_range(0..stage.len())];
            let action = if random.random::<f64>() < schedule.exploration(episode) {
                random.random_range(0..actions)
            } else {
                best_of(network.values(&outcomes.contexts[context]))
            };
            let remembered = (context as u32, action as u16);
            if memory.len() < schedule.memory {
                memory.push(remembered);
            } else {
                memory[done as usize % schedule.memory] = remembered;
            }
            done += 1;
            if done >= schedule.warm_up && done % schedule.update_every == 0 {
                let batch = (0..schedule.batch).map(|_| {
                    let (context, action) = memory[random.random_range(0..memory.len())];
                    let (context, output) = (context as usize, usize::from(action));
                    let target = outcomes.rewards[context][output];
                    Example { input: &outcomes.contexts[context], output, target }
                });
                network.learn(batch, schedule.learning_rate);
            }
            if done % 1000 == 0 {
                progress(done, all);
            }
        }
    }
    network.layers()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcomes::tests::known;

    fn choose(layers: &[Layer], features: &[f32; FEATURES]) -> usize {
        let mut values = features.to_vec();
        for (at, layer) in layers.iter().enumerate() {
            values = layer.apply(&values);
            if at + 1 < layers.len() {
                values.iter_mut().for_each(|value| *value = value.max(0.0));
            }
        }
        best_of(&values)
    }

    #[test]
    fn exploration_falls_over_its_fraction_and_stays() {
        let schedule = Schedule { episodes: 1000, ..Schedule::default() };
        assert_eq!(schedule.exploration(0), 1.0);
        assert!((schedule.exploration(50) - 0.525).abs() < 1e-9);
        assert!((schedule.exploration(100) - 0.05).abs() < 1e-9 && schedule.exploration(999) <= 0.05 + 1e-9);
    }

    /// A bandit whose best action is known: it is chosen in nearly every context.
    #[test]
    fn the_best_action_of_each_context_is_learnt() {
        let outcomes = known(6);
        let schedule = Schedule { episodes: 15_000, learning_rate: 1e-3, ..Schedule::default() };
        let layers = train(&outcomes, &schedule, 3, &mut |_, _| {});
        let score = outcomes.score(|features| choose(&layers, features));
        assert!(score.best_share >= 0.95 && score.mean_loss < 0.01, "{score:?}");
        let untrained = outcomes.score(|_| 0);
        assert!(untrained.best_share < 0.4, "{untrained:?}");
    }

    #[test]
    fn one_seed_gives_one_agent_bit_by_bit_and_another_seed_another() {
        let outcomes = known(4);
        let schedule = Schedule { episodes: 600, warm_up: 100, memory: 1000, ..Schedule::default() };
        let mut told = Vec::new();
        let mut trained = |seed| train(&outcomes, &schedule, seed, &mut |done, all| told.push((done, all)));
        assert_eq!(trained(7), trained(7));
        assert!(trained(7) != trained(8));
        assert_eq!(told[..5], [(1000, 5400), (2000, 5400), (3000, 5400), (4000, 5400), (5000, 5400)]);
    }

    #[test]
    fn without_an_outcome_there_is_nothing_to_learn() {
        let layers = train(&Outcomes::default(), &Schedule::default(), 1, &mut |_, _| {});
        assert_eq!(layers.last().unwrap().biases.len(), 0);
    }
}
