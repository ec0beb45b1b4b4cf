//! Virtual machines: a kernel, and archives of its first files.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::child::{PATIENCE, Running};

/// The kernel of Debian's package.
pub fn kernel() -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/guest-kernel");
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guest-kernel");
    PathBuf::from(Running::start(Command::new(script).arg(directory)).finish(PATIENCE).success().trim_end())
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
