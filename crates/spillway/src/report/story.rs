//! What a run did: looks at it, made into values over time and into a few figures.

use std::collections::BTreeMap;

use serde::Serialize;
use spillway_core::page::PAGE_BYTES;
use spillway_snapshot::heat::HeatMap;
use spillway_snapshot::histogram::{Latency, quantile_us};
use spillway_snapshot::history::Look;
use spillway_snapshot::past::Past;
use spillway_snapshot::sites::Sites;
use spillway_snapshot::snapshot::{Body, Faults, Health, Run, Snapshot};

use crate::status::{lost_share, name_of};
use crate::top::rates::{Rates, between};
use crate::working_set::{Need, Observed};

/// Looks at one run that a page shows at most, and one.
const MOST_LOOKS: u64 = 600;
/// Rows of the map of latencies: up to 1 us, 2 us, 4 us ... and beyond half a second.
pub const LATENCY_ROWS: usize = 21;

/// One look at a run, and what came since the look before.
pub struct Point {
    /// When, in seconds since the history began.
    pub at_s: f64,
    /// Most memory that may be local.
    pub local_limit_bytes: u64,
    /// Memory that is local.
    pub local_bytes: u64,
    /// Memory that is far.
    pub far_bytes: u64,
    /// What came since the look before; none at the first.
    pub since: Option<Since>,
    /// What stores hold: pages as they were, and what they take.
    pub stores: Vec<StoreUse>,
}

/// What came between two looks.
pub struct Since {
    /// Of the run as a whole.
    pub rates: Rates,
    /// Faults of each kind, a second: first touch, fetched, local still, other, refused.
    pub faults_per_s: [f64; 5],
    /// Pages a second: written, dropped as clean, dropped as zeros, kept since in use.
    pub evictions_per_s: [f64; 4],
    /// Bytes a second of each store: fetched, written.
    pub stores_per_s: Vec<[f64; 2]>,
    /// Faults by how long they took, in [`LATENCY_ROWS`] rows.
    pub latency_rows: Vec<u64>,
}

/// What a store holds.
pub struct StoreUse {
    /// Pages that it holds, in bytes before compression.
    pub used_bytes: u64,
    /// Bytes that it takes, where it says.
    pub stored_bytes: Option<u64>,
    /// How it is at this look.
    pub health: Health,
}

/// A process as it was at its most.
#[derive(Clone, Debug, Default)]
pub struct ProcessPeak {
    /// What it is called.
    pub name: String,
    /// The most that was local.
    pub local_bytes: u64,
    /// The most that was far.
    pub far_bytes: u64,
    /// Its faults since its start.
    pub faults: u64,
    /// Pages that it fetched.
    pub fetched_pages: u64,
    /// Where its memory was and how much it was used, at the looks that tell.
    pub heat: Vec<(f64, HeatMap)>,
}

/// One run over its time.
pub struct Story {
    /// The name of its program.
    pub name: String,
    /// Its supervisor's process, by number.
    pub pid: u32,
    /// The user whose it is, by number.
    pub uid: u32,
    /// Looks at it, in order.
    pub points: Vec<Point>,
    /// Its processes, at their most.
    pub processes: BTreeMap<u32, ProcessPeak>,
    /// Where its programs waited, as the first and the last look that tell have it.
    sites: Option<[Sites; 2]>,
    first: Run,
    last: Snapshot,
    /// The last look at it.
    pub last_run: Run,
    first_uptime_s: f64,
}

/// A run in figures.
#[derive(Serialize)]
pub struct Summary<'a> {
    /// The name of its program.
    pub name: &'a str,
    /// The program and its arguments.
    pub command: &'a [String],
    /// Its supervisor's process, by number.
    pub pid: u32,
    /// The user whose it is, by number.
    pub uid: u32,
    /// `thread` or `inline`, at the end.
    pub fault_mode: &'a str,
    /// Time from the first look to the last, in seconds.
    pub recorded_s: f64,
    /// Looks that are shown.
    pub looks: usize,
    /// Most memory that may be local.
    pub local_limit_bytes: u64,
    /// The most that was local since the run began.
    pub peak_local_bytes: u64,
    /// The most that was seen to be far.
    pub peak_far_bytes: u64,
    /// Faults while it was recorded.
    pub faults: u64,
    /// The median fault of that time, in microseconds.
    pub fault_p50_us: Option<f64>,
    /// The 99th percentile, in microseconds.
    pub fault_p99_us: Option<f64>,
    /// The time that threads waited for faults, by the time that passed.
    pub lost_share: f64,
    /// When that share was highest between two looks, and how high.
    pub worst: Option<Worst>,
    /// Bytes fetched while it was recorded.
    pub fetched_bytes: u64,
    /// Bytes written while it was recorded.
    pub written_bytes: u64,
    /// Faults that were refused with SIGBUS.
    pub refused_faults: u64,
    /// What a fault that fetched a page took, on average, in microseconds; none where there was none.
    pub fetch_us: Option<f64>,
    /// How much local memory it would have needed for how much loss.
    pub needs: Vec<Need>,
    /// Where its programs waited while it was recorded.
    pub sites: Sites,
}

