//! Fetching: a far page and what belongs to its block, from the store to where they belong.

use std::sync::atomic::Ordering;

use spillway_core::page::{PAGE_SIZE, Page};
use spillway_core::page_word::{Epoch, PageInfo, PageState, Queue};
use spillway_core::transitions::fetched;
use spillway_policy::fault_trace::{Block as Came, Cause, Event};
use spillway_policy::use_history::UseHistory;
use spillway_store::{ReadRequest, StoreError};
use spillway_sys::memory;

use crate::evict::charge::Origin;
use crate::fault::access::Access;
use crate::fault::elastic::HeldBlock;
use crate::kernel::{Kernel, planted};
use crate::pages::address::target;
use crate::pages::checksum::checksum;
use crate::pages::error::{Failure, PageError};
use crate::process::worker::{Bounce, Worker};
use crate::run::settings::Block;
use crate::run::state::Counter;

/// Where so many pages are wanted at once it is a stream that wants them.
const STREAM_PAGES: usize = 16;

impl<K: Kernel> Worker<K> {
    /// Brings a locked far page in, and what belongs to its block. Returns the page as it is then; the others
    /// are settled.
    pub(crate) fn fetch_block(
        &mut self,
        page_number: u64,
        info: PageInfo,
        slot: u32,
        access: Access,
    ) -> Result<PageInfo, Failure> {
        let Some(store) = self.at.store_of(slot) else {
            return Err(PageError::Checksum { store: format!("of slot {slot}") }.into());
        };
        if let Some(next) = self.move_stage_in(page_number, info)? {
            return Ok(next);
        }
        if let Some(page) = self.lanes[store].page(slot - self.at.stores[store].range.start) {
            memory::prefetch(page);
        }
        let overlaps = self.overlaps(store);
        if !overlaps {
            // The page itself may have to wait for room; its followers are locked only after that, and never
            // wait: an eviction locks pages too.
            self.charge(1, Origin::Stored)?;
        }
        let mut block = self.block(page_number, store);
        let mut followers = match overlaps {
            true => self.post_block(page_number, slot, store, &mut block),
            false => self.charge_followers(page_number, store, &mut block),
        };
        let has_streams = self.at.settings.block == Block::Streams;
        if has_streams {
            let came = self.note_block(page_number, &block, &followers);
            let pages = (block.pages.end - block.pages.start) as usize;
            self.ask_ahead(page_number, block.direction, &came, pages, access);
            self.note_foreseen(&block.foreseen, &followers);
        }
        // What loses its copy at once need not be protected for it.
        let may_change = access != Access::Read || self.keeps_no_copies(slot);
        let epoch = self.protection(page_number, may_change, 1 + followers.len());
        let expected = followers.len();
        if overlaps {
            self.charge_meanwhile(page_number, &mut block, &mut followers)?;
        }
        let epoch = match self.fetch_pages(page_number, slot, store, &mut followers, epoch) {
            Ok(epoch) => epoch,
            Err(failure) => {
                self.leave_far(&mut followers, 0);
                self.unlock_head(block);
                return Err(failure);
            }
        };
        if has_streams && followers.len() < expected {
            self.note_block(page_number, &block, &followers);
        }
        let (wanted_pages, came_pages) = (block.wanted() as u64, 1 + followers.len() as u64);
        self.engine
            .note(|| Event::Block(Came { cause: Cause::Fetch, page_number, wanted_pages, came_pages }));
        self.at.run.count_block(1 + followers.len());
        // A block is promoted as a whole, or its pages would leave one by one later.
        let grown = self.stretch_fetched(page_number, &block, &followers);
        let queue = grown.unwrap_or_else(|| self.queue_of_returner(info));
        self.watch_use(&followers);
        self.note_streamed(&block, std::iter::once(page_number).chain(followers.iter().map(|page| page.0)));
        self.settle_followers(&followers, queue, epoch);
        self.unlock_head(block);
        Ok(self.settle_fetched(page_number, info, slot, queue, epoch, access == Access::Write))
    }

    /// Locks what belongs to the block of a page that is charged, and charges what can be: those are
    /// returned.
    fn charge_followers(
        &mut self,
        page_number: u64,
        store: usize,
        block: &mut HeldBlock,
    ) -> Vec<(u64, PageInfo)> {
        let mut followers = self.lock_followers(page_number, store, block);
        self.head_comes_along(block, store, &mut followers);
        // What is read ahead has its room made by the evictor.
        self.last_block_pages = 1 + followers.len();
        let by_tape = block.foreseen.is_by_tape;
        let is_free = planted!(K, "foreseen-not-charged") && !block.foreseen.is_empty()
            || planted!(K, "taped-not-charged") && by_tape;
        let ahead = if is_free { followers.len() } else { self.charge_ahead(followers.len()) };
        self.leave_far(&mut followers, ahead);
        block.sort(&mut followers);
        followers
    }

