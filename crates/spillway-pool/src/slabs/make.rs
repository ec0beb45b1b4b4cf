//! A new slab, step by step: a free one is taken, written down as the one that a stream writes to, given its
//! donors, and opened. Who comes meanwhile waits a moment; where its maker was killed, another slab is made
//! in its place.

use std::sync::atomic::Ordering::SeqCst;

use crate::placement::{Candidate, Chooser, Dice, capacity};
use crate::slabs::room::{MOVED_STREAM, SLABS_KEPT_IN_SPILL, SPARE_SLABS, least_spill_extents};
use crate::slabs::words::{SlabPhase, SlabWord, pack_stream};
use crate::table::Table;
use crate::words::Place;

/// Extents of each donor that are kept for pages that are moved: without them no room could be made any more.
pub(crate) const KEPT_FOR_MOVES: u32 = 2;
/// Numbers of slabs that are kept for them too: donors may have room for more slabs than there are numbers.
/// Several, for a donor's death has what is moved go on in another slab, though the one before is not full.
const NUMBERS_KEPT_FOR_MOVES: usize = SPARE_SLABS as usize;

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

/// Where the parts of new slabs can lie now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fitting {
    /// Parts that each slab would have on donors.
    pub(crate) on_donors: usize,
    /// Parts that it would have in the last resort: those that no donor can take.
    pub(crate) spilled: usize,
    /// How many slabs there is room for.
    pub(crate) slabs: u32,
}

impl Fitting {
    /// Parts of each slab.
    pub(crate) fn width(&self) -> usize {
        self.on_donors + self.spilled
    }

    /// As many parts as it is worth: with those that the last resort has, none is lacking.
    pub(crate) fn worth(&self, table: &Table<'_>) -> usize {
        if self.spilled > 0 { table.parts() } else { self.on_donors }
    }
}

/// The donors, with what they can take for this stream.
fn candidates(table: &Table<'_>, stream: usize) -> Vec<Candidate> {
    let kept = if stream == MOVED_STREAM { 0 } else { KEPT_FOR_MOVES };
    let mut donors = table.candidates();
    donors.iter_mut().for_each(|donor| donor.free = donor.free.saturating_sub(kept));
    donors
}

/// Numbers of slabs that a stream leaves alone.
fn kept_numbers(table: &Table<'_>, stream: usize) -> usize {
    let is_kept = stream != MOVED_STREAM && !table.planted("numbers-not-kept");
    if is_kept { NUMBERS_KEPT_FOR_MOVES } else { 0 }
}

/// Numbers of slabs that are free. Looks at all of them.
pub(crate) fn free_numbers(table: &Table<'_>) -> usize {
    (0..table.slabs()).filter(|&slab| table.slab(slab).phase == SlabPhase::Free).count()
}

/// Those of the free numbers that a stream may take.
pub(crate) fn numbers_for(table: &Table<'_>, stream: usize, free: usize) -> usize {
    free.saturating_sub(kept_numbers(table, stream))
}

/// Slabs that can be made now: those that there is room for and, of `free` numbers, one each; `None` where
/// too few donors can be reached.
pub(crate) fn available(table: &Table<'_>, stream: usize, free: usize) -> Option<Fitting> {
    let fitting = fitting(table, stream)?;
    Some(Fitting { slabs: fitting.slabs.min(numbers_for(table, stream, free) as u32), ..fitting })
}

/// Slabs that there are numbers for, beside those that are kept.
pub(crate) fn most_fresh_slabs(table: &Table<'_>) -> u32 {
    table.slabs().saturating_sub(NUMBERS_KEPT_FOR_MOVES as u32)
}

/// A number for a slab of this stream: the first that is free from the hint on, if enough others are.
fn free_slab(table: &Table<'_>, stream: usize) -> Option<u32> {
    let slabs = table.slabs();
    let hint = table.slab_hint().load(SeqCst) as u32 % slabs.max(1);
    let is_free = |slab: &u32| table.slab(*slab).phase == SlabPhase::Free;
    let mut free = (hint..slabs).chain(0..hint).filter(is_free);
    let first = free.next()?;
    let kept = kept_numbers(table, stream);
    (free.take(kept).count() == kept).then_some(first)
}

