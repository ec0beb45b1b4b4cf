//! Benchmarks that a user can run: Spillway beside what a user would take instead, in one run.
//!
//! - [`access`]: the measured process: memory that it fills, and a pattern in which it is accessed
//! - `on_access`: that process, measured under something
//! - [`cells`]: what is compared
//! - [`swap`], [`cgroup`]: Linux swap, and the memory limit under which it works, for the time of a benchmark
//! - [`donor`], [`measured`]: processes for the time of a benchmark
//! - [`paging`]: both sides in turns
//! - [`whole`]: whole programs, and under what they run
//! - [`dcm`]: whole programs, as in dcm's evaluation
//! - [`programs`]: real programs beside what a user would take instead
//! - [`command`]: a user's own command, in the same way
//! - [`ablation`]: what each of Spillway's mechanisms is worth
//! - [`physical`]: what Linux's physical memory management costs, as the paper on terabyte-scale memories
//!   measures it
//! - [`calibrate`]: what a fetch takes, for the lab
//! - [`pool`]: a pool of donors beside one, and while one of them dies
//! - [`rig`]: guests with two memory nodes, under the policies for them
//! - [`rows`], [`machine`]: what comes out, and on what machine
//! - [`table`], [`page`]: the results for people, at a terminal and as Markdown with plots

pub mod ablation;
pub mod access;
pub mod calibrate;
pub mod cells;
pub mod cgroup;
pub mod command;
pub mod dcm;
pub mod donor;
pub mod machine;
pub mod measured;
mod on_access;
pub mod page;
pub mod paging;
pub mod physical;
pub mod pool;
pub mod programs;
pub mod rig;
pub mod rows;
pub mod swap;
pub mod table;
pub mod whole;

use std::fmt::Display;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use spillway_report::ChartError;
use spillway_report::markdown::PageError;
use thiserror::Error;

/// Says something on stderr. Where nobody hears it the machine is put in order all the same.
pub(crate) fn complain(text: impl Display) {
    let _ = writeln!(std::io::stderr(), "spillway: bench: {text}");
}

/// Why a benchmark cannot go on.
#[derive(Debug, Error)]
pub enum BenchError {
    /// Something of the machine's cannot be set up.
    #[error("cannot {action}: {reason}; {remedy}")]
    Setup {
        /// What was tried, as in "cannot ...".
        action: String,
        /// What happened when it was tried.
        reason: String,
        /// What the user can do.
        remedy: &'static str,
    },
    /// A measured process went wrong.
    #[error("{command} failed: {reason}; run it by itself to see why")]
    Measured {
        /// The command line of the process.
        command: String,
        /// What happened to the process.
        reason: String,
    },
    /// A program has given a wrong result.
    #[error("{command} gave a wrong result: {reason}; please report this")]
    Wrong {
        /// The command line of the process, or the program's name.
        command: String,
        /// What it should have been.
        reason: String,
    },
    /// A file does not hold results.
    #[error("cannot use {path}: {reason}; give what 'spillway bench' printed with --json")]
    Results {
        /// The file that was read.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A page cannot be written.
    #[error(transparent)]
    Page(#[from] PageError),
    /// A picture cannot be drawn.
    #[error(transparent)]
    Picture(#[from] ChartError),
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

    /// The same, or [`Self::Interrupted`] where the user has interrupted: the terminal's Ctrl-C ends what was
    /// started too, which may be seen first.
    pub(crate) fn unless_interrupted(self, interrupted: &AtomicBool) -> Self {
        if interrupted.load(Ordering::Relaxed) { Self::Interrupted } else { self }
    }
}
