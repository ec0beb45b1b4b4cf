//! Ranges that stay mapped while the kernel works with them on the program's behalf.
//!
//! Where faults are signals, the kernel itself cannot have one served: what a system call reads or writes
//! must be there before, and stay. Invariant: a page that was found mapped, its word unlocked, after its
//! range was noted here is not evicted until the range is taken back: an evictor that locks the word later
//! sees the range (both sides fence).

use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

use rustix::io::Result;
use spillway_core::page::PAGE_SIZE;
use spillway_sys::memory::Area;

use crate::pages::address::page_number_of;

const HOLDERS: usize = 512;
/// Ranges of one system call beside its other words: most calls have no more.
const RANGES: usize = 16;
/// Ranges of one system call elsewhere: all vectors that a call may have (`UIO_MAXIOV`), and some more. What
/// lay between two of them could be all of the program's memory, and none of it could leave.
const FURTHER_RANGES: usize = 1024 + 16;
/// Words of those of one call.
const FURTHER_WORDS: usize = 2 * FURTHER_RANGES;

/// Where a system call is made from: in the stack of a thread's signal handlers, or elsewhere.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Frame {
    /// Where that stack begins; 0 elsewhere.
    pub stack: usize,
    /// An address in it: calls that this one has interrupted have higher ones. 0 elsewhere.
    pub address: usize,
}

/// One system call's words: whether they are taken, the stack that it is made from, where in that, the number
/// of its ranges, and the first of these as page numbers: the first, and the one behind the last. Where the
/// others lie, which are few calls'.
///
/// Invariant: a place is given back once, by who sets its frame to 0: the call itself, or one from the same
/// stack that finds it left. The frame is 0 elsewhere, and wherever the place is not taken.
#[derive(Clone, Copy)]
struct Holder<'a> {
    words: &'a [AtomicU64],
    further: &'a Area,
    further_at: usize,
}

const FIRST_RANGE: usize = 4;
const HOLDER_WORDS: usize = FIRST_RANGE + 2 * RANGES;

impl<'a> Holder<'a> {
    fn taken(self) -> &'a AtomicU64 {
        &self.words[0]
    }

    fn stack(self) -> &'a AtomicU64 {
        &self.words[1]
    }

    fn frame(self) -> &'a AtomicU64 {
        &self.words[2]
    }

    fn count(self) -> &'a AtomicU64 {
        &self.words[3]
    }

    fn range(self, index: usize) -> (&'a AtomicU64, &'a AtomicU64) {
        let words = match index.checked_sub(RANGES) {
            None => &self.words[FIRST_RANGE + 2 * index..],
            Some(further) => self.further.words(self.further_at + 2 * further * size_of::<u64>(), 2),
        };
        (&words[0], &words[1])
    }

    /// Its ranges, of page numbers.
    fn ranges(self) -> impl Iterator<Item = Range<u64>> + 'a {
        (0..self.count().load(Ordering::Acquire) as usize).map(move |index| {
            let (from, to) = self.range(index);
            from.load(Ordering::Relaxed)..to.load(Ordering::Relaxed)
        })
    }
}

/// What is held in a process.
pub struct Holds {
    /// Zeros at first, which take memory once they are used: many processes never hold anything.
    holders: Area,
    /// The ranges of calls that have many.
    further: Area,
    /// Holders that are taken or were: no later one is looked at.
    used: AtomicUsize,
    /// Taken at this moment.
    taken: AtomicUsize,
}

/// The ranges of one system call, let go when dropped.
pub struct Hold<'a> {
    holds: &'a Holds,
    holder: Holder<'a>,
}

impl Holds {
    /// Nothing is held.
    ///
    /// # Errors
    /// ENOMEM where there is no address space.
    pub fn new() -> Result<Self> {
        let area = |words: usize| Area::new((HOLDERS * words * size_of::<u64>()).next_multiple_of(PAGE_SIZE));
        let (holders, further) = (area(HOLDER_WORDS)?, area(FURTHER_WORDS)?);
        Ok(Self { holders, further, used: AtomicUsize::new(0), taken: AtomicUsize::new(0) })
    }

