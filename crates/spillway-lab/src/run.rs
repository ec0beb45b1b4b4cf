//! One run: a workload under a policy on a platform, and what came of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use spillway_core::page::{HUGE_BYTES, PAGE_BYTES};
use spillway_core::size::Size;
use spillway_policy::entry::{PolicyEntry, PolicyError, PolicySettings};
use spillway_policy::knowledge::{Foreknowledge, GIVEN_BACK, Knowledge};
use spillway_policy::machine::PageIndex;
use spillway_policy::policy::{AccessModel, Policy};
use spillway_policy::registry;
use thiserror::Error;

use crate::access::{Accesses, Action};
use crate::simulator::metrics::{Point, TimeSplit, ratio};
use crate::simulator::pages::AddressMap;
use crate::simulator::platform::{self, Platform, PlatformError};
use crate::simulator::{Interleave, LOCKSTEP_ACCESSES, Outcome, Setup, Simulation, SimulationError, Tenant};
use crate::workload::Workload;
use crate::workloads::{self, WorkloadError};

/// How much local memory there is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LocalSize {
    /// This share of the working set.
    Share(f64),
    /// As many bytes as this.
    Bytes(u64),
}

/// A run to be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunSpec {
    /// The name of the workload.
    pub workload: String,
    /// The working set that it fills, in bytes.
    pub bytes: u64,
    /// Settings of the workload beside its size and seed.
    pub workload_settings: Map<String, Value>,
    /// The name of the policy.
    pub policy: String,
    /// Its settings, where they are not the defaults for this working set.
    pub policy_settings: Map<String, Value>,
    /// How much memory is local.
    pub local: LocalSize,
    /// The name of the platform.
    pub platform: String,
    /// Its settings, where they are not the preset's.
    pub platform_settings: Map<String, Value>,
    /// Share of the link that a neighbour takes.
    pub contention: f64,
    /// Seed of workload and policy.
    pub seed: u64,
    /// What the working set is of the platform's real one: caches, and the policies' windows and periods,
    /// shrink by it. None: as the sizes are.
    pub scale: Option<f64>,
    /// Whether tasks take turns in an order that no policy changes.
    pub lockstep: bool,
}

impl Default for RunSpec {
    fn default() -> Self {
        Self {
            workload: String::new(),
            bytes: 64 << 20,
            workload_settings: Map::new(),
            policy: String::new(),
            policy_settings: Map::new(),
            local: LocalSize::Share(0.2),
            platform: "hotbox".into(),
            platform_settings: Map::new(),
            contention: 0.0,
            seed: 1,
            scale: None,
            lockstep: false,
        }
    }
}

impl RunSpec {
    /// What its workload is called: of a trace, its file.
    #[must_use]
    pub fn workload_name(&self) -> &str {
        let file = self.workload_settings.get("file").filter(|_| self.workload == workloads::TRACE);
        file.and_then(Value::as_str).unwrap_or(&self.workload)
    }
}

/// What came of a run. Rates are a second of the run's time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// What was run, with all its settings.
    pub spec: RunSpec,
    /// Memory that it was given, in pages: whole huge pages.
    pub pages: u32,
    /// What it uses of that, in pages; shares of local memory are shares of this.
    pub working_set_pages: u32,
    /// Local memory, in pages.
    pub local_pages: u32,
    /// Run time after loading, in seconds.
    pub run_s: f64,
    /// Accesses of the program.
    pub accesses: u64,
    /// Average time of an access, translation included, in nanoseconds.
    pub amat_ns: f64,
    /// Local accesses as a share of those that missed the caches.
    pub local_hit_ratio: f64,
    /// Accesses that missed the caches.
    pub llc_misses: u64,
    /// Pages that came to local memory.
    pub promotions: u64,
    /// Pages that went to far memory.
    pub demotions: u64,
    /// Pages promoted a second.
    pub promotions_per_s: f64,
    /// Pages demoted a second.
    pub demotions_per_s: f64,
    /// Pages sent, either way, in bytes per second. A page that leaves with a good far copy is not sent.
    pub migration_bytes_per_s: f64,
    /// Promoted pages that were accessed before they were demoted, as a share.
    pub good_put: f64,
    /// Pages fetched beside a demanded one that were accessed, as a share.
    pub prefetch_accuracy: f64,
    /// Local base pages accessed within a second of the real platform's time, on average: N of hotness
    /// fragmentation.
    pub local_pages_in_use: f64,
    /// The same, as a share of local pages.
    pub local_in_use: f64,
    /// Bytes on the link as cache lines.
    pub access_bytes: u64,
    /// Bytes on the link as pages.
    pub migration_bytes: u64,
    /// Faults at marked pages, at missing ones, and minor ones.
    pub hint_faults: u64,
    /// Faults at far pages that had to be fetched.
    pub missing_faults: u64,
    /// Faults at local pages without a mapping.
    pub minor_faults: u64,
    /// What the policy went by at the end, where its name and settings do not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remark: Option<String>,
    /// Where the time went.
    pub time: TimeSplit,
    /// The same over time.
    pub series: Vec<Point>,
}

