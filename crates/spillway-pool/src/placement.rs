//! Which donors an extent's copies go to.
//!
//! *Copysets* (Cidon et al., USENIX ATC 2013): where copies go to any donors, with many extents every choice
//! of N donors holds all copies of some extent, and so any N that die at once lose something. So donors are
//! put into few sets of N, and an extent's copies go to one set as a whole. Few sets lose seldom and much;
//! many lose often and little, and rebuild faster. [`SCATTER`] says on how many others a donor's extents
//! have their further copies, at least.
//!
//! Of two sets drawn by chance the one with more free memory is taken (power of two choices; Mitzenmacher,
//! 2001). Where no whole set can be had, donors are drawn one by one in the same way.

use crate::MAX_DONORS;
use crate::new_donor::SPILL_DOMAIN;

/// Other donors on which a donor's extents have copies, where there are so many.
pub const SCATTER: usize = 4;

/// A donor, for a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Number of its failure domain: no two copies are put into one.
    pub domain: u32,
    /// Extents that it can still take.
    pub free: u32,
    /// It may be given new copies.
    pub is_well: bool,
}

impl Candidate {
    fn can_take(&self) -> bool {
        self.is_well && self.free > 0
    }
}

/// Numbers that look like chance; the same seed gives the same.
#[derive(Clone, Copy, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Dice that begin with `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number (SplitMix64; Steele, Lea and Flood, 2014).
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next_u64() % end.max(1) as u64) as usize
    }
}

/// A set of donors that hold an extent's copies together, a bit each.
pub type Set = u32;

const _: () = assert!(MAX_DONORS <= Set::BITS as usize);

/// Chooses donors for extents.
#[derive(Clone, Debug)]
pub struct Chooser {
    sets: Vec<Set>,
    donors: usize,
    copies: usize,
}

impl Chooser {
    /// For donors with these failure domains. The same domains give the same sets in every process.
    #[must_use]
    pub fn new(domains: &[u32], copies: usize) -> Self {
        Self { sets: copysets(domains, copies.clamp(1, MAX_DONORS)), donors: domains.len(), copies }
    }

    /// How many donors it chooses among.
    #[must_use]
    pub fn donors(&self) -> usize {
        self.donors
    }

    /// The sets of donors, as they were made.
    #[must_use]
    pub fn sets(&self) -> &[Set] {
        &self.sets
    }

    /// One donor more for an extent that has copies on those in `taken`. `left` extents, this one included,
    /// still need donors: one that must be in all of them, or the memory of the others could not be used, is
    /// taken first.
    #[must_use]
    pub fn choose(&self, donors: &[Candidate], taken: &[usize], left: u32, dice: u64) -> Option<usize> {
        let mut dice = Dice::new(dice);
        let is_apart = |donor: usize| {
            let domain = donors[donor].domain;
            taken.iter().all(|&other| other != donor && donors[other].domain != domain)
        };
        let can: Vec<usize> =
            (0..donors.len()).filter(|&donor| donors[donor].can_take() && is_apart(donor)).collect();
        let forced = can.iter().copied().filter(|&donor| donors[donor].free >= left);
        if let Some(forced) = forced.max_by_key(|&donor| donors[donor].free) {
            return Some(forced);
        }
        let mask = |list: &[usize]| list.iter().fold(0, |set: Set, donor| set | 1 << donor);
        let (taken_set, can_set) = (mask(taken), mask(&can));
        let fits = |set: &&Set| **set & taken_set == taken_set && **set & !taken_set & !can_set == 0;
        let sets: Vec<Set> = self.sets.iter().filter(fits).copied().collect();
        let members = |set: Set| can.iter().copied().filter(move |donor| set >> donor & 1 == 1);
        if taken.len() < self.copies && !sets.is_empty() {
            let mut draw = || sets[dice.below(sets.len())];
            let least_free = |set: Set| members(set).map(|donor| donors[donor].free).min().unwrap_or(0);
            let (one, other) = (draw(), draw());
            let set = if least_free(one) >= least_free(other) { one } else { other };
            return members(set).max_by_key(|&donor| donors[donor].free);
        }
        if can.is_empty() {
            return None;
        }
        let (one, other) = (can[dice.below(can.len())], can[dice.below(can.len())]);
        Some(if donors[one].free >= donors[other].free { one } else { other })
    }
}

