//! Elastic blocks: pages that are fetched and evicted as one (dcm, sections 4.2 and 4.3).
//!
//! A block is `2^order` pages, aligned to as many, and each of its pages holds that order. Blocks grow as
//! buddies do in the kernel's allocator, and are taken apart down to single pages.
//!
//! Who has the lock of a block's first page has the block's (Algorithm 3). A block's size is changed by its
//! holder alone, so a size that is the same before and after locking is the size. Where orders are kept and
//! what the locks are is the caller's ([`Orders`], [`Blocks::lock`]).

use std::ops::Range;
use std::sync::atomic::{AtomicU8, Ordering};

/// Order of the largest block of the paper: 64 KiB of pages of 4 KiB (dcm, section 4.2).
pub const MAX_ORDER: u8 = 4;

/// Order of the largest block that there can be: 2 MiB. Not the paper's.
pub const LARGEST_ORDER: u8 = 9;

/// Where the order of each page's block is kept. Threads may look and set at once: a look must see all that
/// was set before what it sees.
pub trait Orders {
    /// The order of a page's block; [`None`] where there is no such page.
    fn order(&self, page: u64) -> Option<u8>;
    /// Sets the order of one page.
    fn set_order(&self, page: u64, order: u8);
    /// Sets the order of all pages of a range to 0.
    fn clear_orders(&self, pages: Range<u64>) {
        pages.for_each(|page| self.set_order(page, 0));
    }
}

/// Of so many pages, from page 0 on.
impl Orders for Vec<AtomicU8> {
    fn order(&self, page: u64) -> Option<u8> {
        Some(self.get(page as usize)?.load(Ordering::Acquire))
    }

    fn set_order(&self, page: u64, order: u8) {
        if let Some(slot) = self.get(page as usize) {
            slot.store(order, Ordering::Release);
        }
    }
}

impl<O: Orders> Orders for &O {
    fn order(&self, page: u64) -> Option<u8> {
        (*self).order(page)
    }

    fn set_order(&self, page: u64, order: u8) {
        (*self).set_order(page, order);
    }

    fn clear_orders(&self, pages: Range<u64>) {
        (*self).clear_orders(pages);
    }
}

/// The blocks that orders speak of.
pub struct Blocks<O> {
    orders: O,
    max_order: u8,
}

impl Blocks<Vec<AtomicU8>> {
    /// Blocks of `2^order` pages each; none grows beyond `2^max_order`.
    #[must_use]
    pub fn new(pages: u32, order: u8, max_order: u8) -> Self {
        Self::over((0..pages).map(|_| AtomicU8::new(order)).collect(), max_order)
    }
}

/// The block of a page where all have `block_pages`, a power of two.
#[must_use]
pub fn static_block(page: u64, block_pages: u64) -> Range<u64> {
    let start = page - page % block_pages.max(1);
    start..start.saturating_add(block_pages)
}

/// The block of `2^order` pages around a page.
fn around(page: u64, order: u8) -> Range<u64> {
    let pages = 1 << order;
    let head = page & !(pages - 1);
    head..head + pages
}

impl<O: Orders> Blocks<O> {
    /// The blocks that `orders` speak of; none grows beyond `2^max_order` pages.
    pub const fn over(orders: O, max_order: u8) -> Self {
        Self { orders, max_order }
    }

    /// The order of a page's block.
    pub fn order(&self, page: u64) -> u8 {
        self.orders.order(page).unwrap_or(0)
    }

    /// The pages of a page's block, its head first.
    pub fn pages(&self, page: u64) -> Range<u64> {
        around(page, self.order(page))
    }

    /// LOCK_BLOCK (Algorithm 3): locks the head of a page's block, looks whether the block is still the same,
    /// and else begins anew. [`None`] where `try_lock` says that somebody has the head.
    pub fn lock<L>(
        &self,
        page: u64,
        mut try_lock: impl FnMut(u64) -> Option<L>,
        mut unlock: impl FnMut(u64, L),
    ) -> Option<(Range<u64>, L)> {
        loop {
            let block = self.pages(page);
            let lock = try_lock(block.start)?;
            if self.pages(page) == block {
                return Some((block, lock));
            }
            unlock(block.start, lock);
        }
    }

