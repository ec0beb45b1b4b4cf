//! Copies of local pages in a store that takes this machine's own memory.
//!
//! A page that was fetched keeps its slot: while it does not change, its eviction costs no write. Far away or
//! on a disk such a copy takes nothing that the program could use. In `compressed:` it takes of the very
//! memory that the limit is to save: a program whose pages compress to two thirds took more memory with half
//! of its pages local than without Spillway.
//!
//! So there a copy is given up that a write has made worthless or will soon ([`crate::evict::clean`] knows
//! where), and what comes in while there are more copies than `[pool.local] copy_share` allows keeps none.
//! Giving one up is always safe: the page is local, and is written when it leaves.

use std::sync::atomic::Ordering;

use spillway_core::page_word::PageInfo;
use spillway_store::LatencyClass;

use crate::kernel::{Kernel, planted};
use crate::process::attachment::OpenStore;
use crate::process::worker::Worker;
use crate::run::state::Counter;

impl<K: Kernel> Worker<K> {
    /// Whether the page that came from `slot` does better without a copy there. `is_written`: it is about to
    /// be written to.
    pub(crate) fn gives_copy_up(&mut self, slot: u32, is_written: bool) -> bool {
        // First, for it counts.
        let crowded = self.stores_are_crowded(1);
        let worthless = crowded || is_written && self.takes_own_memory(slot) || self.keeps_no_copies(slot);
        // Where others hold the slot too, giving it up makes no room, and keeping it saves a write.
        worthless && !self.at.run.slots().is_shared(slot)
    }

    /// There are copies enough in the store of this slot.
    pub(crate) fn keeps_no_copies(&self, slot: u32) -> bool {
        self.copies_abound && self.takes_own_memory(slot)
    }

    /// A locked mapped page that is being written to, without the copy that is worthless now.
    pub(crate) fn without_stale_copy(&mut self, info: PageInfo) -> PageInfo {
        let Some(slot) = info.slot().filter(|&slot| info.is_mapped() && self.takes_own_memory(slot)) else {
            return info;
        };
        if self.at.run.slots().is_shared(slot) {
            return info;
        }
        self.drop_slot(Some(slot));
        if planted!(K, "given-up-copy-kept") { info } else { info.without_slot() }
    }

    fn takes_own_memory(&self, slot: u32) -> bool {
        let store = self.at.store_of(slot);
        store.is_some_and(|store| self.at.stores[store].store.latency_class() == LatencyClass::Compression)
    }

    /// Whether there are more copies of local pages than the settings allow. An estimate: other processes'
    /// native pages count as managed, and a page that two processes hold far has one slot. `used_of_last`:
    /// slots in use of the last store, which were just counted.
    pub(crate) fn too_many_copies(&self, used_of_last: u64) -> bool {
        let share = self.at.settings.pool.copy_share;
        let is_own = |open: &OpenStore| open.store.latency_class() == LatencyClass::Compression;
        if share >= 1.0 || !self.at.stores.iter().any(is_own) {
            return false;
        }
        let run = self.at.run;
        let others = self.at.stores.iter().rev().skip(1);
        let used_slots = used_of_last + others.map(|open| run.slots().used(open.range.clone())).sum::<u64>();
        let native_pages = self.at.process().native_pages().load(Ordering::Relaxed);
        let local_pages = run.budget().local_pages.load(Ordering::Relaxed).saturating_sub(native_pages);
        let far_pages =
            run.counter(Counter::ManagedPages).load(Ordering::Relaxed).saturating_sub(local_pages);
        let limit_pages = run.budget().limit_pages.load(Ordering::Relaxed);
        used_slots.saturating_sub(far_pages) as f64 > share * limit_pages as f64
    }
}
