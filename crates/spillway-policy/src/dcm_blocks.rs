//! dcm: page fetch with three FIFO queues and elastic blocks.
//!
//! From "Disaggregated Cloud Memory with Elastic Block Management": the queues and the random promotion (3.2,
//! in [`crate::dcm`], which the live pager uses too); fetch overlapped with reclaim, write-backs that nobody
//! waits for, frames freed ahead for the fault after the next (3.3); STRETCH at most once a fault, REDUCE at
//! eviction to single pages when no more than half were referenced (4.2, Algorithm 2; [`crate::blocks`]);
//! static blocks of 4 to 64 KiB (4.1).
//!
//! What each thread has of its own of the queues (3.4, [`crate::thread_queues`]) is there where the settings
//! ask for it. What it is for, contention between processors, a machine of this seam does not show to a
//! policy; what it does to the order of blocks, it does. Not all calls of the seam say which thread they are
//! for: a first touch counts as that of the thread that stopped last. Left out: lockless descriptors (3.4). A
//! block in Writeback is NotLocal at once here.

use std::ops::Range;
use std::sync::atomic::AtomicU8;

use serde::{Deserialize, Serialize};
use spillway_core::fifo::Entry;
use spillway_core::page_word::Queue;

use crate::blocks::{Blocks, MAX_ORDER};
use crate::dcm::{self, Replacement, Step};
use crate::entry::Registered;
use crate::knowledge::Knowledge;
use crate::machine::{Call, PageIndex, Tier, TieredMachine};
use crate::policy::{AccessModel, Fault, FaultKind, Policy};
use crate::thread_queues::ThreadQueues;
use crate::use_history;

/// The size of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BlockSize {
    /// From one page to 16, as accesses ask for.
    #[serde(rename = "elastic")]
    Elastic,
    /// Blocks of one page, 4 KiB.
    #[serde(rename = "4k")]
    Pages1,
    /// Blocks of 2 pages, 8 KiB.
    #[serde(rename = "8k")]
    Pages2,
    /// Blocks of 4 pages, 16 KiB.
    #[serde(rename = "16k")]
    Pages4,
    /// Blocks of 8 pages, 32 KiB.
    #[serde(rename = "32k")]
    Pages8,
    /// Blocks of 16 pages, 64 KiB.
    #[serde(rename = "64k")]
    Pages16,
}

impl BlockSize {
    fn orders(self) -> (u8, u8) {
        match self {
            Self::Elastic => (0, MAX_ORDER),
            Self::Pages1 => (0, 0),
            Self::Pages2 => (1, 1),
            Self::Pages4 => (2, 2),
            Self::Pages8 => (3, 3),
            Self::Pages16 => (4, 4),
        }
    }
}

/// What a run may set; the defaults are the paper's, or chosen as the file's head says.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The size of blocks.
    pub blocks: BlockSize,
    /// Chance that a block which comes in goes straight to the proactive queue (paper: 0.1).
    pub random_promotion: f64,
    /// Share of the mapped blocks that the proactive queue may hold.
    pub proactive_share: f64,
    /// Share of local memory that lies in the inactive queue.
    pub inactive_share: f64,
    /// A block that comes back before this share of local memory has left behind it begins as one with a
    /// history, as in the live pager ([`dcm::Config::return_share`]); 0 switches it off.
    pub return_share: f64,
    /// Blocks that wait in a buffer of the thread that brought them in; 0 for none (3.4).
    pub thread_buffer_pages: u32,
    /// Each thread has an inactive sub-queue of its own (3.4).
    pub thread_inactive: bool,
}

impl Default for Config {
    fn default() -> Self {
        let queues = dcm::Config::default();
        Self {
            blocks: BlockSize::Elastic,
            random_promotion: queues.random_promotion,
            proactive_share: queues.proactive_share,
            inactive_share: queues.inactive_share,
            return_share: queues.return_share,
            thread_buffer_pages: queues.thread_buffer_pages,
            thread_inactive: queues.thread_inactive,
        }
    }
}

/// More threads share what is the last one's.
const MOST_THREADS: usize = 1024;

/// A queue's entry keeps so many bits of a generation.
const GENERATION_MASK: u8 = 0x7F;

/// A block is known by its first page; that page's fields are the block's.
#[derive(Clone, Copy)]
struct Page {
    queue: Option<Queue>,
    referenced: bool,
    /// What [`Dcm::left_pages`] was when it left.
    left_at: u32,
    /// Changes with every move between queues, so that entries that were left behind are known.
    generation: u8,
}

