//! One recorded log of events, told to a policy on the lab's machine and on the daemon's: both must come to
//! the same decisions, one after the other.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use spillway_core::size::Size;
use spillway_lab::simulator::link::Link;
use spillway_lab::simulator::metrics::Bill;
use spillway_lab::simulator::node::Node;
use spillway_lab::simulator::pages::{AddressMap, bit, region_bit};
use spillway_lab::simulator::platform::Platform;
use spillway_lab::simulator::timers::{Event, Timers};
use spillway_lab::simulator::view::View;
use spillway_lab::workload::Region;
use spillway_policy::entry::PolicySettings;
use spillway_policy::knowledge::Knowledge;
use spillway_policy::machine::{Call, LinkTelemetry, PageIndex, Sample, Scan, Tier, TieredMachine};
use spillway_policy::policy::{AccessModel, CounterWindow, Fault, FaultKind, Mapping, Policy};
use spillway_policy::registry;
use spillway_tier::driver::Driver;
use spillway_tier::fake_kernel::{EVERYWHERE, FakeKernel, tier_of_frame};
use spillway_tier::group::{self, LocalBudget};
use spillway_tier::live::{Limits, LiveMachine};
use spillway_tier::room::NodeRoom;

/// Pages of the program: two huge pages' worth.
const PAGES: u32 = 1024;
const LOCAL_PAGES: u32 = 300;
const PROCESS: u32 = 7;
/// Where the program's memory begins.
const START: u64 = 1 << 30;

/// What happens to a program.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
enum Logged {
    /// It accesses pages, in this order.
    Accesses(BTreeSet<PageIndex>),
    /// So much time passes.
    Pass { ns: u64 },
    /// Accesses are sampled: the page, and whether it was written.
    Samples(Vec<(PageIndex, bool)>),
    /// The counters report a window's accesses.
    Window { local: u64, far: u64 },
}

/// A log: a hot tenth that moves from phase to phase, and accesses all over.
fn recorded() -> Vec<Logged> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(20_221_122);
    let mut log = vec![Logged::Accesses((0..PAGES).collect())];
    for step in 0..600_u32 {
        let hot_start = step / 200 * 256;
        let pages = (0..10).map(|at| match at {
            0 => random.random_range(0..PAGES),
            _ => (hot_start + random.random_range(0..PAGES / 10) * 2) % PAGES,
        });
        let pages: BTreeSet<PageIndex> = pages.collect();
        let samples = pages.iter().flat_map(|&page| [(page, page % 4 == 0), (page, false)]);
        log.push(Logged::Samples(samples.collect()));
        log.push(Logged::Accesses(pages));
        log.push(Logged::Pass { ns: random.random_range(200_000..6_000_000) });
        if step % 10 == 9 {
            let local = if step > 500 { 800 } else { random.random_range(0..1000) };
            log.push(Logged::Window { local, far: 1000 - local });
        }
    }
    log
}

/// What a policy did, with what came of it.
type Decisions = Arc<Mutex<Vec<String>>>;

/// A policy whose decisions are written down.
struct Recording {
    policy: Box<dyn Policy>,
    decisions: Decisions,
}

/// The machine that it is shown.
struct Recorder<'a> {
    machine: &'a mut dyn TieredMachine,
    decisions: &'a Decisions,
}

impl Recorder<'_> {
    fn note(&self, decision: String) {
        self.decisions.lock().unwrap().push(decision);
    }
}

