//! The processes of a run: they write and read, and are killed.

use spillway_pool::MAX_COPIES;
use spillway_pool::bits::bits_of;
use spillway_pool::hedge::Verdict;
use spillway_pool::read::{self, Found};
use spillway_pool::table::Table;
use spillway_pool::words::{Condition, DonorWord, Place};
use spillway_pool::write::{self, Outcome, Write, without_barred};

use super::*;

/// There is one hedge for so many reads, and so many before any read is made up for.
const READS_A_HEDGE: u64 = 20;
const MOST_HEDGES: u64 = 20;
/// A page that came wrong is read again so often.
const MOST_WRONG: u32 = 4;

impl Held {
    fn as_written(version: Version) -> Self {
        Self { version: Some(version), is_lie: false }
    }
}

fn is_in_last_resort(table: &Table<'_>, extent: u32) -> bool {
    table.snapshot(extent).places.iter().flatten().any(|place| table.is_spill(usize::from(place.donor)))
}

impl World {
    pub(super) fn act(&mut self, run: usize, actor: usize) -> Result<(), String> {
        self.acting = Who::Actor(actor);
        let words = std::mem::take(&mut self.runs[run].words);
        let table = Table::open(&words).unwrap().with_bug(self.bug);
        let before = std::mem::replace(&mut self.runs[run].actors[actor], Actor::Idle);
        let after = self.act_on(run, actor, &table, before);
        self.runs[run].words = words;
        self.runs[run].actors[actor] = after?;
        Ok(())
    }

    fn act_on(
        &mut self,
        run: usize,
        actor: usize,
        table: &Table<'_>,
        before: Actor,
    ) -> Result<Actor, String> {
        match before {
            Actor::Idle => Ok(self.begin(run, actor, table)),
            Actor::Writing { page, write, sending } => {
                Ok(self.go_on_writing(run, table, page, write, sending))
            }
            Actor::Reading(reading) => match reading.race {
                None => self.choose(run, actor, table, reading),
                Some(race) => self.go_on_reading(run, actor, table, reading, race),
            },
        }
    }

    pub(super) fn begin(&mut self, run: usize, actor: usize, table: &Table<'_>) -> Actor {
        let slot = slot_of(self.dice.below((EXTENTS * SLOTS) as usize) as u32);
        let is_busy = self.runs[run].busy.contains(&slot);
        if is_busy && !self.runs[run].shares(slot) {
            return Actor::Idle;
        }
        let is_read = self.chance(2) && self.runs[run].oracle.contains_key(&slot);
        if is_busy && !is_read {
            return Actor::Idle;
        }
        self.runs[run].busy.push(slot);
        if is_read {
            table.count_read();
            return Actor::Reading(Reading::of(slot));
        }
        let wanted = bits_of([slot]);
        if without_barred(table, slot / 512, &wanted) != wanted {
            self.free(run, slot);
            return Actor::Idle;
        }
        self.next_version += 1;
        let write = Write::new(slot / 512, wanted, self.drawn_by(run, actor));
        let page = Page { slot, version: self.next_version };
        Actor::Writing { page, write, sending: Vec::new() }
    }

