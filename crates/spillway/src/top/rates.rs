//! Two looks at what runs make rates.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use spillway_core::page::PAGE_BYTES;
use spillway_donor::journal::Counts;
use spillway_donor::status::Status;
use spillway_snapshot::histogram::{Latency, quantile_us};
use spillway_snapshot::reader::Seen;
use spillway_snapshot::snapshot::{
    Body, Evictions, Faults, Prefetch, Process, Run, Snapshot, Store, VERSION,
};

use crate::status::{lost_share, name_of};
use crate::watch::donor_snapshot::donor_of;

/// Who a row is about: whose run, its supervisor, and one of its processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Key {
    /// The user whose it is.
    pub uid: u32,
    /// The supervisor's or the daemon's process.
    pub supervisor_pid: u32,
    /// A process of the run; none for the run as a whole.
    pub process_pid: Option<u32>,
}

/// What a row is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A run, all its processes together.
    Run,
    /// A process of a run.
    Process,
    /// A donor of memory.
    Donor,
    /// The daemon `spillway tier`.
    Tier,
}

/// One run, process, donor or daemon, as it was between two looks.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Who it is about.
    #[serde(flatten)]
    pub key: Key,
    /// What it is about.
    pub kind: Kind,
    /// What it is called.
    pub name: String,
    /// The process that a user would look for: the program's, of a run.
    pub pid: u32,
    /// `thread` or `inline`; none of a donor or a daemon.
    pub fault_mode: Option<String>,
    /// Memory that is local; of a donor, what it holds.
    pub local_bytes: u64,
    /// Most of that; none of a process, which shares its run's limit. Of a donor, what it lends.
    pub local_limit_bytes: Option<u64>,
    /// Memory that is far.
    pub far_bytes: u64,
    /// What happened between the looks; none at the first one, and of a donor or a daemon.
    pub rates: Option<Rates>,
    /// How a donor stands, and its rates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub donor: Option<Box<DonorRow>>,
    /// What the daemon `spillway tier` says of itself, as `spillway tier status --json` prints it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier: Option<serde_json::Value>,
    /// The stores of a run.
    pub stores: Vec<StoreRow>,
    /// Pages that came before a fault asked for them, since the start; of a run also how many were used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefetch: Option<Prefetch>,
    /// Pages that left since the start, by how, and those that stayed, by why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evictions: Option<Evictions>,
    /// Pages read from stores since the start.
    pub fetched_pages: u64,
    /// Faults since the start.
    pub faults: Faults,
    /// How long they took since the start.
    #[serde(rename = "fault_latency", serialize_with = "by_octaves")]
    pub latency: Latency,
    /// Time since the start of the run, in seconds.
    pub uptime_s: f64,
}

/// How long faults took since the start, in a form of bounded size.
#[derive(Serialize)]
struct ByOctaves {
    count: u64,
    /// What they took together, over all threads.
    total_us: f64,
    p50_us: f64,
    p99_us: f64,
    max_us: f64,
    /// Bounds in nanoseconds, each twice the one before, and how many faults took less than each.
    octaves: Vec<(u64, u64)>,
}

fn by_octaves<S: Serializer>(latency: &Latency, to: S) -> Result<S::Ok, S::Error> {
    let Latency { count, total_us, p50_us, p99_us, max_us, .. } = *latency;
    ByOctaves { count, total_us, p50_us, p99_us, max_us, octaves: latency.octaves() }.serialize(to)
}

/// What happened between two looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Rates {
    /// Faults of every kind, a second.
    pub faults_per_s: f64,
    /// The median fault, in microseconds; none where there was none.
    pub fault_p50_us: Option<f64>,
    /// The 99th percentile, in microseconds.
    pub fault_p99_us: Option<f64>,
    /// The time that threads waited for faults, as a share of the time that passed.
    pub lost_share: f64,
    /// Bytes fetched from stores, a second.
    pub fetched_bytes_per_s: f64,
    /// Bytes written to stores, a second.
    pub written_bytes_per_s: f64,
}

