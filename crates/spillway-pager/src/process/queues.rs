//! How a pager thread puts pages into dcm's queues, and takes inactive ones out of them: through what is its
//! own of them where `[replacement]` gives it something (section 3.4; [`super::own_queues`]), else straight.
//!
//! - *Buffers* move to the shared queues where they are full, and where their thread draws victims anyway.
//!   Where there is too little to draw from, or what was drawn did not go, all threads' buffers move: what
//!   can leave is always found. The thread's own moves last: what it has just brought in is the last to go.
//! - *Sub-queues*: a thread writes back from its own. Where that has too little it goes round.
//!
//! A fault trace tells of each of these in the order in which they happened: while one is written, a thread
//! has the lock of the shared queues whenever it uses what is its own.

use spillway_core::fifo::Entry;
use spillway_core::page_word::{PageInfo, Queue};
use spillway_policy::fault_trace::{Traced, TracedThread};

use crate::kernel::{Kernel, planted};
use crate::process::worker::Worker;

impl<K: Kernel> Worker<K> {
    fn with_own<T>(&self, place: u16, ask: impl FnOnce(&mut TracedThread<'_>) -> T) -> T {
        let engine = self.engine;
        let mut shared = engine.is_recorded().then(|| engine.replacement());
        let mut queues = engine.own_queues.lock::<K>(place);
        ask(&mut TracedThread { place, queues: &mut queues, trace: shared.as_deref_mut() })
    }

    /// The queue in which a page begins that was fetched or first touched.
    pub(crate) fn newcomers_queue(&self) -> Queue {
        if self.engine.own_queues.has_buffers {
            return self.with_own(self.place, |own| own.queue_of_newcomer());
        }
        self.engine.replacement().queue_of_newcomer()
    }

    /// The queue in which a page begins that comes back after `away_pages` others have left.
    pub(crate) fn returners_queue(&self, away_pages: u64, local_pages: u64) -> Queue {
        if self.engine.own_queues.has_buffers {
            return self.with_own(self.place, |own| own.queue_of_returner(away_pages, local_pages));
        }
        self.engine.replacement().queue_of_returner(away_pages, local_pages)
    }

    /// Puts a page, whose word was just unlocked as `info`, at the tail of its queue, if it belongs in one.
    pub(crate) fn enqueue(&self, page_number: u64, info: PageInfo) {
        if let Some(queue) = info.queue() {
            self.put(queue, Entry { page_number, generation: info.generation });
        }
    }

    /// Puts an entry at the tail of a queue. The caller does not hold the queues' lock.
    pub(crate) fn put(&self, queue: Queue, entry: Entry) {
        let own = &self.engine.own_queues;
        if queue == Queue::Inactive && own.has_inactive {
            return self.with_own(self.place, |own| {
                if own.enqueue_inactive(entry).is_err() {
                    own.drop_stale(|entry| self.engine.is_queued(entry, Queue::Inactive));
                    // There is room for a quarter more than can be inactive.
                    let _ = own.enqueue_inactive(entry);
                }
            });
        }
        let is_collected = queue != Queue::Inactive
            && own.has_buffers
            && self.with_own(self.place, |own| own.collect(queue, entry)).is_ok();
        if !is_collected || planted!(K, "buffered-page-queued-too") {
            let mut shared = self.engine.replacement();
            self.flush_own(&mut shared);
            self.engine.put(&mut shared, queue, entry);
        }
    }

    /// Moves what waits in this thread's buffer to the shared queues.
    pub(crate) fn flush_own(&self, shared: &mut Traced) {
        if self.engine.own_queues.has_buffers {
            self.flush(self.place, shared);
        }
    }

    /// Before victims are drawn: moves what waits in this thread's buffer to the shared queues, and first
    /// what waits in all others where there is too little in them.
    pub(crate) fn flush_before_draw(&self, shared: &mut Traced, wanted: usize) {
        if shared.mapped_len() < wanted {
            self.flush_all(shared);
        } else {
            self.flush_own(shared);
        }
    }

    /// Moves what waits in all threads' buffers to the shared queues. Returns how many pages that were.
    pub(crate) fn flush_all(&self, shared: &mut Traced) -> u64 {
        if !self.engine.own_queues.has_buffers || planted!(K, "buffers-passed-by") {
            return 0;
        }
        let places = (self.place + 1..self.engine.own_queues.count()).chain(0..=self.place);
        places.map(|place| self.flush(place, shared)).sum()
    }

    fn flush(&self, place: u16, shared: &mut Traced) -> u64 {
        let mut own = self.engine.own_queues.lock::<K>(place);
        let mut flushed = shared.flush(place, &mut own);
        let before = flushed.moved;
        if flushed.is_full {
            shared.drop_stale(|entry, queue| self.engine.is_queued(entry, queue));
            // There is room for a quarter more than can be local.
            flushed = shared.flush(place, &mut own);
            flushed.moved += before;
        }
        flushed.moved
    }

    /// Entries in the inactive queue, or in all sub-queues together; stale ones included.
    pub(crate) fn inactive_len(&self) -> usize {
        let own = &self.engine.own_queues;
        if !own.has_inactive {
            return self.engine.replacement().inactive_len();
        }
        (0..own.count()).map(|place| own.lock::<K>(place).inactive_len()).sum()
    }

    /// Whose inactive pages this thread takes first.
    pub(crate) fn inactive_source(&self) -> u16 {
        let own = &self.engine.own_queues;
        if !own.has_inactive {
            return 0;
        }
        self.with_own(self.place, |thread| thread.next_source(own.count()))
    }

    /// The sub-queues from `first` on, round to the one before it.
    fn sources(&self, first: u16) -> impl Iterator<Item = u16> {
        let passes_by = planted!(K, "inactive-of-others-passed-by");
        let own = self.place;
        (first..self.engine.own_queues.count())
            .chain(0..first)
            .filter(move |place| !passes_by || *place == own)
    }

    /// Takes up to `wanted` of the pages that have been inactive longest into `drawn`: of the sub-queue of
    /// `first`, and what that lacks of those behind it.
    pub(crate) fn draw_inactive(&self, first: u16, wanted: usize, drawn: &mut Vec<Entry>) {
        if !self.engine.own_queues.has_inactive {
            let mut shared = self.engine.replacement();
            let entries = std::iter::from_fn(|| shared.next_inactive());
            return drawn.extend(entries.take(wanted));
        }
        for place in self.sources(first) {
            let lacking = wanted - drawn.len();
            if lacking == 0 {
                return;
            }
            self.with_own(place, |own| {
                drawn.extend(std::iter::from_fn(|| own.next_inactive()).take(lacking));
            });
        }
    }

    /// Takes the page that has been inactive longest, of the sub-queue of `first` or one behind it, if it is
    /// such a one.
    pub(crate) fn next_inactive_if(&self, first: u16, is_one: impl Fn(Entry) -> bool) -> Option<Entry> {
        if !self.engine.own_queues.has_inactive {
            let mut shared = self.engine.replacement();
            shared.peek_inactive().filter(|entry| is_one(*entry))?;
            return shared.next_inactive();
        }
        self.sources(first).find_map(|place| {
            self.with_own(place, |own| {
                own.queues.peek_inactive().filter(|entry| is_one(*entry))?;
                own.next_inactive()
            })
        })
    }
}
