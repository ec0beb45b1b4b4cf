//! Numbers the build, by the code that a run's supervisor, or the tier daemon, and the library in its
//! programs must have in common: the forms of their messages and of the memory that they share.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};

/// The crates of which parts lie in that memory, or are sent.
const CRATES: [&str; 9] = [
    "spillway-sys",
    "spillway-core",
    "spillway-policy",
    "spillway-nbd",
    "spillway-pool",
    "spillway-tls",
    "spillway-store",
    "spillway-pager",
    "spillway-marker",
];

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    let mut hasher = DefaultHasher::new();
    for name in CRATES {
        let sources = Path::new("..").join(name).join("src");
        println!("cargo::rerun-if-changed={}", sources.display());
        let mut files = Vec::new();
        find_code(&sources, &mut files)?;
        files.sort();
        for file in files {
            file.hash(&mut hasher);
            hash_code(&fs::read_to_string(&file)?, &mut hasher);
        }
    }
    println!("cargo::rustc-env=SPILLWAY_BUILD={:016x}", hasher.finish());
    Ok(())
}

/// All sources but those of tests.
fn find_code(directory: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.file_stem().is_some_and(|name| name == "tests") {
            continue;
        }
        if path.is_dir() {
            find_code(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    Ok(())
}

/// Neither comments nor a file's tests make another build, so that who changes only these need not build the
/// library anew to try the command.
fn hash_code(text: &str, hasher: &mut DefaultHasher) {
    let lines = text.lines().take_while(|line| !line.ends_with("mod tests {"));
    lines.map(str::trim).filter(|line| !line.starts_with("//")).for_each(|line| line.hash(hasher));
}