/// Slabs that there is room for now, as far as there are numbers for them; `None` where too few donors can
/// be reached.
pub(crate) fn fitting(table: &Table<'_>, stream: usize) -> Option<Fitting> {
    let candidates = candidates(table, stream);
    let well = candidates.iter().filter(|donor| donor.is_well);
    let room: Vec<(u32, u32)> = well.map(|donor| (donor.domain, donor.free)).collect();
    let domains = count_domains(&room);
    // Fewer parts than wanted only where there are fewer donors, not because some of them are full.
    let width = domains.min(table.parts());
    let slabs = if domains < table.least_copies() { 0 } else { capacity(&room, width) };
    let alone = Fitting { on_donors: width, spilled: 0, slabs };
    if slabs == 0 || width < table.parts() {
        let with_spill = fitting_with_spill(table, room, stream).filter(|fitting| fitting.slabs > 0);
        return with_spill.or((domains >= table.least_copies()).then_some(alone));
    }
    Some(alone)
}

/// Extents of the last resort that a stream leaves alone.
fn kept_in_spill(table: &Table<'_>, stream: usize) -> u32 {
    if stream == MOVED_STREAM { 0 } else { SLABS_KEPT_IN_SPILL * table.data_parts() as u32 }
}

/// Whether the last resort has no room for a slab of what is new.
#[must_use]
pub fn is_spill_full(table: &Table<'_>, spill: usize) -> bool {
    let (capacity, used) = table.room(spill);
    capacity.saturating_sub(used) < least_spill_extents(table.data_parts())
}

fn count_domains(room: &[(u32, u32)]) -> usize {
    let mut domains: Vec<u32> = room.iter().map(|(domain, _)| *domain).collect();
    domains.sort_unstable();
    domains.dedup();
    domains.len()
}

/// The same where the last resort takes the parts that no donor can. It dies with no donor, so it has no more
/// parts than the pages can be had from, whatever becomes of the donors.
fn fitting_with_spill(table: &Table<'_>, mut room: Vec<(u32, u32)>, stream: usize) -> Option<Fitting> {
    let (capacity_there, used) = table.room(table.open_spill()?);
    let free = capacity_there.saturating_sub(used.saturating_add(kept_in_spill(table, stream)));
    room.retain(|(_, free)| *free > 0);
    let on_donors = count_domains(&room).min(table.parts());
    let spilled = (table.parts() - on_donors).min(table.data_parts());
    let of_donors = if on_donors == 0 { u32::MAX } else { capacity(&room, on_donors) };
    let of_spill = free.checked_div(spilled as u32).unwrap_or(u32::MAX);
    Some(Fitting { on_donors, spilled, slabs: of_donors.min(of_spill) })
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
    /// So many of the first of these are for donors, the others for the last resort.
    on_donors: usize,
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
            on_donors: 0,
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
        let width = fitting.width();
        (self.left, self.on_donors) = (fitting.slabs, fitting.on_donors);
        if self.left == 0 {
            return Made::NoRoom;
        }
        let Some(slab) = free_slab(table, self.stream) else { return Made::NoRoom };
        let before = table.slab(slab);
        self.word = SlabWord { phase: SlabPhase::Making, claimed: 0, ended: 0, is_hurt: false, ..before };
        if before.phase != SlabPhase::Free || !table.change_slab(slab, before, self.word) {
            return Made::Again;
        }
        table.slab_hint().store(u64::from(slab) + 1, SeqCst);
        self.slab = slab;
        if fitting.spilled > 0 && self.stream != MOVED_STREAM {
            // Where donors are full, what is dead on them is moved out of the way, and then they have room.
            table.ask_for_room();
        }
        // Donors take turns in holding parity; where they do not suffice, they have data first.
        let parts = table.parts();
        let turn = if self.on_donors < parts { 0 } else { self.dice.below(parts) };
        self.order = (0..width).map(|part| (part + turn) % parts).collect();
        self.stage = Stage::Enter;
        Made::Again
    }

    fn place(&mut self, table: &Table<'_>, chooser: &Chooser, at: usize) -> Made {
        let candidates = candidates(table, self.stream);
        let is_for_donor = at < self.on_donors;
        let chosen = is_for_donor
            .then(|| chooser.choose(&candidates, &self.taken, self.left, self.dice.next_u64()))
            .flatten();
        let place = chosen.and_then(|donor| table.take_place(donor, self.slab));
        let place = place.or_else(|| table.take_spill(self.slab));
        let Some(place) = place else {
            self.stage = Stage::Open;
            return Made::Again;
        };
        if !table.is_spill(usize::from(place.donor)) {
            self.taken.push(usize::from(place.donor));
        }
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
