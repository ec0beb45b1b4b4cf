//! One program on one node: its cores, its caches, its pages - and the path of an access through them, which is
//! where the simulator spends its time.

use spillway_core::machine::{PageIndex, Sample, Tier};
use spillway_core::policy::{AccessModel, FaultKind, Mapping};

use super::cache::{Cache, LineFilter, Lookup, MAX_LINES};
use super::link::{Direction, Link, PS_PER_NS};
use super::metrics::{Bill, Counts};
use super::pages::{AddressMap, Pages, bit, region_bit};
use super::platform::{LINE_BYTES, LINE_MESSAGE_BYTES, Platform};
use super::tlb::{Tlb, base_key, huge_key};
use crate::access::{Access, Accesses, Action};

/// Costs in picoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    l1: u64,
    llc: u64,
    walk: u64,
    local: u64,
    /// By what the latency of a line is divided that follows a missed one, in 1/256.
    stream_overlap: u64,
    /// First touch.
    pub first_touch: u64,
    /// A fault without a fetch.
    pub fault: u64,
    /// Software of a fetch.
    pub fetch: u64,
    /// Migration of a page, but the transfer.
    pub migrate_page: u64,
    /// A migrating system call.
    pub migrate_call: u64,
    /// A page table entry looked at.
    pub scan_entry: u64,
    /// An accessed bit cleared.
    pub clear_entry: u64,
    /// An upper-level entry looked at.
    pub scan_upper: u64,
    /// A page's accessed bit by its frame.
    pub lru_entry: u64,
    /// A page marked.
    pub mark_page: u64,
    /// A shootdown, here.
    pub shootdown: u64,
    /// A shootdown, on another core.
    pub interrupt: u64,
    /// A sample.
    pub sample: u64,
}

fn ps(ns: f64) -> u64 {
    (ns * PS_PER_NS as f64).round() as u64
}

impl Costs {
    /// A platform's.
    #[must_use]
    pub fn of(platform: &Platform) -> Self {
        Self {
            l1: ps(platform.l1_ns),
            llc: ps(platform.llc_ns),
            walk: ps(platform.walk_ns),
            local: ps(platform.local_ns),
            stream_overlap: (platform.stream_overlap.max(1.0) * 256.0) as u64,
            first_touch: ps(platform.first_touch_ns),
            fault: ps(platform.fault_ns),
            fetch: ps(platform.fetch_software_ns),
            migrate_page: ps(platform.migrate_page_ns),
            migrate_call: ps(platform.migrate_call_ns),
            scan_entry: ps(platform.scan_entry_ns),
            clear_entry: ps(platform.clear_entry_ns),
            scan_upper: ps(platform.scan_upper_ns),
            lru_entry: ps(platform.lru_entry_ns),
            mark_page: ps(platform.mark_page_ns),
            shootdown: ps(platform.shootdown_ns),
            interrupt: ps(platform.interrupt_ns),
            sample: ps(platform.sample_ns),
        }
    }
}

/// A core with the task that is pinned to it.
pub struct Core {
    /// The task's time.
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

/// The lines that a core missed last: what follows one of them is a stream that hardware runs ahead of.
struct Streams {
    last_lines: [u64; STREAMS],
    oldest: usize,
}

/// Streams that a core's prefetcher follows (Ivy Bridge: 32, one a page; fewer are enough to tell scans from the rest).
const STREAMS: usize = 8;

impl Streams {
    /// Whether a missed line goes on with a stream.
    #[inline]
    fn follows(&mut self, line: u64) -> bool {
        if let Some(last) = self.last_lines.iter_mut().find(|last| **last == line.wrapping_sub(1)) {
            *last = line;
            return true;
        }
        self.last_lines[self.oldest] = line;
        self.oldest = (self.oldest + 1) % STREAMS;
        false
    }
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
    /// It used an address that the workload did not name.
    BadAddress(u64),
}

/// A sampler of cache misses.
#[derive(Default)]
pub struct Sampler {
    /// One in so many; 0 for none.
    pub period: u32,
    left: u32,
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
        if self.taken.len() < MAX_SAMPLES {
            self.taken.push(Sample { page, write });
        }
        true
    }
}

