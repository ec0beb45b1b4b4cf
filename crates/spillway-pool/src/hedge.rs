//! Reads that a donor leaves without an answer for longer than is usual for it: the page is asked for by
//! another *way* too, and the first good answer counts. Of copies that is another copy; of coded pages it is
//! as many other parts of the row as the page can be decoded from ([`crate::around`]).
//!
//! Usual is what nearly all of the donor's answers kept to, with a margin. The requests are bounded
//! ([`Table::take_hedge`]), or a network that is slow as a whole would get twice the load. A donor that was
//! overtaken by another is *late*: reads go elsewhere first until the supervisor finds it quick again, so
//! that one slow donor costs some reads and not all of them.
//!
//! The answer of whoever lost may come at any time: what it comes by is of no more use ([`Verdict::Taken`]).

use std::sync::atomic::Ordering::SeqCst;

use crate::donors::LATE;
use crate::read::{Choice, Found, choose, still_counts};
use crate::table::{HEDGE_DEBT_AT, Table};
use crate::words::Condition;
use crate::{EXTENT_SLOTS, MAX_DONORS};

/// Reads for each request that a hedge takes: 5% more at most.
const READS_A_REQUEST: u64 = 20;
/// Requests of hedges that may come one after the other before any read is made up for.
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
        if took_us <= self.hedge_after_us(donor) {
            self.note_in_time(donor);
        }
        let word = self.high_latency(donor);
        let (before, took) = (word.load(SeqCst), took_us.max(1).saturating_mul(PARTS));
        let after = match before {
            0 => took,
            before if self.planted("usual-not-learned") => before,
            before if took > before => (before + before / 8 + 1).min(took),
            before if self.planted("usual-never-falls") => before,
            before => before - before / (8 * DOWN),
        };
        // Where two answers come at the same moment, one is left out.
        word.store(after, SeqCst);
    }

    /// After how long a silence a read is asked for by another way too, in microseconds.
    #[must_use]
    pub fn hedge_after_us(&self, donor: usize) -> u64 {
        match self.high_latency(donor).load(SeqCst) / PARTS {
            0 => FIRST_US,
            high_us if self.planted("hedges-without-end") => 2 * high_us + LEAST_MARGIN_US,
            high_us => (2 * high_us + LEAST_MARGIN_US).min(MOST_US),
        }
    }

    /// Takes a hedge of so many requests of those that are allowed; false where they are used up.
    #[must_use]
    pub fn take_hedge(&self, requests: usize) -> bool {
        let (more, most) = (requests as u64 * READS_A_REQUEST, BURST * READS_A_REQUEST);
        let with = |debt: u64| Some(debt + more).filter(|debt| *debt <= most);
        let is_allowed = self.words()[HEDGE_DEBT_AT].fetch_update(SeqCst, SeqCst, with).is_ok();
        is_allowed || self.planted("hedges-not-bounded")
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
            self.set_late(donor, self.is_late(donor) && self.planted("late-for-ever"));
        } else if is_slow(usual_us) && !self.planted("slow-not-late") {
            self.set_late(donor, true);
        }
    }
}

/// A way by which a page can be had: from one donor, or from several that must all answer.
pub trait Way: Copy + PartialEq {
    /// How much it weighs towards a donor's being late that it was overtaken once. Where going around it
    /// takes several requests, once is too little: any thread waits for a CPU at times.
    const WEIGHT: u64;

    /// The donors that are asked.
    fn donors(&self) -> impl Iterator<Item = usize>;

    /// Whether what came by it for a slot still counts.
    fn still_counts(&self, table: &Table<'_>, slot: u32) -> bool;

    /// Another one. `turn` says which of several good ones comes first.
    fn another(&self, table: &Table<'_>, slot: u32, turn: usize) -> Option<Self>;
}

impl Way for Choice {
    const WEIGHT: u64 = LATE;

    fn donors(&self) -> impl Iterator<Item = usize> {
        std::iter::once(usize::from(self.place.donor))
    }

    fn still_counts(&self, table: &Table<'_>, slot: u32) -> bool {
        still_counts(table, slot / EXTENT_SLOTS, *self)
    }

    fn another(&self, table: &Table<'_>, slot: u32, turn: usize) -> Option<Self> {
        match choose(table, slot / EXTENT_SLOTS, slot, 1 << self.copy, false, turn) {
            Found::At(other) => Some(other),
            Found::Later | Found::Lost => None,
        }
    }
}

/// Whether a donor can be expected to answer soon.
#[must_use]
pub fn is_quick(table: &Table<'_>, donor: usize) -> bool {
    table.donor(donor).condition == Condition::Up && !table.is_late(donor)
}

/// One read that is asked for by one way, and maybe by another too.
#[derive(Clone, Copy, Debug)]
pub struct Race<W> {
    slot: u32,
    first: W,
    second: Option<W>,
    /// Whether an answer by the first is awaited still, and by the second.
    awaited: [bool; 2],
}

/// What an answer leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict<W> {
    /// The page is what came by this way. The answers by the other, if they are awaited, must never be taken
    /// for those to another request: what they come by is to be left.
    Taken {
        /// The way that the page has come.
        by: W,
        /// The way of which answers are awaited no more.
        left: Option<W>,
    },
    /// The other is awaited.
    Wait,
    /// Neither gives the page.
    Failed,
}

impl<W: Way> Race<W> {
    /// A read of this slot that is asked for by one way.
    #[must_use]
    pub fn new(slot: u32, first: W) -> Self {
        Self { slot, first, second: None, awaited: [true, false] }
    }

