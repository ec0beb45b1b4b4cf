//! Fetching: a far page and what belongs to its block, from the store to where they belong.

use std::sync::atomic::Ordering;

use spillway_core::page::{PAGE_SIZE, Page};
use spillway_core::page_word::{PageInfo, State};
use spillway_core::slots::{CHECKSUM_BITS, Checksum};
use spillway_core::transitions::{Service, served};
use spillway_store::{ReadRequest, StoreError};
use spillway_sys::memory;

use crate::charge::Comes;
use crate::engine::{Bounce, Failure, Lost, Worker, address_of};
use crate::fault::Access;
use crate::run_state::Counter;
use crate::settings::Block;

/// Checksum of a page: xxh3, against accidents.
#[must_use]
pub fn checksum(page: &Page) -> Checksum {
    twox_hash::XxHash3_128::oneshot(page) >> (128 - CHECKSUM_BITS)
}

impl Worker {
    /// Brings a locked far page in, and what belongs to its block. Returns the page as it is then; the others are settled.
    pub(crate) fn fetch_block(
        &mut self,
        page_number: u64,
        info: PageInfo,
        slot: u32,
        access: Access,
    ) -> Result<PageInfo, Failure> {
        let Some(store) = self.at.store_of(slot) else {
            return Err(Lost::Checksum { store: format!("of slot {slot}") }.into());
        };
        if let Some(page) = self.lanes[store].page(slot - self.at.stores[store].range.start) {
            memory::prefetch(page);
        }
        let block = self.block(page_number);
        let wanted = (block.end - block.start) as usize;
        // The page itself may have to wait for room; its followers are locked only after that, and never wait: an eviction
        // locks pages too.
        self.charge(1, Comes::Stored)?;
        let mut followers = self.lock_followers(page_number, store, &block);
        // What is read ahead has its room made by the evictor.
        self.last_block_pages = 1 + followers.len();
        let ahead = self.charge_ahead(followers.len());
        self.leave_far(&mut followers, ahead);
        let is_elastic = self.at.settings.block == Block::Elastic;
        if is_elastic {
            let end = self.note_block(page_number, wanted, &followers);
            self.ask_ahead(page_number, end, wanted, access);
        }
        let epoch = self.protection(page_number, access != Access::Read, 1 + followers.len());
        let expected = followers.len();
        let epoch = match self.fetch_pages(page_number, slot, store, &mut followers, epoch) {
            Ok(epoch) => epoch,
            Err(failure) => {
                self.leave_far(&mut followers, 0);
                return Err(failure);
            }
        };
        if is_elastic && followers.len() < expected {
            self.note_block(page_number, wanted, &followers);
        }
        self.at.run.count_block(1 + followers.len());
        // A block is promoted as a whole, or its pages would leave one by one later.
        let state = self.state_of_returner(info);
        self.settle_followers(&followers, state, epoch);
        Ok(self.fetched(page_number, info, slot, state, epoch))
    }

    /// The state in which a far page comes back.
    pub(crate) fn state_of_returner(&self, info: PageInfo) -> State {
        let away_pages = self.engine.departures.since(info.frame);
        let local_pages = self.at.run.budget().limit_pages.load(Ordering::Relaxed);
        self.engine.replacement().state_of_returner(away_pages, local_pages)
    }

    /// Fetches the page and its followers, all charged; those that do not come are left far. They are mapped protected
    /// unless `epoch` is 0; returns in which epoch they were. An error speaks of the first page.
    pub(crate) fn fetch_pages(
        &mut self,
        page_number: u64,
        slot: u32,
        store: usize,
        followers: &mut Vec<(u64, PageInfo)>,
        epoch: u32,
    ) -> Result<u32, Failure> {
        let charged = 1 + followers.len();
        let ahead = followers.iter().filter_map(|(number, info)| Some((*number, info.slot?)));
        let pages: Vec<(u64, u32)> = std::iter::once((page_number, slot)).chain(ahead).collect();
        let (good, error) = self.read(store, &pages);
        if good == 0 {
            self.at.release_local(charged as u64);
            return Err(error.unwrap_or(Lost::EmptyFrame).into());
        }
        self.at.release_local((charged - good) as u64);
        self.leave_far(followers, good - 1);
        self.note_answer();
        let copied = self.copy_in(&pages[..good], epoch != 0);
        if copied == 0 {
            self.at.release_local(good as u64 - 1);
            self.leave_far(followers, 0);
            return self.map_copy_charged(page_number, self.fetched_at[0], true).map(|()| 0);
        }
        self.at.release_local((good - copied) as u64);
        self.leave_far(followers, copied - 1);
        Ok(epoch)
    }

