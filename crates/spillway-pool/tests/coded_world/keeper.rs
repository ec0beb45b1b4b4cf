//! A run's supervisor: it asks the donors, meets new ones, sees those off that leave, empties slabs and makes
//! them free.

use spillway_pool::round::Round;
use spillway_pool::slabs::census::{Task, slots_in};
use spillway_pool::slabs::locate::lose;
use spillway_pool::slabs::make::is_spill_full;
use spillway_pool::slabs::reclaim::Patience;
use spillway_pool::words::Condition;

use super::discards::Discarding;
use super::mover::{Emptying, Work};
use super::waiting::COMING_PATIENCE;
use super::*;

/// What was said of room that is to come holds for so long.
const ROOM_COMING: u64 = 2_000;
/// Slots that are looked at in one step of a census.
const GLANCE: u32 = 12;
/// Slabs that are emptied beside each other, and between two looks.
const WORKERS: usize = 3;
const MOST_TASKS: usize = 4;

#[derive(Default)]
pub(super) struct Keeper {
    pub(super) reclaim: Reclaim,
    look: Look,
    /// What the last look has found to be emptied.
    round: Round<Task>,
    /// Room was short then: one worker empties slabs.
    is_short: bool,
    workers: [Work; WORKERS],
    /// Donors that leave and had nothing left at the last look.
    emptied: Vec<bool>,
}

/// What the supervisor does while no worker is at work.
#[derive(Default)]
enum Look {
    #[default]
    None,
    Looking(Census),
    Discarding(Discarding),
}

impl Keeper {
    /// The slabs that workers empty now.
    pub(super) fn under_way(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.workers.iter().filter_map(Work::slab)
    }

    /// Slabs that are to be emptied, or are emptied now.
    pub(super) fn work_left(&self) -> usize {
        self.round.left() + self.under_way().count()
    }
}

impl World {
    /// The supervisor asks each donor.
    pub(super) fn watch(&mut self, table: &Table<'_>) {
        self.acting = Who::Supervisor;
        self.meet(table);
        for donor in 0..table.donors() {
            let (life, known) = (self.lives[donor], table.donor(donor));
            if self.is_spill(donor) {
                self.full += u64::from(is_spill_full(table, donor));
                if !self.spill_refuses {
                    table.come_up(donor, known.life);
                }
                continue;
            }
            // One that it does not reach is as one that is frozen.
            let machine =
                if self.reach(donor) == Reach::Both { self.machines[donor] } else { Machine::Frozen };
            if machine == Machine::Well && !(self.drained[donor] && table.room(donor).0 == 0) {
                table.set_leaving(donor, self.drained[donor]);
                self.keeper.emptied.resize(DONORS, false);
                self.keeper.emptied[donor] &= self.drained[donor];
            }
            match machine {
                Machine::Well if life != known.life || table.room(donor).0 == 0 => {
                    while table.donor(donor).life != life {
                        table.begin_life(donor, self.now);
                    }
                    // A donor that is told to leave takes no new life of a run.
                    table.set_memory(donor, if self.drained[donor] { 0 } else { self.extents });
                    if !self.drained[donor] {
                        table.come_up(donor, life);
                    }
                }
                Machine::Well => {
                    table.come_up(donor, known.life);
                    if self.chance(10) {
                        // It answers quickly.
                        table.set_usual_us(donor, 1, 1);
                    }
                }
                Machine::Frozen | Machine::Dead => {
                    table.complain(donor, known, Condition::Down, self.now);
                }
            }
        }
    }

    fn meet(&mut self, table: &Table<'_>) {
        if self.directory.is_away(self.now) {
            self.unheard += u64::from(table.donors() < self.present);
            return;
        }
        let most = if self.directory.tells_all() { DONORS } else { 1 };
        for next in (table.donors()..self.present).take(most) {
            if self.is_away(next) || self.drained[next] {
                return;
            }
            self.lives[next] = 1;
            self.memory[next].clear();
            self.joined += u64::from(table.join(&new_donor(next, self.extents)).is_some());
        }
    }

    pub(super) fn keep(&mut self, table: &Table<'_>) -> Result<(), String> {
        self.acting = Who::Supervisor;
        if !self.is_settling && self.chance(400) {
            // The supervisor is followed by another, which knows nothing of what was under way.
            let keeper = std::mem::take(&mut self.keeper);
            for work in keeper.workers {
                if let Work::Moving(_, _, sending) = work {
                    self.leave_under_way(sending);
                }
            }
            if let Look::Discarding(discarding) = keeper.look {
                self.leave_discards_under_way(discarding);
            }
        }
        // Who has nothing to do takes no time from those at work.
        let at_work: Vec<usize> =
            (0..WORKERS).filter(|&number| self.keeper.workers[number].slab().is_some()).collect();
        let number = match at_work.len() {
            some if some > 0 && self.keeper.round.left() == 0 && !self.looks_while_emptied() => {
                at_work[self.dice.below(some)]
            }
            _ => self.dice.below(WORKERS),
        };
        let work = std::mem::take(&mut self.keeper.workers[number]);
        let others = || self.keeper.under_way();
        if work.slab().is_some() && others().any(|slab| Some(slab) == work.slab()) {
            return Err(format!("two workers empty one slab: {:?}", work.slab()));
        }
        self.beside += u64::from(work.slab().is_some() && others().count() > 0);
        self.keeper.workers[number] = match work {
            Work::Idle => self.take_task(table, number)?,
            work => self.go_on(table, work)?,
        };
        Ok(())
    }

