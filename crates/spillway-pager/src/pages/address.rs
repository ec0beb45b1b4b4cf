//! Pages by number and by address, and the program's memory as the kernel's operations want it.

use std::ops::Range;

use spillway_core::page::{PAGE_SHIFT, PAGE_SIZE};
use spillway_sys::ranges::TargetRange;

/// Address of a page.
#[must_use]
pub fn address_of(page_number: u64) -> usize {
    (page_number as usize) << PAGE_SHIFT
}

/// Number of the page that holds an address.
#[must_use]
pub fn page_number_of(address: usize) -> u64 {
    address as u64 >> PAGE_SHIFT
}

/// The numbers of a range's pages: the first, and the one behind the last.
#[must_use]
pub fn page_numbers(range: &Range<usize>) -> (u64, u64) {
    (page_number_of(range.start), page_number_of(range.end))
}

/// `pages` pages of the program's, from `page_number` on. Their words are locked, or their fault is being
/// served.
pub(crate) fn target(page_number: u64, pages: usize) -> TargetRange {
    target_of(address_of(page_number)..address_of(page_number) + pages * PAGE_SIZE)
}

/// A range of the program's that it maps, unmaps, advises or forks with, by a call of its own.
///
/// Invariant, for both: a page comes under management when the program maps it, or is found in the program's
/// heap or `.bss` before its main (`spillway-preload`). Rust's memory in this process - the pager's heap,
/// areas and stacks, mapped by system calls that no hook sees - is never among them.
#[allow(unsafe_code)]
pub(crate) fn target_of(range: Range<usize>) -> TargetRange {
    // SAFETY: the program's, by the invariant; what is done there keeps what the program has written, or is
    // what it asked for.
    unsafe { TargetRange::new(range.start, range.len()) }
}
