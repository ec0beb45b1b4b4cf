//! Memory that no page needs any more goes back to the donors, before it is used again.
//!
//! **What may be discarded.** An extent of a donor's memory is discarded only once no slab names it any more,
//! and before it is another's. A slab ends, and names its places no more, only if it was fenced, and a look
//! over all slots that began after the fence found none that names it ([`crate::slabs::census`]). So from
//! then on
//!
//! * no slot has its page there, whoever holds the slot: slots are the whole run's, forked children included;
//! * what was moved away is at every part of its new row: only then its slot names that row
//!   ([`crate::slabs::append`]);
//! * nothing that is written there can count, for the slab is not open;
//! * who found a page there before it was moved may still read it, a repair or another move too, and gets
//!   zeros, or what was written there since. That is never taken for the page: its slot's word is another by
//!   then, and what was read counts only where it is the same ([`crate::slabs::locate::still_counts`]). It is
//!   read anew, from where it is.
//!
//! **What may come late.** A discard that its donor has not answered may come once the place is another's, as
//! a write may. The order: (1) the slab becomes free without its places: they have its number for an owner
//! still, so nobody takes them, and no slab names them, so none is ever written there; (2) their donors are
//! sent the discards, where no write can come late ([`crate::slabs::reclaim`] says of which places that is
//! known); (3) a place whose donor has answered is free. One whose donor has not waits until nothing can come
//! any more, as all do that a killed supervisor leaves: who follows it cannot tell whether they were sent
//! something, and which donor has answered.

use std::sync::atomic::Ordering::SeqCst;

use crate::slabs::reclaim::Unnamed;
use crate::slabs::words::{SlabPhase, SlabWord};
use crate::table::Table;
use crate::words::Place;

