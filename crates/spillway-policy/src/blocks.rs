//! Elastic blocks: pages that are fetched and evicted as one, 1 to 16 of them (dcm, section 4.2).
//!
//! A block is `2^order` pages, aligned to as many, and each of its pages holds that order: one byte a page.
//! Blocks grow as buddies do in the kernel's allocator, and are taken apart down to single pages.

use crate::machine::PageIndex;

/// Order of the largest block: 64 KiB of pages of 4 KiB (dcm, section 4.2).
pub const MAX_ORDER: u8 = 4;

/// The order of each page's block.
pub struct Blocks {
    orders: Vec<u8>,
    max_order: u8,
}

impl Blocks {
    /// Blocks of `2^order` pages each; none grows beyond `2^max_order`.
    #[must_use]
    pub fn new(pages: u32, order: u8, max_order: u8) -> Self {
        Self { orders: vec![order; pages as usize], max_order }
    }

    /// The first page of a page's block.
    #[must_use]
    pub fn head(&self, page: PageIndex) -> PageIndex {
        page & !((1 << self.orders[page as usize]) - 1)
    }

    /// The order of a page's block.
    #[must_use]
    pub fn order(&self, page: PageIndex) -> u8 {
        self.orders[page as usize]
    }

    /// The pages of a page's block.
    #[must_use]
    pub fn pages(&self, page: PageIndex) -> std::ops::Range<PageIndex> {
        let head = self.head(page);
        head..(head + (1 << self.order(page))).min(self.orders.len() as u32)
    }

    /// STRETCH (Algorithm 1): merges a block that just became local with its buddy, if that has the same size
    /// and `is_local` says that it is local. Returns the first page of the buddy; only one step at a time.
    pub fn stretch(&mut self, page: PageIndex, is_local: impl Fn(PageIndex) -> bool) -> Option<PageIndex> {
        let order = self.order(page);
        let buddy = self.head(page) ^ (1 << order);
        let fits = (buddy | (1 << order)) as usize + (1 << order) <= self.orders.len();
        if order >= self.max_order || !fits || self.order(buddy) != order || !is_local(buddy) {
            return None;
        }
        let merged = self.head(page) & buddy;
        self.orders[merged as usize..][..2 << order].fill(order + 1);
        Some(buddy)
    }

    /// REDUCE (Algorithm 2): takes a block apart unless more than half of its pages were referenced. Whether
    /// it did. At exactly half the algorithm says so and the text beside it ("less than a half") does not.
    pub fn reduce(&mut self, page: PageIndex, is_referenced: impl Fn(PageIndex) -> bool) -> bool {
        let pages = self.pages(page);
        let referenced = pages.clone().filter(|&page| is_referenced(page)).count();
        let reduced = self.order(page) > 0 && 2 * referenced <= pages.len();
        if reduced {
            self.orders[pages.start as usize..pages.end as usize].fill(0);
        }
        reduced
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_block_stretches_by_its_buddy_once_at_a_time() {
        let mut blocks = Blocks::new(16, 0, MAX_ORDER);
        assert_eq!(blocks.stretch(1, |_| true), Some(0));
        assert_eq!(blocks.pages(0), 0..2);
        assert_eq!(blocks.stretch(0, |_| true), None, "the buddy is smaller");
        assert_eq!(blocks.stretch(3, |_| true), Some(2));
        assert_eq!(blocks.stretch(3, |_| false), None, "the buddy is far");
        assert_eq!(blocks.stretch(3, |_| true), Some(0));
        assert_eq!(blocks.pages(3), 0..4);
    }

    #[test]
    fn a_block_is_reduced_unless_more_than_half_its_pages_were_referenced() {
        let mut blocks = Blocks::new(16, 2, MAX_ORDER);
        assert!(!blocks.reduce(1, |page| page < 3));
        assert!(blocks.reduce(1, |page| page < 2));
        assert_eq!(blocks.order(3), 0);
        assert!(!blocks.reduce(1, |_| false), "a single page stays one");
    }

    proptest! {
        /// Whatever is done, blocks are aligned, do not overlap, and every page agrees on its block.
        #[test]
        fn blocks_stay_whole(
            steps in proptest::collection::vec((0_u32..40, any::<bool>(), any::<u64>()), 0..200),
        ) {
            let mut blocks = Blocks::new(40, 0, MAX_ORDER);
            for (page, stretch, local) in steps {
                match stretch {
                    true => drop(blocks.stretch(page, |other| local >> other & 1 == 1)),
                    false => drop(blocks.reduce(page, |other| local >> other & 1 == 1)),
                }
                for page in 0..40 {
                    let block = blocks.pages(page);
                    prop_assert!(block.contains(&page) && block.start.is_multiple_of(block.len() as u32));
                    prop_assert!(block.clone().all(|other| blocks.pages(other) == block));
                }
            }
        }
    }
}
