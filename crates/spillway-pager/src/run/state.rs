//! What all processes of one run share: the local limit, the slots of far memory, the counters of the
//! statistics, and a table of the processes. One sparse memory file, made by the supervisor.
//!
//! Every word is an atomic and no lock lies here, so a process that is killed at any moment blocks nobody;
//! the supervisor gives back what the dead process held.

use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::io::{Errno, Result};
use serde::{Deserialize, Serialize};
use spillway_core::budget::Budget;
use spillway_core::latency::{self, LatencyHistogram};
use spillway_core::page::PAGE_SIZE;
use spillway_core::page_word::MAX_SLOTS;
use spillway_core::slots::{HeldSlots, SLAB_SLOTS, SlotTable};
use spillway_sys::shared_memory::SharedMemory;

use crate::run::known_sites::{self, KnownSites};
use crate::run::store_health::StoreNotes;

/// Processes that one run may have at a time.
pub const MAX_PROCESSES: usize = 1024;

const MAGIC: u64 = 0x5350_494C_4C57_4101;
const HEADER_WORDS: usize = 64;
const COUNTERS: usize = 80;
const PROCESS_WORDS: usize = 16;

/// A counter of the statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Counter {
    /// Faults on pages that were never written.
    FaultsFirstTouch,
    /// Faults that fetched a page from a store.
    FaultsFetch,
    /// Faults on inactive pages: local still, mapped again.
    FaultsInactive,
    /// Faults on pages under write-back.
    FaultsWriteback,
    /// Faults that needed no page: served meanwhile, or write protection lifted.
    FaultsOther,
    /// Faults refused with SIGBUS.
    FaultsRefused,
    /// Pages read from stores.
    PagesFetched,
    /// Pages read ahead by an evictor: see [`crate::fault::read_ahead`].
    PagesReadAhead,
    /// Reads that were under way while their fault made room.
    ReadsPosted,
    /// Pages written to stores.
    PagesWrittenBack,
    /// Pages evicted from where they lay: see [`crate::evict::in_place`].
    PagesEvictedInPlace,
    /// Pages that came into frames by reference: see [`crate::evict::by_reference`].
    PagesUnmappedByReference,
    /// Pages evicted without a write, because a store held the same contents.
    CleanDrops,
    /// Pages of zeros evicted without a write.
    ZeroDrops,
    /// Bytes read from stores.
    BytesIn,
    /// Bytes written to stores.
    BytesOut,
    /// Pages in use under management, local and far.
    ManagedPages,
    /// The most of those at a time.
    PeakManagedPages,
    /// Pages that were to be evicted but could not be, counted each time.
    EvictionsRefused,
    /// Write-backs that a touch made useless.
    WritebacksCancelled,
    /// Forks of managed processes.
    Forks,
    /// Processes that ran managed.
    Processes,
    /// Bytes mapped that cannot be managed (shared, file-backed, locked, stacks), counted when mapped.
    UnmanagedBytes,
    /// Write-backs that a store refused.
    WritebacksFailed,
    /// Of the pages fetched, those that no fault had asked for yet.
    PagesFetchedAhead,
    /// Pages that were found gone where they should have been mapped: discarded by a system call that no hook
    /// saw.
    PagesFoundGone,
    /// System calls of libc that are made by a jump: see [`crate::attach::Startup::attach`]. Of all processes
    /// that began a program.
    PatchedSites,
    /// System calls that came as a signal (`--fault-mode inline`).
    CallsBySignal,
    /// Processes that left inline mode, for a call that it cannot serve.
    InlineLeft,
    /// Bytes left to the kernel because they fitted under the limit, counted when mapped.
    NativeBytes,
    /// Of the pages fetched ahead, those that were used: in streams, those of blocks behind whose end the
    /// next fault came; else, of [`Self::PagesAheadLeft`], those that were seen to be used.
    PagesAheadUsed,
    /// Of the pages fetched ahead in elastic or static blocks, those that have left again.
    PagesAheadLeft,
    /// Elastic blocks taken apart as they left.
    BlocksReduced,
    /// Pages of zeros made, by copying or for the reserve.
    ZeroedPages,
    /// Pages mapped from the shared page of zeros, by their first read.
    ZeroPageMaps,
    /// Of these, those that nobody had written when they left.
    ZeroPagesUnwritten,
    /// Of the pages mapped ahead of their first touch, those of runs behind whose end the next fault of their
    /// stream came.
    ZerosAheadUsed,
    /// Times that background work made way for faults.
    BackgroundPauses,
    /// Pages that came out of the reserve of zeros.
    ReservePagesUsed,
    /// Ranges that were made huge pages again.
    HugePagesFormed,
    /// Ranges that came as huge pages: see [`crate::fault::huge_streams`].
    HugeRangesIn,
    /// Ranges that left as they had come so.
    HugeRangesOut,
    /// Local pages, summed over the scans of them.
    LocalPagesSeen,
    /// Of these, those in ranges of 2 MiB that were local as a whole.
    WholePagesSeen,
    /// Scans of accessed bits: see [`crate::threads::use_scan`].
    UseScans,
    /// What they took, in microseconds.
    UseScanUs,
    /// Times that a page whose turn to leave had come stayed because it was in use.
    PagesKeptInUse,
    /// Pages fetched since a thread was expected to fault on them: see [`crate::fault::foreseen`].
    PagesForeseen,
    /// Of these, those behind which the thread's next fault came, as expected.
    PagesForeseenUsed,
    /// Faults that fetched a page where a tape had it: see [`crate::fault::taped`].
    FaultsOnTape,
    /// Pages fetched ahead of their fault because a tape had them.
    PagesByTape,
    /// Of these, those behind which their thread's next fault came.
    PagesByTapeUsed,
    /// Tapes that were recorded, for the supervisor to count.
    TapesRecorded,
    /// Tapes that were played.
    TapesPlayed,
    /// Tapes that proved useless and were dropped.
    TapesDropped,
    /// Pages whose read failed or came wrong and was made again: see [`crate::fault::read_again`].
    PagesReadAgain,
    /// Blocks fetched, by size: the first of [`BLOCK_SIZES`] counters, of 1, 2, 4 ... 512 pages.
    Blocks,
}

