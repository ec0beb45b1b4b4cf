//! Seeded worlds in which the pool's core runs as it does in a run: donors crash, restart empty, freeze, lose
//! messages, lie, are cut off from some of a run, get writes late or twice, join, are drained and stay after
//! all; reads are hedged; processes fork, and are killed between any two steps; the supervisor rebuilds
//! beside writes, and hears of nobody who comes while the directory is away.
//! Some worlds have a last resort, and donors with too little room; in some three copies are wanted; in some
//! donors die for good, and what is left must have as many copies as it has room for. An oracle knows what
//! each slot must hold.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod world;

use std::sync::atomic::AtomicU64;

use spillway_pool::bits::{bits_of, slots_of};
use spillway_pool::new_donor::NewDonor;
use spillway_pool::rebuild::{self, Moved, Rebuild};
use spillway_pool::survey::Sweep;
use spillway_pool::table::{Table, Terms, Which, words_of};
use spillway_pool::words::{Copy, Place};
use spillway_pool::write::{self, Outcome, Write, without_barred};
use world::World;

/// Worlds that are right without a mistake.
const SEEDS: u64 = 400;
/// Worlds in which a planted mistake is looked for; each is found by seed 239.
const SEEDS_FOR_A_MISTAKE: u64 = 1_000;

/// `SPILLWAY_POOL_SEEDS=` has another number of worlds run.
fn seeds() -> u64 {
    std::env::var("SPILLWAY_POOL_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(SEEDS)
}

fn first_failure(bug: &'static str, seeds: std::ops::Range<u64>) -> Option<(u64, String)> {
    seeds.into_iter().find_map(|seed| World::new(seed, bug).run().err().map(|error| (seed, error)))
}

#[test]
fn no_page_is_wrong_or_lost_and_every_repair_ends() {
    let (mut reads, mut rebuilt, mut losses, mut joined, mut left, mut hedged) = (0, 0, 0, 0, 0, 0);
    let (mut spilled, mut returned, mut wrong, mut cut_off, mut stayed, mut gone) = (0, 0, 0, 0, 0, 0);
    let (mut unheard, mut forked) = (0, 0);
    for seed in 0..seeds() {
        let mut world = World::new(seed, "");
        if let Err(error) = world.run() {
            panic!("seed {seed}: {error}");
        }
        (reads, rebuilt, losses) = (reads + world.reads, rebuilt + world.rebuilt, losses + world.losses);
        (joined, left, hedged) = (joined + world.joined, left + world.left, hedged + world.hedged);
        (spilled, returned) = (spilled + world.spilled, returned + world.returned);
        gone += world.gone;
        (unheard, forked) = (unheard + world.unheard, forked + world.forked);
        (wrong, cut_off, stayed) = (wrong + world.wrong, cut_off + world.cut_off, stayed + world.stayed);
    }
    // The worlds are of use only if much happens in them.
    assert!(reads > 10_000 && rebuilt > 1_000 && losses > 100, "{reads} {rebuilt} {losses}");
    assert!(joined > 100 && left > 100 && hedged > 1_000, "{joined} {left} {hedged}");
    assert!(spilled > 100 && returned > 100 && gone > 100, "{spilled} {returned} {gone}");
    assert!(unheard > 500 && forked > 100, "{unheard} {forked}");
    assert!(wrong > 500 && cut_off > 1_000 && stayed > 2_000, "{wrong} {cut_off} {stayed}");
}

#[test]
fn planted_mistakes_are_found() {
    // Each with a world that finds it.
    let mistakes = [
        ("missed-write-not-marked", 0),
        ("last-copy-dropped", 0),
        ("written-slot-not-dirty", 0),
        ("dirty-after-recheck", 0),
        ("new-copy-not-written", 0),
        ("dirty-slots-not-copied", 1),
        ("whole-without-closing", 5),
        ("closing-not-checked", 3),
        ("rebuilding-copy-read", 0),
        ("earlier-life-read", 0),
        ("forgotten-slot-read", 0),
        ("write-not-announced", 217),
        ("counted-before-the-answer", 1),
        ("joined-domain-forgotten", 0),
        ("leaving-donor-taken", 12),
        ("leaving-copy-counted", 6),
        ("moved-copy-read", 19),
        ("made-by-two", 0),
        ("late-answer-kept", 0),
        ("hedge-not-checked", 5),
        ("spill-taken-as-donor", 1),
        ("spill-not-written", 1),
        ("spill-copy-dropped-early", 1),
        ("spilled-page-not-returned", 1),
        ("second-write-forgotten", 32),
        ("wrong-copy-kept", 0),
        ("stayed-donor-closed", 0),
        ("hedges-not-bounded", 16),
        ("copy-of-who-is-up-kept", 3),
        ("away-copies-keep-their-places", 134),
        ("away-copy-keeps-its-domain", 239),
    ];
    // Every second of them beside the others.
    std::thread::scope(|scope| {
        for first in 0..2 {
            scope.spawn(move || {
                let half = mistakes.into_iter().skip(first).step_by(2);
                half.for_each(|(bug, known)| assert_is_found(bug, known));
            });
        }
    });
}

/// In one of [`SEEDS_FOR_A_MISTAKE`] worlds, which is right without it; in `known`, unless what is simulated
/// has changed since.
fn assert_is_found(bug: &'static str, known: u64) {
    assert!(known < SEEDS_FOR_A_MISTAKE);
    let found = first_failure(bug, known..known + 1).or_else(|| first_failure(bug, 0..SEEDS_FOR_A_MISTAKE));
    let (seed, _) = found.unwrap_or_else(|| panic!("{bug} is not found"));
    assert_eq!(first_failure("", seed..seed + 1), None, "without {bug}");
    eprintln!("{bug}: seed {seed}");
}

/// Two donors, one extent, and a copy of it on each.
fn two_donors() -> (Vec<NewDonor>, Terms) {
    let donor = |domain| NewDonor { capacity: 4, domain, text: String::new() };
    ((0..2).map(donor).collect(), Terms { extents: 1, wanted: 2, least: 1, joining: 0, coding: None })
}

#[test]
fn a_write_that_went_to_a_closing_copy_goes_there_once_more_if_the_copy_was_taken_back() {
    let (donors, terms) = two_donors();
    let words: Vec<AtomicU64> = (0..words_of(&donors, terms)).map(|_| AtomicU64::new(0)).collect();
    let table = Table::create(&words, &donors, terms);
    let chooser = table.chooser();
    // The second donor misses a first write.
    let (mut write, mut places) = (Write::new(0, bits_of([3]), 1), Vec::new());
    while !matches!(write.step(&table, &chooser), write::Step::Done(_)) {
        places = table.snapshot(0).places.into_iter().flatten().collect();
        places.iter().for_each(|place| write.sent(*place, *place == places[0]));
    }
    let (whole, copy) = (places[0], 1);
    let closing = table.take_place(usize::from(places[1].donor), 0).unwrap();
    let mut rebuild = Rebuild::new(0, copy, closing);
    let rebuild_until = |rebuild: &mut Rebuild, state: Copy| {
        while table.state(0).copies[copy] != state {
            if let rebuild::Step::Move { .. } = rebuild.step(&table) {
                rebuild.copied(&table, Moved::All);
            }
        }
    };
    rebuild_until(&mut rebuild, Copy::Closing);
    // The next goes to both; the copy that is closing has it first.
    let mut write = Write::new(0, bits_of([3]), 2);
    while write.step(&table, &chooser) != write::Step::Wait {}
    write.sent(closing, true);
    // Somebody else's write has the copy taken back, and the page that the whole one has still is copied
    // there.
    table.set_bits(0, Which::Dirty, &bits_of([4, 3]));
    rebuild_until(&mut rebuild, Copy::Rebuilding);
    rebuild_until(&mut rebuild, Copy::Whole);
    write.sent(whole, true);
    let mut again = Vec::new();
    let outcome = loop {
        match write.step(&table, &chooser) {
            write::Step::Send { place } => {
                again.push(place);
                write.sent(place, true);
            }
            write::Step::Done(outcome) => break outcome,
            _ => {}
        }
    };
    assert_eq!((again, outcome), (vec![closing], Outcome::Stored { copies: 2 }));
}

#[test]
fn bars_are_seen_by_who_writes_next() {
    let donors: Vec<NewDonor> =
        (0..2).map(|donor| NewDonor { capacity: 4, domain: donor, text: String::new() }).collect();
    let terms = Terms { extents: 2, wanted: 2, least: 1, joining: 0, coding: None };
    let words: Vec<AtomicU64> = (0..words_of(&donors, terms)).map(|_| AtomicU64::new(0)).collect();
    let table = Table::create(&words, &donors, terms);
    let chooser = table.chooser();
    let (mut write, mut under_way) = (Write::new(0, bits_of([3, 4]), 1), Vec::new());
    let outcome = loop {
        match write.step(&table, &chooser) {
            write::Step::Again => {}
            write::Step::Send { place } => under_way.push(place),
            write::Step::Wait => under_way.drain(..).for_each(|place| write.sent(place, false)),
            write::Step::Done(outcome) => break outcome,
        }
    };
    assert_eq!(outcome, Outcome::Unreachable);
    let left = without_barred(&table, 0, &bits_of([2, 3, 4, 5]));
    assert_eq!(slots_of(&left).collect::<Vec<_>>(), [2, 5]);
    assert_eq!(slots_of(&table.bits(0, Which::Barred)).collect::<Vec<_>>(), [3, 4]);
}

/// A write to slot 3 of the first extent, up to where it waits for the answers of these donors.
fn write_that_waits(table: &Table<'_>) -> (Write, Vec<Place>) {
    let (mut write, mut places) = (Write::new(0, bits_of([3]), 1), Vec::new());
    loop {
        match write.step(table, &table.chooser()) {
            write::Step::Send { place } => places.push(place),
            write::Step::Wait => return (write, places),
            step => assert_eq!(step, write::Step::Again),
        }
    }
}

#[test]
fn a_bar_that_was_lifted_under_a_long_write_stands_again_if_that_may_come_late() {
    let (donors, terms) = two_donors();
    let words: Vec<AtomicU64> = (0..words_of(&donors, terms)).map(|_| AtomicU64::new(0)).collect();
    let table = Table::create(&words, &donors, terms);
    let (mut write, places) = write_that_waits(&table);
    // Nothing that was begun so long ago comes late: who waits for an answer holds the slot.
    let mut sweep = Sweep::default();
    for now_ms in [1, 2, 40] {
        let _ = sweep.look(&table, now_ms, 30);
    }
    assert_eq!(table.bits(0, Which::Barred), bits_of([]));
    places.iter().for_each(|place| write.sent(*place, false));
    let outcome = end_of(&mut write, &table);
    assert_eq!((outcome, table.bits(0, Which::Barred)), (Outcome::Unreachable, bits_of([3])));
}

#[test]
fn a_write_that_may_come_once_more_counts_and_nobody_writes_there_for_a_while() {
    let (donors, terms) = two_donors();
    let words: Vec<AtomicU64> = (0..words_of(&donors, terms)).map(|_| AtomicU64::new(0)).collect();
    let table = Table::create(&words, &donors, terms);
    let (mut write, places) = write_that_waits(&table);
    write.comes_again();
    places.iter().for_each(|place| write.sent(*place, true));
    assert_eq!(end_of(&mut write, &table), Outcome::Stored { copies: 2 });
    assert_eq!(without_barred(&table, 0, &bits_of([2, 3])), bits_of([2]));
    let mut sweep = Sweep::default();
    let left = [1, 2, 30, 31].map(|now_ms| {
        let _ = sweep.look(&table, now_ms, 30);
        slots_of(&table.bits(0, Which::Barred)).count()
    });
    assert_eq!(left, [1, 1, 1, 0]);
}

fn end_of(write: &mut Write, table: &Table<'_>) -> Outcome {
    loop {
        if let write::Step::Done(outcome) = write.step(table, &table.chooser()) {
            return outcome;
        }
    }
}
