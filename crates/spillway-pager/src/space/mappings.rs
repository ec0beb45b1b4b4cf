//! Mappings come and go: what the program maps, grows, finds in its heap and unmaps.

use std::ops::Range;

use rustix::io::Errno;
use spillway_core::page::PAGE_SIZE;
use spillway_policy::fault_trace::{Event, Left};

use crate::evict::charge::Origin;
use crate::kernel::{ForkAdvice, Kernel, planted};
use crate::pages::address::{page_numbers, target_of};
use crate::process::worker::Worker;
use crate::run::state::Counter;
use crate::space::gone::Gone;
use crate::space::regions::OnFork;

impl<K: Kernel> Worker<K> {
    /// Takes note of a fresh mapping. False when its pages will not count.
    pub(crate) fn map_or_leave(&mut self, range: Range<usize>, may_be_native: bool) -> bool {
        self.forget(&range, false);
        (may_be_native && self.leave_native(&range)) || self.map(range)
    }

    /// Manages a fresh mapping. False when the kernel will not have it, and it stays unmanaged.
    pub(crate) fn map(&mut self, range: Range<usize>) -> bool {
        // What was here before may have been unmapped past our hooks.
        self.sweep(&range);
        let mut regions = self.engine.change_regions();
        self.populate_held(&range);
        let (kernel, target) = (&self.at.kernel, target_of(range.clone()));
        let registered = kernel.register(target).is_ok();
        if registered {
            // A child made past our hooks would read zeros where pages are far: it gets nothing here, and a
            // SIGSEGV.
            let _ = kernel.advise_on_fork(target, ForkAdvice::Drop);
            regions.insert(range, OnFork::default());
        } else {
            self.at.run.count(Counter::UnmanagedBytes, range.len() as u64);
        }
        registered
    }

    /// Manages the new end of a mapping if its beginning is managed.
    pub(crate) fn grown(&mut self, start: usize, end: Range<usize>) -> usize {
        let first = start..start + PAGE_SIZE;
        if self.is_native(&first) {
            return usize::from(self.map_or_leave(end, true));
        }
        let on_fork = self.engine.regions().within(&first).first().map(|(_, wish)| *wish);
        let Some(on_fork) = on_fork else { return 0 };
        let managed = self.map(end.clone());
        if managed {
            self.engine.change_regions().insert(end, on_fork);
        }
        usize::from(managed)
    }

    /// Advises the kernel, and notes it for what is managed of the range.
    pub(crate) fn advise_on_fork(&mut self, range: &Range<usize>, advice: ForkAdvice) -> usize {
        let advised = self.at.kernel.advise_on_fork(target_of(range.clone()), advice);
        // With a hole in the range the rest is advised.
        if matches!(advised, Ok(()) | Err(Errno::NOMEM)) {
            self.manage_native(range);
            if !planted!(K, "fork-wish-not-noted") {
                self.engine.change_regions().advise_on_fork(range, advice);
            }
            self.set_inherited(false);
        }
        1 + advised.map_or_else(|error| error.raw_os_error() as usize, |()| 0)
    }

    /// Manages a mapping that has contents already.
    pub(crate) fn adopt(&mut self, range: Range<usize>) -> usize {
        if !self.map(range.clone()) {
            return 0;
        }
        let Some(populated) = self.populated_pages(&range) else {
            return self.stop_before_wrong_data("read the page map", Errno::ACCESS);
        };
        let mut adopted = 0;
        for page_number in populated {
            // Before main, so nothing else runs; a limit below what the program starts with is refused there.
            if self.charge(1, Origin::New).is_err() {
                continue;
            }
            if self.queue_active(page_number) {
                adopted += 1;
            } else {
                self.at.release_local(1);
            }
        }
        self.at.add_managed(adopted);
        adopted as usize
    }

    /// Ends the management of a range that is about to go. Returns how many of its pages had contents that
    /// are lost with it.
    ///
    /// The registration goes first: from then on the kernel refuses to map a page here, so a fault's message
    /// that was read long ago cannot bring a word back to life which nobody would ever clear. Invariant: a
    /// page whose word is not absent is registered, but for the time between these two steps.
    ///
    /// `drops`: the program has the range mapped still, and what is local goes before the charge for it is
    /// given back. The thread that is about to unmap it may not run for long, and others use the room
    /// meanwhile.
    pub(crate) fn forget(&mut self, range: &Range<usize>, drops: bool) -> usize {
        let mut held = self.forget_native(range, drops);
        let parts = self.engine.take_regions(range);
        for (part, _) in parts {
            let target = target_of(part.clone());
            if !planted!(K, "forgotten-before-unregistered") {
                let _ = self.at.kernel.unregister(target);
            }
            let gone = self.sweep_words(&part);
            self.engine.note(|| {
                let (from, to) = page_numbers(&part);
                Event::Left { how: Left::Forgotten, page_number: from, pages: to - from }
            });
            if planted!(K, "forgotten-before-unregistered") {
                let _ = self.at.kernel.unregister(target);
            }
            held += gone.managed as usize;
            if drops && gone.local > 0 && !planted!(K, "charge-back-before-drop") {
                // What is locked stays until it is unmapped.
                let _ = self.at.kernel.discard(target);
            }
            self.settle_gone_pages(gone);
        }
        held
    }

    /// Makes every page of a range absent and gives back what it held.
    fn sweep(&mut self, range: &Range<usize>) {
        let gone = self.sweep_words(range);
        self.settle_gone_pages(gone);
    }

    /// Makes every page of a range absent. Returns what they held, which is to be given back.
    fn sweep_words(&mut self, range: &Range<usize>) -> Gone {
        let (from, to) = page_numbers(range);
        let engine = self.engine;
        let mut gone = Gone::default();
        for (page_number, word) in engine.table.range(from, to) {
            let info = self.lock(word);
            self.let_go(info, &mut gone);
            self.unlock(page_number, word, info.forgotten());
        }
        gone
    }
}
