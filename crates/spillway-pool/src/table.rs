//! The table that all processes of a run share: donors, extents, and who has which part of a donor's memory.
//!
//! Invariants, each kept by the step that could break it:
//!
//! 1. A copy is read only while the extent's state calls it [`Copy::Whole`] and its place is of the donor's
//!    present life ([`Table::snapshot`]).
//! 2. A write counts only once every copy that takes writes has it, or has been made [`Copy::Absent`]; and
//!    at least one whole copy has it. One word has the states of all copies, so of two writers who would
//!    each give up the other's copy only one can ([`Table::drop_copy`]).
//! 3. The last whole copy is never given up for a write that failed.
//! 4. A place changes only while its copy is absent, and only the supervisor changes it once the extent is
//!    placed. So who finds the state unchanged after it has read the places has read those of that state.
//! 5. An extent of a donor's memory is of one extent of the pool: its word in the donor's list of owners is
//!    taken by compare-and-swap. It becomes free again only when its owner has not named it for a while
//!    ([`crate::survey`]), so that a write which comes late meets nobody else's pages.
//! 6. Only a copy that is rebuilding is written by the supervisor, and it is written by nobody else
//!    ([`crate::rebuild`]).

use std::sync::atomic::Ordering::SeqCst;

use crate::bits::{BITS_WORDS, Bits};
use crate::draw::SPARE_EXTENTS;
use crate::new_donor::{DONOR_WORDS, NewDonor};
use crate::placement::Chooser;
use crate::planted::Planted;
use crate::shared::AtomicU64;
use crate::slabs::room::Coding;
use crate::words::{Condition, Copy, ExtentState, Phase, Place};
use crate::{MAX_COPIES, MAX_DONORS};

const MAGIC: u64 = 0x5350_494C_504F_4F05;
pub(crate) const HEADER_WORDS: usize = 64;
const EXTENT_WORDS: usize = 40;

const MAGIC_AT: usize = 0;
pub(crate) const DONORS_AT: usize = 1;
const WANTED_AT: usize = 2;
const LEAST_AT: usize = 3;
const EXTENTS_AT: usize = 4;
const PLACED_AT: usize = 5;
const READS_AT: usize = 6;
pub(crate) const HEDGE_DEBT_AT: usize = 7;
/// The number of the last resort among the donors, and one more; 0 where there is none.
pub(crate) const SPILL_AT: usize = 8;
/// Whether what is moved may go to slabs of fewer parts: 1 or 0.
pub(crate) const NARROW_AT: usize = 9;
/// Where each donor's list of owners begins, in words.
pub(crate) const OWNERS_AT: usize = 16;

const STATE_AT: usize = 0;
const PLACES_AT: usize = 1;
/// A bit for each donor that an extent was lost with.
const LOST_WITH_AT: usize = 5;
const LIVE_AT: usize = 8;
const DIRTY_AT: usize = LIVE_AT + BITS_WORDS;
const BARRED_AT: usize = DIRTY_AT + BITS_WORDS;
const AWAITED_AT: usize = BARRED_AT + BITS_WORDS;

const _: () = assert!(AWAITED_AT + BITS_WORDS <= EXTENT_WORDS && PLACES_AT + MAX_COPIES <= LOST_WITH_AT);
const _: () = assert!(OWNERS_AT + MAX_DONORS <= HEADER_WORDS);

/// What a pool is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Extents that it offers: none where its pages are coded.
    pub extents: u32,
    /// On how many donors a page should be: as copies, or as parts.
    pub wanted: usize,
    /// On how many it must be for a write to count.
    pub least: usize,
    /// Donors that may join it, beside those that it begins with.
    pub joining: usize,
    /// How its pages are coded, if they are: then it has slabs in place of extents.
    pub coding: Option<Coding>,
}

impl Terms {
    /// Donors that may join beside `donors`: as many as there are places.
    fn joining(&self, donors: usize) -> usize {
        self.joining.min(MAX_DONORS.saturating_sub(donors))
    }

    /// Extents of its own that a donor can be of use with, at most, those to spare included.
    fn most_of_a_donor(&self) -> u32 {
        // Coded, there are more numbers than there is room for.
        self.coding.map_or(self.extents + SPARE_EXTENTS as u32, |coding| coding.slabs)
    }
}

/// Words that a table takes, of which only those are touched that are used.
#[must_use]
pub fn words_of(donors: &[NewDonor], terms: Terms) -> usize {
    let extents = terms.extents as usize;
    let owners: usize = donors.iter().map(|donor| donor.capacity as usize).sum();
    let joining = terms.joining(donors.len()) * terms.most_of_a_donor() as usize;
    let coded = terms.coding.map_or(0, |coding| coding.words());
    HEADER_WORDS + MAX_DONORS * DONOR_WORDS + owners + joining + extents * EXTENT_WORDS + coded
}

