//! What the supervisor tells each process of a run.

use serde::{Deserialize, Serialize};
use spillway_core::size::Size;
use spillway_policy::dcm;

/// Environment variable that names the supervisor's socket and the run's token, `NAME/TOKEN`. A process that
/// has it when the preload library enters it is managed.
pub const RUN_VARIABLE: &str = "SPILLWAY_RUN";

/// Settings of one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Settings {
    /// Memory that all processes together may keep local.
    pub local_bytes: Size,
    /// URIs of the stores, in the order in which they are filled.
    pub stores: Vec<String>,
    /// Slots of each store.
    pub store_slots: Vec<u32>,
    /// Replacement.
    pub replacement: dcm::Config,
}

/// The smallest `--local`: enough for the pages that one system call or instruction needs at a time, for the
/// frames and for a batch of write-backs.
pub const MIN_LOCAL_BYTES: u64 = 4 << 20;
