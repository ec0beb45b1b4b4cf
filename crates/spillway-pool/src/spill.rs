//! The last resort: a file of the run's own machine, for extents for which donors have no room. In the table
//! it stands among the donors, with a failure domain of its own ([`SPILL_DOMAIN`]); what is written, read and
//! made anew there goes by the same steps. What differs:
//!
//! * It is taken only where no donor can be had: by who writes an extent first, and by the supervisor for
//!   copies that are missing. It is in no copyset.
//! * One copy there is enough ([`crate::survey`]): it dies with no donor. What dies with this machine is of
//!   no use without it.
//! * Of a slab of coded pages it has the parts for which there is no donor, beside each other, but never more
//!   than the pages can be had from: so many are enough, whatever becomes of the donors ([`crate::slabs`]).
//! * Donors are read first, as long as they are well.
//! * Once donors have room again the supervisor makes copies there, and drops that in the last resort when as
//!   many as are wanted are whole.
//! * It is never away, so nobody waits for it to come back. Where it can be written to no more it is
//!   [`Condition::Suspect`]: nothing new goes there, what is there is read.

use crate::new_donor::SPILL_DOMAIN;
use crate::placement::{Candidate, capacity};
use crate::table::{SPILL_AT, Table};
use crate::words::{Condition, Place};

impl Table<'_> {
    /// Whether this is no donor but the last resort.
    #[must_use]
    pub fn is_spill(&self, donor: usize) -> bool {
        self.domain(donor) == SPILL_DOMAIN
    }

    /// The last resort by its number among the donors; `None` where the pool has none.
    #[must_use]
    pub fn spill(&self) -> Option<usize> {
        self.header(SPILL_AT).checked_sub(1).map(|donor| donor as usize)
    }

    /// The same, where it takes new extents.
    #[must_use]
    pub fn open_spill(&self) -> Option<usize> {
        let has_room = |donor: &usize| {
            let (capacity, used) = self.room(*donor);
            used < capacity && self.donor(*donor).condition == Condition::Up
        };
        self.spill().filter(has_room)
    }

    /// Takes room in the last resort for an extent.
    pub(crate) fn take_spill(&self, extent: u32) -> Option<Place> {
        self.take_place(self.open_spill()?, extent)
    }

    /// Extents that can still have all their copies on donors, at most, where the others go to the last
    /// resort: what is chosen for them need not spare room for more.
    pub(crate) fn extents_for_donors(&self, candidates: &[Candidate]) -> u32 {
        if self.spill().is_none() {
            return u32::MAX;
        }
        let well = candidates.iter().filter(|donor| donor.is_well);
        let room: Vec<(u32, u32)> = well.map(|donor| (donor.domain, donor.free)).collect();
        capacity(&room, self.wanted_copies())
    }
}

