//! Memory that no page needs any more goes back to the donors, before it is used again.
//!
//! **What may be discarded.** An extent of a donor's memory is discarded only while it is a place of a slab
//! that is retired, or that no slab names any more; it is another's only after that. A slab is retired only
//! if it was fenced, and a look over all slots that began after the fence found none that names it
//! ([`crate::slabs::census`]). So at that time
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
//! a write may. The order: (1) the slab is marked as one to which something may come late; (2) its donors are
//! sent their discards, unless a write may come late already; (3) the slab becomes free, and of its places
//! those that were discarded. The others are named by nobody from then on, and so found by
//! [`crate::slabs::reclaim::Reclaim::sweep`] when nothing can come any more, and discarded then. The mark is
//! for who follows a supervisor that was killed between (2) and (3): it frees the slab without its places.

use std::sync::atomic::Ordering::SeqCst;

use crate::slabs::room::MAX_PARTS;
use crate::slabs::words::{SlabPhase, SlabWord};
use crate::table::Table;
use crate::words::Place;

/// Discards of one slab that are to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Discard {
    /// The slab, which is retired.
    pub slab: u32,
    /// Its places, which no page needs: all donors that can be reached are to forget what they hold there.
    pub places: [Option<Place>; MAX_PARTS],
}

impl Discard {
    /// The parts, and where they lie.
    pub fn parts(&self) -> impl Iterator<Item = (usize, Place)> + '_ {
        self.places.iter().enumerate().filter_map(|(part, place)| Some((part, (*place)?)))
    }
}

