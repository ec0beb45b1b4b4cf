//! A site's donors, and runs that come and go.

use spillway_pool::EXTENT_BYTES;
use spillway_pool::draw::{Offer, Wish, draw, share};
use spillway_pool::placement::{Dice, capacity};
use spillway_pool::slabs::room::slabs_for;
use spillway_pool::{EXTENT_SLOTS, MAX_DONORS};

use crate::progress::Progress;

/// How a run's pages are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheme {
    /// As the user writes it.
    pub name: &'static str,
    /// Donors that an extent or a slab is on.
    pub width: usize,
    /// Something of it is lost once so many of them are dead.
    pub fatal: usize,
    /// Parts of a slab that are data; `None` of copies.
    pub data: Option<usize>,
}

/// The schemes that are looked at.
pub const SCHEMES: [Scheme; 3] = [
    Scheme { name: "copies=2", width: 2, fatal: 2, data: None },
    Scheme { name: "copies=3", width: 3, fatal: 3, data: None },
    Scheme { name: "data=4&parity=2", width: 6, fatal: 3, data: Some(4) },
];

impl Scheme {
    /// Extents, or slabs, that so many bytes of pages fill, each written once.
    pub fn extents_for(&self, bytes: u64) -> u64 {
        bytes.div_ceil(EXTENT_BYTES).div_ceil(self.data.unwrap_or(1) as u64)
    }

    /// Extents, or slabs, for which a run that says that it has so many bytes of pages asks for room: more,
    /// where pages that are written anew go elsewhere.
    pub fn asked_for(&self, bytes: u64) -> u64 {
        let extents = bytes.div_ceil(EXTENT_BYTES);
        self.data.map_or(extents, |data| slabs_for(extents * u64::from(EXTENT_SLOTS), data))
    }

    /// Of an extent's or a slab's pages so much is lost where it is: those on dead data parts.
    pub fn lost_share(&self) -> f64 {
        self.fatal as f64 / self.width as f64
    }
}

/// How a run finds its donors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// As the product does it: two choices by free memory, over failure domains.
    TwoChoices,
    /// Any in different failure domains.
    Chance,
    /// Those with the most free memory.
    Freest,
}

/// What a site is like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    pub donors: usize,
    pub racks: usize,
    pub offered_bytes: u64,
    /// Share of all memory that runs have been promised.
    pub full: f64,
    /// How much a run writes of the bytes that it asks for.
    pub written: f64,
    pub least_run_bytes: u64,
    pub most_run_bytes: u64,
    /// Runs that begin, or end, at one time: they see the same free memory.
    pub at_once: usize,
    /// How often all runs are replaced by others.
    pub turns: usize,
    /// Neighbouring extents that are placed as one.
    pub together: u64,
    pub seed: u64,
}

/// A run that lasts.
#[derive(Clone, Debug)]
pub struct Run {
    /// Bytes of pages that it has written.
    pub bytes: u64,
    /// So many extents, or slabs, that are placed as one.
    pub units: u32,
    /// For so many it has asked for room.
    pub asked_units: u32,
    /// Such units that each of its donors has promised.
    pub share_units: u32,
    /// The donors that it has.
    pub donors: Vec<u16>,
}

/// Donors and the runs on them.
#[derive(Clone, Debug)]
pub struct Site {
    pub terms: Terms,
    pub free: Vec<u64>,
    pub runs: Vec<Run>,
    /// Runs that found too little room.
    pub refused: usize,
    dice: Dice,
}

impl Terms {
    /// The failure domain of a donor.
    pub fn rack(&self, donor: usize) -> u32 {
        (donor * self.racks / self.donors) as u32
    }

    /// Bytes of such a unit on one donor.
    pub fn unit_bytes(&self) -> u64 {
        self.together * EXTENT_BYTES
    }
}

