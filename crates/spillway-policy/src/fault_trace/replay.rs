//! Replays a fault trace: the calls that it tells of, to the same code, step by step.

use std::collections::HashMap;
use std::fmt::Debug;

use thiserror::Error;

use super::event::{Event, Foreseen, Header, Taped, ThreadCall};
use super::replay_blocks::{BlockReplay, Mismatch, same};
use super::runs::told;
use crate::dcm::Replacement;
use crate::strides::Follower;
use crate::tape::Window;
use crate::thread_queues::ThreadQueues;

/// Where a replay first gives another answer than the pager had.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("event {index}: {what}: the pager had {live}, the replay has {replayed}")]
pub struct Difference {
    /// How many events came before it.
    pub index: u64,
    /// What the replacement was asked.
    pub what: &'static str,
    /// The answer that the pager had.
    pub live: String,
    /// The answer of the replay.
    pub replayed: String,
}

/// Replays one event after another.
#[derive(Default)]
pub struct Replay {
    header: Option<Header>,
    replacement: Option<Replacement>,
    threads: HashMap<u16, ThreadQueues>,
    followers: HashMap<u8, Follower>,
    windows: HashMap<u8, Window>,
    /// Nothing where the trace does not tell enough of blocks.
    blocks: Option<BlockReplay>,
    events: u64,
    calls: u64,
}

