//! The processes of a run: they write and read, and are killed.

use spillway_pool::MAX_COPIES;
use spillway_pool::bits::bits_of;
use spillway_pool::read::{self, Found};
use spillway_pool::table::Table;
use spillway_pool::words::{Condition, DonorWord, Place};
use spillway_pool::write::{self, Outcome, Write, without_barred};

use super::*;

impl World {
    pub(super) fn act(&mut self, run: usize, actor: usize) -> Result<(), String> {
        let words = std::mem::take(&mut self.runs[run].words);
        let table = Table::open(&words).unwrap().with_bug(self.bug);
        let before = std::mem::replace(&mut self.runs[run].actors[actor], Actor::Idle);
        let after = self.act_on(run, &table, before);
        self.runs[run].words = words;
        self.runs[run].actors[actor] = after?;
        Ok(())
    }

    pub(super) fn act_on(&mut self, run: usize, table: &Table<'_>, before: Actor) -> Result<Actor, String> {
        match before {
            Actor::Idle => Ok(self.begin(run, table)),
            Actor::Writing { page, write, sending } => {
                Ok(self.go_on_writing(run, table, page, write, sending))
            }
            Actor::Reading { slot, tried, at, patience } => {
                self.go_on_reading(run, table, (slot, tried), at, patience)
            }
        }
    }

    pub(super) fn begin(&mut self, run: usize, table: &Table<'_>) -> Actor {
        let slot = slot_of(self.dice.below((EXTENTS * SLOTS) as usize) as u32);
        if self.runs[run].busy.contains(&slot) {
            return Actor::Idle;
        }
        self.runs[run].busy.push(slot);
        if self.chance(2) && self.runs[run].oracle.contains_key(&slot) {
            return Actor::Reading { slot, tried: 0, at: None, patience: 0 };
        }
        let wanted = bits_of([slot]);
        if without_barred(table, slot / 512, &wanted) != wanted {
            self.free(run, slot);
            return Actor::Idle;
        }
        self.next_version += 1;
        let write = Write::new(slot / 512, wanted, self.dice.next_u64());
        let page = Page { slot, version: self.next_version };
        Actor::Writing { page, write, sending: Vec::new() }
    }

    pub(super) fn free(&mut self, run: usize, slot: u32) {
        self.runs[run].busy.retain(|busy| *busy != slot);
    }

    pub(super) fn go_on_writing(
        &mut self,
        run: usize,
        table: &Table<'_>,
        page: Page,
        mut write: Write,
        mut sending: Vec<(Place, DonorWord)>,
    ) -> Actor {
        let Page { slot, version } = page;
        if self.chance(150) {
            // Killed. What was on its way came or did not; nobody has read the slot's new contents.
            self.leave_under_way(run, page, &sending);
            self.runs[run].oracle.remove(&slot);
            self.free(run, slot);
            return Actor::Idle;
        }
        if !sending.is_empty() && self.chance(2) {
            let (place, seen) = sending.swap_remove(self.dice.below(sending.len()));
            let is_stored = self.write_to(run, place, slot, version);
            if !is_stored {
                table.complain(usize::from(place.donor), seen, Condition::Down, self.now);
            }
            write.sent(place, is_stored);
            return Actor::Writing { page, write, sending };
        }
        match write.step(table, &self.chooser(run, table)) {
            write::Step::Again | write::Step::Wait => Actor::Writing { page, write, sending },
            write::Step::Send { place } => {
                sending.push((place, table.donor(usize::from(place.donor))));
                Actor::Writing { page, write, sending }
            }
            write::Step::Done(outcome) => {
                self.leave_under_way(run, page, &sending);
                match outcome {
                    Outcome::Stored { .. } => self.runs[run].oracle.insert(slot, version),
                    _ => self.runs[run].oracle.remove(&slot),
                };
                self.free(run, slot);
                Actor::Idle
            }
        }
    }

    /// What nobody waits for any more comes or does not.
    pub(super) fn leave_under_way(&mut self, run: usize, page: Page, sending: &[(Place, DonorWord)]) {
        for &(place, _) in sending {
            if self.serves(run, place) && self.chance(2) {
                let key = (place.life, place.extent, page.slot % 512);
                self.runs[run].memory[usize::from(place.donor)].insert(key, page.version);
            }
        }
    }

    pub(super) fn go_on_reading(
        &mut self,
        run: usize,
        table: &Table<'_>,
        (slot, tried): (u32, u8),
        at: Option<read::Choice>,
        patience: u32,
    ) -> Result<Actor, String> {
        let extent = slot / 512;
        let Some(choice) = at else {
            let turn = self.dice.below(MAX_COPIES);
            return match read::choose(table, extent, slot, tried, patience > 0, turn) {
                Found::At(choice) => Ok(Actor::Reading { slot, tried, at: Some(choice), patience }),
                Found::Later if patience < 200 => {
                    Ok(Actor::Reading { slot, tried: 0, at: None, patience: patience + 1 })
                }
                Found::Later if self.machines.iter().any(|machine| *machine != Machine::Well) => {
                    // Given up: the program ends. Nobody reads the page any more.
                    self.runs[run].oracle.remove(&slot);
                    self.free(run, slot);
                    Ok(Actor::Idle)
                }
                Found::Later => Ok(Actor::Reading { slot, tried: 0, at: None, patience: 1 }),
                Found::Lost if self.is_gentle => Err(format!("slot {slot} is lost though one donor was ill")),
                Found::Lost => {
                    self.losses += 1;
                    self.runs[run].oracle.remove(&slot);
                    self.free(run, slot);
                    Ok(Actor::Idle)
                }
            };
        };
        let seen = table.donor(usize::from(choice.place.donor));
        let Ok(version) = self.read_from(run, choice.place, slot) else {
            table.complain(usize::from(choice.place.donor), seen, Condition::Suspect, self.now);
            return Ok(Actor::Reading { slot, tried: tried | 1 << choice.copy, at: None, patience });
        };
        if !read::still_counts(table, extent, choice) {
            return Ok(Actor::Reading { slot, tried: 0, at: None, patience });
        }
        let expected = self.runs[run].oracle.get(&slot).copied();
        if version != expected {
            let seen = table.snapshot(extent);
            return Err(format!("slot {slot} has {version:?} at {choice:?} for {expected:?}: {seen:?}"));
        }
        self.reads += 1;
        self.free(run, slot);
        Ok(Actor::Idle)
    }
}
