//! A read of one page: by one way, and maybe by another too, over connections on which answers come in the
//! order in which they were asked for.

use std::collections::VecDeque;

use spillway_pool::around::locate_quick;
use spillway_pool::hedge::{Race, Verdict, Way};
use spillway_pool::slabs::locate::{Found, Reading, still_counts};
use spillway_pool::slabs::words::Seat;
use spillway_pool::words::Condition;

use super::*;

/// There is one request of a hedge for so many reads, and so many before any read is made up for.
const READS_A_HEDGE: u64 = 20;
const MOST_HEDGES: u64 = 20;
/// Attempts after which a page that nothing gives is given up.
const MOST_PATIENCE: u32 = 300;

/// What a donor says to a read: the page, and whether it lies; or nothing at all.
pub(super) type Answer = Result<(Page, bool), ()>;

/// An answer that comes by a connection.
pub(super) enum Coming {
    /// The donor has said it when it was asked.
    Said(Answer),
    /// The donor says it when it comes: where, and in which row.
    Asked(Place, u16),
}

/// Answers that come by an actor's connections, by donor, in the order in which they were asked for.
pub(super) type Connections = HashMap<usize, VecDeque<Coming>>;

/// A page that is being read.
pub(super) struct Reader {
    pub(super) slot: u32,
    tried: u16,
    race: Option<Race<Reading>>,
    /// The ways by which it was asked for.
    ways: Vec<Asked>,
    patience: u32,
}

/// What has come by one way, and what is awaited still.
struct Asked {
    way: Reading,
    left: Vec<(usize, Place)>,
    came: Vec<(usize, Page)>,
    failed: u16,
    /// Some of it was a lie.
    is_lie: bool,
}

/// How a read that was under way went on.
pub(super) enum ReadStep {
    /// It has further steps.
    Again,
    /// This came, and counts.
    Came(Page, Seat),
    /// The page cannot be had.
    Lost,
    /// It cannot be had now, and was waited for.
    GivenUp,
}

impl Reader {
    pub(super) fn of(slot: u32) -> Self {
        Self { slot, tried: 0, race: None, ways: Vec::new(), patience: 0 }
    }
}

impl World {
    /// One step of an actor's read.
    pub(super) fn read_step(
        &mut self,
        table: &Table<'_>,
        actor: usize,
        reader: &mut Reader,
    ) -> Result<ReadStep, String> {
        let Some(mut race) = reader.race.take() else { return Ok(self.begin_read(table, actor, reader)) };
        // Who reads a file of its own waits for nobody.
        let may_race = |way: &Reading| way.is_direct() && Way::donors(way).all(|donor| !self.is_spill(donor));
        if reader.ways.len() == 1 && may_race(&reader.ways[0].way) && self.chance(3) {
            if let Some(second) = race.ask_another(table, 0) {
                self.hedged += 1;
                self.asked_beside += Way::donors(&second).count() as u64;
                if self.asked_beside > table.reads() / READS_A_HEDGE + MOST_HEDGES {
                    return Err(format!(
                        "hedges of {} reads took {} requests",
                        table.reads(),
                        self.asked_beside
                    ));
                }
                self.ask(actor, reader, second);
            }
            reader.race = Some(race);
            return Ok(ReadStep::Again);
        }
        let open: Vec<usize> =
            (0..reader.ways.len()).filter(|&number| !reader.ways[number].left.is_empty()).collect();
        let number = open[self.dice.below(open.len())];
        self.hear(table, actor, &mut reader.ways[number])?;
        let asked = &reader.ways[number];
        if !asked.left.is_empty() {
            reader.race = Some(race);
            return Ok(ReadStep::Again);
        }
        match race.answered(table, asked.way, asked.failed == 0) {
            Verdict::Wait => {
                reader.race = Some(race);
                Ok(ReadStep::Again)
            }
            Verdict::Failed => {
                let failed = reader.ways.iter().fold(0, |all, asked| all | asked.failed);
                let is_there = still_counts(table, reader.slot, &reader.ways[0].way);
                reader.tried = if is_there { reader.tried | failed } else { 0 };
                Ok(ReadStep::Again)
            }
            Verdict::Taken { left, .. } => {
                for donor in left.iter().flat_map(Way::donors) {
                    self.connections[actor].remove(&donor);
                }
                let asked = reader.ways.swap_remove(number);
                self.look_at(table, reader, &asked)
            }
        }
    }