impl Report {
    /// Bytes on the link.
    #[must_use]
    pub fn traffic_bytes(&self) -> u64 {
        self.access_bytes + self.migration_bytes
    }
}

/// Why there was no run.
#[derive(Debug, Error)]
pub enum RunError {
    /// The workload cannot be made.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// The policy cannot be made.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The platform cannot be made.
    #[error(transparent)]
    Platform(#[from] PlatformError),
    /// A setting of the platform.
    #[error("platform '{name}': {reason}; correct its settings")]
    PlatformSetting {
        /// The name of the platform.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A number that makes no sense.
    #[error("{what} is {value}: it must be {range}")]
    Range {
        /// The name of the value.
        what: &'static str,
        /// What it was set to.
        value: f64,
        /// What it may be.
        range: &'static str,
    },
    /// The working set is larger than can be simulated.
    #[error("a working set of {asked} is more than can be simulated ({most}): choose a smaller size")]
    TooLarge {
        /// What was asked for.
        asked: Size,
        /// The most there may be.
        most: Size,
    },
    /// Pages must be brought in to be read, and there is no room for any.
    #[error(
        "policy '{policy}' brings a page in to read it, and local memory holds none: \
         give it more local memory"
    )]
    NoLocal {
        /// The name of the policy.
        policy: String,
    },
    /// The offline policy's future is too long.
    #[error(
        "policy '{policy}' would have to know more than {limit} accesses beforehand: \
         choose a smaller working set"
    )]
    Future {
        /// The name of the policy.
        policy: String,
        /// How many it may be.
        limit: usize,
    },
    /// The policy's agent could not be trained.
    #[error("no agent could be trained: {0}")]
    Training(String),
    /// It began, and failed.
    #[error(transparent)]
    Simulation(#[from] SimulationError),
}

/// Most page changes that are recorded for an offline policy, which takes 4 GiB with what it makes of them.
const MAX_FUTURE: usize = 1 << 29;

/// Most memory of a workload: 128 GiB.
const MOST_BYTES: u64 = 128 << 30;

/// Least share of the real platform's working set; caches have their least size long before.
const LEAST_SCALE: f64 = 1e-6;

/// The real platform's time between two counts of pages in use, in nanoseconds (HotBox 3.2.2: every second).
const COUNT_INTERVAL_NS: f64 = 1e9;

/// Runs it.
///
/// # Errors
/// Something in it does not exist or makes no sense.
pub fn execute(spec: &RunSpec) -> Result<Report, RunError> {
    execute_telling(spec, &mut |_| {})
}

/// Runs it, and shows the simulation to `tell` now and then.
///
/// # Errors
/// Something in it does not exist or makes no sense.
pub fn execute_telling(spec: &RunSpec, tell: &mut dyn FnMut(&Simulation)) -> Result<Report, RunError> {
    let mut reports = execute_all(std::slice::from_ref(spec), tell)?;
    reports.pop().ok_or(NO_PROGRAM)
}

