//! The path of an access: first-level cache, fault, translation, last-level cache, memory. This is where the
//! simulator spends its time, so all that a core needs on its way lies at hand while it works.

use spillway_policy::machine::PageIndex;
use spillway_policy::policy::{AccessModel, FaultKind};

use super::{Core, Costs, Node, Sampler, Stop, Streams};
use crate::access::{Access, Action};
use crate::memory::LINE_BYTES;
use crate::simulator::cache::{Cache, LineFilter, Lookup};
use crate::simulator::heat::Heat;
use crate::simulator::link::{Direction, Link, PS_PER_NS};
use crate::simulator::metrics::Counts;
use crate::simulator::pages::{AddressMap, Pages, bit, region_bit};
use crate::simulator::platform::LINE_MESSAGE_BYTES;
use crate::simulator::tlb::{Tlb, base_key, huge_key};

/// One core at work.
struct Path<'a> {
    clock_ps: u64,
    /// Time of accesses, and how many, since the core began.
    memory_ps: u64,
    accesses: u64,
    lines: &'a mut LineFilter,
    tlb: &'a mut Tlb,
    streams: &'a mut Streams,
    pages: &'a mut Pages,
    addresses: &'a AddressMap,
    cache: &'a mut Cache,
    link: &'a mut Link,
    costs: &'a Costs,
    counts: &'a mut Counts,
    sampler: &'a mut Sampler,
    profile: &'a mut [u32],
    heat: Option<&'a mut Heat>,
    model: AccessModel,
    lines_per_page_shift: u32,
    first_table_line: u64,
}

impl Node {
    /// Lets a core work until its clock reaches `until_ps`, it has made `most` accesses, or something stops
    /// it. An access that stops is not done: it comes again.
    pub fn run(&mut self, core: usize, until_ps: u64, most: usize, link: &mut Link) -> Stop {
        let Core { clock_ps, accesses, next, lines, tlb, streams, .. } = &mut self.cores[core];
        let mut path = Path {
            clock_ps: *clock_ps,
            memory_ps: 0,
            accesses: 0,
            lines,
            tlb,
            streams,
            pages: &mut self.pages,
            addresses: &self.addresses,
            cache: &mut self.cache,
            link,
            costs: &self.costs,
            counts: &mut self.counts,
            sampler: &mut self.sampler,
            profile: &mut self.profile,
            heat: self.heat.as_deref_mut(),
            model: self.model,
            lines_per_page_shift: self.lines_per_page_shift,
            first_table_line: self.first_table_line,
        };
        let end = next.saturating_add(most);
        let stop = loop {
            if path.clock_ps >= until_ps || *next >= end {
                break Stop::Time;
            }
            let Some(&access) = accesses.get(*next) else { break Stop::Empty };
            if let Some(stop) = path.access(access) {
                break stop;
            }
            *next += 1;
        };
        *clock_ps = path.clock_ps;
        path.counts.accesses += path.accesses;
        path.counts.memory_ps += path.memory_ps;
        stop
    }
}

impl Path<'_> {
    #[inline(always)]
    fn access(&mut self, access: Access) -> Option<Stop> {
        let (address, write) = match access.action() {
            Action::Read(address) => (address, false),
            Action::Write(address) => (address, true),
            Action::ComputeNs(ns) => {
                // A trace may say anything; who let this core work looks at what came of it.
                self.clock_ps = self.clock_ps.saturating_add(ns.saturating_mul(PS_PER_NS));
                return None;
            }
            Action::Release(page_number, pages) => return Some(Stop::Release(page_number, pages)),
        };
        let line_address = address / LINE_BYTES;
        let mut time_ps = self.costs.l1;
        if !self.lines.has(line_address, write) {
            let Some(page) = self.addresses.page_of(address) else { return Some(Stop::BadAddress(address)) };
            if let Some(stop) = self.check(page, write) {
                return Some(stop);
            }
            let within = line_address & ((1 << self.lines_per_page_shift) - 1);
            let line = u64::from(page) << self.lines_per_page_shift | within;
            time_ps += self.translate(page);
            time_ps += self.load(page, line, write);
            self.lines.fill(line_address, write);
        }
        self.clock_ps += time_ps;
        self.memory_ps += time_ps;
        self.accesses += 1;
        None
    }

    /// Sets the page's bits as the hardware does; stops where it is not mapped.
    #[inline(always)]
    fn check(&mut self, page: PageIndex, write: bool) -> Option<Stop> {
        let flags = self.pages.flags[page as usize];
        if flags & bit::MAPPED == 0 {
            return Some(self.stop_at(page, flags, write));
        }
        let dirty = if write { bit::DIRTY } else { 0 };
        let after = (flags | bit::ACCESSED | bit::IN_USE | dirty) & !bit::FRESH;
        if after != flags {
            if dirty != 0 && flags & bit::DIRTY == 0 && self.pages.has_far_copy(page) {
                // Write-protected: the fault gives the copy up, and the access comes again.
                self.pages.set_far_copy(page, false);
                return Some(Stop::Fault(page, FaultKind::Minor, true));
            }
            self.pages.flags[page as usize] = after;
            if flags & bit::FRESH != 0 {
                self.counts.promotions_used += 1;
                self.counts.prefetches_used += u64::from(self.model == AccessModel::PageFetch);
            }
        }
        self.pages.regions[(page >> self.pages.huge_shift) as usize] |= region_bit::ACCESSED;
        None
    }

    #[cold]
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

    /// Time of the translation: none where the TLB has it, else a walk whose last load goes through the
    /// cache.
    #[inline(always)]
    fn translate(&mut self, page: PageIndex) -> u64 {
        let region = page >> self.pages.huge_shift;
        let huge = self.pages.regions[region as usize] & region_bit::HUGE != 0;
        let key = if huge { huge_key(region) } else { base_key(page) };
        if self.tlb.access(key) {
            return 0;
        }
        self.counts.walks += 1;
        // Entries of 8 bytes; tables of the level above lie behind those of the pages, and all of them are
        // local.
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
    #[inline(always)]
    fn load(&mut self, page: PageIndex, line: u64, write: bool) -> u64 {
        let evicted = match self.cache.access(line, write) {
            Lookup::Hit => return self.costs.llc,
            Lookup::Miss(evicted) => evicted,
        };
        if let Some(victim) = evicted {
            self.write_line_back(victim);
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
            self.link.line(Direction::In, self.clock_ps)
        };
        let follows = self.streams.follows(line);
        let waited = |ps: u64| if follows { ps * 256 / self.costs.stream_overlap } else { ps };
        let waited_ps = waited(memory_ps);
        if let Some(heat) = &mut self.heat {
            let longer_ps = waited(self.link.least_line_ps()).saturating_sub(waited_ps);
            heat.used(page, self.clock_ps, longer_ps);
        }
        self.costs.llc + waited_ps + if sampled { self.costs.sample } else { 0 }
    }

    /// A dirty line leaves the cache; nobody waits for it.
    fn write_line_back(&mut self, line: u64) {
        if line >= self.first_table_line {
            return;
        }
        let page = (line >> self.lines_per_page_shift) as usize;
        if self.pages.flags[page] & bit::LOCAL == 0 {
            self.link.line(Direction::Out, self.clock_ps);
            self.counts.traffic.access_bytes += LINE_MESSAGE_BYTES;
        }
    }
}
