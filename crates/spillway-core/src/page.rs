//! The page: the unit in which memory is fetched, evicted and stored.

pub use spillway_sys::page::{HUGE_PAGE_SIZE, PAGE_SHIFT, PAGE_SIZE};

/// Bytes in a page, as addresses and totals are counted.
pub const PAGE_BYTES: u64 = PAGE_SIZE as u64;

/// Bytes in a huge page, as addresses and totals are counted.
pub const HUGE_BYTES: u64 = HUGE_PAGE_SIZE as u64;

/// The contents of one page.
pub type Page = [u8; PAGE_SIZE];
