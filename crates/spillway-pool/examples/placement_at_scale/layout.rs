//! Where the extents, or slabs, of one run lie among its donors: placed one by one, as the product does it.

use std::collections::{BTreeMap, BTreeSet};

use spillway_pool::placement::{Candidate, Chooser, Dice, Set, capacity};

use crate::site::{Run, Scheme, Terms};

/// Where a run's pages are.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Sets of its donors, and how many units lie on each.
    pub sets: Vec<(Set, u32)>,
    /// What each donor can still take.
    pub candidates: Vec<Candidate>,
    /// Units for which donors were lacking.
    pub short: u32,
    /// Copysets that the run was given.
    pub copysets: usize,
    /// Units that lie on one of these.
    pub on_copysets: u32,
}

/// What chooses among a run's donors.
pub fn chooser(terms: &Terms, run: &Run, scheme: Scheme) -> Chooser {
    let domains: Vec<u32> = run.donors.iter().map(|&donor| terms.rack(usize::from(donor))).collect();
    Chooser::new(&domains, scheme.width)
}

/// Places all of a run.
pub fn place(terms: &Terms, run: &Run, scheme: Scheme, seed: u64) -> Layout {
    let mut dice = Dice::new(seed);
    let chooser = chooser(terms, run, scheme);
    let donor = |&donor: &u16| Candidate {
        domain: terms.rack(usize::from(donor)),
        free: run.share_units,
        is_well: true,
    };
    let mut candidates: Vec<Candidate> = run.donors.iter().map(donor).collect();
    // What is coded leaves some extents of each donor for what is moved.
    let kept = u32::from(scheme.data.is_some());
    candidates.iter_mut().for_each(|donor| donor.free = donor.free.saturating_sub(kept));
    // A run with copies counts what it may store; one that is coded what there is room for.
    let room: Vec<(u32, u32)> = candidates.iter().map(|donor| (donor.domain, donor.free)).collect();
    let most = if scheme.data.is_some() { capacity(&room, scheme.width) } else { run.asked_units };
    let mut sets: BTreeMap<Set, u32> = BTreeMap::new();
    let (mut short, mut on_copysets) = (0, 0);
    for placed in 0..run.units {
        let left = most.saturating_sub(placed);
        match take(&chooser, &mut candidates, scheme.width, left, &mut dice) {
            Some(set) => *sets.entry(set).or_default() += 1,
            None => short += 1,
        }
    }
    for (set, units) in &sets {
        on_copysets += if chooser.sets().contains(set) { *units } else { 0 };
    }
    candidates.iter_mut().for_each(|donor| donor.free += kept);
    Layout {
        sets: sets.into_iter().collect(),
        candidates,
        short,
        copysets: chooser.sets().len(),
        on_copysets,
    }
}

impl Layout {
    /// Different groups of so many donors that are together in some set: whose death loses something.
    pub fn groups(&self, size: usize) -> usize {
        let mut groups: BTreeSet<Set> = BTreeSet::new();
        for (set, _) in &self.sets {
            let mut smaller = BTreeSet::from([*set]);
            for _ in size..set.count_ones() as usize {
                let less = |set: &Set| members(*set).map(|member| *set & !(1 << member)).collect::<Vec<_>>();
                smaller = smaller.iter().flat_map(less).collect();
            }
            groups.append(&mut smaller);
        }
        groups.len()
    }
}

/// Takes a place on each of so many donors; none where these are not to be had.
pub fn take(
    chooser: &Chooser,
    candidates: &mut [Candidate],
    width: usize,
    left: u32,
    dice: &mut Dice,
) -> Option<Set> {
    let mut taken: Vec<usize> = Vec::with_capacity(width);
    while taken.len() < width {
        taken.push(chooser.choose(candidates, &taken, left, dice.next_u64())?);
    }
    taken.iter().for_each(|&donor| candidates[donor].free -= 1);
    Some(taken.iter().fold(0, |set, donor| set | 1 << donor))
}

/// The members of a set.
pub fn members(set: Set) -> impl Iterator<Item = usize> {
    (0..Set::BITS as usize).filter(move |member| set >> member & 1 == 1)
}
