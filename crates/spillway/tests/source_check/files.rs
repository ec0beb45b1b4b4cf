//! The repository's files: those that somebody wrote, as text.

use std::path::{Path, PathBuf};

/// A text of the repository.
pub struct Text {
    /// Relative to the repository.
    pub path: PathBuf,
    pub text: String,
}

/// Something that a rule objects to.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    pub line: usize,
    pub what: String,
}

impl Finding {
    pub fn new(line: usize, what: impl Into<String>) -> Self {
        Self { line, what: what.into() }
    }
}

/// Paths of all files below a directory, relative to `root` and sorted; without what is hidden or built.
pub fn paths(root: &Path, directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![directory.to_owned()];
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(root.join(&next)).unwrap().map(|entry| entry.unwrap()) {
            let name = entry.file_name().into_string().unwrap();
            let path = next.join(&name);
            let kind = entry.file_type().unwrap();
            if kind.is_dir() && !name.starts_with('.') && name != "target" {
                open.push(path);
            } else if kind.is_file() && !name.starts_with('.') {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Whether the width of a file's lines is held to the limit: sources, manifests and scripts.
pub fn has_limited_lines(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    matches!(extension, Some("rs" | "toml" | "sh" | "py")) || path.starts_with("scripts")
}

/// Lines that are wider than `limit` columns.
pub fn wide_lines(text: &str, limit: usize) -> Vec<Finding> {
    let widths = text.lines().map(|line| line.chars().count()).enumerate();
    let wide = widths.filter(|(_, width)| *width > limit);
    wide.map(|(at, width)| Finding::new(at + 1, format!("{width} columns"))).collect()
}
