//! The machine that a policy acts on while one of its events is handled: does what it asks for, and sums up
//! what that costs.

use spillway_policy::machine::{Call, LinkTelemetry, PageIndex, Sample, Scan, Tier, TieredMachine};
use spillway_policy::policy::AccessModel;

use super::link::{Direction, Link, PS_PER_NS};
use super::metrics::{Bill, Work};
use super::node::Node;
use super::pages::{bit, region_bit};
use super::platform::DaemonCore;
use super::timers::Timers;

/// More pages than this are marked or unmapped with one flush of the whole TLB (Linux:
/// `tlb_single_page_flush_ceiling`).
const FLUSH_CEILING: usize = 33;

/// A node, as the policy sees it during one event.
pub struct View<'a> {
    /// The node whose pages the policy acts on.
    pub node: &'a mut Node,
    /// The link between the node and far memory.
    pub link: &'a mut Link,
    /// The timers that the policy has set.
    pub timers: &'a mut Timers,
    /// When the event began, in picoseconds.
    pub start_ps: u64,
    /// The core that waits for the policy; none while a daemon works.
    pub core: Option<usize>,
    /// The page that a fault stopped at.
    pub faulting: Option<PageIndex>,
    /// What it cost so far, transfers that are waited for included.
    pub bill: Bill,
    /// When the last fetched page arrives; work until then is hidden behind the transfer (dcm 3.3).
    pub arrival_ps: u64,
    /// What of `bill` was transfers.
    pub copied_ps: u64,
}

