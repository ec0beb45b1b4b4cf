//! The simulator as a whole, on workloads of a few lines.

use spillway_core::page::PAGE_BYTES;
use spillway_policy::machine::TieredMachine;

use super::*;
use crate::access::Accesses;
use crate::workload::Region;

const START: u64 = 1 << 30;

/// Reads lines `stride` bytes apart through `bytes`, `rounds` times, in each task.
struct Stride {
    regions: Vec<Region>,
    stride: u64,
    left: Vec<u64>,
    access: fn(u64) -> Access,
}

impl Stride {
    fn new(bytes: u64, stride: u64, rounds: u64, tasks: usize) -> Box<Self> {
        let regions = vec![Region { name: "array", start: START, bytes }];
        Box::new(Self { regions, stride, left: vec![rounds; tasks], access: Access::read })
    }

    fn writing(mut self: Box<Self>) -> Box<Self> {
        self.access = Access::write;
        self
    }
}

impl Workload for Stride {
    fn name(&self) -> &'static str {
        "stride"
    }

    fn regions(&self) -> &[Region] {
        &self.regions
    }

    fn tasks(&self) -> usize {
        self.left.len()
    }

    fn step(&mut self, task: usize, accesses: &mut Accesses) -> bool {
        if self.left[task] == 0 {
            return false;
        }
        self.left[task] -= 1;
        let addresses = (START..START + self.regions[0].bytes).step_by(self.stride as usize);
        accesses.extend(addresses.map(self.access));
        true
    }

    fn verify(&self) -> Result<(), String> {
        Ok(())
    }
}

/// All pages in one tier.
struct Fixed(Tier);

impl Policy for Fixed {
    fn place(&mut self, _page: u32, _machine: &mut dyn TieredMachine) -> Tier {
        self.0
    }
}

/// Fetches the page that is missing, and sends the oldest away.
#[derive(Default)]
struct Fifo(std::collections::VecDeque<u32>);

impl Fifo {
    fn make_room(&mut self, machine: &mut dyn TieredMachine) {
        while machine.free_pages(Tier::Local) == 0 {
            let Some(page) = self.0.pop_front() else { return };
            machine.write_back(page);
        }
    }
}

impl Policy for Fifo {
    fn access_model(&self) -> AccessModel {
        AccessModel::PageFetch
    }

    fn place(&mut self, page: u32, machine: &mut dyn TieredMachine) -> Tier {
        self.make_room(machine);
        self.0.push_back(page);
        Tier::Local
    }

    fn on_fault(&mut self, fault: Fault, machine: &mut dyn TieredMachine) {
        self.make_room(machine);
        machine.migrate(&[fault.page], Tier::Local, spillway_policy::machine::Call::Kernel);
        self.0.push_back(fault.page);
    }
}

/// Fetches what is missing by the kernel's swap path; pages begin far.
struct Locked;

impl Policy for Locked {
    fn access_model(&self) -> AccessModel {
        AccessModel::PageFetch
    }

    fn place(&mut self, _page: u32, _machine: &mut dyn TieredMachine) -> Tier {
        Tier::Far
    }

    fn on_fault(&mut self, fault: Fault, machine: &mut dyn TieredMachine) {
        machine.migrate(&[fault.page], Tier::Local, spillway_policy::machine::Call::Locked);
    }
}

/// Reads 1024 pages once, each task its part of them.
struct Halves {
    regions: [Region; 1],
    tasks: u64,
    left: Vec<bool>,
}

impl Halves {
    fn of(tasks: u64) -> Box<Self> {
        let regions = [Region { name: "array", start: START, bytes: 1024 * PAGE_BYTES }];
        Box::new(Self { regions, tasks, left: vec![true; tasks as usize] })
    }
}

