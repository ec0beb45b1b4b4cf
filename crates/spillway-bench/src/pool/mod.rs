//! A pool of three donors beside one plain NBD donor, and what happens when one of the three dies.

pub mod reads;
mod site;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::BenchError;
use crate::access::{Data, Pattern};
use crate::cells::{Setting, StoreKind};
use crate::donor::{self, Donor};
use crate::machine::Machine;
use crate::on_access::OnAccess;
use site::{PoolDonor, Reader};

/// Share of the memory that is local, in percent.
const LOCAL_PCT: u64 = 25;
const DONORS: usize = 3;
/// From the start of the reads to the death of a donor.
const LEAD: Duration = Duration::from_millis(200);

/// How long the program reads while a repair goes on.
const UNDER_REPAIR: Duration = Duration::from_millis(500);
/// How often is looked how much donors hold.
const LOOK: Duration = Duration::from_millis(2);
/// A stretch without a copy that is so long is the wait for the donor that has died, which is 2 s.
const WAIT: Duration = Duration::from_secs(1);
/// How long a repair may take to begin, and to end.
const LONGEST: Duration = Duration::from_secs(60);

/// How much to measure.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// Memory of the measured process.
    pub memory_bytes: u64,
    /// Time of one measurement.
    pub measured_ms: u64,
    /// How often each is repeated; the median counts.
    pub repetitions: usize,
}

/// One thing that was measured, and what it should be.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What it is, with its unit.
    pub name: &'static str,
    /// What was measured, in the unit that the name says.
    pub value: f64,
    /// What it should be at most or at least, by the name.
    pub aim: f64,
    /// Whether the value reaches its aim.
    pub met: bool,
}

impl Row {
    fn at_most(name: &'static str, value: f64, aim: f64) -> Self {
        Self { name, value, aim, met: value <= aim }
    }

    fn at_least(name: &'static str, value: f64, aim: f64) -> Self {
        Self { name, value, aim, met: value >= aim }
    }
}

/// What came out of all measurements.
#[derive(Clone, Debug, Serialize)]
pub struct PoolReport {
    /// On what machine it was measured.
    pub machine: Machine,
    /// Memory of the measured process, in bytes.
    pub memory_bytes: u64,
    /// Donors of the pool; each page is on two of them.
    pub donors: usize,
    /// What was measured, and what it should be.
    pub rows: Vec<Row>,
}

struct Bench<'a> {
    on_access: OnAccess<'a>,
    extent: Extent,
    interrupted: &'a AtomicBool,
    donors: Vec<PoolDonor>,
}