/// A donor as it was between two looks.
#[derive(Clone, Debug, Serialize)]
pub struct DonorRow {
    /// As `spillway donor status --json` prints it.
    #[serde(flatten)]
    pub status: Status,
    /// What happened between the looks; none at the first one.
    pub rates: Option<DonorRates>,
}

/// What clients did between two looks at a donor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct DonorRates {
    /// Requests of all clients, a second.
    pub requests_per_s: f64,
    /// Bytes that clients wrote, a second.
    pub written_bytes_per_s: f64,
    /// Bytes that clients read, a second.
    pub read_bytes_per_s: f64,
}

/// A store of a run.
#[derive(Clone, Debug, Serialize)]
pub struct StoreRow {
    /// As it is told.
    #[serde(flatten)]
    pub store: Store,
    /// Bytes fetched from it, a second; none at the first look.
    pub fetched_bytes_per_s: Option<f64>,
    /// Bytes written to it, a second.
    pub written_bytes_per_s: Option<f64>,
}

/// What is alive, as of the last two looks.
#[derive(Debug, Default, Serialize)]
pub struct Rows {
    /// The version of this form.
    pub version: u32,
    /// Runs, each before its processes, donors and daemons.
    pub rows: Vec<Row>,
    /// Those that do not tell of themselves: socket and reason.
    pub silent: Vec<(String, String)>,
}

/// What was seen, last and before.
#[derive(Default)]
pub struct Looks {
    before: BTreeMap<(u32, u32), Snapshot>,
    rows: Rows,
}

impl Looks {
    /// Takes a further look.
    pub fn take(&mut self, seen: Vec<Seen>) {
        let mut next = BTreeMap::new();
        self.rows = Rows { version: VERSION, ..Rows::default() };
        for Seen { socket, answer, .. } in seen {
            match answer {
                Ok(snapshot) => {
                    let key = (snapshot.uid, snapshot.pid);
                    self.rows.rows.extend(rows(self.before.get(&key), &snapshot));
                    next.insert(key, snapshot);
                }
                Err(error) => self.rows.silent.push((socket, error.to_string())),
            }
        }
        self.before = next;
    }

    /// What runs at present.
    pub fn seen(&self) -> &Rows {
        &self.rows
    }
}

/// A row for what a snapshot is of, and one for each process of a run that has several.
fn rows(before: Option<&Snapshot>, now: &Snapshot) -> Vec<Row> {
    // A process of the same number that began later is another.
    let before = before.filter(|before| before.uptime_s < now.uptime_s);
    match &now.body {
        Body::Tier { tier } => vec![of_tier(now, tier)],
        Body::Donor { .. } => of_donor(now, before).into_iter().collect(),
        Body::Run { run } => {
            let passed_s = before.map_or(0.0, |before| now.uptime_s - before.uptime_s);
            let before = before.and_then(|before| match &before.body {
                Body::Run { run } => Some(&**run),
                Body::Donor { .. } | Body::Tier { .. } => None,
            });
            let mut rows = vec![of_run(now, run, before, passed_s)];
            if run.processes.len() > 1 {
                rows.extend(
                    run.processes.iter().filter_map(|process| of_process(now, process, before, passed_s)),
                );
            }
            rows
        }
    }
}

fn key(snapshot: &Snapshot, process_pid: Option<u32>) -> Key {
    Key { uid: snapshot.uid, supervisor_pid: snapshot.pid, process_pid }
}

