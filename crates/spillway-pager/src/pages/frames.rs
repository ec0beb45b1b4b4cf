//! Frames: where a page lies that is local but unmapped. An area of addresses, registered for faults because
//! UFFDIO_MOVE demands it of its target; a frame has memory only while a page is in it.
//!
//! The memory of a page that was written back is given up, not filled anew, though that would save the
//! kernel's work of allocating and clearing: a pipe (vmsplice), a socket (MSG_ZEROCOPY) or another process
//! may still hold the page by a reference that UFFDIO_MOVE does not see, and would find there what was put in
//! its place.

use rustix::io::Result;
use spillway_core::frame_pool::{FramePool, RANGE_FRAMES};
use spillway_core::page::PAGE_SIZE;
use spillway_sys::memory::Area;
use spillway_sys::ranges::FrameRange;

use crate::kernel::Kernel;

/// The frames of one process.
pub struct Frames {
    area: Area,
    /// The first page of the area that lies on 2 MiB, where the frames begin.
    shift_pages: usize,
    /// A free frame is empty, which `move_to_frames` relies on.
    pool: FramePool,
}

impl Frames {
    /// `count` free frames (rounded up to a multiple of 64).
    ///
    /// # Errors
    /// ENOMEM where there is no address space.
    pub fn new(count: usize) -> Result<Self> {
        let pool = FramePool::all_free(count);
        Self::of(pool)
    }

    fn of(pool: FramePool) -> Result<Self> {
        const RANGE_BYTES: usize = RANGE_FRAMES * PAGE_SIZE;
        let area = Area::new(pool.frames() * PAGE_SIZE + RANGE_BYTES)?;
        let shift_pages = (area.address().next_multiple_of(RANGE_BYTES) - area.address()) / PAGE_SIZE;
        Ok(Self { area, shift_pages, pool })
    }

    /// Takes `count` neighbouring frames, none fewer; those of a huge page on a multiple of as many.
    pub(crate) fn take_whole(&self, count: usize) -> Option<u32> {
        if count == RANGE_FRAMES {
            return self.pool.take_range();
        }
        let (first, taken) = self.pool.take_run(count)?;
        if taken < count {
            self.pool.give_back(first, taken);
        }
        (taken == count).then_some(first)
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

    /// Frees the memory of frames and gives them back. `frames` is sorted in passing, so that neighbours go
    /// in one call. A frame whose memory stays is never used again: a free frame is an empty one.
    pub fn discard(&self, kernel: &impl Kernel, frames: &mut [u32]) {
        frames.sort_unstable();
        for run in frames.chunk_by(|a, b| *b == *a + 1) {
            if kernel.discard_frames(self.range(run[0], run.len())).is_ok() {
                self.pool.give_back(run[0], run.len());
            }
        }
    }

    /// How many frames are free.
    #[must_use]
    pub fn free_count(&self) -> usize {
        self.pool.free_count()
    }

    /// How many hold a page, or are about to.
    #[must_use]
    pub fn full_count(&self) -> usize {
        self.count().saturating_sub(self.pool.free_count())
    }

    /// All of them, free and full.
    #[must_use]
    pub fn count(&self) -> usize {
        self.pool.frames()
    }

    /// Neighbouring frames, for the kernel. Panics where they are not among these.
    #[must_use]
    pub fn range(&self, first: u32, count: usize) -> FrameRange<'_> {
        self.area.pages(self.shift_pages + first as usize, count)
    }

    /// All frames, free and full.
    #[must_use]
    pub fn all(&self) -> FrameRange<'_> {
        self.area.pages(self.shift_pages, self.pool.frames())
    }

    /// As many frames as these, of which the same are free: what a forked child inherits, but for what they
    /// hold. For a simulated fork.
    ///
    /// # Errors
    /// ENOMEM where there is no address space.
    pub fn for_child(&self) -> Result<Self> {
        Self::of(self.pool.clone())
    }

    /// Whether an address lies in a frame.
    #[must_use]
    pub fn contains(&self, address: usize) -> bool {
        (self.all().start()..self.all().start() + self.all().bytes()).contains(&address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_know_which_addresses_are_theirs() {
        let frames = Frames::new(100).unwrap();
        let (first, count) = frames.take_run(3).unwrap();
        assert_eq!((count, frames.free_count()), (3, 125));
        let child = frames.for_child().unwrap();
        frames.give_back(first, 3);
        assert_eq!((frames.free_count(), child.free_count()), (128, 125));
        let all = frames.all();
        assert!(
            frames.contains(frames.range(first, 1).start()) && !frames.contains(all.start() + all.bytes())
        );
    }
}
