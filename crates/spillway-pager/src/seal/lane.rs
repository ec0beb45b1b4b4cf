//! A thread's way to a store by which pages are sealed as they go and opened as they come. Below it stands
//! any lane; above it nobody sees that a page was ever anything but itself.

use std::marker::PhantomData;
use std::sync::Arc;

use spillway_core::page::{PAGE_SIZE, Page};
use spillway_core::seals::Seal;
use spillway_store::{Lane, ReadRequest, StoreError, WriteRequest};

use crate::kernel::{Kernel, planted};
use crate::seal::cipher::CipherError;
use crate::seal::sealing::Sealing;

/// A page on a page boundary, as direct I/O wants it.
#[repr(align(4096))]
struct Sealed(Page);

/// A lane to a store whose pages are sealed.
pub(crate) struct SealedLane<K> {
    lane: Box<dyn Lane>,
    sealing: Arc<Sealing>,
    /// URI of the store.
    store: String,
    /// The store's first slot among the run's.
    first_slot: u32,
    /// Where pages are sealed: as many as the longest batch so far had.
    sealed: Vec<Sealed>,
    kernel: PhantomData<fn() -> K>,
}

impl<K: Kernel> SealedLane<K> {
    pub(crate) fn new(lane: Box<dyn Lane>, sealing: Arc<Sealing>, store: &str, first_slot: u32) -> Self {
        let store = store.to_owned();
        Self { lane, sealing, store, first_slot, sealed: Vec::new(), kernel: PhantomData }
    }

