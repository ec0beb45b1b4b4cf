//! Eviction: unmapping the oldest pages into frames, and writing back what has lain there longest.

use std::sync::atomic::Ordering;

use rustix::io::Errno;
use spillway_core::fifo::Entry;
use spillway_core::page::{PAGE_SIZE, Page};
use spillway_core::page_word::{PageInfo, State};
use spillway_core::slots::{Contents, SLAB_SLOTS};
use spillway_core::transitions::{Finish, Queue, finish_writeback, is_current, unmapped};
use spillway_policy::dcm::Step;
use spillway_store::{StoreError, WriteRequest};
use spillway_sys::memory::{self, Outsiders};

use crate::engine::{Worker, address_of};
use crate::fetch::checksum;
use crate::leaving::{Leaving, Place};
use crate::message;
use crate::run_state::Counter;

/// Pages unmapped or written back together: MEASURED costs per page stop falling at 64.
pub const BATCH_PAGES: usize = 64;

impl Worker {
    /// Evicts up to a batch of this process's pages. Returns how many frames that freed.
    pub(crate) fn evict_batch(&mut self) -> usize {
        let freed = self.give_up_reserve();
        if freed > 0 {
            return freed;
        }
        if let Some(freed) = self.manage_piece().filter(|&freed| freed > 0) {
            return freed as usize;
        }
        self.fill_inactive() + self.write_back_batch()
    }

    /// While the stores are full, what cannot be stored comes back: no more is tried than has a chance.
    fn batch_pages(&self) -> usize {
        const TRIED_WITHOUT_ROOM: usize = 8;
        if !self.engine.stores_full.load(Ordering::Relaxed) {
            return BATCH_PAGES;
        }
        self.engine.unneeded_slots().len().clamp(TRIED_WITHOUT_ROOM, BATCH_PAGES)
    }

    /// Unmaps the oldest mapped pages until the inactive queue has its length again. Returns how many were
    /// evicted at once.
    fn fill_inactive(&mut self) -> usize {
        let local = self.at.process().local_pages().load(Ordering::Relaxed) as usize;
        let (length, target) = {
            let replacement = self.engine.replacement();
            (replacement.inactive_len(), replacement.inactive_target(local).max(BATCH_PAGES))
        };
        let wanted = target.saturating_sub(length).min(self.batch_pages());
        let mut victims = self.take_victims(wanted.min(self.engine.frames.free_count()));
        let dropped = self.drop_clean(&mut victims);
        victims.sort_unstable_by_key(|(page_number, _)| *page_number);
        if self.may_evict_in_place() {
            return dropped + self.evict_in_place(&victims);
        }
        for run in victims.chunk_by(|(a, _), (b, _)| *b == *a + 1) {
            self.unmap_run(run);
        }
        dropped
    }

    /// Locks up to `wanted` mapped pages that the policy gives up.
    fn take_victims(&mut self, wanted: usize) -> Vec<(u64, PageInfo)> {
        let mut victims = Vec::with_capacity(wanted);
        let mut replacement = self.engine.replacement();
        let mut busy = Vec::new();
        // As many steps as could at worst be stale or promotions, and an end in every case.
        for _ in 0..wanted * 16 {
            if victims.len() == wanted {
                break;
            }
            let Some(step) = replacement.next_mapped() else { break };
            let (Step::ToActive(entry) | Step::ToInactive(entry)) = step;
            let Some(word) = self.engine.table.find(entry.page_number) else { continue };
            let Some(info) = word.try_lock() else {
                busy.push(entry);
                continue;
            };
            if !is_current(info, entry.generation, Queue::Mapped) {
                self.unlock(entry.page_number, word, info);
            } else if let Step::ToActive(_) = step {
                let next = info.queued_as(State::Active);
                self.unlock(entry.page_number, word, next);
                let entry = Entry { generation: next.generation, ..entry };
                let _ = replacement.enqueue(State::Active, entry);
            } else if self.engine.holds.covers(entry.page_number) {
                self.unlock(entry.page_number, word, info);
                busy.push(entry);
            } else {
                victims.push((entry.page_number, info));
            }
        }
        for entry in busy {
            let _ = replacement.enqueue(State::Active, entry);
        }
        victims
    }

