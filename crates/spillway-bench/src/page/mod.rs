//! Pages of Markdown, HTML and plots from the results of benchmarks.

mod ablation;
mod dcm;
pub mod html;
mod paging;
mod physical;
pub mod programs;

use std::fs;
use std::path::Path;

use serde::Deserialize;

use crate::BenchError;
use crate::ablation::report::AblationReport;
use crate::dcm::report::DcmReport;
use crate::physical::report::PhysicalReport;
use crate::programs::report::ProgramsReport;
use crate::rows::PagingReport;

/// What benchmarks print with `--json`.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Results {
    /// What `bench paging` has printed.
    Paging(PagingReport),
    /// What `bench ablation` has printed.
    Ablation(AblationReport),
    /// What `bench programs` has printed.
    Programs(ProgramsReport),
    /// What `bench dcm` has printed.
    Dcm(DcmReport),
    /// What `bench physical` has printed.
    Physical(PhysicalReport),
}

impl Results {
    /// Reads what a benchmark has printed into a file.
    pub fn read(path: &Path) -> Result<Self, BenchError> {
        let failed = |reason: String| BenchError::Results { path: path.display().to_string(), reason };
        let text = fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
        serde_json::from_str(&text).map_err(|error| failed(error.to_string()))
    }
}

/// Writes the pages of these results into a directory. Of a comparison that is there more than once, the last
/// counts. `note` is for the reader to know about the runs.
pub fn write(results: &[Results], note: Option<&str>, directory: &Path) -> Result<(), BenchError> {
    let mut paging = Vec::new();
    let mut programs = Vec::new();
    let mut dcm = Vec::new();
    let mut physical = Vec::new();
    let mut ablation = Vec::new();
    for results in results {
        match results {
            Results::Paging(report) => paging.push(report),
            Results::Programs(report) => programs.push(report),
            Results::Dcm(report) => dcm.push(report),
            Results::Physical(report) => physical.push(report),
            Results::Ablation(report) => ablation.push(report),
        }
    }
    if !paging.is_empty() {
        paging::page(&paging, note)?.write(directory)?;
    }
    let (small, whole): (Vec<_>, Vec<_>) = programs.into_iter().partition(|report| report.quick);
    for report in [small, whole].iter().filter_map(|reports| programs::merged(reports)) {
        programs::page(&report, note)?.write(directory)?;
        let html = format!("{}.html", programs::name(&report));
        programs::write_html(&report, note, &directory.join(html))?;
    }
    if !dcm.is_empty() {
        dcm::page(&dcm, note)?.write(directory)?;
    }
    if !ablation.is_empty() {
        ablation::page(&ablation, note)?.write(directory)?;
    }
    if !physical.is_empty() {
        physical::page(&physical, note)?.write(directory)?;
    }
    Ok(())
}
