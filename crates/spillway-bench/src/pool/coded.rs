//! A pool of six donors, or eight, whose pages are coded: four parts of data and two of parity.

use std::time::{Duration, Instant};

use super::alike::Kind;
use super::bench::Bench;
use super::cost;
use super::row::{Row, ratio};
use super::site::{Reader, certificates};
use crate::BenchError;

const DATA: u64 = 4;
const PARTS: u64 = 6;
const DONORS: usize = 6;
const WELL: &str = "all pages have 6 parts again";
/// How often is looked how much donors hold while the program writes.
const LOOK: Duration = Duration::from_millis(50);
/// With a tenth dead at most, and writes to any page, so many pages are moved for one that is written.
const MOST_MOVED: f64 = 5.0;
/// How long what is dead is waited for to be cleared away.
const REST: Duration = Duration::from_secs(4);

const CODED: Kind = Kind {
    prefix: "4+2: ",
    query: "&data=4&parity=2",
    donors: DONORS,
    dying: 2,
    in_words: ("two of six", "die"),
    after: "stay with fewer than 6 parts",
    donors_with_spare: 8,
    well: WELL,
    sealed_aim: 1.1,
};

/// Beside one plain donor, while all is well.
pub(super) fn healthy(bench: &mut Bench<'_>) -> Result<Vec<Row>, BenchError> {
    bench.begin(DONORS)?;
    let directory = bench.on_access.scratch().join("tls");
    certificates(bench.on_access.spillway, &directory, DONORS)?;
    let directory = directory.display().to_string();
    let by_tls = bench.more_donors(DONORS, &["--tls-certificates", &directory])?;
    let (_plain, nbd) = bench.plain_donor()?;
    let tls = bench.pool_of(&by_tls, &format!("{}&tls-certificates={directory}", CODED.query));
    let mut rows = CODED.random_reads(bench, &nbd, Some(("sealed, by TLS", &tls, 1.5)))?;
    rows.extend(CODED.sequences(bench, &nbd)?);
    Ok(rows)
}

/// Two donors of six die at once while the program reads.
pub(super) fn two_die(bench: &mut Bench<'_>) -> Result<Vec<Row>, BenchError> {
    let ended = |count| Row::at_most("4+2: programs that end when two of six die", count, 0.0);
    Ok(match CODED.some_die(bench)? {
        // What else it should have said is missed with it.
        None => vec![ended(1.0)],
        Some(rows) => std::iter::once(ended(0.0)).chain(rows).collect(),
    })
}

/// Two donors of eight die while the program does nothing.
pub(super) fn repair(bench: &mut Bench<'_>) -> Result<Vec<Row>, BenchError> {
    bench.begin(CODED.donors_with_spare)?;
    let reader = bench.reader(&CODED.unbounded())?;
    let died = Instant::now();
    CODED.kill(bench);
    let growth = bench.watch_repair(&reader, WELL)?;
    let repair = growth.repair_of(reader.moved_bytes(WELL)?, died, Instant::now());
    reader.finish()?;
    Ok(vec![
        Row::at_least("4+2: repair while the program rests, MB/s", repair.while_possible, 1000.0),
        Row::at_least("4+2: the same, from the donors' death on, MB/s", repair.with_the_wait, 1000.0),
    ])
}

/// The same while the program reads.
pub(super) fn repair_under_load(bench: &mut Bench<'_>) -> Result<Vec<Row>, BenchError> {
    CODED.repair_under_load(bench)
}

fn held_over_stored(bench: &Bench<'_>, reader: &Reader<'_>) -> Result<f64, BenchError> {
    let stored_bytes = reader.space()?.stored_bytes;
    Ok(ratio(bench.held_bytes()? as f64, stored_bytes as f64))
}

/// What donors hold for the pages that the run has there, while the program writes at random and after.
pub(super) fn space(bench: &mut Bench<'_>) -> Result<Vec<Row>, BenchError> {
    bench.begin(DONORS)?;
    let mut reader = bench.reader(CODED.query)?;
    let before = reader.space()?;
    let (begun, mut most) = (Instant::now(), 0.0_f64);
    reader.begin_writes(bench.measured() * 2)?;
    while begun.elapsed() < bench.measured() * 2 {
        most = most.max(held_over_stored(bench, &reader)?);
        std::thread::sleep(LOOK);
    }
    reader.end()?;
    std::thread::sleep(REST);
    let (after, space) = (held_over_stored(bench, &reader)?, reader.space()?);
    reader.finish()?;
    let wide = ratio(PARTS as f64, DATA as f64);
    let sent = (space.donors_pages - before.donors_pages) as f64 / wide;
    let moved = ratio(sent, (space.written_pages - before.written_pages) as f64) - 1.0;
    let aim = wide * 1.1;
    Ok(vec![
        Row::at_most("4+2: donors' memory over the pages', after random writes", after, aim),
        Row::at_most("4+2: the same, at most while it writes", most, aim),
        Row::at_most("4+2: pages moved for each page that was written at random", moved, MOST_MOVED),
    ])
}

/// What the processor does for a page.
pub(super) fn cost(_bench: &mut Bench<'_>) -> Result<Vec<Row>, BenchError> {
    let us = cost::us_of_a_page(DATA as usize, (PARTS - DATA) as usize)?;
    Ok(vec![Row::at_most("4+2: processor time to seal and code a page, us", us, 1.5)])
}
