//! Overlap: a fault posts its read, makes room while the read is under way, then completes it (dcm, section
//! 3.3: "the fetching latency overlaps with the page reclamation").
//!
//! So nothing is evicted before a fetch from a store that answers later. The page comes into room that was
//! made beside an earlier fault, and the room that is made beside this one is for a later (3.4: "to serve
//! future page faults, not the currently pending one"). Of what leaves, pages that have not changed are
//! dropped and others unmapped; those for a store far away the evictor writes, so that no fault waits for a
//! write.
//!
//! Order: the page's word is locked, then that of its block's head where blocks are elastic, then those of
//! its followers; what can be charged at once is; the read is posted; room is made; what was not charged yet
//! is; the read is completed, checked and mapped. A page without a charge is never mapped. Where no room
//! comes, the read is completed and dropped, the followers are left far, the block is let go, and the fault
//! goes on as one without overlap: it waits for room with its own page's word alone, and locks the block anew
//! once it has it, as whatever that is by then.
//!
//! No deadlock: an eviction locks its victims only where nobody has them. It waits for a word in one place,
//! for a page of its own write-back that was touched meanwhile (`evict/write_back.rs`). Say that X, which
//! serves a fault, waits there for Y. Y locked that page after X's write-back had begun, for until then it
//! was X's to lock, and X locked all that it has before that. If Y waits in the same way, its write-back
//! began after it had locked what it has: the write-backs of those who wait for each other begin one after
//! the other, and a circle would have one begin before itself. A block's head is no exception: it is locked
//! before the read is posted, so before X's write-back begins, and only where nobody has it. For room nobody
//! waits here who has more than one word.
//!
//! Nothing dangles: the lane reads into memory of its own until the read is completed, and the slots are
//! those of locked pages, written by nobody meanwhile.

use spillway_core::page_word::PageInfo;
use spillway_policy::fault_trace::Purpose;
use spillway_policy::streams::Direction;

use crate::evict::charge::Origin;
use crate::evict::write_back::BATCH_PAGES;
use crate::fault::elastic::HeldBlock;
use crate::kernel::{Kernel, planted};
use crate::pages::error::Failure;
use crate::process::in_flight::{Pace, Posted};
use crate::process::worker::Worker;
use crate::run::state::Counter;

impl<K: Kernel> Worker<K> {
    /// Reads from this store are posted.
    pub(crate) fn overlaps(&self, store: usize) -> bool {
        self.at.settings.fetch.overlap && self.lanes[store].can_post()
    }

    /// A fault at this page will probably post its read.
    pub(crate) fn will_overlap(&self, page_number: u64) -> bool {
        let info = self.engine.table.find(page_number).map(|word| word.peek());
        let slot = info.filter(|info| info.is_far()).and_then(|info| info.slot());
        slot.and_then(|slot| self.at.store_of(slot)).is_some_and(|store| self.overlaps(store))
    }

    /// Posts the read of a locked far page and of what belongs to its block: those that can be charged at
    /// once, which are returned locked.
    pub(crate) fn post_block(
        &mut self,
        page_number: u64,
        slot: u32,
        store: usize,
        block: &mut HeldBlock,
    ) -> Vec<(u64, PageInfo)> {
        let is_charged = self.try_charge(1);
        let mut followers = self.lock_followers(page_number, store, block);
        let comes_late = planted!(K, "head-comes-unposted");
        if !comes_late {
            self.head_comes_along(block, store, &mut followers);
        }
        self.last_block_pages = 1 + followers.len();
        let ahead = if is_charged { self.charge_ahead(followers.len()) } else { 0 };
        self.leave_far(&mut followers, ahead);
        block.sort(&mut followers);
        let mut slots: Vec<u32> =
            std::iter::once(slot).chain(followers.iter().filter_map(|(_, info)| info.slot())).collect();
        if planted!(K, "posted-in-another-order") && block.direction == Direction::Down {
            slots[1..].reverse();
        }
        let first_slot = self.at.stores[store].range.start;
        let in_store: Vec<u32> = slots.iter().map(|slot| slot - first_slot).collect();
        self.lanes[store].post_reads(&in_store);
        self.at.run.count(Counter::ReadsPosted, 1);
        self.posted = Some(Posted { store, slots, is_charged });
        if comes_late {
            self.head_comes_along(block, store, &mut followers);
        }
        followers
    }

    /// Makes room while the posted read is under way. On success the page and its followers are charged;
    /// after a failure nothing of the block is locked.
    pub(crate) fn charge_meanwhile(
        &mut self,
        page_number: u64,
        block: &mut HeldBlock,
        followers: &mut Vec<(u64, PageInfo)>,
    ) -> Result<(), Failure> {
        self.make_room_beside();
        let is_charged = self.posted.as_ref().is_some_and(|posted| posted.is_charged);
        if is_charged || planted!(K, "mapped-before-charged") || self.try_charge(1) {
            return Ok(());
        }
        self.at.release_local(followers.len() as u64);
        if !planted!(K, "posted-read-forgotten") {
            self.drop_posted();
        }
        self.leave_far(followers, 0);
        let stays_held = planted!(K, "head-held-for-room");
        if !stays_held {
            self.let_block_go(block);
        }
        K::must_hold("who waits for room has no word but its page's", || !block.has_own_lock());
        self.charge(1, Origin::Stored)?;
        if self.is_elastic() && !stays_held && !planted!(K, "block-kept-though-let-go") {
            // Others may have stretched it meanwhile, or taken it apart.
            *block = self.lock_block(page_number, Purpose::Fetch);
        }
        Ok(())
    }

    /// Makes room for faults to come, where the evictor does not: a whole batch, for a page costs more in a
    /// part of one, unless the limit is small.
    fn make_room_beside(&mut self) {
        let batch_pages = BATCH_PAGES.min(self.at.headroom_pages as usize);
        let pages = self.last_block_pages.max(batch_pages);
        let wanted_pages = match self.at.low_headroom_pages as usize {
            // No evictor makes room for so few.
            0 => pages,
            // It is woken with so much left, and is behind where half of that is gone.
            low_headroom_pages => self.last_block_pages.max(low_headroom_pages / 2),
        };
        if self.at.run.budget().headroom_pages() >= wanted_pages as u64 || self.holds_less_than_its_share() {
            return;
        }
        self.pace = Pace::Beside(pages);
        self.evict_batch();
        self.pace = Pace::Batch;
    }

    /// Completes the posted read for nobody.
    fn drop_posted(&mut self) {
        if let Some(posted) = &self.posted {
            let (store, slots) = (posted.store, posted.slots.clone());
            self.read_to_bounce(store, slots.into_iter());
        }
    }
}
