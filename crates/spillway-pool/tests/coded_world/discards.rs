//! The supervisor has donors forget what no page needs any more. What it sends may be lost, or come late, and
//! it may be killed meanwhile. Whenever a donor forgets an extent, no page may have a part there.

use spillway_pool::slabs::reclaim::{Answer, Patience, Unnamed};
use spillway_pool::words::Condition;

use super::*;

/// Discards that are to be sent.
pub(super) struct Discarding {
    queue: Vec<Unnamed>,
    pub(super) census: Census,
}

impl World {
    /// Slabs in which nothing lives become free, and what they had is to be discarded.
    pub(super) fn begin_discarding(&mut self, table: &Table<'_>, census: Census) -> Discarding {
        let patience = Patience { write_ms: WRITE_PATIENCE, late_ms: SWEEP_PATIENCE };
        let reclaim = &mut self.keeper.reclaim;
        self.freed += reclaim.free_slabs(table, self.now, patience) as u64;
        reclaim.sweep(table, self.now, SWEEP_PATIENCE);
        let most = 1 + self.dice.below(20);
        Discarding { queue: self.keeper.reclaim.take_quiet(table, most), census }
    }

    /// A few discards more, one after the other; false once none is left.
    pub(super) fn discard_some(
        &mut self,
        table: &Table<'_>,
        discarding: &mut Discarding,
    ) -> Result<bool, String> {
        while let Some(unnamed) = discarding.queue.pop() {
            let answer = self.send_discard(table, unnamed)?;
            self.keeper.reclaim.note(table, unnamed, answer, self.now);
            if self.chance(6) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// What a killed supervisor had sent comes or does not.
    pub(super) fn leave_discards_under_way(&mut self, discarding: Discarding) {
        for Unnamed { place, .. } in discarding.queue {
            if self.serves(place) && self.chance(2) {
                self.delay_discard(place);
            }
        }
    }

    /// What has become of it.
    fn send_discard(&mut self, table: &Table<'_>, unnamed: Unnamed) -> Result<Answer, String> {
        let place = unnamed.place;
        let (donor, seen) = (usize::from(place.donor), table.donor(usize::from(place.donor)));
        // The last resort forgets what it holds though it takes no pages.
        let can_be_asked = seen.condition == Condition::Up || self.is_spill(donor);
        if !can_be_asked || !table.is_left(unnamed) {
            return Ok(Answer::NotAsked);
        }
        let is_sure = self.is_settling || self.is_spill(donor);
        let reach = self.reach(donor);
        let is_answered = reach == Reach::Both && self.serves(place) && (is_sure || !self.chance(30));
        if reach == Reach::There && self.serves(place) {
            self.forget_extent(table, place)?;
        }
        if is_answered {
            self.forget_extent(table, place)?;
            self.discarded += 1;
            return Ok(Answer::Forgotten);
        }
        table.complain(donor, seen, Condition::Down, self.now);
        if self.machines[donor] == Machine::Dead || self.lives[donor] != place.life {
            return Ok(Answer::NotAsked);
        }
        if reach != Reach::There && !self.chance(3) {
            self.delay_discard(place);
        }
        Ok(Answer::Silent)
    }

    fn delay_discard(&mut self, place: Place) {
        let at = self.now + self.dice.below(MOST_LATE as usize) as u64;
        self.late.push(Late { at, donor: usize::from(place.donor), deed: Deed::Discard(place) });
    }

    /// A donor forgets an extent, in the life that it was told so in; or only says so, as it may.
    pub(super) fn forget_extent(&mut self, table: &Table<'_>, place: Place) -> Result<(), String> {
        let is_needed = |slot: &u32| {
            let Some(seat) = table.seat(*slot).filter(|_| !self.busy.contains(slot)) else { return false };
            let seen = table.see_slab(seat.slab);
            let is_part = table.is_current(place) && seen.places.contains(&Some(place));
            seen.word.generation == seat.generation && is_part
        };
        if let Some(slot) = self.oracle.keys().copied().find(is_needed) {
            let seat = table.seat(slot);
            return Err(format!(
                "{place:?} is forgotten, where slot {slot} has a part of its row at {seat:?}"
            ));
        }
        let is_read = |&(slab, generation): &(u32, u32)| {
            let seen = table.see_slab(slab);
            seen.word.generation == generation && seen.places.contains(&Some(place))
        };
        if let Some(slab) = self.keeper.under_way().find(is_read) {
            return Err(format!("{place:?} is forgotten while a worker empties slab {slab:?}"));
        }
        if self.chance(3) {
            return Ok(());
        }
        let is_other = |key: &(u16, u32, u16), _: &mut Page| (key.0, key.1) != (place.life, place.extent);
        self.memory[usize::from(place.donor)].retain(is_other);
        Ok(())
    }
}
