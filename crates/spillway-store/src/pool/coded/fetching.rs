//! What a thread asks the donors of coded pages for: by the places of parts, which are of one life of a
//! donor.

use std::sync::Arc;

use spillway_pool::words::{Condition, Place};

use crate::pool::donor_lanes::DonorLanes;
use crate::pool::shared::{Purpose, Way};
use crate::{Lane, ReadRequest, StoreError};

impl DonorLanes {
    /// This thread's lane to the donor of a place, in the life of the place.
    fn lane_at(&mut self, place: Place, purpose: Purpose) -> Option<(&mut Box<dyn Lane>, Way)> {
        let (lane, way) = self.lane(usize::from(place.donor), purpose).ok()?;
        (way.word().life == place.life).then_some((lane, way))
    }

    /// Sends for pages of a donor.
    pub(super) fn post_at(&mut self, place: Place, purpose: Purpose, slots: &[u32]) {
        if let Some((lane, _)) = self.lane_at(place, purpose) {
            lane.post_reads(slots);
        }
    }

    /// Fetches pages of a donor that were sent for, or reads them; says which came.
    pub(super) fn fetch_at(
        &mut self,
        place: Place,
        purpose: Purpose,
        requests: &mut [ReadRequest<'_>],
    ) -> Vec<bool> {
        let (shared, donor) = (Arc::clone(&self.shared), usize::from(place.donor));
        let Some((lane, way)) = self.lane_at(place, purpose) else { return vec![false; requests.len()] };
        lane.complete_reads(requests);
        if requests.iter().any(|request| matches!(request.outcome, Err(StoreError::Gone { .. }))) {
            let condition = if purpose == Purpose::Read { Condition::Suspect } else { Condition::Down };
            shared.complain(donor, way.word(), condition);
        }
        shared.note_read(donor, requests.iter().map(|request| &request.outcome));
        let came: Vec<bool> = requests.iter().map(|request| request.outcome.is_ok()).collect();
        shared.table().count_fetched(donor, came.iter().filter(|came| **came).count() as u64);
        came
    }
}
