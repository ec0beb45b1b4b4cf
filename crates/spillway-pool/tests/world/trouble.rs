//! What goes wrong with the donors, and when a gentle world bears it.

use super::*;

/// Where donors waver, one is told to leave, or to stay, once in so many steps.
const MEAN_STAY: usize = 40;

impl World {
    pub(super) fn is_all_well(&self) -> bool {
        let is_failing = |actor: &Actor| matches!(actor, Actor::Writing { write, .. } if write.has_missed());
        self.is_nobody_ill()
            && !self.runs.iter().any(Run::awaits_a_lie)
            && !self.runs.iter().flat_map(|run| &run.actors).any(is_failing)
            && self.runs.iter().all(|run| {
                let table = Table::open(&run.words).unwrap();
                let found = survey(&table, u64::MAX, PATIENCE);
                let known = || (0..table.donors()).filter(|donor| table.room(*donor).0 > 0);
                let is_gone = |donor: usize| self.machines[donor] == Machine::Gone;
                let as_it_is = |donor: usize| if is_gone(donor) { Condition::Down } else { Condition::Up };
                let up = known().all(|donor| table.donor(donor).condition == as_it_is(donor));
                let lives = (0..table.donors()).all(|donor| table.donor(donor).life == run.lives[donor]);
                let full = (0..EXTENTS).all(|extent| {
                    let seen = table.snapshot(extent);
                    let whole = (0..MAX_COPIES).filter(|&copy| table.is_whole(&seen, copy));
                    let places = whole.filter_map(|copy| seen.places[copy]);
                    let places: Vec<Place> =
                        places.filter(|place| !is_gone(usize::from(place.donor))).collect();
                    let is_spilled = places.iter().any(|place| table.is_spill(usize::from(place.donor)));
                    seen.state.phase != Phase::Placed || places.len() >= self.copies || is_spilled
                });
                found.tasks.is_empty() && found.lost.is_empty() && up && lives && full
            })
    }

    /// In a gentle world a donor that does not take a write is the only one that is ill.
    pub(super) fn may_lose(&self) -> bool {
        let is_told =
            |run: &Run, donor: usize| self.machines[donor] != Machine::Gone || run.known_gone[donor];
        let is_known = |run: &Run| {
            run.known_lives == run.lives && (0..self.machines.len()).all(|donor| is_told(run, donor))
        };
        !self.is_gentle || self.is_nobody_ill() && self.runs.iter().all(is_known)
    }

    fn is_nobody_ill(&self) -> bool {
        !self.is_someone_away() && !self.lies.contains(&true)
    }

    pub(super) fn is_someone_away(&self) -> bool {
        let is_away = |machine: &Machine| !matches!(machine, Machine::Well | Machine::Gone);
        self.machines.iter().any(is_away) || self.cuts.iter().any(Option::is_some)
    }

    pub(super) fn is_someone_gone(&self) -> bool {
        self.machines.contains(&Machine::Gone)
    }

    pub(super) fn trouble(&mut self) {
        if self.wavers && self.chance(MEAN_STAY) {
            let leaving = self.drained.iter().position(|is_drained| *is_drained);
            let donor = leaving.unwrap_or_else(|| self.dice.below(self.present));
            self.tell_to_leave_or_stay(donor);
        }
        if !self.chance(40) {
            return;
        }
        match self.dice.below(12) {
            0 => self.present = (self.present + 1).min(self.machines.len()),
            1 | 2 => {
                let donor = self.dice.below(self.present);
                self.tell_to_leave_or_stay(donor);
            }
            _ => self.break_something(),
        }
    }

    /// One is told to leave, or may stay after all. Those that leave leave room for all copies.
    fn tell_to_leave_or_stay(&mut self, donor: usize) {
        let leaving = self.drained.iter().filter(|is_drained| **is_drained).count();
        let may_leave = leaving == 0 && Some(donor) != self.spill;
        self.stayed += u64::from(self.drained[donor]);
        self.drained[donor] = !self.drained[donor] && may_leave;
    }

    pub(super) fn break_something(&mut self) {
        let donor = self.dice.below(self.present);
        if self.machines[donor] == Machine::Gone {
            return;
        }
        if self.machines[donor] != Machine::Well || self.lies[donor] || self.cuts[donor].is_some() {
            // It thaws, tells the truth, is reached again, or comes back: empty, if it was dead.
            (self.machines[donor], self.lies[donor]) = (Machine::Well, false);
            self.cuts[donor] = None;
            return;
        }
        if self.is_gentle && !self.is_all_well() {
            return;
        }
        if Some(donor) == self.spill {
            self.machines[donor] = Machine::Full;
            return;
        }
        match self.dice.below(6) {
            0 | 1 => self.machines[donor] = Machine::Frozen,
            2 if self.some_die && self.gone < MOST_GONE && self.chance(4) => {
                self.die_for_good(donor);
                return;
            }
            2 => self.machines[donor] = Machine::Dead,
            3 => self.lies[donor] = true,
            4 => {
                let (writer, run) = (self.dice.below(WRITERS), self.dice.below(RUNS));
                self.cuts[donor] = Some((run, Cut::draw(writer, &mut self.dice)));
            }
            // Away and back again, empty, before anybody looks.
            _ => {}
        }
        let is_there =
            self.machines[donor] == Machine::Frozen || self.lies[donor] || self.cuts[donor].is_some();
        if !is_there {
            for run in &mut self.runs {
                run.memory[donor].clear();
                run.lives[donor] += 1;
                run.late.retain(|late| late.donor != donor);
            }
        }
    }

    /// Of three copies two donors may die at once.
    pub(super) fn die_for_good(&mut self, donor: usize) {
        let other = self.dice.below(self.present);
        let is_together =
            self.copies > 2 && self.machines[other] == Machine::Well && Some(other) != self.spill;
        for donor in [Some(donor), is_together.then_some(other)].into_iter().flatten() {
            let is_donor = self.machines[donor] != Machine::Gone && Some(donor) != self.spill;
            let is_news = is_donor && self.gone < MOST_GONE;
            if is_news {
                self.machines[donor] = Machine::Gone;
                self.gone += 1;
            }
        }
    }
}
