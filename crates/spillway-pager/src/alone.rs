//! Eviction of pages where they lie, while no thread of the program runs.
//!
//! A page that another thread may write to must be unmapped before it is copied, one at a time where pages are scattered.
//! In inline mode, in a program of one thread, that thread is the one that serves the fault: with its signals blocked,
//! nobody writes. So pages are stored from where they are, and dropped, a batch in one call.
//!
//! Invariant: while a worker is alone nothing but its own thread uses the program's memory. Threads and processes that share
//! it are told of before they start ([`crate::inline::Inline::note_company`]), for good: what the kernel does at a thread's
//! end cannot be seen. Devices and debuggers are asked after for each batch, and so are processes of the run that write to
//! this one's memory ([`crate::foreign`]): once its pages are locked, so that who has asked for one finds it unlocked later. What the kernel does for the program it does in
//! the program's system calls, and one that is under way has its memory held.

use std::sync::atomic::Ordering;

use spillway_core::page_word::{PageInfo, State};
use spillway_sys::memory::{self, Outsiders};

use crate::engine::{Worker, address_of};
use crate::leaving::{Leaving, Place};
use crate::run_state::Counter;

impl Worker {
    /// Nobody can write to the program's memory meanwhile.
    pub(crate) fn may_evict_in_place(&self) -> bool {
        self.is_alone
            && !self.engine.has_foreign_writers.load(Ordering::SeqCst)
            && self.at.own_process.is_some()
            && self.outsiders() == Some(Outsiders::default())
    }

    /// Stores locked mapped pages and drops them. Returns how many went.
    pub(crate) fn evict_in_place(&mut self, victims: &[(u64, PageInfo)]) -> usize {
        let place =
            |&(page_number, info): &(u64, PageInfo)| Leaving::new(page_number, Place::Mapped, info.slot);
        let mut leaving: Vec<Leaving> = victims.iter().map(place).collect();
        self.look_at(&mut leaving);
        self.write(&mut leaving);
        let stored: Vec<usize> = leaving
            .iter()
            .filter(|page| page.kept.is_ok())
            .map(|page| address_of(page.page_number))
            .collect();
        let all_gone =
            self.at.own_process.as_ref().is_some_and(|process| memory::discard_pages(process, &stored));
        let mut count = 0;
        for (page, &(_, info)) in leaving.into_iter().zip(victims) {
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

    fn settle_gone(&mut self, page: &Leaving, info: PageInfo) {
        let kept = page.kept.as_ref().ok().copied().flatten();
        let next = match kept {
            Some(_) => {
                PageInfo { state: State::Far, slot: kept, frame: self.engine.departures.now(), ..info }
            }
            None => PageInfo { state: State::Absent, slot: None, frame: 0, ..info },
        };
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
    fn settle_kept(&mut self, page: Leaving, info: PageInfo) {
        let info = if info.frame == 0 { info } else { self.unprotect(page.page_number, info) };
        self.keep_mapped(page.page_number, PageInfo { slot: None, ..info });
        self.drop_slot(page.old_slot);
        match page.kept {
            Ok(kept) if kept != page.old_slot => self.drop_slot(kept),
            Ok(_) => {}
            Err(error) => self.note_store_error(error),
        }
    }

    /// Whether something is mapped there, as far as can be known.
    pub(crate) fn is_populated(&self, page_number: u64) -> bool {
        let entry = self.at.page_map.as_ref().and_then(|map| map.entry(address_of(page_number)).ok());
        entry.is_none_or(memory::PageMapEntry::is_populated)
    }
}
