//! Which donors of a large site a run begins with: each run draws its own.
//!
//! A run has [`MAX_DONORS`](crate::MAX_DONORS) at most, and a site may have thousands. Were those with the
//! most free memory taken, all runs that begin at one time would take the same ones, which may stand in one
//! rack. So a run throws dice of its own: of two donors drawn by chance the one with more free memory is
//! taken (power of two choices), from failure domains that the run has fewest donors in.

use std::cmp::Reverse;

use crate::EXTENT_BYTES;
use crate::placement::Dice;

/// A donor that a run can begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Number of its failure domain.
    pub domain: u32,
    /// Bytes that nobody was promised, as it last said.
    pub free_bytes: u64,
}

/// What a run wants of a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// Donors that it takes, where there are so many.
    pub places: usize,
    /// Failure domains that it cannot do without: one for each copy of a page, or each part of a slab.
    pub width: usize,
    /// What each donor is asked for; `None` where it is asked for all that it has left.
    pub asked_bytes: Option<u64>,
}

/// The donors that a run begins with, as indices of `offers`. Where there are more than it has places for,
/// those that hold no extent are left out, and those that have less than they are asked for come last, the
/// freest first; but failure domains come before memory, until the run has as many as it cannot do without.
#[must_use]
pub fn draw(offers: &[Offer], wish: Wish, seed: u64) -> Vec<usize> {
    if offers.len() <= wish.places {
        let mut all: Vec<usize> = (0..offers.len()).collect();
        all.sort_by_key(|&offer| Reverse(offers[offer].free_bytes));
        return all;
    }
    let mut site = Site::of(offers, wish.asked_bytes);
    let mut dice = Dice::new(seed);
    let mut drawn = Vec::with_capacity(wish.places);
    let mut domains = 0;
    while drawn.len() < wish.places {
        let Some(at) = site.next(domains < wish.width, &mut dice) else { break };
        let Donor { index, domain, .. } = site.left.swap_remove(at);
        domains += usize::from(site.uses[domain] == 0);
        site.uses[domain] += 1;
        drawn.push(index);
    }
    drawn
}

#[derive(Clone, Copy, Debug)]
struct Donor {
    index: usize,
    /// Which failure domain, counted from 0.
    domain: usize,
    free_bytes: u64,
    /// It has less than it is asked for.
    is_short: bool,
}

/// Donors that are not drawn yet, and how many of each failure domain are.
struct Site {
    left: Vec<Donor>,
    uses: Vec<u32>,
}

impl Site {
    fn of(offers: &[Offer], asked_bytes: Option<u64>) -> Self {
        let mut domains: Vec<u32> = offers.iter().map(|offer| offer.domain).collect();
        domains.sort_unstable();
        domains.dedup();
        let most = offers.iter().map(|offer| offer.free_bytes).max().unwrap_or(0);
        // Who is asked for all that is left is of little use where others have given it away.
        let enough = asked_bytes.unwrap_or(most / 2).max(EXTENT_BYTES);
        let usable = offers.iter().enumerate().filter(|(_, offer)| offer.free_bytes >= EXTENT_BYTES);
        let left = usable.map(|(index, offer)| Donor {
            index,
            domain: domains.binary_search(&offer.domain).unwrap_or(0),
            free_bytes: offer.free_bytes,
            is_short: offer.free_bytes < enough,
        });
        Self { left: left.collect(), uses: vec![0; domains.len()] }
    }

    /// Where the next donor is in what is left.
    fn next(&self, needs_domain: bool, dice: &mut Dice) -> Option<usize> {
        let rank = |donor: &Donor| {
            let (uses, is_short) = (self.uses[donor.domain], donor.is_short);
            // Pages cannot be placed at all on too few domains, whatever memory these have.
            (needs_domain && uses > 0, is_short, uses)
        };
        let best = self.left.iter().map(rank).min()?;
        let can = (0..self.left.len()).filter(|&at| rank(&self.left[at]) == best);
        let (_, is_short, _) = best;
        if is_short {
            return can.max_by_key(|&at| self.left[at].free_bytes);
        }
        let can: Vec<usize> = can.collect();
        let (one, other) = (can[dice.below(can.len())], can[dice.below(can.len())]);
        Some(if self.left[one].free_bytes >= self.left[other].free_bytes { one } else { other })
    }
}

/// Extents beyond its share that a donor is asked for, where it has them. The place of a copy that is broken
/// off stays taken for as long as something may come late to it, 30 s, and the copy is made in another one. A
/// donor that was lent just what is needed has no other: so a drain to the one donor that came for it stood
/// still for those 30 s where one copy had been broken off. Two, for the copy that is made in its place may
/// be broken off too. More would help only where several workers lose their copies at once; it would be
/// memory that no run can have, and that is promised by each donor to each run.
pub const SPARE_EXTENTS: u64 = 2;

