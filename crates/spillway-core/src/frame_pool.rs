//! Which frames are free: taken and given back in runs of neighbours, so that ranges of 2 MiB stay whole.
//!
//! What leaves together should lie together: a run of pages moves in one call, a range of 2 MiB in one step
//! of the page table. So single frames and short runs come out of ranges that are broken already, and a whole
//! range is broken only where no broken one has a run that is long enough (fragmentation avoidance: "Physical
//! memory management on NVMM", section 5.4).
//!
//! A bit a frame, and no lock: any number of threads may take and give back at once, in the middle of a page
//! fault.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use std::ops::Range;

use crate::fragmentation::fragmentation_index;

const WORD_FRAMES: usize = 64;
/// Two are enough for a model of all interleavings.
const RANGE_WORDS: usize = if cfg!(loom) { 2 } else { 8 };

/// Frames of a range that is kept whole: 2 MiB of 4 KiB; fewer in models.
pub const RANGE_FRAMES: usize = WORD_FRAMES * RANGE_WORDS;

/// The longest run that is taken at once, but for whole ranges.
pub const MAX_RUN_FRAMES: usize = WORD_FRAMES;

/// The free ones among a number of frames.
pub struct FramePool {
    /// A bit a frame, set while it is free.
    words: Vec<AtomicU64>,
    /// At least as many as bits are set: raised before a bit is, lowered after it.
    free: AtomicUsize,
    /// The word where a run was found last.
    next: AtomicUsize,
}

/// A run of free frames within a word.
#[derive(Clone, Copy)]
struct Candidate {
    word: usize,
    start: usize,
    length: usize,
    in_whole_range: bool,
}

impl Candidate {
    /// What is long enough comes first, then what breaks no whole range; then the tightest, or of what is too
    /// short the longest.
    fn rank(&self, wanted: usize) -> (bool, bool, usize) {
        let fits = self.length >= wanted;
        let tightness = if fits { WORD_FRAMES - self.length } else { self.length };
        (fits, !self.in_whole_range, tightness)
    }
}

impl Clone for FramePool {
    /// As it is at this moment: nobody takes or gives back meanwhile.
    fn clone(&self) -> Self {
        let words = self.words.iter().map(|word| AtomicU64::new(word.load(Ordering::Relaxed)));
        Self {
            words: words.collect(),
            free: AtomicUsize::new(self.free.load(Ordering::Relaxed)),
            next: AtomicUsize::new(self.next.load(Ordering::Relaxed)),
        }
    }
}

impl FramePool {
    /// At least `frames` frames, all free: whole words of 64.
    #[must_use]
    pub fn all_free(frames: usize) -> Self {
        Self::filled(frames, u64::MAX)
    }

    /// The same, all taken.
    #[must_use]
    pub fn all_taken(frames: usize) -> Self {
        Self::filled(frames, 0)
    }

    fn filled(frames: usize, bits: u64) -> Self {
        let words = frames.div_ceil(WORD_FRAMES);
        let free = words * bits.count_ones() as usize;
        Self {
            words: (0..words).map(|_| AtomicU64::new(bits)).collect(),
            free: AtomicUsize::new(free),
            next: AtomicUsize::new(0),
        }
    }

    /// Frames, free or not.
    #[must_use]
    pub fn frames(&self) -> usize {
        self.words.len() * WORD_FRAMES
    }

    /// Free frames; while others give some back it may be ahead of them.
    #[must_use]
    pub fn free_count(&self) -> usize {
        self.free.load(Ordering::Relaxed)
    }

    /// Takes up to `wanted` neighbouring frames, at most [`MAX_RUN_FRAMES`]: the first and their number.
    /// `None` when none is free.
    #[must_use]
    pub fn take_run(&self, wanted: usize) -> Option<(u32, usize)> {
        let wanted = wanted.clamp(1, MAX_RUN_FRAMES);
        while self.free_count() > 0 {
            let found = self.search(wanted)?;
            let taken = found.length.min(wanted);
            let mask = run_mask(found.start, taken);
            let word = &self.words[found.word];
            let bits = word.load(Ordering::Relaxed);
            // Another thread may have come first: then the search begins anew.
            if bits & mask == mask
                && word.compare_exchange(bits, bits & !mask, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                self.free.fetch_sub(taken, Ordering::Relaxed);
                self.next.store(found.word, Ordering::Relaxed);
                return Some(((found.word * WORD_FRAMES + found.start) as u32, taken));
            }
        }
        None
    }