    /// The first has been silent for long: by which way the page is to be asked for too. `None` where there
    /// is no other whose donors are well, or more may not be asked now.
    pub fn ask_another(&mut self, table: &Table<'_>, turn: usize) -> Option<W> {
        if self.second.is_some() {
            return None;
        }
        let second = self.first.another(table, self.slot, turn)?;
        let is_asked = |donor: usize| self.first.donors().any(|asked| asked == donor);
        let is_good = second.donors().all(|donor| is_quick(table, donor) && !is_asked(donor));
        let requests = if table.planted("hedge-counted-as-one") { 1 } else { second.donors().count() };
        if !is_good || !table.take_hedge(requests) {
            return None;
        }
        self.first.donors().for_each(|donor| table.count_hedged(donor));
        (self.second, self.awaited[1]) = (Some(second), true);
        self.second
    }

    /// Hears that the donors of a way have answered, all of them with what they were asked for or not.
    pub fn answered(&mut self, table: &Table<'_>, by: W, is_good: bool) -> Verdict<W> {
        let is_second = self.second == Some(by);
        self.awaited[usize::from(is_second)] = false;
        let checked = if table.planted("hedge-not-checked") { self.first } else { by };
        if is_good && checked.still_counts(table, self.slot) {
            let other = if is_second { Some(self.first) } else { self.second };
            let left = other.filter(|_| self.awaited[usize::from(!is_second)]);
            let left = left.filter(|_| !table.planted("late-answer-kept"));
            if is_second && left.is_some() && !table.planted("overtaken-not-noted") {
                self.first.donors().for_each(|donor| table.note_overtaken(donor, W::WEIGHT));
            }
            return Verdict::Taken { by, left };
        }
        if self.awaited.contains(&true) { Verdict::Wait } else { Verdict::Failed }
    }
}

impl Race<Choice> {
    /// Copies that were asked, a bit each.
    #[must_use]
    pub fn tried(&self) -> u8 {
        1 << self.first.copy | self.second.map_or(0, |second| 1 << second.copy)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::AtomicU64;

    use proptest::prelude::*;

    use super::*;
    use crate::new_donor::NewDonor;
    use crate::placement::Dice;
    use crate::slabs::locate::Reading;
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
            hedges += u64::from(table.take_hedge(1));
        }
        assert!((500..=500 + BURST).contains(&hedges), "{hedges}");
        // What was not used for long is not saved up.
        (0..10_000).for_each(|_| table.count_read());
        assert_eq!((0..1_000).filter(|_| table.take_hedge(1)).count() as u64, BURST);
        // A hedge of four requests counts as four.
        (0..10_000).for_each(|_| table.count_read());
        assert_eq!((0..1_000).filter(|_| table.take_hedge(4)).count() as u64, BURST / 4);
    }

    proptest! {
        /// From whatever moment on, and whatever came before.
        #[test]
        fn hedges_take_one_request_for_twenty_reads_and_a_burst_over_any_history(
            history in proptest::collection::vec((0..60_u64, 1..9_usize), 1..60),
        ) {
            let words = words();
            let table = Table::create(&words, &donors(), TERMS);
            let mut happened: Vec<(u64, u64)> = Vec::new();
            for (reads, requests) in history {
                (0..reads).for_each(|_| table.count_read());
                let taken = if table.take_hedge(requests) { requests as u64 } else { 0 };
                happened.push((reads, taken));
                let (mut all_reads, mut all_taken) = (0, 0);
                for &(reads, taken) in happened.iter().rev() {
                    all_taken += taken;
                    prop_assert!(all_taken * READS_A_REQUEST <= all_reads + BURST * READS_A_REQUEST);
                    all_reads += reads;
                }
            }
        }
    }

    #[test]
    fn a_donor_that_is_dear_to_go_around_is_late_once_it_was_overtaken_thrice() {
        let words = words();
        let table = Table::create(&words, &donors(), TERMS);
        let weight = <Reading as Way>::WEIGHT;
        (0..2).for_each(|_| table.note_overtaken(0, weight));
        assert!(!table.is_late(0));
        // It was a thread that waited for a CPU.
        table.note_answer(0, 100);
        (0..2).for_each(|_| table.note_overtaken(0, weight));
        assert!(!table.is_late(0));
        table.note_overtaken(0, weight);
        assert!(table.is_late(0) && !table.is_late(1));
        // An answer that was in time while it was late changes nothing: the supervisor says when it is quick.
        table.note_answer(0, 100);
        assert!(table.is_late(0));
        table.set_usual_us(0, 100, 100);
        assert!(!table.is_late(0));
        // Another copy costs one request: once is enough.
        table.note_overtaken(0, <Choice as Way>::WEIGHT);
        assert!(table.is_late(0));
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
