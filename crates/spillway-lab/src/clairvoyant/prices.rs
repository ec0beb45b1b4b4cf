//! The price of a frame in each epoch: a lower bound of what any choice of residency costs, as high as it can
//! be found.
//!
//! Whatever the prices are, what pages cost at least under them, less what all frames bring in, is no more
//! than what the best choice within the capacity costs without them: the capacity is relaxed by its price. So
//! each round gives a bound that is certain. Where frames are asked for beyond the capacity the price rises,
//! where they are left over it falls, along a direction that remembers the last ones, by Polyak's step
//! towards what a feasible choice costs (Held, Wolfe and Crowder, 1974).

use super::path::{Paths, Prices};
use super::problem::Problem;
use super::schedule::{Schedule, round};

/// Rounds of the search at most.
const MOST_ROUNDS: u32 = 300;

/// Rounds after which a choice is rounded anew.
const ROUNDS_A_SCHEDULE: u32 = 10;

/// Rounds without a better bound after which steps are halved.
const PATIENCE: u32 = 6;

/// What a new direction counts for beside those before it.
const NEW_WEIGHT: f64 = 0.4;

/// A gap that is as good as none, as a share of what the best schedule costs.
const ENOUGH: f64 = 0.001;

/// Steps as a share of Polyak's below which nothing more is to be won.
const LEAST_STEP: f64 = 1e-3;

/// A bound, and how near to it a choice comes.
#[derive(Clone, Debug)]
pub struct Bound {
    /// No choice costs less, in nanoseconds.
    pub lower_ns: f64,
    /// The best choice that was found.
    pub schedule: Schedule,
    /// How often prices were adapted.
    pub rounds: u32,
}

impl Bound {
    /// By how much the best choice found costs more than the bound, as a share of what it costs.
    #[must_use]
    pub fn gap(&self) -> f64 {
        let Self { lower_ns, schedule, .. } = self;
        if schedule.cost_ns > 0.0 { (schedule.cost_ns - lower_ns) / schedule.cost_ns } else { 0.0 }
    }
}

/// Finds the bound and its prices.
#[must_use]
pub fn bound(problem: &Problem) -> Bound {
    let epochs = problem.epochs as usize;
    let mut prices_ns = first_prices(problem);
    let mut best_prices_ns = prices_ns.clone();
    let mut direction = vec![0.0; epochs];
    let mut found = Bound { lower_ns: 0.0, schedule: Schedule::all_far(problem), rounds: 0 };
    let (mut step, mut idle) = (1.0, 0);
    let mut paths = Paths::default();
    while found.rounds < MOST_ROUNDS {
        let (value_ns, excess) = relaxed(problem, &prices_ns, &mut paths);
        if value_ns > found.lower_ns {
            found.lower_ns = value_ns;
            best_prices_ns.clone_from(&prices_ns);
            idle = 0;
        } else {
            idle += 1;
        }
        if found.rounds.is_multiple_of(ROUNDS_A_SCHEDULE) {
            let schedule = round(problem, &prices_ns);
            if schedule.cost_ns < found.schedule.cost_ns {
                found.schedule = schedule;
            }
        }
        found.rounds += 1;
        if idle > PATIENCE {
            (step, idle) = (step / 2.0, 0);
            prices_ns.clone_from(&best_prices_ns);
            direction.fill(0.0);
        }
        if found.gap() <= ENOUGH || step < LEAST_STEP {
            break;
        }
        for (direction, excess) in direction.iter_mut().zip(&excess) {
            *direction = NEW_WEIGHT * excess + (1.0 - NEW_WEIGHT) * *direction;
        }
        let length: f64 = direction.iter().map(|part| part * part).sum();
        if length == 0.0 {
            break;
        }
        let along_ns = step * (found.schedule.cost_ns - value_ns).max(0.0) / length;
        for (price_ns, direction) in prices_ns.iter_mut().zip(&direction) {
            *price_ns = (*price_ns + along_ns * direction).max(0.0);
        }
    }
    let schedule = round(problem, &best_prices_ns);
    if schedule.cost_ns < found.schedule.cost_ns {
        found.schedule = schedule;
    }
    found
}

/// What pages cost at least under these prices, less what all frames bring in; and by how many pages more
/// than the capacity are local then, in each epoch.
pub(super) fn relaxed(problem: &Problem, prices_ns: &[f64], paths: &mut Paths) -> (f64, Vec<f64>) {
    let prices = Prices::new(prices_ns);
    let mut changes = vec![0_i64; prices_ns.len() + 1];
    let mut value_ns = 0.0;
    for life in &problem.lives {
        value_ns += paths.follow(problem, life, &prices).priced_ns;
        for stay in paths.stays() {
            changes[stay.start as usize] += 1;
            changes[stay.end as usize] -= 1;
        }
    }
    let capacity = f64::from(problem.capacity);
    value_ns -= capacity * prices_ns.iter().sum::<f64>();
    let mut local = 0;
    let excess = changes[..prices_ns.len()].iter().map(|change| {
        local += change;
        local as f64 - capacity
    });
    (value_ns, excess.collect())
}

/// Prices to begin with: those at which each epoch by itself fills its frames, as if moves cost nothing.
fn first_prices(problem: &Problem) -> Vec<f64> {
    let mut by_epoch: Vec<Vec<f32>> = vec![Vec::new(); problem.epochs as usize];
    for used in &problem.uses {
        by_epoch[used.epoch as usize].push(used.far_ns);
    }
    let price = |costs: &mut Vec<f32>| {
        let capacity = problem.capacity as usize;
        if costs.len() <= capacity {
            return 0.0;
        }
        let (_, &mut next, _) = costs.select_nth_unstable_by(capacity, |one, other| other.total_cmp(one));
        f64::from(next)
    };
    by_epoch.iter_mut().map(price).collect()
}
