//! What happens when stores fill up, or fail.

use std::sync::atomic::Ordering;

use spillway_store::{Notice, NoticeKind, StoreError};

use crate::kernel::Kernel;
use crate::process::worker::Worker;

const WARNED_STORE_FAILED: u32 = 0;
const WARNED_STORE_CROWDED: u32 = 1;

impl<K: Kernel> Worker<K> {
    /// Notes that a store refused a page, and makes room there if that can be done.
    pub(crate) fn note_store_error(&mut self, error: StoreError) {
        if let StoreError::Full { .. } = error
            && !self.engine.stores_full.swap(true, Ordering::Relaxed)
            && self.drop_clean_copies()
        {
            return;
        }
        if let StoreError::Full { .. } = error {
            // The last tenth of a small store may go between two looks.
            self.tell_crowded();
        }
        if self.at.run.first_time(WARNED_STORE_FAILED) {
            let stored = match &error {
                StoreError::Full { .. } | StoreError::SealsSpent { .. } => "nothing stored is lost",
                StoreError::Io { .. } | StoreError::WrongSeal { .. } => {
                    "what was stored before is asked for when it is needed"
                }
                StoreError::Gone { .. } | StoreError::Unusable { .. } => "what it held is lost",
            };
            let reason = error.to_string();
            let text = format!("{reason}; what cannot be stored stays local, and {stored}");
            self.tell(&match &error {
                StoreError::Full { store } => Notice::new(NoticeKind::StoreFull, &text).about(store),
                _ => Notice::new(NoticeKind::StoreFailed, &text).because(&reason),
            });
        }
        *self.engine.last_store_error() = Some(error);
    }

    /// Little room is left on the last store: copies of local pages are not worth their slots. `pages` are on
    /// their way.
    pub(crate) fn stores_are_crowded(&mut self, pages: u32) -> bool {
        // Counting the slots in use takes longer than a fetch.
        self.pages_until_count = match self.pages_until_count.checked_sub(pages) {
            Some(left) => left,
            None => {
                let last = self.at.stores.last().map_or(0..0, |last| last.range.clone());
                let used_slots = self.at.run.slots().used(last);
                self.crowded = self.last_store_is_nearly_full(used_slots);
                self.copies_abound = self.too_many_copies(used_slots);
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

    fn last_store_is_nearly_full(&mut self, used_slots: u64) -> bool {
        let Some(last) = self.at.stores.last() else { return false };
        let capacity_slots = u64::from(last.range.end - last.range.start);
        let nearly_full = |used: u64, capacity: u64| used > capacity / 10 * 9;
        let full = nearly_full(used_slots, capacity_slots)
            || last.store.room().is_some_and(|room| nearly_full(room.used_bytes, room.capacity_bytes));
        if !full {
            self.engine.stores_full.store(false, Ordering::Relaxed);
            return false;
        }
        self.tell_crowded();
        true
    }

    /// Says once in a run that the last store comes to its end, before that is reached.
    fn tell_crowded(&self) {
        if let Some(last) = self.at.stores.last()
            && self.at.run.first_time(WARNED_STORE_CROWDED)
        {
            let store = last.store.uri();
            let text = format!("store {store} is 90% full: give it a larger size, or name a further --store");
            self.tell(&Notice::new(NoticeKind::StoreNearlyFull, &text).about(store));
        }
    }

    /// Frees the slots that hold copies of local pages. True when there were any.
    fn drop_clean_copies(&mut self) -> bool {
        let mut pages = Vec::new();
        let mut replacement = self.engine.replacement();
        self.flush_all(&mut replacement);
        replacement.for_each_mapped(|entry| pages.push(entry.page_number));
        drop(replacement);
        let mut any = false;
        for page_number in pages {
            let Some(word) = self.engine.table.find(page_number) else { continue };
            let Some(info) = self.try_lock(word) else { continue };
            let slot = info.slot().filter(|&slot| info.is_mapped() && !self.at.run.slots().is_shared(slot));
            // Without a copy it is not clean, and must not look protected.
            let next = match slot {
                Some(_) => self.unprotect(page_number, info).without_slot(),
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
