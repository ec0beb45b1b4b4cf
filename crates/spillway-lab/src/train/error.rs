//! Why a training came to no model.

use std::path::Path;

use spillway_policy::indigo_context::OBSERVED_INTERVALS;
use spillway_policy::indigo_model::ModelError;
use thiserror::Error;

use crate::run::RunError;

/// Why there is no model.
#[derive(Debug, Error)]
pub enum TrainError {
    /// The plan makes no sense.
    #[error("the training cannot begin: {what}; {remedy}")]
    Plan {
        /// What is wrong with it.
        what: String,
        /// What to do about it.
        remedy: &'static str,
    },
    /// A file cannot be read or written.
    #[error("cannot use '{path}': {source}; see that its directory can be written to and has room")]
    File {
        /// The path of the file.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// What is there cannot be gone on with.
    #[error("'{path}', line {line}, is no outcome of a training: {reason}; remove the file to start over")]
    Line {
        /// The path of the file.
        path: String,
        /// The number of the line, from 1.
        line: usize,
        /// What is wrong with the line.
        reason: String,
    },
    /// A run of the training failed.
    #[error("the run of '{workload}' failed: {source}")]
    Run {
        /// The workload of the run.
        workload: String,
        /// Why the run failed.
        source: RunError,
    },
    /// No run was long enough to learn from.
    #[error(
        "no run was observed for {OBSERVED_INTERVALS} marking intervals with far memory in use: take larger \
         working sets, or less local memory"
    )]
    NothingObserved,
    /// The model makes no sense.
    #[error("the model {0}: this is a bug")]
    Model(#[from] ModelError),
}

/// What could not be done with a file.
pub(super) fn file_error(path: &Path) -> impl Fn(std::io::Error) -> TrainError {
    let path = path.display().to_string();
    move |source| TrainError::File { path: path.clone(), source }
}
