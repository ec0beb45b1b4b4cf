use super::*;
use crate::spillway_fetch::LEAST_FRAMES;
use crate::testing::TestMachine;
use proptest::prelude::*;

const PERIOD_NS: u64 = 1_000_000;
const PAGES: u32 = 64;

fn spillway(local: u32) -> (Spillway, TestMachine) {
    let config = Config { period_us: PERIOD_NS / 1000, ..Config::default() };
    let mut policy = Spillway::build(config, 1, &Knowledge::default());
    let mut machine = TestMachine::new(PAGES, local);
    policy.start(&mut machine);
    machine.touch(&mut policy, 0..PAGES);
    (policy, machine)
}

/// Intervals in each of which these pages are used, so many accesses of each counted.
fn use_pages(
    policy: &mut Spillway,
    machine: &mut TestMachine,
    pages: std::ops::Range<u32>,
    accesses: u64,
    intervals: u32,
) {
    for _ in 0..intervals {
        let mut window = CounterWindow::default();
        for page in pages.clone() {
            machine.run(policy, page);
            match machine.tier_of(page) {
                Some(Tier::Local) => window.local_accesses += accesses,
                _ => window.far_accesses += accesses,
            }
        }
        policy.on_counters(window, machine);
        machine.pass_ns(policy, PERIOD_NS);
    }
}

fn local_of(machine: &TestMachine, pages: std::ops::Range<u32>) -> usize {
    pages.filter(|&page| machine.tier_of(page) == Some(Tier::Local)).count()
}

#[test]
fn pages_come_that_save_more_than_they_cost() {
    let (mut policy, mut machine) = spillway(16);
    use_pages(&mut policy, &mut machine, 40..52, 100, 20);
    assert_eq!(local_of(&machine, 40..52), 12);
    assert_eq!(machine.pages_in(Tier::Local).len(), 16);
}

#[test]
fn nothing_moves_that_saves_less_than_it_costs() {
    let (mut policy, mut machine) = spillway(16);
    policy.config.move_ns = 1e9;
    use_pages(&mut policy, &mut machine, 40..52, 100, 20);
    assert!(machine.moves.is_empty());
}

#[test]
fn while_far_memory_takes_no_longer_nothing_moves() {
    let (mut policy, mut machine) = spillway(16);
    machine.link.delta_latency_ns = 0.0;
    use_pages(&mut policy, &mut machine, 40..52, 100, 20);
    assert!(machine.moves.is_empty());
}

#[test]
fn where_all_pages_are_used_alike_none_is_exchanged() {
    let (mut policy, mut machine) = spillway(16);
    policy.config.fetches_pages = false;
    use_pages(&mut policy, &mut machine, 0..PAGES, 100, 20);
    assert!(machine.moves.is_empty(), "{:?}", machine.moves);
}

#[test]
fn another_hot_set_takes_the_place_of_the_one_before() {
    let (mut policy, mut machine) = spillway(16);
    use_pages(&mut policy, &mut machine, 40..52, 100, 20);
    use_pages(&mut policy, &mut machine, 20..32, 100, 20);
    assert_eq!(local_of(&machine, 20..32), 12);
}

#[test]
fn a_page_that_comes_back_soon_again_and_again_is_left_alone() {
    let (mut policy, mut machine) = spillway(16);
    use_pages(&mut policy, &mut machine, 40..52, 100, 20);
    let page = 40;
    for _ in 0..3 {
        policy.interval += 1;
        policy.move_page(&mut machine, page, Tier::Far);
        policy.move_page(&mut machine, page, Tier::Local);
    }
    assert_eq!(policy.past[page as usize].returns, 3);
    policy.move_page(&mut machine, page, Tier::Far);
    policy.interval += PING_PONG_INTERVALS + 1;
    policy.move_page(&mut machine, page, Tier::Local);
    assert_eq!(policy.past[page as usize].returns, 1, "after a while it is believed again");
}

#[test]
fn where_nothing_is_worth_a_move_scans_come_less_often_until_the_program_changes() {
    let (mut policy, mut machine) = spillway(16);
    use_pages(&mut policy, &mut machine, 0..12, 100, 20);
    assert!(policy.period_ns >= 4 * PERIOD_NS, "{}", policy.period_ns);
    let comes_often_again = (0..20).any(|_| {
        use_pages(&mut policy, &mut machine, 30..60, 100, 1);
        policy.period_ns == PERIOD_NS
    });
    assert!(comes_often_again);
}

