//! One budget for all that is done in the background: eviction ahead of need, filling the reserve, re-forming
//! huge pages.
//!
//! Two rules. A *token bucket* bounds how many bytes a second all of it together may move. And it *yields*,
//! by what faults are seen to cost, not by thresholds alone ("Physical memory management on NVMM", section
//! 5.2): when recent faults are slower than they were while nothing was done in the background, it pauses.
//! Had the pause no effect, then something else makes faults slow, and that is what quiet looks like from
//! then on; else the work goes on at half its rate, and gains speed again while faults stay as they should
//! be.
//!
//! Time is passed in.

use serde::{Deserialize, Serialize};

use crate::size::Size;

/// Settings of the budget.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Bytes that background work may move in a second; 0 for no bound.
    pub bytes_per_s: Size,
    /// Work pauses when the 90th percentile of recent faults is this many times what it was in quiet; 0 for
    /// never.
    pub yield_ratio: f64,
}

impl Default for Config {
    fn default() -> Self {
        Self { bytes_per_s: Size::from_bytes(1 << 30), yield_ratio: 1.5 }
    }
}

/// Bytes that may be moved at once after a rest.
const BURST_NS: u64 = 10_000_000;
/// A pause long enough for faults to show what they cost without us.
const PAUSE_NS: u64 = 10_000_000;
/// Time between two checks of how fast faults are served, in nanoseconds.
const CHECK_NS: u64 = 5_000_000;
/// Fewer faults say nothing.
const LEAST_FAULTS: u64 = 20;
/// The rate in parts of this many.
const FULL_RATE: u64 = 64;
/// What a rate gains at each check that finds faults as they should be.
const RATE_STEP: u64 = 4;

/// What faults cost since the last check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// How many there were.
    pub count: u64,
    /// Their 90th percentile, in nanoseconds.
    pub p90_ns: u64,
}

/// Whether work may be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The work may be done at once.
    Go,
    /// Not before so many nanoseconds have passed.
    Wait(u64),
}

/// What is known of the present stretch of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Work may be done, and was if bytes have moved since the last check.
    Working { moved: bool },
    /// Nothing is done until then, since faults of so many nanoseconds were seen.
    Paused { until_ns: u64, for_p90_ns: u64 },
}

/// The budget of one process.
#[derive(Clone, Debug)]
pub struct BackgroundBudget {
    config: Config,
    phase: Phase,
    tokens: u64,
    filled_ns: u64,
    checked_ns: u64,
    /// The 90th percentile in quiet; 0 while it is not known.
    quiet_ns: u64,
    rate: u64,
    pauses: u64,
}

impl BackgroundBudget {
    /// A bucket that is full at `now_ns`, in nanoseconds of a steady clock.
    #[must_use]
    pub fn new(config: Config, now_ns: u64) -> Self {
        let phase = Phase::Working { moved: false };
        let mut budget = Self {
            config,
            phase,
            tokens: 0,
            filled_ns: now_ns,
            checked_ns: now_ns,
            quiet_ns: 0,
            rate: FULL_RATE,
            pauses: 0,
        };
        budget.tokens = budget.burst_bytes();
        budget
    }

    /// How often work has paused for the sake of faults.
    #[must_use]
    pub fn pauses(&self) -> u64 {
        self.pauses
    }

    /// Asks to move `bytes`, which count as moved if the answer is [`Verdict::Go`]. `faults` tells of those
    /// since it was called last, and is called when it is time for a check.
    pub fn ask(&mut self, now_ns: u64, bytes: u64, faults: impl FnOnce() -> Faults) -> Verdict {
        if now_ns.saturating_sub(self.checked_ns) >= CHECK_NS {
            self.checked_ns = now_ns;
            self.check(now_ns, faults());
        }
        if let Phase::Paused { until_ns, .. } = self.phase
            && now_ns < until_ns
        {
            return Verdict::Wait(until_ns - now_ns);
        }
        self.take_tokens(now_ns, bytes)
    }

