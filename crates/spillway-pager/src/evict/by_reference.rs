//! Pages come into frames by reference: scattered ones, while other threads of the program run.
//!
//! A UFFDIO_MOVE of a scattered page flushes the other CPUs' translations for it alone, by interrupts, which
//! on a virtual machine costs ten times what the move does. Here the pager takes references to a batch of
//! pages, drops them from the page table by one call with one flush, and then copies what they hold into
//! frames. From there on all is as if they had been moved.
//!
//! Invariant: between the reference and the drop nothing puts another frame in a page's place, so that what
//! is referred to has all that was written. Pages are the process's own before they are referred to: a write
//! changes the frame that is there. A fork, which would share them anew, waits for this worker. What the
//! kernel does by itself is asked after ([`Kernel::frames_stay`]).
//!
//! Invariant: once the page is dropped nobody writes to what is referred to. Threads cannot; what the kernel
//! writes for the program it writes in its system calls, whose memory is held, so inline mode only, and
//! victims are not held. Of a call that uses more than may be held the rest is written by its addresses, so
//! not once it is dropped. A device that keeps memory has it from before the pager came: by then it is pinned
//! for good, and one look for all of these pages sees it. The call that gives it some later ends inline mode
//! first, which waits for this worker. Debuggers are asked after by the same look.

use std::sync::atomic::Ordering;
use std::time::Duration;

use spillway_core::page_word::PageInfo;
use spillway_sys::memory::Outsiders;
use spillway_sys::ranges::TargetRange;

use crate::kernel::{Kernel, MOST_REFERENCES, READ_PAGES, References, planted};
use crate::pages::address::target;
use crate::process::worker::Worker;
use crate::run::state::Counter;

/// A run of so many neighbours goes faster by one UFFDIO_MOVE.
const LONG_RUN_PAGES: usize = 4;

impl<K: Kernel> Worker<K> {
    /// Brings the first of these locked pages, in the order of their numbers, into frames. Returns how many
    /// are settled, none where another way is to be taken.
    pub(crate) fn unmap_by_reference(&mut self, victims: &[(u64, PageInfo)]) -> usize {
        let runs = victims.chunk_by(|(a, _), (b, _)| *b == *a + 1).count();
        if runs * LONG_RUN_PAGES <= victims.len() || !self.may_unmap_by_reference() {
            return 0;
        }
        let mut settled = 0;
        while settled < victims.len() {
            match self.unmap_referred(&victims[settled..]) {
                0 => break,
                pages => settled += pages,
            }
        }
        self.at.run.count(Counter::PagesUnmappedByReference, settled as u64);
        settled
    }

    fn may_unmap_by_reference(&self) -> bool {
        let kernel = &self.at.kernel;
        // The page map tells what is left where a call stops half-way.
        let may_discard = kernel.can_discard_pages() && kernel.has_page_map();
        self.at.settings.pool.by_reference
            && kernel.is_inline()
            && may_discard
            && !self.engine.has_foreign_writers.load(Ordering::SeqCst)
            && (kernel.frames_stay() || planted!(K, "frames-believed-to-stay"))
            && (self.outsiders() == Some(Outsiders::default()) || planted!(K, "referred-under-a-device"))
    }

    fn unmap_referred(&mut self, victims: &[(u64, PageInfo)]) -> usize {
        // A write to a page that is protected would be a fault, also the kernel's own.
        let is_writable = |(_, info): &&(u64, PageInfo)| info.protected_in().is_none();
        let wanted = victims.iter().take(MOST_REFERENCES).take_while(is_writable).count();
        // Before anything is dropped: it must lie somewhere.
        let frames = self.take_scattered_frames(wanted);
        let pages: Vec<TargetRange> =
            victims.iter().zip(&frames).map(|((page_number, _), _)| target(*page_number, 1)).collect();
        let kernel = &self.at.kernel;
        let own =
            if planted!(K, "referred-before-own") { pages.len() } else { kernel.make_own_pages(&pages) };
        let Some(references) = kernel.refer(&pages[..own]) else {
            self.give_back_empty(&frames);
            return 0;
        };
        let count = references.pages;
        self.give_back_empty(&frames[count..]);
        let (victims, frames, pages) = (&victims[..count], &frames[..count], &pages[..count]);
        if planted!(K, "copied-before-dropped") {
            self.come_into_frames(victims, frames, &references);
            kernel.discard_pages(pages);
        } else {
            let all_gone = kernel.discard_pages(pages) || planted!(K, "half-dropped-taken-for-gone");
            self.settle_referred(victims, frames, &references, all_gone);
        }
        self.at.kernel.let_go(references);
        count
    }

    /// Brings the pages into frames that were dropped. What is still mapped stays: it may have been written
    /// to since.
    fn settle_referred(
        &self,
        victims: &[(u64, PageInfo)],
        frames: &[u32],
        references: &References,
        all_gone: bool,
    ) {
        let is_gone = |page_number| all_gone || !self.is_populated(page_number);
        let is_gone: Vec<bool> = victims.iter().map(|&(page_number, _)| is_gone(page_number)).collect();
        let mut at = 0;
        for alike in is_gone.chunk_by(|a, b| a == b) {
            let part = at..at + alike.len();
            let (victims, frames) = (&victims[part.clone()], &frames[part]);
            if alike[0] {
                self.come_into_frames(victims, frames, references);
            } else {
                frames.chunks(READ_PAGES).for_each(|part| self.at.kernel.pass_over(references, part.len()));
                self.give_back_empty(frames);
                victims.iter().for_each(|&(page_number, info)| self.keep_mapped(page_number, info));
            }
            at += alike.len();
        }
    }

    fn come_into_frames(&self, victims: &[(u64, PageInfo)], frames: &[u32], references: &References) {
        self.fill(references, frames);
        for (&(page_number, info), &frame) in victims.iter().zip(frames) {
            self.to_inactive(page_number, info, frame);
        }
    }

    /// Up to `wanted` frames, neighbours where there are any.
    fn take_scattered_frames(&self, wanted: usize) -> Vec<u32> {
        let mut frames = Vec::with_capacity(wanted);
        while frames.len() < wanted {
            let Some((first, count)) = self.engine.frames.take_run(wanted - frames.len()) else { break };
            frames.extend(first..first + count as u32);
        }
        frames
    }

    fn give_back_empty(&self, frames: &[u32]) {
        frames.iter().for_each(|&frame| self.engine.frames.give_back(frame, 1));
    }

    /// Copies what is referred to into frames. The pages are dropped already: there is no way back.
    fn fill(&self, references: &References, frames: &[u32]) {
        const TRIES: usize = 10_000;
        for run in frames.chunk_by(|a, b| *b == *a + 1).flat_map(|run| run.chunks(READ_PAGES)) {
            let to = self.engine.frames.range(run[0], run.len());
            let mut outcome = Ok(());
            for _ in 0..TRIES {
                outcome = self.at.kernel.fill_frames(to, references);
                if outcome.is_ok() {
                    break;
                }
                // The machine has no memory at this moment, or the kernel is busy.
                K::sleep(Duration::from_micros(100));
            }
            if let Err(error) = outcome {
                self.stop_before_wrong_data("copy pages that are on their way out", error);
            }
        }
    }
}