#[test]
fn forecasts_that_do_not_come_true_are_believed_the_less() {
    let (mut policy, _) = spillway(16);
    let pages = |pages: std::ops::Range<u32>, uses| pages.map(|page| Foretold { uses, page }).collect();
    (policy.promoted, policy.demoted) = (pages(0..8, 1.0), Vec::new());
    policy.used[..8].fill(true);
    policy.note_exchanged();
    assert!(policy.proof.trust() > 0.99, "all came true: {}", policy.proof.trust());
    (policy.promoted, policy.demoted) = (pages(0..8, 1.0), pages(8..16, 0.1));
    policy.used[..16].fill(true);
    policy.note_exchanged();
    assert!(policy.proof.trust() < 0.8, "what left is used as well: {}", policy.proof.trust());
}

/// Goes through all pages, again and again, with so many accesses of each, for so many intervals. A far
/// access takes half a microsecond longer. How many accesses were far in the last quarter, as a share.
fn go_round(policy: &mut Spillway, machine: &mut TestMachine, accesses: u64, intervals: u64) -> f64 {
    let end_ns = machine.now_ns + intervals * PERIOD_NS;
    let last_ns = end_ns - intervals * PERIOD_NS / 4;
    let (mut window, mut counted_ns, mut late) = (CounterWindow::default(), machine.now_ns, [0; 2]);
    // Neighbours lie apart, so that each interval meets as many pages that were local first.
    for page in (0..PAGES).cycle().map(|at| at * 29 % PAGES) {
        machine.run(policy, page);
        let is_far = machine.tier_of(page) == Some(Tier::Far);
        machine.pass_ns(policy, 2000 + accesses * if is_far { 550 } else { 50 });
        *(if is_far { &mut window.far_accesses } else { &mut window.local_accesses }) += accesses;
        late[usize::from(is_far)] += if machine.now_ns > last_ns { accesses } else { 0 };
        if machine.now_ns >= counted_ns + PERIOD_NS / 4 {
            counted_ns = machine.now_ns;
            policy.on_counters(std::mem::take(&mut window), machine);
        }
        if machine.now_ns >= end_ns {
            break;
        }
    }
    late[1] as f64 / (late[0] + late[1]) as f64
}

#[test]
fn pages_that_are_gone_through_are_fetched() {
    let (mut policy, mut machine) = spillway(16);
    let far = go_round(&mut policy, &mut machine, 64, 200);
    assert!(policy.fetching.is_on() && machine.page_fetch && far < 0.5, "{far} of the accesses were far");
    let (mut policy, mut machine) = spillway(16);
    policy.config.fetches_pages = false;
    let far = go_round(&mut policy, &mut machine, 64, 200);
    assert!(far > 0.7 && !machine.page_fetch, "{far} of the accesses were far without it");
}

#[test]
fn pages_are_not_fetched_where_that_cannot_pay() {
    let (mut policy, mut machine) = spillway(16);
    policy.config.fault_ns = 1e9;
    go_round(&mut policy, &mut machine, 4, 200);
    assert!(!policy.fetching.is_on() && !machine.page_fetch);
}

#[test]
fn a_machine_on_which_far_pages_stay_in_reach_is_asked_once() {
    let (mut policy, mut machine) = spillway(16);
    machine.can_page_fetch = false;
    go_round(&mut policy, &mut machine, 64, 200);
    assert!(!policy.fetching.is_on());
    machine.can_page_fetch = true;
    go_round(&mut policy, &mut machine, 64, 200);
    assert!(!policy.fetching.is_on());
}

/// A store of which one page in ten is hot, the one of this number, for so many milliseconds. Over a long
/// interval most other pages are in use, too. As in the rig, whose pages are more and in use as often; hot
/// ones come in turn, so that the share of local accesses is as steady as with so many.
fn serve_store(policy: &mut Spillway, machine: &mut TestMachine, ms: u64, hot: u32) {
    let mut random = 1_u64;
    let mut below = |limit: u32| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (((random >> 32) * u64::from(limit)) >> 32) as u32
    };
    let pages = machine.page_count();
    let end_ns = machine.now_ns + ms * 1_000_000;
    let (mut window, mut counted_ns) = (CounterWindow::default(), machine.now_ns);
    for at in 0.. {
        if machine.now_ns >= end_ns {
            return;
        }
        let turn = at - at / 10;
        let page = if at % 10 > 0 { turn * 37 % (pages / 10) * 10 + hot } else { below(pages) };
        machine.run(policy, page);
        let is_far = machine.tier_of(page) == Some(Tier::Far);
        *(if is_far { &mut window.far_accesses } else { &mut window.local_accesses }) += 2;
        machine.pass_ns(policy, if is_far { 6000 } else { 650 } * 8192 / u64::from(pages));
        if machine.now_ns >= counted_ns + 25_000_000 {
            counted_ns = machine.now_ns;
            policy.on_counters(std::mem::take(&mut window), machine);
        }
    }
}

