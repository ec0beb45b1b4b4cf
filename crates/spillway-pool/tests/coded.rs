//! Seeded worlds in which coded pages are written, read, dropped, moved and made anew as in a run: donors
//! crash, restart empty, freeze, lie, lose messages and get writes late, join and are drained; reads are
//! hedged, several workers make anew what was lost; processes and the supervisor are killed between any two
//! steps. An oracle knows what every slot must hold.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod coded_world;

use coded_world::World;

/// Worlds that are right without a mistake.
const SEEDS: u64 = 400;
/// Worlds in which a planted mistake is looked for.
const SEEDS_FOR_A_MISTAKE: u64 = 2_000;

#[test]
fn no_coded_page_is_wrong_or_lost_and_every_repair_ends() {
    let (mut reads, mut decoded, mut moved, mut freed, mut losses) = (0, 0, 0, 0, 0);
    let (mut joined, mut left, mut discarded, mut compacted, mut spilled) = (0, 0, 0, 0, 0);
    let (mut hedged, mut beside, mut gathered, mut full) = (0, 0, 0, 0);
    for seed in 0..SEEDS {
        let mut world = World::new(seed, "");
        if let Err(error) = world.run() {
            panic!("seed {seed}: {error}");
        }
        (reads, decoded, moved) = (reads + world.reads, decoded + world.decoded, moved + world.moved);
        (freed, losses) = (freed + world.freed, losses + world.losses);
        (joined, left) = (joined + world.joined, left + world.left);
        (discarded, compacted) = (discarded + world.discarded, compacted + world.compacted);
        (hedged, beside, gathered) =
            (hedged + world.hedged, beside + world.beside, gathered + world.gathered);
        (spilled, full) = (spilled + world.spilled, full + world.full);
    }
    // The worlds are of use only if much happens in them.
    let much = [reads, decoded, moved, freed, losses, joined, left, discarded, compacted, spilled];
    let counts = format!("{much:?} {hedged} {beside} {gathered} {full}");
    assert!(reads > 5_000 && decoded > 500 && moved > 5_000 && freed > 2_000, "{counts}");
    assert!(losses > 100 && joined > 100 && left > 50, "{counts}");
    assert!(discarded > 5_000 && compacted > 2_000 && spilled > 2_000, "{counts}");
    assert!(hedged > 1_000 && beside > 10_000 && gathered > 2_000, "{counts}");
    assert!(full > 1_000, "{counts}");
}

#[test]
fn planted_mistakes_of_coded_pages_are_found() {
    let mistakes = [
        "rows-given-twice",
        "part-not-awaited",
        "late-write-forgotten",
        "late-write-not-awaited",
        "moved-over-newer",
        "fence-not-seen",
        "retired-without-a-fence",
        "generation-kept",
        "checks-not-cleared",
        "moved-page-read",
        "padding-read",
        "late-answer-kept",
        "made-by-two",
        "earlier-part-gathered",
        "gathered-unchecked",
        "moved-part-not-awaited",
        "discard-not-awaited",
        "discard-not-noted",
        "freed-before-discard",
        "late-part-mistaken",
        "second-sending-forgotten",
        "unnamed-taken-for-quiet",
        "looked-while-emptied",
        "spilled-page-not-returned",
        "spilled-version-kept",
        "returned-page-read",
        "spilled-part-taken-for-all",
    ];
    // Every second of them beside the others.
    std::thread::scope(|scope| {
        for first in 0..2 {
            scope.spawn(move || mistakes.iter().skip(first).step_by(2).for_each(|bug| assert_is_found(bug)));
        }
    });
}

fn assert_is_found(bug: &'static str) {
    let mut seeds = 0..SEEDS_FOR_A_MISTAKE;
    let found = seeds.find(|seed| World::new(*seed, bug).run().is_err());
    let seed = found.unwrap_or_else(|| panic!("{bug} is not found"));
    eprintln!("{bug}: seed {seed}");
}
