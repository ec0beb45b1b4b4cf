//! Pages of Markdown with pictures in files beside them.

use std::fs;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::chart::Chart;
use crate::drawing::ChartError;
use crate::whole_file;

/// Why a page could not be written.
#[derive(Debug, Error)]
#[error("cannot write {}: {reason}; check that its directory can be written to", path.display())]
pub struct PageError {
    /// The file or directory.
    pub path: PathBuf,
    /// What the kernel says.
    pub reason: std::io::Error,
}

/// A page with its pictures.
#[derive(Clone, Debug)]
pub struct Page {
    /// Name of its file, without the ending, and of the directory of its pictures.
    pub name: &'static str,
    /// What it says, in Markdown.
    pub text: String,
    /// Names of its pictures, with their SVG.
    pub pictures: Vec<(String, String)>,
}

impl Page {
    /// A page without pictures.
    #[must_use]
    pub fn new(name: &'static str, text: String) -> Self {
        Self { name, text, pictures: Vec::new() }
    }

    /// Adds a chart, unless there is nothing to see.
    ///
    /// # Errors
    /// It cannot be drawn.
    pub fn chart(&mut self, name: &str, chart: &Chart) -> Result<(), ChartError> {
        if chart.has_values() {
            self.picture(name, &chart.title, chart.svg()?);
        }
        Ok(())
    }

    /// Adds a picture that is drawn.
    pub fn picture(&mut self, name: &str, title: &str, svg: String) {
        self.text.push_str(&format!("![{title}]({}/{name}.svg)\n\n", self.name));
        self.pictures.push((name.to_owned(), svg));
    }

    /// Writes the page and its pictures into a directory, which is made where there is none.
    ///
    /// # Errors
    /// A file or directory cannot be written.
    pub fn write(&self, directory: &Path) -> Result<(), PageError> {
        let pictures = directory.join(self.name);
        let failed = |path: &Path, reason| PageError { path: path.to_owned(), reason };
        fs::create_dir_all(&pictures).map_err(|error| failed(&pictures, error))?;
        for (name, svg) in &self.pictures {
            let path = pictures.join(format!("{name}.svg"));
            whole_file::write(&path, svg).map_err(|error| failed(&path, error))?;
        }
        let path = directory.join(format!("{}.md", self.name));
        whole_file::write(&path, &self.text).map_err(|error| failed(&path, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_and_its_pictures_are_written() {
        let directory = tempfile::tempdir().unwrap();
        let mut page = Page::new("page", "# Title\n\n".to_owned());
        let chart = Chart::of("A chart", "s", false, [("a", "x", 1.0)].into_iter());
        page.chart("first", &chart).unwrap();
        page.chart("second", &Chart::of("Nothing", "s", false, std::iter::empty())).unwrap();
        page.write(directory.path()).unwrap();
        let read = |path: &str| fs::read_to_string(directory.path().join(path)).unwrap();
        assert_eq!(read("page.md"), "# Title\n\n![A chart](page/first.svg)\n\n");
        assert_eq!(read("page/first.svg"), chart.svg().unwrap());
        let error = page.write(&directory.path().join("page.md")).unwrap_err().to_string();
        assert!(error.contains("page.md/page"), "{error}");
    }
}
