//! The replacement as the pager has it: each call goes on to dcm's, and is written down if it is to be.

use std::cell::RefCell;

use spillway_core::fifo::{Entry, PoolFull};
use spillway_core::page_word::Queue;

use super::codec::Encoder;
use super::event::{Event, ThreadCall};
use super::runs::Runs;
use crate::dcm::{Replacement, Step};
use crate::thread_queues::{BufferFull, Flushed, ThreadQueues};

/// Where the bytes of a trace go.
pub trait Sink: Send {
    /// Takes bytes. False where they are lost: no more will come, for a trace with a hole says nothing.
    fn put(&mut self, bytes: &[u8]) -> bool;
}

/// dcm's replacement, and where its calls are written down.
pub struct Traced {
    replacement: Replacement,
    writer: Option<Writer>,
}

/// Room for all events but the rarest.
const EVENT_BYTES: usize = 2048;

struct Writer {
    encoder: Encoder,
    bytes: Vec<u8>,
    sink: Box<dyn Sink>,
}

/// A copy writes nothing down: it is another process's.
impl Clone for Traced {
    fn clone(&self) -> Self {
        Self::new(self.replacement.clone())
    }
}

impl Traced {
    /// Writes nothing down yet.
    #[must_use]
    pub fn new(replacement: Replacement) -> Self {
        Self { replacement, writer: None }
    }

    /// From now on writes into `sink`, an [`Event::Start`] first. Before the first call, or a replay would
    /// begin elsewhere.
    pub fn record(&mut self, start: &Event, sink: Box<dyn Sink>) {
        self.writer =
            Some(Writer { encoder: Encoder::default(), bytes: Vec::with_capacity(EVENT_BYTES), sink });
        self.note(start);
    }

    /// Writes nothing down any more.
    pub fn stop_recording(&mut self) {
        self.writer = None;
    }

    /// Whether calls are written down.
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        self.writer.is_some()
    }

    /// Writes an event down that is no call.
    pub fn note(&mut self, event: &Event) {
        let Some(writer) = &mut self.writer else { return };
        writer.bytes.clear();
        writer.encoder.encode(event, &mut writer.bytes);
        if !writer.sink.put(&writer.bytes) {
            self.writer = None;
        }
    }

    /// [`Replacement::queue_of_newcomer`], and writes it down.
    pub fn queue_of_newcomer(&mut self) -> Queue {
        let queue = self.replacement.queue_of_newcomer();
        self.note(&Event::Newcomer(queue));
        queue
    }

    /// [`Replacement::queue_of_returner`], and writes it down.
    pub fn queue_of_returner(&mut self, away_pages: u64, local_pages: u64) -> Queue {
        let queue = self.replacement.queue_of_returner(away_pages, local_pages);
        self.note(&Event::Returner { away_pages, local_pages, queue });
        queue
    }

    /// [`Replacement::enqueue`], and writes it down.
    ///
    /// # Errors
    /// As there.
    pub fn enqueue(&mut self, queue: Queue, entry: Entry) -> Result<(), PoolFull> {
        let outcome = self.replacement.enqueue(queue, entry);
        self.note(&Event::Enqueue { queue, entry, is_full: outcome.is_err() });
        outcome
    }

    /// [`Replacement::next_mapped`], and writes it down.
    pub fn next_mapped(&mut self, rank: impl Fn(u64) -> u8) -> Option<Step> {
        if !self.is_recorded() {
            return self.replacement.next_mapped(rank);
        }
        let ranks = RefCell::new(Runs::default());
        let step = self.replacement.next_mapped(|page_number| {
            let rank = rank(page_number);
            ranks.borrow_mut().push(rank);
            rank
        });
        self.note(&Event::NextMapped { ranks: ranks.into_inner(), step });
        step
    }

    /// [`Replacement::next_inactive`], and writes it down.
    pub fn next_inactive(&mut self) -> Option<Entry> {
        let entry = self.replacement.next_inactive();
        self.note(&Event::NextInactive(entry));
        entry
    }

    /// [`Replacement::drop_stale`], and writes it down.
    pub fn drop_stale(&mut self, mut is_current: impl FnMut(Entry, Queue) -> bool) {
        if !self.is_recorded() {
            return self.replacement.drop_stale(is_current);
        }
        let mut kept = Runs::default();
        self.replacement.drop_stale(|entry, queue| {
            let stays = is_current(entry, queue);
            kept.push(stays.into());
            stays
        });
        self.note(&Event::DropStale(kept));
    }

    /// [`ThreadQueues::flush`] of the thread of number `place`, and writes it down.
    pub fn flush(&mut self, place: u16, own: &mut ThreadQueues) -> Flushed {
        let flushed = own.flush(&mut self.replacement);
        if flushed != (Flushed { moved: 0, is_full: false }) {
            self.note(&Event::Thread { place, call: ThreadCall::Flush(flushed) });
        }
        flushed
    }

    /// [`Replacement::take_kept_in_use`], which changes no choice.
    pub fn take_kept_in_use(&mut self) -> u64 {
        self.replacement.take_kept_in_use()
    }

    /// [`Replacement::inactive_len`], which changes no choice.
    #[must_use]
    pub fn inactive_len(&self) -> usize {
        self.replacement.inactive_len()
    }

    /// [`Replacement::mapped_len`], which changes no choice.
    #[must_use]
    pub fn mapped_len(&self) -> usize {
        self.replacement.mapped_len()
    }

    /// [`Replacement::peek_inactive`], which changes no choice.
    #[must_use]
    pub fn peek_inactive(&self) -> Option<Entry> {
        self.replacement.peek_inactive()
    }

    /// [`Replacement::in_order`], which changes no choice.
    pub fn in_order(&self, queue: Queue) -> impl Iterator<Item = Entry> {
        self.replacement.in_order(queue)
    }

    /// [`Replacement::for_each`], which changes no choice.
    pub fn for_each(&mut self, visit: impl FnMut(Queue, Entry)) {
        self.replacement.for_each(visit);
    }

    /// [`Replacement::for_each_mapped`], which changes no choice.
    pub fn for_each_mapped(&mut self, visit: impl FnMut(Entry)) {
        self.replacement.for_each_mapped(visit);
    }
}

