//! Figures of INDIGO's agent: what each of its components is worth (Fig. 13), and one application's agent
//! under another application (Fig. 14). As in the paper an agent is trained on one application, here on
//! another graph or table than it is tried on, in a neighbourhood of another load.

use serde_json::Value;
use spillway_policy::indigo::{Config, Indigo};
use spillway_policy::indigo_context::{Deltas, OBSERVED_INTERVALS};
use spillway_policy::indigo_model::Model;
use spillway_policy::registry;
use spillway_report::claim::{Asks, Claim};

use super::figure::Figure;
use super::indigo::spec;
use super::lab::Lab;
use super::statistics::{geometric_mean, least, most};
use crate::run::{RunError, RunSpec, execute_with, platform};
use crate::train::TrainError;
use crate::train::cells::{Plan, trained_on};
use crate::train::lessons::{Component, Trainee};

/// Local limits of a training: those of Fig. 10.
const LIMITS: [f64; 4] = [0.8, 0.5, 0.3, 0.1];
/// Episodes for each: the outcomes are few, and known after hundreds.
const EPISODES: u64 = 20_000;
/// Applications of the ablation.
const ABLATED: [&str; 2] = ["graph500-bfs", "graph500-sssp"];
/// Applications that are trained on and tried on each other.
const TRANSFERRED: [&str; 3] = ["graph500-bfs", "graph500-sssp", "hash-join"];
/// Local memory and what a neighbour takes of the link, where components are tried.
const CONDITIONS: [(f64, f64); 4] = [(0.1, 0.0), (0.1, 0.5), (0.5, 0.0), (0.5, 0.5)];

fn failed(error: TrainError) -> RunError {
    match error {
        TrainError::Run { source, .. } => source,
        other => RunError::Training(other.to_string()),
    }
}

/// An agent of one application.
fn agent(lab: &mut Lab, application: &str, without: Option<Component>) -> Result<Trainee, RunError> {
    let deltas = Model::shipped().map(|model| model.card().deltas);
    let plan = Plan {
        workloads: trained_on([application], 1),
        bytes: lab.bytes(),
        local_shares: LIMITS.to_vec(),
        episodes: EPISODES,
        trials: None,
        deltas: deltas.map_err(|error| RunError::Training(error.to_string()))?,
        ..Plan::standard(1)
    };
    lab.lessons(&plan).and_then(|lessons| lessons.train(without)).map_err(failed)
}

/// The run time of an application under an agent.
fn run_s(spec: &RunSpec, trainee: &Trainee) -> Result<f64, RunError> {
    let (_, factor) = platform(spec, None)?;
    let settings = registry::find(&spec.policy)?.settings(factor)?;
    let config: Config = serde_json::from_value(Value::Object(settings))
        .map_err(|error| RunError::Training(error.to_string()))?;
    let (deltas, trainee): (Deltas, _) = (trainee.deltas(), trainee.clone());
    let policy = Indigo::advised(config, deltas, OBSERVED_INTERVALS, Box::new(trainee));
    Ok(execute_with(spec, |_| Box::new(policy))?.run_s)
}

pub(super) fn i13(lab: &mut Lab) -> Result<Figure, RunError> {
    let mut figure = Figure::new(
        "I13",
        "INDIGO's agent without one of its components",
        "INDIGO, Fig. 13",
        "run time over that of the whole",
    );
    let mut drops = vec![Vec::new(); Component::ALL.len()];
    for application in ABLATED {
        let conditions = CONDITIONS
            .map(|(share, contention)| RunSpec { contention, ..spec(lab, application, "indigo", share) });
        let times = |trainee: &Trainee| {
            conditions.iter().map(|spec| run_s(spec, trainee)).collect::<Result<Vec<_>, _>>()
        };
        let whole = times(&agent(lab, application, None)?)?;
        for (component, drops) in Component::ALL.into_iter().zip(&mut drops) {
            let without = times(&agent(lab, application, Some(component))?)?;
            let over = geometric_mean(without.iter().zip(&whole).map(|(without, whole)| without / whole));
            figure.value(application, format!("without {}", component.name()), over);
            drops.push(over);
        }
    }
    let drops: Vec<f64> = drops.into_iter().map(geometric_mean).collect();
    let [others @ .., memory] = drops.as_slice() else { return Ok(figure) };
    figure.claim(Claim::new(
        "Run time without a component over that of the whole, least of all",
        "all components contribute significantly",
        Asks::ClearlyLarger,
        least(drops.iter().copied()),
    ));
    figure.claim(Claim::new(
        "What the memory allocation is worth, over the most of the others",
        "memory allocation is the most significant",
        Asks::Larger,
        memory / most(others.iter().copied()),
    ));
    Ok(figure)
}

pub(super) fn i14(lab: &mut Lab) -> Result<Figure, RunError> {
    let mut figure = Figure::new(
        "I14",
        "INDIGO's agent of one application under another, 10% local",
        "INDIGO, Fig. 14",
        "run time over all local",
    );
    let agents = TRANSFERRED.map(|trained| agent(lab, trained, None));
    let agents = agents.into_iter().collect::<Result<Vec<_>, _>>()?;
    let mut over_own = vec![Vec::new(); TRANSFERRED.len()];
    for (tried, application) in TRANSFERRED.into_iter().enumerate() {
        let base = lab.times(&[spec(lab, application, "all-local", 1.0)])?[0];
        let spec = spec(lab, application, "indigo", 0.1);
        let times = agents.iter().map(|agent| run_s(&spec, agent)).collect::<Result<Vec<_>, _>>()?;
        for ((trained, time), over_own) in TRANSFERRED.iter().zip(&times).zip(&mut over_own) {
            figure.value(format!("trained on {trained}"), application, time / base);
            over_own.push(time / times[tried]);
        }
    }
    figure.claim(Claim::new(
        "BFS and SSSP under each other's agent over their own, the worse",
        "less than 5% degradation",
        Asks::Within(1.05),
        over_own[0][1].max(over_own[1][0]),
    ));
    figure.claim(Claim::new(
        "Any under another's agent over its own, most of all",
        "at most twice the degradation",
        Asks::Within(2.0),
        most(over_own.iter().flatten().copied()),
    ));
    Ok(figure)
}
