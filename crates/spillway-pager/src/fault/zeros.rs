//! Pages that were never written: where their zeros come from.
//!
//! - A first *read* maps the page of zeros that the whole machine shares. It takes no memory, and is charged
//!   all the same: the kernel gives it a frame of its own at the first write, and tells nobody. A thread that
//!   is seen to write soon what it reads first ([`FirstReads`](spillway_policy::first_reads::FirstReads))
//!   gets what a first write gets.
//! - A first *write* needs a frame of zeros. Where faults form a stream, as for blocks that are fetched
//!   ([`crate::fault::block`]), a run of them comes at once: moved out of the
//!   [reserve](crate::pages::reserve) if it has them, else copied.
//! - A page that is fetched, or copied back, is never zeroed: UFFDIO_COPY fills frames that the kernel has
//!   not cleared.
//!
//! "Physical memory management on NVMM", section 5.1. Each byte that is zeroed for the program is counted, by
//! us or, after a first read, by the kernel: a page that was read first counts as zeroed unless it is seen to
//! have left unwritten.

use std::sync::atomic::Ordering;

use rustix::io::{Errno, Result as KernelResult};
use spillway_core::page::PAGE_SIZE;
use spillway_core::page_word::PageInfo;
use spillway_core::transitions::first_touched;
use spillway_policy::fault_trace::{Block as Came, Cause, Event};

use crate::evict::charge::Origin;
use crate::fault::access::Access;
use crate::kernel::Kernel;
use crate::pages::address::{address_of, target};
use crate::pages::error::Failure;
use crate::pages::reserve::LEAST_RUN_PAGES;
use crate::process::worker::Worker;
use crate::run::settings::Block;
use crate::run::state::Counter;

impl<K: Kernel> Worker<K> {
    /// Serves the first touch of a locked page. Returns it as it is then; pages mapped ahead are settled.
    pub(crate) fn first_touch(
        &mut self,
        page_number: u64,
        info: PageInfo,
        access: Access,
    ) -> Result<PageInfo, Failure> {
        let wanted = self.zero_run_pages(page_number);
        self.last_block_pages = wanted;
        self.note_zeros(page_number, wanted, wanted);
        let access = self.access_to_answer(page_number, access);
        let mut followers = Vec::new();
        let mapped = match self.map_reserved(page_number, wanted, access, &mut followers) {
            0 => self.map_charged_run(page_number, wanted, access, &mut followers)?,
            mapped => mapped,
        };
        if mapped < wanted {
            self.note_zeros(page_number, wanted, mapped);
        }
        self.at.add_managed(followers.len() as u64 + u64::from(info.is_absent()));
        self.engine.note(|| {
            let (wanted_pages, came_pages) = (wanted as u64, 1 + followers.len() as u64);
            Event::Block(Came { cause: Cause::Zeros, page_number, wanted_pages, came_pages })
        });
        // As a block that is fetched: promoted as a whole.
        let grown = self.grow_block(page_number);
        let queue = grown.unwrap_or_else(|| self.newcomers_queue());
        for (follower, info) in followers {
            let Some(word) = self.engine.table.find(follower) else { continue };
            let next = first_touched(info, queue);
            self.unlock(follower, word, next);
            self.enqueue(follower, next);
        }
        Ok(first_touched(info, queue))
    }

    /// A read that is to be answered as a write is: the thread writes there soon.
    fn access_to_answer(&mut self, page_number: u64, access: Access) -> Access {
        let kernel = &self.at.kernel;
        let was_written = |page_number| {
            let entry = kernel.page_map_entry(address_of(page_number))?;
            entry.is_populated().then(|| !entry.is_present_and_shared())
        };
        if access == Access::Read && self.first_reads.takes_frame(page_number, was_written) {
            Access::Write
        } else {
            access
        }
    }

    /// Pages to map for a first touch. While stores are full new memory may be refused: none is taken ahead.
    fn zero_run_pages(&self, page_number: u64) -> usize {
        let has_streams = self.at.settings.block == Block::Streams;
        if has_streams && !self.engine.stores_full.load(Ordering::Relaxed) {
            self.stream_of_zeros(page_number)
        } else {
            1
        }
    }