    /// Moves neighbouring locked pages into frames.
    fn unmap_run(&mut self, mut run: &[(u64, PageInfo)]) {
        let mut is_own = false;
        while !run.is_empty() {
            let Some((frame, count)) = self.engine.frames.take_run(run.len()) else {
                run.iter().for_each(|&(page_number, info)| self.keep_mapped(page_number, info));
                return;
            };
            let moved = match self.move_to_frames(run, frame, count, &mut is_own) {
                Ok(moved) => moved,
                Err(error) => {
                    self.unmap_by_other_means(run[0], frame, error);
                    self.engine.frames.give_back(frame + 1, count - 1);
                    run = &run[1..];
                    continue;
                }
            };
            for (i, &(page_number, info)) in run[..moved].iter().enumerate() {
                self.to_inactive(page_number, info, frame + i as u32);
            }
            self.engine.frames.give_back(frame + moved as u32, count - moved);
            run = &run[moved..];
        }
    }

    /// Moves up to `count` pages of a run and returns how many went; an error speaks of the first. `is_own` says that
    /// the run was made the process's own already.
    fn move_to_frames(
        &self,
        run: &[(u64, PageInfo)],
        frame: u32,
        count: usize,
        is_own: &mut bool,
    ) -> rustix::io::Result<usize> {
        let (to, bytes) = (self.engine.frames.address(frame), count * PAGE_SIZE);
        let address = address_of(run[0].0);
        let uffd = &self.at.uffd;
        let moved = match uffd.move_to_frames(to, address, bytes) {
            // Shared since a fork, perhaps with nobody any more: made this process's own, they can go. What then
            // still cannot is pinned: a device may write to it whatever the page table says.
            Err(Errno::BUSY) if !*is_own => {
                *is_own = true;
                // Where it fails it has come as far as the page that it failed at.
                let _ = memory::make_own(address, run.len() * PAGE_SIZE);
                uffd.move_to_frames(to, address, bytes)?
            }
            other => other?,
        };
        Ok(moved / PAGE_SIZE)
    }

    fn to_inactive(&self, page_number: u64, info: PageInfo, frame: u32) {
        let Some(word) = self.engine.table.find(page_number) else { return };
        let next = unmapped(info, frame);
        self.unlock(page_number, word, next);
        self.engine.enqueue(page_number, next);
    }

    /// The page stays. It goes among the proactive ones: at the tail of the active queue pages that cannot go would
    /// be met again and again before one that can.
    pub(crate) fn keep_mapped(&self, page_number: u64, info: PageInfo) {
        let Some(word) = self.engine.table.find(page_number) else { return };
        let next = info.queued_as(State::Proactive);
        self.unlock(page_number, word, next);
        self.engine.enqueue(page_number, next);
    }

    /// UFFDIO_MOVE did not take the page: finds out why and what can be done.
    fn unmap_by_other_means(&mut self, (page_number, info): (u64, PageInfo), frame: u32, error: Errno) {
        let address = address_of(page_number);
        match error {
            // Nothing is there: the program discarded the page past our hooks. It reads zeros from now on.
            Errno::NOENT => {
                self.at.run.count(Counter::PagesFoundGone, 1);
                self.engine.frames.give_back(frame, 1);
                self.drop_slot(info.slot);
                self.at.release_local(1);
                self.at.remove_managed(1);
                if let Some(word) = self.engine.table.find(page_number) {
                    let next = PageInfo { generation: info.generation, ..PageInfo::ABSENT };
                    self.unlock(page_number, word, next);
                }
            }
            Errno::INVAL if self.nothing_is_pinned() => {
                if self.copy_out(address, frame) {
                    self.to_inactive(page_number, info, frame);
                } else {
                    // What was copied may lie there.
                    self.engine.frames.discard(&mut [frame]);
                    self.refuse_eviction(page_number, info);
                }
            }
            _ => {
                self.engine.frames.give_back(frame, 1);
                self.refuse_eviction(page_number, info);
            }
        }
    }

    fn refuse_eviction(&self, page_number: u64, info: PageInfo) {
        self.at.run.count(Counter::EvictionsRefused, 1);
        self.keep_mapped(page_number, info);
    }

    /// No device holds memory of this process for long. False also when it cannot be known.
    pub(crate) fn nothing_is_pinned(&self) -> bool {
        self.outsiders().is_some_and(|outsiders| outsiders.pinned_bytes == 0)
    }

    /// Who uses the memory of this process beside its threads; `None` when it cannot be known.
    pub(crate) fn outsiders(&self) -> Option<Outsiders> {
        self.at.status.as_ref()?.outsiders().ok()
    }

