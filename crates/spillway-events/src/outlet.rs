//! Where lines go, and what the journal needs.

use std::fs::File;
use std::io::{Stderr, Write};
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Stat, fstat};
use tracing::Level;

/// Set by systemd where stderr is the journal: its device and inode, as in sd-daemon(3).
const JOURNAL_VARIABLE: &str = "JOURNAL_STREAM";

/// Where lines go. None waits for a reader: whoever tells something has better things to do.
#[derive(Debug)]
pub struct Outlet {
    to: To,
    /// Lines begin with their priority, which the journal takes off again.
    is_journal: bool,
}

#[derive(Debug)]
enum To {
    Stderr(Stderr),
    File(File),
}

impl Outlet {
    /// Standard error, which may be the journal.
    #[must_use]
    pub fn stderr() -> Self {
        let stderr = std::io::stderr();
        let is_journal = is_journal(std::env::var(JOURNAL_VARIABLE).ok().as_deref(), &stderr);
        Self { to: To::Stderr(stderr), is_journal }
    }

    /// Whether lines go to the journal by the socket that systemd has made for it.
    pub(crate) fn is_journal_socket(&self) -> bool {
        let To::Stderr(stderr) = &self.to else { return false };
        let is_socket = |stat: Stat| FileType::from_raw_mode(stat.st_mode) == FileType::Socket;
        self.is_journal && fstat(stderr).is_ok_and(is_socket)
    }

    /// A file that was opened for appending.
    #[must_use]
    pub fn file(file: File) -> Self {
        Self { to: To::File(file), is_journal: false }
    }

    /// Writes a line, as far as that can be done at once: a pipe that is full or a disk that is gets none.
    pub(crate) fn write(&self, level: Level, line: &str) {
        let priority = if self.is_journal { priority(level) } else { "" };
        // In one piece, so that it stays whole beside what others write.
        let line = format!("{priority}{line}\n");
        match &self.to {
            To::Stderr(stderr) => {
                let mut fds = [PollFd::from_borrowed_fd(stderr.as_fd(), PollFlags::OUT)];
                let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
                if matches!(poll(&mut fds, Some(&at_once)), Ok(ready) if ready > 0) {
                    let _ = (&*stderr).write_all(line.as_bytes());
                }
            }
            To::File(file) => {
                let _ = (&*file).write_all(line.as_bytes());
            }
        }
    }
}

/// How sd-daemon(3) has a line's priority written before it.
fn priority(level: Level) -> &'static str {
    match level {
        Level::ERROR => "<3>",
        Level::WARN => "<4>",
        Level::INFO => "<6>",
        _ => "<7>",
    }
}

/// Whether a descriptor is the stream of the journal that the variable names.
fn is_journal(stream: Option<&str>, descriptor: impl AsFd) -> bool {
    let named = stream.and_then(|stream| stream.split_once(':'));
    let Some((device, inode)) = named else { return false };
    let (Ok(device), Ok(inode)) = (device.parse::<u64>(), inode.parse::<u64>()) else { return false };
    fstat(descriptor).is_ok_and(|stat| (stat.st_dev, stat.st_ino) == (device, inode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_journal_is_known_by_its_device_and_inode() {
        let file = tempfile::tempfile().unwrap();
        let stat = fstat(&file).unwrap();
        let named = |device: u64, inode: u64| is_journal(Some(&format!("{device}:{inode}")), &file);
        assert!(named(stat.st_dev, stat.st_ino));
        assert!(!named(stat.st_dev, stat.st_ino + 1) && !named(stat.st_dev + 1, stat.st_ino));
        for nonsense in ["", ":", "8", "a:b", "8:9:10"] {
            assert!(!is_journal(Some(nonsense), &file), "{nonsense}");
        }
        assert!(!is_journal(None, &file));
    }

    #[test]
    fn priorities_are_those_of_the_journal_and_only_for_it() {
        let said = |is_journal: bool| {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("log");
            let outlet = Outlet { to: To::File(File::create(&path).unwrap()), is_journal };
            for level in [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG] {
                outlet.write(level, "a");
            }
            std::fs::read_to_string(path).unwrap()
        };
        assert_eq!(said(true), "<3>a\n<4>a\n<6>a\n<7>a\n");
        assert_eq!(said(false), "a\na\na\na\n");
    }
}
