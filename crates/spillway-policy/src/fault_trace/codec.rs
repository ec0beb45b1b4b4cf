//! Events as bytes: numbers of variable length, pages as the distance from the one before.

use spillway_core::fifo::Entry;
use spillway_core::page_word::Queue;
use thiserror::Error;

use super::block_codec::CallEncoder;
use super::bytes::{Source, Stop, flag, picked, place, put, put_page, put_runs};
use super::event::{Access, Block, Cause, Event, Fault, Foreseen, Left, Served, Taped, ThreadCall};
use crate::dcm::Step;
use crate::strides::{Foresight, MOST_AHEAD_PAGES};
use crate::tape::Met;
use crate::tape::window::MOST_ASKED_PAGES;
use crate::thread_queues::Flushed;

const START: u8 = 0;
const NEWCOMER: u8 = 1;
const RETURNER: u8 = 2;
const ENQUEUE: u8 = 3;
const NEXT_MAPPED: u8 = 4;
const NEXT_INACTIVE: u8 = 5;
const DROP_STALE: u8 = 6;
const FAULT: u8 = 7;
const BLOCK: u8 = 8;
const LEFT: u8 = 9;
const SCAN: u8 = 10;
const FORESEEN: u8 = 16;
const TAPED: u8 = 17;
const THREAD: u8 = 18;
const STREAM: u8 = 19;
const ELASTIC: u8 = 20;

// What a thread was asked.
const OWN_NEWCOMER: u8 = 0;
const OWN_RETURNER: u8 = 1;
const COLLECT: u8 = 2;
const FLUSH: u8 = 3;
const ENQUEUE_INACTIVE: u8 = 4;
const OWN_NEXT_INACTIVE: u8 = 5;
const OWN_DROP_STALE: u8 = 6;
const SOURCE: u8 = 7;
/// Threads are numbered below this.
const MOST_THREADS: u64 = 1 << 12;

const QUEUES: [Queue; 3] = [Queue::Active, Queue::Proactive, Queue::Inactive];
const ACCESSES: [Access; 3] = [Access::Read, Access::Write, Access::Protected];
const SERVED: [Served; 5] =
    [Served::FirstTouch, Served::Fetch, Served::Inactive, Served::Writeback, Served::Other];
const CAUSES: [Cause; 4] = [Cause::Fetch, Cause::ReadAhead, Cause::Zeros, Cause::TakenOver];
const FORESIGHTS: [Foresight; 3] = [Foresight::Off, Foresight::Trend, Foresight::Rounds];
const LEFTS: [Left; 4] = [Left::Clean, Left::Stored, Left::Zeros, Left::Forgotten];
/// Bytes of a header at most.
const HEADER_BYTES: u64 = 1 << 16;

/// What is no event.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("event {index} makes no sense")]
pub struct Malformed {
    /// How many events came before it.
    pub index: u64,
}

/// Writes one event after another.
#[derive(Default)]
pub struct Encoder {
    last_page: u64,
}

