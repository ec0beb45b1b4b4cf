//! Which slab the pages of a stretch of memory go to.

use std::collections::VecDeque;
use std::ops::Range;

use spillway_core::slots::{SLAB_SLOTS, SlotTable};

/// Slabs, one after the other, that take no page: then the store counts as one that takes none.
const MOST_REFUSED: u32 = 64;

/// A thread's search for slabs.
#[derive(Debug)]
pub(crate) struct SlabSearch {
    /// Where it goes on.
    next: u32,
    /// Slabs, one after the other, of which a place took no page.
    refused: u32,
    /// The slabs left last, by their first slots. Nothing is kept in them, so they look like the best.
    left: VecDeque<u32>,
}

impl Default for SlabSearch {
    fn default() -> Self {
        // All that is ever kept: nothing is allocated while pages leave.
        Self { next: 0, refused: 0, left: VecDeque::with_capacity(MOST_REFUSED as usize) }
    }
}

impl SlabSearch {
    pub(crate) fn next(&self) -> u32 {
        self.next
    }

    /// As many were refused as tell that none would take a page.
    pub(crate) fn is_vain(&self) -> bool {
        self.refused >= MOST_REFUSED
    }

    pub(crate) fn note_taken(&mut self) {
        self.refused = 0;
    }

    /// The slab for pages that have none: an empty one where possible, so that neighbours lie side by side.
    pub(crate) fn choose(&mut self, slots: &SlotTable<'_>, range: &Range<u32>) -> u32 {
        let next = if range.contains(&self.next) { self.next } else { range.start };
        // Where none that is empty takes a page, those that others have begun may.
        let any = self.refused % 2 == 1;
        let empty = || slots.empty_slab(range.clone(), next, |slab| !self.left.contains(&slab));
        self.next = if any { next } else { empty().unwrap_or(next) };
        self.next
    }

    /// A slab has a place that takes no page, as one of a pool whose donors are dead: another is tried next.
    /// Twice as far on each time, for those beside it may take none either; then one after the other.
    pub(crate) fn leave(&mut self, range: &Range<u32>, slot: u32) {
        let slabs = (range.end - range.start).div_ceil(SLAB_SLOTS).max(1);
        let far = 1_u32.checked_shl(self.refused).filter(|far| *far < slabs).unwrap_or(1);
        self.refused = self.refused.saturating_add(1);
        self.next = range.start + ((slot - range.start) / SLAB_SLOTS + far) % slabs * SLAB_SLOTS;
        let slab = slot / SLAB_SLOTS * SLAB_SLOTS;
        if !self.left.contains(&slab) {
            self.left.truncate(MOST_REFUSED as usize - 1);
            self.left.push_front(slab);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    const SLABS: u32 = 200;

    /// How many slots are in use in each slab, which is all that is looked at.
    struct Memory(Vec<AtomicU32>);

    impl Memory {
        /// In these slabs nothing is in use, in the others one slot.
        fn with_empty(empty: Range<u32>) -> Self {
            Self((0..SLABS).map(|slab| AtomicU32::new(u32::from(!empty.contains(&slab)))).collect())
        }

        fn table(&self) -> SlotTable<'_> {
            SlotTable { references: &[], contents: &[], slab_used: &self.0 }
        }
    }

    /// How many slabs refuse a page of a store with `slabs` until one takes it.
    fn tries(search: &mut SlabSearch, memory: &Memory, slabs: u32, dead: &Range<u32>) -> u32 {
        let range = 0..slabs * SLAB_SLOTS;
        let mut tries = 0;
        while dead.contains(&(search.choose(&memory.table(), &range) / SLAB_SLOTS)) {
            let slot = search.next() + 7;
            search.leave(&range, slot);
            tries += 1;
            assert!(!search.is_vain(), "given up after {tries}");
        }
        search.note_taken();
        tries
    }

    #[test]
    fn slabs_that_others_have_begun_are_tried_where_those_that_are_empty_take_no_page() {
        for dead in [0..1, 0..2, 3..6, 12..14, 1..14] {
            let (memory, mut search) = (Memory::with_empty(dead.clone()), SlabSearch::default());
            assert!(tries(&mut search, &memory, 14, &dead) <= 28, "{dead:?}");
            let found = search.next();
            assert_eq!((tries(&mut search, &memory, 14, &dead), search.next()), (0, found), "{dead:?}");
        }
        // More of them than it remembers.
        for first in 0..SLABS / 2 {
            let dead = first..first + SLABS / 2;
            let (memory, mut search) = (Memory::with_empty(dead.clone()), SlabSearch::default());
            tries(&mut search, &memory, SLABS, &dead);
        }
    }

    #[test]
    fn an_empty_slab_is_chosen_where_there_is_one() {
        let (memory, mut search) = (Memory::with_empty(5..9), SlabSearch::default());
        let range = SLAB_SLOTS..20 * SLAB_SLOTS;
        let choose = |search: &mut SlabSearch| search.choose(&memory.table(), &range) / SLAB_SLOTS;
        assert_eq!((choose(&mut search), choose(&mut search)), (5, 5), "nothing is reserved");
        memory.0[5].store(1, Ordering::Relaxed);
        assert_eq!(choose(&mut search), 6);
        search.leave(&range, 6 * SLAB_SLOTS + 30);
        search.note_taken();
        assert_eq!(choose(&mut search), 7);
        memory.0[7].store(1, Ordering::Relaxed);
        memory.0[8].store(1, Ordering::Relaxed);
        assert_eq!(choose(&mut search), 7, "the sixth is empty, but took no page");
    }

    #[test]
    fn where_nothing_takes_a_page_that_is_said() {
        let (memory, mut search) = (Memory::with_empty(0..SLABS), SlabSearch::default());
        let range = 0..SLABS * SLAB_SLOTS;
        for _ in 0..MOST_REFUSED {
            assert!(!search.is_vain());
            let slab = search.choose(&memory.table(), &range);
            search.leave(&range, slab);
        }
        assert!(search.is_vain());
        search.note_taken();
        assert!(!search.is_vain());
    }
}