impl Workload for Halves {
    fn name(&self) -> &'static str {
        "halves"
    }

    fn regions(&self) -> &[Region] {
        &self.regions
    }

    fn tasks(&self) -> usize {
        self.left.len()
    }

    fn step(&mut self, task: usize, accesses: &mut Accesses) -> bool {
        let bytes = self.regions[0].bytes / self.tasks;
        let first = START + task as u64 * bytes;
        let left = std::mem::take(&mut self.left[task]);
        accesses
            .extend((first..first + bytes).step_by(PAGE_BYTES as usize).filter(|_| left).map(Access::read));
        left
    }

    fn verify(&self) -> Result<(), String> {
        Ok(())
    }
}

/// A daemon that moves a page in each round, and wants to begin two more at once, while it has `rounds` left.
struct Busy {
    round: u32,
    rounds: u32,
}

impl Busy {
    fn of(rounds: u32) -> Box<Self> {
        Box::new(Self { round: 0, rounds })
    }
}

impl Policy for Busy {
    fn start(&mut self, machine: &mut dyn TieredMachine) {
        machine.set_timer(0, 1);
    }

    fn place(&mut self, _page: u32, _machine: &mut dyn TieredMachine) -> Tier {
        Tier::Far
    }

    fn on_timer(&mut self, timer: u32, machine: &mut dyn TieredMachine) {
        let page = self.round % machine.page_count();
        self.round += 1;
        let to = if machine.tier_of(page) == Some(Tier::Local) { Tier::Far } else { Tier::Local };
        machine.migrate(&[page], to, spillway_policy::machine::Call::System);
        if self.round < self.rounds {
            machine.set_timer(timer, 0);
            machine.set_timer(timer, 0);
        }
    }
}

/// Brings the first page in and keeps its far copy; later it sends the page away.
struct Copying;

impl Policy for Copying {
    fn start(&mut self, machine: &mut dyn TieredMachine) {
        machine.set_timer(0, 2_000_000);
        machine.set_timer(1, 6_000_000);
    }

    fn place(&mut self, _page: u32, _machine: &mut dyn TieredMachine) -> Tier {
        Tier::Far
    }

    fn on_timer(&mut self, timer: u32, machine: &mut dyn TieredMachine) {
        let to = if timer == 0 { Tier::Local } else { Tier::Far };
        assert_eq!(machine.migrate(&[0], to, spillway_policy::machine::Call::Kernel), 1);
        if timer == 0 {
            machine.keep_far_copy(0);
        }
    }
}

/// Accesses far pages in place, fetches each for two milliseconds, and accesses them in place again.
#[derive(Default)]
struct Switching(Fifo);

impl Policy for Switching {
    fn start(&mut self, machine: &mut dyn TieredMachine) {
        machine.set_timer(1, 2_000_000);
        machine.set_timer(0, 4_000_000);
    }

    fn on_first_touch(&mut self, page: u32, tier: Tier, _machine: &mut dyn TieredMachine) {
        self.0.0.extend((tier == Tier::Local).then_some(page));
    }

    fn on_timer(&mut self, timer: u32, machine: &mut dyn TieredMachine) {
        assert!(machine.set_page_fetch(timer == 1));
    }

    fn on_fault(&mut self, fault: Fault, machine: &mut dyn TieredMachine) {
        assert_eq!(fault.kind, FaultKind::Missing);
        self.0.on_fault(fault, machine);
    }
}

fn simulate(
    workload: Box<dyn Workload>,
    policy: Box<dyn Policy>,
    local_pages: u32,
    contention: f64,
) -> Outcome {
    let setup = setup(workload, policy, local_pages, contention);
    Simulation::new(setup).unwrap().run().unwrap().remove(0)
}

fn setup(workload: Box<dyn Workload>, policy: Box<dyn Policy>, local_pages: u32, contention: f64) -> Setup {
    Setup {
        platform: Platform::hotbox(),
        contention,
        interleave: Interleave::Clock,
        series_ns: 100_000,
        profile: false,
        epoch_ps: None,
        tenants: vec![Tenant { workload, policy, local_pages }],
    }
}

