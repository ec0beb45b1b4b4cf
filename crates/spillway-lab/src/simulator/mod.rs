//! The simulator: steps the task whose clock is least, lets policies act, and keeps time.
//!
//! - [`platform`]: every constant, and the presets
//! - [`pages`], [`cache`], [`tlb`], [`link`]: the parts of the machine
//! - [`node`]: a program's cores and the path of an access
//! - [`view`]: the machine that a policy acts on
//! - [`timers`], [`metrics`]: when things happen, and what is counted; [`heat`]: what far accesses would cost
//! - `release`: pages that the program gives back
//!
//! Deterministic: no thread, no clock, no order that depends on addresses. Several tenants are several nodes,
//! each with its own policy and local memory, that share the link.

pub mod cache;
pub mod heat;
pub mod link;
mod lock;
mod lru;
pub mod metrics;
pub mod node;
pub mod pages;
pub mod platform;
mod release;
pub mod timers;
pub mod tlb;
pub mod view;

use spillway_policy::machine::Tier;
use spillway_policy::policy::{AccessModel, CounterWindow, Fault, FaultKind, Policy};
use thiserror::Error;

use crate::access::Access;
use crate::workload::Workload;
use heat::Heat;
use link::{Link, PS_PER_NS};
use metrics::{Bill, Counts, Series, Spent, Work};
use node::{Node, Stop};
use pages::AddressMap;
use platform::{DaemonCore, Platform};
use timers::{Event, Timers};
use view::View;

/// How far a task may run ahead of the others, in picoseconds: a few far accesses.
const QUANTUM_PS: u64 = 4_000_000;

/// Longest time that can be simulated: a day. Clocks are far from their end then.
const LONGEST_PS: u64 = 24 * 3600 * 1_000_000_000_000;

/// Accesses that each task makes in turn under [`Interleave::Lockstep`].
pub const LOCKSTEP_ACCESSES: usize = 64;

/// What a task is charged that is stepped but touches nothing, in nanoseconds: it waits for another one.
const IDLE_STEP_NS: u64 = 200;

/// Who is told how far a simulation is looks at a clock, which takes as long as a turn of a few accesses.
const TURNS_BETWEEN_TELLING: u64 = 32;

/// In which order tasks take their turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Interleave {
    /// The one whose clock is least: as on a real machine.
    #[default]
    Clock,
    /// Each in turn, by number of accesses: the order does not depend on the policy, as an offline one needs.
    Lockstep,
}

