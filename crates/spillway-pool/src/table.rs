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

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use crate::bits::{BITS_WORDS, Bits};
use crate::placement::{Candidate, Chooser};
use crate::words::{Condition, Copy, DonorWord, ExtentState, Phase, Place};
use crate::{MAX_COPIES, MAX_DONORS};

const MAGIC: u64 = 0x5350_494C_504F_4F01;
const HEADER_WORDS: usize = 64;
const DONOR_WORDS: usize = 32;
const EXTENT_WORDS: usize = 32;
/// Bytes of the text that can be kept with a donor.
pub const TEXT_BYTES: usize = 16 * 8;

const MAGIC_AT: usize = 0;
const DONORS_AT: usize = 1;
const WANTED_AT: usize = 2;
const LEAST_AT: usize = 3;
const EXTENTS_AT: usize = 4;
const PLACED_AT: usize = 5;
const READS_AT: usize = 6;
/// Where each donor's list of owners begins, in words.
const OWNERS_AT: usize = 16;

const WORD_AT: usize = 0;
const CAPACITY_AT: usize = 1;
const USED_AT: usize = 2;
const DOMAIN_AT: usize = 3;
const SILENCE_AT: usize = 4;
const HINT_AT: usize = 5;
const SINCE_AT: usize = 6;
const OWNERS_LENGTH_AT: usize = 7;
const FETCHED_AT: usize = 8;
const WRITTEN_AT: usize = 9;
const TEXT_AT: usize = 16;

const STATE_AT: usize = 0;
const PLACES_AT: usize = 1;
/// A bit for each donor that an extent was lost with.
const LOST_WITH_AT: usize = 5;
const LIVE_AT: usize = 8;
const DIRTY_AT: usize = LIVE_AT + BITS_WORDS;
const BARRED_AT: usize = DIRTY_AT + BITS_WORDS;

const _: () = assert!(BARRED_AT + BITS_WORDS <= EXTENT_WORDS && PLACES_AT + MAX_COPIES <= LOST_WITH_AT);
const _: () = assert!(OWNERS_AT + MAX_DONORS <= HEADER_WORDS && TEXT_AT + TEXT_BYTES / 8 <= DONOR_WORDS);

/// A donor as a pool begins with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewDonor {
    /// Extents of memory that it lends.
    pub capacity: u32,
    /// Number of its failure domain.
    pub domain: u32,
    /// Where it is reached: kept for those who open the table.
    pub text: String,
}

/// Words that a table takes.
#[must_use]
pub fn words_of(donors: &[NewDonor], extents: u32) -> usize {
    let owners: usize = donors.iter().map(|donor| donor.capacity as usize).sum();
    HEADER_WORDS + MAX_DONORS * DONOR_WORDS + owners + extents as usize * EXTENT_WORDS
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
    bug: &'static str,
}

impl<'a> Table<'a> {
    /// Makes a table of words that are all zero.
    #[must_use]
    pub fn create(
        words: &'a [AtomicU64],
        donors: &[NewDonor],
        extents: u32,
        wanted: usize,
        least: usize,
    ) -> Self {
        let table = Self { words, bug: "" };
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
            words[OWNERS_AT + index].store(owners as u64, SeqCst);
            owners += donor.capacity as usize;
            let put = |at, value| table.donor_at(index, at).store(value, SeqCst);
            put(CAPACITY_AT, u64::from(donor.capacity));
            put(OWNERS_LENGTH_AT, u64::from(donor.capacity));
            put(DOMAIN_AT, u64::from(donor.domain));
            put(WORD_AT, DonorWord::FIRST.pack());
            for (at, bytes) in donor.text.as_bytes().chunks(8).take(TEXT_BYTES / 8).enumerate() {
                let mut word = [0; 8];
                word[..bytes.len()].copy_from_slice(bytes);
                put(TEXT_AT + at, u64::from_le_bytes(word));
            }
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
            && words[WANTED_AT].load(SeqCst) <= MAX_COPIES as u64;
        let table = Self { words, bug: "" };
        let end = |donor| table.owners_start(donor) + table.donor_load(donor, OWNERS_LENGTH_AT) as usize;
        (is_one && (0..table.donors()).all(|donor| end(donor) <= words.len())).then_some(table)
    }

    /// A table that was found to be one before ([`Self::open`]).
    #[must_use]
    pub fn known(words: &'a [AtomicU64]) -> Self {
        Self { words, bug: "" }
    }

    /// The same with a mistake in it, for the simulation to find.
    #[must_use]
    pub fn with_bug(self, bug: &'static str) -> Self {
        Self { bug, ..self }
    }

