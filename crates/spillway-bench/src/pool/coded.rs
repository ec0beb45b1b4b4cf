//! A pool of six donors, or eight, whose pages are coded: four parts of data and two of parity.

use std::time::{Duration, Instant};

use super::bench::{Bench, LEAD, UNDER_REPAIR};
use super::cost;
use super::row::{Row, ratio};
use super::site::{Reader, certificates};
use crate::BenchError;
use crate::access::Pattern;

const CODE: &str = "&data=4&parity=2";
const DATA: u64 = 4;
const PARTS: u64 = 6;
const DONORS: usize = 6;
/// So many that what two of them had can be made anew.
const DONORS_WITH_SPARE: usize = 8;
const WELL: &str = "all pages have 6 parts again";
/// Of six donors, two of which are dead.
const STUCK: &str = "stay with fewer than 6 parts";
/// How often is looked how much donors hold while the program writes.
const LOOK: Duration = Duration::from_millis(50);
/// With a tenth dead at most, and writes to any page, so many pages are moved for one that is written.
const MOST_MOVED: f64 = 5.0;
/// How long what is dead is waited for to be cleared away.
const REST: Duration = Duration::from_secs(4);

/// Beside one plain donor, while all is well.
pub(super) fn healthy(bench: &mut Bench<'_>) -> Result<Vec<Row>, BenchError> {
    bench.begin(DONORS)?;
    let directory = bench.on_access.scratch().join("tls");
    certificates(bench.on_access.spillway, &directory, DONORS)?;
    let directory = directory.display().to_string();
    let by_tls = bench.more_donors(DONORS, &["--tls-certificates", &directory])?;
    let (_plain, nbd) = bench.plain_donor()?;
    let pool = bench.pool(CODE);
    let tls = bench.pool_of(&by_tls, &format!("{CODE}&tls-certificates={directory}"));
    let [one, open, sealed, sealed_by_tls] = bench
        .ns(Pattern::RandomRead, [(&nbd, "none"), (&pool, "none"), (&pool, "remote"), (&tls, "remote")])?;
    let [one_reads, pool_reads] = bench.ns(Pattern::SequentialRead, [(&nbd, "none"), (&pool, "remote")])?;
    let [one_writes, pool_writes] = bench.ns(Pattern::SequentialRw, [(&nbd, "none"), (&pool, "remote")])?;
    Ok(vec![
        Row::at_most("4+2: random read, not sealed, over one plain donor's time", ratio(open, one), 1.1),
        Row::at_most("4+2: random read, sealed, over one plain donor's time", ratio(sealed, one), 1.1),
        Row::at_most(
            "4+2: random read, sealed, by TLS, over one plain donor's time",
            ratio(sealed_by_tls, one),
            1.5,
        ),
        Row::at_least(
            "4+2: sequential read, sealed, of one plain donor's rate",
            ratio(one_reads, pool_reads),
            1.0,
        ),
        Row::at_least(
            "4+2: sequential read and write, sealed, of one plain donor's rate",
            ratio(one_writes, pool_writes),
            0.8,
        ),
    ])
}

fn kill_two(bench: &mut Bench<'_>) {
    let left = bench.donors.len().saturating_sub(2);
    bench.donors.truncate(left);
}

/// Two donors of six die at once while the program reads.
pub(super) fn two_die(bench: &mut Bench<'_>) -> Result<Vec<Row>, BenchError> {
    bench.begin(DONORS)?;
    let mut reader = bench.reader(CODE)?;
    let healthy = reader.read(bench.measured())?;
    reader.begin(LEAD + Duration::from_secs(1))?;
    std::thread::sleep(LEAD);
    kill_two(bench);
    let no_sigbus = |count| Row::at_most("4+2: programs that end when two of six die", count, 0.0);
    let dying = match reader.end() {
        // What else it should have said is missed with it.
        Err(_) if reader.has_said("SIGBUS") => return Ok(vec![no_sigbus(1.0)]),
        dying => dying?,
    };
    reader.await_line(STUCK)?;
    let after = reader.read(bench.measured())?;
    reader.finish()?;
    Ok(vec![
        no_sigbus(0.0),
        Row::at_most("4+2: longest stall when two of six die under load, ms", dying.longest_us / 1e3, 50.0),
        Row::at_most("4+2: p99 of faults in the second in which two of six die, ms", dying.p99_us / 1e3, 5.0),
        Row::at_most(
            "4+2: median fault with two of six dead, over a healthy pool's",
            ratio(after.median_us, healthy.median_us),
            2.0,
        ),
    ])
}

/// Two donors of eight die while the program does nothing.
pub(super) fn repair(bench: &mut Bench<'_>) -> Result<Vec<Row>, BenchError> {
    bench.begin(DONORS_WITH_SPARE)?;
    let reader = bench.reader(&format!("{CODE}&rebuild=64G"))?;
    let died = Instant::now();
    kill_two(bench);
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
    bench.begin(DONORS_WITH_SPARE)?;
    let mut reader = bench.reader(&format!("{CODE}&rebuild=64G"))?;
    let healthy = reader.read(bench.measured())?;
    kill_two(bench);
    bench.await_repair()?;
    let meanwhile = reader.read(UNDER_REPAIR)?;
    reader.await_line(WELL)?;
    reader.finish()?;
    let over = ratio(meanwhile.p99_us, healthy.p99_us);
    Ok(vec![Row::at_most("4+2: p99 of faults during repair, over a healthy pool's", over, 2.0)])
}

fn held_over_stored(bench: &Bench<'_>, reader: &Reader<'_>) -> Result<f64, BenchError> {
    let stored_bytes = reader.space()?.stored_bytes;
    Ok(ratio(bench.held_bytes()? as f64, stored_bytes as f64))
}

/// What donors hold for the pages that the run has there, while the program writes at random and after.
pub(super) fn space(bench: &mut Bench<'_>) -> Result<Vec<Row>, BenchError> {
    bench.begin(DONORS)?;
    let mut reader = bench.reader(CODE)?;
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