/// None where it is of a version that says too little.
fn of_donor(snapshot: &Snapshot, before: Option<&Snapshot>) -> Option<Row> {
    let status = donor_of(snapshot)?;
    let rates = before.and_then(|before| Some((before.uptime_s, donor_of(before)?))).map(|(at_s, before)| {
        let passed_s = snapshot.uptime_s - at_s;
        donor_rates(&before.counts, &status.counts, passed_s)
    });
    Some(Row {
        kind: Kind::Donor,
        local_bytes: status.memory.used_bytes,
        local_limit_bytes: Some(status.memory.offered_bytes),
        donor: Some(Box::new(DonorRow { status, rates })),
        ..empty_row(snapshot)
    })
}

/// What clients did between two looks at a donor, so much time apart.
pub fn donor_rates(before: &Counts, now: &Counts, passed_s: f64) -> DonorRates {
    DonorRates {
        requests_per_s: per_s((before.requests, now.requests), passed_s),
        written_bytes_per_s: per_s((before.written_bytes, now.written_bytes), passed_s),
        read_bytes_per_s: per_s((before.read_bytes, now.read_bytes), passed_s),
    }
}

/// A row that says who it is about and nothing else.
fn empty_row(snapshot: &Snapshot) -> Row {
    Row {
        key: key(snapshot, None),
        kind: Kind::Tier,
        name: name_of(snapshot),
        pid: snapshot.pid,
        fault_mode: None,
        local_bytes: 0,
        local_limit_bytes: None,
        far_bytes: 0,
        rates: None,
        donor: None,
        tier: None,
        stores: Vec::new(),
        prefetch: None,
        evictions: None,
        fetched_pages: 0,
        faults: Faults::default(),
        latency: Latency::default(),
        uptime_s: snapshot.uptime_s,
    }
}

fn of_tier(snapshot: &Snapshot, tier: &serde_json::Value) -> Row {
    let groups = || tier["groups"].as_array().into_iter().flatten();
    let sum = |key: &str| groups().filter_map(|group| group[key].as_u64()).fold(0, u64::saturating_add);
    Row {
        kind: Kind::Tier,
        local_bytes: sum("local_bytes"),
        local_limit_bytes: Some(sum("local_limit_bytes")),
        far_bytes: sum("far_bytes"),
        tier: Some(tier.clone()),
        ..empty_row(snapshot)
    }
}

fn of_run(snapshot: &Snapshot, run: &Run, before: Option<&Run>, passed_s: f64) -> Row {
    let rates = before.map(|before| between(before, run, passed_s));
    Row {
        key: key(snapshot, None),
        kind: Kind::Run,
        name: name_of(snapshot),
        pid: run.program_pid,
        fault_mode: Some(run.fault_mode.clone()),
        local_bytes: run.local_bytes,
        local_limit_bytes: Some(run.local_limit_bytes),
        far_bytes: run.far_bytes,
        rates,
        prefetch: Some(run.prefetch),
        evictions: Some(run.evictions),
        fetched_pages: run.fetched_pages,
        stores: run.stores.iter().map(|store| of_store(store, before, passed_s)).collect(),
        faults: run.faults,
        latency: run.fault_latency.clone(),
        ..empty_row(snapshot)
    }
}

fn of_process(snapshot: &Snapshot, process: &Process, before: Option<&Run>, passed_s: f64) -> Option<Row> {
    let pid = process.pid?;
    let before = before.and_then(|run| run.processes.iter().find(|before| before.pid == process.pid));
    let rates = before.map(|before| {
        let pages =
            [(before.fetched_pages, process.fetched_pages), (before.written_pages, process.written_pages)];
        rates(
            [&before.faults, &process.faults],
            [&before.fault_latency, &process.fault_latency],
            pages,
            passed_s,
        )
    });
    Some(Row {
        key: key(snapshot, Some(pid)),
        kind: Kind::Process,
        name: process.name.clone().unwrap_or_else(|| "-".to_owned()),
        pid,
        fault_mode: Some(process.fault_mode.clone()),
        local_bytes: process.local_bytes,
        far_bytes: process.far_bytes,
        rates,
        prefetch: Some(Prefetch { fetched_ahead_pages: process.fetched_ahead_pages, accuracy: None }),
        evictions: Some(process.evictions),
        fetched_pages: process.fetched_pages,
        faults: process.faults,
        latency: process.fault_latency.clone(),
        ..empty_row(snapshot)
    })
}

