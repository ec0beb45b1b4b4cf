//! Eviction of pages where they lie, while no thread of the program runs.
//!
//! A page that another thread may write to must be unmapped before it is copied, one at a time where pages
//! are scattered. In inline mode, in a program of one thread, that thread is the one that serves the fault:
//! with its signals blocked, nobody writes. So pages are stored from where they are, and dropped, a batch in
//! one call.
//!
//! Invariant: while a worker is alone nothing but its own thread uses the program's memory. Threads and
//! processes that share it are told of before they start (`note_company` in [`crate::inline`]), for good:
//! what the kernel does at a thread's end cannot be seen. Devices and debuggers are asked after for each
//! batch. What the kernel does for the program it does in the program's system calls, and one that is under
//! way has its memory held.

use std::sync::atomic::Ordering;

use spillway_core::page_word::PageInfo;
use spillway_core::transitions::gone;
use spillway_sys::memory::{Outsiders, PageMapEntry};
use spillway_sys::ranges::TargetRange;

use crate::evict::victim::{Place, Victim};
use crate::evict::write_back::{BATCH_PAGES, departed};
use crate::kernel::Kernel;
use crate::pages::address::{address_of, target};
use crate::process::worker::Worker;
use crate::run::state::Counter;

impl<K: Kernel> Worker<K> {
    /// Nobody can write to the program's memory meanwhile.
    pub(crate) fn may_evict_in_place(&self) -> bool {
        let kernel = &self.at.kernel;
        // The page map tells what is left where a call stops half-way.
        let may_discard = kernel.can_discard_pages() && kernel.has_page_map();
        let foreign_writers = self.engine.has_foreign_writers.load(Ordering::SeqCst);
        self.is_alone && !foreign_writers && may_discard && self.outsiders() == Some(Outsiders::default())
    }

    /// Stores locked mapped pages and drops them. Returns how many went.
    pub(crate) fn evict_in_place(&mut self, locked: &[(u64, PageInfo)]) -> usize {
        let victim =
            |&(page_number, info): &(u64, PageInfo)| Victim::new(page_number, Place::Mapped, info.slot());
        let mut victims: Vec<Victim> = locked.iter().map(victim).collect();
        for part in victims.chunks_mut(BATCH_PAGES) {
            self.choose_how_kept(part);
            self.write(part);
        }
        // Neighbours together: a huge page that goes in parts would be split.
        let mut pages: Vec<u64> =
            victims.iter().filter(|page| page.kept.is_ok()).map(|page| page.page_number).collect();
        pages.sort_unstable();
        let stored: Vec<TargetRange> =
            pages.chunk_by(|a, b| *b == *a + 1).map(|run| target(run[0], run.len())).collect();
        let all_gone = self.at.kernel.discard_pages(&stored);
        let mut count = 0;
        for (page, &(_, info)) in victims.into_iter().zip(locked) {
            let is_gone = page.kept.is_ok() && (all_gone || !self.is_populated(page.page_number));
            if is_gone {
                self.settle_gone(&page, info);
                count += 1;
            } else {
                self.settle_kept(page, info);
            }
        }
        self.at.run.count(Counter::PagesEvictedInPlace, count as u64);
        self.engine.departures.add(count as u64);
        self.at.release_local(count as u64);
        count
    }

    fn settle_gone(&mut self, page: &Victim, info: PageInfo) {
        let kept = page.kept.as_ref().ok().copied().flatten();
        self.note_left(page.page_number);
        self.engine.note(|| departed(page.page_number, kept));
        let next = gone(info, kept, self.engine.departures.now());
        if kept.is_none() {
            self.at.remove_managed(1);
        }
        if page.old_slot != kept {
            self.drop_slot(page.old_slot);
        }
        if let Some(word) = self.engine.table.find(page.page_number) {
            self.unlock(page.page_number, word, next);
        }
    }

    /// The page stays mapped. A copy of it is of no use, and what it had before may have been overwritten.
    fn settle_kept(&mut self, page: Victim, info: PageInfo) {
        let is_protected = info.protected_in().is_some();
        let info = if is_protected { self.unprotect(page.page_number, info) } else { info };
        self.keep_mapped(page.page_number, info.without_slot());
        self.drop_slot(page.old_slot);
        match page.kept {
            Ok(kept) if kept != page.old_slot => self.drop_slot(kept),
            Ok(_) => {}
            Err(error) => self.note_store_error(error),
        }
    }

    /// Whether something is mapped there, as far as can be known.
    pub(crate) fn is_populated(&self, page_number: u64) -> bool {
        let entry = self.at.kernel.page_map_entry(address_of(page_number));
        entry.is_none_or(PageMapEntry::is_populated)
    }
}
