//! Trainings of a few runs: the same model again, also after an interruption and on any number of threads.

use std::fs;
use std::sync::Mutex;

use spillway_policy::indigo_context::{Advice, Advisor, Context};

use spillway_policy::indigo_model::AgentKind;

use super::cells::trained_on;
use super::*;
use crate::run::{RunSpec, execute};

/// A training of two workloads at two limits.
fn plan() -> Plan {
    Plan {
        workloads: trained_on(["memcached-etc", "hash-join"], 3),
        bytes: 4 << 20,
        local_shares: vec![0.5, 0.2],
        contention: vec![0.0],
        episodes: 2000,
        trials: Some(2),
        ..Plan::standard(3)
    }
}

fn trained(plan: &Plan, out: &Path, threads: usize) -> Trained {
    train(plan, out, threads, &|_| {}).unwrap()
}

#[test]
fn a_training_repeats_bit_by_bit_on_any_number_of_threads_and_after_an_interruption() {
    let folder = tempfile::tempdir().unwrap();
    let [one, other, cut] = ["one", "other", "cut"].map(|name| folder.path().join(name));
    let first = trained(&plan(), &one, 1);
    assert_eq!((first.runs_kept, first.unobserved), (0, 0));
    let bytes = fs::read(&one).unwrap();
    // What it has kept by then is what is left of it where it is interrupted in the middle of a line.
    let told = Mutex::new(Vec::new());
    let whole = train(&plan(), &cut, 2, &|progress| {
        let mut told = told.lock().unwrap();
        told.push(progress);
        if let Progress::Runs(done, _) = progress
            && done == 9
        {
            fs::copy(kept_at(&cut), folder.path().join("kept")).unwrap();
        }
    });
    let all = first.runs_made;
    assert!(whole.unwrap().runs_made == all && bytes == fs::read(&cut).unwrap());
    let told = told.into_inner().unwrap();
    assert!(told.iter().any(|told| matches!(told, Progress::Runs(done, of) if done == of)), "{told:?}");
    assert!(told.contains(&Progress::Episodes(4000, 4000)), "{told:?}");
    let lines = fs::read_to_string(folder.path().join("kept")).unwrap();
    let middle = lines.match_indices('\n').nth(4).unwrap().0 + 30;
    fs::write(kept_at(&cut), &lines[..middle]).unwrap();
    fs::remove_file(&cut).unwrap();
    let resumed = trained(&plan(), &cut, 3);
    assert_eq!((resumed.runs_kept, resumed.runs_made), (5, all - 5));
    assert!(bytes == fs::read(&cut).unwrap());
    assert!(!kept_at(&one).exists(), "what is done needs no outcomes");
    let seeded = trained(&Plan { seed: 4, ..plan() }, &other, 2);
    assert!(seeded.runs_made == all && bytes != fs::read(&other).unwrap());
}

#[test]
fn what_is_trained_runs_by_its_file_and_says_what_it_was_trained_on() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("model.safetensors");
    let plan = Plan { agent: AgentKind::Linear, trials: None, ..plan() };
    let found = trained(&plan, &out, 2);
    assert!(found.deltas_tried.is_empty());
    let model = Model::read(&out).unwrap();
    let Card { agent, training, deltas, .. } = model.card();
    assert_eq!((*agent, *deltas), (AgentKind::Linear, plan.deltas));
    assert_eq!((&training.workloads, training.seed), (&plan.workloads, 3));
    assert_eq!(model.contexts().len(), 4);
    for cell in &found.cells {
        assert!(cell.best_s <= cell.chosen_s, "{cell:?}");
        // A run with the model comes to the context of the training, and so to the outcome of its choice.
        let mut spec = cell.cell.spec();
        spec.policy_settings.insert("model".into(), out.to_str().unwrap().into());
        let report = execute(&spec).unwrap();
        assert_eq!(report.run_s, cell.chosen_s, "{cell:?}");
        assert!(report.remark.unwrap().starts_with("agent:"));
    }
    // Nothing is far at all: no context is observed, and nothing is chosen.
    let mut spec = RunSpec { local: crate::run::LocalSize::Share(1.0), ..found.cells[0].cell.spec() };
    spec.policy_settings.insert("model".into(), out.to_str().unwrap().into());
    assert!(execute(&spec).unwrap().remark.unwrap().contains("untrained rule"));
}

#[test]
fn what_cannot_be_trained_is_refused_before_the_first_run() {
    let wrong = [
        (Plan { workloads: Vec::new(), ..plan() }, "no workload"),
        (Plan { local_shares: Vec::new(), ..plan() }, "no local limit"),
        (Plan { contention: Vec::new(), ..plan() }, "no share"),
        (Plan { local_shares: vec![1.0], ..plan() }, "local limit"),
        (Plan { local_shares: vec![f64::NAN], ..plan() }, "local limit"),
        (Plan { contention: vec![1.0], ..plan() }, "contention"),
        (Plan { episodes: 0, ..plan() }, "0 episodes"),
        (Plan { trials: Some(0), ..plan() }, "no trials"),
        (Plan { workloads: trained_on(["nonsense"], 1), ..plan() }, "'nonsense'"),
        (Plan { workloads: trained_on(["trace"], 1), ..plan() }, "a trace"),
        (Plan { platform: "abacus".into(), ..plan() }, "'abacus'"),
    ];
    for (plan, told) in wrong {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("model");
        let error = train(&plan, &out, 1, &|_| panic!("a run was made")).unwrap_err().to_string();
        assert!(error.contains(told) && !error.contains('\n'), "{error}");
        assert!(!out.exists() && !kept_at(&out).exists(), "{error}");
    }
    let error = train(&plan(), Path::new("/nowhere/model"), 1, &|_| {}).unwrap_err().to_string();
    assert!(error.contains("/nowhere/model.part"), "{error}");
}

#[test]
fn what_is_no_outcome_is_refused_by_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("model");
    fs::write(kept_at(&out), "{\"run\": 1}\n").unwrap();
    let error = train(&plan(), &out, 1, &|_| {}).unwrap_err().to_string();
    assert!(error.contains("line 1") && error.contains("remove the file"), "{error}");
}

#[test]
fn no_cell_of_the_standard_training_is_one_of_a_figure() {
    for cell in Plan::standard(1).cells() {
        let spec = cell.spec();
        assert!(spec.seed > 1000, "{spec:?}");
        let own: Vec<_> = spec.workload_settings.keys().filter(|key| *key != "tasks").collect();
        assert!(!own.is_empty(), "{spec:?}");
    }
}

/// The shipped model knows what it was trained on, and does not pretend to know the rest.
#[test]
fn the_shipped_model_answers_its_training_and_nothing_else() {
    let mut model = Model::shipped().unwrap();
    let page = 64 << 10;
    let context = |limit: u64, far: u64, traffic_bytes_per_s: f64| Context {
        local_limit_bytes: limit * page,
        local_peak_bytes: limit * page,
        far_peak_bytes: far * page,
        traffic_bytes_per_s,
        available_bytes_per_s: 1e10,
    };
    let known = model.contexts().iter().any(|[limit, ..]| *limit < 0.15);
    assert!(known, "{:?}", model.contexts());
    assert!(matches!(model.advise(&context(1, 999, 0.0)), Advice::Unknown { .. }));
}
