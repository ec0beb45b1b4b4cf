//! Pages that cannot have changed: dropped where they are, with no move, no checksum and no write.
//!
//! A page that a read fetches is mapped write-protected while it stays what its slot holds. A write faults,
//! and lifts the protection before anything else. At eviction the pages that are still protected are dropped,
//! a batch in one call.
//!
//! Invariant: a word whose page is clean in the present epoch speaks of a page whose table entry is
//! protected, or missing since a system call past our hooks; the page map tells these apart, but in inline
//! mode no call goes past them. The locks of words keep writers' faults out meanwhile, and the lock of the
//! regions those who end a registration, which lifts protection. A forked child begins a new epoch: it
//! inherits words, but no protection.

use std::sync::atomic::Ordering;

use spillway_core::page_word::{Epoch, PageInfo};
use spillway_core::transitions::gone;
use spillway_policy::fault_trace::{Event, Left};
use spillway_sys::memory::PageMapEntry;
use spillway_sys::ranges::TargetRange;

use crate::kernel::{Kernel, planted};
use crate::pages::address::{address_of, target};
use crate::process::worker::Worker;
use crate::run::state::Counter;

/// Longer blocks are streams, where an eviction moves whole runs and protection would cost more than it
/// saves.
const MOST_BLOCK_PAGES: usize = 8;
/// What one write costs is what so many pages dropped have saved.
const WRITE_SCORE: u64 = 4;
const MOST_SCORE: u64 = 64;
/// From here on pages are not protected, and one in so many is tried.
const WRITTEN_SCORE: u64 = 16;
const TRY_ONE_IN: u64 = 32;

impl<K: Kernel> Worker<K> {
    /// The epoch to note for a page that a fault fetches; [`None`] where it is better not protected.
    pub(crate) fn protection(&self, page_number: u64, write: bool, block_pages: usize) -> Option<Epoch> {
        if write
            || block_pages > MOST_BLOCK_PAGES
            || !self.at.kernel.can_discard_pages()
            || !self.at.kernel.has_page_map()
        {
            return None;
        }
        if self.is_written_soon(page_number)
            && !page_number.wrapping_mul(0x9E37_79B9).is_multiple_of(TRY_ONE_IN)
        {
            return None;
        }
        Some(self.engine.epoch())
    }

    /// Whether most pages of this stretch that come are written to before they leave.
    pub(crate) fn is_written_soon(&self, page_number: u64) -> bool {
        let score = self.engine.table.writes_of(page_number).map_or(0, |score| score.load(Ordering::Relaxed));
        score >= WRITTEN_SCORE
    }

    /// Notes that a clean page is written to (`true`) or was dropped.
    pub(crate) fn note_use(&self, page_number: u64, written: bool) {
        let Some(score) = self.engine.table.writes_of(page_number) else { return };
        let before = score.load(Ordering::Relaxed);
        let next = if written { (before + WRITE_SCORE).min(MOST_SCORE) } else { before.saturating_sub(1) };
        score.store(next, Ordering::Relaxed);
    }

    /// Lifts the protection of a locked page. Returns it as it is then; who waits is woken by that.
    pub(crate) fn unprotect(&self, page_number: u64, info: PageInfo) -> PageInfo {
        if info.is_clean(self.engine.epoch()) {
            self.note_use(page_number, true);
        }
        self.lift_protection(page_number, info)
    }

    /// The same, where nobody has written to the page.
    pub(crate) fn lift_protection(&self, page_number: u64, info: PageInfo) -> PageInfo {
        let _ = self.at.kernel.write_protect(target(page_number, 1), false);
        if planted!(K, "protection-lifted-unnoted") {
            return info;
        }
        info.with_protection(None)
    }

    /// Drops those of the locked `victims` that are clean, and leaves the others. Returns how many went.
    pub(crate) fn drop_clean(&mut self, victims: &mut Vec<(u64, PageInfo)>) -> usize {
        let epoch = self.engine.epoch();
        let (clean, rest): (Vec<_>, Vec<_>) = victims.drain(..).partition(|(_, info)| info.is_clean(epoch));
        *victims = rest;
        if clean.is_empty() {
            return 0;
        }
        if planted!(K, "lock-dropped-early") {
            for &(page_number, info) in &clean {
                if let Some(word) = self.engine.table.find(page_number) {
                    self.unlock(page_number, word, gone(info, info.slot(), self.engine.departures.now()));
                }
            }
        }
        let dropped = self.drop_protected(&clean);
        let mut count = 0;
        for ((page_number, info), dropped) in clean.into_iter().zip(dropped) {
            if dropped {
                self.engine.note(|| Event::Left { how: Left::Clean, page_number, pages: 1 });
                self.note_use(page_number, false);
                self.note_left(page_number);
                let next = gone(info, info.slot(), self.engine.departures.now());
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
        let kernel = &self.at.kernel;
        if !kernel.has_page_map() || !kernel.can_discard_pages() {
            return vec![false; clean.len()];
        }
        let nothing_passes_our_hooks = kernel.is_inline();
        let regions = self.engine.regions();
        let is_protected = |address| {
            let entry = kernel.page_map_entry(address);
            entry.is_some_and(PageMapEntry::is_present_and_protected)
        };
        let may_go: Vec<bool> = clean
            .iter()
            .map(|(page_number, _)| {
                let address = address_of(*page_number);
                regions.contains(address) && (nothing_passes_our_hooks || is_protected(address))
            })
            .collect();
        let pages: Vec<TargetRange> = clean
            .iter()
            .zip(&may_go)
            .filter(|(_, may_go)| **may_go)
            .map(|((page_number, _), _)| target(*page_number, 1))
            .collect();
        // A device that may read a page for long would go on reading what was dropped. Asked after last: one
        // that is given a page between this and the drop is not seen. In inline mode none is: the call that
        // gives it waits for the end of this.
        if !self.nothing_is_pinned() && !planted!(K, "dropped-though-pinned") {
            return vec![false; clean.len()];
        }
        // A page that stays mapped would be written while its word says Far.
        if kernel.discard_pages(&pages) { may_go } else { self.none_that_is_left(clean, may_go) }
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
