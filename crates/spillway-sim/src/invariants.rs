//! What must hold of the pager's books, at every look or where a process is quiet.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use spillway_core::fifo::Entry;
use spillway_core::page::PAGE_SHIFT;
use spillway_core::page_word::{PageState, Queue};
use spillway_core::transitions::{is_queued_inactive, is_queued_mapped};
use spillway_pager::evict::charge::EXCHANGE_PAGES;
use spillway_pager::evict::write_back::BATCH_PAGES;
use spillway_pager::pages::table::PageTable;
use spillway_pager::run::state::slot_ranges;
use spillway_pager::space::regions::Regions;
use spillway_policy::blocks::{Blocks, LARGEST_ORDER};

use crate::space::Mapped;
use crate::store_model::UnderWay;
use crate::tasks::Wait;
use crate::world::World;

impl World {
    /// What must hold at any time.
    pub(crate) fn check_always(&mut self) {
        self.check_operations();
        let Some(run) = self.run else { return };
        let budget = run.budget();
        let (limit, local) =
            (budget.limit_pages.load(Ordering::Relaxed), budget.local_pages.load(Ordering::Relaxed));
        let excess = if self.stores.iter().any(|store| store.has_been_full) || self.is_scarce() {
            EXCHANGE_PAGES
        } else {
            0
        };
        if local > limit + excess {
            self.fail(format!("{local} pages are local under a limit of {limit}, and {excess} beyond it"));
        }
        for process in 0..self.processes.len() {
            // A page that is copied out of its frame lies twice for a moment, once for each thread that does
            // so.
            let copies = self.config.handlers as u64 + 3;
            let books = self.resident_and_charged(process);
            if let Some((resident, charged)) =
                books.filter(|(resident, charged)| *resident > charged + copies)
            {
                self.fail(format!(
                    "process {process} has {resident} pages resident and is charged for {charged} only"
                ));
            }
        }
    }

