//! The program discards contents, and keeps the mapping.

use std::ops::Range;
use std::time::Duration;

use spillway_core::page_word::{PageInfo, PageWord};
use spillway_policy::fault_trace::{Event, Left};

use crate::kernel::{Kernel, planted};
use crate::pages::address::{page_numbers, target_of};
use crate::process::worker::Worker;
use crate::space::gone::Gone;

/// The pages of so many bytes are locked at once.
const LEAF_BYTES: usize = 2 << 20;

impl<K: Kernel> Worker<K> {
    /// Drops the contents of what is native or managed of a range: it reads as zeros afterwards. Returns how
    /// many bytes that are.
    pub(crate) fn discard(&mut self, range: Range<usize>) -> usize {
        let native = self.discard_native(&range);
        let parts = self.engine.regions().within(&range);
        let managed = parts.iter().map(|(part, _)| part.len()).sum::<usize>();
        for (part, _) in parts {
            let mut start = part.start;
            while start < part.end {
                let end = part.end.min((start / LEAF_BYTES + 1) * LEAF_BYTES);
                self.discard_within_leaf(start..end);
                start = end;
            }
        }
        managed + native
    }

    fn discard_within_leaf(&mut self, range: Range<usize>) {
        let (from, to) = page_numbers(&range);
        if planted!(K, "discarded-before-locked") {
            let _ = self.at.kernel.discard(target_of(range.clone()));
        }
        // Even where nothing is held: a page that found no room has its mark in the kernel alone.
        let locked = self.lock_all(from, to);
        if !planted!(K, "discarded-before-locked") {
            let _ = self.at.kernel.discard(target_of(range));
        }
        let pages = to - from;
        self.engine.note(|| Event::Left { how: Left::Forgotten, page_number: from, pages });
        let mut gone = Gone::default();
        for (page_number, word, info) in locked {
            self.let_go(info, &mut gone);
            self.unlock(page_number, word, info.forgotten());
        }
        self.settle_gone_pages(gone);
    }

    /// Locks every page of a range that has a word. Waits for none while it holds another, since whoever
    /// holds that one may be waiting for room.
    fn lock_all(&self, from: u64, to: u64) -> Vec<(u64, PageWord<'static>, PageInfo)> {
        let engine = self.engine;
        loop {
            let mut locked = Vec::new();
            let all = engine.table.range(from, to).all(|(page_number, word)| {
                let info = self.try_lock(word);
                locked.extend(info.map(|info| (page_number, word, info)));
                info.is_some()
            });
            if all {
                return locked;
            }
            locked.into_iter().for_each(|(page_number, word, info)| self.unlock(page_number, word, info));
            K::sleep(Duration::from_micros(50));
        }
    }
}
