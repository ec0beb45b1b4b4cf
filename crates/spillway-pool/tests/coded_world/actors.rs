//! The processes of a run: they write, read and drop pages, and are killed.

use spillway_pool::slabs::append::{Item, Outcome, Step};
use spillway_pool::slabs::hope::RoomWait;
use spillway_pool::words::Condition;

use super::reading::ReadStep;
use super::*;

impl World {
    pub(super) fn act(&mut self, table: &Table<'_>, actor: usize) -> Result<(), String> {
        if !self.is_settling && self.now < self.stopped[actor] {
            return Ok(());
        }
        if self.chance(60) {
            self.stopped[actor] = self.now + self.dice.below(MOST_STOPPED as usize) as u64;
        }
        self.acting = Who::Actor(actor);
        let before = std::mem::replace(&mut self.actors[actor], Actor::Idle);
        self.actors[actor] = match before {
            Actor::Idle => self.begin(table, actor),
            Actor::Writing(writing) => self.go_on_writing(table, actor, writing)?,
            Actor::Reading(reader) => self.go_on_reading(table, actor, reader)?,
        };
        Ok(())
    }

    fn begin(&mut self, table: &Table<'_>, actor: usize) -> Actor {
        let slot = self.dice.below(SLOTS as usize) as u32;
        let is_busy = self.busy.contains(&slot);
        if is_busy && !self.shares(slot) {
            return Actor::Idle;
        }
        if self.oracle.contains_key(&slot) && self.chance(2) {
            self.busy.push(slot);
            table.count_read();
            return Actor::Reading(Reader::of(slot));
        }
        if is_busy {
            return Actor::Idle;
        }
        if self.oracle.contains_key(&slot) && self.chance(8) {
            table.forget(slot);
            self.oracle.remove(&slot);
            return Actor::Idle;
        }
        let most = 1 + self.dice.below(7) as u32;
        let mut pages = Vec::new();
        for slot in (slot..SLOTS).take(most as usize) {
            if !self.busy.contains(&slot) {
                self.busy.push(slot);
                self.next_version += 1;
                pages.push((slot, self.next_version));
            }
        }
        let wait = RoomWait::begin(table, self.now);
        self.write(actor, pages, wait)
    }

    fn write(&mut self, actor: usize, pages: Vec<(u32, u64)>, wait: RoomWait) -> Actor {
        let item = |&(slot, version): &(u32, u64)| Item {
            slot,
            check: check_of(&page_of(slot, version)),
            from: None,
        };
        let stream = self.dice.below(2);
        let append = Append::new(stream, pages.iter().map(item).collect(), self.drawn_by(actor));
        Actor::Writing(Writing { append, pages, sending: None, wait })
    }

    fn free(&mut self, slot: u32) {
        if let Some(at) = self.busy.iter().position(|busy| *busy == slot) {
            self.busy.swap_remove(at);
        }
    }

    /// Sends one message that is left; what became of all once none is.
    pub(super) fn send_one(&mut self, table: &Table<'_>, sending: &mut Sending) -> Option<bool> {
        if sending.left.is_empty() {
            return Some(!sending.has_failed);
        }
        let at = self.dice.below(sending.left.len());
        let (part, place, row, page) = sending.left.swap_remove(at);
        let donor = usize::from(place.donor);
        let seen = table.donor(donor);
        let sent = self.write_to(place, row, page);
        sending.late |= u16::from(sent.may_come_late) << part;
        if !sent.is_stored {
            sending.has_failed = true;
            table.complain(donor, seen, Condition::Down, self.now);
        }
        None
    }

    /// What nobody waits for any more comes or does not.
    pub(super) fn leave_under_way(&mut self, sending: Option<Sending>) {
        for (_, place, row, page) in sending.into_iter().flat_map(|sending| sending.left) {
            if self.serves(place) && self.chance(2) {
                self.delay(usize::from(place.donor), (place.life, place.extent, row), page);
            }
        }
    }

