//! Getting a frame under the local limit, which all processes of the run share.

use std::sync::atomic::Ordering;
use std::time::Duration;

use spillway_store::StoreError;

use crate::evict::write_back::BATCH_PAGES;
use crate::kernel::{Kernel, planted};
use crate::pages::error::{Failure, PageError};
use crate::process::worker::Worker;
use crate::run::state::Counter;

/// How long a fault may wait for memory before it is refused. Stores have shorter limits of their own.
const PATIENCE_NS: u64 = 150_000_000_000;
/// After this long without a page from the processes that hold more than their share, a process gives its
/// own.
const OTHERS_PATIENCE_NS: u64 = 10_000_000;
/// How long, when every page that could be evicted is pinned, or fewer slabs were tried.
const PINNED_PATIENCE_NS: u64 = 5_000_000_000;
const REQUEST_PAGES: u64 = 64;
/// What stored pages may take beyond the limit while the stores are full: a page must come in before its slot
/// is free for the one that goes out. 1 MiB, of the 4 MiB by which the limit may be exceeded.
pub const EXCHANGE_PAGES: u64 = 256;

/// Where a page that is to become local comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// It was never written.
    New,
    /// It lies in a slot.
    Stored,
}

impl<K: Kernel> Worker<K> {
    /// Charges pages to the local limit, evicting as needed.
    pub(crate) fn charge(&mut self, pages: u64, origin: Origin) -> Result<(), Failure> {
        let mut waiting_since_ns = None;
        loop {
            if self.try_charge(pages) {
                return Ok(());
            }
            let now = K::now_ns();
            let waited_ns = now - *waiting_since_ns.get_or_insert(now);
            let mut all_pinned = false;
            if self.holds_less_than_its_share() && waited_ns < OTHERS_PATIENCE_NS {
                self.ask_the_largest();
            } else {
                let refused_before = self.evictions_refused();
                if self.evict_batch() > 0 {
                    continue;
                }
                all_pinned = self.evictions_refused() > refused_before && self.inactive_len() == 0;
            }
            if self.engine.gate.is_frozen() {
                return Err(Failure::Retry);
            }
            let error = self.engine.last_store_error().clone();
            // What is stored must come in from a full store: then its slot is free.
            let is_exchange = origin == Origin::Stored && matches!(error, Some(StoreError::Full { .. }));
            if is_exchange
                && !planted!(K, "stored-page-refused-when-full")
                && self.at.run.budget().try_charge_beyond(1, EXCHANGE_PAGES)
            {
                self.at.add_local(1);
                return Ok(());
            }
            let may_take_others = matches!(error, Some(StoreError::Io { .. })) && !self.slabs.is_vain();
            let store_failed =
                error.is_some() && !is_exchange && !may_take_others && waited_ns > OTHERS_PATIENCE_NS;
            let none_can_go =
                (all_pinned || is_exchange || may_take_others) && waited_ns > PINNED_PATIENCE_NS;
            if store_failed || none_can_go || waited_ns > PATIENCE_NS {
                return Err(Failure::Refused(self.why_no_room()));
            }
            K::sleep(Duration::from_micros(100));
        }
    }

    /// Charges as many of `wanted` pages as there is room for without an eviction. Returns how many.
    pub(crate) fn charge_ahead(&self, wanted: usize) -> usize {
        let room = (self.at.run.budget().headroom_pages() as usize).min(wanted);
        if planted!(K, "followers-not-charged") {
            return room;
        }
        if room > 0 && self.try_charge(room as u64) { room } else { 0 }
    }

    /// Makes room for the next block, while no page is locked.
    pub(crate) fn make_room_ahead(&mut self) {
        let batches = self.last_block_pages.div_ceil(BATCH_PAGES);
        for _ in 0..batches {
            let has_room = self.at.run.budget().headroom_pages() >= self.last_block_pages as u64;
            if has_room || self.holds_less_than_its_share() || self.evict_batch() == 0 {
                return;
            }
        }
    }

    fn evictions_refused(&self) -> u64 {
        self.at.run.counter(Counter::EvictionsRefused).load(Ordering::Relaxed)
    }

    /// Charges pages if there is room.
    pub(crate) fn try_charge(&self, pages: u64) -> bool {
        let charged = self.at.run.budget().try_charge(pages);
        K::turn();
        if charged {
            if planted!(K, "room-charged-twice") {
                let _ = self.at.run.budget().try_charge(pages);
            }
            self.at.add_local(pages);
        }
        if self.is_short() || self.is_scan_due() {
            self.at.wake_evictor();
        }
        charged
    }

    /// Little can be charged at once. Where writing takes long the evictor does it beside the program, but
    /// not where a handler evicts in place: the evictor must unmap each page, and interrupts the program for
    /// it.
    pub(crate) fn is_short(&self) -> bool {
        let headroom_pages = self.at.run.budget().headroom_pages();
        headroom_pages < self.at.low_headroom_pages
            || (self.at.writes_long
                && !self.engine.evicts_in_place.load(Ordering::Relaxed)
                && headroom_pages < self.at.headroom_pages
                && self.engine.written_share.is_most())
    }

    pub(crate) fn holds_less_than_its_share(&self) -> bool {
        let run = self.at.run;
        let count = run.process_count().max(1);
        let local = self.at.process().local_pages().load(Ordering::Relaxed);
        count > 1 && local * count * 2 < run.budget().limit_pages.load(Ordering::Relaxed)
    }

    fn ask_the_largest(&self) {
        let run = self.at.run;
        let local = |entry: &usize| run.process(*entry).local_pages().load(Ordering::Relaxed);
        if let Some(largest) = run.processes().filter(|&entry| entry != self.at.entry).max_by_key(local) {
            run.process(largest).requested_pages().store(REQUEST_PAGES, Ordering::Release);
            self.at.wake_evictor_of(largest);
        }
    }

    pub(crate) fn why_no_room(&self) -> PageError {
        let reason = match &*self.engine.last_store_error() {
            Some(error) => error.to_string(),
            // A slot that came free has cleared the error, and is taken again.
            None if self.engine.stores_full.load(Ordering::Relaxed) => "every store is full".to_owned(),
            None if self.holds_less_than_its_share() => {
                "the other processes of the run hold the local memory, and can give none of it".to_owned()
            }
            None => "all local pages are pinned, or the local limit is too small for the program".to_owned(),
        };
        PageError::NoRoom { reason }
    }
}
