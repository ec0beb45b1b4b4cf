//! A page's cheapest way through the epochs, local or far in each: a shortest path with two states, once each
//! epoch has a price for a frame.

use std::ops::Range;

use super::problem::{Life, Problem, Use};

/// What a frame costs in each epoch, and where there is none to be had.
pub struct Prices {
    /// Sums of the prices before each epoch.
    sums_ns: Vec<f64>,
    /// Epochs before each one in which no frame is to be had.
    closed: Vec<u32>,
}

impl Prices {
    /// These prices, frames in every epoch.
    #[must_use]
    pub fn new(prices_ns: &[f64]) -> Self {
        Self::with_closed(prices_ns, |_| false)
    }

    /// These prices, but no frame in the epochs that `is_closed` tells.
    #[must_use]
    pub fn with_closed(prices_ns: &[f64], is_closed: impl Fn(usize) -> bool) -> Self {
        let mut prices = Self { sums_ns: vec![0.0], closed: vec![0] };
        let (mut sum_ns, mut closed) = (0.0, 0);
        for (epoch, price_ns) in prices_ns.iter().enumerate() {
            sum_ns += price_ns;
            closed += u32::from(is_closed(epoch));
            prices.sums_ns.push(sum_ns);
            prices.closed.push(closed);
        }
        prices
    }

    /// What a frame costs throughout some epochs.
    #[inline]
    fn stay_ns(&self, from: u32, to: u32) -> f64 {
        let (from, to) = (from as usize, to as usize);
        if self.closed[from] < self.closed[to] {
            f64::INFINITY
        } else {
            self.sums_ns[to] - self.sums_ns[from]
        }
    }
}

/// How a page came to be local, or far, at a use.
#[derive(Clone, Copy, Default)]
struct Came {
    /// Before a local one the page was local too; otherwise far, or it has just begun and was brought.
    local_from_local: bool,
    /// It stayed local in between.
    local_stayed: bool,
    /// Before a far one the page was local.
    far_from_local: bool,
}

/// What a way up to an epoch costs. Of two that cost the same, the one with fewer moves is better.
#[derive(Clone, Copy, Default)]
struct Way {
    ns: f64,
    moves: u32,
}

impl Way {
    /// The way with this behind it.
    fn then(self, ns: f64, moves: u32) -> Self {
        Self { ns: self.ns + ns, moves: self.moves + moves }
    }

    fn is_better_than(self, other: Self) -> bool {
        self.ns < other.ns || self.ns == other.ns && self.moves < other.moves
    }

    /// This way, unless the other one is better.
    fn or(self, other: Self) -> Self {
        if other.is_better_than(self) { other } else { self }
    }
}

/// Works out paths; keeps its memory from one to the next.
#[derive(Default)]
pub struct Paths {
    came: Vec<Came>,
    ends_local: bool,
    stays: Vec<Range<u32>>,
}

/// What came of a life.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// With the prices of frames, in nanoseconds.
    pub priced_ns: f64,
    /// What the path costs without them.
    pub own_ns: f64,
    /// Moves of the page, either way.
    pub moves: u32,
}

impl Paths {
    /// The least that a life costs under these prices, of which it pays for the epochs in which it is local.
    pub fn least(&mut self, problem: &Problem, life: &Life, prices: &Prices) -> f64 {
        let uses = problem.uses_of(life);
        let (in_ns, out_ns) = (problem.in_ns, problem.out_ns);
        self.came.clear();
        let Some(first) = uses.first() else { return 0.0 };
        let placed_ns = prices.stay_ns(life.first, first.epoch);
        let placed = placed_ns <= in_ns;
        let mut came = Came { local_from_local: false, local_stayed: placed, far_from_local: false };
        let begun = if placed { Way::default().then(placed_ns, 0) } else { Way::default().then(in_ns, 1) };
        let mut local = begun.then(prices.stay_ns(first.epoch, first.epoch + 1), 0);
        let mut far = Way::default().then(f64::from(first.far_ns), 0);
        self.came.push(came);
        for pair in uses.windows(2) {
            let [before, now] = [pair[0], pair[1]];
            let stay_ns = prices.stay_ns(before.epoch + 1, now.epoch);
            let stays = stay_ns <= in_ns + out_ns;
            let held = if stays { local.then(stay_ns, 0) } else { local.then(in_ns + out_ns, 2) };
            let brought = far.then(in_ns, 1);
            let sent = local.then(out_ns, 1);
            came.local_from_local = !brought.is_better_than(held);
            came.local_stayed = stays;
            came.far_from_local = sent.is_better_than(far);
            self.came.push(came);
            let (to_local, to_far) = (held.or(brought), far.or(sent));
            local = to_local.then(prices.stay_ns(now.epoch, now.epoch + 1), 0);
            far = to_far.then(f64::from(now.far_ns), 0);
        }
        let last = uses[uses.len() - 1].epoch;
        let stay_ns = prices.stay_ns(last + 1, life.end);
        let ended = if stay_ns <= out_ns { local.then(stay_ns, 0) } else { local.then(out_ns, 1) };
        self.ends_local = ended.is_better_than(far);
        far.or(ended).ns
    }

    /// The same, with the epochs in which the page is local then: [`Self::stays`].
    pub fn follow(&mut self, problem: &Problem, life: &Life, prices: &Prices) -> Cost {
        self.stays.clear();
        let priced_ns = self.least(problem, life, prices);
        let uses = problem.uses_of(life);
        let Some(last) = uses.last() else { return Cost::default() };
        let mut cost = Cost { priced_ns, ..Cost::default() };
        let mut is_local = self.ends_local;
        let mut end = last.epoch + 1;
        if is_local {
            let stay_ns = prices.stay_ns(end, life.end);
            if stay_ns <= problem.out_ns {
                end = life.end;
            } else {
                cost.own_ns += problem.out_ns;
                cost.moves += 1;
            }
        }
        for at in (0..uses.len()).rev() {
            let came = self.came[at];
            let Use { epoch, far_ns } = uses[at];
            if !is_local {
                cost.own_ns += f64::from(far_ns);
                is_local = at > 0 && came.far_from_local;
                if is_local {
                    cost.own_ns += problem.out_ns;
                    cost.moves += 1;
                    end = uses[at - 1].epoch + 1;
                }
                continue;
            }
            let (stayed, brought, sent) = match at {
                0 => (came.local_stayed, !came.local_stayed, false),
                _ => {
                    let stayed = came.local_from_local && came.local_stayed;
                    (stayed, !stayed, came.local_from_local && !stayed)
                }
            };
            if stayed && at > 0 {
                continue;
            }
            self.stays.push(if stayed { life.first } else { epoch }..end);
            cost.own_ns +=
                if brought { problem.in_ns } else { 0.0 } + if sent { problem.out_ns } else { 0.0 };
            cost.moves += u32::from(brought) + u32::from(sent);
            if at > 0 {
                is_local = came.local_from_local;
                end = uses[at - 1].epoch + 1;
            }
        }
        cost
    }

    /// The runs of epochs in which the page of the last [`Self::follow`] is local, the last first.
    #[must_use]
    pub fn stays(&self) -> &[Range<u32>] {
        &self.stays
    }
}
