//! A run's counters, read from what its processes share.

use std::cell::RefCell;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::Value;
use spillway_core::page::PAGE_BYTES;
use spillway_pager::run::report::prefetch_accuracy;
use spillway_pager::run::settings::FaultMode;
use spillway_pager::run::state::{Counter, PID_OF_ANOTHER_NAMESPACE, slot_ranges};
use spillway_pager::run::views::RunView;
use spillway_snapshot::heat::HeatMap;
use spillway_snapshot::histogram::Latency;
use spillway_snapshot::past::Past;
use spillway_snapshot::sites::Sites;
use spillway_snapshot::snapshot::{
    Body, Evictions, Faults, Health, MOST_PROCESSES, Prefetch, Process, Return, Run, Snapshot, Store, VERSION,
};
use spillway_store::{LatencyClass, Part, PartHealth, PartKind, Store as OpenStore, StoreSpec};

use crate::watch::run_sites::RunSites;
use crate::watch::teller::Subject;
use crate::watch::{run_explained, run_heat};

/// A store that failed, or was full, within this time is told to be so.
const RECENT_NS: u64 = 10_000_000_000;

/// The program of a run.
pub struct Program {
    /// It and its arguments.
    pub command: Vec<String>,
    /// Its process, by number.
    pub pid: u32,
    /// When it was started.
    pub began: Instant,
}

impl Program {
    /// What it is called: the last part of its path.
    fn name(&self) -> String {
        let path = self.command.first().map_or("", String::as_str);
        path.rsplit('/').find(|part| !part.is_empty()).unwrap_or(path).to_owned()
    }
}

/// A run that is told of.
pub struct RunSubject {
    /// What its processes share.
    pub view: RunView,
    /// Its program, with its beginning.
    pub program: Program,
    sites: RefCell<RunSites>,
}

impl RunSubject {
    /// Tells of a run.
    pub fn new(view: RunView, program: Program) -> Self {
        Self { view, program, sites: RefCell::default() }
    }
}

impl Subject for RunSubject {
    fn snapshot(&self) -> Snapshot {
        Snapshot {
            version: VERSION,
            spillway_version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uid: rustix::process::geteuid().as_raw(),
            name: self.program.name(),
            uptime_s: self.program.began.elapsed().as_secs_f64(),
            body: Body::Run { run: Box::new(run(&self.view, &self.program)) },
        }
    }

    fn explain(&self, process: u32, address: Option<u64>) -> Result<Value, String> {
        run_explained::explain(&self.view, &run(&self.view, &self.program), process, address)
    }

    fn heat(&self, process: u32) -> Result<HeatMap, String> {
        run_heat::heat(&self.view, process)
    }

    fn sites(&self) -> Result<Sites, String> {
        Ok(self.sites.borrow_mut().sites(&self.view))
    }

    fn go_on(&self) -> Option<Duration> {
        self.sites.borrow_mut().go_on(&self.view)
    }

    fn counts(&self) -> Option<Past> {
        let run = &self.view.run;
        Some(Past {
            uptime_s: self.program.began.elapsed().as_secs_f64(),
            lost_us: run.fault_ns() as f64 / 1e3,
            faults: faults(|counter| run.counter(counter).load(Ordering::Relaxed)),
            returns: returns(&self.view),
            held_bytes: Some(held_bytes(&self.view)),
        })
    }
}

/// What all processes of a run have, local and far.
fn held_bytes(view: &RunView) -> u64 {
    let far_pages: u64 = sizes(view).iter().map(Sizes::far_pages).sum();
    (view.run.budget().local_pages.load(Ordering::Relaxed) + far_pages) * PAGE_BYTES
}

