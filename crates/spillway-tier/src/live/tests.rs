use super::*;
use crate::fake_kernel::{EVERYWHERE, FakeKernel};
use crate::testing::machine;
use rustix::io::Errno;

const PROCESS: u32 = 7;

fn scan(machine: &mut LiveMachine, kernel: &FakeKernel) -> Vec<Event> {
    use crate::source::Source;
    let mut kernel = kernel.clone();
    kernel
        .scan(PROCESS, EVERYWHERE, &mut |seen| {
            let tier = crate::fake_kernel::tier_of_frame(seen.frame).unwrap();
            machine.see(PROCESS, seen, tier);
        })
        .unwrap();
    machine.end_scan(PROCESS);
    std::iter::from_fn(|| machine.take_event()).collect()
}

/// Pages 0 to `pages` of the process, far, known and not accessed since.
fn far_pages(local: u32, pages: u32) -> (FakeKernel, LiveMachine) {
    let kernel = FakeKernel::default();
    (0..pages).for_each(|page| kernel.access(PROCESS, u64::from(page) * PAGE_BYTES, 1));
    let mut machine = machine(&kernel, 1024, local);
    for event in scan(&mut machine, &kernel) {
        let Event::Appeared(page, tier) = event else { panic!("{event:?}") };
        machine.pages.appear(page, tier);
    }
    (0..pages).for_each(|page| assert!(machine.take_accessed(page)));
    scan(&mut machine, &kernel);
    (kernel, machine)
}

#[test]
fn bits_of_use_are_new_with_each_scan_and_the_same_in_between() {
    let (kernel, mut machine) = far_pages(4, 3);
    kernel.access(PROCESS, PAGE_BYTES, 1);
    scan(&mut machine, &kernel);
    let policy_scan = |machine: &mut LiveMachine| {
        let mut found = Vec::new();
        let scan = Scan { start: 0, pages: 1024, tier: Tier::Far, hierarchical: false };
        machine.scan(scan, &mut |page, accessed| found.push((page, accessed)));
        found
    };
    assert!(machine.take_accessed(1) && machine.take_accessed(1), "the last scan found it in use");
    assert_eq!(policy_scan(&mut machine), [(0, false), (2, false)], "no new answer for page 1");
    assert!(policy_scan(&mut machine).is_empty());
    scan(&mut machine, &kernel);
    assert_eq!(policy_scan(&mut machine), [(0, false), (1, false), (2, false)]);
}

#[test]
fn scans_come_at_times_of_the_daemons_own_unless_each_access_is_told() {
    let (_, machine) = far_pages(4, 3);
    assert!(machine.scans_by_itself());
    assert!(!machine.told_at_once().scans_by_itself());
}

#[test]
fn an_early_scan_tells_of_local_memory_and_of_marked_pages_and_keeps_the_rest() {
    let (kernel, mut machine) = far_pages(4, 4);
    kernel.access(PROCESS, 100 * PAGE_BYTES, 0);
    for event in scan(&mut machine, &kernel) {
        let Event::Appeared(page, tier) = event else { panic!("{event:?}") };
        machine.pages.appear(page, tier);
    }
    machine.mark(&[2]);
    assert!([0, 1, 2, 3, 100].into_iter().all(|page| machine.take_accessed(page) == (page == 100)));
    scan(&mut machine, &kernel);
    let uses_before = (machine.counts.local_uses, machine.counts.far_uses);

    machine.set_early(true);
    [(0, 1), (2, 1), (100, 0)]
        .into_iter()
        .for_each(|(page, node)| kernel.access(PROCESS, page * PAGE_BYTES, node));
    assert_eq!(scan(&mut machine, &kernel), [Event::Accessed(2)], "whom somebody waits for");
    assert!(machine.take_accessed(100) && !machine.take_accessed(0));
    let far_scan = |machine: &mut LiveMachine| {
        let mut found = Vec::new();
        let scan = Scan { start: 0, pages: 1024, tier: Tier::Far, hierarchical: true };
        machine.scan(scan, &mut |page, accessed| found.push((page, accessed)));
        found
    };
    let told = far_scan(&mut machine);
    assert!(told.iter().all(|&(page, accessed)| page != 0 && !accessed), "nothing of far pages: {told:?}");
    assert_eq!((machine.counts.local_uses, machine.counts.far_uses), uses_before);

    machine.set_early(false);
    scan(&mut machine, &kernel);
    assert!(far_scan(&mut machine).contains(&(0, true)), "what was kept is told");
    assert_eq!(machine.counts.local_uses - uses_before.0, 1, "once");
    assert_eq!(machine.counts.far_uses - uses_before.1, 2);
    scan(&mut machine, &kernel);
    assert!(!machine.take_accessed(0) && !machine.take_accessed(100), "and then it is over");
}

