//! Random placement, for comparison: each extent's copies, or each slab's parts, on any donors of the whole
//! site that are in different failure domains.

use spillway_pool::EXTENT_BYTES;
use spillway_pool::placement::Dice;

use crate::failures::{Kind, Losses, cases_with, dead_in};
use crate::progress::Progress;
use crate::repair::Traffic;
use crate::site::{Run, Scheme, Terms};

/// What was seen of extents that were placed so.
#[derive(Clone, Debug)]
pub struct Random {
    /// Extents that each donor has.
    pub extents: Vec<u32>,
    /// Where donors die that stand anywhere, and where whole racks die.
    pub losses: [Losses; 2],
    /// After the death of one donor, and of as many as die in the first case.
    pub traffic: [Traffic; 2],
    /// Extents, or slabs, that were placed.
    pub placed: u64,
}

struct World<'a> {
    terms: &'a Terms,
    scheme: Scheme,
    racks: Vec<u32>,
    /// In which of 64 cases each donor is dead, for each kind of failure.
    dead: [Vec<u64>; 2],
    dice: Dice,
}

/// The donor whose death is looked at alone: any is as good as another.
const ALONE: usize = 0;

/// Places the pages of these runs one extent at a time, and looks at each once.
pub fn random(terms: &Terms, runs: &[Run], scheme: Scheme, kinds: [Kind; 2], progress: &Progress) -> Random {
    let mut dice = Dice::new(terms.seed ^ 0x7261_6e64);
    let dead = kinds.map(|kind| dead_in(terms, kind, &mut dice));
    let racks = (0..terms.donors).map(|donor| terms.rack(donor)).collect();
    let mut world = World { terms, scheme, racks, dead, dice };
    let mut seen = Random {
        extents: vec![0; terms.donors],
        losses: [Losses::default(); 2],
        traffic: [0; 2].map(|_: i32| Traffic::new(terms.donors)),
        placed: 0,
    };
    let mut lost_anywhere = [0; 2];
    for (number, run) in runs.iter().enumerate() {
        progress.say(|| format!("{}: random placement, {number} of {} runs", scheme.name, runs.len()));
        let lost = world.place_run(run, &mut seen);
        for kind in 0..2 {
            seen.losses[kind].add_run(lost[kind]);
            lost_anywhere[kind] |= lost[kind];
        }
    }
    for (losses, lost) in seen.losses.iter_mut().zip(lost_anywhere) {
        losses.end_cases(lost);
    }
    seen
}

impl World<'_> {
    /// The cases in which the run loses something.
    fn place_run(&mut self, run: &Run, seen: &mut Random) -> [u64; 2] {
        let extents = self.scheme.extents_for(run.bytes);
        let lost_bytes = run.bytes as f64 / extents as f64 * self.scheme.lost_share();
        let (mut lost, mut written) = ([0; 2], [0; 2]);
        let mut donors = Vec::with_capacity(self.scheme.width);
        for _ in 0..extents {
            donors.clear();
            self.draw(&mut donors);
            donors.iter().for_each(|&donor| seen.extents[donor] += 1);
            for (kind, dead) in self.dead.iter().enumerate() {
                let cases = cases_with(donors.iter().map(|&donor| dead[donor]), self.scheme.fatal);
                lost[kind] |= cases;
                seen.losses[kind].bytes += f64::from(cases.count_ones()) * lost_bytes;
            }
            if donors.contains(&ALONE) {
                written[0] += self.make_anew(&donors, |donor| donor == ALONE, &mut seen.traffic[0]);
            }
            let dead = std::mem::take(&mut self.dead[0]);
            let is_dead = |donor: usize| dead[donor] & 1 == 1;
            if donors.iter().any(|&donor| is_dead(donor)) {
                written[1] += self.make_anew(&donors, is_dead, &mut seen.traffic[1]);
            }
            self.dead[0] = dead;
        }
        seen.placed += extents;
        seen.traffic.iter_mut().zip(written).for_each(|(traffic, written)| traffic.end_run(written));
        lost
    }

    /// Donors in different failure domains beside those that are there, as many as there are to be.
    fn draw(&mut self, donors: &mut Vec<usize>) {
        while donors.len() < self.scheme.width {
            // Quicker than a remainder, and as even for so few.
            let donor = (((self.dice.next_u64() >> 32) * self.terms.donors as u64) >> 32) as usize;
            if donors.iter().all(|&other| self.racks[other] != self.racks[donor]) {
                donors.push(donor);
            }
        }
    }

    /// By the steps of the product: a copy of one that is left, or a slab's rows to another slab. Returns the
    /// bytes that are written.
    fn make_anew(&mut self, donors: &[usize], is_dead: impl Fn(usize) -> bool, traffic: &mut Traffic) -> u64 {
        let mut left: Vec<usize> = donors.iter().copied().filter(|&donor| !is_dead(donor)).collect();
        let gone = donors.len() - left.len();
        if gone >= self.scheme.fatal {
            return 0;
        }
        traffic.lost_bytes += gone as u64 * EXTENT_BYTES;
        let (reads, mut to) = match self.scheme.data {
            None => (gone, left.clone()),
            Some(data) => (data, Vec::new()),
        };
        let kept = to.len();
        while to.len() < self.scheme.width {
            let before = to.len();
            self.draw(&mut to);
            let alive: Vec<usize> = to[before..].iter().copied().filter(|&donor| !is_dead(donor)).collect();
            to.truncate(before);
            to.extend(alive);
        }
        for _ in 0..reads {
            let one = self.dice.below(left.len());
            traffic.read(left[one], EXTENT_BYTES);
            if self.scheme.data.is_some() {
                left.swap_remove(one);
            }
        }
        to[kept..].iter().for_each(|&donor| traffic.write(donor, EXTENT_BYTES));
        (to.len() - kept) as u64 * EXTENT_BYTES
    }
}
