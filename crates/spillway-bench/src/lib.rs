//! Benchmarks that a user can run: Spillway beside what a user would take instead, in one run.
//!
//! - [`access`]: the measured process: memory that it fills, and a pattern in which it is accessed
//! - [`swap`]: Linux swap devices made for the time of a benchmark, on a RAM disk and on zram
//! - [`cgroup`]: the memory limit under which swap works
//! - [`paging`]: which cells are measured, side by side, and what comes out
//! - [`table`]: the results for people

pub mod access;
pub mod cgroup;
pub mod paging;
pub mod swap;
pub mod table;

use thiserror::Error;

/// Why a benchmark cannot go on.
#[derive(Debug, Error)]
pub enum BenchError {
    /// Something of the machine's cannot be set up.
    #[error("cannot {action}: {reason}; {remedy}")]
    Setup {
        /// What was tried.
        action: String,
        /// What happened.
        reason: String,
        /// What the user can do.
        remedy: &'static str,
    },
    /// A measured process went wrong.
    #[error("{command} failed: {reason}; run it by itself to see why")]
    Measured {
        /// Its command line.
        command: String,
        /// What happened.
        reason: String,
    },
    /// The user has interrupted it.
    #[error("interrupted; everything that was set up is taken down")]
    Interrupted,
}

impl BenchError {
    pub(crate) fn setup(
        action: impl Into<String>,
        reason: impl std::fmt::Display,
        remedy: &'static str,
    ) -> Self {
        Self::Setup { action: action.into(), reason: reason.to_string(), remedy }
    }
}
