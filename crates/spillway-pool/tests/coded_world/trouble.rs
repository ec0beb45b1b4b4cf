//! What goes wrong with the donors, and when a gentle world bears it.

use super::*;

/// Where donors waver, one is told to leave, or to stay, once in so many steps.
const MEAN_STAY: usize = 40;

impl World {
    pub(super) fn trouble(&mut self, table: &Table<'_>) {
        if self.wavers && self.chance(MEAN_STAY) {
            let leaving = self.drained.iter().position(|is_drained| *is_drained);
            let donor = leaving.unwrap_or_else(|| self.dice.below(self.present));
            self.tell_to_leave_or_stay(donor);
        }
        if !self.chance(50) {
            return;
        }
        match self.dice.below(12) {
            0 => self.present = (self.present + 1).min(FIRST_DONORS + usize::from(self.has_spill) + JOINING),
            1 | 2 => {
                let donor = self.dice.below(self.present);
                self.tell_to_leave_or_stay(donor);
            }
            _ => self.break_something(table),
        }
    }

    fn tell_to_leave_or_stay(&mut self, donor: usize) {
        if self.is_spill(donor) {
            return;
        }
        let leaving = self.drained.iter().filter(|is_drained| **is_drained).count();
        self.stayed += u64::from(self.drained[donor]);
        self.drained[donor] = !self.drained[donor] && leaving == 0;
    }

    fn break_something(&mut self, table: &Table<'_>) {
        let donor = self.dice.below(self.present);
        if self.is_spill(donor) {
            self.spill_refuses = !self.spill_refuses;
            return;
        }
        if self.is_away(donor) || self.lies[donor] {
            // It thaws, tells the truth, is reached again, or comes back: empty, if it was dead.
            (self.machines[donor], self.lies[donor], self.cuts[donor]) = (Machine::Well, false, None);
            return;
        }
        if self.is_gentle && !(self.would_bear(table, donor) && self.second_would_bear(donor)) {
            return;
        }
        match self.dice.below(6) {
            0 | 1 => self.machines[donor] = Machine::Frozen,
            2 => self.machines[donor] = Machine::Dead,
            3 => self.lies[donor] = true,
            4 => self.cuts[donor] = Some(Cut::draw(self.dice.below(ACTORS), &mut self.dice)),
            // Away and back again, empty, before anybody looks.
            _ => {}
        }
        let is_there =
            self.machines[donor] == Machine::Frozen || self.lies[donor] || self.cuts[donor].is_some();
        if !is_there {
            self.lose_all_of(donor);
        }
    }

    /// How many parts of each slab cannot be counted on if `breaking` breaks too.
    pub(super) fn would_bear(&self, table: &Table<'_>, breaking: usize) -> bool {
        (0..table.slabs()).all(|slab| {
            let seen = table.see_slab(slab);
            let is_good = |place: &Place| {
                let donor = usize::from(place.donor);
                let is_well = !self.is_away(donor) && !self.lies[donor];
                donor != breaking && is_well && self.lives[donor] == place.life
            };
            let good = seen.places.iter().flatten().filter(|place| is_good(place)).count();
            let is_used = !matches!(seen.word.phase, SlabPhase::Free | SlabPhase::Retired);
            // One that is being made may yet get parts, but not more than it has if things go badly.
            !is_used || (seen.word.phase == SlabPhase::Making && seen.word.claimed == 0) || good >= DATA
        }) && self.is_nothing_made(table)
    }

    fn is_nothing_made(&self, table: &Table<'_>) -> bool {
        (0..table.slabs()).all(|slab| table.slab(slab).phase != SlabPhase::Making)
    }
}
