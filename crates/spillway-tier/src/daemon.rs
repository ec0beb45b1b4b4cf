//! The daemon: groups of processes, each with its policy, turn by turn.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use spillway_core::page::PAGE_BYTES;
use spillway_policy::machine::{Tier, TieredMachine};
use spillway_snapshot::snapshot::{self, Body, Snapshot};
use spillway_sys::mark_events::Marked;
use thiserror::Error;

use crate::counters::{Counters, CountersError};
use crate::driver::Driver;
use crate::group::{Config, ConfigError, Group, LocalBudget};
use crate::link::LinkMeter;
use crate::live::{Limits, LiveMachine};
use crate::mover::{KernelMover, Mover};
use crate::nodes::{Nodes, NodesError, Tiers};
use crate::pace::{Pace, ScanPace};
use crate::process::{self, Process, ProcessError, ProcessLayout, ProcessLayouts};
use crate::room::NodeRoom;
use crate::settings::{self, Conflict, KernelSettings, SettingsError};
use crate::source::{self, Chosen, Source, SourceError};
use crate::status::{Answer, GroupStatus, Request, SourceStatus, Status};

use self::marking::Marking;
use self::sampled::Sampling;

/// Numbers that a policy knows at first, in pages: for 4 GiB.
const FIRST_PAGES: u32 = 1 << 20;
/// What the daemon leaves free of a node for the kernel, at most, in pages: 64 MiB.
const RESERVE_PAGES: u64 = 16_384;
/// The same, as a share of the node: one part in so many.
const RESERVE_PART: u64 = 64;
/// Local memory is short where less than one part in so many of it is free: policies leave more.
const SHORT_PART: u32 = 512;
/// Scans come at least so often, whatever they cost: what is older says nothing.
const LONGEST_INTERVAL_NS: u64 = 10_000_000_000;
/// What CPU time is given for.
const TEN_GIB: f64 = (10_u64 << 30) as f64;
/// It never sleeps less, so that work that is put off again and again does not keep a core busy.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);
/// It never sleeps longer, so that a group whose processes are gone is noticed.
const LONGEST_WAIT: Duration = Duration::from_millis(500);

/// Why a daemon cannot start or go on.
#[derive(Debug, Error)]
pub enum DaemonError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// There are no two tiers.
    #[error(transparent)]
    Nodes(#[from] NodesError),
    /// The telemetry source does not work, or no longer.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A setting that telemetry needs cannot be changed.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// No counters where some were named.
    #[error(transparent)]
    Counters(#[from] CountersError),
    /// A process or a control group is not there.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// The kernel does the same by itself.
    #[error(
        "{}: {} ({}); turn it off: {}; or start with {}",
        .0.setting, .0.value, .0.meaning, .0.remedy, .0.flags()
    )]
    Conflict(Conflict),
    /// The kernel does not say which node a frame is of.
    #[error(
        "memory blocks: the kernel does not say which node a frame is of; it needs CONFIG_MEMORY_HOTPLUG"
    )]
    NoFrames,
}

/// A group at work.
struct Running {
    group: Group,
    driver: Driver,
    processes: BTreeMap<u32, Process>,
    /// A program that we started: its descendants belong to the group.
    program: Option<u32>,
    next_scan_ns: u64,
    last_scan_ns: u64,
    scan_interval_ns: u64,
    scans: u64,
    pace: Pace,
    /// The next scan is an early one.
    is_early: bool,
    early_scans: u64,
    /// CPU time of scans.
    scan_cpu_ns: u64,
    /// CPU time of scans, policy and moves since the last scan began.
    busy_ns: u64,
    left_alone: BTreeMap<u32, ProcessLayout>,
    ended: Option<String>,
}

/// Groups of processes at work, over one telemetry source.
pub struct Daemon {
    config: Config,
    nodes: Nodes,
    tiers: Tiers,
    source: Box<dyn Source>,
    /// Why it is this source and no other, in words.
    source_why: String,
    layouts: ProcessLayouts,
    link: LinkMeter,
    groups: Vec<Running>,
    began: Instant,
    /// The same moment, on CLOCK_MONOTONIC.
    began_ns: u64,
    root: PathBuf,
    marking: Marking,
    sampling: Sampling,
}

fn clock_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

impl Daemon {
    /// Whether a daemon could start with this configuration, before anything is begun.
    ///
    /// # Errors
    /// A value makes no sense, the machine has not got what is needed, or the kernel does the same by itself.
    pub fn check(config: &Config) -> Result<(), DaemonError> {
        Self::prepare(config).map(|_| ())
    }