    /// Copies a page into a frame and drops it, where it cannot be moved because the program may not write to it or
    /// may execute it. Write protection keeps writers away meanwhile, but not devices: where the process has given them
    /// memory to keep, such pages stay.
    fn copy_out(&mut self, address: usize, frame: u32) -> bool {
        let uffd = self.at.managed();
        if uffd.write_protect(address, PAGE_SIZE, true).is_err() {
            return false;
        }
        let done = self.at.uffd.copy(self.engine.frames.address(frame), address, PAGE_SIZE).is_ok()
            && memory::discard(address, PAGE_SIZE).is_ok();
        if !done {
            let _ = uffd.write_protect(address, PAGE_SIZE, false);
        }
        done
    }

    /// Writes back the pages that have been inactive longest, up to a batch. Returns the frames freed.
    fn write_back_batch(&mut self) -> usize {
        let mut leaving = self.take_inactive(self.batch_pages());
        if leaving.is_empty() {
            return 0;
        }
        self.look_at(&mut leaving);
        self.write(&mut leaving);
        let mut freed = Vec::with_capacity(leaving.len());
        for page in leaving {
            self.finish(page, &mut freed);
        }
        let count = freed.len();
        self.engine.departures.add(count as u64);
        self.engine.frames.discard(&mut freed);
        self.at.release_local(count as u64);
        count
    }

    /// Takes the oldest inactive pages into Writeback.
    fn take_inactive(&mut self, wanted: usize) -> Vec<Leaving> {
        let mut leaving = Vec::with_capacity(wanted);
        let mut busy = Vec::new();
        let mut replacement = self.engine.replacement();
        while leaving.len() < wanted {
            let Some(entry) = replacement.next_inactive() else { break };
            let page_number = entry.page_number;
            let Some(word) = self.engine.table.find(page_number) else { continue };
            let Some(info) = word.try_lock() else {
                busy.push(entry);
                continue;
            };
            if !is_current(info, entry.generation, Queue::Unmapped) {
                self.unlock(page_number, word, info);
                continue;
            }
            self.unlock(page_number, word, PageInfo { state: State::Writeback, ..info });
            leaving.push(Leaving::new(page_number, Place::Frame(info.frame), info.slot));
        }
        for entry in busy {
            let _ = replacement.enqueue(State::Inactive, entry);
        }
        leaving
    }

    /// Decides how each page is kept: not at all when it is zeros, in its slot when it is unchanged.
    pub(crate) fn look_at(&self, leaving: &mut [Leaving]) {
        for index in 0..leaving.len() {
            if let Some(next) = leaving.get(index + 1) {
                memory::prefetch(next.contents(&self.engine.frames));
            }
            self.look_at_one(&mut leaving[index]);
        }
    }

    fn look_at_one(&self, page: &mut Leaving) {
        let contents = page.contents(&self.engine.frames);
        if is_zero(contents) {
            self.at.run.count(Counter::ZeroDrops, 1);
            self.note_unwritten(page.address(&self.engine.frames));
            return;
        }
        page.checksum = checksum(contents);
        let slots = self.at.run.slots();
        match page.old_slot {
            Some(slot) if slots.contents(slot).checksum == page.checksum => {
                self.at.run.count(Counter::CleanDrops, 1);
                page.kept = Ok(Some(slot));
            }
            _ => page.must_write = true,
        }
    }

    /// Writes the pages that must be written to the first store that takes them.
    pub(crate) fn write(&mut self, leaving: &mut [Leaving]) {
        self.stores_are_crowded(leaving.len() as u32);
        let written = leaving.iter().filter(|page| page.must_write).count();
        self.engine.written_share.note(written, leaving.len());
        for index in 0..self.at.stores.len() {
            self.choose_slots(index, leaving);
            self.write_to(index, leaving);
            if leaving.iter().all(|page| !page.must_write) {
                break;
            }
        }
        for page in leaving.iter_mut().filter(|page| page.must_write && page.kept == Ok(None)) {
            page.kept = Err(StoreError::Full { store: self.store_names() });
        }
    }

    fn store_names(&self) -> String {
        let names: Vec<&str> = self.at.stores.iter().map(|open| open.store.uri()).collect();
        names.join(", ")
    }

