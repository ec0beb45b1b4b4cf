//! The order of rows.

use std::cmp::Reverse;

use crate::top::rates::Row;

/// What rows are sorted by, the most first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// Local and far memory together.
    #[default]
    Memory,
    /// Faults of every kind a second.
    Faults,
    /// The time lost to paging.
    Lost,
    /// How long the slowest faults took.
    Slowest,
    /// By number of the process, the least first.
    Pid,
}

impl Sort {
    /// The one that the next key press leads to.
    pub fn next(self) -> Self {
        match self {
            Self::Memory => Self::Faults,
            Self::Faults => Self::Lost,
            Self::Lost => Self::Slowest,
            Self::Slowest => Self::Pid,
            Self::Pid => Self::Memory,
        }
    }

    /// Its name, for the foot of the screen.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Faults => "FLT/s",
            Self::Lost => "LOST",
            Self::Slowest => "P99",
            Self::Pid => "PID",
        }
    }

    /// A number by which rows ascend.
    pub fn rank(self, row: &Row) -> Reverse<u64> {
        let rates = row.rates.unwrap_or_default();
        Reverse(match self {
            Self::Memory => row.local_bytes.saturating_add(row.far_bytes),
            Self::Faults => (rates.faults_per_s * 1e3) as u64,
            Self::Lost => (rates.lost_share * 1e6) as u64,
            Self::Slowest => (rates.fault_p99_us.unwrap_or(0.0) * 1e3) as u64,
            Self::Pid => u64::MAX - u64::from(row.pid),
        })
    }
}
