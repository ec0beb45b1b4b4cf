//! One program on one node: its cores, its caches, its pages.

mod path;
mod streams;

use spillway_policy::machine::{PageIndex, Sample, Tier};
use spillway_policy::policy::{AccessModel, FaultKind, Mapping};

use super::cache::{Cache, LineFilter, MAX_LINES};
use super::heat::Heat;
use super::link::PS_PER_NS;
use super::lock::SwapLock;
use super::metrics::{Bill, Counts};
use super::pages::{AddressMap, Pages, bit, region_bit};
use super::platform::{DaemonCore, Platform};
use super::tlb::{Tlb, base_key, huge_key};
use crate::access::Accesses;
use crate::memory::LINE_BYTES;
use streams::Streams;

/// What each kind of work costs, in picoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    l1: u64,
    llc: u64,
    walk: u64,
    local: u64,
    /// By what the latency of a line is divided that follows a missed one, in 1/256.
    stream_overlap: u64,
    /// Lines that a core has under way while it copies a page, in 1/256; 0 where no core copies.
    copy_overlap: u64,
    /// The first touch of a page.
    pub first_touch: u64,
    /// A fault without a fetch.
    pub fault: u64,
    /// Software of a fetch.
    pub fetch: u64,
    /// Migration of a page, but the transfer.
    pub migrate_page: u64,
    /// A migrating system call.
    pub migrate_call: u64,
    /// A page table entry scanned.
    pub scan_entry: u64,
    /// An accessed bit cleared.
    pub clear_entry: u64,
    /// An upper-level entry scanned.
    pub scan_upper: u64,
    /// A page's accessed bit by its frame.
    pub lru_entry: u64,
    /// What of the swap path's software is under its locks, in 1/256.
    pub swap_locked: u64,
    /// Marking a page, so that it faults.
    pub mark_page: u64,
    /// A TLB shootdown, on the core that asks for it.
    pub shootdown: u64,
    /// A shootdown, on another core.
    pub interrupt: u64,
    /// Taking one sample of an access.
    pub sample: u64,
}

fn ps(ns: f64) -> u64 {
    (ns * PS_PER_NS as f64).round() as u64
}

impl Costs {
    /// The costs that a platform gives, in picoseconds.
    #[must_use]
    pub fn of(platform: &Platform) -> Self {
        Self {
            l1: ps(platform.l1_ns),
            llc: ps(platform.llc_ns),
            walk: ps(platform.walk_ns),
            local: ps(platform.local_ns),
            stream_overlap: (platform.stream_overlap.max(1.0) * 256.0) as u64,
            copy_overlap: (platform.copy_overlap * 256.0) as u64,
            first_touch: ps(platform.first_touch_ns),
            fault: ps(platform.fault_ns),
            fetch: ps(platform.fetch_software_ns),
            migrate_page: ps(platform.migrate_page_ns),
            migrate_call: ps(platform.migrate_call_ns),
            scan_entry: ps(platform.scan_entry_ns),
            clear_entry: ps(platform.clear_entry_ns),
            scan_upper: ps(platform.scan_upper_ns),
            lru_entry: ps(platform.lru_entry_ns),
            swap_locked: (platform.swap_locked_share.clamp(0.0, 1.0) * 256.0) as u64,
            mark_page: ps(platform.mark_page_ns),
            shootdown: ps(platform.shootdown_ns),
            interrupt: ps(platform.interrupt_ns),
            sample: ps(platform.sample_ns),
        }
    }
}

impl Costs {
    /// Whether pages come and go by the hands of a core.
    #[must_use]
    pub fn core_copies(&self) -> bool {
        self.copy_overlap > 0
    }

    /// How long a core takes to read `bytes` of a page whose lines take `line_ps` each, from its first line
    /// on, since it waits for so many at once; nothing where no core copies.
    #[must_use]
    pub fn copy_ps(&self, bytes: u64, line_ps: u64) -> u64 {
        let lines = (bytes / LINE_BYTES).saturating_sub(1);
        (lines * line_ps * 256).checked_div(self.copy_overlap).unwrap_or(0)
    }