/// Which bits of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// Slots that hold a page.
    Live,
    /// Slots that were written since a rebuild last looked.
    Dirty,
    /// Slots that are being written, or into which a write may still come late: that of a process that was
    /// killed, or of a donor that did not answer.
    Barred,
    /// Of those the ones that nobody has barred anew since the supervisor looked ([`crate::bars`]).
    Awaited,
}

/// What an extent's words said at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The extent's state then.
    pub state: ExtentState,
    /// Where its copies lie.
    pub places: [Option<Place>; MAX_COPIES],
}

/// The table of one pool.
#[derive(Clone, Copy)]
pub struct Table<'a> {
    words: &'a [AtomicU64],
    bug: Planted,
}

impl<'a> Table<'a> {
    /// Makes a table of words that are all zero.
    #[must_use]
    pub fn create(words: &'a [AtomicU64], donors: &[NewDonor], terms: Terms) -> Self {
        let table = Self { words, bug: Planted::default() };
        let Terms { extents, wanted, least, .. } = terms;
        for (at, value) in [
            (DONORS_AT, donors.len()),
            (WANTED_AT, wanted),
            (LEAST_AT, least),
            (EXTENTS_AT, extents as usize),
        ] {
            words[at].store(value as u64, SeqCst);
        }
        let mut owners = HEADER_WORDS + MAX_DONORS * DONOR_WORDS + extents as usize * EXTENT_WORDS;
        for (index, donor) in donors.iter().enumerate() {
            table.keep_list(index, owners, donor.capacity);
            owners += donor.capacity as usize;
            table.enter(index, donor);
        }
        for index in 0..terms.joining(donors.len()) {
            table.keep_list(donors.len() + index, owners, terms.most_of_a_donor());
            owners += terms.most_of_a_donor() as usize;
        }
        if let Some(coding) = terms.coding {
            table.lay_out(coding, owners);
        }
        words[MAGIC_AT].store(MAGIC, SeqCst);
        table
    }

    /// The table that somebody else has made; `None` where the words are none.
    #[must_use]
    pub fn open(words: &'a [AtomicU64]) -> Option<Self> {
        let is_one = words.len() >= HEADER_WORDS + MAX_DONORS * DONOR_WORDS
            && words[MAGIC_AT].load(SeqCst) == MAGIC
            && words[DONORS_AT].load(SeqCst) <= MAX_DONORS as u64
            && words[SPILL_AT].load(SeqCst) <= words[DONORS_AT].load(SeqCst)
            && words[WANTED_AT].load(SeqCst) <= MAX_DONORS as u64;
        let table = Self { words, bug: Planted::default() };
        let fits = || (0..MAX_DONORS).all(|donor| table.list_end(donor) <= words.len());
        (is_one && fits() && table.coding_fits()).then_some(table)
    }

    /// A table that was found to be one before ([`Self::open`]).
    #[must_use]
    pub fn known(words: &'a [AtomicU64]) -> Self {
        Self { words, bug: Planted::default() }
    }

    /// The same with a mistake in it, for the simulation to find.
    #[must_use]
    pub fn with_bug(self, bug: &'static str) -> Self {
        Self { bug: Planted(bug), ..self }
    }

    pub(crate) fn planted(&self, bug: &str) -> bool {
        self.bug.is(bug)
    }

