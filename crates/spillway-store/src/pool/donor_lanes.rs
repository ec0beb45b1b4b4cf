//! One thread's lanes to a pool's donors.

use std::sync::Arc;
use std::time::Duration;

use spillway_pool::placement::Chooser;
use spillway_pool::read::donors_of;
use spillway_pool::words::Condition;
use spillway_pool::{EXTENT_SLOTS, MAX_DONORS};

use super::shared::{Purpose, Shared, Way};
use crate::{Event, Lane, StoreError};

/// How soon somebody who waits is told so.
const TELL_AFTER_MS: u64 = 800;

/// A lane to one donor, and the number of the way that it was opened by.
type DonorLane = Option<(u64, Box<dyn Lane>)>;

/// The lanes of one thread.
pub(super) struct DonorLanes {
    pub(super) shared: Arc<Shared>,
    /// For reading and for writing, by donor.
    lanes: Vec<[DonorLane; 2]>,
    chooser: Option<Arc<Chooser>>,
}

/// The slot of a page on its donor.
pub(super) fn slot_at(extent: u32, slot: u32) -> u32 {
    extent * EXTENT_SLOTS + slot % EXTENT_SLOTS
}

impl DonorLanes {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let lanes = (0..MAX_DONORS).map(|_| [None, None]).collect();
        Self { shared, lanes, chooser: None }
    }

    /// What chooses among the donors that there are now.
    pub(super) fn chooser(&mut self) -> Arc<Chooser> {
        let table = self.shared.table();
        match &self.chooser {
            Some(chooser) if chooser.donors() == table.donors() => Arc::clone(chooser),
            _ => Arc::clone(self.chooser.insert(Arc::new(table.chooser()))),
        }
    }

    /// The lane that [`Self::lane`] gave last, without a look at whether there is a newer one.
    pub(super) fn same_lane(&mut self, donor: usize, purpose: Purpose) -> Option<&mut Box<dyn Lane>> {
        self.lanes[donor][purpose as usize].as_mut().map(|(_, lane)| lane)
    }

    /// The same, to look at.
    pub(super) fn known_lane(&self, donor: usize, purpose: Purpose) -> Option<&dyn Lane> {
        self.lanes[donor][purpose as usize].as_ref().map(|(_, lane)| &**lane)
    }

    /// This thread's lane to a donor; and the donor's word, for a complaint.
    pub(super) fn lane(
        &mut self,
        donor: usize,
        purpose: Purpose,
    ) -> Result<(&mut Box<dyn Lane>, Way), StoreError> {
        let way = self.shared.way(donor, purpose)?;
        let place = &mut self.lanes[donor][purpose as usize];
        if place.as_ref().is_none_or(|(number, _)| *number != way.number) {
            *place = None;
            let opened = way.store.open_lane();
            if opened.is_err() {
                let condition = if purpose == Purpose::Read { Condition::Suspect } else { Condition::Down };
                self.shared.complain(donor, way.word(), condition);
            }
            *place = Some((way.number, opened?));
        }
        match place {
            Some((_, lane)) => Ok((lane, way)),
            None => Err(self.shared.lost(0)),
        }
    }

    /// Tells that somebody waits for a page of an extent, once that takes long; whether it has.
    pub(super) fn tell_waiting(&self, extent: u32, since_ms: u64, now_ms: u64) -> bool {
        if now_ms.saturating_sub(since_ms) < TELL_AFTER_MS {
            return false;
        }
        let until_ms = self.shared.waits_until_ms(extent, since_ms);
        self.tell_waiting_for(&donors_of(&self.shared.table(), extent), until_ms, since_ms, now_ms)
    }

    /// The same for these donors of a page, which are waited for until then.
    pub(super) fn tell_waiting_for(
        &self,
        donors: &[usize],
        until_ms: u64,
        since_ms: u64,
        now_ms: u64,
    ) -> bool {
        let reason = || format!("the donors of a page, {}, cannot be reached", self.shared.names_of(donors));
        self.tell_once_long(reason, until_ms, since_ms, now_ms)
    }

    /// Tells that somebody waits for room on donors that are away, once that takes long; whether it has.
    pub(super) fn tell_waiting_for_room(&self, since_ms: u64, now_ms: u64) -> bool {
        let awaited = self.shared.room_awaited(since_ms);
        let names = || self.shared.names_of(&awaited.donors);
        let reason = || format!("the donors that have room, {}, cannot be reached", names());
        self.tell_once_long(reason, awaited.until_ms, since_ms, now_ms)
    }

    fn tell_once_long(&self, reason: impl Fn() -> String, until_ms: u64, since_ms: u64, now_ms: u64) -> bool {
        if now_ms.saturating_sub(since_ms) < TELL_AFTER_MS {
            return false;
        }
        let left = Duration::from_millis(until_ms.saturating_sub(now_ms));
        self.shared.hear(Event::Waiting { reason: &reason(), left });
        true
    }
}
