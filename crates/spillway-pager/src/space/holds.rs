//! Ranges that stay mapped while the kernel works with them on the program's behalf.
//!
//! Where faults are signals, the kernel itself cannot have one served: what a system call reads or writes
//! must be there before, and stay. Invariant: a page that was found mapped, its word unlocked, after its
//! range was noted here is not evicted until the range is taken back: an evictor that locks the word later
//! sees the range (both sides fence).

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};

use spillway_core::page::PAGE_SIZE;

use crate::pages::address::page_number_of;

const HOLDERS: usize = 512;
/// Ranges of one system call; of more, neighbours become one with what lies between.
const RANGES: usize = 16;

struct Holder {
    taken: AtomicBool,
    /// Who took it, and where in its stack, if the place is to be given back by itself.
    owner: AtomicUsize,
    frame: AtomicUsize,
    count: AtomicUsize,
    /// Page numbers: the first, and the one behind the last.
    ranges: [(AtomicUsize, AtomicUsize); RANGES],
}

/// What is held in a process.
pub struct Holds {
    holders: Box<[Holder]>,
    /// Holders that are taken or were: no later one is looked at.
    used: AtomicUsize,
    /// Taken at this moment.
    taken: AtomicUsize,
}

/// The ranges of one system call, let go when dropped.
pub struct Hold<'a> {
    holds: &'a Holds,
    holder: &'a Holder,
}

impl Default for Holds {
    fn default() -> Self {
        let holder = || Holder {
            taken: AtomicBool::new(false),
            owner: AtomicUsize::new(0),
            frame: AtomicUsize::new(0),
            count: AtomicUsize::new(0),
            ranges: std::array::from_fn(|_| (AtomicUsize::new(0), AtomicUsize::new(0))),
        };
        Self {
            holders: (0..HOLDERS).map(|_| holder()).collect(),
            used: AtomicUsize::new(0),
            taken: AtomicUsize::new(0),
        }
    }
}

impl Holds {
    /// A place for ranges of the thread `owner`; `None` while 512 system calls hold some. `frame` is an
    /// address in the stack of its signal handlers, or 0 where it is not on that: what the same thread took
    /// there, at this address or lower, it has left by a jump.
    pub fn take(&self, owner: usize, frame: usize) -> Option<Hold<'_>> {
        self.give_back_left(owner, frame);
        let index = self.holders.iter().position(|holder| {
            !holder.taken.load(Ordering::Relaxed) && !holder.taken.swap(true, Ordering::Acquire)
        })?;
        self.used.fetch_max(index + 1, Ordering::Relaxed);
        self.taken.fetch_add(1, Ordering::Relaxed);
        self.holders[index].owner.store(owner, Ordering::Relaxed);
        self.holders[index].frame.store(frame, Ordering::Relaxed);
        Some(Hold { holds: self, holder: &self.holders[index] })
    }

    fn give_back_left(&self, owner: usize, frame: usize) {
        for holder in &self.holders[..self.used.load(Ordering::Relaxed)] {
            let is_left = holder.owner.load(Ordering::Relaxed) == owner
                && holder.taken.load(Ordering::Relaxed)
                && (1..=frame).contains(&holder.frame.load(Ordering::Relaxed));
            if is_left {
                drop(Hold { holds: self, holder });
            }
        }
    }

    /// Whether a page may not be evicted. Asked with its word locked.
    pub fn covers(&self, page_number: u64) -> bool {
        fence(Ordering::SeqCst);
        if self.taken.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let page = page_number as usize;
        self.holders[..self.used.load(Ordering::Relaxed)].iter().any(|holder| {
            let count = holder.count.load(Ordering::Acquire);
            holder.ranges[..count]
                .iter()
                .any(|(from, to)| (from.load(Ordering::Relaxed)..to.load(Ordering::Relaxed)).contains(&page))
        })
    }

    /// The parts of a range of whole pages that are held, as addresses.
    pub fn within(&self, range: &Range<usize>) -> Vec<Range<usize>> {
        fence(Ordering::SeqCst);
        if self.taken.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        let used = &self.holders[..self.used.load(Ordering::Relaxed)];
        used.iter()
            .flat_map(|holder| &holder.ranges[..holder.count.load(Ordering::Acquire)])
            .map(|(from, to)| {
                let [from, to] =
                    [from, to].map(|page| page.load(Ordering::Relaxed).saturating_mul(PAGE_SIZE));
                from.max(range.start)..to.min(range.end)
            })
            .filter(|part| part.start < part.end)
            .collect()
    }

    /// In a forked child, whose only thread makes no system call: nothing is held.
    pub fn reset(&self) {
        for holder in &*self.holders {
            holder.count.store(0, Ordering::Relaxed);
            holder.taken.store(false, Ordering::Relaxed);
        }
        self.taken.store(0, Ordering::Relaxed);
    }
}

impl Hold<'_> {
    /// Holds a range of addresses too, from now on.
    pub fn add(&self, range: &Range<usize>) {
        let from = page_number_of(range.start) as usize;
        let to = page_number_of(range.end.saturating_add(PAGE_SIZE - 1)) as usize;
        let count = self.holder.count.load(Ordering::Relaxed);
        if count < RANGES {
            self.holder.ranges[count].0.store(from, Ordering::Relaxed);
            self.holder.ranges[count].1.store(to, Ordering::Relaxed);
            self.holder.count.store(count + 1, Ordering::Release);
        } else {
            // Grows only, so that no page of it is ever left out.
            let last = &self.holder.ranges[RANGES - 1];
            last.0.fetch_min(from, Ordering::Relaxed);
            last.1.fetch_max(to, Ordering::Relaxed);
        }
        fence(Ordering::SeqCst);
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.holder.owner.store(0, Ordering::Relaxed);
        self.holder.count.store(0, Ordering::Release);
        self.holder.taken.store(false, Ordering::Release);
        self.holds.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = PAGE_SIZE;

    #[test]
    fn what_is_held_is_covered_until_it_is_let_go() {
        let holds = Holds::default();
        let (one, two) = (holds.take(1, 0).unwrap(), holds.take(2, 0).unwrap());
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
        let holds = Holds::default();
        let hold = holds.take(1, 0).unwrap();
        (0..100).for_each(|i| hold.add(&(i * 10 * PAGE..i * 10 * PAGE + 1)));
        assert!((0..100).all(|i| holds.covers(i * 10)));
        assert!(!holds.covers(5));
    }

    #[test]
    fn all_places_can_be_taken_and_come_back() {
        let holds = Holds::default();
        let all: Vec<_> = std::iter::from_fn(|| holds.take(1, 0)).collect();
        assert_eq!(all.len(), HOLDERS);
        all[HOLDERS - 1].add(&(0..1));
        assert!(holds.covers(0));
        drop(all);
        assert!(holds.take(1, 0).is_some() && !holds.covers(0));
    }

    #[test]
    fn what_a_thread_left_by_a_jump_is_let_go_when_it_comes_again() {
        let holds = Holds::default();
        let outer = holds.take(1, 9000).unwrap();
        outer.add(&(0..1));
        for (owner, frame, page) in [(1, 8000, 1), (2, 8000, 2)] {
            let hold = holds.take(owner, frame).unwrap();
            hold.add(&(page * PAGE..page * PAGE + 1));
            std::mem::forget(hold);
        }
        assert_eq!([0, 1, 2].map(|page| holds.covers(page)), [true; 3]);
        let again = holds.take(1, 8500).unwrap();
        assert_eq!([0, 1, 2].map(|page| holds.covers(page)), [true, false, true]);
        drop((outer, again));
    }
}
