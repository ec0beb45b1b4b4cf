//! Moves pages between nodes, under a cap on bytes a second, and counts why pages did not move.

use std::borrow::Cow;
use std::collections::BTreeMap;

use rustix::io::Errno;
use serde::Serialize;
use spillway_sys::migration::{self, PageResult};

/// Moves pages of processes between nodes.
pub trait Mover: Send {
    /// Moves the pages of a process to a node; each page's own result.
    ///
    /// # Errors
    /// None of them could be moved, for a reason of the process or the node.
    fn move_pages(&mut self, process: u32, addresses: &[u64], node: u32) -> Result<Vec<PageResult>, Errno>;
}

/// Moves them by the system call move_pages(2).
#[derive(Clone, Copy, Debug, Default)]
pub struct KernelMover;

impl Mover for KernelMover {
    fn move_pages(&mut self, process: u32, addresses: &[u64], node: u32) -> Result<Vec<PageResult>, Errno> {
        migration::move_pages(process, addresses, node)
    }
}

/// Why pages did not move, in pages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Refusals(BTreeMap<Cow<'static, str>, u64>);

impl Refusals {
    /// Counts pages that were refused for one reason.
    pub fn count(&mut self, reason: Errno, pages: u32) {
        *self.0.entry(name(reason)).or_default() += u64::from(pages);
    }

    /// Pages refused for that reason.
    #[must_use]
    pub fn of(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Each reason, with the pages that were refused for it.
    pub fn reasons(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(reason, pages)| (&**reason, *pages))
    }

    /// Pages that were refused, for all reasons together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }
}

/// What a refusal is called in the statistics.
fn name(reason: Errno) -> Cow<'static, str> {
    Cow::Borrowed(match reason {
        Errno::BUSY => "pinned_or_busy",
        Errno::ACCESS => "shared_with_another_process",
        Errno::NOENT | Errno::FAULT => "not_there",
        Errno::NOMEM => "no_free_frame",
        Errno::AGAIN => "not_tried",
        Errno::SRCH => "process_gone",
        Errno::PERM => "not_permitted",
        Errno::NODEV => "node_offline",
        other => return Cow::Owned(format!("errno_{}", other.raw_os_error())),
    })
}

/// A cap on bytes a second. What was not used is saved for a tenth of a second.
#[derive(Clone, Copy, Debug)]
pub struct RateCap {
    bytes_per_s: u64,
    saved_bytes: f64,
    at_ns: u64,
}

/// How long unused bytes are kept.
const SAVED_S: f64 = 0.1;

impl RateCap {
    /// At most so many bytes a second.
    #[must_use]
    pub fn new(bytes_per_s: u64) -> Self {
        Self { bytes_per_s, saved_bytes: bytes_per_s as f64 * SAVED_S, at_ns: 0 }
    }

    /// Takes as many of `pages` pages of `page_bytes` as may move at this moment; how many.
    pub fn take(&mut self, now_ns: u64, pages: u32, page_bytes: u64) -> u32 {
        let passed_s = now_ns.saturating_sub(self.at_ns) as f64 / 1e9;
        self.at_ns = self.at_ns.max(now_ns);
        let most = (self.bytes_per_s as f64 * SAVED_S).max(page_bytes as f64);
        self.saved_bytes = (self.saved_bytes + passed_s * self.bytes_per_s as f64).min(most);
        let allowed = ((self.saved_bytes / page_bytes as f64) as u32).min(pages);
        self.saved_bytes -= f64::from(allowed) * page_bytes as f64;
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spillway_core::page::PAGE_BYTES;

    #[test]
    fn no_more_moves_than_the_cap_allows() {
        let mut cap = RateCap::new(PAGE_BYTES * 100);
        assert_eq!(cap.take(0, 1000, PAGE_BYTES), 10, "a tenth of a second's worth is saved");
        assert_eq!(cap.take(0, 1000, PAGE_BYTES), 0);
        assert_eq!(cap.take(50_000_000, 1000, PAGE_BYTES), 5);
        assert_eq!(cap.take(10_000_000_000, 3, PAGE_BYTES), 3);
        assert_eq!(cap.take(10_000_000_000, 1000, PAGE_BYTES), 7, "no more is saved");
        assert_eq!(cap.take(5, 1, PAGE_BYTES), 0, "time does not run backwards");
    }

    #[test]
    fn a_page_larger_than_what_is_saved_moves_in_its_time() {
        let mut cap = RateCap::new(4 << 20);
        assert_eq!(cap.take(0, 1, 2 << 20), 0);
        assert_eq!(cap.take(500_000_000, 1, 2 << 20), 1);
        assert_eq!(cap.take(600_000_000, 1, 2 << 20), 0);
    }

    #[test]
    fn refusals_are_counted_by_reason() {
        let mut refusals = Refusals::default();
        for reason in [Errno::BUSY, Errno::BUSY, Errno::NOENT, Errno::PERM, Errno::TOOBIG] {
            refusals.count(reason, 1);
        }
        refusals.count(Errno::NOMEM, 512);
        assert_eq!(refusals.of("pinned_or_busy"), 2);
        assert_eq!(refusals.of("not_there"), 1);
        assert_eq!(refusals.of("not_permitted"), 1);
        assert_eq!(refusals.of("no_free_frame"), 512);
        assert_eq!(refusals.of("shared_with_another_process"), 0);
        assert_eq!(refusals.of("errno_7"), 1, "E2BIG, for which there is no name");
        assert_eq!(refusals.total(), 517);
    }
}
