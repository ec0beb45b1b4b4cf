//! Which of the oldest pages leave first: those whose whole neighbourhood is old.
//!
//! A window of the oldest pages, as the policy gives them up. Where many of one range of 2 MiB are among them
//! the range is cold as a whole, and its pages leave together; where there are few, the others of their range
//! are younger, and taking these would make holes in it ("Physical memory management on NVMM", section 5.4).
//! None is passed over for long.
//!
//! Where it is known which pages are in use, those that are used least leave, and those that are used more
//! than any of these go back to where the youngest are: a second chance for as long as that is so. Where all
//! are used alike the oldest leave, and nothing goes round.

use spillway_core::fifo::Entry;

const RANGE_SHIFT: u32 = 9;
/// Entries that leave before the window is ordered anew.
const CHOICE: usize = 64;
/// How often an entry may be passed over.
const MOST_PASSES: u8 = 8;
/// Fewer of one range are no reason to change the order.
const LEAST_TOGETHER: usize = 16;
/// More of one range are as good as so many.
const MOST_TOGETHER: u64 = (1 << (63 - RANGE_BITS)) - 1;
/// Bits of a range's number, of which addresses have no more.
const RANGE_BITS: u32 = 48;
/// Ranks that there are.
const RANKS: usize = 1 << u8::BITS;
/// After an ordering that found no reason, so many choices are made without one.
const BLIND_CHOICES: u32 = 15;

#[derive(Clone, Copy, Debug)]
struct Candidate {
    entry: Entry,
    passes: u8,
}

impl Candidate {
    fn range(&self) -> u64 {
        self.entry.page_number >> RANGE_SHIFT
    }
}

/// The oldest pages of a process, in two parts: those that leave next, and those that may be passed over.
#[derive(Clone)]
pub struct VictimWindow {
    capacity: usize,
    /// In the order of their arrival.
    waiting: Vec<Candidate>,
    /// The last one leaves first.
    chosen: Vec<Entry>,
    /// In use, and so to be young again.
    in_use: Vec<Entry>,
    /// Room that is used anew for each choice: those that wait with their ranks, or in another order.
    ranked: Vec<(u8, Candidate)>,
    /// The same for the places of those that wait, each with what puts it in its order.
    places: Vec<(u64, u32)>,
    blind_choices: u32,
    /// Choices to be made among all of a full window, since one found a page in use.
    wide_choices: u32,
}