    fn holder(&self, index: usize) -> Holder<'_> {
        Holder {
            words: self.holders.words(index * HOLDER_WORDS * size_of::<u64>(), HOLDER_WORDS),
            further: &self.further,
            further_at: index * FURTHER_WORDS * size_of::<u64>(),
        }
    }

    fn used(&self) -> impl Iterator<Item = Holder<'_>> {
        (0..self.used.load(Ordering::Relaxed)).map(|index| self.holder(index))
    }

    /// Room for the ranges of a system call; `None` while 512 of them hold some. What was taken on the same
    /// stack, in this frame or a lower one, was left by a jump: a stack has one thread at a time, whose
    /// storage children may share (clone(2)).
    pub fn take(&self, at: Frame) -> Option<Hold<'_>> {
        self.give_back_left(at);
        let index = (0..HOLDERS).find(|&index| {
            let taken = self.holder(index).taken();
            taken.load(Ordering::Relaxed) == 0 && taken.swap(1, Ordering::Acquire) == 0
        })?;
        self.used.fetch_max(index + 1, Ordering::Relaxed);
        self.taken.fetch_add(1, Ordering::Relaxed);
        let holder = self.holder(index);
        holder.stack().store(at.stack as u64, Ordering::Relaxed);
        holder.frame().store(at.address as u64, Ordering::Release);
        Some(Hold { holds: self, holder })
    }

    fn give_back_left(&self, at: Frame) {
        for holder in self.used() {
            let left = holder.frame().load(Ordering::Acquire);
            let is_left = (1..=at.address as u64).contains(&left)
                && holder.stack().load(Ordering::Relaxed) == at.stack as u64;
            // A signal may come in between, whose handler makes a call.
            let is_ours =
                || holder.frame().compare_exchange(left, 0, Ordering::Acquire, Ordering::Relaxed).is_ok();
            if is_left && is_ours() {
                self.give_back(holder);
            }
        }
    }

    fn give_back(&self, holder: Holder<'_>) {
        holder.count().store(0, Ordering::Release);
        holder.taken().store(0, Ordering::Release);
        self.taken.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether a page may not be evicted. Asked with its word locked.
    pub fn covers(&self, page_number: u64) -> bool {
        fence(Ordering::SeqCst);
        if self.taken.load(Ordering::Relaxed) == 0 {
            return false;
        }
        self.used().any(|holder| holder.ranges().any(|range| range.contains(&page_number)))
    }

    /// The parts of a range of whole pages that are held, as addresses.
    pub fn within(&self, range: &Range<usize>) -> Vec<Range<usize>> {
        fence(Ordering::SeqCst);
        if self.taken.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        self.used()
            .flat_map(Holder::ranges)
            .map(|held| {
                let [from, to] = [held.start, held.end].map(|page| (page as usize).saturating_mul(PAGE_SIZE));
                from.max(range.start)..to.min(range.end)
            })
            .filter(|part| part.start < part.end)
            .collect()
    }

    /// In a forked child, whose only thread makes no system call: nothing is held.
    pub fn reset(&self) {
        for holder in self.used() {
            holder.frame().store(0, Ordering::Relaxed);
            holder.count().store(0, Ordering::Relaxed);
            holder.taken().store(0, Ordering::Relaxed);
        }
        self.taken.store(0, Ordering::Relaxed);
    }
}