impl Encoder {
    /// Appends an event to `bytes`.
    pub fn encode(&mut self, event: &Event, bytes: &mut Vec<u8>) {
        match event {
            Event::Start(header) => {
                let text = serde_json::to_vec(header).unwrap_or_default();
                bytes.push(START);
                put(text.len() as u64, bytes);
                bytes.extend(text);
            }
            Event::Newcomer(queue) => bytes.extend([NEWCOMER, place(&QUEUES, queue)]),
            Event::Returner { away_pages, local_pages, queue } => {
                bytes.extend([RETURNER, place(&QUEUES, queue)]);
                put(*away_pages, bytes);
                put(*local_pages, bytes);
            }
            Event::Enqueue { queue, entry, is_full } => {
                bytes.extend([ENQUEUE, place(&QUEUES, queue) | u8::from(*is_full) << 2]);
                self.entry(*entry, bytes);
            }
            Event::NextMapped { ranks, step } => {
                let (number, entry) = match *step {
                    None => (0, None),
                    Some(Step::ToActive(entry)) => (1, Some(entry)),
                    Some(Step::ToProactive(entry)) => (2, Some(entry)),
                    Some(Step::ToInactive(entry)) => (3, Some(entry)),
                };
                bytes.extend([NEXT_MAPPED, number]);
                if let Some(entry) = entry {
                    self.entry(entry, bytes);
                }
                put_runs(ranks, bytes);
            }
            Event::NextInactive(entry) => {
                bytes.extend([NEXT_INACTIVE, u8::from(entry.is_some())]);
                if let Some(entry) = entry {
                    self.entry(*entry, bytes);
                }
            }
            Event::DropStale(kept) => {
                bytes.push(DROP_STALE);
                put_runs(kept, bytes);
            }
            Event::Thread { place, call } => {
                bytes.push(THREAD);
                put((*place).into(), bytes);
                self.thread_call(call, bytes);
            }
            Event::Fault(Fault { page_number, access, served }) => {
                bytes.extend([FAULT, place(&SERVED, served) | place(&ACCESSES, access) << 4]);
                self.page(*page_number, bytes);
            }
            Event::Foreseen(foreseen) => {
                let how = place(&FORESIGHTS, &foreseen.foresight) | u8::from(foreseen.is_new) << 4;
                bytes.extend([FORESEEN, foreseen.place, how]);
                self.page(foreseen.page_number, bytes);
                put(foreseen.most, bytes);
                put(foreseen.used, bytes);
                put_runs(&foreseen.far, bytes);
                put(foreseen.asked.len() as u64, bytes);
                foreseen.asked.iter().for_each(|&page_number| self.page(page_number, bytes));
            }
            Event::Taped(taped) => {
                let (how, numbers) = match taped.met {
                    Met::Next { used, passed, passed_far } => (0, [used, passed, passed_far]),
                    Met::Elsewhere => (1, [0; 3]),
                    Met::Nowhere => (2, [0; 3]),
                };
                bytes.extend([TAPED, taped.place, how | u8::from(taped.is_new) << 4]);
                self.page(taped.page_number, bytes);
                numbers.into_iter().for_each(|number| put(number, bytes));
                put(taped.most, bytes);
                put(taped.wanted, bytes);
                put(taped.asked.len() as u64, bytes);
                taped.asked.iter().for_each(|&page_number| self.page(page_number, bytes));
            }
            Event::Stream(call) => {
                bytes.push(STREAM);
                CallEncoder { last_page: &mut self.last_page, bytes }.stream(call);
            }
            Event::Elastic(call) => {
                bytes.push(ELASTIC);
                CallEncoder { last_page: &mut self.last_page, bytes }.elastic(call);
            }
            Event::Block(Block { cause, page_number, wanted_pages, came_pages }) => {
                bytes.extend([BLOCK, place(&CAUSES, cause)]);
                self.page(*page_number, bytes);
                put(*wanted_pages, bytes);
                put(*came_pages, bytes);
            }
            Event::Left { how, page_number, pages } => {
                bytes.extend([LEFT, place(&LEFTS, how)]);
                self.page(*page_number, bytes);
                put(*pages, bytes);
            }
            Event::Scan { page_number, found } => {
                bytes.push(SCAN);
                self.page(*page_number, bytes);
                put_runs(found, bytes);
            }
        }
    }

    fn thread_call(&mut self, call: &ThreadCall, bytes: &mut Vec<u8>) {
        match call {
            ThreadCall::Newcomer(queue) => bytes.extend([OWN_NEWCOMER, place(&QUEUES, queue)]),
            ThreadCall::Returner { away_pages, local_pages, queue } => {
                bytes.extend([OWN_RETURNER, place(&QUEUES, queue)]);
                put(*away_pages, bytes);
                put(*local_pages, bytes);
            }
            ThreadCall::Collect { queue, entry, is_full } => {
                bytes.extend([COLLECT, place(&QUEUES, queue) | u8::from(*is_full) << 2]);
                self.entry(*entry, bytes);
            }
            ThreadCall::Flush(Flushed { moved, is_full }) => {
                bytes.extend([FLUSH, u8::from(*is_full)]);
                put(*moved, bytes);
            }
            ThreadCall::EnqueueInactive { entry, is_full } => {
                bytes.extend([ENQUEUE_INACTIVE, u8::from(*is_full)]);
                self.entry(*entry, bytes);
            }
            ThreadCall::NextInactive(entry) => {
                bytes.extend([OWN_NEXT_INACTIVE, u8::from(entry.is_some())]);
                if let Some(entry) = entry {
                    self.entry(*entry, bytes);
                }
            }
            ThreadCall::DropStale(kept) => {
                bytes.push(OWN_DROP_STALE);
                put_runs(kept, bytes);
            }
            ThreadCall::Source { threads, first } => {
                bytes.push(SOURCE);
                put((*threads).into(), bytes);
                put((*first).into(), bytes);
            }
        }
    }