impl Table<'_> {
    /// Makes a retired slab free: what it held is no more. Returns those of its places to which nothing can
    /// come any more, which are to be discarded. For the supervisor alone, which may be killed at any step of
    /// it and do it anew: places that are not named any more by then are found by a sweep.
    #[must_use]
    pub fn free_slab(&self, slab: u32) -> Vec<Unnamed> {
        let word = self.slab(slab);
        if word.phase != SlabPhase::Retired {
            return Vec::new();
        }
        // Nobody claims rows of it any more. Whose write is over has noted before what may come late.
        let is_over = word.is_quiet();
        let generation = match self.planted("generation-kept") {
            true => word.generation,
            false => word.next_generation(),
        };
        let mut quiet = Vec::new();
        for part in 0..self.parts() {
            let named = self.part_word(slab, part);
            let is_quiet = is_over && !self.may_come_late(slab, part);
            let place = Place::unpack(named.load(SeqCst)).filter(|place| self.is_current(*place));
            let is_left = |_: &Place| is_quiet || self.planted("late-write-not-awaited");
            quiet.extend(place.filter(is_left).map(|place| Unnamed { slab, place }));
            named.store(generation.into(), SeqCst);
        }
        let after = SlabWord { generation, phase: SlabPhase::Free, claimed: 0, ended: 0, is_hurt: false };
        // A write that ends at this moment changes the word.
        while !self.change_slab(slab, self.slab(slab), after) {}
        self.note_room_news();
        if self.planted("freed-before-discard") {
            quiet.iter().for_each(|unnamed| self.free_unnamed(*unnamed));
        }
        quiet
    }

    /// Whether a place is still that of the slab that has ended: nobody else has it, so it may be discarded.
    #[must_use]
    pub fn is_left(&self, unnamed: Unnamed) -> bool {
        let Unnamed { slab, place } = unnamed;
        let owner = self.owner_of(usize::from(place.donor), place.extent);
        self.is_current(place) && (owner == Some(slab) || self.planted("freed-before-discard"))
    }

    /// Frees a place that no slab names, and that was discarded. For the supervisor alone. Whatever becomes
    /// of the slab's number meanwhile: it takes only places that are free.
    pub fn free_unnamed(&self, unnamed: Unnamed) {
        let Unnamed { slab, place } = unnamed;
        if self.is_current(place) {
            self.free_place(usize::from(place.donor), place.extent, slab);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;
    use crate::new_donor::NewDonor;
    use crate::slabs::append::{Append, Item, Outcome, Step};
    use crate::slabs::census::Census;
    use crate::slabs::reclaim::{Answer, Patience, Reclaim};
    use crate::slabs::room::Coding;
    use crate::table::{Terms, words_of};
    use crate::words::Condition;

    const SLOTS: u32 = 4;
    const PATIENCE_MS: u64 = 10;
    const PATIENCE: Patience = Patience { write_ms: 2, late_ms: PATIENCE_MS };

    fn words() -> Vec<AtomicU64> {
        let donor = |domain| NewDonor { capacity: 4, domain, text: String::new() };
        let donors: Vec<NewDonor> = (0..3).map(donor).collect();
        let coding = Coding { data: 2, parity: 1, slabs: 8, slots: SLOTS, rows: 4 };
        let terms = Terms { extents: 0, wanted: 3, least: 2, joining: 0, coding: Some(coding) };
        let words: Vec<AtomicU64> = (0..words_of(&donors, terms)).map(|_| AtomicU64::new(0)).collect();
        let _ = Table::create(&words, &donors, terms);
        words
    }

    /// Writes to all slots, and drops them again: their slab is retired. What was sent to the parts in `late`
    /// was not answered.
    fn retired(table: &Table<'_>, late: u16) -> u32 {
        let items = (0..SLOTS).map(|slot| Item { slot, check: 1, from: None }).collect();
        let mut append = Append::new(0, items, 1);
        let slab = loop {
            match append.step(table, &table.chooser()) {
                Step::Send(_) => {
                    let _ = append.sent(table, true, late);
                }
                Step::Done(Outcome::Stored { .. }) => break table.seat(0).map_or(0, |seat| seat.slab),
                Step::Done(outcome) => panic!("{outcome:?}"),
                Step::Again | Step::Pause => {}
            }
        };
        retire(table, slab);
        slab
    }

    fn retire(table: &Table<'_>, slab: u32) {
        (0..SLOTS).for_each(|slot| table.forget(slot));
        assert!(table.fence(slab, table.slab(slab).generation));
        let mut census = Census::begin(table);
        assert!(census.go_on(table, SLOTS));
        census.retire(table);
        assert_eq!(table.slab(slab).phase, SlabPhase::Retired);
    }

    fn used(table: &Table<'_>) -> u32 {
        (0..table.donors()).map(|donor| table.room(donor).1).sum()
    }

    fn sweep(reclaim: &mut Reclaim, table: &Table<'_>, now_ms: u64) -> usize {
        reclaim.sweep(table, now_ms, PATIENCE_MS)
    }

    fn take(reclaim: &mut Reclaim, table: &Table<'_>) -> Vec<Unnamed> {
        reclaim.take_quiet(table, 100)
    }

    #[test]
    fn places_are_free_once_their_donors_have_answered() {
        let words = words();
        let table = Table::known(&words);
        let slab = retired(&table, 0);
        let mut reclaim = Reclaim::default();
        assert_eq!(reclaim.free_slabs(&table, 1, PATIENCE), 1);
        assert_eq!((table.slab(slab).phase, used(&table)), (SlabPhase::Free, 3), "nobody may have them yet");
        assert_eq!(sweep(&mut reclaim, &table, 1), 0);
        let mut quiet = reclaim.take_quiet(&table, 2);
        quiet.extend(take(&mut reclaim, &table));
        assert_eq!((quiet.len(), take(&mut reclaim, &table).len()), (3, 0));
        // One donor does not answer.
        for (unnamed, answer) in quiet.into_iter().zip([Answer::Forgotten, Answer::Silent, Answer::Forgotten])
        {
            reclaim.note(&table, unnamed, answer, 2);
        }
        assert_eq!((used(&table), take(&mut reclaim, &table).len()), (1, 0));
        assert_eq!([1, 2].map(|now_ms| sweep(&mut reclaim, &table, now_ms + PATIENCE_MS)), [0, 1]);
        // Nor does it answer now: it is waited for anew.
        let silent = take(&mut reclaim, &table);
        reclaim.note(&table, silent[0], Answer::Silent, 2 + PATIENCE_MS);
        assert_eq!([1, 2].map(|now_ms| sweep(&mut reclaim, &table, now_ms + 2 * PATIENCE_MS)), [0, 1]);
        let silent = take(&mut reclaim, &table);
        reclaim.note(&table, silent[0], Answer::Forgotten, 2 + 2 * PATIENCE_MS);
        assert_eq!(used(&table), 0);
    }

    #[test]
    fn what_one_donor_has_not_answered_keeps_no_place_of_another() {
        let words = words();
        let table = Table::known(&words);
        let _ = retired(&table, 0b010);
        let mut reclaim = Reclaim::default();
        assert_eq!(reclaim.free_slabs(&table, 1, PATIENCE), 1);
        let quiet = take(&mut reclaim, &table);
        assert_eq!(quiet.len(), 2);
        quiet.into_iter().for_each(|unnamed| reclaim.note(&table, unnamed, Answer::Forgotten, 1));
        assert_eq!(used(&table), 1);
        assert_eq!(
            [1, PATIENCE_MS, 1 + PATIENCE_MS].map(|now_ms| sweep(&mut reclaim, &table, now_ms)),
            [0, 0, 1]
        );
    }

    #[test]
    fn a_donor_that_was_away_is_asked_when_it_is_back() {
        let words = words();
        let table = Table::known(&words);
        let _ = retired(&table, 0);
        let mut reclaim = Reclaim::default();
        table.complain(2, table.donor(2), Condition::Down, 1);
        assert_eq!(reclaim.free_slabs(&table, 1, PATIENCE), 1);
        let quiet = take(&mut reclaim, &table);
        assert_eq!((quiet.len(), take(&mut reclaim, &table).len()), (2, 0));
        quiet.into_iter().for_each(|unnamed| reclaim.note(&table, unnamed, Answer::Forgotten, 1));
        table.come_up(2, 1);
        let quiet = take(&mut reclaim, &table);
        assert_eq!((quiet.len(), used(&table)), (1, 1));
        // It goes again before anything was sent.
        reclaim.note(&table, quiet[0], Answer::NotAsked, 2);
        assert_eq!(take(&mut reclaim, &table), quiet);
        // In another life it has none of it.
        reclaim.note(&table, quiet[0], Answer::NotAsked, 2);
        table.begin_life(2, 3);
        table.set_memory(2, 4);
        table.come_up(2, 2);
        assert!(take(&mut reclaim, &table).is_empty());
    }

    #[test]
    fn the_time_before_a_donor_came_up_between_two_sweeps_does_not_count() {
        let words = words();
        let table = Table::known(&words);
        let _ = retired(&table, 0b111);
        let mut reclaim = Reclaim::default();
        assert_eq!(reclaim.free_slabs(&table, 1, PATIENCE), 1);
        assert_eq!([1, 10].map(|now_ms| sweep(&mut reclaim, &table, now_ms)), [0, 0]);
        table.complain(1, table.donor(1), Condition::Down, 10);
        table.come_up(1, 1);
        assert_eq!([11, 20, 21].map(|now_ms| sweep(&mut reclaim, &table, now_ms)), [2, 0, 1]);
    }

    #[test]
    fn what_a_killed_supervisor_has_sent_or_a_write_may_come_late_so_places_are_kept() {
        let words = words();
        let table = Table::known(&words);
        let slab = retired(&table, 0);
        let mut killed = Reclaim::default();
        assert_eq!(killed.free_slabs(&table, 1, PATIENCE), 1);
        assert_eq!(take(&mut killed, &table).len(), 3);
        // It was killed here, and another follows.
        let mut reclaim = Reclaim::default();
        assert_eq!(reclaim.free_slabs(&table, 1, PATIENCE), 0);
        assert_eq!((table.slab(slab).phase, used(&table)), (SlabPhase::Free, 3));
        assert_eq!([1, PATIENCE_MS].map(|now_ms| sweep(&mut reclaim, &table, now_ms)), [0, 0]);
        assert!(take(&mut reclaim, &table).is_empty());
        assert_eq!(sweep(&mut reclaim, &table, 1 + PATIENCE_MS), 3);
    }

    #[test]
    fn who_still_writes_is_waited_for_and_then_its_places_are_kept() {
        let words = words();
        let table = Table::known(&words);
        let slab = retired(&table, 0);
        let mut reclaim = Reclaim::default();
        assert_eq!(reclaim.free_slabs(&table, 1, PATIENCE), 1);
        take(&mut reclaim, &table).into_iter().for_each(|unnamed| {
            reclaim.note(&table, unnamed, Answer::Forgotten, 1);
        });
        // A write claims rows, and its process is killed.
        let items = (0..SLOTS).map(|slot| Item { slot, check: 1, from: None }).collect();
        let mut append = Append::new(0, items, 1);
        let sending = loop {
            if let Step::Send(sending) = append.step(&table, &table.chooser()) {
                break sending;
            }
        };
        assert_ne!(sending.rows.slab, slab);
        retire(&table, sending.rows.slab);
        let gives_back = |reclaim: &Reclaim, within_ms| reclaim.gives_back_within(within_ms, 6, PATIENCE);
        assert!(!gives_back(&reclaim, 100));
        assert_eq!([5, 6].map(|now_ms| reclaim.free_slabs(&table, now_ms, PATIENCE)), [0, 0]);
        assert_eq!([0, 1].map(|within_ms| gives_back(&reclaim, within_ms)), [false, true]);
        assert_eq!((reclaim.free_slabs(&table, 7, PATIENCE), take(&mut reclaim, &table).len()), (1, 0));
        assert_eq!(used(&table), 3);
    }

    #[test]
    fn a_slab_whose_maker_is_gone_is_given_back_once_that_was_waited_for() {
        let words = words();
        let table = Table::known(&words);
        let item = Item { slot: 0, check: 1, from: None };
        let mut append = Append::new(0, vec![item], 1);
        let is_made = || (0..table.slabs()).any(|slab| table.slab(slab).phase == SlabPhase::Making);
        while !is_made() {
            let _ = append.step(&table, &table.chooser());
        }
        let mut reclaim = Reclaim::default();
        assert_eq!(reclaim.free_slabs(&table, 1, PATIENCE), 0);
        let gives_back = |within_ms| reclaim.gives_back_within(within_ms, 1, PATIENCE);
        assert_eq!([PATIENCE_MS - 1, PATIENCE_MS].map(gives_back), [false, true]);
    }
}