/// Sizes of blocks that are told apart: powers of two of pages, up to 2 MiB.
pub const BLOCK_SIZES: usize = 10;

const _: () = assert!(Counter::Blocks as usize + BLOCK_SIZES <= COUNTERS);

/// The shared memory of one run.
pub struct RunState {
    memory: SharedMemory,
    layout: Layout,
}

#[derive(Clone, Copy)]
struct Layout {
    slots: usize,
    known_sites: usize,
    processes: usize,
    slab_used: usize,
    references: usize,
    contents: usize,
    held: usize,
    held_bytes: usize,
    total: usize,
}

impl Layout {
    fn new(slots: u32) -> Self {
        let slots = slots as usize;
        let pages = |bytes: usize| bytes.next_multiple_of(PAGE_SIZE);
        let known_sites = pages((HEADER_WORDS + COUNTERS + latency::BUCKETS) * 8);
        let processes = known_sites + pages(known_sites::WORDS * 8);
        let slab_used = processes + pages(MAX_PROCESSES * PROCESS_WORDS * 8);
        let references = slab_used + pages(slots.div_ceil(SLAB_SLOTS as usize) * 4);
        let contents = references + pages(slots * 2);
        let held = contents + pages(slots * 16);
        let held_bytes = pages(slots.div_ceil(64) * 8);
        let total = held + held_bytes * MAX_PROCESSES;
        Self { slots, known_sites, processes, slab_used, references, contents, held, held_bytes, total }
    }
}

/// Words of the header, by index.
const MAGIC_AT: usize = 0;
const SLOTS_AT: usize = 1;
const LIMIT_AT: usize = 2;
const LOCAL_AT: usize = 3;
const PEAK_LOCAL_AT: usize = 4;
const MAX_LATENCY_AT: usize = 5;
const WARNINGS_AT: usize = 6;
const LIVE_AT: usize = 7;
const CLAIMS_AT: usize = 8;
/// The notes on stores: see [`StoreNotes`].
const STORES_AT: usize = 16;
const NOTED_STORES: usize = 12;

impl RunState {
    /// Makes the state of a run with a local limit of `limit_pages` and `slots` slots of far memory.
    ///
    /// # Errors
    /// EOVERFLOW for more slots than words can name; the kernel's, where it gives no memory file.
    pub fn create(limit_pages: u64, slots: u32) -> Result<(OwnedFd, Self)> {
        if slots > MAX_SLOTS {
            return Err(Errno::OVERFLOW);
        }
        let layout = Layout::new(slots);
        let (fd, memory) = SharedMemory::create("spillway-run", layout.total)?;
        let state = Self { memory, layout };
        state.header(SLOTS_AT).store(u64::from(slots), Ordering::Relaxed);
        state.header(LIMIT_AT).store(limit_pages, Ordering::Relaxed);
        state.header(MAGIC_AT).store(MAGIC, Ordering::Release);
        Ok((fd, state))
    }

