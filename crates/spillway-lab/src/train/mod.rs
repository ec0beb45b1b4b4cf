//! Training INDIGO's agent: the feedback loop of "INDIGO: Page Migration for Hardware Memory Disaggregation
//! Across a Network" (5.3, 6.2), with runs in simulated time.
//!
//! An episode is a run of an application at a local limit beside a neighbour on the link: a [`Cell`]. The
//! agent is told the context that was observed at the beginning, chooses thresholds, and is rewarded by the
//! run time. As in the paper an outcome is kept by context and action, so a run is made once: over its
//! episodes an agent comes to every action of every context, hence all runs are made first, on all cores, and
//! each is a line of a file at once. A training that was interrupted goes on with what is missing there.
//!
//! - [`cells`]: what is run, and the training set: other graphs, distributions and seeds than any figure has
//! - [`lessons`]: an agent of one application, trained in memory, also without one of its components
//! - `outcomes`: runs, each made once, and the file that keeps them; `world`: what an agent learns from them
//!
//! What follows from the outcomes - the search of delta1 and delta2, the network - is in `spillway-learn`; it
//! takes seconds, starts over, and comes to the same bits.

pub mod cells;
mod error;
pub mod lessons;
mod outcomes;
mod progress;
mod world;

use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::Serialize;
use spillway_learn::dqn::{self, Schedule};
use spillway_learn::linear;
use spillway_learn::search::{Budget, Range, cheapest, search};
use spillway_policy::indigo_context::{Action, Deltas};
use spillway_policy::indigo_model::{AgentKind, Card, Model};

use cells::Plan;
pub use error::TrainError;
use error::file_error;
use outcomes::{Job, Runs};
pub use progress::Progress;
use world::{BURSTS, World, actions, card};
pub use world::{CellReport, Judged};

/// Delta1, in accesses an interval, and delta2, in intervals: where they are searched.
const DELTAS: [Range; 2] = [
    Range { least: 0.1, most: 1000.0, logarithmic: true },
    Range { least: 1.05, most: 4.0, logarithmic: false },
];
/// Of which local limit and with which rate deltas are judged: they decide where bursts do.
const JUDGED_RATE: f64 = 8.0;

/// What came of a training.
#[derive(Clone, Debug, Serialize)]
pub struct Trained {
    /// What the model says of itself.
    pub card: Card,
    /// Runs that were made, and those that were there from before.
    pub runs_made: usize,
    /// Runs that an interrupted training had left.
    pub runs_kept: usize,
    /// What runs took, in seconds.
    pub runs_s: f64,
    /// What learning took, in seconds.
    pub learning_s: f64,
    /// Delta1 and delta2 as they were tried, with their costs.
    pub deltas_tried: Vec<DeltasTried>,
    /// How good the choices of the network are.
    pub dqn: Judged,
    /// How good those of the linear bandit are.
    pub linear: Judged,
    /// Each context, with what was chosen.
    pub cells: Vec<CellReport>,
    /// Cells of which nothing was observed.
    pub unobserved: usize,
}

/// A trial of the search.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct DeltasTried {
    /// The deltas that were tried.
    #[serde(flatten)]
    pub deltas: Deltas,
    /// Run time over that of the untrained rule, on average.
    pub cost: f64,
}

/// Where a training keeps its outcomes until the model is there.
#[must_use]
pub fn kept_at(out: &Path) -> PathBuf {
    let mut name = out.as_os_str().to_owned();
    name.push(".part");
    PathBuf::from(name)
}

