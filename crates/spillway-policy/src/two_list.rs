//! The kernel's active and inactive lists over local pages, as HotBox (section 5.1), TPP, INDIGO and swap use
//! them.
//!
//! Pages move from the tail of the active list to the head of the inactive list while the latter is too
//! short; from its tail they go back to the active list when their accessed bit is set, else they are cold.
//! Nothing is scanned unless frames are wanted, so that the rate of scanning grows with memory pressure.
//! Simplified from Linux: one pair of lists, no distinction of files, no second chance by the referenced
//! flag.

use crate::machine::{PageIndex, TieredMachine};
use crate::page_lists::PageLists;

const ACTIVE: u8 = 0;
const INACTIVE: u8 = 1;

/// A pair of lists.
pub struct TwoList {
    lists: PageLists,
    inactive_share: f64,
}

impl TwoList {
    /// Empty lists of pages below `pages`; the inactive one is refilled while it has less than
    /// `inactive_share` of all.
    #[must_use]
    pub fn new(pages: u32, inactive_share: f64) -> Self {
        Self { lists: PageLists::new(pages, 2), inactive_share }
    }

    /// A page came to local memory: new pages begin on the inactive list, known hot ones on the active list.
    pub fn insert(&mut self, page: PageIndex, active: bool) {
        self.lists.push_head(if active { ACTIVE } else { INACTIVE }, page);
    }

    /// A page left local memory: takes it off its list.
    pub fn remove(&mut self, page: PageIndex) {
        self.lists.remove(page);
    }

    /// Whether a page is on the active list.
    #[must_use]
    pub fn is_active(&self, page: PageIndex) -> bool {
        self.lists.list_of(page) == Some(ACTIVE)
    }

    /// Whether a page is on either list.
    #[must_use]
    pub fn contains(&self, page: PageIndex) -> bool {
        self.lists.list_of(page).is_some()
    }

    /// Mappings on both lists.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.lists.len(ACTIVE) + self.lists.len(INACTIVE)
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn refill(&mut self, machine: &mut dyn TieredMachine) {
        while f64::from(self.lists.len(INACTIVE)) < f64::from(self.len()) * self.inactive_share {
            let Some(page) = self.lists.pop_tail(ACTIVE) else { return };
            machine.take_accessed(page);
            self.lists.push_head(INACTIVE, page);
        }
    }

    /// Takes cold mappings off the lists, until they make up `want_pages` or each was scanned twice.
    pub fn take_cold(&mut self, machine: &mut dyn TieredMachine, want_pages: u32) -> Vec<PageIndex> {
        let mut cold = Vec::new();
        let mut taken_pages = 0;
        let mut left_to_scan = 2 * self.len();
        while taken_pages < want_pages && left_to_scan > 0 {
            self.refill(machine);
            let Some(page) = self.lists.pop_tail(INACTIVE) else { break };
            left_to_scan -= 1;
            if machine.take_accessed(page) {
                self.lists.push_head(ACTIVE, page);
            } else {
                taken_pages += machine.span(page);
                cold.push(page);
            }
        }
        cold
    }

    /// The same, but where everything is in use, what is on the inactive list the longest: frames must be
    /// found.
    pub fn take_victims(&mut self, machine: &mut dyn TieredMachine, want_pages: u32) -> Vec<PageIndex> {
        let mut victims = self.take_cold(machine, want_pages);
        let mut taken_pages: u32 = victims.iter().map(|&page| machine.span(page)).sum();
        while taken_pages < want_pages {
            let Some(page) = self.lists.pop_tail(INACTIVE).or_else(|| self.lists.pop_tail(ACTIVE)) else {
                break;
            };
            taken_pages += machine.span(page);
            victims.push(page);
        }
        victims
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestMachine;

    #[test]
    fn pages_in_use_are_recirculated_and_cold_ones_taken() {
        let mut machine = TestMachine::with_local(10, 10);
        let mut lists = TwoList::new(10, 0.5);
        (0..10).for_each(|page| lists.insert(page, false));
        for page in [0, 1, 2] {
            machine.access(page);
        }
        assert_eq!(lists.take_cold(&mut machine, 2), [3, 4], "0 to 2 are in use");
        assert!(lists.is_active(0) && lists.is_active(2) && !lists.is_active(5));
        assert_eq!(lists.len(), 8);
    }

    #[test]
    fn the_inactive_list_is_refilled_from_the_active_one() {
        let mut machine = TestMachine::with_local(8, 8);
        let mut lists = TwoList::new(8, 0.5);
        (0..8).for_each(|page| lists.insert(page, true));
        assert_eq!(lists.take_cold(&mut machine, 1), [0]);
        assert!(!lists.is_active(1) && lists.is_active(7));
    }

    #[test]
    fn nothing_is_scanned_while_no_frame_is_wanted() {
        let mut machine = TestMachine::with_local(8, 8);
        let mut lists = TwoList::new(8, 0.5);
        (0..8).for_each(|page| lists.insert(page, true));
        assert!(lists.take_cold(&mut machine, 0).is_empty());
        assert_eq!(machine.scanned, 0);
    }

    #[test]
    fn victims_are_found_even_where_all_is_in_use() {
        let mut machine = TestMachine::with_local(4, 4);
        let mut lists = TwoList::new(4, 0.5);
        (0..4).for_each(|page| lists.insert(page, true));
        machine.always_accessed = true;
        assert!(lists.take_cold(&mut machine, 2).is_empty());
        assert_eq!(lists.take_victims(&mut machine, 2).len(), 2);
    }
}