impl TieredMachine for Recorder<'_> {
    fn now_ns(&self) -> u64 {
        self.machine.now_ns()
    }
    fn page_count(&self) -> u32 {
        self.machine.page_count()
    }
    fn scans_by_itself(&self) -> bool {
        self.machine.scans_by_itself()
    }
    fn managed_pages(&self) -> u32 {
        self.machine.managed_pages()
    }
    fn next_touched(&self, page: PageIndex) -> PageIndex {
        self.machine.next_touched(page)
    }
    fn page_bytes(&self) -> u64 {
        self.machine.page_bytes()
    }
    fn pages_per_huge(&self) -> u32 {
        self.machine.pages_per_huge()
    }
    fn capacity_pages(&self, tier: Tier) -> u32 {
        self.machine.capacity_pages(tier)
    }
    fn free_pages(&self, tier: Tier) -> u32 {
        self.machine.free_pages(tier)
    }
    fn tier_of(&self, page: PageIndex) -> Option<Tier> {
        self.machine.tier_of(page)
    }
    fn span(&self, page: PageIndex) -> u32 {
        self.machine.span(page)
    }
    fn take_accessed(&mut self, page: PageIndex) -> bool {
        let accessed = self.machine.take_accessed(page);
        self.note(format!("take {page}: {accessed}"));
        accessed
    }
    fn scan(&mut self, scan: Scan, visit: &mut dyn FnMut(PageIndex, bool)) {
        let mut seen = Vec::new();
        self.machine.scan(scan, &mut |page, accessed| {
            seen.push((page, accessed));
            visit(page, accessed);
        });
        self.note(format!("{scan:?}: {seen:?}"));
    }
    fn mark(&mut self, pages: &[PageIndex]) {
        self.note(format!("mark {pages:?}"));
        self.machine.mark(pages);
    }
    fn is_marked(&self, page: PageIndex) -> bool {
        self.machine.is_marked(page)
    }
    fn unmark(&mut self, page: PageIndex) {
        self.note(format!("unmark {page}"));
        self.machine.unmark(page);
    }
    fn migrate(&mut self, pages: &[PageIndex], to: Tier, call: Call) -> u32 {
        let moved = self.machine.migrate(pages, to, call);
        self.note(format!("migrate {pages:?} {to:?}: {moved}"));
        moved
    }
    fn exchange(&mut self, pairs: &[(PageIndex, PageIndex)], call: Call) -> u32 {
        let swapped = self.machine.exchange(pairs, call);
        self.note(format!("exchange {pairs:?}: {swapped}"));
        swapped
    }
    fn write_back(&mut self, page: PageIndex) {
        self.note(format!("write back {page}"));
        self.machine.write_back(page);
    }
    fn unmap(&mut self, pages: &[PageIndex]) {
        self.note(format!("unmap {pages:?}"));
        self.machine.unmap(pages);
    }
    fn split(&mut self, page: PageIndex) {
        self.note(format!("split {page}"));
        self.machine.split(page);
    }
    fn sample_accesses(&mut self, period: u32) {
        self.note(format!("sample {period}"));
        self.machine.sample_accesses(period);
    }
    fn take_samples(&mut self, samples: &mut Vec<Sample>) {
        self.machine.take_samples(samples);
        self.note(format!("samples {samples:?}"));
    }
    fn count_accesses(&mut self, window_ns: u64) {
        self.note(format!("count {window_ns}"));
        // Windows come out of the log.
        self.machine.count_accesses(0);
    }
    fn set_timer(&mut self, timer: u32, after_ns: u64) {
        self.note(format!("timer {timer} after {after_ns}"));
        self.machine.set_timer(timer, after_ns);
    }
    fn link(&self) -> LinkTelemetry {
        LinkTelemetry { available_bytes_per_s: 1e10, delta_latency_ns: 600.0, traffic_bytes: 0 }
    }
}

impl Recording {
    fn ask<R>(
        &mut self,
        what: String,
        machine: &mut dyn TieredMachine,
        act: impl FnOnce(&mut dyn Policy, &mut dyn TieredMachine) -> R,
    ) -> R {
        self.decisions.lock().unwrap().push(format!("{what} at {}", machine.now_ns()));
        act(self.policy.as_mut(), &mut Recorder { machine, decisions: &self.decisions })
    }
}

impl Policy for Recording {
    fn access_model(&self) -> AccessModel {
        self.policy.access_model()
    }
    fn mapping(&self) -> Mapping {
        self.policy.mapping()
    }
    fn start(&mut self, machine: &mut dyn TieredMachine) {
        self.ask("start".into(), machine, |policy, machine| policy.start(machine));
    }
    fn place(&mut self, page: PageIndex, machine: &mut dyn TieredMachine) -> Tier {
        let tier = self.ask(format!("place {page}"), machine, |policy, machine| policy.place(page, machine));
        self.decisions.lock().unwrap().push(format!("{tier:?}"));
        tier
    }
    fn on_first_touch(&mut self, page: PageIndex, tier: Tier, machine: &mut dyn TieredMachine) {
        let what = format!("touch {page} {tier:?}");
        self.ask(what, machine, |policy, machine| policy.on_first_touch(page, tier, machine));
    }
    fn on_fault(&mut self, fault: Fault, machine: &mut dyn TieredMachine) {
        self.ask(format!("fault {}", fault.page), machine, |policy, machine| policy.on_fault(fault, machine));
    }
    fn on_timer(&mut self, timer: u32, machine: &mut dyn TieredMachine) {
        self.ask(format!("timer {timer}"), machine, |policy, machine| policy.on_timer(timer, machine));
    }
    fn on_counters(&mut self, window: CounterWindow, machine: &mut dyn TieredMachine) {
        self.ask("window".into(), machine, |policy, machine| policy.on_counters(window, machine));
    }
}

