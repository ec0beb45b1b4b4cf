//! An agent trained in memory on a few applications, as the paper trains one for each, whole or without one
//! of its components ("INDIGO: Page Migration for Hardware Memory Disaggregation Across a Network", 6.3, Fig.
//! 13 and 14).

use spillway_learn::dqn::{self, Schedule};
use spillway_learn::outcomes::Outcomes;
use spillway_policy::indigo_context::{Action, Advice, Advisor, Context, Deltas, FEATURES};
use spillway_policy::indigo_model::{AgentKind, Model};

use super::cells::Plan;
use super::error::TrainError;
use super::outcomes::Runs;
use super::world::{RATES, World, actions, card};

/// What INDIGO's gains are made of (Fig. 13).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Component {
    /// How long a page's burst has lasted.
    BurstDuration,
    /// How often a page is accessed.
    AccessRate,
    /// How much passes over the network.
    NetworkTraffic,
    /// How much memory there is, local and far.
    MemoryAllocation,
}

impl Component {
    /// All of them, in the order of the figure.
    pub const ALL: [Self; 4] =
        [Self::BurstDuration, Self::AccessRate, Self::NetworkTraffic, Self::MemoryAllocation];

    /// Its name in the figure.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::BurstDuration => "burst duration",
            Self::AccessRate => "access rate",
            Self::NetworkTraffic => "network traffic",
            Self::MemoryAllocation => "memory allocation",
        }
    }

    /// What an agent sees of a context without it.
    fn hide(self, features: [f32; FEATURES]) -> [f32; FEATURES] {
        let [limit, local, far, traffic] = features;
        match self {
            Self::NetworkTraffic => [limit, local, far, 0.0],
            Self::MemoryAllocation => [0.0, 0.0, 0.0, traffic],
            Self::BurstDuration | Self::AccessRate => features,
        }
    }

    /// Whether an agent without it may take an action: one that does not ask for it.
    fn allows(self, action: &Action) -> bool {
        match self {
            Self::BurstDuration => action.burst_intervals == 0.0,
            Self::AccessRate => action.accesses_per_interval <= RATES[0],
            Self::NetworkTraffic | Self::MemoryAllocation => true,
        }
    }
}

/// All outcomes of a plan, from which agents are trained.
pub struct Lessons {
    plan: Plan,
    deltas: Deltas,
    actions: Vec<Action>,
    world: World,
}

impl Lessons {
    /// Makes all runs of a plan, with its deltas. Tells `ended` of each.
    ///
    /// # Errors
    /// The plan or a run.
    pub fn of(plan: &Plan, threads: usize, ended: &(dyn Fn() + Sync)) -> Result<Self, TrainError> {
        plan.check()?;
        let (actions, deltas, cells) = (actions(), plan.deltas, plan.cells());
        let told = |_| ended();
        let mut runs = Runs::unkept(threads, cells.len() * (1 + actions.len()), &told);
        let world = World::of(&cells, &actions, deltas, &mut runs)?;
        Ok(Self { plan: plan.clone(), deltas, actions, world })
    }

    /// Trains an agent, without one of its components where asked for.
    ///
    /// # Errors
    /// The model makes no sense.
    pub fn train(&self, without: Option<Component>) -> Result<Trainee, TrainError> {
        let allowed: Vec<usize> = (0..self.actions.len())
            .filter(|&at| without.is_none_or(|component| component.allows(&self.actions[at])))
            .collect();
        let seen =
            |features: &[f32; FEATURES]| without.map_or(*features, |component| component.hide(*features));
        let all = &self.world.outcomes;
        let outcomes = Outcomes {
            contexts: all.contexts.iter().map(seen).collect(),
            rewards: all.rewards.iter().map(|of| allowed.iter().map(|&at| of[at]).collect()).collect(),
            stages: all.stages.clone(),
        };
        let schedule = Schedule { episodes: self.plan.episodes, ..Schedule::default() };
        let layers = dqn::train(&outcomes, &schedule, self.plan.seed, &mut |_, _| {});
        let actions: Vec<Action> = allowed.iter().map(|&at| self.actions[at]).collect();
        let card = card(&self.plan, AgentKind::Dqn, &actions, self.deltas)?;
        Ok(Trainee { model: Model::new(card, layers, outcomes.contexts)?, without })
    }
}

/// An agent that answers in every context, as the paper's does.
#[derive(Clone, Debug)]
pub struct Trainee {
    model: Model,
    without: Option<Component>,
}

impl Trainee {
    /// The clustering under which it was trained.
    #[must_use]
    pub fn deltas(&self) -> Deltas {
        self.model.card().deltas
    }
}

impl Advisor for Trainee {
    fn advise(&mut self, context: &Context) -> Advice {
        let features = context.features();
        let seen = self.without.map_or(features, |component| component.hide(features));
        Advice::Thresholds(self.model.best(&seen))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::cells::trained_on;

    #[test]
    fn an_agent_without_a_component_does_not_use_it() {
        let plan = Plan {
            workloads: trained_on(["memcached-etc"], 1),
            bytes: 4 << 20,
            local_shares: vec![0.5, 0.2],
            contention: vec![0.0, 0.45],
            episodes: 1000,
            ..Plan::standard(1)
        };
        let lessons = Lessons::of(&plan, 2, &|| {}).unwrap();
        let context = |limit: u64, traffic_bytes_per_s: f64| Context {
            local_limit_bytes: limit,
            local_peak_bytes: limit,
            far_peak_bytes: 100 - limit,
            traffic_bytes_per_s,
            available_bytes_per_s: 1e9,
        };
        let answers = |component: Option<Component>| {
            let mut trainee = lessons.train(component).unwrap();
            let contexts = [context(10, 1e8), context(90, 1e8), context(10, 1e10), context(90, 1e10)];
            contexts.map(|context| match trainee.advise(&context) {
                Advice::Thresholds(action) => action,
                Advice::Unknown { .. } => panic!("it answers always"),
            })
        };
        assert!(answers(Some(Component::BurstDuration)).iter().all(|action| action.burst_intervals == 0.0));
        let rates = answers(Some(Component::AccessRate)).map(|action| action.accesses_per_interval);
        assert_eq!(rates, [RATES[0]; 4]);
        let [one, two, three, four] = answers(Some(Component::NetworkTraffic));
        assert_eq!([one, two], [three, four]);
        let [one, two, three, four] = answers(Some(Component::MemoryAllocation));
        assert_eq!([one, three], [two, four]);
        assert_eq!(answers(None), answers(None));
    }
}