    /// The same of a page in local memory.
    #[must_use]
    pub fn copy_out_ps(&self, bytes: u64) -> u64 {
        self.copy_ps(bytes, self.llc + self.local)
    }
}

/// A core with the task that is pinned to it.
pub struct Core {
    /// The time that the task has come to, in picoseconds.
    pub clock_ps: u64,
    /// What it does next, from `next` on.
    pub accesses: Accesses,
    /// The next of `accesses`.
    pub next: usize,
    /// Whether the task is over.
    pub done: bool,
    /// Whether it is over after `accesses`.
    pub ending: bool,
    lines: LineFilter,
    tlb: Tlb,
    streams: Streams,
}

/// Why a core stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Its time is up.
    Time,
    /// It has done all that it was given.
    Empty,
    /// It touches a page for the first time.
    FirstTouch(PageIndex),
    /// It met a page that needs a fault.
    Fault(PageIndex, FaultKind, bool),
    /// It gave back so many pages of 4 KiB from this one on.
    Release(u64, u64),
    /// It used an address that the workload did not name.
    BadAddress(u64),
}

/// A sampler of cache misses.
#[derive(Default)]
pub struct Sampler {
    /// One in so many; 0 for none.
    pub period: u32,
    left: u32,
    /// How many were taken since the start.
    pub count: u64,
    /// Those that the policy has not had yet.
    pub taken: Vec<Sample>,
}

/// Most samples that wait for the policy; more are lost, as in hardware.
const MAX_SAMPLES: usize = 1 << 16;

impl Sampler {
    /// Starts anew with this period.
    pub fn start(&mut self, period: u32) {
        (self.period, self.left) = (period, period);
    }

    /// Counts a miss. Whether it was sampled.
    #[inline]
    fn miss(&mut self, page: PageIndex, write: bool) -> bool {
        if self.period == 0 {
            return false;
        }
        self.left -= 1;
        if self.left > 0 {
            return false;
        }
        self.left = self.period;
        self.count += 1;
        if self.taken.len() < MAX_SAMPLES {
            self.taken.push(Sample { page, write });
        }
        true
    }
}

/// A program on its node.
pub struct Node {
    /// The pages of its program.
    pub pages: Pages,
    /// Its cores, one a task.
    pub cores: Vec<Core>,
    /// What each kind of work costs here.
    pub costs: Costs,
    /// What happened here, in numbers.
    pub counts: Counts,
    /// What time went to beside the program itself.
    pub bill: Bill,
    /// The locks of its kernel's swap path.
    pub swap_lock: SwapLock,
    /// Takes the samples that the policy asked for.
    pub sampler: Sampler,
    /// Misses of each page, where they are counted.
    pub profile: Vec<u32>,
    /// What far accesses would cost, where that is noted.
    pub heat: Option<Box<Heat>>,
    /// Bytes in a page.
    pub page_bytes: u64,
    /// Latency of local memory, in nanoseconds.
    pub local_ns: f64,
    /// What may be done with far pages.
    pub model: AccessModel,
    /// Where its daemons run.
    pub daemon_core: DaemonCore,
    mapping: Mapping,
    pub(super) addresses: AddressMap,
    cache: Cache,
    lines_per_page_shift: u32,
    first_table_line: u64,
}

