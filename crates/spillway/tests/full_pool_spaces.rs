//! What pool_spaces.rs has, for an hour, or as many minutes as SPILLWAY_SPACES_MINUTES says: pools of copies
//! and of coded pages in turns, with a writer that knows its pages, with sort, Redis, PostgreSQL and a JVM.
//! Run by `make test-full`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod donor_common;
mod fault_common;
mod pool_common;
mod space_common;
mod support;

use std::time::{Duration, Instant};

use space_common::harm::Harm;
use space_common::story::{
    CODED, CODED_SPILLING, COPIED, OF_SPILLING, TWICE, TWICE_SPILLING, seed, shuffled, tell,
};
use space_common::work::Kind;
use space_common::world::Plan;

const MINUTES: &str = "SPILLWAY_SPACES_MINUTES";

fn length() -> Duration {
    let minutes = std::env::var(MINUTES).unwrap_or_else(|_| "60".to_owned());
    let minutes: u64 = minutes.parse().unwrap_or_else(|_| panic!("{MINUTES}={minutes} is no number"));
    Duration::from_secs(60 * minutes)
}

#[test]
fn programs_survive_what_befalls_their_donors_for_an_hour() {
    let (begun, length, first) = (Instant::now(), length(), seed());
    for (round, seed) in (first..).enumerate() {
        let pools = [CODED, COPIED, CODED_SPILLING, CODED, TWICE, TWICE_SPILLING, CODED];
        // All of it by the seed, so that it can be told again.
        let number = (seed % 1_000_000) as usize;
        let pool = pools[number % pools.len()];
        let work = match [Kind::Writer, Kind::Redis, Kind::Postgres, Kind::Sort, Kind::Jvm][number % 5] {
            // The disk of a last resort has no room for these.
            Kind::Postgres | Kind::Jvm if pool.spills => Kind::Writer,
            work => work,
        };
        // Half of the rounds by TLS, whatever else they are.
        let plan = Plan { work, is_by_tls: number / 2 % 2 == 0, ..pool };
        let mut harms = shuffled(seed);
        harms.push(Harm::Succession);
        harms.insert(3, Harm::Death);
        harms.insert(0, Harm::Death);
        if plan.spills {
            harms.extend(OF_SPILLING);
        }
        tell(plan, &harms, seed);
        eprintln!("round {round} after {} s", begun.elapsed().as_secs());
        if begun.elapsed() >= length {
            return;
        }
    }
}
