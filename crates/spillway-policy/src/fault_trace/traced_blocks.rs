//! Blocks as the pager has them: each call goes on to the pure types, and is written down if it is to be.
//!
//! Orders and streams are changed without a lock. While a trace is written their calls are made under the
//! lock of the queues, each with what it writes down, so that what a replay repeats has one order.

use std::cell::{Cell, RefCell};
use std::ops::Range;

use super::block_event::{ElasticCall, Purpose, StreamCall};
use super::event::Event;
use super::runs::Runs;
use super::traced::Traced;
use crate::blocks::{Blocks, Orders};
use crate::read_streams::{Answer, Ask, ReadStreams, Request, STREAMS};
use crate::streams::{Coming, Direction, Earned, Places, Streams};

/// Answers to what a policy asks of pages, which are written down.
fn noting(runs: &RefCell<Runs>, is: impl Fn(u64) -> bool) -> impl Fn(u64) -> bool {
    move |page| {
        let answer = is(page);
        runs.borrow_mut().push(answer.into());
        answer
    }
}

/// What is known of streams, and where its calls are written down.
pub struct TracedStreams<'a, P> {
    /// The streams of faults.
    pub streams: Streams<P>,
    /// Where its calls are written down.
    pub trace: Option<&'a mut Traced>,
}

impl<P: Places> TracedStreams<'_, P> {
    /// [`Streams::earned`], and writes it down.
    pub fn earned(&mut self, page_number: u64, is_far: impl Fn(u64) -> bool) -> Earned {
        let Some(trace) = self.trace.as_mut() else { return self.streams.earned(page_number, is_far) };
        let far = RefCell::default();
        let earned = self.streams.earned(page_number, noting(&far, is_far));
        let (is_along, far) = (false, far.into_inner());
        trace.note(&Event::Stream(StreamCall::Earned { page_number, is_along, far, earned }));
        earned
    }

    /// [`Streams::earned_along`], and writes it down.
    pub fn earned_along(
        &mut self,
        page_number: u64,
        direction: Direction,
        is_far: impl Fn(u64) -> bool,
    ) -> Earned {
        let Some(trace) = self.trace.as_mut() else {
            return self.streams.earned_along(page_number, direction, is_far);
        };
        let far = RefCell::default();
        let earned = self.streams.earned_along(page_number, direction, noting(&far, is_far));
        let (is_along, far) = (true, far.into_inner());
        trace.note(&Event::Stream(StreamCall::Earned { page_number, is_along, far, earned }));
        earned
    }

    /// [`Streams::note`], and writes it down.
    pub fn note(&mut self, coming: &Coming, is_far: impl Fn(u64) -> bool) {
        let Some(trace) = self.trace.as_mut() else { return self.streams.note(coming, is_far) };
        let far = RefCell::default();
        self.streams.note(coming, noting(&far, is_far));
        let (coming, is_along, far) = (*coming, false, far.into_inner());
        trace.note(&Event::Stream(StreamCall::Coming { coming, is_along, far }));
    }

    /// [`Streams::note_along`], and writes it down.
    pub fn note_along(&mut self, coming: &Coming, is_far: impl Fn(u64) -> bool) {
        let Some(trace) = self.trace.as_mut() else { return self.streams.note_along(coming, is_far) };
        let far = RefCell::default();
        self.streams.note_along(coming, noting(&far, is_far));
        let (coming, is_along, far) = (*coming, true, far.into_inner());
        trace.note(&Event::Stream(StreamCall::Coming { coming, is_along, far }));
    }
}

/// What is read ahead, and where its calls are written down.
pub struct TracedReads<'a> {
    /// The streams that are read ahead.
    pub reads: &'a ReadStreams,
    /// Where its calls are written down.
    pub trace: Option<&'a mut Traced>,
}