/// Whether another donor can take a copy of an extent that is in the last resort. `lasting`: where it is and
/// will stay.
pub(crate) fn can_return(table: &Table<'_>, candidates: &[Candidate], lasting: &[Place]) -> bool {
    let mut domains: Vec<u32> = lasting.iter().map(|place| table.domain(usize::from(place.donor))).collect();
    domains.retain(|domain| *domain != SPILL_DOMAIN);
    domains.sort_unstable();
    domains.dedup();
    let has = |domain: u32| domains.contains(&domain);
    domains.len() < table.wanted_copies()
        && !table.planted("spilled-page-not-returned")
        && candidates.iter().any(|donor| donor.is_well && donor.free > 0 && !has(donor.domain))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;
    use crate::new_donor::NewDonor;
    use crate::read::{Found, choose, refusal};
    use crate::rebuild::{End, Rebuild, Step};
    use crate::slabs::locate::Refusal;
    use crate::survey::{drop_surplus, place_for, survey};
    use crate::table::{Terms, words_of};

    fn words(capacities: [u32; 3]) -> Vec<AtomicU64> {
        words_of_domains([0, 1, SPILL_DOMAIN], capacities)
    }

    fn words_of_domains(domains: [u32; 3], capacities: [u32; 3]) -> Vec<AtomicU64> {
        let donor = |(domain, capacity)| NewDonor { capacity, domain, text: String::new() };
        let donors: Vec<NewDonor> = domains.into_iter().zip(capacities).map(donor).collect();
        let terms = Terms { extents: 4, wanted: 2, least: 2, joining: 0, coding: None };
        let words: Vec<AtomicU64> = (0..words_of(&donors, terms)).map(|_| AtomicU64::new(0)).collect();
        let _ = Table::create(&words, &donors, terms);
        words
    }

    /// The donors of an extent once it has been placed.
    fn place(table: &Table<'_>, extent: u32) -> Vec<u8> {
        let chooser = table.chooser();
        while let Some(Ok(())) = table.place_next(extent, &chooser, 7) {}
        let mut donors: Vec<u8> =
            table.snapshot(extent).places.iter().flatten().map(|place| place.donor).collect();
        donors.sort_unstable();
        donors
    }

    #[test]
    fn extents_go_to_the_last_resort_once_no_donor_has_room() {
        let words = words([2, 1, 1]);
        let table = Table::known(&words);
        assert_eq!(place(&table, 0), [0, 1]);
        // One donor has room still, and what is missing is the supervisor's to make.
        assert_eq!(place(&table, 1), [0]);
        assert_eq!(place(&table, 2), [2]);
        assert!(place(&table, 3).is_empty(), "it is full too");
        assert_eq!((table.spill(), table.open_spill()), (Some(2), None));
    }

    #[test]
    fn nothing_new_goes_to_a_last_resort_that_takes_no_writes_and_what_is_there_is_read() {
        let words = words([1, 0, 4]);
        let table = Table::known(&words);
        assert_eq!([place(&table, 0), place(&table, 1)], [vec![0], vec![2]]);
        table.complain(2, table.donor(2), Condition::Down, 5);
        assert_eq!(table.donor(2).condition, Condition::Suspect);
        assert!(place(&table, 2).is_empty());
        assert!(matches!(choose(&table, 1, 512, 0, false, 0), Found::At(_)));
        assert_eq!(place_for(&table, &table.chooser(), 0, 3), None);
        table.come_up(2, 1);
        assert_eq!(place(&table, 2), [2]);
        assert_eq!(place_for(&table, &table.chooser(), 0, 3).map(|(_, place)| place.donor), Some(2));
    }

    #[test]
    fn what_is_in_the_last_resort_returns_when_donors_have_room_and_not_sooner() {
        let words = words([4, 4, 4]);
        let table = Table::known(&words);
        (0..2).for_each(|donor| table.complain(donor, table.donor(donor), Condition::Down, 1));
        assert_eq!(place(&table, 0), [2]);
        let found = survey(&table, 100, 10);
        assert!(found.tasks.is_empty() && found.returns.is_empty(), "{found:?}");
        table.come_up(0, 1);
        assert_eq!(survey(&table, 100, 10).returns.len(), 1);
        assert!(drop_surplus(&table, 0).is_empty());
        assert_eq!(place_for(&table, &table.chooser(), 0, 3).map(|(_, place)| place.donor), Some(0));
    }

    #[test]
    fn of_two_donors_of_a_domain_one_keeps_what_is_in_the_last_resort() {
        let words = words_of_domains([0, 0, SPILL_DOMAIN], [4, 4, 4]);
        let table = Table::known(&words);
        let make_one_more = || {
            let (copy, place) = place_for(&table, &table.chooser(), 0, 3).unwrap();
            let mut rebuild = Rebuild::new(0, copy, place);
            while rebuild.step(&table) != Step::Done(End::Whole) {}
            place
        };
        let first = place(&table, 0);
        assert_eq!((first.len(), make_one_more().donor), (1, 2));
        // That donor is to leave, so the other one gets it; and then it may stay.
        table.set_leaving(usize::from(first[0]), true);
        let other = make_one_more();
        assert_ne!(other.donor, 2);
        table.set_leaving(usize::from(first[0]), false);
        assert_eq!(drop_surplus(&table, 0), [other]);
        assert!(drop_surplus(&table, 0).is_empty());
    }

    #[test]
    fn what_the_last_resort_refuses_is_waited_for_only_where_a_donor_may_come_back() {
        let words = words([4, 4, 4]);
        let table = Table::known(&words);
        table.complain(0, table.donor(0), Condition::Down, 1);
        assert_eq!(place(&table, 0), [1]);
        // What is missing the supervisor makes in the last resort.
        let mut rebuild = Rebuild::new(0, 1, table.take_spill(0).unwrap());
        let end = loop {
            if let Step::Done(end) = rebuild.step(&table) {
                break end;
            }
        };
        assert_eq!((end, place(&table, 0)), (End::Whole, vec![1, 2]));
        let refused = |tried: u8| refusal(&table, 0, tried);
        assert_eq!([0b1111, 0].map(refused), [Refusal::ForGood, Refusal::None]);
        table.complain(1, table.donor(1), Condition::Down, 1);
        assert_eq!(refused(0b1111), Refusal::WhileAway, "the donor may come back with what it had");
        table.begin_life(1, 1);
        assert_eq!(refused(0b1111), Refusal::ForGood, "it comes back empty");
    }
}