    /// STRETCH (Algorithm 1): merges a block that just became local, and that the caller has locked, with its
    /// buddy of the same size. `joins` is told the buddy's head and the pages of both; it locks the buddy,
    /// and says whether that is local and both may be one block. Returns the buddy's head; only one step at a
    /// time.
    pub fn stretch(&self, page: u64, joins: impl FnOnce(u64, Range<u64>) -> bool) -> Option<u64> {
        let order = self.order(page);
        if order >= self.max_order {
            return None;
        }
        let buddy = around(page, order).start ^ (1 << order);
        let merged = around(page, order + 1);
        let is_alike = || self.orders.order(buddy) == Some(order);
        let fits = self.orders.order(merged.end - 1).is_some();
        // Before the buddy is locked its size may change: so it is looked at again.
        if !is_alike() || !fits || !joins(buddy, merged.clone()) || !is_alike() {
            return None;
        }
        self.set(merged, order + 1);
        Some(buddy)
    }

    /// REDUCE (Algorithm 2): takes a block, which the caller has locked, apart unless more than half of its
    /// pages were referenced. Whether it did. At exactly half the algorithm says so and the text beside it
    /// ("less than a half") does not.
    pub fn reduce(&self, page: u64, is_referenced: impl Fn(u64) -> bool) -> bool {
        let pages = self.pages(page);
        let size = pages.end - pages.start;
        let referenced = pages.clone().filter(|&page| is_referenced(page)).count() as u64;
        let reduced = size > 1 && 2 * referenced <= size;
        if reduced {
            self.set(pages, 0);
        }
        reduced
    }

    /// Makes single pages of a range that goes, and of what was in one block with them. Whoever has such a
    /// block locked may go on with what it was.
    pub fn part(&self, pages: Range<u64>) {
        self.part_before(pages.start);
        self.part_before(pages.end);
        self.orders.clear_orders(pages);
    }

    /// Takes a block apart that has pages on both sides of the beginning of `page`.
    fn part_before(&self, page: u64) {
        let block = self.pages(page);
        if block.start < page {
            self.set(block, 0);
        }
    }

