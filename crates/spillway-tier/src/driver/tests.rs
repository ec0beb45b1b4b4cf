use super::*;
use crate::fake_kernel::{EVERYWHERE, FakeKernel, tier_of_frame};
use crate::testing::machine;
use rustix::io::Errno;
use spillway_core::page::PAGE_BYTES;
use spillway_policy::entry::PolicySettings;
use spillway_policy::knowledge::Knowledge;
use spillway_policy::registry;
use spillway_sys::mark_events::Marked;

const PROCESS: u32 = 7;
const PERIOD_NS: u64 = 1_000_000;

fn driver(kernel: &FakeKernel, policy: &'static str, settings: &str, pages: u32, local: u32) -> Driver {
    let settings: PolicySettings = serde_json::from_str(settings).unwrap();
    let build = move || registry::find(policy).unwrap().build(1.0, &settings, 1, &Knowledge::default()).ok();
    Driver::new(machine(kernel, pages, local), build().unwrap(), Box::new(build))
}

fn hotbox(kernel: &FakeKernel, local: u32) -> Driver {
    let settings = r#"{"scan_period_us": 1000, "low_share": 0.0, "high_share": 0.25, "throttle": false}"#;
    driver(kernel, "hotbox", settings, 512, local)
}

fn scan(driver: &mut Driver, kernel: &FakeKernel) {
    driver.scan(PROCESS, EVERYWHERE, &mut kernel.clone(), &tier_of_frame, 10_000).unwrap();
    driver.act(PROCESS);
}

/// The process accesses pages; a scan of the daemon and one of its own later the policy knows.
fn round(driver: &mut Driver, kernel: &FakeKernel, pages: &[u64]) {
    pages.iter().for_each(|&page| kernel.access(PROCESS, page * PAGE_BYTES, 0));
    scan(driver, kernel);
    driver.advance(driver.machine.now_ns() + PERIOD_NS);
}

#[test]
fn what_is_more_than_the_budget_goes_far_at_first_sight() {
    let kernel = FakeKernel::default();
    let mut driver = hotbox(&kernel, 4);
    round(&mut driver, &kernel, &[0, 1, 2, 3, 4, 5]);
    let nodes: Vec<_> = (0..6).map(|page| kernel.node_of(PROCESS, page * PAGE_BYTES).unwrap()).collect();
    assert_eq!(nodes.iter().filter(|&&node| node == 0).count(), 4, "{nodes:?}");
    assert_eq!(driver.machine.counts.placements, 2);
    assert_eq!(driver.machine.history.last_minute(0)[0].reason, Reason::Placement);
}

#[test]
fn a_page_that_stays_hot_comes_to_local_memory_when_it_is_accessed_again() {
    let kernel = FakeKernel::default();
    let mut driver = hotbox(&kernel, 8);
    (0..4).for_each(|page| kernel.access(PROCESS, page * PAGE_BYTES, 1));
    for _ in 0..3 {
        round(&mut driver, &kernel, &[2]);
    }
    assert_eq!(kernel.node_of(PROCESS, 2 * PAGE_BYTES), Some(1), "hot, and not accessed since it was marked");
    scan(&mut driver, &kernel);
    kernel.access(PROCESS, 2 * PAGE_BYTES, 1);
    scan(&mut driver, &kernel);
    assert_eq!(kernel.node_of(PROCESS, 2 * PAGE_BYTES), Some(0));
    assert_eq!(driver.machine.counts.hint_faults, 1);
    let moves = driver.machine.history.of(PROCESS, 2 * PAGE_BYTES);
    assert_eq!((moves.len(), moves[0].reason), (1, Reason::Accessed));
    assert!(
        (0..4).filter(|&page| page != 2).all(|page| kernel.node_of(PROCESS, page * PAGE_BYTES) == Some(1))
    );
}

