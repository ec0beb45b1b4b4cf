//! One write of pages to slots, or one move of pages that are there, step by step. Between any two steps
//! anything may happen: other writes, moves, a look of the supervisor, the death of donors and of this
//! process.
//!
//! The order is what makes it right. (1) Rows of an open slab are claimed: they are this write's alone, for
//! good. (2) Their pages' checks are written down. (3) The pages and their parity go to all parts that the
//! slab has, and every answer is waited for; if one is missing, the write begins anew in another slab, and
//! nobody ever learns of these rows. (4) Each slot's word is made to name its row. (5) The slab's word is
//! read once more: where the slab is not open any more, the slots are taken back, and the write begins anew.
//! Only then it counts.
//!
//! Who empties a slab fences it first and then looks for slots that name it. Whatever the order of its two
//! steps and of (4) and (5), it sees the slot, or the write sees the fence.
//!
//! A move does the same, but makes a slot's word name the new row only if it names the old one still: what
//! was written or dropped meanwhile stays so.

use std::sync::atomic::Ordering::SeqCst;

use crate::placement::Chooser;
use crate::slabs::make::{Made, Make};
use crate::slabs::room::MAX_PARTS;
use crate::slabs::slab::Rows;
use crate::slabs::words::{Seat, SlabPhase, unpack_stream};
use crate::table::Table;
use crate::words::Place;

/// A slab that is being made is waited for so many times; then its maker counts as gone.
const MOST_PAUSES: u32 = 20;

/// A page that is to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// The slot that it is for.
    pub slot: u32,
    /// What it hashes to: not 0.
    pub check: u32,
    /// From where it is moved; `None` where it is written.
    pub from: Option<Seat>,
}

/// What goes where: the first pages of the write, and parity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sending {
    /// The rows that were claimed.
    pub rows: Rows,
    /// Where the slab's parts lie: each that it has must get what is its.
    pub places: [Option<Place>; MAX_PARTS],
    /// How many of the write's pages these rows take.
    pub pages: usize,
}

/// Whether a slot's page is in the last resort.
fn is_spilled(table: &Table<'_>, slot: u32) -> bool {
    let seat = table.seat(slot);
    let place = seat.and_then(|seat| table.see_slab(seat.slab).places[usize::from(seat.part)]);
    place.is_some_and(|place| table.is_spill(usize::from(place.donor)))
}

/// The seat of the page that comes as number `index` to such rows: neighbours lie in one part, and single
/// pages in each part in turn.
#[must_use]
pub fn seat_of(rows: &Rows, data_parts: usize, index: usize) -> Seat {
    let count = usize::from(rows.count).max(1);
    let part = (index / count + usize::from(rows.first)) % data_parts.max(1);
    let row = rows.first + (index % count) as u16;
    Seat { generation: rows.generation, slab: rows.slab, part: part as u8, row }
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing: the next step.
    Again,
    /// Somebody is about to make a slab: a moment later, the next step.
    Pause,
    /// Send this, wait for all answers, and say how that went ([`Append::sent`]).
    Send(Sending),
    /// It is over, and ended so.
    Done(Outcome),
}

/// How a write or a move ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The first so many pages are stored.
    Stored {
        /// How many of them, from the first on.
        pages: usize,
    },
    /// Nothing is stored, and it can be tried again at once: a donor did not take its part, or the slab was
    /// fenced.
    Again,
    /// No slab is free, or no donor has room.
    NoRoom,
    /// Too few donors can be reached.
    NoDonor,
}

#[derive(Clone, Debug)]
enum Stage {
    Claim,
    Make(Make),
    Sending(Sending),
    Publish(Sending, usize),
    Recheck(Sending),
    TakeBack(Sending, usize),
}

/// A write, or a move, under way.
#[derive(Clone, Debug)]
pub struct Append {
    stream: usize,
    items: Vec<Item>,
    dice: u64,
    pauses: u32,
    stage: Stage,
}

impl Append {
    /// Of these pages, into one of [`crate::slabs::room::STREAMS`].
    #[must_use]
    pub fn new(stream: usize, items: Vec<Item>, dice: u64) -> Self {
        Self { stream, items, dice, pauses: 0, stage: Stage::Claim }
    }

    /// The pages that it is about.
    #[must_use]
    pub fn items(&self) -> &[Item] {
        &self.items
    }

    /// Goes one step on.
    pub fn step(&mut self, table: &Table<'_>, chooser: &Chooser) -> Step {
        match &mut self.stage {
            Stage::Claim => self.claim(table),
            Stage::Make(make) => match make.step(table, chooser) {
                Made::Again => Step::Again,
                Made::Done => {
                    self.stage = Stage::Claim;
                    Step::Again
                }
                Made::NoRoom => Step::Done(Outcome::NoRoom),
                Made::NoDonor => Step::Done(Outcome::NoDonor),
            },
            Stage::Sending(sending) => {
                // The answer is not there yet.
                Step::Send(*sending)
            }
            Stage::Publish(sending, at) => {
                let (sending, at) = (*sending, *at);
                self.publish(table, sending, at)
            }
            Stage::Recheck(sending) => {
                let sending = *sending;
                self.recheck(table, sending)
            }
            Stage::TakeBack(sending, at) => {
                let (sending, at) = (*sending, *at);
                self.take_back(table, sending, at)
            }
        }
    }

