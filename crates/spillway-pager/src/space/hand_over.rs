//! The end of inline mode: handlers take over the faults of all managed memory, while the program's threads
//! go on.
//!
//! The kernel has no step from one userfaultfd to another: between the two registrations a page that is not
//! there would read as zeros. So what is far, or lies in a frame, is *kept back* meanwhile: a marker
//! (`UFFDIO_POISON`) answers each access with SIGBUS, whose handler sees that nothing is lost and tries again
//! ([`Inline::was_kept_back`](crate::inline::Inline::was_kept_back)). A page that was never written may read
//! as zeros; what comes to be in that way is counted afterwards.
//!
//! Invariants: paging stands still ([`Gate`](crate::process::gate::Gate)), so no word changes and no page
//! leaves. System calls under way use only what is held, which is there and stays.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::io::Errno;
use spillway_core::page_word::{PageState, Queue};
use spillway_core::transitions::first_touched;
use spillway_sys::memory::PageMapEntry;

use crate::evict::charge::EXCHANGE_PAGES;
use crate::kernel::{Kernel, planted};
use crate::pages::address::{address_of, page_numbers, target, target_of};
use crate::process::worker::Worker;
use crate::run::state::Counter;
use crate::threads::calls::TRY_AGAIN;

impl<K: Kernel> Worker<K> {
    /// Ends inline mode in this process. Returns [`TRY_AGAIN`] while a fork or a mremap(2) is under way.
    pub(crate) fn leave_inline(&mut self) -> usize {
        if !self.at.kernel.is_inline() {
            return 0;
        }
        if !self.engine.gate.freeze::<K>() {
            return TRY_AGAIN;
        }
        // Another thread may have come first; and of a mapping on the move nobody knows where it is.
        let is_over = !self.at.kernel.is_inline();
        let is_moving = !self.engine.remaps().is_empty();
        if is_over || is_moving {
            self.thaw();
            return if is_over { 0 } else { TRY_AGAIN };
        }
        self.engine.forget_protection();
        let regions: Vec<Range<usize>> = self.engine.regions().iter().map(|(range, _)| range).collect();
        let strays: Vec<u64> = regions.iter().flat_map(|range| self.hand_over(range)).collect();
        self.at.kernel.leave_inline();
        self.at.run.count(Counter::InlineLeft, 1);
        self.at.process().serves_inline().store(0, Ordering::Relaxed);
        self.thaw();
        self.count_strays(&strays);
        0
    }

    /// Returns the pages that the kernel gave the program meanwhile.
    fn hand_over(&self, range: &Range<usize>) -> Vec<u64> {
        let kept = if planted!(K, "nothing-kept-back") { Vec::new() } else { self.not_there(range) };
        for run in &kept {
            self.keep_back(run);
        }
        if let Err(error) = self.at.kernel.hand_to_handlers(target_of(range.clone())) {
            self.stop_before_wrong_data("leave inline mode", error);
        }
        if !planted!(K, "kept-back-for-good") {
            for run in kept {
                // Gone already where the program has just unmapped it.
                let _ = self.at.kernel.discard(target(run.start, (run.end - run.start) as usize));
            }
        }
        let populated = self.populated_pages(range).unwrap_or_default();
        let is_absent = |&page_number: &u64| {
            self.engine.table.find(page_number).is_none_or(|word| word.peek().state == PageState::Absent)
        };
        populated.into_iter().filter(is_absent).collect()
    }

    /// The pages that hold something and are not mapped, in runs of neighbours.
    fn not_there(&self, range: &Range<usize>) -> Vec<Range<u64>> {
        let (from, to) = page_numbers(range);
        let mut runs: Vec<Range<u64>> = Vec::new();
        for (page_number, word) in self.engine.table.range(from, to) {
            let is_elsewhere = matches!(
                word.peek().state,
                PageState::Far { .. } | PageState::Inactive { .. } | PageState::Writeback { .. }
            );
            match runs.last_mut() {
                _ if !is_elsewhere => {}
                Some(run) if run.end == page_number => run.end += 1,
                _ => runs.push(page_number..page_number + 1),
            }
        }
        runs
    }

    fn keep_back(&self, run: &Range<u64>) {
        let all = target(run.start, (run.end - run.start) as usize);
        if self.at.kernel.poison(all).is_ok() {
            return;
        }
        for page_number in run.clone() {
            loop {
                match self.at.kernel.poison(target(page_number, 1)) {
                    // Its mappings change at this moment (ioctl_userfaultfd(2)).
                    Err(Errno::AGAIN) => K::sleep(Duration::from_micros(50)),
                    // Kept back already, or unmapped by the program.
                    Ok(()) | Err(Errno::EXIST | Errno::NOENT) => break,
                    Err(error) => {
                        self.stop_before_wrong_data("keep a page back", error);
                    }
                }
            }
        }
    }

    /// What was first touched between the two registrations takes its place under the limit now.
    fn count_strays(&mut self, strays: &[u64]) {
        if strays.is_empty() {
            return;
        }
        let engine = self.engine;
        let _pass = loop {
            match engine.enter() {
                Some(pass) => break pass,
                None => K::sleep(Duration::from_micros(50)),
            }
        };
        for &page_number in strays {
            while !self.try_charge(1) {
                // It is there: better a page too many than one that nobody counts.
                if self.evict_batch() == 0 && self.at.run.budget().try_charge_beyond(1, EXCHANGE_PAGES) {
                    self.at.add_local(1);
                    break;
                }
            }
            if !self.take_stray(page_number) {
                self.at.release_local(1);
            }
        }
    }

    /// False where the program has dropped it meanwhile.
    fn take_stray(&self, page_number: u64) -> bool {
        let Ok(word) = self.engine.table.find_or_make(page_number) else { return false };
        let info = self.lock(word);
        let address = address_of(page_number);
        let is_there = self.at.kernel.page_map_entry(address).is_some_and(PageMapEntry::is_populated);
        let is_stray = info.is_absent() && is_there && self.engine.regions().contains(address);
        let next = if is_stray { first_touched(info, Queue::Active) } else { info };
        self.unlock(page_number, word, next);
        if is_stray {
            self.enqueue(page_number, next);
            self.at.add_managed(1);
        }
        is_stray
    }
}