impl Hold<'_> {
    /// Holds a range of addresses too, from now on. Of more than a call has place for, neighbours become one
    /// with what lies between.
    pub fn add(&self, range: &Range<usize>) {
        let from = page_number_of(range.start);
        let to = page_number_of(range.end.saturating_add(PAGE_SIZE - 1));
        let count = self.holder.count().load(Ordering::Relaxed) as usize;
        if count < RANGES + FURTHER_RANGES {
            let (start, end) = self.holder.range(count);
            start.store(from, Ordering::Relaxed);
            end.store(to, Ordering::Relaxed);
            self.holder.count().store(count as u64 + 1, Ordering::Release);
        } else {
            // Grows only, so that no page of it is ever left out.
            let (start, end) = self.holder.range(RANGES + FURTHER_RANGES - 1);
            start.fetch_min(from, Ordering::Relaxed);
            end.fetch_max(to, Ordering::Relaxed);
        }
        fence(Ordering::SeqCst);
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.holder.frame().store(0, Ordering::Relaxed);
        self.holds.give_back(self.holder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = PAGE_SIZE;
    const ELSEWHERE: Frame = Frame { stack: 0, address: 0 };

    fn on(stack: usize, address: usize) -> Frame {
        Frame { stack, address }
    }

    #[test]
    fn what_is_held_is_covered_until_it_is_let_go() {
        let holds = Holds::new().unwrap();
        let (one, two) = (holds.take(ELSEWHERE).unwrap(), holds.take(ELSEWHERE).unwrap());
        one.add(&(5 * PAGE + 7..6 * PAGE + 1));
        two.add(&(6 * PAGE..6 * PAGE + 1));
        assert_eq!([4, 5, 6, 7].map(|page| holds.covers(page)), [false, true, true, false]);
        assert_eq!(holds.within(&(6 * PAGE..9 * PAGE)), [6 * PAGE..7 * PAGE, 6 * PAGE..7 * PAGE]);
        assert_eq!(holds.within(&(0..5 * PAGE)), []);
        drop(one);
        assert_eq!([5, 6].map(|page| holds.covers(page)), [false, true]);
        drop(two);
        assert!(!holds.covers(6));
    }

    #[test]
    fn more_ranges_than_there_are_places_for_are_all_covered() {
        let holds = Holds::new().unwrap();
        let hold = holds.take(ELSEWHERE).unwrap();
        let ranges = RANGES + FURTHER_RANGES;
        (0..2 * ranges).for_each(|i| hold.add(&(i * 10 * PAGE..i * 10 * PAGE + 1)));
        assert!((0..2 * ranges as u64).all(|i| holds.covers(i * 10)));
        assert!(!holds.covers(5));
    }

    #[test]
    fn what_lies_between_a_calls_vectors_is_not_held() {
        const VECTORS: usize = 1024;
        let holds = Holds::new().unwrap();
        let [one, other] = [0, 1].map(|first| {
            let hold = holds.take(ELSEWHERE).unwrap();
            (0..VECTORS).for_each(|i| hold.add(&((i * 10 + first) * PAGE..(i * 10 + first) * PAGE + 1)));
            hold
        });
        let is_held = |page| page % 10 < 2;
        assert!((0..VECTORS as u64 * 10).all(|page| holds.covers(page) == is_held(page)));
        drop(one);
        assert!((0..VECTORS as u64 * 10).all(|page| holds.covers(page) == (page % 10 == 1)));
        drop(other);
    }

    #[test]
    fn all_places_can_be_taken_and_come_back() {
        let holds = Holds::new().unwrap();
        let all: Vec<_> = std::iter::from_fn(|| holds.take(ELSEWHERE)).collect();
        assert_eq!(all.len(), HOLDERS);
        all[HOLDERS - 1].add(&(0..1));
        assert!(holds.covers(0));
        drop(all);
        assert!(holds.take(ELSEWHERE).is_some() && !holds.covers(0));
    }

    #[test]
    fn what_a_thread_left_by_a_jump_is_let_go_when_it_comes_again() {
        let holds = Holds::new().unwrap();
        let outer = holds.take(on(1000, 9000)).unwrap();
        outer.add(&(0..1));
        // The other stack's thread is in its call.
        for (stack, frame, page) in [(1000, 8000, 1), (2000, 8000, 2)] {
            let hold = holds.take(on(stack, frame)).unwrap();
            hold.add(&(page * PAGE..page * PAGE + 1));
            std::mem::forget(hold);
        }
        assert_eq!([0, 1, 2].map(|page| holds.covers(page)), [true; 3]);
        let again = holds.take(on(1000, 8500)).unwrap();
        assert_eq!([0, 1, 2].map(|page| holds.covers(page)), [true, false, true]);
        drop((outer, again));
        assert_eq!(holds.taken.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_forked_child_gives_back_nothing_that_it_has_not_taken() {
        let holds = Holds::new().unwrap();
        std::mem::forget(holds.take(on(1000, 8000)).unwrap());
        holds.reset();
        let hold = holds.take(on(1000, 9000)).unwrap();
        hold.add(&(0..1));
        assert_eq!(holds.taken.load(Ordering::Relaxed), 1);
        assert!(holds.covers(0));
    }
}
