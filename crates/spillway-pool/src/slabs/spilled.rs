//! Slabs of which parts are in the last resort ([`crate::spill`]): when all their pages can be had from it,
//! and when they return to donors.

use crate::slabs::slab::SlabSeen;
use crate::table::Table;

impl Table<'_> {
    /// How many parts of a slab are in the last resort.
    #[must_use]
    pub fn spilled_parts(&self, seen: &SlabSeen) -> usize {
        seen.places.iter().flatten().filter(|place| self.is_spill(usize::from(place.donor))).count()
    }

    /// Whether the last resort has so many parts of a slab that all its pages can be had from it alone: then
    /// nothing is lacking, whatever becomes of the donors.
    #[must_use]
    pub fn is_safe_in_spill(&self, seen: &SlabSeen) -> bool {
        let spilled = self.spilled_parts(seen);
        spilled >= self.data_parts() || (spilled > 0 && self.planted("spilled-part-taken-for-all"))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;
    use crate::new_donor::{NewDonor, SPILL_DOMAIN};
    use crate::slabs::append::{Append, Item, Outcome, Step};
    use crate::slabs::census::{Census, Findings, Reason, judge};
    use crate::slabs::locate::{Refusal, refusal};
    use crate::slabs::make::is_spill_full;
    use crate::slabs::room::{Coding, MOVED_STREAM};
    use crate::table::{Terms, words_of};
    use crate::words::Condition;

    const SPILL: usize = 4;
    /// Rows of a slab, with two pages each.
    const ROWS: u16 = 2;
    const SLAB_PAGES: u32 = 4;

    /// Four donors with room for so much each, two parts of data and two of parity, and a last resort.
    fn words(capacity: u32, spill: u32) -> Vec<AtomicU64> {
        let donor = |domain| NewDonor { capacity, domain, text: String::new() };
        let mut donors: Vec<NewDonor> = (0..SPILL as u32).map(donor).collect();
        donors.push(NewDonor { capacity: spill, domain: SPILL_DOMAIN, text: String::new() });
        let coding = Coding { data: 2, parity: 2, slabs: 16, slots: 64, rows: ROWS };
        let terms = Terms { extents: 0, wanted: 4, least: 2, joining: 0, coding: Some(coding) };
        let words: Vec<AtomicU64> = (0..words_of(&donors, terms)).map(|_| AtomicU64::new(0)).collect();
        let _ = Table::create(&words, &donors, terms);
        words
    }

    fn go_down(table: &Table<'_>, donor: usize) {
        table.complain(donor, table.donor(donor), Condition::Down, 1);
    }

    /// Fills a slab with pages of these slots on.
    fn fill(table: &Table<'_>, stream: usize, first: u32) -> Outcome {
        let item = |slot| Item { slot, check: 1, from: None };
        let mut append = Append::new(stream, (first..first + SLAB_PAGES).map(item).collect(), 3);
        loop {
            match append.step(table, &table.chooser()) {
                Step::Send(_) => _ = append.sent(table, true, 0),
                Step::Done(outcome) => return outcome,
                Step::Again | Step::Pause => {}
            }
        }
    }

    /// Parts of the slab that a slot's page is in: on donors, and in the last resort.
    fn parts(table: &Table<'_>, slot: u32) -> (usize, usize) {
        let Some(seat) = table.seat(slot) else { return (0, 0) };
        let seen = table.see_slab(seat.slab);
        let spilled = table.spilled_parts(&seen);
        (seen.places.iter().flatten().count() - spilled, spilled)
    }

    fn found(table: &Table<'_>) -> Findings {
        let mut census = Census::begin(table);
        assert!(census.go_on(table, table.slots()));
        judge(table, &census, 100, 10)
    }

    #[test]
    fn the_last_resort_gets_the_parts_for_which_there_is_no_donor_and_no_more_than_are_needed() {
        let words = words(8, 16);
        let table = Table::known(&words);
        let mut seen = Vec::new();
        for down in 0..=SPILL {
            (0..down).for_each(|donor| go_down(&table, donor));
            let first = down as u32 * SLAB_PAGES;
            assert_eq!(fill(&table, 0, first), Outcome::Stored { pages: SLAB_PAGES as usize });
            seen.push(parts(&table, first));
        }
        assert_eq!(seen, [(4, 0), (3, 1), (2, 2), (1, 2), (0, 2)]);
        // Pages are on donors as long as there are any, and parity there.
        let place = |slot: u32| {
            let seat = table.seat(slot).unwrap();
            table.see_slab(seat.slab).places[usize::from(seat.part)].unwrap()
        };
        assert!((0..3 * SLAB_PAGES).all(|slot| !table.is_spill(usize::from(place(slot).donor))));
        // What lost donors since has too few parts; what the last resort can give alone has not.
        let lost = found(&table);
        assert_eq!((lost.endangered_bytes, lost.spilled_bytes), (2 * 4 * 4096, 4 * 4 * 4096), "{lost:?}");
    }

    #[test]
    fn room_is_kept_there_for_what_is_moved() {
        let words = words(8, 6);
        let table = Table::known(&words);
        (0..SPILL).for_each(|donor| go_down(&table, donor));
        assert!(!is_spill_full(&table, SPILL));
        assert_eq!([0, 4].map(|first| fill(&table, 0, first)), [Outcome::Stored { pages: 4 }; 2]);
        assert!(is_spill_full(&table, SPILL));
        assert!(matches!(fill(&table, 0, 8), Outcome::NoRoom | Outcome::NoDonor));
        assert_eq!(fill(&table, MOVED_STREAM, 8), Outcome::Stored { pages: 4 });
        assert!(matches!(fill(&table, MOVED_STREAM, 12), Outcome::NoRoom | Outcome::NoDonor));
    }

    #[test]
    fn nothing_new_goes_there_while_it_takes_no_writes() {
        let words = words(8, 16);
        let table = Table::known(&words);
        (0..3).for_each(|donor| go_down(&table, donor));
        assert_eq!(fill(&table, 0, 0), Outcome::Stored { pages: 4 });
        go_down(&table, SPILL);
        assert_eq!(table.donor(SPILL).condition, Condition::Suspect);
        assert!(matches!(fill(&table, 0, 4), Outcome::NoRoom | Outcome::NoDonor));
        table.come_up(SPILL, 1);
        assert_eq!(fill(&table, 0, 4), Outcome::Stored { pages: 4 });
    }

    #[test]
    fn slabs_return_when_all_donors_that_there_are_have_room() {
        let words = words(8, 16);
        let table = Table::known(&words);
        (0..SPILL).for_each(|donor| go_down(&table, donor));
        assert_eq!(fill(&table, 0, 0), Outcome::Stored { pages: 4 });
        let is_empty = || found(&table).tasks.is_empty();
        assert!(is_empty(), "there is no donor");
        table.come_up(0, 1);
        let reasons = || found(&table).tasks.iter().map(|task| task.reason).collect::<Vec<_>>();
        assert_eq!(reasons(), [Reason::Spilled]);
        // What is there of them is full: one has no room for it, and there is another that has.
        table.come_up(1, 1);
        while table.take_place(1, 0).is_some() {}
        assert!(is_empty(), "it would have to be moved once more");
        table.come_up(2, 1);
        assert!(is_empty());
    }

    #[test]
    fn what_is_safe_there_leaves_a_donor_that_is_drained() {
        let words = words(8, 16);
        let table = Table::known(&words);
        (1..SPILL).for_each(|donor| go_down(&table, donor));
        assert_eq!(fill(&table, 0, 0), Outcome::Stored { pages: 4 });
        assert_eq!((parts(&table, 0), found(&table).tasks.len()), ((1, 2), 0));
        table.set_leaving(0, true);
        let tasks = found(&table).tasks;
        assert_eq!(tasks.iter().map(|task| task.reason).collect::<Vec<_>>(), [Reason::Endangered]);
    }

    #[test]
    fn what_the_last_resort_refuses_is_waited_for_only_where_a_donor_may_come_back() {
        let words = words(8, 16);
        let table = Table::known(&words);
        (1..SPILL).for_each(|donor| go_down(&table, donor));
        assert_eq!(fill(&table, 0, 0), Outcome::Stored { pages: 4 });
        assert_eq!(parts(&table, 0), (1, 2));
        let (all, none) = (0b1111, 0);
        let refused = |tried: u16| refusal(&table, 0, tried);
        assert_eq!([all, none].map(refused), [Refusal::ForGood, Refusal::None]);
        let of_donor = table.see_slab(table.seat(0).unwrap().slab).places;
        let own = of_donor.iter().position(|place| place.is_some_and(|place| place.donor == 0)).unwrap();
        assert_eq!(refused(1 << own), Refusal::None, "the last resort was not asked");
        go_down(&table, 0);
        assert_eq!(refused(all), Refusal::WhileAway, "the donor may come back with what it had");
        table.begin_life(0, 1);
        assert_eq!(refused(all), Refusal::ForGood, "it comes back empty");
    }
}
