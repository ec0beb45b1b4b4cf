//! Streams by whole ranges of 2 MiB. While the program uses one range, the next is read into a fresh huge
//! page of the pager's own, its *stage* ([`crate::pages::stages`]), by the evictor on another CPU, or by the
//! fault itself where no CPU is to spare. The fault at its first page has it moved in, in one step of the
//! page table.
//!
//! Nothing is promised by a stage: its words are locked only while their pages are read. Who moves it in
//! locks all of them, and finds each page far, in the slot that it was read from, which holds what it held.
//! Otherwise what lies there is given up, and the fault goes on as any other. So a discard, a write, a fork
//! or a store that dies in between costs time and nothing else.
//!
//! UFFDIO_MOVE moves a huge page as a whole only where the page table has no entry for the 2 MiB at all: an
//! empty table of their pages would have it split. So they are dropped once more before, in one call, which
//! frees that table (Linux 6.14). All is looked up in the page map first: where a page is, nothing is
//! dropped.

use std::ops::Range;
use std::sync::atomic::Ordering;

use spillway_core::page::PAGE_SIZE;
use spillway_core::page_word::{PageInfo, PageWord};
use spillway_policy::streams::Direction;

use crate::evict::write_back::BATCH_PAGES;
use crate::kernel::{Kernel, planted};
use crate::pages::address::{address_of, target};
use crate::pages::error::Failure;
use crate::pages::stages::{Found, Source};
use crate::process::worker::Worker;
use crate::run::state::Counter;

/// How long a fault waits for what somebody else is filling.
const PATIENCE_NS: u64 = 2_000_000;
/// Times that a page that is to be read is found busy before its range is given up.
const MOST_TRIES: u32 = 50;

