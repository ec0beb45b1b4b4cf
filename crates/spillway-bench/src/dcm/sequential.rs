//! Memory read and written from one end to the other: what large blocks are best for.

use super::conditions::Start;
use super::workload::{Measure, Site, Workload};
use crate::BenchError;
use crate::access::{AccessPlan, AccessResult, Data, Pattern};

/// The micro-benchmark.
pub struct Sequential;

fn plan(site: &Site<'_>) -> AccessPlan {
    AccessPlan {
        pattern: Pattern::SequentialRw,
        data: Data::Random,
        memory_bytes: site.pick(64 << 20, 1 << 30),
        threads: 1,
        measured_ms: site.pick(500, 5000),
    }
}

impl Workload for Sequential {
    fn name(&self) -> &'static str {
        "sequential"
    }

    fn about(&self, site: &Site<'_>) -> String {
        format!("{} MiB read and written from one end to the other", plan(site).memory_bytes >> 20)
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