    fn check(&mut self, now_ns: u64, faults: Faults) {
        let tells = self.config.yield_ratio > 0.0 && faults.count >= LEAST_FAULTS;
        self.phase = match self.phase {
            Phase::Working { moved: false } if tells => {
                self.note_quiet(faults.p90_ns);
                Phase::Working { moved: false }
            }
            Phase::Working { moved: true } if tells && self.is_slow(faults.p90_ns) => {
                self.pauses += 1;
                Phase::Paused { until_ns: now_ns + PAUSE_NS, for_p90_ns: faults.p90_ns }
            }
            Phase::Working { .. } => {
                self.rate = (self.rate + RATE_STEP).min(FULL_RATE);
                Phase::Working { moved: false }
            }
            Phase::Paused { until_ns, for_p90_ns } if now_ns >= until_ns => {
                self.judge(faults, for_p90_ns);
                Phase::Working { moved: false }
            }
            paused => paused,
        };
    }

    /// After a pause: were faults slow on our account?
    fn judge(&mut self, faults: Faults, for_p90_ns: u64) {
        if faults.count < LEAST_FAULTS {
            return;
        }
        let is_ours = faults.p90_ns as f64 * self.config.yield_ratio.sqrt() < for_p90_ns as f64;
        if is_ours {
            self.rate = (self.rate / 2).max(1);
            self.note_quiet(faults.p90_ns);
        } else {
            self.quiet_ns = faults.p90_ns;
        }
    }

    /// Mostly what it was before: one stretch is a small sample.
    fn note_quiet(&mut self, p90_ns: u64) {
        self.quiet_ns = if self.quiet_ns == 0 { p90_ns } else { (self.quiet_ns * 3 + p90_ns) / 4 };
    }

    fn is_slow(&self, p90_ns: u64) -> bool {
        self.quiet_ns > 0 && p90_ns as f64 > self.quiet_ns as f64 * self.config.yield_ratio
    }

    fn bytes_per_s(&self) -> u64 {
        // Without a bound, what faults allow is a part of what memory can do.
        const UNBOUNDED: u64 = 16 << 30;
        let most = match self.config.bytes_per_s.bytes() {
            0 => UNBOUNDED,
            bytes => bytes,
        };
        (most / FULL_RATE).max(1) * self.rate
    }

    fn burst_bytes(&self) -> u64 {
        bytes_in(self.bytes_per_s(), BURST_NS)
    }

    fn take_tokens(&mut self, now_ns: u64, bytes: u64) -> Verdict {
        let rate = self.bytes_per_s();
        let gained = bytes_in(rate, now_ns.saturating_sub(self.filled_ns));
        if gained > 0 {
            self.tokens = (self.tokens + gained).min(self.burst_bytes());
            self.filled_ns = now_ns;
        }
        let wanted = bytes.min(self.burst_bytes().max(1));
        if self.tokens < wanted {
            let debt_ns = self.filled_ns.saturating_sub(now_ns);
            return Verdict::Wait(debt_ns + time_for(wanted - self.tokens, rate) + 1);
        }
        self.tokens -= wanted;
        // What was asked beyond a full bucket is paid for by a later start.
        self.filled_ns += time_for(bytes - wanted, rate);
        self.phase = Phase::Working { moved: true };
        Verdict::Go
    }
}

fn bytes_in(bytes_per_s: u64, ns: u64) -> u64 {
    (u128::from(bytes_per_s) * u128::from(ns) / 1_000_000_000).min(u128::from(u64::MAX)) as u64
}