    /// Maps the state that the supervisor made.
    ///
    /// # Errors
    /// EINVAL where the file is no run's state, or another version's.
    pub fn map(fd: impl AsFd) -> Result<Self> {
        let memory = SharedMemory::map(fd)?;
        if memory.bytes() < HEADER_WORDS * 8 {
            return Err(Errno::INVAL);
        }
        let word = |at: usize| memory.atomics_u64(0, HEADER_WORDS)[at].load(Ordering::Acquire);
        let slots = u32::try_from(word(SLOTS_AT)).map_err(|_| Errno::INVAL)?;
        let layout = Layout::new(slots);
        if word(MAGIC_AT) != MAGIC || layout.total != memory.bytes() {
            return Err(Errno::INVAL);
        }
        Ok(Self { memory, layout })
    }

    fn header(&self, at: usize) -> &AtomicU64 {
        &self.memory.atomics_u64(0, HEADER_WORDS)[at]
    }

    /// What was told of a store. From the 13th on they share their notes.
    pub(crate) fn store_notes(&self, store: usize) -> StoreNotes<'_> {
        let at = STORES_AT + store % NOTED_STORES * 4;
        StoreNotes {
            told_ms: self.header(at),
            silent: self.header(at + 1),
            starving_ms: self.header(at + 2),
            crowded: self.header(at + 3),
        }
    }

    /// The local limit, and what is charged to it.
    #[must_use]
    pub fn budget(&self) -> Budget<'_> {
        Budget {
            limit_pages: self.header(LIMIT_AT),
            local_pages: self.header(LOCAL_AT),
            peak_local_pages: self.header(PEAK_LOCAL_AT),
        }
    }

    /// All slots of far memory, the first store's first.
    #[must_use]
    pub fn slots(&self) -> SlotTable<'_> {
        let Layout { slots, references, contents, slab_used, .. } = self.layout;
        SlotTable {
            references: self.memory.atomics_u16(references, slots),
            contents: self.memory.atomics_u64(contents, slots * 2),
            slab_used: self.memory.atomics_u32(slab_used, slots.div_ceil(SLAB_SLOTS as usize)),
        }
    }

    /// The slots that process `entry` holds.
    #[must_use]
    pub fn held(&self, entry: usize) -> HeldSlots<'_> {
        assert!(entry < MAX_PROCESSES, "no such process entry");
        let start = self.layout.held + entry * self.layout.held_bytes;
        HeldSlots(self.memory.atomics_u64(start, self.layout.slots.div_ceil(64)))
    }

    /// One counter of the statistics.
    #[must_use]
    pub fn counter(&self, counter: Counter) -> &AtomicU64 {
        &self.counters()[counter as usize]
    }

    /// Adds to a counter.
    pub fn count(&self, counter: Counter, by: u64) {
        self.counter(counter).fetch_add(by, Ordering::Relaxed);
    }

    /// Counts a block of `pages` pages, among those of the next lower power of two.
    pub fn count_block(&self, pages: usize) {
        let size = (pages.max(1).ilog2() as usize).min(BLOCK_SIZES - 1);
        self.counters()[Counter::Blocks as usize + size].fetch_add(1, Ordering::Relaxed);
    }

    /// The blocks fetched of 1, 2, 4 ... pages.
    #[must_use]
    pub fn blocks(&self) -> [u64; BLOCK_SIZES] {
        std::array::from_fn(|size| self.counters()[Counter::Blocks as usize + size].load(Ordering::Relaxed))
    }

    fn counters(&self) -> &[AtomicU64] {
        self.memory.atomics_u64(HEADER_WORDS * 8, COUNTERS)
    }

    /// Counts pages that come under management.
    pub fn count_managed(&self, pages: u64) {
        let now = self.counter(Counter::ManagedPages).fetch_add(pages, Ordering::Relaxed) + pages;
        self.counter(Counter::PeakManagedPages).fetch_max(now, Ordering::Relaxed);
    }

    /// Counts pages that the program has discarded.
    pub fn uncount_managed(&self, pages: u64) {
        self.counter(Counter::ManagedPages).fetch_sub(pages, Ordering::Relaxed);
    }

    /// Time from reading a fault's message to its answer.
    #[must_use]
    pub fn fault_latency(&self) -> LatencyHistogram<'_> {
        LatencyHistogram {
            buckets: self.memory.atomics_u64((HEADER_WORDS + COUNTERS) * 8, latency::BUCKETS),
            max_ns: self.header(MAX_LATENCY_AT),
        }
    }

    /// What the run's programs have found in libc's code.
    #[must_use]
    pub fn known_sites(&self) -> KnownSites<'_> {
        KnownSites::new(self.memory.atomics_u64(self.layout.known_sites, known_sites::WORDS))
    }

    /// True the first time that it is asked for this bit, for warnings that are given once a run.
    pub fn first_time(&self, bit: u32) -> bool {
        let bit = 1 << bit;
        self.header(WARNINGS_AT).fetch_or(bit, Ordering::Relaxed) & bit == 0
    }

    /// The entry of one process.
    #[must_use]
    pub fn process(&self, entry: usize) -> Process<'_> {
        assert!(entry < MAX_PROCESSES, "no such process entry");
        let start = self.layout.processes + entry * PROCESS_WORDS * 8;
        Process { words: self.memory.atomics_u64(start, PROCESS_WORDS) }
    }

    /// The futex on which process `entry`'s evictor sleeps.
    #[must_use]
    pub fn evictor_futex(&self, entry: usize) -> &AtomicU32 {
        assert!(entry < MAX_PROCESSES, "no such process entry");
        let start = self.layout.processes + entry * PROCESS_WORDS * 8 + EVICTOR_AT * 8;
        &self.memory.atomics_u32(start, 1)[0]
    }

    /// Claims a free entry for process `pid`.
    #[must_use]
    pub fn claim_process(&self, pid: u32) -> Option<usize> {
        self.claim(pid, 0).map(|claimed| claimed.entry)
    }

    /// Claims a free entry for a child that process `parent` is about to fork, whose pid is not known yet.
    #[must_use]
    pub fn claim_child(&self, parent: usize) -> Option<Child> {
        self.claim(0, parent as u64 + 1)
    }

    fn claim(&self, pid: u32, parent: u64) -> Option<Child> {
        let number = self.header(CLAIMS_AT).fetch_add(1, Ordering::Relaxed) % u64::from(u32::MAX) + 1;
        let entry = (0..MAX_PROCESSES).find(|&entry| {
            let process = self.process(entry);
            let claimed = process.words[USE_AT]
                .compare_exchange(FREE, number, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok();
            if claimed {
                process.words[PARENT_AT].store(parent, Ordering::Relaxed);
                process.words[BUSY_AT].store(0, Ordering::Relaxed);
                process.words[WANTED_AT].store(0, Ordering::Relaxed);
                process.words[UNUSED_ASKED_AT].store(0, Ordering::Relaxed);
                process.words[PID_AT].store(pid_word(number, pid), Ordering::Release);
                self.header(LIVE_AT).fetch_add(1, Ordering::Relaxed);
            }
            claimed
        })?;
        Some(Child { entry, claim: number as u32 })
    }

    /// The entries in use.
    pub fn processes(&self) -> impl Iterator<Item = usize> + '_ {
        (0..MAX_PROCESSES).filter(|&entry| self.process(entry).words[USE_AT].load(Ordering::Acquire) != FREE)
    }

    /// Gives back everything that a process held which no longer runs: its slots (`discard` drops the
    /// contents of slots that nobody else holds), its share of the local limit, and its entry.
    pub fn reap(&self, entry: usize, mut discard: impl FnMut(&[u32])) {
        let (slots, held, process) = (self.slots(), self.held(entry), self.process(entry));
        let mut all = slots.held_by(&held);
        loop {
            let batch: Vec<u32> = all.by_ref().take(SLOTS_REAPED_AT_ONCE).collect();
            if batch.is_empty() {
                break;
            }
            let (shared, own): (Vec<u32>, Vec<u32>) = batch.iter().partition(|&&slot| slots.is_shared(slot));
            if !own.is_empty() {
                discard(&own);
            }
            own.into_iter().for_each(|slot| slots.release(held, slot, |_| {}));
            // The other holder may have let go meanwhile.
            shared.into_iter().for_each(|slot| slots.release(held, slot, |slot| discard(&[slot])));
        }
        self.budget().release(process.words[LOCAL_AT_PROCESS].swap(0, Ordering::AcqRel));
        self.uncount_managed(process.words[MANAGED_AT_PROCESS].swap(0, Ordering::AcqRel));
        process.words[PID_AT].store(0, Ordering::Relaxed);
        process.words[USE_AT].store(FREE, Ordering::Release);
        self.header(LIVE_AT).fetch_sub(1, Ordering::Relaxed);
    }

    /// How many processes there are.
    #[must_use]
    pub fn process_count(&self) -> u64 {
        self.header(LIVE_AT).load(Ordering::Relaxed)
    }
}

