//! A failing world made smaller: fewer threads and operations, as long as it still fails in the same way.

use crate::config::{Config, Overrides};
use crate::run::run_world;
use crate::world::Failure;

/// What of a failure stays the same while its world shrinks: its words without the numbers.
fn kind(failure: &Failure) -> String {
    failure.what.chars().filter(|character| character.is_alphabetic() || *character == ' ').collect()
}

/// A smaller world of the same seed that fails as well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shrunk {
    /// What makes the seed's world smaller.
    pub overrides: Overrides,
    /// How the smaller world fails.
    pub failure: Failure,
}

/// Shrinks the world of a seed that fails with `failure`, in at most `tries` runs.
#[must_use]
pub fn shrink(seed: u64, overrides: &Overrides, failure: &Failure, mut tries: u32) -> Shrunk {
    let mut best = Shrunk { overrides: overrides.clone(), failure: failure.clone() };
    let fails = |overrides: &Overrides| {
        let failure = run_world(&Config::of_seed(seed, overrides), false).failure?;
        (kind(&failure) == kind(&best.failure)).then_some(failure)
    };
    let config = Config::of_seed(seed, overrides);
    let mut threads = config.threads;
    let mut operations = config.operations;
    let mut found = None;
    while tries > 0 {
        // The larger steps first; the first that still fails is taken.
        let candidates = [
            (threads, operations / 2),
            (threads / 2, operations),
            (threads.saturating_sub(1), operations),
            (threads, operations - operations / 4),
        ];
        let smaller =
            candidates.into_iter().filter(|&(t, o)| t > 0 && o > 0 && (t, o) != (threads, operations));
        let step = smaller.take(tries as usize).find_map(|(threads, operations)| {
            tries = tries.saturating_sub(1);
            let tried = Overrides {
                threads: Some(threads),
                operations: Some(operations),
                planted: overrides.planted.clone(),
            };
            fails(&tried).map(|failure| (tried, failure, threads, operations))
        });
        let Some((overrides, failure, fewer_threads, fewer_operations)) = step else { break };
        (threads, operations) = (fewer_threads, fewer_operations);
        found = Some(Shrunk { overrides, failure });
    }
    if let Some(found) = found {
        best = found;
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_alike_by_their_words() {
        let failure = |what: &str| Failure { step: 1, task: "one".to_owned(), what: what.to_owned() };
        assert_eq!(kind(&failure("page 0x12 is lost")), kind(&failure("page 0x99 is lost")));
        assert_ne!(kind(&failure("page 0x12 is lost")), kind(&failure("slot 12 is lost")));
    }
}
