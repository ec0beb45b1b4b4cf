//! A pool of three donors, each page on two of them.

use super::alike::Kind;
use super::bench::Bench;
use super::row::Row;
use crate::BenchError;

pub(super) const DONORS: usize = 3;
const WELL: &str = "all pages are on 2 donors again";

const COPIES: Kind = Kind {
    prefix: "",
    query: "",
    donors: DONORS,
    dying: 1,
    in_words: ("one of three", "dies"),
    after: WELL,
    // The two others have room for what the third had.
    donors_with_spare: DONORS,
    well: WELL,
    sealed_aim: 1.5,
};

/// Beside one plain donor, while all is well.
pub(super) fn healthy(bench: &mut Bench<'_>) -> Result<Vec<Row>, BenchError> {
    bench.begin(DONORS)?;
    let (_plain, nbd) = bench.plain_donor()?;
    let mut rows = COPIES.random_reads(bench, &nbd, None)?;
    rows.extend(COPIES.sequences(bench, &nbd)?);
    Ok(rows)
}

/// A donor dies while the program reads.
pub(super) fn one_dies(bench: &mut Bench<'_>) -> Result<Vec<Row>, BenchError> {
    let ended = || BenchError::Measured {
        command: "the program on the pool".to_owned(),
        reason: "it got SIGBUS when one of three donors died".to_owned(),
    };
    COPIES.some_die(bench)?.ok_or_else(ended)
}

/// A donor dies while the program does nothing.
pub(super) fn repair(bench: &mut Bench<'_>) -> Result<Vec<Row>, BenchError> {
    bench.begin(COPIES.donors_with_spare)?;
    let reader = bench.reader(&COPIES.unbounded())?;
    COPIES.kill(bench);
    let repair = bench.watch_repair(&reader, WELL)?.repair();
    reader.finish()?;
    Ok(vec![
        Row::at_least("repair while the program rests, MB/s", repair.while_possible, 1000.0),
        Row::at_least("the same, with the wait for the dead donor, MB/s", repair.with_the_wait, 1000.0),
    ])
}

/// The same while the program reads.
pub(super) fn repair_under_load(bench: &mut Bench<'_>) -> Result<Vec<Row>, BenchError> {
    COPIES.repair_under_load(bench)
}
