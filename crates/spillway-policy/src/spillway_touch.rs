//! Pages that come in at their first access, and leave when they are done with.
//!
//! A page that is read from end to end and then left is known by no scan before it is over. So far pages are
//! marked; where one is accessed it stops there, and comes before the rest of its lines are missed one by
//! one. Those that came so wait in a queue of their own. Whoever needs a frame looks at the oldest of them:
//! what was not used since it was looked at last leaves, what was is looked at again later, and what was
//! found in use several times is a page like any other from then on.

use std::collections::VecDeque;

use crate::machine::{PageIndex, Tier, TieredMachine};

/// Pages that are looked at for one frame at most.
const MOST_LOOKS: usize = 4;
/// A page that was found in use so often stays.
const USES_TO_STAY: u8 = 3;

/// The queue, and who leaves where that has nobody to spare.
#[derive(Default)]
pub(crate) struct Touched {
    queue: VecDeque<PageIndex>,
    /// How often a page that waits was found in use.
    uses: Vec<u8>,
    /// Pages whose accessed bit a look has taken since the last scan.
    seen: Vec<bool>,
    /// Local pages that may leave for one that comes, the first to leave last.
    spare: Vec<PageIndex>,
    fetched: u32,
}

impl Touched {
    /// For so many pages.
    pub(crate) fn new(pages: u32) -> Self {
        let pages = pages as usize;
        Self { uses: vec![0; pages], seen: vec![false; pages], ..Self::default() }
    }

    /// Whether a look has found a page in use since the last scan, which cannot see that any more.
    pub(crate) fn take_seen(&mut self, page: PageIndex) -> bool {
        std::mem::take(&mut self.seen[page as usize])
    }

    /// How many came since this was asked last.
    pub(crate) fn take_fetched(&mut self) -> u32 {
        std::mem::take(&mut self.fetched)
    }

    /// These may leave for pages that come, the first of them first.
    pub(crate) fn set_spare(&mut self, pages: impl DoubleEndedIterator<Item = PageIndex>) {
        self.spare.clear();
        self.spare.extend(pages.rev());
    }

    /// A page came at its first access.
    pub(crate) fn note_fetched(&mut self, page: PageIndex) {
        self.uses[page as usize] = 0;
        self.queue.push_back(page);
        self.fetched += 1;
    }

    /// Whose frame is to be had.
    pub(crate) fn next_victim(&mut self, machine: &mut dyn TieredMachine) -> Option<PageIndex> {
        for _ in 0..MOST_LOOKS {
            let Some(page) = self.queue.pop_front() else { break };
            let at = page as usize;
            if machine.tier_of(page) != Some(Tier::Local) {
                continue;
            }
            if !machine.take_accessed(page) {
                return Some(page);
            }
            self.seen[at] = true;
            self.uses[at] += 1;
            if self.uses[at] < USES_TO_STAY {
                self.queue.push_back(page);
            }
        }
        std::iter::from_fn(|| self.spare.pop()).find(|&page| machine.tier_of(page) == Some(Tier::Local))
    }

    /// Marks the far pages among these that are not marked yet, so that their next access stops.
    pub(crate) fn mark(&mut self, pages: &[PageIndex], machine: &mut dyn TieredMachine) {
        let far = |page: &PageIndex| machine.tier_of(*page) == Some(Tier::Far) && machine.span(*page) == 1;
        let unmarked: Vec<PageIndex> =
            pages.iter().copied().filter(far).filter(|&page| !machine.is_marked(page)).collect();
        if !unmarked.is_empty() {
            machine.mark(&unmarked);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestMachine;

    #[test]
    fn what_is_done_with_leaves_before_what_is_in_use() {
        let mut machine = TestMachine::with_local(8, 4);
        let mut touched = Touched::new(8);
        (0..3).for_each(|page| touched.note_fetched(page));
        (0..2).for_each(|page| machine.access(page));
        assert_eq!(touched.next_victim(&mut machine), Some(2));
        assert!(touched.take_seen(0) && touched.take_seen(1) && !touched.take_seen(1));
        machine.access(1);
        assert_eq!(touched.next_victim(&mut machine), Some(0), "looked at again, and no more in use");
    }

    #[test]
    fn a_page_that_is_in_use_again_and_again_is_one_like_any_other() {
        let mut machine = TestMachine::with_local(8, 4);
        let mut touched = Touched::new(8);
        touched.note_fetched(0);
        machine.always_accessed = true;
        assert_eq!(touched.next_victim(&mut machine), None);
        assert!(touched.queue.is_empty());
        touched.set_spare([2, 3, 7].into_iter());
        assert_eq!(touched.next_victim(&mut machine), Some(2));
        assert_eq!(touched.next_victim(&mut machine), Some(3));
        assert_eq!(touched.next_victim(&mut machine), None, "the last one is not local");
    }

    #[test]
    fn far_pages_are_marked_once() {
        let mut machine = TestMachine::with_local(4, 2);
        machine.tiers[2..].fill(Some(Tier::Far));
        let mut touched = Touched::new(4);
        touched.mark(&[0, 1, 2, 3], &mut machine);
        assert_eq!(machine.marked, [false, false, true, true]);
    }
}
