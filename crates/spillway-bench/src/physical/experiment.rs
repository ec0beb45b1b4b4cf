//! What an experiment is.

use super::report::ExperimentReport;
use super::stage::Stage;
use crate::BenchError;

/// An experiment.
pub struct Experiment {
    /// Where the paper has it.
    pub paper: &'static str,
    /// What it measures.
    pub about: &'static str,
    /// What it does to the machine.
    pub does: fn(&Stage<'_>) -> String,
    /// Measures. What it found before an error is kept.
    pub run: fn(&Stage<'_>, &mut ExperimentReport) -> Result<(), BenchError>,
}