/// Sets of `copies` donors in different domains, by permutations (Cidon et al., section 4.1), until each
/// donor shares sets with [`SCATTER`] others or with all that it can. The last resort is in none.
fn copysets(domains: &[u32], copies: usize) -> Vec<Set> {
    let own: Vec<usize> = (0..domains.len()).filter(|&donor| domains[donor] != SPILL_DOMAIN).collect();
    let others = |donor: usize| own.iter().filter(|&&other| domains[other] != domains[donor]).count();
    let mut sets: Vec<Set> = Vec::new();
    let mut dice = Dice::new(0x7370_696c_6c77_6179);
    let mates = |sets: &[Set], donor: usize| {
        let all = sets.iter().filter(|set| **set >> donor & 1 == 1).fold(0, |all: Set, set| all | set);
        all.count_ones().saturating_sub(1) as usize
    };
    // Bounded: with odd domains some donor may never get its share.
    for _ in 0..64 {
        let is_enough = own.iter().all(|&donor| mates(&sets, donor) >= SCATTER.min(others(donor)));
        if is_enough {
            break;
        }
        let mut order = own.clone();
        for at in (1..order.len()).rev() {
            order.swap(at, dice.below(at + 1));
        }
        while order.len() >= copies {
            let mut set: Set = 0;
            let mut used: Vec<u32> = Vec::new();
            order.retain(|&donor| {
                let fits = used.len() < copies && !used.contains(&domains[donor]);
                if fits {
                    set |= 1 << donor;
                    used.push(domains[donor]);
                }
                !fits
            });
            if used.len() < copies {
                break;
            }
            if !sets.contains(&set) {
                sets.push(set);
            }
        }
    }
    sets
}

