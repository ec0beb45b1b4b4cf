//! What INDIGO's agent is told before it chooses, and what it may choose ("INDIGO: Page Migration for
//! Hardware Memory Disaggregation Across a Network", 5.3): the context, the actions, and how long is observed
//! before the choice.
//!
//! The paper trains one agent for each application and gives it bytes. One model for memories of all sizes
//! cannot know bytes: the four quantities become the four shares of [`Context::features`]. A time is counted
//! in marking intervals for the same reason, and a rate in accesses an interval.

use serde::{Deserialize, Serialize};

/// Marking intervals over which trainings observe a context before the agent chooses (chosen: a few percent
/// of the lab's runs, seconds of a live program).
pub const OBSERVED_INTERVALS: u32 = 8;

/// How many numbers describe a context.
pub const FEATURES: usize = 4;

/// What an agent is told (5.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Context {
    /// Local memory that there may be, in bytes.
    pub local_limit_bytes: u64,
    /// Most local memory used so far, in bytes.
    pub local_peak_bytes: u64,
    /// Most far memory used so far, in bytes.
    pub far_peak_bytes: u64,
    /// Our traffic on the network while it was observed, in bytes per second.
    pub traffic_bytes_per_s: f64,
    /// Bandwidth that neither others nor we used then, in bytes per second.
    pub available_bytes_per_s: f64,
}

impl Context {
    /// The same as shares, each from 0 to 1: of all memory the limit, of the limit what is used, of all
    /// memory what is far, and of the bandwidth that others leave what we use.
    #[must_use]
    pub fn features(&self) -> [f32; FEATURES] {
        let share = |part: f64, whole: f64| {
            let share = part / whole;
            if share.is_finite() { share.clamp(0.0, 1.0) as f32 } else { 0.0 }
        };
        let (limit, local) = (self.local_limit_bytes as f64, self.local_peak_bytes as f64);
        let (far, traffic) = (self.far_peak_bytes as f64, self.traffic_bytes_per_s);
        let all = local + far;
        [
            share(limit, all.max(limit)),
            share(local, limit),
            share(far, all),
            share(traffic, traffic + self.available_bytes_per_s),
        ]
    }
}

/// Which measurements belong to one burst, whatever the size of memory (Algorithm 1).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deltas {
    /// Delta1, in accesses a marking interval.
    pub closeness_per_interval: f64,
    /// Delta2, in marking intervals.
    pub adjacent_intervals: f64,
}

/// What a page must reach to be promoted, whatever the size of memory (5.3).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Action {
    /// Burst duration, in marking intervals.
    pub burst_intervals: f64,
    /// Access rate, in accesses a marking interval.
    pub accesses_per_interval: f64,
}

impl Action {
    /// The same as times and rates of marks that are `interval_us` apart.
    #[must_use]
    pub fn thresholds(&self, interval_us: u64) -> Thresholds {
        let interval_us = interval_us.max(1) as f64;
        Thresholds {
            burst_ns: (self.burst_intervals * interval_us * 1e3) as u64,
            rate_hz: self.accesses_per_interval * 1e6 / interval_us,
        }
    }
}

/// The same for one machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thresholds {
    /// Burst duration, in nanoseconds.
    pub burst_ns: u64,
    /// Access rate, in accesses per second.
    pub rate_hz: f64,
}

/// What an agent says of a context.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Advice {
    /// Promote what reaches these thresholds.
    Thresholds(Action),
    /// The context is unlike all that it was trained on: how far the nearest one is, in the largest of the
    /// differences of their features.
    Unknown {
        /// The largest of those differences.
        distance: f32,
    },
}

/// Chooses thresholds for a context: where a trained agent sits.
pub trait Advisor: Send {
    /// What to do from now on, by what has been observed.
    fn advise(&mut self, context: &Context) -> Advice;
}

/// The same thresholds for every context.
impl Advisor for Action {
    fn advise(&mut self, _context: &Context) -> Advice {
        Advice::Thresholds(*self)
    }
}

/// By which factor the local limit may change before the agent is asked anew.
const SAME_LIMIT: f64 = 1.25;

/// Watches until there is something to be told: the network's traffic over some marking intervals, all with
/// far memory in use.
#[derive(Clone, Copy, Debug)]
pub struct Observation {
    intervals: u32,
    context: Context,
    /// When it began and the traffic until then, or what came of it.
    stage: Stage,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Waiting,
    Watching { from_ns: u64, traffic_bytes: u64, marks: u32 },
    Done { limit_bytes: u64 },
}

/// What is seen at a mark.
#[derive(Clone, Copy, Debug)]
pub struct Glance {
    /// The present time, in nanoseconds.
    pub now_ns: u64,
    /// Local memory that there may be, in bytes.
    pub local_limit_bytes: u64,
    /// Local memory in use, in bytes.
    pub local_bytes: u64,
    /// Far memory in use, in bytes.
    pub far_bytes: u64,
    /// Our traffic so far, in bytes.
    pub traffic_bytes: u64,
    /// Bandwidth that is left, in bytes per second.
    pub available_bytes_per_s: f64,
}