const MIB: u64 = 1 << 20;

/// 16 MiB in steps of a page do not fit the TLB, and their lines collide in no cache: every access of the
/// second round is a walk and, but for the lines that stayed, a miss.
#[test]
fn a_far_access_costs_what_the_platform_says() {
    let far = simulate(Stride::new(512 * MIB, PAGE_BYTES, 1, 1), Box::new(Fixed(Tier::Far)), 0, 0.0);
    let local =
        simulate(Stride::new(512 * MIB, PAGE_BYTES, 1, 1), Box::new(Fixed(Tier::Local)), 1 << 20, 0.0);
    assert_eq!(far.counts.far_misses, 131_072);
    assert_eq!(local.counts.local_misses, 131_072);
    let platform = Platform::hotbox();
    let difference_ns = (far.run_ps - local.run_ps) as f64 / 131_072.0 / 1e3;
    let line_ns = platform::LINE_MESSAGE_BYTES as f64 / platform.link_bytes_per_s * 1e9;
    let expected_ns = platform.far_ns + line_ns - platform.local_ns;
    assert!((difference_ns - expected_ns).abs() < 1.0, "{difference_ns} against {expected_ns}");
}

#[test]
fn one_seed_gives_one_result() {
    let run = || {
        let outcome = simulate(Stride::new(8 * MIB, 64, 3, 3), Box::new(Fifo::default()), 500, 0.3);
        (outcome.run_ps, outcome.spent, outcome.counts, outcome.series.points())
    };
    assert_eq!(run(), run());
}

/// A cyclic scan is FIFO's worst case: every page faults in every round but the first.
#[test]
fn page_fetch_brings_every_missing_page_in() {
    let outcome = simulate(Stride::new(8 * MIB, PAGE_BYTES, 3, 1), Box::new(Fifo::default()), 1024, 0.0);
    assert_eq!(outcome.counts.missing_faults, 2 * 2048);
    assert_eq!(outcome.counts.promotions, 2 * 2048);
    assert_eq!(outcome.counts.demotions, 2048 - 1024 + 2 * 2048);
    assert_eq!(outcome.counts.far_misses, 0);
    assert_eq!(outcome.counts.promotions_used, outcome.counts.promotions);
}

#[test]
fn a_contending_neighbour_slows_page_fetches() {
    let run = |contention| {
        let mut setup =
            setup(Stride::new(8 * MIB, PAGE_BYTES, 3, 1), Box::new(Fifo::default()), 1024, contention);
        setup.platform.copy_overlap = 0.0;
        Simulation::new(setup).unwrap().run().unwrap().remove(0)
    };
    let (free, contended) = (run(0.0), run(0.8));
    assert!(contended.run_ps > free.run_ps + 4096 * 1_000_000);
}

/// 63 lines of a page follow its first one, so many at once, in place of a message that waits for the link
/// alone; of a page that leaves likewise, from local memory. One that was not written leaves without a copy.
#[test]
fn a_page_that_a_core_copies_takes_as_long_as_its_lines() {
    let run = |copy_overlap, writes| {
        let stride = Stride::new(8 * MIB, PAGE_BYTES, 3, 1);
        let stride = if writes { stride.writing() } else { stride };
        let mut setup = setup(stride, Box::new(Fifo::default()), 1024, 0.0);
        setup.platform.copy_overlap = copy_overlap;
        Simulation::new(setup).unwrap().run().unwrap().remove(0)
    };
    let platform = Platform::hotbox();
    let in_ns = 63.0 * platform.far_ns / 10.0 - PAGE_BYTES as f64 / platform.link_bytes_per_s * 1e9;
    let out_ns = 63.0 * (platform.llc_ns + platform.local_ns) / 10.0;
    for writes in [false, true] {
        let (messages, copies) = (run(0.0, writes), run(10.0, writes));
        let counts = copies.counts;
        let sent = if writes { counts.demotions } else { 0 };
        let expected_ns = counts.promotions as f64 * in_ns + sent as f64 * out_ns;
        let found_ns = (copies.run_ps - messages.run_ps) as f64 / 1e3;
        assert!((found_ns / expected_ns - 1.0).abs() < 0.03, "{found_ns} against {expected_ns}");
    }
}

