//! Stores in which everything goes wrong that may: the real `ram:` and `compressed:` under a cover that takes
//! turns and spoils pages, and a model of what answers late and out of order.

use std::sync::Arc;
use std::time::Duration;

use spillway_core::page::{PAGE_SIZE, Page};
use spillway_pager::kernel::Kernel;
use spillway_store::{Lane, LatencyClass, ReadRequest, Room, Store, StoreError, WriteRequest};

use crate::config::StoreKind;
use crate::contents::SCRIBBLE;
use crate::late_writes::LateWrite;
use crate::process::SimKernel;
use crate::sealing::digest;
use crate::store_model::{Fate, StoreModel, UnderWay};
use crate::world::{self, World, with};

/// After one that goes wrong by itself.
const OWED_READS: u8 = 2;

/// A store as a process opens it.
#[must_use]
pub fn handle(model: &StoreModel, number: usize) -> Arc<dyn Store> {
    let (uri, capacity_slots, inner) = (model.uri.clone(), model.capacity_slots, model.inner.clone());
    let latency_class = match model.config.kind {
        StoreKind::Ram => LatencyClass::Memory,
        StoreKind::Compressed => LatencyClass::Compression,
        StoreKind::Remote => LatencyClass::Remote,
    };
    Arc::new(SimStore { number, uri, capacity_slots, latency_class, inner })
}

impl World {
    /// Takes up a request, with what becomes of it.
    fn begin_request(&mut self, number: usize, slot: u32, is_write: bool) -> Fate {
        let process = self.current_process();
        let alive: Vec<bool> = self.processes.iter().map(|process| process.is_alive).collect();
        let model = &mut self.stores[number];
        model.requests += 1;
        let request = UnderWay { process, slot, is_write };
        let is_alive = |process: Option<usize>| process.is_none_or(|number| alive[number]);
        let other = model
            .under_way
            .iter()
            .find(|other| other.slot == slot && (is_write || other.is_write) && is_alive(other.process));
        let clash = other.map(|other| {
            let how = |is_write| if is_write { "written" } else { "read" };
            format!(
                "slot {slot} of {} is {} while it is being {} by process {:?}",
                model.uri,
                how(is_write),
                how(other.is_write),
                other.process
            )
        });
        model.under_way.push(request);
        if let Some(clash) = clash {
            self.fail(clash);
        }
        self.fate(number, request)
    }

    fn end_request(&mut self, number: usize, slot: u32, is_write: bool) {
        let request = UnderWay { process: self.current_process(), slot, is_write };
        let under_way = &mut self.stores[number].under_way;
        if let Some(index) = under_way.iter().position(|other| *other == request) {
            under_way.swap_remove(index);
        }
    }

    fn note_sent(&mut self, number: usize, slot: u32, page: &Page) {
        let process = self.current_process();
        let model = &mut self.stores[number];
        if let (Some(process), StoreKind::Remote) = (process, model.config.kind) {
            model.on_their_way.note_sent(process, slot, page);
        }
    }

    fn note_answered(&mut self, number: usize, slot: u32) {
        if let Some(process) = self.current_process() {
            self.stores[number].on_their_way.note_answered(process, slot);
        }
    }

    /// A process has ended: what it has sent to servers may be done all the same.
    pub(crate) fn leave_on_its_way(&mut self, process: usize) {
        let now_ns = self.clock_ns;
        self.stores.iter_mut().for_each(|model| model.on_their_way.note_ended(process, now_ns));
    }

    /// Something that a process has sent, which has ended, is not done yet.
    pub(crate) fn has_on_its_way(&self, process: usize) -> bool {
        self.stores.iter().any(|model| model.on_their_way.has_of(process))
    }

    /// Stores do what they come to now.
    pub(crate) fn do_late_writes(&mut self) {
        let now_ns = self.clock_ns;
        for store in 0..self.stores.len() {
            for LateWrite { process, slot, page, .. } in self.stores[store].on_their_way.take_done(now_ns) {
                self.note(23, u64::from(slot), || format!("slot {slot} gets what process {process} sent"));
                self.count("late writes");
                self.stores[store].pages.insert(slot, page);
            }
        }
    }