    fn begin_read(&mut self, table: &Table<'_>, actor: usize, reader: &mut Reader) -> ReadStep {
        reader.ways.clear();
        match locate_quick(table, reader.slot, reader.tried, reader.patience > 0) {
            Found::At(way) => {
                reader.race = Some(Race::new(reader.slot, way));
                self.ask(actor, reader, way);
                ReadStep::Again
            }
            Found::Later if reader.patience < MOST_PATIENCE => {
                (reader.tried, reader.patience) = (0, reader.patience + 1);
                ReadStep::Again
            }
            Found::Later => ReadStep::GivenUp,
            Found::Lost => ReadStep::Lost,
        }
    }

    /// The donors answer when they are asked, or later; the answers come by the actor's connections at some
    /// time.
    fn ask(&mut self, actor: usize, reader: &mut Reader, way: Reading) {
        let left: Vec<(usize, Place)> = way.parts().collect();
        for &(_, place) in &left {
            let coming = match self.chance(2) {
                true => Coming::Said(self.read_from(place, way.seat.row)),
                false => Coming::Asked(place, way.seat.row),
            };
            self.connections[actor].entry(usize::from(place.donor)).or_default().push_back(coming);
        }
        reader.ways.push(Asked { way, left, came: Vec::new(), failed: 0, is_lie: false });
    }

    /// Hears the next answer of one of a way's donors.
    fn hear(&mut self, table: &Table<'_>, actor: usize, asked: &mut Asked) -> Result<(), String> {
        let donor = asked.left[self.dice.below(asked.left.len())].1.donor;
        // What one donor was asked for comes in that order: the last resort may have several parts of a row.
        let first = asked.left.iter().position(|(_, place)| place.donor == donor).unwrap();
        let (part, _) = asked.left.remove(first);
        let donor = usize::from(donor);
        let seen = table.donor(donor);
        let coming = self.connections[actor].get_mut(&donor).and_then(VecDeque::pop_front);
        let answer = match coming.ok_or("an answer is awaited that was not asked for")? {
            Coming::Said(answer) => answer,
            Coming::Asked(place, row) => self.read_from(place, row),
        };
        match answer {
            Ok((page, is_lie)) => {
                asked.came.push((part, page));
                asked.is_lie |= is_lie;
            }
            Err(()) => {
                table.complain(donor, seen, Condition::Suspect, self.now);
                asked.failed |= 1 << part;
                // The connection is of no more use.
                self.connections[actor].remove(&donor);
            }
        }
        Ok(())
    }

    fn look_at(&mut self, table: &Table<'_>, reader: &mut Reader, asked: &Asked) -> Result<ReadStep, String> {
        let Asked { way, came, .. } = asked;
        if !still_counts(table, reader.slot, way) {
            reader.tried = 0;
            return Ok(ReadStep::Again);
        }
        let seat = way.seat;
        let check = |part: usize| table.check(seat.slab, part, seat.row);
        let own = usize::from(seat.part);
        let page = match way.is_direct() {
            true => came[0].1,
            false => self.decode(own, way.zeros, came),
        };
        // A reader knows its page by its seal, whoever moves pages by their checks.
        if check_of(&page) == check(own) {
            self.decoded += u64::from(!way.is_direct());
            return Ok(ReadStep::Came(page, seat));
        }
        if !asked.is_lie {
            return Err(format!("slot {} came wrong though no donor lied: {way:?} {came:?}", reader.slot));
        }
        table.hurt(seat);
        let is_wrong = |&&(part, page): &&(usize, Page)| part < DATA && check_of(&page) != check(part);
        let wrong = came.iter().find(is_wrong).map(|(part, _)| *part);
        let parity = || way.parts().map(|(part, _)| part).find(|part| *part >= DATA);
        let suspect = if way.is_direct() { Some(own) } else { wrong.or_else(parity) };
        reader.tried |= suspect.map_or(0, |part| 1 << part);
        Ok(ReadStep::Again)
    }
}
