//! Writing victims to stores: which store, which slot.

use std::ops::Range;
use std::sync::atomic::Ordering;

use spillway_core::page::PAGE_SIZE;
use spillway_core::slots::{Contents, SLAB_SLOTS};
use spillway_store::{StoreError, WriteRequest};

use crate::evict::victim::Victim;
use crate::evict::write_back::contents;
use crate::kernel::{Kernel, planted};
use crate::process::unanswered;
use crate::process::worker::Worker;
use crate::run::state::Counter;

impl<K: Kernel> Worker<K> {
    /// Writes the pages that must be written to the first store that takes them.
    pub(crate) fn write(&mut self, victims: &mut [Victim]) {
        self.stores_are_crowded(victims.len() as u32);
        let written = victims.iter().filter(|page| page.must_write).count();
        self.engine.written_share.note(written, victims.len());
        for index in 0..self.at.stores.len() {
            self.choose_slots(index, victims);
            self.write_to(index, victims);
            if victims.iter().all(|page| !page.must_write) {
                break;
            }
        }
        for page in victims.iter_mut().filter(|page| page.must_write && page.kept == Ok(None)) {
            page.kept = Err(StoreError::Full { store: self.store_names() });
        }
    }

    fn store_names(&self) -> String {
        let names: Vec<&str> = self.at.stores.iter().map(|open| open.store.uri()).collect();
        names.join(", ")
    }

    fn choose_slots(&mut self, index: usize, victims: &mut [Victim]) {
        let range = self.at.stores[index].range.clone();
        // Whether a full store has room again is found out by one page, and only where none has a place.
        let mut tries = match self.engine.stores_full.load(Ordering::Relaxed) {
            true => usize::from(self.engine.unneeded_slots().is_empty()),
            false => usize::MAX,
        };
        for page in victims.iter_mut().filter(|page| page.must_write && !matches!(page.kept, Ok(Some(_)))) {
            let slots = self.at.run.slots();
            let own = page.old_slot.filter(|&slot| {
                let is_own = !slots.is_shared(slot) || planted!(K, "shared-slot-overwritten");
                range.contains(&slot) && is_own
            });
            let slot = own.or_else(|| self.take_slot_with_room(&range)).or_else(|| {
                tries = tries.checked_sub(1)?;
                self.take_free_slot(index, page.page_number)
            });
            page.kept = slot.map_or_else(|| page.kept.clone(), |slot| Ok(Some(slot)));
        }
    }

    /// While the stores are full: a slot whose page has just come in, so that the store has room for this.
    fn take_slot_with_room(&mut self, range: &Range<u32>) -> Option<u32> {
        let full = self.engine.stores_full.load(Ordering::Relaxed);
        if full { self.reuse_slot(range) } else { None }
    }

    /// A free slot, next to those of the page's neighbours where possible.
    fn take_free_slot(&mut self, index: usize, page_number: u64) -> Option<u32> {
        let (range, store) = (self.at.stores[index].range.clone(), &self.at.stores[index].store);
        let (slots, held) = (self.at.run.slots(), self.at.run.held(self.at.entry));
        let within = (page_number % u64::from(SLAB_SLOTS)) as u32;
        // Of a pool whose donors have died, slots are free for which nobody has room.
        let has_room = |slot| store.keeps_memory_for(slot - range.start);
        if self.engine.stores_full.load(Ordering::Relaxed)
            && let Some(slot) = slots.take_beside_others(held, range.clone(), self.slabs.next(), has_room)
        {
            return Some(slot);
        }
        let hint = self.engine.table.slab_of(page_number)?;
        let slab = match u32::try_from(hint.load(Ordering::Relaxed)).ok().and_then(|slab| slab.checked_sub(1))
        {
            Some(slab) if range.contains(&slab) => slab,
            _ => {
                let slab = self.slabs.choose(&slots, &range);
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

    fn write_to(&mut self, index: usize, victims: &mut [Victim]) {
        let range = self.at.stores[index].range.clone();
        let mine =
            |page: &Victim| matches!(page.kept, Ok(Some(slot)) if page.must_write && range.contains(&slot));
        let (engine, at) = (self.engine, self.at);
        let mut batch: Vec<WriteRequest<'_>> = victims
            .iter()
            .filter(|page| mine(page))
            .filter_map(|page| {
                let slot = page.kept.as_ref().ok().copied().flatten()? - range.start;
                Some(WriteRequest { slot, page: contents(engine, at, page), outcome: Ok(()) })
            })
            .collect();
        if batch.is_empty() {
            return;
        }
        let (open, lane) = (&at.stores[index], &mut *self.lanes[index]);
        let has_answered = unanswered::change(at, open, lane, |lane| lane.write(&mut batch));
        let outcomes: Vec<Result<(), StoreError>> =
            batch.into_iter().map(|request| request.outcome).collect();
        let run = self.at.run;
        if outcomes.iter().any(Result::is_ok) {
            *self.engine.last_store_error() = None;
            self.slabs.note_taken();
        }
        let (mut refused, mut left) = (Vec::new(), None);
        for (page, outcome) in victims.iter_mut().filter(|page| mine(page)).zip(outcomes) {
            let Ok(Some(slot)) = page.kept else { continue };
            match outcome {
                Ok(()) => {
                    let (checksum, page_number) = (page.checksum, Some(page.page_number));
                    run.slots().set_contents(slot, Contents { checksum, page_number });
                    run.count_of(self.at.entry, Counter::PagesWrittenBack, 1);
                    run.store(index).count_written(1);
                    run.count(Counter::BytesOut, PAGE_SIZE as u64);
                    page.must_write = false;
                }
                Err(error) => {
                    run.count(Counter::WritebacksFailed, 1);
                    run.store(index).count_refused(&error, K::now_ns());
                    let is_full = matches!(error, StoreError::Full { .. });
                    if !is_full && !planted!(K, "refused-slab-not-left") {
                        left = Some(slot);
                        if let Some(hint) = engine.table.slab_of(page.page_number) {
                            hint.store(0, Ordering::Relaxed);
                        }
                    }
                    page.kept = Err(error);
                    // A slot that was overwritten in part holds neither the old page nor the new.
                    if page.old_slot == Some(slot) && !planted!(K, "half-written-slot-kept") {
                        page.old_slot = None;
                    }
                    refused.push(slot);
                }
            }
        }
        if let Some(slot) = left {
            self.slabs.leave(&range, slot);
        }
        // Not among the unneeded slots, for those have room in their store. What may be written at any later
        // time is given to nobody.
        if has_answered {
            self.give_back_slots(refused);
        }
    }
}
