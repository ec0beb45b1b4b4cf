//! The page: the unit in which memory is fetched, evicted and stored.

/// Binary logarithm of [`PAGE_SIZE`].
pub const PAGE_SHIFT: u32 = 12;

/// Bytes in a page, as lengths of memory are counted.
pub const PAGE_SIZE: usize = 1 << PAGE_SHIFT;

/// Bytes in a page, as addresses and totals are counted.
pub const PAGE_BYTES: u64 = PAGE_SIZE as u64;

/// Bytes in a huge page: what one entry of the page table's level above maps (x86-64).
pub const HUGE_BYTES: u64 = 2 << 20;

/// The contents of one page.
pub type Page = [u8; PAGE_SIZE];