/// Runs a workload under a policy that is in no registry: `make` gets what the run is of the real platform's
/// size.
///
/// # Errors
/// Something in it does not exist or makes no sense.
pub fn execute_with(spec: &RunSpec, make: impl FnOnce(f64) -> Box<dyn Policy>) -> Result<Report, RunError> {
    let workload = workload(spec)?;
    let (platform, factor) = platform(spec, workload.working_set_bytes())?;
    let used_pages = used_pages(&platform, workload.as_ref());
    let local_pages = local_pages(spec, &platform, used_pages);
    let tenants = vec![Tenant { workload, policy: make(factor), local_pages }];
    let setup = setup(platform, factor, spec.contention, spec.lockstep, tenants);
    let outcomes = Simulation::new(setup)?.run()?;
    outcomes.first().map(|outcome| report(spec, used_pages, outcome)).ok_or(NO_PROGRAM)
}

/// What there is to say where nothing ran.
pub(crate) const NO_PROGRAM: RunError =
    RunError::Range { what: "the number of programs", value: 0.0, range: "at least 1" };

pub(crate) fn setup(
    platform: Platform,
    factor: f64,
    contention: f64,
    lockstep: bool,
    tenants: Vec<Tenant>,
) -> Setup {
    Setup {
        contention,
        interleave: if lockstep { Interleave::Lockstep } else { Interleave::Clock },
        series_ns: ((COUNT_INTERVAL_NS * factor) as u64).max(1000),
        profile: false,
        epoch_ps: None,
        platform,
        tenants,
    }
}

/// Runs several programs on one machine: each with its own policy and local memory, all on one link. Platform
/// and contention are the first one's.
///
/// # Errors
/// Something in one of them does not exist or makes no sense.
pub fn execute_together(specs: &[RunSpec]) -> Result<Vec<Report>, RunError> {
    execute_all(specs, &mut |_| {})
}

fn execute_all(specs: &[RunSpec], tell: &mut dyn FnMut(&Simulation)) -> Result<Vec<Report>, RunError> {
    let Some(first) = specs.first() else { return Ok(Vec::new()) };
    specs.iter().try_for_each(check)?;
    let workloads = specs.iter().map(workload).collect::<Result<Vec<_>, _>>()?;
    let (platform, factor) = platform(first, workloads[0].working_set_bytes())?;
    let mut lockstep = specs.iter().any(|spec| spec.lockstep);
    let mut used = Vec::new();
    let mut tenants = Vec::new();
    for (spec, workload) in specs.iter().zip(workloads) {
        let entry = registry::find(&spec.policy)?;
        let map = AddressMap::new(workload.regions(), platform.page_bytes)
            .ok_or(SimulationError::Regions(workload.name()))?;
        let knowledge = knowledge(spec, entry, &platform, &map)?;
        let policy = entry.build(factor, &spec.policy_settings, spec.seed, &knowledge)?;
        let used_pages = used_pages(&platform, workload.as_ref());
        let local_pages =
            if entry.unlimited { map.page_count() } else { local_pages(spec, &platform, used_pages) };
        if local_pages == 0 && policy.access_model() == AccessModel::PageFetch {
            return Err(RunError::NoLocal { policy: spec.policy.clone() });
        }
        tenants.push(Tenant { workload, policy, local_pages });
        used.push(used_pages);
        lockstep |= entry.needs.foreknowledge == Foreknowledge::Future;
    }
    let setup = setup(platform, factor, first.contention, lockstep, tenants);
    let outcomes = Simulation::new(setup)?.run_telling(tell)?;
    let reports = specs.iter().zip(used).zip(outcomes);
    Ok(reports.map(|((spec, used_pages), outcome)| report(spec, used_pages, &outcome)).collect())
}

/// What can be told to be wrong with a run before anything is done for it.
///
/// # Errors
/// Something in it does not exist or makes no sense.
pub fn check(spec: &RunSpec) -> Result<(), RunError> {
    within("contention", spec.contention, 0.0, 0.99, "between 0 and 0.99")?;
    if let LocalSize::Share(share) = spec.local {
        within("local memory", share, 0.0, 1.0, "a share between 0 and 1 of the working set")?;
    }
    if let Some(scale) = spec.scale {
        within("scale", scale, LEAST_SCALE, 1.0, "between 0.000001 and 1")?;
    }
    if spec.bytes > MOST_BYTES {
        let [asked, most] = [spec.bytes, MOST_BYTES].map(Size::from_bytes);
        return Err(RunError::TooLarge { asked, most });
    }
    workloads::find(&spec.workload)?;
    if spec.workload == workloads::TRACE {
        workload(spec)?;
    }
    let (_, factor) = platform(spec, None)?;
    let entry = registry::find(&spec.policy)?;
    entry.build(factor, &spec.policy_settings, spec.seed, &Knowledge::default())?;
    Ok(())
}

