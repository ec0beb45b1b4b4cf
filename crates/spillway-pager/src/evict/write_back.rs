//! Write-back: what lies in frames goes to slots, a batch at a time.

use spillway_core::fifo::Entry;
use spillway_core::page::{PAGE_SIZE, Page};
use spillway_core::page_word::{PageInfo, PageState, PageWord, Queue};
use spillway_core::transitions::{Finish, finish_writeback, is_queued_inactive};
use spillway_policy::fault_trace::{Event, Left};
use spillway_sys::memory;

use crate::evict::victim::{Place, Victim};
use crate::kernel::{Kernel, planted};
use crate::pages::address::target;
use crate::pages::checksum::checksum;
use crate::process::attachment::Attachment;
use crate::process::engine::Engine;
use crate::process::worker::Worker;
use crate::run::state::Counter;

/// What a victim holds. Nothing changes it while it leaves.
#[allow(unsafe_code)]
pub(crate) fn contents<'a, K: Kernel>(
    engine: &'a Engine<K>,
    at: &'a Attachment<K>,
    victim: &Victim,
) -> &'a Page {
    match victim.place {
        // SAFETY: the frame of a page in Writeback is this write-back's until it ends.
        Place::Frame(frame) => unsafe { at.kernel.frame_page(engine.frames.range(frame, 1)) },
        // SAFETY: `in_place` sees to it that it can be read and that nobody writes or unmaps it.
        Place::Mapped => unsafe { at.kernel.target_page(target(victim.page_number, 1)) },
    }
}

/// Pages unmapped or written back together: the cost per page stops falling at 64
/// (`docs/research/pager-speed.md`).
pub const BATCH_PAGES: usize = 64;

impl<K: Kernel> Worker<K> {
    /// Writes back the pages that have been inactive longest, up to a batch. Returns the frames freed.
    pub(crate) fn write_back_batch(&mut self) -> usize {
        let mut freed = Vec::with_capacity(BATCH_PAGES);
        let victims = self.take_inactive(self.batch_pages(), &mut freed);
        let clean = self.settle_clean(&mut freed);
        if victims.is_empty() { clean } else { clean + self.write_back(victims) }
    }

    /// Writes pages back that are in Writeback. Returns the frames freed.
    pub(crate) fn write_back(&mut self, mut victims: Vec<Victim>) -> usize {
        for part in victims.chunks_mut(BATCH_PAGES) {
            part.iter_mut().for_each(|page| self.discard_cancelled(page));
            self.choose_how_kept(part);
            self.write(part);
        }
        // Who has a page's word may wait for room: what the other pages give back comes first.
        let mut busy = Vec::new();
        let mut freed = Vec::with_capacity(victims.len());
        for page in victims {
            match self.try_lock_victim(&page) {
                Some((word, info)) => self.finish(page, word, info, &mut freed),
                None => busy.push(page),
            }
        }
        let mut count = self.give_back_frames(&mut freed);
        for page in busy {
            let Some(word) = self.engine.table.find(page.page_number) else { continue };
            let info = self.lock(word);
            self.finish(page, word, info, &mut freed);
            count += self.give_back_frames(&mut freed);
        }
        count
    }

    /// A page that was touched before its write has begun needs none. Its word is the link to this
    /// write-back, by its frame; once cut it stays so, for the frame is this write-back's until its end.
    fn discard_cancelled(&self, page: &mut Victim) {
        let Place::Frame(frame) = page.place else { return };
        let word = self.engine.table.find(page.page_number);
        if word.is_some_and(|word| word.peek().state != (PageState::Writeback { frame })) {
            (page.is_cancelled, page.kept) = (true, Ok(page.old_slot));
        }
    }

    fn try_lock_victim(&self, page: &Victim) -> Option<(PageWord<'static>, PageInfo)> {
        let word = self.engine.table.find(page.page_number)?;
        Some((word, self.try_lock(word)?))
    }

    /// Frees frames, and gives the room back that they took. Returns how many.
    pub(crate) fn give_back_frames(&mut self, freed: &mut Vec<u32>) -> usize {
        let count = freed.len();
        let too_early = planted!(K, "room-given-back-early");
        if too_early {
            self.at.release_local(count as u64);
        }
        self.engine.departures.add(count as u64);
        self.engine.frames.discard(&self.at.kernel, freed);
        if !too_early {
            self.at.release_local(count as u64);
        }
        freed.clear();
        count
    }

    /// Takes the oldest inactive pages into Writeback. Those that are as their slots have them are gone at
    /// once: `freed` are their frames.
    fn take_inactive(&mut self, wanted: usize, freed: &mut Vec<u32>) -> Vec<Victim> {
        let (mut victims, mut drawn) = (Vec::with_capacity(wanted), Vec::with_capacity(wanted));
        let first = self.inactive_source();
        let mut busy = Vec::new();
        while victims.len() + freed.len() < wanted {
            self.draw_inactive(first, wanted - victims.len() - freed.len(), &mut drawn);
            if drawn.is_empty() {
                break;
            }
            self.take_drawn(&mut drawn, &mut victims, freed, &mut busy);
        }
        for entry in busy {
            self.put(Queue::Inactive, entry);
        }
        victims
    }

