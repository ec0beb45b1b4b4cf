//! A machine for tests of policies: does what it is told, at no cost, and remembers.

use spillway_core::page::PAGE_BYTES;
use std::collections::BTreeMap;

use crate::machine::{Call, LinkTelemetry, PageIndex, Sample, Scan, Tier, TieredMachine};
use crate::policy::{AccessModel, Fault, FaultKind, Mapping, Policy};

/// Pages in a huge mapping of a test.
pub const PAGES_PER_HUGE: u32 = 8;

/// A machine of a few pages, which does what it is told and remembers it.
pub struct TestMachine {
    pub now_ns: u64,
    pub tiers: Vec<Option<Tier>>,
    pub accessed: Vec<bool>,
    pub upper_accessed: Vec<bool>,
    pub marked: Vec<bool>,
    /// When marks took effect, where that is not at once.
    pub marked_from_ns: Option<u64>,
    /// Whether far pages can be put out of reach, and whether they are.
    pub can_page_fetch: bool,
    pub page_fetch: bool,
    /// Whether it is one that scans by itself.
    pub scans_by_itself: bool,
    pub unmapped: Vec<bool>,
    pub huge: Vec<bool>,
    pub local_capacity: u32,
    /// Every page's accessed bit reads as set.
    pub always_accessed: bool,
    /// Page table entries scanned.
    pub scanned: u64,
    /// Entries of the page table's upper level that were scanned.
    pub upper_scanned: u64,
    /// Timers set, by number.
    pub timers: BTreeMap<u32, u64>,
    /// Migrations and exchanges, in order.
    pub moves: Vec<(PageIndex, Tier)>,
    /// The sizes of fetched messages, in pages.
    pub calls: Vec<usize>,
    pub samples: Vec<Sample>,
    pub sample_period: u32,
    /// Whether samples were ever asked for.
    pub samples_asked_for: bool,
    /// What samples have cost.
    pub sampling_ns: u64,
    pub counter_window_ns: u64,
    pub link: LinkTelemetry,
    pub splits: Vec<PageIndex>,
    /// Pages of which the far copy was asked to be kept, in order.
    pub copies: Vec<PageIndex>,
}

impl TestMachine {
    /// `pages` untouched pages, of which `local_capacity` fit.
    pub fn new(pages: u32, local_capacity: u32) -> Self {
        let count = pages as usize;
        Self {
            now_ns: 0,
            tiers: vec![None; count],
            accessed: vec![false; count],
            upper_accessed: vec![false; count.div_ceil(PAGES_PER_HUGE as usize)],
            marked: vec![false; count],
            marked_from_ns: None,
            can_page_fetch: true,
            page_fetch: false,
            scans_by_itself: false,
            unmapped: vec![false; count],
            huge: vec![false; count.div_ceil(PAGES_PER_HUGE as usize)],
            local_capacity,
            always_accessed: false,
            scanned: 0,
            upper_scanned: 0,
            timers: BTreeMap::new(),
            moves: Vec::new(),
            calls: Vec::new(),
            samples: Vec::new(),
            sample_period: 0,
            samples_asked_for: false,
            sampling_ns: 0,
            counter_window_ns: 0,
            link: LinkTelemetry { available_bytes_per_s: 1e10, delta_latency_ns: 1000.0, traffic_bytes: 0 },
            splits: Vec::new(),
            copies: Vec::new(),
        }
    }

    /// The same, with the first `local` pages touched and local.
    pub fn with_local(pages: u32, local: u32) -> Self {
        let mut machine = Self::new(pages, local);
        machine.tiers[..local as usize].fill(Some(Tier::Local));
        machine
    }

    /// The program touches pages for the first time, in order.
    pub fn touch(&mut self, policy: &mut dyn Policy, pages: impl IntoIterator<Item = PageIndex>) {
        for page in pages {
            if policy.mapping() == Mapping::Huge {
                self.huge[(page / PAGES_PER_HUGE) as usize] = true;
            }
            let mut tier = policy.place(page, self);
            if tier == Tier::Local && self.free_pages(Tier::Local) < self.span(page) {
                tier = Tier::Far;
            }
            for at in page..page + self.span(page) {
                self.tiers[at as usize] = Some(tier);
            }
            policy.on_first_touch(page, tier, self);
        }
    }

