//! What is measured of every kind of pool in the same way: beside one plain donor, when donors die, and while
//! what they had is made anew.

use std::time::Duration;

use super::bench::{Bench, LEAD, UNDER_REPAIR};
use super::row::{Row, ratio};
use crate::BenchError;
use crate::access::Pattern;

/// A kind of pool.
pub(super) struct Kind {
    /// What the names of its rows begin with.
    pub prefix: &'static str,
    /// What its name says after the donors.
    pub query: &'static str,
    pub donors: usize,
    /// Of these donors so many die at once; in words, with the verb for them.
    pub dying: usize,
    pub in_words: (&'static str, &'static str),
    /// What the run says once it has done what it can after that.
    pub after: &'static str,
    /// So many donors that what those had that die can be made anew.
    pub donors_with_spare: usize,
    /// What the run says once it is.
    pub well: &'static str,
    /// How many times one plain donor's time a random read of sealed pages may take.
    pub sealed_aim: f64,
}

impl Kind {
    /// Kills the donors of the bench that are to die.
    pub(super) fn kill(&self, bench: &mut Bench<'_>) {
        let left = bench.donors.len().saturating_sub(self.dying);
        bench.donors.truncate(left);
    }

    fn at_most(&self, name: &str, value: f64, aim: f64) -> Row {
        Row::at_most(format!("{}{name}", self.prefix), value, aim)
    }

    fn at_least(&self, name: &str, value: f64, aim: f64) -> Row {
        Row::at_least(format!("{}{name}", self.prefix), value, aim)
    }

    /// Random reads of the pool that the bench's donors are, beside one plain donor's: pages as they are, and
    /// sealed; and of those of a further pool, if there is one, which are sealed: named so, with its aim.
    pub(super) fn random_reads(
        &self,
        bench: &Bench<'_>,
        nbd: &str,
        further: Option<(&str, &str, f64)>,
    ) -> Result<Vec<Row>, BenchError> {
        let pool = bench.pool(self.query);
        let (how, other, aim) = further.unwrap_or(("", &pool, 0.0));
        let stores = [(nbd, "none"), (&pool, "none"), (&pool, "remote"), (other, "remote")];
        let measured = if further.is_some() { stores.len() } else { stores.len() - 1 };
        let ns = bench.ns(Pattern::RandomRead, &stores[..measured])?;
        let over = |number: usize| ratio(ns[number], ns[0]);
        let name = |how: &str| format!("random read, {how}, over one plain donor's time");
        let mut rows = vec![
            self.at_most(&name("not sealed"), over(1), 1.1),
            self.at_most(&name("sealed"), over(2), self.sealed_aim),
        ];
        if further.is_some() {
            rows.push(self.at_most(&name(how), over(3), aim));
        }
        Ok(rows)
    }

    /// Sequential reads, and reads and writes, beside one plain donor's.
    pub(super) fn sequences(&self, bench: &Bench<'_>, nbd: &str) -> Result<Vec<Row>, BenchError> {
        let pool = bench.pool(self.query);
        let mut rows = Vec::new();
        for (pattern, what, aim) in
            [(Pattern::SequentialRead, "read", 1.0), (Pattern::SequentialRw, "read and write", 0.8)]
        {
            let ns = bench.ns(pattern, &[(nbd, "none"), (&pool, "remote")])?;
            let name = format!("sequential {what}, sealed, of one plain donor's rate");
            rows.push(self.at_least(&name, ratio(ns[0], ns[1]), aim));
        }
        Ok(rows)
    }

    /// Donors die while the program reads. `None` where that ended the program.
    pub(super) fn some_die(&self, bench: &mut Bench<'_>) -> Result<Option<Vec<Row>>, BenchError> {
        bench.begin(self.donors)?;
        let mut reader = bench.reader(self.query)?;
        let healthy = reader.read(bench.measured())?;
        reader.begin(LEAD + Duration::from_secs(1))?;
        std::thread::sleep(LEAD);
        self.kill(bench);
        let dying = match reader.end() {
            Err(_) if reader.has_said("SIGBUS") => return Ok(None),
            dying => dying?,
        };
        reader.await_line(self.after)?;
        let after = reader.read(bench.measured())?;
        reader.finish()?;
        let (who, die) = self.in_words;
        let stall = format!("longest stall when {who} {die} under load, ms");
        let p99 = format!("p99 of faults in the second in which {who} {die}, ms");
        let median = format!("median fault with {who} dead, over a healthy pool's");
        Ok(Some(vec![
            self.at_most(&stall, dying.longest_us / 1e3, 50.0),
            self.at_most(&p99, dying.p99_us / 1e3, 5.0),
            self.at_most(&median, ratio(after.median_us, healthy.median_us), 2.0),
        ]))
    }

    /// What a run's name says for repairs that nothing holds back.
    pub(super) fn unbounded(&self) -> String {
        format!("{}&rebuild=64G", self.query)
    }

    /// Donors die, and the program reads while what they had is made anew.
    pub(super) fn repair_under_load(&self, bench: &mut Bench<'_>) -> Result<Vec<Row>, BenchError> {
        bench.begin(self.donors_with_spare)?;
        let mut reader = bench.reader(&self.unbounded())?;
        let healthy = reader.read(bench.measured())?;
        self.kill(bench);
        bench.await_repair()?;
        let meanwhile = reader.read(UNDER_REPAIR)?;
        reader.await_line(self.well)?;
        reader.finish()?;
        let over = ratio(meanwhile.p99_us, healthy.p99_us);
        Ok(vec![self.at_most("p99 of faults during repair, over a healthy pool's", over, 2.0)])
    }
}
