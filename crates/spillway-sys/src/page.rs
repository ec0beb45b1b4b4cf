//! The page: the unit in which the kernel maps memory. The one place that says how large it is.

/// Bytes in a page: the least that x86-64 maps.
pub const PAGE_SIZE: usize = 4096;

/// `log2` of [`PAGE_SIZE`].
pub const PAGE_SHIFT: u32 = 12;

/// Bytes in a huge page: what one entry of the second level of page tables maps.
pub const HUGE_PAGE_SIZE: usize = 2 << 20;

const _: () = assert!(1 << PAGE_SHIFT == PAGE_SIZE);