    fn prepare(config: &Config) -> Result<(Nodes, Tiers, Chosen), DaemonError> {
        config.check()?;
        let root = Path::new("/");
        if let Some(conflict) = settings::conflicts(root).into_iter().next().filter(|_| !config.beside_kernel)
        {
            return Err(DaemonError::Conflict(conflict));
        }
        let nodes = Nodes::read(root)?;
        let tiers = nodes.tiers(config.fast.as_ref(), config.slow.as_ref())?;
        config.counters.as_deref().map(Counters::open).transpose()?;
        if !nodes.know_frames() {
            return Err(DaemonError::NoFrames);
        }
        Ok((nodes, tiers, source::open(config.wanted_source())?))
    }

    /// Starts to manage what a configuration names. `program` is one that was started for the first group.
    /// What the telemetry source needs changed is changed through `settings`.
    ///
    /// # Errors
    /// As [`Self::check`], or a process or control group is not there, or a setting cannot be changed.
    pub fn start(
        config: Config,
        program: Option<u32>,
        settings: &mut KernelSettings,
    ) -> Result<Self, DaemonError> {
        let (nodes, tiers, chosen) = Self::prepare(&config)?;
        let link = LinkMeter::open(&nodes, &tiers, config.counters.as_deref(), config.link_cpu_pct)?;
        let machine = (nodes, tiers, link);
        let mut daemon = Self::with(config, machine, chosen, &|| Box::new(KernelMover), program)?;
        daemon.source.begin(settings)?;
        Ok(daemon)
    }

    /// The same on a machine of one node, half of which is pretended to be slow. `root` is an empty
    /// directory.
    ///
    /// # Errors
    /// As [`Self::start`].
    #[cfg(any(test, feature = "testing"))]
    pub fn pretend(config: Config, root: &Path, settings: &mut KernelSettings) -> Result<Self, DaemonError> {
        use crate::pretended_nodes::{PretendingMover, PretendingProber, nodes};
        config.check()?;
        let nodes = nodes(root).map_err(|_| NodesError::NoNodes(root.to_owned()))?;
        let (tiers, chosen) = (nodes.tiers(None, None)?, source::open(config.wanted_source())?);
        let prober = PretendingProber::new().map_err(|_| NodesError::NoSuchNode(0))?;
        let link = LinkMeter::probed_by(&nodes, &tiers, Box::new(prober), config.link_cpu_pct);
        let machine = (nodes, tiers, link);
        let mut daemon = Self::with(config, machine, chosen, &|| Box::new(PretendingMover), None)?;
        daemon.source.begin(settings)?;
        Ok(daemon)
    }

    fn with(
        config: Config,
        (nodes, tiers, link): (Nodes, Tiers, LinkMeter),
        chosen: Chosen,
        mover: &dyn Fn() -> Box<dyn Mover>,
        program: Option<u32>,
    ) -> Result<Self, DaemonError> {
        let mut groups = Vec::new();
        for (at, group) in config.group.iter().enumerate() {
            let limits = Limits {
                local: group.local.unwrap_or(LocalBudget::Pct(100.0)),
                local_pages: 0,
                far_pages: pages_of(&nodes, &tiers, Tier::Far),
                migration_bytes_per_s: config.migration_bytes_per_s()?,
                link: link.telemetry(),
            };
            let counters = config.counters.as_deref().map(Counters::open).transpose()?;
            let machine = LiveMachine::new(FIRST_PAGES, limits, mover()).counted_by(counters);
            let machine = machine.marked_by_kernel(chosen.source.tells_marks());
            // It was built once already, so it can be built again.
            let first = group.build_policy()?;
            let again = group.clone();
            let driver = Driver::new(machine, first, Box::new(move || again.build_policy().ok()));
            let program = program.filter(|_| at == 0);
            groups.push(Running::new(group.clone(), driver, program)?);
        }
        let Chosen { source, why: source_why } = chosen;
        Ok(Self {
            config,
            nodes,
            tiers,
            source,
            source_why,
            layouts: ProcessLayouts::default(),
            link,
            groups,
            began: Instant::now(),
            began_ns: clock_ns(ClockId::Monotonic),
            root: PathBuf::from("/"),
            marking: Marking::default(),
            sampling: Sampling::default(),
        })
    }

    fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    /// Does what is due. How long there is nothing more to do; none when all groups have ended.
    ///
    /// # Errors
    /// The telemetry source has disappeared.
    pub fn turn(&mut self) -> Result<Option<Duration>, DaemonError> {
        self.settle_sampling();
        self.tell_accesses();
        self.hear_markers();
        self.measure_link();
        for at in 0..self.groups.len() {
            let now_ns = self.now_ns();
            let group = &mut self.groups[at];
            if group.ended.is_some() {
                continue;
            }
            let began_ns = clock_ns(ClockId::ThreadCPUTime);
            group.driver.advance(now_ns);
            group.busy_ns += clock_ns(ClockId::ThreadCPUTime) - began_ns;
            if now_ns >= group.next_scan_ns {
                self.scan(at)?;
            }
        }
        let next_ns = self
            .groups
            .iter()
            .filter(|group| group.ended.is_none())
            .map(|group| {
                group
                    .driver
                    .machine
                    .next_timer_ns()
                    .map_or(group.next_scan_ns, |at| at.min(group.next_scan_ns))
            })
            .min();
        self.tell_markers();
        let now_ns = self.now_ns();
        Ok(next_ns.map(|next_ns| {
            let next_ns = self.link.next_ns().map_or(next_ns, |at_ns| at_ns.min(next_ns));
            let longest = self.source.longest_wait().unwrap_or(LONGEST_WAIT);
            Duration::from_nanos(next_ns.saturating_sub(now_ns)).clamp(SHORTEST_WAIT, longest)
        }))
    }

    /// Tells the groups of accesses that the source was told of, each at its time.
    fn tell_accesses(&mut self) {
        let began_ns = clock_ns(ClockId::ThreadCPUTime);
        let accesses = self.source.take_accesses();
        for marked in self.source.take_marks() {
            let of_process = |group: &&mut Running| group.processes.contains_key(&marked.process);
            if let Some(group) = self.groups.iter_mut().find(of_process) {
                let time_ns = marked.time_ns.saturating_sub(self.began_ns);
                group.driver.machine.passes.push(Marked { time_ns, ..marked });
            }
        }
        for access in accesses {
            let of_process = |group: &&mut Running| group.processes.contains_key(&access.process);
            if let Some(group) = self.groups.iter_mut().find(of_process) {
                let at_ns = access.time_ns.saturating_sub(self.began_ns);
                group.driver.accessed(access.process, access.address, at_ns);
                group.driver.machine.note_sample(access.process, access.address, access.write);
            }
        }
        self.account_sampling(clock_ns(ClockId::ThreadCPUTime) - began_ns);
    }

    /// Measures the way to far memory where it is time, and lets the groups know.
    fn measure_link(&mut self) {
        let now_ns = self.now_ns();
        if self.link.next_ns().is_some_and(|at_ns| now_ns < at_ns) {
            return;
        }
        let moved_bytes = self.groups.iter().map(|group| group.driver.machine.moved_bytes()).sum();
        self.link.turn(now_ns, moved_bytes);
        let telemetry = self.link.telemetry();
        self.groups.iter_mut().for_each(|group| group.driver.machine.set_link(telemetry));
    }

    /// Scans all processes of a group.
    fn scan(&mut self, at: usize) -> Result<(), DaemonError> {
        let mut scan_cpu_ns = 0;
        let scan_began_ns = clock_ns(ClockId::ThreadCPUTime);
        self.nodes.refresh();
        let local_room = room(&self.nodes, &self.tiers, Tier::Local);
        let far_room = room(&self.nodes, &self.tiers, Tier::Far);
        let most_local_pages = pages_of(&self.nodes, &self.tiers, Tier::Local);
        let now_ns = self.now_ns();
        let frame_tiers = self.nodes.frame_tiers(&self.tiers);
        let tier_of = |frame| frame_tiers.of_frame(frame);
        let group = &mut self.groups[at];
        group.driver.machine.set_early(group.is_early);
        group.driver.machine.set_room(Tier::Local, local_room);
        group.driver.machine.set_room(Tier::Far, far_room);
        for gone in group.find_processes() {
            self.source.forget(gone);
            self.layouts.forget(gone);
        }
        for id in group.processes.keys().copied().collect::<Vec<_>>() {
            let began_ns = clock_ns(ClockId::ThreadCPUTime);
            let Some(layout) = self.layouts.of(&self.root, id, now_ns).cloned() else { continue };
            let managed = self.marking.managed(id, &layout.managed, &mut group.driver.machine);
            let scanned = group.driver.scan(id, &managed, self.source.as_mut(), &tier_of, most_local_pages);
            // What policy and moves cost is not the telemetry's.
            scan_cpu_ns += clock_ns(ClockId::ThreadCPUTime) - began_ns;
            match scanned {
                Ok(()) => group.driver.act(id),
                Err(SourceError::Gone(_)) => {}
                Err(error) => return Err(error.into()),
            }
            group.left_alone.insert(id, layout);
        }
        group.driver.end_round();
        let ended_ns = self.began.elapsed().as_nanos() as u64;
        group.scan_cpu_ns += scan_cpu_ns;
        group.busy_ns += clock_ns(ClockId::ThreadCPUTime) - scan_began_ns;
        group.note_scan(now_ns, ended_ns, &self.config, self.source.least_interval());
        Ok(())
    }