/// What a thread has of its own, and where its calls are written down if they are to be: with the lock of the
/// shared queues held, so that what a replay repeats has one order.
pub struct TracedThread<'a> {
    /// The number of the thread.
    pub place: u16,
    /// What is its own.
    pub queues: &'a mut ThreadQueues,
    /// Where its calls are written down.
    pub trace: Option<&'a mut Traced>,
}

impl TracedThread<'_> {
    fn note(&mut self, call: impl FnOnce() -> ThreadCall) {
        if let Some(trace) = self.trace.as_mut().filter(|trace| trace.is_recorded()) {
            trace.note(&Event::Thread { place: self.place, call: call() });
        }
    }

    /// [`ThreadQueues::queue_of_newcomer`], and writes it down.
    pub fn queue_of_newcomer(&mut self) -> Queue {
        let queue = self.queues.queue_of_newcomer();
        self.note(|| ThreadCall::Newcomer(queue));
        queue
    }

    /// [`ThreadQueues::queue_of_returner`], and writes it down.
    pub fn queue_of_returner(&mut self, away_pages: u64, local_pages: u64) -> Queue {
        let queue = self.queues.queue_of_returner(away_pages, local_pages);
        self.note(|| ThreadCall::Returner { away_pages, local_pages, queue });
        queue
    }

    /// [`ThreadQueues::collect`], and writes it down.
    ///
    /// # Errors
    /// As there.
    pub fn collect(&mut self, queue: Queue, entry: Entry) -> Result<(), BufferFull> {
        let outcome = self.queues.collect(queue, entry);
        self.note(|| ThreadCall::Collect { queue, entry, is_full: outcome.is_err() });
        outcome
    }

    /// [`ThreadQueues::enqueue_inactive`], and writes it down.
    ///
    /// # Errors
    /// As there.
    pub fn enqueue_inactive(&mut self, entry: Entry) -> Result<(), PoolFull> {
        let outcome = self.queues.enqueue_inactive(entry);
        self.note(|| ThreadCall::EnqueueInactive { entry, is_full: outcome.is_err() });
        outcome
    }

    /// [`ThreadQueues::next_inactive`], and writes it down.
    pub fn next_inactive(&mut self) -> Option<Entry> {
        let entry = self.queues.next_inactive();
        self.note(|| ThreadCall::NextInactive(entry));
        entry
    }

    /// [`ThreadQueues::drop_stale`], and writes it down.
    pub fn drop_stale(&mut self, mut is_current: impl FnMut(Entry) -> bool) {
        let mut kept = Runs::default();
        self.queues.drop_stale(|entry| {
            let stays = is_current(entry);
            kept.push(stays.into());
            stays
        });
        self.note(|| ThreadCall::DropStale(kept));
    }

    /// [`ThreadQueues::next_source`], and writes it down.
    pub fn next_source(&mut self, threads: u16) -> u16 {
        let first = self.queues.next_source(self.place.into(), threads.into()) as u16;
        self.note(|| ThreadCall::Source { threads, first });
        first
    }
}
