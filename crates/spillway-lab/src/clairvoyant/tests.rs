//! The bound against an exact solver on small cases, and against the simulator.

use microlp::{ComparisonOp, OptimizationDirection, SolveOutcome};
use proptest::prelude::*;
use spillway_policy::registry;

use super::path::Paths;
use super::prices::relaxed;
use super::problem::{Life, Problem, Use};
use super::schedule::{Chosen, choose};
use super::*;
use crate::run::{LocalSize, execute};

/// The least cost, by a linear program over all pages and epochs. It is a flow, so its best is a whole
/// choice.
fn exact_ns(problem: &Problem) -> f64 {
    let mut program = microlp::Problem::new(OptimizationDirection::Minimize);
    let mut in_epoch = vec![Vec::new(); problem.epochs as usize];
    for life in &problem.lives {
        let far_ns = |epoch| {
            let uses = problem.uses_of(life).iter().filter(|used| used.epoch == epoch);
            uses.map(|used| f64::from(used.far_ns)).sum::<f64>()
        };
        let local: Vec<_> =
            (life.first..life.end).map(|epoch| program.add_var(-far_ns(epoch), (0.0, 1.0))).collect();
        for (epoch, &is_local) in (life.first..).zip(&local) {
            in_epoch[epoch as usize].push((is_local, 1.0));
        }
        for pair in local.windows(2) {
            let comes = program.add_var(problem.in_ns, (0.0, 1.0));
            let goes = program.add_var(problem.out_ns, (0.0, 1.0));
            let change = [(pair[1], 1.0), (pair[0], -1.0), (comes, -1.0), (goes, 1.0)];
            program.add_constraint(change, ComparisonOp::Eq, 0.0);
        }
    }
    for frames in in_epoch.into_iter().filter(|frames| !frames.is_empty()) {
        program.add_constraint(frames, ComparisonOp::Le, f64::from(problem.capacity));
    }
    let SolveOutcome::Solution(solution) = program.solve().unwrap() else { panic!("no limit was set") };
    problem.all_far_ns() + solution.objective()
}

fn problem(
    epochs: u32,
    capacity: u32,
    moves: (u16, u16),
    lives: Vec<(u32, u32, Vec<Option<u16>>)>,
) -> Problem {
    let (in_ns, out_ns) = (f64::from(moves.0), f64::from(moves.1));
    let mut problem = Problem { epochs, capacity, in_ns, out_ns, lives: Vec::new(), uses: Vec::new() };
    for (one, other, costs) in lives {
        let (first, end) = (one.min(other) % epochs, one.max(other) % epochs + 1);
        let (first, end) = (first.min(end - 1), end);
        let from = problem.uses.len();
        for (epoch, cost) in (first..end).zip(costs) {
            problem.uses.extend(cost.map(|cost| Use { epoch, far_ns: f32::from(cost) }));
        }
        if problem.uses.len() > from {
            problem.lives.push(Life { first, end, uses: from..problem.uses.len() });
        }
    }
    problem
}

fn problems() -> impl Strategy<Value = Problem> {
    let cost = prop::option::weighted(0.7, 0_u16..50);
    let life = (0_u32..8, 0_u32..8, prop::collection::vec(cost, 8));
    (1_u32..8, 0_u32..4, (0_u16..40, 0_u16..40), prop::collection::vec(life, 1..8))
        .prop_map(|(epochs, capacity, moves, lives)| problem(epochs, capacity, moves, lives))
}