    fn entry(&mut self, entry: Entry, bytes: &mut Vec<u8>) {
        self.page(entry.page_number, bytes);
        bytes.push(entry.generation);
    }

    fn page(&mut self, page_number: u64, bytes: &mut Vec<u8>) {
        put_page(page_number, &mut self.last_page, bytes);
    }
}

/// Reads what an [`Encoder`] wrote, from bytes that come in parts of any length.
#[derive(Default)]
pub struct Decoder {
    bytes: Vec<u8>,
    at: usize,
    last_page: u64,
    count: u64,
}

impl Decoder {
    /// Takes the next part.
    pub fn feed(&mut self, part: &[u8]) {
        self.bytes.drain(..self.at);
        self.at = 0;
        self.bytes.extend_from_slice(part);
    }

    /// The next event; None where the rest of it has not come.
    ///
    /// # Errors
    /// What comes is no event.
    pub fn next_event(&mut self) -> Result<Option<Event>, Malformed> {
        let mut source = Source { bytes: &self.bytes, at: self.at, last_page: self.last_page };
        match source.event() {
            Ok(event) => {
                (self.at, self.last_page) = (source.at, source.last_page);
                self.count += 1;
                Ok(Some(event))
            }
            Err(Stop::More) => Ok(None),
            Err(Stop::Bad) => Err(Malformed { index: self.count }),
        }
    }

    /// Whether a part of an event is left over.
    #[must_use]
    pub fn is_amid_an_event(&self) -> bool {
        self.at < self.bytes.len()
    }
}