    fn claim(&mut self, table: &Table<'_>) -> Step {
        let before = table.stream_word(self.stream).load(SeqCst);
        let known = unpack_stream(before).filter(|(slab, _)| *slab < table.slabs());
        if let Some((slab, generation)) = known {
            let seen = table.see_slab(slab);
            let is_same = seen.word.generation == generation;
            if is_same && seen.word.phase == SlabPhase::Making && self.pauses < MOST_PAUSES {
                self.pauses += 1;
                return Step::Pause;
            }
            if is_same && table.takes_pages(&seen) {
                let wanted = self.items.len().div_ceil(table.data_parts());
                let wanted = wanted.min(usize::from(table.rows())) as u16;
                let Some(rows) = table.claim_rows(slab, generation, wanted) else { return Step::Again };
                let pages = self.items.len().min(usize::from(rows.count) * table.data_parts());
                let sending = Sending { rows, places: seen.places, pages };
                self.note_checks(table, &sending);
                self.stage = Stage::Sending(sending);
                return Step::Again;
            }
        }
        self.pauses = 0;
        self.dice = self.dice.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        self.stage = Stage::Make(Make::new(self.stream, before, self.dice));
        Step::Again
    }

    /// Nobody reads these rows yet, or writes to them.
    fn note_checks(&self, table: &Table<'_>, sending: &Sending) {
        let rows = &sending.rows;
        let is_cleared = !table.planted("checks-not-cleared");
        for row in (rows.first..rows.first + rows.count).filter(|_| is_cleared) {
            (0..table.data_parts()).for_each(|part| table.set_check(rows.slab, part, row, 0));
        }
        for (index, item) in self.items.iter().enumerate().take(sending.pages) {
            let seat = seat_of(rows, table.data_parts(), index);
            table.set_check(seat.slab, usize::from(seat.part), seat.row, item.check);
        }
    }

    /// Says whether every part that was to be sent was acknowledged; and to which parts, a bit each, what was
    /// sent may come late, or come once more: those of which some connection has not answered.
    pub fn sent(&mut self, table: &Table<'_>, is_stored: bool, late: u16) -> Step {
        let Stage::Sending(sending) = self.stage else { return Step::Again };
        let late = if is_stored && table.planted("second-sending-forgotten") { 0 } else { late };
        for part in (0..table.parts()).filter(|part| late >> part & 1 == 1) {
            table.expect_late(sending.rows.slab, sending.rows.generation, part);
        }
        let is_move = self.items.iter().any(|item| item.from.is_some());
        let is_planted =
            table.planted("part-not-awaited") || (is_move && table.planted("moved-part-not-awaited"));
        if is_stored || is_planted {
            self.stage = Stage::Publish(sending, 0);
            return Step::Again;
        }
        table.end_rows(&sending.rows);
        Step::Done(Outcome::Again)
    }

    fn publish(&mut self, table: &Table<'_>, sending: Sending, at: usize) -> Step {
        if at == sending.pages {
            self.stage = Stage::Recheck(sending);
            return Step::Again;
        }
        let item = self.items[at];
        let seat = Seat::pack(Some(seat_of(&sending.rows, table.data_parts(), at)));
        let word = table.slot_word(item.slot);
        match item.from {
            Some(from) if !table.planted("moved-over-newer") => {
                let _ = word.compare_exchange(Seat::pack(Some(from)), seat, SeqCst, SeqCst);
            }
            None if table.planted("spilled-version-kept") && is_spilled(table, item.slot) => {}
            _ => word.store(seat, SeqCst),
        }
        self.stage = Stage::Publish(sending, at + 1);
        Step::Again
    }

    fn recheck(&mut self, table: &Table<'_>, sending: Sending) -> Step {
        let word = table.slab(sending.rows.slab);
        let is_open = (word.generation, word.phase) == (sending.rows.generation, SlabPhase::Open);
        if !is_open && !table.planted("fence-not-seen") {
            self.stage = Stage::TakeBack(sending, 0);
            return Step::Again;
        }
        table.end_rows(&sending.rows);
        Step::Done(Outcome::Stored { pages: sending.pages })
    }

    fn take_back(&mut self, table: &Table<'_>, sending: Sending, at: usize) -> Step {
        if at == sending.pages {
            table.end_rows(&sending.rows);
            return Step::Done(Outcome::Again);
        }
        let item = self.items[at];
        let seat = Seat::pack(Some(seat_of(&sending.rows, table.data_parts(), at)));
        let word = table.slot_word(item.slot);
        let _ = word.compare_exchange(seat, Seat::pack(item.from), SeqCst, SeqCst);
        self.stage = Stage::TakeBack(sending, at + 1);
        Step::Again
    }
}
