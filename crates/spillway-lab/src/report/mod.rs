//! `spillway lab report`: what a sweep and the papers' figures came to, as one page to look at.
//!
//! The page holds its charts and its style; it fetches nothing and runs no script.
//!
//! - [`table`]: the runs of a sweep
//! - [`compare`]: who wins where, curves and breakdowns
//! - `page`: how it looks

pub mod compare;
mod page;
pub mod table;

use std::fs;
use std::path::Path;

use serde::Deserialize;
use spillway_report::ChartError;
use thiserror::Error;

use crate::figures::Figure;

/// The table of a sweep, in its directory.
pub const RUNS: &str = crate::sweep::TABLE;
/// Figures, as `spillway lab figure --json` prints them, in the same directory.
pub const FIGURES: &str = "figures.json";

/// Why there is no report.
#[derive(Debug, Error)]
pub enum ReportError {
    /// There is nothing to report on.
    #[error(
        "'{0}' holds neither {RUNS} nor {FIGURES}: make one with 'spillway lab sweep -o' or 'spillway lab figure all --json'"
    )]
    Nothing(String),
    /// The table of runs.
    #[error("'{path}' is no table of a sweep: {reason}; make it again with 'spillway lab sweep'")]
    Table {
        /// Which.
        path: String,
        /// What is wrong.
        reason: String,
    },
    /// The figures.
    #[error("'{path}' holds no figures: {reason}; make it again with 'spillway lab figure all --json'")]
    Figures {
        /// Which.
        path: String,
        /// What is wrong.
        reason: String,
    },
    /// A chart.
    #[error(transparent)]
    Chart(#[from] ChartError),
}

#[derive(Deserialize)]
struct Figures {
    figures: Vec<Figure>,
}

/// The page, in HTML, for what lies in a directory.
///
/// # Errors
/// There is nothing to report on, or it cannot be read.
pub fn report(directory: &Path) -> Result<String, ReportError> {
    let (runs_path, figures_path) = (directory.join(RUNS), directory.join(FIGURES));
    if !runs_path.exists() && !figures_path.exists() {
        return Err(ReportError::Nothing(directory.display().to_string()));
    }
    let runs = if runs_path.exists() { table::read(&runs_path)? } else { Vec::new() };
    let figures = if figures_path.exists() { read_figures(&figures_path)? } else { Vec::new() };
    page::page(&runs, &figures)
}

fn read_figures(path: &Path) -> Result<Vec<Figure>, ReportError> {
    let wrong = |reason: String| ReportError::Figures { path: path.display().to_string(), reason };
    let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let Figures { figures } = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    Ok(figures)
}

#[cfg(test)]
mod tests;