#[test]
fn a_page_that_was_kept_back_is_tried_again_by_the_policy() {
    let kernel = FakeKernel::default();
    let mut driver = driver(&kernel, "hotbox", r#"{"low_share": 0.6, "high_share": 1.0}"#, 512, 4);
    kernel.state().refused.insert((PROCESS, 0), Errno::BUSY);
    round(&mut driver, &kernel, &[0, 1]);
    for new in 2..6 {
        round(&mut driver, &kernel, &[new]);
        scan(&mut driver, &kernel);
    }
    assert_eq!(kernel.node_of(PROCESS, PAGE_BYTES), Some(1), "evicted");
    assert_eq!(kernel.node_of(PROCESS, 0), Some(0), "pinned");
    let refused = driver.machine.counts.refused.of("pinned_or_busy");
    assert!((1..=2).contains(&refused), "{refused} attempts");
}

#[test]
fn a_process_that_ends_or_executes_another_program_takes_its_pages_along() {
    let kernel = FakeKernel::default();
    let mut driver = hotbox(&kernel, 8);
    round(&mut driver, &kernel, &[0, 1, 2]);
    kernel.state().pages.clear();
    kernel.access(PROCESS, 100 * PAGE_BYTES, 0);
    scan(&mut driver, &kernel);
    assert_eq!(driver.machine.pages.used(Tier::Local), 1, "another program");
    kernel.state().gone.insert(PROCESS);
    let gone = driver.scan(PROCESS, EVERYWHERE, &mut kernel.clone(), &tier_of_frame, 10_000);
    assert!(matches!(gone, Err(SourceError::Gone(PROCESS))));
    assert_eq!(driver.machine.pages.used(Tier::Local), 0);
    driver.advance(100 * PERIOD_NS);
}

#[test]
fn a_source_that_disappears_is_an_error_and_forgets_nothing() {
    let kernel = FakeKernel::default();
    let mut driver = hotbox(&kernel, 8);
    round(&mut driver, &kernel, &[0]);
    kernel.state().source_lost = true;
    let lost = driver.scan(PROCESS, EVERYWHERE, &mut kernel.clone(), &tier_of_frame, 10_000);
    assert!(matches!(lost, Err(SourceError::Lost { .. })));
    assert_eq!(driver.machine.pages.used(Tier::Local), 1);
}

#[test]
fn processes_that_outgrow_the_numbers_make_the_policy_begin_anew_with_more() {
    let kernel = FakeKernel::default();
    let mut driver = driver(&kernel, "hotbox", r#"{"low_share": 0.3, "high_share": 0.4}"#, 512, 2000);
    let pages: Vec<u64> = (0..1500).collect();
    for expected in [1024, 2048, 2048] {
        round(&mut driver, &kernel, &pages);
        driver.end_round();
        assert_eq!(driver.machine.page_count(), expected);
    }
    assert_eq!(driver.restarts(), 2);
    assert_eq!(driver.machine.pages.used(Tier::Local), 1500);
    // Its lists know the pages of before.
    for new in 5000..5003 {
        round(&mut driver, &kernel, &[new]);
        scan(&mut driver, &kernel);
    }
    assert!(driver.machine.counts.demotions > 0);
}

#[test]
fn every_policy_that_can_run_live_runs_a_while() {
    for entry in registry::entries() {
        if !crate::group::is_live(entry) {
            continue;
        }
        let kernel = FakeKernel::default();
        let mut driver = driver(&kernel, entry.name, "{}", 512, 300);
        for at in 0..400_u64 {
            let pages: Vec<u64> = (0..20).map(|page| (at * 7 + page * 13) % 1000).collect();
            pages.iter().for_each(|&page| kernel.access(PROCESS, page * PAGE_BYTES, 0));
            scan(&mut driver, &kernel);
            driver.advance(at * 20 * PERIOD_NS);
            driver.end_round();
            let local = driver.machine.pages.used(Tier::Local);
            assert!(local <= 300 || entry.unlimited, "{}: {local}", entry.name);
        }
        let local = kernel.state().pages.values().filter(|page| page.node == 0).count() as u32;
        assert_eq!(local, driver.machine.pages.used(Tier::Local), "{}", entry.name);
    }
}

/// Notes when it was told of which fault.
struct Recorder(std::sync::Arc<std::sync::Mutex<Vec<(PageIndex, u64)>>>);

impl Policy for Recorder {
    fn on_first_touch(&mut self, page: PageIndex, _tier: Tier, machine: &mut dyn TieredMachine) {
        machine.mark(&[page]);
    }

    fn on_fault(&mut self, fault: Fault, machine: &mut dyn TieredMachine) {
        self.0.lock().unwrap().push((fault.page, machine.now_ns()));
    }
}

#[test]
fn a_fault_that_the_source_was_told_of_counts_at_its_own_time_and_once() {
    let kernel = FakeKernel::default();
    let faults = std::sync::Arc::default();
    let policy = Box::new(Recorder(std::sync::Arc::clone(&faults)));
    let mut driver = Driver::new(machine(&kernel, 512, 8), policy, Box::new(|| None));
    (0..3).for_each(|page| kernel.access(PROCESS, page * PAGE_BYTES, 1));
    scan(&mut driver, &kernel);
    driver.advance(1_000);
    driver.accessed(PROCESS, PAGE_BYTES + 17, 1_234);
    driver.accessed(PROCESS, PAGE_BYTES, 1_500);
    driver.accessed(PROCESS, 0, 1_100);
    driver.accessed(PROCESS, 1 << 40, 1_600);
    driver.accessed(PROCESS + 1, 0, 1_600);
    driver.advance(2_000);
    let told = [(1, 1_234), (0, 1_500)];
    assert_eq!(*faults.lock().unwrap(), told, "time never goes back, and a mark is used up");
    // The scan finds the same accesses by their bits.
    (0..2).for_each(|page| kernel.access(PROCESS, page * PAGE_BYTES, 1));
    scan(&mut driver, &kernel);
    scan(&mut driver, &kernel);
    assert_eq!(*faults.lock().unwrap(), told);
    assert_eq!(driver.machine.counts.hint_faults, 2);
    assert!(driver.machine.take_accessed(1));
}

#[test]
fn where_the_kernel_marks_far_pages_only_its_faults_count_and_marks_begin_with_its_pass() {
    let kernel = FakeKernel::default();
    let faults = std::sync::Arc::default();
    let policy = Box::new(Recorder(std::sync::Arc::clone(&faults)));
    let machine = machine(&kernel, 512, 8).marked_by_kernel(true);
    let mut driver = Driver::new(machine, policy, Box::new(|| None));
    kernel.access(PROCESS, 0, 0);
    kernel.access(PROCESS, PAGE_BYTES, 1);
    scan(&mut driver, &kernel);
    // In use all the time: before the kernel's mark as after it.
    for _ in 0..3 {
        (0..2).for_each(|page| kernel.access(PROCESS, page * PAGE_BYTES, 1));
        scan(&mut driver, &kernel);
    }
    let pages: Vec<_> = faults.lock().unwrap().iter().map(|&(page, _)| page).collect();
    assert_eq!(pages, [0], "the local page, which the kernel does not mark");
    driver.machine.passes.push(Marked { process: PROCESS, range: 0..8192, time_ns: 5_000 });
    driver.accessed(PROCESS, PAGE_BYTES, 5_700);
    assert_eq!(faults.lock().unwrap().last(), Some(&(1, 5_700)));
    assert_eq!(driver.machine.marked_from_ns(1, 1_000), 5_000);
    assert_eq!(driver.machine.marked_from_ns(1, 5_500), 5_500, "no pass since");
    assert_eq!(driver.machine.marked_from_ns(0, 1_000), 1_000, "local, and no scan since");
}

#[test]
fn a_hot_page_moves_when_its_fault_is_told_before_any_scan() {
    let kernel = FakeKernel::default();
    let mut driver = hotbox(&kernel, 8);
    (0..4).for_each(|page| kernel.access(PROCESS, page * PAGE_BYTES, 1));
    for _ in 0..3 {
        round(&mut driver, &kernel, &[2]);
    }
    assert_eq!(kernel.node_of(PROCESS, 2 * PAGE_BYTES), Some(1), "hot, and marked");
    let now_ns = driver.machine.now_ns();
    driver.accessed(PROCESS, 2 * PAGE_BYTES, now_ns + 10);
    driver.advance(now_ns + 20);
    assert_eq!(kernel.node_of(PROCESS, 2 * PAGE_BYTES), Some(0));
}

#[test]
fn a_policy_makes_room_between_the_accesses_that_one_scan_found() {
    let kernel = FakeKernel::default();
    // One frame of eight is kept free.
    let settings = r#"{"scan_period_us": 1000, "low_share": 0.1, "high_share": 0.125, "throttle": false}"#;
    let mut driver = driver(&kernel, "hotbox", settings, 512, 8);
    round(&mut driver, &kernel, &[0, 1, 2, 3, 4, 5, 6, 7]);
    let hot: Vec<u64> = (100..106).collect();
    hot.iter().for_each(|page| kernel.access(PROCESS, page * PAGE_BYTES, 1));
    (0..3).for_each(|_| round(&mut driver, &kernel, &hot));
    assert_eq!(driver.machine.counts.promotions, 0);
    round(&mut driver, &kernel, &hot);
    let arrived = hot.iter().filter(|&&page| kernel.node_of(PROCESS, page * PAGE_BYTES) == Some(0)).count();
    assert_eq!(arrived, 5, "all but the first, which finds no frame free: {:?}", driver.machine.counts);
}

/// As with the kernel's own demotion: a program that goes on to new memory has that local.
#[test]
fn new_pages_are_local_and_push_out_those_that_are_no_longer_used() {
    let kernel = FakeKernel::default();
    let settings = r#"{"slack_bytes": 4096, "low_share": 0.0}"#;
    let mut driver = driver(&kernel, "indigo", settings, 512, 8);
    // One frame of eight is kept free.
    for first in [0, 7, 14] {
        let pages: Vec<u64> = (first..first + 7).collect();
        round(&mut driver, &kernel, &pages);
        round(&mut driver, &kernel, &pages);
    }
    let local: Vec<_> =
        (0..21).filter(|page| kernel.node_of(PROCESS, page * PAGE_BYTES) == Some(0)).collect();
    assert!(local.len() >= 6 && local.iter().all(|&page| page >= 14), "{local:?}");
}

#[test]
fn room_is_not_asked_for_again_while_all_local_memory_is_in_use() {
    let kernel = FakeKernel::default();
    let settings = r#"{"scan_period_us": 1000, "low_share": 0.1, "high_share": 0.125, "throttle": false}"#;
    let mut driver = driver(&kernel, "hotbox", settings, 512, 8);
    (0..6).for_each(|page| kernel.access(PROCESS, page * PAGE_BYTES, 0));
    (100..200).for_each(|page| kernel.access(PROCESS, page * PAGE_BYTES, 1));
    let all: Vec<u64> = (0..6).chain(100..200).collect();
    (0..6).for_each(|_| round(&mut driver, &kernel, &all));
    let local: Vec<u64> =
        all.iter().copied().filter(|page| kernel.node_of(PROCESS, page * PAGE_BYTES) == Some(0)).collect();
    assert_eq!(local.len(), 8, "what was free is taken, and the first stay: {local:?}");
    assert!((0..6).all(|page| local.contains(&page)), "{local:?}");
    assert_eq!(driver.machine.counts.demotions, 0);
}