impl Node {
    /// A node with `tasks` cores for the pages of `addresses`, of which `local_pages` fit into local memory.
    /// None where there are more lines than the cache can tell apart.
    #[must_use]
    pub fn new(
        platform: &Platform,
        addresses: AddressMap,
        tasks: usize,
        local_pages: u32,
        model: AccessModel,
        mapping: Mapping,
    ) -> Option<Self> {
        let page_bytes = platform.page_bytes;
        let lines_per_page_shift = (page_bytes / LINE_BYTES).trailing_zeros();
        let first_table_line = u64::from(addresses.page_count()) << lines_per_page_shift;
        if first_table_line + u64::from(addresses.page_count()) / 4 > MAX_LINES {
            return None;
        }
        let core = || Core {
            clock_ps: 0,
            accesses: Accesses::new(),
            next: 0,
            done: false,
            ending: false,
            lines: LineFilter::new(platform.l1_bytes, LINE_BYTES),
            tlb: Tlb::new(platform.tlb_entries, platform.tlb_huge_entries),
            streams: Streams::default(),
        };
        Some(Self {
            pages: Pages::new(addresses.page_count(), page_bytes, local_pages),
            cores: (0..tasks).map(|_| core()).collect(),
            costs: Costs::of(platform),
            counts: Counts::default(),
            bill: Bill::default(),
            swap_lock: SwapLock::default(),
            sampler: Sampler::default(),
            profile: Vec::new(),
            heat: None,
            page_bytes,
            local_ns: platform.local_ns,
            daemon_core: platform.daemon_core,
            model,
            mapping,
            addresses,
            cache: Cache::new(platform.llc_bytes, LINE_BYTES),
            lines_per_page_shift,
            first_table_line,
        })
    }

    /// A page and, where memory is mapped in huge pages, its neighbours come to lie in `tier`, or far where
    /// there is no room. Where that is.
    pub fn install(&mut self, head: PageIndex, tier: Tier) -> Tier {
        let span = self.pages.span(head);
        let tier = if self.pages.take_frames(tier, span) {
            tier
        } else {
            // The far tier has a frame for every page.
            self.pages.take_frames(Tier::Far, span);
            Tier::Far
        };
        let reachable = tier == Tier::Local || self.model == AccessModel::Hybrid;
        let local = if tier == Tier::Local { bit::LOCAL } else { 0 };
        let mapped = if reachable { bit::MAPPED } else { 0 };
        self.pages.mapping_mut(head).fill(bit::TOUCHED | local | mapped);
        tier
    }

    /// Maps a page again after a fault at it.
    pub fn map_again(&mut self, head: PageIndex) {
        for flags in self.pages.mapping_mut(head) {
            *flags = *flags & !bit::MARKED | bit::MAPPED;
        }
    }

    /// The head under which an untouched page will be mapped.
    pub fn head_at_first_touch(&mut self, page: PageIndex) -> PageIndex {
        let region = (page >> self.pages.huge_shift) as usize;
        if self.mapping == Mapping::Huge {
            let first = (region as u32) << self.pages.huge_shift;
            let untouched = self.pages.flags[first as usize..][..self.pages.pages_per_huge() as usize]
                .iter()
                .all(|flags| flags & bit::TOUCHED == 0);
            if untouched {
                self.pages.regions[region] |= region_bit::HUGE;
            }
        }
        self.pages.head(page)
    }

    /// Forgets translations and cached lines of a mapping on all cores: its next access is seen again.
    pub fn forget(&mut self, head: PageIndex) {
        let huge = self.pages.is_huge(head);
        let key = if huge { huge_key(head >> self.pages.huge_shift) } else { base_key(head) };
        // Lines are filtered by address, which page numbers do not tell: all of them go.
        for core in &mut self.cores {
            core.tlb.invalidate(key);
            core.lines.clear();
        }
    }

    /// Forgets all translations and cached lines on all cores, as one flush of the whole TLB does.
    pub fn forget_all(&mut self) {
        for core in &mut self.cores {
            core.tlb.flush();
            core.lines.clear();
        }
    }

    /// The core of the program that its daemons are on, where they have none of their own.
    #[must_use]
    pub fn core_of_daemons(&self) -> Option<usize> {
        match self.daemon_core {
            DaemonCore::Shared => self.cores.iter().position(|core| !core.done),
            DaemonCore::Spare => None,
        }
    }

    /// Time that all cores of the program worked or waited, in picoseconds.
    #[must_use]
    pub fn core_ps(&self) -> u64 {
        self.cores.iter().map(|core| core.clock_ps).sum()
    }
}