impl Observation {
    /// One that takes so many marking intervals, at least one.
    #[must_use]
    pub fn over(intervals: u32) -> Self {
        Self { intervals: intervals.max(1), context: Context::default(), stage: Stage::Waiting }
    }

    /// Whether thresholds have been asked for, and nothing has changed since.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Done { .. })
    }

    /// Takes in what a mark shows. Gives the context when it is complete: once, and anew after the local
    /// limit has become another one.
    pub fn see(&mut self, glance: Glance) -> Option<Context> {
        let context = &mut self.context;
        context.local_limit_bytes = glance.local_limit_bytes;
        context.local_peak_bytes = context.local_peak_bytes.max(glance.local_bytes);
        context.far_peak_bytes = context.far_peak_bytes.max(glance.far_bytes);
        match &mut self.stage {
            Stage::Waiting if context.far_peak_bytes > 0 => {
                let Glance { now_ns: from_ns, traffic_bytes, .. } = glance;
                self.stage = Stage::Watching { from_ns, traffic_bytes, marks: 0 };
            }
            Stage::Waiting => {}
            Stage::Watching { from_ns, traffic_bytes, marks } => {
                *marks += 1;
                if *marks >= self.intervals {
                    let seconds = glance.now_ns.saturating_sub(*from_ns).max(1) as f64 / 1e9;
                    let bytes = glance.traffic_bytes.saturating_sub(*traffic_bytes) as f64;
                    context.traffic_bytes_per_s = bytes / seconds;
                    context.available_bytes_per_s = glance.available_bytes_per_s;
                    self.stage = Stage::Done { limit_bytes: glance.local_limit_bytes };
                    return Some(*context);
                }
            }
            Stage::Done { limit_bytes } => {
                let (one, other) = (*limit_bytes as f64, glance.local_limit_bytes as f64);
                if one.max(other) > one.min(other) * SAME_LIMIT {
                    // Peaks of another limit say nothing of this one.
                    *self = Self::over(self.intervals);
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(limit: u64, local: u64, far: u64, traffic: f64, available: f64) -> Context {
        Context {
            local_limit_bytes: limit,
            local_peak_bytes: local,
            far_peak_bytes: far,
            traffic_bytes_per_s: traffic,
            available_bytes_per_s: available,
        }
    }

    #[test]
    fn features_are_shares_and_do_not_depend_on_the_size_of_memory() {
        assert_eq!(context(100, 80, 320, 1e9, 3e9).features(), [0.25, 0.8, 0.8, 0.25]);
        let large = context(100 << 30, 80 << 30, 320 << 30, 1e9, 3e9);
        assert_eq!(large.features(), [0.25, 0.8, 0.8, 0.25]);
        for odd in [
            Context::default(),
            context(0, 5, 5, f64::NAN, f64::INFINITY),
            context(u64::MAX, u64::MAX, u64::MAX, f64::MAX, 0.0),
        ] {
            assert!(odd.features().iter().all(|share| (0.0..=1.0).contains(share)), "{odd:?}");
        }
    }

    #[test]
    fn an_action_becomes_times_and_rates_of_a_machines_intervals() {
        let action = Action { burst_intervals: 2.0, accesses_per_interval: 30.0 };
        assert_eq!(action.thresholds(1_000_000), Thresholds { burst_ns: 2_000_000_000, rate_hz: 30.0 });
        assert_eq!(action.thresholds(1000), Thresholds { burst_ns: 2_000_000, rate_hz: 30_000.0 });
    }

    fn glance(second: u64, limit: u64, far: u64, traffic: u64) -> Glance {
        Glance {
            now_ns: second * 1_000_000_000,
            local_limit_bytes: limit,
            local_bytes: 7,
            far_bytes: far,
            traffic_bytes: traffic,
            available_bytes_per_s: 300.0,
        }
    }

    #[test]
    fn what_is_observed_begins_with_far_memory_and_takes_its_intervals() {
        let mut observation = Observation::over(3);
        assert_eq!(observation.see(glance(1, 10, 0, 1000)), None);
        assert_eq!(observation.see(glance(2, 10, 5, 1000)), None);
        assert_eq!(observation.see(glance(3, 10, 9, 1100)), None);
        assert_eq!(observation.see(glance(4, 10, 2, 1200)), None);
        assert!(!observation.is_over());
        assert_eq!(observation.see(glance(5, 10, 2, 1300)), Some(context(10, 7, 9, 100.0, 300.0)));
        assert!(observation.is_over());
        assert_eq!(observation.see(glance(6, 10, 2, 1400)), None, "told once");
    }

    #[test]
    fn another_limit_is_observed_anew_and_a_similar_one_is_not() {
        let mut observation = Observation::over(1);
        assert_eq!(observation.see(glance(1, 100, 5, 0)), None);
        assert!(observation.see(glance(2, 100, 5, 0)).is_some());
        assert_eq!(observation.see(glance(3, 120, 5, 0)), None);
        assert!(observation.is_over());
        assert_eq!(observation.see(glance(4, 130, 5, 0)), None);
        assert!(!observation.is_over());
        assert_eq!(observation.see(glance(5, 130, 5, 0)), None);
        assert!(observation.see(glance(6, 130, 5, 0)).is_some());
    }
}