fn policy(name: &str, decisions: &Decisions) -> Box<dyn Policy> {
    let settings: PolicySettings = match name {
        // As the daemon has it.
        "memtis" => serde_json::from_str(r#"{"mapping": "base"}"#).unwrap(),
        _ => PolicySettings::new(),
    };
    let policy = registry::find(name).unwrap().build(0.05, &settings, 1, &Knowledge::default()).unwrap();
    Box::new(Recording { policy, decisions: decisions.clone() })
}

/// The lab's machine, whose own costs are nothing, so that time passes as the log says.
struct Lab {
    node: Node,
    link: Link,
    timers: Timers,
    now_ps: u64,
    policy: Box<dyn Policy>,
}

impl Lab {
    fn new(mut policy: Box<dyn Policy>) -> Self {
        let mut platform = serde_json::to_value(Platform::named("hotbox").unwrap()).unwrap();
        for (name, value) in platform.as_object_mut().unwrap() {
            if name.ends_with("_ns") {
                *value = 0.0.into();
            }
        }
        platform["link_bytes_per_s"] = 1e300.into();
        let platform: Platform = serde_json::from_value(platform).unwrap();
        let regions = [Region { name: "memory", start: START, bytes: u64::from(PAGES) * 4096 }];
        let addresses = AddressMap::new(&regions, 4096).unwrap();
        let node =
            Node::new(&platform, addresses, 1, LOCAL_PAGES, policy.access_model(), policy.mapping()).unwrap();
        let mut lab = Self {
            node,
            link: Link::new(1e300, 0.0, 0.0),
            timers: Timers::default(),
            now_ps: 0,
            policy: Box::new(NoPolicy),
        };
        lab.with(|machine| policy.start(machine));
        lab.policy = policy;
        lab
    }

    fn with<R>(&mut self, act: impl FnOnce(&mut View<'_>) -> R) -> R {
        let mut view = View {
            node: &mut self.node,
            link: &mut self.link,
            timers: &mut self.timers,
            start_ps: self.now_ps,
            core: None,
            faulting: None,
            bill: Bill::default(),
            arrival_ps: 0,
            copied_ps: 0,
        };
        let done = act(&mut view);
        assert_eq!(view.settle().total_ps(), 0, "nothing costs anything here");
        done
    }

    fn ask<R>(&mut self, act: impl FnOnce(&mut dyn Policy, &mut View<'_>) -> R) -> R {
        let mut policy: Box<dyn Policy> = std::mem::replace(&mut self.policy, Box::new(NoPolicy));
        let done = self.with(|machine| act(policy.as_mut(), machine));
        self.policy = policy;
        done
    }

    fn tell(&mut self, event: &Logged) {
        match *event {
            Logged::Accesses(ref pages) => pages.iter().for_each(|&page| self.access(page)),
            Logged::Samples(ref samples) => {
                let samples = samples.iter().map(|&(page, write)| Sample { page, write });
                self.node.sampler.taken.extend(samples);
            }
            Logged::Pass { ns } => self.pass(self.now_ps + ns * 1000),
            Logged::Window { local, far } => {
                let window = CounterWindow { local_accesses: local, far_accesses: far };
                self.ask(|policy, machine| policy.on_counters(window, machine));
            }
        }
    }

    fn access(&mut self, page: PageIndex) {
        if self.node.pages.tier_of(page).is_none() {
            let tier = self.ask(|policy, machine| policy.place(page, machine));
            let tier = self.node.install(page, tier);
            self.ask(|policy, machine| policy.on_first_touch(page, tier, machine));
        } else if self.node.pages.flags[page as usize] & bit::MARKED != 0 {
            self.node.map_again(page);
            let fault = Fault { page, kind: FaultKind::Hint, write: false, task: 0 };
            self.ask(|policy, machine| policy.on_fault(fault, machine));
        }
        self.node.pages.flags[page as usize] |= bit::ACCESSED;
        let region = (page >> self.node.pages.huge_shift) as usize;
        self.node.pages.regions[region] |= region_bit::ACCESSED;
    }

    fn pass(&mut self, until_ps: u64) {
        while self.timers.next_ps() <= until_ps {
            let Some((at_ps, Event::Timer(timer))) = self.timers.pop() else { panic!("no windows here") };
            self.now_ps = at_ps;
            self.ask(|policy, machine| policy.on_timer(timer, machine));
        }
        self.now_ps = until_ps;
    }
}

/// Stands where the policy is, while the policy works.
struct NoPolicy;
impl Policy for NoPolicy {}

/// The daemon's machine over a kernel of which everything is known at once: it is scanned after each event.
struct Live {
    driver: Driver,
    kernel: FakeKernel,
    now_ns: u64,
}

impl Live {
    fn new(policy: Box<dyn Policy>) -> Self {
        let kernel = FakeKernel::default();
        let local_bytes = u64::from(LOCAL_PAGES) * 4096;
        let link = LinkTelemetry { available_bytes_per_s: 0.0, delta_latency_ns: 0.0, traffic_bytes: 0 };
        let limits = Limits {
            local: LocalBudget::Bytes(Size::from_bytes(local_bytes)),
            local_pages: LOCAL_PAGES,
            far_pages: PAGES,
            migration_bytes_per_s: 1 << 50,
            link,
        };
        let mut machine = LiveMachine::new(PAGES, limits, Box::new(kernel.clone())).told_at_once();
        machine.set_room(Tier::Local, NodeRoom(vec![(0, PAGES)]));
        machine.set_room(Tier::Far, NodeRoom(vec![(1, PAGES)]));
        Self { driver: Driver::new(machine, policy, Box::new(|| None)), kernel, now_ns: 0 }
    }

    fn scan(&mut self) {
        let mut source = self.kernel.clone();
        self.driver.scan(PROCESS, EVERYWHERE, &mut source, &tier_of_frame, PAGES).unwrap();
        self.driver.act(PROCESS);
    }

    fn tell(&mut self, event: &Logged) {
        match *event {
            // The kernel places a new page where there is room, and there is on both nodes.
            Logged::Accesses(ref pages) => {
                pages.iter().for_each(|&page| self.kernel.access(PROCESS, START + u64::from(page) * 4096, 0));
            }
            Logged::Samples(ref samples) => {
                let machine = &mut self.driver.machine;
                machine.set_source_period(machine.wanted_sample_period());
                for &(page, write) in samples {
                    machine.note_sample(PROCESS, START + u64::from(page) * 4096, write);
                }
            }
            Logged::Pass { ns } => {
                let until_ns = self.now_ns + ns;
                while let Some(at_ns) = self.driver.machine.next_timer_ns().filter(|&at_ns| at_ns <= until_ns)
                {
                    self.driver.advance(at_ns);
                    self.scan();
                }
                self.driver.advance(until_ns);
                self.now_ns = until_ns;
            }
            Logged::Window { local, far } => {
                self.driver.window(CounterWindow { local_accesses: local, far_accesses: far });
            }
        }
        self.scan();
    }
}

/// Tells both; how many decisions there were, and how many of them moved a page.
fn compare(name: &str, log: &[Logged]) -> (usize, usize) {
    let (in_lab, in_daemon) = (Decisions::default(), Decisions::default());
    let mut lab = Lab::new(policy(name, &in_lab));
    let mut live = Live::new(policy(name, &in_daemon));
    let mut compared = 0;
    for (at, event) in log.iter().enumerate() {
        lab.tell(event);
        live.tell(event);
        let (lab, daemon) = (in_lab.lock().unwrap(), in_daemon.lock().unwrap());
        let differ = lab.iter().zip(daemon.iter()).skip(compared).find(|(lab, daemon)| lab != daemon);
        assert!(differ.is_none() && lab.len() == daemon.len(), "{name}, event {at}, {event:?}: {differ:?}");
        compared = lab.len();
    }
    let decisions = in_lab.lock().unwrap();
    let moved = |decision: &&String| decision.starts_with("migrate") || decision.starts_with("exchange");
    (decisions.len(), decisions.iter().filter(moved).count())
}

#[test]
fn lab_and_daemon_come_to_the_same_decisions() {
    // The log goes through its written form, as a recorded one does.
    let written = serde_json::to_string(&recorded()).unwrap();
    let log: Vec<Logged> = serde_json::from_str(&written).unwrap();
    let live = registry::entries().iter().filter(|entry| group::is_live(entry) && !entry.unlimited);
    let mut policies = 0;
    for entry in live {
        let (decisions, moves) = compare(entry.name, &log);
        println!("{}: {decisions} decisions, {moves} of them moves", entry.name);
        assert!(decisions > PAGES as usize, "{}: {decisions}", entry.name);
        if ["hotbox", "indigo", "tpp", "hemem", "memtis"].contains(&entry.name) {
            assert!(moves >= 10, "{}: {moves}", entry.name);
        }
        policies += 1;
    }
    assert!(policies >= 8, "{policies}");
}
