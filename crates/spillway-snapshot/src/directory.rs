//! Where the sockets of runs and donors lie: a directory for each user, which nobody else may change.
//!
//! Root's is `/run/spillway`, another user's `$XDG_RUNTIME_DIR/spillway`, and where that is not to be had
//! `/tmp/spillway-UID`. A service's user has the first where its unit says so: below `/run/private`, which
//! only root may enter. A directory that belongs to somebody else, or that others may write to, is not used:
//! whoever owns a directory decides which sockets are in it.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, mkdir, open, unlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;
use thiserror::Error;

/// Behind the number of the process that a socket is of.
const SUFFIX: &str = ".sock";
/// What a socket is called that nobody listens on yet begins so.
const UNFINISHED: &str = ".new-";
/// The socket of the daemon `spillway tier`, which root runs.
const TIER: &str = "tier.sock";
/// After so long it is what is left of a supervisor that was killed.
const UNFINISHED_FOR: Duration = Duration::from_secs(60);

/// Directories of users that one look goes into, and sockets in each: more are not looked for.
const MOST_DIRECTORIES: usize = 256;
const MOST_SOCKETS: usize = 64;

/// What a socket tells of, by which its name begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// A run, by its supervisor.
    Run,
    /// A donor of memory.
    Donor,
}

impl Of {
    const ALL: [Self; 2] = [Self::Run, Self::Donor];

    /// What the socket at this path tells of, by its name; none of the daemon `spillway tier`.
    #[must_use]
    pub fn of_socket(path: &str) -> Option<Self> {
        let name = path.rsplit('/').next().unwrap_or(path);
        let is_of = |of: &Self| name.starts_with(of.prefix()) && name.ends_with(SUFFIX);
        Self::ALL.into_iter().find(is_of)
    }

    /// What the names of its sockets begin with.
    const fn prefix(self) -> &'static str {
        match self {
            Self::Run => "run-",
            Self::Donor => "donor-",
        }
    }
}

/// Why a directory is of no use.
#[derive(Debug, Error)]
pub enum DirectoryError {
    /// It cannot be made or opened.
    #[error("{0}: {1}; make it, or set XDG_RUNTIME_DIR to a directory of your own")]
    Kernel(PathBuf, Errno),
    /// Somebody else's, or open to others.
    #[error("{0}: it belongs to another user, or others may write to it; remove it, or set XDG_RUNTIME_DIR")]
    Foreign(PathBuf),
}

/// The directory of one user's sockets.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    fd: OwnedFd,
    uid: u32,
}

/// The places for one user's sockets, the best first.
fn places(uid: u32, runtime: Option<PathBuf>) -> Vec<PathBuf> {
    let first = match uid {
        0 => Some(PathBuf::from("/run/spillway")),
        _ => runtime.filter(|path| path.is_absolute()).map(|path| path.join("spillway")),
    };
    first.into_iter().chain([PathBuf::from(format!("/tmp/spillway-{uid}"))]).collect()
}

fn runtime_directory() -> Option<PathBuf> {
    std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from)
}

