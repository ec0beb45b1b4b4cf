//! Replays what a fault trace tells of blocks: the same calls to the same pure types.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::ops::Range;

use super::block_event::{BlockKind, BlockRule, ElasticCall, Purpose, StreamCall};
use super::event::{Block, Cause};
use super::runs::told;
use crate::blocks::{Blocks, LARGEST_ORDER, Orders, static_block};
use crate::read_streams::ReadStreams;
use crate::streams::{SparsePlaces, Streams};

/// An answer that is not the pager's, in words.
pub(super) struct Mismatch {
    pub(super) what: &'static str,
    pub(super) live: String,
    pub(super) replayed: String,
}

pub(super) fn same<T: PartialEq + Debug>(what: &'static str, live: &T, replayed: &T) -> Result<(), Mismatch> {
    if live == replayed {
        return Ok(());
    }
    Err(Mismatch { what, live: format!("{live:?}"), replayed: format!("{replayed:?}") })
}

/// The orders of the pages that are no single ones.
#[derive(Default)]
struct KnownOrders(RefCell<BTreeMap<u64, u8>>);

impl Orders for KnownOrders {
    fn order(&self, page: u64) -> Option<u8> {
        Some(self.0.borrow().get(&page).copied().unwrap_or_default())
    }

    fn set_order(&self, page: u64, order: u8) {
        let mut orders = self.0.borrow_mut();
        if order == 0 {
            orders.remove(&page)
        } else {
            orders.insert(page, order)
        };
    }

    fn clear_orders(&self, pages: Range<u64>) {
        let mut orders = self.0.borrow_mut();
        let known: Vec<u64> = orders.range(pages).map(|(page, _)| *page).collect();
        for page in known {
            orders.remove(&page);
        }
    }
}

/// What a replay knows of blocks.
pub(super) struct BlockReplay {
    rule: BlockRule,
    streams: Streams<SparsePlaces>,
    reads: ReadStreams,
    blocks: Blocks<KnownOrders>,
    /// Pages that were asked for with a far page, and with one of zeros.
    wanted: HashMap<u64, u64>,
    wanted_zeros: HashMap<u64, u64>,
    /// Pages that come by a tape with one that has not asked its stream yet.
    by_tape: HashMap<u64, u64>,
    wanted_ahead: Option<u64>,
    /// Answers that are the pager's.
    pub(super) calls: u64,
}

impl BlockReplay {
    pub(super) fn new(rule: BlockRule) -> Self {
        let max_order = rule.most_pages.max(1).ilog2().min(LARGEST_ORDER.into()) as u8;
        Self {
            rule,
            streams: Streams::over(SparsePlaces::default(), rule.most_pages),
            reads: ReadStreams::new(rule.cpus),
            blocks: Blocks::over(KnownOrders::default(), max_order),
            wanted: HashMap::new(),
            wanted_zeros: HashMap::new(),
            by_tape: HashMap::new(),
            wanted_ahead: None,
            calls: 0,
        }
    }

    /// A thread is expected at so many pages, which come with this one.
    pub(super) fn note_foreseen(&mut self, page_number: u64, pages: u64) {
        self.wanted.insert(page_number, 1 + pages);
    }

    /// A tape has so many pages behind this one.
    pub(super) fn note_taped(&mut self, page_number: u64, pages: u64) {
        if pages > 0 {
            self.by_tape.insert(page_number, 1 + pages);
        }
    }

    /// What streams were asked.
    pub(super) fn stream(&mut self, call: &StreamCall) -> Result<(), Mismatch> {
        match call {
            StreamCall::Earned { page_number, is_along, far, earned } => {
                let told = told(far);
                let is_far = |_| told.next() != 0;
                let replayed = match is_along {
                    true => self.streams.earned_along(*page_number, earned.direction, is_far),
                    false => self.streams.earned(*page_number, is_far),
                };
                same("the block that a stream has earned", earned, &replayed)?;
                same("how many pages a stream asks about", &far.len(), &told.asked())?;
                let pages = self.by_tape.remove(page_number).filter(|_| !is_along).unwrap_or(replayed.pages);
                let wanted = if *is_along { &mut self.wanted_zeros } else { &mut self.wanted };
                wanted.insert(*page_number, pages);
            }
            StreamCall::Coming { coming, is_along, far } => {
                let told = told(far);
                let is_far = |_| told.next() != 0;
                match is_along {
                    true => self.streams.note_along(coming, is_far),
                    false => self.streams.note(coming, is_far),
                }
                same("how many pages a stream asks about as a block comes", &far.len(), &told.asked())?;
            }
            StreamCall::Ask { ask, answer } => {
                same("what is asked for ahead", answer, &self.reads.ask(ask).0)?;
            }
            StreamCall::Take { place, request } => {
                same("what is read ahead", &Some(request.clone()), &self.reads.take(*place))?;
            }
            StreamCall::Marker { request, far, pages } => {
                let told = told(far);
                let replayed = request.behind_marker(|_| told.next() != 0);
                same("what stays far as a marker", pages, &replayed)?;
                same("how many pages a marker is looked for among", &far.len(), &told.asked())?;
                self.wanted_ahead = replayed.map(|pages| pages.end - pages.start);
            }
        }
        self.calls += 1;
        Ok(())
    }