impl TracedReads<'_> {
    /// [`ReadStreams::ask`], and writes it down.
    pub fn ask(&mut self, ask: Ask) -> (Answer, u64) {
        let (answer, used_pages) = self.reads.ask(&ask);
        if let Some(trace) = self.trace.as_mut() {
            trace.note(&Event::Stream(StreamCall::Ask { ask, answer }));
        }
        (answer, used_pages)
    }

    /// [`ReadStreams::take`] of the first place from `first` on where something was asked for, and writes it
    /// down. Returns the place too.
    pub fn take_from(&mut self, first: u8) -> Option<(u8, Request)> {
        let (place, request) =
            (first..STREAMS as u8).find_map(|place| Some((place, self.reads.take(place)?)))?;
        if let Some(trace) = self.trace.as_mut() {
            trace.note(&Event::Stream(StreamCall::Take { place, request: request.clone() }));
        }
        Some((place, request))
    }

    /// [`Request::behind_marker`], and writes it down.
    pub fn behind_marker(&mut self, request: &Request, is_far: impl Fn(u64) -> bool) -> Option<Range<u64>> {
        let Some(trace) = self.trace.as_mut() else { return request.behind_marker(is_far) };
        let far = RefCell::default();
        let pages = request.behind_marker(noting(&far, is_far));
        let (request, far) = (request.clone(), far.into_inner());
        trace.note(&Event::Stream(StreamCall::Marker { request, far, pages: pages.clone() }));
        pages
    }
}

/// Elastic blocks, and where their calls are written down.
pub struct TracedBlocks<'a, O> {
    /// The blocks as they are.
    pub blocks: Blocks<O>,
    /// Where its calls are written down.
    pub trace: Option<&'a mut Traced>,
}

impl<O: Orders> TracedBlocks<'_, O> {
    fn note(&mut self, call: impl FnOnce() -> ElasticCall) {
        if let Some(trace) = self.trace.as_mut() {
            trace.note(&Event::Elastic(call()));
        }
    }

    /// [`Blocks::lock`], and writes it down.
    pub fn lock<L>(
        &mut self,
        page_number: u64,
        purpose: Purpose,
        try_lock: impl FnMut(u64) -> Option<L>,
        unlock: impl FnMut(u64, L),
    ) -> Option<(Range<u64>, L)> {
        let outcome = self.blocks.lock(page_number, try_lock, unlock);
        let locked = || outcome.as_ref().map(|(block, _)| block.clone());
        self.note(|| ElasticCall::Lock { page_number, purpose, locked: locked() });
        outcome
    }

    /// [`Blocks::stretch`], and writes it down.
    pub fn stretch(&mut self, page_number: u64, joins: impl FnOnce(u64, Range<u64>) -> bool) -> Option<u64> {
        let told = Cell::new(None);
        let buddy = self.blocks.stretch(page_number, |buddy, merged| {
            let answer = joins(buddy, merged);
            told.set(Some(answer));
            answer
        });
        self.note(|| ElasticCall::Stretch { page_number, joins: told.get(), buddy });
        buddy
    }

    /// [`Blocks::reduce`], and writes it down.
    pub fn reduce(&mut self, page_number: u64, is_referenced: impl Fn(u64) -> bool) -> bool {
        if self.trace.is_none() {
            return self.blocks.reduce(page_number, is_referenced);
        }
        let referenced = RefCell::default();
        let is_reduced = self.blocks.reduce(page_number, noting(&referenced, is_referenced));
        let referenced = referenced.into_inner();
        self.note(|| ElasticCall::Reduce { page_number, referenced, is_reduced });
        is_reduced
    }

    /// [`Blocks::part`], and writes it down.
    pub fn part(&mut self, pages: Range<u64>) {
        self.blocks.part(pages.clone());
        self.note(|| ElasticCall::Part { pages });
    }

    /// [`Blocks::pages`], where something is done to all of them, and writes it down.
    pub fn members(&mut self, page_number: u64) -> Range<u64> {
        let pages = self.blocks.pages(page_number);
        self.note(|| ElasticCall::Members { page_number, pages: pages.clone() });
        pages
    }
}
