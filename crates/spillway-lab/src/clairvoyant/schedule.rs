//! A choice of residency that keeps to the capacity, from prices that do not quite.

use std::ops::Range;

use super::path::{Cost, Paths, Prices};
use super::problem::{Life, Problem};

/// What a feasible choice costs. It is not kept itself: nobody plays it back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schedule {
    /// Far accesses and moves together, in nanoseconds.
    pub cost_ns: f64,
    /// Moves of all pages, either way.
    pub moves: u64,
}

impl Schedule {
    /// Nothing is ever local.
    #[must_use]
    pub fn all_far(problem: &Problem) -> Self {
        Self { cost_ns: problem.all_far_ns(), moves: 0 }
    }
}

/// Frames in use in each epoch.
struct Frames {
    used: Vec<u32>,
    capacity: u32,
}

impl Frames {
    /// Takes a frame for some epochs. Whether one of them is full now.
    fn take(&mut self, stays: &[Range<u32>]) -> bool {
        let mut is_full = false;
        for epoch in stays.iter().cloned().flatten() {
            let used = &mut self.used[epoch as usize];
            *used += 1;
            is_full |= *used == self.capacity;
        }
        is_full
    }

    /// Gives them back. Whether one of them was full.
    fn give_back(&mut self, stays: &[Range<u32>]) -> bool {
        let mut was_full = false;
        for epoch in stays.iter().cloned().flatten() {
            let used = &mut self.used[epoch as usize];
            was_full |= *used == self.capacity;
            *used -= 1;
        }
        was_full
    }

    fn open(&self, prices_ns: &[f64]) -> Prices {
        Prices::with_closed(prices_ns, |epoch| self.used[epoch] >= self.capacity)
    }
}

/// What a life costs under a choice, and in which epochs its page is local then.
pub type Chosen = (Cost, Vec<Range<u32>>);

/// What [`choose`] comes to.
#[must_use]
pub fn round(problem: &Problem, prices_ns: &[f64]) -> Schedule {
    let chosen = choose(problem, prices_ns);
    Schedule {
        cost_ns: chosen.iter().map(|(cost, _)| cost.own_ns).sum(),
        moves: chosen.iter().map(|(cost, _)| u64::from(cost.moves)).sum(),
    }
}

/// Gives frames to pages one after the other, to those first that gain most by theirs, at these prices while
/// there are frames; then what is left over to whoever gains by it, at no price.
#[must_use]
pub fn choose(problem: &Problem, prices_ns: &[f64]) -> Vec<Chosen> {
    let mut frames = Frames { used: vec![0; prices_ns.len()], capacity: problem.capacity };
    let mut paths = Paths::default();
    let order = by_gain(problem, prices_ns, &mut paths);
    let mut chosen: Vec<Chosen> = vec![(Cost::default(), Vec::new()); problem.lives.len()];
    let mut prices = frames.open(prices_ns);
    for &at in &order {
        let cost = paths.follow(problem, &problem.lives[at], &prices);
        let stays = paths.stays().to_vec();
        if frames.take(&stays) {
            prices = frames.open(prices_ns);
        }
        chosen[at] = (cost, stays);
    }
    let free = vec![0.0; prices_ns.len()];
    let mut prices = frames.open(&free);
    for &at in &order {
        let (cost, stays) = &mut chosen[at];
        // What it has is open to it as well.
        if frames.give_back(stays) {
            prices = frames.open(&free);
        }
        let better = paths.follow(problem, &problem.lives[at], &prices);
        if better.own_ns < cost.own_ns {
            (*cost, *stays) = (better, paths.stays().to_vec());
        }
        if frames.take(stays) {
            prices = frames.open(&free);
        }
    }
    chosen
}

/// The lives, those first that gain most by frames at these prices.
fn by_gain(problem: &Problem, prices_ns: &[f64], paths: &mut Paths) -> Vec<usize> {
    let prices = Prices::new(prices_ns);
    let mut gain = |life: &Life| {
        let far_ns: f64 = problem.uses_of(life).iter().map(|used| f64::from(used.far_ns)).sum();
        far_ns - paths.least(problem, life, &prices)
    };
    let gains: Vec<f64> = problem.lives.iter().map(&mut gain).collect();
    let mut order: Vec<usize> = (0..gains.len()).collect();
    order.sort_by(|&one, &other| gains[other].total_cmp(&gains[one]));
    order
}