/// dcm's queues, over blocks in place of pages.
pub struct Dcm {
    config: Config,
    seed: u64,
    blocks: Blocks<Vec<AtomicU8>>,
    pages: Vec<Page>,
    queues: Replacement,
    /// What each thread has of its own of them.
    threads: Vec<ThreadQueues>,
    /// The thread that stopped last, as a place among them.
    thread: usize,
    /// Pages of the blocks in the inactive queue.
    inactive_pages: usize,
    /// Pages that have left local memory so far; wraps.
    left_pages: u32,
}

impl Registered for Dcm {
    type Config = Config;
    fn build(config: Config, seed: u64, _knowledge: &Knowledge) -> Self {
        Self {
            config,
            seed,
            blocks: Blocks::new(0, 0, 0),
            pages: Vec::new(),
            queues: Replacement::new(Self::shares(config), 0, seed),
            threads: Vec::new(),
            thread: 0,
            inactive_pages: 0,
            left_pages: 0,
        }
    }
}

impl Dcm {
    fn shares(config: Config) -> dcm::Config {
        let Config { random_promotion, proactive_share, inactive_share, return_share, .. } = config;
        let Config { thread_buffer_pages, thread_inactive, .. } = config;
        let others = dcm::Config { scan_share: 0.0, ..dcm::Config::default() };
        let shares = dcm::Config { random_promotion, proactive_share, inactive_share, ..others };
        dcm::Config { return_share, thread_buffer_pages, thread_inactive, ..shares }
    }

    /// From now on a thread is at work.
    fn work_for(&mut self, task: u32, machine: &dyn TieredMachine) {
        self.thread = (task as usize).min(MOST_THREADS - 1);
        let (config, local_pages) = (Self::shares(self.config), machine.capacity_pages(Tier::Local) as usize);
        while self.threads.len() <= self.thread {
            let place = self.threads.len();
            self.threads.push(ThreadQueues::new(&config, local_pages, self.seed, place));
        }
    }

    /// Orders of the smallest and the largest block. No block takes more than a quarter of local memory.
    fn orders(&self, machine: &dyn TieredMachine) -> (u8, u8) {
        let (order, max_order) = self.config.blocks.orders();
        let fitting = (machine.capacity_pages(Tier::Local) / 4).max(1).ilog2() as u8;
        (order.min(fitting), max_order.min(fitting))
    }

    /// Frames that are kept free, so that a fetch never waits for a write-back: a block's.
    fn reserve(&self, machine: &dyn TieredMachine) -> u32 {
        1 << self.orders(machine).1
    }

    fn is_current(pages: &[Page], entry: Entry, queue: Queue) -> bool {
        let page = &pages[entry.page_number as usize];
        page.generation == entry.generation && page.queue == Some(queue)
    }

    /// The pages of a page's block, as far as there are any.
    fn block(&self, page: PageIndex) -> Range<PageIndex> {
        let block = self.blocks.pages(page.into());
        block.start as u32..(block.end as u32).min(self.pages.len() as u32)
    }

    fn head(&self, page: PageIndex) -> PageIndex {
        self.blocks.pages(page.into()).start as u32
    }

    /// Puts a block at the tail of a queue.
    fn enqueue(&mut self, head: PageIndex, queue: Queue) {
        self.leave(head);
        if queue == Queue::Inactive {
            self.inactive_pages += self.block(head).len();
        }
        let page = &mut self.pages[head as usize];
        page.queue = Some(queue);
        let entry = Entry { page_number: u64::from(head), generation: page.generation };
        let own = &mut self.threads[self.thread];
        if queue == Queue::Inactive && self.config.thread_inactive {
            if own.enqueue_inactive(entry).is_err() {
                let pages = &self.pages;
                own.drop_stale(|entry| Self::is_current(pages, entry, Queue::Inactive));
                // As below.
                let _ = own.enqueue_inactive(entry);
            }
        } else if queue == Queue::Inactive || own.collect(queue, entry).is_err() {
            self.flush(self.thread);
            if self.queues.enqueue(queue, entry).is_err() {
                self.drop_stale();
                // There is room for every local page once stale entries are gone.
                let _ = self.queues.enqueue(queue, entry);
            }
        }
    }

    fn drop_stale(&mut self) {
        let pages = &self.pages;
        self.queues.drop_stale(|entry, queue| Self::is_current(pages, entry, queue));
    }

    /// Moves a thread's buffer to the shared queues.
    fn flush(&mut self, thread: usize) {
        if self.threads[thread].flush(&mut self.queues).is_full {
            self.drop_stale();
            self.threads[thread].flush(&mut self.queues);
        }
    }

