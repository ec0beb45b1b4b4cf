//! What all parts of the benchmark measure with: donors, comparisons of stores in turns, a program that reads
//! when it is told to, and looks at how much donors hold.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::growth::Growth;
use super::site::{PoolDonor, Reader};
use crate::BenchError;
use crate::access::{Data, Pattern};
use crate::cells::{Setting, StoreKind};
use crate::donor::{self, Donor};
use crate::on_access::OnAccess;

/// Share of the memory that is local, in percent.
const LOCAL_PCT: u64 = 25;
/// From the start of the reads to the death of a donor.
pub(super) const LEAD: Duration = Duration::from_millis(200);
/// How long the program reads while a repair goes on.
pub(super) const UNDER_REPAIR: Duration = Duration::from_millis(500);
/// How often is looked how much donors hold.
const LOOK: Duration = Duration::from_millis(2);
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

pub(super) struct Bench<'a> {
    pub(super) on_access: OnAccess<'a>,
    pub(super) extent: Extent,
    pub(super) interrupted: &'a AtomicBool,
    pub(super) donors: Vec<PoolDonor>,
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

impl<'a> Bench<'a> {
    pub(super) fn new(
        spillway: &'a Path,
        extent: Extent,
        interrupted: &'a AtomicBool,
    ) -> Result<Self, BenchError> {
        let on_access = OnAccess::new(spillway, extent.memory_bytes, extent.measured_ms, interrupted)?;
        Ok(Self { on_access, extent, interrupted, donors: Vec::new() })
    }

    /// So many fresh donors in place of those that there were: some have died.
    pub(super) fn begin(&mut self, donors: usize) -> Result<(), BenchError> {
        self.donors.clear();
        self.donors = self.more_donors(donors, &[])?;
        Ok(())
    }

    /// So many donors, with further options.
    pub(super) fn more_donors(&self, count: usize, options: &[&str]) -> Result<Vec<PoolDonor>, BenchError> {
        self.donors_of(count, self.extent.memory_bytes * 2, options)
    }

    /// The same, each with so much memory.
    pub(super) fn donors_of(
        &self,
        count: usize,
        bytes: u64,
        options: &[&str],
    ) -> Result<Vec<PoolDonor>, BenchError> {
        (0..count)
            .map(|number| PoolDonor::start(self.on_access.spillway, number, bytes, options, self.interrupted))
            .collect()
    }

    /// The pool that the donors are.
    pub(super) fn pool(&self, query: &str) -> String {
        self.pool_of(&self.donors, query)
    }

    /// The pool that these donors are.
    pub(super) fn pool_of(&self, donors: &[PoolDonor], query: &str) -> String {
        let all: Vec<&str> = donors.iter().map(|donor| donor.address.as_str()).collect();
        let mib = self.extent.memory_bytes.div_ceil(1 << 20) * 5 / 4;
        format!("pool:{}?size={mib}M{query}", all.join(","))
    }

    /// A plain NBD donor, and how a run names it.
    pub(super) fn plain_donor(&self) -> Result<(Donor, String), BenchError> {
        let bytes = self.extent.memory_bytes * 2;
        let plain = Donor::start(self.on_access.spillway, bytes, self.on_access.scratch(), self.interrupted)?;
        let uri = donor::uri(StoreKind::NbdTcp, Some(&plain)).unwrap_or_default();
        Ok((plain, uri))
    }

    /// Nanoseconds for an access on each of these stores, with these options, measured in turns.
    pub(super) fn ns(&self, pattern: Pattern, stores: &[(&str, &str)]) -> Result<Vec<f64>, BenchError> {
        let setting = Setting { pattern, data: Data::Random, threads: 1, local_pct: LOCAL_PCT };
        let local = self.on_access.local_bytes(&setting).to_string();
        let mut found: Vec<Vec<f64>> = vec![Vec::new(); stores.len()];
        for _ in 0..self.extent.repetitions {
            for ((store, seal), found) in stores.iter().zip(&mut found) {
                let run = ["--local", &local, "--store", store, "--seal", seal].map(str::to_owned);
                found.push(self.on_access.under_spillway(&setting, &run)?.result.ns_per_access);
            }
        }
        Ok(found.into_iter().map(median).collect())
    }

    /// A program on the pool whose memory is full.
    pub(super) fn reader(&self, query: &str) -> Result<Reader<'a>, BenchError> {
        let memory_bytes = self.extent.memory_bytes;
        let sizes = (memory_bytes, memory_bytes / 100 * LOCAL_PCT);
        let store = self.pool(query);
        Reader::start(self.on_access.spillway, self.on_access.scratch(), sizes, &store, self.interrupted)
    }

    pub(super) fn measured(&self) -> Duration {
        Duration::from_millis(self.extent.measured_ms)
    }

    /// Bytes that the donors hold that are left.
    pub(super) fn held_bytes(&self) -> Result<u64, BenchError> {
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

    /// Waits until the donors that are left begin to hold more; the last look at which they did not.
    pub(super) fn await_repair(&self) -> Result<Growth, BenchError> {
        let (mut looked, before) = (Instant::now(), self.held_bytes()?);
        let until = looked + LONGEST;
        while Instant::now() < until {
            let now = Instant::now();
            if self.held_bytes()? > before {
                return Ok(Growth::new(looked, before));
            }
            looked = now;
            std::thread::sleep(LOOK);
        }
        let reason = "nothing is copied to the donors that are left";
        Err(BenchError::setup("see a repair", reason, "run a pool by itself to see why"))
    }

    /// How the donors that are left come to hold more, until the run says that all is well again.
    pub(super) fn watch_repair(&self, reader: &Reader<'_>, well: &str) -> Result<Growth, BenchError> {
        let (mut growth, begun) = (self.await_repair()?, Instant::now());
        loop {
            let is_over = reader.has_said(well) || begun.elapsed() >= LONGEST;
            growth.note(Instant::now(), self.held_bytes()?);
            if is_over {
                return Ok(growth);
            }
            std::thread::sleep(LOOK);
        }
    }
}