#[test]
fn asked_again_a_page_was_used_only_if_the_last_scan_found_it_so() {
    let (kernel, mut machine) = far_pages(4, 2);
    kernel.access(PROCESS, 0, 1);
    kernel.access(PROCESS, PAGE_BYTES, 1);
    scan(&mut machine, &kernel);
    kernel.access(PROCESS, PAGE_BYTES, 1);
    scan(&mut machine, &kernel);
    assert!(machine.take_accessed(0) && machine.take_accessed(1), "since they were asked about");
    assert!(!machine.take_accessed(0) && machine.take_accessed(1), "since the scan before the last");
}

#[test]
fn who_marks_all_passes_over_marked_pages_and_numbers_that_no_page_has() {
    let (_, mut machine) = far_pages(4, 4);
    assert_eq!(machine.page_count(), 1024);
    machine.mark(&[0, 2]);
    let unmarked: Vec<_> = [0, 2, 4, 512, 1023, 1024].map(|page| machine.next_unmarked(page)).into();
    assert_eq!(unmarked, [1, 3, 1024, 1024, 1024, 1024]);
}

/// What a scan finds accessed it cannot tell from accesses before the mark, unless a scan came in between.
#[test]
fn a_mark_counts_from_the_first_scan_after_it() {
    let (kernel, mut machine) = far_pages(4, 2);
    machine.set_now_ns(1_000);
    machine.mark(&[0]);
    for now_ns in [1_500, 1_900] {
        machine.set_now_ns(now_ns);
        kernel.access(PROCESS, 0, 1);
        let events = scan(&mut machine, &kernel);
        assert_eq!(events.is_empty(), now_ns == 1_500, "{events:?}");
    }
    assert_eq!(machine.marked_from_ns(0, 1_000), 1_500);
}

#[test]
fn a_hierarchical_scan_skips_chunks_without_an_access() {
    let (kernel, mut machine) = far_pages(4, 600);
    let policy_scan = |machine: &mut LiveMachine| {
        let mut count = 0;
        let scan = Scan { start: 0, pages: 1024, tier: Tier::Far, hierarchical: true };
        machine.scan(scan, &mut |_, _| count += 1);
        count
    };
    assert_eq!(policy_scan(&mut machine), 600, "all were accessed when they came");
    scan(&mut machine, &kernel);
    assert_eq!(policy_scan(&mut machine), 0);
    kernel.access(PROCESS, 520 * PAGE_BYTES, 1);
    scan(&mut machine, &kernel);
    assert_eq!(policy_scan(&mut machine), 88);
}

#[test]
fn only_an_access_after_the_mark_is_a_fault() {
    let (kernel, mut machine) = far_pages(4, 3);
    kernel.access(PROCESS, 0, 1);
    machine.mark(&[0, 1]);
    assert!(scan(&mut machine, &kernel).is_empty(), "it may have been before the mark");
    kernel.access(PROCESS, PAGE_BYTES, 1);
    kernel.access(PROCESS, 8192, 1);
    assert_eq!(scan(&mut machine, &kernel), [Event::Accessed(1)]);
    assert!(machine.is_marked(0));
    machine.unmark(0);
    kernel.access(PROCESS, 0, 1);
    assert!(scan(&mut machine, &kernel).is_empty(), "not marked");
}

/// Sends pages, and has them moved.
fn migrate(machine: &mut LiveMachine, pages: &[PageIndex], to: Tier) -> u32 {
    let sent = machine.migrate(pages, to, Call::System);
    machine.flush();
    sent
}

#[test]
fn pages_move_as_long_as_there_are_frames_and_each_result_counts() {
    let (kernel, mut machine) = far_pages(3, 6);
    kernel.state().refused.insert((PROCESS, 0), Errno::BUSY);
    kernel.state().pages.remove(&(PROCESS, PAGE_BYTES));
    assert_eq!(migrate(&mut machine, &[0, 1, 2, 3, 4, 5, 900], Tier::Local), 3, "no more than the budget");
    assert_eq!(kernel.state().calls, [3]);
    assert_eq!(machine.counts.refused.of("pinned_or_busy"), 1);
    assert_eq!(machine.counts.refused.of("not_there"), 1);
    assert_eq!((machine.tier_of(0), machine.tier_of(1)), (Some(Tier::Far), None));
    assert_eq!((machine.tier_of(2), kernel.node_of(PROCESS, 8192)), (Some(Tier::Local), Some(0)));
    assert_eq!(machine.counts.promotions, 1);
    assert_eq!(migrate(&mut machine, &[3, 4, 5], Tier::Local), 2);
    assert_eq!(machine.free_pages(Tier::Local), 0);
    assert_eq!(migrate(&mut machine, &[5], Tier::Local), 0);
}