impl VictimWindow {
    /// A window of up to `capacity` entries; of 0, one that changes nothing. It takes no memory before the
    /// first is offered: most processes never evict.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity,
            waiting: Vec::new(),
            chosen: Vec::new(),
            in_use: Vec::new(),
            ranked: Vec::new(),
            places: Vec::new(),
            blind_choices: 0,
            wide_choices: 0,
        }
    }

    /// Room for all that can ever be in it.
    fn make_room(&mut self) {
        self.waiting.reserve_exact(self.capacity.max(1));
        self.chosen.reserve_exact(self.capacity.max(CHOICE));
        self.in_use.reserve_exact(self.capacity);
        self.ranked.reserve_exact(self.capacity.max(1));
        self.places.reserve_exact(self.capacity.max(1));
    }

    /// How many entries wait in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len() + self.chosen.len() + self.in_use.len()
    }

    /// Whether no entry waits in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether older entries should be offered before the next is taken.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.chosen.is_empty() && self.waiting.len() < self.wanted()
    }

    /// While nothing is gained by it, no more is held back than leaves next.
    fn wanted(&self) -> usize {
        let is_narrow = self.blind_choices > 0 && self.wide_choices == 0;
        if is_narrow { CHOICE.min(self.capacity.max(1)) } else { self.capacity.max(1) }
    }

    /// Whether it is settled which entry leaves next.
    #[must_use]
    pub fn has_chosen(&self) -> bool {
        !self.chosen.is_empty()
    }

    /// Adds an entry, which is younger than all before it.
    pub fn offer(&mut self, entry: Entry) {
        if self.waiting.capacity() == 0 {
            self.make_room();
        }
        self.waiting.push(Candidate { entry, passes: 0 });
    }

    /// The entry that leaves next. `rank` says how much a page is in use, 0 for not at all.
    pub fn take(&mut self, rank: impl Fn(u64) -> u8) -> Option<Entry> {
        if self.chosen.is_empty() {
            self.set_apart_what_is_used(rank);
            self.choose();
        }
        self.chosen.pop()
    }

    /// An entry that is to be as one which has just come.
    pub fn take_used(&mut self) -> Option<Entry> {
        self.in_use.pop()
    }

    /// All that may leave, beginning with what does so next as things are; it stays.
    pub fn iter(&self) -> impl Iterator<Item = Entry> {
        self.chosen.iter().rev().copied().chain(self.waiting.iter().map(|candidate| candidate.entry))
    }

    /// Takes back what [`Self::take_used`] gave.
    pub fn give_back_used(&mut self, entry: Entry) {
        self.in_use.push(entry);
    }

    /// Sets the pages apart that are used more than so many as must leave all the same.
    fn set_apart_what_is_used(&mut self, rank: impl Fn(u64) -> u8) {
        self.wide_choices = self.wide_choices.saturating_sub(1);
        let Self { waiting, ranked, in_use, .. } = self;
        ranked.clear();
        ranked.extend(waiting.iter().map(|candidate| (rank(candidate.entry.page_number), *candidate)));
        let mut counts = [0_usize; RANKS];
        ranked.iter().for_each(|(rank, _)| counts[usize::from(*rank)] += 1);
        if counts[0] == ranked.len() {
            return;
        }
        self.wide_choices = BLIND_CHOICES;
        // Where each rank begins once they are sorted; those of one rank stay in the order of their arrival.
        let mut ends = 0;
        let mut stay = 0;
        for count in &mut counts {
            let start = ends;
            ends += *count;
            if stay < CHOICE.min(ranked.len()) {
                stay = ends;
            }
            *count = start;
        }
        for (rank, candidate) in ranked.iter() {
            let place = &mut counts[usize::from(*rank)];
            waiting[*place] = *candidate;
            *place += 1;
        }
        in_use.extend(waiting.drain(stay..).map(|candidate| candidate.entry));
    }

    /// Drops the entries for which `keep` is false.
    pub fn retain(&mut self, mut keep: impl FnMut(Entry) -> bool) {
        self.chosen.retain(|entry| keep(*entry));
        self.in_use.retain(|entry| keep(*entry));
        self.waiting.retain(|candidate| keep(candidate.entry));
    }

    fn choose(&mut self) {
        if self.blind_choices > 0 {
            self.blind_choices -= 1;
        } else if !self.order() {
            self.blind_choices = BLIND_CHOICES;
        }
        let leaving = self.waiting.len().min(CHOICE);
        self.chosen.extend(self.waiting.drain(..leaving).rev().map(|candidate| candidate.entry));
        self.waiting.iter_mut().for_each(|candidate| candidate.passes += 1);
    }

    /// Brings those to the front that leave next. False when that changes nothing worth while.
    fn order(&mut self) -> bool {
        if self.waiting.len() <= CHOICE {
            return true;
        }
        let Self { waiting, ranked, places, .. } = self;
        places.clear();
        places.extend(waiting.iter().zip(0..).map(|(candidate, place)| (candidate.range(), place)));
        places.sort_unstable();
        let together = || places.chunk_by(|(a, _), (b, _)| a == b);
        if together().all(|of_range| of_range.len() < LEAST_TOGETHER) {
            // What was passed over goes first, and in its order.
            waiting.sort_by_key(|candidate| u8::MAX - candidate.passes);
            return false;
        }
        for of_range in places.chunk_by_mut(|(a, _), (b, _)| a == b) {
            let fewer = MOST_TOGETHER - (of_range.len() as u64).min(MOST_TOGETHER);
            for (key, place) in of_range {
                let is_due = waiting[*place as usize].passes >= MOST_PASSES;
                *key |= u64::from(!is_due) << 63 | fewer << RANGE_BITS;
            }
        }
        places.sort_unstable();
        ranked.clear();
        ranked.extend(places.iter().map(|(_, place)| (0, waiting[*place as usize])));
        waiting.clear();
        waiting.extend(ranked.drain(..).map(|(_, candidate)| candidate));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn entry(page_number: u64) -> Entry {
        Entry { page_number, generation: 1 }
    }

    /// Feeds pages through a window and returns them as they leave.
    fn through(window: &mut VictimWindow, pages: impl IntoIterator<Item = u64>) -> Vec<u64> {
        let mut pages = pages.into_iter();
        let mut left = Vec::new();
        loop {
            while window.has_room() {
                match pages.next() {
                    Some(page) => window.offer(entry(page)),
                    None => break,
                }
            }
            match window.take(|_| 0) {
                Some(entry) => left.push(entry.page_number),
                None => return left,
            }
        }
    }

    #[test]
    fn a_cold_range_leaves_before_holes_are_made_in_hot_ones() {
        // Every second page is of one range, the others are spread over a thousand.
        let pages = (0..1024).map(|i| if i % 2 == 0 { i / 2 } else { (1 + i * 7 % 1000) << RANGE_SHIFT });
        let left = through(&mut VictimWindow::new(256), pages);
        let of_cold = left[..128].iter().filter(|page| **page < 512).count();
        assert_eq!(of_cold, 128, "{:?}", &left[..128]);
    }

    #[test]
    fn pages_of_no_common_range_leave_as_they_came() {
        let pages = || (0..2000_u64).map(|i| (i * 7919 % 2003) << RANGE_SHIFT);
        assert_eq!(through(&mut VictimWindow::new(256), pages()), pages().collect::<Vec<_>>());
        assert_eq!(through(&mut VictimWindow::new(0), pages()), pages().collect::<Vec<_>>());
    }

    #[test]
    fn a_stream_leaves_in_long_runs() {
        let left = through(&mut VictimWindow::new(256), 0..4096);
        assert!(left.chunk_by(|a, b| *b == *a + 1).all(|run| run.len() >= CHOICE), "{left:?}");
    }

    #[test]
    fn what_has_left_meanwhile_is_dropped() {
        let mut window = VictimWindow::new(256);
        (0..100).for_each(|page| window.offer(entry(page)));
        assert_eq!(window.take(|_| 0), Some(entry(0)));
        window.retain(|entry| entry.page_number % 10 == 9);
        assert_eq!(window.len(), 10);
        assert_eq!(through(&mut window, []), (0..10).map(|i| i * 10 + 9).collect::<Vec<_>>());
        assert!(window.is_empty());
    }

    #[test]
    fn what_is_used_most_stays() {
        let mut window = VictimWindow::new(256);
        // Found in use, so that the whole window is looked at from now on.
        window.wide_choices = 1;
        (0..256).for_each(|page| window.offer(entry(page)));
        // A quarter is not used, and 32 are used a little.
        let rank = |page: u64| {
            if page.is_multiple_of(4) {
                0
            } else if page % 8 == 1 {
                1
            } else {
                9
            }
        };
        let left: Vec<u64> = (0..64).map(|_| window.take(rank).unwrap().page_number).collect();
        assert_eq!(left, (0..256).filter(|page| page % 4 == 0).collect::<Vec<_>>());
        let used = std::iter::from_fn(|| window.take_used()).count();
        assert_eq!((used, window.len()), (192, 0));
    }

    #[test]
    fn where_all_is_used_the_least_used_leave() {
        let mut window = VictimWindow::new(256);
        window.wide_choices = 1;
        (0..256).for_each(|page| window.offer(entry(page)));
        let rank = |page: u64| (page % 4) as u8 + 1;
        let left: Vec<u64> = (0..64).map(|_| window.take(rank).unwrap().page_number).collect();
        assert!(left.iter().all(|page| page % 4 == 0), "{left:?}");
    }

    /// What the window does, in as few words as can be.
    #[derive(Default)]
    struct Plain {
        blind_choices: u32,
    }

    impl Plain {
        /// Those that leave next, and those in use, of candidates with ranks and passes.
        fn choose(&mut self, mut waiting: Vec<(u64, u8, u8)>) -> (Vec<u64>, Vec<u64>) {
            let mut used = Vec::new();
            if waiting.iter().any(|(_, rank, _)| *rank > 0) {
                waiting.sort_by_key(|(_, rank, _)| *rank);
                let bar = waiting[CHOICE.min(waiting.len()) - 1].1;
                let stay = waiting.partition_point(|(_, rank, _)| *rank <= bar);
                used = waiting.split_off(stay);
            }
            if self.blind_choices > 0 {
                self.blind_choices -= 1;
            } else if waiting.len() > CHOICE {
                let count = |range| waiting.iter().filter(|(page, ..)| page >> RANGE_SHIFT == range).count();
                let counts: Vec<usize> =
                    waiting.iter().map(|(page, ..)| count(page >> RANGE_SHIFT)).collect();
                let mut all: Vec<_> = waiting.iter().copied().zip(counts.iter().copied()).collect();
                if counts.iter().any(|count| *count >= LEAST_TOGETHER) {
                    all.sort_by_key(|((page, _, passes), count)| {
                        (*passes < MOST_PASSES, usize::MAX - count, page >> RANGE_SHIFT)
                    });
                } else {
                    all.sort_by_key(|((.., passes), _)| u8::MAX - passes);
                    self.blind_choices = BLIND_CHOICES;
                }
                waiting = all.into_iter().map(|(candidate, _)| candidate).collect();
            }
            let pages = |all: &[(u64, u8, u8)]| all.iter().map(|(page, ..)| *page).collect();
            (pages(&waiting[..CHOICE.min(waiting.len())]), pages(&used))
        }
    }

    proptest! {
        #[test]
        fn choices_are_those_of_the_rule(
            offered in proptest::collection::vec((0_u64..12, 0_u8..5, 0_u8..10), 1..500),
            coarse in 1_u8..6,
        ) {
            let waiting: Vec<(u64, u8, u8)> = offered
                .iter()
                .zip(0..)
                .map(|((range, rank, passes), i)| (range << RANGE_SHIFT | i, rank / coarse * 60, *passes))
                .collect();
            let mut window = VictimWindow::new(512);
            window.make_room();
            for &(page, _, passes) in &waiting {
                window.waiting.push(Candidate { entry: entry(page), passes });
            }
            let rank = |page: u64| waiting.iter().find(|(other, ..)| *other == page).unwrap().1;
            let first = window.take(rank).unwrap().page_number;
            let chosen = window.chosen.iter().rev().map(|entry| entry.page_number);
            let chosen: Vec<u64> = std::iter::once(first).chain(chosen).collect();
            let used: Vec<u64> = window.in_use.iter().map(|entry| entry.page_number).collect();
            prop_assert_eq!((chosen, used), Plain::default().choose(waiting));
        }
    }

    proptest! {
        /// Each page leaves once, and not long after its turn.
        #[test]
        fn nothing_is_lost_or_passed_over_for_long(
            ranges in proptest::collection::vec(0_u64..12, 0..3000), capacity in 0_usize..600,
        ) {
            let pages: Vec<u64> =
                ranges.iter().enumerate().map(|(i, range)| range << RANGE_SHIFT << 20 | i as u64).collect();
            let left = through(&mut VictimWindow::new(capacity), pages.iter().copied());
            prop_assert_eq!(left.len(), pages.len());
            prop_assert_eq!(left.iter().collect::<BTreeSet<_>>().len(), pages.len());
            for (position, page) in left.iter().enumerate() {
                let turn = (page & 0xF_FFFF) as usize;
                prop_assert!(position <= turn + capacity.max(CHOICE) * (usize::from(MOST_PASSES) + 2));
            }
        }
    }
}