/// The worst moment of a run.
#[derive(Clone, Copy, Serialize)]
pub struct Worst {
    /// When it ended, in seconds since the history began.
    pub at_s: f64,
    /// The time that threads waited, by the time that passed.
    pub lost_share: f64,
}

/// Tells runs apart: process numbers come again.
#[derive(Default)]
struct Identities {
    last: BTreeMap<(u32, u32), (usize, f64)>,
    count: usize,
}

impl Identities {
    /// The run's number in the order in which runs were first seen.
    fn of(&mut self, snapshot: &Snapshot) -> usize {
        let last = self.last.entry((snapshot.uid, snapshot.pid)).or_insert((usize::MAX, f64::INFINITY));
        if snapshot.uptime_s < last.1 {
            last.0 = self.count;
            self.count += 1;
        }
        last.1 = snapshot.uptime_s;
        last.0
    }
}

/// Counts looks at each run, to know how many to pass over.
#[derive(Default)]
pub struct Teller {
    identities: Identities,
    looks: Vec<u64>,
}

impl Teller {
    /// Counts each run's looks.
    pub fn count(&mut self, look: &Look) {
        for snapshot in look.seen.iter().filter(|snapshot| matches!(snapshot.body, Body::Run { .. })) {
            let run = self.identities.of(snapshot);
            self.looks.resize(self.looks.len().max(run + 1), 0);
            self.looks[run] += 1;
        }
    }

    /// Goes over to telling; the same looks come once more.
    pub fn telling(self) -> Telling {
        let stories = self.looks.iter().map(|_| None).collect();
        let seen = vec![0; self.looks.len()];
        Telling { identities: Identities::default(), looks: self.looks, seen, stories }
    }
}

/// Makes stories of looks.
pub struct Telling {
    identities: Identities,
    looks: Vec<u64>,
    seen: Vec<u64>,
    stories: Vec<Option<Story>>,
}

impl Telling {
    /// Takes the next look.
    pub fn take(&mut self, look: Look) {
        for snapshot in look.seen {
            if !matches!(snapshot.body, Body::Run { .. }) {
                continue;
            }
            let number = self.identities.of(&snapshot);
            // A file that grew between the two readings has runs and looks that were not counted.
            let Some(&looks) = self.looks.get(number) else { continue };
            let stride = looks.div_ceil(MOST_LOOKS);
            let position = self.seen[number];
            self.seen[number] += 1;
            if position.is_multiple_of(stride) || position + 1 == looks {
                match &mut self.stories[number] {
                    Some(story) => story.go_on(look.at_s, snapshot),
                    untold => *untold = Story::begin(look.at_s, snapshot),
                }
            }
        }
    }

    /// All stories, in the order in which runs were first seen.
    pub fn end(self) -> Vec<Story> {
        self.stories.into_iter().flatten().collect()
    }
}

impl Story {
    fn begin(at_s: f64, snapshot: Snapshot) -> Option<Self> {
        let Body::Run { run } = &snapshot.body else { return None };
        let run = (**run).clone();
        let mut story = Self {
            name: name_of(&snapshot),
            pid: snapshot.pid,
            uid: snapshot.uid,
            points: vec![point(at_s, &run, None)],
            processes: BTreeMap::new(),
            sites: None,
            first: run.clone(),
            first_uptime_s: snapshot.uptime_s,
            last_run: run.clone(),
            last: snapshot,
        };
        story.note_processes(at_s, &run);
        story.note_sites(&run);
        Some(story)
    }

    fn go_on(&mut self, at_s: f64, snapshot: Snapshot) {
        let Body::Run { run } = &snapshot.body else { return };
        let passed_s = snapshot.uptime_s - self.last.uptime_s;
        // Two looks at the same moment have nothing between them.
        if passed_s > 0.0 {
            let run = (**run).clone();
            self.points.push(point(at_s, &run, Some(since(&self.last_run, &run, passed_s))));
            self.note_processes(at_s, &run);
            self.note_sites(&run);
            (self.last_run, self.last) = (run, snapshot);
        }
    }