impl Source<'_> {
    fn event(&mut self) -> Result<Event, Stop> {
        Ok(match self.byte()? {
            START => {
                let length = self.number(HEADER_BYTES)? as usize;
                let text = self.bytes.get(self.at..self.at + length).ok_or(Stop::More)?;
                self.at += length;
                Event::Start(serde_json::from_slice(text).map_err(|_| Stop::Bad)?)
            }
            NEWCOMER => Event::Newcomer(self.one_of(&QUEUES)?),
            RETURNER => {
                let queue = self.one_of(&QUEUES)?;
                Event::Returner { queue, away_pages: self.word()?, local_pages: self.word()? }
            }
            ENQUEUE => {
                let byte = self.byte()?;
                let queue = picked(&QUEUES, byte & 3)?;
                let is_full = flag(byte >> 2)?;
                Event::Enqueue { queue, is_full, entry: self.entry()? }
            }
            NEXT_MAPPED => {
                let step = match self.byte()? {
                    0 => None,
                    1 => Some(Step::ToActive(self.entry()?)),
                    2 => Some(Step::ToProactive(self.entry()?)),
                    3 => Some(Step::ToInactive(self.entry()?)),
                    _ => return Err(Stop::Bad),
                };
                Event::NextMapped { step, ranks: self.runs()? }
            }
            NEXT_INACTIVE => {
                let is_some = flag(self.byte()?)?;
                Event::NextInactive(is_some.then(|| self.entry()).transpose()?)
            }
            DROP_STALE => Event::DropStale(self.runs()?),
            THREAD => Event::Thread { place: self.thread()?, call: self.thread_call()? },
            FAULT => {
                let byte = self.byte()?;
                let (served, access) = (picked(&SERVED, byte & 15)?, picked(&ACCESSES, byte >> 4)?);
                Event::Fault(Fault { page_number: self.page()?, access, served })
            }
            FORESEEN => {
                let (place, how) = (self.byte()?, self.byte()?);
                let (foresight, is_new) = (picked(&FORESIGHTS, how & 15)?, flag(how >> 4)?);
                let (page_number, most, used) = (self.page()?, self.word()?, self.word()?);
                let far = self.runs()?;
                let count = self.number(MOST_AHEAD_PAGES as u64 + 1)?;
                let asked = (0..count).map(|_| self.page()).collect::<Result<_, _>>()?;
                Event::Foreseen(Foreseen { place, is_new, foresight, page_number, most, far, used, asked })
            }
            TAPED => Event::Taped(self.taped()?),
            STREAM => Event::Stream(self.stream_call()?),
            ELASTIC => Event::Elastic(self.elastic_call()?),
            BLOCK => Event::Block(Block {
                cause: self.one_of(&CAUSES)?,
                page_number: self.page()?,
                wanted_pages: self.word()?,
                came_pages: self.word()?,
            }),
            LEFT => {
                let how = self.one_of(&LEFTS)?;
                Event::Left { how, page_number: self.page()?, pages: self.word()? }
            }
            SCAN => Event::Scan { page_number: self.page()?, found: self.runs()? },
            _ => return Err(Stop::Bad),
        })
    }

    fn taped(&mut self) -> Result<Taped, Stop> {
        let (place, how) = (self.byte()?, self.byte()?);
        let (is_new, page_number) = (flag(how >> 4)?, self.page()?);
        let next = Met::Next { used: self.word()?, passed: self.word()?, passed_far: self.word()? };
        let met = picked(&[next, Met::Elsewhere, Met::Nowhere], how & 15)?;
        let (most, wanted) = (self.word()?, self.word()?);
        let count = self.number(MOST_ASKED_PAGES as u64 + 1)?;
        let asked = (0..count).map(|_| self.page()).collect::<Result<_, _>>()?;
        Ok(Taped { place, is_new, page_number, met, most, wanted, asked })
    }

    fn thread_call(&mut self) -> Result<ThreadCall, Stop> {
        Ok(match self.byte()? {
            OWN_NEWCOMER => ThreadCall::Newcomer(self.one_of(&QUEUES)?),
            OWN_RETURNER => {
                let queue = self.one_of(&QUEUES)?;
                ThreadCall::Returner { queue, away_pages: self.word()?, local_pages: self.word()? }
            }
            COLLECT => {
                let byte = self.byte()?;
                let queue = picked(&QUEUES, byte & 3)?;
                let is_full = flag(byte >> 2)?;
                ThreadCall::Collect { queue, is_full, entry: self.entry()? }
            }
            FLUSH => {
                let is_full = flag(self.byte()?)?;
                ThreadCall::Flush(Flushed { is_full, moved: self.word()? })
            }
            ENQUEUE_INACTIVE => {
                let is_full = flag(self.byte()?)?;
                ThreadCall::EnqueueInactive { is_full, entry: self.entry()? }
            }
            OWN_NEXT_INACTIVE => {
                let is_some = flag(self.byte()?)?;
                ThreadCall::NextInactive(is_some.then(|| self.entry()).transpose()?)
            }
            OWN_DROP_STALE => ThreadCall::DropStale(self.runs()?),
            SOURCE => ThreadCall::Source { threads: self.thread()?, first: self.thread()? },
            _ => return Err(Stop::Bad),
        })
    }

    fn thread(&mut self) -> Result<u16, Stop> {
        Ok(self.number(MOST_THREADS)? as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dcm::Config;
    use crate::fault_trace::block_event::{BlockKind, BlockRule, ElasticCall, Purpose, StreamCall};
    use crate::fault_trace::bytes::PAGE_LIMIT;
    use crate::fault_trace::event::Header;
    use crate::fault_trace::runs::Runs;
    use crate::read_streams::{Answer, Ask, Request};
    use crate::streams::{Coming, Direction, Earned};
    use proptest::prelude::*;
    use std::ops::Range;

    fn entries() -> impl Strategy<Value = Entry> {
        (0..PAGE_LIMIT, 0_u8..128).prop_map(|(page_number, generation)| Entry { page_number, generation })
    }

    fn runs() -> impl Strategy<Value = Runs> {
        prop::collection::vec((any::<u8>(), any::<u64>()), 0..5).prop_map(Runs)
    }

    fn ranges() -> impl Strategy<Value = Range<u64>> {
        (0..PAGE_LIMIT, 0..PAGE_LIMIT).prop_map(|(start, pages)| start..start + pages)
    }

    fn stream_calls() -> impl Strategy<Value = StreamCall> {
        let direction = || prop::sample::select(&Direction::BOTH[..]);
        let numbers = || (any::<u64>(), any::<u64>(), any::<u64>());
        let request = || {
            (ranges(), direction(), any::<bool>()).prop_map(|(pages, direction, write)| Request {
                pages,
                direction,
                write,
            })
        };
        prop_oneof![
            (0..PAGE_LIMIT, any::<bool>(), runs(), direction(), numbers()).prop_map(
                |(page_number, is_along, far, direction, (pages, used_pages, used_zeros))| {
                    let earned = Earned { direction, pages, used_pages, used_zeros };
                    StreamCall::Earned { page_number, is_along, far, earned }
                }
            ),
            (0..PAGE_LIMIT, any::<[bool; 2]>(), runs(), direction(), numbers()).prop_map(
                |(page_number, [is_along, is_zeros], far, direction, numbers)| {
                    let (wanted_pages, span_pages, ahead_pages) = numbers;
                    let coming =
                        Coming { page_number, direction, wanted_pages, span_pages, ahead_pages, is_zeros };
                    StreamCall::Coming { coming, is_along, far }
                }
            ),
            (any::<(u32, u64, u8)>(), 0..PAGE_LIMIT, direction(), ranges(), any::<[bool; 3]>()).prop_map(
                |((thread, pages, place), page_number, direction, block, [write, has_cpu, goes_on])| {
                    let ask = Ask { thread, page_number, direction, block, pages, write };
                    StreamCall::Ask { ask, answer: Answer { has_cpu, place, goes_on } }
                }
            ),
            (any::<u8>(), request()).prop_map(|(place, request)| StreamCall::Take { place, request }),
            (request(), runs(), prop::option::of(ranges()))
                .prop_map(|(request, far, pages)| StreamCall::Marker { request, far, pages }),
        ]
    }

    fn elastic_calls() -> impl Strategy<Value = ElasticCall> {
        let purposes = vec![Purpose::Fetch, Purpose::Grow, Purpose::Reduce];
        prop_oneof![
            (0..PAGE_LIMIT, prop::sample::select(purposes), prop::option::of(ranges())).prop_map(
                |(page_number, purpose, locked)| ElasticCall::Lock { page_number, purpose, locked }
            ),
            (0..PAGE_LIMIT, any::<Option<bool>>(), prop::option::of(0..PAGE_LIMIT))
                .prop_map(|(page_number, joins, buddy)| ElasticCall::Stretch { page_number, joins, buddy }),
            (0..PAGE_LIMIT, runs(), any::<bool>()).prop_map(|(page_number, referenced, is_reduced)| {
                ElasticCall::Reduce { page_number, referenced, is_reduced }
            }),
            ranges().prop_map(|pages| ElasticCall::Part { pages }),
            (0..PAGE_LIMIT, ranges())
                .prop_map(|(page_number, pages)| ElasticCall::Members { page_number, pages }),
        ]
    }

    fn events() -> impl Strategy<Value = Event> {
        let queue = || prop::sample::select(&QUEUES[..]);
        let header = |(local_pages, seed)| {
            let (replacement, settings) = (Config::default(), serde_json::json!({"block": "elastic"}));
            let rule = BlockRule { kind: BlockKind::Elastic, most_pages: 16, cpus: 2 };
            let blocks = (seed % 2 == 0).then_some(rule);
            Event::Start(Header {
                replacement,
                victim_window_pages: 256,
                local_pages,
                seed,
                blocks,
                settings,
            })
        };
        let step = entries().prop_flat_map(|entry| {
            prop::sample::select(vec![
                Some(Step::ToActive(entry)),
                Some(Step::ToProactive(entry)),
                Some(Step::ToInactive(entry)),
                None,
            ])
        });
        let fault = (0..PAGE_LIMIT, prop::sample::select(&ACCESSES[..]), prop::sample::select(&SERVED[..]));
        let block = (prop::sample::select(&CAUSES[..]), 0..PAGE_LIMIT, any::<u64>(), any::<u64>());
        let asked = prop::collection::vec(0..PAGE_LIMIT, 0..=MOST_AHEAD_PAGES);
        let numbers = (any::<u8>(), any::<bool>(), any::<u64>(), any::<u64>());
        let foresight = prop::sample::select(&FORESIGHTS[..]);
        let foreseen = (numbers, foresight, 0..PAGE_LIMIT, runs(), asked).prop_map(
            |((place, is_new, most, used), foresight, page_number, far, asked)| {
                Event::Foreseen(Foreseen { place, is_new, foresight, page_number, most, far, used, asked })
            },
        );
        let met = prop_oneof![
            (any::<u64>(), any::<u64>(), any::<u64>()).prop_map(|(used, passed, passed_far)| Met::Next {
                used,
                passed,
                passed_far
            }),
            Just(Met::Elsewhere),
            Just(Met::Nowhere),
        ];
        let asked = prop::collection::vec(0..PAGE_LIMIT, 0..=MOST_ASKED_PAGES);
        let taped = (any::<u8>(), any::<bool>(), 0..PAGE_LIMIT, met, any::<u64>(), any::<u64>(), asked)
            .prop_map(|(place, is_new, page_number, met, most, wanted, asked)| {
                Event::Taped(Taped { place, is_new, page_number, met, most, wanted, asked })
            });
        let call = prop_oneof![
            queue().prop_map(ThreadCall::Newcomer),
            (any::<u64>(), any::<u64>(), queue()).prop_map(|(away_pages, local_pages, queue)| {
                ThreadCall::Returner { away_pages, local_pages, queue }
            }),
            (queue(), entries(), any::<bool>()).prop_map(|(queue, entry, is_full)| ThreadCall::Collect {
                queue,
                entry,
                is_full
            }),
            (any::<u64>(), any::<bool>())
                .prop_map(|(moved, is_full)| ThreadCall::Flush(Flushed { moved, is_full })),
            (entries(), any::<bool>())
                .prop_map(|(entry, is_full)| ThreadCall::EnqueueInactive { entry, is_full }),
            prop::option::of(entries()).prop_map(ThreadCall::NextInactive),
            runs().prop_map(ThreadCall::DropStale),
            (0_u16..4096, 0_u16..4096).prop_map(|(threads, first)| ThreadCall::Source { threads, first }),
        ];
        prop_oneof![
            foreseen,
            taped,
            stream_calls().prop_map(Event::Stream),
            elastic_calls().prop_map(Event::Elastic),
            (0_u16..4096, call).prop_map(|(place, call)| Event::Thread { place, call }),
            (any::<usize>(), any::<u64>()).prop_map(header),
            queue().prop_map(Event::Newcomer),
            (any::<u64>(), any::<u64>(), queue()).prop_map(|(away_pages, local_pages, queue)| {
                Event::Returner { away_pages, local_pages, queue }
            }),
            (queue(), entries(), any::<bool>()).prop_map(|(queue, entry, is_full)| Event::Enqueue {
                queue,
                entry,
                is_full
            }),
            (runs(), step).prop_map(|(ranks, step)| Event::NextMapped { ranks, step }),
            prop::option::of(entries()).prop_map(Event::NextInactive),
            runs().prop_map(Event::DropStale),
            fault.prop_map(|(page_number, access, served)| Event::Fault(Fault {
                page_number,
                access,
                served
            })),
            block.prop_map(|(cause, page_number, wanted_pages, came_pages)| {
                Event::Block(Block { cause, page_number, wanted_pages, came_pages })
            }),
            (prop::sample::select(&LEFTS[..]), 0..PAGE_LIMIT, any::<u64>())
                .prop_map(|(how, page_number, pages)| Event::Left { how, page_number, pages }),
            (0..PAGE_LIMIT, runs()).prop_map(|(page_number, found)| Event::Scan { page_number, found }),
        ]
    }

    proptest! {
        /// In parts of any length.
        #[test]
        fn events_come_back_as_they_went(
            events in prop::collection::vec(events(), 0..40), part_bytes in 1_usize..50,
        ) {
            let (mut encoder, mut decoder, mut bytes) = (Encoder::default(), Decoder::default(), Vec::new());
            events.iter().for_each(|event| encoder.encode(event, &mut bytes));
            let mut back = Vec::new();
            for part in bytes.chunks(part_bytes) {
                decoder.feed(part);
                while let Some(event) = decoder.next_event().unwrap() {
                    back.push(event);
                }
            }
            prop_assert_eq!(back, events);
            prop_assert!(!decoder.is_amid_an_event());
        }

        #[test]
        fn bytes_of_any_kind_end_in_an_event_or_an_error(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let mut decoder = Decoder::default();
            decoder.feed(&bytes);
            let mut count = 0;
            while let Ok(Some(_)) = decoder.next_event() {
                count += 1;
            }
            prop_assert!(count <= bytes.len());
        }
    }
}