    /// Takes a whole range of [`RANGE_FRAMES`], on a multiple of as many: its first frame. `None` when all
    /// are broken.
    #[must_use]
    pub fn take_range(&self) -> Option<u32> {
        (0..self.words.len() / RANGE_WORDS).find(|&range| self.try_take_range(range)).map(|range| {
            self.free.fetch_sub(RANGE_FRAMES, Ordering::Relaxed);
            (range * RANGE_FRAMES) as u32
        })
    }

    fn try_take_range(&self, range: usize) -> bool {
        let words = &self.words[range * RANGE_WORDS..(range + 1) * RANGE_WORDS];
        if !words.iter().all(|word| word.load(Ordering::Relaxed) == u64::MAX) {
            return false;
        }
        let taken = words
            .iter()
            .take_while(|word| {
                word.compare_exchange(u64::MAX, 0, Ordering::Acquire, Ordering::Relaxed).is_ok()
            })
            .count();
        // Somebody was faster in one of them: what was taken so far is free as before.
        if taken < RANGE_WORDS {
            words[..taken].iter().for_each(|word| word.store(u64::MAX, Ordering::Release));
        }
        taken == RANGE_WORDS
    }

    /// Gives back neighbouring frames that were taken, in any parts.
    pub fn give_back(&self, first: u32, count: usize) {
        self.free.fetch_add(count, Ordering::Relaxed);
        let (mut at, end) = (first as usize, first as usize + count);
        while at < end {
            let start = at % WORD_FRAMES;
            let length = (end - at).min(WORD_FRAMES - start);
            let mask = run_mask(start, length);
            let before = self.words[at / WORD_FRAMES].fetch_or(mask, Ordering::Release);
            debug_assert!(before & mask == 0, "frames from {at} on were given back twice");
            at += length;
        }
    }

    /// How much of the free frames lies in broken ranges, 0 to 1 ([`fragmentation_index`]).
    #[must_use]
    pub fn fragmentation_index(&self) -> f64 {
        let whole = self.ranges().filter(|range| self.is_whole(range)).count() * RANGE_FRAMES;
        let free = self.words.iter().map(|word| word.load(Ordering::Relaxed).count_ones() as usize).sum();
        fragmentation_index(free, whole)
    }

    fn ranges(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let words = self.words.len();
        (0..words).step_by(RANGE_WORDS).map(move |start| start..(start + RANGE_WORDS).min(words))
    }

    /// The range made of these words is whole and free; a last one that is shorter never is.
    fn is_whole(&self, words: &Range<usize>) -> bool {
        words.len() == RANGE_WORDS
            && self.words[words.clone()].iter().all(|word| word.load(Ordering::Relaxed) == u64::MAX)
    }

    /// The run to take: see [`Candidate::rank`]. The search begins where the last one ended.
    fn search(&self, wanted: usize) -> Option<Candidate> {
        let words = self.words.len();
        let first = self.next.load(Ordering::Relaxed) / RANGE_WORDS * RANGE_WORDS;
        let mut best: Option<Candidate> = None;
        let mut range = usize::MAX;
        let mut in_whole_range = false;
        for word in (0..words).map(|i| (first + i) % words) {
            if word / RANGE_WORDS != range {
                range = word / RANGE_WORDS;
                let start = range * RANGE_WORDS;
                in_whole_range = self.is_whole(&(start..(start + RANGE_WORDS).min(words)));
            }
            for (start, length) in runs(self.words[word].load(Ordering::Relaxed)) {
                let candidate = Candidate { word, start, length, in_whole_range };
                if best.is_none_or(|best| candidate.rank(wanted) > best.rank(wanted)) {
                    best = Some(candidate);
                }
            }
            if best.is_some_and(|best| !best.in_whole_range && is_good(best.length, wanted)) {
                break;
            }
        }
        best
    }
}

/// No use to look for a tighter run.
fn is_good(length: usize, wanted: usize) -> bool {
    const SHORT: usize = 16;
    length == wanted || (wanted == 1 && length < SHORT)
}

