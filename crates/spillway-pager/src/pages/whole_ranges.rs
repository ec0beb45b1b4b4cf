//! Which ranges of 2 MiB came as one huge page: they leave as one too, for taking a single page out of one
//! has the kernel split it. Their pages are in no queue; the ranges are in a queue of their own.
//!
//! Invariant: the pages of a range that is queued here have their mark in the page table, and no others have.
//! A mark says nothing of what became of a page since: whoever takes a range from the queue takes the marks
//! away, and then sees to every page of it that is mapped.

use std::collections::VecDeque;
use std::sync::Mutex;

use rustix::io::{Errno, Result};

use crate::kernel::{Kernel, planted};
use crate::pages::table::PageTable;

#[derive(Clone, Copy, Debug)]
struct Whole {
    first_page: u64,
    /// Pages that had left when it came.
    came: u64,
}

/// The ranges of one process that came whole, the oldest first.
pub struct WholeRanges {
    range_pages: u64,
    queue: Mutex<VecDeque<Whole>>,
}

impl WholeRanges {
    /// None yet, with room for those that a limit allows: of 0 where none are to come.
    #[must_use]
    pub fn new(range_pages: usize, limit_pages: usize) -> Self {
        let queue = Mutex::new(VecDeque::with_capacity(limit_pages / range_pages));
        Self { range_pages: range_pages as u64, queue }
    }

    /// The same ranges, for a simulated fork.
    ///
    /// # Errors
    /// EBUSY while somebody has the queue.
    pub fn for_child(&self) -> Result<Self> {
        let queue = self.queue.try_lock().map_err(|_| Errno::BUSY)?.clone();
        Ok(Self { range_pages: self.range_pages, queue: Mutex::new(queue) })
    }

    /// Notes that a range has come whole. Its words are locked.
    pub(crate) fn note<K: Kernel>(&self, table: &PageTable, first_page: u64, came: u64) {
        let mut queue = K::lock(&self.queue);
        // Queued since an earlier time: its pages went away otherwise.
        if !table.is_whole(first_page) {
            table.mark_whole(first_page..first_page + self.range_pages);
            if !planted!(K, "whole-range-not-queued") {
                queue.push_back(Whole { first_page, came });
            }
        }
    }

    /// Takes the oldest range, if it came before `came_before` pages had left: its first page. Its pages that
    /// are mapped are the caller's to queue or evict.
    pub(crate) fn take_oldest<K: Kernel>(&self, table: &PageTable, came_before: u64) -> Option<u64> {
        let mut queue = K::lock(&self.queue);
        let oldest = queue.front().filter(|oldest| oldest.came < came_before)?.first_page;
        queue.pop_front();
        table.unmark_whole(oldest..oldest + self.range_pages);
        Some(oldest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::live::LiveKernel as K;

    #[test]
    fn the_oldest_range_leaves_first_once_it_is_old_enough_and_its_pages_are_known() {
        let (table, ranges) = (PageTable::new().unwrap(), WholeRanges::new(512, 4096));
        for first_page in [0, 512] {
            assert!(table.find_or_make(first_page).is_ok());
            ranges.note::<K>(&table, first_page, 10 + first_page);
            ranges.note::<K>(&table, first_page, 99);
        }
        let marked = || [0, 511, 512, 1023].map(|page| table.is_whole(page));
        assert_eq!((marked(), ranges.take_oldest::<K>(&table, 10)), ([true; 4], None));
        assert_eq!(ranges.take_oldest::<K>(&table, 11), Some(0));
        assert_eq!(marked(), [false, false, true, true]);
        let child = ranges.for_child().unwrap();
        assert_eq!(ranges.take_oldest::<K>(&table, 600), Some(512));
        assert_eq!((marked(), ranges.take_oldest::<K>(&table, 600)), ([false; 4], None));
        assert_eq!(child.take_oldest::<K>(&table, 600), Some(512));
    }
}
