//! What a page hashes to. Whoever decodes or moves pages knows by it that a donor gave what it was given.
//! What programs read is looked at again above the store, by its seal or its checksum.

use spillway_core::page::Page;
use twox_hash::XxHash3_64;

/// Hashes the pages of one run. With a seed of the run's own, so that no donor finds a page with the hash of
/// another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Checker(u64);

impl Checker {
    pub(super) fn of_run(token: &str) -> Self {
        Self(XxHash3_64::oneshot(token.as_bytes()))
    }

    /// Never 0, which stands for no page.
    pub(super) fn check(self, page: &Page) -> u32 {
        (XxHash3_64::oneshot_with_seed(self.0, page) as u32).max(1)
    }
}