    /// The queue in which a far page comes back.
    pub(crate) fn queue_of_returner(&self, info: PageInfo) -> Queue {
        let PageState::Far { left, .. } = info.state else { return Queue::Active };
        let away_pages = self.engine.departures.since(left);
        let local_pages = self.at.run.budget().limit_pages.load(Ordering::Relaxed);
        self.returners_queue(away_pages, local_pages)
    }

    /// Fetches the page and its followers, all charged; those that do not come are left far. They are mapped
    /// protected if there is an `epoch`; returns in which epoch they were. An error speaks of the first page.
    pub(crate) fn fetch_pages(
        &mut self,
        page_number: u64,
        slot: u32,
        store: usize,
        followers: &mut Vec<(u64, PageInfo)>,
        epoch: Option<Epoch>,
    ) -> Result<Option<Epoch>, Failure> {
        let charged = 1 + followers.len();
        let ahead = followers.iter().filter_map(|(number, info)| Some((*number, info.slot()?)));
        let pages: Vec<(u64, u32)> = std::iter::once((page_number, slot)).chain(ahead).collect();
        let (good, error) = self.read(store, &pages);
        if good == 0 {
            self.at.release_local(charged as u64);
            return Err(error.unwrap_or(PageError::EmptyFrame).into());
        }
        self.at.release_local((charged - good) as u64);
        self.leave_far(followers, good - 1);
        self.note_answer();
        let copied = self.copy_in(&pages[..good], epoch.is_some());
        if copied == 0 {
            self.at.release_local(good as u64 - 1);
            self.leave_far(followers, 0);
            return self.map_fetched(page_number, true).map(|()| None);
        }
        self.at.release_local((good - copied) as u64);
        self.leave_far(followers, copied - 1);
        Ok(epoch)
    }

    /// Copies pages from where they were fetched to where they belong, a call for each run of neighbours.
    /// Returns how many went, from the first on.
    fn copy_in(&self, pages: &[(u64, u32)], protected: bool) -> usize {
        let mut copied = 0;
        while let Some(&(first, _)) = pages.get(copied) {
            let run = (1..pages.len() - copied)
                .find(|&i| pages[copied + i].0 != first + i as u64 || !self.fetched.goes_on_at(copied + i))
                .unwrap_or(pages.len() - copied);
            let to = target(first, run);
            let outcome = self.at.kernel.copy(to, self.fetched.run(copied, run), protected);
            let went = outcome.map_or(0, |bytes| bytes / PAGE_SIZE);
            copied += went;
            if went < run {
                break;
            }
        }
        copied
    }

    /// What a page's word says once it was fetched, for a write or not. Its copy is given up where it is not
    /// worth its room.
    pub(crate) fn settle_fetched(
        &mut self,
        page_number: u64,
        info: PageInfo,
        slot: u32,
        queue: Queue,
        epoch: Option<Epoch>,
        is_written: bool,
    ) -> PageInfo {
        let next = fetched(info, slot, queue, epoch);
        let is_written = is_written || epoch.is_none() && self.is_written_soon(page_number);
        if !self.gives_copy_up(slot, is_written) {
            return next;
        }
        self.drop_slot(Some(slot));
        // Without a copy it is not clean, and must not look protected.
        let next = next.without_slot();
        if epoch.is_some() { self.unprotect(page_number, next) } else { next }
    }

    /// Unlocks and queues pages that were fetched together with another.
    pub(crate) fn settle_followers(
        &mut self,
        followers: &[(u64, PageInfo)],
        queue: Queue,
        epoch: Option<Epoch>,
    ) {
        self.at.run.count_of(self.at.entry, Counter::PagesFetchedAhead, followers.len() as u64);
        for &(page_number, info) in followers {
            let (Some(slot), Some(word)) = (info.slot(), self.engine.table.find(page_number)) else {
                continue;
            };
            let next = self.settle_fetched(page_number, info, slot, queue, epoch, false);
            self.unlock(page_number, word, next);
            self.enqueue(page_number, next);
        }
    }