/// A program on its node.
pub struct Node {
    /// Its pages.
    pub pages: Pages,
    /// Its cores.
    pub cores: Vec<Core>,
    /// What things cost.
    pub costs: Costs,
    /// What happened.
    pub counts: Counts,
    /// What time went to beside the program itself.
    pub bill: Bill,
    /// Samples.
    pub sampler: Sampler,
    /// Misses of each page, where they are counted.
    pub profile: Vec<u32>,
    /// Bytes in a page.
    pub page_bytes: u64,
    /// Latency of local memory, in nanoseconds.
    pub local_ns: f64,
    /// What may be done with far pages.
    pub model: AccessModel,
    mapping: Mapping,
    addresses: AddressMap,
    cache: Cache,
    lines_per_page_shift: u32,
    first_table_line: u64,
}

impl Node {
    /// A node with `tasks` cores for the pages of `addresses`, of which `local_pages` fit into local memory. None
    /// where there are more lines than the cache can tell apart.
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
            tlb: Tlb::new(platform.tlb_entries),
            streams: Streams { last_lines: [u64::MAX - 1; STREAMS], oldest: 0 },
        };
        Some(Self {
            pages: Pages::new(addresses.page_count(), page_bytes, local_pages),
            cores: (0..tasks).map(|_| core()).collect(),
            costs: Costs::of(platform),
            counts: Counts::default(),
            bill: Bill::default(),
            sampler: Sampler::default(),
            profile: Vec::new(),
            page_bytes,
            local_ns: platform.local_ns,
            model,
            mapping,
            addresses,
            cache: Cache::new(platform.llc_bytes, LINE_BYTES),
            lines_per_page_shift,
            first_table_line,
        })
    }

    /// Lets a core work until its clock reaches `until_ps`, it has made `most` accesses, or something stops it. An
    /// access that stops is not done: it comes again.
    pub fn run(&mut self, core: usize, until_ps: u64, most: usize, link: &mut Link) -> Stop {
        let end = self.cores[core].next.saturating_add(most);
        loop {
            let this = &self.cores[core];
            if this.clock_ps >= until_ps || this.next >= end {
                return Stop::Time;
            }
            let Some(&access) = this.accesses.get(this.next) else { return Stop::Empty };
            if let Some(stop) = self.access(core, access, link) {
                return stop;
            }
            self.cores[core].next += 1;
        }
    }

    #[inline]
    fn access(&mut self, core: usize, access: Access, link: &mut Link) -> Option<Stop> {
        let (address, write) = match access.action() {
            Action::Read(address) => (address, false),
            Action::Write(address) => (address, true),
            Action::ComputeNs(ns) => {
                self.cores[core].clock_ps += ns * PS_PER_NS;
                return None;
            }
        };
        let this = &mut self.cores[core];
        let line_address = address / LINE_BYTES;
        if this.lines.has(line_address, write) {
            this.clock_ps += self.costs.l1;
            self.counts.accesses += 1;
            self.counts.memory_ps += self.costs.l1;
            return None;
        }
        let Some(page) = self.addresses.page_of(address) else { return Some(Stop::BadAddress(address)) };
        if let Some(stop) = self.check(page, write) {
            return Some(stop);
        }
        let within = line_address & ((1 << self.lines_per_page_shift) - 1);
        let line = u64::from(page) << self.lines_per_page_shift | within;
        let time_ps = self.costs.l1 + self.translate(core, page) + self.load(core, page, line, write, link);
        let this = &mut self.cores[core];
        this.lines.fill(line_address, write);
        this.clock_ps += time_ps;
        self.counts.accesses += 1;
        self.counts.memory_ps += time_ps;
        None
    }

    /// Sets the page's bits as the hardware does; stops where it is not mapped.
    #[inline]
    fn check(&mut self, page: PageIndex, write: bool) -> Option<Stop> {
        let flags = self.pages.flags[page as usize];
        if flags & bit::MAPPED == 0 {
            return Some(self.stop_at(page, flags, write));
        }
        let dirty = if write { bit::DIRTY } else { 0 };
        let after = (flags | bit::ACCESSED | bit::IN_USE | dirty) & !bit::FRESH;
        if after != flags {
            self.pages.flags[page as usize] = after;
            if flags & bit::FRESH != 0 {
                self.counts.promotions_used += 1;
                self.counts.prefetches_used += u64::from(self.model == AccessModel::PageFetch);
            }
        }
        self.pages.regions[(page >> self.pages.huge_shift) as usize] |= region_bit::ACCESSED;
        None
    }

    fn stop_at(&self, page: PageIndex, flags: u8, write: bool) -> Stop {
        if flags & bit::TOUCHED == 0 {
            return Stop::FirstTouch(page);
        }
        let kind = if flags & bit::MARKED != 0 {
            FaultKind::Hint
        } else if flags & bit::LOCAL != 0 {
            FaultKind::Minor
        } else {
            FaultKind::Missing
        };
        Stop::Fault(self.pages.head(page), kind, write)
    }

    /// Time of the translation: none where the TLB has it, else a walk whose last load goes through the cache.
    #[inline]
    fn translate(&mut self, core: usize, page: PageIndex) -> u64 {
        let region = page >> self.pages.huge_shift;
        let huge = self.pages.regions[region as usize] & region_bit::HUGE != 0;
        let key = if huge { huge_key(region) } else { base_key(page) };
        if self.cores[core].tlb.access(key) {
            return 0;
        }
        self.counts.walks += 1;
        // Entries of 8 bytes; tables of the level above lie behind those of the pages, and all of them are local.
        let line = match huge {
            false => self.first_table_line + u64::from(page / 8),
            true => self.first_table_line + (self.pages.flags.len() as u64 + u64::from(region)) / 8,
        };
        let load = match self.cache.access(line, false) {
            Lookup::Hit => 0,
            Lookup::Miss(_) => self.costs.local,
        };
        self.costs.walk + self.costs.llc + load
    }

    /// Time of the data itself.
    #[inline]
    fn load(&mut self, core: usize, page: PageIndex, line: u64, write: bool, link: &mut Link) -> u64 {
        let evicted = match self.cache.access(line, write) {
            Lookup::Hit => return self.costs.llc,
            Lookup::Miss(evicted) => evicted,
        };
        let now_ps = self.cores[core].clock_ps;
        if let Some(victim) = evicted {
            self.write_line_back(victim, now_ps, link);
        }
        if let Some(misses) = self.profile.get_mut(page as usize) {
            *misses += 1;
        }
        let sampled = self.sampler.miss(page, write);
        let memory_ps = if self.pages.flags[page as usize] & bit::LOCAL != 0 {
            self.counts.local_misses += 1;
            self.costs.local
        } else {
            self.counts.far_misses += 1;
            self.counts.traffic.access_bytes += LINE_MESSAGE_BYTES;
            link.line(Direction::In, now_ps)
        };
        let follows = self.cores[core].streams.follows(line);
        let waited_ps = if follows { memory_ps * 256 / self.costs.stream_overlap } else { memory_ps };
        self.costs.llc + waited_ps + if sampled { self.costs.sample } else { 0 }
    }

    /// A dirty line leaves the cache; nobody waits for it.
    fn write_line_back(&mut self, line: u64, now_ps: u64, link: &mut Link) {
        if line >= self.first_table_line {
            return;
        }
        let page = (line >> self.lines_per_page_shift) as usize;
        if self.pages.flags[page] & bit::LOCAL == 0 {
            link.line(Direction::Out, now_ps);
            self.counts.traffic.access_bytes += LINE_MESSAGE_BYTES;
        }
    }

    /// A page and, where memory is mapped in huge pages, its neighbours come to lie in `tier`, or far where there is
    /// no room. Where that is.
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
            core.lines.drop_lines(0, u64::MAX);
        }
    }

    /// Time that all cores of the program worked or waited, in picoseconds.
    #[must_use]
    pub fn core_ps(&self) -> u64 {
        self.cores.iter().map(|core| core.clock_ps).sum()
    }
}