const SLOTS_REAPED_AT_ONCE: usize = 4096;

const FREE: u64 = 0;

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
const EVICTOR_AT: usize = 4;
const REQUESTED_AT: usize = 5;
const PARENT_AT: usize = 6;
const WANTED_AT: usize = 7;
const BUSY_AT: usize = 8;
const UNUSED_ASKED_AT: usize = 9;

/// One process of the run.
#[derive(Clone, Copy)]
pub struct Process<'a> {
    words: &'a [AtomicU64],
}

impl Process<'_> {
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

    /// Whether another process, which must evict, asks it for pages that it does not use: 1, else 0.
    #[must_use]
    pub fn unused_asked(&self) -> &AtomicU64 {
        &self.words[UNUSED_ASKED_AT]
    }
}

/// The slots of each store, in the order in which they are filled.
#[must_use]
pub fn slot_ranges(capacities: &[u32]) -> Vec<Range<u32>> {
    let mut start: u32 = 0;
    capacities
        .iter()
        .map(|&slots| {
            // A store begins on a slab of its own, so that no slab lies on two stores.
            let range = start..start.saturating_add(slots).min(MAX_SLOTS);
            start = range.end.checked_next_multiple_of(SLAB_SLOTS).unwrap_or(MAX_SLOTS).min(MAX_SLOTS);
            range
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_dead_process_held_is_given_back() {
        let (fd, state) = RunState::create(1000, 2000).unwrap();
        let other = RunState::map(&fd).unwrap();
        let (parent, child) = (state.claim_process(11).unwrap(), state.claim_process(12).unwrap());
        let slots = state.slots();
        let slot = slots.take(state.held(parent), 0..2000, 700).unwrap();
        let own = slots.take(state.held(parent), 0..2000, 701).unwrap();
        slots.share(state.held(parent), state.held(child));
        assert!(state.budget().try_charge(300));
        state.process(parent).local_pages().store(300, Ordering::Relaxed);
        other.reap(child, |_| panic!("the parent still holds it"));
        let mut discarded = vec![];
        other.reap(parent, |slots| discarded.extend_from_slice(slots));
        assert_eq!(discarded, [slot, own]);
        assert_eq!((slots.used(0..2000), other.budget().headroom_pages()), (0, 1000));
        assert_eq!(state.processes().count(), 0);
    }

    #[test]
    fn a_child_that_has_come_and_gone_leaves_the_next_one_alone() {
        let (_fd, state) = RunState::create(1000, 2000).unwrap();
        let parent = state.claim_process(11).unwrap();
        let first = state.claim_child(parent).unwrap();
        state.reap(first.entry, |_| {});
        let second = state.claim_child(parent).unwrap();
        assert_eq!((first.entry, first.claim == second.claim), (second.entry, false));
        // Their parent has been slow to say who the first one was.
        state.process(first.entry).set_pid_of(first, 77);
        assert_eq!(state.process(second.entry).pid(), 0);
        state.process(second.entry).set_pid_of(second, 78);
        assert_eq!(state.process(second.entry).pid(), 78);
        for child in [first, second, Child { entry: MAX_PROCESSES - 1, claim: u32::MAX }] {
            assert_eq!(Child::from_word(child.to_word()), child);
            assert_ne!(child.to_word(), 0);
        }
    }

    #[test]
    fn stores_lie_one_behind_the_other() {
        assert_eq!(slot_ranges(&[100, 512, 7]), [0..100, 512..1024, 1024..1031]);
        assert_eq!(slot_ranges(&[u32::MAX, 5]), [0..MAX_SLOTS, MAX_SLOTS..MAX_SLOTS]);
    }

    #[test]
    fn a_foreign_file_is_refused() {
        let (fd, _memory) = SharedMemory::create("foreign", 8192).unwrap();
        assert_eq!(RunState::map(&fd).err(), Some(Errno::INVAL));
    }
}