/// A number from 0 to 1.
pub fn fraction(dice: &mut Dice) -> f64 {
    (dice.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

impl Site {
    /// A site at which runs have come and gone for a while.
    pub fn after_a_while(terms: Terms, scheme: Scheme, by: By, progress: &Progress) -> Self {
        let mut site = Self {
            terms,
            free: vec![terms.offered_bytes; terms.donors],
            runs: Vec::new(),
            refused: 0,
            dice: Dice::new(terms.seed),
        };
        site.fill(scheme, by);
        let replaced = site.runs.len() * terms.turns;
        for gone in 0..replaced.div_ceil(terms.at_once) {
            progress.say(|| format!("{}: {} of {replaced} runs replaced", scheme.name, gone * terms.at_once));
            for _ in 0..terms.at_once.min(site.runs.len()) {
                let run = site.dice.below(site.runs.len());
                let run = site.runs.swap_remove(run);
                let bytes = u64::from(run.share_units) * terms.unit_bytes();
                run.donors.iter().for_each(|&donor| site.free[usize::from(donor)] += bytes);
            }
            site.fill(scheme, by);
        }
        site
    }

    /// Bytes of each donor that runs have been promised.
    pub fn promised(&self) -> Vec<u64> {
        self.free.iter().map(|free| self.terms.offered_bytes - free).collect()
    }

    /// Lets runs begin until the memory is as full as it is to be.
    fn fill(&mut self, scheme: Scheme, by: By) {
        let all = self.terms.offered_bytes as f64 * self.terms.donors as f64;
        // Where no run finds room any more, none comes.
        let mut in_vain = 0;
        while in_vain < 100 {
            let promised: u64 = self.promised().iter().sum();
            if promised as f64 >= all * self.terms.full {
                return;
            }
            let (seen, before) = (self.free.clone(), self.runs.len());
            for _ in 0..self.terms.at_once {
                self.begin(scheme, by, &seen);
            }
            in_vain = if self.runs.len() == before { in_vain + 1 } else { 0 };
        }
    }

    /// A run of some size begins, which sees this free memory.
    fn begin(&mut self, scheme: Scheme, by: By, seen: &[u64]) {
        let terms = self.terms;
        let (least, most) = (terms.least_run_bytes as f64, terms.most_run_bytes as f64);
        let asked_bytes = (least * (most / least).powf(fraction(&mut self.dice))) as u64;
        let bytes = (asked_bytes as f64 * terms.written) as u64;
        let units = scheme.extents_for(bytes).div_ceil(terms.together);
        let asked_units = scheme.asked_for(asked_bytes).div_ceil(terms.together);
        let share_units = share(asked_units, scheme.width, MAX_DONORS, 1);
        let share_bytes = share_units * terms.unit_bytes();
        let donors = self.find(scheme, by, seen, share_bytes);
        let room: Vec<(u32, u32)> = donors
            .iter()
            .filter(|&&donor| self.free[donor] >= share_bytes)
            .map(|&donor| (terms.rack(donor), share_units as u32))
            .collect();
        // What a donor has left where it is less is not taken here, which is more than the product refuses.
        if room.len() < donors.len() || u64::from(capacity(&room, scheme.width)) < asked_units {
            self.refused += 1;
            return;
        }
        donors.iter().for_each(|&donor| self.free[donor] -= share_bytes);
        self.runs.push(Run {
            bytes,
            units: units as u32,
            asked_units: asked_units as u32,
            share_units: share_units as u32,
            donors: donors.iter().map(|&donor| donor as u16).collect(),
        });
    }

    fn find(&mut self, scheme: Scheme, by: By, seen: &[u64], share_bytes: u64) -> Vec<usize> {
        let terms = self.terms;
        let seed = self.dice.next_u64();
        match by {
            By::TwoChoices => {
                let offer =
                    |(donor, &free_bytes): (usize, &u64)| Offer { domain: terms.rack(donor), free_bytes };
                let offers: Vec<Offer> = seen.iter().enumerate().map(offer).collect();
                let wish = Wish { places: MAX_DONORS, width: scheme.width, asked_bytes: Some(share_bytes) };
                draw(&offers, wish, seed)
            }
            By::Chance => {
                let (mut dice, mut found) = (Dice::new(seed), Vec::new());
                draw_apart(&terms, &mut dice, MAX_DONORS, &mut found);
                found
            }
            By::Freest => {
                let mut all: Vec<usize> = (0..terms.donors).collect();
                // Of donors that have as much any may be first, the same for all runs.
                let name = |donor: usize| Dice::new(donor as u64).next_u64();
                all.sort_by_cached_key(|&donor| (std::cmp::Reverse(seen[donor]), name(donor)));
                all.truncate(MAX_DONORS);
                all
            }
        }
    }
}

/// Draws donors in different racks by chance, until there are so many.
pub fn draw_apart(terms: &Terms, dice: &mut Dice, count: usize, found: &mut Vec<usize>) {
    while found.len() < count {
        let donor = dice.below(terms.donors);
        if found.iter().all(|&other| terms.rack(other) != terms.rack(donor)) {
            found.push(donor);
        }
    }
}