impl View<'_> {
    fn charge(&mut self, work: Work, ps: u64) {
        self.bill.add(work, ps);
    }

    fn now_ps(&self) -> u64 {
        self.start_ps + self.bill.total_ps()
    }

    /// Waits for what is still on its way, and says what all of it cost.
    pub fn settle(mut self) -> Bill {
        let waiting = self.arrival_ps.saturating_sub(self.now_ps());
        self.charge(Work::Migration, waiting);
        self.bill
    }

    fn scan_work(tier: Tier) -> Work {
        if tier == Tier::Local { Work::ScanLocal } else { Work::ScanFar }
    }

    /// Interrupts the other cores of the program, so that they forget a translation. Where it begins it takes
    /// longer with each of them; what it takes with one is part of the costs of who begins.
    fn shoot_down(&mut self) {
        let mut interrupted = 0_u64;
        let own = self.core.or_else(|| self.node.core_of_daemons());
        for (at, core) in self.node.cores.iter_mut().enumerate() {
            if Some(at) != own && !core.done {
                core.clock_ps += self.node.costs.interrupt;
                self.node.bill.add(Work::Migration, self.node.costs.interrupt);
                interrupted += 1;
            }
        }
        self.charge(Work::Migration, interrupted.saturating_sub(1) * self.node.costs.interrupt);
    }

    /// The cores forget the translations of pages that changed together.
    fn forget(&mut self, pages: &[PageIndex]) {
        if pages.len() > FLUSH_CEILING {
            self.node.forget_all();
        } else {
            pages.iter().for_each(|&page| self.node.forget(page));
        }
    }

    /// Whether a page can move to a tier.
    fn can_move(&self, head: PageIndex, to: Tier) -> bool {
        let there = self.node.pages.tier_of(head);
        there.is_some_and(|tier| tier != to) && self.node.pages.free(to) >= self.node.pages.span(head)
    }

    /// Whether a local page's far copy is as good as itself, so that it need not be written: where pages are
    /// fetched, one that was not written since it came, or never. Where far pages are accessed in place there
    /// is one copy of each, but for those that were asked to be kept.
    fn is_clean(&self, head: PageIndex) -> bool {
        let pages = &self.node.pages;
        if pages.has_far_copy(head) {
            return true;
        }
        let mapping = head as usize..(head + pages.span(head)) as usize;
        self.node.model == AccessModel::PageFetch
            && pages.flags[mapping].iter().all(|flags| flags & (bit::DIRTY | bit::LOCAL) == bit::LOCAL)
    }

    /// A clean page's frame is given back: nothing is sent.
    fn drop_clean(&mut self, head: PageIndex) {
        self.relocate(head, Tier::Far);
        self.node.counts.traffic.migration_bytes -= self.bytes_of(head);
        self.charge(Work::Migration, self.node.costs.mark_page + self.node.costs.shootdown);
        self.shoot_down();
    }

    /// Moves a page's frame and its bits, and counts it; costs nothing by itself.
    fn relocate(&mut self, head: PageIndex, to: Tier) {
        self.node.pages.set_far_copy(head, false);
        let span = self.node.pages.span(head);
        let from = if to == Tier::Local { Tier::Far } else { Tier::Local };
        self.node.pages.take_frames(to, span);
        self.node.pages.give_frames(from, span);
        let fetch = self.node.model == AccessModel::PageFetch;
        let demanded = fetch && self.faulting == Some(head);
        let bits = match (to, demanded) {
            (Tier::Local, true) => bit::TOUCHED | bit::MAPPED | bit::LOCAL,
            (Tier::Local, false) => bit::TOUCHED | bit::MAPPED | bit::LOCAL | bit::FRESH,
            (Tier::Far, _) if fetch => bit::TOUCHED,
            (Tier::Far, _) => bit::TOUCHED | bit::MAPPED,
        };
        for flags in self.node.pages.mapping_mut(head) {
            *flags = *flags & bit::IN_USE | bits;
        }
        let counts = &mut self.node.counts;
        match to {
            Tier::Local => {
                counts.promotions += u64::from(span);
                counts.promotions_used += u64::from(demanded);
                counts.prefetches += u64::from(fetch && !demanded);
            }
            Tier::Far => counts.demotions += u64::from(span),
        }
        counts.traffic.migration_bytes += u64::from(span) * self.node.page_bytes;
        self.node.forget(head);
    }

    fn bytes_of(&self, head: PageIndex) -> u64 {
        u64::from(self.node.pages.span(head)) * self.node.page_bytes
    }

    /// Pages that were asked for together and lie together come as one message.
    fn fetch(&mut self, pages: &[PageIndex]) -> u32 {
        let mut moved = 0;
        let mut run_bytes = 0;
        let mut run_end = None;
        for &page in pages {
            if !self.can_move(page, Tier::Local) {
                continue;
            }
            if run_end != Some(page) {
                self.send_fetch(std::mem::take(&mut run_bytes));
            }
            run_end = Some(page + self.node.pages.span(page));
            run_bytes += self.bytes_of(page);
            self.relocate(page, Tier::Local);
            self.charge(Work::Migration, self.node.costs.mark_page);
            moved += 1;
        }
        self.send_fetch(run_bytes);
        moved
    }

    fn send_fetch(&mut self, bytes: u64) {
        if bytes == 0 {
            return;
        }
        self.charge(Work::Migration, self.node.costs.fetch);
        let transfer_ps = self.transfer_ps(bytes, Tier::Local);
        if self.node.costs.core_copies() {
            self.copy(transfer_ps);
        } else {
            self.arrival_ps = self.arrival_ps.max(self.now_ps() + transfer_ps);
        }
    }

    /// Sends pages now, or, for a daemon, when the cores have come to where it is in its batch.
    fn send_pages(&mut self, direction: Direction, bytes: u64) -> u64 {
        let now_ps = self.now_ps();
        match self.core {
            Some(_) => self.link.pages(direction, now_ps, bytes),
            None => self.link.pages_later(direction, self.start_ps, now_ps, bytes),
        }
    }

    /// One page of a migration: unmap, copy, map.
    fn move_page(&mut self, head: PageIndex, to: Tier) {
        if to == Tier::Far && self.is_clean(head) {
            return self.drop_clean(head);
        }
        let bytes = self.bytes_of(head);
        self.relocate(head, to);
        self.copy_page(bytes, to);
    }

    fn copy_page(&mut self, bytes: u64, to: Tier) {
        let transfer_ps = self.transfer_ps(bytes, to);
        self.charge(Work::Migration, self.node.costs.migrate_page);
        self.copy(transfer_ps);
        self.shoot_down();
    }

    /// How long a page is on its way: as long as the link takes, or the core that copies it, which waits for
    /// its lines.
    fn transfer_ps(&mut self, bytes: u64, to: Tier) -> u64 {
        match to {
            Tier::Local => {
                let latency_ps = self.link.latency_ps();
                let copy_ps = self.node.costs.copy_ps(bytes, latency_ps);
                latency_ps + self.send_pages(Direction::In, bytes).max(copy_ps)
            }
            Tier::Far => {
                let copy_ps = self.node.costs.copy_out_ps(bytes);
                self.send_pages(Direction::Out, bytes).max(copy_ps)
            }
        }
    }

    /// Works at, or waits for, a transfer: with no lock held.
    fn copy(&mut self, transfer_ps: u64) {
        self.charge(Work::Migration, transfer_ps);
        self.copied_ps += transfer_ps;
    }

    fn move_pages(&mut self, pages: &[PageIndex], to: Tier) -> u32 {
        let mut moved = 0;
        for &page in pages {
            if self.can_move(page, to) {
                self.move_page(page, to);
                moved += 1;
            }
        }
        moved
    }

    fn begin_call(&mut self, call: Call) {
        if call == Call::System {
            self.charge(Work::Migration, self.node.costs.migrate_call);
        }
    }

    /// Waits as long as the locks were others' that the work since `start_ps` needed.
    fn end_call(&mut self, call: Call, start_ps: u64, copied_ps: u64) {
        if call == Call::Locked && self.node.costs.swap_locked > 0 {
            let software_ps = self.now_ps() - start_ps - (self.copied_ps - copied_ps);
            let hold_ps = software_ps * self.node.costs.swap_locked / 256;
            let waiting_ps = self.node.swap_lock.hold(start_ps, hold_ps, self.core.is_some());
            self.charge(Work::Migration, waiting_ps);
        }
    }

    /// Visits one head of a scan. Where the next one is.
    fn visit(&mut self, page: PageIndex, scan: Scan, visit: &mut dyn FnMut(PageIndex, bool)) -> PageIndex {
        let head = self.node.pages.head(page);
        let next = head + self.node.pages.span(head);
        if self.node.pages.tier_of(head) == Some(scan.tier) {
            let accessed = self.clear_accessed(head);
            let clear = if accessed { self.node.costs.clear_entry } else { 0 };
            self.charge(Self::scan_work(scan.tier), self.node.costs.scan_entry + clear);
            visit(head, accessed);
        }
        next
    }

    fn clear_accessed(&mut self, head: PageIndex) -> bool {
        let pages = &mut self.node.pages;
        let region = &mut pages.regions[(head >> pages.huge_shift) as usize];
        if *region & region_bit::HUGE != 0 {
            let accessed = *region & region_bit::ACCESSED != 0;
            *region &= !region_bit::ACCESSED;
            return accessed;
        }
        let flags = &mut pages.flags[head as usize];
        let accessed = *flags & bit::ACCESSED != 0;
        *flags &= !bit::ACCESSED;
        accessed
    }

    /// Scans the upper level: whether anything below the region of `page` was accessed since last time.
    fn upper_level(&mut self, page: PageIndex, scan: Scan) -> bool {
        self.charge(Self::scan_work(scan.tier), self.node.costs.scan_upper);
        let region = &mut self.node.pages.regions[(page >> self.node.pages.huge_shift) as usize];
        let accessed = *region & region_bit::ACCESSED != 0;
        if *region & region_bit::HUGE == 0 {
            *region &= !region_bit::ACCESSED;
        }
        accessed
    }

    fn set_mapped(&mut self, head: PageIndex, mapped: bool, marked: bool) {
        for flags in self.node.pages.mapping_mut(head) {
            *flags &= !(bit::MAPPED | bit::MARKED);
            *flags |= if mapped { bit::MAPPED } else { 0 } | if marked { bit::MARKED } else { 0 };
        }
    }
}

