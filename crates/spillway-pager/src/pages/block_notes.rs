//! What is noted of each page for the sake of its block, in a byte of the page table: the block's order, and
//! whether the page was used; and whether it could not leave. Changed without locks, a bit at a time; who may
//! change an order is [`crate::fault::elastic`]'s to say.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::Ordering;

use spillway_policy::blocks::Orders;
use spillway_policy::streams::LEAF_PAGES;

use crate::pages::table::PageTable;

const ORDER_MASK: u64 = 0xF;
/// Referenced since it came.
const USED: u64 = 1 << 4;
/// It came along with another page: no fault had asked for it.
const AHEAD: u64 = 1 << 5;
/// Its range came as one huge page: see [`crate::pages::whole_ranges`].
const WHOLE: u64 = 1 << 6;
/// The kernel did not let it go when its turn to leave had come.
const REFUSED: u64 = 1 << 7;

impl Orders for PageTable {
    fn order(&self, page_number: u64) -> Option<u8> {
        let (bytes, shift) = self.block_byte(page_number)?;
        Some((bytes.load(Ordering::Acquire) >> shift & ORDER_MASK) as u8)
    }

    fn set_order(&self, page_number: u64, order: u8) {
        let Some((bytes, shift)) = self.block_byte(page_number) else { return };
        let set = |others: u64| others & !(ORDER_MASK << shift) | u64::from(order) << shift;
        let mut before = bytes.load(Ordering::Relaxed);
        while let Err(now) =
            bytes.compare_exchange_weak(before, set(before), Ordering::AcqRel, Ordering::Relaxed)
        {
            before = now;
        }
    }

    /// What else is noted of the pages goes too.
    fn clear_orders(&self, pages: Range<u64>) {
        let mut page_number = pages.start;
        while page_number < pages.end {
            // Much of a range may never have been touched, or lies in no block.
            let step = match self.block_byte(page_number) {
                None => LEAF_PAGES,
                Some((bytes, _)) if bytes.load(Ordering::Acquire) == 0 => 8,
                Some(_) => {
                    self.set_order(page_number, 0);
                    self.clear(page_number, USED | AHEAD | REFUSED);
                    1
                }
            };
            page_number = (page_number / step + 1) * step;
        }
    }
}

/// The orders as each was when it was first looked at. For mistakes that are planted: what is looked at again
/// is the same again.
pub(crate) struct AtFirstLook<'a> {
    table: &'a PageTable,
    seen: RefCell<BTreeMap<u64, Option<u8>>>,
}

impl<'a> AtFirstLook<'a> {
    pub(crate) fn new(table: &'a PageTable) -> Self {
        Self { table, seen: RefCell::default() }
    }
}

impl Orders for AtFirstLook<'_> {
    fn order(&self, page_number: u64) -> Option<u8> {
        *self.seen.borrow_mut().entry(page_number).or_insert_with(|| self.table.order(page_number))
    }

    fn set_order(&self, page_number: u64, order: u8) {
        self.table.set_order(page_number, order);
    }
}

impl PageTable {
    /// The page was referenced.
    pub(crate) fn note_used(&self, page_number: u64) {
        self.set(page_number, USED);
    }

    /// The page has come along with another.
    pub(crate) fn note_ahead(&self, page_number: u64) {
        self.clear(page_number, USED);
        self.set(page_number, AHEAD);
    }

    pub(crate) fn is_used(&self, page_number: u64) -> bool {
        self.has(page_number, USED)
    }

    pub(crate) fn is_ahead(&self, page_number: u64) -> bool {
        self.has(page_number, AHEAD)
    }

    /// Whether the page had come along with another; from now on it has not.
    pub(crate) fn take_ahead(&self, page_number: u64) -> bool {
        self.clear(page_number, AHEAD)
    }

    /// The page has left, and nothing is known of it.
    pub(crate) fn forget_use(&self, page_number: u64) {
        self.clear(page_number, USED);
    }

    /// The kernel does not let the page go.
    pub(crate) fn note_refused(&self, page_number: u64) {
        self.set(page_number, REFUSED);
    }

    /// Its turn has come anew, and whether it can go is about to be seen.
    pub(crate) fn forget_refusal(&self, page_number: u64) {
        self.clear(page_number, REFUSED);
    }

    pub(crate) fn is_refused(&self, page_number: u64) -> bool {
        self.has(page_number, REFUSED)
    }

    /// The pages came as one huge page.
    pub(crate) fn mark_whole(&self, pages: Range<u64>) {
        pages.for_each(|page_number| self.set(page_number, WHOLE));
    }

    /// The pages count as single ones from now on.
    pub(crate) fn unmark_whole(&self, pages: Range<u64>) {
        pages.for_each(|page_number| {
            self.clear(page_number, WHOLE);
        });
    }

    /// Whether the page came with its range, which is not given up yet.
    #[must_use]
    pub fn is_whole(&self, page_number: u64) -> bool {
        self.has(page_number, WHOLE)
    }

    fn has(&self, page_number: u64, bits: u64) -> bool {
        let found = self.block_byte(page_number);
        found.is_some_and(|(bytes, shift)| bytes.load(Ordering::Relaxed) >> shift & bits != 0)
    }

    fn set(&self, page_number: u64, bits: u64) {
        if !self.has(page_number, bits)
            && let Some((bytes, shift)) = self.block_byte(page_number)
        {
            bytes.fetch_or(bits << shift, Ordering::AcqRel);
        }
    }

    /// Whether any of the bits was set.
    fn clear(&self, page_number: u64, bits: u64) -> bool {
        if !self.has(page_number, bits) {
            return false;
        }
        let Some((bytes, shift)) = self.block_byte(page_number) else { return false };
        bytes.fetch_and(!(bits << shift), Ordering::AcqRel) >> shift & bits != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spillway_policy::blocks::{Blocks, LARGEST_ORDER};

    #[test]
    fn orders_and_uses_are_kept_apart() {
        let table = PageTable::new().unwrap();
        assert_eq!((table.order(8), table.is_used(8)), (None, false), "nothing near it was ever touched");
        assert!(table.find_or_make(8).is_ok());
        table.set_order(8, LARGEST_ORDER);
        table.note_used(8);
        table.note_ahead(9);
        table.set_order(9, 3);
        let of = |page| (table.order(page), table.is_used(page), table.is_ahead(page));
        let expected = [(Some(0), false, false), (Some(9), true, false), (Some(3), false, true)];
        assert_eq!([of(7), of(8), of(9)], expected);
        assert!(table.take_ahead(9) && !table.take_ahead(9));
        table.forget_use(8);
        assert_eq!([of(8), of(9)], [(Some(9), false, false), (Some(3), false, false)]);
        table.note_refused(9);
        assert_eq!((table.is_refused(8), table.is_refused(9), of(9)), (false, true, (Some(3), false, false)));
        table.forget_refusal(9);
        assert!(!table.is_refused(9));
    }

    #[test]
    fn a_region_that_goes_parts_the_blocks_that_reach_into_it() {
        let table = PageTable::new().unwrap();
        assert!(table.find_or_make(0).is_ok());
        (0..32).for_each(|page| table.set_order(page, 3));
        table.note_used(13);
        Blocks::over(&table, LARGEST_ORDER).part(12..18);
        let orders: Vec<_> = (0..32).map(|page| table.order(page).unwrap()).collect();
        assert_eq!((&orders[..8], &orders[8..24], &orders[24..]), (&[3; 8][..], &[0; 16][..], &[3; 8][..]));
        assert!(!table.is_used(13));
    }
}