    fn note_processes(&mut self, at_s: f64, run: &Run) {
        for process in &run.processes {
            let Some(pid) = process.pid else { continue };
            let peak = self.processes.entry(pid).or_default();
            // A program may become another by exec.
            peak.name = process.name.clone().unwrap_or_else(|| "-".to_owned());
            peak.local_bytes = peak.local_bytes.max(process.local_bytes);
            peak.far_bytes = peak.far_bytes.max(process.far_bytes);
            peak.faults = peak.faults.max(process.faults.all());
            peak.fetched_pages = peak.fetched_pages.max(process.fetched_pages);
            peak.heat.extend(process.heat.clone().map(|map| (at_s, map)));
        }
    }

    fn note_sites(&mut self, run: &Run) {
        let Some(sites) = &run.sites else { return };
        match &mut self.sites {
            Some([_, last]) => *last = sites.clone(),
            // What it waited before it was recorded is not of this time.
            none => *none = Some([sites.clone(), sites.clone()]),
        }
    }

    /// Where its programs waited while it was recorded.
    pub fn sites(&self) -> Sites {
        self.sites.as_ref().map(|[first, last]| last.since(first)).unwrap_or_default()
    }

    /// The run in figures.
    pub fn summary(&self) -> Summary<'_> {
        let (first, last) = (&self.first, &self.last_run);
        let recorded_s = self.last.uptime_s - self.first_uptime_s;
        let new = last.fault_latency.since(&first.fault_latency);
        let lost_us = (last.fault_latency.total_us - first.fault_latency.total_us).max(0.0);
        let worst = self.points.iter().filter_map(|point| {
            let lost_share = point.since.as_ref()?.rates.lost_share;
            Some(Worst { at_s: point.at_s, lost_share })
        });
        let bytes = |first: u64, last: u64| last.saturating_sub(first) * PAGE_BYTES;
        let observed = self.observed();
        Summary {
            name: &self.name,
            command: &last.command,
            pid: self.pid,
            uid: self.uid,
            fault_mode: &last.fault_mode,
            recorded_s,
            looks: self.points.len(),
            local_limit_bytes: last.local_limit_bytes,
            peak_local_bytes: last.peak_local_bytes,
            peak_far_bytes: self.points.iter().map(|point| point.far_bytes).max().unwrap_or(0),
            faults: last.faults.all().saturating_sub(first.faults.all()),
            fault_p50_us: quantile_us(&new, 0.5),
            fault_p99_us: quantile_us(&new, 0.99),
            lost_share: lost_share(lost_us, recorded_s),
            worst: worst.max_by(|one, other| one.lost_share.total_cmp(&other.lost_share)),
            fetched_bytes: bytes(first.fetched_pages, last.fetched_pages),
            written_bytes: bytes(first.written_pages, last.written_pages),
            refused_faults: last.faults.refused,
            fetch_us: observed.fetch_us(),
            needs: observed.needs(),
            sites: self.sites(),
        }
    }

    /// What it did while it was recorded, for who asks how much memory it needs.
    pub fn observed(&self) -> Observed {
        let whole = self.points.iter().map(|point| point.local_bytes + point.far_bytes).max();
        let before = Past::of(&self.first, self.first_uptime_s);
        Observed::since(&before, &self.last_run, self.last.uptime_s, whole.unwrap_or(0))
    }
}

fn point(at_s: f64, run: &Run, since: Option<Since>) -> Point {
    let stores = run.stores.iter().map(|store| StoreUse {
        used_bytes: store.used_bytes,
        stored_bytes: store.stored_bytes,
        health: store.health,
    });
    Point {
        at_s,
        local_limit_bytes: run.local_limit_bytes,
        local_bytes: run.local_bytes,
        far_bytes: run.far_bytes,
        since,
        stores: stores.collect(),
    }
}

fn since(before: &Run, now: &Run, passed_s: f64) -> Since {
    let per_s = |before: u64, now: u64| now.saturating_sub(before) as f64 / passed_s;
    let faults = |kind: fn(&Faults) -> u64| per_s(kind(&before.faults), kind(&now.faults));
    let (left, leaves) = (&before.evictions, &now.evictions);
    let stores = before.stores.iter().zip(&now.stores).map(|(before, now)| {
        let pages = [(before.fetched_pages, now.fetched_pages), (before.written_pages, now.written_pages)];
        pages.map(|(before, now)| per_s(before, now) * PAGE_BYTES as f64)
    });
    Since {
        rates: between(before, now, passed_s),
        faults_per_s: [
            faults(|faults| faults.first_touch),
            faults(|faults| faults.fetch),
            faults(|faults| faults.inactive + faults.writeback),
            faults(|faults| faults.other),
            faults(|faults| faults.refused),
        ],
        evictions_per_s: [
            per_s(left.written_pages, leaves.written_pages),
            per_s(left.clean_dropped_pages, leaves.clean_dropped_pages),
            per_s(left.zero_dropped_pages, leaves.zero_dropped_pages),
            per_s(left.kept_in_use_pages, leaves.kept_in_use_pages),
        ],
        stores_per_s: stores.collect(),
        latency_rows: latency_rows(&before.fault_latency, &now.fault_latency),
    }
}