    pub(crate) fn planted(&self, bug: &str) -> bool {
        cfg!(feature = "planted-bugs") && self.bug == bug
    }

    fn header(&self, at: usize) -> u64 {
        self.words[at].load(SeqCst)
    }

    /// How many donors there are.
    #[must_use]
    pub fn donors(&self) -> usize {
        self.header(DONORS_AT) as usize
    }

    /// How many copies an extent should have.
    #[must_use]
    pub fn wanted_copies(&self) -> usize {
        self.header(WANTED_AT) as usize
    }

    /// How many a write needs to count.
    #[must_use]
    pub fn least_copies(&self) -> usize {
        self.header(LEAST_AT) as usize
    }

    /// How many extents the pool offers.
    #[must_use]
    pub fn extents(&self) -> u32 {
        self.header(EXTENTS_AT) as u32
    }

    /// Counts a read that somebody waits for.
    pub fn count_read(&self) {
        self.words[READS_AT].fetch_add(1, SeqCst);
    }

    /// Reads that somebody waited for.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.header(READS_AT)
    }

    fn donor_at(&self, donor: usize, at: usize) -> &'a AtomicU64 {
        &self.words[HEADER_WORDS + donor * DONOR_WORDS + at]
    }

    fn donor_load(&self, donor: usize, at: usize) -> u64 {
        self.donor_at(donor, at).load(SeqCst)
    }

    /// How a donor is.
    #[must_use]
    pub fn donor(&self, donor: usize) -> DonorWord {
        DonorWord::unpack(self.donor_load(donor, WORD_AT))
    }

    /// Changes how a donor is, if it is as `before`.
    pub fn change_donor(&self, donor: usize, before: DonorWord, after: DonorWord) -> bool {
        let word = self.donor_at(donor, WORD_AT);
        word.compare_exchange(before.pack(), after.pack(), SeqCst, SeqCst).is_ok()
    }

    /// Notes that a donor of this life and epoch was silent, or is away.
    pub fn complain(&self, donor: usize, seen: DonorWord, condition: Condition, now_ms: u64) {
        let now = self.donor(donor);
        if now.life == seen.life && now.epoch == seen.epoch && now.condition < condition {
            self.donor_at(donor, SINCE_AT).store(now_ms, SeqCst);
            let _ = self.change_donor(donor, now, DonorWord { condition, ..now });
        }
    }

    /// Since when the donor is not well, by the clock of who complained.
    #[must_use]
    pub fn ill_since_ms(&self, donor: usize) -> u64 {
        self.donor_load(donor, SINCE_AT)
    }

    /// Where a donor is reached.
    #[must_use]
    pub fn text(&self, donor: usize) -> String {
        let words = (0..TEXT_BYTES / 8).map(|at| self.donor_load(donor, TEXT_AT + at));
        let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).take_while(|byte| *byte != 0).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Number of a donor's failure domain.
    #[must_use]
    pub fn domain(&self, donor: usize) -> u32 {
        self.donor_load(donor, DOMAIN_AT) as u32
    }

    /// Extents that a donor lends, and those in use.
    #[must_use]
    pub fn room(&self, donor: usize) -> (u32, u32) {
        (self.donor_load(donor, CAPACITY_AT) as u32, self.donor_load(donor, USED_AT) as u32)
    }

    /// How long a read may be silent before another copy is asked, in microseconds; 0 where nobody has said.
    #[must_use]
    pub fn silence_us(&self, donor: usize) -> u64 {
        self.donor_load(donor, SILENCE_AT)
    }

    /// Says how long a read may be silent.
    pub fn set_silence_us(&self, donor: usize, silence_us: u64) {
        self.donor_at(donor, SILENCE_AT).store(silence_us, SeqCst);
    }

    /// Counts pages that were read from a donor.
    pub fn count_fetched(&self, donor: usize, pages: u64) {
        self.donor_at(donor, FETCHED_AT).fetch_add(pages, SeqCst);
    }

    /// Counts pages that a donor took.
    pub fn count_written(&self, donor: usize, pages: u64) {
        self.donor_at(donor, WRITTEN_AT).fetch_add(pages, SeqCst);
    }

    /// Pages read from a donor, and written to it.
    #[must_use]
    pub fn traffic(&self, donor: usize) -> (u64, u64) {
        (self.donor_load(donor, FETCHED_AT), self.donor_load(donor, WRITTEN_AT))
    }

    /// A place of the donor's present life.
    #[must_use]
    pub fn is_current(&self, place: Place) -> bool {
        self.donor(usize::from(place.donor)).life == place.life || self.planted("earlier-life-read")
    }

    // ---- The donors' memory.

    fn owners_start(&self, donor: usize) -> usize {
        self.header(OWNERS_AT + donor) as usize
    }

    pub(crate) fn owner(&self, donor: usize, extent: u32) -> &'a AtomicU64 {
        &self.words[self.owners_start(donor) + extent as usize]
    }

    /// Takes an extent of a donor's memory for one of the pool's. `None` where none is free, or the donor is
    /// down.
    #[must_use]
    pub fn take_place(&self, donor: usize, extent: u32) -> Option<Place> {
        // A donor that is down may be amid the beginning of a new life, whose list is about to be cleared.
        let DonorWord { condition, life, .. } = self.donor(donor);
        if condition == Condition::Down {
            return None;
        }
        let capacity = self.room(donor).0;
        let hint = self.donor_load(donor, HINT_AT) as u32;
        let start = if hint < capacity { hint } else { 0 };
        let free = (start..capacity).chain(0..start).find(|&own| {
            let owner = self.owner(donor, own);
            owner.load(SeqCst) == 0
                && owner.compare_exchange(0, u64::from(extent) + 1, SeqCst, SeqCst).is_ok()
        })?;
        self.donor_at(donor, USED_AT).fetch_add(1, SeqCst);
        self.donor_at(donor, HINT_AT).store(u64::from(free) + 1, SeqCst);
        Some(Place { donor: donor as u8, life, extent: free })
    }

    /// The extent of the pool that has this one of a donor's memory.
    #[must_use]
    pub fn owner_of(&self, donor: usize, extent: u32) -> Option<u32> {
        self.owner(donor, extent).load(SeqCst).checked_sub(1).map(|owner| owner as u32)
    }

    /// Frees an extent of a donor's memory that `owner` has. For the supervisor alone.
    pub fn free_place(&self, donor: usize, extent: u32, owner: u32) {
        let word = self.owner(donor, extent);
        if word.compare_exchange(u64::from(owner) + 1, 0, SeqCst, SeqCst).is_ok() {
            self.donor_at(donor, USED_AT).fetch_sub(1, SeqCst);
        }
    }

    /// Begins a new life of a donor that has lost what it held: all copies there are none from now on.
    pub fn begin_life(&self, donor: usize, now_ms: u64) {
        loop {
            let before = self.donor(donor);
            let after = DonorWord {
                condition: Condition::Down,
                life: before.life.wrapping_add(1).max(1),
                epoch: before.epoch,
            };
            if self.change_donor(donor, before, after) {
                self.donor_at(donor, SINCE_AT).store(now_ms, SeqCst);
                return;
            }
        }
    }

    /// Says how much memory a donor lends in its new life, all of it free.
    pub fn set_memory(&self, donor: usize, capacity: u32) {
        let length = self.donor_load(donor, OWNERS_LENGTH_AT) as u32;
        (0..length).for_each(|extent| self.owner(donor, extent).store(0, SeqCst));
        self.donor_at(donor, USED_AT).store(0, SeqCst);
        self.donor_at(donor, CAPACITY_AT).store(u64::from(capacity.min(length)), SeqCst);
    }

    /// The donor answers again, in its present life.
    pub fn come_up(&self, donor: usize) {
        loop {
            let before = self.donor(donor);
            let after = DonorWord { condition: Condition::Up, epoch: before.epoch.wrapping_add(1), ..before };
            if before.condition == Condition::Up || self.change_donor(donor, before, after) {
                return;
            }
        }
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
        let chosen = chooser.choose(&self.candidates(), &taken, left, dice);
        let Some(place) = chosen.and_then(|donor| self.take_place(donor, extent)) else {
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

    /// The donors, for a choice among them.
    #[must_use]
    pub fn candidates(&self) -> Vec<Candidate> {
        let each = (0..self.donors()).map(|donor| {
            let (capacity, used) = self.room(donor);
            let is_well = self.donor(donor).condition == Condition::Up;
            Candidate { domain: self.domain(donor), free: capacity.saturating_sub(used), is_well }
        });
        each.collect()
    }

    // ---- Bits.

    fn bits_at(which: Which) -> usize {
        match which {
            Which::Live => LIVE_AT,
            Which::Dirty => DIRTY_AT,
            Which::Barred => BARRED_AT,
        }
    }

    /// Sets bits of an extent.
    pub fn set_bits(&self, extent: u32, which: Which, bits: &Bits) {
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
        for which in [Which::Live, Which::Dirty, Which::Barred] {
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