    fn choose_slots(&mut self, index: usize, leaving: &mut [Leaving]) {
        let range = self.at.stores[index].range.clone();
        for page in leaving.iter_mut().filter(|page| page.must_write && !matches!(page.kept, Ok(Some(_)))) {
            let slots = self.at.run.slots();
            let own = page.old_slot.filter(|&slot| range.contains(&slot) && !slots.is_shared(slot));
            let slot = own.or_else(|| self.take_slot(range.clone(), page.page_number));
            page.kept = slot.map_or_else(|| page.kept.clone(), |slot| Ok(Some(slot)));
        }
    }

    /// A free slot, next to those of the page's neighbours where possible.
    fn take_slot(&mut self, range: std::ops::Range<u32>, page_number: u64) -> Option<u32> {
        if self.engine.stores_full.load(Ordering::Relaxed)
            && let Some(slot) = self.reuse_slot(&range)
        {
            return Some(slot);
        }
        let (slots, held) = (self.at.run.slots(), self.at.run.held(self.at.entry));
        let within = (page_number % u64::from(SLAB_SLOTS)) as u32;
        let hint = self.engine.table.slab_of(page_number)?;
        let slab = match u32::try_from(hint.load(Ordering::Relaxed)).ok().and_then(|slab| slab.checked_sub(1))
        {
            Some(slab) if range.contains(&slab) => slab,
            _ => {
                let slab = slots.empty_slab(range.clone(), self.next_slab).unwrap_or(range.start);
                self.next_slab = slab;
                hint.store(u64::from(slab) + 1, Ordering::Relaxed);
                slab
            }
        };
        if let Some(slot) = slots.take(held, range.clone(), slab + within) {
            return Some(slot);
        }
        if self.engine.stores_full.load(Ordering::Relaxed) {
            return None;
        }
        self.flush_slots();
        slots.take(held, range, slab + within)
    }

    fn write_to(&mut self, index: usize, leaving: &mut [Leaving]) {
        let range = self.at.stores[index].range.clone();
        let mine =
            |page: &Leaving| matches!(page.kept, Ok(Some(slot)) if page.must_write && range.contains(&slot));
        let mut batch: Vec<WriteRequest<'_>> = leaving
            .iter()
            .filter(|page| mine(page))
            .filter_map(|page| {
                let slot = page.kept.as_ref().ok().copied().flatten()? - range.start;
                Some(WriteRequest { slot, page: page.contents(&self.engine.frames), outcome: Ok(()) })
            })
            .collect();
        if batch.is_empty() {
            return;
        }
        self.lanes[index].write(&mut batch);
        let outcomes: Vec<Result<(), StoreError>> =
            batch.into_iter().map(|request| request.outcome).collect();
        let run = self.at.run;
        if outcomes.iter().any(Result::is_ok)
            && let Ok(mut last) = self.engine.last_store_error.lock()
        {
            *last = None;
        }
        let mut refused = Vec::new();
        for (page, outcome) in leaving.iter_mut().filter(|page| mine(page)).zip(outcomes) {
            let Ok(Some(slot)) = page.kept else { continue };
            match outcome {
                Ok(()) => {
                    let (checksum, page_number) = (page.checksum, Some(page.page_number));
                    run.slots().set_contents(slot, Contents { checksum, page_number });
                    run.count(Counter::PagesWrittenBack, 1);
                    run.count(Counter::BytesOut, PAGE_SIZE as u64);
                    page.must_write = false;
                }
                Err(error) => {
                    run.count(Counter::WritebacksFailed, 1);
                    page.kept = Err(error);
                    // A slot that was overwritten in part holds neither the old page nor the new.
                    if page.old_slot == Some(slot) {
                        page.old_slot = None;
                    }
                    refused.push(slot);
                }
            }
        }
        refused.into_iter().for_each(|slot| self.drop_slot(Some(slot)));
    }

    /// Settles what became of a page after its write-back.
    fn finish(&mut self, page: Leaving, freed: &mut Vec<u32>) {
        let Place::Frame(frame) = page.place else { return };
        let Some(word) = self.engine.table.find(page.page_number) else { return };
        let info = self.lock(word);
        match page.kept {
            Ok(kept) => {
                let (mut next, finish) = finish_writeback(info, frame, kept);
                match (finish, next.state) {
                    (Finish::Stored, State::Far) => next.frame = self.engine.departures.now(),
                    (Finish::Stored, _) => self.at.remove_managed(1),
                    _ => {}
                }
                self.unlock(page.page_number, word, next);
                freed.push(frame);
                if page.old_slot != kept {
                    self.drop_slot(page.old_slot);
                }
                if finish == Finish::Cancelled {
                    self.at.run.count(Counter::WritebacksCancelled, 1);
                    self.drop_slot(kept);
                }
            }
            Err(error) => {
                self.drop_slot(page.old_slot);
                if info.state != State::Writeback || info.frame != frame {
                    self.unlock(page.page_number, word, info);
                    freed.push(frame);
                } else {
                    let mapped = self.remap(page.page_number, frame).is_ok();
                    let state = if mapped { State::Active } else { State::Inactive };
                    let next = PageInfo { slot: None, ..info.queued_as(state) };
                    self.unlock(page.page_number, word, next);
                    self.engine.enqueue(page.page_number, next);
                }
                self.note_store_error(error);
            }
        }
    }

