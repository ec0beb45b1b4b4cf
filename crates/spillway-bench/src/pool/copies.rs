//! A pool of three donors, each page on two of them.

use std::time::Duration;

use super::bench::{Bench, LEAD, UNDER_REPAIR};
use super::row::{Row, ratio};
use crate::BenchError;
use crate::access::Pattern;

pub(super) const DONORS: usize = 3;
const WELL: &str = "all pages are on 2 donors again";

/// Beside one plain donor, while all is well.
pub(super) fn healthy(bench: &mut Bench<'_>) -> Result<Vec<Row>, BenchError> {
    bench.begin(DONORS)?;
    let (_plain, nbd) = bench.plain_donor()?;
    let pool = bench.pool("");
    let [one, open, sealed] =
        bench.ns(Pattern::RandomRead, [(&nbd, "none"), (&pool, "none"), (&pool, "remote")])?;
    let [one_reads, pool_reads] = bench.ns(Pattern::SequentialRead, [(&nbd, "none"), (&pool, "remote")])?;
    let [one_writes, pool_writes] = bench.ns(Pattern::SequentialRw, [(&nbd, "none"), (&pool, "remote")])?;
    Ok(vec![
        Row::at_most("random read, not sealed, over one plain donor's time", ratio(open, one), 1.1),
        Row::at_most("random read, sealed, over one plain donor's time", ratio(sealed, one), 1.5),
        Row::at_least(
            "sequential read, sealed, of one plain donor's rate",
            ratio(one_reads, pool_reads),
            1.0,
        ),
        Row::at_least(
            "sequential read and write, sealed, of one plain donor's rate",
            ratio(one_writes, pool_writes),
            0.8,
        ),
    ])
}

/// A donor dies while the program reads.
pub(super) fn one_dies(bench: &mut Bench<'_>) -> Result<Vec<Row>, BenchError> {
    bench.begin(DONORS)?;
    let mut reader = bench.reader("")?;
    let healthy = reader.read(bench.measured())?;
    reader.begin(LEAD + Duration::from_secs(1))?;
    std::thread::sleep(LEAD);
    drop(bench.donors.pop());
    let dying = reader.end()?;
    reader.await_line(WELL)?;
    let after = reader.read(bench.measured())?;
    reader.finish()?;
    Ok(vec![
        Row::at_most("longest stall when one of three dies under load, ms", dying.longest_us / 1e3, 50.0),
        Row::at_most("p99 of faults in the second in which one of three dies, ms", dying.p99_us / 1e3, 5.0),
        Row::at_most(
            "median fault with one of three dead, over a healthy pool's",
            ratio(after.median_us, healthy.median_us),
            2.0,
        ),
    ])
}

/// A donor dies while the program does nothing.
pub(super) fn repair(bench: &mut Bench<'_>) -> Result<Vec<Row>, BenchError> {
    bench.begin(DONORS)?;
    let reader = bench.reader("&rebuild=64G")?;
    drop(bench.donors.pop());
    let repair = bench.watch_repair(&reader, WELL)?.repair();
    reader.finish()?;
    Ok(vec![
        Row::at_least("repair while the program rests, MB/s", repair.while_possible, 1000.0),
        Row::at_least("the same, with the wait for the dead donor, MB/s", repair.with_the_wait, 1000.0),
    ])
}

/// The same while the program reads.
pub(super) fn repair_under_load(bench: &mut Bench<'_>) -> Result<Vec<Row>, BenchError> {
    bench.begin(DONORS)?;
    let mut reader = bench.reader("&rebuild=64G")?;
    let healthy = reader.read(bench.measured())?;
    drop(bench.donors.pop());
    bench.await_repair()?;
    let meanwhile = reader.read(UNDER_REPAIR)?;
    reader.await_line(WELL)?;
    reader.finish()?;
    let over = ratio(meanwhile.p99_us, healthy.p99_us);
    Ok(vec![Row::at_most("p99 of faults during repair, over a healthy pool's", over, 2.0)])
}
