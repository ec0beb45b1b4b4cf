//! The local tier's pages in generations, as Linux's multi-generational LRU keeps them: a walk of the page
//! tables begins a generation with all that it finds accessed, and what leaves is of the oldest one.
//!
//! From Linux (`mm/vmscan.c`, `CONFIG_LRU_GEN`): at most four generations and at least two; a page of the
//! oldest that is found accessed when its turn to leave comes goes to the youngest; when no more than two are
//! left, tables are walked. Left out: tiers of file pages, the feedback loop of refaults, the Bloom filters
//! that spare walks of idle tables, and the look at the neighbours of a page that was found accessed.

use crate::machine::{PageIndex, Scan, Tier, TieredMachine};
use crate::page_lists::PageLists;

/// The most generations that there are (`MAX_NR_GENS`).
const MOST: u64 = 4;
/// Fewer than this are left: tables are walked (`MIN_NR_GENS`).
const LEAST: u64 = 2;
/// Most walks in one search: after them what is in use is in use.
const MOST_WALKS: u32 = 2;

/// Local pages, by the walk that last found them in use.
pub struct Generations {
    lists: PageLists,
    oldest: u64,
    youngest: u64,
}

impl Generations {
    /// No page yet, of those below `pages`.
    #[must_use]
    pub fn new(pages: u32) -> Self {
        Self { lists: PageLists::new(pages, MOST as u8), oldest: 0, youngest: LEAST - 1 }
    }

    fn list(generation: u64) -> u8 {
        (generation % MOST) as u8
    }

    /// A page came to local memory: faults bring it into the youngest generation.
    pub fn insert(&mut self, page: PageIndex) {
        self.lists.push_head(Self::list(self.youngest), page);
    }

    /// A page left local memory.
    pub fn remove(&mut self, page: PageIndex) {
        self.lists.remove(page);
    }

    /// How many mappings there are.
    #[must_use]
    pub fn len(&self) -> u32 {
        (self.oldest..=self.youngest).map(|generation| self.lists.len(Self::list(generation))).sum()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Walks the tables: a new generation begins with what is found accessed.
    fn age(&mut self, machine: &mut dyn TieredMachine) {
        if self.youngest - self.oldest + 1 < MOST {
            self.youngest += 1;
        }
        let youngest = Self::list(self.youngest);
        let pages = machine.page_count();
        let lists = &mut self.lists;
        machine.scan(
            Scan { start: 0, pages, tier: Tier::Local, hierarchical: true },
            &mut |page, accessed| {
                if accessed && lists.list_of(page).is_some() {
                    lists.push_head(youngest, page);
                }
            },
        );
    }

    /// Takes mappings out of the oldest generations until they make up `want_pages`, or each was looked at
    /// twice: then all is in use.
    pub fn take_cold(&mut self, machine: &mut dyn TieredMachine, want_pages: u32) -> Vec<PageIndex> {
        let mut cold = Vec::new();
        let mut taken_pages = 0;
        let mut left_to_look_at = 2 * self.len();
        let mut walks = 0;
        while taken_pages < want_pages && left_to_look_at > 0 {
            if self.youngest - self.oldest < LEAST && walks < MOST_WALKS {
                self.age(machine);
                walks += 1;
            }
            let Some(page) = self.lists.pop_tail(Self::list(self.oldest)) else {
                if self.youngest == self.oldest {
                    break;
                }
                self.oldest += 1;
                continue;
            };
            left_to_look_at -= 1;
            if machine.take_accessed(page) {
                self.lists.push_head(Self::list(self.youngest), page);
            } else {
                taken_pages += machine.span(page);
                cold.push(page);
            }
        }
        cold
    }

    /// The same, but where everything is in use, what is in the oldest generation the longest: frames must be
    /// found.
    pub fn take_victims(&mut self, machine: &mut dyn TieredMachine, want_pages: u32) -> Vec<PageIndex> {
        let mut victims = self.take_cold(machine, want_pages);
        let mut taken_pages: u32 = victims.iter().map(|&page| machine.span(page)).sum();
        for generation in self.oldest..=self.youngest {
            while taken_pages < want_pages {
                let Some(page) = self.lists.pop_tail(Self::list(generation)) else { break };
                taken_pages += machine.span(page);
                victims.push(page);
            }
        }
        victims
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestMachine;

    fn all_local(pages: u32) -> (Generations, TestMachine) {
        let mut generations = Generations::new(pages);
        (0..pages).for_each(|page| generations.insert(page));
        (generations, TestMachine::with_local(pages, pages))
    }

    #[test]
    fn what_walks_found_in_use_leaves_last() {
        let (mut generations, mut machine) = all_local(16);
        for _ in 0..3 {
            (8..16).for_each(|page| machine.access(page));
            generations.age(&mut machine);
        }
        let cold = generations.take_cold(&mut machine, 8);
        assert_eq!(cold, (0..8).collect::<Vec<_>>());
        assert_eq!(generations.len(), 8);
    }

    #[test]
    fn a_page_that_is_used_before_its_turn_stays() {
        let (mut generations, mut machine) = all_local(16);
        generations.age(&mut machine);
        machine.access(0);
        assert!(!generations.take_cold(&mut machine, 15).contains(&0));
    }

    #[test]
    fn where_all_is_in_use_the_search_ends() {
        let (mut generations, mut machine) = all_local(16);
        machine.always_accessed = true;
        assert_eq!(generations.take_cold(&mut machine, 4), [0_u32; 0]);
        assert_eq!(generations.len(), 16, "each page is still there");
        assert_eq!(generations.take_victims(&mut machine, 4).len(), 4, "frames must be found");
        assert_eq!(generations.len(), 12);
    }

    #[test]
    fn a_page_that_left_is_not_taken() {
        let (mut generations, mut machine) = all_local(4);
        generations.remove(2);
        assert_eq!(generations.take_cold(&mut machine, 9), [0, 1, 3]);
        assert!(generations.is_empty());
    }
}
