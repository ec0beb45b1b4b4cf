//! FIFO: the page that came first leaves first.

use super::replacement::{NONE, Replacement};

/// A ring of frames; the hand stands at the oldest page.
pub struct Fifo {
    is_local: Vec<bool>,
    frames: Vec<u32>,
    hand: usize,
}

impl Replacement for Fifo {
    fn new(pages: u32, frames: u32) -> Self {
        Self { is_local: vec![false; pages as usize], frames: vec![NONE; frames as usize], hand: 0 }
    }

    #[inline]
    fn request(&mut self, page: u32) -> bool {
        if std::mem::replace(&mut self.is_local[page as usize], true) {
            return true;
        }
        let leaves = std::mem::replace(&mut self.frames[self.hand], page);
        if leaves != NONE {
            self.is_local[leaves as usize] = false;
        }
        self.hand += 1;
        if self.hand == self.frames.len() {
            self.hand = 0;
        }
        false
    }
}