fn run(view: &RunView, program: &Program) -> Run {
    let RunView { run, settings, .. } = view;
    let count = |counter| run.counter(counter).load(Ordering::Relaxed);
    let budget = run.budget();
    let bytes = |pages: u64| pages * PAGE_BYTES;
    let sizes = sizes(view);
    Run {
        command: program.command.clone(),
        program_pid: program.pid,
        fault_mode: mode(settings.fault_mode == FaultMode::Inline),
        fault_mode_reason: settings.fault_mode_reason.clone(),
        local_limit_bytes: bytes(budget.limit_pages.load(Ordering::Relaxed)),
        local_bytes: bytes(budget.local_pages.load(Ordering::Relaxed)),
        peak_local_bytes: bytes(budget.peak_local_pages.load(Ordering::Relaxed)),
        native_bytes: sizes.iter().map(|size| bytes(size.native_pages)).sum(),
        far_bytes: sizes.iter().map(|size| bytes(size.far_pages())).sum(),
        faults: faults(count),
        fault_latency: Latency::read(&run.fault_latency(), run.fault_ns()),
        returns: returns(view),
        fetched_pages: count(Counter::PagesFetched),
        written_pages: count(Counter::PagesWrittenBack),
        prefetch: Prefetch {
            fetched_ahead_pages: count(Counter::PagesFetchedAhead),
            accuracy: prefetch_accuracy(run, settings),
        },
        evictions: evictions(count),
        stores: stores(view),
        processes_unlisted: sizes.len().saturating_sub(MOST_PROCESSES) as u64,
        processes: sizes.iter().take(MOST_PROCESSES).map(|size| process(view, size)).collect(),
        processes_started: count(Counter::Processes),
        sites: None,
    }
}

fn evictions(count: impl Fn(Counter) -> u64) -> Evictions {
    Evictions {
        written_pages: count(Counter::PagesWrittenBack),
        clean_dropped_pages: count(Counter::CleanDrops),
        zero_dropped_pages: count(Counter::ZeroDrops),
        kept_in_use_pages: count(Counter::PagesKeptInUse),
        refused_pages: count(Counter::EvictionsRefused),
        failed_writes: count(Counter::WritebacksFailed),
        cancelled_writes: count(Counter::WritebacksCancelled),
    }
}

fn returns(view: &RunView) -> Vec<Return> {
    let each = view.run.returns().read().into_iter().map(|returned| Return {
        within_bytes: returned.within_pages * PAGE_BYTES,
        faults: returned.faults,
        total_us: returned.ns as f64 / 1e3,
    });
    each.collect()
}

fn mode(is_inline: bool) -> String {
    if is_inline { "inline" } else { "thread" }.to_owned()
}

fn faults(count: impl Fn(Counter) -> u64) -> Faults {
    Faults {
        first_touch: count(Counter::FaultsFirstTouch),
        fetch: count(Counter::FaultsFetch),
        inactive: count(Counter::FaultsInactive),
        writeback: count(Counter::FaultsWriteback),
        other: count(Counter::FaultsOther),
        refused: count(Counter::FaultsRefused),
    }
}

/// How much a process has, in pages.
struct Sizes {
    entry: usize,
    local_pages: u64,
    native_pages: u64,
    managed_pages: u64,
}

impl Sizes {
    /// What is managed and not local. What lies ready for the process - zeros, huge pages that are being
    /// filled - is local and not managed, so this is too low by that much, a few MiB at most.
    fn far_pages(&self) -> u64 {
        self.managed_pages.saturating_sub(self.local_pages.saturating_sub(self.native_pages))
    }
}

/// All processes, the largest first.
fn sizes(view: &RunView) -> Vec<Sizes> {
    let mut sizes: Vec<Sizes> = view
        .run
        .processes()
        .map(|entry| {
            let process = view.run.process(entry);
            let local_pages = process.local_pages().load(Ordering::Relaxed);
            Sizes {
                entry,
                local_pages,
                native_pages: process.native_pages().load(Ordering::Relaxed).min(local_pages),
                managed_pages: process.managed_pages().load(Ordering::Relaxed),
            }
        })
        .collect();
    sizes.sort_by_key(|size| std::cmp::Reverse(size.local_pages + size.far_pages()));
    sizes
}

fn process(view: &RunView, size: &Sizes) -> Process {
    let process = view.run.process(size.entry);
    let pid = Some(process.pid()).filter(|&pid| pid != 0 && pid != PID_OF_ANOTHER_NAMESPACE);
    let fault_ns = process.fault_ns().load(Ordering::Relaxed);
    // What nobody has written to takes no memory until it is read.
    let fault_latency = match fault_ns {
        0 => Latency::default(),
        ns => Latency::read(&view.run.fault_latency_of(size.entry), ns),
    };
    Process {
        pid,
        name: pid.and_then(name_of),
        fault_mode: mode(process.serves_inline().load(Ordering::Relaxed) != 0),
        local_bytes: size.local_pages * PAGE_BYTES,
        native_bytes: size.native_pages * PAGE_BYTES,
        far_bytes: size.far_pages() * PAGE_BYTES,
        faults: faults(|counter| process.counted(counter)),
        fault_latency,
        fetched_pages: process.counted(Counter::PagesFetched),
        fetched_ahead_pages: process.counted(Counter::PagesFetchedAhead),
        written_pages: process.counted(Counter::PagesWrittenBack),
        evictions: evictions(|counter| process.counted(counter)),
        heat: None,
    }
}