#[test]
fn hot_pages_are_found_where_most_are_in_use_over_a_long_interval() {
    let config = Config { period_us: 25_000, longest_period_us: 400_000, ..Config::default() };
    let mut policy = Spillway::build(config, 1, &Knowledge::default());
    let mut machine = TestMachine::new(1000, 200);
    machine.link.delta_latency_ns = 680.0;
    // As live.
    (machine.can_page_fetch, machine.scans_by_itself) = (false, true);
    policy.start(&mut machine);
    machine.touch(&mut policy, 0..1000);
    // Nothing is counted while the store is filled.
    machine.pass_ns(&mut policy, 1_000_000_000);
    for hot in [3, 7] {
        serve_store(&mut policy, &mut machine, 2000, hot);
        let local = (0..100).filter(|at| machine.tier_of(at * 10 + hot) == Some(Tier::Local)).count();
        assert!(local > 90, "{local} of 100 are local where page {hot} of ten is hot");
    }
}

#[test]
fn a_tick_without_a_scan_in_between_teaches_nothing() {
    let (mut policy, mut machine) = spillway(16);
    policy.config.fetches_pages = false;
    use_pages(&mut policy, &mut machine, 40..52, 100, 20);
    let Some(mut forecast) = policy.forecast.take() else { panic!("it has started") };
    let known = |forecast: &Forecast, policy: &Spillway| {
        let uses: Vec<f64> = (0..PAGES).map(|page| forecast.uses(page)).collect();
        (uses, forecast.lasts_ns(), policy.period_ns, policy.window.far_accesses)
    };
    policy.window.far_accesses = 7;
    let before = known(&forecast, &policy);
    // A machine that has no page to tell of.
    let mut silent = TestMachine::new(PAGES, 16);
    (0..10).for_each(|_| policy.tick(&mut silent, &mut forecast));
    assert_eq!(known(&forecast, &policy), before);
}

proptest! {
    /// Local memory is never overdrawn, and each page lies in one tier.
    #[test]
    fn capacity_is_kept_and_no_page_is_lost(
        local in 1_u32..PAGES, runs in proptest::collection::vec((0_u32..PAGES, 1_u32..20), 1..40),
    ) {
        let (mut policy, mut machine) = spillway(local);
        for (first, pages) in runs {
            use_pages(&mut policy, &mut machine, first..(first + pages).min(PAGES), 50, 1);
            let (near, far) = (machine.pages_in(Tier::Local), machine.pages_in(Tier::Far));
            prop_assert!(near.len() as u32 <= local);
            prop_assert_eq!(near.len() + far.len(), PAGES as usize);
        }
    }
    /// Sides are changed at any time: local memory is never overdrawn, no page is lost, and while pages are
    /// fetched each is local when it is used.
    #[test]
    fn pages_are_kept_whenever_sides_are_changed(
        local in LEAST_FRAMES..PAGES,
        runs in proptest::collection::vec((0_u32..PAGES, 1_u32..20, any::<bool>()), 1..40),
    ) {
        let (mut policy, mut machine) = spillway(local);
        for (first, pages, changes) in runs {
            if changes {
                policy.change_sides(&mut machine);
                prop_assert_eq!(policy.fetching.is_on(), machine.page_fetch);
            }
            for page in first..(first + pages).min(PAGES) {
                machine.run(&mut policy, page);
                prop_assert!(!machine.page_fetch || machine.tier_of(page) == Some(Tier::Local));
            }
            machine.pass_ns(&mut policy, PERIOD_NS);
            let (near, far) = (machine.pages_in(Tier::Local), machine.pages_in(Tier::Far));
            prop_assert!(near.len() as u32 <= local);
            prop_assert_eq!(near.len() + far.len(), PAGES as usize);
        }
    }
}
