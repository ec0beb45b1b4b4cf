//! `spillway lab report`: what a sweep and the papers' figures came to, as one page to look at.
//!
//! The page holds its charts and its style; it fetches nothing and runs no script.
//!
//! - [`table`]: the runs of a sweep
//! - [`compare`]: who wins where, curves and breakdowns
//! - `page`: how it looks

pub mod compare;
mod error;
mod page;
pub mod table;

use std::fs;
use std::path::Path;

use serde::Deserialize;

use crate::figures::Figure;
pub use error::{FIGURES, RUNS, ReportError};

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
