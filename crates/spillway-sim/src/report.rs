//! What a seed came to, as one line that a worker writes and its parent reads.

use serde::{Deserialize, Serialize};

use crate::config::Overrides;
use crate::world::Outcome;

/// What the world of one seed came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeedReport {
    /// The seed of the world.
    pub seed: u64,
    /// Turns that it took.
    pub steps: u64,
    /// All its events as one number.
    pub digest: u64,
    /// What went wrong; absent where all was well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureReport>,
}

/// What went wrong in a world.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureReport {
    /// The turn at which it went wrong.
    pub step: u64,
    /// The task that ran then.
    pub task: String,
    /// What went wrong, in words.
    pub what: String,
    /// The command that shows it, on the smallest world found.
    pub replay: String,
}

impl SeedReport {
    /// Of an outcome; `shrunk` says on which smaller world it fails.
    #[must_use]
    pub fn new(seed: u64, outcome: &Outcome, shrunk: Option<&crate::shrink::Shrunk>) -> Self {
        let failure = outcome.failure.as_ref().map(|failure| {
            let shown = shrunk.map_or(failure, |shrunk| &shrunk.failure);
            let overrides = shrunk.map(|shrunk| shrunk.overrides.clone()).unwrap_or_default();
            FailureReport {
                step: shown.step,
                task: shown.task.clone(),
                what: shown.what.clone(),
                replay: replay_command(seed, &overrides),
            }
        });
        Self { seed, steps: outcome.steps, digest: outcome.digest, failure }
    }
}

/// The command that shows a failing seed.
#[must_use]
pub fn replay_command(seed: u64, overrides: &Overrides) -> String {
    let planted = overrides.planted.as_ref();
    let feature = if planted.is_some() { " --features planted-bugs" } else { "" };
    let mut command = format!("cargo run --release -p spillway-sim{feature} -- --seed {seed} --trace");
    if let Some(threads) = overrides.threads {
        command += &format!(" --threads {threads}");
    }
    if let Some(operations) = overrides.operations {
        command += &format!(" --operations {operations}");
    }
    if let Some(planted) = planted {
        command += &format!(" --plant {planted}");
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_returns_and_names_the_command_that_shows_it() {
        let overrides = Overrides { threads: Some(2), operations: Some(9), planted: Some("x".to_owned()) };
        let replay = replay_command(7, &overrides);
        assert_eq!(
            replay,
            "cargo run --release -p spillway-sim --features planted-bugs -- --seed 7 --trace --threads 2 \
             --operations 9 --plant x"
        );
        let failure = FailureReport { step: 1, task: "one".to_owned(), what: "lost".to_owned(), replay };
        let report = SeedReport { seed: 7, steps: 2, digest: 3, failure: Some(failure) };
        let line = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<SeedReport>(&line).unwrap(), report);
    }
}
