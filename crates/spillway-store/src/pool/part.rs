//! One donor's part of a read. Where that donor is silent for longer than is usual for it, another copy is
//! asked too, and the first good answer counts; the connection by which the other may still come is closed.

use std::sync::Arc;
use std::time::Instant;

use spillway_pool::EXTENT_SLOTS;
use spillway_pool::hedge::{Race, Verdict};
use spillway_pool::read::{Choice, still_counts};
use spillway_pool::words::Condition;

use super::donor_lanes::{DonorLanes, slot_at};
use super::shared::Purpose;
use crate::{ReadRequest, StoreError};

/// What became of a page of a part.
#[derive(Clone, Copy)]
pub(super) enum Came {
    /// It is what this copy has.
    By(Choice),
    /// It did not come from these copies, a bit each.
    Not(u8),
}

/// The extent that a slot is in.
pub(super) fn extent_of(slot: u32) -> u32 {
    slot / EXTENT_SLOTS
}

/// Neighbouring extents are read from different donors.
pub(super) fn turn_of(extent: u32) -> usize {
    (extent.wrapping_mul(0x9E37_79B1) >> 16) as usize
}

/// The donor of a copy.
fn donor_of(choice: Choice) -> usize {
    usize::from(choice.place.donor)
}

impl DonorLanes {
    /// Sends for pages of one donor, by their slots and the copies to read.
    pub(super) fn post_part(&mut self, donor: usize, own: &[u32]) {
        if let Ok((lane, _)) = self.lane(donor, Purpose::Read) {
            lane.post_reads(own);
        }
    }

    /// Reads pages of one donor, by their places in the batch. `posted` says since when they are sent for,
    /// if they are.
    pub(super) fn read_part(
        &mut self,
        donor: usize,
        batch: &mut [ReadRequest<'_>],
        part: &[(usize, Choice)],
        posted: Option<Instant>,
    ) -> Vec<Came> {
        let since = posted.unwrap_or_else(|| {
            let own: Vec<u32> =
                part.iter().map(|(index, by)| slot_at(by.place.extent, batch[*index].slot)).collect();
            let now = Instant::now();
            self.post_part(donor, &own);
            now
        });
        if self.is_silent(donor, since, posted.is_none())
            && let Some(came) = self.race(batch, part, since)
        {
            return came;
        }
        let shared = Arc::clone(&self.shared);
        let came = self.fetch(donor, batch, part);
        let outcome = |((index, choice), came): (&(usize, Choice), bool)| {
            let extent = extent_of(batch[*index].slot);
            match came && still_counts(&shared.table(), extent, *choice) {
                true => Came::By(*choice),
                false => Came::Not(1 << choice.copy),
            }
        };
        part.iter().zip(came).map(outcome).collect()
    }

    /// Asks another copy for a part of which the donor is silent. `None` where none can be asked: the donor
    /// is waited for.
    fn race(
        &mut self,
        batch: &mut [ReadRequest<'_>],
        part: &[(usize, Choice)],
        since: Instant,
    ) -> Option<Vec<Came>> {
        let shared = Arc::clone(&self.shared);
        let table = shared.table();
        let &(index, first) = part.first()?;
        let slot = batch[index].slot;
        let extent = extent_of(slot);
        // Pages of a fault nearly always lie in one extent; others are waited for.
        if part.iter().any(|(index, by)| extent_of(batch[*index].slot) != extent || *by != first) {
            return None;
        }
        let mut race = Race::new(slot, first);
        let second = race.ask_another(&table, turn_of(extent))?;
        let own: Vec<u32> =
            part.iter().map(|(index, _)| slot_at(second.place.extent, batch[*index].slot)).collect();
        self.post_part(donor_of(second), &own);
        let order = match self.is_overtaken(donor_of(first), &[donor_of(second)], since) {
            true => [second, first],
            false => [first, second],
        };
        for by in order {
            let own: Vec<(usize, Choice)> = part.iter().map(|(index, _)| (*index, by)).collect();
            let came = self.fetch(donor_of(by), batch, &own);
            match race.answered(&table, by, came.iter().all(|came| *came)) {
                Verdict::Taken { by, left } => {
                    self.leave(left.into_iter().map(donor_of));
                    return Some(vec![Came::By(by); part.len()]);
                }
                Verdict::Wait => {}
                Verdict::Failed => break,
            }
        }
        Some(vec![Came::Not(race.tried()); part.len()])
    }

    /// Reads pages of one donor, or fetches those that were sent for; says which came.
    fn fetch(&mut self, donor: usize, batch: &mut [ReadRequest<'_>], part: &[(usize, Choice)]) -> Vec<bool> {
        let shared = Arc::clone(&self.shared);
        let Ok((lane, way)) = self.lane(donor, Purpose::Read) else { return vec![false; part.len()] };
        let mut wanted = part.iter().peekable();
        let mut own: Vec<ReadRequest<'_>> = Vec::with_capacity(part.len());
        for (index, request) in batch.iter_mut().enumerate() {
            let Some((_, choice)) = wanted.next_if(|(of, _)| *of == index) else { continue };
            let slot = slot_at(choice.place.extent, request.slot);
            own.push(ReadRequest { slot, page: &mut *request.page, outcome: Ok(()) });
        }
        lane.complete_reads(&mut own);
        let outcomes: Vec<_> = own.into_iter().map(|request| request.outcome).collect();
        if outcomes.iter().any(|outcome| matches!(outcome, Err(StoreError::Gone { .. }))) {
            shared.complain(donor, way.word(), Condition::Suspect);
        }
        shared.note_read(donor, outcomes.iter());
        let came: Vec<bool> = outcomes.iter().map(Result::is_ok).collect();
        shared.table().count_fetched(donor, came.iter().filter(|came| **came).count() as u64);
        came
    }
}