    /// A mistake that is planted in the supervisor itself.
    fn looks_while_emptied(&self) -> bool {
        self.bug == "looked-while-emptied"
    }

    /// A worker takes what is to be emptied next. Once all rest, the supervisor looks again.
    fn take_task(&mut self, table: &Table<'_>, number: usize) -> Result<Work, String> {
        let may_take = number == 0 || !self.keeper.is_short;
        if may_take && let Some(task) = self.keeper.round.take(table) {
            return Ok(match table.fence(task.slab, task.generation) {
                true => Work::Reading(Emptying::begin(table, task)),
                false => Work::Idle,
            });
        }
        let is_at_rest = self.keeper.under_way().next().is_none() || self.looks_while_emptied();
        if is_at_rest && self.keeper.round.left() == 0 {
            self.go_on_looking(table)?;
        }
        Ok(Work::Idle)
    }

    /// Slabs are made free, and donors forget what they had, while no worker is at work.
    fn go_on_looking(&mut self, table: &Table<'_>) -> Result<(), String> {
        self.keeper.look = match std::mem::take(&mut self.keeper.look) {
            Look::None => {
                self.note_look_begins();
                Look::Looking(Census::begin(table))
            }
            Look::Looking(mut census) => match census.go_on(table, GLANCE) {
                true => Look::Discarding(self.begin_following(table, census)),
                false => Look::Looking(census),
            },
            Look::Discarding(mut discarding) => match self.discard_some(table, &mut discarding)? {
                true => Look::Discarding(discarding),
                false => {
                    self.follow(table, &discarding.census)?;
                    Look::None
                }
            },
        };
        Ok(())
    }

    fn begin_following(&mut self, table: &Table<'_>, census: Census) -> Discarding {
        census.retire(table);
        self.begin_discarding(table, census)
    }

    fn follow(&mut self, table: &Table<'_>, census: &Census) -> Result<(), String> {
        self.see_off(table)?;
        let found = judge(table, census, self.now, PATIENCE);
        let patience = Patience { write_ms: WRITE_PATIENCE, late_ms: SWEEP_PATIENCE };
        let is_given_back = self.keeper.reclaim.gives_back_within(COMING_PATIENCE, self.now, patience);
        let is_being_made = found.is_room_being_made(is_given_back);
        table.set_room_coming(if is_being_made { self.now + ROOM_COMING } else { 0 }, self.now);
        table.set_narrow(found.needs_narrow(is_given_back));
        if table.note_no_room_comes(census, &found, is_given_back) {
            self.note_looked_in_vain();
        }
        for &(slab, generation) in &found.lost {
            slots_in(table, 0..SLOTS, slab, generation).into_iter().for_each(|slot| {
                lose(table, slot);
            });
        }
        // Those that are empty are fenced, for the next look to find them so.
        let (empty, full): (Vec<Task>, Vec<Task>) =
            found.tasks.iter().copied().partition(|task| task.live == 0);
        for task in &empty {
            let _ = table.fence(task.slab, task.generation);
        }
        table.note_looked(census, empty.iter().chain(&full));
        (self.keeper.round, self.keeper.is_short) = (Round::new(full, MOST_TASKS), found.is_short);
        Ok(())
    }

    /// A donor that leaves forgets the run once nothing is left on it.
    fn see_off(&mut self, table: &Table<'_>) -> Result<(), String> {
        self.keeper.emptied.resize(DONORS, false);
        for donor in 0..table.donors() {
            let is_there = table.donor(donor).condition != Condition::Down && table.room(donor).0 > 0;
            if !table.is_leaving(donor) || !is_there {
                self.keeper.emptied[donor] = false;
                continue;
            }
            let left = parts_left_on(table, donor).parts;
            // Between look and end anything may happen but that something comes there.
            let was_empty = std::mem::replace(&mut self.keeper.emptied[donor], left == 0);
            // A place that nobody names seems to come while its last owner is being made anew.
            let named = (0..table.slabs())
                .flat_map(|slab| table.see_slab(slab).places)
                .flatten()
                .filter(|place| usize::from(place.donor) == donor && table.is_current(*place))
                .count();
            if was_empty && named > 0 {
                return Err(format!("something came to donor {donor}, which was left: {named}"));
            }
            if was_empty && left == 0 {
                self.keeper.emptied[donor] = false;
                table.end_part(donor, self.now);
                self.memory[donor].clear();
                self.lives[donor] = table.donor(donor).life;
                self.late.retain(|late| late.donor != donor);
                self.left += 1;
            }
        }
        Ok(())
    }
}
