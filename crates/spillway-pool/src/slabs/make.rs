//! A new slab, step by step: a free one is taken, written down as the one that a stream writes to, given its
//! donors, and opened. Who comes meanwhile waits a moment; where its maker was killed, another slab is made
//! in its place.
//!
//! A slab has as many parts as are wanted wherever there are donors for them: where some of these are full,
//! what is new is refused. For what is moved there is one exception. Room is kept for it, but donors that
//! come empty, leave and die in turn may use that up on one donor while others have room. Then no slab could
//! be emptied, not even of what is dead, and a donor that leaves would never be left, though most of what is
//! held is dead. So where the supervisor has found that nothing else will make room ([`Table::set_narrow`]),
//! what is moved goes to a slab of fewer parts, of one more than its pages can be had from at least, and one
//! such slab at a time is counted on. It makes room: what is emptied has parts on donors that are full, or no
//! more parts that last than the narrow slab has. Once there is room for all parts, the narrow slab is one
//! that lacks parts, and is moved in its turn.

use std::sync::atomic::Ordering::SeqCst;

use crate::placement::{Candidate, Chooser, Dice, capacity};
use crate::slabs::room::{MOVED_STREAM, SLABS_KEPT_IN_SPILL, SPARE_SLABS, least_spill_extents};
use crate::slabs::words::{SlabPhase, SlabWord, pack_stream};
use crate::table::{NARROW_AT, Table};
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
    let fitting = fitting_now(table, stream)?;
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

/// The same, or for what is moved, where there is room for none, a slab of fewer parts.
fn fitting_now(table: &Table<'_>, stream: usize) -> Option<Fitting> {
    let wanted = fitting(table, stream)?;
    let is_narrow = stream == MOVED_STREAM && wanted.slabs == 0 && table.header(NARROW_AT) != 0;
    Some(if is_narrow { narrow(table, stream).unwrap_or(wanted) } else { wanted })
}

impl Table<'_> {
    /// Says whether what is moved may go to slabs of fewer parts where there is no room for all, as the last
    /// look has found ([`crate::slabs::census::Findings::needs_narrow`]). For the supervisor alone.
    pub fn set_narrow(&self, is_narrow: bool) {
        let is_set = is_narrow && !self.planted("moved-waits-for-all-parts");
        self.words()[NARROW_AT].store(is_set.into(), SeqCst);
    }
}

