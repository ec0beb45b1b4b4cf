//! Follows one thread: expects its next pages, and asks for as many of them as has paid lately.
//!
//! What was brought is mapped, and its use raises no fault. So the next fault tells: if it comes behind what
//! was brought, where the thread was expected to be then, all of that was used, and the window doubles; if it
//! comes elsewhere, or past a page that is far still, the window is halved, down to none, where pages are
//! expected and not fetched (Leap's window goes by the hits of its cache, which a process cannot see). The
//! distances that raised no fault are remembered as if they had.
//!
//! Who uses too little of what is brought is expected and not served: [`super::trust`].

use serde::{Deserialize, Serialize};

use super::history::History;
use super::rounds;
use super::trend::trend;
use super::trust::Trust;

/// Pages that are asked for at a time, at most.
pub const MOST_AHEAD_PAGES: usize = 16;
/// How far a thread is expected: behind what was asked for too, or nothing would be learned from that.
const EXPECTED_PAGES: usize = 2 * MOST_AHEAD_PAGES;
/// The window is counted in halves of a page, and begins with one: nothing is asked for on a guess alone.
const LEAST_WINDOW: usize = 1;

/// How a thread's next pages are foreseen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Foresight {
    /// Nothing is expected of any thread.
    #[default]
    Off,
    /// By the majority of the last distances: [`super::trend`].
    Trend,
    /// By distances that come in rounds ([`super::rounds`]), else by their majority.
    Rounds,
}

/// What is known of one thread.
#[derive(Clone, Debug, Default)]
pub struct Follower {
    history: History,
    /// The page that faulted last; 0 before the first.
    last_page: u64,
    /// Pages that it is expected at, in their order.
    expected: Expected,
    /// The first of them are asked for.
    asked: Asked,
    window_halves: usize,
    trust: Trust,
}

/// What is asked for: the first of the expected pages, but for one that is held back.
#[derive(Clone, Debug, Default)]
struct Asked {
    pages: [u64; MOST_AHEAD_PAGES],
    count: usize,
    /// Expected pages that these are of.
    guessed: usize,
    held_back: Option<usize>,
}

impl Asked {
    /// Pages that were asked for, of so many that are expected.
    fn of_first(&self, places: usize) -> usize {
        let places = places.min(self.guessed);
        places - usize::from(self.held_back.is_some_and(|held_back| held_back < places))
    }
}

#[derive(Clone, Debug)]
struct Expected {
    pages: [u64; EXPECTED_PAGES],
    count: usize,
}

impl Default for Expected {
    fn default() -> Self {
        Self { pages: [0; EXPECTED_PAGES], count: 0 }
    }
}

impl Expected {
    fn pages(&self) -> &[u64] {
        &self.pages[..self.count]
    }
}

impl Follower {
    /// The thread has faulted on a page, and at most `most` others are worth fetching with it. Returns how
    /// many of the pages that were asked for last have been used: those before this one.
    ///
    /// `is_far` says whether one of these pages still is: then the thread did not pass there. It would have
    /// faulted, and what steps by a multiple of a distance looks like that distance otherwise.
    pub fn fault(
        &mut self,
        foresight: Foresight,
        page_number: u64,
        most: usize,
        mut is_far: impl FnMut(u64) -> bool,
    ) -> usize {
        let used = self.learn(page_number, most.min(MOST_AHEAD_PAGES), &mut is_far);
        self.last_page = page_number;
        self.expect(foresight, page_number);
        self.ask(is_far);
        used
    }

    /// The pages that are worth fetching now, in the order in which they will be used.
    #[must_use]
    pub fn asked(&self) -> &[u64] {
        &self.asked.pages[..self.asked.count]
    }

    fn learn(&mut self, page_number: u64, most: usize, mut is_far: impl FnMut(u64) -> bool) -> usize {
        self.trust.fault(page_number);
        if self.last_page == 0 {
            self.window_halves = LEAST_WINDOW;
            return 0;
        }
        let expected = self.expected.pages();
        let place = expected.iter().position(|&page| page == page_number);
        let Some(place) = place.filter(|&place| !expected[..place].iter().any(|&page| is_far(page))) else {
            self.history.push(distance(self.last_page, page_number));
            self.window_halves = (self.window_halves / 2).max(LEAST_WINDOW);
            return 0;
        };
        let mut before = self.last_page;
        for &page in &self.expected.pages()[..=place] {
            self.history.push(distance(before, page));
            before = page;
        }
        // A page that was asked for and faults all the same did not come, or has left: that says nothing.
        if place >= self.asked.guessed {
            self.window_halves = (self.window_halves * 2).min((2 * most).max(LEAST_WINDOW));
        }
        self.asked.of_first(place)
    }

    fn ask(&mut self, is_far: impl FnMut(u64) -> bool) {
        let guess = &self.expected.pages()[..(self.window_halves / 2).min(self.expected.count)];
        let held_back = self.trust.hold_back(guess, is_far);
        self.asked = Asked::default();
        if !self.trust.is_served() {
            return;
        }
        let asked = guess.iter().enumerate().filter(|(place, _)| Some(*place) != held_back);
        for (to, (_, page)) in self.asked.pages.iter_mut().zip(asked) {
            *to = *page;
        }
        let guessed = guess.len();
        self.asked.count = guessed - usize::from(held_back.is_some());
        (self.asked.guessed, self.asked.held_back) = (guessed, held_back);
    }

