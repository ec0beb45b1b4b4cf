//! A workload's line in the registry, what it is made from, and why there is no such workload.

use serde::de::DeserializeOwned;
use thiserror::Error;

use crate::workload::Workload;

/// Settings of a workload beside its size and seed, by name; `load = false` leaves out the load phase.
pub type Overrides = serde_json::Map<String, serde_json::Value>;

/// The workload that repeats a trace: its size and seed are those of the trace, its one setting is `file`.
pub const TRACE: &str = "trace";

/// Why there is no such workload.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum WorkloadError {
    /// No workload has this name.
    #[error("workload '{name}': there is none of this name; take one of {known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// The names there are.
        known: String,
    },
    /// A setting is not known or has no value that it can take.
    #[error("workload '{name}': {reason}; correct its settings")]
    Setting {
        /// The name of the workload.
        name: &'static str,
        /// What is wrong with the setting.
        reason: String,
    },
    /// A trace cannot be repeated.
    #[error("workload '{TRACE}': '{file}': {reason}")]
    Trace {
        /// The path of the trace.
        file: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The working set is too small for one of everything.
    #[error(
        "workload '{name}': a working set of {bytes} bytes is too small; give it at least {least_bytes} bytes"
    )]
    TooSmall {
        /// The name of the workload.
        name: &'static str,
        /// What was asked for.
        bytes: u64,
        /// The least that it takes, in bytes.
        least_bytes: u64,
    },
}

/// A workload that the registry can build.
pub(super) trait Registered: Workload + Sized + 'static {
    /// What a run may set of it.
    type Config: DeserializeOwned;
    /// Its name on the command line.
    const NAME: &'static str;
    /// What it does, in a line.
    const ABOUT: &'static str;
    /// Whether it wants a load phase before its own; false when loading is a part of what its paper measures.
    const PRELOAD: bool = true;
    /// Makes it, ready for its first step.
    fn new(config: Self::Config) -> Result<Self, WorkloadError>;
}

/// One line of the registry.
pub struct WorkloadEntry {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it does, in a line.
    pub about: &'static str,
    /// Whether a load phase comes before its own.
    pub(super) preload: bool,
    /// Makes it from its settings.
    pub(super) build: fn(Overrides) -> Result<Box<dyn Workload>, WorkloadError>,
}

/// The line of a workload.
pub(super) const fn entry<W: Registered>() -> WorkloadEntry {
    WorkloadEntry { name: W::NAME, about: W::ABOUT, preload: W::PRELOAD, build: build_configured::<W> }
}

fn build_configured<W: Registered>(settings: Overrides) -> Result<Box<dyn Workload>, WorkloadError> {
    let config = serde_json::from_value(settings.into())
        .map_err(|error| WorkloadError::Setting { name: W::NAME, reason: error.to_string() })?;
    Ok(Box::new(W::new(config)?))
}

/// An error unless `bytes` is at least what `name` takes.
pub(super) fn at_least(name: &'static str, bytes: u64, least_bytes: u64) -> Result<(), WorkloadError> {
    if bytes < least_bytes {
        return Err(WorkloadError::TooSmall { name, bytes, least_bytes });
    }
    Ok(())
}

/// An error unless a setting is within bounds.
pub(super) fn within<T: PartialOrd + std::fmt::Display>(
    name: &'static str,
    setting: &str,
    value: T,
    bounds: std::ops::RangeInclusive<T>,
) -> Result<(), WorkloadError> {
    if bounds.contains(&value) {
        return Ok(());
    }
    let reason = format!("'{setting}' is {value}, not within {} to {}", bounds.start(), bounds.end());
    Err(WorkloadError::Setting { name, reason })
}