/// Measures all, and says what is done.
pub fn measure(
    spillway: &Path,
    extent: Extent,
    interrupted: &AtomicBool,
    progress: &mut dyn FnMut(&Row),
) -> Result<PoolReport, BenchError> {
    let on_access = OnAccess::new(spillway, extent.memory_bytes, extent.measured_ms, interrupted)?;
    let mut bench = Bench { on_access, extent, interrupted, donors: Vec::new() };
    let mut rows = Vec::new();
    for part in [Bench::healthy, Bench::one_dies, Bench::repair, Bench::repair_under_load] {
        // Fresh ones each time: some have died.
        bench.donors.clear();
        for number in 0..DONORS {
            bench.donors.push(PoolDonor::start(spillway, number, extent.memory_bytes * 2)?);
        }
        let part = part(&mut bench)?;
        part.iter().for_each(&mut *progress);
        rows.extend(part);
    }
    Ok(PoolReport { machine: Machine::this(), memory_bytes: extent.memory_bytes, donors: DONORS, rows })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

impl<'a> Bench<'a> {
    fn pool(&self, query: &str) -> String {
        let all: Vec<&str> = self.donors.iter().map(|donor| donor.address.as_str()).collect();
        let mib = self.extent.memory_bytes.div_ceil(1 << 20) * 5 / 4;
        format!("pool:{}?size={mib}M{query}", all.join(","))
    }

    /// Nanoseconds for an access on each of these stores, with these options, measured in turns.
    fn ns<const N: usize>(
        &self,
        pattern: Pattern,
        stores: [(&str, &str); N],
    ) -> Result<[f64; N], BenchError> {
        let setting = Setting { pattern, data: Data::Random, threads: 1, local_pct: LOCAL_PCT };
        let local = self.on_access.local_bytes(&setting).to_string();
        let mut found: [Vec<f64>; N] = std::array::from_fn(|_| Vec::new());
        for _ in 0..self.extent.repetitions {
            for ((store, seal), found) in stores.iter().zip(&mut found) {
                let run = ["--local", &local, "--store", store, "--seal", seal].map(str::to_owned);
                found.push(self.on_access.under_spillway(&setting, &run)?.result.ns_per_access);
            }
        }
        Ok(found.map(median))
    }

    fn healthy(&mut self) -> Result<Vec<Row>, BenchError> {
        let plain =
            Donor::start(self.on_access.spillway, self.extent.memory_bytes * 2, self.on_access.scratch())?;
        let nbd = donor::uri(StoreKind::NbdTcp, Some(&plain)).unwrap_or_default();
        let pool = self.pool("");
        let [one, open, sealed] =
            self.ns(Pattern::RandomRead, [(&nbd, "none"), (&pool, "none"), (&pool, "remote")])?;
        let [one_reads, pool_reads] =
            self.ns(Pattern::SequentialRead, [(&nbd, "none"), (&pool, "remote")])?;
        let [one_writes, pool_writes] =
            self.ns(Pattern::SequentialRw, [(&nbd, "none"), (&pool, "remote")])?;
        Ok(vec![
            Row::at_most("random read, not sealed, over one plain donor's time", open / one, 1.1),
            Row::at_most("random read, sealed, over one plain donor's time", sealed / one, 1.5),
            Row::at_least("sequential read, sealed, of one plain donor's rate", one_reads / pool_reads, 1.0),
            Row::at_least(
                "sequential read and write, sealed, of one plain donor's rate",
                one_writes / pool_writes,
                0.8,
            ),
        ])
    }

    /// A program on the pool whose memory is full.
    fn reader(&self, query: &str) -> Result<Reader<'a>, BenchError> {
        let memory_bytes = self.extent.memory_bytes;
        let sizes = (memory_bytes, memory_bytes / 100 * LOCAL_PCT);
        let store = self.pool(query);
        Reader::start(self.on_access.spillway, self.on_access.scratch(), sizes, &store, self.interrupted)
    }

    fn measured(&self) -> Duration {
        Duration::from_millis(self.extent.measured_ms)
    }

    /// A donor dies while the program reads.
    fn one_dies(&mut self) -> Result<Vec<Row>, BenchError> {
        let mut reader = self.reader("")?;
        let healthy = reader.read(self.measured())?;
        reader.begin(LEAD + Duration::from_secs(1))?;
        std::thread::sleep(LEAD);
        drop(self.donors.pop());
        let dying = reader.end()?;
        reader.await_line("all pages are on 2 donors again")?;
        let after = reader.read(self.measured())?;
        reader.finish()?;
        Ok(vec![
            Row::at_most("longest stall when one of three dies under load, ms", dying.longest_us / 1e3, 50.0),
            Row::at_most(
                "p99 of faults in the second in which one of three dies, ms",
                dying.p99_us / 1e3,
                5.0,
            ),
            Row::at_most(
                "median fault with one of three dead, over a healthy pool's",
                after.median_us / healthy.median_us.max(f64::MIN_POSITIVE),
                2.0,
            ),
        ])
    }

    /// A donor dies while the program does nothing.
    fn repair(&mut self) -> Result<Vec<Row>, BenchError> {
        let reader = self.reader("&rebuild=64G")?;
        drop(self.donors.pop());
        let repair = self.watch_repair(&reader)?;
        reader.finish()?;
        Ok(vec![
            Row::at_least("repair while the program rests, MB/s", repair.while_possible, 1000.0),
            Row::at_least("the same, with the wait for the dead donor, MB/s", repair.with_the_wait, 1000.0),
        ])
    }

    /// The same while the program reads.
    fn repair_under_load(&mut self) -> Result<Vec<Row>, BenchError> {
        let mut reader = self.reader("&rebuild=64G")?;
        let healthy = reader.read(self.measured())?;
        drop(self.donors.pop());
        self.await_repair()?;
        let meanwhile = reader.read(UNDER_REPAIR)?;
        reader.await_line("all pages are on 2 donors again")?;
        reader.finish()?;
        let ratio = meanwhile.p99_us / healthy.p99_us.max(f64::MIN_POSITIVE);
        Ok(vec![Row::at_most("p99 of faults during repair, over a healthy pool's", ratio, 2.0)])
    }

    /// Bytes that the donors hold that are left.
    fn held_bytes(&self) -> Result<u64, BenchError> {
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(BenchError::Interrupted);
        }
        let mut held = 0;
        for PoolDonor { address, .. } in &self.donors {
            let failed = |reason: String| BenchError::setup("ask a donor", reason, "see whether it runs");
            let address: SocketAddr =
                address.parse().map_err(|error| failed(format!("{address}: {error}")))?;
            let standing = spillway_store::nbd::standing(&address.into(), Duration::from_secs(2));
            held += standing.map_err(|error| failed(error.to_string()))?.held_bytes;
        }
        Ok(held)
    }

    /// Waits until the donors that are left begin to hold more; since when, and what they held.
    fn await_repair(&self) -> Result<(Instant, u64), BenchError> {
        let before = self.held_bytes()?;
        let until = Instant::now() + LONGEST;
        while Instant::now() < until {
            if self.held_bytes()? > before {
                return Ok((Instant::now(), self.held_bytes()?));
            }
            std::thread::sleep(LOOK);
        }
        let reason = "nothing is copied to the donors that are left";
        Err(BenchError::setup("see a repair", reason, "run a pool by itself to see why"))
    }

    /// How fast the donors that are left come to hold more, until all is well again.
    fn watch_repair(&self, reader: &Reader<'_>) -> Result<Repair, BenchError> {
        let (begun, before) = self.await_repair()?;
        let mut growth = Growth::new(begun, before);
        while !reader.has_said("all pages are on 2 donors again") && begun.elapsed() < LONGEST {
            growth.note(Instant::now(), self.held_bytes()?);
            std::thread::sleep(LOOK);
        }
        Ok(growth.repair())
    }
}