/// Extents that each of so many donors lends, where `extents` with so many copies or parts are to have room:
/// so many that the others can make up for as many as are `lost`, where these are enough for a part each.
#[must_use]
pub fn share(extents: u64, copies: usize, donors: usize, lost: usize) -> u64 {
    let shares = donors.saturating_sub(lost).max(copies).min(donors.max(1)) as u64;
    // One more, as chance does not fill all evenly.
    ((extents * copies as u64).div_ceil(shares) + 1).min(extents)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::MAX_DONORS;

    const GIB: u64 = 1 << 30;

    fn wish(places: usize, width: usize, asked_gib: u64) -> Wish {
        Wish { places, width, asked_bytes: Some(asked_gib * GIB) }
    }

    /// Donors of equal memory, so many in each of so many racks.
    fn racks(racks: u32, each: u32) -> Vec<Offer> {
        (0..racks * each).map(|donor| Offer { domain: donor / each, free_bytes: 64 * GIB }).collect()
    }

    fn domains(offers: &[Offer], drawn: &[usize]) -> BTreeSet<u32> {
        drawn.iter().map(|&offer| offers[offer].domain).collect()
    }

    proptest! {
        #[test]
        fn a_run_has_different_donors_in_as_many_domains_as_it_needs(
            offers in proptest::collection::vec((0..12_u32, 0..64_u64), 0..80),
            places in 6..33_usize, width in 1..7_usize,
            asked_gib in proptest::option::of(0..64_u64), seed: u64,
        ) {
            let offers: Vec<Offer> = offers
                .into_iter()
                .map(|(domain, gib)| Offer { domain, free_bytes: gib * GIB })
                .collect();
            let wish = Wish { places, width, asked_bytes: asked_gib.map(|gib| gib * GIB) };
            let drawn = draw(&offers, wish, seed);
            let usable: Vec<usize> = match offers.len() <= places {
                true => (0..offers.len()).collect(),
                false => (0..offers.len()).filter(|&offer| offers[offer].free_bytes > 0).collect(),
            };
            prop_assert_eq!(drawn.len(), usable.len().min(places));
            prop_assert_eq!(drawn.iter().collect::<BTreeSet<_>>().len(), drawn.len());
            let needed = domains(&offers, &usable).len().min(width);
            prop_assert!(domains(&offers, &drawn).len() >= needed);
            prop_assert_eq!(draw(&offers, wish, seed), drawn);
        }
    }

    #[test]
    fn runs_that_begin_at_one_time_take_different_donors() {
        let offers = racks(400, 25);
        let mut taken = vec![0; offers.len()];
        for seed in 0..1000 {
            let drawn = draw(&offers, wish(MAX_DONORS, 2, 1), seed);
            assert_eq!((drawn.len(), domains(&offers, &drawn).len()), (MAX_DONORS, MAX_DONORS));
            drawn.iter().for_each(|&donor| taken[donor] += 1);
        }
        // 3.2 on average, and by chance alone.
        assert!(taken.iter().all(|&taken| taken <= 14), "{:?}", taken.iter().max());
        assert!(taken.iter().filter(|taken| **taken == 0).count() < 700);
    }

    #[test]
    fn the_freest_donors_are_not_all_taken_of_one_rack() {
        let mut offers = racks(8, 40);
        // A rack that has just come.
        offers[..40].iter_mut().for_each(|offer| offer.free_bytes = 128 * GIB);
        for seed in 0..100 {
            let drawn = draw(&offers, wish(MAX_DONORS, 6, 8), seed);
            for domain in 0..8 {
                let of_it = drawn.iter().filter(|&&donor| offers[donor].domain == domain).count();
                assert_eq!(of_it, MAX_DONORS / 8, "rack {domain}");
            }
        }
    }

    #[test]
    fn donors_that_have_enough_come_first_once_there_are_domains_enough() {
        let mut offers = racks(10, 20);
        offers[40..].iter_mut().for_each(|offer| offer.free_bytes = GIB);
        offers[199].free_bytes = 2 * GIB;
        let drawn = draw(&offers, wish(MAX_DONORS, 3, 4), 7);
        let short: Vec<usize> = drawn.iter().copied().filter(|&donor| donor >= 40).collect();
        assert_eq!(short, [199], "one that is short, the freest, for the third domain");
        // Asked for all that they have, donors that have little left come last too.
        let all = draw(&offers, Wish { asked_bytes: None, ..wish(MAX_DONORS, 2, 0) }, 7);
        assert!(all.iter().all(|&donor| donor < 40), "{all:?}");
    }

    #[test]
    fn two_choices_keep_the_load_even() {
        let spread = |has_choice: bool| {
            let mut offers = racks(100, 10);
            for seed in 0..2000 {
                let seen: Vec<Offer> = match has_choice {
                    true => offers.clone(),
                    // Where all look the same, there is nothing to choose.
                    false => racks(100, 10),
                };
                let drawn = draw(&seen, wish(MAX_DONORS, 2, 1), seed);
                drawn.iter().for_each(|&donor| offers[donor].free_bytes -= GIB / 4);
            }
            let used = |offer: &Offer| (64 * GIB - offer.free_bytes) / (GIB / 4);
            let most = offers.iter().map(used).max().unwrap();
            (most, offers.iter().map(used).min().unwrap())
        };
        let (most, least) = spread(true);
        assert!(most <= 68 && least >= 54, "64 on average: {least} to {most}");
        let (most, least) = spread(false);
        assert!(most >= 80 && least <= 48, "by chance alone: {least} to {most}");
    }

    #[test]
    fn the_others_can_make_up_for_donors_that_are_lost() {
        for (extents, copies, donors) in [(2048, 2, 32), (100, 3, 4), (64, 3, 8), (7, 6, 6), (1000, 2, 2)] {
            for lost in 1..3 {
                let share = share(extents, copies, donors, lost);
                let left = donors.saturating_sub(lost).max(copies).min(donors) as u64;
                assert!(share * left >= extents * copies as u64 && share <= extents, "{share}");
            }
        }
        assert_eq!(share(5, 2, 1, 1), 5);
    }
}
