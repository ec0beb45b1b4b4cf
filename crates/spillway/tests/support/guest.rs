//! Virtual machines: a kernel, archives of its first files, and what a guest prints.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::child::{PATIENCE, Running};
use super::tools::tool;

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;

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

/// One file of an archive in the format that the kernel takes its first file system in (`man 5 cpio`, "New ASCII").
pub fn archived(name: &str, mode: u32, contents: &[u8]) -> Vec<u8> {
    let length = contents.len();
    let name_length = name.len() + 1;
    let numbers = [1, mode as usize, 0, 0, 1, 0, length, 0, 0, 0, 0, name_length, 0];
    let mut file = b"070701".to_vec();
    numbers.iter().for_each(|number| file.extend(format!("{number:08x}").bytes()));
    file.extend(name.bytes());
    file.push(0);
    file.resize(file.len().next_multiple_of(4), 0);
    file.extend(contents);
    file.resize(file.len().next_multiple_of(4), 0);
    file
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
    let mut directories = BTreeSet::new();
    let mut files = Vec::new();
    for (name, program) in programs {
        files.push(((*name).to_owned(), stripped(program)));
        for library in libraries(program) {
            let name = library.to_str().unwrap().trim_start_matches('/').to_owned();
            let above = Path::new(&name).ancestors().skip(1);
            directories.extend(above.map(|above| above.to_str().unwrap().to_owned()));
            files.push((name, fs::read(&library).unwrap()));
        }
    }
    files.sort();
    files.dedup();
    directories.remove("");
    let directories = directories.iter().flat_map(|name| archived(name, DIRECTORY, &[]));
    let files = files.iter().flat_map(|(name, contents)| archived(name, PROGRAM, contents));
    directories.chain(files).chain(archived("TRAILER!!!", 0, &[])).collect()
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
