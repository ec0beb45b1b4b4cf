//! One copy of an extent made anew, step by step, beside writes to it. The supervisor does it, one at a time
//! for an extent ([`crate::round`]).
//!
//! While the copy is [`Copy::Rebuilding`] nobody but the rebuild writes to it, so no write of a page can be
//! overtaken there by an older version of it. What is written to the extent meanwhile is marked dirty, and
//! copied again. Once nothing is dirty the copy is made [`Copy::Closing`]: from then on writers write to it
//! too. A write that did not see that yet has marked its slot dirty before it looked (see [`crate::write`]);
//! so if slots are dirty now, the copy goes back to rebuilding, and else it is whole. A write that saw it
//! closing may go there beside the rebuild, and be overtaken by it: such a write goes there once more.

use crate::MAX_COPIES;
use crate::bits::{BITS_WORDS, Bits, has};
use crate::table::{Table, Which};
use crate::words::{Condition, Copy, Phase, Place};

/// Slots that are copied in one step.
pub const CHUNK_SLOTS: usize = 64;

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing: the next step.
    Again,
    /// Copy these slots, at most [`CHUNK_SLOTS`] of them, and say how that went ([`Rebuild::copied`]).
    Move {
        /// Where they are read.
        from: Place,
        /// Where they are written.
        to: Place,
        /// A bit for each slot.
        slots: Bits,
    },
    /// It is over, and ended so.
    Done(End),
}

/// How a rebuild ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The extent has a whole copy more.
    Whole,
    /// It cannot be done now.
    GaveUp,
}

/// How the copying of a chunk went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// All of it is there.
    All,
    /// It could not be read.
    NotRead,
    /// It could not be written, and may come late.
    NotWritten,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Begin,
    Look,
    Move,
    Moving(usize),
    Drain,
    Close,
    Check,
}

/// A rebuild under way.
#[derive(Clone, Debug)]
pub struct Rebuild {
    extent: u32,
    copy: usize,
    place: Place,
    stage: Stage,
    left: Bits,
    under_way: Bits,
    /// Copies from which a chunk could not be read.
    bad_sources: u8,
}

impl Rebuild {
    /// Of this copy, which is absent, at a place that was taken for the extent.
    #[must_use]
    pub fn new(extent: u32, copy: usize, place: Place) -> Self {
        let none = [0; BITS_WORDS];
        Self { extent, copy, place, stage: Stage::Begin, left: none, under_way: none, bad_sources: 0 }
    }

    /// Goes one step on.
    pub fn step(&mut self, table: &Table<'_>) -> Step {
        match self.stage {
            Stage::Begin => self.begin(table),
            Stage::Look => {
                // What was dirty before is live too.
                let _ = table.take_bits(self.extent, Which::Dirty);
                self.left = table.bits(self.extent, Which::Live);
                self.stage = Stage::Move;
                Step::Again
            }
            Stage::Move => self.next_chunk(table),
            Stage::Moving(_) => Step::Again,
            Stage::Drain => self.drain(table),
            Stage::Close => self.close(table),
            Stage::Check => self.check(table),
        }
    }

    fn is_mine(&self, table: &Table<'_>) -> bool {
        let seen = table.snapshot(self.extent);
        seen.places[self.copy] == Some(self.place) && table.is_current(self.place)
    }

    /// From one state of the copy to the next; false where it has another than `from`.
    fn turn(&self, table: &Table<'_>, from: Copy, to: Copy) -> bool {
        loop {
            let state = table.state(self.extent);
            if state.phase != Phase::Placed || state.copies[self.copy] != from {
                return false;
            }
            if table.change(self.extent, state, state.with(self.copy, to)) {
                return true;
            }
        }
    }