fn within(
    what: &'static str,
    value: f64,
    least: f64,
    most: f64,
    range: &'static str,
) -> Result<(), RunError> {
    if (least..=most).contains(&value) { Ok(()) } else { Err(RunError::Range { what, value, range }) }
}

/// The platform at the size of this run, and what the run is of the real one. A trace brings its own size.
pub(crate) fn platform(spec: &RunSpec, working_set_bytes: Option<u64>) -> Result<(Platform, f64), RunError> {
    let preset = Platform::named(&spec.platform)?;
    let wrong = |reason: String| RunError::PlatformSetting { name: spec.platform.clone(), reason };
    let mut value = serde_json::to_value(&preset).map_err(|error| wrong(error.to_string()))?;
    if let Value::Object(settings) = &mut value {
        for (key, given) in &spec.platform_settings {
            settings.insert(key.clone(), given.clone());
        }
    }
    if let Some(reason) = value.as_object().and_then(platform::nonsense) {
        return Err(wrong(reason));
    }
    let platform: Platform = serde_json::from_value(value).map_err(|error| wrong(error.to_string()))?;
    if !platform.page_bytes.is_power_of_two() || !(PAGE_BYTES..=HUGE_BYTES).contains(&platform.page_bytes) {
        return Err(wrong(format!(
            "page_bytes is {}, no power of two from {PAGE_BYTES} to 2 MiB",
            platform.page_bytes
        )));
    }
    let bytes = working_set_bytes.unwrap_or(spec.bytes);
    let factor = spec.scale.unwrap_or(bytes as f64 / platform.working_set_bytes.max(1) as f64);
    let factor = factor.clamp(LEAST_SCALE, 1.0);
    Ok((platform.scaled(factor), factor))
}

pub(crate) fn workload(spec: &RunSpec) -> Result<Box<dyn Workload>, WorkloadError> {
    workloads::build(&spec.workload, spec.bytes, spec.seed, &spec.workload_settings)
}

/// Pages that the workload uses: not all of the whole huge pages that its regions are rounded up to.
pub(crate) fn used_pages(platform: &Platform, workload: &dyn Workload) -> u32 {
    let of_regions =
        || workload.regions().iter().map(|region| region.bytes.div_ceil(platform.page_bytes)).sum();
    let pages =
        workload.working_set_bytes().map_or_else(of_regions, |bytes| bytes.div_ceil(platform.page_bytes));
    u32::try_from(pages).unwrap_or(u32::MAX)
}

pub(crate) fn local_pages(spec: &RunSpec, platform: &Platform, used_pages: u32) -> u32 {
    let pages = match spec.local {
        LocalSize::Bytes(bytes) => bytes / platform.page_bytes,
        LocalSize::Share(share) => (f64::from(used_pages) * share).round() as u64,
    };
    pages.min(u64::from(u32::MAX)) as u32
}

/// What the policy must know beforehand, from a run of its own.
fn knowledge(
    spec: &RunSpec,
    entry: &PolicyEntry,
    platform: &Platform,
    map: &AddressMap,
) -> Result<Knowledge, RunError> {
    match entry.needs.foreknowledge {
        Foreknowledge::Nothing => Ok(Knowledge::default()),
        Foreknowledge::Profile => profile(spec, platform, map),
        Foreknowledge::Future => future(spec, map),
    }
}

