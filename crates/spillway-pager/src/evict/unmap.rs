//! Unmapping pages into frames, where nobody can write to them.

use rustix::io::Errno;
use spillway_core::page::PAGE_SIZE;
use spillway_core::page_word::{PageInfo, PageState, Queue};
use spillway_core::transitions::unmapped;
use spillway_policy::use_history::UseHistory;
use spillway_sys::memory::Outsiders;
use spillway_sys::ranges::{FrameRange, TargetRange};

use crate::kernel::{Kernel, planted};
use crate::pages::address::{address_of, target};
use crate::process::worker::Worker;
use crate::run::state::Counter;

impl<K: Kernel> Worker<K> {
    /// Brings locked pages, in the order of their numbers, into frames.
    pub(crate) fn unmap(&mut self, victims: &mut [(u64, PageInfo)]) {
        let settled = self.unmap_by_reference(victims);
        for run in victims[settled..].chunk_by_mut(|(a, _), (b, _)| *b == *a + 1) {
            self.unmap_run(run);
        }
    }

    /// Moves neighbouring locked pages into frames.
    fn unmap_run(&mut self, run: &mut [(u64, PageInfo)]) {
        let mut is_own = false;
        let mut at = 0;
        while at < run.len() {
            let left = &mut run[at..];
            let Some((frame, count)) = self.engine.frames.take_run(left.len()) else {
                left.iter().for_each(|&(page_number, info)| self.keep_mapped(page_number, info));
                return;
            };
            let moved = match self.move_to_frames(left, frame, count, &mut is_own) {
                Ok(moved) => moved,
                Err(error) => {
                    self.unmap_by_other_means(left[0], frame, error);
                    self.engine.frames.give_back(frame + 1, count - 1);
                    at += 1;
                    continue;
                }
            };
            for (i, &(page_number, info)) in left[..moved].iter().enumerate() {
                self.to_inactive(page_number, info, frame + i as u32);
            }
            self.engine.frames.give_back(frame + moved as u32, count - moved);
            at += moved;
        }
    }

    /// Moves up to `count` pages of a run and returns how many went; an error speaks of the first. `is_own`
    /// says that the run was made the process's own already.
    fn move_to_frames(
        &self,
        run: &mut [(u64, PageInfo)],
        frame: u32,
        count: usize,
        is_own: &mut bool,
    ) -> rustix::io::Result<usize> {
        let to = self.engine.frames.range(frame, count);
        let from = target(run[0].0, count);
        let kernel = &self.at.kernel;
        let moved = match self.move_as_protected(to, from, run) {
            // Shared since a fork, perhaps with nobody any more: made this process's own, they can go. What
            // then still cannot is pinned: a device may write to it whatever the page table says.
            Err(Errno::BUSY) if !*is_own => {
                *is_own = true;
                // Writing to a protected page would wait for a handler too.
                self.lift_protections(run);
                // Where it fails it has come as far as the page that it failed at. At a page that the program
                // has discarded past our hooks it would not fail but wait, for a handler that waits for this
                // thread's words.
                let _ = kernel.make_own(target(run[0].0, self.pages_there(run[0].0, run.len())));
                kernel.move_to_frames(to, from)?
            }
            other => other?,
        };
        Ok(moved / PAGE_SIZE)
    }

    /// Moves pages, those that are clean as clean: whoever ends a registration, which lifts protection, waits
    /// meanwhile, or has been here before.
    fn move_as_protected(
        &self,
        to: FrameRange<'_>,
        from: TargetRange,
        run: &mut [(u64, PageInfo)],
    ) -> rustix::io::Result<usize> {
        let epoch = self.engine.epoch();
        let _regions = run.iter().any(|(_, info)| info.is_clean(epoch)).then(|| {
            let regions = self.engine.regions();
            for (page_number, info) in run.iter_mut() {
                if !regions.contains(address_of(*page_number)) {
                    *info = info.with_protection(None);
                }
            }
            regions
        });
        self.at.kernel.move_to_frames(to, from)
    }

    /// From here on the program may write to the pages.
    fn lift_protections(&self, run: &mut [(u64, PageInfo)]) {
        for (page_number, info) in run.iter_mut().filter(|(_, info)| info.protected_in().is_some()) {
            *info = self.lift_protection(*page_number, *info);
        }
    }

