//! Whether it pays to have another thread evict before a fault needs the room.
//!
//! Always where a store is far away. With compressed RAM while most of what leaves has to be compressed,
//! which takes longer than all the rest of a fault; what leaves unwritten is gone sooner than a thread is
//! woken.

use std::sync::atomic::{AtomicU32, Ordering};

/// How much of what was evicted lately had to be written: a moving average over batches.
#[derive(Debug, Default)]
pub struct WrittenShare(AtomicU32);

/// Of so many parts the average is kept.
const WHOLE: u32 = 1 << 16;
/// A batch counts for one part in so many.
const WEIGHT: u32 = 8;

impl WrittenShare {
    /// Notes a batch. Two threads at once may lose one of two batches, which does no harm.
    pub fn note(&self, written: usize, evicted: usize) {
        if let Some(share) = (written as u32 * WHOLE).checked_div(evicted as u32) {
            let before = self.0.load(Ordering::Relaxed);
            self.0.store(before - before / WEIGHT + share / WEIGHT, Ordering::Relaxed);
        }
    }

    /// Most of it was.
    #[must_use]
    pub fn is_most(&self) -> bool {
        self.0.load(Ordering::Relaxed) > WHOLE / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_follows_what_was_evicted() {
        let share = WrittenShare::default();
        assert!(!share.is_most());
        (0..4).for_each(|_| share.note(64, 64));
        assert!(!share.is_most(), "four batches say little");
        (0..8).for_each(|_| share.note(60, 64));
        assert!(share.is_most());
        share.note(0, 0);
        assert!(share.is_most(), "nothing says nothing");
        (0..10).for_each(|_| share.note(0, 64));
        assert!(!share.is_most());
        (0..1000).for_each(|_| share.note(64, 64));
        assert!(share.is_most() && share.0.load(Ordering::Relaxed) <= WHOLE);
    }
}
