//! Processes that read: of a donor that is silent for longer than is usual for it the page is asked of
//! another too, and one that is silent for long is no longer asked.

use super::*;
use spillway_pool::EXTENT_SLOTS;
use spillway_pool::health::FIRST_SILENCE_US;
use spillway_pool::hedge::{Race, Verdict, is_quick};
use spillway_pool::read::{Choice, Found, choose};
use spillway_pool::words::DonorWord;

/// No donor is waited for longer before another is asked.
const MOST_SILENCE_US: u64 = 50 * MS;
/// A page that cannot be had now is asked for again after so long.
const TRY_AGAIN_US: u64 = 10 * MS;

#[derive(Default)]
pub(super) struct Reader {
    slot: u32,
    /// A page is wanted.
    is_reading: bool,
    tried: u8,
    at_last: bool,
    race: Option<Race<Choice>>,
    asked: Vec<Asked>,
}

/// What a copy's donor was asked.
#[derive(Clone, Copy)]
struct Asked {
    by: Choice,
    word: DonorWord,
    number: u64,
    sent_us: u64,
    is_silent: bool,
}

impl World {
    /// Reads a page, or tries again.
    pub(super) fn read(&mut self, reader: usize) -> Result<(), String> {
        let words = self.words();
        let table = self.table(&words);
        if !self.readers[reader].is_reading {
            table.count_read();
            self.counts.reads += 1;
            self.note_read();
            let slot = self.dice.below(EXTENTS as usize) as u32 * EXTENT_SLOTS;
            self.readers[reader] = Reader { slot, is_reading: true, ..Reader::default() };
        }
        let Reader { slot, tried, at_last, .. } = self.readers[reader];
        let turn = self.dice.below(2);
        match choose(&table, slot / EXTENT_SLOTS, slot, tried, at_last, turn) {
            Found::At(choice) => {
                self.readers[reader].race = Some(Race::new(slot, choice));
                self.readers[reader].asked.clear();
                let number = self.ask_copy(reader, choice);
                let usual_us = table.hedge_after_us(usize::from(choice.place.donor));
                self.after(usual_us, Event::Silent(reader, number));
            }
            Found::Later => {
                (self.readers[reader].tried, self.readers[reader].at_last) = (0, true);
                self.after(TRY_AGAIN_US, Event::Read(reader));
            }
            Found::Lost => self.rest(reader),
        }
        Ok(())
    }

    fn ask_copy(&mut self, reader: usize, by: Choice) -> u64 {
        let words = self.words();
        let table = self.table(&words);
        let donor = usize::from(by.place.donor);
        let patience_us = match table.silence_us(donor) {
            0 => FIRST_SILENCE_US,
            known_us => known_us,
        };
        let patience_us = patience_us.min(self.shape.timeout_us);
        let number = self.send(Asker::Reader(reader), donor, by.place.life, 0, patience_us);
        let asked = Asked { by, word: table.donor(donor), number, sent_us: self.now_us, is_silent: false };
        self.readers[reader].asked.push(asked);
        number
    }

    /// The page is there, or cannot be had.
    fn rest(&mut self, reader: usize) {
        self.readers[reader].is_reading = false;
        (self.readers[reader].race, self.readers[reader].asked) = (None, Vec::new());
        let is_pause = self.shape.has_pauses && self.chance(300);
        let gap_us = if is_pause { 3 * SECOND } else { self.shape.gap_us };
        let gap_us = 1 + self.dice.below(2 * gap_us as usize) as u64;
        self.after(gap_us, Event::Read(reader));
    }

    /// A donor was silent for longer than is usual for it.
    pub(super) fn hedge(&mut self, reader: usize, number: u64) -> Result<(), String> {
        let words = self.words();
        let table = self.table(&words);
        let own = &mut self.readers[reader];
        let (Some(race), [first]) = (&mut own.race, &mut own.asked[..]) else { return Ok(()) };
        if first.number != number {
            return Ok(());
        }
        first.is_silent = true;
        let (first, slot) = (*first, own.slot);
        let donor = usize::from(first.by.place.donor);
        let waited_us = self.now_us - first.sent_us;
        table.note_answer(donor, waited_us);
        self.promises.note_heard(donor);
        let turn = self.dice.below(2);
        let second = race.ask_another(&table, turn);
        let can_be_had = self.may_hedge() && has_quick_copy(&table, slot, first.by);
        match second {
            Some(second) => {
                self.counts.hedged += 1;
                self.note_hedge()?;
                self.ask_copy(reader, second);
            }
            None if can_be_had => {
                return Err(format!(
                    "slot {slot} is not asked of another donor than {donor}, which is silent"
                ));
            }
            None => {}
        }
        if waited_us > MOST_SILENCE_US {
            return Err(format!("donor {donor} was waited for for {waited_us} us before another was asked"));
        }
        Ok(())
    }

    pub(super) fn hear_read(
        &mut self,
        reader: usize,
        request: Request,
        answer: Answer,
    ) -> Result<(), String> {
        let words = self.words();
        let table = self.table(&words);
        let own = &mut self.readers[reader];
        let Some(at) = own.asked.iter().position(|asked| asked.number == request.number) else {
            return Ok(());
        };
        let Some(race) = &mut own.race else { return Ok(()) };
        let asked = own.asked[at];
        let donor = request.donor;
        if answer == Answer::Good && !asked.is_silent && at == 0 {
            table.note_answer(donor, (self.now_us - request.sent_us).max(1));
            self.promises.note_heard(donor);
        }
        if answer != Answer::Good {
            table.complain(donor, asked.word, Condition::Suspect, 1 + self.now_us / MS);
        }
        // What is heard of is awaited no more.
        own.asked[at].number = 0;
        match race.answered(&table, asked.by, answer == Answer::Good) {
            Verdict::Taken { by, left } => {
                let first = own.asked.first().map(|asked| asked.by);
                let overtaken = left.filter(|left| Some(*left) == first && *left != by);
                if let Some(donor) = overtaken.map(|left| usize::from(left.place.donor))
                    && !table.is_late(donor)
                {
                    return Err(format!("donor {donor} was overtaken, and is not late"));
                }
                self.rest(reader);
            }
            Verdict::Wait => {}
            Verdict::Failed => {
                own.tried |= race.tried();
                self.after(1, Event::Read(reader));
                (self.readers[reader].race, self.readers[reader].asked) = (None, Vec::new());
            }
        }
        Ok(())
    }
}

/// Whether a page can be had from a copy whose donor is well and quick, and is not this one.
fn has_quick_copy(table: &Table<'_>, slot: u32, first: Choice) -> bool {
    let seen = table.snapshot(slot / EXTENT_SLOTS);
    let others = (0..seen.places.len()).filter(|&copy| copy != first.copy && table.is_whole(&seen, copy));
    let donors = others.filter_map(|copy| seen.places[copy]).map(|place| usize::from(place.donor));
    let mut is_quick = donors.map(|donor| is_quick(table, donor));
    is_quick.any(|is_quick| is_quick)
}