impl TieredMachine for View<'_> {
    fn now_ns(&self) -> u64 {
        self.now_ps() / PS_PER_NS
    }

    fn page_count(&self) -> u32 {
        self.node.pages.flags.len() as u32
    }

    fn page_bytes(&self) -> u64 {
        self.node.page_bytes
    }

    fn pages_per_huge(&self) -> u32 {
        self.node.pages.pages_per_huge()
    }

    fn capacity_pages(&self, tier: Tier) -> u32 {
        self.node.pages.capacity(tier)
    }

    fn free_pages(&self, tier: Tier) -> u32 {
        self.node.pages.free(tier)
    }

    fn tier_of(&self, page: PageIndex) -> Option<Tier> {
        self.node.pages.tier_of(page)
    }

    fn span(&self, page: PageIndex) -> u32 {
        self.node.pages.span(page)
    }

    fn take_accessed(&mut self, page: PageIndex) -> bool {
        let tier = self.tier_of(page).unwrap_or(Tier::Local);
        self.charge(Self::scan_work(tier), self.node.costs.lru_entry);
        self.clear_accessed(page)
    }

    fn scan(&mut self, scan: Scan, visit: &mut dyn FnMut(PageIndex, bool)) {
        let end = scan.start.saturating_add(scan.pages).min(self.page_count());
        let per_region = self.pages_per_huge();
        let mut page = scan.start;
        let mut region_end = page;
        while page < end {
            if scan.hierarchical && page >= region_end {
                region_end = (page / per_region + 1) * per_region;
                if !self.upper_level(page, scan) {
                    page = region_end;
                    continue;
                }
            }
            page = self.visit(page, scan, visit);
        }
    }

    fn mark(&mut self, pages: &[PageIndex]) {
        for &page in pages {
            if self.tier_of(page).is_some() {
                self.set_mapped(page, false, true);
            }
        }
        let per_page = self.node.costs.mark_page * pages.len() as u64;
        self.charge(Work::Fault, per_page + self.node.costs.shootdown);
        self.shoot_down();
        self.forget(pages);
    }

    fn is_marked(&self, page: PageIndex) -> bool {
        self.node.pages.flags[page as usize] & bit::MARKED != 0
    }

    fn set_page_fetch(&mut self, on: bool) -> bool {
        self.node.model = if on { AccessModel::PageFetch } else { AccessModel::Hybrid };
        let (mut page, mut changed) = (0, 0);
        while page < self.page_count() {
            match self.tier_of(page) {
                Some(Tier::Far) => {
                    self.set_mapped(page, !on, false);
                    changed += 1;
                }
                // Where pages lie in one tier alone the other has no copy that a page could leave for.
                Some(Tier::Local) if on => {
                    self.node.pages.mapping_mut(page).iter_mut().for_each(|flags| *flags |= bit::DIRTY);
                }
                _ => {}
            }
            page += self.span(page);
        }
        self.charge(Work::Fault, changed * self.node.costs.mark_page + self.node.costs.shootdown);
        self.shoot_down();
        self.node.forget_all();
        true
    }

    fn unmark(&mut self, page: PageIndex) {
        let reachable = self.node.model == AccessModel::Hybrid || self.tier_of(page) == Some(Tier::Local);
        self.set_mapped(page, reachable, false);
        self.charge(Work::Fault, self.node.costs.mark_page);
    }

    fn migrate(&mut self, pages: &[PageIndex], to: Tier, call: Call) -> u32 {
        self.begin_call(call);
        let (start_ps, copied_ps) = (self.now_ps(), self.copied_ps);
        let moved = if to == Tier::Local && self.node.model == AccessModel::PageFetch {
            self.fetch(pages)
        } else {
            self.move_pages(pages, to)
        };
        self.end_call(call, start_ps, copied_ps);
        moved
    }

    fn read_ahead(&mut self, pages: &[PageIndex]) -> u32 {
        let (start_ps, copied_ps) = (self.now_ps(), self.copied_ps);
        let mut came = 0;
        for &page in pages {
            if !self.can_move(page, Tier::Local) {
                continue;
            }
            let bytes = self.bytes_of(page);
            self.relocate(page, Tier::Local);
            self.set_mapped(page, false, false);
            self.charge(Work::Migration, self.node.costs.fetch);
            let transfer_ps = self.transfer_ps(bytes, Tier::Local);
            if self.node.costs.core_copies() {
                // Nobody would wait for a device, but this core is the one that copies.
                self.copy(transfer_ps);
            }
            came += 1;
        }
        self.end_call(Call::Locked, start_ps, copied_ps);
        came
    }

    fn exchange(&mut self, pairs: &[(PageIndex, PageIndex)], call: Call) -> u32 {
        self.begin_call(call);
        let mut swapped = 0;
        for &(far, local) in pairs {
            let there = (self.tier_of(far), self.tier_of(local));
            let same_size = self.span(far) == self.span(local);
            if there != (Some(Tier::Far), Some(Tier::Local)) || !same_size {
                continue;
            }
            let bytes = self.bytes_of(far);
            self.relocate(local, Tier::Far);
            self.copy_page(bytes, Tier::Far);
            self.relocate(far, Tier::Local);
            self.copy_page(bytes, Tier::Local);
            swapped += 1;
        }
        swapped
    }

    fn write_back(&mut self, page: PageIndex) {
        if !self.can_move(page, Tier::Far) {
            return;
        }
        let bytes = self.bytes_of(page);
        if self.is_clean(page) {
            self.relocate(page, Tier::Far);
            self.node.counts.traffic.migration_bytes -= bytes;
            return self.charge(Work::Migration, self.node.costs.mark_page);
        }
        self.relocate(page, Tier::Far);
        self.send_pages(Direction::Out, bytes);
        // Nobody waits for the link, but a core that copies is busy.
        let copy_ps = self.node.costs.copy_out_ps(bytes);
        self.charge(Work::Migration, self.node.costs.mark_page + copy_ps);
    }

    fn unmap(&mut self, pages: &[PageIndex]) {
        for &page in pages {
            if self.tier_of(page) == Some(Tier::Local) {
                self.set_mapped(page, false, false);
                self.charge(Work::Migration, self.node.costs.mark_page);
            }
        }
        self.forget(pages);
        self.charge(Work::Migration, self.node.costs.shootdown);
        self.shoot_down();
    }

    fn split(&mut self, page: PageIndex) {
        if !self.node.pages.is_huge(page) {
            return;
        }
        self.node.forget(page);
        let region = &mut self.node.pages.regions[(page >> self.node.pages.huge_shift) as usize];
        *region &= !region_bit::HUGE;
        let entries = self.node.costs.mark_page * u64::from(self.pages_per_huge());
        self.charge(Work::Migration, entries + self.node.costs.shootdown);
        self.shoot_down();
    }

    fn keep_far_copy(&mut self, page: PageIndex) {
        if self.tier_of(page) == Some(Tier::Local) && self.span(page) == 1 {
            self.node.pages.set_far_copy(page, true);
        }
    }

    fn cores(&self) -> u32 {
        self.node.cores.iter().filter(|core| !core.done).count() as u32
    }

    fn background_share(&self) -> f64 {
        match self.node.daemon_core {
            DaemonCore::Shared => 1.0,
            DaemonCore::Spare => 0.0,
        }
    }

    fn sample_accesses(&mut self, period: u32) {
        self.node.sampler.start(period);
    }

    fn take_samples(&mut self, samples: &mut Vec<Sample>) {
        samples.append(&mut self.node.sampler.taken);
    }

    fn sampling_ns(&self) -> u64 {
        self.node.sampler.count * self.node.costs.sample / PS_PER_NS
    }

    fn count_accesses(&mut self, window_ns: u64) {
        let now_ps = self.now_ps();
        self.timers.count_every(window_ns * PS_PER_NS, now_ps);
    }

    fn set_timer(&mut self, timer: u32, after_ns: u64) {
        let at_ps = self.now_ps() + after_ns.max(1) * PS_PER_NS;
        self.timers.set(timer, at_ps);
    }

    fn link(&self) -> LinkTelemetry {
        LinkTelemetry {
            available_bytes_per_s: self.link.available_bytes_per_s(),
            delta_latency_ns: (self.link.loaded_latency_ns() - self.node.local_ns).max(0.0),
            traffic_bytes: self.node.counts.traffic.total_bytes(),
        }
    }
}
