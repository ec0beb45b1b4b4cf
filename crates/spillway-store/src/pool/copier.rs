//! Workers that make copies anew, several at the same time, each another extent's: while one waits for a
//! donor to give, another waits for one to take.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use spillway_core::page::{PAGE_SIZE, Page};
use spillway_pool::EXTENT_SLOTS;
use spillway_pool::bits::{Bits, slots_of};
use spillway_pool::pace::{MOST_WORKERS, Pace};
use spillway_pool::placement::Dice;
use spillway_pool::rebuild::{CHUNK_SLOTS, End, Moved, Rebuild, Step};
use spillway_pool::round::Round;
use spillway_pool::survey::{drop_surplus, place_for};
use spillway_pool::words::{Condition, Place};

use super::donor_lanes::{DonorLanes, slot_at};
use super::shared::{Purpose, now_ms};
use super::site::Site;
use crate::{ReadRequest, StoreError, WriteRequest};

/// Copies that are made at the same time: enough that a donor's answer is never what all wait for, few enough
/// that donors serve others between two of their requests.
const WORKERS: usize = 4;
const _: () = assert!(WORKERS <= MOST_WORKERS);

/// The workers, and what they share.
pub(super) struct Crew {
    site: Arc<Site>,
    workers: Vec<Copier>,
    pace: Mutex<Pace>,
    /// The clock of the pace.
    since: Instant,
}

/// What came of a round.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Made {
    /// Copies that are whole now.
    pub(super) copies: usize,
    /// Copies for which no donor has room.
    pub(super) without_place: usize,
}

/// What the workers of one round share.
struct Under<'a> {
    site: &'a Site,
    round: &'a Round,
    pace: &'a Mutex<Pace>,
    since: Instant,
    copies: AtomicUsize,
    without_place: AtomicUsize,
}

/// One of the workers.
struct Copier {
    number: usize,
    lanes: DonorLanes,
    pages: Vec<Page>,
    dice: Dice,
}

impl Crew {
    pub(super) fn new(site: &Arc<Site>) -> Self {
        let worker = |number: usize| Copier {
            number,
            lanes: DonorLanes::new(Arc::clone(&site.shared)),
            pages: vec![[0; PAGE_SIZE]; CHUNK_SLOTS],
            dice: Dice::new(now_ms() ^ ((number as u64) << 48)),
        };
        Self {
            site: Arc::clone(site),
            workers: (0..WORKERS).map(worker).collect(),
            pace: Mutex::new(Pace::new(site.shared.spec.rebuild.bytes())),
            since: Instant::now(),
        }
    }

    /// Makes the copies of a round, and returns when all workers are done with it.
    pub(super) fn make(&mut self, round: &Round) -> Made {
        let Self { site, workers, pace, since } = self;
        let none = || AtomicUsize::new(0);
        let (copies, without_place) = (none(), none());
        let shared = Under { site, round, pace, since: *since, copies, without_place };
        let under = &shared;
        let Some((first, others)) = workers.split_first_mut() else { return Made::default() };
        std::thread::scope(|scope| {
            for other in others.iter_mut().take(round.tasks().saturating_sub(1)) {
                let builder = std::thread::Builder::new().name("pool copy".to_owned());
                // Where no thread can be had, there are fewer workers.
                let _ = builder.spawn_scoped(scope, move || other.work(under));
            }
            first.work(under);
        });
        let Under { copies, without_place, .. } = shared;
        Made { copies: copies.into_inner(), without_place: without_place.into_inner() }
    }
}

/// Drops copies of an extent that are too many. A donor that leaves forgets them at once, so it is seen how
/// far that is, and so does the last resort, which takes of this machine's disk; nobody reads there any more.
pub(super) fn drop_copies(site: &Site, lanes: &mut DonorLanes, extent: u32) {
    for place in drop_surplus(&site.shared.table(), extent) {
        let donor = usize::from(place.donor);
        let table = site.shared.table();
        if !table.is_leaving(donor) && !table.is_spill(donor) {
            continue;
        }
        let Ok((lane, way)) = lanes.lane(donor, Purpose::Write) else { continue };
        let slots: Vec<u32> = (0..EXTENT_SLOTS).map(|slot| slot_at(place.extent, slot)).collect();
        lane.discard(&slots);
        if way.store.is_given_up() {
            site.shared.complain(donor, way.word(), Condition::Down);
        }
    }
}

