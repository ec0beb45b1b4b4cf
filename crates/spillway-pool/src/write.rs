//! One write to slots of one extent, step by step. Between any two steps anything may happen: other writes,
//! a rebuild, the death of donors and of this process.
//!
//! The order is what makes it right. (0) The slots are barred, so that nobody writes there after this
//! process if it is killed with something on its way. (1) The pages go to every copy that takes writes, to
//! all of them at the same time, and every answer is waited for.
//! (2) Copies that did not get them are made absent, if a whole copy has them. (3) The slots are marked dirty
//! and live. (4) The state is read once more: where a copy takes writes now that has not got this one, it
//! goes there too, and the steps begin again. Only then the write counts, and the bar is lifted.
//!
//! What went to a copy that was only closing may have been overtaken there: the rebuild may have taken that
//! copy back, and copied an older page into it from a copy that had not got the write yet. So if anything has
//! changed in the extent since, (4) sends it there once more.
//!
//! What was sent by two connections, since the first broke, may come once more after its answer. Such a write
//! counts, and its bar stays until nothing comes late any more ([`crate::survey::Sweep`]): the slot is read,
//! and nobody writes another page there.
//!
//! A rebuild ([`crate::rebuild`]) first has its copy take writes and then looks for dirty slots. Whatever the
//! order of its two steps and of (3) and (4), it sees the slot dirty, or the write sees its copy.

use crate::MAX_COPIES;
use crate::bits::{BITS_WORDS, Bits};
use crate::placement::Chooser;
use crate::table::{NoDonor, Table, Which};
use crate::words::{Condition, Copy, Phase, Place};

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing: the next step.
    Again,
    /// Write the pages there, and say how that went ([`Write::sent`]). The next step may be taken before.
    Send {
        /// Where they are to go.
        place: Place,
    },
    /// Nothing goes on before some answer is there ([`Write::sent`]).
    Wait,
    /// It is over, and ended so.
    Done(Outcome),
}

/// How a write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// So many copies have it.
    Stored {
        /// Whole copies that have it.
        copies: usize,
    },
    /// Fewer copies have it than a write needs to count.
    TooFew {
        /// Whole copies that have it.
        copies: usize,
    },
    /// The extent has copies, and none of their donors can be reached: it may help to try again.
    Unreachable,
    /// No donor has room for the extent.
    NoDonor,
    /// All copies of the extent are lost: it is made a new one soon.
    Lost,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Place,
    Send,
    Mark,
    Dirty,
    Recheck,
    /// Of a planted mistake: the slots are marked only now.
    Late(Outcome),
}

/// A write under way.
#[derive(Clone, Debug)]
pub struct Write {
    extent: u32,
    slots: Bits,
    stage: Stage,
    dice: u64,
    /// Where it has gone, or is on its way.
    has: [Option<Place>; MAX_COPIES],
    /// Of copies that were closing when it was sent: the change of the extent's state then.
    closing_at: [Option<u64>; MAX_COPIES],
    /// Copies to which it is on its way, a bit each.
    under_way: u8,
    /// Where it has not gone, though it was sent: it may come late.
    late: [Option<Place>; MAX_COPIES],
    /// Where it was not sent, since the donor is down.
    passed: [Option<Place>; MAX_COPIES],
    /// Some donor may get it once more.
    comes_again: bool,
}

impl Write {
    /// A write to `slots` of an extent, a bit each.
    #[must_use]
    pub fn new(extent: u32, slots: Bits, dice: u64) -> Self {
        let none = [None; MAX_COPIES];
        Self {
            extent,
            slots,
            stage: Stage::Place,
            dice,
            has: none,
            closing_at: [None; MAX_COPIES],
            under_way: 0,
            late: none,
            passed: none,
            comes_again: false,
        }
    }

    /// Goes one step on.
    pub fn step(&mut self, table: &Table<'_>, chooser: &Chooser) -> Step {
        match self.stage {
            Stage::Place => self.place(table, chooser),
            Stage::Send => self.send(table),
            Stage::Mark => self.mark(table),
            Stage::Dirty => {
                if !table.planted("dirty-after-recheck") {
                    self.set_dirty(table);
                }
                self.stage = Stage::Recheck;
                Step::Again
            }
            Stage::Recheck => self.recheck(table),
            Stage::Late(outcome) => {
                self.set_dirty(table);
                self.done(table, outcome)
            }
        }
    }

    fn set_dirty(&self, table: &Table<'_>) {
        table.set_bits(self.extent, Which::Live, &self.slots);
        if !table.planted("written-slot-not-dirty") {
            table.set_bits(self.extent, Which::Dirty, &self.slots);
        }
    }