fn latency_rows(before: &Latency, now: &Latency) -> Vec<u64> {
    let mut rows = vec![0; LATENCY_ROWS];
    for (bound_ns, count) in now.since(before) {
        rows[latency_row(bound_ns)] += count;
    }
    rows
}

/// The row of a latency: row 0 up to 1 us, each further one up to twice as long.
fn latency_row(ns: u64) -> usize {
    let us = ns.div_ceil(1000).max(1);
    (us.next_power_of_two().ilog2() as usize).min(LATENCY_ROWS - 1)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::watch::metrics::tests::whole_snapshot;
    use spillway_snapshot::snapshot::Return;

    /// A look at a run that has had so many faults, each of 3 us, by so many seconds.
    fn look(at_s: f64, pid: u32, uptime_s: f64, faults: u64) -> Look {
        let mut snapshot = Snapshot { pid, uptime_s, ..whole_snapshot() };
        let Body::Run { run } = &mut snapshot.body else { panic!("no run") };
        run.faults = Faults { fetch: faults, ..Faults::default() };
        run.fetched_pages = 2 * faults;
        run.stores[0].fetched_pages = 2 * faults;
        let total_us = 3.0 * faults as f64;
        run.returns = vec![Return { within_bytes: 16 << 20, faults, total_us }];
        run.fault_latency =
            Latency { count: faults, total_us, buckets: vec![(3_000, faults)], ..Latency::default() };
        Look { at_s, seen: vec![snapshot] }
    }

    fn told(looks: &[Look]) -> Vec<Story> {
        let mut teller = Teller::default();
        looks.iter().for_each(|look| teller.count(look));
        let mut telling = teller.telling();
        looks.iter().for_each(|look| telling.take(look.clone()));
        telling.end()
    }

    /// A run of ten seconds that is idle but for its last: 1,000 faults in it.
    pub(crate) fn story() -> Story {
        let faults = |at: u32| if at < 10 { 0 } else { 1_000 };
        let looks: Vec<Look> =
            (0..=10).map(|at| look(f64::from(at), 7, f64::from(at) + 0.5, faults(at))).collect();
        told(&looks).remove(0)
    }

    #[test]
    fn figures_are_of_the_time_that_was_recorded() {
        let story = story();
        let summary = story.summary();
        assert_eq!((summary.looks, summary.recorded_s, summary.faults), (11, 10.0, 1_000));
        assert!((summary.lost_share - 3e-4).abs() < 1e-9, "{}", summary.lost_share);
        let worst = summary.worst.unwrap();
        assert!(worst.at_s == 10.0 && (worst.lost_share - 3e-3).abs() < 1e-9, "{}", worst.lost_share);
        assert_eq!(summary.fetched_bytes, 2_000 * 4096);
        assert_eq!((summary.fault_p50_us, summary.fault_p99_us), (Some(3.0), Some(3.0)));
        let last = story.points[10].since.as_ref().unwrap();
        assert_eq!((last.faults_per_s[1], last.stores_per_s[0][0]), (1_000.0, 2_000.0 * 4096.0));
        assert_eq!(last.latency_rows[2], 1_000, "up to 4 us");
    }

    #[test]
    fn a_number_that_comes_again_is_another_run() {
        let stories = told(&[look(0.0, 7, 5.0, 9), look(1.0, 7, 6.0, 10), look(2.0, 7, 0.2, 1)]);
        assert_eq!(stories.len(), 2);
        assert_eq!(stories.iter().map(|story| story.points.len()).collect::<Vec<_>>(), [2, 1]);
        assert_eq!(stories[1].summary().faults, 0);
    }

    #[test]
    fn a_long_run_is_shown_by_few_looks_and_loses_no_fault() {
        let looks: Vec<Look> =
            (0..5_000u32).map(|at| look(f64::from(at), 7, f64::from(at) + 0.5, u64::from(at))).collect();
        let story = told(&looks).remove(0);
        assert!((500..=602).contains(&story.points.len()), "{}", story.points.len());
        assert_eq!(story.points.last().unwrap().at_s, 4_999.0);
        let counted: u64 = story
            .points
            .iter()
            .filter_map(|point| point.since.as_ref())
            .map(|since| since.latency_rows[2])
            .sum();
        assert_eq!(counted, 4_999);
    }

    #[test]
    fn latencies_fall_into_rows_of_twice_the_length() {
        for (ns, row) in [(1, 0), (1_000, 0), (1_001, 1), (2_000, 1), (2_001, 2), (4_000, 2), (u64::MAX, 20)]
        {
            assert_eq!(latency_row(ns), row, "{ns}");
        }
    }
}