/// One slab on those donors that have room, if another of them may be lost then, and its pages are not.
fn narrow(table: &Table<'_>, stream: usize) -> Option<Fitting> {
    let candidates = candidates(table, stream);
    let with_room = candidates.iter().filter(|donor| donor.is_well && donor.free > 0);
    let on_donors = count_domains(&with_room.map(|donor| (donor.domain, donor.free)).collect::<Vec<_>>());
    let is_enough = on_donors > table.data_parts() && on_donors >= table.least_copies();
    is_enough.then_some(Fitting { on_donors: on_donors.min(table.parts()), spilled: 0, slabs: 1 })
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
        let Some(fitting) = fitting_now(table, self.stream) else { return Made::NoDonor };
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

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;
    use crate::new_donor::NewDonor;
    use crate::slabs::append::{Append, Item, Outcome, Step};
    use crate::slabs::census::{Census, Findings, Reason, judge, slots_in};
    use crate::slabs::room::Coding;
    use crate::table::{Terms, words_of};

    /// Rows of a slab, with two pages each.
    const ROWS: u16 = 4;
    const SLAB_PAGES: u32 = 8;
    const SLOTS: u32 = 3 * SLAB_PAGES;

    /// Moves what these slots have, or writes to them where they have nothing.
    fn append(table: &Table<'_>, stream: usize, slots: impl IntoIterator<Item = u32>) -> Outcome {
        let item = |slot| Item { slot, check: 1, from: table.seat(slot) };
        let mut append = Append::new(stream, slots.into_iter().map(item).collect(), 3);
        loop {
            match append.step(table, &table.chooser()) {
                Step::Send(_) => _ = append.sent(table, true, 0),
                Step::Done(outcome) => return outcome,
                Step::Again | Step::Pause => {}
            }
        }
    }

    /// Four donors, one of which is full: three slabs of four parts each, with room for one more on the other
    /// three. All that was kept for moves is used up.
    fn full(parity: usize) -> Vec<AtomicU64> {
        let parts = 2 + parity as u32;
        let donor = |domain| NewDonor {
            capacity: if domain + 1 < parts { 4 } else { 3 },
            domain,
            text: String::new(),
        };
        let donors: Vec<NewDonor> = (0..parts).map(donor).collect();
        let coding = Coding { data: 2, parity, slabs: 12, slots: SLOTS, rows: ROWS };
        let terms = Terms { extents: 0, wanted: parts as usize, least: 2, joining: 0, coding: Some(coding) };
        let words: Vec<AtomicU64> = (0..words_of(&donors, terms)).map(|_| AtomicU64::new(0)).collect();
        let table = Table::create(&words, &donors, terms);
        for (number, stream) in [0, MOVED_STREAM, MOVED_STREAM].into_iter().enumerate() {
            let first = number as u32 * SLAB_PAGES;
            let pages = SLAB_PAGES as usize;
            assert_eq!(append(&table, stream, first..first + SLAB_PAGES), Outcome::Stored { pages });
        }
        words
    }

    fn looked(table: &Table<'_>) -> (Census, Findings) {
        let mut census = Census::begin(table);
        assert!(census.go_on(table, SLOTS));
        let found = judge(table, &census, 100, 10);
        (census, found)
    }

    /// Empties the first slab that a look has found, and makes it free with its places; why it was emptied.
    fn empty_one(table: &Table<'_>) -> Option<Reason> {
        let (_, found) = looked(table);
        table.set_narrow(found.needs_narrow(false));
        let (_, found) = looked(table);
        let task = found.tasks.first()?;
        assert!(table.fence(task.slab, task.generation));
        let live = slots_in(table, 0..SLOTS, task.slab, task.generation);
        let pages = live.len();
        if pages > 0 {
            assert_eq!(append(table, MOVED_STREAM, live), Outcome::Stored { pages });
        }
        looked(table).0.retire(table);
        let left = table.free_slab(task.slab);
        left.into_iter().for_each(|unnamed| table.free_unnamed(unnamed));
        Some(task.reason)
    }

    fn parts_of(table: &Table<'_>, slot: u32) -> usize {
        table.seat(slot).map_or(0, |seat| table.see_slab(seat.slab).places.iter().flatten().count())
    }

    #[test]
    fn what_is_dead_is_cleared_away_though_one_donor_is_full() {
        let words = full(2);
        let table = Table::known(&words);
        assert_eq!(looked(&table).1.tasks, [], "nothing is dead, and nothing lacks parts");
        // Two pages of each slab live.
        (0..SLOTS).filter(|slot| slot % SLAB_PAGES > 1).for_each(|slot| table.forget(slot));
        assert_eq!(append(&table, 0, [2]), Outcome::NoRoom, "what is new has all its parts or none");
        let found = looked(&table).1;
        assert_eq!(
            ([true, false].map(|soon| found.needs_narrow(soon)), found.tasks),
            ([false, true], vec![])
        );
        assert_eq!(empty_one(&table), Some(Reason::Sparse));
        let narrow: Vec<u32> = (0..SLOTS).filter(|slot| parts_of(&table, *slot) == 3).collect();
        assert_eq!(narrow.len(), 2);
        let reasons: Vec<Reason> = std::iter::from_fn(|| empty_one(&table)).take(20).collect();
        assert_eq!(reasons.first(), Some(&Reason::Endangered), "there is room for all its parts again");
        assert!(reasons.len() < 20, "it does not come to rest: {reasons:?}");
        let live = (0..SLOTS).filter(|slot| slot % SLAB_PAGES <= 1);
        assert!(live.into_iter().all(|slot| parts_of(&table, slot) == 4));
        assert_eq!(table.room(3), (3, 1), "there is as much as is kept for moves again");
    }

    #[test]
    fn a_slab_that_came_wrong_is_emptied_though_one_donor_is_full() {
        let words = full(2);
        let table = Table::known(&words);
        // All that is in it lives.
        table.hurt(table.seat(0).unwrap());
        assert_eq!(empty_one(&table), Some(Reason::Endangered));
        assert_eq!(parts_of(&table, 0), 3);
        assert_eq!(empty_one(&table), Some(Reason::Endangered));
        assert!((0..SLOTS).all(|slot| parts_of(&table, slot) == 4));
        assert_eq!(empty_one(&table), None);
    }

    #[test]
    fn nothing_is_moved_to_where_the_next_loss_would_take_it() {
        let words = full(1);
        let table = Table::known(&words);
        table.set_narrow(true);
        assert_eq!(append(&table, MOVED_STREAM, [0]), Outcome::NoRoom);
        assert_eq!(parts_of(&table, 0), 3);
    }
}
