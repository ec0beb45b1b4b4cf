//! The machine that policies act on here: pages of running processes, of which scans tell what is used.
//!
//! What differs from a machine that can be stopped at every access:
//! - Bits of use are as old as the last scan. A page that a policy asked about twice between two scans has no
//!   new answer: a scan of its own passes it over. Asked for the page alone again, what counts is the time
//!   between the last two scans: who goes round local memory twice wants to know what was used in the short
//!   time since the first round.
//! - A marked page stops the program only where a marker in its process takes it out of its place
//!   (`holds.rs`). Elsewhere the scan that finds it accessed is its fault; only accesses after the mark
//!   count, so it is the second scan after the mark at the earliest.
//! - Moves are gathered and made together when the policy has been told all: each `move_pages` call makes
//!   every CPU empty its lists first (HotBox, section 3.3), which costs more than a page. The policy sees a
//!   page at once where it will be. A page that the kernel will not move is back where it was, and is
//!   announced to the policy again, once.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use serde::Serialize;
use spillway_core::page::PAGE_BYTES;
use spillway_policy::machine::{Call, LinkTelemetry, PageIndex, Sample, Scan, Tier, TieredMachine};
use spillway_sys::mark_events::Marked;

use crate::counters::Counters;
use crate::group::LocalBudget;
use crate::history::{History, Reason};
use crate::mover::{Mover, RateCap, Refusals};
use crate::pages::{PAGES_PER_CHUNK, Pages, bit};
use crate::passes::Passes;
use crate::room::NodeRoom;
use crate::source::Seen;

mod holds;
mod marked;
mod moves;
mod sampled;
mod samples;
mod uses;

/// What happened so far, in pages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Moved to local memory.
    pub promotions: u64,
    /// Of these, seen in use there before they left or ended.
    pub promotions_used: u64,
    /// Moved to far memory.
    pub demotions: u64,
    /// Of these, because they came to lie local where the policy or the budget wanted them far.
    pub placements: u64,
    /// Not moved because more was wanted than the rate cap allows.
    pub capped: u64,
    /// Not moved, by the kernel's reason.
    pub refused: Refusals,
    /// Marked pages that were accessed.
    pub hint_faults: u64,
    /// Pages that scans found in use and local, each as often as it was found.
    pub local_uses: u64,
    /// The same of pages that were found far.
    pub far_uses: u64,
    /// Pages that the kernel moved between tiers by itself.
    pub moved_by_kernel: u64,
    /// Windows of the policy's counters that ended.
    pub windows: u64,
    /// Of these, with migrations paused at their end.
    pub paused_windows: u64,
}

/// Something that the policy has to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A page is there that was not.
    Appeared(PageIndex, Tier),
    /// A page lies where the policy does not expect it.
    Displaced(PageIndex, Tier),
    /// A marked page was accessed.
    Accessed(PageIndex),
}

/// What a group may use of the machine.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Most local memory, as it was asked for.
    pub local: LocalBudget,
    /// Most local memory at present, in pages: never more than the nodes have.
    pub local_pages: u32,
    /// Far memory that the nodes have, in pages.
    pub far_pages: u32,
    /// Most bytes a second that are moved.
    pub migration_bytes_per_s: u64,
    /// What is known of the far tier's speed at the start.
    pub link: LinkTelemetry,
}