#[test]
fn a_page_that_cannot_move_is_announced_once() {
    let (kernel, mut machine) = far_pages(3, 1);
    kernel.state().refused.insert((PROCESS, 0), Errno::BUSY);
    migrate(&mut machine, &[0], Tier::Local);
    assert_eq!(machine.take_event(), Some(Event::Displaced(0, Tier::Far)));
    migrate(&mut machine, &[0], Tier::Local);
    assert_eq!(machine.take_event(), None);
    kernel.state().refused.clear();
    migrate(&mut machine, &[0], Tier::Local);
    assert_eq!((machine.counts.promotions, machine.tier_of(0)), (1, Some(Tier::Local)));
}

#[test]
fn a_page_that_has_not_gone_yet_can_come_back() {
    let (kernel, mut machine) = far_pages(3, 2);
    assert_eq!(machine.migrate(&[0, 1], Tier::Local, Call::Kernel), 2);
    assert_eq!(machine.migrate(&[0], Tier::Far, Call::Kernel), 1);
    assert!(scan(&mut machine, &kernel).is_empty(), "where it is seen is no news");
    machine.flush();
    assert_eq!((kernel.node_of(PROCESS, 0), kernel.node_of(PROCESS, PAGE_BYTES)), (Some(1), Some(0)));
    assert_eq!((machine.counts.promotions, machine.counts.demotions), (1, 0));
}

#[test]
fn a_process_or_a_node_that_is_gone_is_a_refusal() {
    let (kernel, mut machine) = far_pages(3, 2);
    kernel.state().gone.insert(PROCESS);
    migrate(&mut machine, &[0], Tier::Local);
    assert_eq!(machine.counts.refused.of("process_gone"), 1);
    kernel.state().gone.clear();
    kernel.state().offline.insert(0);
    migrate(&mut machine, &[1], Tier::Local);
    assert_eq!(machine.counts.refused.of("node_offline"), 1);
    assert_eq!((machine.tier_of(0), machine.pages.used(Tier::Local)), (Some(Tier::Far), 0));
    machine.set_room(Tier::Local, NodeRoom(vec![]));
    assert_eq!((machine.free_pages(Tier::Local), migrate(&mut machine, &[1], Tier::Local)), (0, 0));
}

#[test]
fn a_node_that_fills_up_amid_a_batch_keeps_what_came_and_the_rest_stays_where_it_was() {
    let (kernel, mut machine) = far_pages(8, 4);
    kernel.state().refused.insert((PROCESS, PAGE_BYTES), Errno::NOMEM);
    // The kernel stopped before it came to this one.
    kernel.state().refused.insert((PROCESS, 3 * PAGE_BYTES), Errno::AGAIN);
    assert_eq!(migrate(&mut machine, &[0, 1, 2, 3], Tier::Local), 4);
    let tiers: Vec<_> = (0..4).map(|page| machine.tier_of(page).unwrap()).collect();
    assert_eq!(tiers, [Tier::Local, Tier::Far, Tier::Local, Tier::Far]);
    assert_eq!((machine.pages.used(Tier::Local), machine.counts.promotions), (2, 2));
    assert_eq!(machine.counts.refused.of("no_free_frame"), 1);
    assert_eq!(machine.counts.refused.of("not_tried"), 1);
    let events: Vec<_> = std::iter::from_fn(|| machine.take_event()).collect();
    assert_eq!(events, [Event::Displaced(1, Tier::Far), Event::Displaced(3, Tier::Far)]);
    machine.set_room(Tier::Local, NodeRoom(vec![(0, 0)]));
    assert_eq!(migrate(&mut machine, &[1], Tier::Local), 0, "known to be full");
    kernel.state().refused.clear();
    machine.set_room(Tier::Local, NodeRoom(vec![(0, 100)]));
    assert_eq!(migrate(&mut machine, &[1, 3], Tier::Local), 2);
    assert!(scan(&mut machine, &kernel).is_empty(), "all lie where they are said to");
}