fn profile(spec: &RunSpec, platform: &Platform, map: &AddressMap) -> Result<Knowledge, RunError> {
    let policy =
        registry::find("all-local")?.build(1.0, &PolicySettings::new(), spec.seed, &Knowledge::default())?;
    let setup = Setup {
        platform: platform.clone(),
        contention: 0.0,
        interleave: Interleave::Clock,
        series_ns: 1_000_000_000,
        profile: true,
        epoch_ps: None,
        tenants: vec![Tenant { workload: workload(spec)?, policy, local_pages: map.page_count() }],
    };
    let outcome = Simulation::new(setup)?.run()?.pop();
    let profile = outcome.map(|outcome| outcome.profile).unwrap_or_default();
    Ok(Knowledge { profile: Arc::new(profile), ..Knowledge::default() })
}

/// The pages that a workload touches, in the order in which tasks take turns in lockstep.
fn future(spec: &RunSpec, map: &AddressMap) -> Result<Knowledge, RunError> {
    let mut workload = workload(spec)?;
    let mut buffers: BTreeMap<usize, (Accesses, usize, bool)> =
        (0..workload.tasks()).map(|task| (task, (Accesses::new(), 0, false))).collect();
    let mut future: Vec<PageIndex> = Vec::new();
    let mut turn = 0;
    while !buffers.is_empty() {
        let live: Vec<usize> = buffers.keys().copied().collect();
        let task = live[turn % live.len()];
        turn = (turn + 1) % live.len();
        let mut left = LOCKSTEP_ACCESSES;
        while left > 0 {
            let Some((accesses, next, ending)) = buffers.get_mut(&task) else { break };
            let Some(access) = accesses.get(*next) else {
                accesses.clear();
                *next = 0;
                if *ending || !workload.step(task, accesses) {
                    *ending = true;
                    if accesses.is_empty() {
                        buffers.remove(&task);
                    }
                } else if accesses.is_empty() {
                    // A step without accesses counts as one, as in the simulator.
                    left -= 1;
                }
                continue;
            };
            *next += 1;
            left -= 1;
            if let Action::Release(first, pages) = access.action() {
                future.extend(map.pages_within(first, pages).map(|page| page | GIVEN_BACK));
            }
            let page = access.address().and_then(|address| map.page_of(address));
            future.extend(page.filter(|&page| future.last() != Some(&page)));
            if future.len() > MAX_FUTURE {
                return Err(RunError::Future { policy: spec.policy.clone(), limit: MAX_FUTURE });
            }
        }
    }
    Ok(Knowledge { future: Arc::new(future), ..Knowledge::default() })
}

fn report(spec: &RunSpec, working_set_pages: u32, outcome: &Outcome) -> Report {
    let counts = &outcome.counts;
    let run_s = outcome.run_ps as f64 / 1e12;
    let per_s = |count: u64| if run_s > 0.0 { count as f64 / run_s } else { 0.0 };
    let misses = counts.local_misses + counts.far_misses;
    Report {
        spec: spec.clone(),
        pages: outcome.page_count,
        working_set_pages,
        local_pages: outcome.local_pages,
        run_s,
        accesses: counts.accesses,
        amat_ns: ratio(counts.memory_ps, counts.accesses) / 1e3,
        local_hit_ratio: if misses == 0 { 1.0 } else { ratio(counts.local_misses, misses) },
        llc_misses: misses,
        promotions: counts.promotions,
        demotions: counts.demotions,
        promotions_per_s: per_s(counts.promotions),
        demotions_per_s: per_s(counts.demotions),
        migration_bytes_per_s: per_s(counts.traffic.migration_bytes),
        good_put: ratio(counts.promotions_used, counts.promotions),
        prefetch_accuracy: ratio(counts.prefetches_used, counts.prefetches),
        local_pages_in_use: outcome.pages_in_use,
        local_in_use: if outcome.pages_local > 0.0 {
            outcome.pages_in_use / outcome.pages_local
        } else {
            0.0
        },
        access_bytes: counts.traffic.access_bytes,
        migration_bytes: counts.traffic.migration_bytes,
        hint_faults: counts.hint_faults,
        missing_faults: counts.missing_faults,
        minor_faults: counts.minor_faults,
        remark: outcome.remark.clone(),
        time: outcome.spent.split(),
        series: outcome.series.points(),
    }
}

#[cfg(test)]
mod tests;
