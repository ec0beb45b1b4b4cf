//! Virtual machines: a kernel, its first files, and what a guest prints.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use spillway_bench::rig::archive::Archive;

use super::child::{PATIENCE, Running};
use super::tools::tool;

fn kernel_by(arguments: &[&str]) -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/guest-kernel");
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guest-kernel");
    let mut command = Command::new(script);
    command.arg(directory).args(arguments);
    PathBuf::from(Running::start(&mut command).finish(PATIENCE).success().trim_end())
}

/// The kernel of Debian's package.
pub fn kernel() -> PathBuf {
    kernel_by(&[])
}

/// The kernel of Debian's package in another suite.
pub fn kernel_of(suite: &str) -> PathBuf {
    kernel_by(&[suite])
}

/// A program without what only debuggers read.
fn stripped(program: &Path) -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let to = directory.path().join("program");
    let status = Command::new(tool("strip", "binutils")).arg("-o").arg(&to).arg(program).status().unwrap();
    assert!(status.success());
    fs::read(to).unwrap()
}

/// The libraries that a program wants, by path.
fn libraries(program: &Path) -> BTreeSet<PathBuf> {
    let output = Command::new(tool("ldd", "libc-bin")).arg(program).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect()
}

/// A guest's first files: these programs, by name, with the libraries that they want.
pub fn initial_files(programs: &[(&str, &Path)]) -> Vec<u8> {
    let mut archive = Archive::default();
    programs.iter().for_each(|(name, program)| archive.add(name, &stripped(program)));
    let wanted: BTreeSet<_> = programs.iter().flat_map(|(_, program)| libraries(program)).collect();
    for library in wanted {
        archive.add(library.to_str().unwrap().trim_start_matches('/'), &fs::read(&library).unwrap());
    }
    archive.bytes()
}

/// What a guest printed between the lines that begin and end a section.
pub fn section<'a>(console: &'a str, name: &str) -> &'a str {
    let kind = name.split(' ').next().unwrap();
    let (_, rest) = console.split_once(&format!("BEGIN {name}\n")).unwrap_or_else(|| panic!("{console}"));
    rest.split_once(&format!("END {kind}")).unwrap_or_else(|| panic!("{console}")).0
}

/// The JSON in what a guest printed.
pub fn parsed(text: &str) -> Value {
    let start = text.find(['{', '[']).unwrap_or_else(|| panic!("{text}"));
    let value = serde_json::Deserializer::from_str(&text[start..]).into_iter().next();
    value.unwrap().unwrap_or_else(|error| panic!("{error}: {text}"))
}