    pub(crate) fn note_store_error(&mut self, error: StoreError) {
        if let StoreError::Full { .. } = error
            && !self.engine.stores_full.swap(true, Ordering::Relaxed)
            && self.drop_clean_copies()
        {
            return;
        }
        if self.at.run.first_time(WARNED_STORE_FAILED) {
            message::to_program(&format!(
                "{error}; what cannot be stored stays local, and nothing stored is lost"
            ));
        }
        if let Ok(mut last) = self.engine.last_store_error.lock() {
            *last = Some(error);
        }
    }

    /// Little room is left on the last store: copies of local pages are not worth their slots. `pages` are on their way.
    pub(crate) fn stores_are_crowded(&mut self, pages: u32) -> bool {
        // Counting the slots in use takes longer than a fetch.
        self.pages_until_count = match self.pages_until_count.checked_sub(pages) {
            Some(left) => left,
            None => {
                self.crowded = self.last_store_is_nearly_full();
                self.pages_between_counts()
            }
        };
        self.crowded || self.engine.stores_full.load(Ordering::Relaxed)
    }

    /// Few for a small store, so that its end is announced before it comes.
    fn pages_between_counts(&self) -> u32 {
        let slots = self.at.stores.last().map_or(0, |last| last.range.end - last.range.start);
        (slots / 256).clamp(1, 256)
    }

    fn last_store_is_nearly_full(&mut self) -> bool {
        let Some(last) = self.at.stores.last() else { return false };
        let capacity_slots = u64::from(last.range.end - last.range.start);
        let used_slots = self.at.run.slots().used(last.range.clone());
        let nearly_full = |used: u64, capacity: u64| used > capacity / 10 * 9;
        let full = nearly_full(used_slots, capacity_slots)
            || last.store.room().is_some_and(|room| nearly_full(room.used_bytes, room.capacity_bytes));
        if !full {
            self.engine.stores_full.store(false, Ordering::Relaxed);
            return false;
        }
        if self.at.run.first_time(WARNED_STORE_CROWDED) {
            message::to_program(&format!(
                "store {} is 90% full: give it a larger size, or name a further --store",
                last.store.uri()
            ));
        }
        true
    }

    /// Frees the slots that hold copies of local pages. True when there were any.
    fn drop_clean_copies(&mut self) -> bool {
        let mut pages = Vec::new();
        self.engine.replacement().for_each_mapped(|entry| pages.push(entry.page_number));
        let mut any = false;
        for page_number in pages {
            let Some(word) = self.engine.table.find(page_number) else { continue };
            let Some(info) = word.try_lock() else { continue };
            let slot = info.slot.filter(|&slot| info.is_mapped() && !self.at.run.slots().is_shared(slot));
            // Without a copy it is not clean, and must not look protected.
            let next = match slot {
                Some(_) => PageInfo { slot: None, ..self.unprotect(page_number, info) },
                None => info,
            };
            self.unlock(page_number, word, next);
            any |= slot.is_some();
            self.drop_slot(slot);
        }
        self.flush_slots();
        any
    }
}

const WARNED_STORE_FAILED: u32 = 0;
const WARNED_STORE_CROWDED: u32 = 1;

fn is_zero(page: &Page) -> bool {
    // Compared with itself shifted by one, after its first byte: as fast as memcmp.
    page[0] == 0 && page[..PAGE_SIZE - 1] == page[1..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_page_of_zeros_is_zero() {
        assert!(is_zero(&[0; PAGE_SIZE]));
        for at in [0, 1, 2047, 4095] {
            let mut page = [0; PAGE_SIZE];
            page[at] = 1;
            assert!(!is_zero(&page), "{at}");
        }
        assert!(!is_zero(&[7; PAGE_SIZE]));
    }
}