type Locked = Vec<(u64, PageWord<'static>, PageInfo)>;

impl<K: Kernel> Worker<K> {
    /// Asks for the range behind that of a page, which belongs to a stream of the largest blocks.
    pub(crate) fn want_next_range(&self, page_number: u64, direction: Direction, has_cpu: bool) {
        let engine = self.engine;
        let stages = &engine.stages;
        if stages.is_off() || engine.is_recorded() || engine.stores_full.load(Ordering::Relaxed) {
            return;
        }
        let pages = K::HUGE_PAGES as u64;
        let this = stages.range_of(page_number);
        let next = match direction {
            Direction::Up => Some(this + pages),
            Direction::Down => this.checked_sub(pages),
        };
        let Some(next) = next else { return };
        if self.is_far(next) && self.is_far(next + pages - 1) && stages.want::<K>(next) && has_cpu {
            self.at.wake_evictor();
        }
    }

    /// Fills a stage that is wanted; false where none is.
    pub(crate) fn fill_wanted_stage(&mut self) -> bool {
        if !self.engine.stages.is_asked() {
            return false;
        }
        let Some(_pass) = self.engine.enter() else { return false };
        let Some((index, first_page)) = self.engine.stages.take_wanted::<K>() else { return false };
        self.fill_stage(index, first_page);
        true
    }

    /// Before a fault at a far page is served, while no word is locked: sees to it that the stage of its
    /// range is filled.
    pub(crate) fn meet_stage(&mut self, page_number: u64) {
        let stages = &self.engine.stages;
        if !stages.is_used() || !self.is_far(page_number) {
            return;
        }
        let first_page = stages.range_of(page_number);
        let until_ns = K::now_ns() + PATIENCE_NS;
        loop {
            match stages.find::<K>(first_page) {
                Found::Nothing | Found::Ready => return,
                Found::Yours(index) => return self.fill_stage(index, first_page),
                Found::Busy if K::now_ns() > until_ns => return,
                Found::Busy => K::give_way(),
            }
        }
    }

    /// What is left of a stream's block that would take pages of a range that is made ready behind its own.
    pub(crate) fn before_stage(&self, block: Range<u64>, direction: Direction) -> Range<u64> {
        let (stages, pages) = (&self.engine.stages, K::HUGE_PAGES as u64);
        let Range { start, end } = block;
        match direction {
            Direction::Up => {
                let next = stages.range_of(start) + pages;
                if end > next && stages.has::<K>(next) { start..next } else { block }
            }
            Direction::Down => {
                let own = stages.range_of(end.saturating_sub(1));
                if start < own && stages.has::<K>(own - pages) { own..end } else { block }
            }
        }
    }

    fn fill_stage(&mut self, index: usize, first_page: u64) {
        let mut sources = self.engine.stages.take_room::<K>(index);
        let pages = K::HUGE_PAGES as u64;
        if self.may_stage(first_page) {
            self.last_block_pages = K::HUGE_PAGES;
            self.make_room_ahead();
            if self.try_charge_parts(pages) {
                let (kernel, stages) = (&self.at.kernel, &self.engine.stages);
                let stage = stages.range(index);
                // Small pages that lay there have left a page table, below which no huge page comes.
                let before_ns = K::thread_ns();
                let is_there = kernel.discard_frames(stage).is_ok() && kernel.populate_reserve(stage).is_ok();
                stages.note_populated(K::thread_ns().saturating_sub(before_ns), K::now_ns());
                let is_filled = is_there && self.read_range(index, first_page, &mut sources);
                if !is_filled || !stages.leave_ready::<K>(index, &mut sources) {
                    self.give_up_stage(index, sources, pages);
                }
                return;
            }
        }
        self.engine.stages.leave_empty::<K>(index, sources);
    }

    /// Charges pages in parts: who is killed between two steps takes one of them along.
    fn try_charge_parts(&self, pages: u64) -> bool {
        let mut charged = 0;
        while charged < pages {
            let part = (pages - charged).min(BATCH_PAGES as u64);
            if !self.try_charge(part) {
                self.at.release_local(charged);
                return false;
            }
            charged += part;
        }
        true
    }

    /// All pages of the range are far and managed.
    fn may_stage(&self, first_page: u64) -> bool {
        let pages = K::HUGE_PAGES as u64;
        let managed = address_of(first_page)..address_of(first_page + pages);
        (first_page..first_page + pages).all(|page_number| self.is_far(page_number))
            && self.engine.regions().cover(&managed)
    }

    /// Reads the pages of a range into its stage, checked. False where one of them cannot be had.
    fn read_range(&mut self, index: usize, first_page: u64, sources: &mut Vec<Source>) -> bool {
        let end = first_page + K::HUGE_PAGES as u64;
        let mut from = first_page;
        while from < end {
            let to = end.min(from + self.at.max_block_pages.min(BATCH_PAGES) as u64);
            let Some(locked) = self.lock_far(from..to) else { return false };
            let is_read = self.read_part(index, first_page, &locked, sources);
            self.unlock_all(locked);
            if !is_read {
                return false;
            }
            from = to;
        }
        true
    }

    fn read_part(
        &mut self,
        index: usize,
        first_page: u64,
        locked: &Locked,
        sources: &mut Vec<Source>,
    ) -> bool {
        let pages: Vec<(u64, u32)> =
            locked.iter().filter_map(|(page_number, _, info)| Some((*page_number, info.slot()?))).collect();
        let store = pages.first().and_then(|(_, slot)| self.at.store_of(*slot));
        let Some(store) = store.filter(|_| pages.len() == locked.len()) else { return false };
        if pages.iter().any(|(_, slot)| self.at.store_of(*slot) != Some(store)) {
            return false;
        }
        let (good, _) = self.read(store, &pages);
        if good < pages.len() {
            return false;
        }
        let stage = self.engine.stages.range(index);
        for (i, &(page_number, slot)) in pages.iter().enumerate() {
            let at = (page_number - first_page) as usize * PAGE_SIZE;
            self.at.kernel.fill_own(stage.part(at, PAGE_SIZE), self.fetched.run(i, 1));
            sources.push((slot, self.at.run.slots().contents(slot)));
        }
        true
    }

    /// Locks far pages, waiting for those that are busy while it holds none.
    fn lock_far(&self, pages: std::ops::Range<u64>) -> Option<Locked> {
        for tries in 1..=MOST_TRIES {
            let (locked, is_busy) = self.lock_range(pages.clone(), None);
            if !is_busy && locked.iter().all(|(_, _, info)| info.is_far()) {
                return Some(locked);
            }
            self.unlock_all(locked);
            if !is_busy {
                return None;
            }
            K::relax(tries);
        }
        None
    }

    /// Locks the pages of a range but for one, up to the first that is busy, and whether there was such.
    pub(crate) fn lock_range(&self, pages: std::ops::Range<u64>, but: Option<u64>) -> (Locked, bool) {
        let engine = self.engine;
        let mut locked = Vec::with_capacity((pages.end - pages.start) as usize);
        for page_number in pages.filter(|page_number| Some(*page_number) != but) {
            let Some(word) = engine.table.find(page_number) else { return (locked, true) };
            let Some(info) = self.try_lock(word) else { return (locked, true) };
            locked.push((page_number, word, info));
        }
        (locked, false)
    }

    pub(crate) fn unlock_all(&self, locked: Locked) {
        locked.into_iter().for_each(|(page_number, word, info)| self.unlock(page_number, word, info));
    }

    /// Gives back what lies in the caller's stage, `charged` pages.
    fn give_up_stage(&self, index: usize, sources: Vec<Source>, charged: u64) {
        let stages = &self.engine.stages;
        stages.note_vain();
        // What stays is charged for good.
        if self.at.kernel.discard_frames(stages.range(index)).is_ok() {
            self.at.release_local(if planted!(K, "stage-room-kept") { 0 } else { charged });
        } else {
            stages.turn_off();
        }
        stages.leave_empty::<K>(index, sources);
    }

    /// Gives up what lies ready; with `only_idle`, what no stream has asked for lately.
    pub(crate) fn give_up_stages(&self, only_idle: bool) -> usize {
        let mut freed = 0;
        while self.engine.stages.is_used()
            && let Some((index, sources)) = self.engine.stages.take_any_ready::<K>(only_idle)
        {
            self.give_up_stage(index, sources, K::HUGE_PAGES as u64);
            freed += K::HUGE_PAGES;
        }
        freed
    }

    /// Serves a fault at a far page, which is locked, from the stage of its range. Returns the page as it is
    /// then; the others are settled. `None` where there is no such stage.
    pub(crate) fn move_stage_in(
        &mut self,
        page_number: u64,
        info: PageInfo,
    ) -> Result<Option<PageInfo>, Failure> {
        let stages = &self.engine.stages;
        if !stages.is_used() {
            return Ok(None);
        }
        let first_page = stages.range_of(page_number);
        let Some((index, mut sources)) = stages.take_ready::<K>(first_page) else { return Ok(None) };
        let pages = K::HUGE_PAGES as u64;
        let (mut locked, is_busy) = self.lock_range(first_page..first_page + pages, Some(page_number));
        if is_busy {
            self.unlock_all(locked);
            if stages.leave_ready::<K>(index, &mut sources) {
                return Err(Failure::Retry);
            }
            self.give_up_stage(index, sources, pages);
            return Ok(None);
        }
        let own = self.engine.table.find(page_number);
        let at = (page_number - first_page) as usize;
        locked.extend(own.map(|word| (page_number, word, info)));
        locked[at..].rotate_right(1);
        let moved = if self.is_as_staged(&locked, &sources) { self.move_stage(index, first_page) } else { 0 };
        // Before a word is unlocked: who finds a page of it in a queue passes it by.
        let is_whole = moved == K::HUGE_PAGES;
        if is_whole {
            self.engine.whole.note::<K>(&self.engine.table, first_page, self.engine.departures.count());
            self.at.run.count(Counter::HugeRangesIn, 1);
            stages.note_use();
            stages.leave_empty::<K>(index, sources);
        } else {
            self.give_up_stage(index, sources, pages - moved as u64);
        }
        let next = self.settle_stage(page_number, locked, moved, is_whole);
        if is_whole {
            // Its last page is the first to be used where the stream goes down.
            let is_last = page_number == first_page + pages - 1;
            let direction = if is_last { Direction::Down } else { Direction::Up };
            self.note_range(first_page, pages, direction);
            self.last_block_pages = K::HUGE_PAGES;
            let has_cpu = self.engine.read_streams.note_thread(self.faulting_thread);
            self.at.handlers.note_stream();
            self.want_next_range(page_number, direction, has_cpu);
        }
        Ok(next)
    }

    /// Each page is far, in the slot that its copy was read from, which holds what it held.
    fn is_as_staged(&self, locked: &Locked, sources: &[Source]) -> bool {
        let slots = self.at.run.slots();
        let is_same = |((_, _, info), (slot, contents)): (&(u64, PageWord<'_>, PageInfo), &Source)| {
            let is_far = info.is_far() || planted!(K, "stage-over-local-pages");
            let is_there = info.slot() == Some(*slot) || planted!(K, "stage-slots-not-compared");
            let is_it = slots.contents(*slot) == *contents || planted!(K, "stage-contents-not-compared");
            is_far && is_there && is_it
        };
        locked.len() == sources.len() && locked.iter().zip(sources).all(is_same)
    }

    /// Moves a stage in, whose pages are locked and far. Returns how many went, from the first on.
    fn move_stage(&self, index: usize, first_page: u64) -> usize {
        let kernel = &self.at.kernel;
        let (from, to) = (self.engine.stages.range(index), target(first_page, K::HUGE_PAGES));
        let is_empty = kernel.populated(to).is_some_and(|found| found.iter().all(|bits| *bits == 0))
            || planted!(K, "stage-over-local-pages");
        if !is_empty || kernel.discard(to).is_err() {
            return 0;
        }
        self.note_answer();
        let counted = kernel.move_reserved(to, from) / PAGE_SIZE;
        // The kernel may have moved more than it says: see `docs/concepts/userfaultfd.md`.
        let has_left = |page: &usize| {
            let entry = kernel.page_map_entry(from.start() + page * PAGE_SIZE);
            entry.is_some_and(|entry| !entry.is_populated())
        };
        let is_believed = counted == K::HUGE_PAGES || planted!(K, "stage-miscounted");
        if is_believed { counted } else { (0..K::HUGE_PAGES).take_while(has_left).count() }
    }

    /// Unlocks the pages of a range of which the first `moved` came. Returns that of the fault, if it came.
    fn settle_stage(
        &mut self,
        page_number: u64,
        locked: Locked,
        moved: usize,
        is_whole: bool,
    ) -> Option<PageInfo> {
        let run = self.at.run;
        let mut own = None;
        for (i, (page, word, info)) in locked.into_iter().enumerate() {
            let slot = info.slot().filter(|_| i < moved);
            let queue = self.queue_of_returner(info);
            let next = slot.map(|slot| self.settle_fetched(page, info, slot, queue, None, false));
            if page == page_number {
                own = next;
                continue;
            }
            self.unlock(page, word, next.unwrap_or(info));
            if let Some(next) = next.filter(|_| !is_whole) {
                self.enqueue(page, next);
            }
        }
        if moved > 0 {
            run.count_block(moved);
            run.count_of(
                self.at.entry,
                Counter::PagesFetchedAhead,
                (moved - usize::from(own.is_some())) as u64,
            );
        }
        own
    }
}
