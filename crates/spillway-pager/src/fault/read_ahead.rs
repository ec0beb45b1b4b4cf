//! Reading ahead: while the program uses one block of a stream, the evictor fetches the next, on another CPU.
//!
//! The first far page of such a block, its *marker*, stays far. The fault that it raises tells that the
//! stream has come so far, and has the block after that one read ahead (Linux marks a page of its read-ahead
//! for the same purpose). Pages that are on their way are locked: who touches one waits for it, as for any
//! block.
//!
//! Nothing is promised: pages are locked, charged and checked as those that a fault brings along, and one
//! that cannot be had stays far, for its own fault to say why. A request that nobody had time for is replaced
//! by its stream's next.
//!
//! It pays where a CPU is to spare. So nothing is read ahead while as many threads as there are CPUs have
//! streams.

use std::ops::Range;
use std::sync::atomic::{Ordering, fence};

use spillway_policy::fault_trace::{Block, Cause, Event, TracedReads};
use spillway_policy::read_streams::{ANYWHERE, Ask, Request};
use spillway_policy::streams::Direction;

use crate::fault::access::Access;
use crate::fault::elastic::HeldBlock;
use crate::kernel::{Kernel, planted};
use crate::process::worker::Worker;
use crate::run::state::Counter;

/// Shorter blocks are no stream yet, and sooner fetched than another thread is woken.
const LEAST_PAGES: usize = 32;

impl<K: Kernel> Worker<K> {
    /// Has the next block of a stream read ahead, whose fault at `page_number` asks for `pages` and brings
    /// `block`.
    pub(crate) fn ask_ahead(
        &self,
        page_number: u64,
        direction: Direction,
        block: &Range<u64>,
        pages: usize,
        access: Access,
    ) {
        if pages < LEAST_PAGES.min(self.at.max_block_pages) || pages == 1 {
            return;
        }
        let (thread, write) = (self.faulting_thread, access != Access::Read);
        let ask = Ask { thread, page_number, direction, block: block.clone(), pages: pages as u64, write };
        let (answer, used_pages) = self.with_reads(|reads| reads.ask(ask));
        if pages == self.at.max_block_pages {
            self.want_next_range(page_number, direction, answer.has_cpu);
        }
        if !answer.has_cpu {
            return;
        }
        let stream = self.engine.read_streams.stream(answer.place);
        stream.node.store(self.node_served().map_or(ANYWHERE, u32::from), Ordering::Relaxed);
        self.at.run.count(Counter::PagesAheadUsed, used_pages);
        self.at.handlers.note_stream();
        fence(Ordering::SeqCst);
        self.at.wake_evictor();
    }

    /// Reads ahead what was asked for; false where nothing was.
    pub(crate) fn read_ahead(&mut self) -> bool {
        let engine = self.engine;
        let mut next_place = 0;
        while let Some((place, request)) = self.with_reads(|reads| reads.take_from(next_place)) {
            next_place = place + 1;
            let stream = engine.read_streams.stream(place);
            let Some(_pass) = engine.enter() else { continue };
            if let Ok(node) = stream.node.load(Ordering::Relaxed).try_into() {
                self.place_on(node);
            }
            // As much again stays free, or the marker's fault would have to evict.
            self.last_block_pages = 2 * (request.pages.end - request.pages.start) as usize;
            self.make_room_ahead();
            let came_pages = self.bring_ahead(&self.beside_stages(request)).unwrap_or(0);
            stream.came_pages.fetch_add(came_pages as u64, Ordering::Relaxed);
            self.at.run.count(Counter::PagesReadAhead, came_pages as u64);
        }
        next_place > 0
    }

    fn with_reads<T>(&self, ask: impl FnOnce(&mut TracedReads<'_>) -> T) -> T {
        let mut trace = self.engine.trace();
        ask(&mut TracedReads { reads: &self.engine.read_streams, trace: trace.as_deref_mut() })
    }

    /// What is left of a request where a range is made ready as a whole.
    fn beside_stages(&self, request: Request) -> Request {
        let first = match request.direction {
            Direction::Up => request.pages.start,
            Direction::Down => request.pages.end.saturating_sub(1),
        };
        let stages = &self.engine.stages;
        if stages.has::<K>(stages.range_of(first)) {
            return Request { pages: first..first, ..request };
        }
        Request { pages: self.before_stage(request.pages, request.direction), ..request }
    }

    /// Brings in the far pages of a block but for the first. Returns how many.
    fn bring_ahead(&mut self, request: &Request) -> Option<usize> {
        let is_far = |page_number| self.is_far(page_number);
        let pages = self.with_reads(|reads| reads.behind_marker(request, is_far))?;
        let marker = request.marker_of(&pages);
        let block = HeldBlock::along(request.direction, pages);
        let store = self.at.store_of(self.engine.table.find(marker)?.peek().slot()?)?;
        let mut pages = self.lock_followers(marker, store, &block);
        let is_free = planted!(K, "ahead-not-charged");
        let room = if is_free { pages.len() } else { self.charge_ahead(pages.len()) };
        self.leave_far(&mut pages, room);
        block.sort(&mut pages);
        let &(first, info) = pages.first()?;
        let slot = info.slot()?;
        let mut followers = pages.split_off(1);
        let epoch = self.protection(first, request.write, 1 + followers.len());
        let Ok(epoch) = self.fetch_pages(first, slot, store, &mut followers, epoch) else {
            pages.append(&mut followers);
            if !planted!(K, "ahead-left-locked") {
                self.leave_far(&mut pages, 0);
            }
            return None;
        };
        pages.append(&mut followers);
        self.engine.note(|| {
            let wanted_pages = block.wanted() as u64;
            let came_pages = pages.len() as u64;
            Event::Block(Block { cause: Cause::ReadAhead, page_number: first, wanted_pages, came_pages })
        });
        self.at.run.count_block(pages.len());
        let queue = self.queue_of_returner(info);
        self.note_streamed(&block, pages.iter().map(|page| page.0));
        self.settle_followers(&pages, queue, epoch);
        Some(pages.len())
    }
}
