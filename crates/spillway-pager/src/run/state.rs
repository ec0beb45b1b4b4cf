//! What all processes of one run share: the local limit, the slots of far memory, the counters of the
//! statistics, and a table of the processes. One sparse memory file, made by the supervisor.
//!
//! Every word is an atomic and no lock lies here, so a process that is killed at any moment blocks nobody;
//! the supervisor gives back what the dead process held.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::io::{Errno, Result};
use rustix::rand::{GetRandomFlags, getrandom};
use spillway_core::budget::Budget;
use spillway_core::latency::{self, LatencyHistogram};
use spillway_core::page::PAGE_SIZE;
use spillway_core::page_word::MAX_SLOTS;
use spillway_core::seals::{SEAL_WORDS, SealTable};
use spillway_core::slots::{HeldSlots, SLAB_SLOTS, SlotTable};
use spillway_store::Notice;
use spillway_sys::shared_memory::SharedMemory;

pub use crate::run::counter::{BLOCK_SIZES, Counter};
use crate::run::heat::{HEAT_WORDS, HeatWords};
use crate::run::known_sites::{self, KnownSites};
use crate::run::noted::{NOTICE_WORDS, Notices};
use crate::run::process_entry::{CHILD_LIMIT, EVICTOR_AT, PROCESS_WORDS};
pub use crate::run::process_entry::{Child, MAX_PROCESSES, PID_OF_ANOTHER_NAMESPACE, Process};
use crate::run::returns::{RETURN_WORDS, Returns};
use crate::run::sites::{SITE_WORDS, Sites};
pub use crate::run::slot_ranges::slot_ranges;
use crate::run::stacks::{STACKS_WORDS, Stacks};
use crate::run::store_counts::{MAX_STORES, STORE_WORDS, StoreCounts};

const MAGIC: u64 = 0x5350_494C_4C57_4106;
const HEADER_WORDS: usize = 64;
const COUNTERS: usize = 80;
/// A histogram of one process, and its largest latency.
const LATENCY_WORDS: usize = latency::BUCKETS + 1;

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
    stores: usize,
    processes: usize,
    latencies: usize,
    returns: usize,
    heat: usize,
    sites: usize,
    stacks: usize,
    notices: usize,
    slab_used: usize,
    references: usize,
    contents: usize,
    /// [`SEAL_WORDS`] words for each slot of a run that seals pages; else nothing.
    seals: usize,
    sealed_slots: usize,
    held: usize,
    held_bytes: usize,
    total: usize,
}

impl Layout {
    fn new(slots: u32, is_sealed: bool) -> Self {
        let slots = slots as usize;
        let sealed_slots = if is_sealed { slots } else { 0 };
        let pages = |bytes: usize| bytes.next_multiple_of(PAGE_SIZE);
        let known_sites = pages((HEADER_WORDS + COUNTERS + latency::BUCKETS) * 8);
        let stores = known_sites + pages(known_sites::WORDS * 8);
        let processes = stores + pages(MAX_STORES * STORE_WORDS * 8);
        let latencies = processes + pages(MAX_PROCESSES * PROCESS_WORDS * 8);
        let returns = latencies + pages(MAX_PROCESSES * LATENCY_WORDS * 8);
        let heat = returns + pages(RETURN_WORDS * 8);
        let sites = heat + pages(MAX_PROCESSES * HEAT_WORDS * 8);
        let stacks = sites + pages(SITE_WORDS * 8);
        let notices = stacks + pages(STACKS_WORDS * 8);
        let slab_used = notices + pages(NOTICE_WORDS * 8);
        let references = slab_used + pages(slots.div_ceil(SLAB_SLOTS as usize) * 4);
        let contents = references + pages(slots * 2);
        let seals = contents + pages(slots * 16);
        let held = seals + pages(sealed_slots * SEAL_WORDS * 8);
        let held_bytes = pages(slots.div_ceil(64) * 8);
        let total = held + held_bytes * MAX_PROCESSES;
        Self {
            slots,
            known_sites,
            stores,
            processes,
            latencies,
            returns,
            heat,
            sites,
            stacks,
            notices,
            slab_used,
            references,
            contents,
            seals,
            sealed_slots,
            held,
            held_bytes,
            total,
        }
    }
}