    fn place(&mut self, table: &Table<'_>, chooser: &Chooser) -> Step {
        match table.place_next(self.extent, chooser, self.dice) {
            None => {
                if !table.planted("write-not-announced") {
                    table.set_bits(self.extent, Which::Barred, &self.slots);
                }
                self.stage = Stage::Send;
            }
            Some(Ok(())) => self.dice = self.dice.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1),
            Some(Err(NoDonor)) => return Step::Done(Outcome::NoDonor),
        }
        Step::Again
    }

    /// Says what became of what was to be sent there.
    pub fn sent(&mut self, place: Place, is_stored: bool) {
        let copy = (0..MAX_COPIES).find(|&copy| self.is_under_way(copy) && self.has[copy] == Some(place));
        let Some(copy) = copy else { return };
        self.under_way &= !(1 << copy);
        if !is_stored {
            (self.late[copy], self.has[copy]) = (self.has[copy], None);
        }
    }

    /// Says that something of it was sent by a second connection, since the first broke without an answer:
    /// though the donor has it, it may come once more by the first, over what is written there next.
    pub fn comes_again(&mut self) {
        self.comes_again = true;
    }

    fn is_under_way(&self, copy: usize) -> bool {
        self.under_way >> copy & 1 == 1
    }

    /// Some copy has not got it, and may be given up for that.
    #[must_use]
    pub fn has_missed(&self) -> bool {
        (0..MAX_COPIES).any(|copy| self.late[copy].is_some() || self.passed[copy].is_some())
    }

    fn is_dealt_with(&self, copy: usize, place: Place) -> bool {
        [self.has[copy], self.late[copy], self.passed[copy]].contains(&Some(place))
    }

    fn send(&mut self, table: &Table<'_>) -> Step {
        let seen = table.snapshot(self.extent);
        let is_placed = seen.state.phase == Phase::Placed;
        for copy in (0..MAX_COPIES).filter(|_| is_placed) {
            let Some(place) = seen.places[copy] else { continue };
            let takes = seen.state.copies[copy].takes_writes() && table.is_current(place);
            // A copy that is at another place by now comes after the answer from the one before.
            if !takes || self.is_dealt_with(copy, place) || self.is_under_way(copy) {
                continue;
            }
            if table.donor(usize::from(place.donor)).condition == Condition::Down {
                self.passed[copy] = Some(place);
                continue;
            }
            self.has[copy] = Some(place);
            if table.is_spill(usize::from(place.donor)) && table.planted("spill-not-written") {
                continue;
            }
            let is_closing = seen.state.copies[copy] == Copy::Closing;
            self.closing_at[copy] = is_closing.then_some(seen.state.change);
            self.under_way |= 1 << copy;
            return Step::Send { place };
        }
        if self.under_way != 0 && !table.planted("counted-before-the-answer") {
            return Step::Wait;
        }
        if !is_placed {
            return self.done(table, Outcome::Lost);
        }
        self.stage = Stage::Mark;
        Step::Again
    }

    fn copies_with_it(&self) -> u8 {
        (0..MAX_COPIES).filter(|&copy| self.has[copy].is_some()).fold(0, |all, copy| all | 1 << copy)
    }

    fn mark(&mut self, table: &Table<'_>) -> Step {
        let kept = self.copies_with_it();
        if !table.planted("missed-write-not-marked") {
            for copy in 0..MAX_COPIES {
                for place in [self.late[copy], self.passed[copy]].into_iter().flatten() {
                    if !is_kept_anyway(table, place) {
                        let _ = table.drop_copy(self.extent, copy, place, kept);
                    }
                }
            }
        }
        self.stage = Stage::Dirty;
        Step::Again
    }

    fn recheck(&mut self, table: &Table<'_>) -> Step {
        let seen = table.snapshot(self.extent);
        if seen.state.phase != Phase::Placed {
            return self.done(table, Outcome::Lost);
        }
        let (mut copies, mut without, mut is_spilled) = (0, 0, false);
        for copy in 0..MAX_COPIES {
            let Some(place) = seen.places[copy] else { continue };
            if !seen.state.copies[copy].takes_writes() || !table.is_current(place) {
                continue;
            }
            let is_overtaken = self.closing_at[copy].is_some_and(|change| change != seen.state.change);
            if self.has[copy] == Some(place) && is_overtaken {
                self.has[copy] = None;
                self.stage = Stage::Send;
                return Step::Again;
            }
            if self.has[copy] == Some(place) {
                let is_whole = table.is_whole(&seen, copy);
                copies += usize::from(is_whole);
                is_spilled |= is_whole && table.is_spill(usize::from(place.donor));
            } else if self.is_dealt_with(copy, place) {
                without += usize::from(!is_kept_anyway(table, place));
            } else if !table.planted("new-copy-not-written") {
                self.stage = Stage::Send;
                return Step::Again;
            }
        }
        if copies > 0 && without > 0 && !table.planted("missed-write-not-marked") {
            // A copy that has it has become whole only now: it can stand for the others.
            self.stage = Stage::Mark;
            return Step::Again;
        }
        let outcome = match copies {
            0 if without == 0 => Outcome::Lost,
            0 => Outcome::Unreachable,
            // What is in the last resort does not die with any donor.
            copies if copies < table.least_copies() && !is_spilled => Outcome::TooFew { copies },
            copies => Outcome::Stored { copies },
        };
        if table.planted("dirty-after-recheck") {
            self.stage = Stage::Late(outcome);
            return Step::Again;
        }
        self.done(table, outcome)
    }

    fn done(&self, table: &Table<'_>, outcome: Outcome) -> Step {
        // The last whole copy stays so, and what was sent there may come at any time.
        let is_left = outcome == Outcome::Unreachable && self.late != [None; MAX_COPIES];
        let may_come = is_left || (self.comes_again && !table.planted("second-write-forgotten"));
        if may_come {
            // Anew: of a write that took long it may be lifted by now.
            table.set_bits(self.extent, Which::Barred, &self.slots);
        } else {
            table.clear_bits(self.extent, Which::Barred, &self.slots);
        }
        Step::Done(outcome)
    }
}

/// A copy that has missed a write is kept, since its donor answers others.
fn is_kept_anyway(table: &Table<'_>, place: Place) -> bool {
    let is_planted = table.planted("copy-of-who-is-up-kept");
    is_planted && table.donor(usize::from(place.donor)).condition == Condition::Up
}

/// What may still be written: the slots of a write but for those into which an earlier one may come late.
#[must_use]
pub fn without_barred(table: &Table<'_>, extent: u32, slots: &Bits) -> Bits {
    let barred = table.bits(extent, Which::Barred);
    let mut free = [0; BITS_WORDS];
    free.iter_mut()
        .zip(slots.iter().zip(&barred))
        .for_each(|(free, (slots, barred))| *free = slots & !barred);
    free
}