/// The pages of a group's processes, as a policy sees and moves them.
pub struct LiveMachine {
    /// The pages that it manages, by number.
    pub pages: Pages,
    /// What happened since the start, in numbers.
    pub counts: Counts,
    /// What moved lately, and why.
    pub history: History,
    /// Why the policy is asked at present.
    pub reason: Reason,
    /// When the kernel marked memory, where it does.
    pub passes: Passes,
    /// When scans were had: a mark counts from the first after it.
    scans: Passes,
    now_ns: u64,
    limits: Limits,
    /// What is free on the nodes of each tier.
    room: [NodeRoom; 2],
    /// Local frames that count as free while the policy is asked where their page should lie.
    frames_in_hand: u32,
    mover: Box<dyn Mover>,
    cap: RateCap,
    timers: BinaryHeap<Reverse<(u64, u64, u32)>>,
    timers_set: u64,
    window_ns: u64,
    window_began_ns: u64,
    accessed: [u64; 2],
    counters: Option<Counters>,
    /// The scan that goes on is an early one.
    early: bool,
    /// Accesses are told at once, so that a bit which was taken is clear.
    told_at_once: bool,
    /// The kernel marks far pages, and their faults are told.
    kernel_marks_far: bool,
    /// Samples of accesses, where the policy wants some.
    sampling: sampled::Sampling,
    /// Markers in processes, and what they are to hold.
    holds: marked::Holds,
    /// The policy's marks are worth a fault each.
    marks_stop: bool,
    events: VecDeque<Event>,
    /// Pages on their way, and why.
    moving: VecDeque<(PageIndex, Reason)>,
    moved_bytes: u64,
}

impl LiveMachine {
    /// A machine with numbers for `pages` pages.
    #[must_use]
    pub fn new(pages: u32, limits: Limits, mover: Box<dyn Mover>) -> Self {
        Self {
            pages: Pages::new(pages),
            counts: Counts::default(),
            history: History::default(),
            reason: Reason::Policy,
            passes: Passes::default(),
            scans: Passes::default(),
            now_ns: 0,
            cap: RateCap::new(limits.migration_bytes_per_s),
            limits,
            room: Default::default(),
            frames_in_hand: 0,
            mover,
            timers: BinaryHeap::new(),
            timers_set: 0,
            window_ns: 0,
            window_began_ns: 0,
            accessed: [0; 2],
            counters: None,
            early: false,
            told_at_once: false,
            kernel_marks_far: false,
            sampling: sampled::Sampling::default(),
            holds: marked::Holds::default(),
            marks_stop: false,
            events: VecDeque::new(),
            moving: VecDeque::new(),
            moved_bytes: 0,
        }
    }

    /// For a source that is scanned after every access: a bit that was taken is clear, as in a machine that
    /// is seen from within.
    #[must_use]
    pub fn told_at_once(self) -> Self {
        Self { told_at_once: true, ..self }
    }

    /// Faults on far pages are told: a scan that finds a marked far page in use may have found an access
    /// before the kernel's mark, and counts as no fault.
    #[must_use]
    pub fn marked_by_kernel(self, far: bool) -> Self {
        Self { kernel_marks_far: far, ..self }
    }

    /// Whether the policy's marks are given to markers, where processes have them.
    pub fn let_marks_stop(&mut self, stop: bool) {
        self.marks_stop = stop;
    }

    /// Accesses are counted by the machine; without, a window's accesses are the pages that scans find in
    /// use.
    #[must_use]
    pub fn counted_by(self, counters: Option<Counters>) -> Self {
        Self { counters, ..self }
    }

    /// Whether each scan comes after one access.
    #[must_use]
    pub fn is_told_at_once(&self) -> bool {
        self.told_at_once
    }

    /// What nodes there are in a tier, and what is free on them, in pages.
    pub fn set_room(&mut self, tier: Tier, room: NodeRoom) {
        self.room[tier as usize] = room;
    }

    /// What is known of the way to the far tier by now.
    pub fn set_link(&mut self, link: LinkTelemetry) {
        self.limits.link = link;
    }

    /// Bytes of pages that were moved so far, either way.
    #[must_use]
    pub fn moved_bytes(&self) -> u64 {
        self.moved_bytes
    }

    /// So many local frames count as free though a page lies in them.
    pub fn set_frames_in_hand(&mut self, frames: u32) {
        self.frames_in_hand = frames;
    }

    /// What the budget comes to, now that it is known how many pages there are: `most_pages` is what the
    /// nodes have.
    pub fn settle_budget(&mut self, most_pages: u32) {
        let appeared = |event: &Event| match event {
            Event::Appeared(page, _) => self.pages.span(*page),
            _ => 0,
        };
        let new: u32 = self.events.iter().map(appeared).sum();
        let all = self.pages.used(Tier::Local) + self.pages.used(Tier::Far) + new;
        let wanted = match self.limits.local {
            LocalBudget::Bytes(size) => u32::try_from(size.bytes() / PAGE_BYTES).unwrap_or(u32::MAX),
            LocalBudget::Pct(pct) => (f64::from(all) * pct / 100.0).ceil() as u32,
        };
        self.limits.local_pages = wanted.min(most_pages);
    }

