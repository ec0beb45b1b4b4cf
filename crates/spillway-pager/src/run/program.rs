//! Whether a program can be managed: the preload library enters dynamic programs that run with their caller's
//! rights, and no others.

use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// What a program file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program {
    /// The dynamic loader will load the preload library.
    Manageable,
    /// It runs, but unmanaged, for this reason.
    Unmanageable(&'static str),
    /// The same, and its loader ends it where the preload library is named to it.
    ForeignLoader(&'static str),
    /// It cannot be examined; running it will tell why.
    Unknown,
}

impl Program {
    /// Why it is not managed, where that is known.
    #[must_use]
    pub fn unmanaged_because(&self) -> Option<&'static str> {
        match self {
            Self::Unmanageable(reason) | Self::ForeignLoader(reason) => Some(reason),
            Self::Manageable | Self::Unknown => None,
        }
    }
}

const ELF_MAGIC: &[u8] = b"\x7fELF";
const PT_INTERP: u32 = 3;
/// `Elf64_Phdr`: its type first, its place in the file at 8, its size there at 32.
const PROGRAM_HEADER_BYTES: usize = 56;
/// The kernel's longest path (linux/limits.h), with the null that ends it.
const PATH_MAX: usize = 1 << 12;
const SCRIPT_DEPTH: usize = 4;

/// Examines the program at `path`, for a caller with the real user id `uid`.
#[must_use]
pub fn examine(path: &Path, uid: u32) -> Program {
    examine_script(path, uid, SCRIPT_DEPTH)
}

fn examine_script(path: &Path, uid: u32, depth: usize) -> Program {
    // To open a pipe or a device might wait, or do something.
    let may_run = |metadata: &Metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0;
    if !std::fs::metadata(path).is_ok_and(|metadata| may_run(&metadata)) {
        return Program::Unknown;
    }
    let Ok(mut file) = File::open(path) else { return Program::Unknown };
    let mut head = [0; 256];
    let Ok(read) = file.read(&mut head) else { return Program::Unknown };
    let head = &head[..read];
    if let Some(line) = head.strip_prefix(b"#!") {
        let end = line.iter().position(|&byte| byte == b'\n').unwrap_or(line.len());
        let words = String::from_utf8_lossy(&line[..end]).trim().to_owned();
        let interpreter = words.split_whitespace().next().map(PathBuf::from);
        return match interpreter {
            Some(interpreter) if depth > 0 => examine_script(&interpreter, uid, depth - 1),
            _ => Program::Unknown,
        };
    }
    if !head.starts_with(ELF_MAGIC) || head.len() < 64 {
        return Program::Unknown;
    }
    if head[4] != 2 || head[18..20] != [0x3E, 0] {
        return Program::Unmanageable("it is not an x86-64 program");
    }
    let Ok(metadata) = file.metadata() else { return Program::Unknown };
    let mode = metadata.permissions().mode();
    // The loader ignores preload libraries only where rights really change.
    if mode & 0o4000 != 0 && metadata.uid() != uid {
        return Program::Unmanageable("it is setuid");
    }
    match loader(&file, head) {
        Some(Some(path)) if is_musl(&path) => {
            Program::ForeignLoader("it is linked with musl, and Spillway's library needs glibc")
        }
        Some(Some(_)) => Program::Manageable,
        Some(None) => Program::Unmanageable("it is statically linked"),
        None => Program::Unknown,
    }
}

/// Whether a loader is musl's, by the name that musl gives it (`ld-musl-x86_64.so.1`).
fn is_musl(loader: &[u8]) -> bool {
    loader.rsplit(|&byte| byte == b'/').next().is_some_and(|name| name.starts_with(b"ld-musl-"))
}

/// The path of the dynamic loader that the ELF file asks for; `Some(None)` where it asks for none.
fn loader(file: &File, head: &[u8]) -> Option<Option<Vec<u8>>> {
    let table_at = u64::from_le_bytes(head.get(32..40)?.try_into().ok()?);
    let entry_bytes = u16::from_le_bytes(head.get(54..56)?.try_into().ok()?);
    let entries = u16::from_le_bytes(head.get(56..58)?.try_into().ok()?);
    for index in 0..u64::from(entries.min(128)) {
        let mut entry = [0; PROGRAM_HEADER_BYTES];
        let at = table_at.checked_add(index.checked_mul(u64::from(entry_bytes))?)?;
        file.read_exact_at(&mut entry, at).ok()?;
        if u32::from_le_bytes(entry[..4].try_into().ok()?) == PT_INTERP {
            let [offset, bytes] = [8, 32].map(|at| entry[at..at + 8].try_into().map(u64::from_le_bytes));
            let mut path = vec![0; usize::try_from(bytes.ok()?).ok()?.min(PATH_MAX)];
            file.read_exact_at(&mut path, offset.ok()?).ok()?;
            path.truncate(path.iter().position(|&byte| byte == 0).unwrap_or(path.len()));
            return Some(Some(path));
        }
    }
    Some(None)
}

/// Finds a program as execvp(3) does. `None` when it is nowhere.
#[must_use]
pub fn find(name: &Path, search_path: &str) -> Option<PathBuf> {
    if name.components().count() > 1 || name.is_absolute() {
        return name.exists().then(|| name.to_owned());
    }
    search_path.split(':').map(|directory| Path::new(directory).join(name)).find(|path| {
        path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn programs_of_each_kind_are_told_apart() {
        let directory = std::env::temp_dir().join(format!("spillway-program-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let write = |name: &str, bytes: &[u8]| {
            let path = directory.join(name);
            File::create(&path).unwrap().write_all(bytes).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
            path
        };
        assert_eq!(examine(Path::new("/bin/sort"), 0), Program::Manageable);
        assert_eq!(examine(&write("script", b"#! /bin/sh -e\n"), 0), Program::Manageable);
        assert_eq!(
            examine(&write("loop", format!("#!{}/loop\n", directory.display()).as_bytes()), 0),
            Program::Unknown
        );
        let mut static_elf = vec![0; 64];
        static_elf[..5].copy_from_slice(b"\x7fELF\x02");
        static_elf[18] = 0x3E;
        let path = write("static", &static_elf);
        assert_eq!(examine(&path, 0), Program::Unmanageable("it is statically linked"));
        for cut in [0, 3, 20, 63] {
            assert_eq!(examine(&write("cut", &static_elf[..cut]), 0), Program::Unknown);
        }
        static_elf[56] = 9;
        static_elf[32..40].fill(0xFF);
        assert_eq!(examine(&write("hostile", &static_elf), 0), Program::Unknown);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o4755)).unwrap();
        assert_eq!(examine(&path, u32::MAX), Program::Unmanageable("it is setuid"));
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn programs_are_found_as_the_shell_does() {
        assert!(find(Path::new("sort"), "/nonexistent:/bin:/usr/bin").is_some());
        assert_eq!(find(Path::new("no-such-program"), "/bin"), None);
        assert_eq!(find(Path::new("./no-such-program"), "/bin"), None);
    }
}