    /// The next step down for a mapped block. Where the shared queues are empty all buffers move there, the
    /// thread's own last: what it has just fetched is to be the last to go.
    fn next_mapped(&mut self) -> Option<Step> {
        if self.queues.mapped_len() == 0 {
            for thread in (self.thread + 1..self.threads.len()).chain(0..=self.thread) {
                self.flush(thread);
            }
        }
        self.queues.next_mapped(|_| use_history::UNKNOWN)
    }

    /// The next block to write back: of the thread's own sub-queue first.
    fn next_inactive(&mut self) -> Option<Entry> {
        if !self.config.thread_inactive {
            return self.queues.next_inactive();
        }
        let count = self.threads.len();
        let first = self.threads[self.thread].next_source(self.thread, count);
        (first..count).chain(0..first).find_map(|thread| self.threads[thread].next_inactive())
    }

    /// The block's local pages.
    fn local_pages(&self, machine: &dyn TieredMachine, head: PageIndex) -> Vec<PageIndex> {
        self.block(head).filter(|&page| machine.tier_of(page) == Some(Tier::Local)).collect()
    }

    /// A block came in, or a page was first touched: queues its block, stretched by one step if it may.
    fn arrive(&mut self, machine: &dyn TieredMachine, page: PageIndex, fetched: bool) {
        let head = self.head(page);
        let away_pages = self.left_pages.wrapping_sub(self.pages[page as usize].left_at).into();
        let local_pages = machine.capacity_pages(Tier::Local).into();
        let own = &mut self.threads[self.thread];
        let queue = match (self.config.thread_buffer_pages, fetched) {
            (0, false) => self.queues.queue_of_newcomer(),
            (0, true) => self.queues.queue_of_returner(away_pages, local_pages),
            (_, false) => own.queue_of_newcomer(),
            (_, true) => own.queue_of_returner(away_pages, local_pages),
        };
        let whole_and_local = |head: PageIndex| machine.tier_of(head) == Some(Tier::Local);
        let mapped = |queue| matches!(queue, Some(Queue::Active | Queue::Proactive));
        let buddy_mapped = |pages: &[Page], buddy: PageIndex| mapped(pages[buddy as usize].queue);
        let pages = &self.pages;
        let joins = |buddy: u64| whole_and_local(buddy as u32) && buddy_mapped(pages, buddy as u32);
        match self.blocks.stretch(page.into(), |buddy, _| joins(buddy)).map(|buddy| buddy as u32) {
            None if !fetched && mapped(self.pages[head as usize].queue) => {}
            None => self.enqueue(head, queue),
            Some(buddy) => {
                let buddy_queue = self.pages[buddy as usize].queue;
                self.leave(head);
                self.leave(buddy);
                // Algorithm 1: the buddy's state; one that was active moves to the tail.
                let queue =
                    if buddy_queue == Some(Queue::Proactive) { Queue::Proactive } else { Queue::Active };
                self.enqueue(head.min(buddy), queue);
            }
        }
    }

    /// Takes over a page that lies local already, as one that has just come.
    pub(crate) fn adopt(&mut self, page: PageIndex, is_used: bool, machine: &dyn TieredMachine) {
        self.pages[page as usize].referenced = is_used;
        self.arrive(machine, page, false);
    }

    fn leave(&mut self, head: PageIndex) {
        if self.pages[head as usize].queue == Some(Queue::Inactive) {
            self.inactive_pages -= self.block(head).len();
        }
        let page = &mut self.pages[head as usize];
        page.queue = None;
        page.generation = (page.generation + 1) & GENERATION_MASK;
    }

    /// Unmaps a block: what was referenced is noted, and any later access will be seen.
    fn make_inactive(&mut self, machine: &mut dyn TieredMachine, head: PageIndex) {
        let pages = self.local_pages(machine, head);
        for &page in &pages {
            self.pages[page as usize].referenced |= machine.take_accessed(page);
        }
        machine.unmap(&pages);
        self.enqueue(head, Queue::Inactive);
    }

    /// Moves mapped blocks down until the inactive queue holds as many pages as it should.
    fn balance(&mut self, machine: &mut dyn TieredMachine) {
        let target = self.queues.inactive_target(machine.capacity_pages(Tier::Local) as usize);
        while self.inactive_pages <= target {
            match self.next_mapped() {
                None => return,
                Some(Step::ToActive(entry)) if Self::is_current(&self.pages, entry, Queue::Proactive) => {
                    self.enqueue(entry.page_number as u32, Queue::Active);
                }
                Some(Step::ToInactive(entry)) if Self::is_current(&self.pages, entry, Queue::Active) => {
                    self.make_inactive(machine, entry.page_number as u32);
                }
                Some(_) => {}
            }
        }
    }

