//! Samples of accesses in the file of [`crate::counters`], for a machine whose hypervisor or emulator takes
//! them, as PEBS would: the address of one access in so many that missed the last-level cache.
//!
//! From byte [`AT_BYTES`] on lie ten 64-bit words, in this machine's order. Whoever samples writes the first
//! five once, and then `written`, `lost` and the ring; the reader writes `period` and `read`.
//!
//! | word | |
//! |---|---|
//! | 0 | [`MAGIC`] |
//! | 1 | the version of this layout, [`VERSION`] |
//! | 2 | where the ring begins, in bytes from the file's begin; a multiple of 16 |
//! | 3 | records that it holds, a power of two |
//! | 4 | what a sample costs the program, in nanoseconds; 0 where that is not known |
//! | 5 | `period`: one access in so many is sampled; 0 for none |
//! | 6 | `read`: records taken so far |
//! | 7 | `written`: records written so far; a record is whole before it counts |
//! | 8 | `lost`: samples for which there was no room |
//! | 9 | the process whose accesses are sampled, where there is but one; told by itself |
//!
//! A record is two words: the address that was accessed; and the process in the lower half of the second,
//! whose bit 32 is set for a store, and bit 33 where far memory served the access. Record n lies at n modulo
//! the number of records. Nobody waits for anybody: what finds the ring full is lost, and counted.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use spillway_sys::shared_memory::SharedMemory;
use thiserror::Error;

use crate::counters::{self, CountersError};

/// The first word: "SPLWSAMP" in ASCII.
pub const MAGIC: u64 = u64::from_le_bytes(*b"SPLWSAMP");
/// The layout that is understood.
pub const VERSION: u64 = 1;
/// Where the words begin.
pub const AT_BYTES: usize = 128;

/// Words from there on.
const WORDS: usize = 10;
const RECORD_BYTES: usize = 16;
const STORE: u64 = 1 << 32;
const FAR: u64 = 1 << 33;
/// Addresses of programs end here, with five levels of page tables.
const USER_END: u64 = 1 << 56;

/// Places of the words.
mod at {
    pub(super) const VERSION: usize = 1;
    pub(super) const RING: usize = 2;
    pub(super) const RECORDS: usize = 3;
    pub(super) const SAMPLE_NS: usize = 4;
    pub(super) const PERIOD: usize = 5;
    pub(super) const READ: usize = 6;
    pub(super) const WRITTEN: usize = 7;
    pub(super) const LOST: usize = 8;
}

/// Why there are no samples.
#[derive(Debug, Error)]
pub enum SamplesError {
    /// The file is none of counters.
    #[error(transparent)]
    Counters(#[from] CountersError),
    /// It has counters only.
    #[error("counters {0}: they come without samples; whoever counts must sample too (docs/operate/tier.md)")]
    Missing(PathBuf),
    /// It is of another version than this program's.
    #[error("counters {path}: their samples are of layout {found}, and this program knows {VERSION}")]
    Version {
        /// The file that was named.
        path: PathBuf,
        /// The version that it says it has.
        found: u64,
    },
    /// The ring does not lie in the file.
    #[error(
        "counters {path}: a ring of {records} samples at byte {ring_at} cannot be in {bytes} bytes; \
         the file is damaged"
    )]
    Ring {
        /// The file that was named.
        path: PathBuf,
        /// Where the ring is said to begin.
        ring_at: u64,
        /// How many records it is said to hold.
        records: u64,
        /// How long the file is.
        bytes: usize,
    },
}

/// The ring says what cannot be: nothing of it is believed any more.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("the ring of samples says that it holds {0} records more than it can")]
pub struct Overrun(pub u64);

/// An access that was sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampled {
    /// The process that made it.
    pub process: u32,
    /// The address that was accessed.
    pub address: u64,
    /// Whether it was a store.
    pub write: bool,
    /// Whether far memory served it.
    pub far: bool,
}

/// Understands a record; none for what is no address of a program's.
#[must_use]
pub fn decode(words: [u64; 2]) -> Option<Sampled> {
    let [address, rest] = words;
    let sampled = Sampled { process: rest as u32, address, write: rest & STORE != 0, far: rest & FAR != 0 };
    ((1..USER_END).contains(&address) && sampled.process != 0).then_some(sampled)
}

