//! What came in a stream is known as such when accessed bits are scanned, and what comes page by page is not:
//! which pages leave hangs on it (`spillway-policy/src/use_forecast.rs`).
#![allow(clippy::expect_used)]

use spillway_sim::config::{
    BlockConfig, Config, Habits, Machine, Overrides, StoreConfig, StoreFaults, StoreKind, Strategy,
    TapeConfig,
};
use spillway_sim::run::run_world;

/// A block of a stream has up to 18 pages then.
const LIMIT_PAGES: u64 = 2304;

/// A program of one thread on a machine where nothing goes wrong, which does nothing but this.
fn world(seed: u64, habits: Habits) -> Config {
    let store = StoreConfig {
        kind: StoreKind::Ram,
        slots: 16 * LIMIT_PAGES as u32,
        latency_ns: 2_000,
        faults: StoreFaults::default(),
    };
    Config {
        strategy: Strategy::Uniform { switch_one_in: 30 },
        limit_pages: LIMIT_PAGES,
        inline: false,
        threads: 1,
        processes: 1,
        operations: 400,
        program_pages: 2 * LIMIT_PAGES,
        adopted_pages: 0,
        native: false,
        stores: vec![store],
        block: BlockConfig::Streams,
        inactive_percent: 0,
        thread_buffer_pages: 0,
        thread_inactive: false,
        victim_window_pages: 256,
        sealed: false,
        tape: TapeConfig::None,
        machine: Machine { sleep_stretch: 10, ..Machine::default() },
        habits: Habits { rest: 4, ..habits },
        kills_at: Vec::new(),
        supervisor_dies_at: 0,
        ..Config::of_seed(seed, &Overrides::default())
    }
}

/// Pages of streams and others that scans found.
fn scanned(config: &Config) -> (u64, u64) {
    let outcome = run_world(config, false);
    assert_eq!(outcome.failure, None, "seed {}", config.seed);
    let count = |what| outcome.counts.get(what).copied().unwrap_or_default();
    (count("scanned pages of streams"), count("scanned other pages"))
}

#[test]
fn pages_of_streams_are_known_as_such_and_single_pages_are_not() {
    let streams = world(1, Habits { stream: 40, write_percent: 20, ..Habits::default() });
    let (streamed, others) = scanned(&streams);
    assert!(streamed > 1_000 && others > 0, "of streams {streamed}, others {others}");
    // In half of the worlds the program reads all of its memory at its end, and only then is there anything
    // to scan.
    let singles = |seed| world(seed, Habits { touch: 400, write_percent: 20, ..Habits::default() });
    let counts: Vec<(u64, u64)> = (1..=8).map(|seed| scanned(&singles(seed))).collect();
    let streamed: u64 = counts.iter().map(|(streamed, _)| streamed).sum();
    let others: u64 = counts.iter().map(|(_, others)| others).sum();
    // Touches stay near each other at times, so that a stream may come of them by chance.
    assert!(others > 10_000 && 100 * streamed < others, "of streams, others: {counts:?}");
}
