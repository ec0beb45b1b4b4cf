//! The donors in the table: how each is, where it is reached, which of its memory is whose; how one joins a
//! run that is under way, and how one leaves it.
//!
//! A donor *joins* at a place that was kept for it: its words are written first, and the number of donors
//! goes up last, so who counts them sees whole ones. It keeps its place for as long as the run lasts.
//!
//! A donor that *leaves* (it is drained) serves on, takes no new copies, and its copies do not count as ones
//! that will last, so they are made anew elsewhere ([`crate::survey`]). The mark comes before the look at
//! what it still has, and who takes a place looks at the mark again after: so once the look finds nothing
//! ([`crate::survey::left_on`]), nothing can come there any more.

use std::sync::atomic::Ordering::SeqCst;

use crate::MAX_DONORS;
use crate::new_donor::{DONOR_WORDS, NewDonor, SPILL_DOMAIN, TEXT_BYTES};
use crate::placement::{Candidate, Chooser};
use crate::shared::AtomicU64;
use crate::table::{DONORS_AT, HEADER_WORDS, OWNERS_AT, SPILL_AT, Table};
use crate::words::{Condition, DonorWord, Place};

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
const LEAVING_AT: usize = 10;
const HIGH_LATENCY_AT: usize = 11;
const USUAL_LATENCY_AT: usize = 12;
const LATE_AT: usize = 13;
const HEDGED_AT: usize = 14;
const CLAIMED_AT: usize = 15;
const TEXT_AT: usize = 16;

const _: () = assert!(TEXT_AT + TEXT_BYTES / 8 <= DONOR_WORDS);

/// A donor whose word says so much is late; less is what it was overtaken since it was quick.
pub(crate) const LATE: u64 = 3;

impl<'a> Table<'a> {
    /// What chooses among the donors that there are now.
    #[must_use]
    pub fn chooser(&self) -> Chooser {
        let domains: Vec<u32> = (0..self.donors()).map(|donor| self.domain(donor)).collect();
        Chooser::new(&domains, self.wanted_copies())
    }

    /// Keeps a list of owners for a donor, which begins at this word.
    pub(crate) fn keep_list(&self, donor: usize, start: usize, length: u32) {
        self.words()[OWNERS_AT + donor].store(start as u64, SeqCst);
        self.donor_at(donor, OWNERS_LENGTH_AT).store(u64::from(length), SeqCst);
    }

    /// Where the list of a donor's owners ends, in words.
    pub(crate) fn list_end(&self, donor: usize) -> usize {
        self.owners_start(donor) + self.donor_load(donor, OWNERS_LENGTH_AT) as usize
    }

    /// Writes a donor's words, which nobody looks at yet.
    pub(crate) fn enter(&self, index: usize, donor: &NewDonor) {
        let put = |at, value| self.donor_at(index, at).store(value, SeqCst);
        put(CAPACITY_AT, u64::from(donor.capacity).min(self.donor_load(index, OWNERS_LENGTH_AT)));
        put(DOMAIN_AT, u64::from(donor.domain));
        put(WORD_AT, DonorWord::FIRST.pack());
        if donor.domain == SPILL_DOMAIN {
            self.words()[SPILL_AT].store(index as u64 + 1, SeqCst);
        }
        for (at, bytes) in donor.text.as_bytes().chunks(8).take(TEXT_BYTES / 8).enumerate() {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            put(TEXT_AT + at, u64::from_le_bytes(word));
        }
    }

    /// Whether a donor can still join.
    #[must_use]
    pub fn has_place(&self) -> bool {
        let next = self.donors();
        next < MAX_DONORS && self.donor_load(next, OWNERS_LENGTH_AT) > 0
    }

    /// Lets a donor join, of which at most so much memory is used as one copy of every extent takes. Its
    /// number; `None` where no place is left. For the supervisor alone.
    pub fn join(&self, donor: &NewDonor) -> Option<usize> {
        if !self.has_place() {
            return None;
        }
        let index = self.donors();
        if self.planted("joined-domain-forgotten") {
            self.enter(index, &NewDonor { domain: u32::MAX, ..donor.clone() });
        } else {
            self.enter(index, donor);
        }
        self.words()[DONORS_AT].store(index as u64 + 1, SeqCst);
        self.note_room_news();
        Some(index)
    }

    /// Whether a donor takes no new copies, and those that it has are moved elsewhere.
    #[must_use]
    pub fn is_leaving(&self, donor: usize) -> bool {
        self.donor_load(donor, LEAVING_AT) != 0
    }

    /// Says whether a donor is leaving. For the supervisor alone.
    pub fn set_leaving(&self, donor: usize, is_leaving: bool) {
        let is_closed = is_leaving || (self.is_leaving(donor) && self.planted("stayed-donor-closed"));
        let was_leaving = self.donor_at(donor, LEAVING_AT).swap(is_closed.into(), SeqCst) != 0;
        if was_leaving && !is_leaving && !self.planted("stayed-room-not-noted") {
            self.note_room_of(donor);
        }
    }

    /// Whether a donor is a server of another kind, whose export the run has claimed.
    #[must_use]
    pub fn is_claimed(&self, donor: usize) -> bool {
        self.donor_load(donor, CLAIMED_AT) != 0
    }

