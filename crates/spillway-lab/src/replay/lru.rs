//! LRU: the page that was not used for longest leaves.

use super::replacement::{NONE, Replacement};

/// A ring of frames in the order of their last use; the sentinel behind the last frame closes it.
pub struct Lru {
    frame_of: Vec<u32>,
    frames: Vec<Frame>,
    used: u32,
}

#[derive(Clone, Copy)]
struct Frame {
    page: u32,
    newer: u32,
    older: u32,
}

impl Lru {
    fn sentinel(&self) -> u32 {
        self.frames.len() as u32 - 1
    }

    fn unlink(&mut self, frame: u32) {
        let Frame { newer, older, .. } = self.frames[frame as usize];
        self.frames[newer as usize].older = older;
        self.frames[older as usize].newer = newer;
    }

    fn link_newest(&mut self, frame: u32) {
        let sentinel = self.sentinel();
        let second = std::mem::replace(&mut self.frames[sentinel as usize].older, frame);
        self.frames[second as usize].newer = frame;
        let linked = &mut self.frames[frame as usize];
        (linked.newer, linked.older) = (sentinel, second);
    }
}

impl Replacement for Lru {
    fn new(pages: u32, frames: u32) -> Self {
        let free = Frame { page: NONE, newer: frames, older: frames };
        Self { frame_of: vec![NONE; pages as usize], frames: vec![free; frames as usize + 1], used: 0 }
    }

    #[inline]
    fn request(&mut self, page: u32) -> bool {
        let frame = self.frame_of[page as usize];
        if frame != NONE {
            if self.frames[frame as usize].newer != self.sentinel() {
                self.unlink(frame);
                self.link_newest(frame);
            }
            return true;
        }
        let frame = if self.used < self.sentinel() {
            self.used += 1;
            self.used - 1
        } else {
            let oldest = self.frames[self.sentinel() as usize].newer;
            self.unlink(oldest);
            self.frame_of[self.frames[oldest as usize].page as usize] = NONE;
            oldest
        };
        self.frames[frame as usize].page = page;
        self.frame_of[page as usize] = frame;
        self.link_newest(frame);
        false
    }
}