impl Directory {
    /// Opens a directory of user `uid`.
    ///
    /// # Errors
    /// It is not there, or no directory of that user's alone.
    pub fn open(path: &Path, uid: u32) -> Result<Self, DirectoryError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let kernel = |error| DirectoryError::Kernel(path.to_owned(), error);
        let fd = open(path, flags, Mode::empty()).map_err(kernel)?;
        let status = fstat(&fd).map_err(kernel)?;
        let open_to_others = Mode::from_raw_mode(status.st_mode).intersects(Mode::WGRP | Mode::WOTH);
        if status.st_uid != uid || open_to_others {
            return Err(DirectoryError::Foreign(path.to_owned()));
        }
        Ok(Self { path: path.to_owned(), fd, uid })
    }

    /// Makes or opens this user's own.
    ///
    /// # Errors
    /// What is wrong with the last place that was tried.
    pub fn of_own() -> Result<Self, DirectoryError> {
        Self::make(&places(geteuid().as_raw(), runtime_directory()))
    }

    fn make(places: &[PathBuf]) -> Result<Self, DirectoryError> {
        let mut outcome = Err(DirectoryError::Kernel(PathBuf::new(), Errno::NOENT));
        for path in places {
            outcome = match mkdir(path, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => Self::open(path, geteuid().as_raw()),
                Err(error) => Err(DirectoryError::Kernel(path.clone(), error)),
            };
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }

    /// The directories that this user may look into: its own, and for root every user's.
    #[must_use]
    pub fn visible() -> Vec<Self> {
        let uid = geteuid().as_raw();
        let mut found: Vec<Self> =
            places(uid, runtime_directory()).iter().filter_map(|path| Self::open(path, uid).ok()).collect();
        if uid == 0 {
            found.extend(of_other_users(Path::new("/")));
        }
        found
    }

    /// The user whose it is, by number.
    #[must_use]
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Where the directory lies.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path by which a file in it is bound or connected to: a socket's may have 108 bytes only, and this
    /// is the directory that was looked at, whatever its name leads to by now.
    #[must_use]
    pub fn path_of(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{name}", self.fd.as_raw_fd()))
    }

    /// The sockets of runs, donors and daemons in it, by name.
    #[must_use]
    pub fn sockets(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path_of("")).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let mut sockets: Vec<String> = names.filter(|name| is_socket(name)).take(MOST_SOCKETS).collect();
        sockets.sort();
        sockets
    }

    /// Removes a socket on which nobody listens any more. The daemon `spillway tier` sees to its own.
    pub fn remove(&self, name: &str) {
        if name == TIER {
            return;
        }
        let _ = unlinkat(&self.fd, name, AtFlags::empty());
    }

    /// Removes what is left of processes that were killed before they listened.
    pub fn remove_unfinished(&self) {
        let old = SystemTime::now().checked_sub(UNFINISHED_FOR);
        for entry in fs::read_dir(self.path_of("")).into_iter().flatten().flatten() {
            let since = entry.metadata().and_then(|metadata| metadata.modified()).ok();
            if let (Some(name), true) = (entry.file_name().to_str(), since < old)
                && name.starts_with(UNFINISHED)
            {
                self.remove(name);
            }
        }
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn is_socket(name: &str) -> bool {
    name == TIER || Of::of_socket(name).is_some()
}

/// Names of the socket of process `pid`, the best first: another namespace may have a process of the same
/// number, and share the directory.
pub fn socket_names(of: Of, pid: u32) -> impl Iterator<Item = String> {
    let prefix = of.prefix();
    (0..MOST_SOCKETS).map(move |n| match n {
        0 => format!("{prefix}{pid}{SUFFIX}"),
        n => format!("{prefix}{pid}-{n}{SUFFIX}"),
    })
}

/// The name of a socket until somebody listens on it.
#[must_use]
pub fn unfinished_name(pid: u32, token: u64) -> String {
    format!("{UNFINISHED}{pid}-{token:016x}")
}

/// Directories of users other than root below `root`.
fn of_other_users(root: &Path) -> Vec<Directory> {
    let entries = |path: &str| fs::read_dir(root.join(path)).into_iter().flatten().flatten();
    let of_runtime = entries("run/user").filter_map(|entry| {
        let uid = entry.file_name().to_str()?.parse().ok()?;
        Some((entry.path().join("spillway"), uid))
    });
    let of_tmp = entries("tmp").filter_map(|entry| {
        let uid = entry.file_name().to_str()?.strip_prefix("spillway-")?.parse().ok()?;
        Some((entry.path(), uid))
    });
    let of_services = entries("run/private").filter_map(|entry| {
        let path = entry.path().join("spillway");
        let uid = path.symlink_metadata().ok()?.uid();
        Some((path, uid))
    });
    let others = of_runtime.chain(of_services).chain(of_tmp).filter(|(_, uid): &(PathBuf, u32)| *uid != 0);
    others.take(MOST_DIRECTORIES).filter_map(|(path, uid)| Directory::open(&path, uid).ok()).collect()
}

/// Whether a file is a socket of user `uid`.
pub(crate) fn is_socket_of(directory: &Directory, name: &str, uid: u32) -> io::Result<bool> {
    let status = rustix::fs::statat(&directory.fd, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(FileType::from_raw_mode(status.st_mode) == FileType::Socket && status.st_uid == uid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    #[test]
    fn each_user_has_a_place() {
        let path = |text: &str| PathBuf::from(text);
        assert_eq!(places(0, Some(path("/x"))), [path("/run/spillway"), path("/tmp/spillway-0")]);
        assert_eq!(places(7, Some(path("/x"))), [path("/x/spillway"), path("/tmp/spillway-7")]);
        assert_eq!(places(7, Some(path("x"))), [path("/tmp/spillway-7")]);
        assert_eq!(places(7, None), [path("/tmp/spillway-7")]);
    }

    #[test]
    fn a_directory_that_others_may_change_is_not_used() {
        let above = tempfile::tempdir().unwrap();
        let own = above.path().join("own");
        let made = Directory::make(std::slice::from_ref(&own)).unwrap();
        assert_eq!(fs::metadata(&own).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(made.path(), own);
        for mode in [0o702, 0o720, 0o777] {
            fs::set_permissions(&own, fs::Permissions::from_mode(mode)).unwrap();
            assert!(matches!(Directory::make(std::slice::from_ref(&own)), Err(DirectoryError::Foreign(_))));
        }
        fs::set_permissions(&own, fs::Permissions::from_mode(0o700)).unwrap();
        assert!(matches!(Directory::open(&own, made.uid() + 1), Err(DirectoryError::Foreign(_))));
        let link = above.path().join("link");
        symlink(&own, &link).unwrap();
        assert!(matches!(Directory::open(&link, made.uid()), Err(DirectoryError::Kernel(..))));
        // The next place is tried.
        let second = above.path().join("second");
        assert_eq!(Directory::make(&[link, second.clone()]).unwrap().path(), second);
    }

    #[test]
    fn what_a_killed_supervisor_left_is_removed_once_it_is_old() {
        let above = tempfile::tempdir().unwrap();
        let own = Directory::make(&[above.path().join("own")]).unwrap();
        for name in [unfinished_name(3, 5), "run-3.sock".to_owned(), "donor-3.txt".to_owned()] {
            fs::write(own.path().join(name), "").unwrap();
        }
        own.remove_unfinished();
        assert!(own.path().join(unfinished_name(3, 5)).exists());
        let file = fs::File::open(own.path().join(unfinished_name(3, 5))).unwrap();
        file.set_modified(SystemTime::now() - UNFINISHED_FOR * 2).unwrap();
        own.remove_unfinished();
        assert!(!own.path().join(unfinished_name(3, 5)).exists());
        assert_eq!(own.sockets(), ["run-3.sock"]);
        assert!(!is_socket_of(&own, "run-3.sock", own.uid()).unwrap());
    }

    #[test]
    fn root_sees_each_users_own_directory_and_no_other() {
        let root = tempfile::tempdir().unwrap();
        let uid = geteuid().as_raw();
        for path in ["tmp/spillway-x", "run/user/no/spillway", "tmp/spillway-4294967294"] {
            fs::create_dir_all(root.path().join(path)).unwrap();
        }
        assert!(of_other_users(root.path()).is_empty(), "of nobody, and of somebody else's");
        let of_service = root.path().join("run/private/spillway-donor/spillway");
        fs::create_dir_all(&of_service).unwrap();
        if uid != 0 {
            fs::create_dir_all(root.path().join(format!("run/user/{uid}/spillway"))).unwrap();
            assert_eq!(of_other_users(root.path()).len(), 2);
        } else {
            assert!(of_other_users(root.path()).is_empty(), "root's own are looked for elsewhere");
            chown(&of_service, Some(61_184), None).unwrap();
            let found = of_other_users(root.path());
            assert_eq!(found.iter().map(Directory::uid).collect::<Vec<_>>(), [61_184]);
        }
    }
}