fn run_mask(start: usize, length: usize) -> u64 {
    let ones = if length == WORD_FRAMES { u64::MAX } else { (1 << length) - 1 };
    ones << start
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

#[cfg(all(test, not(loom)))]
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
        let pool = FramePool::all_free(256);
        let first: Vec<_> = (0..64).map(|_| pool.take_run(1).unwrap().0).collect();
        let words: BTreeSet<u32> = first.iter().map(|frame| frame / 64).collect();
        assert_eq!(words.len(), 1, "{first:?}");
        assert_eq!((0..3).map(|_| pool.take_run(64).unwrap().1).collect::<Vec<_>>(), [64, 64, 64]);
        assert_eq!(pool.take_run(1), None);
    }

    #[test]
    fn ranges_of_2_mib_stay_whole_while_others_have_room() {
        let pool = FramePool::all_free(4 * RANGE_FRAMES);
        assert_eq!(pool.fragmentation_index(), 0.0);
        let taken: Vec<_> = (0..40).map(|i| pool.take_run(1 + i % 12).unwrap()).collect();
        let broken: BTreeSet<_> = taken.iter().map(|(frame, _)| *frame as usize / RANGE_FRAMES).collect();
        assert_eq!(broken.len(), 1, "{taken:?}");
        let free = pool.free_count();
        let index = 1.0 - (3 * RANGE_FRAMES) as f64 / free as f64;
        assert!((pool.fragmentation_index() - index).abs() < 1e-9);
        let whole: Vec<_> = std::iter::from_fn(|| pool.take_range()).collect();
        assert_eq!(whole.len(), 3);
        assert!(whole.iter().all(|first| (*first as usize).is_multiple_of(RANGE_FRAMES)));
        whole.iter().for_each(|&first| pool.give_back(first, RANGE_FRAMES));
        taken.iter().for_each(|&(first, count)| pool.give_back(first, count));
        assert_eq!((pool.free_count(), pool.fragmentation_index()), (4 * RANGE_FRAMES, 0.0));
    }

    #[test]
    fn a_run_that_no_broken_range_has_room_for_comes_whole() {
        let pool = FramePool::all_free(2 * RANGE_FRAMES);
        // Every word of the first range in pieces.
        let all = pool.take_range().unwrap();
        (0..RANGE_FRAMES as u32)
            .filter(|frame| frame % 8 != 0)
            .for_each(|frame| pool.give_back(all + frame, 1));
        assert_eq!(pool.take_run(7).map(|(first, count)| (first / 512, count)), Some((all / 512, 7)));
        let (first, count) = pool.take_run(64).unwrap();
        assert_eq!((first / 512, count), (1 - all / 512, 64));
    }

    /// A pool and the naive one: for each frame, whether it is free.
    struct Both {
        pool: FramePool,
        is_free: Vec<bool>,
        taken: Vec<u32>,
    }

    impl Both {
        fn new(frames: usize) -> Self {
            let pool = FramePool::all_free(frames);
            let is_free = vec![true; pool.frames()];
            Self { pool, is_free, taken: Vec::new() }
        }

        fn take(&mut self, first: u32, count: usize) {
            for frame in first..first + count as u32 {
                let was_free = std::mem::replace(&mut self.is_free[frame as usize], false);
                assert!(was_free, "frame {frame} was handed out twice");
                self.taken.push(frame);
            }
        }

        fn step(&mut self, operation: u8, n: usize) {
            match operation {
                0..=4 => {
                    let wanted = n % 80 + 1;
                    match self.pool.take_run(wanted) {
                        Some((first, count)) => {
                            assert!(count >= 1 && count <= wanted);
                            self.take(first, count);
                        }
                        None => assert_eq!(self.free_count(), 0),
                    }
                }
                5 => match self.pool.take_range() {
                    Some(first) => {
                        assert!((first as usize).is_multiple_of(RANGE_FRAMES));
                        self.take(first, RANGE_FRAMES);
                    }
                    None => assert!(self.whole_ranges() == 0),
                },
                _ => {
                    for _ in 0..n % 64 {
                        if self.taken.is_empty() {
                            break;
                        }
                        let frame = self.taken.swap_remove(n % self.taken.len());
                        self.pool.give_back(frame, 1);
                        self.is_free[frame as usize] = true;
                    }
                }
            }
            assert_eq!(self.pool.free_count(), self.free_count());
        }

        fn free_count(&self) -> usize {
            self.pool.frames() - self.taken.len()
        }

        fn whole_ranges(&self) -> usize {
            let is_whole = |range: &&[bool]| range.iter().all(|is_free| *is_free);
            self.is_free.as_chunks::<RANGE_FRAMES>().0.iter().map(|range| &range[..]).filter(is_whole).count()
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        /// 40 times 30,000 operations on pools of three to five ranges, the last one short.
        #[test]
        fn no_frame_is_handed_out_twice_or_lost(frames in 1200_usize..2400, seed in any::<u64>()) {
            let mut both = Both::new(frames);
            let mut random = seed | 1;
            for step in 0..30_000_u32 {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                // In turns more is taken and more is given back, so that the pool is full and empty again and
                // again.
                let operation = if step / 500 % 2 == 0 { random % 7 } else { random % 5 + 4 };
                both.step(operation as u8, (random >> 32) as usize);
                if step % 1000 == 0 {
                    let whole = both.whole_ranges() * RANGE_FRAMES;
                    let index = fragmentation_index(both.free_count(), whole);
                    prop_assert_eq!(both.pool.fragmentation_index(), index);
                }
            }
        }
    }

    #[test]
    fn threads_never_hold_the_same_frame() {
        use std::sync::atomic::AtomicBool;
        const FRAMES: usize = 2 * RANGE_FRAMES;
        let pool = FramePool::all_free(FRAMES);
        let held: Vec<AtomicBool> = (0..FRAMES).map(|_| AtomicBool::new(false)).collect();
        std::thread::scope(|scope| {
            for thread in 0..4_usize {
                let (pool, held) = (&pool, &held);
                scope.spawn(move || {
                    for i in 0..20_000 {
                        let whole = (i + thread) % 50 == 0;
                        let taken = if whole {
                            pool.take_range().map(|first| (first, RANGE_FRAMES))
                        } else {
                            pool.take_run(i % 70)
                        };
                        let Some((first, count)) = taken else { continue };
                        let mine = &held[first as usize..first as usize + count];
                        assert!(mine.iter().all(|frame| !frame.swap(true, Ordering::Relaxed)));
                        assert!(pool.free_count() <= FRAMES);
                        mine.iter().for_each(|frame| frame.store(false, Ordering::Relaxed));
                        pool.give_back(first, count);
                    }
                });
            }
        });
        assert_eq!((pool.free_count(), pool.fragmentation_index()), (FRAMES, 0.0));
    }
}

