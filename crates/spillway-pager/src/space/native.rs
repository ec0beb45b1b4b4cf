//! Memory that is left to the kernel while everything fits under the local limit.
//!
//! A new mapping for which the limit has room is charged whole and not registered: the program uses it at the
//! speed that it has without Spillway. When room runs short, or before a fork, it is taken over piece by
//! piece: registered, its pages that hold something queued as Active, and the charge for the others given
//! back.
//!
//! Invariant: a page is native, managed, or neither, never two of them. It changes from one to the other
//! under the locks of both sets (native first), under which nobody waits for a page.

use std::ops::Range;
use std::sync::MutexGuard;
use std::sync::atomic::Ordering;

use spillway_core::page::PAGE_SIZE;
use spillway_core::page_word::Queue;
use spillway_core::transitions::first_touched;
use spillway_policy::fault_trace::{Block, Cause, Event};

use crate::kernel::{ForkAdvice, Kernel, MOST_POPULATED_PAGES, planted};
use crate::pages::address::{page_number_of, target, target_of};
use crate::process::worker::Worker;
use crate::run::state::Counter;
use crate::space::regions::{OnFork, Regions};

/// Taken over at once: a few milliseconds' work.
const PIECE_BYTES: usize = 64 << 20;

fn page_count(range: &Range<usize>) -> u64 {
    (range.len() / PAGE_SIZE) as u64
}

impl<K: Kernel> Worker<K> {
    /// Leaves a mapping to the kernel if the limit has room for all of it. It is nowhere noted yet.
    pub(crate) fn leave_native(&mut self, range: &Range<usize>) -> bool {
        let pages = page_count(range);
        let room = self.at.run.budget().headroom_pages();
        // What remote stores keep free for faults is not for this.
        if !self.at.kernel.has_page_map()
            || room < pages + 2 * self.at.low_headroom_pages
            || !self.try_charge(pages)
        {
            return false;
        }
        self.engine.native().insert(range.clone(), OnFork::default());
        self.at.process().native_pages().fetch_add(pages, Ordering::Relaxed);
        if self.at.settings.pool.huge_pages {
            // It is charged whole, so that a page that the program never touches costs nothing more.
            let _ = self.at.kernel.ask_for_huge_pages(target_of(range.clone()));
        }
        self.at.run.count(Counter::NativeBytes, range.len() as u64);
        true
    }

    /// The kernel is about to drop what is native of a range, or has done so. With `drops` it goes now,
    /// before the charge for it is given back. Returns how many pages that are.
    pub(crate) fn forget_native(&self, range: &Range<usize>, drops: bool) -> usize {
        let parts = self.engine.native().take(range);
        let pages: u64 = parts.iter().map(|(part, _)| page_count(part)).sum();
        for (part, _) in parts.into_iter().filter(|_| drops) {
            // What is locked stays until it is unmapped.
            let _ = self.at.kernel.discard(target_of(part));
        }
        self.at.process().native_pages().fetch_sub(pages, Ordering::Relaxed);
        if !planted!(K, "native-room-kept") {
            self.at.release_local(pages);
        }
        if drops { pages as usize } else { 0 }
    }

    /// Drops the contents of what is native of a range, and never later than now, as MADV_FREE does: a page
    /// that the kernel might drop at any moment must not come under management. Returns how many bytes that
    /// are.
    pub(crate) fn discard_native(&self, range: &Range<usize>) -> usize {
        let native = self.engine.native();
        let parts = native.within(range);
        parts
            .iter()
            .filter(|(part, _)| self.at.kernel.discard(target_of(part.clone())).is_ok())
            .map(|(part, _)| part.len())
            .sum()
    }

    /// Whether all of a range is native.
    pub(crate) fn is_native(&self, range: &Range<usize>) -> bool {
        self.engine.native().within(range).iter().map(|(part, _)| part.len()).sum::<usize>() == range.len()
    }

    /// Takes a range out of the set, if all of it is native, and leaves it charged: mremap(2) is going to
    /// move it. False where it is not. One look under one lock, for others may be taking the range over at
    /// this moment.
    pub(crate) fn lift_native(&self, range: &Range<usize>) -> bool {
        if planted!(K, "native-moved-in-two-looks") {
            let is_whole = self.is_native(range);
            K::turn();
            self.engine.native().remove(range);
            return is_whole;
        }
        let mut native = self.engine.native();
        let native_bytes: usize = native.within(range).iter().map(|(part, _)| part.len()).sum();
        let is_whole = native_bytes == range.len();
        if is_whole {
            native.remove(range);
            self.at.process().native_pages().fetch_sub(page_count(range), Ordering::Relaxed);
        }
        is_whole
    }

