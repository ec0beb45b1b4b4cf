//! A run's supervisor: it asks the donors, meets new ones, sees those off that leave, empties slabs and makes
//! them free.

use spillway_pool::slabs::append::{Item, Outcome, Step};
use spillway_pool::slabs::census::{Task, slots_in};
use spillway_pool::slabs::locate::lose;
use spillway_pool::slabs::room::MOVED_STREAM;
use spillway_pool::words::Condition;

use super::actors::ReadStep;
use super::discards::Discarding;
use super::*;

/// Slots that are looked at in one step of a census.
const GLANCE: u32 = 12;
/// Pages that are moved at once.
const MOST_MOVED: usize = 2 * DATA;

#[derive(Default)]
pub(super) struct Keeper {
    reclaim: Reclaim,
    work: Work,
    /// Donors that leave and had nothing left at the last look.
    emptied: Vec<bool>,
}

/// What is being emptied.
struct Emptying {
    task: Task,
    slots: Vec<u32>,
    ready: Vec<(Item, Page)>,
}

#[derive(Default)]
#[allow(clippy::large_enum_variant, reason = "there is one of them")]
enum Work {
    #[default]
    Idle,
    Looking(Census),
    Discarding(Discarding),
    Emptying(Emptying),
    Reading(Emptying, Reader),
    Moving(Emptying, Append, Option<Sending>),
}

impl Keeper {
    /// A place whose donor did not answer a discard.
    pub(super) fn keep_place(&mut self, unnamed: Unnamed, now: u64) {
        self.reclaim.keep(unnamed, now);
    }
}

impl World {
    /// The supervisor asks each donor.
    pub(super) fn watch(&mut self, table: &Table<'_>) {
        self.meet(table);
        for donor in 0..table.donors() {
            let (life, known) = (self.lives[donor], table.donor(donor));
            if self.machines[donor] == Machine::Well && !(self.drained[donor] && table.room(donor).0 == 0) {
                table.set_leaving(donor, self.drained[donor]);
                self.keeper.emptied.resize(DONORS, false);
                self.keeper.emptied[donor] &= self.drained[donor];
            }
            match self.machines[donor] {
                Machine::Well if life != known.life || table.room(donor).0 == 0 => {
                    while table.donor(donor).life != life {
                        table.begin_life(donor, self.now);
                    }
                    // A donor that is told to leave takes no new life of a run.
                    table.set_memory(donor, if self.drained[donor] { 0 } else { DONOR_EXTENTS });
                    if !self.drained[donor] {
                        table.come_up(donor, life);
                    }
                }
                Machine::Well => table.come_up(donor, known.life),
                Machine::Frozen | Machine::Dead => {
                    table.complain(donor, known, Condition::Down, self.now);
                }
            }
        }
    }

    fn meet(&mut self, table: &Table<'_>) {
        let next = table.donors();
        if next < self.present && self.machines[next] == Machine::Well && !self.drained[next] {
            self.lives[next] = 1;
            self.memory[next].clear();
            self.joined += u64::from(table.join(&new_donor(next)).is_some());
        }
    }

    pub(super) fn keep(&mut self, table: &Table<'_>) -> Result<(), String> {
        if !self.is_settling && self.chance(400) {
            // The supervisor is followed by another, which knows nothing of what was under way.
            match std::mem::take(&mut self.keeper).work {
                Work::Moving(_, _, sending) => self.leave_under_way(sending),
                Work::Discarding(discarding) => self.leave_discards_under_way(discarding),
                _ => {}
            }
        }
        let work = std::mem::take(&mut self.keeper.work);
        self.keeper.work = match work {
            Work::Idle => Work::Looking(Census::begin(table)),
            Work::Looking(mut census) => match census.go_on(table, GLANCE) {
                true => Work::Discarding(self.begin_following(table, census)),
                false => Work::Looking(census),
            },
            Work::Discarding(mut discarding) => match self.discard_some(table, &mut discarding)? {
                true => Work::Discarding(discarding),
                false => self.follow(table, &discarding.census)?,
            },
            Work::Emptying(emptying) => self.empty(emptying),
            Work::Reading(emptying, reader) => self.read_for_move(table, emptying, reader),
            Work::Moving(emptying, append, sending) => self.go_on_moving(table, emptying, append, sending),
        };
        Ok(())
    }

