//! Memory of the program's, named by address.
#![allow(unsafe_code)]

use std::ops::Range;

use spillway_sys::page::PAGE_SIZE;
use spillway_sys::ranges::TargetRange;

/// The page at an address.
pub fn page(address: usize) -> TargetRange {
    memory(address..address + PAGE_SIZE)
}

/// Whole pages.
pub fn memory(range: Range<usize>) -> TargetRange {
    // SAFETY: memory that the program mapped, into which no reference of Rust's points: what is our own is
    // told apart (`places.rs`). What lies there is moved and comes back unchanged, so the program cannot
    // tell.
    unsafe { TargetRange::new(range.start, range.len()) }
}