/// How many extents can have `copies` copies in different domains, where each donor takes so many.
#[must_use]
pub fn capacity(donors: &[(u32, u32)], copies: usize) -> u32 {
    let mut domains: Vec<(u32, u64)> = Vec::new();
    for &(domain, extents) in donors {
        match domains.iter_mut().find(|(known, _)| *known == domain) {
            Some((_, sum)) => *sum += u64::from(extents),
            None => domains.push((domain, u64::from(extents))),
        }
    }
    let fits = |extents: u64| {
        domains.iter().map(|(_, sum)| (*sum).min(extents)).sum::<u64>() >= extents * copies as u64
    };
    let (mut low, mut high) = (0, u64::from(u32::MAX / crate::EXTENT_SLOTS));
    while low < high {
        let middle = (low + high).div_ceil(2);
        if fits(middle) { low = middle } else { high = middle - 1 }
    }
    low as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn place_all(capacities: &[(u32, u32)], copies: usize, seed: u64) -> (u32, Vec<u32>) {
        let domains: Vec<u32> = capacities.iter().map(|(domain, _)| *domain).collect();
        let chooser = Chooser::new(&domains, copies);
        let mut donors: Vec<Candidate> =
            capacities.iter().map(|&(domain, free)| Candidate { domain, free, is_well: true }).collect();
        let extents = capacity(capacities, copies);
        let mut dice = Dice::new(seed);
        let mut short = 0;
        for placed in 0..extents {
            let mut taken: Vec<usize> = Vec::new();
            while taken.len() < copies {
                match chooser.choose(&donors, &taken, extents - placed, dice.next_u64()) {
                    Some(donor) => taken.push(donor),
                    None => break,
                }
            }
            taken.iter().for_each(|&donor| donors[donor].free -= 1);
            let mut used: Vec<u32> = taken.iter().map(|&donor| donors[donor].domain).collect();
            used.sort_unstable();
            used.dedup();
            assert_eq!(used.len(), taken.len(), "two copies in one domain");
            short += u32::from(taken.len() < copies);
        }
        (short, donors.iter().map(|donor| donor.free).collect())
    }

    proptest! {
        #[test]
        fn every_extent_that_was_promised_finds_its_donors(
            capacities in proptest::collection::vec(1..60_u32, 2..9), copies in 1..4_usize, seed: u64,
        ) {
            let donors: Vec<(u32, u32)> = (0..).zip(capacities).collect();
            let (short, _) = place_all(&donors, copies, seed);
            prop_assert_eq!(short, 0);
        }

        /// Whatever donors are full, away or leave, and wherever the others are.
        #[test]
        fn no_donor_is_chosen_that_cannot_take_it_or_whose_domain_has_it(
            donors in proptest::collection::vec((0..6_u32, 0..4_u32, any::<bool>()), 1..20),
            taken in any::<u32>(), copies in 1..6_usize, left in 1..40_u32, dice: u64,
        ) {
            let domains: Vec<u32> = donors.iter().map(|(domain, ..)| *domain).collect();
            let candidate = |&(domain, free, is_well): &(u32, u32, bool)| Candidate { domain, free, is_well };
            let candidates: Vec<Candidate> = donors.iter().map(candidate).collect();
            let taken: Vec<usize> = (0..donors.len()).filter(|donor| taken >> donor & 3 == 3).collect();
            let is_good = |donor: usize| {
                let is_apart = taken.iter().all(|other| domains[*other] != domains[donor]);
                candidates[donor].is_well && candidates[donor].free > 0 && is_apart
            };
            let chosen = Chooser::new(&domains, copies).choose(&candidates, &taken, left, dice);
            prop_assert_eq!(chosen.map(is_good), (0..donors.len()).any(is_good).then_some(true));
        }

        #[test]
        fn no_set_has_two_donors_in_one_domain(
            domains in proptest::collection::vec(0..6_u32, 1..20), copies in 1..4_usize,
        ) {
            for set in Chooser::new(&domains, copies).sets() {
                let members = (0..domains.len()).filter(|donor| set >> donor & 1 == 1);
                let mut used: Vec<u32> = members.map(|donor| domains[donor]).collect();
                used.sort_unstable();
                used.dedup();
                prop_assert_eq!((used.len(), set.count_ones() as usize), (copies, copies));
            }
        }
    }

    #[test]
    fn the_room_of_unequal_donors_is_what_copies_on_different_ones_can_use() {
        assert_eq!(capacity(&[(0, 8), (1, 8), (2, 8)], 2), 12);
        assert_eq!(capacity(&[(0, 4), (1, 4), (2, 100)], 2), 8);
        assert_eq!(capacity(&[(0, 8), (0, 8)], 2), 0);
        assert_eq!(capacity(&[(0, 5), (1, 7)], 1), 12);
        assert_eq!(capacity(&[(0, 5), (1, 7), (2, 9)], 3), 5);
    }

    #[test]
    fn load_is_spread_evenly() {
        let donors: Vec<(u32, u32)> = (0..12).map(|donor| (donor, 1000)).collect();
        let domains: Vec<u32> = (0..12).collect();
        let chooser = Chooser::new(&domains, 2);
        let mut free: Vec<Candidate> =
            donors.iter().map(|&(domain, free)| Candidate { domain, free, is_well: true }).collect();
        let mut dice = Dice::new(1);
        for _ in 0..3000 {
            let mut taken = Vec::new();
            while taken.len() < 2 {
                taken.push(chooser.choose(&free, &taken, 6000, dice.next_u64()).unwrap());
            }
            taken.iter().for_each(|&donor| free[donor].free -= 1);
        }
        let used: Vec<u32> = free.iter().map(|donor| 1000 - donor.free).collect();
        assert!(used.iter().all(|used| (400..=600).contains(used)), "{used:?}");
        assert!(chooser.sets().len() <= 12 * SCATTER, "{}", chooser.sets().len());
    }

    #[test]
    fn donors_that_are_not_well_are_not_chosen() {
        let well = |is_well| Candidate { domain: 0, free: 4, is_well };
        let donors = [
            well(false),
            Candidate { domain: 1, ..well(true) },
            Candidate { domain: 2, free: 0, ..well(true) },
        ];
        let chooser = Chooser::new(&[0, 1, 2], 2);
        for dice in 0..32 {
            assert_eq!(chooser.choose(&donors, &[], 100, dice), Some(1));
            assert_eq!(chooser.choose(&donors, &[1], 100, dice), None);
        }
    }
}
