//! INDIGO, told what happens on a machine of a few pages.

use std::sync::{Arc, Mutex};

use super::*;
use crate::indigo_context::{Action, Context};
use crate::testing::TestMachine;
use spillway_core::page::PAGE_BYTES;

const PERIOD_NS: u64 = 1_000_000_000;

fn indigo(config: Config, local: u32) -> (Indigo, TestMachine) {
    let mut policy = Indigo::build(config, 1, &Knowledge::default());
    let mut machine = TestMachine::new(16, 0);
    policy.start(&mut machine);
    machine.touch(&mut policy, 0..16);
    machine.local_capacity = local;
    (policy, machine)
}

/// How long a page's burst has lasted, in nanoseconds.
fn burst_of(policy: &Indigo, page: PageIndex) -> u64 {
    policy.telemetry.burst_ns(page)
}

#[test]
fn the_rate_is_one_by_the_time_from_mark_to_access() {
    let (mut policy, mut machine) = indigo(Config::default(), 4);
    machine.pass_ns(&mut policy, PERIOD_NS);
    assert!(machine.marked.iter().all(|&marked| marked));
    machine.pass_ns(&mut policy, PERIOD_NS / 4);
    let rate_hz = policy.measure(3, &machine);
    assert!((rate_hz - 4.0).abs() < 0.05, "{rate_hz}");
}

/// Where the kernel marks at times of its own, the time to the access begins then.
#[test]
fn a_mark_that_took_effect_later_counts_from_then() {
    let (mut policy, mut machine) = indigo(Config::default(), 4);
    machine.pass_ns(&mut policy, PERIOD_NS);
    machine.marked_from_ns = Some(machine.now_ns + PERIOD_NS / 2);
    machine.pass_ns(&mut policy, PERIOD_NS * 3 / 4);
    let rate_hz = policy.measure(3, &machine);
    assert!((rate_hz - 4.0).abs() < 0.05, "{rate_hz}");
}

/// The counter of ticks wraps after 73 minutes; rates and bursts go on over it.
#[test]
fn hours_of_running_change_no_rate() {
    let wrap_ns = TICK_NS << 32;
    let (mut policy, mut machine) = indigo(Config { rule: Rule::Thresholds, ..Config::default() }, 4);
    machine.now_ns = wrap_ns - 3 * PERIOD_NS / 2;
    for round in 0..4 {
        machine.pass_ns(&mut policy, PERIOD_NS / 2);
        let (rate_hz, burst_ns) = (policy.measure(3, &machine), burst_of(&policy, 3));
        machine.marked[3] = false;
        if round > 0 {
            assert!((rate_hz - 2.0).abs() < 0.05, "{rate_hz} in round {round}");
            assert!(burst_ns + PERIOD_NS / 10 >= (round - 1) * PERIOD_NS, "{burst_ns} in round {round}");
        }
        machine.pass_ns(&mut policy, PERIOD_NS / 2);
    }
    assert!(machine.now_ns > wrap_ns);
}

#[test]
fn a_page_that_was_not_accessed_keeps_its_mark_and_its_time() {
    let (mut policy, mut machine) = indigo(Config::default(), 4);
    machine.pass_ns(&mut policy, 3 * PERIOD_NS + PERIOD_NS / 2);
    let rate_hz = policy.measure(3, &machine);
    assert!((rate_hz - 0.4).abs() < 0.01, "{rate_hz}");
}

#[test]
fn close_rates_at_adjacent_marks_make_a_burst_and_others_end_it() {
    let config = Config { closeness_hz: 3.0, ..Config::default() };
    let (mut policy, mut machine) = indigo(config, 0);
    let mut bursts = Vec::new();
    machine.pass_ns(&mut policy, PERIOD_NS);
    for wait_ms in [100, 110, 90, 800, 790] {
        machine.pass_ns(&mut policy, wait_ms * 1_000_000);
        machine.run(&mut policy, 3);
        bursts.push(burst_of(&policy, 3));
        machine.pass_ns(&mut policy, PERIOD_NS - wait_ms * 1_000_000);
    }
    let rounds: Vec<_> = bursts.iter().map(|burst| (burst + PERIOD_NS / 2) / PERIOD_NS).collect();
    assert_eq!(rounds, [0, 1, 2, 0, 1]);
    assert_eq!(bursts[0], 0, "one measurement is no burst");
    machine.pass_ns(&mut policy, 3 * PERIOD_NS);
    machine.run(&mut policy, 3);
    machine.pass_ns(&mut policy, PERIOD_NS);
    assert_eq!(burst_of(&policy, 3), 0, "the mark before was too long ago");
}

#[test]
fn fixed_thresholds_ask_for_burst_and_rate() {
    for (burst_threshold_us, rate_threshold_hz, comes) in
        [(1_500_000, 5.0, true), (10_000_000, 5.0, false), (1_500_000, 50.0, false)]
    {
        let config =
            Config { rule: Rule::Thresholds, burst_threshold_us, rate_threshold_hz, ..Config::default() };
        let (mut policy, mut machine) = indigo(config, 8);
        machine.pass_ns(&mut policy, PERIOD_NS);
        for _ in 0..4 {
            machine.pass_ns(&mut policy, PERIOD_NS / 10);
            machine.run(&mut policy, 3);
            machine.pass_ns(&mut policy, PERIOD_NS * 9 / 10);
        }
        assert_eq!(
            machine.tier_of(3) == Some(Tier::Local),
            comes,
            "{burst_threshold_us} {rate_threshold_hz}"
        );
    }
}

