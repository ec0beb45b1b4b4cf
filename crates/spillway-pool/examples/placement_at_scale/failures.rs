//! Donors that die at one time, 64 cases beside each other: a bit of a donor's word for each.

use spillway_pool::placement::Dice;

use crate::layout::Layout;
use crate::site::{Scheme, Site, Terms};

/// Cases that are looked at together.
pub const CASES: usize = u64::BITS as usize;

/// What dies at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// So many donors, wherever they stand.
    Donors(usize),
    /// So many whole racks.
    Racks(usize),
}

/// In which cases each donor is dead.
pub fn dead_in(terms: &Terms, kind: Kind, dice: &mut Dice) -> Vec<u64> {
    let mut dead = vec![0_u64; terms.donors];
    for case in 0..CASES {
        match kind {
            Kind::Donors(count) => {
                for donor in some_of(terms.donors, count, dice) {
                    dead[donor] |= 1 << case;
                }
            }
            Kind::Racks(count) => {
                let racks = some_of(terms.racks, count, dice);
                let hit = |donor: usize| racks.contains(&(terms.rack(donor) as usize));
                (0..terms.donors).filter(|&donor| hit(donor)).for_each(|donor| dead[donor] |= 1 << case);
            }
        }
    }
    dead
}

/// So many different numbers below `all`.
fn some_of(all: usize, count: usize, dice: &mut Dice) -> Vec<usize> {
    let mut some: Vec<usize> = Vec::with_capacity(count);
    while some.len() < count.min(all) {
        let one = dice.below(all);
        if !some.contains(&one) {
            some.push(one);
        }
    }
    some
}

/// The cases in which so many of these donors are dead, `fatal` at least and 3 at most.
pub fn cases_with(words: impl Iterator<Item = u64>, fatal: usize) -> u64 {
    let (mut one, mut two, mut three) = (0, 0, 0);
    for word in words {
        three |= two & word;
        two |= one & word;
        one |= word;
    }
    [u64::MAX, one, two, three][fatal.min(3)]
}

/// What was lost in many cases.
#[derive(Clone, Copy, Debug, Default)]
pub struct Losses {
    pub cases: u64,
    /// Cases in which something was lost.
    pub with_loss: u64,
    /// Runs that lost something, over all cases.
    pub runs: u64,
    /// Bytes of pages that were lost, over all cases.
    pub bytes: f64,
}

impl Losses {
    /// One run's part in 64 cases.
    pub fn add_run(&mut self, lost_cases: u64) {
        self.runs += u64::from(lost_cases.count_ones());
    }

    /// The end of 64 cases, with those in which something was lost.
    pub fn end_cases(&mut self, lost_cases: u64) {
        self.cases += CASES as u64;
        self.with_loss += u64::from(lost_cases.count_ones());
    }
}

/// What runs that are placed so lose in so many times 64 cases.
pub fn losses(site: &Site, layouts: &[Layout], scheme: Scheme, kind: Kind, times: usize) -> Losses {
    let mut dice = Dice::new(site.terms.seed ^ 0x6661_696c);
    let mut losses = Losses::default();
    for _ in 0..times {
        let dead = dead_in(&site.terms, kind, &mut dice);
        let mut lost_anywhere = 0;
        for (run, layout) in site.runs.iter().zip(layouts) {
            let unit_bytes = run.bytes as f64 / f64::from(run.units) * scheme.lost_share();
            let own: Vec<u64> = run.donors.iter().map(|&donor| dead[usize::from(donor)]).collect();
            let mut lost = 0;
            for &(set, units) in &layout.sets {
                let members = (0..own.len()).filter(|member| set >> member & 1 == 1);
                let cases = cases_with(members.map(|member| own[member]), scheme.fatal);
                lost |= cases;
                losses.bytes += f64::from(cases.count_ones()) * f64::from(units) * unit_bytes;
            }
            losses.add_run(lost);
            lost_anywhere |= lost;
        }
        losses.end_cases(lost_anywhere);
    }
    losses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_counted_by_their_bits() {
        let words = [0b0011, 0b0101, 0b1001, 0b0001];
        let cases = |fatal| cases_with(words.into_iter(), fatal);
        assert_eq!([cases(1), cases(2), cases(3)], [0b1111, 0b0001, 0b0001]);
        assert_eq!(cases_with([0b11, 0b10].into_iter(), 2), 0b10);
    }
}