    /// Answers what came in over the daemon's socket.
    #[must_use]
    pub fn answer(&self, request: Request) -> Answer {
        let value = match request {
            Request::Status => serde_json::to_value(self.status()),
            Request::Snapshot => self.snapshot().and_then(serde_json::to_value),
            Request::Explain { process, address } => match self.explain(process, address) {
                Some(explanation) => serde_json::to_value(explanation),
                None => {
                    return Answer::Error(format!(
                        "process {process}: in no group of this daemon; \
                         'spillway tier status' lists those that are"
                    ));
                }
            },
        };
        value.map_or_else(|error| Answer::Error(error.to_string()), Answer::Ok)
    }

    /// What is where, and what happened.
    #[must_use]
    pub fn status(&self) -> Status {
        let facts = self.source.facts();
        let uptime_s = self.began.elapsed().as_secs_f64();
        let cpu_pct = clock_ns(ClockId::ProcessCPUTime) as f64 / 1e7 / uptime_s.max(1e-3);
        let pace = self.config.scan_pace;
        let groups: Vec<_> = self.groups.iter().map(|group| group.status(uptime_s, pace)).collect();
        let managed_bytes = groups.iter().map(|group| group.local_bytes + group.far_bytes).sum();
        Status {
            pid: std::process::id(),
            uptime_s,
            fast: self.tiers.fast.to_string(),
            slow: self.tiers.slow.to_string(),
            source: SourceStatus {
                name: facts.name.to_owned(),
                why: self.source_why.clone(),
                precision: self.source.precision(),
                cost: facts.cost.to_owned(),
                counts: self.source.counts(),
            },
            link: self.link.status(uptime_s),
            migration: self.marking.status(),
            managed_bytes,
            cpu_pct,
            cpu_pct_per_10_gib: (managed_bytes > 0).then(|| cpu_pct * TEN_GIB / managed_bytes as f64),
            groups,
        }
    }

    fn snapshot(&self) -> serde_json::Result<Snapshot> {
        let status = self.status();
        Ok(Snapshot {
            version: snapshot::VERSION,
            spillway_version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: status.pid,
            uid: rustix::process::geteuid().as_raw(),
            name: "tier".to_owned(),
            uptime_s: status.uptime_s,
            body: Body::Tier { tier: serde_json::to_value(status)? },
        })
    }

    /// Scans of the first group so far, and CPU time of this process, in seconds: cheap to ask for at every
    /// turn.
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub fn scans_and_cpu_s(&self) -> (u64, f64) {
        let scans = self.groups.first().map_or(0, |group| group.scans);
        (scans, clock_ns(ClockId::ProcessCPUTime) as f64 / 1e9)
    }
}

/// Pages of a tier's nodes.
fn pages_of(nodes: &Nodes, tiers: &Tiers, tier: Tier) -> u32 {
    let of_tier = nodes.all.iter().filter(|node| tiers.tier_of(node.node) == Some(tier));
    u32::try_from(of_tier.map(|node| node.total_bytes / PAGE_BYTES).sum::<u64>()).unwrap_or(u32::MAX)
}

/// What of a tier's nodes may be filled.
fn room(nodes: &Nodes, tiers: &Tiers, tier: Tier) -> NodeRoom {
    let of_tier = nodes.all.iter().filter(|node| tiers.tier_of(node.node) == Some(tier));
    NodeRoom(
        of_tier
            .map(|node| {
                let reserve = RESERVE_PAGES.min(node.total_bytes / PAGE_BYTES / RESERVE_PART);
                let free = (node.free_bytes / PAGE_BYTES).saturating_sub(reserve);
                (node.node, u32::try_from(free).unwrap_or(u32::MAX))
            })
            .collect(),
    )
}

impl Running {
    fn new(group: Group, driver: Driver, program: Option<u32>) -> Result<Self, DaemonError> {
        let mut processes = BTreeMap::new();
        for &id in group.pids.iter().chain(&program) {
            processes.insert(id, Process::open(id)?);
        }
        for path in &group.cgroups {
            process::of_cgroup(path)?;
        }
        Ok(Self {
            group,
            driver,
            processes,
            program,
            next_scan_ns: 0,
            last_scan_ns: 0,
            scan_interval_ns: 0,
            scans: 0,
            pace: Pace::default(),
            is_early: false,
            early_scans: 0,
            scan_cpu_ns: 0,
            busy_ns: 0,
            left_alone: BTreeMap::new(),
            ended: None,
        })
    }