    /// Puts a range back that was lifted, and may have grown or shrunk meanwhile from `before` bytes.
    pub(crate) fn put_native(&mut self, range: Range<usize>, before: usize) {
        let (pages, charged) = (page_count(&range), (before / PAGE_SIZE) as u64);
        if pages <= charged || self.try_charge(pages - charged) {
            self.at.release_local(charged.saturating_sub(pages));
            self.engine.native().insert(range, OnFork::default());
            self.at.process().native_pages().fetch_add(pages, Ordering::Relaxed);
        } else {
            let native = self.engine.native();
            self.take_over(&native, &range, charged);
        }
    }

    /// Manages what is native of a range.
    pub(crate) fn manage_native(&self, range: &Range<usize>) {
        let mut native = self.engine.native();
        for (part, _) in native.take(range) {
            self.at.process().native_pages().fetch_sub(page_count(&part), Ordering::Relaxed);
            self.take_over(&native, &part, page_count(&part));
        }
    }

    /// Manages a piece of what is native. Returns how many pages that gave back to the budget; `None` when
    /// nothing is native.
    pub(crate) fn manage_piece(&self) -> Option<u64> {
        let mut native = self.engine.native();
        let (first, _) = native.iter().next()?;
        let piece = first.start..first.end.min(first.start + PIECE_BYTES);
        native.remove(&piece);
        self.at.process().native_pages().fetch_sub(page_count(&piece), Ordering::Relaxed);
        Some(self.take_over(&native, &piece, page_count(&piece)))
    }

    /// Registers a range and queues what it holds. Of the `charged` pages, returns how many were given back.
    fn take_over(&self, _native: &MutexGuard<'_, Regions>, range: &Range<usize>, charged: u64) -> u64 {
        let mut taken = 0;
        {
            let mut regions = self.engine.change_regions();
            self.populate_held(range);
            let (kernel, target) = (&self.at.kernel, target_of(range.clone()));
            if kernel.register(target).is_ok() {
                let _ = kernel.advise_on_fork(target, ForkAdvice::Drop);
                regions.insert(range.clone(), OnFork::default());
                taken = self.queue_populated(range, charged);
            } else {
                self.at.run.count(Counter::UnmanagedBytes, range.len() as u64);
            }
        }
        self.engine.note(|| {
            let (page_number, wanted_pages) = (page_number_of(range.start), page_count(range));
            Event::Block(Block { cause: Cause::TakenOver, page_number, wanted_pages, came_pages: taken })
        });
        self.at.add_managed(taken);
        self.at.release_local(charged - taken);
        charged - taken
    }

    /// Brings in what system calls hold of a range that is about to be registered: they have found that the
    /// kernel would have it for them, or are about to see that this is changing.
    pub(crate) fn populate_held(&self, range: &Range<usize>) {
        if planted!(K, "held-not-populated") {
            return;
        }
        for part in self.engine.holds.within(range) {
            let kernel = &self.at.kernel;
            if kernel.make_own(target_of(part.clone())).is_err() {
                // Some of it is not there, or may only be read.
                for page in part.step_by(PAGE_SIZE) {
                    let _ = kernel.make_own(target_of(page..page + PAGE_SIZE)).is_ok()
                        || kernel.is_readable(page);
                }
            }
        }
    }

    /// Makes the populated pages of a registered range Active, `most` of them. A page that is busy is being
    /// served: its fault was raised after the registration and charges the page itself.
    fn queue_populated(&self, range: &Range<usize>, most: u64) -> u64 {
        let mut taken = 0;
        for page_number in self.populated_pages(range).unwrap_or_default() {
            if taken < most && self.queue_active(page_number) {
                taken += 1;
            }
        }
        taken
    }

    /// The pages of a range that are not missing; `None` when that cannot be known.
    pub(crate) fn populated_pages(&self, range: &Range<usize>) -> Option<Vec<u64>> {
        if !self.at.kernel.has_page_map() {
            return None;
        }
        let mut found = Vec::new();
        for start in range.clone().step_by(MOST_POPULATED_PAGES * PAGE_SIZE) {
            let pages = (range.end - start).div_ceil(PAGE_SIZE).min(MOST_POPULATED_PAGES);
            let first = page_number_of(start);
            let populated = self.at.kernel.populated(target(first, pages))?;
            let is_populated = |page: &usize| populated[page / 64] >> (page % 64) & 1 != 0;
            found.extend((0..pages).filter(is_populated).map(|page| first + page as u64));
        }
        Some(found)
    }

    /// Queues a page that is mapped and charged. False where its word says that it is known already, or is
    /// busy.
    pub(crate) fn queue_active(&self, page_number: u64) -> bool {
        let Ok(word) = self.engine.table.find_or_make(page_number) else { return false };
        let Some(info) = self.try_lock(word) else { return false };
        let is_new = info.is_absent();
        let next = if is_new { first_touched(info, Queue::Active) } else { info };
        self.unlock(page_number, word, next);
        if is_new {
            self.enqueue(page_number, next);
        }
        is_new
    }
}
