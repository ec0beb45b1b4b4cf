//! Reads that a donor leaves without an answer for longer than is usual for it: they are asked of another
//! copy too, and the first good answer counts.
//!
//! Usual is what nearly all of the donor's answers kept to, with a margin. The requests are bounded
//! ([`Table::take_hedge`]), or a network that is slow as a whole would get twice the load. A donor that was
//! overtaken by another is *late*: reads go elsewhere first until the supervisor finds it quick again, so
//! that one slow donor costs some reads and not all of them.
//!
//! The answer of whoever lost may come at any time: what it comes by is of no more use ([`Verdict::Taken`]).

use std::sync::atomic::Ordering::SeqCst;

use crate::MAX_DONORS;
use crate::read::{Choice, Found, choose, still_counts};
use crate::table::{HEDGE_DEBT_AT, Table};
use crate::words::Condition;

/// Reads for each that is hedged: 5% more requests at most.
const READS_A_HEDGE: u64 = 20;
/// Hedges that may come one after the other before any read is made up for.
const BURST: u64 = 20;
/// Nobody has said yet how long the donor's answers take.
const FIRST_US: u64 = 10_000;
/// A thread that waits for a CPU is silent too.
const LEAST_MARGIN_US: u64 = 1_000;
/// Silence that is longer is dealt with otherwise ([`crate::health`]).
const MOST_US: u64 = 50_000;
/// The quantile is kept in parts of a microsecond, so that it can go down by little.
const PARTS: u64 = 1 << 10;
/// It goes up by an eighth and down by so much of that: so it comes to rest where one answer of a hundred is
/// longer (a stochastic approximation, after Robbins and Monro, on the logarithm).
const DOWN: u64 = 99;
/// A donor is slow whose answers take so many times as long as the quickest one's, and so much.
const SLOW_FACTOR: u64 = 4;
const SLOW_MARGIN_US: u64 = 2_000;

impl Table<'_> {
    /// Notes that a donor took so long to answer a read, or was silent for so long.
    pub fn note_answer(&self, donor: usize, took_us: u64) {
        let word = self.high_latency(donor);
        let (before, took) = (word.load(SeqCst), took_us.max(1).saturating_mul(PARTS));
        let after = match before {
            0 => took,
            before if took > before => (before + before / 8 + 1).min(took),
            before => before - before / (8 * DOWN),
        };
        // Where two answers come at the same moment, one is left out.
        word.store(after, SeqCst);
    }

    /// After how long a silence a read is asked of another copy too, in microseconds.
    #[must_use]
    pub fn hedge_after_us(&self, donor: usize) -> u64 {
        match self.high_latency(donor).load(SeqCst) / PARTS {
            0 => FIRST_US,
            high_us => (2 * high_us + LEAST_MARGIN_US).min(MOST_US),
        }
    }

    /// Takes one hedge of those that are allowed; false where they are used up.
    #[must_use]
    pub fn take_hedge(&self) -> bool {
        let most = BURST * READS_A_HEDGE;
        let more = |debt: u64| Some(debt + READS_A_HEDGE).filter(|debt| *debt <= most);
        self.words()[HEDGE_DEBT_AT].fetch_update(SeqCst, SeqCst, more).is_ok()
    }

    /// A read makes up for its part of a hedge.
    pub(crate) fn pay_for_hedges(&self) {
        let debt = &self.words()[HEDGE_DEBT_AT];
        // Nearly always there is none.
        if debt.load(SeqCst) > 0 {
            let _ = debt.fetch_update(SeqCst, SeqCst, |debt| debt.checked_sub(1));
        }
    }

    /// Says how long a donor's answers to the supervisor take now: the last one, and usually. For the
    /// supervisor alone.
    pub fn set_usual_us(&self, donor: usize, took_us: u64, usual_us: u64) {
        self.usual_latency(donor).store(usual_us.max(1), SeqCst);
        let others = (0..self.donors().min(MAX_DONORS)).filter(|&other| other != donor);
        let quickest_us = others
            .filter(|&other| self.donor(other).condition == Condition::Up)
            .map(|other| self.usual_latency(other).load(SeqCst))
            .filter(|usual_us| *usual_us > 0)
            .min();
        let is_slow = |us: u64| quickest_us.is_some_and(|least| us > SLOW_FACTOR * least + SLOW_MARGIN_US);
        if !is_slow(took_us) {
            self.set_late(donor, false);
        } else if is_slow(usual_us) {
            self.set_late(donor, true);
        }
    }
}

/// One read that is asked of one donor, and maybe of another too.
#[derive(Clone, Copy, Debug)]
pub struct Race {
    extent: u32,
    first: Choice,
    second: Option<Choice>,
    /// Copies of which an answer is awaited still, a bit each.
    awaited: u8,
}

/// What an answer leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The page is what this copy has. The answer of the other, if one is awaited, must never be taken for
    /// that to another request: what it comes by is to be left.
    Taken {
        /// The copy that the page is of.
        by: Choice,
        /// Whose answer is awaited no more.
        left: Option<Choice>,
    },
    /// The other is awaited.
    Wait,
    /// Neither has the page.
    Failed {
        /// Copies that were asked, a bit each.
        tried: u8,
    },
}

impl Race {
    /// A read of a slot of this extent that is asked of one donor.
    #[must_use]
    pub fn new(extent: u32, first: Choice) -> Self {
        Self { extent, first, second: None, awaited: 1 << first.copy }
    }