    fn fate(&mut self, number: usize, request: UnderWay) -> Fate {
        let UnderWay { process, slot, is_write } = request;
        let model = &mut self.stores[number];
        let (faults, request) = (&model.config.faults, model.requests);
        let fails = faults.fails_at_request..faults.fails_at_request + faults.fails_for_requests;
        if faults.dies_at_request != 0 && request >= faults.dies_at_request {
            model.has_failed = true;
            return Fate::Dead;
        }
        if fails.contains(&request) {
            model.has_failed = true;
            return Fate::Fails;
        }
        if request == faults.emptied_at_request {
            model.has_spoilt = true;
            self.empty(number);
        }
        if !is_write {
            return self.fate_of_read(number, (process, slot));
        }
        let model = &mut self.stores[number];
        let faults = &model.config.faults;
        // There are others: nothing is excused by it.
        if (faults.refuses_from..faults.refuses_from + faults.refuses_slots).contains(&slot) {
            return Fate::Fails;
        }
        let draws = &mut self.draws;
        if draws.one_in(faults.full_one_in) {
            model.has_been_full = true;
            return Fate::Full;
        }
        let fate = if draws.one_in(faults.damages_one_in) {
            Fate::Damaged
        } else if draws.one_in(faults.forgets_one_in) {
            Fate::Forgotten
        } else if draws.one_in(faults.misplaces_one_in) {
            Fate::Misplaced
        } else {
            Fate::Done
        };
        if fate != Fate::Done {
            self.stores[number].has_spoilt = true;
            self.note(20, number as u64, || format!("the store spoils a page: {fate:?}"));
        }
        fate
    }

    /// What becomes of a read that no lasting failure concerns.
    fn fate_of_read(&mut self, number: usize, read: (Option<usize>, u32)) -> Fate {
        let model = &mut self.stores[number];
        let faults = &model.config.faults;
        let fate = if let Some(owed) = model.owed.get_mut(&read).filter(|owed| **owed > 0) {
            *owed -= 1;
            Fate::Done
        } else if self.draws.one_in(faults.fails_once_one_in) {
            Fate::FailsOnce
        } else if self.draws.one_in(faults.garbles_once_one_in) {
            Fate::GarbledOnce
        } else {
            Fate::Done
        };
        if fate != Fate::Done {
            model.owed.insert(read, OWED_READS);
            self.note(22, u64::from(read.1), || format!("a read goes wrong: {fate:?}"));
        }
        fate
    }

    fn empty(&mut self, number: usize) {
        self.note(21, number as u64, || "the store loses everything".to_owned());
        let model = &mut self.stores[number];
        model.pages.clear();
        if let Some(Ok(mut lane)) = model.inner.as_ref().map(|inner| inner.open_lane()) {
            lane.discard(&(0..model.capacity_slots).collect::<Vec<_>>());
        }
    }

    fn latency(&mut self, number: usize) -> Option<Duration> {
        let model = &self.stores[number];
        let (kind, latency_ns) = (model.config.kind, model.config.latency_ns);
        let stalls = self.draws.one_in(model.config.faults.stalls_one_in);
        let is_remote = kind == StoreKind::Remote;
        let factor = if stalls { 1_000 } else { 1 };
        (is_remote || stalls).then(|| Duration::from_nanos((1 + self.draws.below(latency_ns)) * factor))
    }
}

/// A store, as one process sees it.
struct SimStore {
    number: usize,
    uri: String,
    capacity_slots: u32,
    latency_class: LatencyClass,
    inner: Option<Arc<dyn Store>>,
}

impl Store for SimStore {
    fn uri(&self) -> &str {
        &self.uri
    }

    fn capacity_slots(&self) -> u32 {
        self.capacity_slots
    }

    fn latency_class(&self) -> LatencyClass {
        self.latency_class
    }

    fn open_lane(&self) -> Result<Box<dyn Lane>, StoreError> {
        let inner = self.inner.as_ref().map(|inner| inner.open_lane()).transpose()?;
        let can_post = self.latency_class.waits_for_others();
        let (number, capacity_slots) = (self.number, self.capacity_slots);
        Ok(Box::new(SimLane { number, capacity_slots, inner, can_post, posted: None }))
    }

    fn room(&self) -> Option<Room> {
        match &self.inner {
            Some(inner) => inner.room(),
            None => with(|world| world.stores[self.number].room()),
        }
    }
}

/// One thread's way to it.
struct SimLane {
    number: usize,
    capacity_slots: u32,
    inner: Option<Box<dyn Lane>>,
    can_post: bool,
    posted: Option<Posted>,
}

