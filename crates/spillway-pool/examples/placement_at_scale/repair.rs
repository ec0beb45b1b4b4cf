//! What it takes to make anew what dead donors had.

use spillway_pool::placement::{Candidate, Chooser, Dice, Set, capacity};

use crate::layout::{Layout, chooser, members, take};
use crate::site::{Run, Scheme, Site};

/// Bytes that donors give and take while what was lost is made anew.
#[derive(Clone, Debug)]
pub struct Traffic {
    /// What each donor gives.
    read: Vec<u64>,
    /// What each donor takes.
    written: Vec<u64>,
    /// Bytes on the dead donors that can be had of others.
    pub lost_bytes: u64,
    /// Bytes of them for which the run's donors have no room.
    pub no_room_bytes: u64,
    /// Runs that repair something.
    pub runs: usize,
    /// Bytes that the run with the most to do writes.
    pub most_of_a_run: u64,
}

/// The same in a few numbers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Summary {
    pub lost_bytes: f64,
    pub read_bytes: f64,
    pub written_bytes: f64,
    pub no_room_bytes: f64,
    /// Donors that give or take something.
    pub donors: f64,
    /// Bytes that one donor gives or takes, whichever is more, at most.
    pub most_of_a_donor: f64,
    pub runs: f64,
    pub most_of_a_run: f64,
}

impl Traffic {
    /// None so far, of so many donors.
    pub fn new(donors: usize) -> Self {
        Self {
            read: vec![0; donors],
            written: vec![0; donors],
            lost_bytes: 0,
            no_room_bytes: 0,
            runs: 0,
            most_of_a_run: 0,
        }
    }

    /// A donor gives so much.
    pub fn read(&mut self, donor: usize, bytes: u64) {
        self.read[donor] += bytes;
    }

    /// A donor takes so much.
    pub fn write(&mut self, donor: usize, bytes: u64) {
        self.written[donor] += bytes;
    }

    /// A run has written so much in all.
    pub fn end_run(&mut self, bytes: u64) {
        self.runs += usize::from(bytes > 0);
        self.most_of_a_run = self.most_of_a_run.max(bytes);
    }

    /// In a few numbers.
    pub fn summary(&self) -> Summary {
        let both = || self.read.iter().zip(&self.written);
        Summary {
            lost_bytes: self.lost_bytes as f64,
            read_bytes: self.read.iter().sum::<u64>() as f64,
            written_bytes: self.written.iter().sum::<u64>() as f64,
            no_room_bytes: self.no_room_bytes as f64,
            donors: both().filter(|(read, written)| **read + **written > 0).count() as f64,
            most_of_a_donor: both().map(|(read, written)| *read.max(written)).max().unwrap_or(0) as f64,
            runs: self.runs as f64,
            most_of_a_run: self.most_of_a_run as f64,
        }
    }
}

impl Summary {
    /// The mean of several.
    pub fn mean(all: &[Self]) -> Self {
        let of = |pick: fn(&Self) -> f64| all.iter().map(pick).sum::<f64>() / all.len().max(1) as f64;
        Self {
            lost_bytes: of(|one| one.lost_bytes),
            read_bytes: of(|one| one.read_bytes),
            written_bytes: of(|one| one.written_bytes),
            no_room_bytes: of(|one| one.no_room_bytes),
            donors: of(|one| one.donors),
            most_of_a_donor: of(|one| one.most_of_a_donor),
            runs: of(|one| one.runs),
            most_of_a_run: of(|one| one.most_of_a_run),
        }
    }
}

/// One run's repair, while it lasts.
struct Repair<'a> {
    run: &'a Run,
    scheme: Scheme,
    chooser: Chooser,
    candidates: Vec<Candidate>,
    dead: Set,
    unit_bytes: u64,
    dice: Dice,
    /// Bytes that it has written.
    written: u64,
}