impl Replay {
    /// How many events were replayed.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.events
    }

    /// How many of them were calls, whose answers are the same as the pager's.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// How many of them spoke of blocks; none where the trace is of version 1.
    #[must_use]
    pub fn block_calls(&self) -> u64 {
        self.blocks.as_ref().map_or(0, |blocks| blocks.calls)
    }

    /// How many times a page stayed because it was used more than others.
    #[must_use]
    pub fn kept_in_use(&self) -> u64 {
        self.replacement.as_ref().map_or(0, Replacement::kept_in_use)
    }

    /// Replays the next event.
    ///
    /// # Errors
    /// The answer differs.
    pub fn step(&mut self, event: &Event) -> Result<(), Difference> {
        if let Event::Start(header) = event {
            self.same("the start", &false, &self.replacement.is_some())?;
            self.replacement = Some(header.replacement());
            self.blocks = header.blocks.map(BlockReplay::new);
            self.header = Some(header.clone());
            self.events += 1;
            return Ok(());
        }
        let Some(mut replacement) = self.replacement.take() else {
            return self.same("the start", &"none", &"to have come");
        };
        let outcome = self.call(&mut replacement, event);
        self.replacement = Some(replacement);
        self.events += 1;
        outcome
    }

    fn call(&mut self, replacement: &mut Replacement, event: &Event) -> Result<(), Difference> {
        match event {
            Event::Newcomer(queue) => {
                self.same("a newcomer's queue", queue, &replacement.queue_of_newcomer())?;
            }
            Event::Returner { away_pages, local_pages, queue } => {
                let replayed = replacement.queue_of_returner(*away_pages, *local_pages);
                self.same("a returner's queue", queue, &replayed)?;
            }
            Event::Enqueue { queue, entry, is_full } => {
                let replayed = replacement.enqueue(*queue, *entry).is_err();
                self.same("whether the queues are full", is_full, &replayed)?;
            }
            Event::NextMapped { ranks, step } => {
                let told = told(ranks);
                let replayed = replacement.next_mapped(|_| told.next());
                self.same("the next step", step, &replayed)?;
                self.same("how many pages' use was asked for", &ranks.len(), &told.asked())?;
            }
            Event::NextInactive(entry) => {
                self.same("the next inactive page", entry, &replacement.next_inactive())?;
            }
            Event::DropStale(kept) => {
                let told = told(kept);
                replacement.drop_stale(|_, _| told.next() != 0);
                self.same("how many entries there are", &kept.len(), &told.asked())?;
            }
            Event::Thread { place, call } => self.call_of_thread(replacement, *place, call)?,
            Event::Foreseen(foreseen) => self.foresee(foreseen)?,
            Event::Taped(taped) => self.follow_tape(taped)?,
            Event::Stream(call) => self.block(|blocks| blocks.stream(call))?,
            Event::Elastic(call) => self.block(|blocks| blocks.elastic(call))?,
            Event::Block(block) => return self.block(|blocks| blocks.came(block)),
            Event::Start(_) | Event::Fault(_) | Event::Left { .. } | Event::Scan { .. } => return Ok(()),
        }
        self.calls += 1;
        Ok(())
    }

    fn block(
        &mut self,
        step: impl FnOnce(&mut BlockReplay) -> Result<(), Mismatch>,
    ) -> Result<(), Difference> {
        let index = self.events;
        self.blocks.as_mut().map_or(Ok(()), step).map_err(|mismatch| mismatch.at(index))
    }

    fn call_of_thread(
        &mut self,
        shared: &mut Replacement,
        place: u16,
        call: &ThreadCall,
    ) -> Result<(), Difference> {
        let began = || self.header.as_ref().map(|header| header.thread_queues(place));
        let Some(mut own) = self.threads.remove(&place).or_else(began) else {
            return self.same("the start", &"none", &"to have come");
        };
        let outcome = self.call_own(shared, place, &mut own, call);
        self.threads.insert(place, own);
        outcome
    }

    fn call_own(
        &self,
        shared: &mut Replacement,
        place: u16,
        own: &mut ThreadQueues,
        call: &ThreadCall,
    ) -> Result<(), Difference> {
        match call {
            ThreadCall::Newcomer(queue) => {
                self.same("a newcomer's queue, by a thread's coin", queue, &own.queue_of_newcomer())
            }
            ThreadCall::Returner { away_pages, local_pages, queue } => {
                let replayed = own.queue_of_returner(*away_pages, *local_pages);
                self.same("a returner's queue, by a thread's coin", queue, &replayed)
            }
            ThreadCall::Collect { queue, entry, is_full } => {
                let replayed = own.collect(*queue, *entry).is_err();
                self.same("whether a thread's buffer is full", is_full, &replayed)
            }
            ThreadCall::Flush(flushed) => {
                self.same("how much of a buffer moves", flushed, &own.flush(shared))
            }
            ThreadCall::EnqueueInactive { entry, is_full } => {
                let replayed = own.enqueue_inactive(*entry).is_err();
                self.same("whether a thread's inactive queue is full", is_full, &replayed)
            }
            ThreadCall::NextInactive(entry) => {
                self.same("the next inactive page of a thread", entry, &own.next_inactive())
            }
            ThreadCall::DropStale(kept) => {
                let told = told(kept);
                own.drop_stale(|_| told.next() != 0);
                self.same("how many entries a thread has", &kept.len(), &told.asked())
            }
            ThreadCall::Source { threads, first } => {
                let replayed = own.next_source(place.into(), usize::from(*threads));
                self.same("whose inactive pages leave", &usize::from(*first), &replayed)
            }
        }
    }

    fn foresee(&mut self, live: &Foreseen) -> Result<(), Difference> {
        if live.is_new {
            self.windows.remove(&live.place);
        }
        let mut follower = self.followers.remove(&live.place).filter(|_| !live.is_new).unwrap_or_default();
        let most = usize::try_from(live.most).unwrap_or(usize::MAX);
        let told = told(&live.far);
        let used = follower.fault(live.foresight, live.page_number, most, |_| told.next() != 0);
        self.same("how many pages are asked about", &live.far.len(), &told.asked())?;
        self.same("how many foreseen pages were used", &live.used, &(used as u64))?;
        self.same("the pages that are foreseen", &live.asked.as_slice(), &follower.asked())?;
        self.followers.insert(live.place, follower);
        self.block(|blocks| {
            blocks.note_foreseen(live.page_number, live.asked.len() as u64);
            Ok(())
        })
    }

    fn follow_tape(&mut self, live: &Taped) -> Result<(), Difference> {
        if live.is_new {
            self.followers.remove(&live.place);
        }
        let mut window = self.windows.remove(&live.place).filter(|_| !live.is_new).unwrap_or_default();
        let most = usize::try_from(live.most).unwrap_or(usize::MAX);
        let wanted = window.fault(live.met, most);
        self.same("how many pages of the tape are worth a fetch", &live.wanted, &(wanted as u64))?;
        self.same("no more than these", &true, &(live.asked.len() <= wanted))?;
        window.ask(live.asked.len());
        self.windows.insert(live.place, window);
        self.block(|blocks| {
            blocks.note_taped(live.page_number, live.asked.len() as u64);
            Ok(())
        })
    }

    fn same<T: PartialEq + Debug>(
        &self,
        what: &'static str,
        live: &T,
        replayed: &T,
    ) -> Result<(), Difference> {
        same(what, live, replayed).map_err(|mismatch| mismatch.at(self.events))
    }
}

