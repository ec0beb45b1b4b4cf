//! The end of a world: everything that is under way ends, and then each page must be there, in places that
//! are apart, with nothing left to do.

use super::*;

impl World {
    /// All donors come back; everything that is under way ends, and every page must be there.
    pub(super) fn settle(&mut self, table: &Table<'_>) -> Result<(), String> {
        self.machines.fill(Machine::Well);
        self.is_settling = true;
        self.spill_refuses = false;
        self.lies.fill(false);
        self.cuts.fill(None);
        self.directory.stay();
        let last = self.drained.iter().rposition(|is_drained| *is_drained);
        (0..DONORS).for_each(|donor| self.drained[donor] = Some(donor) == last);
        let mut is_settled = false;
        for step in 0..40_000 {
            if step > 3 * SWEEP_PATIENCE && step % 20 == 0 && self.is_settled(table) {
                is_settled = true;
                break;
            }
            self.now += 1;
            self.land_late(table)?;
            let actor = self.dice.below(self.actors.len());
            if !matches!(self.actors[actor], Actor::Idle) {
                self.act(table, actor)?;
            }
            self.watch(table);
            (0..3).try_for_each(|_| self.keep(table))?;
        }
        if !is_settled {
            return Err(format!("it does not come to rest: {}", self.what_is_left(table)));
        }
        parts_are_apart(table)?;
        let slots: Vec<u32> = self.oracle.keys().copied().collect();
        for slot in slots {
            self.busy.push(slot);
            self.actors[0] = Actor::Reading(Reader::of(slot));
            while matches!(self.actors[0], Actor::Reading(_)) {
                self.act(table, 0)?;
            }
        }
        Ok(())
    }

    fn is_settled(&self, table: &Table<'_>) -> bool {
        self.what_is_left(table).is_empty()
    }

    /// What is yet to be done: nothing endangered, no place lost, nobody at work.
    fn what_is_left(&self, table: &Table<'_>) -> String {
        let mut census = Census::begin(table);
        while !census.go_on(table, SLOTS) {}
        let found = judge(table, &census, self.now, PATIENCE);
        // What is dead is moved away too, and there is an end to it.
        let mut left = String::new();
        if !found.tasks.is_empty() {
            left = format!("to be emptied: {:?} ", found.tasks);
        }
        left += &self.what_should_return(table);
        left += &self.what_lacks_parts(table);
        if self.actors.iter().any(|actor| !matches!(actor, Actor::Idle)) {
            left += "somebody is at work ";
        }
        let comes = (table.donors()..self.present).next();
        if comes.is_some_and(|donor| !self.is_away(donor) && !self.drained[donor]) {
            left += &format!("donor {comes:?} has come, and is not known ");
        }
        for donor in 0..table.donors() {
            let (capacity, used) = table.room(donor);
            if self.drained[donor] && capacity > 0 {
                left += &format!("donor {donor} is not left: {:?} ", parts_left_on(table, donor));
            }
            let named = (0..table.slabs())
                .flat_map(|slab| table.see_slab(slab).places)
                .flatten()
                .filter(|place| usize::from(place.donor) == donor && table.is_current(*place))
                .count();
            if named as u32 != used {
                left += &format!("donor {donor} has {used} places in use and {named} are named ");
            }
        }
        left
    }

    /// Pages that are in the last resort though all donors have room for many more.
    fn what_should_return(&self, table: &Table<'_>) -> String {
        let has_room = |donor: usize| {
            let (capacity, used) = table.room(donor);
            self.is_spill(donor) || capacity >= used + 3
        };
        if !self.has_spill || !(0..table.donors()).all(has_room) {
            return String::new();
        }
        let spilled: Vec<u32> = (0..SLOTS)
            .filter(|slot| {
                table.seat(*slot).is_some_and(|seat| table.spilled_parts(&table.see_slab(seat.slab)) > 0)
            })
            .collect();
        if spilled.is_empty() { String::new() } else { format!("slots {spilled:?} have not returned ") }
    }

    /// Pages of which donors and the last resort do not have all that was to be there, whatever the table
    /// says that it has found. Where neither has room, they cannot.
    fn what_lacks_parts(&self, table: &Table<'_>) -> String {
        let has_room = |donor: usize| {
            let (capacity, used) = table.room(donor);
            capacity >= used + 3
        };
        if !self.has_spill || !has_room(SPILL) {
            return String::new();
        }
        let is_lacking = |seat: Seat| {
            let seen = table.see_slab(seat.slab);
            let there = seen.places.iter().flatten().filter(|place| self.serves(**place));
            let of_spill = |place: &&&Place| self.is_spill(usize::from(place.donor));
            there.clone().count() < PARTS && there.filter(|place| of_spill(&place)).count() < DATA
        };
        // A slot that nobody counts on may name rows of a write that never counted.
        let known = self.oracle.keys().copied();
        let lacking: Vec<u32> = known.filter(|slot| table.seat(*slot).is_some_and(is_lacking)).collect();
        if lacking.is_empty() {
            return String::new();
        }
        let seat = table.seat(lacking[0]);
        format!("slots {lacking:?} lack parts: {:?} ", seat.map(|seat| table.see_slab(seat.slab)))
    }
}

fn parts_are_apart(table: &Table<'_>) -> Result<(), String> {
    for slab in 0..table.slabs() {
        let seen = table.see_slab(slab);
        // By their names, since the table may have it wrong.
        let donors = seen.places.iter().flatten().map(|place| usize::from(place.donor));
        let domains: Vec<usize> =
            donors.filter(|donor| !table.is_spill(*donor)).map(|donor| donor % FIRST_DONORS).collect();
        let is_apart = domains.iter().enumerate().all(|(at, domain)| !domains[..at].contains(domain));
        if !is_apart {
            return Err(format!("slab {slab} has two parts in one domain: {seen:?}"));
        }
    }
    Ok(())
}
