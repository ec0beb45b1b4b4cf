//! The entry that each process of a run has in the run's state: who it is, what it holds, what it counts for
//! itself.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::run::counter::{Counter, OF_PROCESS};
use crate::run::inquiry::{INQUIRY_WORDS, Inquiry};

/// Processes that one run may have at a time.
pub const MAX_PROCESSES: usize = 1024;

/// Claims are numbered from 1 to this.
pub(super) const CHILD_LIMIT: u64 = u32::MAX as u64;

/// A child that is about to be forked, or was: its entry, and which of those that have it one after the
/// other. A process number would not do, since it is another in each namespace (pid_namespaces(7)) and is
/// used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Child {
    /// Which entry of the run is the child's.
    pub entry: usize,
    /// Which claim of that entry: from 1, and used again only after 2^32 others.
    pub claim: u32,
}

impl Child {
    /// As one word, which is never 0.
    #[must_use]
    pub const fn to_word(self) -> usize {
        (self.claim as usize) << ENTRY_BITS | self.entry
    }

    /// The child of which [`Self::to_word`] made the word.
    #[must_use]
    pub const fn from_word(word: usize) -> Self {
        Self { entry: word & (MAX_PROCESSES - 1), claim: (word >> ENTRY_BITS) as u32 }
    }
}

const ENTRY_BITS: u32 = MAX_PROCESSES.ilog2();
const _: () = assert!(MAX_PROCESSES.is_power_of_two());

/// A child was born whose number its parent does not know as the supervisor does.
pub const PID_OF_ANOTHER_NAMESPACE: u32 = u32::MAX - 1;

/// A process's number and the claim that it belongs to, so that nobody writes it into another's entry.
const fn pid_word(claim: u64, pid: u32) -> u64 {
    claim << 32 | pid as u64
}

/// Words of a process entry.
const USE_AT: usize = 0;
const PID_AT: usize = 1;
const LOCAL_AT_PROCESS: usize = 2;
const MANAGED_AT_PROCESS: usize = 3;
pub(super) const EVICTOR_AT: usize = 4;
const REQUESTED_AT: usize = 5;
const PARENT_AT: usize = 6;
const WANTED_AT: usize = 7;
const BUSY_AT: usize = 8;
const UNUSED_ASKED_AT: usize = 9;
const NATIVE_AT: usize = 10;
const MODE_AT: usize = 11;
const FAULT_NS_AT: usize = 12;
/// The first of the counters that a process has of its own.
const COUNTERS_AT: usize = 13;
const UNANSWERED_AT: usize = COUNTERS_AT + OF_PROCESS.len();

const INQUIRY_AT: usize = 32;
const _: () = assert!(UNANSWERED_AT < INQUIRY_AT);

/// Words of an entry.
pub(super) const PROCESS_WORDS: usize = 64;
const _: () = assert!(INQUIRY_AT + INQUIRY_WORDS <= PROCESS_WORDS);

const FREE: u64 = 0;

/// One process of the run.
#[derive(Clone, Copy)]
pub struct Process<'a> {
    words: &'a [AtomicU64],
}

impl<'a> Process<'a> {
    pub(super) fn new(words: &'a [AtomicU64]) -> Self {
        Self { words }
    }

    /// Claims the entry if it is free. `forget_faults` is called where whoever had it before left a
    /// histogram.
    pub(super) fn claim_for(&self, number: u64, pid: u32, parent: u64, forget_faults: impl FnOnce()) -> bool {
        if self.words[USE_AT].compare_exchange(FREE, number, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return false;
        }
        if self.words[FAULT_NS_AT].load(Ordering::Relaxed) != 0 {
            forget_faults();
        }
        for at in [BUSY_AT, WANTED_AT, UNUSED_ASKED_AT].into_iter().chain(NATIVE_AT..PROCESS_WORDS) {
            self.words[at].store(0, Ordering::Relaxed);
        }
        self.words[PARENT_AT].store(parent, Ordering::Relaxed);
        self.words[PID_AT].store(pid_word(number, pid), Ordering::Release);
        true
    }

    /// Frees the entry of a process that no longer runs.
    pub(super) fn free(&self) {
        self.words[PID_AT].store(0, Ordering::Relaxed);
        self.words[USE_AT].store(FREE, Ordering::Release);
    }

