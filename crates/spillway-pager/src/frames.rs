//! Frames: where a page lies that is local but unmapped. An area of addresses, registered for faults because
//! UFFDIO_MOVE demands it of its target; a frame has memory only while a page is in it.
//!
//! The memory of a page that was written back is given up, not filled anew, though that would save the kernel's work of
//! allocating and clearing: a pipe (vmsplice), a socket (MSG_ZEROCOPY) or another process may still hold the page
//! by a reference that UFFDIO_MOVE does not see, and would find there what was put in its place.

use std::sync::Mutex;

use rustix::io::Result;
use spillway_core::page::{PAGE_SIZE, Page};
use spillway_sys::memory::Area;

/// The frames of one process.
pub struct Frames {
    area: Area,
    free: Mutex<FreeFrames>,
}

/// A bit a frame, set when it is free. A free frame is empty, which `move_to_frames` relies on.
struct FreeFrames {
    words: Vec<u64>,
    next: usize,
    count: usize,
}

impl Frames {
    /// `count` free frames (rounded up to a multiple of 64).
    pub fn new(count: usize) -> Result<Self> {
        let words = count.div_ceil(64);
        let area = Area::new(words * 64 * PAGE_SIZE)?;
        let free = FreeFrames { words: vec![u64::MAX; words], next: 0, count: words * 64 };
        Ok(Self { area, free: Mutex::new(free) })
    }

    /// Takes up to `wanted` neighbouring frames: the first and their number; `None` when none is free.
    #[must_use]
    pub fn take_run(&self, wanted: usize) -> Option<(u32, usize)> {
        let mut free = self.free.lock().ok()?;
        free.take_run(wanted)
    }

    /// Gives frames back. Their memory must be gone already, moved away or discarded.
    pub fn give_back(&self, frames: &[u32]) {
        if let Ok(mut free) = self.free.lock() {
            frames.iter().for_each(|&frame| free.give_back(frame));
        }
    }

    /// Frees the memory of frames and gives them back. `frames` is sorted in passing, so that neighbours go in
    /// one call. A frame whose memory stays is never used again: a free frame is an empty one.
    pub fn discard(&self, frames: &mut [u32]) {
        frames.sort_unstable();
        for run in frames.chunk_by(|a, b| *b == *a + 1) {
            if self.area.discard(run[0] as usize * PAGE_SIZE, run.len() * PAGE_SIZE).is_ok() {
                self.give_back(run);
            }
        }
    }

    /// Free frames.
    #[must_use]
    pub fn free_count(&self) -> usize {
        self.free.lock().map_or(0, |free| free.count)
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

impl FreeFrames {
    fn is_free(&self, frame: usize) -> bool {
        self.words.get(frame / 64).is_some_and(|word| word >> (frame % 64) & 1 != 0)
    }

    /// The tightest run that is long enough, else the longest: long runs are for long blocks.
    fn take_run(&mut self, wanted: usize) -> Option<(u32, usize)> {
        if self.count == 0 {
            return None;
        }
        let words = self.words.len();
        let mut best: Option<(usize, usize)> = None;
        for index in (0..words).map(|i| (self.next + i) % words) {
            for (start, length) in runs(self.words[index]) {
                let better = best.is_none_or(|(_, so_far)| {
                    if so_far >= wanted { length >= wanted && length < so_far } else { length > so_far }
                });
                if better {
                    best = Some((index * 64 + start, length));
                }
            }
            if best.is_some_and(|(_, length)| length == wanted || (wanted == 1 && length < 16)) {
                break;
            }
        }
        let (first, length) = best?;
        let taken = length.min(wanted);
        let mask = if taken == 64 { u64::MAX } else { ((1 << taken) - 1) << (first % 64) };
        self.words[first / 64] &= !mask;
        self.count -= taken;
        self.next = first / 64;
        Some((first as u32, taken))
    }

    fn give_back(&mut self, frame: u32) {
        debug_assert!(!self.is_free(frame as usize), "frame {frame} given back twice");
        self.words[frame as usize / 64] |= 1 << (frame % 64);
        self.count += 1;
    }
}

/// The runs of set bits in a word: where each starts and its length.
fn runs(mut word: u64) -> impl Iterator<Item = (usize, usize)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        if word == 0 {
            return None;
        }
        let gap = word.trailing_zeros() as usize;
        word >>= gap;
        let length = word.trailing_ones() as usize;
        let start = at + gap;
        at = start + length;
        word = word.checked_shr(length as u32).unwrap_or(0);
        Some((start, length))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn runs_of_a_word() {
        assert_eq!(runs(0).count(), 0);
        assert_eq!(runs(u64::MAX).collect::<Vec<_>>(), [(0, 64)]);
        assert_eq!(runs(0b1011_0110).collect::<Vec<_>>(), [(1, 2), (4, 2), (7, 1)]);
        assert_eq!(runs(1 << 63 | 1).collect::<Vec<_>>(), [(0, 1), (63, 1)]);
    }

    #[test]
    fn single_frames_leave_long_runs_alone() {
        let frames = Frames::new(256).unwrap();
        let first: Vec<_> = (0..64).map(|_| frames.take_run(1).unwrap().0).collect();
        let words: BTreeSet<u32> = first.iter().map(|frame| frame / 64).collect();
        assert_eq!(words.len(), 1, "{first:?}");
        assert_eq!((0..3).map(|_| frames.take_run(64).unwrap().1).collect::<Vec<_>>(), [64, 64, 64]);
        assert_eq!(frames.take_run(1), None);
    }

    proptest! {
        #[test]
        fn no_frame_is_given_twice_or_lost(operations in proptest::collection::vec((any::<bool>(), 0_usize..100), 0..300)) {
            let frames = Frames::new(200).unwrap();
            let mut taken = BTreeSet::new();
            for (take, n) in operations {
                if take {
                    match frames.take_run(n % 20 + 1) {
                        Some((first, count)) => {
                            prop_assert!(count >= 1 && count <= n % 20 + 1);
                            for frame in first..first + count as u32 {
                                prop_assert!(taken.insert(frame) && frame < 256);
                            }
                        }
                        None => prop_assert_eq!(taken.len(), 256),
                    }
                } else {
                    let mut some: Vec<u32> = taken.iter().copied().skip(n / 2).take(n % 7).collect();
                    some.iter().for_each(|frame| { taken.remove(frame); });
                    frames.discard(&mut some);
                }
                prop_assert_eq!(frames.free_count(), 256 - taken.len());
            }
        }
    }
}