/// Two tasks that wait for the same lock while pages are copied would take as long as both, one after the
/// other.
#[test]
fn a_page_is_copied_with_no_lock_held() {
    let run_ps = |tasks| {
        let mut setup = setup(Halves::of(tasks), Box::new(Locked), 4096, 0.0);
        setup.platform.copy_overlap = 0.1;
        Simulation::new(setup).unwrap().run().unwrap().remove(0).run_ps
    };
    assert!(run_ps(2) < run_ps(1) * 6 / 10, "{} of {}", run_ps(2), run_ps(1));
}

/// However many rounds it is asked for, its core does one after the other, and what it moves is moved when it
/// has come to it.
#[test]
fn a_daemon_does_no_more_than_its_core_can() {
    let mut setup = setup(Stride::new(8 * MIB, PAGE_BYTES, 3, 1), Busy::of(u32::MAX), 4096, 0.0);
    setup.platform.daemon_core = DaemonCore::Spare;
    let outcome = Simulation::new(setup).unwrap().run().unwrap().remove(0);
    let worked_ps = outcome.spent.spare_bill.total_ps();
    assert!(outcome.counts.promotions > 10);
    assert!(worked_ps < outcome.run_ps + outcome.run_ps / 10, "{worked_ps} in {}", outcome.run_ps);
}

#[test]
fn a_daemon_interrupts_the_cores_that_it_is_not_on() {
    let run_ps = |daemon_core, interrupt_ns| {
        let mut setup = setup(Stride::new(2 * MIB, PAGE_BYTES, 3, 1), Busy::of(200), 4096, 0.0);
        (setup.platform.daemon_core, setup.platform.interrupt_ns) = (daemon_core, interrupt_ns);
        Simulation::new(setup).unwrap().run().unwrap().remove(0).run_ps
    };
    assert_eq!(run_ps(DaemonCore::Shared, 1e6), run_ps(DaemonCore::Shared, 0.0), "its own is the only one");
    assert!(run_ps(DaemonCore::Spare, 1e6) > run_ps(DaemonCore::Spare, 0.0));
}

/// Marks or unmaps the first `pages` pages once, when all of them have long been touched.
struct MarkOnce {
    pages: u32,
    unmap: bool,
}

impl Policy for MarkOnce {
    fn start(&mut self, machine: &mut dyn TieredMachine) {
        machine.set_timer(0, 200_000);
    }

    fn place(&mut self, _page: u32, _machine: &mut dyn TieredMachine) -> Tier {
        Tier::Local
    }

    fn on_timer(&mut self, _timer: u32, machine: &mut dyn TieredMachine) {
        let pages: Vec<u32> = (0..self.pages).collect();
        if self.unmap { machine.unmap(&pages) } else { machine.mark(&pages) }
    }
}

/// A kernel flushes single translations up to 33, and the whole TLB for more.
#[test]
fn marking_many_pages_at_once_flushes_the_whole_tlb() {
    const PAGES: u64 = 64;
    for unmap in [false, true] {
        let walks = |pages| {
            let workload = Stride::new(PAGES * PAGE_BYTES, PAGE_BYTES, 1000, 1);
            simulate(workload, Box::new(MarkOnce { pages, unmap }), 512, 0.0).counts.walks
        };
        assert_eq!(walks(0), PAGES);
        assert_eq!(walks(33), PAGES + 33);
        assert_eq!(walks(34), 2 * PAGES);
    }
}

