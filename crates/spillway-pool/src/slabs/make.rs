//! A new slab, step by step: a free one is taken, written down as the one that a stream writes to, given its
//! donors, and opened. Who comes meanwhile waits a moment; where its maker was killed, another slab is made
//! in its place.

use std::sync::atomic::Ordering::SeqCst;

use crate::placement::{Candidate, Chooser, Dice, capacity};
use crate::slabs::room::MOVED_STREAM;
use crate::slabs::words::{SlabPhase, SlabWord, pack_stream};
use crate::table::Table;
use crate::words::Place;

/// Extents of each donor that are kept for pages that are moved: without them no room could be made any more.
const KEPT_FOR_MOVES: u32 = 2;

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Made {
    /// Not yet: the next step.
    Again,
    /// It can be written to, or somebody else has made one.
    Done,
    /// No slab is free, or no donor has room.
    NoRoom,
    /// Too few donors can be reached.
    NoDonor,
}

/// Slabs that there is room for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fitting {
    /// Parts that each would have.
    pub(crate) width: usize,
    /// How many of them.
    pub(crate) slabs: u32,
}

/// The donors, with what they can take for this stream.
fn candidates(table: &Table<'_>, stream: usize) -> Vec<Candidate> {
    let kept = if stream == MOVED_STREAM { 0 } else { KEPT_FOR_MOVES };
    let mut donors = table.candidates();
    donors.iter_mut().for_each(|donor| donor.free = donor.free.saturating_sub(kept));
    donors
}

/// Slabs that there is room for now; `None` where too few donors can be reached.
pub(crate) fn fitting(table: &Table<'_>, stream: usize) -> Option<Fitting> {
    let candidates = candidates(table, stream);
    let well = candidates.iter().filter(|donor| donor.is_well);
    let room: Vec<(u32, u32)> = well.map(|donor| (donor.domain, donor.free)).collect();
    let mut domains: Vec<u32> = room.iter().map(|(domain, _)| *domain).collect();
    domains.sort_unstable();
    domains.dedup();
    if domains.len() < table.least_copies() {
        return None;
    }
    // Fewer parts than wanted only where there are fewer donors, not because some of them are full.
    let width = domains.len().min(table.parts());
    Some(Fitting { width, slabs: capacity(&room, width) })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Take,
    Enter,
    Place(usize),
    Open,
}

/// A slab in the making.
#[derive(Clone, Debug)]
pub(crate) struct Make {
    stream: usize,
    /// The stream's word that is to be replaced.
    before: u64,
    stage: Stage,
    dice: Dice,
    slab: u32,
    word: SlabWord,
    /// Parts in the order in which they are given donors.
    order: Vec<usize>,
    taken: Vec<usize>,
    /// Slabs that there is room for, this one included.
    left: u32,
}

impl Make {
    pub(crate) fn new(stream: usize, before: u64, dice: u64) -> Self {
        let word = SlabWord::unpack(0);
        let (order, taken) = (Vec::new(), Vec::new());
        Self {
            stream,
            before,
            stage: Stage::Take,
            dice: Dice::new(dice),
            slab: 0,
            word,
            order,
            taken,
            left: 0,
        }
    }

    pub(crate) fn step(&mut self, table: &Table<'_>, chooser: &Chooser) -> Made {
        match self.stage {
            Stage::Take => self.take(table),
            Stage::Enter => {
                let word = table.stream_word(self.stream);
                let own = pack_stream(self.slab, self.word.generation);
                if word.compare_exchange(self.before, own, SeqCst, SeqCst).is_err() {
                    // Nobody knows of it.
                    let _ = table.change_slab(
                        self.slab,
                        self.word,
                        SlabWord { phase: SlabPhase::Free, ..self.word },
                    );
                    return Made::Done;
                }
                self.stage = Stage::Place(0);
                Made::Again
            }
            Stage::Place(at) => self.place(table, chooser, at),
            Stage::Open => self.open(table),
        }
    }

    fn take(&mut self, table: &Table<'_>) -> Made {
        let Some(fitting) = fitting(table, self.stream) else { return Made::NoDonor };
        let width = fitting.width;
        self.left = fitting.slabs;
        if self.left == 0 {
            return Made::NoRoom;
        }
        let slabs = table.slabs();
        let hint = table.slab_hint().load(SeqCst) as u32 % slabs.max(1);
        let is_free = |slab: &u32| table.slab(*slab).phase == SlabPhase::Free;
        let Some(slab) = (hint..slabs).chain(0..hint).find(is_free) else { return Made::NoRoom };
        let before = table.slab(slab);
        self.word = SlabWord { phase: SlabPhase::Making, claimed: 0, ended: 0, is_hurt: false, ..before };
        if before.phase != SlabPhase::Free || !table.change_slab(slab, before, self.word) {
            return Made::Again;
        }
        table.slab_hint().store(u64::from(slab) + 1, SeqCst);
        self.slab = slab;
        // Donors take turns in holding parity; where they do not suffice, data comes first.
        let parts = table.parts();
        let turn = if width < parts { 0 } else { self.dice.below(parts) };
        self.order = (0..width).map(|part| (part + turn) % parts).collect();
        self.stage = Stage::Enter;
        Made::Again
    }

    fn place(&mut self, table: &Table<'_>, chooser: &Chooser, at: usize) -> Made {
        let chosen =
            chooser.choose(&candidates(table, self.stream), &self.taken, self.left, self.dice.next_u64());
        let place = chosen.and_then(|donor| table.take_place(donor, self.slab));
        let Some(place) = place else {
            self.stage = Stage::Open;
            return Made::Again;
        };
        self.taken.push(usize::from(place.donor));
        let word = table.part_word(self.slab, self.order[at]);
        // Of another generation it is where this maker was slow, and the slab was taken from it.
        let empty = u64::from(self.word.generation);
        let is_named = word.compare_exchange(empty, Place::pack(Some(place)), SeqCst, SeqCst).is_ok();
        self.stage = if is_named && at + 1 < self.order.len() { Stage::Place(at + 1) } else { Stage::Open };
        Made::Again
    }

    fn open(&mut self, table: &Table<'_>) -> Made {
        let seen = table.see_slab(self.slab);
        let named = seen.places.iter().flatten().count();
        let has_data = (0..table.data_parts()).all(|part| seen.places[part].is_some());
        let is_enough = has_data && named >= table.least_copies();
        let phase = if is_enough { SlabPhase::Open } else { SlabPhase::Retired };
        if table.change_slab(self.slab, self.word, SlabWord { phase, ..self.word }) && !is_enough {
            return Made::NoRoom;
        }
        Made::Done
    }
}
