//! dcm's elastic blocks (sections 4.2 and 4.3), by the types that the lab runs too
//! ([`spillway_policy::blocks`]).
//!
//! - *The unit.* What belongs to a block comes at once, goes from queue to queue at once, and leaves at once
//!   ([`crate::evict::blocks`]). The queues are the pages' all the same: the program discards, moves, locks
//!   and shares pages, and a block may have holes. What the policy says of one page is done to its block.
//! - *The lock* of a block is that of its head's word (Algorithm 3). The fault has its own page's word
//!   already, and so only tries the head's: where somebody else has it, the page comes alone. Who waits for
//!   room lets the block go before, and locks it anew after ([`crate::fault::overlap`]).
//! - *STRETCH* once a fault, by a buddy whose head is mapped. Under the lock of the regions, so that no block
//!   reaches beyond them: a region that goes takes the blocks apart that reach into it
//!   (`take_regions` in [`crate::process::engine`]).
//!
//! A wrong order costs a fetch, never data: who fetches or evicts a block's pages locks each one's word, and
//! goes by what that says.

use std::ops::Range;

use spillway_core::fifo::Entry;
use spillway_core::page_word::{PageInfo, PageState, Queue};
use spillway_core::transitions::re_referenced;
use spillway_policy::blocks::Blocks;
use spillway_policy::fault_trace::{Purpose, TracedBlocks};
use spillway_policy::streams::Direction;

use crate::fault::followed::Foreseen;
use crate::kernel::{Kernel, planted};
use crate::pages::address::address_of;
use crate::pages::block_notes::AtFirstLook;
use crate::pages::table::PageTable;
use crate::process::worker::Worker;

/// A block for a fault, which has its own page locked.
pub(crate) struct HeldBlock {
    pub(crate) pages: Range<u64>,
    /// Which way they will be used.
    pub(crate) direction: Direction,
    /// Pages elsewhere that come too.
    pub(crate) foreseen: Foreseen,
    /// The head as it was locked, where it is another page than the fault's and stays as it is.
    head: Option<PageInfo>,
    /// The block is the fault's to stretch.
    is_locked: bool,
}

impl HeldBlock {
    /// Pages that no lock holds together.
    pub(crate) fn of(pages: Range<u64>) -> Self {
        let (direction, foreseen) = (Direction::Up, Foreseen::default());
        Self { pages, direction, foreseen, head: None, is_locked: false }
    }

    /// Pages of a stream.
    pub(crate) fn along(direction: Direction, pages: Range<u64>) -> Self {
        Self { direction, ..Self::of(pages) }
    }

    /// A page, and what is expected behind it.
    pub(crate) fn foreseen(page_number: u64, foreseen: Foreseen) -> Self {
        Self { foreseen, ..Self::of(page_number..page_number + 1) }
    }

    /// A word is locked for it beside that of its page.
    pub(crate) fn has_own_lock(&self) -> bool {
        self.head.is_some()
    }

    /// How many pages it would have.
    pub(crate) fn wanted(&self) -> usize {
        (self.pages.end - self.pages.start) as usize + self.foreseen.pages().len()
    }

    /// Brings followers from the order in which they are wanted into that in which they lie, so that
    /// neighbours are mapped by one call.
    pub(crate) fn sort(&self, followers: &mut [(u64, PageInfo)]) {
        if !self.foreseen.is_empty() || self.direction == Direction::Down {
            followers.sort_unstable_by_key(|(page_number, _)| *page_number);
        }
    }

    /// The pages that come with one of them, the most wanted first.
    pub(crate) fn others(&self, page_number: u64) -> impl Iterator<Item = u64> {
        let before = self.pages.start..page_number;
        let count = before.end - before.start;
        let (start, is_down) = (before.start, self.direction == Direction::Down);
        let before = (0..count).map(move |i| if is_down { page_number - 1 - i } else { start + i });
        let block = (page_number + 1..self.pages.end).chain(before);
        block.chain(self.foreseen.pages().iter().copied())
    }
}