    fn expect(&mut self, foresight: Foresight, page_number: u64) {
        let history = &self.history;
        let round = if foresight == Foresight::Rounds { rounds::round(history) } else { None };
        let trend = if foresight == Foresight::Off || round.is_some() { None } else { trend(history) };
        let (pages, mut page, mut count) = (&mut self.expected.pages, page_number, 0);
        while count < EXPECTED_PAGES {
            let next = round.map(|round| rounds::distance_ahead(history, round, count)).or(trend);
            let Some(next) = next.and_then(|distance| page.checked_add_signed(distance)) else { break };
            pages[count] = next;
            (page, count) = (next, count + 1);
        }
        self.expected.count = count;
    }
}

/// From one page to another.
fn distance(from: u64, to: u64) -> i64 {
    to.wrapping_sub(from).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    /// Faults of a thread that touches `pages`, with nothing but what is brought; and what was asked for, and
    /// known to be used.
    fn faults(foresight: Foresight, pages: impl Iterator<Item = u64>) -> (usize, usize, usize) {
        let (mut follower, mut here) = (Follower::default(), HashSet::new());
        let mut done = HashSet::new();
        let (mut faults, mut asked, mut used) = (0, 0, 0);
        for page in pages {
            if here.remove(&page) {
                done.insert(page);
                continue;
            }
            faults += 1;
            used += follower.fault(foresight, page, MOST_AHEAD_PAGES, |page| {
                !here.contains(&page) && !done.contains(&page)
            });
            asked += follower.asked().len();
            done.insert(page);
            done.extend(here);
            here = follower.asked().iter().copied().collect();
        }
        (faults, asked, used)
    }

    fn walk(start: u64, distances: &[i64], count: usize) -> impl Iterator<Item = u64> {
        let steps = distances.iter().cycle().take(count);
        steps.scan(start, |page, distance| {
            *page = page.checked_add_signed(*distance)?;
            Some(*page)
        })
    }

    #[test]
    fn a_stride_costs_a_fault_in_seventeen_pages_once_it_is_known() {
        for distance in [6, -1, 375, -9] {
            for foresight in [Foresight::Trend, Foresight::Rounds] {
                let (faults, asked, used) = faults(foresight, walk(1 << 20, &[distance], 1_700));
                assert!(
                    faults < 120 && asked - used <= 16 + asked / 16,
                    "{distance}: {faults} {asked} {used}"
                );
            }
            assert_eq!(faults(Foresight::Off, walk(1 << 20, &[distance], 500)), (500, 0, 0));
        }
    }

    #[test]
    fn a_row_of_three_and_a_half_pages_has_no_trend_and_is_a_round() {
        let pages = || walk(1 << 20, &[3, 4], 1_700);
        assert_eq!(faults(Foresight::Trend, pages()).0, 1_700);
        let (faults, asked, used) = faults(Foresight::Rounds, pages());
        assert!(faults < 120 && asked - used <= 16 + asked / 16, "{faults} {asked} {used}");
    }

    #[test]
    fn a_trend_that_ends_costs_a_window_and_no_more() {
        let random = (0..500_u64).map(|step| (step * step * 7_919 + step * 104_729) % 1_000_003);
        for foresight in [Foresight::Trend, Foresight::Rounds] {
            let pages = walk(1 << 20, &[5], 200).chain(random.clone());
            let (_, asked, used) = faults(foresight, pages);
            assert!(asked - used <= 2 * MOST_AHEAD_PAGES, "{asked} {used}");
        }
    }

    /// Else a thread that steps by two would confirm that it steps by one, for ever.
    #[test]
    fn a_multiple_of_a_stride_is_not_that_stride() {
        for multiple in [2, 3, 5, 9, 17] {
            for foresight in [Foresight::Trend, Foresight::Rounds] {
                let larger = [4 * multiple];
                let pages = walk(1 << 20, &[4], 5).chain(walk(2 << 20, &larger, 1_000));
                let (_, asked, used) = faults(foresight, pages);
                assert!(asked - used <= 2 * MOST_AHEAD_PAGES + asked / 16, "{multiple}: {asked} {used}");
            }
        }
    }

    #[test]
    fn no_more_is_asked_for_than_there_is_room_for_and_addresses_have_an_end() {
        let mut follower = Follower::default();
        for page in walk(1 << 20, &[7], 100) {
            follower.fault(Foresight::Trend, page, 3, |_| false);
            assert!(follower.asked().len() <= 3);
        }
        let mut follower = Follower::default();
        for page in (0..30).rev().map(|step| 1 + step * 10) {
            follower.fault(Foresight::Rounds, page, 16, |_| false);
        }
        assert!(follower.asked().is_empty());
    }

    proptest! {
        /// Whatever faults: it never asks for the page itself first, nor for more than it may.
        #[test]
        fn any_faults_are_answered(
            pages in prop::collection::vec(prop_oneof![0..40_u64, any::<u64>()], 0..300),
            most in 0_usize..20, by_rounds in any::<bool>(),
        ) {
            let foresight = if by_rounds { Foresight::Rounds } else { Foresight::Trend };
            let mut follower = Follower::default();
            for page in pages {
                let before = follower.asked().len();
                let used = follower.fault(foresight, page, most, |page| page % 3 == 0);
                prop_assert!(used <= before && follower.asked().len() <= most.min(MOST_AHEAD_PAGES));
            }
        }
    }
}
