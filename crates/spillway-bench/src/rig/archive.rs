//! Archives in the format that the kernel takes its first file system in (`man 5 cpio`, "New ASCII").

use std::collections::BTreeSet;
use std::path::Path;

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;

/// Files and the directories that they lie in.
#[derive(Debug, Default)]
pub struct Archive {
    directories: BTreeSet<String>,
    members: Vec<u8>,
}

impl Archive {
    /// Adds a program under `name`, which begins without a slash.
    pub fn add(&mut self, name: &str, contents: &[u8]) {
        let above = Path::new(name).ancestors().skip(1).filter_map(Path::to_str);
        self.directories.extend(above.filter(|name| !name.is_empty()).map(str::to_owned));
        self.members.extend(member(name, PROGRAM, contents));
    }

    /// The archive as the kernel unpacks it.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        // In order of name, so that each comes after the one that it lies in.
        let directories = self.directories.iter().flat_map(|name| member(name, DIRECTORY, &[]));
        directories.chain(self.members.iter().copied()).chain(member("TRAILER!!!", 0, &[])).collect()
    }
}

fn member(name: &str, mode: u32, contents: &[u8]) -> Vec<u8> {
    let numbers = [1, mode as usize, 0, 0, 1, 0, contents.len(), 0, 0, 0, 0, name.len() + 1, 0];
    let mut member = b"070701".to_vec();
    numbers.iter().for_each(|number| member.extend(format!("{number:08x}").bytes()));
    member.extend(name.bytes());
    member.push(0);
    member.resize(member.len().next_multiple_of(4), 0);
    member.extend(contents);
    member.resize(member.len().next_multiple_of(4), 0);
    member
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_come_before_what_lies_in_them() {
        let mut archive = Archive::default();
        archive.add("lib/x86/libc.so", b"12345");
        archive.add("init", b"");
        let bytes = archive.bytes();
        let at = |name: &[u8]| bytes.windows(name.len()).position(|window| window == name).unwrap();
        assert!(at(b"lib\0") < at(b"lib/x86\0") && at(b"lib/x86\0") < at(b"lib/x86/libc.so\0"));
        assert!(bytes.len().is_multiple_of(4) && bytes.starts_with(b"0707010000000"));
        assert!(at(b"TRAILER!!!\0") > at(b"init\0"));
    }
}