/// Megabytes copied a second.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Repair {
    /// Over the time in which copying was possible.
    while_possible: f64,
    /// Over all the time from the first copy to the last.
    with_the_wait: f64,
}

/// What donors hold more and more of.
#[derive(Clone, Copy, Debug)]
struct Growth {
    begun: Instant,
    before: u64,
    ended: Instant,
    held: u64,
    /// Stretches in which nothing was copied since the dead donor was waited for, and what was copied by the
    /// first look after: when, is not known.
    waited: Duration,
    uncounted: u64,
}

impl Growth {
    fn new(begun: Instant, held: u64) -> Self {
        Self { begun, before: held, ended: begun, held, waited: Duration::ZERO, uncounted: 0 }
    }

    /// So much is held at this moment.
    fn note(&mut self, now: Instant, held: u64) {
        if held <= self.held {
            return;
        }
        let gap = now.saturating_duration_since(self.ended);
        if gap >= WAIT {
            self.waited += gap;
            self.uncounted += held - self.held;
        }
        (self.ended, self.held) = (now, held);
    }

    fn repair(&self) -> Repair {
        let all = self.ended.saturating_duration_since(self.begun);
        let rate =
            |bytes: u64, time: Duration| bytes as f64 / 1e6 / time.as_secs_f64().max(f64::MIN_POSITIVE);
        let copied = self.held - self.before;
        Repair {
            while_possible: rate(copied - self.uncounted, all.saturating_sub(self.waited)),
            with_the_wait: rate(copied, all),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_for_a_dead_donor_is_no_time_in_which_copying_was_possible() {
        let begun = Instant::now();
        let at = |ms| begun + Duration::from_millis(ms);
        let mut growth = Growth::new(begun, 5_000_000);
        for (ms, held) in [(100, 15_000_000), (110, 15_000_000), (2_100, 20_000_000), (2_400, 50_000_000)] {
            growth.note(at(ms), held);
        }
        let Repair { while_possible, with_the_wait } = growth.repair();
        assert!((while_possible - 100.0).abs() < 0.1, "40 MB in 0.4 s: {while_possible}");
        assert!((with_the_wait - 18.75).abs() < 0.1, "45 MB in 2.4 s: {with_the_wait}");
    }
}