/// Equation 1: the same page pays on a free network, and does not on a contended one, on a near one, or
/// where the page that would go is accessed as often.
#[test]
fn the_network_rule_weighs_saving_against_transfer() {
    let comes = |bytes_per_s: f64, delta_ns: f64, demoted_hz: f64| {
        let (mut policy, mut machine) = indigo(Config { benefit_pages: 1.0, ..Config::default() }, 8);
        policy.demoted_hz = demoted_hz;
        machine.link.available_bytes_per_s = bytes_per_s;
        machine.link.delta_latency_ns = delta_ns;
        machine.pass_ns(&mut policy, PERIOD_NS);
        machine.pass_ns(&mut policy, PERIOD_NS / 10);
        machine.run(&mut policy, 3);
        machine.tier_of(3) == Some(Tier::Local)
    };
    // 10 accesses a second save 10 us, in which 4 KiB pass at 0.43 GB/s.
    assert!(comes(0.43e9, 1000.0, 0.0));
    assert!(!comes(0.2e9, 1000.0, 0.0));
    assert!(!comes(0.43e9, 100.0, 0.0));
    assert!(!comes(0.43e9, 1000.0, 9.0));
}

/// One access soon after a mark may be chance; several in a row seldom are.
#[test]
fn a_promotion_must_pay_at_as_many_marks_in_a_row_as_are_asked_for() {
    for (marks_in_a_row, waits_ms, comes) in [
        (1, [900, 900, 10], true),
        (2, [900, 900, 10], false),
        (2, [10, 900, 10], false),
        (2, [900, 10, 10], true),
        (3, [900, 10, 10], false),
        (3, [10, 10, 10], true),
    ] {
        let config = Config { benefit_pages: 1.0, marks_in_a_row, ..Config::default() };
        let (mut policy, mut machine) = indigo(config, 8);
        machine.link.available_bytes_per_s = 0.43e9;
        machine.link.delta_latency_ns = 1000.0;
        machine.pass_ns(&mut policy, PERIOD_NS);
        for wait_ms in waits_ms {
            assert_eq!(machine.tier_of(3), Some(Tier::Far), "{marks_in_a_row} {waits_ms:?}");
            machine.pass_ns(&mut policy, wait_ms * 1_000_000);
            machine.run(&mut policy, 3);
            machine.pass_ns(&mut policy, PERIOD_NS - wait_ms * 1_000_000);
        }
        assert_eq!(machine.tier_of(3) == Some(Tier::Local), comes, "{marks_in_a_row} {waits_ms:?}");
    }
}

/// A page that came for its many accesses and gets none any more is no reason to keep others out.
#[test]
fn a_page_whose_mark_waits_is_demoted_at_the_rate_that_it_has_now() {
    let (mut policy, mut machine) = indigo(Config { slack_bytes: PAGE_BYTES, ..Config::default() }, 4);
    machine.pass_ns(&mut policy, PERIOD_NS);
    machine.pass_ns(&mut policy, PERIOD_NS / 1000);
    machine.run(&mut policy, 3);
    assert_eq!(machine.tier_of(3), Some(Tier::Local));
    assert!((policy.rate_now(&machine, 3) - 1000.0).abs() < 10.0, "measured, and not marked again");
    machine.pass_ns(&mut policy, 10 * PERIOD_NS);
    let rate_hz = policy.rate_now(&machine, 3);
    assert!((rate_hz - 0.11).abs() < 0.01, "marked again 9 s ago: {rate_hz}");
}

#[test]
fn promotion_stops_at_the_low_watermark_and_demotion_keeps_the_high_one() {
    let config =
        Config { slack_bytes: 2 * PAGE_BYTES, low_share: 0.01, inactive_share: 1.0, ..Config::default() };
    let (mut policy, mut machine) = indigo(config, 8);
    machine.pass_ns(&mut policy, PERIOD_NS);
    for page in 0..8 {
        machine.run(&mut policy, page);
    }
    assert_eq!(machine.free_pages(Tier::Local), 1, "the low watermark");
    machine.always_accessed = true;
    machine.pass_ns(&mut policy, 10);
    assert_eq!(machine.free_pages(Tier::Local), 1, "all are in use");
    machine.always_accessed = false;
    policy.wake_demotion(&mut machine);
    machine.pass_ns(&mut policy, 10);
    assert_eq!(machine.free_pages(Tier::Local), 3);
}

#[test]
fn the_slack_is_a_few_pages_where_its_bytes_are_less_than_one() {
    for (local_pages, slack_bytes, expected) in
        [(8, 1, 1), (100, 1, 2), (1000, 1, 4), (1000, 10 * PAGE_BYTES, 10)]
    {
        let config = Config { slack_bytes, low_share: 0.001, ..Config::default() };
        let (policy, machine) =
            (Indigo::build(config, 1, &Knowledge::default()), TestMachine::new(8, local_pages));
        assert_eq!(
            policy.high_pages(&machine) - policy.low_pages(&machine),
            expected,
            "{local_pages} {slack_bytes}"
        );
    }
}