#[test]
fn tasks_share_what_a_page_table_and_a_cache_hold() {
    let outcome = simulate(Stride::new(2 * MIB, 64, 2, 4), Box::new(Fixed(Tier::Local)), 1024, 0.0);
    assert_eq!(outcome.counts.accesses, 4 * 2 * 2 * MIB / 64);
    assert_eq!(outcome.counts.local_misses, 2 * MIB / 64, "each line once, for all four");
}

/// Works for as long as it is told to, in one piece.
struct Worker {
    regions: [Region; 1],
    ns: Option<u64>,
}

impl Workload for Worker {
    fn name(&self) -> &'static str {
        "worker"
    }

    fn regions(&self) -> &[Region] {
        &self.regions
    }

    fn step(&mut self, _task: usize, accesses: &mut Accesses) -> bool {
        accesses.extend(self.ns.take().map(Access::compute_ns));
        !accesses.is_empty()
    }

    fn verify(&self) -> Result<(), String> {
        Ok(())
    }
}

/// What a trace may say, up to the longest time that fits into a record.
#[test]
fn work_without_end_is_an_error() {
    for (ns, ends) in [(1_000_000_000, true), (1 << 50, false), ((1 << 56) - 1, false)] {
        for interleave in [Interleave::Clock, Interleave::Lockstep] {
            let regions = [Region { name: "page", start: START, bytes: PAGE_BYTES }];
            let workload = Box::new(Worker { regions, ns: Some(ns) });
            let setup = Setup { interleave, ..setup(workload, Box::new(Fixed(Tier::Far)), 0, 0.0) };
            let result = Simulation::new(setup).unwrap().run();
            assert_eq!(result.is_ok(), ends, "{ns}");
            assert!(result.err().is_none_or(|error| error.to_string().contains("more than a day")));
        }
    }
}

#[test]
fn addresses_outside_the_regions_are_an_error() {
    let mut workload = Stride::new(2 * MIB, PAGE_BYTES, 1, 1);
    workload.regions[0].start = 2 * START;
    let setup = setup(workload, Box::new(Fixed(Tier::Local)), 1, 0.0);
    let error = Simulation::new(setup).unwrap().run().err().unwrap().to_string();
    assert!(error.contains("0x40000000"), "{error}");
}

/// Nomad's shadows: copies of pages that stay far.
#[test]
fn a_page_with_a_far_copy_leaves_without_being_sent_until_it_is_written() {
    let run = |workload: Box<Stride>| simulate(workload, Box::new(Copying), 4, 0.0).counts;
    let read = run(Stride::new(2 * MIB, PAGE_BYTES, 4000, 1));
    let written = run(Stride::new(2 * MIB, PAGE_BYTES, 4000, 1).writing());
    for counts in [read, written] {
        assert_eq!((counts.promotions, counts.demotions), (1, 1));
    }
    assert_eq!((read.traffic.migration_bytes, read.minor_faults), (PAGE_BYTES, 0));
    assert_eq!((written.traffic.migration_bytes, written.minor_faults), (2 * PAGE_BYTES, 1));
}

/// What was local before has no copy in far memory; what was fetched has, and leaves unsent.
#[test]
fn pages_are_fetched_while_far_memory_is_out_of_reach_and_not_before_or_after() {
    const LOCAL: u32 = 4;
    let run = |bytes| {
        let workload = Stride::new(bytes, PAGE_BYTES, 1, 1);
        simulate(workload, Box::new(Switching::default()), LOCAL, 0.0).counts
    };
    let (counts, longer) = (run(256 * MIB), run(512 * MIB));
    assert!(counts.missing_faults > 100 && counts.far_misses > 10_000, "{counts:?}");
    assert_eq!(longer.missing_faults, counts.missing_faults, "no more come");
    assert!(longer.far_misses > counts.far_misses + 10_000);
    assert_eq!((counts.promotions, counts.demotions), (counts.missing_faults, counts.missing_faults));
    let sent = counts.missing_faults + u64::from(LOCAL);
    assert_eq!(counts.traffic.migration_bytes, sent * PAGE_BYTES);
}