#[cfg(all(test, loom))]
mod races {
    use super::*;
    use loom::sync::Arc;

    /// Which frames are held, as the threads see it: a bit each.
    struct Model {
        pool: FramePool,
        held: Vec<AtomicU64>,
    }

    impl Model {
        fn take_and_give_back(&self, take: impl Fn(&FramePool) -> Option<(u32, usize)>) {
            let Some((first, count)) = take(&self.pool) else { return };
            let held = &self.held[first as usize / WORD_FRAMES];
            let mask = run_mask(first as usize % WORD_FRAMES, count);
            let before = held.fetch_or(mask, Ordering::SeqCst);
            assert_eq!(before & mask, 0, "a frame was handed out twice");
            held.fetch_and(!mask, Ordering::SeqCst);
            self.pool.give_back(first, count);
        }
    }

    fn check(words: usize, preemptions: usize, other: fn(&FramePool) -> Option<(u32, usize)>) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(preemptions);
        model.check(move || {
            let model = Arc::new(Model {
                pool: FramePool::all_free(words * WORD_FRAMES),
                held: (0..words).map(|_| AtomicU64::new(0)).collect(),
            });
            let thread = {
                let model = Arc::clone(&model);
                loom::thread::spawn(move || model.take_and_give_back(other))
            };
            model.take_and_give_back(|pool| pool.take_run(64));
            thread.join().unwrap();
            assert_eq!(model.pool.free_count(), words * WORD_FRAMES, "a frame was lost");
            assert_eq!(model.pool.take_run(64).map(|(_, count)| count), Some(64));
        });
    }

    #[test]
    fn loom_runs_are_handed_out_once() {
        check(1, 3, |pool| pool.take_run(1));
    }

    #[test]
    fn loom_whole_words_are_handed_out_once() {
        check(2, 2, |pool| pool.take_run(64));
    }

    #[test]
    fn loom_a_range_that_breaks_while_it_is_taken_loses_nothing() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(|| {
            let pool = Arc::new(FramePool::all_free(RANGE_FRAMES));
            let other = Arc::clone(&pool);
            let thread = loom::thread::spawn(move || {
                if let Some(first) = other.take_range() {
                    other.give_back(first, RANGE_FRAMES);
                }
            });
            if let Some((first, count)) = pool.take_run(64) {
                pool.give_back(first, count);
            }
            thread.join().unwrap();
            assert_eq!(pool.free_count(), RANGE_FRAMES);
            assert_eq!(pool.take_range(), Some(0), "a frame was lost");
        });
    }
}
