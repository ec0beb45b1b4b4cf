//! Gives memory back to the donors that no page needs any more, and makes slabs free. What may be discarded,
//! and in which order, is the business of [`spillway_pool::slabs::discard`] and
//! [`spillway_pool::slabs::reclaim`]; here it is sent: each donor is asked once for all of its places, those
//! that answer quickly first, and what a donor has forgotten is free at once, whatever others do.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use spillway_pool::EXTENT_SLOTS;
use spillway_pool::round::Round;
use spillway_pool::slabs::reclaim::{Answer, Patience, Reclaim, Unnamed};
use spillway_pool::words::Condition;

use super::mover::Mover;
use super::reads::slot_of;
use super::writes::patience_for_room;
use crate::pool::crew::Crew;
use crate::pool::donor_lanes::DonorLanes;
use crate::pool::shared::{Purpose, now_ms};
use crate::pool::site::Site;

/// Nothing comes late any more, to memory of a donor that nobody names, after so long.
const LATE_PATIENCE_MS: u64 = 30_000;
/// A write ends within its donors' patience, and some time in which nobody lets its thread run.
const WRITE_MARGIN_MS: u64 = 1_000;
const SWEEP_PERIOD: Duration = Duration::from_secs(5);
/// Extents that are discarded between two looks: what is in danger waits for that.
const MOST_PLACES: usize = 512;
/// Extents that a donor is to forget at once: it is to serve others soon.
const MOST_AT_ONCE: usize = 32;

/// Knows what is to be made free.
pub(super) struct Discards {
    reclaim: Reclaim,
    swept: Instant,
}

impl Discards {
    pub(super) fn new() -> Self {
        Self { reclaim: Reclaim::default(), swept: Instant::now() }
    }

    /// Whether memory of donors is given back soon enough for who waits for room.
    pub(super) fn give_back_soon(&self, site: &Site) -> bool {
        let within_ms = patience_for_room(site.shared.spec.patience, true).as_millis() as u64;
        self.reclaim.gives_back_within(within_ms, now_ms(), patience(site))
    }

    /// Makes slabs free in which nothing lives, and their places once donors have forgotten what they had:
    /// several donors at the same time, for each takes a while to give much memory back.
    pub(super) fn make_free(&mut self, site: &Site, crew: &mut Crew<Mover>) {
        let table = site.shared.table();
        self.reclaim.free_slabs(&table, now_ms(), patience(site));
        if self.swept.elapsed() >= SWEEP_PERIOD {
            self.reclaim.sweep(&table, now_ms(), LATE_PATIENCE_MS);
            self.swept = Instant::now();
        }
        let mut unnamed = self.reclaim.take_quiet(&table, MOST_PLACES);
        unnamed.sort_by_key(|unnamed| {
            let donor = usize::from(unnamed.place.donor);
            (table.is_late(donor), donor)
        });
        let by_donor: Vec<_> = unnamed.chunk_by(|one, next| one.place.donor == next.place.donor).collect();
        let donors = by_donor.len();
        let (round, reclaim) = (Round::new(by_donor, donors), Mutex::new(&mut self.reclaim));
        crew.work(donors, |mover, turn| {
            let table = turn.site.shared.table();
            while let Some(of_donor) = round.take(&table) {
                for some in of_donor.chunks(MOST_AT_ONCE) {
                    let answer = forget(turn.site, mover.lanes(), some);
                    let mut reclaim = reclaim.lock().unwrap_or_else(PoisonError::into_inner);
                    some.iter().for_each(|unnamed| reclaim.note(&table, *unnamed, answer, now_ms()));
                }
            }
        });
    }
}

fn patience(site: &Site) -> Patience {
    let write_ms = site.shared.spec.patience.timeout.as_millis() as u64 + WRITE_MARGIN_MS;
    Patience { write_ms, late_ms: LATE_PATIENCE_MS }
}

/// Has a donor forget what it holds at these places; what has become of it.
fn forget(site: &Site, lanes: &mut DonorLanes, places: &[Unnamed]) -> Answer {
    let (shared, table) = (&site.shared, site.shared.table());
    let Some(first) = places.first().map(|unnamed| unnamed.place) else { return Answer::NotAsked };
    let donor = usize::from(first.donor);
    // The last resort forgets what it holds though it takes no pages.
    let can_be_asked = table.donor(donor).condition == Condition::Up || table.is_spill(donor);
    if site.is_over() || !can_be_asked {
        return Answer::NotAsked;
    }
    let Ok((lane, way)) = lanes.lane(donor, Purpose::Write) else { return Answer::NotAsked };
    // In another life of the donor its places are somebody else's.
    if way.word().life != first.life || !places.iter().all(|unnamed| table.is_left(*unnamed)) {
        return Answer::NotAsked;
    }
    let rows = 0..EXTENT_SLOTS as u16;
    let slots: Vec<u32> =
        places.iter().flat_map(|unnamed| rows.clone().map(|row| slot_of(unnamed.place, row))).collect();
    lane.discard(&slots);
    let answer = if lane.has_answered() { Answer::Forgotten } else { Answer::Silent };
    if way.store.is_given_up() {
        shared.complain(donor, way.word(), Condition::Down);
    }
    answer
}