    /// The first has been silent for long: which copy is to be asked too. `None` where no other is on a donor
    /// that is well, or more may not be asked now.
    pub fn ask_another(&mut self, table: &Table<'_>, slot: u32, turn: usize) -> Option<Choice> {
        let tried = 1 << self.first.copy;
        let Found::At(second) = choose(table, self.extent, slot, tried, false, turn) else { return None };
        let donor = usize::from(second.place.donor);
        let is_well = table.donor(donor).condition == Condition::Up && !table.is_late(donor);
        if self.second.is_some()
            || second.place.donor == self.first.place.donor
            || !is_well
            || !table.take_hedge()
        {
            return None;
        }
        table.count_hedged(usize::from(self.first.place.donor));
        self.second = Some(second);
        self.awaited |= 1 << second.copy;
        self.second
    }

    /// Hears that the donor of a copy has answered, with the page or without.
    pub fn answered(&mut self, table: &Table<'_>, by: Choice, is_good: bool) -> Verdict {
        self.awaited &= !(1 << by.copy);
        let other = [Some(self.first), self.second].into_iter().flatten().find(|other| other.copy != by.copy);
        let checked = if table.planted("hedge-not-checked") { self.first } else { by };
        if is_good && still_counts(table, self.extent, checked) {
            let left = other.filter(|other| self.awaited >> other.copy & 1 == 1);
            let left = left.filter(|_| !table.planted("late-answer-kept"));
            let is_overtaken = left.is_some_and(|left| left.copy == self.first.copy);
            if is_overtaken {
                table.set_late(usize::from(self.first.place.donor), true);
            }
            return Verdict::Taken { by, left };
        }
        match self.awaited {
            0 => Verdict::Failed { tried: self.tried() },
            _ => Verdict::Wait,
        }
    }

    /// Copies that were asked, a bit each.
    #[must_use]
    pub fn tried(&self) -> u8 {
        1 << self.first.copy | self.second.map_or(0, |second| 1 << second.copy)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;
    use crate::new_donor::NewDonor;
    use crate::placement::Dice;
    use crate::table::{Terms, words_of};

    fn donors() -> Vec<NewDonor> {
        (0..3).map(|domain| NewDonor { capacity: 1, domain, text: String::new() }).collect()
    }

    const TERMS: Terms = Terms { extents: 1, wanted: 2, least: 1, joining: 0, coding: None };

    fn words() -> Vec<AtomicU64> {
        (0..words_of(&donors(), TERMS)).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn silence_is_unusual_beyond_what_nearly_all_answers_kept_to() {
        let words = words();
        let table = Table::create(&words, &donors(), TERMS);
        assert_eq!(table.hedge_after_us(0), FIRST_US);
        let mut dice = Dice::new(7);
        let (mut late, mut all) = (0, 0);
        for round in 0..20_000 {
            // One of a hundred takes ten times as long.
            let took_us = 200 + dice.below(100) as u64 + if dice.below(100) == 0 { 2_500 } else { 0 };
            if round >= 2_000 {
                (late, all) = (late + u64::from(took_us > table.hedge_after_us(0)), all + 1);
            }
            table.note_answer(0, took_us);
        }
        assert!(late * 50 < all, "{late} of {all} at {} us", table.hedge_after_us(0));
        assert!((1_400..10_000).contains(&table.hedge_after_us(0)), "{}", table.hedge_after_us(0));
        // A donor that is slower from now on is waited for longer soon, within bounds.
        (0..60).for_each(|_| table.note_answer(0, 15_000));
        assert!(table.hedge_after_us(0) > 20_000, "{}", table.hedge_after_us(0));
        (0..100).for_each(|_| table.note_answer(0, 1_000_000));
        assert_eq!(table.hedge_after_us(0), MOST_US);
    }

    #[test]
    fn hedges_are_one_for_twenty_reads() {
        let words = words();
        let table = Table::create(&words, &donors(), TERMS);
        let mut hedges = 0;
        for _ in 0..10_000 {
            table.count_read();
            hedges += u64::from(table.take_hedge());
        }
        assert!((500..=500 + BURST).contains(&hedges), "{hedges}");
        // What was not used for long is not saved up.
        (0..10_000).for_each(|_| table.count_read());
        assert_eq!((0..1_000).filter(|_| table.take_hedge()).count() as u64, BURST);
    }

    #[test]
    fn a_donor_that_is_much_slower_than_another_is_late_until_it_is_quick() {
        let words = words();
        let table = Table::create(&words, &donors(), TERMS);
        table.set_usual_us(0, 200_000, 200_000);
        assert!(!table.is_late(0), "there is none to compare it with");
        table.set_usual_us(1, 300, 300);
        table.set_usual_us(0, 200_000, 200_000);
        assert!(table.is_late(0) && !table.is_late(1));
        table.set_usual_us(0, 250, 150_000);
        assert!(!table.is_late(0));
        table.set_usual_us(0, 50_000, 1_000);
        assert!(!table.is_late(0), "one answer that took long is none too many");
        // A network that is slow as a whole has no late donors.
        for (donor, us) in [(1, 200_000), (0, 210_000), (1, 200_000)] {
            table.set_usual_us(donor, us, us);
        }
        assert!(!table.is_late(0) && !table.is_late(1));
    }
}
