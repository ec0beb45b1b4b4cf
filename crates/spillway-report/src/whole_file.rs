//! Files that are there whole or not at all: a full disk, Ctrl-C or a kill in the middle leaves what was
//! there before, and nothing beside it.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, open};
use rustix::io::Errno;

/// Writes a file whole, in place of one that may be there.
///
/// # Errors
/// It cannot be written: see [`WholeFile`].
pub fn write(path: &Path, contents: impl AsRef<[u8]>) -> io::Result<()> {
    let mut file = WholeFile::create(path)?;
    file.file.write_all(contents.as_ref())?;
    file.keep()
}

/// A file under way. It takes its place by [`WholeFile::keep`] alone; dropped before, it was never there.
/// What is no file, such as `/dev/stdout` or a pipe, is written to as it is, and so is a file in a directory
/// that takes no others.
#[derive(Debug)]
pub struct WholeFile {
    file: File,
    /// The file itself, where the path is a link to it: the link stays.
    target: PathBuf,
    until_kept: UntilKept,
}

/// Where the contents lie meanwhile.
#[derive(Debug)]
enum UntilKept {
    /// In the file itself.
    Target,
    /// In a file without a name, which goes with whoever writes it.
    Nameless,
    /// In a file beside it, where the file system knows no others.
    Beside(PathBuf),
}

impl WholeFile {
    /// Begins a file, in place of one that may be there.
    ///
    /// # Errors
    /// The directory is not there, or nothing can be written there.
    pub fn create(path: &Path) -> io::Result<Self> {
        let is_device = path.starts_with("/dev") || path.starts_with("/proc");
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        if is_device || fs::metadata(&target).is_ok_and(|before| !before.is_file()) {
            return Self::as_it_is(path.to_owned());
        }
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        match open(directory_of(&target), flags, Mode::from_raw_mode(0o666)) {
            Ok(file) => Ok(Self { file: file.into(), target, until_kept: UntilKept::Nameless }),
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
                let beside = beside(&target);
                let file = File::create(&beside)?;
                Ok(Self { file, target, until_kept: UntilKept::Beside(beside) })
            }
            Err(Errno::ACCESS | Errno::PERM | Errno::ROFS) => Self::as_it_is(target),
            Err(error) => Err(error.into()),
        }
    }

    fn as_it_is(target: PathBuf) -> io::Result<Self> {
        Ok(Self { file: File::create(&target)?, target, until_kept: UntilKept::Target })
    }

    /// The file, to be written to.
    ///
    /// # Errors
    /// The kernel has no descriptor left.
    pub fn writer(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Puts it in its place, with the permissions of what was there.
    ///
    /// # Errors
    /// It cannot be put there; what was there stays.
    pub fn keep(self) -> io::Result<()> {
        let beside = match &self.until_kept {
            UntilKept::Target => return Ok(()),
            UntilKept::Beside(beside) => beside.clone(),
            UntilKept::Nameless => {
                let beside = beside(&self.target);
                let own = format!("/proc/self/fd/{}", self.file.as_raw_fd());
                linkat(CWD, own.as_str(), CWD, &beside, AtFlags::SYMLINK_FOLLOW)?;
                beside
            }
        };
        let before = fs::metadata(&self.target).map(|before| before.permissions());
        let kept = match before {
            Ok(before) => self.file.set_permissions(before),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        };
        kept.and_then(|()| fs::rename(&beside, &self.target)).inspect_err(|_| {
            let _ = fs::remove_file(&beside);
        })
    }
}

impl Drop for WholeFile {
    fn drop(&mut self) {
        // One that was kept has that name no more.
        if let UntilKept::Beside(beside) = &self.until_kept {
            let _ = fs::remove_file(beside);
        }
    }
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A name in the same directory that is nobody else's.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.partial", std::process::id()));
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_new_or_takes_the_place_of_another_and_keeps_who_may_read_it() {
        let place = tempfile::tempdir().unwrap();
        let (file, link) = (place.path().join("a"), place.path().join("link"));
        write(&file, "one").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        symlink(&file, &link).unwrap();
        write(&link, b"two").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "two");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(names(place.path()), ["a", "link"]);
    }

    #[test]
    fn what_is_no_file_is_written_to_as_it_is() {
        let place = tempfile::tempdir().unwrap();
        write(Path::new("/dev/null"), "nothing").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
        assert_eq!(write(Path::new("/dev/full"), "x").unwrap_err().kind(), ErrorKind::StorageFull);
        assert!(write(place.path(), "x").is_err());
        assert!(write(&place.path().join("no/such/directory"), "x").is_err());
        assert_eq!(names(place.path()), Vec::<String>::new());
    }

    #[test]
    fn a_file_that_is_not_kept_was_never_there() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a");
        fs::write(&path, "before").unwrap();
        let unnamed = WholeFile::create(&path).unwrap();
        unnamed.writer().unwrap().write_all(b"half").unwrap();
        assert_eq!(names(place.path()), ["a"], "while it is written too");
        drop(unnamed);
        // As on file systems that know no files without a name.
        let beside = beside(&path);
        let until_kept = UntilKept::Beside(beside.clone());
        let named = WholeFile { file: File::create(&beside).unwrap(), target: path.clone(), until_kept };
        drop(named);
        assert_eq!(names(place.path()), ["a"]);
        assert_eq!(fs::read_to_string(&path).unwrap(), "before");
        let until_kept = UntilKept::Beside(beside.clone());
        let named = WholeFile { file: File::create(&beside).unwrap(), target: path.clone(), until_kept };
        named.writer().unwrap().write_all(b"after").unwrap();
        named.keep().unwrap();
        assert_eq!(
            (fs::read_to_string(&path).unwrap().as_str(), names(place.path())),
            ("after", vec!["a".into()])
        );
    }
}
