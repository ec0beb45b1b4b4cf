//! Pages that cannot have changed: dropped where they are, with no move, no checksum and no write.
//!
//! A page that a read fetches is mapped write-protected while it stays what its slot holds. A write faults, and lifts the
//! protection before anything else. At eviction the pages that are still protected are dropped, a batch in one call.
//!
//! Invariant: a word whose page is clean in the present epoch speaks of a page whose table entry is protected, or missing
//! since a system call past our hooks; the page map tells these apart, but in inline mode no call goes past them. The locks of words keep writers' faults out
//! meanwhile, and the lock of the regions those who end a registration, which lifts protection. A forked child begins a new
//! epoch: it inherits words, but no protection.

use std::sync::atomic::Ordering;

use spillway_core::page_word::{PageInfo, State};
use spillway_sys::memory;

use crate::engine::{Worker, address_of};
use crate::run_state::Counter;

/// Longer blocks are streams, where an eviction moves whole runs and protection would cost more than it saves.
const MOST_BLOCK_PAGES: usize = 8;
/// What one write costs is what so many pages dropped have saved.
const WRITE_SCORE: u64 = 4;
const MOST_SCORE: u64 = 64;
/// From here on pages are not protected, and one in so many is tried.
const WRITTEN_SCORE: u64 = 16;
const TRY_ONE_IN: u64 = 32;

impl Worker {
    /// The epoch to note for a page that a fault fetches: 0 where it is better not protected.
    pub(crate) fn protection(&self, page_number: u64, write: bool, block_pages: usize) -> u32 {
        if write
            || block_pages > MOST_BLOCK_PAGES
            || self.at.own_process.is_none()
            || self.at.page_map.is_none()
        {
            return 0;
        }
        let score = self.engine.table.writes_of(page_number).map_or(0, |score| score.load(Ordering::Relaxed));
        if score >= WRITTEN_SCORE && !page_number.wrapping_mul(0x9E37_79B9).is_multiple_of(TRY_ONE_IN) {
            return 0;
        }
        self.engine.protection_epoch.load(Ordering::Relaxed)
    }

    /// Notes that a clean page is written to (`true`) or was dropped.
    fn note_use(&self, page_number: u64, written: bool) {
        let Some(score) = self.engine.table.writes_of(page_number) else { return };
        let before = score.load(Ordering::Relaxed);
        let next = if written { (before + WRITE_SCORE).min(MOST_SCORE) } else { before.saturating_sub(1) };
        score.store(next, Ordering::Relaxed);
    }

    /// Lifts the protection of a locked page. Returns it as it is then; who waits is woken by that.
    pub(crate) fn unprotect(&self, page_number: u64, info: PageInfo) -> PageInfo {
        if info.is_clean(self.engine.protection_epoch.load(Ordering::Relaxed)) {
            self.note_use(page_number, true);
        }
        let _ =
            self.at.managed().write_protect(address_of(page_number), spillway_core::page::PAGE_SIZE, false);
        if info.is_mapped() { info.protected_in(0) } else { info }
    }

    /// Drops those of the locked `victims` that are clean, and leaves the others. Returns how many went.
    pub(crate) fn drop_clean(&mut self, victims: &mut Vec<(u64, PageInfo)>) -> usize {
        let epoch = self.engine.protection_epoch.load(Ordering::Relaxed);
        let (clean, rest): (Vec<_>, Vec<_>) = victims.drain(..).partition(|(_, info)| info.is_clean(epoch));
        *victims = rest;
        if clean.is_empty() {
            return 0;
        }
        let dropped = self.drop_protected(&clean);
        let mut count = 0;
        for ((page_number, info), dropped) in clean.into_iter().zip(dropped) {
            if dropped {
                self.note_use(page_number, false);
                let next = PageInfo { state: State::Far, frame: self.engine.departures.now(), ..info };
                if let Some(word) = self.engine.table.find(page_number) {
                    self.unlock(page_number, word, next);
                }
                count += 1;
            } else {
                victims.push((page_number, self.unprotect(page_number, info)));
            }
        }
        self.engine.written_share.note(0, count);
        self.at.run.count(Counter::CleanDrops, count as u64);
        self.engine.departures.add(count as u64);
        self.at.release_local(count as u64);
        count
    }

    /// Drops the pages that are still there and protected; says which.
    fn drop_protected(&self, clean: &[(u64, PageInfo)]) -> Vec<bool> {
        let (Some(page_map), Some(own_process)) = (&self.at.page_map, &self.at.own_process) else {
            return vec![false; clean.len()];
        };
        // A device that may read a page for long would go on reading what was dropped.
        if !self.nothing_is_pinned() {
            return vec![false; clean.len()];
        }
        let nothing_passes_our_hooks = self.at.is_inline();
        let regions = self.engine.regions();
        let may_go: Vec<bool> = clean
            .iter()
            .map(|(page_number, _)| {
                let address = address_of(*page_number);
                regions.contains(address)
                    && (nothing_passes_our_hooks
                        || page_map.entry(address).is_ok_and(memory::PageMapEntry::is_present_and_protected))
            })
            .collect();
        let addresses: Vec<usize> = clean
            .iter()
            .zip(&may_go)
            .filter(|(_, may_go)| **may_go)
            .map(|((page_number, _), _)| address_of(*page_number))
            .collect();
        // A page that stays mapped would be written while its word says Far.
        if memory::discard_pages(own_process, &addresses) {
            may_go
        } else {
            self.none_that_is_left(clean, may_go)
        }
    }

    /// After a call that failed half-way: what is still there was not dropped.
    fn none_that_is_left(&self, clean: &[(u64, PageInfo)], mut dropped: Vec<bool>) -> Vec<bool> {
        dropped
            .iter_mut()
            .zip(clean)
            .for_each(|(dropped, (page_number, _))| *dropped &= !self.is_populated(*page_number));
        dropped
    }
}