    /// Says whether it is. For the supervisor alone.
    pub fn set_claimed(&self, donor: usize, is_claimed: bool) {
        self.donor_at(donor, CLAIMED_AT).store(is_claimed.into(), SeqCst);
    }

    /// Ends a donor's part in the run once nothing is left on it ([`crate::survey::left_on`]): what it had is
    /// none of the run's from now on, and it may forget it. For the supervisor alone.
    pub fn end_part(&self, donor: usize, now_ms: u64) {
        // First, so that nobody finds memory in the life that begins.
        self.set_memory(donor, 0);
        self.begin_life(donor, now_ms);
    }

    pub(crate) fn donor_at(&self, donor: usize, at: usize) -> &'a AtomicU64 {
        &self.words()[HEADER_WORDS + donor * DONOR_WORDS + at]
    }

    pub(crate) fn donor_load(&self, donor: usize, at: usize) -> u64 {
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

    /// Notes that a donor of this life and epoch was silent, or is away. The last resort is never away: it
    /// may only take nothing more.
    pub fn complain(&self, donor: usize, seen: DonorWord, condition: Condition, now_ms: u64) {
        let condition = if self.is_spill(donor) { condition.min(Condition::Suspect) } else { condition };
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

    /// What nearly all of a donor's answers kept to ([`crate::hedge`]).
    pub(crate) fn high_latency(&self, donor: usize) -> &'a AtomicU64 {
        self.donor_at(donor, HIGH_LATENCY_AT)
    }

    /// How long its answers to the supervisor usually take.
    pub(crate) fn usual_latency(&self, donor: usize) -> &'a AtomicU64 {
        self.donor_at(donor, USUAL_LATENCY_AT)
    }

    /// Whether reads go elsewhere first, since the donor was slow to answer.
    #[must_use]
    pub fn is_late(&self, donor: usize) -> bool {
        self.donor_load(donor, LATE_AT) >= LATE
    }

    pub(crate) fn set_late(&self, donor: usize, is_late: bool) {
        let (word, wanted) = (self.donor_at(donor, LATE_AT), if is_late { LATE } else { 0 });
        if word.load(SeqCst) != wanted {
            word.store(wanted, SeqCst);
        }
    }

    /// Notes that others were quicker than the donor, which weighs so much towards its being late.
    pub(crate) fn note_overtaken(&self, donor: usize, weight: u64) {
        let more = |before: u64| Some((before + weight).min(LATE));
        let _ = self.donor_at(donor, LATE_AT).fetch_update(SeqCst, SeqCst, more);
    }

    /// Notes that the donor has answered in its usual time: if it is not late, that it was overtaken before
    /// weighs nothing any more.
    pub(crate) fn note_in_time(&self, donor: usize) {
        let word = self.donor_at(donor, LATE_AT);
        let before = word.load(SeqCst);
        if (1..LATE).contains(&before) {
            let _ = word.compare_exchange(before, 0, SeqCst, SeqCst);
        }
    }

    pub(crate) fn count_hedged(&self, donor: usize) {
        self.donor_at(donor, HEDGED_AT).fetch_add(1, SeqCst);
    }

    /// Reads that were asked of another donor too, since this one was silent for longer than usual.
    #[must_use]
    pub fn hedged(&self, donor: usize) -> u64 {
        self.donor_load(donor, HEDGED_AT)
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
        &self.words()[self.owners_start(donor) + extent as usize]
    }

    /// Takes an extent of a donor's memory for one of the pool's. `None` where none is free, or the donor is
    /// down, or leaving.
    #[must_use]
    pub fn take_place(&self, donor: usize, extent: u32) -> Option<Place> {
        // A donor that is down may be amid the beginning of a new life, whose list is about to be cleared.
        let DonorWord { condition, life, .. } = self.donor(donor);
        let is_closed = || self.is_leaving(donor) && !self.planted("leaving-donor-taken");
        if condition == Condition::Down || is_closed() {
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
        if is_closed() {
            // Whoever ends the donor's part looks for owners after the mark.
            self.free_place(donor, free, extent);
            return None;
        }
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
            self.note_room_of(donor);
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
        self.note_room_of(donor);
    }

    /// The donor answers again in this life, if that is its present one.
    pub fn come_up(&self, donor: usize, life: u16) {
        loop {
            let before = self.donor(donor);
            let after = DonorWord { condition: Condition::Up, epoch: before.epoch.wrapping_add(1), ..before };
            if before.condition == Condition::Up || before.life != life {
                return;
            }
            if self.change_donor(donor, before, after) {
                self.note_room_of(donor);
                return;
            }
        }
    }

    /// The donors, for a choice among them.
    #[must_use]
    pub fn candidates(&self) -> Vec<Candidate> {
        let each = (0..self.donors()).map(|donor| {
            let (capacity, used) = self.room(donor);
            let is_leaving = self.is_leaving(donor) && !self.planted("leaving-donor-taken");
            // Which the last resort is where no donor can be had, and never sooner.
            let is_spill = self.is_spill(donor) && !self.planted("spill-taken-as-donor");
            let is_well = self.donor(donor).condition == Condition::Up && !is_leaving && !is_spill;
            Candidate { domain: self.domain(donor), free: capacity.saturating_sub(used), is_well }
        });
        each.collect()
    }
}
