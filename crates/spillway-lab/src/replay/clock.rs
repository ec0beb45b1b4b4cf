//! CLOCK: as FIFO, but a page that was used since the hand passed it is passed once more (Corbato 1969).
//!
//! A page that comes is not used yet: its first use is the one that brought it.

use super::replacement::{NONE, Replacement};

const FAR: u8 = 0;
const LOCAL: u8 = 1;
const USED: u8 = 2;

/// A ring of frames with a hand; what is known of a page is one byte.
pub struct Clock {
    states: Vec<u8>,
    frames: Vec<u32>,
    hand: usize,
}

impl Clock {
    fn advance(&mut self) {
        self.hand += 1;
        if self.hand == self.frames.len() {
            self.hand = 0;
        }
    }
}

impl Replacement for Clock {
    fn new(pages: u32, frames: u32) -> Self {
        Self { states: vec![FAR; pages as usize], frames: vec![NONE; frames as usize], hand: 0 }
    }

    #[inline]
    fn request(&mut self, page: u32) -> bool {
        if self.states[page as usize] != FAR {
            self.states[page as usize] = USED;
            return true;
        }
        loop {
            let leaves = self.frames[self.hand];
            if leaves == NONE {
                break;
            }
            let state = &mut self.states[leaves as usize];
            if *state == LOCAL {
                *state = FAR;
                break;
            }
            *state = LOCAL;
            self.advance();
        }
        self.frames[self.hand] = page;
        self.states[page as usize] = LOCAL;
        self.advance();
        false
    }
}