/// Where the run's processes note what was told of one store.
pub(crate) struct StoreNotes<'a> {
    /// When it was last told that the store is waited for, in milliseconds of the monotonic clock.
    pub(crate) told_ms: &'a AtomicU64,
    /// 1 from then on until the store answers.
    pub(crate) silent: &'a AtomicU64,
    /// When a process last had no connection to it.
    pub(crate) starving_ms: &'a AtomicU64,
    /// It was told that the store takes no further connection.
    pub(crate) crowded: &'a AtomicU64,
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
const FAULT_NS_AT: usize = 9;
/// 1 where the run seals pages.
const SEALED_AT: usize = 10;
/// The last version that a page was sealed as.
const VERSIONS_AT: usize = 11;
const KEY_AT: usize = 12;
const KEY_WORDS: usize = 4;
/// The notes on stores: see [`StoreNotes`].
const STORES_AT: usize = 16;
pub(super) const NOTED_STORES: usize = 12;

impl RunState {
    /// Makes the state of a run with a local limit of `limit_pages` and `slots` slots of far memory.
    ///
    /// # Errors
    /// EOVERFLOW for more slots than words can name; the kernel's, where it gives no memory file.
    pub fn create(limit_pages: u64, slots: u32) -> Result<(OwnedFd, Self)> {
        Self::lay_out(limit_pages, slots, false)
    }

    /// The same for a run that seals pages, with a key that nobody else has: it lies there, and nowhere else.
    ///
    /// # Errors
    /// As [`Self::create`]; the kernel's, where it gives no random bytes.
    pub fn create_sealed(limit_pages: u64, slots: u32) -> Result<(OwnedFd, Self)> {
        let made = Self::lay_out(limit_pages, slots, true)?;
        for word in KEY_AT..KEY_AT + KEY_WORDS {
            let mut bytes = [0; 8];
            // As few are given whole, or not at all, once the machine's source is ready, for which it waits.
            if getrandom(&mut bytes, GetRandomFlags::empty())? != bytes.len() {
                return Err(Errno::IO);
            }
            made.1.header(word).store(u64::from_le_bytes(bytes), Ordering::Relaxed);
        }
        made.1.header(SEALED_AT).store(1, Ordering::Release);
        Ok(made)
    }

    fn lay_out(limit_pages: u64, slots: u32, is_sealed: bool) -> Result<(OwnedFd, Self)> {
        if slots > MAX_SLOTS {
            return Err(Errno::OVERFLOW);
        }
        let layout = Layout::new(slots, is_sealed);
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
        let layout = Layout::new(slots, word(SEALED_AT) == 1);
        if word(MAGIC_AT) != MAGIC || layout.total != memory.bytes() {
            return Err(Errno::INVAL);
        }
        Ok(Self { memory, layout })
    }

    fn header(&self, at: usize) -> &AtomicU64 {
        &self.memory.atomics_u64(0, HEADER_WORDS)[at]
    }

    /// What was told of all stores.
    pub(crate) fn all_store_notes(&self) -> impl Iterator<Item = StoreNotes<'_>> {
        (0..NOTED_STORES).map(|store| self.store_notes(store))
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