    /// Time goes on; never back.
    pub fn set_now_ns(&mut self, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
    }

    /// When the next timer of the policy is due.
    #[must_use]
    pub fn next_timer_ns(&self) -> Option<u64> {
        self.timers.peek().map(|Reverse((at_ns, ..))| *at_ns)
    }

    /// Takes a timer that is due.
    pub fn take_timer(&mut self) -> Option<u32> {
        let due = self.next_timer_ns()? <= self.now_ns;
        if due { self.timers.pop().map(|Reverse((.., timer))| timer) } else { None }
    }

    /// Takes the next thing that the policy has to be told.
    pub fn take_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Whether there is something that the policy has to be told.
    #[must_use]
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Accesses since the window began, local and far, if it is over; then the next begins.
    pub fn take_window(&mut self) -> Option<[u64; 2]> {
        if self.window_ns == 0 || self.now_ns < self.window_began_ns + self.window_ns {
            return None;
        }
        self.window_began_ns = self.now_ns;
        Some(self.take_accesses())
    }

    fn take_accesses(&mut self) -> [u64; 2] {
        let seen = std::mem::take(&mut self.accessed);
        self.counters.as_mut().map_or(seen, Counters::take)
    }

    /// Bytes in use of a tier.
    #[must_use]
    pub fn used_bytes(&self, tier: Tier) -> u64 {
        u64::from(self.pages.used(tier)) * PAGE_BYTES
    }

    /// More numbers for pages; what the policy asked for is forgotten, as it has to be made anew.
    pub fn grow(&mut self) {
        self.pages.grow();
        self.timers.clear();
        self.events.clear();
        self.window_ns = 0;
        self.sampling.begin_anew();
        let gone = bit::MARKED | bit::ARMED | bit::REFUSED;
        self.pages.bits.iter_mut().for_each(|bits| *bits &= !gone);
    }

    /// A scan found a page of a process in a tier.
    pub fn see(&mut self, process: u32, seen: Seen, tier: Tier) {
        let Some(page) = self.pages.find_or_number(process, seen.address) else { return };
        let huge = seen.pages >= PAGES_PER_CHUNK;
        self.pages.remap(page, huge);
        let sifted = self.sift(page, seen.accessed, tier);
        if let Some(chunk) = self.pages.chunk_mut(page) {
            chunk.accessed |= sifted.told == Some(true);
        }
        self.pages.bits[page as usize] |= bit::SEEN;
        match self.pages.tier_of(page) {
            None => {
                if seen.accessed {
                    self.pages.bits[page as usize] |= bit::ACCESSED | bit::RECENT;
                }
                self.events.push_back(Event::Appeared(page, tier));
                return;
            }
            // It is on its way, or has come there without us.
            Some(known) if self.pages.bits[page as usize] & bit::MOVING != 0 => {
                if known == tier {
                    self.pages.bits[page as usize] &= !bit::MOVING;
                }
            }
            Some(known) if known != tier => {
                self.pages.relocate(page, tier);
                self.pages.bits[page as usize] &= !bit::FRESH;
                self.counts.moved_by_kernel += u64::from(self.pages.span(page));
                self.events.push_back(Event::Displaced(page, tier));
            }
            Some(_) => {}
        }
        if sifted.counts {
            self.count_use(page, tier);
        }
        if let Some(accessed) = sifted.told {
            self.note_use(page, accessed, tier);
        }
    }

