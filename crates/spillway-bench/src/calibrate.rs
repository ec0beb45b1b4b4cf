//! What a fetch takes on this machine, for the lab's estimates: one thread touches pages at random, each of
//! which comes back by itself.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;

use spillway_lab::calibration::{Calibration, FetchTime};

use crate::BenchError;
use crate::access::{Data, Pattern};
use crate::cells::{FaultMode, Setting};
use crate::machine::Machine;
use crate::on_access::OnAccess;
use crate::rows::Spread;

/// So that most accesses are fetches.
const LOCAL_PCT: u64 = 25;

/// How much to measure.
#[derive(Clone, Debug)]
pub struct Extent {
    /// `--store` of `spillway run`, one after the other.
    pub stores: Vec<String>,
    /// Who serves faults, one after the other.
    pub fault_modes: Vec<FaultMode>,
    /// Memory of the measured process.
    pub memory_bytes: u64,
    /// Time of one measurement.
    pub measured_ms: u64,
    /// Turns; the median counts.
    pub repetitions: usize,
}

/// What a fetch takes over each store in each fault mode; a mode that a store does not allow is left out.
/// `progress` hears how many measurements of how many are done.
///
/// # Errors
/// A measured process failed.
pub fn calibrate(
    spillway: &Path,
    extent: &Extent,
    interrupted: &AtomicBool,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Calibration, BenchError> {
    let on_access = OnAccess::new(spillway, extent.memory_bytes, extent.measured_ms, interrupted)?;
    let total = extent.stores.len() * extent.fault_modes.len() * extent.repetitions * PATTERNS.len();
    let mut done = 0;
    let local_ns = local_ns(&on_access)?;
    let mut fetches = Vec::new();
    for store in &extent.stores {
        for &mode in &extent.fault_modes {
            let mut times = [const { Vec::new() }; PATTERNS.len()];
            for _ in 0..extent.repetitions {
                for (pattern, times) in PATTERNS.into_iter().zip(&mut times) {
                    times.extend(fetch_ns(&on_access, store, mode, pattern, local_ns)?);
                    done += 1;
                    progress(done, total);
                }
            }
            let [clean_ns, written_ns] =
                times.map(|times| (!times.is_empty()).then(|| Spread::of(times).median));
            if let (Some(clean_ns), Some(written_ns)) = (clean_ns, written_ns) {
                let (store, fault_mode) = (store.clone(), mode.name().to_owned());
                fetches.push(FetchTime { store, fault_mode, clean_ns, written_ns });
            }
        }
    }
    let machine = Machine::this();
    let (cpus, memory_gib) = (machine.cpus, (machine.memory_bytes + (1 << 29)) >> 30);
    let machine = format!(
        "{cpus} CPUs ({}), {memory_gib} GiB, Linux {}, Spillway {}; load before {:.1}",
        machine.processor, machine.kernel, machine.spillway, machine.load_before
    );
    Ok(Calibration { machine, fetches })
}

/// Pages that leave are as they were, and are written to.
const PATTERNS: [Pattern; 2] = [Pattern::RandomRead, Pattern::RandomWrite];

fn setting(pattern: Pattern, store: &str) -> Setting {
    // Nobody compresses what cannot be.
    let is_compressed = store.starts_with("compressed:");
    let data = if is_compressed { Data::Compressible } else { Data::Random };
    Setting { pattern, threads: 1, local_pct: LOCAL_PCT, data }
}

/// What an access takes where nothing is far.
fn local_ns(on_access: &OnAccess<'_>) -> Result<f64, BenchError> {
    let mut command = Command::new(on_access.spillway);
    command.args(on_access.arguments(&setting(Pattern::RandomRead, "ram:")));
    Ok(on_access.finish(&mut command)?.ns_per_access)
}

/// What one fetch takes; none where the run was in another mode, or fetched next to nothing.
fn fetch_ns(
    on_access: &OnAccess<'_>,
    store: &str,
    mode: FaultMode,
    pattern: Pattern,
    local_ns: f64,
) -> Result<Option<f64>, BenchError> {
    let setting = setting(pattern, store);
    let local = on_access.local_bytes(&setting).to_string();
    let run = ["--local", &local, "--store", store, "--block", "4K", "--fault-mode", mode.name()];
    let sample = on_access.under_spillway(&setting, &run.map(str::to_owned))?;
    let is_in_mode = sample.fault_mode.as_deref() == Some(mode.name());
    let time_ns = (sample.result.ns_per_access - local_ns).max(0.0) / sample.misses_per_access;
    Ok((is_in_mode && sample.misses_per_access > 0.1).then_some(time_ns))
}