/// What happened to a run between two looks at it, so much time apart.
pub fn between(before: &Run, now: &Run, passed_s: f64) -> Rates {
    let pages = [(before.fetched_pages, now.fetched_pages), (before.written_pages, now.written_pages)];
    rates([&before.faults, &now.faults], [&before.fault_latency, &now.fault_latency], pages, passed_s)
}

fn per_s((before, now): (u64, u64), passed_s: f64) -> f64 {
    if passed_s > 0.0 { now.saturating_sub(before) as f64 / passed_s } else { 0.0 }
}

fn rates(faults: [&Faults; 2], latency: [&Latency; 2], pages: [(u64, u64); 2], passed_s: f64) -> Rates {
    let new = latency[1].since(latency[0]);
    let [fetched, written] = pages.map(|pages| per_s(pages, passed_s) * PAGE_BYTES as f64);
    Rates {
        faults_per_s: per_s((faults[0].all(), faults[1].all()), passed_s),
        fault_p50_us: quantile_us(&new, 0.5),
        fault_p99_us: quantile_us(&new, 0.99),
        lost_share: lost_share((latency[1].total_us - latency[0].total_us).max(0.0), passed_s),
        fetched_bytes_per_s: fetched,
        written_bytes_per_s: written,
    }
}

fn of_store(store: &Store, before: Option<&Run>, passed_s: f64) -> StoreRow {
    let before = before.and_then(|run| run.stores.iter().find(|before| before.uri == store.uri));
    let rate = |pages: fn(&Store) -> u64| {
        before.map(|before| per_s((pages(before), pages(store)), passed_s) * PAGE_BYTES as f64)
    };
    StoreRow {
        store: store.clone(),
        fetched_bytes_per_s: rate(|store| store.fetched_pages),
        written_bytes_per_s: rate(|store| store.written_pages),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::watch::donor_snapshot::tests::donor_snapshot;
    use crate::watch::metrics::tests::whole_snapshot;

    fn seen(snapshot: Snapshot) -> Vec<Seen> {
        vec![Seen { socket: "run-7.sock".to_owned(), uid: snapshot.uid, answer: Ok(snapshot) }]
    }

    /// A run of two processes, seen twice, two seconds apart: 2,000 faults more, 3,000 pages fetched.
    pub(crate) fn seen_twice() -> Looks {
        let process = |pid, name: &str, far_bytes| Process {
            pid: Some(pid),
            name: Some(name.to_owned()),
            fault_mode: "inline".to_owned(),
            local_bytes: 30 << 20,
            native_bytes: 0,
            far_bytes,
            faults: Faults::default(),
            fault_latency: Latency::default(),
            fetched_pages: 0,
            fetched_ahead_pages: 0,
            written_pages: 0,
            evictions: Evictions { zero_dropped_pages: 3, ..Evictions::default() },
            heat: None,
        };
        let mut first = whole_snapshot();
        first.uid = rustix::process::geteuid().as_raw();
        let Body::Run { run } = &mut first.body else { panic!("no run") };
        run.processes = vec![process(8, "parent", 1 << 20), process(9, "child", 2 << 20)];
        let mut second = first.clone();
        second.uptime_s += 2.0;
        let Body::Run { run } = &mut second.body else { panic!("no run") };
        run.faults.fetch += 2_000;
        run.fetched_pages += 3_000;
        run.stores[0].fetched_pages += 3_000;
        run.fault_latency.buckets = vec![(1_500, 2), (2_000, 1_980), (90_000, 20), (5_000_001, 1)];
        run.fault_latency.total_us += 1e6;
        run.processes[1].faults.fetch += 2_000;
        let mut looks = Looks::default();
        looks.take(seen(first));
        looks.take(seen(second));
        looks
    }

    #[test]
    fn two_looks_make_rates_of_what_came_between_them() {
        let looks = seen_twice();
        let [run, parent, child] = &looks.seen().rows[..] else { panic!("{:?}", looks.seen()) };
        let rates = run.rates.unwrap();
        assert_eq!((rates.faults_per_s, rates.lost_share), (1_000.0, 0.5));
        assert_eq!((rates.fault_p50_us, rates.fault_p99_us), (Some(2.0), Some(2.0)));
        assert_eq!(rates.fetched_bytes_per_s, 1_500.0 * 4096.0);
        assert_eq!(run.stores[0].fetched_bytes_per_s, Some(1_500.0 * 4096.0));
        assert_eq!(parent.rates.unwrap().faults_per_s, 0.0);
        assert_eq!(child.rates.unwrap().faults_per_s, 1_000.0);
        assert_eq!((child.kind, child.key.process_pid), (Kind::Process, Some(9)));
    }

    /// A donor, seen twice, two seconds apart: 3 MiB written.
    pub(crate) fn lender_seen_twice() -> Looks {
        let mut looks = Looks::default();
        for (uptime_s, written_bytes) in [(1.0, 1 << 20), (3.0, 4 << 20)] {
            let mut snapshot = donor_snapshot(uptime_s, written_bytes);
            snapshot.uid = rustix::process::geteuid().as_raw();
            looks.take(seen(snapshot));
        }
        looks
    }

    #[test]
    fn a_donors_rates_are_its_clients() {
        let looks = lender_seen_twice();
        let [row] = &looks.seen().rows[..] else { panic!("{:?}", looks.seen()) };
        let rates = row.donor.as_ref().unwrap().rates.unwrap();
        assert_eq!((rates.written_bytes_per_s, rates.read_bytes_per_s), (1.5 * 1024.0 * 1024.0, 0.0));
        assert_eq!(
            (row.kind, row.local_bytes, row.local_limit_bytes),
            (Kind::Donor, 4 << 20, Some(64 << 20))
        );
        let json = serde_json::to_value(row).unwrap();
        assert_eq!(json["donor"]["memory"]["promised_bytes"], 48 << 20);
        assert_eq!(serde_json::to_value(&seen_twice().seen().rows[0]).unwrap().get("donor"), None);
    }

    #[test]
    fn rows_tell_what_came_ahead_what_left_and_what_a_daemon_says() {
        let looks = seen_twice();
        let rows = serde_json::to_value(looks.seen()).unwrap();
        let [run, parent] = [&rows["rows"][0], &rows["rows"][1]];
        assert_eq!(
            (&run["prefetch"]["accuracy"], &run["evictions"]["clean_dropped_pages"]),
            (&0.5.into(), &7.into())
        );
        assert_eq!(
            (&run["fetched_pages"], &parent["evictions"]["zero_dropped_pages"]),
            (&3005.into(), &3.into())
        );
        assert_eq!(parent["prefetch"]["fetched_ahead_pages"], 0);
        let tier = serde_json::json!({ "fast": "0", "groups": [{ "local_bytes": 5, "far_bytes": 7 }] });
        let mut looks = Looks::default();
        looks.take(seen(Snapshot { body: Body::Tier { tier: tier.clone() }, ..whole_snapshot() }));
        let row = serde_json::to_value(&looks.seen().rows[0]).unwrap();
        assert_eq!((&row["tier"], &row["far_bytes"]), (&tier, &7.into()));
    }

    #[test]
    fn a_run_of_the_same_number_that_began_later_is_another() {
        let mut looks = seen_twice();
        looks.take(seen(Snapshot { uptime_s: 0.1, ..whole_snapshot() }));
        assert!(looks.seen().rows[0].rates.is_none());
    }
}
