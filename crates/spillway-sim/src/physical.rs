//! The simulated machine's memory: frames that page tables name, with how many do.

use std::collections::VecDeque;

use spillway_core::page::{PAGE_SIZE, Page};

use crate::contents::SCRIBBLE;

/// A frame, by its number.
pub type FrameId = u32;

/// What a process refers to at a time, in order; `None` is the page of zeros.
#[derive(Debug)]
pub struct Referred {
    /// Whose references these are.
    pub process: usize,
    /// The frames, the next one first.
    pub frames: VecDeque<Option<FrameId>>,
}

#[derive(Debug)]
struct Frame {
    contents: Box<Page>,
    /// Page table entries that name it, of whatever process.
    mappings: u32,
    /// How often devices have pinned it.
    pins: u32,
    /// How many of these pins are for a system call under way, which `VmPin` leaves out.
    pins_of_calls: u32,
    /// How often somebody refers to it who neither maps nor pins it.
    references: u32,
}

/// All frames. A frame's memory stays where it is while the world lasts.
#[derive(Debug, Default)]
pub struct Physical {
    frames: Vec<Frame>,
    free: Vec<FrameId>,
}

impl Physical {
    /// A frame of zeros, mapped once.
    pub fn take(&mut self) -> FrameId {
        if let Some(id) = self.free.pop() {
            let frame = &mut self.frames[id as usize];
            frame.contents.fill(0);
            frame.mappings = 1;
            return id;
        }
        let contents = Box::new([0; PAGE_SIZE]);
        self.frames.push(Frame { contents, mappings: 1, pins: 0, pins_of_calls: 0, references: 0 });
        self.frames.len() as FrameId - 1
    }

    /// A frame with these contents, mapped once.
    pub fn take_filled(&mut self, contents: &[u8]) -> FrameId {
        let id = self.take();
        self.frames[id as usize].contents.copy_from_slice(contents);
        id
    }

    /// What a frame holds.
    #[must_use]
    pub fn page(&self, id: FrameId) -> &Page {
        &self.frames[id as usize].contents
    }

    /// The same, to be written.
    pub fn page_mut(&mut self, id: FrameId) -> &mut Page {
        &mut self.frames[id as usize].contents
    }

    /// One more entry names the frame.
    pub fn share(&mut self, id: FrameId) {
        self.frames[id as usize].mappings += 1;
    }

    /// Entries that name the frame.
    #[must_use]
    pub fn mappings(&self, id: FrameId) -> u32 {
        self.frames[id as usize].mappings
    }

    /// One entry less names the frame.
    pub fn unmap(&mut self, id: FrameId) {
        let frame = &mut self.frames[id as usize];
        assert!(frame.mappings > 0, "a frame is unmapped more often than it was mapped");
        frame.mappings -= 1;
        self.free_if_unused(id);
    }

    /// How often devices have pinned a frame.
    #[must_use]
    pub fn pins(&self, id: FrameId) -> u32 {
        self.frames[id as usize].pins
    }

    /// How many of its pins `VmPin` has: the kernel counts those that last (`FOLL_LONGTERM`).
    #[must_use]
    pub fn counted_pins(&self, id: FrameId) -> u32 {
        let frame = &self.frames[id as usize];
        frame.pins - frame.pins_of_calls
    }

    /// A device pins the frame.
    pub fn pin(&mut self, id: FrameId) {
        self.frames[id as usize].pins += 1;
    }

    /// A device lets it go.
    pub fn unpin(&mut self, id: FrameId) {
        self.frames[id as usize].pins -= 1;
        self.free_if_unused(id);
    }

    /// A system call pins the frame until it ends, as direct I/O does.
    pub fn pin_for_call(&mut self, id: FrameId) {
        self.pin(id);
        self.frames[id as usize].pins_of_calls += 1;
    }

    /// The call that pinned it ends.
    pub fn unpin_after_call(&mut self, id: FrameId) {
        self.frames[id as usize].pins_of_calls -= 1;
        self.unpin(id);
    }

    /// Somebody refers to the frame.
    pub fn refer(&mut self, id: FrameId) {
        self.frames[id as usize].references += 1;
    }

    /// Somebody lets it go.
    pub fn let_go(&mut self, id: FrameId) {
        self.frames[id as usize].references -= 1;
        self.free_if_unused(id);
    }

    /// One entry names the frame, and nobody else refers to it.
    #[must_use]
    pub fn is_sole(&self, id: FrameId) -> bool {
        let frame = &self.frames[id as usize];
        frame.mappings == 1 && frame.references == 0
    }

    fn free_if_unused(&mut self, id: FrameId) {
        let frame = &mut self.frames[id as usize];
        if frame.mappings == 0 && frame.pins == 0 && frame.references == 0 {
            // Who still reads it sees that.
            frame.contents.fill(SCRIBBLE);
            self.free.push(id);
        }
    }

    /// How many frames are in use.
    #[must_use]
    pub fn used(&self) -> usize {
        self.frames.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_lives_while_it_is_mapped_or_pinned() {
        let mut physical = Physical::default();
        let id = physical.take_filled(&[7; PAGE_SIZE]);
        physical.share(id);
        physical.pin(id);
        physical.unmap(id);
        assert_eq!((physical.mappings(id), physical.used()), (1, 1));
        physical.unmap(id);
        assert_eq!((physical.page(id)[0], physical.used()), (7, 1));
        physical.unpin(id);
        assert_eq!((physical.page(id)[0], physical.used()), (SCRIBBLE, 0));
        assert_eq!(physical.take(), id);
        assert_eq!(physical.page(id)[0], 0);
    }

    #[test]
    fn pins_of_calls_are_not_counted_and_pin_as_others_do() {
        let mut physical = Physical::default();
        let id = physical.take();
        physical.pin_for_call(id);
        physical.pin(id);
        assert_eq!((physical.pins(id), physical.counted_pins(id)), (2, 1));
        physical.unpin(id);
        physical.unmap(id);
        assert_eq!((physical.pins(id), physical.counted_pins(id), physical.used()), (1, 0, 1));
        physical.unpin_after_call(id);
        assert_eq!((physical.pins(id), physical.used()), (0, 0));
    }
}
