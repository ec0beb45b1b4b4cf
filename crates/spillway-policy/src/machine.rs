//! The machine as a policy sees it: two tiers of memory, and the few things that can be done to pages.
//!
//! Implemented by whatever runs a policy. Nothing here says whether time and memory are real.

use serde::{Deserialize, Serialize};

/// A page of the smallest size that the machine maps, by its place among those that the machine manages.
/// Pages that are neighbours in the address space have neighbouring numbers.
pub type PageIndex = u32;

/// Where a page lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// Memory of this machine.
    Local,
    /// Slower memory: remote, expanded, non-volatile.
    Far,
}

/// Which pages a scan covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scan {
    /// The page where the scan begins.
    pub start: PageIndex,
    /// How many pages from there; what lies beyond the last page is left out.
    pub pages: u32,
    /// Pages of this tier only.
    pub tier: Tier,
    /// Skip whole subtrees of the page table whose upper-level accessed bit is clear, and clear that bit.
    pub hierarchical: bool,
}

/// How a migration is asked for, which decides what it costs beyond moving its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// By the kernel itself, page by page.
    Kernel,
    /// By the kernel's swap path, page by page, under locks that all cores share: lists of pages, map of
    /// slots.
    Locked,
    /// By the `move_pages` system call or alike, which first drains the LRU caches of every core
    /// (HotBox, section 3.3).
    System,
}

/// One access of those that were sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The page, by its smallest size also within a huge mapping.
    pub page: PageIndex,
    /// Whether it was written.
    pub write: bool,
}

/// What the counters of the memory network say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkTelemetry {
    /// Bandwidth that neither others nor we use at present, in bytes per second.
    pub available_bytes_per_s: f64,
    /// How much longer a far access takes than a local one at present, in nanoseconds.
    pub delta_latency_ns: f64,
    /// Bytes that we sent and received so far; where nobody can tell whose they were, those of all.
    pub traffic_bytes: u64,
}

/// What a policy acts on. Costs of what it asks for are borne by the program, or by the core that the policy
/// runs on; time passes while it works.
///
/// A page that is part of a huge mapping is named by the first page of that mapping
/// ([`TieredMachine::span`]), in every call and every event.
pub trait TieredMachine {
    /// Time since the start, in nanoseconds.
    fn now_ns(&self) -> u64;

    /// How many pages there are, numbered from 0.
    fn page_count(&self) -> u32;

    /// How many pages there are at present, where numbers are kept for more.
    fn managed_pages(&self) -> u32 {
        self.page_count()
    }

    /// The first page from `page` on that may be there; the number of pages where there is none. Who looks at
    /// all pages need not go through numbers that no page has.
    fn next_touched(&self, page: PageIndex) -> PageIndex {
        page
    }

    /// Bytes in a page.
    fn page_bytes(&self) -> u64;

    /// Pages in a huge mapping, aligned to as many.
    fn pages_per_huge(&self) -> u32;

    /// Frames of a tier, in pages.
    fn capacity_pages(&self, tier: Tier) -> u32;

    /// Frames of a tier that nothing uses, in pages.
    fn free_pages(&self, tier: Tier) -> u32;

    /// Where a page lies; nowhere before its first touch.
    fn tier_of(&self, page: PageIndex) -> Option<Tier>;

    /// How many pages are mapped as one with this first one.
    fn span(&self, page: PageIndex) -> u32;

    /// Reads and clears a page's accessed bit.
    fn take_accessed(&mut self, page: PageIndex) -> bool;

    /// Reads and clears the accessed bits of many pages, and tells `visit` of each that was scanned.
    fn scan(&mut self, scan: Scan, visit: &mut dyn FnMut(PageIndex, bool));

    /// Makes each of these pages fault at its next access.
    fn mark(&mut self, pages: &[PageIndex]);

    /// The first page from `page` on that may be touched and not marked; the number of pages where there is
    /// none. Who marks all pages need not go through the many others.
    fn next_unmarked(&self, page: PageIndex) -> PageIndex {
        page
    }

