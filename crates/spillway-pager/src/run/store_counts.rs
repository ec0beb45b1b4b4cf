//! What is counted of each store of a run.

use std::sync::atomic::{AtomicU64, Ordering};

use spillway_store::StoreError;

/// Stores that one run may have.
pub const MAX_STORES: usize = 64;

const FETCHED_AT: usize = 0;
const WRITTEN_AT: usize = 1;
const FAILED_READS_AT: usize = 2;
const FAILED_WRITES_AT: usize = 3;
const FULL_AT: usize = 4;
const LAST_FAILED_NS_AT: usize = 5;
const LAST_FULL_NS_AT: usize = 6;

/// Words of one store.
pub(super) const STORE_WORDS: usize = 8;

/// The counts of one store, all processes together.
#[derive(Clone, Copy)]
pub struct StoreCounts<'a> {
    words: &'a [AtomicU64],
}

impl<'a> StoreCounts<'a> {
    pub(super) fn new(words: &'a [AtomicU64]) -> Self {
        Self { words }
    }

    fn add(&self, at: usize, by: u64) {
        self.words[at].fetch_add(by, Ordering::Relaxed);
    }

    fn load(&self, at: usize) -> u64 {
        self.words[at].load(Ordering::Relaxed)
    }

    /// Counts pages that were read from it and were right.
    pub fn count_fetched(&self, pages: u64) {
        self.add(FETCHED_AT, pages);
    }

    /// Counts pages that it took.
    pub fn count_written(&self, pages: u64) {
        self.add(WRITTEN_AT, pages);
    }

    /// Counts a page that could not be read, or came back wrong, at this time of CLOCK_MONOTONIC.
    pub fn count_failed_read(&self, now_ns: u64) {
        self.add(FAILED_READS_AT, 1);
        self.words[LAST_FAILED_NS_AT].store(now_ns, Ordering::Relaxed);
    }

    /// Counts a page that it did not take, at this time of CLOCK_MONOTONIC.
    pub fn count_refused(&self, error: &StoreError, now_ns: u64) {
        let (count, time) = match error {
            StoreError::Full { .. } => (FULL_AT, LAST_FULL_NS_AT),
            _ => (FAILED_WRITES_AT, LAST_FAILED_NS_AT),
        };
        self.add(count, 1);
        self.words[time].store(now_ns, Ordering::Relaxed);
    }

    /// Pages read from it.
    #[must_use]
    pub fn fetched_pages(&self) -> u64 {
        self.load(FETCHED_AT)
    }

    /// Pages written to it.
    #[must_use]
    pub fn written_pages(&self) -> u64 {
        self.load(WRITTEN_AT)
    }

    /// Pages that could not be read, or came back wrong.
    #[must_use]
    pub fn failed_reads(&self) -> u64 {
        self.load(FAILED_READS_AT)
    }

    /// Pages that could not be written, but for want of room.
    #[must_use]
    pub fn failed_writes(&self) -> u64 {
        self.load(FAILED_WRITES_AT)
    }

    /// Pages that it had no room for.
    #[must_use]
    pub fn full_refusals(&self) -> u64 {
        self.load(FULL_AT)
    }

    /// When a page last failed, on CLOCK_MONOTONIC; 0 for never.
    #[must_use]
    pub fn last_failed_ns(&self) -> u64 {
        self.load(LAST_FAILED_NS_AT)
    }

    /// When it last had no room, on CLOCK_MONOTONIC; 0 for never.
    #[must_use]
    pub fn last_full_ns(&self) -> u64 {
        self.load(LAST_FULL_NS_AT)
    }
}