/// Trains an agent and writes it to `out`. Outcomes lie beside it meanwhile ([`kept_at`]). The number of
/// threads changes no bit of the model.
///
/// # Errors
/// The plan, a run or a file; runs that were made are kept.
pub fn train(
    plan: &Plan,
    out: &Path,
    threads: usize,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Trained, TrainError> {
    plan.check()?;
    let actions = actions();
    let kept = kept_at(out);
    let cells = plan.cells();
    let all = cells.len() * (1 + actions.len()) + plan.runs_of_search(BURSTS.len() - 1);
    let mut runs = Runs::open(&kept, threads, all, progress)?;
    let began = Instant::now();
    let (deltas, deltas_tried) = find_deltas(plan, &mut runs)?;
    let world = World::of(&cells, &actions, deltas, &mut runs)?;
    let runs_s = began.elapsed().as_secs_f64();
    let began = Instant::now();
    let mut told = |done, all| progress(Progress::Episodes(done, all));
    let schedule = Schedule { episodes: plan.episodes, ..Schedule::default() };
    let network = dqn::train(&world.outcomes, &schedule, plan.seed, &mut told);
    let lines = linear::train(&world.outcomes, plan.episodes, &mut |_, _| {});
    let learning_s = began.elapsed().as_secs_f64();
    let contexts = world.outcomes.contexts.clone();
    let model = |agent, layers| Model::new(card(plan, agent, &actions, deltas)?, layers, contexts.clone());
    let [network, lines] = [model(AgentKind::Dqn, network)?, model(AgentKind::Linear, lines)?];
    let [dqn, linear] = [&network, &lines].map(|model| world.judge(model));
    let chosen = if plan.agent == AgentKind::Dqn { network } else { lines };
    write(out, &chosen.encode()?)?;
    let trained = Trained {
        card: chosen.card().clone(),
        runs_made: runs.made(),
        runs_kept: runs.kept(),
        runs_s,
        learning_s,
        deltas_tried,
        dqn,
        linear,
        cells: world.reports(&chosen, &actions),
        unobserved: cells.len() - world.cells.len(),
    };
    // It is of no use any more, and of harm to who changes the policy and trains again.
    std::fs::remove_file(&kept).map_err(file_error(&kept))?;
    Ok(trained)
}

/// Writes a file whole or not at all.
fn write(path: &Path, bytes: &[u8]) -> Result<(), TrainError> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let wrong = file_error(path);
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(&wrong)?;
    std::io::Write::write_all(&mut file, bytes).map_err(&wrong)?;
    // What one made for oneself, others may read, as any other file that one makes.
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    file.as_file().set_permissions(mode).map_err(&wrong)?;
    file.persist(path).map_err(|error| wrong(error.error))?;
    Ok(())
}

/// Searches delta1 and delta2 as the paper did (4.3): what they cost is the run time under the best of a few
/// thresholds of bursts, over that of the untrained rule, on average over the workloads.
fn find_deltas(plan: &Plan, runs: &mut Runs<'_>) -> Result<(Deltas, Vec<DeltasTried>), TrainError> {
    let Some(trials) = plan.trials else { return Ok((plan.deltas, Vec::new())) };
    let cells = plan.judged_cells();
    let jobs = |deltas: Deltas| {
        let action = |burst_intervals| Action { burst_intervals, accesses_per_interval: JUDGED_RATE };
        let jobs = cells.iter().flat_map(move |cell| {
            BURSTS[1..].iter().map(move |&burst| Job {
                cell: cell.clone(),
                deltas,
                action: Some(action(burst)),
            })
        });
        jobs.collect::<Vec<_>>()
    };
    let untrained = cells.iter().map(|cell| Job { cell: cell.clone(), deltas: plan.deltas, action: None });
    let untrained = runs.all(&untrained.collect::<Vec<_>>())?;
    let deltas =
        |settings: &[f64]| Deltas { closeness_per_interval: settings[0], adjacent_intervals: settings[1] };
    let budget = Budget { first: trials.div_ceil(2), then: trials / 2 };
    let trials = search(&DELTAS, budget, plan.seed, |settings| {
        let outcomes = runs.all(&jobs(deltas(settings)))?;
        let best = outcomes
            .chunks(BURSTS.len() - 1)
            .map(|some| some.iter().map(|outcome| outcome.run_s).fold(f64::INFINITY, f64::min));
        let over = best.zip(&untrained).map(|(best, untrained)| best / untrained.run_s);
        Ok::<f64, TrainError>(over.sum::<f64>() / cells.len() as f64)
    })?;
    let tried = trials.iter().map(|trial| DeltasTried { deltas: deltas(&trial.settings), cost: trial.cost });
    let found = cheapest(&trials).map_or(plan.deltas, |trial| deltas(&trial.settings));
    Ok((found, tried.collect()))
}

#[cfg(test)]
mod tests;