    /// From the head upwards. A page whose order is 0 may be stretched by who has it, while the block behind
    /// it is still being taken apart: its buddy is of the same size only once that has been reached as well.
    fn set(&self, pages: Range<u64>, order: u8) {
        pages.for_each(|page| self.orders.set_order(page, order));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_block_stretches_by_its_buddy_once_at_a_time() {
        let blocks = Blocks::new(16, 0, MAX_ORDER);
        let stretch = |page, is_local: bool| blocks.stretch(page, |_, _| is_local);
        assert_eq!(stretch(1, true), Some(0));
        assert_eq!(blocks.pages(0), 0..2);
        assert_eq!(stretch(0, true), None, "the buddy is smaller");
        assert_eq!(stretch(3, true), Some(2));
        assert_eq!(stretch(3, false), None, "the buddy is far");
        assert_eq!(blocks.stretch(3, |buddy, merged| (buddy, merged) == (0, 0..4)), Some(0));
        assert_eq!(blocks.pages(3), 0..4);
        let paper = Blocks::new(32, MAX_ORDER, MAX_ORDER);
        assert_eq!(paper.stretch(1, |_, _| true), None, "no block is larger");
        let odd = Blocks::new(3, 0, MAX_ORDER);
        assert_eq!(odd.stretch(2, |_, _| true), None, "there is no buddy");
    }

    /// The buddy is looked at again once it is locked.
    #[test]
    fn a_buddy_that_changes_before_it_is_locked_is_left_alone() {
        let blocks = Blocks::new(4, 1, MAX_ORDER);
        let reduced = |buddy, _| blocks.reduce(buddy, |_| false);
        assert_eq!(blocks.stretch(0, reduced), None);
        assert_eq!((blocks.pages(1), blocks.pages(3)), (0..2, 3..4));
    }

    /// Fig. 12: who waited for the head of a block that was reduced meanwhile begins anew, with its own page.
    #[test]
    fn a_block_that_changes_before_it_is_locked_is_locked_anew() {
        let blocks = Blocks::new(16, 2, MAX_ORDER);
        let mut tried = Vec::new();
        let mut freed = Vec::new();
        let locked = blocks.lock(
            1,
            |head| {
                tried.push(head);
                blocks.reduce(0, |_| false);
                Some(head)
            },
            |head, _| freed.push(head),
        );
        assert_eq!((locked, tried, freed), (Some((1..2, 1)), vec![0, 1], vec![0]));
        assert_eq!(blocks.lock(5, |_| None::<()>, |_, ()| ()), None, "the head is busy");
    }

    #[test]
    fn what_lies_on_both_sides_of_a_regions_end_is_taken_apart() {
        let blocks = Blocks::new(16, 2, MAX_ORDER);
        blocks.part_before(6);
        blocks.part_before(12);
        let heads: Vec<u64> = (0..16).map(|page| blocks.pages(page).start).collect();
        assert_eq!(heads, [0, 0, 0, 0, 4, 5, 6, 7, 8, 8, 8, 8, 12, 12, 12, 12]);
        blocks.part(2..13);
        assert!((0..16).all(|page| blocks.order(page) == 0));
    }

    #[test]
    fn static_blocks_lie_in_line_with_their_size() {
        assert_eq!(
            (static_block(17, 16), static_block(17, 1), static_block(17, 0)),
            (16..32, 17..18, 17..17)
        );
    }

    #[test]
    fn a_block_is_reduced_unless_more_than_half_its_pages_were_referenced() {
        let blocks = Blocks::new(16, 2, MAX_ORDER);
        assert!(!blocks.reduce(1, |page| page < 3));
        assert!(blocks.reduce(1, |page| page < 2));
        assert_eq!(blocks.order(3), 0);
        assert!(!blocks.reduce(1, |_| false), "a single page stays one");
    }

    proptest! {
        /// Whatever is done, blocks are aligned, do not overlap, and every page agrees on its block.
        #[test]
        fn blocks_stay_whole(
            steps in proptest::collection::vec((0_u64..40, 0_u8..4, any::<u64>()), 0..200),
        ) {
            let blocks = Blocks::new(40, 0, MAX_ORDER);
            for (page, step, local) in steps {
                match step {
                    0 | 1 => drop(blocks.stretch(page, |other, _| local >> other & 1 == 1)),
                    2 => drop(blocks.reduce(page, |other| local >> other & 1 == 1)),
                    _ => blocks.part_before(page),
                }
                for page in 0..40 {
                    let block = blocks.pages(page);
                    prop_assert!(block.contains(&page) && block.end <= 40);
                    prop_assert!(block.start.is_multiple_of(block.end - block.start));
                    prop_assert!(block.clone().all(|other| blocks.pages(other) == block));
                }
            }
        }
    }
}

#[cfg(all(test, loom))]
mod races {
    //! Four pages, each with a lock; threads that fetch, stretch and reduce. Whatever the interleaving,
    //! nobody has a block that another has, and all pages of a block agree on it in the end.

    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicU32};
    use loom::thread;

    const PAGES: u64 = 4;

    struct Page {
        order: AtomicU8,
        is_locked: AtomicBool,
        /// Those who believe that they have the block that the page is in.
        holders: AtomicU32,
    }

    struct Memory([Page; PAGES as usize]);

    impl Orders for Arc<Memory> {
        fn order(&self, page: u64) -> Option<u8> {
            Some(self.0.get(page as usize)?.order.load(Ordering::Acquire))
        }
        fn set_order(&self, page: u64, order: u8) {
            self.0[page as usize].order.store(order, Ordering::Release);
        }
    }

    impl Memory {
        fn try_lock(&self, page: u64) -> Option<()> {
            let lock = &self.0[page as usize].is_locked;
            lock.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).ok().map(drop)
        }

        fn unlock(&self, page: u64) {
            self.0[page as usize].is_locked.store(false, Ordering::Release);
        }

        fn enter(&self, block: &Range<u64>) {
            for page in block.clone() {
                let others = self.0[page as usize].holders.fetch_add(1, Ordering::Relaxed);
                assert_eq!(others, 0, "two have the block of page {page}");
            }
        }

