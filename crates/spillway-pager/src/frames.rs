//! Frames: where a page lies that is local but unmapped. An area of addresses, registered for faults because
//! UFFDIO_MOVE demands it of its target; a frame has memory only while a page is in it.
//!
//! The memory of a page that was written back is given up, not filled anew, though that would save the kernel's work of
//! allocating and clearing: a pipe (vmsplice), a socket (MSG_ZEROCOPY) or another process may still hold the page
//! by a reference that UFFDIO_MOVE does not see, and would find there what was put in its place.

use rustix::io::Result;
use spillway_core::frame_pool::FramePool;
use spillway_core::page::{PAGE_SIZE, Page};
use spillway_sys::memory::Area;

/// The frames of one process.
pub struct Frames {
    area: Area,
    /// A free frame is empty, which `move_to_frames` relies on.
    pool: FramePool,
}

impl Frames {
    /// `count` free frames (rounded up to a multiple of 64).
    pub fn new(count: usize) -> Result<Self> {
        let pool = FramePool::all_free(count);
        let area = Area::new(pool.frames() * PAGE_SIZE)?;
        Ok(Self { area, pool })
    }

    /// Takes up to `wanted` neighbouring frames: the first and their number; `None` when none is free.
    #[must_use]
    pub fn take_run(&self, wanted: usize) -> Option<(u32, usize)> {
        self.pool.take_run(wanted)
    }

    /// Gives neighbouring frames back. Their memory must be gone already, moved away or discarded.
    pub fn give_back(&self, first: u32, count: usize) {
        self.pool.give_back(first, count);
    }

    /// Frees the memory of frames and gives them back. `frames` is sorted in passing, so that neighbours go in
    /// one call. A frame whose memory stays is never used again: a free frame is an empty one.
    pub fn discard(&self, frames: &mut [u32]) {
        frames.sort_unstable();
        for run in frames.chunk_by(|a, b| *b == *a + 1) {
            if self.area.discard(run[0] as usize * PAGE_SIZE, run.len() * PAGE_SIZE).is_ok() {
                self.pool.give_back(run[0], run.len());
            }
        }
    }

    /// Free frames.
    #[must_use]
    pub fn free_count(&self) -> usize {
        self.pool.free_count()
    }

    /// Address of a frame.
    #[must_use]
    pub fn address(&self, frame: u32) -> usize {
        self.area.address() + frame as usize * PAGE_SIZE
    }

    /// Whether an address lies in a frame.
    #[must_use]
    pub fn contains(&self, address: usize) -> bool {
        (self.area.address()..self.area.address() + self.area.bytes()).contains(&address)
    }

    /// First address and length of all frames.
    #[must_use]
    pub fn extent(&self) -> (usize, usize) {
        (self.area.address(), self.area.bytes())
    }

    /// What lies in a frame whose page is in Writeback: nothing else may move or free it meanwhile.
    #[must_use]
    pub fn page(&self, frame: u32) -> &Page {
        self.area.page(frame as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_discarded_frame_is_empty_and_free_again() {
        let frames = Frames::new(100).unwrap();
        let (first, count) = frames.take_run(3).unwrap();
        assert_eq!((count, frames.free_count()), (3, 125));
        frames.area.write(first as usize * PAGE_SIZE, &[7; PAGE_SIZE]);
        assert_eq!(frames.page(first), &[7; PAGE_SIZE]);
        frames.discard(&mut [first + 2, first]);
        frames.give_back(first + 1, 1);
        assert_eq!((frames.free_count(), frames.page(first)), (128, &[0; PAGE_SIZE]));
        assert!(frames.contains(frames.address(first)) && !frames.contains(frames.address(128)));
    }
}