/// The reader's end of the ring. At its end nothing is sampled any more.
#[derive(Debug)]
pub struct SampleRing {
    memory: SharedMemory,
    ring_at: usize,
    records: u64,
    sample_ns: u64,
    read: u64,
    /// Samples that were taken and lost before this reader came.
    taken_before: u64,
    lost_before: u64,
}

impl SampleRing {
    /// Opens the ring of a file of counters. What was sampled before is passed over, and no period is set.
    ///
    /// # Errors
    /// There is none, or it is of another version, or makes no sense.
    pub fn open(path: &Path) -> Result<Self, SamplesError> {
        let memory = counters::map(path)?;
        let bytes = memory.bytes();
        if bytes < AT_BYTES + WORDS * 8 || load(&memory, 0) != MAGIC {
            return Err(SamplesError::Missing(path.to_owned()));
        }
        let found = load(&memory, at::VERSION);
        if found != VERSION {
            return Err(SamplesError::Version { path: path.to_owned(), found });
        }
        // Read once: what is checked here is what is used.
        let (ring_at, records) = (load(&memory, at::RING), load(&memory, at::RECORDS));
        let end = records.checked_mul(RECORD_BYTES as u64).and_then(|bytes| bytes.checked_add(ring_at));
        let fits = end.is_some_and(|end| end <= bytes as u64)
            && ring_at >= (AT_BYTES + WORDS * 8) as u64
            && ring_at.is_multiple_of(RECORD_BYTES as u64);
        if !fits || !records.is_power_of_two() {
            return Err(SamplesError::Ring { path: path.to_owned(), ring_at, records, bytes });
        }
        let read = memory_word(&memory, at::WRITTEN).load(Ordering::Acquire);
        memory_word(&memory, at::READ).store(read, Ordering::Release);
        let (sample_ns, lost) = (load(&memory, at::SAMPLE_NS), load(&memory, at::LOST));
        let taken_before = read.wrapping_add(lost);
        Ok(Self {
            memory,
            ring_at: ring_at as usize,
            records,
            sample_ns,
            read,
            taken_before,
            lost_before: lost,
        })
    }

    /// From now on one access in `period` is sampled; 0 ends it.
    pub fn set_period(&self, period: u32) {
        memory_word(&self.memory, at::PERIOD).store(u64::from(period), Ordering::Relaxed);
    }

    /// Tells `each` of the samples since the last time, in their order.
    ///
    /// # Errors
    /// More were written than the ring holds, so that it was overwritten, or began anew.
    pub fn take(&mut self, each: &mut dyn FnMut(Sampled)) -> Result<(), Overrun> {
        let written = memory_word(&self.memory, at::WRITTEN).load(Ordering::Acquire);
        let count = written.wrapping_sub(self.read);
        if count > self.records {
            return Err(Overrun(count.wrapping_sub(self.records)));
        }
        for n in 0..count {
            let slot = (self.read.wrapping_add(n) & (self.records - 1)) as usize;
            let words = self.memory.atomics_u64(self.ring_at + slot * RECORD_BYTES, 2);
            let record = [words[0].load(Ordering::Relaxed), words[1].load(Ordering::Relaxed)];
            decode(record).into_iter().for_each(&mut *each);
        }
        self.read = written;
        memory_word(&self.memory, at::READ).store(written, Ordering::Release);
        Ok(())
    }

    /// Samples that had no room since this was opened.
    #[must_use]
    pub fn lost(&self) -> u64 {
        load(&self.memory, at::LOST).wrapping_sub(self.lost_before)
    }

    /// What taking samples has cost the program since this was opened, in nanoseconds; 0 where the file does
    /// not say what one costs.
    #[must_use]
    pub fn cost_ns(&self) -> u64 {
        let all = load(&self.memory, at::WRITTEN).wrapping_add(load(&self.memory, at::LOST));
        all.wrapping_sub(self.taken_before).saturating_mul(self.sample_ns)
    }
}

impl Drop for SampleRing {
    fn drop(&mut self) {
        self.set_period(0);
    }
}

fn memory_word(memory: &SharedMemory, word: usize) -> &AtomicU64 {
    &memory.atomics_u64(AT_BYTES + word * 8, 1)[0]
}

fn load(memory: &SharedMemory, word: usize) -> u64 {
    memory_word(memory, word).load(Ordering::Relaxed)
}

#[cfg(test)]
pub(crate) mod tests;