    /// Seals the pages of a batch, each as a version of its own.
    fn seal(&mut self, batch: &[WriteRequest<'_>]) -> Result<Vec<Seal>, StoreError> {
        let store = || self.store.clone();
        let first = self.sealing.take_versions::<K>(batch.len());
        let first = first.ok_or_else(|| StoreError::SealsSpent { store: store() })?;
        K::turn();
        self.sealed.resize_with(batch.len().max(self.sealed.len()), || Sealed([0; PAGE_SIZE]));
        let seals = batch.iter().zip(&mut self.sealed).zip(first..).map(|((request, room), version)| {
            room.0 = *request.page;
            self.sealing.seal::<K>(self.first_slot + request.slot, version, &mut room.0)
        });
        let refused =
            |CipherError| StoreError::Io { store: store(), reason: "its page cannot be sealed".to_owned() };
        seals.collect::<Result<_, _>>().map_err(refused)
    }

    /// Opens what has come. What does not open did not come.
    fn open(&self, batch: &mut [ReadRequest<'_>]) {
        for request in batch.iter_mut().filter(|request| request.outcome.is_ok()) {
            if !self.sealing.opens::<K>(self.first_slot + request.slot, request.page) {
                request.outcome = Err(StoreError::WrongSeal { store: self.store.clone() });
            }
        }
    }
}

impl<K: Kernel> Lane for SealedLane<K> {
    fn write(&mut self, batch: &mut [WriteRequest<'_>]) {
        let seals = match self.seal(batch) {
            Ok(seals) => seals,
            Err(error) => return batch.iter_mut().for_each(|request| request.outcome = Err(error.clone())),
        };
        let mut sealed: Vec<WriteRequest<'_>> = batch
            .iter()
            .zip(&self.sealed)
            .map(|(request, sealed)| {
                let page = if planted!(K, "left-as-it-is") { request.page } else { &sealed.0 };
                WriteRequest { slot: request.slot, page, outcome: Ok(()) }
            })
            .collect();
        self.lane.write(&mut sealed);
        for ((request, sealed), seal) in batch.iter_mut().zip(sealed).zip(seals) {
            if sealed.outcome.is_ok() {
                self.sealing.note::<K>(self.first_slot + request.slot, seal);
            }
            request.outcome = sealed.outcome;
        }
    }

    fn read(&mut self, batch: &mut [ReadRequest<'_>]) {
        self.lane.read(batch);
        self.open(batch);
    }

    fn read_again(&mut self, batch: &mut [ReadRequest<'_>]) {
        self.lane.read_again(batch);
        self.open(batch);
    }

    fn can_post(&self) -> bool {
        self.lane.can_post()
    }

    fn post_reads(&mut self, slots: &[u32]) {
        self.lane.post_reads(slots);
    }

    fn complete_reads(&mut self, batch: &mut [ReadRequest<'_>]) {
        self.lane.complete_reads(batch);
        self.open(batch);
    }

    fn discard(&mut self, slots: &[u32]) {
        self.lane.discard(slots);
    }

    fn has_answered(&self) -> bool {
        self.lane.has_answered()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::live::LiveKernel;
    use crate::run::state::RunState;
    use spillway_core::seals::LAST_VERSION;
    use std::collections::BTreeMap;
    use std::sync::atomic::Ordering;
    use std::sync::{Mutex, MutexGuard};

    /// What a server holds that does as it likes.
    #[derive(Default)]
    struct Server {
        pages: BTreeMap<u32, Page>,
        /// All that it was ever given, slot by slot.
        given: Vec<(u32, Page)>,
        refuses: bool,
    }

    #[derive(Clone, Default)]
    struct Line(Arc<Mutex<Server>>);

    impl Line {
        fn server(&self) -> MutexGuard<'_, Server> {
            self.0.lock().unwrap()
        }
    }

    impl Lane for Line {
        fn write(&mut self, batch: &mut [WriteRequest<'_>]) {
            let mut server = self.server();
            for request in batch {
                server.given.push((request.slot, *request.page));
                if server.refuses {
                    request.outcome = Err(StoreError::Full { store: "line".to_owned() });
                } else {
                    server.pages.insert(request.slot, *request.page);
                }
            }
        }

        fn read(&mut self, batch: &mut [ReadRequest<'_>]) {
            for request in batch {
                *request.page = self.server().pages.get(&request.slot).copied().unwrap_or([0; PAGE_SIZE]);
            }
        }

        fn discard(&mut self, slots: &[u32]) {
            self.server().pages.retain(|slot, _| !slots.contains(slot));
        }
    }

    const FIRST_SLOT: u32 = 512;

    fn run() -> &'static RunState {
        Box::leak(Box::new(RunState::create_sealed(1000, 2048).unwrap().1))
    }

    /// The lane of process `entry` of a run.
    fn lane(run: &'static RunState, entry: usize, line: &Line) -> SealedLane<LiveKernel> {
        let sealing = Arc::new(Sealing::of_run(run, entry).unwrap());
        SealedLane::new(Box::new(line.clone()), sealing, "line", FIRST_SLOT)
    }

    fn page(seed: u8) -> Page {
        std::array::from_fn(|at| seed ^ (at % 251) as u8)
    }

    fn write(lane: &mut dyn Lane, pages: &[(u32, Page)]) -> Vec<Result<(), StoreError>> {
        let mut batch: Vec<_> =
            pages.iter().map(|(slot, page)| WriteRequest { slot: *slot, page, outcome: Ok(()) }).collect();
        lane.write(&mut batch);
        batch.into_iter().map(|request| request.outcome).collect()
    }

    /// What a slot's page is, or that it did not open.
    fn read(lane: &mut dyn Lane, slot: u32) -> Option<Page> {
        let mut page = [0; PAGE_SIZE];
        let mut batch = [ReadRequest { slot, page: &mut page, outcome: Ok(()) }];
        lane.read(&mut batch);
        match &batch[0].outcome {
            Ok(()) => Some(page),
            Err(StoreError::WrongSeal { store }) if store == "line" => None,
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn pages_go_sealed_and_come_back_as_they_were() {
        let (line, run) = (Line::default(), run());
        let mut lane = lane(run, 0, &line);
        let pages: Vec<(u32, Page)> = (0..70).map(|slot| (slot, page(slot as u8))).collect();
        assert!(write(&mut lane, &pages).iter().all(Result::is_ok));
        for (slot, page) in &pages {
            assert!(line.server().pages[slot] != *page, "slot {slot} is as it was");
            assert!(read(&mut lane, *slot) == Some(*page), "slot {slot}");
        }
        assert!(read(&mut lane, 70).is_none(), "nothing was stored there");
        assert!(lane.page(0).is_none(), "no page is read where it lies");
        // A slot of the run, not of the store.
        assert!(run.seals().unwrap().of(0).is_none() && run.seals().unwrap().of(FIRST_SLOT).is_some());
    }

    #[test]
    fn what_was_changed_swapped_outdated_or_anothers_does_not_open() {
        let (line, elsewhere) = (Line::default(), Line::default());
        let mut own = lane(run(), 0, &line);
        let mut other_run = lane(run(), 0, &elsewhere);
        for lane in [&mut own, &mut other_run] {
            write(lane, &[(1, page(1)), (2, page(2)), (3, page(2))]);
        }
        let given = line.server().pages.clone();
        let theirs = elsewhere.server().pages.clone();
        let mut flipped = given[&1];
        flipped[4095] ^= 1;
        let wrong = [flipped, given[&2], theirs[&1], page(1), [0; PAGE_SIZE]];
        for (number, wrong) in wrong.into_iter().enumerate() {
            line.server().pages.insert(1, wrong);
            assert!(read(&mut own, 1).is_none(), "wrong page {number} opens");
            assert!(read(&mut own, 2) == Some(page(2)), "the others are right");
        }
        // The same contents in another slot, and the same slot once it was written anew with the same.
        line.server().pages.insert(3, given[&2]);
        assert!(read(&mut own, 3).is_none());
        line.server().pages.insert(1, given[&1]);
        assert!(read(&mut own, 1) == Some(page(1)));
        write(&mut own, &[(1, page(1))]);
        line.server().pages.insert(1, given[&1]);
        assert!(read(&mut own, 1).is_none(), "an older version opens");
    }

    #[test]
    fn no_page_is_sealed_as_one_before_was() {
        let (line, run) = (Line::default(), run());
        // Processes of one run that take up each other's slots, whose writes fail at times, and which are
        // forked: the child goes on with its parent's count.
        let mut lanes = [0, 1].map(|entry| lane(run, entry, &line));
        for round in 0..40 {
            line.server().refuses = round % 3 == 1;
            let lane = &mut lanes[round % 2];
            write(lane, &[(5, page(9)), (6, page(9))]);
            lane.discard(&[5]);
        }
        let given = line.server().given.clone();
        assert_eq!(given.len(), 80);
        for (number, (slot, page)) in given.iter().enumerate() {
            let twin = given[..number].iter().find(|(_, before)| before[..64] == page[..64]);
            assert!(twin.is_none(), "the same contents are sealed alike twice, for slot {slot}");
        }
    }

    #[test]
    fn a_write_that_failed_leaves_the_seal_that_was_there() {
        let (line, run) = (Line::default(), run());
        let mut lane = lane(run, 0, &line);
        write(&mut lane, &[(1, page(1))]);
        line.server().refuses = true;
        assert!(write(&mut lane, &[(1, page(2))])[0].is_err());
        assert!(read(&mut lane, 1) == Some(page(1)));
    }

    #[test]
    fn once_the_versions_are_used_up_nothing_leaves_and_what_left_comes_back() {
        let (line, run) = (Line::default(), run());
        let mut lane = lane(run, 0, &line);
        write(&mut lane, &[(1, page(1))]);
        run.seals().unwrap().versions.store(LAST_VERSION - 1, Ordering::Relaxed);
        let outcomes = write(&mut lane, &[(2, page(2)), (3, page(3))]);
        assert!(outcomes.iter().all(|outcome| matches!(outcome, Err(StoreError::SealsSpent { .. }))));
        assert_eq!(line.server().given.len(), 1);
        assert!(read(&mut lane, 1) == Some(page(1)) && read(&mut lane, 2).is_none());
        assert!(outcomes[0].as_ref().unwrap_err().to_string().contains("start it anew"));
    }

    #[test]
    fn a_run_that_seals_nothing_has_nothing_to_seal_with() {
        let plain = Box::leak(Box::new(RunState::create(1000, 2048).unwrap().1));
        assert!(Sealing::of_run(plain, 0).is_err());
    }
}