impl<K: Kernel> Worker<K> {
    pub(crate) fn blocks(&self) -> Blocks<&'static PageTable> {
        Blocks::over(&self.engine.table, self.at.max_block_pages.ilog2() as u8)
    }

    /// Asks of blocks what changes them or hangs on them: written down where that is done. The caller does
    /// not hold the queues' lock.
    pub(crate) fn with_blocks<T>(
        &self,
        ask: impl FnOnce(&mut TracedBlocks<'_, &'static PageTable>) -> T,
    ) -> T {
        let mut trace = self.engine.trace();
        ask(&mut TracedBlocks { blocks: self.blocks(), trace: trace.as_deref_mut() })
    }

    /// For mistakes that are planted.
    fn blocks_at_first_look(&self) -> Blocks<AtFirstLook<'static>> {
        Blocks::over(AtFirstLook::new(&self.engine.table), self.at.max_block_pages.ilog2() as u8)
    }

    pub(crate) fn is_elastic(&self) -> bool {
        self.at.settings.block.is_elastic()
    }

    /// Locks the block of a locked page; that page alone where the head is busy.
    pub(crate) fn lock_block(&self, page_number: u64, purpose: Purpose) -> HeldBlock {
        let try_lock = |head: u64| match self.engine.table.find(head) {
            _ if head == page_number => Some(None),
            Some(word) => self.try_lock(word).map(Some),
            None => None,
        };
        let unlock = |head, info: Option<PageInfo>| {
            info.into_iter().for_each(|info| self.unlock_page(head, info));
        };
        let locked = match planted!(K, "block-not-looked-at-again") {
            true => self.blocks_at_first_look().lock(page_number, try_lock, unlock),
            false => self.with_blocks(|blocks| blocks.lock(page_number, purpose, try_lock, unlock)),
        };
        if let Some((pages, _)) = &locked {
            let is_block = || self.blocks().pages(page_number) == *pages;
            K::must_hold("a block that is locked is that of its page", is_block);
        }
        locked.map_or(HeldBlock::of(page_number..page_number + 1), |(pages, head)| HeldBlock {
            head,
            is_locked: true,
            ..HeldBlock::of(pages)
        })
    }

    /// A head that is far too is fetched first of the others.
    pub(crate) fn head_comes_along(
        &self,
        block: &mut HeldBlock,
        store: usize,
        followers: &mut Vec<(u64, PageInfo)>,
    ) {
        let is_here = |info: &PageInfo| {
            info.is_far() && info.slot().is_some_and(|slot| self.at.store_of(slot) == Some(store))
        };
        if let Some(info) = block.head.take_if(|info| is_here(info)) {
            followers.insert(0, (block.pages.start, info));
            if planted!(K, "head-settled-twice") {
                block.head = Some(info);
            }
        }
    }

    /// Lets go of a block of which nothing comes yet; its own page stays locked.
    pub(crate) fn let_block_go(&self, block: &mut HeldBlock) {
        let keeps = planted!(K, "block-kept-though-let-go");
        let head = if keeps { block.head } else { block.head.take() };
        if let Some(info) = head {
            self.unlock_page(block.pages.start, info);
        }
        if !keeps {
            block.is_locked = false;
        }
    }

    /// Unlocks a head that stayed as it was.
    pub(crate) fn unlock_head(&self, block: HeldBlock) {
        if let Some(info) = block.head {
            self.unlock_page(block.pages.start, info);
        }
    }

    pub(crate) fn unlock_page(&self, page_number: u64, info: PageInfo) {
        if let Some(word) = self.engine.table.find(page_number) {
            self.unlock(page_number, word, info);
        }
    }

    /// A page was touched for the first time. Returns where its block belongs, if that grew.
    pub(crate) fn grow_block(&self, page_number: u64) -> Option<Queue> {
        if !self.is_elastic() {
            return None;
        }
        let block = self.lock_block(page_number, Purpose::Grow);
        let queue = self.stretch_fetched(page_number, &block, &[]);
        self.unlock_head(block);
        queue
    }

    /// Stretches a block that was fetched with its locked `followers`. Returns where it belongs, if it was.
    pub(crate) fn stretch_fetched(
        &self,
        page_number: u64,
        block: &HeldBlock,
        followers: &[(u64, PageInfo)],
    ) -> Option<Queue> {
        let head = block.pages.start;
        let is_here = head == page_number
            || block.head.is_some_and(PageInfo::is_mapped)
            || followers.iter().any(|(follower, _)| *follower == head);
        if block.is_locked && is_here { self.stretch(page_number) } else { None }
    }

    /// STRETCH. The whole has its buddy's state, and an active buddy is the last to go, as if it had just
    /// come (Algorithm 1, lines 8 to 11).
    fn stretch(&self, page_number: u64) -> Option<Queue> {
        let mut locked = None;
        // Where it is written down, their lock comes before that of the queues.
        let mut regions = self.engine.is_recorded().then(|| self.engine.regions());
        let mut is_alike = true;
        let joins = |buddy, merged: Range<u64>| {
            locked = self.lock_mapped(buddy).map(|info| (buddy, info));
            if locked.is_none() {
                return false;
            }
            let regions = regions.get_or_insert_with(|| self.engine.regions());
            is_alike = self.blocks().order(buddy) == self.blocks().order(page_number);
            regions.cover(&(address_of(merged.start)..address_of(merged.end)))
        };
        let buddy = self.with_blocks(|blocks| blocks.stretch(page_number, joins));
        K::must_hold("a block is stretched by a buddy of its size", || buddy.is_none() || is_alike);
        drop(regions);
        let (head, info) = locked?;
        if buddy.is_none() {
            self.unlock_page(head, info);
            return None;
        }
        let pages = (1 << self.blocks().order(page_number)) / 2;
        Some(self.move_to_tail(head..head + pages, info))
    }

    /// Unlocks a buddy, and moves its pages to the tail if it is active. Returns its queue.
    fn move_to_tail(&self, buddy: Range<u64>, head: PageInfo) -> Queue {
        if head.queue() == Some(Queue::Proactive) {
            self.unlock_page(buddy.start, head);
            return Queue::Proactive;
        }
        let members = (buddy.start + 1..buddy.end)
            .filter_map(|member| self.lock_mapped(member).map(|info| (member, info)));
        let mut entries = Vec::new();
        for (page_number, info) in std::iter::once((buddy.start, head)).chain(members) {
            let next = info.moved_to(Queue::Active);
            self.unlock_page(page_number, next);
            entries.push(Entry { page_number, generation: next.generation });
        }
        let mut replacement = self.engine.replacement();
        entries.into_iter().for_each(|entry| self.engine.put(&mut replacement, Queue::Active, entry));
        Queue::Active
    }

    /// A page was touched while it was inactive: its block has a history now, and is mapped again with it.
    pub(crate) fn rescue_block(&self, page_number: u64) {
        if !self.is_elastic() {
            return;
        }
        let mut rescued = Vec::new();
        let members = self.with_blocks(|blocks| blocks.members(page_number));
        for member in members.filter(|member| *member != page_number) {
            let Some(word) = self.engine.table.find(member) else { continue };
            if word.peek().queue() != Some(Queue::Inactive) {
                continue;
            }
            let Some(info) = self.try_lock(word) else { continue };
            let PageState::Inactive { frame, .. } = info.state else {
                self.unlock(member, word, info);
                continue;
            };
            let next = self.remap(member, frame).map_or(info, |()| re_referenced(info));
            self.unlock(member, word, next);
            if next.is_mapped() {
                rescued.push((member, next));
                self.enqueue(member, next);
            }
        }
        self.forget_uses(&rescued);
    }

    /// Locks a page if it is mapped and nobody has it.
    pub(crate) fn lock_mapped(&self, page_number: u64) -> Option<PageInfo> {
        let word = self.engine.table.find(page_number)?;
        if !word.peek().is_mapped() {
            return None;
        }
        let info = self.try_lock(word)?;
        if info.is_mapped() {
            return Some(info);
        }
        self.unlock(page_number, word, info);
        None
    }
}