impl Table<'_> {
    /// Begins to give a retired slab's memory back: what its donors are to discard now, before it is freed
    /// ([`Table::free_slab`]). `None` where something may come to it late. For the supervisor alone.
    #[must_use]
    pub fn begin_discard(&self, slab: u32) -> Option<Discard> {
        let seen = self.see_slab(slab);
        let is_quiet = seen.word.is_quiet() || self.planted("late-write-not-awaited");
        if seen.word.phase != SlabPhase::Retired || !is_quiet {
            return None;
        }
        let marked = SlabWord { may_come_late: true, ..seen.word };
        if !self.planted("discard-not-noted") && !self.change_slab(slab, seen.word, marked) {
            return None;
        }
        let places = seen.places.map(|place| place.filter(|place| self.is_current(*place)));
        if self.planted("freed-before-discard") {
            places.iter().flatten().for_each(|place| {
                self.free_place(usize::from(place.donor), place.extent, slab);
            });
        }
        Some(Discard { slab, places })
    }

    /// Makes a retired slab free: what it held is no more. With it those of its places become free that were
    /// discarded, a bit each: every donor of them has answered. For the supervisor alone, which may be killed
    /// at any step of it and do it anew.
    pub fn free_slab(&self, slab: u32, discarded: u16) {
        let word = self.slab(slab);
        if word.phase != SlabPhase::Retired {
            return;
        }
        let generation = match self.planted("generation-kept") {
            true => word.generation,
            false => word.next_generation(),
        };
        let discarded = if self.planted("discard-not-awaited") { u16::MAX } else { discarded };
        for part in 0..self.parts() {
            let named = self.part_word(slab, part);
            let place = Place::unpack(named.load(SeqCst)).filter(|place| self.is_current(*place));
            if let Some(place) = place.filter(|_| discarded >> part & 1 == 1) {
                self.free_place(usize::from(place.donor), place.extent, slab);
            }
            named.store(generation.into(), SeqCst);
        }
        let after = SlabWord {
            generation,
            phase: SlabPhase::Free,
            claimed: 0,
            ended: 0,
            may_come_late: false,
            is_hurt: false,
        };
        // A write that ends at this moment changes the word.
        while !self.change_slab(slab, self.slab(slab), after) {}
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;
    use crate::new_donor::NewDonor;
    use crate::slabs::append::{Append, Item, Outcome, Step};
    use crate::slabs::census::Census;
    use crate::slabs::reclaim::Reclaim;
    use crate::slabs::room::Coding;
    use crate::table::{Terms, words_of};

    const SLOTS: u32 = 4;
    const PATIENCE_MS: u64 = 10;

    fn words() -> Vec<AtomicU64> {
        let donor = |domain| NewDonor { capacity: 4, domain, text: String::new() };
        let donors: Vec<NewDonor> = (0..3).map(donor).collect();
        let coding = Coding { data: 2, parity: 1, slabs: 4, slots: SLOTS, rows: 4 };
        let terms = Terms { extents: 0, wanted: 3, least: 2, joining: 0, coding: Some(coding) };
        let words: Vec<AtomicU64> = (0..words_of(&donors, terms)).map(|_| AtomicU64::new(0)).collect();
        let _ = Table::create(&words, &donors, terms);
        words
    }

    /// Writes to all slots, and drops them again: their slab is retired.
    fn retired(table: &Table<'_>, may_come_late: bool) -> u32 {
        let items = (0..SLOTS).map(|slot| Item { slot, check: 1, from: None }).collect();
        let mut append = Append::new(0, items, 1);
        let slab = loop {
            match append.step(table, &table.chooser()) {
                Step::Send(sending) => {
                    drop(append.sent(table, true, false));
                    if may_come_late {
                        table.expect_late(sending.rows.slab, sending.rows.generation);
                    }
                }
                Step::Done(Outcome::Stored { .. }) => break table.seat(0).map_or(0, |seat| seat.slab),
                Step::Done(outcome) => panic!("{outcome:?}"),
                Step::Again | Step::Pause => {}
            }
        };
        (0..SLOTS).for_each(|slot| table.forget(slot));
        assert!(table.fence(slab, table.slab(slab).generation));
        let mut census = Census::begin(table);
        assert!(census.go_on(table, SLOTS));
        census.retire(table);
        assert_eq!(table.slab(slab).phase, SlabPhase::Retired);
        slab
    }

    fn used(table: &Table<'_>) -> u32 {
        (0..table.donors()).map(|donor| table.room(donor).1).sum()
    }

    #[test]
    fn places_are_free_once_their_donors_have_answered() {
        let words = words();
        let table = Table::known(&words);
        let slab = retired(&table, false);
        let discard = table.begin_discard(slab);
        assert_eq!(discard.iter().flat_map(Discard::parts).count(), 3);
        assert_eq!(used(&table), 3, "nobody may have them yet");
        // One donor has not answered.
        table.free_slab(slab, 0b101);
        assert_eq!((table.slab(slab).phase, used(&table)), (SlabPhase::Free, 1));
        let mut reclaim = Reclaim::default();
        assert!(reclaim.sweep(&table, 1, PATIENCE_MS).is_empty());
        let unnamed = reclaim.sweep(&table, 1 + PATIENCE_MS, PATIENCE_MS);
        assert_eq!(unnamed.len(), 1);
        // Nor does it answer now: it is waited for anew.
        reclaim.keep(unnamed[0], 1 + PATIENCE_MS);
        assert!(reclaim.sweep(&table, PATIENCE_MS + 5, PATIENCE_MS).is_empty());
        reclaim.sweep(&table, 1 + 2 * PATIENCE_MS, PATIENCE_MS).into_iter().for_each(|unnamed| {
            table.free_unnamed(unnamed);
        });
        assert_eq!(used(&table), 0);
    }

    #[test]
    fn what_a_killed_supervisor_has_sent_or_a_write_may_come_late_so_places_are_kept() {
        let words = words();
        let table = Table::known(&words);
        let slab = retired(&table, false);
        assert!(table.begin_discard(slab).is_some());
        // It was killed here, and another follows.
        assert_eq!(table.begin_discard(slab), None);
        table.free_slab(slab, 0);
        assert_eq!((table.slab(slab).phase, used(&table)), (SlabPhase::Free, 3));
        let slab = retired(&table, true);
        assert_eq!(table.begin_discard(slab), None);
        table.free_slab(slab, 0);
        assert_eq!(used(&table), 6);
    }
}
