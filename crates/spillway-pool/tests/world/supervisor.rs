//! A run's supervisor: it asks the donors, meets new ones, sees those off that leave, and rebuilds.

use spillway_pool::bits::slots_of;
use spillway_pool::rebuild::{self, Moved, Rebuild};
use spillway_pool::survey::{drop_surplus, left_on, place_for, survey};
use spillway_pool::table::Table;
use spillway_pool::words::Condition;

use super::*;

/// Of what a look finds, so much is begun before the next.
const MOST_TASKS: usize = 2;

impl World {
    /// The supervisor asks each donor.
    pub(super) fn watch(&mut self, run: usize) {
        self.acting = Who::Supervisor;
        // One that it does not reach is as one that is frozen.
        let seen = |donor: usize| match self.reach(run, donor) {
            Reach::Both => self.machines[donor],
            Reach::There | Reach::None => Machine::Frozen,
        };
        let machines: Vec<Machine> = (0..self.machines.len()).map(seen).collect();
        let known = &mut self.runs[run];
        for donor in (0..machines.len()).filter(|donor| machines[*donor] == Machine::Well) {
            known.known_lives[donor] = known.lives[donor];
        }
        self.meet(run, &machines);
        let Run { words, lives, known_gone, emptied, .. } = &mut self.runs[run];
        let table = Table::open(words).unwrap().with_bug(self.bug);
        for donor in 0..table.donors() {
            let (life, known) = (lives[donor], table.donor(donor));
            let is_told = machines[donor] == Machine::Well;
            if is_told && !(self.drained[donor] && table.room(donor).0 == 0) {
                table.set_leaving(donor, self.drained[donor]);
                emptied[donor] &= self.drained[donor];
            }
            match machines[donor] {
                Machine::Well if life != known.life || table.room(donor).0 == 0 => {
                    while table.donor(donor).life != life {
                        table.begin_life(donor, self.now);
                    }
                    // A donor that is told to leave takes no new life of a run.
                    table.set_memory(donor, if self.drained[donor] { 0 } else { memory_of(self.spill) });
                    if !self.drained[donor] {
                        table.come_up(donor, life);
                    }
                }
                Machine::Well => {
                    table.come_up(donor, known.life);
                    if Some(donor) != self.spill {
                        table.set_usual_us(donor, 1, 1);
                    }
                }
                Machine::Full => table.complain(donor, known, Condition::Suspect, self.now),
                Machine::Frozen | Machine::Dead | Machine::Gone => {
                    table.complain(donor, known, Condition::Down, self.now);
                    known_gone[donor] = self.machines[donor] == Machine::Gone;
                }
            }
        }
    }

    /// The supervisor learns of a donor that has come, and is given memory there.
    pub(super) fn meet(&mut self, run: usize, machines: &[Machine]) {
        let Run { words, lives, known_lives, memory, directory, .. } = &mut self.runs[run];
        let table = Table::open(words).unwrap().with_bug(self.bug);
        if directory.is_away(self.now) {
            self.unheard += u64::from(table.donors() < self.present);
            return;
        }
        let most = if directory.tells_all() { machines.len() } else { 1 };
        for next in (table.donors()..self.present).take(most) {
            if machines[next] != Machine::Well || self.drained[next] {
                return;
            }
            (lives[next], known_lives[next]) = (1, 1);
            memory[next].clear();
            self.joined += u64::from(table.join(&new_donor(next, self.spill, self.joins_apart)).is_some());
        }
    }