#[test]
fn a_process_that_ends_or_executes_with_pages_on_their_way_leaves_nothing_behind() {
    let (kernel, mut machine) = far_pages(8, 4);
    assert_eq!(machine.migrate(&[0, 1], Tier::Local, Call::System), 2);
    machine.forget(PROCESS);
    machine.flush();
    assert!(kernel.state().calls.is_empty(), "nobody's pages are moved");
    assert_eq!((machine.pages.used(Tier::Local), machine.pages.used(Tier::Far)), (0, 0));

    let (kernel, mut machine) = far_pages(8, 4);
    // It executed another program between the scan and the call: its old addresses are no memory, or other
    // memory.
    kernel.state().refused.insert((PROCESS, 0), Errno::FAULT);
    kernel.state().pages.remove(&(PROCESS, PAGE_BYTES));
    assert_eq!(migrate(&mut machine, &[0, 1, 2], Tier::Local), 3);
    assert_eq!(machine.counts.refused.of("not_there"), 2);
    kernel.state().pages.clear();
    while machine.take_event().is_some() {}
    scan(&mut machine, &kernel);
    assert_eq!((machine.pages.used(Tier::Local), machine.pages.used(Tier::Far)), (0, 0));
}

#[test]
fn the_rate_cap_holds_and_what_it_kept_back_is_announced() {
    let (kernel, mut machine) = far_pages(500, 400);
    machine.limits.migration_bytes_per_s = PAGE_BYTES * 100;
    machine.cap = RateCap::new(PAGE_BYTES * 100);
    let pages: Vec<_> = (0..400).collect();
    assert_eq!(migrate(&mut machine, &pages, Tier::Local), 101, "more than a second's work is not taken on");
    assert_eq!(machine.counts.promotions, 10);
    assert_eq!(machine.counts.capped, 299);
    assert_eq!(std::iter::from_fn(|| machine.take_event()).count(), 299);
    machine.set_now_ns(50_000_000);
    machine.flush();
    assert_eq!(machine.counts.promotions, 15);
    assert_eq!(kernel.state().calls, [10, 5]);
    assert!(scan(&mut machine, &kernel).is_empty(), "the others are on their way");
}

#[test]
fn pages_that_a_scan_misses_are_gone_and_their_numbers_free() {
    let (kernel, mut machine) = far_pages(3, 2);
    kernel.state().pages.remove(&(PROCESS, 0));
    scan(&mut machine, &kernel);
    assert_eq!((machine.tier_of(0), machine.tier_of(1)), (None, Some(Tier::Far)));
    assert_eq!(machine.pages.used(Tier::Far), 1);
    machine.forget(PROCESS);
    assert_eq!((machine.pages.used(Tier::Far), machine.pages.find(PROCESS, PAGE_BYTES)), (0, None));
}

#[test]
fn what_the_kernel_moves_itself_is_noticed() {
    let (kernel, mut machine) = far_pages(3, 2);
    kernel.state().pages.get_mut(&(PROCESS, PAGE_BYTES)).unwrap().node = 0;
    assert_eq!(scan(&mut machine, &kernel), [Event::Displaced(1, Tier::Local)]);
    assert_eq!((machine.pages.used(Tier::Local), machine.counts.moved_by_kernel), (1, 1));
}

#[test]
fn a_huge_page_moves_whole_and_only_where_it_fits() {
    let (kernel, mut machine) = far_pages(600, 1);
    let huge = crate::fake_kernel::FakePage { node: 1, accessed: false, pages: 512 };
    kernel.state().pages.insert((PROCESS, 2 << 20), huge);
    let events = scan(&mut machine, &kernel);
    assert_eq!(events, [Event::Appeared(512, Tier::Far)]);
    machine.pages.appear(512, Tier::Far);
    assert_eq!(machine.span(512), 512);
    machine.settle_budget(511);
    assert_eq!(migrate(&mut machine, &[512], Tier::Local), 0);
    machine.settle_budget(10_000);
    assert_eq!(migrate(&mut machine, &[512], Tier::Local), 1);
    assert_eq!((machine.counts.promotions, machine.free_pages(Tier::Local)), (512, 88));
}

#[test]
fn pairs_are_exchanged_without_a_frame_to_spare() {
    let (kernel, mut machine) = far_pages(1, 3);
    migrate(&mut machine, &[0], Tier::Local);
    assert_eq!(machine.exchange(&[(1, 0), (2, 1)], Call::System), 2);
    machine.flush();
    assert_eq!(kernel.node_of(PROCESS, 2 * PAGE_BYTES), Some(0));
    assert_eq!((machine.counts.promotions, machine.counts.demotions), (2, 1), "page 1 never left");
    assert_eq!(machine.exchange(&[(2, 0)], Call::System), 0, "neither lies where it should");
}

