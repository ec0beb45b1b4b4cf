//! One budget for all that is done in the background: eviction ahead of need, filling the reserve, re-forming
//! huge pages.
//!
//! A *token bucket* bounds how many bytes a second all of it together may move ("Physical memory management
//! on NVMM", section 5.2). It does not look at what faults cost: pausing while they are slow was measured,
//! and helped no load (`docs/research/pager-speed.md`).
//!
//! Time is passed in.

use serde::{Deserialize, Serialize};

use crate::size::Size;

/// Settings of the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Bytes that background work may move in a second; 0 for no bound.
    pub bytes_per_s: Size,
}

impl Default for Config {
    fn default() -> Self {
        Self { bytes_per_s: Size::from_bytes(1 << 30) }
    }
}

/// Bytes that may be moved at once after a rest.
const BURST_NS: u64 = 10_000_000;

/// Whether work may be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The work may be done at once.
    Go,
    /// Not before so many nanoseconds have passed.
    Wait(u64),
}

/// The budget of one process.
#[derive(Clone, Debug)]
pub struct BackgroundBudget {
    config: Config,
    tokens: u64,
    filled_ns: u64,
}

impl BackgroundBudget {
    /// A bucket that is full at `now_ns`, in nanoseconds of a steady clock.
    #[must_use]
    pub fn new(config: Config, now_ns: u64) -> Self {
        let budget = Self { config, tokens: 0, filled_ns: now_ns };
        Self { tokens: budget.burst_bytes(), ..budget }
    }

    /// Asks to move `bytes`, which count as moved if the answer is [`Verdict::Go`].
    pub fn ask(&mut self, now_ns: u64, bytes: u64) -> Verdict {
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
        Verdict::Go
    }

    fn bytes_per_s(&self) -> u64 {
        // Without a bound: more than memory can do.
        const UNBOUNDED: u64 = 16 << 30;
        match self.config.bytes_per_s.bytes() {
            0 => UNBOUNDED,
            bytes => bytes,
        }
    }

    fn burst_bytes(&self) -> u64 {
        bytes_in(self.bytes_per_s(), BURST_NS)
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
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    fn config(mib_per_s: u64) -> Config {
        Config { bytes_per_s: Size::from_bytes(mib_per_s << 20) }
    }

    proptest! {
        /// Whatever is asked, no stretch of time sees more than the rate, a burst and one request.
        #[test]
        fn the_rate_is_never_exceeded(
            asks in proptest::collection::vec((0_u64..5 * MS, 1_u64..4 << 20), 1..400),
            mib_per_s in 1_u64..2000,
        ) {
            let config = config(mib_per_s);
            let mut budget = BackgroundBudget::new(config, 0);
            let (mut now_ns, mut moved, mut largest) = (0, 0_u64, 0);
            for (passed_ns, bytes) in asks {
                now_ns += passed_ns;
                match budget.ask(now_ns, bytes) {
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
    fn work_goes_on_at_its_rate() {
        let (mut budget, mut moved) = (BackgroundBudget::new(config(100), 0), 0_u64);
        for step in 0..10_000_u64 {
            if budget.ask(step * MS / 10, 64 << 10) == Verdict::Go {
                moved += 64 << 10;
            }
        }
        assert!((95 << 20..=103 << 20).contains(&moved), "{moved}");
    }

    #[test]
    fn who_waits_as_long_as_told_may_go() {
        let mut budget = BackgroundBudget::new(config(100), 0);
        let mut now_ns = 0;
        for _ in 0..1000 {
            if let Verdict::Wait(ns) = budget.ask(now_ns, 256 << 10) {
                now_ns += ns;
                assert_eq!(budget.ask(now_ns, 256 << 10), Verdict::Go);
            }
        }
        assert!(now_ns > 2000 * MS, "{now_ns}");
    }

    #[test]
    fn without_a_bound_memory_is_the_bound() {
        let mut budget = BackgroundBudget::new(Config { bytes_per_s: Size::from_bytes(0) }, 0);
        // 8 GiB a second.
        assert!((1..1000_u64).all(|step| budget.ask(step * MS, 8 << 20) == Verdict::Go));
    }
}