    pub(super) fn free(&mut self, run: usize, slot: u32) {
        let busy = &mut self.runs[run].busy;
        if let Some(at) = busy.iter().position(|busy| *busy == slot) {
            busy.swap_remove(at);
        }
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
            let donors::Sent { is_stored, comes_again } =
                self.write_to(run, place, slot, Held::as_written(version));
            if comes_again {
                write.comes_again();
            }
            if !is_stored {
                table.complain(usize::from(place.donor), seen, Condition::Down, self.now);
            }
            write.sent(place, is_stored);
            return Actor::Writing { page, write, sending };
        }
        let is_right = table.with_bug("");
        let has_room = is_right.candidates().iter().any(|donor| donor.is_well && donor.free > 0);
        let was_spilled = is_in_last_resort(&is_right, slot / 512);
        let step = write.step(table, &self.chooser(run, table));
        if !was_spilled && is_in_last_resort(&is_right, slot / 512) {
            self.spilled += 1;
            if has_room {
                self.failure = Some(format!("slot {slot} went to the last resort while donors had room"));
            }
        }
        match step {
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
            let takes = self.machines[usize::from(place.donor)] != Machine::Full;
            if takes && self.serves(run, place) && self.chance(2) {
                let key = (place.life, place.extent, page.slot % 512);
                self.runs[run].memory[usize::from(place.donor)].insert(key, Held::as_written(page.version));
            }
        }
    }

    fn choose(
        &mut self,
        run: usize,
        actor: usize,
        table: &Table<'_>,
        reading: Reading,
    ) -> Result<Actor, String> {
        let Reading { slot, tried, patience, .. } = reading;
        let (extent, turn) = (slot / 512, self.dice.below(MAX_COPIES));
        match read::choose(table, extent, slot, tried, patience > 0, turn) {
            Found::At(choice) => {
                self.ask(run, actor, slot, choice);
                let race = Some(Race::new(slot, choice));
                Ok(Actor::Reading(Reading { race, asked: vec![choice], ..reading }))
            }
            Found::Later if patience < 200 => {
                Ok(Actor::Reading(Reading { tried: 0, patience: patience + 1, ..reading }))
            }
            Found::Later if self.is_someone_away() || !self.is_gentle && self.is_someone_gone() => {
                // Given up: the program ends. Nobody reads the page any more.
                self.runs[run].oracle.remove(&slot);
                self.free(run, slot);
                Ok(Actor::Idle)
            }
            Found::Later => Ok(Actor::Reading(Reading { tried: 0, patience: 1, ..reading })),
            Found::Lost if self.is_gentle => Err(format!("slot {slot} is lost though one donor was ill")),
            Found::Lost => {
                self.losses += 1;
                self.runs[run].oracle.remove(&slot);
                self.free(run, slot);
                Ok(Actor::Idle)
            }
        }
    }

    /// The donor answers when it is asked, or later; the answer comes by the actor's connection at some time.
    fn ask(&mut self, run: usize, actor: usize, slot: u32, choice: read::Choice) {
        let coming = match self.chance(2) {
            true => Coming::Said(self.ask_for(run, choice.place, slot)),
            false => Coming::Asked(choice.place, slot),
        };
        let connections = &mut self.runs[run].connections[actor];
        connections.entry(usize::from(choice.place.donor)).or_default().push_back(coming);
    }

    fn go_on_reading(
        &mut self,
        run: usize,
        actor: usize,
        table: &Table<'_>,
        mut reading: Reading,
        mut race: Race<read::Choice>,
    ) -> Result<Actor, String> {
        let slot = reading.slot;
        if self.chance(3) {
            let turn = self.dice.below(MAX_COPIES);
            if let Some(second) = race.ask_another(table, turn) {
                self.hedged += 1;
                let hedged: u64 = (0..table.donors()).map(|donor| table.hedged(donor)).sum();
                if hedged > table.reads() / READS_A_HEDGE + MOST_HEDGES {
                    return Err(format!("{hedged} of {} reads were hedged", table.reads()));
                }
                self.ask(run, actor, slot, second);
                reading.asked.push(second);
            }
            return Ok(Actor::Reading(Reading { race: Some(race), ..reading }));
        }
        let by = reading.asked.swap_remove(self.dice.below(reading.asked.len()));
        let donor = usize::from(by.place.donor);
        let seen = table.donor(donor);
        let answers = self.runs[run].connections[actor].get_mut(&donor);
        let coming = answers.and_then(VecDeque::pop_front);
        let answer = match coming.ok_or("an answer is awaited that was not asked for")? {
            Coming::Said(answer) => answer,
            Coming::Asked(place, slot) => self.ask_for(run, place, slot),
        };
        if answer.is_err() {
            table.complain(donor, seen, Condition::Suspect, self.now);
        }
        match race.answered(table, by, answer.is_ok()) {
            Verdict::Wait => Ok(Actor::Reading(Reading { race: Some(race), ..reading })),
            Verdict::Failed => {
                let tried = reading.tried | race.tried();
                Ok(Actor::Reading(Reading { race: None, tried, ..reading }))
            }
            Verdict::Taken { by, left } => {
                if let Some(left) = left {
                    self.runs[run].connections[actor].remove(&usize::from(left.place.donor));
                }
                let Held { version, is_lie } = answer.unwrap_or_default();
                let expected = self.runs[run].oracle.get(&slot).copied();
                // Another that read it was told that it cannot be had, and it is nobody's any more.
                if expected.is_none() && self.runs[run].forks.is_some() {
                    self.free(run, slot);
                    return Ok(Actor::Idle);
                }
                // Whoever reads knows its page by its seal.
                if version != expected && is_lie {
                    return self.read_again(run, table, reading, by);
                }
                if version != expected {
                    let seen = table.snapshot(slot / 512);
                    return Err(format!("slot {slot} has {version:?} at {by:?} for {expected:?}: {seen:?}"));
                }
                self.reads += 1;
                self.free(run, slot);
                Ok(Actor::Idle)
            }
        }
    }

    /// A page came wrong.
    fn read_again(
        &mut self,
        run: usize,
        table: &Table<'_>,
        reading: Reading,
        by: read::Choice,
    ) -> Result<Actor, String> {
        let Reading { slot, wrong, .. } = reading;
        let whole = || {
            let seen = table.snapshot(slot / 512);
            (0..MAX_COPIES).filter(|&copy| table.is_whole(&seen, copy)).count()
        };
        let before = whole();
        let tried = read::came_wrong(table, slot / 512, by);
        self.wrong += 1;
        if whole() != (before - 1).max(1) {
            return Err(format!("slot {slot} came wrong at {by:?}: {before} whole copies, then {}", whole()));
        }
        if wrong < MOST_WRONG {
            return Ok(Actor::Reading(Reading { tried, wrong: wrong + 1, ..Reading::of(slot) }));
        }
        if self.is_gentle {
            return Err(format!("slot {slot} came wrong again and again"));
        }
        self.losses += 1;
        self.runs[run].oracle.remove(&slot);
        self.free(run, slot);
        Ok(Actor::Idle)
    }
}