    /// A scan of a process is over: pages of it that were not seen are gone, and marks count from now on.
    pub fn end_scan(&mut self, process: u32) {
        self.scans.push(Marked { process, range: 0..u64::MAX, time_ns: self.now_ns });
        for first in self.pages.chunks_of(process) {
            for page in first..first + PAGES_PER_CHUNK {
                let bits = self.pages.bits[page as usize];
                if bits & bit::TOUCHED != 0 && bits & (bit::SEEN | bit::HELD) == 0 {
                    self.pages.vanish(page);
                    continue;
                }
                let armed = if bits & bit::MARKED != 0 { bit::ARMED } else { 0 };
                self.pages.bits[page as usize] = bits & !bit::SEEN | armed;
            }
        }
    }

    /// All pages of a process are gone.
    pub fn forget(&mut self, process: u32) {
        self.passes.forget(process);
        self.scans.forget(process);
        for first in self.pages.chunks_of(process) {
            (first..first + PAGES_PER_CHUNK).for_each(|page| self.pages.vanish(page));
            self.pages.release_if_empty(first);
        }
    }

    /// Numbers of pages that are gone can be given anew, once the policy was told all.
    pub fn release_numbers(&mut self, process: u32) {
        for first in self.pages.chunks_of(process) {
            self.pages.release_if_empty(first);
        }
    }

    /// Whether a page that is new was accessed when it was seen. The access goes on when the policy knows of
    /// the page.
    pub fn take_first_access(&mut self, page: PageIndex) -> bool {
        let bits = &mut self.pages.bits[page as usize];
        let accessed = *bits & bit::ACCESSED != 0;
        *bits &= !bit::ACCESSED;
        accessed
    }

    /// The access that a fault stopped at goes on, wherever the page lies now.
    pub fn resume(&mut self, page: PageIndex) {
        self.pages.bits[page as usize] |= bit::ACCESSED | bit::RECENT;
    }
}

impl TieredMachine for LiveMachine {
    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn page_count(&self) -> u32 {
        self.pages.count()
    }

    fn managed_pages(&self) -> u32 {
        self.pages.used(Tier::Local) + self.pages.used(Tier::Far)
    }

    fn next_touched(&self, page: PageIndex) -> PageIndex {
        self.pages.next_with(page, bit::TOUCHED, bit::TOUCHED)
    }

    fn page_bytes(&self) -> u64 {
        PAGE_BYTES
    }

    fn pages_per_huge(&self) -> u32 {
        PAGES_PER_CHUNK
    }

    fn capacity_pages(&self, tier: Tier) -> u32 {
        if tier == Tier::Local { self.limits.local_pages } else { self.limits.far_pages }
    }

    fn free_pages(&self, tier: Tier) -> u32 {
        let unused = self.capacity_pages(tier).saturating_sub(self.pages.used(tier));
        let in_hand = if tier == Tier::Local { self.frames_in_hand } else { 0 };
        unused.min(self.room[tier as usize].free().saturating_add(in_hand))
    }

    fn tier_of(&self, page: PageIndex) -> Option<Tier> {
        self.pages.tier_of(page)
    }

    fn span(&self, page: PageIndex) -> u32 {
        self.pages.span(page)
    }

    fn take_accessed(&mut self, page: PageIndex) -> bool {
        let bits = &mut self.pages.bits[page as usize];
        let use_bit = if *bits & bit::TAKEN == 0 { bit::ACCESSED } else { bit::RECENT };
        let accessed = *bits & use_bit != 0;
        if self.told_at_once {
            *bits &= !bit::ACCESSED;
        } else {
            *bits |= bit::TAKEN;
        }
        accessed
    }

    fn scan(&mut self, scan: Scan, visit: &mut dyn FnMut(PageIndex, bool)) {
        let end = scan.start.saturating_add(scan.pages).min(self.page_count());
        let mut page = scan.start;
        let mut chunk_end = page;
        while page < end {
            if page >= chunk_end {
                chunk_end = (page / PAGES_PER_CHUNK + 1) * PAGES_PER_CHUNK;
                let accessed = self.pages.chunk(page).is_some_and(|chunk| chunk.accessed);
                if self.pages.chunk(page).is_none() || (scan.hierarchical && !accessed) {
                    page = chunk_end;
                    continue;
                }
                if let Some(chunk) = self.pages.chunk_mut(page).filter(|_| scan.hierarchical) {
                    chunk.accessed = false;
                }
            }
            let asked = self.pages.bits[page as usize] & bit::TAKEN != 0;
            if !asked && self.pages.tier_of(page) == Some(scan.tier) {
                let accessed = self.take_accessed(page);
                visit(page, accessed);
            }
            page += self.pages.span(page);
        }
    }

