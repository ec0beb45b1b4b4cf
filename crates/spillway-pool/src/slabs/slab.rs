//! The slabs in the table: their words, where their parts lie, and which slot's page is where.

use std::sync::atomic::Ordering::SeqCst;

use crate::EXTENT_SLOTS;
use crate::shared::AtomicU64;
use crate::slabs::room::{Coding, MAX_PARTS, STREAMS, slab_words};
use crate::slabs::words::{LATE, Seat, SlabPhase, SlabWord, unpack_stream};
use crate::table::{HEADER_WORDS, OWNERS_AT, Table};
use crate::words::{Condition, Place};

const DATA_AT: usize = 48;
const PARITY_AT: usize = 49;
const SLABS_AT: usize = 50;
const SLOTS_AT: usize = 51;
const START_AT: usize = 52;
const HINT_AT: usize = 53;
const HURRY_AT: usize = 54;
const ROWS_AT: usize = 55;
const STREAMS_AT: usize = 56;
const COMING_ROOM_AT: usize = STREAMS_AT + STREAMS;
pub(crate) const ROOM_NEWS_AT: usize = COMING_ROOM_AT + 1;
pub(crate) const IN_VAIN_AT: usize = COMING_ROOM_AT + 2;
pub(crate) const FORGOTTEN_AT: usize = COMING_ROOM_AT + 3;
pub(crate) const LOOKED_AT: usize = COMING_ROOM_AT + 4;

const STATE_AT: usize = 0;
const PLACES_AT: usize = 1;
const CHECKS_AT: usize = crate::slabs::room::SLAB_WORDS;

const _: () = assert!(LOOKED_AT < HEADER_WORDS && OWNERS_AT + crate::MAX_DONORS <= DATA_AT);
const _: () = assert!(PLACES_AT + MAX_PARTS <= CHECKS_AT);

/// Rows that were given out to one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    /// The slab that they are of.
    pub slab: u32,
    /// The generation that they are of.
    pub generation: u32,
    /// From which row on.
    pub first: u16,
    /// How many rows there are.
    pub count: u16,
}

/// A slab as it was at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlabSeen {
    /// What its word says.
    pub word: SlabWord,
    /// Where its parts lie; `None` for one that it has not got.
    pub places: [Option<Place>; MAX_PARTS],
}

impl<'a> Table<'a> {
    /// Writes down how pages are coded; `start` is the first word that is free for it.
    pub(crate) fn lay_out(&self, coding: Coding, start: usize) {
        for (at, value) in [
            (DATA_AT, coding.data),
            (PARITY_AT, coding.parity),
            (SLABS_AT, coding.slabs as usize),
            (SLOTS_AT, coding.slots as usize),
            (START_AT, start),
            (ROWS_AT, usize::from(coding.rows)),
        ] {
            self.words()[at].store(value as u64, SeqCst);
        }
    }

    /// Whether all that a coded pool has is within the words.
    pub(crate) fn coding_fits(&self) -> bool {
        let parts = (self.header(DATA_AT), self.header(PARITY_AT));
        if parts == (0, 0) {
            return true;
        }
        let is_known = parts.0 <= crate::slabs::room::MOST_DATA as u64
            && parts.1 <= crate::slabs::room::MOST_PARITY as u64;
        let end = |coding: Coding| (self.header(START_AT) as usize).checked_add(coding.words());
        is_known && self.coding().and_then(end).is_some_and(|end| end <= self.words().len())
    }

    /// How pages are coded; `None` where there are copies of them.
    #[must_use]
    pub fn coding(&self) -> Option<Coding> {
        let (data, parity) = (self.header(DATA_AT) as usize, self.header(PARITY_AT) as usize);
        let (slabs, slots) = (self.header(SLABS_AT) as u32, self.header(SLOTS_AT) as u32);
        (data > 0).then_some(Coding { data, parity, slabs, slots, rows: self.rows() })
    }

    /// Extents of its own with which a donor can be of use, at most, beside those to spare.
    #[must_use]
    pub fn most_of_a_donor(&self) -> u32 {
        self.coding().map_or(self.extents(), |coding| coding.slabs)
    }

