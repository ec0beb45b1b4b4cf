//! The memory that is lent, as frames of one page, and the budget over all exports.

use std::sync::{Condvar, Mutex, PoisonError};

use rustix::io::Result;
use spillway_core::page::PAGE_SIZE;
use spillway_sys::arena::Arena;

use crate::lock;

/// Free frames that may keep their memory, so that a client that rewrites pages does not pay for taking and
/// giving back memory each time.
const MAX_WARM_FRAMES: usize = 1024;

/// All the frames. Whoever has taken a frame may use it; nobody else does.
#[derive(Debug)]
pub struct FramePool {
    arena: Arena,
    free: Mutex<Free>,
    /// Signalled when frames that were on their way back have arrived.
    cooled: Condvar,
}

#[derive(Debug, Default)]
struct Free {
    /// Free, with memory and old contents.
    warm: Vec<u32>,
    /// Frames that are free and hold no memory.
    cold: Vec<u32>,
    /// Frames from here on were never used.
    fresh: u32,
    /// Frames between `warm` and `cold`: being given back to the machine just now.
    cooling: usize,
    /// Whether frames were taken since the last [`FramePool::cool_idle`].
    busy: bool,
}

impl Free {
    fn count(&self, frames: u32) -> usize {
        self.warm.len() + self.cold.len() + (frames - self.fresh) as usize
    }
}

/// No frame is left: the budget is spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl FramePool {
    /// A pool of `frames` frames. No memory is taken yet.
    pub fn new(frames: u32) -> Result<Self> {
        Ok(Self { arena: Arena::reserve(frames)?, free: Mutex::default(), cooled: Condvar::new() })
    }

    /// Number of frames, free or not.
    #[must_use]
    pub fn frames(&self) -> u32 {
        self.arena.pages()
    }

    /// Frames that are taken now.
    #[must_use]
    pub fn taken(&self) -> usize {
        let free = lock(&self.free);
        self.frames() as usize - free.count(self.frames()) - free.cooling
    }

    /// Takes `count` frames, or none. What they hold is undefined.
    pub fn take(&self, count: usize, into: &mut Vec<u32>) -> std::result::Result<(), Full> {
        let mut free = lock(&self.free);
        while free.count(self.frames()) < count {
            if free.cooling == 0 {
                return Err(Full);
            }
            free = self.cooled.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
        free.busy = true;
        for _ in 0..count {
            let Free { warm, cold, fresh, .. } = &mut *free;
            into.push(warm.pop().or_else(|| cold.pop()).unwrap_or_else(|| {
                *fresh += 1;
                *fresh - 1
            }));
        }
        Ok(())
    }

    /// Gives frames back, for others to take.
    pub fn put(&self, frames: &mut Vec<u32>) {
        if frames.is_empty() {
            return;
        }
        let mut free = lock(&self.free);
        free.warm.append(frames);
        if free.warm.len() > MAX_WARM_FRAMES {
            // The oldest go; those that were used last are still in the cache.
            let excess = free.warm.len() - MAX_WARM_FRAMES / 2;
            let cooling = free.warm.drain(..excess).collect();
            free.cooling += excess;
            drop(free);
            self.cool(cooling);
        }
    }

    /// Called every second or so: gives the memory of free frames back when nobody has taken any since the
    /// last call.
    pub fn cool_idle(&self) {
        let mut free = lock(&self.free);
        if !std::mem::take(&mut free.busy) && !free.warm.is_empty() {
            let cooling = std::mem::take(&mut free.warm);
            free.cooling += cooling.len();
            drop(free);
            self.cool(cooling);
        }
    }

    /// Gives the frames' memory back, whole runs at once, outside the lock.
    fn cool(&self, mut frames: Vec<u32>) {
        frames.sort_unstable();
        for run in frames.chunk_by(|a, b| a + 1 == *b) {
            // A failure leaves the memory taken, and the frame as free as before.
            let _ = self.arena.give_back(run[0], run.len() as u32);
        }
        let mut free = lock(&self.free);
        free.cooling -= frames.len();
        free.cold.append(&mut frames);
        drop(free);
        self.cooled.notify_all();
    }

    /// Copies out of a frame that the caller has taken.
    pub fn read(&self, frame: u32, offset: usize, to: &mut [u8]) {
        self.arena.read(frame, offset, to);
    }

    /// Copies into a frame that the caller has taken.
    pub fn write(&self, frame: u32, offset: usize, from: &[u8]) {
        self.arena.write(frame, offset, from);
    }

    /// Writes zeros into a frame that the caller has taken.
    pub fn zero(&self, frame: u32, offset: usize, bytes: usize) {
        self.arena.zero(frame, offset, bytes);
    }

    /// Bytes that are taken now.
    #[must_use]
    pub fn taken_bytes(&self) -> u64 {
        (self.taken() * PAGE_SIZE) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn takes_all_or_nothing_and_never_twice() {
        let pool = FramePool::new(10).unwrap();
        let mut frames = Vec::new();
        pool.take(7, &mut frames).unwrap();
        assert_eq!(pool.take(4, &mut frames), Err(Full));
        assert_eq!(frames.len(), 7);
        pool.take(3, &mut frames).unwrap();
        assert_eq!(frames.iter().collect::<HashSet<_>>().len(), 10);
        assert_eq!(pool.taken(), 10);
        pool.put(&mut frames);
        assert_eq!((pool.taken(), frames.len()), (0, 0));
    }

    #[test]
    fn free_frames_lose_their_memory_when_many_or_idle() {
        let pool = FramePool::new(4096).unwrap();
        let mut frames = Vec::new();
        pool.take(4096, &mut frames).unwrap();
        for frame in &frames {
            pool.write(*frame, 0, b"old");
        }
        let all = frames.clone();
        pool.put(&mut frames);
        pool.cool_idle(); // busy since the last call: the warm ones stay
        pool.cool_idle();
        let mut byte = [1];
        for frame in all {
            pool.read(frame, 0, &mut byte);
            assert_eq!(byte, [0]);
        }
        pool.take(4096, &mut frames).unwrap();
        assert_eq!(pool.taken_bytes(), 16 << 20);
    }

    #[test]
    fn threads_share_the_budget() {
        let pool = FramePool::new(3000).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut mine = Vec::new();
                    for _ in 0..200 {
                        // Four times 700 fit, so nobody may ever be told that the pool is full.
                        pool.take(700, &mut mine).unwrap();
                        pool.put(&mut mine);
                    }
                });
            }
        });
        assert_eq!(pool.taken(), 0);
    }
}