    fn begin_following(&mut self, table: &Table<'_>, census: Census) -> Discarding {
        census.retire(table);
        let due = self.keeper.reclaim.due(table, self.now, SWEEP_PATIENCE);
        let mut discarding = self.begin_discarding(table, &due, census);
        let unnamed = self.keeper.reclaim.sweep(table, self.now, SWEEP_PATIENCE);
        self.begin_sweeping(unnamed, &mut discarding);
        discarding
    }

    fn follow(&mut self, table: &Table<'_>, census: &Census) -> Result<Work, String> {
        self.see_off(table)?;
        let found = judge(table, census, self.now, PATIENCE);
        for &(slab, generation) in &found.lost {
            slots_in(table, 0..SLOTS, slab, generation).into_iter().for_each(|slot| {
                lose(table, slot);
            });
        }
        let Some(task) = found.tasks.first().copied() else { return Ok(Work::Idle) };
        // Others that are empty are fenced, for the next look to find them so.
        for empty in found.tasks.iter().filter(|task| task.live == 0) {
            let _ = table.fence(empty.slab, empty.generation);
        }
        if !table.fence(task.slab, task.generation) {
            return Ok(Work::Idle);
        }
        let slots = slots_in(table, 0..SLOTS, task.slab, task.generation);
        Ok(Work::Emptying(Emptying { task, slots, ready: Vec::new() }))
    }

    fn empty(&mut self, mut emptying: Emptying) -> Work {
        if emptying.ready.len() < MOST_MOVED
            && let Some(slot) = emptying.slots.pop()
        {
            let reader = Reader { slot, tried: 0, at: None, came: Vec::new(), patience: 0 };
            return Work::Reading(emptying, reader);
        }
        if emptying.ready.is_empty() {
            return Work::Idle;
        }
        let items = emptying.ready.iter().map(|(item, _)| *item).collect();
        let append = Append::new(MOVED_STREAM, items, self.dice.next_u64());
        Work::Moving(emptying, append, None)
    }

    fn read_for_move(&mut self, table: &Table<'_>, mut emptying: Emptying, mut reader: Reader) -> Work {
        // Whoever holds the slot may drop it or write to it meanwhile.
        if table.seat(reader.slot).is_none_or(|seat| seat.slab != emptying.task.slab) {
            return Work::Emptying(emptying);
        }
        match self.read_step(table, &mut reader) {
            ReadStep::Again if reader.patience < 3 => Work::Reading(emptying, reader),
            ReadStep::Lost => {
                lose(table, reader.slot);
                Work::Emptying(emptying)
            }
            // It stays where it is for now.
            ReadStep::Again | ReadStep::GivenUp => Work::Emptying(emptying),
            ReadStep::Came(page, seat) => {
                let item = Item { slot: reader.slot, check: check_of(&page), from: Some(seat) };
                emptying.ready.push((item, page));
                Work::Emptying(emptying)
            }
        }
    }

    fn go_on_moving(
        &mut self,
        table: &Table<'_>,
        mut emptying: Emptying,
        mut append: Append,
        mut sending: Option<Sending>,
    ) -> Work {
        let step = match &mut sending {
            Some(under_way) => match self.send_one(table, under_way) {
                None => return Work::Moving(emptying, append, sending),
                Some(is_stored) => {
                    sending = None;
                    append.sent(table, is_stored, !is_stored)
                }
            },
            None => append.step(table, &Self::chooser(table)),
        };
        match step {
            Step::Again | Step::Pause => Work::Moving(emptying, append, sending),
            Step::Send(what) => {
                let pages: Vec<Page> = emptying.ready.iter().map(|(_, page)| *page).collect();
                let left = self.messages(&what, &pages);
                Work::Moving(emptying, append, Some(Sending { left, has_failed: false }))
            }
            Step::Done(Outcome::Stored { pages }) => {
                self.moved += pages as u64;
                self.compacted += if emptying.task.reason == Reason::Sparse { pages as u64 } else { 0 };
                emptying.ready.drain(..pages);
                Work::Emptying(emptying)
            }
            Step::Done(Outcome::Again | Outcome::NoRoom | Outcome::NoDonor) => Work::Idle,
        }
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
