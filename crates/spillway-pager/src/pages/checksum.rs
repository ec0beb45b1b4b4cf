//! What tells a page from another, as far as accidents go.

use spillway_core::page::Page;
use spillway_core::slots::{CHECKSUM_BITS, Checksum};

/// Checksum of a page: xxh3, against accidents.
#[must_use]
pub fn checksum(page: &Page) -> Checksum {
    twox_hash::XxHash3_128::oneshot(page) >> (128 - CHECKSUM_BITS)
}
