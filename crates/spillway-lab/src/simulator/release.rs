//! A program gives pages back: what they held is gone, and their frames are free.

use std::ops::Range;

use spillway_policy::machine::PageIndex;

use super::Running;
use super::link::Link;
use super::node::Node;
use super::pages::region_bit;

impl Running {
    /// The program gives back so many pages of 4 KiB from this one on; the policy is told. What the program
    /// itself spends on it is not counted.
    pub(super) fn release(&mut self, link: &mut Link, core: usize, page_number: u64, pages: u64) {
        let now_ps = self.node.cores[core].clock_ps;
        for mapping in self.node.give_back(page_number, pages) {
            if let Some(heat) = &mut self.node.heat {
                mapping.clone().for_each(|page| heat.gone(page, now_ps));
            }
            let at_ps = self.node.cores[core].clock_ps;
            let bill = self.with_policy(link, at_ps, Some(core), None, |policy, view| {
                policy.on_release(mapping, view);
            });
            self.charge(core, bill);
        }
    }
}

impl Node {
    /// Frees what lies whole within so many pages of 4 KiB from this one on. A huge page that only a part of
    /// is given back is split. Returns what was mapped as one and is no more.
    fn give_back(&mut self, page_number: u64, pages: u64) -> Vec<Range<PageIndex>> {
        let there = |page: &PageIndex| self.pages.tier_of(*page).is_some();
        let mut left: Vec<PageIndex> =
            self.addresses.pages_within(page_number, pages).filter(there).collect();
        left.reverse();
        let mut given_back = Vec::new();
        while let Some(page) = left.pop() {
            let span = self.pages.span(self.pages.head(page));
            let last = page + span - 1;
            // Neighbours in the list are neighbours in memory where they are of one huge page.
            let is_whole = self.pages.head(page) == page
                && (span == 1
                    || left.len() + 1 >= span as usize && left[left.len() + 1 - span as usize] == last);
            if self.pages.is_huge(page) {
                self.forget(self.pages.head(page));
                self.pages.regions[(page >> self.pages.huge_shift) as usize] &= !region_bit::HUGE;
            }
            let mapping = if is_whole { page..page + span } else { page..page + 1 };
            left.truncate(left.len() + 1 - mapping.len());
            self.free_frames(mapping.clone());
            given_back.push(mapping);
        }
        given_back
    }

    fn free_frames(&mut self, pages: Range<PageIndex>) {
        for page in pages {
            if let Some(tier) = self.pages.tier_of(page) {
                self.pages.give_frames(tier, 1);
            }
            self.pages.flags[page as usize] = 0;
            self.pages.set_far_copy(page, false);
            self.forget(page);
        }
    }
}

#[cfg(test)]
mod tests {
    use spillway_policy::machine::Tier;
    use spillway_policy::policy::{AccessModel, Mapping};

    use super::*;
    use crate::simulator::pages::AddressMap;
    use crate::simulator::platform::Platform;
    use crate::workload::Region;

    const HUGE: u32 = 512;

    fn node(mapping: Mapping) -> Node {
        let regions = [Region { name: "r", start: 4 << 20, bytes: 4 << 20 }];
        let map = AddressMap::new(&regions, 4096).unwrap();
        let mut node = Node::new(&Platform::hotbox(), map, 1, 1024, AccessModel::Hybrid, mapping).unwrap();
        for page in 0..1024 {
            if node.pages.tier_of(page).is_none() {
                let head = node.head_at_first_touch(page);
                node.install(head, Tier::Local);
            }
        }
        node
    }

    #[test]
    fn whole_pages_within_the_range_are_free_and_lie_nowhere() {
        let mut node = node(Mapping::Base);
        let start = (4 << 20) / 4096;
        assert_eq!(node.give_back(start + 1, 2), [1..2, 2..3]);
        assert_eq!(node.pages.free(Tier::Local), 2);
        assert_eq!([1, 2].map(|page| node.pages.tier_of(page)), [None, None]);
        assert_eq!(node.pages.tier_of(3), Some(Tier::Local));
        assert!(node.give_back(start + 1, 1).is_empty(), "it is gone already");
        assert!(node.give_back(0, start).is_empty(), "no memory of the program's");
    }

    #[test]
    fn a_huge_page_goes_whole_or_is_split() {
        let mut node = node(Mapping::Huge);
        let given_back = node.give_back((4 << 20) / 4096, u64::from(HUGE) + 2);
        assert_eq!(given_back, [0..HUGE, HUGE..HUGE + 1, HUGE + 1..HUGE + 2]);
        assert_eq!(node.pages.free(Tier::Local), HUGE + 2);
        assert_eq!((node.pages.is_huge(0), node.pages.is_huge(HUGE + 7)), (false, false));
        assert_eq!(node.pages.tier_of(HUGE + 7), Some(Tier::Local));
    }
}
