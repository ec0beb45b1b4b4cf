//! Pools whose donors have little room, so that most pages are in the last resort, beside the same pages in a
//! file alone (`file:`), sealed too. Nobody has said what these should be: the rows have no aim.

use super::bench::Bench;
use super::row::{Row, ratio};
use crate::BenchError;
use crate::access::Pattern;

/// What each donor lends: as much as it needs to be of use where pages are coded.
const DONOR_BYTES: u64 = 10 << 20;

/// What the names of the rows begin with, what the pool's name says after its donors, and how many these are.
const KINDS: [(&str, &str, usize); 2] = [("", "", super::copies::DONORS), ("4+2: ", "&data=4&parity=2", 6)];

/// Beside a file, while all is well.
pub(super) fn healthy(bench: &mut Bench<'_>) -> Result<Vec<Row>, BenchError> {
    let directory = bench.on_access.scratch().display().to_string();
    let mib = bench.extent.memory_bytes.div_ceil(1 << 20);
    let (file, file_mib) = (format!("file:{directory}?size={}M", mib * 5 / 4), mib * 2);
    let mut rows = Vec::new();
    for (prefix, query, donors) in KINDS {
        bench.donors.clear();
        bench.donors = bench.donors_of(donors, DONOR_BYTES, &[])?;
        let query = format!("{query}&spill=file:{directory}&spill-size={file_mib}M");
        let pool = bench.pool(&query);
        let ns = |pattern| bench.ns(pattern, &[(&file, "all"), (&pool, "all")]);
        let name = |what: &str| format!("{prefix}{what}");
        let (random, sequential) = (ns(Pattern::RandomRead)?, ns(Pattern::SequentialRead)?);
        rows.push(Row::without_aim(
            name("random read, most pages in the last resort, over file:'s time"),
            ratio(random[1], random[0]),
        ));
        rows.push(Row::without_aim(
            name("sequential read, most pages in the last resort, of file:'s rate"),
            ratio(sequential[0], sequential[1]),
        ));
        let reader = bench.reader(&query)?;
        let (space, spilled_bytes) = (reader.space()?, reader.spilled_bytes()?);
        reader.finish()?;
        rows.push(Row::without_aim(
            name("bytes in the last resort over the pages'"),
            ratio(spilled_bytes as f64, space.stored_bytes as f64),
        ));
    }
    Ok(rows)
}