    /// Charges and maps a page and those behind it that there is room for. Returns how many, at least one;
    /// the locked ones among them are the `followers`.
    fn map_charged_run(
        &mut self,
        page_number: u64,
        wanted: usize,
        access: Access,
        followers: &mut Vec<(u64, PageInfo)>,
    ) -> Result<usize, Failure> {
        // As for a block that is fetched: the page itself may wait for room, its followers never.
        self.charge(1, Origin::New)?;
        self.lock_untouched(page_number, wanted, followers);
        let ahead = self.charge_ahead(followers.len());
        self.leave_far(followers, ahead);
        let mapped = self.map_zero_run(page_number, 1 + ahead, access);
        self.leave_far(followers, mapped.saturating_sub(1));
        self.at.release_local((1 + ahead - mapped.max(1)) as u64);
        if mapped == 0 {
            let outcome = self.map_zeros(page_number, access);
            self.settle_mapping(page_number, outcome, true)?;
        }
        Ok(mapped.max(1))
    }

    /// Maps a run of the reserve, whose pages are charged already. Returns how many pages, 0 where the
    /// reserve is of no use.
    fn map_reserved(
        &self,
        page_number: u64,
        wanted: usize,
        access: Access,
        followers: &mut Vec<(u64, PageInfo)>,
    ) -> usize {
        if wanted < LEAST_RUN_PAGES || access == Access::Read {
            return 0;
        }
        let Some(run) = self.take_reserved(wanted) else { return 0 };
        self.lock_untouched(page_number, run.pages, followers);
        let mapped = self.move_reserved(run, page_number, 1 + followers.len());
        self.leave_far(followers, mapped.saturating_sub(1));
        mapped
    }

    /// Locks the pages behind this one that were never touched, up to the first that was or is busy.
    fn lock_untouched(&self, page_number: u64, wanted: usize, followers: &mut Vec<(u64, PageInfo)>) {
        for follower in page_number + 1..page_number + wanted as u64 {
            let Some(word) = self.engine.table.find(follower) else { return };
            if !word.peek().is_absent() {
                return;
            }
            let Some(info) = self.try_lock(word) else { return };
            if !info.is_absent() {
                self.unlock(follower, word, info);
                return;
            }
            followers.push((follower, info));
        }
    }

    /// Maps zeros at up to `pages` locked pages from this one on. Returns how many.
    fn map_zero_run(&self, page_number: u64, mut pages: usize, access: Access) -> usize {
        while pages > 0 {
            let mapped = self.map_zeros_at(page_number, pages, access).unwrap_or(0);
            if mapped > 0 {
                return mapped;
            }
            // A run that ends in another mapping is refused whole.
            pages /= 2;
        }
        0
    }

    /// Maps zeros at one page.
    pub(crate) fn map_zeros(&self, page_number: u64, access: Access) -> KernelResult<()> {
        self.map_zeros_at(page_number, 1, access).map(|_| ())
    }

    fn map_zeros_at(&self, page_number: u64, pages: usize, access: Access) -> KernelResult<usize> {
        let to = target(page_number, pages);
        self.note_answer();
        if access == Access::Read {
            match self.at.kernel.map_zeros(to) {
                // No shared page of zeros for this process, as on some machines.
                Err(Errno::INVAL) => {}
                outcome => return self.count_pages(Counter::ZeroPageMaps, outcome),
            }
        }
        let outcome = self.at.kernel.copy(to, self.engine.zeros(pages), false);
        self.count_pages(Counter::ZeroedPages, outcome)
    }

    fn count_pages(&self, counter: Counter, bytes: KernelResult<usize>) -> KernelResult<usize> {
        let pages = bytes? / PAGE_SIZE;
        self.at.run.count(counter, pages as u64);
        Ok(pages)
    }

    /// Counts a page of zeros that leaves from `address` and was never written: it is the shared one still.
    pub(crate) fn note_unwritten(&self, address: usize) {
        let run = self.at.run;
        let count = |counter| run.counter(counter).load(Ordering::Relaxed);
        // After a fork, other pages are shared too.
        if count(Counter::ZeroPageMaps) == 0 || count(Counter::Forks) > 0 {
            return;
        }
        let entry = self.at.kernel.page_map_entry(address);
        if entry.is_some_and(|entry| entry.is_present_and_shared()) {
            run.count(Counter::ZeroPagesUnwritten, 1);
        }
    }
}