/// Reads that are under way.
struct Posted {
    slots: Vec<u32>,
    fates: Vec<Fate>,
    /// When they are answered.
    there_ns: u64,
}

fn shuffled(count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    with(|world| {
        for last in (1..count).rev() {
            order.swap(last, world.draws.index(last + 1));
        }
    });
    order
}

impl SimLane {
    fn wait_for_answers(&self) {
        match with(|world| world.latency(self.number)) {
            Some(latency) => {
                world::wait(crate::tasks::Wait::Sleep, Some(latency));
            }
            None => world::turn(),
        }
    }

    fn store(&mut self, slot: u32, page: &Page) -> Result<(), StoreError> {
        if let Some(inner) = &mut self.inner {
            let mut batch = [WriteRequest { slot, page, outcome: Ok(()) }];
            inner.write(&mut batch);
            return batch.into_iter().try_for_each(|request| request.outcome);
        }
        with(|world| {
            let model = &mut world.stores[self.number];
            if !model.has_room_for(slot) {
                return Err(model.error(Fate::Full));
            }
            model.pages.insert(slot, Box::new(*page));
            Ok(())
        })
    }

    fn load(&mut self, slot: u32, page: &mut Page) -> Result<(), StoreError> {
        if let Some(inner) = &mut self.inner {
            let mut batch = [ReadRequest { slot, page, outcome: Ok(()) }];
            inner.read(&mut batch);
            return batch.into_iter().try_for_each(|request| request.outcome);
        }
        with(|world| match world.stores[self.number].pages.get(&slot) {
            Some(stored) => *page = **stored,
            None => page.fill(0),
        });
        Ok(())
    }

    /// Stores a page half-way first: who reads the slot meanwhile sees that.
    fn store_in_steps(&mut self, slot: u32, page: &Page) -> Result<(), StoreError> {
        if with(|world| world.draws.one_in(4)) {
            let mut half = *page;
            half[PAGE_SIZE / 2..].fill(SCRIBBLE);
            self.store(slot, &half)?;
            world::turn();
        }
        self.store(slot, page)
    }

    fn write_one(&mut self, slot: u32, page: &Page, fate: Fate) -> Result<(), StoreError> {
        if slot >= self.capacity_slots {
            return Err(with(|world| world.stores[self.number].error(Fate::Fails)));
        }
        match fate {
            Fate::Done => self.store_in_steps(slot, page),
            Fate::Damaged => {
                let mut damaged = *page;
                damaged[with(|world| world.draws.index(PAGE_SIZE))] ^= 0x10;
                self.store(slot, &damaged)
            }
            Fate::Forgotten => Ok(()),
            Fate::Misplaced => self.store((slot + 1) % self.capacity_slots, page),
            Fate::Full | Fate::Fails | Fate::FailsOnce | Fate::GarbledOnce | Fate::Dead => {
                Err(with(|world| world.stores[self.number].error(fate)))
            }
        }
    }
}

