//! When the next scan comes: by the daemon's budget of CPU time alone, or sooner while local memory is short
//! of free frames.
//!
//! HotBox (5.1, 5.2) has two rates: far memory is scanned steadily, local memory by the kernel's reclaim, the
//! faster the greater the pressure. The accessed bits that we read are cleared for a whole process at once,
//! so a scan of local memory alone cannot be had; but what it finds of far memory can be kept
//! ([`crate::live::LiveMachine::set_early`]). So here the steady scans come as the budget allows, and between
//! them *early* ones: twice as often for each scan that ended with local memory still short, up to 8 times,
//! and half as often again for each that did not.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What decides when scans come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScanPace {
    /// The budget of CPU time.
    #[default]
    Budget,
    /// The budget; and more while local memory is short.
    Pressure,
}

impl FromStr for ScanPace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "budget" => Ok(Self::Budget),
            "pressure" => Ok(Self::Pressure),
            _ => Err(format!("'{text}' is no pace of scans: write budget or pressure")),
        }
    }
}

/// Scans come at most 2 to the power of this times as often.
const MOST_PRESSURE: u32 = 3;

/// When the next scan comes, and of what kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextScan {
    /// When, on the daemon's clock.
    pub at_ns: u64,
    /// For the sake of local memory only.
    pub early: bool,
}

/// How much local memory was short of late.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    pressure: u32,
    steady_due_ns: u64,
}

impl Pace {
    /// A scan ended at `ended_ns`; `early` says of what kind it was, and `short` whether local memory is
    /// still short. Steady ones come every `steady_ns`, none sooner than after `least_ns`.
    pub fn next(
        &mut self,
        (ended_ns, early): (u64, bool),
        steady_ns: u64,
        least_ns: u64,
        short: bool,
    ) -> NextScan {
        if !early {
            self.steady_due_ns = ended_ns + steady_ns;
        }
        self.pressure =
            if short { (self.pressure + 1).min(MOST_PRESSURE) } else { self.pressure.saturating_sub(1) };
        let early_at_ns = ended_ns + (steady_ns >> self.pressure).max(least_ns);
        if early_at_ns < self.steady_due_ns {
            NextScan { at_ns: early_at_ns, early: true }
        } else {
            NextScan { at_ns: self.steady_due_ns.max(ended_ns + least_ns), early: false }
        }
    }

    /// How far it has come: 0 for none, 3 for the most.
    #[must_use]
    pub fn pressure(self) -> u32 {
        self.pressure
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEADY: u64 = 8000;

    #[test]
    fn scans_come_sooner_the_longer_local_memory_is_short_and_steady_ones_as_ever() {
        let mut pace = Pace::default();
        let mut now_ns = 0;
        let mut early = false;
        let mut steady_at = Vec::new();
        let mut gaps = Vec::new();
        while now_ns < 6 * STEADY {
            let next = pace.next((now_ns, early), STEADY, 10, (STEADY..3 * STEADY).contains(&now_ns));
            if !next.early {
                steady_at.push(next.at_ns);
            }
            gaps.push(next.at_ns - now_ns);
            (now_ns, early) = (next.at_ns, next.early);
        }
        assert_eq!(steady_at, [1, 2, 3, 4, 5, 6].map(|at| at * STEADY), "{gaps:?}");
        assert_eq!(gaps[..5], [8000, 4000, 2000, 1000, 1000]);
        assert_eq!(gaps[gaps.len() - 2..], [8000, 8000]);
        assert_eq!(pace.pressure(), 0);
    }

    #[test]
    fn none_comes_sooner_than_it_may() {
        let mut pace = Pace::default();
        for _ in 0..5 {
            let next = pace.next((0, false), 100, 100, true);
            assert_eq!(next, NextScan { at_ns: 100, early: false });
        }
        let next = pace.next((90, true), 100, 40, true);
        assert_eq!(next, NextScan { at_ns: 130, early: false }, "it was due at 100");
    }

    #[test]
    fn paces_are_told_by_name() {
        assert_eq!("budget".parse(), Ok(ScanPace::default()));
        assert_eq!("pressure".parse(), Ok(ScanPace::Pressure));
        assert!("hotbox".parse::<ScanPace>().unwrap_err().contains("'hotbox'"));
        assert_eq!(serde_json::to_value(ScanPace::Pressure).unwrap(), "pressure");
    }
}