    /// Takes drawn pages into Writeback, or lets them go. Those whose words somebody has are `busy`.
    fn take_drawn(
        &mut self,
        drawn: &mut Vec<Entry>,
        victims: &mut Vec<Victim>,
        freed: &mut Vec<u32>,
        busy: &mut Vec<Entry>,
    ) {
        for entry in drawn.drain(..) {
            let page_number = entry.page_number;
            let Some(word) = self.engine.table.find(page_number) else { continue };
            let Some(info) = self.try_lock(word) else {
                busy.push(entry);
                continue;
            };
            let info = match self.let_one_go(entry, word, info) {
                Ok(frame) => {
                    freed.push(frame);
                    continue;
                }
                Err(info) => info,
            };
            let (true, PageState::Inactive { frame, slot, .. }) =
                (is_queued_inactive(info, entry.generation), info.state)
            else {
                self.unlock(page_number, word, info);
                continue;
            };
            self.unlock(page_number, word, PageInfo { state: PageState::Writeback { frame }, ..info });
            if planted!(K, "slot-freed-while-written") {
                self.drop_slot(slot);
            }
            victims.push(Victim::new(page_number, Place::Frame(frame), slot));
        }
    }

    /// Decides how each page is kept: not at all when it is zeros, in its slot when it is unchanged.
    pub(crate) fn choose_how_kept(&self, victims: &mut [Victim]) {
        for index in 0..victims.len() {
            if let Some(next) = victims.get(index + 1) {
                memory::prefetch(contents(self.engine, self.at, next));
            }
            self.choose_for_one(&mut victims[index]);
        }
    }

    fn choose_for_one(&self, page: &mut Victim) {
        if page.is_cancelled {
            return;
        }
        let contents = contents(self.engine, self.at, page);
        if is_zero(contents) || planted!(K, "zeros-by-half") && is_half_zero(contents) {
            self.at.run.count(Counter::ZeroDrops, 1);
            self.note_unwritten(page.address(&self.engine.frames));
            return;
        }
        page.checksum = checksum(contents);
        let slots = self.at.run.slots();
        if planted!(K, "checksum-of-the-older-version")
            && let Some(slot) = page.old_slot
        {
            page.must_write = true;
            page.checksum = slots.contents(slot).checksum;
            return;
        }
        match page.old_slot {
            Some(slot)
                if slots.contents(slot).checksum == page.checksum || planted!(K, "stale-copy-kept") =>
            {
                self.at.run.count(Counter::CleanDrops, 1);
                page.kept = Ok(Some(slot));
            }
            _ => page.must_write = true,
        }
    }

    /// Settles what became of a page after its write-back. Its word is locked, and unlocked here.
    fn finish(&mut self, page: Victim, word: PageWord<'_>, mut info: PageInfo, freed: &mut Vec<u32>) {
        let Place::Frame(frame) = page.place else { return self.unlock(page.page_number, word, info) };
        let is_later = matches!(info.state, PageState::Writeback { .. });
        if planted!(K, "touch-overlooked") || is_later && planted!(K, "later-write-back-taken-for-own") {
            info.state = PageState::Writeback { frame };
        }
        match page.kept {
            Ok(kept) => {
                let left = self.engine.departures.now();
                let (next, finish) = finish_writeback(info, frame, kept, left);
                if finish == Finish::Stored {
                    self.note_left(page.page_number);
                    self.engine.note(|| departed(page.page_number, kept));
                    self.at.remove_managed(u64::from(kept.is_none()));
                }
                self.unlock(page.page_number, word, next);
                freed.push(frame);
                if page.old_slot != kept {
                    self.drop_slot(page.old_slot);
                }
                if finish == Finish::Cancelled {
                    if planted!(K, "cancelled-frame-freed-twice") {
                        freed.push(frame);
                    }
                    self.at.run.count(Counter::WritebacksCancelled, 1);
                    self.drop_slot(kept);
                }
            }
            Err(error) => {
                self.drop_slot(page.old_slot);
                if info.state != (PageState::Writeback { frame }) {
                    self.unlock(page.page_number, word, info);
                    freed.push(frame);
                } else {
                    let state = match self.remap(page.page_number, frame) {
                        Ok(()) => PageState::Mapped { proactive: false, slot: None, protected_in: None },
                        Err(_) => PageState::Inactive { frame, slot: None, is_clean: false },
                    };
                    let next = info.queued_as(state);
                    self.unlock(page.page_number, word, next);
                    self.enqueue(page.page_number, next);
                }
                self.note_store_error(error);
            }
        }
    }
}

/// A page that has left, as a fault trace has it.
pub(crate) fn departed(page_number: u64, kept: Option<u32>) -> Event {
    let how = if kept.is_some() { Left::Stored } else { Left::Zeros };
    Event::Left { how, page_number, pages: 1 }
}

/// For a mistake that is planted.
fn is_half_zero(page: &Page) -> bool {
    page[..PAGE_SIZE / 2].iter().all(|&byte| byte == 0)
}

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
