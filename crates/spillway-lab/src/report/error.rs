//! What a report is made from, and why there is none.

use spillway_report::ChartError;
use thiserror::Error;

/// The table of a sweep, in its directory.
pub const RUNS: &str = crate::sweep::TABLE;
/// Figures, as `spillway lab figure --json` prints them, in the same directory.
pub const FIGURES: &str = "figures.json";

/// Why there is no report.
#[derive(Debug, Error)]
pub enum ReportError {
    /// There is nothing to report on.
    #[error(
        "'{0}' holds neither {RUNS} nor {FIGURES}: make one with 'spillway lab sweep -o' or \
         'spillway lab figure all --json'"
    )]
    Nothing(String),
    /// The table of runs.
    #[error("'{path}' is no table of a sweep: {reason}; make it again with 'spillway lab sweep'")]
    Table {
        /// The path of the file.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The file of figures cannot be read.
    #[error("'{path}' holds no figures: {reason}; make it again with 'spillway lab figure all --json'")]
    Figures {
        /// The path of the file.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A chart cannot be drawn.
    #[error(transparent)]
    Chart(#[from] ChartError),
}