        fn leave(&self, block: &Range<u64>) {
            block
                .clone()
                .for_each(|page| drop(self.0[page as usize].holders.fetch_sub(1, Ordering::Relaxed)));
        }
    }

    fn blocks(memory: &Arc<Memory>) -> Blocks<Arc<Memory>> {
        Blocks::over(Arc::clone(memory), 2)
    }

    /// As a fault does, which has its page locked already; first it locks the block `times` in vain, and lets
    /// it go again, as one does that has to wait for room.
    fn fetch(memory: &Arc<Memory>, page: u64, times: u32) {
        if memory.try_lock(page).is_none() {
            return;
        }
        let blocks = blocks(memory);
        let lock = |head| if head == page { Some(()) } else { memory.try_lock(head) };
        let unlock = |head, ()| {
            if head != page {
                memory.unlock(head);
            }
        };
        for _ in 0..times {
            if let Some((block, ())) = blocks.lock(page, lock, unlock) {
                memory.enter(&block);
                memory.leave(&block);
                unlock(block.start, ());
            }
        }
        if let Some((block, ())) = blocks.lock(page, lock, unlock) {
            memory.enter(&block);
            memory.leave(&block);
            let mut locked = None;
            blocks.stretch(page, |buddy, _| {
                locked = memory.try_lock(buddy).map(|()| buddy);
                locked.is_some()
            });
            locked.into_iter().for_each(|buddy| memory.unlock(buddy));
            unlock(block.start, ());
        }
        memory.unlock(page);
    }

    fn fetch_and_stretch(memory: &Arc<Memory>, page: u64) {
        fetch(memory, page, 0);
    }

    fn wait_and_stretch(memory: &Arc<Memory>, page: u64) {
        fetch(memory, page, 1);
    }

    /// As an eviction does, once a page of the block has left.
    fn reduce(memory: &Arc<Memory>, page: u64) {
        let blocks = blocks(memory);
        let locked = blocks.lock(page, |head| memory.try_lock(head), |head, ()| memory.unlock(head));
        if let Some((block, ())) = locked {
            memory.enter(&block);
            memory.leave(&block);
            blocks.reduce(page, |_| false);
            memory.unlock(block.start);
        }
    }

    fn run(orders: [u8; PAGES as usize], threads: [fn(&Arc<Memory>); 2]) {
        loom::model(move || {
            let page = |order| Page {
                order: AtomicU8::new(order),
                is_locked: AtomicBool::new(false),
                holders: AtomicU32::new(0),
            };
            let memory = Arc::new(Memory(orders.map(page)));
            let handles = threads.map(|body| {
                let memory = Arc::clone(&memory);
                thread::spawn(move || body(&memory))
            });
            handles.into_iter().for_each(|handle| handle.join().unwrap());
            let blocks = blocks(&memory);
            for page in 0..PAGES {
                let block = blocks.pages(page);
                assert!(block.clone().all(|other| blocks.pages(other) == block), "page {page}: {block:?}");
                assert!(memory.try_lock(page).is_some(), "page {page} stays locked");
            }
        });
    }

    #[test]
    fn loom_two_faults_stretch_towards_each_other() {
        run([0; 4], [|memory| fetch_and_stretch(memory, 0), |memory| fetch_and_stretch(memory, 1)]);
        run([1; 4], [|memory| fetch_and_stretch(memory, 1), |memory| fetch_and_stretch(memory, 2)]);
    }

    #[test]
    fn loom_a_block_is_let_go_for_room_and_locked_anew() {
        run([2; 4], [|memory| wait_and_stretch(memory, 2), |memory| reduce(memory, 1)]);
        run([1; 4], [|memory| wait_and_stretch(memory, 1), |memory| fetch_and_stretch(memory, 3)]);
    }

    #[test]
    fn loom_a_block_is_reduced_while_a_member_is_fetched() {
        run([2; 4], [|memory| reduce(memory, 0), |memory| fetch_and_stretch(memory, 2)]);
        run([1; 4], [|memory| reduce(memory, 1), |memory| fetch_and_stretch(memory, 3)]);
        run([2; 4], [|memory| reduce(memory, 3), |memory| reduce(memory, 1)]);
    }
}
