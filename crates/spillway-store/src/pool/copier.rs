//! Workers that make copies anew, each another extent's.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use spillway_core::page::{PAGE_SIZE, Page};
use spillway_pool::EXTENT_SLOTS;
use spillway_pool::bits::{Bits, slots_of};
use spillway_pool::placement::Dice;
use spillway_pool::rebuild::{CHUNK_SLOTS, End, Moved, Rebuild, Step};
use spillway_pool::round::Round;
use spillway_pool::survey::{Task, drop_surplus, place_for};
use spillway_pool::words::{Condition, Place};

use super::crew::{Crew, Turn};
use super::donor_lanes::{DonorLanes, slot_at};
use super::shared::{Purpose, now_ms};
use super::site::Site;
use crate::{ReadRequest, StoreError, WriteRequest};

/// What came of a round.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Made {
    /// Copies that are whole now.
    pub(super) copies: usize,
    /// Copies for which no donor has room.
    pub(super) without_place: usize,
}

/// What a worker does its part of a round with.
struct Under<'a> {
    turn: Turn<'a>,
    round: &'a Round<Task>,
    copies: &'a AtomicUsize,
    without_place: &'a AtomicUsize,
}

/// One of the workers.
pub(super) struct Copier {
    lanes: DonorLanes,
    pages: Vec<Page>,
    dice: Dice,
}

/// Workers that make copies.
pub(super) fn copiers(site: &Arc<Site>) -> Crew<Copier> {
    Crew::new(site, |number| Copier {
        lanes: DonorLanes::new(Arc::clone(&site.shared)),
        pages: vec![[0; PAGE_SIZE]; CHUNK_SLOTS],
        dice: Dice::new(now_ms() ^ ((number as u64) << 48)),
    })
}

/// Makes the copies of a round, and returns when all workers are done with it.
pub(super) fn make(crew: &mut Crew<Copier>, round: &Round<Task>) -> Made {
    let (copies, without_place) = (AtomicUsize::new(0), AtomicUsize::new(0));
    crew.work(round.tasks(), |worker, turn| {
        worker.work(&Under { turn, round, copies: &copies, without_place: &without_place });
    });
    Made { copies: copies.into_inner(), without_place: without_place.into_inner() }
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

impl Copier {
    fn work(&mut self, under: &Under<'_>) {
        let table = under.turn.site.shared.table();
        while under.turn.may_begin()
            && let Some(task) = under.round.take(&table)
        {
            if under.turn.site.is_over() {
                return;
            }
            let chooser = self.lanes.chooser();
            match place_for(&table, &chooser, task.extent, self.dice.next_u64()) {
                Some((copy, place)) => {
                    let end = self.rebuild(under, Rebuild::new(task.extent, copy, place));
                    under.copies.fetch_add(usize::from(end == End::Whole), Ordering::Relaxed);
                    drop_copies(under.turn.site, &mut self.lanes, task.extent);
                }
                None => {
                    under.without_place.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }

    fn rebuild(&mut self, under: &Under<'_>, mut rebuild: Rebuild) -> End {
        let table = under.turn.site.shared.table();
        loop {
            match rebuild.step(&table) {
                Step::Again => {}
                Step::Move { from, to, slots } => {
                    let may_go_on = under.turn.rest();
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
        let bytes = (slots.len() * PAGE_SIZE) as u64;
        under.turn.site.count_copied(bytes);
        under.turn.note_copied(bytes, begin.elapsed());
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
            under.turn.site.shared.complain(usize::from(from.donor), way.word(), Condition::Down);
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
        let is_over = lane.has_answered();
        let outcomes = batch.iter().map(|request| &request.outcome);
        let _ = under.turn.site.shared.note_written(usize::from(to.donor), way.word(), outcomes);
        // What comes once more may come over what is written there next.
        is_over && batch.iter().all(|request| request.outcome.is_ok())
    }
}
