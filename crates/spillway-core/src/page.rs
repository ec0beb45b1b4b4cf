//! The page: the unit in which memory is fetched, evicted and stored.

pub use spillway_sys::page::{HUGE_PAGE_SIZE, PAGE_SHIFT, PAGE_SIZE};

/// The contents of one page.
pub type Page = [u8; PAGE_SIZE];