    /// Copies pages from where they were fetched to where they belong, a call for each run of neighbours. Returns how many
    /// went, from the first on.
    fn copy_in(&self, pages: &[(u64, u32)], protected: bool) -> usize {
        let mut copied = 0;
        while let Some(&(first, _)) = pages.get(copied) {
            let from = &self.fetched_at[copied..];
            let run = (1..pages.len() - copied)
                .find(|&i| pages[copied + i].0 != first + i as u64 || from[i] != from[0] + i * PAGE_SIZE)
                .unwrap_or(pages.len() - copied);
            let went = self
                .at
                .managed()
                .copy_pages(address_of(first), from[0], run * PAGE_SIZE, protected)
                .map_or(0, |bytes| bytes / PAGE_SIZE);
            copied += went;
            if went < run {
                break;
            }
        }
        copied
    }

    /// A fetched page's word.
    fn fetched(&mut self, page_number: u64, info: PageInfo, slot: u32, state: State, epoch: u32) -> PageInfo {
        let mut next = served(info, Service::Fetch(slot), state).protected_in(epoch);
        // Where others hold the slot too, giving it up makes no room, and keeping it saves a write.
        if self.stores_are_crowded(1) && !self.at.run.slots().is_shared(slot) {
            self.drop_slot(next.slot.take());
            if epoch != 0 {
                next = self.unprotect(page_number, next);
            }
        }
        next
    }

    pub(crate) fn settle_followers(&mut self, followers: &[(u64, PageInfo)], state: State, epoch: u32) {
        self.at.run.count(Counter::PagesFetchedAhead, followers.len() as u64);
        for &(page_number, info) in followers {
            let (Some(slot), Some(word)) = (info.slot, self.engine.table.find(page_number)) else { continue };
            let next = self.fetched(page_number, info, slot, state, epoch);
            self.unlock(page_number, word, next);
            self.engine.enqueue(page_number, next);
        }
    }

    /// Unlocks all but the first `kept` followers as they were.
    pub(crate) fn leave_far(&self, followers: &mut Vec<(u64, PageInfo)>, kept: usize) {
        for (page_number, info) in followers.drain(kept.min(followers.len())..) {
            if let Some(word) = self.engine.table.find(page_number) {
                self.unlock(page_number, word, info);
            }
        }
    }

    /// Fetches a page from its slot and checks it. Returns where it lies until the next is fetched.
    pub(crate) fn fetch(&mut self, page_number: u64, slot: u32) -> Result<usize, Lost> {
        let Some(store) = self.at.store_of(slot) else {
            return Err(Lost::Checksum { store: format!("of slot {slot}") });
        };
        match self.read(store, &[(page_number, slot)]) {
            (1, _) => Ok(self.fetched_at[0]),
            (_, error) => Err(error.unwrap_or(Lost::EmptyFrame)),
        }
    }

    /// Fetches pages from their slots of one store and checks them; `fetched_at` says where they lie. Returns how many
    /// came right, from the first on, and what is wrong with the next.
    fn read(&mut self, store: usize, pages: &[(u64, u32)]) -> (usize, Option<Lost>) {
        let at = self.at;
        let open = &at.stores[store];
        self.fetched_at.clear();
        let in_place =
            pages.first().is_some_and(|(_, slot)| self.lanes[store].page(slot - open.range.start).is_some());
        let outcomes = if in_place { Vec::new() } else { self.read_to_bounce(store, pages) };
        let mut outcomes = outcomes.into_iter();
        let mut lost = None;
        for (i, &(page_number, slot)) in pages.iter().enumerate() {
            if let Some(Err(error)) = outcomes.next() {
                lost = Some(error.into());
                break;
            }
            // The slot is this page's while its word is locked, so nobody writes there.
            let page = match in_place {
                true => self.lanes[store].page(slot - open.range.start),
                false => self.bounce.get(i).map(|bounce| &bounce.0),
            };
            let contents = at.run.slots().contents(slot);
            let Some(page) = page.filter(|page| checksum(page) == contents.checksum) else {
                lost = Some(Lost::Checksum { store: open.store.uri().to_owned() });
                break;
            };
            if !contents.is_of(page_number) {
                lost = Some(Lost::ForeignSlot);
                break;
            }
            self.fetched_at.push(page.as_ptr().expose_provenance());
        }
        let good = self.fetched_at.len();
        at.run.count(Counter::PagesFetched, good as u64);
        at.run.count(Counter::BytesIn, (good * PAGE_SIZE) as u64);
        (good, lost)
    }

    fn read_to_bounce(&mut self, store: usize, pages: &[(u64, u32)]) -> Vec<Result<(), StoreError>> {
        let first_slot = self.at.stores[store].range.start;
        self.bounce.resize_with(pages.len().max(self.bounce.len()), || Bounce([0; _]));
        let mut batch: Vec<ReadRequest<'_>> = pages
            .iter()
            .zip(&mut self.bounce)
            .map(|((_, slot), page)| ReadRequest {
                slot: slot - first_slot,
                page: &mut page.0,
                outcome: Ok(()),
            })
            .collect();
        self.lanes[store].read(&mut batch);
        batch.into_iter().map(|request| request.outcome).collect()
    }
}
