//! The evictor answers what the process is asked of its pages from outside ([`crate::run::inquiry`],
//! [`crate::run::heat`]).

use std::ops::Range;

use spillway_core::fifo::Entry;
use spillway_core::page_word::{PageInfo, PageState, Queue};
use spillway_policy::use_history;

use crate::kernel::Kernel;
use crate::pages::address::address_of;
use crate::process::worker::Worker;
use crate::run::heat::{Heat, Warmth};
use crate::run::inquiry::{Leaving, MOST_NEXT, PageTold, Told, Whose};

/// Entries that are looked at for those of pages that may leave: others are stale.
const MOST_LOOKED_AT: usize = 512;

impl<K: Kernel> Worker<K> {
    /// Whether something was asked that is not answered.
    pub(crate) fn is_inquired(&self) -> bool {
        self.at.process().inquiry().is_open() || self.at.run.heat(self.at.entry).is_open()
    }

    /// Answers what was asked. False where nothing was.
    pub(crate) fn answer_inquiry(&self) -> bool {
        let inquiry = self.at.process().inquiry();
        let is_open = inquiry.is_open();
        if is_open {
            inquiry.answer(|page_number| Told {
                page: page_number.map(|page_number| self.told_of(page_number)),
                next: self.leaving_next(),
            });
        }
        is_open
    }

    /// Answers how warm its memory is, where that was asked. False where it was not.
    pub(crate) fn answer_heat(&self) -> bool {
        let words = self.at.run.heat(self.at.entry);
        let is_open = words.is_open();
        if is_open {
            words.answer(|turn| self.heat(turn));
        }
        is_open
    }

    /// What changes while it is looked through may be told as it was before, or after.
    fn heat(&self, turn: u64) -> Heat {
        let engine = self.engine;
        let native: Vec<Range<usize>> = engine.native().iter().map(|(range, _)| range).collect();
        let managed: Vec<Range<usize>> = engine.regions().iter().map(|(range, _)| range).collect();
        let table = &engine.table;
        Heat::of(&managed, &native, turn, |page_number| {
            let info = table.find(page_number).map_or(PageInfo::ABSENT, |word| word.peek());
            // Most that is not local needs no further look.
            if !info.is_mapped() {
                return Warmth::of(info, use_history::UNKNOWN, false);
            }
            let rank = table.use_of(page_number).rank();
            Warmth::of(info, rank, engine.refuses() && table.is_refused(page_number))
        })
    }

    fn told_of(&self, page_number: u64) -> PageTold {
        let (engine, address) = (self.engine, address_of(page_number));
        let whose = match () {
            () if engine.regions().contains(address) => Whose::Pager,
            () if engine.native().contains(address) => Whose::Kernel,
            () => Whose::Nobody,
        };
        let word = engine.table.find(page_number);
        let info = word.map_or(PageInfo::ABSENT, |word| word.peek());
        let rank = engine.table.use_of(page_number).rank();
        PageTold {
            whose,
            info,
            is_busy: word.is_some_and(|word| word.is_locked()),
            is_ahead: engine.table.is_ahead(page_number),
            use_rank: (rank != use_history::UNKNOWN).then_some(rank),
            left_since_pages: match info.state {
                PageState::Far { left, .. } => engine.departures.since(left),
                _ => 0,
            },
        }
    }

    /// Inactive pages are written back, or dropped, before mapped ones leave.
    fn leaving_next(&self) -> Vec<Leaving> {
        let engine = self.engine;
        let is_queued = |queue: Queue| move |entry: &Entry| engine.is_queued(*entry, queue);
        let mut next = Vec::with_capacity(MOST_NEXT);
        for place in 0..engine.own_queues.count() {
            let own = engine.own_queues.lock::<K>(place);
            let entries = own.inactive_in_order().take(MOST_LOOKED_AT).filter(is_queued(Queue::Inactive));
            next.extend(
                entries.take(MOST_NEXT - next.len()).map(|entry| (Queue::Inactive, entry.page_number)),
            );
        }
        let shared = engine.replacement();
        for queue in [Queue::Inactive, Queue::Active, Queue::Proactive] {
            let entries = shared.in_order(queue).take(MOST_LOOKED_AT).filter(is_queued(queue));
            next.extend(entries.take(MOST_NEXT - next.len()).map(|entry| (queue, entry.page_number)));
        }
        next
    }
}