    /// How many pages of a run are there, from the first on, which is.
    fn pages_there(&self, page_number: u64, pages: usize) -> usize {
        let Some(populated) = self.at.kernel.populated(target(page_number, pages)) else { return 1 };
        let is_there = |page: &usize| populated[page / 64] >> (page % 64) & 1 != 0;
        (0..pages).take_while(is_there).count().max(1)
    }

    /// The page lies in its frame from now on.
    pub(crate) fn to_inactive(&self, page_number: u64, info: PageInfo, frame: u32) {
        let Some(word) = self.engine.table.find(page_number) else { return };
        let next = unmapped(info, frame, self.engine.epoch());
        let next = if planted!(K, "unmapped-page-taken-for-clean") { as_clean(next) } else { next };
        self.unlock(page_number, word, next);
        self.enqueue(page_number, next);
    }

    /// The page stays. It goes among the proactive ones: at the tail of the active queue pages that cannot go
    /// would be met again and again before one that can.
    pub(crate) fn keep_mapped(&self, page_number: u64, info: PageInfo) {
        let Some(word) = self.engine.table.find(page_number) else { return };
        let next = info.moved_to(Queue::Proactive);
        self.unlock(page_number, word, next);
        self.enqueue(page_number, next);
    }

    /// UFFDIO_MOVE did not take the page: finds out why and what can be done.
    fn unmap_by_other_means(&mut self, (page_number, info): (u64, PageInfo), frame: u32, error: Errno) {
        match error {
            // Nothing is there: the program discarded the page past our hooks. It reads zeros from now on.
            Errno::NOENT => {
                self.at.run.count(Counter::PagesFoundGone, 1);
                if !planted!(K, "frame-of-gone-page-lost") {
                    self.engine.frames.give_back(frame, 1);
                }
                self.drop_slot(info.slot());
                self.at.release_local(1);
                self.at.remove_managed(1);
                if let Some(word) = self.engine.table.find(page_number) {
                    self.unlock(page_number, word, info.forgotten());
                }
            }
            Errno::INVAL if self.nothing_is_pinned() || planted!(K, "copied-out-though-pinned") => {
                // Nobody knows what it is protected from by then.
                let info = info.with_protection(None);
                if self.copy_out(page_number, frame) {
                    self.to_inactive(page_number, info, frame);
                } else {
                    // What was copied may lie there.
                    self.engine.frames.discard(&self.at.kernel, &mut [frame]);
                    self.refuse_eviction(page_number, info);
                }
            }
            _ => {
                self.engine.frames.give_back(frame, 1);
                self.refuse_eviction(page_number, info);
            }
        }
    }

    /// Counts as in use from now on: what the kernel does not let go would, being used by nobody, be taken
    /// again and again before what it does.
    fn refuse_eviction(&self, page_number: u64, info: PageInfo) {
        self.at.run.count(Counter::EvictionsRefused, 1);
        self.engine.table.set_use(page_number, UseHistory::IN_USE);
        self.engine.note_refusal(page_number);
        self.keep_mapped(page_number, info);
    }

    /// No device holds memory of this process for long. False also when it cannot be known.
    pub(crate) fn nothing_is_pinned(&self) -> bool {
        self.outsiders().is_some_and(|outsiders| outsiders.hold_nothing())
    }

    /// Who uses the memory of this process beside its threads; `None` when it cannot be known.
    pub(crate) fn outsiders(&self) -> Option<Outsiders> {
        self.at.kernel.outsiders()
    }

    /// Copies a page into a frame and drops it, where it cannot be moved because the program may not write to
    /// it or may execute it. Write protection keeps writers away meanwhile, but not devices: where the
    /// process has given them memory to keep, such pages stay.
    fn copy_out(&mut self, page_number: u64, frame: u32) -> bool {
        let kernel = &self.at.kernel;
        let page = target(page_number, 1);
        if kernel.write_protect(page, true).is_err() {
            return false;
        }
        let done = kernel.copy_to_frame(self.engine.frames.range(frame, 1), page).is_ok()
            && kernel.discard(page).is_ok();
        if !done {
            let _ = kernel.write_protect(page, false);
        }
        done
    }
}

/// For a mistake that is planted.
fn as_clean(info: PageInfo) -> PageInfo {
    match info.state {
        PageState::Inactive { frame, slot, .. } => {
            PageInfo { state: PageState::Inactive { frame, slot, is_clean: true }, ..info }
        }
        _ => info,
    }
}
