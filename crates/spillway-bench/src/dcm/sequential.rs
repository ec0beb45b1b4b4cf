//! Memory read and written from one end to the other: what large blocks are best for.
//!
//! The paper's micro-benchmark (Fig. 9) loses 27.8% with blocks of 4 KiB, and such a block takes its fabric 4
//! us or less: so it works for 10 us or more on each page, and ours, which hashes the bytes, for about 5. One
//! that only touched memory would be measured against the memory's own 10 GB/s, more than the fabric carries.

use crate::BenchError;
use crate::access::{AccessPlan, AccessResult, Data, Pattern};
use crate::whole::conditions::Start;
use crate::whole::workload::{Measure, Site, Workload};

/// The micro-benchmark: memory from one end to the other.
pub struct Sequential;

fn plan(site: &Site<'_>) -> AccessPlan {
    AccessPlan {
        pattern: Pattern::SequentialRw,
        data: Data::Random,
        memory_bytes: site.scaled(256 << 20, 1 << 30, 2 << 30),
        threads: 1,
        // After as long to warm up.
        measured_ms: site.scaled(1000, 5000, 20_000),
        hashes_bytes: true,
    }
}

impl Workload for Sequential {
    fn name(&self) -> &'static str {
        "sequential"
    }

    fn about(&self, site: &Site<'_>) -> String {
        format!(
            "{} MiB hashed byte by byte and rewritten, from one end to the other",
            plan(site).memory_bytes >> 20
        )
    }

    fn measure(&self) -> Measure {
        Measure::GbPerS
    }

    fn prepare(&mut self, _: &Site<'_>) -> Result<(), BenchError> {
        Ok(())
    }

    fn run(&self, site: &Site<'_>, start: &Start<'_>) -> Result<f64, BenchError> {
        let plan = serde_json::to_string(&plan(site)).unwrap_or_default();
        let mut command = start.command(site.spillway);
        let text = site.output_of(command.args(["bench", "access", "--plan", &plan]))?;
        let result: AccessResult = serde_json::from_str(&text).map_err(|error| BenchError::Measured {
            command: format!("{command:?}"),
            reason: format!("{error} in '{text}'"),
        })?;
        Ok(4096.0 / result.ns_per_access)
    }
}