impl Lane for SimLane {
    fn write(&mut self, batch: &mut [WriteRequest<'_>]) {
        let number = self.number;
        let begun: Vec<(Fate, u64)> = batch
            .iter()
            .map(|request| {
                with(|world| world.check_left(number, request.slot, request.page));
                with(|world| world.note_sent(number, request.slot, request.page));
                (with(|world| world.begin_request(number, request.slot, true)), digest(request.page))
            })
            .collect();
        world::turn();
        self.wait_for_answers();
        for index in shuffled(batch.len()) {
            let request = &mut batch[index];
            let (fate, before) = begun[index];
            request.outcome = self.write_one(request.slot, request.page, fate);
            world::turn();
            with(|world| world.end_request(number, request.slot, true));
            with(|world| world.note_answered(number, request.slot));
            if matches!(request.outcome, Err(StoreError::Full { .. })) {
                with(|world| world.stores[number].has_been_full = true);
            }
            if digest(request.page) != before {
                world::fail(|| format!("a page changes while it is written to slot {}", request.slot));
            }
        }
    }

    fn read(&mut self, batch: &mut [ReadRequest<'_>]) {
        let slots: Vec<u32> = batch.iter().map(|request| request.slot).collect();
        let fates = self.ask_for(&slots);
        world::turn();
        self.wait_for_answers();
        self.take_answers(&fates, batch);
    }

    fn can_post(&self) -> bool {
        self.can_post
    }

    fn post_reads(&mut self, slots: &[u32]) {
        let number = self.number;
        if let Some(posted) = &self.posted {
            world::fail(|| format!("the reads of slots {:?} were posted and forgotten", posted.slots));
        }
        let fates = self.ask_for(slots);
        let latency_ns = with(|world| world.latency(number)).map_or(0, |latency| latency.as_nanos() as u64);
        let there_ns = SimKernel::now_ns() + latency_ns;
        self.posted = Some(Posted { slots: slots.to_vec(), fates, there_ns });
        world::turn();
    }

    fn complete_reads(&mut self, batch: &mut [ReadRequest<'_>]) {
        let Some(posted) = self.posted.take() else { return self.read(batch) };
        if !posted.slots.iter().eq(batch.iter().map(|request| &request.slot)) {
            return world::fail(|| format!("other reads are completed than slots {:?}", posted.slots));
        }
        let left_ns = posted.there_ns.saturating_sub(SimKernel::now_ns());
        match left_ns {
            0 => world::turn(),
            _ => {
                world::wait(crate::tasks::Wait::Sleep, Some(Duration::from_nanos(left_ns)));
            }
        }
        self.take_answers(&posted.fates, batch);
    }

    fn page(&self, slot: u32) -> Option<&Page> {
        world::turn();
        let model_fails = with(|world| {
            // A store that is emptied would be so between the check of a page and its copy.
            let config = &world.stores[self.number].config;
            config.kind == StoreKind::Remote || config.faults.emptied_at_request > 0
        });
        if model_fails { None } else { self.inner.as_ref()?.page(slot) }
    }

    fn discard(&mut self, slots: &[u32]) {
        world::turn();
        if let Some(inner) = &mut self.inner {
            inner.discard(slots);
        }
        with(|world| {
            let pages = &mut world.stores[self.number].pages;
            slots.iter().for_each(|slot| {
                pages.remove(slot);
            });
        });
        world::turn();
    }
}

impl SimLane {
    /// Takes up reads, with what becomes of them.
    fn ask_for(&self, slots: &[u32]) -> Vec<Fate> {
        let number = self.number;
        slots.iter().map(|&slot| with(|world| world.begin_request(number, slot, false))).collect()
    }

    /// Answers reads, in any order.
    fn take_answers(&mut self, fates: &[Fate], batch: &mut [ReadRequest<'_>]) {
        let number = self.number;
        for index in shuffled(batch.len()) {
            let request = &mut batch[index];
            request.outcome = match fates[index] {
                Fate::Done if request.slot < self.capacity_slots => self.load(request.slot, request.page),
                Fate::GarbledOnce if request.slot < self.capacity_slots => {
                    let outcome = self.load(request.slot, request.page);
                    request.page[with(|world| world.draws.index(PAGE_SIZE))] ^= 0x04;
                    outcome
                }
                fate => Err(with(|world| world.stores[number].error(fate))),
            };
            world::turn();
            with(|world| world.end_request(number, request.slot, false));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Overrides, StoreConfig, StoreFaults};

    const PAGE: Page = [5; PAGE_SIZE];

    /// Runs `work` with a store of this kind and these faults, and returns what the model then says.
    fn in_world(kind: StoreKind, faults: StoreFaults, work: impl FnOnce(&mut dyn Lane) + Send + 'static) {
        let config = Config {
            kills_at: Vec::new(),
            supervisor_dies_at: 0,
            ..Config::of_seed(1, &Overrides::default())
        };
        let store = StoreConfig { kind, slots: 64, latency_ns: 1000, faults };
        let outcome = world::run(config, false, || {
            let model = StoreModel::new(0, &store).unwrap();
            let store = handle(&model, 0);
            with(|world| {
                world.stores.push(model);
                let body = move || {
                    work(&mut *store.open_lane().unwrap());
                    with(|world| world.is_over = true);
                    world::turn();
                };
                world.spawn("one".to_owned(), None, Box::new(body));
            });
        });
        assert_eq!(outcome.failure, None);
    }

    fn write(lane: &mut dyn Lane, slots: &[u32]) -> Vec<bool> {
        let mut batch: Vec<_> =
            slots.iter().map(|&slot| WriteRequest { slot, page: &PAGE, outcome: Ok(()) }).collect();
        lane.write(&mut batch);
        batch.iter().map(|request| request.outcome.is_ok()).collect()
    }

    fn read(lane: &mut dyn Lane, slot: u32) -> Result<Page, StoreError> {
        let mut page = [1; PAGE_SIZE];
        let mut batch = [ReadRequest { slot, page: &mut page, outcome: Ok(()) }];
        lane.read(&mut batch);
        let [ReadRequest { outcome, .. }] = batch;
        outcome.map(|()| page)
    }

    #[test]
    fn every_kind_keeps_pages() {
        for kind in [StoreKind::Ram, StoreKind::Compressed, StoreKind::Remote] {
            in_world(kind, StoreFaults::default(), move |lane| {
                assert_eq!(write(lane, &[3, 1, 2]), [true; 3]);
                assert!((1..4).all(|slot| read(lane, slot) == Ok(PAGE)));
                assert_eq!(lane.page(1).is_some(), kind == StoreKind::Ram);
                lane.discard(&[1]);
                assert_eq!(read(lane, 2), Ok(PAGE));
            });
        }
    }

    #[test]
    fn a_read_is_under_way_until_it_is_completed() {
        in_world(StoreKind::Remote, StoreFaults::default(), |lane| {
            assert_eq!(write(lane, &[3, 1]), [true; 2]);
            lane.post_reads(&[1, 3]);
            assert_eq!(with(|world| world.stores[0].under_way.len()), 2);
            assert_eq!(write(lane, &[2]), [true], "beside it");
            let mut pages = [[1; PAGE_SIZE]; 2];
            let [first, second] = &mut pages;
            lane.complete_reads(&mut [
                ReadRequest { slot: 1, page: first, outcome: Ok(()) },
                ReadRequest { slot: 3, page: second, outcome: Ok(()) },
            ]);
            assert!(pages == [PAGE; 2] && with(|world| world.stores[0].under_way.is_empty()));
        });
    }

    #[test]
    fn stores_fail_for_a_while_and_spoil_pages() {
        let fails = StoreFaults { fails_at_request: 2, fails_for_requests: 1, ..StoreFaults::default() };
        in_world(StoreKind::Remote, fails, |lane| {
            assert_eq!(write(lane, &[1]), [true]);
            assert!(matches!(read(lane, 1), Err(StoreError::Io { .. })));
            assert_eq!(read(lane, 1), Ok(PAGE));
            assert!(with(|world| world.stores[0].has_failed && !world.stores[0].has_spoilt));
        });
        let passing = StoreFaults { fails_once_one_in: 1, ..StoreFaults::default() };
        in_world(StoreKind::Remote, passing, |lane| {
            assert_eq!(write(lane, &[1]), [true]);
            assert!(matches!(read(lane, 1), Err(StoreError::Io { .. })) && read(lane, 1) == Ok(PAGE));
            assert!(with(|world| !world.stores[0].has_failed && !world.stores[0].has_spoilt));
        });
        let garbling = StoreFaults { garbles_once_one_in: 1, ..StoreFaults::default() };
        in_world(StoreKind::Compressed, garbling, |lane| {
            assert_eq!(write(lane, &[1]), [true]);
            assert!(read(lane, 1).is_ok_and(|page| page != PAGE) && read(lane, 1) == Ok(PAGE));
            assert!(with(|world| !world.stores[0].has_spoilt));
        });
        let damages = StoreFaults { damages_one_in: 1, ..StoreFaults::default() };
        in_world(StoreKind::Ram, damages, |lane| {
            assert_eq!(write(lane, &[1]), [true]);
            assert_ne!(read(lane, 1), Ok(PAGE));
            assert!(with(|world| world.stores[0].has_spoilt));
        });
        let dies = StoreFaults { dies_at_request: 2, ..StoreFaults::default() };
        in_world(StoreKind::Compressed, dies, |lane| {
            assert_eq!(write(lane, &[1]), [true]);
            assert!(matches!(read(lane, 1), Err(StoreError::Gone { .. })));
        });
        let emptied = StoreFaults { emptied_at_request: 2, ..StoreFaults::default() };
        in_world(StoreKind::Remote, emptied, |lane| {
            assert_eq!(write(lane, &[1]), [true]);
            assert_eq!(read(lane, 1), Ok([0; PAGE_SIZE]));
        });
    }
}
