//! Blocks on their way out: the pages of an elastic block ([`crate::fault::elastic`]) leave together, and
//! once the last has left the block is taken apart unless more than half were referenced (dcm, section 4.2).
//!
//! *Referenced* is a page that a fault asked for while it was local, or whose accessed bit was found set: by
//! a scan ([`crate::threads::use_scan`]), or as the page was unmapped, which is when the paper looks. The
//! bits of pages that came along with another are cleared as they come, or what brought them would look like
//! a use; a use at that very moment is missed. Where the machine lets no process read its accessed bits, what
//! faults asked for is all that is known, and blocks are taken apart that were used.
//!
//! Of static blocks the same is noted, for the statistics alone.

use std::ops::Range;
use std::sync::atomic::Ordering;

use spillway_core::fifo::Entry;
use spillway_core::page_word::{PageInfo, Queue};
use spillway_policy::blocks::Orders;
use spillway_policy::fault_trace::{Purpose, Traced, TracedBlocks};
use spillway_policy::use_history;

use crate::evict::write_back::BATCH_PAGES;
use crate::kernel::{Kernel, planted};
use crate::pages::address::target;
use crate::process::worker::Worker;
use crate::run::settings::Block;
use crate::run::state::Counter;

/// Blocks are taken whole up to so many pages in a batch; what is left of one leaves with the next.
const MOST_VICTIMS: usize = 2 * BATCH_PAGES;

impl<K: Kernel> Worker<K> {
    /// Whether it is noted which pages of blocks are used.
    pub(crate) fn watches_use(&self) -> bool {
        self.at.settings.block != Block::Streams && self.at.max_block_pages > 1
    }

    /// A page was used.
    pub(crate) fn note_used(&self, page_number: u64) {
        if self.watches_use() {
            self.engine.table.note_used(page_number);
        }
    }

    /// Begins to watch whether pages are used that came along with another.
    pub(crate) fn watch_use(&self, followers: &[(u64, PageInfo)]) {
        if self.watches_use() {
            followers.iter().for_each(|(page_number, _)| self.engine.table.note_ahead(*page_number));
            self.forget_uses(followers);
        }
    }

    /// Clears the accessed bits of pages that have just been mapped.
    pub(crate) fn forget_uses(&self, pages: &[(u64, PageInfo)]) {
        if self.engine.use_scan.is_stopped() {
            return;
        }
        for run in pages.chunk_by(|(a, _), (b, _)| *b == *a + 1) {
            self.at.kernel.forget_accesses(target(run[0].0, run.len()));
        }
    }

    /// How much a page is in use, or any other of its block.
    pub(crate) fn rank(&self, page_number: u64) -> u8 {
        let rank = |page_number| self.engine.use_rank(page_number);
        if !self.is_elastic() {
            return rank(page_number);
        }
        let known = |rank: &u8| *rank != use_history::UNKNOWN;
        self.blocks().pages(page_number).map(rank).filter(known).max().unwrap_or(use_history::UNKNOWN)
    }

    /// What was done to one page of a block is done to the others that are mapped: they go to a queue, or are
    /// among the victims.
    pub(crate) fn take_block_along(
        &self,
        page_number: u64,
        queue: Option<Queue>,
        victims: &mut Vec<(u64, PageInfo)>,
        replacement: &mut Traced,
    ) {
        // While the stores are full, what cannot be stored comes back: no more is tried than has a chance.
        if !self.is_elastic() || self.engine.stores_full.load(Ordering::Relaxed) {
            return;
        }
        let trace = replacement.is_recorded().then_some(&mut *replacement);
        let members = TracedBlocks { blocks: self.blocks(), trace }.members(page_number);
        for member in members.filter(|member| *member != page_number) {
            let Some(info) = self.lock_mapped(member) else { continue };
            match queue {
                Some(queue) => {
                    let next = info.moved_to(queue);
                    self.unlock_page(member, next);
                    let entry = Entry { page_number: member, generation: next.generation };
                    self.engine.put(replacement, queue, entry);
                }
                None if victims.len() >= MOST_VICTIMS || self.engine.holds.covers(member) => {
                    self.unlock_page(member, info);
                }
                None => {
                    self.engine.begin_to_leave(member);
                    victims.push((member, info));
                }
            }
        }
    }

    /// Reads which of the victims were used, where they came along with another and nothing has said so yet.
    pub(crate) fn read_uses(&self, victims: &[(u64, PageInfo)]) {
        // In inline mode this may be a thread of the program's, which has no way to look.
        let may_read = self.watches_use()
            && !self.engine.use_scan.is_stopped()
            && !self.at.kernel.is_inline()
            && self.at.kernel.reads_own_accesses()
            && self.at.run.counter(Counter::UseScans).load(Ordering::Relaxed) > 0;
        if !may_read {
            return;
        }
        let table = &self.engine.table;
        let is_open = |page_number: &u64| table.is_ahead(*page_number) && !table.is_used(*page_number);
        let mut open: Vec<u64> =
            victims.iter().map(|(page_number, _)| *page_number).filter(is_open).collect();
        open.sort_unstable();
        for run in open.chunk_by(|a, b| *b == *a + 1) {
            let _ = self.at.kernel.accesses(target(run[0], run.len()), &mut |page_number, accessed| {
                if accessed {
                    table.note_used(page_number);
                }
            });
        }
    }

    /// Notes that a page has left.
    pub(crate) fn note_left(&mut self, page_number: u64) {
        if self.watches_use() {
            self.left.push(page_number);
        }
    }

    /// REDUCE for the blocks whose last page has left.
    pub(crate) fn settle_left(&mut self) {
        if self.left.is_empty() {
            return;
        }
        let left = std::mem::take(&mut self.left);
        let table = &self.engine.table;
        let ahead: Vec<u64> = left.iter().copied().filter(|page| table.take_ahead(*page)).collect();
        let used = ahead.iter().filter(|page| table.is_used(**page)).count();
        self.at.run.count(Counter::PagesAheadLeft, ahead.len() as u64);
        self.at.run.count(Counter::PagesAheadUsed, used as u64);
        let mut blocks: Vec<Range<u64>> = left.iter().map(|page| self.blocks().pages(*page)).collect();
        blocks.sort_unstable_by_key(|block| block.start);
        blocks.dedup();
        blocks.into_iter().for_each(|block| self.reduce_left(block.start));
    }

    /// REDUCE, if nothing of the block is local any more. Where somebody has it, it is on its way in again.
    fn reduce_left(&self, page_number: u64) {
        let table = &self.engine.table;
        let find = |head| table.find(head).and_then(|word| self.try_lock(word));
        let unlock = |head, info| self.unlock_page(head, info);
        let locked = self.with_blocks(|blocks| blocks.lock(page_number, Purpose::Reduce, find, unlock));
        let Some((block, head)) = locked else { return };
        let is_block = || self.blocks().pages(page_number) == block;
        K::must_hold("a block that is locked is that of its page", is_block);
        let is_local = |page| table.find(page).is_some_and(|word| word.peek().is_local());
        if !block.clone().any(is_local) {
            let order = self.blocks().order(page_number);
            if self.with_blocks(|blocks| blocks.reduce(page_number, |page| table.is_used(page))) {
                self.at.run.count(Counter::BlocksReduced, 1);
                if planted!(K, "reduce-forgets-a-member") {
                    table.set_order(block.end - 1, order);
                }
            }
            block.clone().for_each(|page| table.forget_use(page));
        }
        self.unlock_page(block.start, head);
    }
}
