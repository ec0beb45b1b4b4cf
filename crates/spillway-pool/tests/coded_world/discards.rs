//! The supervisor has donors forget what no page needs any more. What it sends may be lost, or come late, and
//! it may be killed meanwhile. Whenever a donor forgets an extent, no page may have a part there.

use spillway_pool::words::Condition;

use super::*;

/// Discards that are to be sent: those of retired slabs, and of places that nobody names.
pub(super) struct Discarding {
    queue: Vec<Discards>,
    pub(super) census: Census,
}

/// What is discarded at a time.
enum Discards {
    /// Of a slab: the parts that are to be sent yet, and those that were discarded.
    Slab {
        slab: u32,
        left: Vec<(usize, Place)>,
        discarded: u16,
    },
    Place(Unnamed),
}

impl World {
    /// Slabs that are due become free at once where nothing of them is to be discarded now.
    pub(super) fn begin_discarding(&mut self, table: &Table<'_>, due: &[u32], census: Census) -> Discarding {
        let mut queue = Vec::new();
        for &slab in due {
            match table.begin_discard(slab) {
                Some(discard) => {
                    let left = discard.parts().collect();
                    queue.push(Discards::Slab { slab, left, discarded: 0 });
                }
                None => table.free_slab(slab, 0),
            }
        }
        Discarding { queue, census }
    }

    /// Of places that nobody names.
    pub(super) fn begin_sweeping(&mut self, unnamed: Vec<Unnamed>, discarding: &mut Discarding) {
        discarding.queue.extend(unnamed.into_iter().map(Discards::Place));
    }

    /// A few discards more, one after the other; false once none is left.
    pub(super) fn discard_some(
        &mut self,
        table: &Table<'_>,
        discarding: &mut Discarding,
    ) -> Result<bool, String> {
        while self.discard_one(table, discarding)? {
            if self.chance(6) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn discard_one(&mut self, table: &Table<'_>, discarding: &mut Discarding) -> Result<bool, String> {
        match discarding.queue.pop() {
            None => return Ok(false),
            Some(Discards::Slab { slab, mut left, mut discarded }) => {
                let Some((part, place)) = left.pop() else {
                    table.free_slab(slab, discarded);
                    self.freed += 1;
                    return Ok(true);
                };
                let is_up = table.donor(usize::from(place.donor)).condition == Condition::Up;
                if is_up && self.send_discard(table, place)? {
                    discarded |= 1 << part;
                }
                discarding.queue.push(Discards::Slab { slab, left, discarded });
            }
            Some(Discards::Place(unnamed)) => {
                if self.send_discard(table, unnamed.place)? {
                    table.free_unnamed(unnamed);
                } else {
                    let now = self.now;
                    self.keeper.keep_place(unnamed, now);
                }
            }
        }
        Ok(true)
    }

    /// What a killed supervisor had sent comes or does not.
    pub(super) fn leave_discards_under_way(&mut self, discarding: Discarding) {
        let places = discarding.queue.into_iter().flat_map(|discards| match discards {
            Discards::Slab { left, .. } => left.into_iter().map(|(_, place)| place).collect(),
            Discards::Place(unnamed) => vec![unnamed.place],
        });
        for place in places {
            if self.serves(place) && self.chance(2) {
                self.delay_discard(place);
            }
        }
    }

    /// Whether the donor has answered.
    fn send_discard(&mut self, table: &Table<'_>, place: Place) -> Result<bool, String> {
        let (donor, seen) = (usize::from(place.donor), table.donor(usize::from(place.donor)));
        let is_answered = self.serves(place) && (self.is_settling || !self.chance(30));
        if is_answered {
            self.forget_extent(table, place)?;
            self.discarded += 1;
            return Ok(true);
        }
        let is_there = self.machines[donor] != Machine::Dead && self.lives[donor] == place.life;
        if is_there && !self.chance(3) {
            self.delay_discard(place);
        }
        table.complain(donor, seen, Condition::Down, self.now);
        Ok(false)
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