    /// Writes inactive blocks back until `pages` frames are free, or only the block of `wanted` could go: the
    /// program waits for that one.
    fn reclaim(&mut self, machine: &mut dyn TieredMachine, pages: u32, wanted: Option<PageIndex>) {
        let mut was_met = false;
        while machine.free_pages(Tier::Local) < pages {
            self.balance(machine);
            let Some(entry) = self.next_inactive() else { return };
            if !Self::is_current(&self.pages, entry, Queue::Inactive) {
                continue;
            }
            let head = entry.page_number as u32;
            if wanted.is_none_or(|page| self.head(page) != head) {
                self.evict(machine, head);
                continue;
            }
            self.put_back(machine, head);
            if std::mem::replace(&mut was_met, true) {
                return;
            }
        }
    }

    /// An inactive block stays after all, as the last of those to go.
    fn put_back(&mut self, machine: &mut dyn TieredMachine, head: PageIndex) {
        for page in self.local_pages(machine, head) {
            machine.unmark(page);
        }
        self.enqueue(head, Queue::Active);
    }

    fn evict(&mut self, machine: &mut dyn TieredMachine, head: PageIndex) {
        for page in self.local_pages(machine, head) {
            machine.write_back(page);
            self.left_pages = self.left_pages.wrapping_add(1);
            self.pages[page as usize].left_at = self.left_pages;
        }
        self.leave(head);
        let pages = &self.pages;
        let block = self.block(head);
        if self.config.blocks == BlockSize::Elastic {
            self.blocks.reduce(head.into(), |page| pages[page as usize].referenced);
        }
        block.for_each(|page| self.pages[page as usize].referenced = false);
    }

    /// A block in the inactive queue is accessed: it has a history now.
    fn rescue(&mut self, machine: &mut dyn TieredMachine, page: PageIndex) {
        let head = self.head(page);
        self.pages[page as usize].referenced = true;
        for member in self.local_pages(machine, head) {
            if member != page {
                machine.unmark(member);
            }
        }
        if self.pages[head as usize].queue == Some(Queue::Inactive) {
            self.enqueue(head, Queue::Proactive);
        }
    }
}

impl Policy for Dcm {
    fn access_model(&self) -> AccessModel {
        AccessModel::PageFetch
    }

    fn start(&mut self, machine: &mut dyn TieredMachine) {
        let (order, max_order) = self.orders(machine);
        self.blocks = Blocks::new(machine.page_count(), order, max_order);
        let page = Page { queue: None, referenced: false, left_at: 0, generation: 0 };
        self.pages = vec![page; machine.page_count() as usize];
        let local_pages = machine.capacity_pages(Tier::Local) as usize;
        self.queues = Replacement::new(Self::shares(self.config), local_pages, self.seed);
        self.threads.clear();
        self.work_for(0, machine);
    }

    fn place(&mut self, _page: PageIndex, machine: &mut dyn TieredMachine) -> Tier {
        let reserve = self.reserve(machine);
        self.reclaim(machine, reserve, None);
        Tier::Local
    }

    fn on_first_touch(&mut self, page: PageIndex, _tier: Tier, machine: &mut dyn TieredMachine) {
        self.pages[page as usize].referenced = true;
        self.arrive(machine, page, false);
    }

    fn on_release(&mut self, pages: Range<PageIndex>, machine: &mut dyn TieredMachine) {
        let page = pages.start;
        self.pages[page as usize].referenced = false;
        let head = self.head(page);
        if !self.local_pages(machine, head).is_empty() {
            return;
        }
        // Nothing of the block is local any more: it is as if it had been evicted.
        self.leave(head);
        let pages = &self.pages;
        if self.config.blocks == BlockSize::Elastic {
            self.blocks.reduce(head.into(), |page| pages[page as usize].referenced);
        }
    }

    fn on_fault(&mut self, fault: Fault, machine: &mut dyn TieredMachine) {
        self.work_for(fault.task, machine);
        if fault.kind != FaultKind::Missing {
            return self.rescue(machine, fault.page);
        }
        let far: Vec<_> =
            self.block(fault.page).filter(|&page| machine.tier_of(page) == Some(Tier::Far)).collect();
        self.reclaim(machine, far.len() as u32, Some(fault.page));
        machine.migrate(&far, Tier::Local, Call::Kernel);
        self.pages[fault.page as usize].referenced = true;
        self.arrive(machine, fault.page, true);
        // Hidden behind the transfer: frames for the next fault.
        let reserve = self.reserve(machine);
        self.reclaim(machine, reserve, Some(fault.page));
    }
}

#[cfg(test)]
mod tests;