fn time_for(bytes: u64, bytes_per_s: u64) -> u64 {
    (u128::from(bytes) * 1_000_000_000 / u128::from(bytes_per_s)) as u64
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::page::PAGE_BYTES;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;
    const NONE: Faults = Faults { count: 0, p90_ns: 0 };

    fn config(mib_per_s: u64, yield_ratio: f64) -> Config {
        Config { bytes_per_s: Size::from_bytes(mib_per_s << 20), yield_ratio }
    }

    /// Asks for 64 KiB every 100 us for `ms` milliseconds, while faults cost as `p90_ns` says of the time and
    /// of whether work was done of late. Returns the bytes that were moved.
    fn run(budget: &mut BackgroundBudget, now_ns: &mut u64, ms: u64, p90_ns: impl Fn(bool) -> u64) -> u64 {
        let end_ns = *now_ns + ms * MS;
        let (mut moved, mut of_late) = (0, false);
        while *now_ns < end_ns {
            let mut checked = false;
            let verdict = budget.ask(*now_ns, 64 << 10, || {
                checked = true;
                Faults { count: 100, p90_ns: p90_ns(of_late) }
            });
            of_late = if checked { false } else { of_late };
            if verdict == Verdict::Go {
                moved += 64 << 10;
                of_late = true;
            }
            *now_ns += MS / 10;
        }
        moved
    }

    proptest! {
        /// Whatever is asked and whatever faults cost, no stretch of time sees more than the rate, a burst
        /// and one request.
        #[test]
        fn the_rate_is_never_exceeded(
            asks in proptest::collection::vec(
                (0_u64..5 * MS, 1_u64..4 << 20, 0_u64..100, 0_u64..50_000),
                1..400,
            ),
            mib_per_s in 1_u64..2000,
        ) {
            let config = config(mib_per_s, 1.5);
            let mut budget = BackgroundBudget::new(config, 0);
            let (mut now_ns, mut moved, mut largest) = (0, 0_u64, 0);
            for (passed_ns, bytes, count, p90_ns) in asks {
                now_ns += passed_ns;
                match budget.ask(now_ns, bytes, || Faults { count, p90_ns }) {
                    Verdict::Go => moved += bytes,
                    Verdict::Wait(ns) => prop_assert!(ns > 0),
                }
                largest = largest.max(bytes);
                let allowed = bytes_in(config.bytes_per_s.bytes(), now_ns + BURST_NS) + largest;
                prop_assert!(moved <= allowed, "{moved} bytes in {now_ns} ns, {allowed} are allowed");
            }
        }
    }

    #[test]
    fn work_goes_on_at_its_rate_while_faults_cost_the_same() {
        let (mut budget, mut now_ns) = (BackgroundBudget::new(config(100, 1.5), 0), 0);
        let moved = run(&mut budget, &mut now_ns, 1000, |_| 5_000);
        assert!((95 << 20..=103 << 20).contains(&moved), "{moved}");
        assert_eq!(budget.pauses(), 0);
    }

    #[test]
    fn who_waits_as_long_as_told_may_go() {
        let mut budget = BackgroundBudget::new(config(100, 0.0), 0);
        let mut now_ns = 0;
        for _ in 0..1000 {
            if let Verdict::Wait(ns) = budget.ask(now_ns, 256 << 10, || NONE) {
                now_ns += ns;
                assert_eq!(budget.ask(now_ns, 256 << 10, || NONE), Verdict::Go);
            }
        }
        assert!(now_ns > 2000 * MS, "{now_ns}");
    }

    #[test]
    fn work_that_makes_faults_slow_gives_way() {
        let (mut budget, mut now_ns) = (BackgroundBudget::new(config(100, 1.5), 0), 0);
        // Nothing is done at first, so that quiet is known.
        for _ in 0..10 {
            now_ns += CHECK_NS;
            budget.check(now_ns, Faults { count: 100, p90_ns: 5_000 });
        }
        let moved = run(&mut budget, &mut now_ns, 1000, |working| if working { 20_000 } else { 5_000 });
        assert!(budget.pauses() > 10 && moved < 40 << 20, "{} pauses, {moved} bytes", budget.pauses());
        // The interference ends, and it recovers.
        run(&mut budget, &mut now_ns, 500, |_| 5_000);
        let moved = run(&mut budget, &mut now_ns, 1000, |_| 5_000);
        assert!(moved > 90 << 20, "{moved}");
    }

    #[test]
    fn faults_that_others_make_slow_do_not_stop_it() {
        let (mut budget, mut now_ns) = (BackgroundBudget::new(config(100, 1.5), 0), 0);
        for _ in 0..10 {
            now_ns += CHECK_NS;
            budget.check(now_ns, Faults { count: 100, p90_ns: 5_000 });
        }
        let moved = run(&mut budget, &mut now_ns, 1000, |_| 50_000);
        assert!(
            (1..=2).contains(&budget.pauses()) && moved > 90 << 20,
            "{} pauses, {moved}",
            budget.pauses()
        );
    }

    #[test]
    fn too_few_faults_say_nothing_and_0_never_yields() {
        for (yield_ratio, count) in [(1.5, LEAST_FAULTS - 1), (0.0, 1000)] {
            let mut budget = BackgroundBudget::new(config(1000, yield_ratio), 0);
            for step in 1..200_u64 {
                let p90_ns = if step < 100 { 1_000 } else { 1_000_000 };
                let _ = budget.ask(step * CHECK_NS, PAGE_BYTES, || Faults { count, p90_ns });
            }
            assert_eq!(budget.pauses(), 0);
        }
    }
}
