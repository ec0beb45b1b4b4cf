//! What a run had counted at an earlier moment: enough to know what it has done since.

use serde::{Deserialize, Serialize};

use crate::snapshot::{Faults, Return, Run};

/// A run's counts at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Past {
    /// Time since its start, in seconds.
    pub uptime_s: f64,
    /// What all its faults had taken together, in microseconds.
    pub lost_us: f64,
    /// Its faults, by kind.
    pub faults: Faults,
    /// Of these, those that fetched a page, by how much had left since it did.
    pub returns: Vec<Return>,
    /// The memory that it had, local and far; none where it was not told.
    #[serde(default)]
    pub held_bytes: Option<u64>,
}

impl Past {
    /// The counts of a look at a run.
    #[must_use]
    pub fn of(run: &Run, uptime_s: f64) -> Self {
        Self {
            uptime_s,
            lost_us: run.fault_latency.total_us,
            faults: run.faults,
            returns: run.returns.clone(),
            held_bytes: Some(run.local_bytes.saturating_add(run.far_bytes)),
        }
    }
}