    /// What the pages of slots must be opened with; `None` where the run seals none.
    #[must_use]
    pub fn seals(&self) -> Option<SealTable<'_>> {
        let Layout { seals, sealed_slots, .. } = self.layout;
        let seals = self.memory.atomics_u64(seals, sealed_slots * SEAL_WORDS);
        (sealed_slots > 0).then(|| SealTable { versions: self.header(VERSIONS_AT), seals })
    }

    /// The run's key, for its processes alone; `None` where the run seals no page.
    #[must_use]
    pub(crate) fn key(&self) -> Option<[u8; KEY_WORDS * 8]> {
        if self.layout.sealed_slots == 0 {
            return None;
        }
        let mut key = [0; KEY_WORDS * 8];
        for (bytes, word) in key.as_chunks_mut().0.iter_mut().zip(KEY_AT..) {
            *bytes = self.header(word).load(Ordering::Relaxed).to_le_bytes();
        }
        Some(key)
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

    /// Adds to a counter of which process `entry` has its own share: see [`crate::run::counter::OF_PROCESS`].
    pub fn count_of(&self, entry: usize, counter: Counter, by: u64) {
        self.count(counter, by);
        self.process(entry).count(counter, by);
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

    /// The same of one process's faults alone.
    #[must_use]
    pub fn fault_latency_of(&self, entry: usize) -> LatencyHistogram<'_> {
        assert!(entry < MAX_PROCESSES, "no such process entry");
        let start = self.layout.latencies + entry * LATENCY_WORDS * 8;
        let (buckets, max_ns) = self.memory.atomics_u64(start, LATENCY_WORDS).split_at(latency::BUCKETS);
        LatencyHistogram { buckets, max_ns: &max_ns[0] }
    }

    /// Notes that a fault of process `entry` was answered, in the run's histogram and in its own.
    pub fn note_fault(&self, entry: usize, latency_ns: u64) {
        self.fault_latency().record(latency_ns);
        self.fault_latency_of(entry).record(latency_ns);
        self.process(entry).fault_ns().fetch_add(latency_ns, Ordering::Relaxed);
        self.header(FAULT_NS_AT).fetch_add(latency_ns, Ordering::Relaxed);
    }

    /// Faults that fetched a page, by how many others had left since it did.
    #[must_use]
    pub fn returns(&self) -> Returns<'_> {
        Returns(self.memory.atomics_u64(self.layout.returns, RETURN_WORDS))
    }

    /// By which process `entry` is asked where its memory is and how much it is used.
    #[must_use]
    pub fn heat(&self, entry: usize) -> HeatWords<'_> {
        assert!(entry < MAX_PROCESSES, "no such process entry");
        HeatWords(self.memory.atomics_u64(self.layout.heat + entry * HEAT_WORDS * 8, HEAT_WORDS))
    }

    /// Which instructions waited for pages.
    #[must_use]
    pub fn sites(&self) -> Sites<'_> {
        Sites(self.memory.atomics_u64(self.layout.sites, SITE_WORDS))
    }

    /// The stacks of threads that waited for pages, while somebody asks for them.
    #[must_use]
    pub fn stacks(&self) -> Stacks<'_> {
        Stacks(self.memory.atomics_u64(self.layout.stacks, STACKS_WORDS))
    }

    /// What its programs' pagers have to tell.
    #[must_use]
    pub fn notices(&self) -> Notices<'_> {
        Notices(self.memory.atomics_u64(self.layout.notices, NOTICE_WORDS))
    }

    /// Notes something of process `entry` there.
    pub fn note(&self, entry: usize, notice: &Notice<'_>) {
        self.notices().put(self.process(entry).pid(), notice);
    }

    /// What all faults of the run took, in nanoseconds: the sum over its threads.
    #[must_use]
    pub fn fault_ns(&self) -> u64 {
        self.header(FAULT_NS_AT).load(Ordering::Relaxed)
    }

    /// What came from one store, and what it took; the stores are counted in the order of the settings.
    #[must_use]
    pub fn store(&self, index: usize) -> StoreCounts<'_> {
        assert!(index < MAX_STORES, "no such store");
        let start = self.layout.stores + index * STORE_WORDS * 8;
        StoreCounts::new(self.memory.atomics_u64(start, STORE_WORDS))
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
        Process::new(self.memory.atomics_u64(start, PROCESS_WORDS))
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
        let number = self.header(CLAIMS_AT).fetch_add(1, Ordering::Relaxed) % CHILD_LIMIT + 1;
        let entry = (0..MAX_PROCESSES).find(|&entry| {
            let claimed = self.process(entry).claim_for(number, pid, parent, || self.forget_faults(entry));
            if claimed {
                self.header(LIVE_AT).fetch_add(1, Ordering::Relaxed);
            }
            claimed
        })?;
        Some(Child { entry, claim: number as u32 })
    }

    /// The entry's histogram is another process's.
    fn forget_faults(&self, entry: usize) {
        let histogram = self.fault_latency_of(entry);
        histogram.buckets.iter().chain([histogram.max_ns]).for_each(|word| word.store(0, Ordering::Relaxed));
        self.sites().forget(entry);
        self.stacks().forget(entry);
    }

    /// The entries in use.
    pub fn processes(&self) -> impl Iterator<Item = usize> + '_ {
        (0..MAX_PROCESSES).filter(|&entry| self.process(entry).claim() != 0)
    }

    /// Gives back a process's share of the local limit: it no longer runs, and its memory is gone.
    pub fn let_go_of_local(&self, entry: usize) {
        let process = self.process(entry);
        self.budget().release(process.local_pages().swap(0, Ordering::AcqRel));
        self.uncount_managed(process.managed_pages().swap(0, Ordering::AcqRel));
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
        self.let_go_of_local(entry);
        process.free();
        self.header(LIVE_AT).fetch_sub(1, Ordering::Relaxed);
    }

    /// How many processes there are.
    #[must_use]
    pub fn process_count(&self) -> u64 {
        self.header(LIVE_AT).load(Ordering::Relaxed)
    }
}