    /// Where pages come in a stream's block, that is what is known of their use.
    pub(crate) fn note_streamed(&self, block: &HeldBlock, pages: impl Iterator<Item = u64>) {
        if block.wanted() >= STREAM_PAGES && self.engine.foretells_use() {
            pages.for_each(|page_number| self.engine.table.set_use(page_number, UseHistory::STREAMED));
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

    /// Fetches a page from its slot and checks it: the only one among the fetched pages then.
    pub(crate) fn fetch(&mut self, page_number: u64, slot: u32) -> Result<(), PageError> {
        let Some(store) = self.at.store_of(slot) else {
            return Err(PageError::Checksum { store: format!("of slot {slot}") });
        };
        match self.read(store, &[(page_number, slot)]) {
            (1, _) => Ok(()),
            (_, error) => Err(error.unwrap_or(PageError::EmptyFrame)),
        }
    }

    /// Fetches pages from their slots of one store and checks them; `fetched` says where they lie. Returns
    /// how many came right, from the first on, and what is wrong with the next. What failed or came wrong was
    /// read again by then ([`crate::fault::read_again`]).
    pub(crate) fn read(&mut self, store: usize, pages: &[(u64, u32)]) -> (usize, Option<PageError>) {
        let at = self.at;
        self.fetched.clear();
        let in_place = pages.iter().all(|&(_, slot)| self.fetched_page(store, slot, None).is_some());
        let (good, lost) = match in_place {
            true => self.check(store, pages, 0, None),
            false => {
                let outcomes = self.read_to_bounce(store, pages.iter().map(|&(_, slot)| slot));
                let checked = self.check(store, pages, 0, Some(outcomes));
                self.read_again(store, pages, checked)
            }
        };
        for (i, &(_, slot)) in pages[..good].iter().enumerate() {
            if let Some(page) = self.fetched_page(store, slot, Some(i).filter(|_| !in_place)) {
                let page: *const Page = page;
                self.fetched.push(page);
            }
        }
        at.run.count_of(at.entry, Counter::PagesFetched, good as u64);
        at.run.store(store).count_fetched(good as u64);
        if lost.is_some() {
            at.run.store(store).count_failed_read(K::now_ns());
        }
        at.run.count(Counter::BytesIn, (good * PAGE_SIZE) as u64);
        (good, lost)
    }

    /// Where a page lies that was fetched: in this bounce page, or in the memory of its store.
    fn fetched_page(&self, store: usize, slot: u32, bounce: Option<usize>) -> Option<&Page> {
        match bounce {
            Some(index) => self.bounce.get(index).map(|bounce| &bounce.0),
            None => self.lanes[store].page(slot - self.at.stores[store].range.start),
        }
    }

    /// Checks pages from the `first` on, which have these `outcomes` in the bounce pages, or lie in the
    /// store's memory. Returns how many are right, those before included, and what is wrong with the next.
    pub(crate) fn check(
        &self,
        store: usize,
        pages: &[(u64, u32)],
        first: usize,
        outcomes: Option<Vec<Result<(), StoreError>>>,
    ) -> (usize, Option<PageError>) {
        let in_place = outcomes.is_none();
        let mut outcomes = outcomes.into_iter().flatten();
        for (i, &(page_number, slot)) in pages.iter().enumerate().skip(first) {
            if let Some(Err(error)) = outcomes.next() {
                return (i, Some(error.into()));
            }
            // The slot is this page's while its word is locked, so nobody writes there.
            let page = self.fetched_page(store, slot, Some(i).filter(|_| !in_place));
            let contents = self.at.run.slots().contents(slot);
            let goes_unchecked = planted!(K, "foreseen-unchecked") && page_number != pages[0].0 + i as u64;
            // A page that has opened is the one that was sealed for this slot.
            let goes_unchecked = goes_unchecked || self.at.stores[store].is_sealed();
            let is_right = |page: &Page| goes_unchecked || checksum(page) == contents.checksum;
            if !page.is_some_and(is_right) {
                let store = self.at.stores[store].store.uri().to_owned();
                return (i, Some(PageError::Checksum { store }));
            }
            if !contents.is_of(page_number) {
                return (i, Some(PageError::ForeignSlot));
            }
        }
        (pages.len(), None)
    }

    /// Fetches pages, whose read may be posted, into the bounce pages. Nothing is posted any more then.
    pub(crate) fn read_to_bounce(
        &mut self,
        store: usize,
        slots: impl ExactSizeIterator<Item = u32>,
    ) -> Vec<Result<(), StoreError>> {
        let first_slot = self.at.stores[store].range.start;
        self.bounce.resize_with(slots.len().max(self.bounce.len()), || Bounce([0; _]));
        let mut batch: Vec<ReadRequest<'_>> = slots
            .zip(&mut self.bounce)
            .map(|(slot, page)| ReadRequest { slot: slot - first_slot, page: &mut page.0, outcome: Ok(()) })
            .collect();
        match self.posted.take() {
            Some(_) if planted!(K, "posted-read-not-awaited") => {}
            Some(_) => self.lanes[store].complete_reads(&mut batch),
            None => self.lanes[store].read(&mut batch),
        }
        batch.into_iter().map(|request| request.outcome).collect()
    }
}
