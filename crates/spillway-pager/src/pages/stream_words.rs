//! Where what is known of streams of faults lies ([`spillway_policy::streams`]): two words of each leaf of
//! the page table.

use std::sync::atomic::{AtomicU64, Ordering};

use spillway_policy::streams::{Direction, Places};

use crate::pages::table::PageTable;

fn word(table: &PageTable, page_number: u64, direction: Direction) -> Option<&AtomicU64> {
    match direction {
        Direction::Up => table.stream_of(page_number),
        Direction::Down => table.downward_stream_of(page_number),
    }
}

impl Places for PageTable {
    fn load(&self, page_number: u64, direction: Direction) -> u64 {
        word(self, page_number, direction).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    fn store(&self, page_number: u64, direction: Direction, packed: u64) {
        if let Some(word) = word(self, page_number, direction) {
            word.store(packed, Ordering::Relaxed);
        }
    }
}