    pub(super) fn repair(&mut self, run: usize) {
        self.acting = Who::Supervisor;
        let words = std::mem::take(&mut self.runs[run].words);
        let table = Table::open(&words).unwrap().with_bug(self.bug);
        let worker = self.dice.below(REPAIRS);
        let before = std::mem::replace(&mut self.runs[run].repairs[worker], Repair::Idle);
        let after = match before {
            Repair::Idle => self.take_task(run, &table),
            Repair::Stepping { extent, mut rebuild } => match rebuild.step(&table) {
                rebuild::Step::Again => Repair::Stepping { extent, rebuild },
                rebuild::Step::Move { from, to, slots } => {
                    let slots = slots_of(&slots).collect();
                    Repair::Reading { extent, rebuild, from, to, slots }
                }
                rebuild::Step::Done(end) => {
                    self.rebuilt += u64::from(end == rebuild::End::Whole);
                    self.drop_surplus(run, &table, extent);
                    Repair::Idle
                }
            },
            Repair::Reading { extent, mut rebuild, from, to, slots } => {
                let pages: Result<Vec<_>, ()> =
                    slots.iter().map(|&slot| Ok((slot, self.ask_to_copy(run, from, slot)?))).collect();
                match pages {
                    Ok(pages) => Repair::Writing { extent, rebuild, to, pages },
                    Err(()) => {
                        rebuild.copied(&table, Moved::NotRead);
                        Repair::Stepping { extent, rebuild }
                    }
                }
            }
            Repair::Writing { extent, mut rebuild, to, pages } => {
                let mut moved = Moved::All;
                for (slot, held) in pages {
                    if held.version.is_some() || held.is_lie {
                        let sent = self.write_to(run, to, slot, held);
                        let is_over = sent.is_stored && !sent.comes_again;
                        moved = if is_over { moved } else { Moved::NotWritten };
                    }
                }
                rebuild.copied(&table, moved);
                Repair::Stepping { extent, rebuild }
            }
        };
        self.runs[run].repairs[worker] = after;
        self.runs[run].words = words;
    }

    /// A worker takes what is to be made anew next. Once all rest, the supervisor looks again.
    fn take_task(&mut self, run: usize, table: &Table<'_>) -> Repair {
        let task = match self.runs[run].round.take(table) {
            None if self.runs[run].rests() => {
                self.plan(run, table);
                self.runs[run].round.take(table)
            }
            task => task,
        };
        let Some(task) = task else { return Repair::Idle };
        let chooser = self.chooser(run, table);
        match place_for(table, &chooser, task.extent, self.dice.next_u64()) {
            Some((copy, place)) => {
                Repair::Stepping { extent: task.extent, rebuild: Rebuild::new(task.extent, copy, place) }
            }
            None => Repair::Idle,
        }
    }

    fn plan(&mut self, run: usize, table: &Table<'_>) {
        let mut found = survey(table, self.now, PATIENCE);
        for extent in std::mem::take(&mut found.lost) {
            table.clear_extent(extent);
            // What was empty need not be so any more.
            self.runs[run].emptied.fill(false);
        }
        (0..EXTENTS).for_each(|extent| self.drop_surplus(run, table, extent));
        self.runs[run].sweep.look(table, self.now, MOST_LATE + 1);
        self.see_off(run, table);
        self.runs[run].round = Round::new(found.work(MOST_TASKS), 2 * MOST_TASKS);
    }

    /// A donor that leaves is told to forget what was moved, and so is a last resort.
    pub(super) fn drop_surplus(&mut self, run: usize, table: &Table<'_>, extent: u32) {
        for place in drop_surplus(table, extent) {
            let is_spill = table.is_spill(usize::from(place.donor));
            self.returned += u64::from(is_spill);
            if (is_spill || table.is_leaving(usize::from(place.donor))) && self.serves(run, place) {
                let is_of_place = |life, own| (life, own) == (place.life, place.extent);
                self.runs[run].memory[usize::from(place.donor)]
                    .retain(|(life, own, _), _| !is_of_place(*life, *own));
            }
        }
    }

    /// A donor that leaves forgets the run once nothing is left on it.
    pub(super) fn see_off(&mut self, run: usize, table: &Table<'_>) {
        for donor in (0..table.donors()).filter(|donor| table.is_leaving(*donor)) {
            if table.donor(donor).condition == Condition::Down || table.room(donor).0 == 0 {
                self.runs[run].emptied[donor] = false;
                continue;
            }
            let left = left_on(table, donor);
            let chooser = self.chooser(run, table);
            for &extent in &left.unplaced {
                let _ = table.place_next(extent, &chooser, self.dice.next_u64());
            }
            // Between look and end anything may happen but that something comes there.
            let was_empty = std::mem::replace(&mut self.runs[run].emptied[donor], left.extents == 0);
            if was_empty && left.extents > 0 {
                self.failure = Some(format!("something came to donor {donor}, which was left: {left:?}"));
            }
            if was_empty && left.extents == 0 {
                self.runs[run].emptied[donor] = false;
                table.end_part(donor, self.now);
                self.runs[run].memory[donor].clear();
                self.runs[run].lives[donor] = table.donor(donor).life;
                self.runs[run].known_lives[donor] = table.donor(donor).life;
                self.runs[run].late.retain(|late| late.donor != donor);
                self.left += 1;
            }
        }
    }
}
