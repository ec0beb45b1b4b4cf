//! What a training runs, and the training set.
//!
//! No cell of a training is one that a figure judges: graphs have another density, keys are drawn from
//! another distribution, and every seed is another one. Machine and number of tasks are those of the paper's
//! prototype.

use serde::Serialize;
use serde_json::{Map, Value};
use spillway_policy::indigo_context::Deltas;
use spillway_policy::indigo_model::{AgentKind, TrainedOn};

use super::error::TrainError;
use crate::run::{LocalSize, RunSpec, check};
use crate::workloads::TRACE;

/// Physical cores of INDIGO's nodes (6.1): as many tasks does each workload run.
const TASKS: u64 = 32;

/// A training to be.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The workloads that are run.
    pub workloads: Vec<TrainedOn>,
    /// The working set of each, in bytes.
    pub bytes: u64,
    /// The platform, by name.
    pub platform: String,
    /// Local limits, as shares of the working set: the agent is trained on one after the other.
    pub local_shares: Vec<f64>,
    /// Shares of the link that a neighbour takes.
    pub contention: Vec<f64>,
    /// Which agent the model keeps.
    pub agent: AgentKind,
    /// Episodes for each local limit.
    pub episodes: u64,
    /// The seed of workloads and training.
    pub seed: u64,
    /// Trials of delta1 and delta2; none to take `deltas`.
    pub trials: Option<usize>,
    /// Delta1 and delta2 where they are not searched.
    pub deltas: Deltas,
}

impl Plan {
    /// The training of the model that is shipped, with this seed.
    #[must_use]
    pub fn standard(seed: u64) -> Self {
        let names = ["graph500-bfs", "graph500-sssp", "hash-join", "memcached-etc"];
        Self {
            workloads: trained_on(names, seed),
            bytes: 8 << 20,
            platform: "indigo".into(),
            local_shares: (1..=9).rev().map(|tenths| f64::from(tenths) / 10.0).collect(),
            contention: vec![0.0, 0.45],
            agent: AgentKind::Dqn,
            episodes: 100_000,
            seed,
            trials: Some(12),
            deltas: Deltas { closeness_per_interval: 10.0, adjacent_intervals: 1.5 },
        }
    }

    /// All cells: by local limit, then workload, then contention.
    pub(super) fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for &local_share in &self.local_shares {
            for workload in &self.workloads {
                for &contention in &self.contention {
                    cells.push(self.cell(workload, local_share, contention));
                }
            }
        }
        cells
    }

    /// The cells by which delta1 and delta2 are judged: of each workload that with the least local memory.
    pub(super) fn judged_cells(&self) -> Vec<Cell> {
        let least = self.local_shares.iter().copied().fold(1.0, f64::min);
        let contention = self.contention.first().copied().unwrap_or(0.0);
        self.workloads.iter().map(|workload| self.cell(workload, least, contention)).collect()
    }

    /// How many runs the search makes with so many actions.
    pub(super) fn runs_of_search(&self, actions: usize) -> usize {
        self.trials.map_or(0, |trials| self.workloads.len() * (trials * actions + 1))
    }

    fn cell(&self, workload: &TrainedOn, local_share: f64, contention: f64) -> Cell {
        let (bytes, platform) = (self.bytes, self.platform.clone());
        Cell { workload: workload.clone(), bytes, platform, local_share, contention }
    }

    pub(super) fn check(&self) -> Result<(), TrainError> {
        let lists = [
            ("workload", self.workloads.is_empty()),
            ("local limit", self.local_shares.is_empty()),
            ("share of contention", self.contention.is_empty()),
        ];
        let refuse = |what: String, remedy| Err(TrainError::Plan { what, remedy });
        if let Some((list, _)) = lists.into_iter().find(|(_, is_empty)| *is_empty) {
            return refuse(format!("there is no {list}"), "name at least one");
        }
        if self.local_shares.iter().any(|share| !(0.01..1.0).contains(share)) {
            return refuse(
                "a local limit is not between 1% and 100%".into(),
                "leave something far: there is nothing to learn otherwise",
            );
        }
        if !(1..=10_000_000).contains(&self.episodes) {
            return refuse(format!("{} episodes are asked for", self.episodes), "take 1 to 10000000");
        }
        if self.trials.is_some_and(|trials| !(1..=1000).contains(&trials)) {
            return refuse("a search is asked for of no trials, or too many".into(), "take 1 to 1000");
        }
        if self.workloads.iter().any(|trained| trained.workload == TRACE) {
            return refuse("a trace is asked for".into(), "name workloads: 'spillway lab list' has them");
        }
        self.cells().iter().try_for_each(|cell| check(&cell.spec()).map_err(cell.failed()))
    }
}

/// Workloads of a training, each in another form than the figures' and with a seed of its own.
#[must_use]
pub fn trained_on<'a>(names: impl IntoIterator<Item = &'a str>, seed: u64) -> Vec<TrainedOn> {
    let workload = |(at, name): (usize, &str)| TrainedOn {
        workload: name.to_owned(),
        settings: in_another_form(name),
        seed: seed.wrapping_mul(1000).wrapping_add(at as u64 + 1),
    };
    names.into_iter().enumerate().map(workload).collect()
}

fn in_another_form(name: &str) -> Map<String, Value> {
    let mut settings = other_form(name);
    settings.insert("tasks".to_owned(), Value::from(TASKS));
    settings
}

/// What makes a workload another one than the figures': denser graphs, other distributions of keys.
pub(crate) fn other_form(name: &str) -> Map<String, Value> {
    let changes: &[(&str, f64)] = match name {
        "graph500-bfs" | "graph500-sssp" => &[("edge_factor", 12.0), ("searches", 2.0)],
        "ligra-bfs" | "ligra-pagerank" => &[("edge_factor", 14.0)],
        "pagerank" => &[("edge_factor", 22.0)],
        "memcached-etc" => &[("hot_keys", 0.2), ("hot_requests", 0.8)],
        "hash-join" => &[("skew", 0.5)],
        "redis" => &[("value_bytes", 800.0)],
        "tpcc" => &[("runtime_accesses", 48.0)],
        _ => &[],
    };
    let number =
        |value: f64| if value.fract() == 0.0 { Value::from(value as u64) } else { Value::from(value) };
    changes.iter().map(|(key, value)| ((*key).to_owned(), number(*value))).collect()
}

/// An episode's surroundings: a workload at a local limit beside a neighbour on the link.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cell {
    /// The workload that is run.
    #[serde(flatten)]
    pub workload: TrainedOn,
    /// Its working set, in bytes.
    #[serde(skip)]
    pub bytes: u64,
    /// The platform, by name.
    #[serde(skip)]
    pub platform: String,
    /// Local memory, as a share of the working set.
    pub local_share: f64,
    /// Share of the link that the neighbour takes.
    pub contention: f64,
}

impl Cell {
    /// Its run, under INDIGO.
    pub(super) fn spec(&self) -> RunSpec {
        RunSpec {
            workload: self.workload.workload.clone(),
            bytes: self.bytes,
            workload_settings: self.workload.settings.clone(),
            policy: "indigo".into(),
            local: LocalSize::Share(self.local_share),
            platform: self.platform.clone(),
            contention: self.contention,
            seed: self.workload.seed,
            ..RunSpec::default()
        }
    }

    pub(super) fn failed(&self) -> impl Fn(crate::run::RunError) -> TrainError {
        let workload = self.workload.workload.clone();
        move |source| TrainError::Run { workload: workload.clone(), source }
    }
}