const SLOTS_REAPED_AT_ONCE: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use spillway_core::seals::Seal;

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
    fn a_process_counts_for_itself_too_and_the_next_one_begins_anew() {
        let (_fd, state) = RunState::create(1000, 2000).unwrap();
        let (one, other) = (state.claim_process(11).unwrap(), state.claim_process(12).unwrap());
        state.count_of(one, Counter::FaultsFetch, 2);
        state.count_of(other, Counter::FaultsFetch, 3);
        state.count_of(one, Counter::BytesIn, 7);
        state.note_fault(one, 5_000);
        state.note_fault(other, 900_000);
        state.process(one).native_pages().store(4, Ordering::Relaxed);
        assert_eq!(state.counter(Counter::FaultsFetch).load(Ordering::Relaxed), 5);
        assert_eq!(state.process(one).counted(Counter::FaultsFetch), 2);
        assert_eq!(state.process(one).counted(Counter::BytesIn), 0, "of the run alone");
        assert_eq!(state.fault_latency_of(one).counts().map(|(_, count)| count).collect::<Vec<_>>(), [1]);
        assert_eq!(state.fault_latency_of(one).quantile_ns(1.0), 5_000);
        assert_eq!((state.fault_latency().counts().count(), state.fault_ns()), (2, 905_000));
        state.reap(one, |_| {});
        assert_eq!(state.claim_process(13), Some(one));
        let process = state.process(one);
        let words = [process.counted(Counter::FaultsFetch), process.fault_ns().load(Ordering::Relaxed)];
        assert_eq!((words, process.native_pages().load(Ordering::Relaxed)), ([0, 0], 0));
        assert_eq!((state.fault_latency_of(one).counts().count(), state.fault_ns()), (0, 905_000));
        assert_eq!(state.process(other).counted(Counter::FaultsFetch), 3);
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
    fn a_sealed_run_has_a_key_of_its_own_and_one_count_of_versions_for_all_its_processes() {
        let (_fd, plain) = RunState::create(1000, 2000).unwrap();
        assert!(plain.seals().is_none() && plain.key().is_none());
        let runs = [(); 3].map(|()| RunState::create_sealed(1000, 2000).unwrap());
        let keys = runs.each_ref().map(|(_, run)| run.key().unwrap());
        assert!(keys[0] != keys[1] && keys[1] != keys[2] && keys[0] != keys[2]);
        assert!(keys.iter().all(|key| key.as_chunks::<8>().0.iter().all(|word| *word != [0; 8])));
        let (fd, run) = &runs[0];
        let other = RunState::map(fd).unwrap();
        assert_eq!(other.key(), run.key());
        assert_eq!(run.seals().unwrap().take_versions(3), Some(1));
        assert_eq!(other.seals().unwrap().take_versions(1), Some(4));
        let seal = Seal { version: 4, tag: [9; 16] };
        other.seals().unwrap().set(1999, seal);
        assert_eq!(run.seals().unwrap().of(1999), Some(seal));
        assert!(
            run.slots().contents(1999).page_number.is_none()
                && run.held(0).0.len() == 2000_usize.div_ceil(64)
        );
    }

    #[test]
    fn a_foreign_file_is_refused() {
        let (fd, _memory) = SharedMemory::create("foreign", 8192).unwrap();
        assert_eq!(RunState::map(&fd).err(), Some(Errno::INVAL));
    }
}