    fn mark(&mut self, pages: &[PageIndex]) {
        for &page in pages {
            let bits = &mut self.pages.bits[page as usize];
            if *bits & bit::TOUCHED != 0 {
                *bits |= bit::MARKED;
                if self.marks_stop {
                    self.want_held(page);
                }
            }
        }
    }

    fn next_unmarked(&self, page: PageIndex) -> PageIndex {
        self.pages.next_with(page, bit::TOUCHED | bit::MARKED, bit::TOUCHED)
    }

    fn is_marked(&self, page: PageIndex) -> bool {
        self.pages.bits[page as usize] & bit::MARKED != 0
    }

    fn marked_from_ns(&self, page: PageIndex, asked_ns: u64) -> u64 {
        let by_kernel = self.kernel_marks_far && self.pages.tier_of(page) == Some(Tier::Far);
        let passes = if by_kernel { &self.passes } else { &self.scans };
        let place = self.pages.place_of(page).filter(|_| !self.told_at_once);
        let pass =
            place.and_then(|(process, address)| passes.first_over(process, address, asked_ns, self.now_ns));
        pass.unwrap_or(asked_ns)
    }

    fn unmark(&mut self, page: PageIndex) {
        self.pages.bits[page as usize] &= !(bit::MARKED | bit::ARMED);
    }

    fn migrate(&mut self, pages: &[PageIndex], to: Tier, _call: Call) -> u32 {
        let mut sent = 0;
        for &page in pages {
            let elsewhere = self.pages.tier_of(page).is_some_and(|tier| tier != to);
            if elsewhere && self.free_pages(to) >= self.pages.span(page) && self.send(page, to) {
                sent += 1;
            }
        }
        sent
    }

    fn exchange(&mut self, pairs: &[(PageIndex, PageIndex)], call: Call) -> u32 {
        let mut swapped = 0;
        for &(far, local) in pairs {
            if self.pages.span(far) == self.pages.span(local) && self.migrate(&[local], Tier::Far, call) == 1
            {
                swapped += self.migrate(&[far], Tier::Local, call);
            }
        }
        swapped
    }

    fn write_back(&mut self, page: PageIndex) {
        self.migrate(&[page], Tier::Far, Call::System);
    }

    /// Nothing is unmapped from outside a process; who fetches pages is refused before it starts.
    fn unmap(&mut self, _pages: &[PageIndex]) {}

    /// A huge mapping stays what it is: the kernel splits none for another process.
    fn split(&mut self, _page: PageIndex) {}

    fn counts_each_access(&self) -> bool {
        self.counters.is_some()
    }

    fn scans_by_itself(&self) -> bool {
        !self.told_at_once
    }

    /// Who needs samples is refused before it starts where no source takes them.
    fn sample_accesses(&mut self, period: u32) {
        self.sampling.wanted = period;
    }

    fn take_samples(&mut self, samples: &mut Vec<Sample>) {
        samples.append(&mut self.sampling.waiting);
    }

    fn sampling_ns(&self) -> u64 {
        self.sampling.cost_ns
    }

    fn count_accesses(&mut self, window_ns: u64) {
        self.window_ns = window_ns;
        self.window_began_ns = self.now_ns;
        self.take_accesses();
    }

    fn set_timer(&mut self, timer: u32, after_ns: u64) {
        self.timers.push(Reverse((self.now_ns + after_ns.max(1), self.timers_set, timer)));
        self.timers_set += 1;
    }

    fn link(&self) -> LinkTelemetry {
        let traffic_bytes = self.limits.link.traffic_bytes.max(self.moved_bytes);
        LinkTelemetry { traffic_bytes, ..self.limits.link }
    }
}

#[cfg(test)]
mod tests;
