//! What a program's pager writes down for a tape ([`spillway_policy::tape`]), and what it counts of one that
//! it plays: words in memory that the supervisor has mapped too, so that whatever ends the program loses none
//! of them.
//!
//! Who serves faults appends: an atomic place and a store, no lock, no call to the kernel and no wait. Where
//! there is no room left the tape ends there. The file is sparse: memory is taken as it is written.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::{Errno, Result};
use spillway_policy::tape::{MOST_RUNS, Name, Run, Tape};
use spillway_sys::shared_memory::SharedMemory;

/// Mappings that are noted, at most.
const MOST_NAMES: usize = 1 << 18;
const NAMES: usize = 4096;
const RUNS: usize = NAMES + MOST_NAMES * 8;
const BYTES: usize = RUNS + MOST_RUNS * 8;
/// Six bits of a run's word, above its mapping, say which thread it was.
const THREAD_SHIFT: u32 = 58;
const MOST_THREADS: u32 = 64;

/// What is counted of a tape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum TapeCounter {
    /// Runs that were appended, or would have been.
    Runs,
    /// Mappings that were noted, or would have been.
    Names,
    /// Faults that fetched a page.
    Fetches,
    /// Of these, those that were where the tape had them.
    FetchesOnTape,
    /// Pages fetched ahead of their fault because the tape had them.
    PagesBrought,
    /// Of these, those behind which the thread's next fault came.
    PagesUsed,
}

/// The memory of one program's recording, or playing.
#[derive(Debug)]
pub struct TapeLog(SharedMemory);

impl TapeLog {
    /// An empty log, and the descriptor by which the other process maps it.
    ///
    /// # Errors
    /// ENOMEM where the machine gives no memory.
    pub fn create() -> Result<(OwnedFd, Self)> {
        let (fd, memory) = SharedMemory::create("spillway-tape-log", BYTES)?;
        Ok((fd, Self(memory)))
    }

    /// The log of a descriptor.
    ///
    /// # Errors
    /// The kernel's, where it cannot be mapped.
    pub fn map(fd: impl AsFd) -> Result<Self> {
        let memory = SharedMemory::map(fd)?;
        if memory.bytes() < BYTES {
            return Err(Errno::INVAL);
        }
        Ok(Self(memory))
    }

    fn counter(&self, counter: TapeCounter) -> &AtomicU64 {
        &self.0.atomics_u64(counter as usize * 64, 1)[0]
    }

    /// Counts what a program did.
    pub fn count(&self, counter: TapeCounter, by: u64) {
        self.counter(counter).fetch_add(by, Ordering::Relaxed);
    }

    /// How often that was counted.
    #[must_use]
    pub fn counted(&self, counter: TapeCounter) -> u64 {
        self.counter(counter).load(Ordering::Relaxed)
    }

    /// Notes a mapping. Returns its number, by which runs speak of it; `None` where there is no room.
    pub fn note(&self, name: Name) -> Option<u32> {
        let number = self.counter(TapeCounter::Names).fetch_add(1, Ordering::Relaxed);
        let place = self.0.atomics_u64(NAMES, MOST_NAMES).get(usize::try_from(number).ok()?)?;
        place.store(name.to_word(), Ordering::Relaxed);
        Some(number as u32)
    }

    /// Appends a run of a thread, where there is room.
    pub fn append(&self, thread: u32, run: Run) {
        let place = self.counter(TapeCounter::Runs).fetch_add(1, Ordering::Relaxed);
        let runs = self.0.atomics_u64(RUNS, MOST_RUNS);
        if let Some(word) = usize::try_from(place).ok().and_then(|place| runs.get(place)) {
            word.store(run.to_word() | u64::from(thread % MOST_THREADS) << THREAD_SHIFT, Ordering::Relaxed);
        }
    }

    /// The tape of what was noted. A word that a killed program had no time for is left out, and so is what
    /// makes no sense.
    #[must_use]
    pub fn tape(&self, key: u128) -> Tape {
        let noted = self.counted(TapeCounter::Names).min(MOST_NAMES as u64) as usize;
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let names: Vec<u64> = self.0.atomics_u64(NAMES, noted).iter().map(load).collect();
        let mut threads = vec![Vec::new(); MOST_THREADS as usize];
        let count = self.counted(TapeCounter::Runs).min(MOST_RUNS as u64) as usize;
        for word in self.0.atomics_u64(RUNS, count).iter().map(load) {
            let (thread, word) = (word >> THREAD_SHIFT, word & ((1 << THREAD_SHIFT) - 1));
            threads[thread as usize].extend(Run::from_word(word));
        }
        let name_of = |run: &Run| names.get(run.mapping as usize).copied().and_then(Name::from_word);
        let mut mappings: Vec<Name> = threads.iter().flatten().filter_map(name_of).collect();
        mappings.sort_unstable();
        mappings.dedup();
        for runs in &mut threads {
            runs.retain_mut(|run| {
                let place = name_of(run).and_then(|name| mappings.binary_search(&name).ok());
                run.mapping = place.unwrap_or_default() as u32;
                place.is_some()
            });
        }
        threads.retain(|runs| !runs.is_empty());
        Tape { key, mappings, threads }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_noted_is_a_tape_by_threads_and_names() {
        let (fd, of_supervisor) = TapeLog::create().unwrap();
        let log = TapeLog::map(fd).unwrap();
        let (large, small) = (Name::new(900, 0).unwrap(), Name::new(3, 1).unwrap());
        let (first, second) = (log.note(large).unwrap(), log.note(small).unwrap());
        log.note(Name::new(77, 7).unwrap()).unwrap();
        let run = |mapping, page| Run { mapping, page, pages: 2 };
        log.append(5, run(first, 10));
        log.append(1, run(second, 0));
        log.append(5, run(first, 20));
        log.append(5, run(999, 20));
        // Killed before the word was stored.
        log.count(TapeCounter::Runs, 1);
        let tape = of_supervisor.tape(42);
        assert_eq!(tape.mappings, [small, large]);
        assert_eq!(tape.threads, [vec![run(0, 0)], vec![run(1, 10), run(1, 20)]]);
        assert_eq!(Tape::decode(&tape.encode()), Ok(tape));
    }

    #[test]
    fn a_log_without_room_ends_and_hurts_nobody() {
        let (_fd, log) = TapeLog::create().unwrap();
        let name = Name::new(1, 0).unwrap();
        log.count(TapeCounter::Names, MOST_NAMES as u64);
        log.count(TapeCounter::Runs, MOST_RUNS as u64);
        assert_eq!(log.note(name), None);
        log.append(0, Run { mapping: 0, page: 0, pages: 1 });
        assert_eq!(log.counted(TapeCounter::Runs), MOST_RUNS as u64 + 1);
        assert!(log.tape(0).threads.is_empty());
    }
}