impl Under<'_> {
    fn now_us(&self) -> u64 {
        self.since.elapsed().as_micros() as u64
    }

    /// Whether a worker may begin another copy: those that it does not begin the first one makes.
    fn may_begin(&self, worker: usize) -> bool {
        let reads = self.site.shared.table().reads();
        let mut pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
        pace.may_begin(worker, self.now_us(), reads)
    }

    /// Rests for as long as others come first. False where all is over.
    fn rest(&self, worker: usize) -> bool {
        while !self.site.is_over() {
            let reads = self.site.shared.table().reads();
            let mut pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
            let rest_us = pace.rest_us(worker, self.now_us(), reads);
            drop(pace);
            if rest_us == 0 {
                return true;
            }
            crate::nbd::sleep(Duration::from_micros(rest_us));
        }
        false
    }

    fn note_copied(&self, worker: usize, bytes: u64, took: Duration) {
        self.site.count_copied(bytes);
        let mut pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
        pace.copied(worker, bytes, took.as_micros() as u64, self.now_us());
    }
}

impl Copier {
    fn work(&mut self, under: &Under<'_>) {
        let table = under.site.shared.table();
        while under.may_begin(self.number)
            && let Some(task) = under.round.take(&table)
        {
            if under.site.is_over() {
                return;
            }
            let chooser = self.lanes.chooser();
            match place_for(&table, &chooser, task.extent, self.dice.next_u64()) {
                Some((copy, place)) => {
                    let end = self.rebuild(under, Rebuild::new(task.extent, copy, place));
                    under.copies.fetch_add(usize::from(end == End::Whole), Ordering::Relaxed);
                    drop_copies(under.site, &mut self.lanes, task.extent);
                }
                None => {
                    under.without_place.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }

    fn rebuild(&mut self, under: &Under<'_>, mut rebuild: Rebuild) -> End {
        let table = under.site.shared.table();
        loop {
            match rebuild.step(&table) {
                Step::Again => {}
                Step::Move { from, to, slots } => {
                    let may_go_on = under.rest(self.number);
                    let moved =
                        if may_go_on { self.copy(under, from, to, &slots) } else { Moved::NotWritten };
                    rebuild.copied(&table, moved);
                }
                Step::Done(end) => return end,
            }
        }
    }

    fn copy(&mut self, under: &Under<'_>, from: Place, to: Place, slots: &Bits) -> Moved {
        let begin = Instant::now();
        let slots: Vec<u32> = slots_of(slots).collect();
        if !self.read(under, from, &slots) {
            return Moved::NotRead;
        }
        if !self.write(under, to, &slots) {
            return Moved::NotWritten;
        }
        under.note_copied(self.number, (slots.len() * PAGE_SIZE) as u64, begin.elapsed());
        Moved::All
    }

    fn read(&mut self, under: &Under<'_>, from: Place, slots: &[u32]) -> bool {
        // With a write's patience: there may be no other copy to ask.
        let Ok((lane, way)) = self.lanes.lane(usize::from(from.donor), Purpose::Write) else { return false };
        let mut batch: Vec<ReadRequest<'_>> = slots
            .iter()
            .zip(&mut self.pages)
            .map(|(&slot, page)| ReadRequest { slot: slot_at(from.extent, slot), page, outcome: Ok(()) })
            .collect();
        lane.read(&mut batch);
        let is_gone = batch.iter().any(|request| matches!(request.outcome, Err(StoreError::Gone { .. })));
        if is_gone {
            under.site.shared.complain(usize::from(from.donor), way.word(), Condition::Down);
        }
        batch.iter().all(|request| request.outcome.is_ok())
    }

    fn write(&mut self, under: &Under<'_>, to: Place, slots: &[u32]) -> bool {
        let Ok((lane, way)) = self.lanes.lane(usize::from(to.donor), Purpose::Write) else { return false };
        let mut batch: Vec<WriteRequest<'_>> = slots
            .iter()
            .zip(&self.pages)
            .map(|(&slot, page)| WriteRequest { slot: slot_at(to.extent, slot), page, outcome: Ok(()) })
            .collect();
        lane.write(&mut batch);
        let outcomes = batch.iter().map(|request| &request.outcome);
        let _ = under.site.shared.note_written(usize::from(to.donor), way.word(), outcomes);
        batch.iter().all(|request| request.outcome.is_ok())
    }
}