    /// The program gives pages back.
    pub fn release(&mut self, policy: &mut dyn Policy, pages: impl IntoIterator<Item = PageIndex>) {
        for page in pages {
            let end = page + self.span(page);
            for at in page as usize..end as usize {
                self.tiers[at] = None;
                (self.accessed[at], self.marked[at], self.unmapped[at]) = (false, false, false);
            }
            self.huge[(page / PAGES_PER_HUGE) as usize] = false;
            policy.on_release(page..end, self);
        }
    }

    /// The hardware's side of an access.
    pub fn access(&mut self, page: PageIndex) {
        self.accessed[page as usize] = true;
        self.upper_accessed[(page / PAGES_PER_HUGE) as usize] = true;
    }

    /// The program accesses a page, with the fault that it meets, if any. Whether it met one.
    pub fn run(&mut self, policy: &mut dyn Policy, page: PageIndex) -> bool {
        self.run_as(policy, page, 0)
    }

    /// As [`Self::run`], by the thread of number `task`.
    pub fn run_as(&mut self, policy: &mut dyn Policy, page: PageIndex, task: u32) -> bool {
        let at = page as usize;
        let far = self.tiers[at] == Some(Tier::Far);
        let kind = if std::mem::take(&mut self.marked[at]) {
            Some(FaultKind::Hint)
        } else if far && (self.page_fetch || policy.access_model() == AccessModel::PageFetch) {
            Some(FaultKind::Missing)
        } else if std::mem::take(&mut self.unmapped[at]) {
            Some(FaultKind::Minor)
        } else {
            None
        };
        if let Some(kind) = kind {
            policy.on_fault(Fault { page, kind, write: false, task }, self);
        }
        self.access(page);
        kind.is_some()
    }

    /// Lets time pass, with the timers that fall due.
    pub fn pass_ns(&mut self, policy: &mut dyn Policy, ns: u64) {
        let end = self.now_ns + ns;
        while let Some((timer, at)) =
            self.timers.iter().map(|(&timer, &at)| (timer, at)).min_by_key(|due| due.1)
        {
            if at > end {
                break;
            }
            self.timers.remove(&timer);
            self.now_ns = at.max(self.now_ns);
            policy.on_timer(timer, self);
        }
        self.now_ns = end;
    }

    /// Pages that lie in a tier.
    pub fn pages_in(&self, tier: Tier) -> Vec<PageIndex> {
        (0..self.tiers.len() as u32).filter(|&page| self.tiers[page as usize] == Some(tier)).collect()
    }

    fn relocate(&mut self, page: PageIndex, to: Tier) {
        for at in page..page + self.span(page) {
            self.tiers[at as usize] = Some(to);
            self.accessed[at as usize] = false;
            self.marked[at as usize] = false;
            self.unmapped[at as usize] = false;
        }
        self.moves.push((page, to));
    }
}

impl TieredMachine for TestMachine {
    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn page_count(&self) -> u32 {
        self.tiers.len() as u32
    }

    fn page_bytes(&self) -> u64 {
        PAGE_BYTES
    }

    fn pages_per_huge(&self) -> u32 {
        PAGES_PER_HUGE
    }

    fn capacity_pages(&self, tier: Tier) -> u32 {
        if tier == Tier::Local { self.local_capacity } else { self.page_count() }
    }

    fn free_pages(&self, tier: Tier) -> u32 {
        self.capacity_pages(tier) - self.pages_in(tier).len() as u32
    }

    fn tier_of(&self, page: PageIndex) -> Option<Tier> {
        self.tiers[page as usize]
    }

    fn span(&self, page: PageIndex) -> u32 {
        if self.huge[(page / PAGES_PER_HUGE) as usize] { PAGES_PER_HUGE } else { 1 }
    }

    fn take_accessed(&mut self, page: PageIndex) -> bool {
        self.scanned += 1;
        std::mem::take(&mut self.accessed[page as usize]) || self.always_accessed
    }