/// An advisor that says one thing and notes what it is told.
struct Told(Advice, Arc<Mutex<Vec<Context>>>);

impl Advisor for Told {
    fn advise(&mut self, context: &Context) -> Advice {
        self.1.lock().unwrap().push(*context);
        self.0
    }
}

/// INDIGO with an advisor that is asked after two intervals, on a machine of which 8 of 16 pages are local.
fn advised(advice: Advice) -> (Indigo, TestMachine, Arc<Mutex<Vec<Context>>>) {
    let contexts = Arc::default();
    let config = Config { benefit_pages: 1e-6, ..Config::default() };
    let advisor = Told(advice, Arc::clone(&contexts));
    let deltas = Deltas { closeness_per_interval: 1.0, adjacent_intervals: 1.5 };
    let mut policy = Indigo::advised(config, deltas, 2, Box::new(advisor));
    let mut machine = TestMachine::new(16, 8);
    machine.link.available_bytes_per_s = 3e9;
    policy.start(&mut machine);
    machine.touch(&mut policy, 0..16);
    machine.local_capacity = 12;
    machine.pass_ns(&mut policy, 2 * PERIOD_NS);
    machine.link.traffic_bytes = 2_000_000_000;
    (policy, machine, contexts)
}

#[test]
fn an_advisor_is_told_the_context_and_obeyed() {
    let strict = Action { burst_intervals: 0.0, accesses_per_interval: 1e12 };
    let (mut policy, mut machine, contexts) = advised(Advice::Thresholds(strict));
    assert!(policy.remark().unwrap().contains("observes"));
    machine.run(&mut policy, 15);
    assert_eq!(machine.tier_of(15), Some(Tier::Local), "by the untrained rule");
    machine.moves.clear();
    machine.pass_ns(&mut policy, PERIOD_NS);
    let told = contexts.lock().unwrap()[0];
    assert_eq!(told.local_limit_bytes, 12 * PAGE_BYTES);
    assert!((1..=9).contains(&(told.local_peak_bytes / PAGE_BYTES)), "{told:?}");
    assert!((8..=15).contains(&(told.far_peak_bytes / PAGE_BYTES)), "{told:?}");
    assert_eq!((told.traffic_bytes_per_s, told.available_bytes_per_s), (1e9, 3e9));
    let remark = policy.remark().unwrap();
    assert!(remark.contains("agent") && remark.len() < 60, "{remark}");
    machine.pass_ns(&mut policy, PERIOD_NS / 100);
    machine.run(&mut policy, 14);
    assert!(machine.moves.iter().all(|(_, to)| *to == Tier::Far), "{:?}", machine.moves);
    machine.local_capacity = 20;
    machine.pass_ns(&mut policy, PERIOD_NS);
    assert!(policy.remark().unwrap().contains("observes"), "another limit is another context");
    machine.pass_ns(&mut policy, 3 * PERIOD_NS);
    assert_eq!(contexts.lock().unwrap().len(), 2);
}

#[test]
fn in_an_unknown_context_the_untrained_rule_goes_on_and_says_so() {
    let (mut policy, mut machine, contexts) = advised(Advice::Unknown { distance: 0.5 });
    machine.pass_ns(&mut policy, PERIOD_NS);
    assert_eq!(contexts.lock().unwrap().len(), 1);
    let remark = policy.remark().unwrap();
    assert!(remark.contains("untrained rule: unlike") && remark.len() < 60, "{remark}");
    machine.run(&mut policy, 14);
    assert_eq!(machine.tier_of(14), Some(Tier::Local));
    assert_eq!(Indigo::build(Config::default(), 1, &Knowledge::default()).remark(), None);
}

#[test]
fn a_model_brings_its_clustering_and_one_that_cannot_be_used_is_refused_in_one_line() {
    let deltas = Model::shipped().unwrap().card().deltas;
    let build = |model: &str| {
        let config =
            Config { model: model.into(), marking_period_us: 1000, closeness_hz: 1e-3, ..Config::default() };
        Indigo::try_build(config, 1, &Knowledge::default())
    };
    let closeness = build(SHIPPED).ok().unwrap().closeness;
    assert!((closeness.rate_hz / (deltas.closeness_per_interval * 1e3) - 1.0).abs() < 1e-9);
    assert_eq!(closeness.ticks, (deltas.adjacent_intervals * 1e6 / TICK_NS as f64) as u32);
    assert_eq!(build("").ok().unwrap().closeness.rate_hz, 1e-3);
    let error = build("/nowhere/indigo.safetensors").err().unwrap();
    for told in ["'/nowhere/indigo.safetensors'", "cannot be read", "spillway lab train"] {
        assert!(error.contains(told) && !error.contains('\n'), "{error}");
    }
    let error = build("/dev/null").err().unwrap();
    assert!(error.contains("safetensors file"), "{error}");
}