    fn go_on_writing(
        &mut self,
        table: &Table<'_>,
        actor: usize,
        Writing { mut append, pages, mut sending, wait }: Writing,
    ) -> Result<Actor, String> {
        if self.chance(250) {
            // Killed: nobody has read the slots' new contents, and their old ones are of no use.
            self.leave_under_way(sending);
            for (slot, _) in pages {
                self.oracle.remove(&slot);
                self.free(slot);
            }
            return Ok(Actor::Idle);
        }
        let step = match &mut sending {
            Some(under_way) => match self.send_one(table, under_way) {
                None => return Ok(Actor::Writing(Writing { append, pages, sending, wait })),
                Some(is_stored) => {
                    let late = under_way.late;
                    sending = None;
                    append.sent(table, is_stored, late)
                }
            },
            None => append.step(table, &Self::chooser(table)),
        };
        Ok(match step {
            Step::Again | Step::Pause => Actor::Writing(Writing { append, pages, sending, wait }),
            Step::Send(what) => {
                let own: Vec<Page> = pages.iter().map(|&(slot, version)| page_of(slot, version)).collect();
                let left = self.messages(&what, &own);
                Actor::Writing(Writing { append, pages, sending: Some(Sending::of(left)), wait })
            }
            Step::Done(outcome) => {
                let wait = self.wait_on(table, outcome, wait)?;
                let stored = match outcome {
                    Outcome::Stored { pages } => pages,
                    Outcome::Again | Outcome::NoRoom | Outcome::NoDonor => 0,
                };
                let mut rest = Vec::new();
                for (index, (slot, version)) in pages.into_iter().enumerate() {
                    if index < stored {
                        self.oracle.insert(slot, version);
                        self.free(slot);
                    } else if self.chance(8) {
                        // Given up: what the slot has is undefined.
                        self.oracle.remove(&slot);
                        self.free(slot);
                    } else {
                        rest.push((slot, version));
                    }
                }
                if rest.is_empty() { Actor::Idle } else { self.write(actor, rest, wait) }
            }
        })
    }

    fn go_on_reading(
        &mut self,
        table: &Table<'_>,
        actor: usize,
        mut reader: Reader,
    ) -> Result<Actor, String> {
        let slot = reader.slot;
        let is_all_well = !(0..DONORS).any(|donor| self.is_away(donor));
        match self.read_step(table, actor, &mut reader)? {
            ReadStep::Again => return Ok(Actor::Reading(reader)),
            ReadStep::Came(page, seat) => {
                let word = table.slab(seat.slab);
                let is_there = matches!(word.phase, SlabPhase::Open | SlabPhase::Fenced);
                if word.generation != seat.generation || !is_there {
                    return Err(format!(
                        "a read of slot {slot} counts at {seat:?}, which is no more: {word:?}"
                    ));
                }
                let expected = self.oracle.get(&slot).map(|version| page_of(slot, *version));
                // Another that read it was told that it cannot be had, and it is nobody's any more.
                if expected.is_none() && self.forks.is_some() {
                    self.free(slot);
                    return Ok(Actor::Idle);
                }
                if expected != Some(page) {
                    let seen = table.see_slab(seat.slab);
                    return Err(format!("slot {slot} has {page:?} for {expected:?} at {seat:?}: {seen:?}"));
                }
                self.reads += 1;
            }
            ReadStep::Lost if self.is_gentle => {
                let seat = table.seat(slot);
                let seen = seat.map(|seat| table.see_slab(seat.slab));
                return Err(format!("slot {slot} is lost at {seat:?}: {seen:?} {:?}", self.lives));
            }
            ReadStep::GivenUp if is_all_well && self.is_gentle => {
                let seat = table.seat(slot);
                let seen = seat.map(|seat| table.see_slab(seat.slab));
                return Err(format!("slot {slot} cannot be had at {seat:?}: {seen:?}"));
            }
            ReadStep::Lost | ReadStep::GivenUp => {
                self.losses += 1;
                self.oracle.remove(&slot);
            }
        }
        self.free(slot);
        Ok(Actor::Idle)
    }
}
