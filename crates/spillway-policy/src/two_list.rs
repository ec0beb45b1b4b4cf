//! The kernel's active and inactive lists over local pages, as HotBox (section 5.1), TPP, INDIGO and swap use
//! them.
//!
//! Pages move from the tail of the active list to the head of the inactive list while the latter is too
//! short; from its tail they go back to the active list when their accessed bit is set, else they are cold.
//! Nothing is scanned unless frames are wanted, so that the rate of scanning grows with memory pressure.
//! Simplified from Linux: one pair of lists, no distinction of files. Since Linux 5.9 anonymous pages get a
//! second chance by the page's referenced flag: the first scan that finds one accessed keeps it inactive and
//! sets the flag, a second one makes it active. Who asks for it has that ([`TwoList::with_second_chance`]);
//! otherwise the first makes it active, as in kernels before.

use crate::machine::{PageIndex, TieredMachine};
use crate::page_lists::PageLists;

const ACTIVE: u8 = 0;
const INACTIVE: u8 = 1;

/// A pair of lists.
pub struct TwoList {
    lists: PageLists,
    inactive_share: f64,
    /// The referenced flag of each page; empty where there is none.
    referenced: Vec<bool>,
}

impl TwoList {
    /// Empty lists of pages below `pages`; the inactive one is refilled while it has less than
    /// `inactive_share` of all.
    #[must_use]
    pub fn new(pages: u32, inactive_share: f64) -> Self {
        Self { lists: PageLists::new(pages, 2), inactive_share, referenced: Vec::new() }
    }

    /// The same, where a page must be found accessed twice before it becomes active.
    #[must_use]
    pub fn with_second_chance(pages: u32, inactive_share: f64) -> Self {
        Self { referenced: vec![false; pages as usize], ..Self::new(pages, inactive_share) }
    }

    /// A page came to local memory: new pages begin on the inactive list, known hot ones on the active list.
    pub fn insert(&mut self, page: PageIndex, active: bool) {
        self.lists.push_head(if active { ACTIVE } else { INACTIVE }, page);
        if let Some(referenced) = self.referenced.get_mut(page as usize) {
            *referenced = false;
        }
    }

    /// The list to which an inactive page goes that was found accessed.
    fn list_after_use(&mut self, page: PageIndex) -> u8 {
        let flag = self.referenced.get_mut(page as usize);
        match flag.map(|referenced| std::mem::replace(referenced, true)) {
            Some(false) => INACTIVE,
            Some(true) | None => ACTIVE,
        }
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

    /// Takes cold mappings off the lists, until they make up `want_pages` or each was scanned twice,
    /// three times where pages have a second chance.
    pub fn take_cold(&mut self, machine: &mut dyn TieredMachine, want_pages: u32) -> Vec<PageIndex> {
        let mut cold = Vec::new();
        let mut taken_pages = 0;
        let chances = if self.referenced.is_empty() { 2 } else { 3 };
        let mut left_to_scan = chances * self.len();
        while taken_pages < want_pages && left_to_scan > 0 {
            self.refill(machine);
            let Some(page) = self.lists.pop_tail(INACTIVE) else { break };
            left_to_scan -= 1;
            if machine.take_accessed(page) {
                let list = self.list_after_use(page);
                self.lists.push_head(list, page);
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
    fn with_a_second_chance_a_page_becomes_active_when_it_is_found_accessed_twice() {
        let mut machine = TestMachine::with_local(4, 4);
        let mut lists = TwoList::with_second_chance(4, 0.0);
        (0..4).for_each(|page| lists.insert(page, false));
        [0, 1].into_iter().for_each(|page| machine.access(page));
        assert_eq!(lists.take_cold(&mut machine, 1), [2], "0 and 1 stay, but are not active yet");
        assert!(!lists.is_active(0) && !lists.is_active(1));
        machine.access(0);
        assert_eq!(lists.take_cold(&mut machine, 3), [3, 1], "0 was used again, 1 was not");
        assert!(lists.is_active(0));
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