fn name_of(pid: u32) -> Option<String> {
    let name = fs::read(format!("/proc/{pid}/comm")).ok()?;
    Some(String::from_utf8_lossy(&name).trim_end().to_owned())
}

/// Each store of a run as it is now, a pool's donors after it.
pub fn stores(view: &RunView) -> Vec<Store> {
    let ranges = slot_ranges(&view.settings.store_slots);
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let now_ns = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
    let each = view.settings.stores.iter().zip(ranges).zip(&view.stores).enumerate();
    each.flat_map(|(index, ((uri, range), open))| {
        let counts = view.run.store(index);
        let used_bytes = view.run.slots().used(range.clone()) * PAGE_BYTES;
        let stored_bytes = open.as_ref().map(|open| open.stored_bytes()).filter(|&bytes| bytes > 0);
        let spec = uri.parse::<StoreSpec>().ok();
        let is_compressed =
            spec.as_ref().is_some_and(|spec| spec.latency_class() == LatencyClass::Compression);
        let ratio = |stored: u64| used_bytes as f64 / stored as f64;
        let is_recent = |ns: u64| ns != 0 && now_ns.saturating_sub(ns) < RECENT_NS;
        let store = Store {
            uri: uri.clone(),
            capacity_bytes: u64::from(range.end - range.start) * PAGE_BYTES,
            used_bytes,
            stored_bytes,
            stored_limit_bytes: open.as_ref().and_then(room_of),
            compression_ratio: stored_bytes.filter(|_| is_compressed && used_bytes > 0).map(ratio),
            fetched_pages: counts.fetched_pages(),
            written_pages: counts.written_pages(),
            failed_reads: counts.failed_reads(),
            failed_writes: counts.failed_writes(),
            full_refusals: counts.full_refusals(),
            hedged_reads: 0,
            is_sealed: spec.is_some_and(|spec| view.settings.seal.covers(&spec)),
            health: match open {
                None => Health::Unknown,
                Some(_) if view.is_waited_for(index) => Health::Silent,
                Some(_) if is_recent(counts.last_failed_ns()) => Health::Failing,
                Some(_) if is_recent(counts.last_full_ns()) => Health::Full,
                Some(_) => Health::Ok,
            },
        };
        let is_sealed = store.is_sealed;
        let parts = open.iter().flat_map(|open| open.parts()).map(|part| donor_of_pool(part, is_sealed));
        std::iter::once(store).chain(parts.collect::<Vec<_>>())
    })
    .collect()
}

/// A row for a donor of a pool, or for its last resort. What it failed to do the pool has done by another.
fn donor_of_pool(part: Part, is_sealed: bool) -> Store {
    Store {
        uri: match part.kind {
            PartKind::Donor => format!("donor:{}", part.name),
            PartKind::Spill => format!("spill:{}", part.name),
        },
        capacity_bytes: part.capacity_bytes,
        used_bytes: part.used_bytes,
        stored_bytes: None,
        stored_limit_bytes: None,
        compression_ratio: None,
        fetched_pages: part.fetched_pages,
        written_pages: part.written_pages,
        failed_reads: 0,
        failed_writes: 0,
        full_refusals: 0,
        hedged_reads: part.hedged_reads,
        is_sealed,
        health: match (part.health, part.kind) {
            (PartHealth::Up, PartKind::Spill) if part.used_bytes >= part.capacity_bytes => Health::Full,
            (PartHealth::Up, _) => Health::Ok,
            (PartHealth::Silent, PartKind::Donor) => Health::Silent,
            (PartHealth::Silent, PartKind::Spill) | (PartHealth::Away, _) => Health::Failing,
        },
    }
}

fn room_of(open: &Arc<dyn OpenStore>) -> Option<u64> {
    open.room().map(|room| room.capacity_bytes)
}