    pub(crate) fn words(&self) -> &'a [AtomicU64] {
        self.words
    }

    pub(crate) fn header(&self, at: usize) -> u64 {
        self.words[at].load(SeqCst)
    }

    /// How many donors there are.
    #[must_use]
    pub fn donors(&self) -> usize {
        self.header(DONORS_AT) as usize
    }

    /// How many copies an extent should have, or parts a slab.
    #[must_use]
    pub fn wanted_copies(&self) -> usize {
        self.header(WANTED_AT) as usize
    }

    /// How many of them a write needs to count.
    #[must_use]
    pub fn least_copies(&self) -> usize {
        self.header(LEAST_AT) as usize
    }

    /// How many extents the pool offers; none where it is coded.
    #[must_use]
    pub fn extents(&self) -> u32 {
        self.header(EXTENTS_AT) as u32
    }

    /// Counts a read that somebody waits for.
    pub fn count_read(&self) {
        self.words[READS_AT].fetch_add(1, SeqCst);
        self.pay_for_hedges();
    }

    /// Reads that somebody waited for.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.header(READS_AT)
    }

    // ---- Extents.

    fn extent_at(&self, extent: u32, at: usize) -> &'a AtomicU64 {
        let start = HEADER_WORDS + MAX_DONORS * DONOR_WORDS + extent as usize * EXTENT_WORDS;
        &self.words[start + at]
    }

    /// The state of an extent now.
    #[must_use]
    pub fn state(&self, extent: u32) -> ExtentState {
        ExtentState::unpack(self.extent_at(extent, STATE_AT).load(SeqCst))
    }

    /// Changes an extent's state, if it is as `before`.
    pub(crate) fn change(&self, extent: u32, before: ExtentState, after: ExtentState) -> bool {
        let after = ExtentState { change: before.change + 1, ..after };
        let word = self.extent_at(extent, STATE_AT);
        word.compare_exchange(before.pack(), after.pack(), SeqCst, SeqCst).is_ok()
    }

    pub(crate) fn place_word(&self, extent: u32, copy: usize) -> &'a AtomicU64 {
        self.extent_at(extent, PLACES_AT + copy)
    }

    /// An extent's state and places, of one moment.
    #[must_use]
    pub fn snapshot(&self, extent: u32) -> Snapshot {
        loop {
            let state = self.state(extent);
            let places =
                std::array::from_fn(|copy| Place::unpack(self.place_word(extent, copy).load(SeqCst)));
            if self.state(extent) == state {
                return Snapshot { state, places };
            }
        }
    }

    /// Whether a copy of a snapshot is whole, in its donor's present life.
    #[must_use]
    pub fn is_whole(&self, seen: &Snapshot, copy: usize) -> bool {
        seen.state.phase == Phase::Placed
            && seen.state.copies[copy] == Copy::Whole
            && seen.places[copy].is_some_and(|place| self.is_current(place))
    }

    /// Whether a donor that is well keeps memory for an extent: a page of it needs no more of that.
    #[must_use]
    pub fn keeps_memory_for(&self, extent: u32) -> bool {
        let seen = self.snapshot(extent);
        let is_well = |place: &Place| {
            let is_up = self.donor(usize::from(place.donor)).condition == Condition::Up;
            is_up && self.is_current(*place)
        };
        seen.state.phase != Phase::Clearing && seen.places.iter().flatten().any(is_well)
    }

    /// Makes a copy absent that has missed a write, came wrong or is one too many, if it still lies at
    /// `place` and one of the copies in `kept` (a bit each) is whole. True where it is absent now.
    pub fn drop_copy(&self, extent: u32, copy: usize, place: Place, kept: u8) -> bool {
        loop {
            let seen = self.snapshot(extent);
            if seen.state.phase != Phase::Placed
                || seen.places[copy] != Some(place)
                || seen.state.copies[copy] == Copy::Absent
            {
                return true;
            }
            let keeps = (0..MAX_COPIES)
                .any(|other| other != copy && kept >> other & 1 == 1 && self.is_whole(&seen, other));
            if !keeps && !self.planted("last-copy-dropped") {
                return false;
            }
            if self.change(extent, seen.state, seen.state.with(copy, Copy::Absent)) {
                return true;
            }
        }
    }

    /// One step towards an extent's donors. `None` where it has them; an error where no donor can be had.
    pub fn place_next(&self, extent: u32, chooser: &Chooser, dice: u64) -> Option<Result<(), NoDonor>> {
        let state = self.state(extent);
        match state.phase {
            Phase::Placed => return None,
            Phase::Clearing => return Some(Err(NoDonor)),
            Phase::Unplaced => {}
        }
        let wanted = self.wanted_copies();
        let places: Vec<Option<Place>> =
            (0..wanted).map(|copy| Place::unpack(self.place_word(extent, copy).load(SeqCst))).collect();
        let taken: Vec<usize> = places.iter().flatten().map(|place| usize::from(place.donor)).collect();
        let Some(empty) = places.iter().position(Option::is_none) else {
            return Some(self.publish(extent, state));
        };
        let left = self.extents().saturating_sub(self.header(PLACED_AT) as u32);
        let candidates = self.candidates();
        let left = left.min(self.extents_for_donors(&candidates));
        let chosen = chooser.choose(&candidates, &taken, left, dice);
        let place = chosen.and_then(|donor| self.take_place(donor, extent));
        // A file of our own does not die with a donor: beside one, the supervisor sees to it.
        let place = place.or_else(|| if taken.is_empty() { self.take_spill(extent) } else { None });
        let Some(place) = place else {
            // Fewer copies than wanted are better than none: they are made up for when a donor can be had.
            return Some(if taken.is_empty() { Err(NoDonor) } else { self.publish(extent, state) });
        };
        let word = self.place_word(extent, empty);
        // Where somebody else was first, the place stays taken until the survey frees it.
        let _ = word.compare_exchange(0, Place::pack(Some(place)), SeqCst, SeqCst);
        Some(Ok(()))
    }

    fn publish(&self, extent: u32, before: ExtentState) -> Result<(), NoDonor> {
        let mut after = ExtentState { phase: Phase::Placed, copies: [Copy::Absent; MAX_COPIES], ..before };
        let mut taken: Vec<usize> = Vec::with_capacity(MAX_COPIES);
        for copy in 0..self.wanted_copies() {
            let Some(place) = Place::unpack(self.place_word(extent, copy).load(SeqCst)) else { continue };
            let donor = usize::from(place.donor);
            let is_apart = taken.iter().all(|&other| self.domain(other) != self.domain(donor));
            if is_apart && self.is_current(place) && self.owner_of(donor, place.extent) == Some(extent) {
                after.copies[copy] = Copy::Whole;
                taken.push(donor);
            }
        }
        if taken.is_empty() {
            // All donors began a new life meanwhile: proposed anew.
            for copy in 0..self.wanted_copies() {
                let word = self.place_word(extent, copy);
                let old = word.load(SeqCst);
                if Place::unpack(old).is_some_and(|place| !self.is_current(place)) {
                    let _ = word.compare_exchange(old, 0, SeqCst, SeqCst);
                }
            }
            return Err(NoDonor);
        }
        if self.change(extent, before, after) {
            self.words[PLACED_AT].fetch_add(1, SeqCst);
        }
        Ok(())
    }

    // ---- Bits.

    fn bits_at(which: Which) -> usize {
        match which {
            Which::Live => LIVE_AT,
            Which::Dirty => DIRTY_AT,
            Which::Barred => BARRED_AT,
            Which::Awaited => AWAITED_AT,
        }
    }

    /// Sets bits of an extent.
    pub fn set_bits(&self, extent: u32, which: Which, bits: &Bits) {
        if which == Which::Barred {
            self.clear_bits(extent, Which::Awaited, bits);
        }
        for (at, &bits) in bits.iter().enumerate().filter(|(_, bits)| **bits != 0) {
            self.extent_at(extent, Self::bits_at(which) + at).fetch_or(bits, SeqCst);
        }
    }

    /// Clears bits of an extent.
    pub fn clear_bits(&self, extent: u32, which: Which, bits: &Bits) {
        for (at, &bits) in bits.iter().enumerate().filter(|(_, bits)| **bits != 0) {
            self.extent_at(extent, Self::bits_at(which) + at).fetch_and(!bits, SeqCst);
        }
    }

    /// The bits of an extent now.
    #[must_use]
    pub fn bits(&self, extent: u32, which: Which) -> Bits {
        std::array::from_fn(|at| self.extent_at(extent, Self::bits_at(which) + at).load(SeqCst))
    }

    /// Takes an extent's bits, and leaves none.
    pub(crate) fn take_bits(&self, extent: u32, which: Which) -> Bits {
        std::array::from_fn(|at| self.extent_at(extent, Self::bits_at(which) + at).swap(0, SeqCst))
    }

    // ---- Extents whose copies are all lost.

    /// Donors with which an earlier content of the extent was lost, a bit each.
    #[must_use]
    pub fn lost_with(&self, extent: u32) -> u64 {
        self.extent_at(extent, LOST_WITH_AT).load(SeqCst)
    }

    /// Makes an extent a new one whose copies are all lost for good; false where one is left. What it held
    /// is gone: its slots are not live any more. For the supervisor alone.
    pub fn clear_extent(&self, extent: u32) -> bool {
        let seen = self.snapshot(extent);
        let has_any = (0..MAX_COPIES).any(|copy| self.is_whole(&seen, copy));
        let clearing =
            ExtentState { phase: Phase::Clearing, copies: [Copy::Absent; MAX_COPIES], ..seen.state };
        if seen.state.phase != Phase::Placed || has_any || !self.change(extent, seen.state, clearing) {
            return false;
        }
        let donors = seen.places.iter().flatten().fold(0, |all, place| all | 1 << place.donor);
        self.extent_at(extent, LOST_WITH_AT).fetch_or(donors, SeqCst);
        for which in [Which::Live, Which::Dirty, Which::Barred, Which::Awaited] {
            let _ = self.take_bits(extent, which);
        }
        (0..MAX_COPIES).for_each(|copy| self.place_word(extent, copy).store(0, SeqCst));
        let now = self.state(extent);
        self.words[PLACED_AT].fetch_sub(1, SeqCst);
        self.change(extent, now, ExtentState { phase: Phase::Unplaced, ..now })
    }
}

/// No donor can be had for an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoDonor;
