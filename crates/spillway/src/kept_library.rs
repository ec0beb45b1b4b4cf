//! The library that a run's programs load. An installation keeps it under the name of its build too, where
//! an upgrade leaves it as long as a run of that build goes on (scripts/install, packaging/debian).

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use spillway_pager::run::rendezvous::BUILD;
use spillway_sys::machine;

/// The library's place, which stays as it is while this lives, if the installation keeps it.
pub struct KeptLibrary {
    /// What programs get in `LD_PRELOAD`.
    pub path: PathBuf,
    _in_use: Option<OwnedFd>,
}

/// The library of this command; none where there is none.
pub fn find() -> Option<KeptLibrary> {
    let plain = machine::preload_library()?;
    Some(kept(&plain, BUILD).unwrap_or(KeptLibrary { path: plain, _in_use: None }))
}

/// The library beside this one that is kept for a build. Who removes unused ones must have its directory
/// alone, by flock(2), which knows of other users' runs and of those that have no program at the moment.
fn kept(plain: &Path, build: &str) -> Option<KeptLibrary> {
    let directory = plain.parent()?.join("builds").join(build);
    let path = directory.join(plain.file_name()?);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let in_use = open(&directory, flags, Mode::empty()).ok()?;
    flock(&in_use, FlockOperation::NonBlockingLockShared).ok()?;
    // It may have been removed between.
    path.is_file().then_some(KeptLibrary { path, _in_use: Some(in_use) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kept_library_of_the_build_is_held_and_another_is_not_taken() {
        let installed = tempfile::tempdir().unwrap();
        let plain = installed.path().join("lib.so");
        std::fs::write(&plain, "").unwrap();
        assert!(kept(&plain, "this").is_none());
        for build in ["this", "other"] {
            let directory = installed.path().join("builds").join(build);
            std::fs::create_dir_all(&directory).unwrap();
            std::fs::write(directory.join("lib.so"), "").unwrap();
        }
        let found = kept(&plain, "this").unwrap();
        assert_eq!(found.path, installed.path().join("builds/this/lib.so"));
        let alone = |build: &str| {
            let directory = std::fs::File::open(installed.path().join("builds").join(build)).unwrap();
            flock(&directory, FlockOperation::NonBlockingLockExclusive).is_ok()
        };
        assert!(!alone("this") && alone("other"));
        // Several runs may have it.
        assert!(kept(&plain, "this").is_some());
        drop(found);
        assert!(alone("this"));
    }
}