    /// Lets go of processes that have ended, and takes up those that have come. Returns the former.
    fn find_processes(&mut self) -> Vec<u32> {
        let gone: Vec<u32> =
            self.processes.values().filter(|process| !process.is_alive()).map(|process| process.id).collect();
        for id in &gone {
            self.processes.remove(id);
            self.left_alone.remove(id);
            self.driver.forget(*id);
        }
        let of_program = self.program.map(process::with_descendants).unwrap_or_default();
        let mut ended = "all of its processes have ended";
        let mut waiting = false;
        let mut found = of_program;
        for path in &self.group.cgroups {
            match process::of_cgroup(path) {
                Ok(processes) => {
                    waiting = true;
                    found.extend(processes);
                }
                Err(_) => ended = "its control group is gone",
            }
        }
        for id in found {
            if let (false, Ok(process)) = (self.processes.contains_key(&id), Process::open(id)) {
                self.processes.insert(id, process);
            }
        }
        if self.processes.is_empty() && !waiting {
            self.ended = Some(ended.to_owned());
        }
        gone
    }

    /// A scan was had: the next one comes so late that all that was done since the one before keeps to its
    /// share of a core.
    fn note_scan(&mut self, began_ns: u64, ended_ns: u64, config: &Config, least_interval: Duration) {
        let cost_ns = std::mem::take(&mut self.busy_ns);
        self.scans += 1;
        self.early_scans += u64::from(self.is_early);
        self.scan_interval_ns = began_ns - self.last_scan_ns;
        self.last_scan_ns = began_ns;
        let by_share_ns = (cost_ns as f64 / (config.telemetry_cpu_pct / 100.0)) as u64;
        let least_ns = (config.scan_interval_ms * 1_000_000).max(least_interval.as_nanos() as u64);
        let interval_ns = by_share_ns.min(LONGEST_INTERVAL_NS).max(least_ns);
        // Without pressure scans come steadily.
        let short = config.scan_pace == ScanPace::Pressure && self.is_short_of_local();
        let next = self.pace.next((ended_ns, self.is_early), interval_ns, least_ns, short);
        (self.next_scan_ns, self.is_early) = (next.at_ns, next.early);
    }

    /// Whether local memory is as good as full, though some could be far: reclaim has not kept up.
    fn is_short_of_local(&self) -> bool {
        let machine = &self.driver.machine;
        let short_pages = machine.capacity_pages(Tier::Local).div_ceil(SHORT_PART);
        machine.used_bytes(Tier::Far) > 0 && machine.free_pages(Tier::Local) < short_pages
    }

    fn status(&self, uptime_s: f64, scan_pace: ScanPace) -> GroupStatus {
        let machine = &self.driver.machine;
        let counts = machine.counts.clone();
        let uses = counts.local_uses + counts.far_uses;
        let mut left_alone = ProcessLayout::default();
        for layout in self.left_alone.values() {
            left_alone.locked_bytes += layout.locked_bytes;
            left_alone.bound_bytes += layout.bound_bytes;
            left_alone.shared_bytes += layout.shared_bytes;
        }
        GroupStatus {
            name: self.group.name.clone(),
            policy: self.group.policy.clone(),
            processes: self.processes.keys().copied().collect(),
            local_limit_bytes: u64::from(machine.capacity_pages(Tier::Local)) * machine.page_bytes(),
            local_bytes: machine.used_bytes(Tier::Local),
            far_bytes: machine.used_bytes(Tier::Far),
            left_alone,
            scans: self.scans,
            scan_interval_ms: self.scan_interval_ns as f64 / 1e6,
            scan_pace,
            early_scans: self.early_scans,
            scan_pressure: self.pace.pressure(),
            telemetry_cpu_pct: self.scan_cpu_ns as f64 / 1e7 / uptime_s.max(1e-3),
            local_use_ratio: (uses > 0).then(|| counts.local_uses as f64 / uses as f64),
            last_minute: machine.history.last_minute(machine.now_ns()),
            counts,
            paused: self.driver.paused(),
            remark: self.driver.remark(),
            policy_restarts: self.driver.restarts(),
            ended: self.ended.clone(),
        }
    }
}

mod dealings;
mod explaining;
mod marking;
mod sampled;
mod sampling;
#[cfg(test)]
mod tests;