/// Why a simulation cannot be run, or ended early.
#[derive(Debug, Error)]
pub enum SimulationError {
    /// There is no memory to simulate.
    #[error(
        "the workload '{0}' touches no memory, or its addresses lie more than 128 TiB apart: choose another"
    )]
    Regions(&'static str),
    /// The workload is too large for the simulator's numbers.
    #[error("the workload '{0}' has more memory than can be simulated (128 GiB): choose a smaller size")]
    TooLarge(&'static str),
    /// The workload broke its word.
    #[error("the workload '{0}' used address {1:#x}, which is in none of its regions: this is a bug in it")]
    BadAddress(&'static str, u64),
    /// The policy broke its word.
    #[error("the policy left page {0} far after a fault that asked for it: this is a bug in it")]
    NotFetched(u32),
    /// It goes on for too long.
    #[error(
        "the workload '{0}' works for more than a day of simulated time: choose a shorter one, or see \
         whether its trace is sound"
    )]
    TooLong(&'static str),
    /// The algorithm is wrong.
    #[error("the workload '{0}' came to a wrong result: {1}; this is a bug in it")]
    WrongResult(&'static str, String),
}

/// One program and what decides about its memory.
pub struct Tenant {
    /// The program that runs on the node.
    pub workload: Box<dyn Workload>,
    /// The policy that decides on its pages.
    pub policy: Box<dyn Policy>,
    /// Pages of local memory that it has.
    pub local_pages: u32,
}

/// A simulation to be.
pub struct Setup {
    /// The platform, scaled already.
    pub platform: Platform,
    /// Share of the link that a neighbour takes, 0 to below 1.
    pub contention: f64,
    /// In which order tasks take turns.
    pub interleave: Interleave,
    /// First distance between points of the time series, in nanoseconds.
    pub series_ns: u64,
    /// Whether to count misses of each page.
    pub profile: bool,
    /// Whether to note what far accesses would cost, in epochs of so many picoseconds.
    pub epoch_ps: Option<u64>,
    /// The programs, each on a node of its own.
    pub tenants: Vec<Tenant>,
}

/// What became of one tenant.
pub struct Outcome {
    /// The name of the workload.
    pub workload: &'static str,
    /// From the end of loading until its last task was done, in picoseconds.
    pub run_ps: u64,
    /// What its cores spent.
    pub spent: Spent,
    /// What happened, in numbers.
    pub counts: Counts,
    /// Local pages in use a window, on average, and local pages.
    pub pages_in_use: f64,
    /// Local pages, on average.
    pub pages_local: f64,
    /// Pages in all, and in local memory at most.
    pub page_count: u32,
    /// Local memory, in pages.
    pub local_pages: u32,
    /// Bytes in a page.
    pub page_bytes: u64,
    /// The same over time.
    pub series: Series,
    /// Misses of each page, where asked for.
    pub profile: Vec<u32>,
    /// What far accesses would cost, where asked for.
    pub heat: Option<Box<Heat>>,
    /// What the policy went by at the end, in its words.
    pub remark: Option<String>,
}

struct Running {
    workload: Box<dyn Workload>,
    policy: Box<dyn Policy>,
    node: Node,
    timers: Timers,
    /// When the daemon is through with what it did last.
    daemon_ps: u64,
    spare_bill: Bill,
    window: (u64, u64),
    series: Series,
    series_ps: u64,
    in_use: (u64, u64, u64),
    /// What there was when the workload had loaded; nothing before.
    start: Option<Start>,
}

/// What had been counted and spent when measuring began.
#[derive(Clone, Copy, Default)]
struct Start {
    time_ps: u64,
    spent: Spent,
    counts: Counts,
}

/// Nodes that share one link, in simulated time.
pub struct Simulation {
    tenants: Vec<Running>,
    link: Link,
    interleave: Interleave,
}

impl Simulation {
    /// Makes ready; policies start.
    ///
    /// # Errors
    /// A workload's memory cannot be simulated.
    pub fn new(setup: Setup) -> Result<Self, SimulationError> {
        let platform = &setup.platform;
        let mut link = Link::new(platform.link_bytes_per_s, platform.far_ns, setup.contention);
        let mut tenants = Vec::new();
        for tenant in setup.tenants {
            let Tenant { workload, policy, local_pages } = tenant;
            let addresses = AddressMap::new(workload.regions(), platform.page_bytes)
                .ok_or(SimulationError::Regions(workload.name()))?;
            let (model, mapping) = (policy.access_model(), policy.mapping());
            let mut node = Node::new(platform, addresses, workload.tasks(), local_pages, model, mapping)
                .ok_or(SimulationError::TooLarge(workload.name()))?;
            if setup.profile {
                node.profile = vec![0; node.pages.flags.len()];
            }
            let pages = node.pages.flags.len() as u32;
            node.heat = setup.epoch_ps.map(|epoch_ps| Box::new(Heat::new(pages, epoch_ps)));
            let series_ps = setup.series_ns * PS_PER_NS;
            let mut running = Running {
                workload,
                policy,
                node,
                timers: Timers::default(),
                daemon_ps: 0,
                spare_bill: Bill::default(),
                window: (0, 0),
                series: Series::new(0, series_ps),
                series_ps,
                in_use: (0, 0, 0),
                start: None,
            };
            // What a policy does before the program starts costs it nothing.
            running.with_policy(&mut link, 0, None, None, |policy, view| policy.start(view));
            tenants.push(running);
        }
        Ok(Self { tenants, link, interleave: setup.interleave })
    }

    /// Runs until every task of every tenant is done.
    ///
    /// # Errors
    /// The workload or the policy broke its word.
    pub fn run(self) -> Result<Vec<Outcome>, SimulationError> {
        self.run_telling(&mut |_| {})
    }

    /// Runs likewise, and shows itself to `tell` now and then.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn run_telling(mut self, tell: &mut dyn FnMut(&Self)) -> Result<Vec<Outcome>, SimulationError> {
        let (mut turn, mut turns) = (0, 0_u64);
        while let Some((tenant, core, horizon_ps)) = self.next_core(&mut turn) {
            if turns.is_multiple_of(TURNS_BETWEEN_TELLING) {
                tell(&self);
            }
            turns += 1;
            self.events(tenant, core);
            self.turn(tenant, core, horizon_ps)?;
        }
        self.tenants.into_iter().map(Running::finish).collect()
    }

    /// How much of their work all programs have left, in units of their own; none where one cannot tell.
    #[must_use]
    pub fn work_left(&self) -> Option<u64> {
        self.tenants.iter().map(|tenant| tenant.workload.work_left()).sum()
    }

    /// The time that the foremost task has come to since it began to load, in seconds.
    #[must_use]
    pub fn simulated_s(&self) -> f64 {
        let cores = self.tenants.iter().flat_map(|tenant| &tenant.node.cores);
        cores.map(|core| core.clock_ps).max().unwrap_or(0) as f64 / 1e12
    }

    /// The task whose turn it is, and how far it may go.
    fn next_core(&self, turn: &mut usize) -> Option<(usize, usize, u64)> {
        let all = self.tenants.iter().enumerate().flat_map(|(at, tenant)| {
            tenant.node.cores.iter().enumerate().map(move |(core, state)| (at, core, state))
        });
        let mut live = all.filter(|(_, _, core)| !core.done);
        if self.interleave == Interleave::Lockstep {
            let live: Vec<_> = live.map(|(tenant, core, _)| (tenant, core)).collect();
            let &(tenant, core) = live.get(*turn % live.len().max(1))?;
            *turn = (*turn + 1) % live.len();
            return Some((tenant, core, u64::MAX));
        }
        let (mut tenant, mut core, first) = live.next()?;
        let (mut least, mut second) = (first.clock_ps, u64::MAX - QUANTUM_PS);
        for (other_tenant, other, state) in live {
            if state.clock_ps < least {
                second = least;
                (tenant, core, least) = (other_tenant, other, state.clock_ps);
            } else {
                second = second.min(state.clock_ps);
            }
        }
        Some((tenant, core, second + QUANTUM_PS))
    }

    /// Handles what is due for a tenant by its task's clock.
    fn events(&mut self, tenant: usize, core: usize) {
        let running = &mut self.tenants[tenant];
        loop {
            let now_ps = running.node.cores[core].clock_ps;
            if running.series.next_ps() <= now_ps {
                running.take_point(now_ps);
            }
            if running.due_ps() > now_ps {
                return;
            }
            let Some((at_ps, event)) = running.timers.pop() else { return };
            running.daemon(&mut self.link, at_ps, event);
        }
    }

    /// Lets a task work until `horizon_ps` or the next event.
    fn turn(&mut self, tenant: usize, core: usize, horizon_ps: u64) -> Result<(), SimulationError> {
        let mut accesses = match self.interleave {
            Interleave::Clock => usize::MAX,
            Interleave::Lockstep => LOCKSTEP_ACCESSES,
        };
        loop {
            let running = &mut self.tenants[tenant];
            let until_ps = horizon_ps.min(running.due_ps()).min(running.series.next_ps());
            let before = running.node.cores[core].next;
            let stop = running.node.run(core, until_ps, accesses, &mut self.link);
            accesses -= running.node.cores[core].next - before;
            if running.node.cores[core].clock_ps > LONGEST_PS {
                return Err(SimulationError::TooLong(running.workload.name()));
            }
            match stop {
                Stop::Time if self.interleave == Interleave::Lockstep && accesses > 0 => {
                    self.events(tenant, core);
                }
                Stop::Time => return Ok(()),
                Stop::Empty => {
                    if !running.step(core) {
                        return Ok(());
                    }
                }
                Stop::FirstTouch(page) => running.first_touch(&mut self.link, core, page),
                Stop::Fault(page, kind, write) => running.fault(&mut self.link, core, page, kind, write)?,
                Stop::Release(page_number, pages) => {
                    running.release(&mut self.link, core, page_number, pages);
                    // Unlike an access that stopped it does not come again.
                    running.node.cores[core].next += 1;
                    accesses -= 1;
                }
                Stop::BadAddress(address) => {
                    return Err(SimulationError::BadAddress(running.workload.name(), address));
                }
            }
        }
    }
}

impl Running {
    /// When the daemon goes on: at its next event, or as soon as it is through with the last one.
    fn due_ps(&self) -> u64 {
        self.timers.next_ps().max(self.daemon_ps)
    }

    /// Lets the policy act, and returns what that cost.
    fn with_policy(
        &mut self,
        link: &mut Link,
        start_ps: u64,
        core: Option<usize>,
        faulting: Option<u32>,
        act: impl FnOnce(&mut dyn Policy, &mut View<'_>),
    ) -> Bill {
        let mut view = View {
            node: &mut self.node,
            link,
            timers: &mut self.timers,
            start_ps,
            core,
            faulting,
            bill: Bill::default(),
            arrival_ps: 0,
            copied_ps: 0,
        };
        act(self.policy.as_mut(), &mut view);
        view.settle()
    }

    /// The workload has loaded: what is measured begins here, for all tasks at once.
    fn begin_measuring(&mut self) {
        let time_ps = self.node.cores.iter().map(|core| core.clock_ps).max().unwrap_or(0);
        for core in &mut self.node.cores {
            core.clock_ps = time_ps;
        }
        self.start = Some(Start { time_ps, spent: self.spent(), counts: self.node.counts });
        self.node.pages.count_in_use();
        self.node.profile.fill(0);
        let Node { heat, pages, .. } = &mut self.node;
        if let Some(heat) = heat {
            heat.begin(time_ps, (0..pages.flags.len() as u32).filter(|&page| pages.tier_of(page).is_some()));
        }
        self.series = Series::new(time_ps, self.series_ps);
        self.in_use = (0, 0, 0);
    }

    /// Gives a task its next accesses. False when it is done.
    fn step(&mut self, core: usize) -> bool {
        if self.start.is_none() && !self.workload.loading() {
            self.begin_measuring();
        }
        let this = &mut self.node.cores[core];
        this.accesses.clear();
        this.next = 0;
        if this.ending || !self.workload.step(core, &mut this.accesses) {
            this.ending = true;
            // What the last step left is done before the task is.
            this.done = this.accesses.is_empty();
        } else if this.accesses.is_empty() {
            this.accesses.push(Access::compute_ns(IDLE_STEP_NS));
        }
        !this.done
    }

    fn charge(&mut self, core: usize, bill: Bill) {
        self.node.cores[core].clock_ps += bill.total_ps();
        self.node.bill.add_all(bill);
    }

    fn first_touch(&mut self, link: &mut Link, core: usize, page: u32) {
        let now_ps = self.node.cores[core].clock_ps;
        let head = self.node.head_at_first_touch(page);
        let mut placed = Bill::default();
        placed.add(Work::Fault, self.node.costs.first_touch);
        let mut tier = Tier::Far;
        placed.add_all(self.with_policy(link, now_ps, Some(core), Some(head), |policy, view| {
            tier = policy.place(head, view);
        }));
        let tier = self.node.install(head, tier);
        if let Some(heat) = &mut self.node.heat {
            (head..head + self.node.pages.span(head)).for_each(|page| heat.born(page, now_ps));
        }
        let at_ps = now_ps + placed.total_ps();
        placed.add_all(self.with_policy(link, at_ps, Some(core), Some(head), |policy, view| {
            policy.on_first_touch(head, tier, view);
        }));
        self.charge(core, placed);
    }

    fn fault(
        &mut self,
        link: &mut Link,
        core: usize,
        page: u32,
        kind: FaultKind,
        write: bool,
    ) -> Result<(), SimulationError> {
        let now_ps = self.node.cores[core].clock_ps;
        let mut bill = Bill::default();
        bill.add(Work::Fault, self.node.costs.fault);
        match kind {
            FaultKind::Hint => self.node.counts.hint_faults += 1,
            FaultKind::Missing => self.node.counts.missing_faults += 1,
            FaultKind::Minor => self.node.counts.minor_faults += 1,
        }
        if kind != FaultKind::Missing {
            self.node.map_again(page);
        }
        let fault = Fault { page, kind, write, task: core as u32 };
        let at_ps = now_ps + bill.total_ps();
        bill.add_all(
            self.with_policy(link, at_ps, Some(core), Some(page), |policy, view| {
                policy.on_fault(fault, view)
            }),
        );
        self.charge(core, bill);
        let fetched =
            self.node.model == AccessModel::Hybrid || self.node.pages.tier_of(page) == Some(Tier::Local);
        if fetched { Ok(()) } else { Err(SimulationError::NotFetched(page)) }
    }

    /// A timer or a window: work of a daemon.
    fn daemon(&mut self, link: &mut Link, at_ps: u64, event: Event) {
        let start_ps = at_ps.max(self.daemon_ps);
        let bill = match event {
            Event::Timer(timer) => {
                self.with_policy(link, start_ps, None, None, |policy, view| policy.on_timer(timer, view))
            }
            Event::Window => {
                let window = self.end_window();
                self.timers.next_window(at_ps);
                self.with_policy(link, start_ps, None, None, |policy, view| policy.on_counters(window, view))
            }
        };
        self.daemon_ps = start_ps + bill.total_ps();
        match self.node.daemon_core {
            DaemonCore::Spare => self.spare_bill.add_all(bill),
            DaemonCore::Shared => self.share(bill),
        }
    }

    /// Spreads a daemon's time evenly over the cores that still work.
    fn share(&mut self, bill: Bill) {
        let live = self.node.cores.iter().filter(|core| !core.done).count().max(1) as u64;
        let each_ps = bill.total_ps() / live;
        for core in self.node.cores.iter_mut().filter(|core| !core.done) {
            core.clock_ps += each_ps;
        }
        self.node.bill.add_all(bill);
    }

    fn end_window(&mut self) -> CounterWindow {
        let counts = &self.node.counts;
        let (local, far) = std::mem::replace(&mut self.window, (counts.local_misses, counts.far_misses));
        CounterWindow { local_accesses: counts.local_misses - local, far_accesses: counts.far_misses - far }
    }

    fn spent(&self) -> Spent {
        Spent { core_ps: self.node.core_ps(), bill: self.node.bill, spare_bill: self.spare_bill }
    }

    fn take_point(&mut self, now_ps: u64) {
        let (in_use, local) = self.node.pages.count_in_use();
        let start = self.start.unwrap_or_default();
        let (counts, spent) = (self.node.counts.since(&start.counts), self.spent().since(&start.spent));
        self.series.push(now_ps, counts, spent, in_use, local);
        self.in_use.0 += u64::from(in_use);
        self.in_use.1 += u64::from(local);
        self.in_use.2 += 1;
    }

    fn finish(mut self) -> Result<Outcome, SimulationError> {
        let name = self.workload.name();
        self.workload.verify().map_err(|error| SimulationError::WrongResult(name, error))?;
        let end_ps = self.node.cores.iter().map(|core| core.clock_ps).max().unwrap_or(0);
        self.take_point(end_ps);
        let start = self.start.unwrap_or_default();
        let points = self.in_use.2 as f64;
        Ok(Outcome {
            workload: name,
            run_ps: end_ps - start.time_ps,
            spent: self.spent().since(&start.spent),
            counts: self.node.counts.since(&start.counts),
            pages_in_use: self.in_use.0 as f64 / points,
            pages_local: self.in_use.1 as f64 / points,
            page_count: self.node.pages.flags.len() as u32,
            local_pages: self.node.pages.capacity(Tier::Local),
            page_bytes: self.node.page_bytes,
            series: self.series,
            profile: self.node.profile,
            heat: self.node.heat,
            remark: self.policy.remark(),
        })
    }
}

#[cfg(test)]
mod tests;