    /// Whether a page is marked.
    fn is_marked(&self, page: PageIndex) -> bool;

    /// From when on an access to this marked page would have faulted, of a mark that was asked for at
    /// `asked_ns`: at once, but for machines whose kernel marks at times of its own.
    fn marked_from_ns(&self, _page: PageIndex, asked_ns: u64) -> u64 {
        asked_ns
    }

    /// From now on no far page can be accessed in place, or all can again: while `on`, each access to one
    /// stops until the policy has brought the page in. False, and nothing changes, where the machine cannot
    /// change that while the program runs.
    fn set_page_fetch(&mut self, _on: bool) -> bool {
        false
    }

    /// Maps a local or readable page again that was marked or unmapped, without the fault.
    fn unmark(&mut self, page: PageIndex);

    /// Moves pages to a tier and maps them there; neighbours travel as one message. Those for which there is
    /// no free frame, that are there already or that were never touched are passed over. Returns how many
    /// moved.
    fn migrate(&mut self, pages: &[PageIndex], to: Tier, call: Call) -> u32;

    /// Reads far pages ahead of their use, as the kernel's swap path does: each comes to lie local and
    /// unmapped, nobody waits for it to arrive, and the next access to it is a minor fault. Those for which
    /// there is no free frame are passed over. Returns how many came. A machine that has no such way brings
    /// them as ever.
    fn read_ahead(&mut self, pages: &[PageIndex]) -> u32 {
        self.migrate(pages, Tier::Local, Call::Locked)
    }

    /// Swaps far pages with as many local ones, without a free frame. Returns how many pairs were swapped.
    fn exchange(&mut self, pairs: &[(PageIndex, PageIndex)], call: Call) -> u32;

    /// Sends a local page to the far tier without waiting: its frame is free at once, and its bytes follow as
    /// the network allows.
    fn write_back(&mut self, page: PageIndex);

    /// Keeps the far copy of a page that has just come to local memory, write-protected: until the program
    /// writes to the page, which is a minor fault once, it leaves without being copied. A machine that keeps
    /// none does nothing.
    fn keep_far_copy(&mut self, _page: PageIndex) {}

    /// Takes away the mappings of local pages; they stay local, and the next access to each is a minor fault.
    fn unmap(&mut self, pages: &[PageIndex]);

    /// Splits a huge mapping into base pages.
    fn split(&mut self, page: PageIndex);

    /// Cores that the program runs on, all of which are interrupted when a page moves.
    fn cores(&self) -> u32 {
        1
    }

    /// Whether windows count accesses ([`TieredMachine::count_accesses`]); otherwise they count the pages
    /// that scans find in use.
    fn counts_each_access(&self) -> bool {
        true
    }

    /// Whether the machine scans at times of its own, whatever a policy asks: a scan of the policy's then
    /// costs next to nothing, and finds nothing where the machine has had none since the last.
    fn scans_by_itself(&self) -> bool {
        false
    }

    /// What of the time that a policy's timers take is the program's: all of it where they share its cores,
    /// none where they have one of their own.
    fn background_share(&self) -> f64 {
        1.0
    }

    /// Samples one access in `period` that misses the caches, from now on; 0 ends it.
    fn sample_accesses(&mut self, period: u32);

    /// Hands over the samples taken since the last call.
    fn take_samples(&mut self, samples: &mut Vec<Sample>);

    /// What taking samples has cost so far, on all cores together, in nanoseconds; 0 where nobody knows.
    fn sampling_ns(&self) -> u64 {
        0
    }

    /// Reports local and far accesses every `window_ns` from now on; 0 ends it.
    fn count_accesses(&mut self, window_ns: u64);

    /// Calls the policy's timer `timer` after `after_ns`.
    fn set_timer(&mut self, timer: u32, after_ns: u64);

    /// What the network's counters say.
    fn link(&self) -> LinkTelemetry;
}
