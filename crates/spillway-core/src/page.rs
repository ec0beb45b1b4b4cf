//! The page: the unit in which memory is fetched, evicted and stored.

/// Bytes in a page.
pub const PAGE_SIZE: usize = 4096;

/// `log2` of [`PAGE_SIZE`].
pub const PAGE_SHIFT: u32 = 12;

/// The contents of one page.
pub type Page = [u8; PAGE_SIZE];
