//! SIEVE: pages stay in the order in which they came; a hand goes from the oldest to the newest and takes out
//! the first one that was not visited since it passed (Zhang et al., NSDI 2024).

use super::replacement::{NONE, Replacement};

/// Frames in the order in which their pages came, and the hand.
pub struct Sieve {
    frame_of: Vec<u32>,
    frames: Vec<Frame>,
    used: u32,
    newest: u32,
    oldest: u32,
    hand: u32,
}

#[derive(Clone, Copy)]
struct Frame {
    page: u32,
    newer: u32,
    older: u32,
    is_visited: bool,
}

impl Sieve {
    /// Takes out the first page from the hand on that was not visited; answers its frame.
    fn take_out(&mut self) -> u32 {
        let mut at = if self.hand == NONE { self.oldest } else { self.hand };
        loop {
            let frame = &mut self.frames[at as usize];
            if !frame.is_visited {
                break;
            }
            frame.is_visited = false;
            at = if frame.newer == NONE { self.oldest } else { frame.newer };
        }
        let Frame { page, newer, older, .. } = self.frames[at as usize];
        self.hand = newer;
        match newer {
            NONE => self.newest = older,
            newer => self.frames[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.frames[older as usize].newer = newer,
        }
        self.frame_of[page as usize] = NONE;
        at
    }
}

impl Replacement for Sieve {
    fn new(pages: u32, frames: u32) -> Self {
        let free = Frame { page: NONE, newer: NONE, older: NONE, is_visited: false };
        Self {
            frame_of: vec![NONE; pages as usize],
            frames: vec![free; frames as usize],
            used: 0,
            newest: NONE,
            oldest: NONE,
            hand: NONE,
        }
    }

    #[inline]
    fn request(&mut self, page: u32) -> bool {
        let frame = self.frame_of[page as usize];
        if frame != NONE {
            self.frames[frame as usize].is_visited = true;
            return true;
        }
        let frame = if (self.used as usize) < self.frames.len() {
            self.used += 1;
            self.used - 1
        } else {
            self.take_out()
        };
        self.frames[frame as usize] = Frame { page, newer: NONE, older: self.newest, is_visited: false };
        match self.newest {
            NONE => self.oldest = frame,
            newest => self.frames[newest as usize].newer = frame,
        }
        self.newest = frame;
        self.frame_of[page as usize] = frame;
        false
    }
}
