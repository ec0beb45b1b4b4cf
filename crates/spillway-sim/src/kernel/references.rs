//! References to pages, as a pipe takes them: to frames, whatever becomes of the page table entries that name
//! them.

use std::collections::VecDeque;

use rustix::io::{Errno, Result};
use spillway_core::page::PAGE_SIZE;
use spillway_pager::kernel::References;
use spillway_sys::ranges::{FrameRange, TargetRange};

use crate::kernel::{ZEROS, each, pages_of};
use crate::own_memory;
use crate::physical::Referred;
use crate::space::{Entry, Own, Protection};
use crate::world::World;

impl World {
    pub(super) fn refer(&mut self, process: usize, pages: &[TargetRange]) -> Option<References> {
        if self.says_again() {
            return None;
        }
        let mut frames = VecDeque::new();
        for page in pages.iter().map(|&page| pages_of(page).start) {
            let space = &self.processes[process].space;
            let may_read =
                space.get(page).is_some_and(|mapped| mapped.attributes.protection != Protection::None);
            let frame = match space.entry(page) {
                Entry::Frame { id, .. } => Some(id),
                Entry::Zero { .. } => None,
                Entry::Missing | Entry::Poisoned => break,
            };
            if !may_read || !frames.is_empty() && self.stops_here() {
                break;
            }
            frame.into_iter().for_each(|id| self.physical.refer(id));
            frames.push_back(frame);
            if self.config.machine.replaces_frames && self.draws.one_in(2) {
                self.processes[process].space.replace_frame(&mut self.physical, page);
            }
        }
        let pages = frames.len();
        if pages == 0 {
            return None;
        }
        let place = self.next_references;
        self.next_references += 1;
        self.references.insert(place, Referred { process, frames });
        Some(References { place, pages })
    }

    pub(super) fn fill_referred(&mut self, process: usize, to: FrameRange<'_>, place: usize) -> Result<()> {
        if self.says_again() {
            return Err(Errno::AGAIN);
        }
        for frame in each(to) {
            debug_assert_eq!(frame.bytes(), PAGE_SIZE);
            let next = self.references.get_mut(&place).and_then(|referred| referred.frames.pop_front());
            let Some(next) = next else {
                self.fail("more is copied than was referred to".to_owned());
                return Err(Errno::IO);
            };
            if self.processes[process].space.own(frame.start()).is_some() {
                self.fail("what is referred to is copied to a frame that holds a page".to_owned());
                return Err(Errno::EXIST);
            }
            own_memory::fill(frame, next.map_or(&ZEROS, |id| self.physical.page(id)));
            let own = Own { is_exclusive: true, is_zero: false };
            self.processes[process].space.set_own(frame.start(), own);
            next.into_iter().for_each(|id| self.physical.let_go(id));
        }
        Ok(())
    }

    pub(super) fn pass_over(&mut self, place: usize, pages: usize) {
        for _ in 0..pages {
            let next = self.references.get_mut(&place).and_then(|referred| referred.frames.pop_front());
            next.flatten().into_iter().for_each(|id| self.physical.let_go(id));
        }
    }

    pub(super) fn let_go(&mut self, place: usize) {
        let referred = self.references.remove(&place);
        for id in referred.into_iter().flat_map(|referred| referred.frames).flatten() {
            self.physical.let_go(id);
        }
    }

    /// A process has ended.
    pub(crate) fn let_all_go(&mut self, process: usize) {
        let of_process =
            |(place, referred): (&usize, &Referred)| (referred.process == process).then_some(*place);
        let places: Vec<usize> = self.references.iter().filter_map(of_process).collect();
        places.into_iter().for_each(|place| self.let_go(place));
    }
}
