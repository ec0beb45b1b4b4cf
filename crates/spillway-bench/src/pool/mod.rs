//! Pools beside one plain NBD donor, and what happens when donors of theirs die: three donors with two copies
//! of each page ([`copies`]), and six with coded pages ([`coded`]); and both where donors have little
//! room and most pages go to the last resort ([`spilling`]).

mod alike;
mod bench;
mod coded;
mod copies;
mod cost;
mod growth;
pub mod reads;
mod row;
mod site;
mod spilling;

use std::path::Path;
use std::sync::atomic::AtomicBool;

use serde::Serialize;

use crate::BenchError;
use crate::machine::Machine;
use bench::Bench;
pub use bench::Extent;
pub use row::Row;

/// What came out of all measurements.
#[derive(Clone, Debug, Serialize)]
pub struct PoolReport {
    /// On what machine it was measured.
    pub machine: Machine,
    /// Memory of the measured process, in bytes.
    pub memory_bytes: u64,
    /// Donors of the pool with copies; each page is on two of them.
    pub donors: usize,
    /// What was measured, and what it should be, if anybody has said. What has "4+2" in its name is of coded
    /// pages.
    pub rows: Vec<Row>,
}

/// What happens while it is measured.
pub enum Progress<'a> {
    /// One thing was measured.
    Row(&'a Row),
    /// So many parts are done, of so many.
    Done(usize, usize),
}

/// Measures all, and says what is done.
///
/// # Errors
/// A donor or the measured program cannot be started or fails, or the user interrupts.
pub fn measure(
    spillway: &Path,
    extent: Extent,
    interrupted: &AtomicBool,
    tell: &mut dyn FnMut(Progress<'_>),
) -> Result<PoolReport, BenchError> {
    let mut bench = Bench::new(spillway, extent, interrupted)?;
    let mut rows = Vec::new();
    let parts = [
        copies::healthy,
        copies::one_dies,
        copies::repair,
        copies::repair_under_load,
        coded::healthy,
        coded::two_die,
        coded::repair,
        coded::repair_under_load,
        coded::space,
        coded::cost,
        spilling::healthy,
    ];
    for (done, part) in parts.iter().enumerate() {
        tell(Progress::Done(done, parts.len()));
        let part = part(&mut bench)?;
        part.iter().for_each(|row| tell(Progress::Row(row)));
        rows.extend(part);
    }
    Ok(PoolReport {
        machine: Machine::this(),
        memory_bytes: extent.memory_bytes,
        donors: copies::DONORS,
        rows,
    })
}