    /// Slots that the pool offers.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.coding().map_or(self.extents() * EXTENT_SLOTS, |coding| coding.slots)
    }

    pub(crate) fn data_parts(&self) -> usize {
        self.header(DATA_AT) as usize
    }

    pub(crate) fn parts(&self) -> usize {
        (self.header(DATA_AT) + self.header(PARITY_AT)) as usize
    }

    /// Rows of a slab.
    pub(crate) fn rows(&self) -> u16 {
        self.header(ROWS_AT) as u16
    }

    /// How many slabs there are.
    #[must_use]
    pub fn slabs(&self) -> u32 {
        self.header(SLABS_AT) as u32
    }

    fn slab_at(&self, slab: u32, at: usize) -> &'a AtomicU64 {
        let start = self.header(START_AT) as usize;
        &self.words()[start + slab as usize * slab_words(self.data_parts()) + at]
    }

    /// The state of a slab now.
    #[must_use]
    pub fn slab(&self, slab: u32) -> SlabWord {
        SlabWord::unpack(self.slab_at(slab, STATE_AT).load(SeqCst))
    }

    /// Changes a slab's state, if it is as `before`.
    pub(crate) fn change_slab(&self, slab: u32, before: SlabWord, after: SlabWord) -> bool {
        let word = self.slab_at(slab, STATE_AT);
        word.compare_exchange(before.pack(), after.pack(), SeqCst, SeqCst).is_ok()
    }

    /// Where a part of a slab lies.
    pub(crate) fn part_word(&self, slab: u32, part: usize) -> &'a AtomicU64 {
        self.slab_at(slab, PLACES_AT + part)
    }

    /// A slab's state and places, of one generation and phase.
    #[must_use]
    pub fn see_slab(&self, slab: u32) -> SlabSeen {
        loop {
            let word = self.slab(slab);
            let mut places = [None; MAX_PARTS];
            for (part, place) in places.iter_mut().enumerate().take(self.parts()) {
                *place = Place::unpack(self.part_word(slab, part).load(SeqCst));
            }
            let now = self.slab(slab);
            if (now.generation, now.phase) == (word.generation, word.phase) {
                return SlabSeen { word: now, places };
            }
        }
    }

    /// Whether a part is there: in its donor's present life.
    #[must_use]
    pub fn has_part(&self, seen: &SlabSeen, part: usize) -> bool {
        seen.places[part].is_some_and(|place| self.is_current(place))
    }

    /// Whether all parts of a slab can take pages now.
    pub(crate) fn takes_pages(&self, seen: &SlabSeen) -> bool {
        let is_well = |place: &Place| {
            let donor = usize::from(place.donor);
            let condition = self.donor(donor).condition;
            let is_down = condition == Condition::Down;
            // The last resort is never away: it may only take nothing more.
            let is_closed = self.is_spill(donor) && condition != Condition::Up;
            self.is_current(*place) && !is_down && !is_closed && !self.is_leaving(donor)
        };
        seen.word.phase == SlabPhase::Open
            && seen.word.claimed < self.rows()
            && seen.places.iter().flatten().all(is_well)
    }

    /// Gives out up to `wanted` rows of a slab to the caller alone. `None` where there is none any more.
    pub(crate) fn claim_rows(&self, slab: u32, generation: u32, wanted: u16) -> Option<Rows> {
        loop {
            let word = self.slab(slab);
            let left = self.rows().saturating_sub(word.claimed);
            let is_open = (word.generation, word.phase) == (generation, SlabPhase::Open);
            let count = wanted.min(left);
            if !is_open || count == 0 {
                return None;
            }
            let claimed = word.claimed + if self.planted("rows-given-twice") { count / 2 } else { count };
            if self.change_slab(slab, word, SlabWord { claimed, ..word }) {
                return Some(Rows { slab, generation, first: word.claimed, count });
            }
        }
    }

    /// Notes that a write is over. Where it may come late is noted before ([`Self::expect_late`]).
    pub(crate) fn end_rows(&self, rows: &Rows) {
        loop {
            let word = self.slab(rows.slab);
            if word.generation != rows.generation {
                return;
            }
            let after = SlabWord { ended: word.ended + rows.count, ..word };
            if self.change_slab(rows.slab, word, after) {
                return;
            }
        }
    }

    /// Notes that what was sent to a part may come late, though nobody waits for it any more. By who has
    /// claimed rows of the slab, and before their write is over: until then the slab does not end but without
    /// its places, so none of them can be another's.
    pub(crate) fn expect_late(&self, slab: u32, generation: u32, part: usize) {
        if self.planted("late-write-forgotten") {
            return;
        }
        let part = if self.planted("late-part-mistaken") { (part + 1) % self.parts() } else { part };
        let word = self.part_word(slab, part);
        loop {
            let before = word.load(SeqCst);
            let has_place = Place::unpack(before).is_some() && self.slab(slab).generation == generation;
            if !has_place || before & LATE != 0 {
                return;
            }
            if word.compare_exchange(before, before | LATE, SeqCst, SeqCst).is_ok() {
                return;
            }
        }
    }

    /// Whether something may come late to a part of a slab.
    pub(crate) fn may_come_late(&self, slab: u32, part: usize) -> bool {
        self.part_word(slab, part).load(SeqCst) & LATE != 0
    }

    /// Rows that can still be given out of the slab that a stream writes to.
    pub(crate) fn rows_left(&self, stream: usize) -> u16 {
        let known = unpack_stream(self.stream_word(stream).load(SeqCst));
        let Some((slab, generation)) = known.filter(|(slab, _)| *slab < self.slabs()) else { return 0 };
        let seen = self.see_slab(slab);
        match seen.word.generation == generation && self.takes_pages(&seen) {
            true => self.rows().saturating_sub(seen.word.claimed),
            false => 0,
        }
    }

    /// Parts of the slab that a stream writes to, where rows of it are left.
    pub(crate) fn parts_of_stream(&self, stream: usize) -> usize {
        let known = unpack_stream(self.stream_word(stream).load(SeqCst));
        let slab = known.filter(|_| self.rows_left(stream) > 0).map(|(slab, _)| slab);
        let Some(seen) = slab.map(|slab| self.see_slab(slab)) else { return 0 };
        match self.is_safe_in_spill(&seen) {
            true => self.parts(),
            false => seen.places.iter().flatten().count(),
        }
    }

    /// Has nothing come to a slab any more. True where that is so, and it is of this generation.
    pub fn fence(&self, slab: u32, generation: u32) -> bool {
        loop {
            let word = self.slab(slab);
            match word.phase {
                _ if word.generation != generation => return false,
                SlabPhase::Fenced => return true,
                SlabPhase::Open => {}
                SlabPhase::Free | SlabPhase::Making | SlabPhase::Retired => return false,
            }
            if self.change_slab(slab, word, SlabWord { phase: SlabPhase::Fenced, ..word }) {
                return true;
            }
        }
    }

    /// Says that a page of a slab came wrong from a donor.
    pub fn hurt(&self, seat: Seat) {
        loop {
            let word = self.slab(seat.slab);
            let is_there = matches!(word.phase, SlabPhase::Open | SlabPhase::Fenced);
            if word.generation != seat.generation || !is_there || word.is_hurt {
                return;
            }
            if self.change_slab(seat.slab, word, SlabWord { is_hurt: true, ..word }) {
                return;
            }
        }
    }

    // ---- Streams.

    pub(crate) fn stream_word(&self, stream: usize) -> &'a AtomicU64 {
        &self.words()[STREAMS_AT + stream]
    }

    /// Whether some stream writes to this slab.
    #[must_use]
    pub fn is_in_stream(&self, slab: u32, generation: u32) -> bool {
        (0..STREAMS)
            .any(|stream| unpack_stream(self.stream_word(stream).load(SeqCst)) == Some((slab, generation)))
    }

    pub(crate) fn slab_hint(&self) -> &'a AtomicU64 {
        &self.words()[HINT_AT]
    }

    /// Asks the supervisor to make room.
    pub fn ask_for_room(&self) {
        self.words()[HURRY_AT].fetch_add(1, SeqCst);
    }

    /// Says that the donors that are there will have room for more than lives, once what is dead is cleared
    /// away; 0 where they will not. It holds until then, by the clock of all: a supervisor that was killed
    /// clears nothing away. For the supervisor alone.
    pub fn set_room_coming(&self, until_ms: u64, now_ms: u64) {
        let was_coming = now_ms < self.words()[COMING_ROOM_AT].swap(until_ms, SeqCst);
        if until_ms > now_ms && !was_coming {
            self.note_room_news();
        }
    }

    /// Whether room is to come, as the supervisor has found last: who finds none waits for it.
    #[must_use]
    pub fn is_room_coming(&self, now_ms: u64) -> bool {
        now_ms < self.header(COMING_ROOM_AT)
    }

    /// How often room was asked for.
    #[must_use]
    pub fn asked_for_room(&self) -> u64 {
        self.header(HURRY_AT)
    }

    // ---- Checks.

    fn check_word(&self, slab: u32, part: usize, row: u16) -> (&'a AtomicU64, u32) {
        let at = part * EXTENT_SLOTS as usize + usize::from(row);
        (self.slab_at(slab, CHECKS_AT + at / 2), at as u32 % 2 * 32)
    }

    /// What the page there must hash to; 0 where there is none: it counts as zeros.
    #[must_use]
    pub fn check(&self, slab: u32, part: usize, row: u16) -> u32 {
        let (word, shift) = self.check_word(slab, part, row);
        (word.load(SeqCst) >> shift) as u32
    }

    pub(crate) fn set_check(&self, slab: u32, part: usize, row: u16, check: u32) {
        let (word, shift) = self.check_word(slab, part, row);
        let put = |word: u64| Some(word & !(0xFFFF_FFFF << shift) | u64::from(check) << shift);
        let _ = word.fetch_update(SeqCst, SeqCst, put);
    }

    // ---- Slots.

    pub(crate) fn slot_word(&self, slot: u32) -> &'a AtomicU64 {
        let slabs = self.slabs() as usize * slab_words(self.data_parts());
        &self.words()[self.header(START_AT) as usize + slabs + slot as usize]
    }

    /// Where a slot's page is.
    #[must_use]
    pub fn seat(&self, slot: u32) -> Option<Seat> {
        Seat::unpack(self.slot_word(slot).load(SeqCst))
    }

    /// Forgets a slot's page.
    pub fn forget(&self, slot: u32) {
        if self.slot_word(slot).swap(0, SeqCst) != 0 {
            self.words()[FORGOTTEN_AT].fetch_add(1, SeqCst);
        }
    }
}
