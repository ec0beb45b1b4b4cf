//! Pages of Markdown, HTML and plots from the results of benchmarks.

mod dcm;
pub mod html;
mod paging;
mod physical;
pub mod plot;
pub mod violin;

use std::fs;
use std::path::Path;

use serde::Deserialize;

use crate::BenchError;
use crate::dcm::report::DcmReport;
use crate::physical::report::PhysicalReport;
use crate::rows::PagingReport;
use plot::Bars;

/// What benchmarks print with `--json`.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Results {
    /// Of `bench paging`.
    Paging(PagingReport),
    /// Of `bench dcm`.
    Dcm(DcmReport),
    /// Of `bench physical`.
    Physical(PhysicalReport),
}

impl Results {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, BenchError> {
        let failed = |reason: String| BenchError::Results { path: path.display().to_string(), reason };
        let text = fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
        serde_json::from_str(&text).map_err(|error| failed(error.to_string()))
    }
}

/// A page with its pictures.
struct Page {
    /// Name of its file, without the ending, and of the directory of its pictures.
    name: &'static str,
    text: String,
    pictures: Vec<(String, String)>,
}

impl Page {
    fn new(name: &'static str, text: String) -> Self {
        Self { name, text, pictures: Vec::new() }
    }

    /// Adds a picture, unless there is nothing to see.
    fn picture(&mut self, name: &str, bars: &Bars) -> Result<(), BenchError> {
        if bars.has_bars() {
            self.drawn(name, &bars.title, bars.svg()?);
        }
        Ok(())
    }

    /// Adds a picture that is drawn.
    fn drawn(&mut self, name: &str, title: &str, svg: String) {
        self.text.push_str(&format!("![{title}]({}/{name}.svg)\n\n", self.name));
        self.pictures.push((name.to_owned(), svg));
    }

    fn write(&self, directory: &Path) -> Result<(), BenchError> {
        let pictures = directory.join(self.name);
        let failed = |path: &Path, error: std::io::Error| BenchError::Page {
            what: format!("write {}", path.display()),
            reason: error.to_string(),
        };
        fs::create_dir_all(&pictures).map_err(|error| failed(&pictures, error))?;
        for (name, svg) in &self.pictures {
            let path = pictures.join(format!("{name}.svg"));
            fs::write(&path, svg).map_err(|error| failed(&path, error))?;
        }
        let path = directory.join(format!("{}.md", self.name));
        fs::write(&path, &self.text).map_err(|error| failed(&path, error))
    }
}

/// Writes the pages of these results into a directory. Of a comparison that is there more than once, the last counts.
/// `note` is for the reader to know about the runs.
pub fn write(results: &[Results], note: Option<&str>, directory: &Path) -> Result<(), BenchError> {
    let mut paging = Vec::new();
    let mut dcm = Vec::new();
    let mut physical = Vec::new();
    for results in results {
        match results {
            Results::Paging(report) => paging.push(report),
            Results::Dcm(report) => dcm.push(report),
            Results::Physical(report) => physical.push(report),
        }
    }
    if !paging.is_empty() {
        paging::page(&paging, note)?.write(directory)?;
    }
    if !dcm.is_empty() {
        dcm::page(&dcm, note)?.write(directory)?;
    }
    if !physical.is_empty() {
        physical::page(&physical, note)?.write(directory)?;
    }
    Ok(())
}