/// What a choice costs, worked out from nothing but where pages are local.
fn cost_of(problem: &Problem, chosen: &[Chosen]) -> f64 {
    let mut cost_ns = 0.0;
    for (life, (_, stays)) in problem.lives.iter().zip(chosen) {
        let is_local = |epoch| stays.iter().any(|stay| stay.contains(&epoch));
        let far = problem.uses_of(life).iter().filter(|used| !is_local(used.epoch));
        cost_ns += far.map(|used| f64::from(used.far_ns)).sum::<f64>();
        for epoch in life.first + 1..life.end {
            match (is_local(epoch - 1), is_local(epoch)) {
                (false, true) => cost_ns += problem.in_ns,
                (true, false) => cost_ns += problem.out_ns,
                _ => {}
            }
        }
    }
    cost_ns
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn the_bound_is_below_the_best_choice_and_near_it_and_the_choice_found_is_above(problem in problems()) {
        let (found, exact) = (bound(&problem), exact_ns(&problem));
        prop_assert!(found.lower_ns <= exact + 1e-6, "{} is above {exact}", found.lower_ns);
        prop_assert!(found.schedule.cost_ns >= exact - 1e-6, "{} is below {exact}", found.schedule.cost_ns);
        prop_assert!(found.lower_ns >= exact * 0.9 - 1e-6, "{} is far below {exact}", found.lower_ns);
    }

    #[test]
    fn any_prices_give_a_bound_and_a_choice_that_keeps_to_the_capacity(
        problem in problems(),
        prices in prop::collection::vec(0.0_f64..60.0, 8),
    ) {
        let prices = &prices[..problem.epochs as usize];
        let exact = exact_ns(&problem);
        let (value, excess) = relaxed(&problem, prices, &mut Paths::default());
        prop_assert!(value <= exact + 1e-6, "{value} is above {exact}");
        prop_assert_eq!(excess.len(), prices.len());
        let chosen = choose(&problem, prices);
        for epoch in 0..problem.epochs {
            let stays = chosen.iter().filter(|(_, stays)| stays.iter().any(|stay| stay.contains(&epoch)));
            prop_assert!(stays.count() <= problem.capacity as usize, "epoch {epoch}");
        }
        for (life, (_, stays)) in problem.lives.iter().zip(&chosen) {
            prop_assert!(stays.iter().all(|stay| life.first <= stay.start && stay.end <= life.end));
        }
        let told: f64 = chosen.iter().map(|(cost, _)| cost.own_ns).sum();
        let cost = cost_of(&problem, &chosen);
        prop_assert!((told - cost).abs() < 1e-6, "{told} is told, {cost} it is");
        prop_assert!(cost >= exact - 1e-6, "{cost} is below {exact}");
    }

    #[test]
    fn more_frames_and_cheaper_moves_cost_no_more(problem in problems()) {
        let exact = |change: fn(&mut Problem)| {
            let mut changed = problem.clone();
            change(&mut changed);
            bound(&changed)
        };
        let found = bound(&problem);
        prop_assert!(exact(|problem| problem.capacity += 1).lower_ns <= found.schedule.cost_ns + 1e-6);
        prop_assert!(exact(|problem| problem.in_ns = 0.0).lower_ns <= found.schedule.cost_ns + 1e-6);
        let without = exact(|problem| problem.capacity = 0);
        prop_assert!((without.schedule.cost_ns - problem.all_far_ns()).abs() < 1e-6);
        prop_assert!(without.lower_ns >= problem.all_far_ns() * 0.9 - 1e-6);
        let all = exact(|problem| problem.capacity = 8);
        prop_assert_eq!((all.lower_ns, all.schedule.cost_ns, all.schedule.moves), (0.0, 0.0, 0));
    }
}

/// Moves that cost nothing are not made where a page may as well stay.
#[test]
fn of_two_ways_that_cost_the_same_the_one_with_fewer_moves_is_taken() {
    let uses = vec![Use { epoch: 1, far_ns: 1.0 }, Use { epoch: 2, far_ns: 0.0 }];
    let lives = vec![Life { first: 1, end: 3, uses: 0..2 }];
    let found = bound(&Problem { epochs: 4, capacity: 1, in_ns: 0.0, out_ns: 0.0, lives, uses });
    assert_eq!((found.lower_ns, found.schedule.cost_ns, found.schedule.moves), (0.0, 0.0, 0));
}

fn spec(workload: &str, policy: &str, share: f64) -> RunSpec {
    let local = LocalSize::Share(share);
    RunSpec { workload: workload.into(), policy: policy.into(), bytes: 4 << 20, local, ..RunSpec::default() }
}

#[test]
fn no_policy_that_moves_base_pages_beats_it() {
    for workload in ["memcached-etc", "ligra-bfs"] {
        for share in [0.2, 0.5] {
            let bound = clairvoyant(&spec(workload, CLAIRVOYANT, share)).unwrap();
            assert!(bound.gap < 0.05, "{workload}: {}", bound.gap);
            assert!(bound.all_local_s < bound.run_s && bound.run_s <= bound.schedule_run_s, "{bound:?}");
            for policy in ["hotbox", "indigo", "tpp", "nimble-base", "memtis", "oracle", "multi-clock"] {
                if registry::find(policy).unwrap().needs.huge_mappings {
                    continue;
                }
                let run_s = execute(&spec(workload, policy, share)).unwrap().run_s;
                assert!(run_s > bound.run_s, "{workload} {share} {policy}: {run_s} below {}", bound.run_s);
            }
        }
    }
}

#[test]
fn with_all_local_it_is_the_time_of_all_local_and_wrong_settings_are_told() {
    let bound = clairvoyant(&spec("uniform-kv", CLAIRVOYANT, 1.0)).unwrap();
    assert_eq!((bound.run_s, bound.least_cost_s, bound.moves), (bound.all_local_s, 0.0, 0));
    for (key, value) in [("epochs", 0), ("speed", 1)] {
        let mut wrong = spec("uniform-kv", CLAIRVOYANT, 1.0);
        wrong.policy_settings.insert(key.into(), value.into());
        let error = clairvoyant(&wrong).unwrap_err().to_string();
        assert!(error.contains(key) && error.contains("epochs = 256"), "{error}");
    }
}
