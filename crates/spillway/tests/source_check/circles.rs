//! Finds the circles among arrows: sets of files of which each leads to each other.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use super::arrows::{Arrow, files};

/// Files of which each leads to each other, with the arrows among them.
#[derive(Debug, PartialEq, Eq)]
pub struct Circle {
    pub files: BTreeSet<PathBuf>,
    pub arrows: Vec<Arrow>,
}

/// All circles, each as large as can be.
pub fn circles(arrows: &[Arrow]) -> Vec<Circle> {
    let mut ways: BTreeMap<&Path, BTreeSet<&Path>> = BTreeMap::new();
    for arrow in arrows {
        ways.entry(&arrow.from).or_default().insert(&arrow.to);
    }
    let reached: BTreeMap<_, _> =
        files(arrows).into_iter().map(|file| (file.as_path(), reachable(file, &ways))).collect();
    let mut found = Vec::new();
    let mut placed = BTreeSet::new();
    for (file, there) in &reached {
        let members: BTreeSet<_> =
            there.iter().copied().filter(|other| reached[other].contains(file)).collect();
        if !members.is_empty() && placed.insert(*file) {
            placed.extend(members.iter().copied());
            let within = |arrow: &&Arrow| {
                members.contains(arrow.from.as_path()) && members.contains(arrow.to.as_path())
            };
            found.push(Circle {
                files: members.iter().map(|member| member.to_path_buf()).collect(),
                arrows: arrows.iter().filter(within).cloned().collect(),
            });
        }
    }
    found
}

/// What can be reached from a file by at least one arrow.
fn reachable<'a>(file: &Path, ways: &BTreeMap<&'a Path, BTreeSet<&'a Path>>) -> BTreeSet<&'a Path> {
    let mut found = BTreeSet::new();
    let mut open: Vec<_> = ways.get(file).into_iter().flatten().copied().collect();
    while let Some(next) = open.pop() {
        if found.insert(next) {
            open.extend(ways.get(next).into_iter().flatten());
        }
    }
    found
}

impl fmt::Display for Circle {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "a circle of {} files:", self.files.len())?;
        let mut from = None;
        for arrow in &self.arrows {
            if from != Some(&arrow.from) {
                writeln!(out, "  {}", arrow.from.display())?;
                from = Some(&arrow.from);
            }
            writeln!(out, "    line {:>3} -> {}  ({})", arrow.line, arrow.to.display(), arrow.path)?;
        }
        Ok(())
    }
}