/// What all runs do once these donors are dead.
pub fn repair(site: &Site, layouts: &[Layout], scheme: Scheme, is_dead: &[bool], seed: u64) -> Traffic {
    let mut traffic = Traffic::new(site.terms.donors);
    for (number, (run, layout)) in site.runs.iter().zip(layouts).enumerate() {
        let dead = (0..run.donors.len()).filter(|&member| is_dead[usize::from(run.donors[member])]);
        let dead = dead.fold(0, |set: Set, member| set | 1 << member);
        if dead == 0 {
            continue;
        }
        let mut candidates = layout.candidates.clone();
        members(dead).for_each(|member| candidates[member].is_well = false);
        let mut repair = Repair {
            run,
            scheme,
            chooser: chooser(&site.terms, run, scheme),
            candidates,
            dead,
            unit_bytes: site.terms.unit_bytes(),
            dice: Dice::new(seed ^ number as u64),
            written: 0,
        };
        repair.all(layout, &mut traffic);
        traffic.end_run(repair.written);
    }
    traffic
}

impl Repair<'_> {
    /// What has the fewest copies comes first.
    fn all(&mut self, layout: &Layout, traffic: &mut Traffic) {
        let mut hurt: Vec<(Set, u32)> =
            layout.sets.iter().copied().filter(|(set, _)| set & self.dead != 0).collect();
        hurt.sort_by_key(|(set, _)| std::cmp::Reverse((set & self.dead).count_ones()));
        for (set, units) in hurt {
            let gone = (set & self.dead).count_ones();
            if gone as usize >= self.scheme.fatal {
                continue;
            }
            for _ in 0..units {
                traffic.lost_bytes += u64::from(gone) * self.unit_bytes;
                match self.scheme.data {
                    None => self.copy(set & !self.dead, gone, traffic),
                    Some(data) => self.empty(set & !self.dead, (gone, data), traffic),
                }
            }
        }
    }

    /// Makes lost copies anew, as `survey::place_for` finds their donors.
    fn copy(&mut self, left: Set, gone: u32, traffic: &mut Traffic) {
        let source = self.some_of(left, 1);
        let mut taken: Vec<usize> = members(left).collect();
        for _ in 0..gone {
            let dice = self.dice.next_u64();
            let Some(target) = self.chooser.choose(&self.candidates, &taken, u32::MAX, dice) else {
                traffic.no_room_bytes += self.unit_bytes;
                continue;
            };
            self.candidates[target].free -= 1;
            taken.push(target);
            self.read(source, traffic);
            self.write(1 << target, traffic);
        }
    }

    /// Empties a slab: its rows are read of `data` parts and written to another slab; then its places are
    /// free.
    fn empty(&mut self, left: Set, (gone, data): (u32, usize), traffic: &mut Traffic) {
        let well = self.candidates.iter().filter(|donor| donor.is_well);
        let room: Vec<(u32, u32)> = well.map(|donor| (donor.domain, donor.free)).collect();
        let slabs = capacity(&room, self.scheme.width);
        let to = take(&self.chooser, &mut self.candidates, self.scheme.width, slabs, &mut self.dice);
        let Some(to) = to else {
            traffic.no_room_bytes += u64::from(gone) * self.unit_bytes;
            return;
        };
        let from = self.some_of(left, data);
        self.read(from, traffic);
        self.write(to, traffic);
        members(left).for_each(|member| self.candidates[member].free += 1);
    }

    /// So many members of a set, by chance.
    fn some_of(&mut self, set: Set, count: usize) -> Set {
        let mut some = set;
        while some.count_ones() as usize > count {
            let all: Vec<usize> = members(some).collect();
            some &= !(1 << all[self.dice.below(all.len())]);
        }
        some
    }

    fn read(&self, set: Set, traffic: &mut Traffic) {
        members(set).for_each(|member| traffic.read(usize::from(self.run.donors[member]), self.unit_bytes));
    }

    fn write(&mut self, set: Set, traffic: &mut Traffic) {
        for member in members(set) {
            traffic.write(usize::from(self.run.donors[member]), self.unit_bytes);
            self.written += self.unit_bytes;
        }
    }
}