    fn own_counter(&self, counter: Counter) -> Option<&'a AtomicU64> {
        let place = OF_PROCESS.iter().position(|&own| own as usize == counter as usize)?;
        self.words.get(COUNTERS_AT + place)
    }

    /// Adds to its own share of a counter, where it has one.
    #[inline]
    pub(super) fn count(&self, counter: Counter, by: u64) {
        if let Some(own) = self.own_counter(counter) {
            own.fetch_add(by, Ordering::Relaxed);
        }
    }

    /// Its own share of one of the counters [`OF_PROCESS`]; 0 of any other.
    #[must_use]
    pub fn counted(&self, counter: Counter) -> u64 {
        self.own_counter(counter).map_or(0, |own| own.load(Ordering::Relaxed))
    }

    /// What its faults took, in nanoseconds: the sum over its threads.
    #[must_use]
    pub fn fault_ns(&self) -> &AtomicU64 {
        &self.words[FAULT_NS_AT]
    }

    /// Pages that are left to the kernel; they count as local.
    #[must_use]
    pub fn native_pages(&self) -> &AtomicU64 {
        &self.words[NATIVE_AT]
    }

    /// Whether its own threads serve its faults (`--fault-mode inline`): 1, else 0.
    #[must_use]
    pub fn serves_inline(&self) -> &AtomicU64 {
        &self.words[MODE_AT]
    }

    /// Its pid; 0 between a fork and the child's arrival.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.words[PID_AT].load(Ordering::Acquire) as u32
    }

    /// Which claim of the entry is in force; 0 while it is free.
    #[must_use]
    pub fn claim(&self) -> u32 {
        self.words[USE_AT].load(Ordering::Acquire) as u32
    }

    /// The entry of the process that claimed it for a child.
    #[must_use]
    pub fn parent(&self) -> Option<usize> {
        (self.words[PARENT_AT].load(Ordering::Relaxed) as usize).checked_sub(1)
    }

    /// Notes its pid, as the supervisor knows it.
    pub fn set_pid(&self, pid: u32) {
        let claim = self.words[USE_AT].load(Ordering::Acquire);
        self.words[PID_AT].store(pid_word(claim, pid), Ordering::Release);
    }

    /// Notes the pid of `child`, if the entry is still its own and nobody has noted one.
    pub fn set_pid_of(&self, child: Child, pid: u32) {
        let claim = u64::from(child.claim);
        let (none, own) = (pid_word(claim, 0), pid_word(claim, pid));
        let _ = self.words[PID_AT].compare_exchange(none, own, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Its calls by which something is to change in a store that others serve, and which are not answered as
    /// a whole: see [`crate::process::unanswered`].
    #[must_use]
    pub fn unanswered_changes(&self) -> &'a AtomicU64 {
        &self.words[UNANSWERED_AT]
    }

    /// Pages that it holds local.
    #[must_use]
    pub fn local_pages(&self) -> &AtomicU64 {
        &self.words[LOCAL_AT_PROCESS]
    }

    /// Pages of its own under management, local and far.
    #[must_use]
    pub fn managed_pages(&self) -> &AtomicU64 {
        &self.words[MANAGED_AT_PROCESS]
    }

    /// Its handlers that serve a fault or a request now.
    #[must_use]
    pub fn busy_handlers(&self) -> &AtomicU64 {
        &self.words[BUSY_AT]
    }

    /// What another process asks it to bring in: see [`crate::foreign`]. 0 for nothing.
    #[must_use]
    pub fn wanted_memory(&self) -> &AtomicU64 {
        &self.words[WANTED_AT]
    }

    /// Pages that it is asked to evict: by others, or by what its evictor found unused.
    #[must_use]
    pub fn requested_pages(&self) -> &AtomicU64 {
        &self.words[REQUESTED_AT]
    }

    /// By which it is asked of its pages.
    #[must_use]
    pub fn inquiry(&self) -> Inquiry<'a> {
        Inquiry(&self.words[INQUIRY_AT..INQUIRY_AT + INQUIRY_WORDS])
    }

    /// Whether another process, which must evict, asks it for pages that it does not use: 1, else 0.
    #[must_use]
    pub fn unused_asked(&self) -> &AtomicU64 {
        &self.words[UNUSED_ASKED_AT]
    }
}