    /// Pages of a process that are there and that the pager answers for, and what it is charged; `None` where
    /// the books are being written.
    fn resident_and_charged(&self, process: usize) -> Option<(u64, u64)> {
        let process = &self.processes[process];
        let pager = process.pager.filter(|_| process.is_alive && process.is_ready)?;
        let regions = pager.engine.regions_now()?;
        let own = |range: spillway_sys::ranges::FrameRange<'_>| {
            process.space.own_within(range.start()..range.start() + range.bytes()).count()
        };
        // Locked pages stay until the range is unmapped.
        let is_going = |page: u64, mapped: &Mapped| {
            !mapped.attributes.is_locked
                && process.program.unmapping.iter().any(|going| going.contains(&page))
        };
        let is_stray = |page: u64| {
            let word = pager.engine.table.find(page);
            process.handing_over > 0 && word.is_none_or(|word| word.peek().is_absent())
        };
        let mapped = process.space.iter().filter(|(page, mapped)| {
            mapped.entry.is_present()
                && !is_stray(*page)
                && (regions.contains((*page as usize) << PAGE_SHIFT) || is_going(*page, mapped))
        });
        let resident = mapped.count().saturating_sub(process.uncounted)
            + own(pager.engine.frames.all())
            + own(pager.engine.reserve.all())
            + own(pager.engine.stages.all());
        Some((resident as u64, pager.at.process().local_pages().load(Ordering::Relaxed)))
    }

    /// The pager's threads of a process wait for something to do.
    pub(crate) fn is_quiet(&self, process: usize) -> bool {
        let is_pagers = |name: &str| name.starts_with("handler") || name.starts_with("evictor");
        let mut tasks = self.tasks.iter().filter(|(_, task)| task.process == Some(process));
        tasks.all(|(_, task)| !is_pagers(&task.name) || matches!(task.wait, Wait::Message | Wait::Futex(_)))
    }

    /// What must hold of a process that nobody works for: all threads of its program have ended.
    pub(crate) fn check_quiet_process(&mut self, process: usize) {
        if let Some(what) = self.quiet_mistake(process) {
            self.fail(format!("process {process}, at rest: {what}"));
        }
    }

    fn quiet_mistake(&self, process: usize) -> Option<String> {
        let pager = self.processes[process].pager?;
        let (engine, at) = (pager.engine, pager.at);
        let mut slots: BTreeMap<u32, String> = BTreeMap::new();
        let mut frames: BTreeMap<u32, u64> = BTreeMap::new();
        let mut local = 0;
        let regions = engine.regions_now()?;
        for (page, word) in engine.table.range(0, 1 << 30) {
            let info = word.peek();
            if !info.is_absent() && !regions.contains((page as usize) << PAGE_SHIFT) {
                return Some(format!("page {page:#x} is not managed, and its word says {:?}", info.state));
            }
            if word.is_locked() {
                return Some(format!("the word of page {page:#x} is locked"));
            }
            local += u64::from(info.is_local());
            if let PageState::Inactive { frame, .. } = info.state
                && let Some(other) = frames.insert(frame, page)
            {
                return Some(format!("frame {frame} has two pages: {other:#x} and {page:#x}"));
            }
            if info.is_under_write_back() {
                return Some(format!("page {page:#x} is under write-back for ever"));
            }
            if let Some(slot) = info.slot()
                && let Some(other) = slots.insert(slot, format!("page {page:#x}"))
            {
                return Some(format!("slot {slot} is that of {other} and of page {page:#x}"));
            }
        }
        if let Some(mistake) = queue_mistake(&engine.table, &engine.entries_now()?) {
            return Some(mistake);
        }
        if let Some(mistake) = block_mistake(&engine.table, &regions) {
            return Some(mistake);
        }
        for slot in engine.unneeded_slots_now()? {
            if let Some(other) = slots.insert(slot, "nobody".to_owned()) {
                return Some(format!("slot {slot} is that of {other} and given up"));
            }
        }
        let held: Vec<u32> = at.run.slots().held_by(&at.run.held(at.entry)).collect();
        let known: Vec<u32> = slots.keys().copied().collect();
        if held != known {
            let lost: Vec<&u32> = held.iter().filter(|slot| !slots.contains_key(slot)).collect();
            let foreign: Vec<&u32> = known.iter().filter(|slot| !held.contains(slot)).collect();
            return Some(format!("slots {lost:?} are held for no page, and {foreign:?} are not held"));
        }
        let own = |request: &&UnderWay| request.process == Some(process);
        if let Some(request) = self.stores.iter().flat_map(|store| &store.under_way).find(own) {
            return Some(format!("slot {} is asked for, and nobody waits for the answer", request.slot));
        }
        let total = engine.frames.all().pages();
        let free = engine.frames.free_count();
        if free + frames.len() != total {
            return Some(format!("of {total} frames {free} are free and {} hold a page", frames.len()));
        }
        let native: usize = engine.native_now()?.iter().map(|(range, _)| range.len() >> PAGE_SHIFT).sum();
        let reserved = engine.reserve.full.free_count();
        let staged = engine.stages.ready_pages()?;
        let charged = at.process().local_pages().load(Ordering::Relaxed);
        let counted = local + (native + reserved + staged) as u64;
        if charged != counted {
            return Some(format!(
                "{charged} pages are charged, and {counted} are local: {local} managed, \
                 {native} native, {reserved} in reserve, {staged} staged"
            ));
        }
        let (resident, charged) = self.resident_and_charged(process)?;
        (resident > charged).then(|| format!("{resident} pages are resident, and {charged} are charged"))
    }

    /// What must hold where no process is left and the supervisor has given back what they held.
    pub(crate) fn check_end(&mut self) {
        let Some(run) = self.run.filter(|_| !self.supervisor_is_gone) else { return };
        let local = run.budget().local_pages.load(Ordering::Relaxed);
        let entries = run.processes().count();
        let slots = run.slots();
        let capacities: Vec<u32> = self.stores.iter().map(|store| store.capacity_slots).collect();
        let used: u64 = slot_ranges(&capacities).into_iter().map(|range| slots.used(range)).sum();
        // Who is killed between charging the run and noting it, a few instructions, leaves that: a batch at
        // most.
        let kills = self.counts.get("kills").copied().unwrap_or(0);
        if local > kills * BATCH_PAGES as u64 || entries != 0 || used != 0 {
            self.fail(format!(
                "of the dead are left: {local} pages of the limit, {entries} entries, {used} slots"
            ));
        }
        let frames = self.physical.used();
        if frames != 0 {
            self.fail(format!("{frames} frames of the machine belong to nobody"));
        }
    }
}

/// Each page that can leave is queued once. A range that came as one leaves as one, whatever the queues say.
fn queue_mistake(table: &PageTable, entries: &[(Queue, Entry)]) -> Option<String> {
    let mut queued: BTreeMap<u64, u32> = BTreeMap::new();
    for (queue, entry) in entries {
        let info = table.find(entry.page_number)?.peek();
        let speaks_of = match queue {
            Queue::Inactive => is_queued_inactive(info, entry.generation),
            Queue::Active | Queue::Proactive => is_queued_mapped(info, entry.generation),
        };
        *queued.entry(entry.page_number).or_default() += u32::from(speaks_of);
    }
    for (page, word) in table.range(0, 1 << 30).filter(|(page, _)| !table.is_whole(*page)) {
        let count = queued.get(&page).copied().unwrap_or_default();
        let wanted = u32::from(word.peek().queue().is_some());
        if count != wanted {
            return Some(format!("page {page:#x} is queued {count} times: {:?}", word.peek()));
        }
    }
    None
}

/// All pages of a block agree on it, and it lies within what is managed.
fn block_mistake(table: &PageTable, regions: &Regions) -> Option<String> {
    let blocks = Blocks::over(table, LARGEST_ORDER);
    for (page, _) in table.range(0, 1 << 30).filter(|(page, _)| blocks.order(*page) > 0) {
        let block = blocks.pages(page);
        if block.clone().any(|member| blocks.pages(member) != block) {
            return Some(format!("page {page:#x} is in the block {block:#x?}, whose pages do not agree"));
        }
        if block.clone().any(|member| !regions.contains((member as usize) << PAGE_SHIFT)) {
            return Some(format!("the block {block:#x?} reaches beyond its region"));
        }
    }
    None
}