#[test]
fn use_after_a_promotion_is_counted_once() {
    let (kernel, mut machine) = far_pages(4, 2);
    migrate(&mut machine, &[0, 1], Tier::Local);
    kernel.access(PROCESS, 0, 0);
    scan(&mut machine, &kernel);
    kernel.access(PROCESS, 0, 0);
    scan(&mut machine, &kernel);
    assert_eq!((machine.counts.promotions, machine.counts.promotions_used), (2, 1));
}

#[test]
fn windows_sum_up_what_scans_found() {
    let (kernel, mut machine) = far_pages(4, 3);
    migrate(&mut machine, &[0], Tier::Local);
    machine.count_accesses(1000);
    (0..3).for_each(|page| kernel.access(PROCESS, page * PAGE_BYTES, 1));
    scan(&mut machine, &kernel);
    assert_eq!(machine.take_window(), None);
    machine.set_now_ns(1000);
    assert_eq!(machine.take_window(), Some([1, 2]));
    machine.set_now_ns(2000);
    assert_eq!(machine.take_window(), Some([0, 0]));
}

#[test]
fn a_share_of_memory_is_a_share_of_what_there_is() {
    let (kernel, mut machine) = far_pages(4, 10);
    machine.limits.local = LocalBudget::Pct(25.0);
    machine.settle_budget(10_000);
    assert_eq!(machine.capacity_pages(Tier::Local), 3);
    kernel.access(PROCESS, 100 * PAGE_BYTES, 0);
    kernel.access(PROCESS, 101 * PAGE_BYTES, 0);
    let mut source = kernel.clone();
    crate::source::Source::scan(&mut source, PROCESS, EVERYWHERE, &mut |seen| {
        machine.see(PROCESS, seen, Tier::Far);
    })
    .unwrap();
    machine.settle_budget(10_000);
    assert_eq!(machine.capacity_pages(Tier::Local), 3, "a quarter of 12, with those that are new");
    machine.settle_budget(2);
    assert_eq!(machine.capacity_pages(Tier::Local), 2, "the nodes have no more");
}

#[test]
fn counters_tell_windows_where_there_are_some() {
    use crate::counters::{Counters, tests::file};
    use std::sync::atomic::Ordering;
    let (kernel, machine) = far_pages(4, 3);
    let (file, memory) = file();
    let mut machine = machine.counted_by(Some(Counters::open(file.path()).unwrap()));
    machine.count_accesses(1000);
    kernel.access(PROCESS, 0, 1);
    scan(&mut machine, &kernel);
    memory.atomics_u64(8, 2)[0].store(40, Ordering::Relaxed);
    memory.atomics_u64(8, 2)[1].store(2, Ordering::Relaxed);
    machine.set_now_ns(1000);
    assert_eq!(machine.take_window(), Some([40, 2]), "not what the scan found");
    assert_eq!(machine.counts.far_uses, 1, "which still counts as use");
}

#[test]
fn a_policy_has_samples_as_often_as_it_asks_or_as_often_as_there_are() {
    let (_, mut machine) = far_pages(4, 4);
    let mut told = |wanted: u32, source: u32, count: u64| {
        machine.sample_accesses(wanted);
        machine.set_source_period(source);
        (0..count).for_each(|at| machine.note_sample(PROCESS, at % 4 * PAGE_BYTES + 8, at % 2 == 0));
        let mut samples = Vec::new();
        machine.take_samples(&mut samples);
        samples
    };
    let all = told(200, 200, 4);
    assert_eq!(
        all.iter().map(|sample| (sample.page, sample.write)).collect::<Vec<_>>(),
        [(0, true), (1, false), (2, true), (3, false)]
    );
    assert_eq!(told(5000, 1000, 100).len(), 20);
    assert_eq!(told(1500, 1000, 90).len(), 60);
    assert_eq!(told(200, 1000, 100).len(), 100, "no more than there are");
    assert!(told(0, 1000, 100).is_empty(), "none is wanted");
    machine.sample_accesses(1);
    machine.note_sample(PROCESS, 1000 * PAGE_BYTES, false);
    machine.note_sample(PROCESS + 1, 0, false);
    let mut samples = Vec::new();
    machine.take_samples(&mut samples);
    assert!(samples.is_empty(), "no pages that are known");
}

#[test]
fn the_pages_that_there_are_can_be_gone_through_and_counted() {
    let (_, machine) = far_pages(4, 3);
    assert_eq!((machine.managed_pages(), machine.page_count()), (3, 1024));
    assert_eq!([0, 1, 3].map(|page| machine.next_touched(page)), [0, 1, 1024]);
}