    /// What elastic blocks were asked.
    pub(super) fn elastic(&mut self, call: &ElasticCall) -> Result<(), Mismatch> {
        match call {
            ElasticCall::Lock { page_number, purpose, locked } => {
                let is_had = locked.is_some();
                let replayed = self.blocks.lock(*page_number, |_| is_had.then_some(()), |_, ()| ());
                let replayed = replayed.map(|(block, ())| block);
                same("the block that is locked", locked, &replayed)?;
                if *purpose == Purpose::Fetch {
                    let pages = replayed.map_or(1, |block| block.end - block.start);
                    self.wanted.insert(*page_number, pages);
                }
            }
            ElasticCall::Stretch { page_number, joins, buddy } => {
                let mut asked = None;
                let replayed = self.blocks.stretch(*page_number, |_, _| {
                    asked = Some(joins.unwrap_or_default());
                    joins.unwrap_or_default()
                });
                same("whether a buddy is asked for", joins, &asked)?;
                same("the buddy that a block is stretched by", buddy, &replayed)?;
            }
            ElasticCall::Reduce { page_number, referenced, is_reduced } => {
                let told = told(referenced);
                let replayed = self.blocks.reduce(*page_number, |_| told.next() != 0);
                same("whether a block is taken apart", is_reduced, &replayed)?;
                same("how many pages a block has that leaves", &referenced.len(), &told.asked())?;
            }
            ElasticCall::Part { pages } => self.blocks.part(pages.clone()),
            ElasticCall::Members { page_number, pages } => {
                same("the block of a page", pages, &self.blocks.pages(*page_number))?;
            }
        }
        self.calls += 1;
        Ok(())
    }