impl Mismatch {
    fn at(self, index: u64) -> Difference {
        let Self { what, live, replayed } = self;
        Difference { index, what, live, replayed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dcm::{Config, Step};
    use crate::fault_trace::{Decoder, Header, Sink, Traced, TracedThread};
    use proptest::prelude::*;
    use spillway_core::fifo::Entry;
    use spillway_core::page_word::Queue;
    use std::sync::{Arc, Mutex};

    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Sink for Shared {
        fn put(&mut self, bytes: &[u8]) -> bool {
            self.0.lock().unwrap().extend_from_slice(bytes);
            true
        }
    }

    fn header(local_pages: usize, seed: u64) -> Header {
        let replacement = Config::default();
        let (settings, blocks) = (serde_json::Value::Null, None);
        Header { replacement, victim_window_pages: 256, local_pages, seed, blocks, settings }
    }

    fn events(bytes: &[u8]) -> Vec<Event> {
        let mut decoder = Decoder::default();
        decoder.feed(bytes);
        std::iter::from_fn(|| decoder.next_event().unwrap()).collect()
    }

    /// What a pager asks for, by numbers that are drawn.
    fn recorded(calls: &[(u8, u64)], seed: u64) -> Vec<Event> {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let header = header(64, seed);
        let mut traced = Traced::new(header.replacement());
        traced.record(&Event::Start(header), Box::new(Shared(bytes.clone())));
        for &(call, number) in calls {
            let entry = Entry { page_number: number % 700, generation: (number % 128) as u8 };
            let queue = match call % 7 {
                0 | 1 => traced.queue_of_newcomer(),
                2 => traced.queue_of_returner(number % 40, 64),
                3 => Queue::Inactive,
                4 | 5 => {
                    let step = traced.next_mapped(|page| ((page ^ number) % 9) as u8);
                    if let Some(Step::ToActive(entry)) = step {
                        traced.enqueue(Queue::Active, entry).unwrap();
                    }
                    continue;
                }
                _ => {
                    traced.next_inactive();
                    continue;
                }
            };
            if traced.enqueue(queue, entry).is_err() {
                traced.drop_stale(|entry, _| !(entry.page_number ^ number).is_multiple_of(3));
            }
        }
        let bytes = bytes.lock().unwrap();
        events(&bytes)
    }

    /// What pagers' threads ask of what is their own, by numbers that are drawn.
    fn recorded_by_threads(calls: &[(u8, u8, u64)], seed: u64) -> Vec<Event> {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let config = Config { thread_buffer_pages: 5, thread_inactive: true, ..Config::default() };
        let header = Header { replacement: config, ..header(64, seed) };
        let mut own: Vec<ThreadQueues> = (0..3).map(|place| header.thread_queues(place)).collect();
        let mut shared = Traced::new(header.replacement());
        shared.record(&Event::Start(header), Box::new(Shared(bytes.clone())));
        for &(thread, call, number) in calls {
            let place = u16::from(thread % 3);
            let queues = &mut own[usize::from(place)];
            let mut thread = TracedThread { place, queues, trace: Some(&mut shared) };
            let entry = Entry { page_number: number % 700, generation: (number % 128) as u8 };
            match call % 6 {
                0 | 1 => {
                    let queue = match call % 2 {
                        0 => thread.queue_of_newcomer(),
                        _ => thread.queue_of_returner(number % 40, 64),
                    };
                    if thread.collect(queue, entry).is_err() && shared.flush(place, queues).is_full {
                        shared.drop_stale(|entry, _| !(entry.page_number ^ number).is_multiple_of(3));
                        shared.flush(place, queues);
                    }
                }
                2 => {
                    if thread.enqueue_inactive(entry).is_err() {
                        thread.drop_stale(|entry| !(entry.page_number ^ number).is_multiple_of(3));
                    }
                }
                3 => {
                    let first = thread.next_source(3);
                    let queues = &mut own[usize::from(first)];
                    TracedThread { place: first, queues, trace: Some(&mut shared) }.next_inactive();
                }
                _ => {
                    shared.next_mapped(|page| ((page ^ number) % 9) as u8);
                }
            }
        }
        let bytes = bytes.lock().unwrap();
        events(&bytes)
    }

    proptest! {
        #[test]
        fn a_replay_gives_the_answers_that_each_thread_had(
            calls in prop::collection::vec(any::<(u8, u8, u64)>(), 0..4000), seed in any::<u64>(),
        ) {
            let mut replay = Replay::default();
            let events = recorded_by_threads(&calls, seed);
            for event in &events {
                prop_assert_eq!(replay.step(event), Ok(()));
            }
            prop_assert_eq!(replay.calls() + 1, events.len() as u64);
        }

        #[test]
        fn a_replay_gives_the_answers_that_the_pager_had(
            calls in prop::collection::vec((any::<u8>(), any::<u64>()), 0..4000), seed in any::<u64>(),
        ) {
            let mut replay = Replay::default();
            let events = recorded(&calls, seed);
            for event in &events {
                prop_assert_eq!(replay.step(event), Ok(()));
            }
            prop_assert_eq!(replay.calls() + 1, events.len() as u64);
        }
    }

    #[test]
    fn the_first_answer_that_differs_is_named() {
        let calls: Vec<(u8, u64)> = (0..300).map(|i| (if i < 200 { 0 } else { 4 }, i)).collect();
        let mut events = recorded(&calls, 7);
        let last = events.len() - 1;
        let Event::NextMapped { step, .. } = &mut events[last] else { panic!("{:?}", events[last]) };
        *step = None;
        let mut replay = Replay::default();
        let differs = events.iter().map(|event| replay.step(event)).find_map(Result::err).unwrap();
        assert_eq!((differs.index, differs.what), (last as u64, "the next step"));
        assert_eq!(differs.live, "None");
    }

    #[test]
    fn a_trace_without_a_start_is_refused() {
        let differs = Replay::default().step(&Event::Newcomer(Queue::Active)).unwrap_err();
        assert_eq!((differs.index, differs.what), (0, "the start"));
    }
}