    fn scan(&mut self, scan: Scan, visit: &mut dyn FnMut(PageIndex, bool)) {
        let end = (scan.start + scan.pages).min(self.page_count());
        let mut page = scan.start;
        while page < end {
            let region = (page / PAGES_PER_HUGE) as usize;
            if scan.hierarchical && (page == scan.start || page.is_multiple_of(PAGES_PER_HUGE)) {
                self.upper_scanned += 1;
                if !std::mem::take(&mut self.upper_accessed[region]) {
                    page = (region as u32 + 1) * PAGES_PER_HUGE;
                    continue;
                }
            }
            if self.tiers[page as usize] == Some(scan.tier) {
                let accessed = self.take_accessed(page);
                visit(page, accessed);
            }
            page += self.span(page);
        }
    }

    fn mark(&mut self, pages: &[PageIndex]) {
        pages.iter().for_each(|&page| self.marked[page as usize] = true);
    }

    fn set_page_fetch(&mut self, on: bool) -> bool {
        self.page_fetch = on && self.can_page_fetch;
        self.can_page_fetch
    }

    fn is_marked(&self, page: PageIndex) -> bool {
        self.marked[page as usize]
    }

    fn marked_from_ns(&self, _page: PageIndex, asked_ns: u64) -> u64 {
        self.marked_from_ns.unwrap_or(asked_ns)
    }

    fn unmark(&mut self, page: PageIndex) {
        self.marked[page as usize] = false;
        self.unmapped[page as usize] = false;
    }

    fn migrate(&mut self, pages: &[PageIndex], to: Tier, _call: Call) -> u32 {
        self.calls.push(pages.len());
        let mut moved = 0;
        for &page in pages {
            let from = self.tiers[page as usize];
            if from.is_some() && from != Some(to) && self.free_pages(to) >= self.span(page) {
                self.relocate(page, to);
                moved += 1;
            }
        }
        moved
    }

    fn read_ahead(&mut self, pages: &[PageIndex]) -> u32 {
        let far = |page: &PageIndex| self.tiers[*page as usize] == Some(Tier::Far);
        let pages: Vec<_> = pages.iter().copied().filter(far).collect();
        let came = self.migrate(&pages, Tier::Local, Call::Locked);
        pages.iter().for_each(|&page| self.unmapped[page as usize] = true);
        came
    }

    fn exchange(&mut self, pairs: &[(PageIndex, PageIndex)], _call: Call) -> u32 {
        self.calls.push(pairs.len());
        for &(far, local) in pairs {
            assert_eq!((self.tier_of(far), self.tier_of(local)), (Some(Tier::Far), Some(Tier::Local)));
            self.relocate(local, Tier::Far);
            self.relocate(far, Tier::Local);
        }
        pairs.len() as u32
    }

    fn write_back(&mut self, page: PageIndex) {
        assert_eq!(self.tier_of(page), Some(Tier::Local));
        self.relocate(page, Tier::Far);
    }

    fn unmap(&mut self, pages: &[PageIndex]) {
        pages.iter().for_each(|&page| self.unmapped[page as usize] = true);
    }

    fn split(&mut self, page: PageIndex) {
        self.huge[(page / PAGES_PER_HUGE) as usize] = false;
        self.splits.push(page);
    }

    fn keep_far_copy(&mut self, page: PageIndex) {
        assert_eq!(self.tier_of(page), Some(Tier::Local));
        self.copies.push(page);
    }

    fn scans_by_itself(&self) -> bool {
        self.scans_by_itself
    }

    fn sample_accesses(&mut self, period: u32) {
        self.sample_period = period;
        self.samples_asked_for |= period > 0;
    }

    fn take_samples(&mut self, samples: &mut Vec<Sample>) {
        self.samples_asked_for = true;
        samples.append(&mut self.samples);
    }

    fn sampling_ns(&self) -> u64 {
        self.sampling_ns
    }

    fn count_accesses(&mut self, window_ns: u64) {
        self.counter_window_ns = window_ns;
    }

    fn set_timer(&mut self, timer: u32, after_ns: u64) {
        self.timers.insert(timer, self.now_ns + after_ns);
    }

    fn link(&self) -> LinkTelemetry {
        self.link
    }
}
