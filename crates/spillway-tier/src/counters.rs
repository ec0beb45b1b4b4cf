//! Counters of memory accesses by node, for HotBox's migration-utility monitor (section 4.2 of the paper).
//!
//! Servers have events for it (`MEM_LOAD_L3_MISS_RETIRED.LOCAL_DRAM` and `.REMOTE_DRAM`). Where a hypervisor
//! or an emulator counts instead, it shows its counters as memory that can be mapped: a file, or the BAR of a
//! PCI device (`resource2` of an ivshmem device). Its first three 64-bit words, in this machine's order, are
//! [`MAGIC`], and how many accesses that missed the last-level cache were served by local and by far memory
//! since the start. What it may have of the link to far memory is [`crate::link`]'s.
//!
//! The counters are the machine's. Each group's monitor sees all of them, whoever made the accesses.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use spillway_sys::shared_memory::SharedMemory;
use thiserror::Error;

/// The first word: "SPLWCNTR" in ASCII.
pub const MAGIC: u64 = u64::from_le_bytes(*b"SPLWCNTR");

/// Words that are read.
const WORDS: usize = 3;

/// Why there are no counters.
#[derive(Debug, Error)]
pub enum CountersError {
    /// It cannot be opened or mapped.
    #[error(
        "counters {path}: {error}; name a file or a PCI resource that can be mapped for reading and writing"
    )]
    Unreadable {
        /// The file that was named.
        path: PathBuf,
        /// Why it cannot be mapped or used.
        error: std::io::Error,
    },
    /// It holds something else.
    #[error("counters {0}: they do not begin with SPLWCNTR; docs/operate/tier.md says what they must hold")]
    Unknown(PathBuf),
}

/// The mapped file, and what it said when it was last read.
#[derive(Debug)]
pub struct Counters {
    memory: SharedMemory,
    taken: [u64; 2],
}

/// Maps a file that begins with [`MAGIC`] and has the words that follow.
///
/// # Errors
/// It cannot be read, or holds something else.
pub(crate) fn map(path: &Path) -> Result<SharedMemory, CountersError> {
    let unreadable = |error| CountersError::Unreadable { path: path.to_owned(), error };
    let file = OpenOptions::new().read(true).write(true).open(path).map_err(unreadable)?;
    let memory = SharedMemory::map(&file).map_err(|error| unreadable(error.into()))?;
    let words = (memory.bytes() >= WORDS * 8).then(|| memory.atomics_u64(0, 1));
    if words.is_none_or(|words| words[0].load(Ordering::Relaxed) != MAGIC) {
        return Err(CountersError::Unknown(path.to_owned()));
    }
    Ok(memory)
}

impl Counters {
    /// Opens them. What was counted before does not count.
    ///
    /// # Errors
    /// They cannot be read, or are none.
    pub fn open(path: &Path) -> Result<Self, CountersError> {
        let mut counters = Self { memory: map(path)?, taken: [0; 2] };
        counters.take();
        Ok(counters)
    }

    /// Accesses that were served since the last call: by local memory, and by far memory.
    pub fn take(&mut self) -> [u64; 2] {
        let words = self.memory.atomics_u64(8, 2);
        let now = [words[0].load(Ordering::Relaxed), words[1].load(Ordering::Relaxed)];
        // Who counts may begin anew.
        let since = [0, 1].map(|tier| now[tier].checked_sub(self.taken[tier]).unwrap_or(now[tier]));
        self.taken = now;
        since
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A file of counters, and its words.
    pub(crate) fn file() -> (tempfile::NamedTempFile, SharedMemory) {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(4096).unwrap();
        let memory = SharedMemory::map(file.as_file()).unwrap();
        memory.atomics_u64(0, 1)[0].store(MAGIC, Ordering::Relaxed);
        (file, memory)
    }

    #[test]
    fn what_was_counted_since_the_last_call_counts() {
        let (file, memory) = file();
        let words = memory.atomics_u64(8, 2);
        words[0].store(100, Ordering::Relaxed);
        let mut counters = Counters::open(file.path()).unwrap();
        assert_eq!(counters.take(), [0, 0], "that was before");
        words[0].store(130, Ordering::Relaxed);
        words[1].store(7, Ordering::Relaxed);
        assert_eq!(counters.take(), [30, 7]);
        assert_eq!(counters.take(), [0, 0]);
        words[0].store(5, Ordering::Relaxed);
        assert_eq!(counters.take(), [5, 0], "they began anew");
    }

    #[test]
    fn what_holds_no_counters_is_refused_by_name() {
        let (file, memory) = file();
        memory.atomics_u64(0, 1)[0].store(1, Ordering::Relaxed);
        let error = Counters::open(file.path()).unwrap_err().to_string();
        assert!(error.contains(file.path().to_str().unwrap()) && error.contains("SPLWCNTR"), "{error}");
        for (bytes, names) in [(0, "mapped"), (8, "SPLWCNTR")] {
            file.as_file().set_len(bytes).unwrap();
            let error = Counters::open(file.path()).unwrap_err().to_string();
            assert!(error.contains(names), "{error}");
        }
        let error = Counters::open(Path::new("/nowhere/counters")).unwrap_err();
        assert!(matches!(error, CountersError::Unreadable { .. }), "{error}");
    }
}
