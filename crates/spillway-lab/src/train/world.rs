//! What an agent learns from: all outcomes of all actions, and how good its choices are by them.

use serde::Serialize;
use spillway_learn::outcomes::{Outcomes, Score};
use spillway_policy::indigo_context::{Action, Deltas, FEATURES, OBSERVED_INTERVALS};
use spillway_policy::indigo_model::{AgentKind, Card, FORMAT, Model, ModelError, Training, best_of};

use super::cells::{Cell, Plan};
use super::error::TrainError;
use super::outcomes::{Job, Outcome, Runs};
use crate::simulator::platform::Platform;

/// Burst durations that an agent may ask for, in marking intervals: half an interval short of whole ones,
/// which a mark that comes a little early would miss.
pub(super) const BURSTS: [f64; 4] = [0.0, 0.5, 1.5, 3.5];
/// Access rates that it may ask for, in accesses an interval.
pub(super) const RATES: [f64; 4] = [1.0, 8.0, 40.0, 120.0];
/// A threshold that no page reaches: to promote nothing is an action as well.
const NEVER: Action = Action { burst_intervals: 0.0, accesses_per_interval: 1e9 };

/// All actions, in the order of the model's outputs.
#[must_use]
pub fn actions() -> Vec<Action> {
    let pairs = BURSTS.iter().flat_map(|&burst| RATES.map(|rate| (burst, rate)));
    let action = |(burst_intervals, accesses_per_interval)| Action { burst_intervals, accesses_per_interval };
    pairs.map(action).chain([NEVER]).collect()
}

/// How good an agent is on its training set.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Judged {
    /// Share of the contexts in which it chooses an action that none beats.
    pub best_share: f64,
    /// What its run times are above those of the best actions, as a share of the untrained rule's.
    pub mean_loss: f64,
    /// Its run times over the untrained rule's, on average.
    pub over_untrained: f64,
}

/// One context, and what was chosen.
#[derive(Clone, Debug, Serialize)]
pub struct CellReport {
    /// The cell that was run.
    #[serde(flatten)]
    pub cell: Cell,
    /// The context as the agent sees it.
    pub features: [f32; FEATURES],
    /// Run time under the untrained rule, in seconds.
    pub untrained_s: f64,
    /// Run time under the best action, in seconds.
    pub best_s: f64,
    /// The action that none beats.
    pub best: Action,
    /// Run time under the chosen action, in seconds.
    pub chosen_s: f64,
    /// The action that the agent chose.
    pub chosen: Action,
}

/// What a model of a plan says of itself.
pub(super) fn card(
    plan: &Plan,
    agent: AgentKind,
    actions: &[Action],
    deltas: Deltas,
) -> Result<Card, ModelError> {
    let platform = Platform::named(&plan.platform).map_err(|error| ModelError::Wrong(error.to_string()))?;
    Ok(Card {
        format: FORMAT,
        agent,
        actions: actions.to_vec(),
        deltas,
        observed_intervals: OBSERVED_INTERVALS,
        training: Training {
            platform: plan.platform.clone(),
            link_bytes_per_s: platform.link_bytes_per_s,
            far_ns: platform.far_ns,
            bytes: plan.bytes,
            workloads: plan.workloads.clone(),
            local_shares: plan.local_shares.clone(),
            contention: plan.contention.clone(),
            episodes: plan.episodes,
            seed: plan.seed,
        },
    })
}

/// What an agent learns from: the cells of which something was observed, with all outcomes.
pub(super) struct World {
    pub cells: Vec<Cell>,
    untrained: Vec<Outcome>,
    runs: Vec<Vec<Outcome>>,
    pub outcomes: Outcomes,
}

impl World {
    /// Makes all runs of these cells.
    pub(super) fn of(
        cells: &[Cell],
        actions: &[Action],
        deltas: Deltas,
        runs: &mut Runs<'_>,
    ) -> Result<Self, TrainError> {
        let jobs = cells.iter().flat_map(|cell| {
            let choices = [None].into_iter().chain(actions.iter().copied().map(Some));
            choices.map(|action| Job { cell: cell.clone(), deltas, action })
        });
        let found = runs.all(&jobs.collect::<Vec<_>>())?;
        let mut world = Self {
            cells: Vec::new(),
            untrained: Vec::new(),
            runs: Vec::new(),
            outcomes: Outcomes::default(),
        };
        let mut limit = None;
        for (cell, outcomes) in cells.iter().zip(found.chunks_exact(1 + actions.len())) {
            if limit.replace(cell.local_share) != Some(cell.local_share) {
                world.outcomes.stages.push(Vec::new());
            }
            // Until the agent chooses, all runs of a cell are the same, and so is what was observed.
            let (untrained, chosen) = (outcomes[0], &outcomes[1..]);
            let Some(context) = untrained.context else { continue };
            let reward = |outcome: &Outcome| (-outcome.run_s / untrained.run_s) as f32;
            if let Some(stage) = world.outcomes.stages.last_mut() {
                stage.push(world.cells.len());
            }
            world.outcomes.contexts.push(context.features());
            world.outcomes.rewards.push(chosen.iter().map(reward).collect());
            world.cells.push(cell.clone());
            world.untrained.push(untrained);
            world.runs.push(chosen.to_vec());
        }
        if world.cells.is_empty() { Err(TrainError::NothingObserved) } else { Ok(world) }
    }

    pub(super) fn judge(&self, model: &Model) -> Judged {
        let choose = |features: &[f32; FEATURES]| best_of(&model.values(features));
        let Score { best_share, mean_loss } = self.outcomes.score(choose);
        let rewards = self.outcomes.contexts.iter().zip(&self.outcomes.rewards);
        let over: f64 = rewards.map(|(features, rewards)| -f64::from(rewards[choose(features)])).sum();
        Judged { best_share, mean_loss, over_untrained: over / self.cells.len() as f64 }
    }

    pub(super) fn reports(&self, model: &Model, actions: &[Action]) -> Vec<CellReport> {
        let report = |at: usize| {
            let (features, runs) = (self.outcomes.contexts[at], &self.runs[at]);
            let (best, chosen) = (best_of(&self.outcomes.rewards[at]), best_of(&model.values(&features)));
            CellReport {
                cell: self.cells[at].clone(),
                features,
                untrained_s: self.untrained[at].run_s,
                best_s: runs[best].run_s,
                best: actions[best],
                chosen_s: runs[chosen].run_s,
                chosen: actions[chosen],
            }
        };
        (0..self.cells.len()).map(report).collect()
    }
}
