//! What a thread gets that reads pages before anything was written there: the page of zeros that all share,
//! or a frame of its own.
//!
//! The shared page takes no frame and is mapped at once. But where a write comes soon after, as in a product
//! of matrices that adds to what it reads, that is a second fault, in which the kernel has every processor
//! that runs a thread of the program forget the first mapping. So now and then a page that was read first is
//! looked at later; a thread that mostly writes to them gets frames.

/// One first read in so many is answered by the shared page in any case, and looked at when the next such
/// comes: by then the thread has done with it what it does with its neighbours.
const LOOKED_AT_ONE_IN: u32 = 16;
/// Of so much trust on frames are given.
const TRUSTED: u8 = 3;
/// There is no more trust than so much. A page that was written adds one, one that was not takes two.
const MOST_TRUST: u8 = 4;

/// The first reads of a thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct FirstReads {
    reads: u32,
    trust: u8,
    /// The page that is looked at next.
    page_number: Option<u64>,
}

impl FirstReads {
    /// Whether this first read is answered by a frame. `was_written` looks at an earlier one; none where that
    /// is not mapped any more.
    pub fn takes_frame(&mut self, page_number: u64, was_written: impl FnOnce(u64) -> Option<bool>) -> bool {
        self.reads = self.reads.wrapping_add(1);
        if !self.reads.is_multiple_of(LOOKED_AT_ONE_IN) {
            return self.trust >= TRUSTED;
        }
        self.trust = match self.page_number.replace(page_number).and_then(was_written) {
            Some(true) => (self.trust + 1).min(MOST_TRUST),
            Some(false) => self.trust.saturating_sub(2),
            None => self.trust,
        };
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of so many reads take a frame, where pages were written or not.
    fn frames(reads: &mut FirstReads, count: u64, was_written: Option<bool>) -> usize {
        (0..count).filter(|&page| reads.takes_frame(page, |_| was_written)).count()
    }

    #[test]
    fn who_writes_what_he_has_read_gets_frames_until_he_does_not() {
        let mut reads = FirstReads::default();
        assert_eq!(frames(&mut reads, 160, Some(false)), 0);
        assert_eq!(frames(&mut reads, 48, Some(true)), 0, "three must have been written");
        assert_eq!(frames(&mut reads, 160, Some(true)), 150, "one in 16 is looked at");
        assert_eq!(frames(&mut reads, 160, None), 150, "what is gone says nothing");
        assert_eq!(frames(&mut reads, 16, Some(false)), 15);
        assert_eq!(frames(&mut reads, 160, Some(false)), 0);
    }

    #[test]
    fn the_page_that_is_looked_at_is_one_that_was_answered_by_the_shared_one() {
        let mut reads = FirstReads::default();
        let mut shared = Vec::new();
        for page in 0..200 {
            let mut looked_at = None;
            let takes_frame = reads.takes_frame(page, |page| {
                looked_at = Some(page);
                Some(true)
            });
            assert!(looked_at.is_none_or(|before| shared.contains(&before) && before + 16 == page));
            if !takes_frame {
                shared.push(page);
            }
        }
    }
}