    /// Pages came. As many were wanted as the types above have said.
    pub(super) fn came(&mut self, block: &Block) -> Result<(), Mismatch> {
        let Block { cause, page_number, wanted_pages, came_pages } = *block;
        let is_static = self.rule.kind == BlockKind::Static;
        let replayed = match cause {
            Cause::Fetch if is_static => {
                let pages = static_block(page_number, self.rule.most_pages);
                Some(pages.end - pages.start)
            }
            Cause::Fetch => self.wanted.remove(&page_number),
            Cause::ReadAhead => self.wanted_ahead.take(),
            Cause::Zeros => Some(self.wanted_zeros.remove(&page_number).unwrap_or(1)),
            Cause::TakenOver => return Ok(()),
        };
        same("how many pages a block has", &Some(wanted_pages), &replayed)?;
        same("that no more came", &true, &(came_pages <= wanted_pages))?;
        self.calls += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dcm::Config;
    use crate::fault_trace::{
        Decoder, Event, Header, Replay, Sink, Traced, TracedBlocks, TracedReads, TracedStreams,
    };
    use crate::read_streams::Ask;
    use crate::streams::{Coming, Direction};
    use proptest::prelude::*;
    use std::sync::atomic::AtomicU8;
    use std::sync::{Arc, Mutex};

    const PAGES: u64 = 1536;
    const MOST_PAGES: u64 = 16;

    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Sink for Shared {
        fn put(&mut self, bytes: &[u8]) -> bool {
            self.0.lock().unwrap().extend_from_slice(bytes);
            true
        }
    }

    /// A pager's streams, reads ahead and elastic blocks.
    struct Live {
        words: SparsePlaces,
        reads: ReadStreams,
        orders: Vec<AtomicU8>,
        traced: Traced,
    }

    impl Live {
        /// A fault at a page that goes on with a stream, of whose block all comes but for `lost` pages.
        fn fault(&mut self, page_number: u64, lost: u64, zeros: bool) {
            let is_far = |page: u64| (page ^ lost).is_multiple_of(3);
            let trace = Some(&mut self.traced);
            let mut streams = TracedStreams { streams: Streams::over(&self.words, MOST_PAGES), trace };
            let earned = match zeros {
                true => streams.earned_along(page_number, Direction::Up, is_far),
                false => streams.earned(page_number, is_far),
            };
            let span_pages = earned.pages - lost % earned.pages;
            let coming = Coming {
                page_number,
                direction: earned.direction,
                wanted_pages: earned.pages,
                span_pages,
                ahead_pages: span_pages - 1,
                is_zeros: zeros,
            };
            if zeros {
                streams.note_along(&coming, is_far)
            } else {
                streams.note(&coming, is_far)
            }
            let block = earned.direction.block(page_number, span_pages);
            let (direction, pages, write) = (earned.direction, earned.pages, lost.is_multiple_of(2));
            let ask = Ask { thread: lost as u32 % 3, page_number, direction, block, pages, write };
            TracedReads { reads: &self.reads, trace: Some(&mut self.traced) }.ask(ask);
            let cause = if zeros { Cause::Zeros } else { Cause::Fetch };
            let (wanted_pages, came_pages) = (earned.pages, span_pages);
            self.traced.note(&Event::Block(Block { cause, page_number, wanted_pages, came_pages }));
        }

        fn read_ahead(&mut self, number: u64) {
            let mut reads = TracedReads { reads: &self.reads, trace: Some(&mut self.traced) };
            let Some((_, request)) = reads.take_from((number % 2) as u8) else { return };
            let Some(pages) = reads.behind_marker(&request, |page| (page ^ number) % 3 == 1) else { return };
            let (cause, page_number, wanted_pages) = (Cause::ReadAhead, pages.start, pages.end - pages.start);
            self.traced.note(&Event::Block(Block { cause, page_number, wanted_pages, came_pages: 1 }));
        }

        fn elastic(&mut self, call: u8, page: u64, number: u64) {
            let blocks = Blocks::over(&self.orders, 4);
            let mut blocks = TracedBlocks { blocks, trace: Some(&mut self.traced) };
            match call % 6 {
                0 | 1 => {
                    let is_had = !number.is_multiple_of(5);
                    let locked = blocks.lock(page, Purpose::Fetch, |_| is_had.then_some(()), |_, ()| ());
                    let wanted_pages = locked.map_or(1, |(block, ())| block.end - block.start);
                    if is_had {
                        blocks.stretch(page, |_, _| !number.is_multiple_of(3));
                    }
                    let (cause, came_pages) = (Cause::Fetch, 1);
                    let came = Block { cause, page_number: page, wanted_pages, came_pages };
                    self.traced.note(&Event::Block(came));
                }
                2 => {
                    blocks.lock(page, Purpose::Reduce, |_| Some(()), |_, ()| ());
                    blocks.reduce(page, |page| !(page ^ number).is_multiple_of(3));
                }
                3 => drop(blocks.members(page)),
                4 => drop(blocks.stretch(page, |_, _| true)),
                _ => blocks.part(page..(page + number % 40).min(PAGES)),
            }
        }
    }

    /// What a pager asks for, by numbers that are drawn.
    fn recorded(kind: BlockKind, calls: &[(u8, u64)]) -> Vec<Event> {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let rule = BlockRule { kind, most_pages: MOST_PAGES, cpus: 2 };
        let (replacement, settings) = (Config::default(), serde_json::Value::Null);
        let (blocks, seed) = (Some(rule), 1);
        let start = Header { replacement, victim_window_pages: 0, local_pages: 64, seed, blocks, settings };
        let mut live = Live {
            words: SparsePlaces::default(),
            reads: ReadStreams::new(rule.cpus),
            orders: (0..PAGES).map(|_| AtomicU8::new(0)).collect(),
            traced: Traced::new(start.replacement()),
        };
        live.traced.record(&Event::Start(start), Box::new(Shared(bytes.clone())));
        let mut at = 0;
        for &(call, number) in calls {
            at = if number % 11 == 0 { number / 11 % PAGES } else { (at + number % 3) % PAGES };
            match (kind, call % 8) {
                (BlockKind::Elastic, _) => live.elastic(call, at, number),
                (_, 6) => live.read_ahead(number),
                (_, call) => live.fault(at, number / 7, call == 7),
            }
        }
        let mut decoder = Decoder::default();
        decoder.feed(&bytes.lock().unwrap());
        std::iter::from_fn(|| decoder.next_event().unwrap()).collect()
    }

    proptest! {
        #[test]
        fn a_replay_gives_the_blocks_that_the_pager_had(
            calls in prop::collection::vec((any::<u8>(), any::<u64>()), 0..600), is_elastic in any::<bool>(),
        ) {
            let kind = if is_elastic { BlockKind::Elastic } else { BlockKind::Streams };
            let events = recorded(kind, &calls);
            let mut replay = Replay::default();
            for event in &events {
                prop_assert_eq!(replay.step(event), Ok(()));
            }
            prop_assert_eq!(replay.block_calls() + 1, events.len() as u64);
        }
    }

    /// Whatever the pager's answer is changed to.
    #[test]
    fn a_block_that_is_another_one_is_named() {
        let calls: Vec<(u8, u64)> = (0..400).map(|i| ((i % 4) as u8, 1 + i * 7)).collect();
        for kind in [BlockKind::Streams, BlockKind::Elastic] {
            let events = recorded(kind, &calls);
            let mut changed = 0;
            for at in 1..events.len() {
                let mut events = events.clone();
                match &mut events[at] {
                    Event::Stream(StreamCall::Earned { earned, .. }) => earned.pages += 1,
                    Event::Stream(StreamCall::Ask { answer, .. }) => answer.has_cpu ^= true,
                    Event::Elastic(ElasticCall::Lock { locked: Some(pages), .. }) => pages.end += 1,
                    Event::Elastic(ElasticCall::Reduce { is_reduced, .. }) => *is_reduced ^= true,
                    Event::Elastic(ElasticCall::Members { pages, .. }) => pages.start += 1,
                    Event::Block(block) => block.wanted_pages += 1,
                    _ => continue,
                }
                changed += 1;
                let mut replay = Replay::default();
                let differs = events.iter().find_map(|event| replay.step(event).err());
                assert_eq!(differs.map(|differs| differs.index), Some(at as u64));
            }
            assert!(changed > 100, "{changed}");
        }
    }
}
