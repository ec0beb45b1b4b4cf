//! Gives memory back to the donors that no page needs any more, and makes slabs free. What may be discarded,
//! and in which order, is the business of [`spillway_pool::slabs::discard`]; here it is sent.

use std::time::{Duration, Instant};

use spillway_pool::EXTENT_SLOTS;
use spillway_pool::slabs::discard::Discard;
use spillway_pool::slabs::reclaim::Reclaim;
use spillway_pool::words::{Condition, Place};

use super::reads::slot_of;
use crate::pool::donor_lanes::DonorLanes;
use crate::pool::shared::{Purpose, now_ms};
use crate::pool::site::Site;

/// Nothing comes late any more, to memory of a donor that nobody names, after so long.
const SWEEP_PATIENCE_MS: u64 = 30_000;
const SWEEP_PERIOD: Duration = Duration::from_secs(5);
/// Slabs that are made free between two looks: what is in danger waits for that.
const MOST_AT_ONCE: usize = 64;

/// Knows what is to be made free.
pub(super) struct Discards {
    reclaim: Reclaim,
    swept: Instant,
}

impl Discards {
    pub(super) fn new() -> Self {
        Self { reclaim: Reclaim::default(), swept: Instant::now() }
    }

    /// Makes slabs free in which nothing lives, once donors have forgotten what they had.
    pub(super) fn make_free(&mut self, site: &Site, lanes: &mut DonorLanes) {
        let table = site.shared.table();
        let due = self.reclaim.due(&table, now_ms(), SWEEP_PATIENCE_MS);
        for slab in due.into_iter().take(MOST_AT_ONCE) {
            if site.is_over() {
                return;
            }
            let discard = table.begin_discard(slab);
            let parts = discard.iter().flat_map(Discard::parts);
            let discarded = parts
                .fold(0, |all, (part, place)| all | u16::from(has_forgotten(site, lanes, place)) << part);
            table.free_slab(slab, discarded);
        }
        if self.swept.elapsed() >= SWEEP_PERIOD {
            self.sweep(site, lanes);
            self.swept = Instant::now();
        }
    }

    fn sweep(&mut self, site: &Site, lanes: &mut DonorLanes) {
        let table = site.shared.table();
        for unnamed in self.reclaim.sweep(&table, now_ms(), SWEEP_PATIENCE_MS) {
            if site.is_over() {
                return;
            }
            if has_forgotten(site, lanes, unnamed.place) {
                table.free_unnamed(unnamed);
            } else {
                self.reclaim.keep(unnamed, now_ms());
            }
        }
    }
}

/// Has a donor forget what it holds at a place; whether it has answered, so that nothing of this comes late.
fn has_forgotten(site: &Site, lanes: &mut DonorLanes, place: Place) -> bool {
    let (shared, donor) = (&site.shared, usize::from(place.donor));
    if shared.table().donor(donor).condition != Condition::Up {
        return false;
    }
    let Ok((lane, way)) = lanes.lane(donor, Purpose::Write) else { return false };
    // In another life of the donor the place is somebody else's.
    if way.word().life != place.life {
        return false;
    }
    let slots: Vec<u32> = (0..EXTENT_SLOTS as u16).map(|row| slot_of(place, row)).collect();
    lane.discard(&slots);
    let has_answered = lane.has_answered();
    if way.store.is_given_up() {
        shared.complain(donor, way.word(), Condition::Down);
    }
    has_answered
}
