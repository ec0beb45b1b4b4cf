//! Seeded worlds with a clock, in which donors answer at times of their own, slow down, stall and go on, die,
//! start again with nothing, lose messages and are cut off from some of a run. Watchers ask them, readers
//! hedge, and workers make copies anew as in a run, by the core's `health`, `hedge` and `pace`. The world
//! knows when each donor was how, and holds what the core makes of it against what users are promised.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod health_world;

use health_world::{Counts, World};

/// Worlds that are right without a mistake.
const SEEDS: u64 = 150;
/// Worlds in which a planted mistake is looked for.
const SEEDS_FOR_A_MISTAKE: u64 = 400;

/// `SPILLWAY_POOL_SEEDS=` has another number of worlds run.
fn seeds() -> u64 {
    std::env::var("SPILLWAY_POOL_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(SEEDS)
}

#[test]
fn who_is_dead_is_known_in_time_hedges_are_few_and_repair_keeps_its_pace() {
    let mut counts = Counts::default();
    for seed in 0..seeds() {
        let mut world = World::new(seed, "");
        if let Err(error) = world.run() {
            panic!("seed {seed}: {error}");
        }
        counts.add(&world.counts);
    }
    // The worlds are of use only if much happens in them.
    let Counts { reads, hedged, died, stalled, cut_off, slowed, .. } = counts;
    assert!(reads > 100_000 && hedged > 2_000 && died > 300, "{counts:?}");
    assert!(stalled > 100 && cut_off > 100 && slowed > 200, "{counts:?}");
    let Counts { went_down, came_up, lives, suspected, chunks, yielded, copies, .. } = counts;
    assert!(went_down > 300 && came_up > 300 && lives > 300 && suspected > 100, "{counts:?}");
    assert!(chunks > 2_000 && yielded > 2_000 && copies > 500, "{counts:?}");
    eprintln!("{counts:?}");
}

#[test]
fn planted_mistakes_of_health_hedges_and_pace_are_found() {
    // Each with a world that finds it.
    let mistakes = [
        ("suspicion-kept", 0),
        ("return-not-heard", 1),
        ("suspect-never-dead", 1),
        ("loss-taken-for-absence", 0),
        ("first-answer-is-for-ever", 9),
        ("deviation-left-out", 7),
        ("silence-without-bound", 0),
        ("no-rest-for-readers", 0),
        ("yields-for-ever", 1),
        ("none-begins-beside-readers", 0),
        ("all-begin-beside-readers", 0),
        ("first-worker-does-not-look", 12),
        ("idle-time-made-up-for", 4),
        ("one-worker-counted", 36),
        ("hedges-not-bounded", 9),
        ("usual-not-learned", 5),
        ("usual-never-falls", 12),
        ("hedges-without-end", 1),
        ("late-for-ever", 2),
        ("slow-not-late", 0),
        ("overtaken-not-noted", 0),
    ];
    for (bug, known) in mistakes {
        let mut seeds = std::iter::once(known).chain(0..SEEDS_FOR_A_MISTAKE);
        let found = seeds.find_map(|seed| Some((seed, World::new(seed, bug).run().err()?)));
        let (seed, error) = found.unwrap_or_else(|| panic!("{bug} is not found"));
        World::new(seed, "").run().unwrap_or_else(|error| panic!("seed {seed} without {bug}: {error}"));
        eprintln!("{bug}: seed {seed}: {error}");
    }
}