    fn begin(&mut self, table: &Table<'_>) -> Step {
        let seen = table.snapshot(self.extent);
        let is_free = seen.state.phase == Phase::Placed && seen.state.copies[self.copy] == Copy::Absent;
        if !is_free {
            return Step::Done(End::GaveUp);
        }
        table
            .place_word(self.extent, self.copy)
            .store(Place::pack(Some(self.place)), std::sync::atomic::Ordering::SeqCst);
        if !self.turn(table, Copy::Absent, Copy::Rebuilding) {
            return Step::Done(End::GaveUp);
        }
        self.stage = Stage::Look;
        Step::Again
    }

    fn next_chunk(&mut self, table: &Table<'_>) -> Step {
        let mut chunk = [0; BITS_WORDS];
        let slots = (0..crate::EXTENT_SLOTS).filter(|slot| has(&self.left, *slot)).take(CHUNK_SLOTS);
        for slot in slots {
            chunk[slot as usize / 64] |= 1 << (slot % 64);
        }
        if chunk == [0; BITS_WORDS] {
            self.stage = Stage::Drain;
            return Step::Again;
        }
        let seen = table.snapshot(self.extent);
        let source = (0..MAX_COPIES).find(|&copy| {
            let is_down = |place: Place| table.donor(usize::from(place.donor)).condition == Condition::Down;
            copy != self.copy
                && self.bad_sources >> copy & 1 == 0
                && table.is_whole(&seen, copy)
                && seen.places[copy].is_some_and(|place| !is_down(place))
        });
        match source.and_then(|copy| Some((copy, seen.places[copy]?))) {
            Some((copy, from)) => {
                self.under_way = chunk;
                self.stage = Stage::Moving(copy);
                Step::Move { from, to: self.place, slots: chunk }
            }
            None => self.give_up(table),
        }
    }

    /// Says what became of a chunk.
    pub fn copied(&mut self, table: &Table<'_>, moved: Moved) {
        let Stage::Moving(source) = self.stage else { return };
        self.stage = Stage::Move;
        match moved {
            Moved::All => {
                self.left.iter_mut().zip(&self.under_way).for_each(|(left, done)| *left &= !done);
            }
            Moved::NotRead => self.bad_sources |= 1 << source,
            // Nobody may find the copy whole into which something may come late.
            Moved::NotWritten => {
                let _ = self.give_up(table);
                self.bad_sources = u8::MAX;
            }
        }
    }

    fn give_up(&self, table: &Table<'_>) -> Step {
        let _ =
            self.turn(table, Copy::Rebuilding, Copy::Absent) || self.turn(table, Copy::Closing, Copy::Absent);
        Step::Done(End::GaveUp)
    }

    fn drain(&mut self, table: &Table<'_>) -> Step {
        if !self.is_mine(table) {
            return self.give_up(table);
        }
        self.left = match table.planted("dirty-slots-not-copied") {
            true => [0; BITS_WORDS],
            false => table.take_bits(self.extent, Which::Dirty),
        };
        self.stage = if self.left == [0; BITS_WORDS] { Stage::Close } else { Stage::Move };
        Step::Again
    }

    fn close(&mut self, table: &Table<'_>) -> Step {
        let to = if table.planted("whole-without-closing") { Copy::Whole } else { Copy::Closing };
        if !self.turn(table, Copy::Rebuilding, to) {
            return Step::Done(End::GaveUp);
        }
        if to == Copy::Whole {
            return Step::Done(End::Whole);
        }
        self.stage = Stage::Check;
        Step::Again
    }

    fn check(&mut self, table: &Table<'_>) -> Step {
        let is_dirty = table.bits(self.extent, Which::Dirty) != [0; BITS_WORDS];
        if is_dirty && !table.planted("closing-not-checked") {
            if !self.turn(table, Copy::Closing, Copy::Rebuilding) {
                return Step::Done(End::GaveUp);
            }
            self.stage = Stage::Drain;
            return Step::Again;
        }
        if !self.is_mine(table) {
            return self.give_up(table);
        }
        Step::Done(match self.turn(table, Copy::Closing, Copy::Whole) {
            true => End::Whole,
            false => End::GaveUp,
        })
    }
}
