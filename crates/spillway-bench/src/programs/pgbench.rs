//! PostgreSQL: pgbench's own transactions, and sorts in work_mem.
//!
//! PostgreSQL keeps lasting tables in shared memory, which Spillway leaves local. So each session has
//! pgbench's tables as temporary ones, which lie in the memory of its process.

use std::cell::Cell;
use std::time::Instant;

use crate::BenchError;
use crate::whole::conditions::Start;
use crate::whole::postgres::Postgres;
use crate::whole::workload::{Latency, Measure, Site, Workload};

const CLIENTS: u32 = 2;
/// A session makes its tables before its first transaction.
const FIRST: &str = "\\set number :number + 1
\\if :number = 1
select load(:accounts);
\\endif
\\set aid random(1, :accounts)
\\set tid random(1, 10 * ((:accounts + 99999) / 100000))
\\set delta random(-5000, 5000)
";
/// It looks at all of them after the last.
const LAST: &str = "\\if :number = :transactions
select close_books(:accounts);
\\endif
";

/// What PostgreSQL's clients do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    /// Transactions that select, as pgbench has them built in.
    SelectOnly,
    /// pgbench's default transactions, in the manner of TPC-B.
    TpcB,
    /// Sorts and groups that fit work_mem.
    Sort,
}

/// PostgreSQL with a load.
pub(super) struct Pgbench {
    load: Load,
    server: Postgres,
    expected: String,
    latency: Cell<Option<Latency>>,
}

impl Pgbench {
    pub(super) fn new(load: Load) -> Self {
        Self { load, server: Postgres::default(), expected: String::new(), latency: Cell::new(None) }
    }

    /// Accounts and transactions of a session; or rows to be sorted.
    fn size(&self, site: &Site<'_>) -> (u32, u32) {
        match self.load {
            Load::SelectOnly => site.pick((200_000, 6_000), (3_000_000, 400_000)),
            Load::TpcB => site.pick((200_000, 3_000), (3_000_000, 200_000)),
            Load::Sort => (site.pick(300_000, 12_000_000), 1),
        }
    }

    fn sorted(&self, site: &Site<'_>, start: Option<&Start<'_>>) -> Result<(f64, String), BenchError> {
        let rows = self.size(site).0;
        let server = match start {
            Some(start) => self.server.start(site, start)?,
            None => self.server.start_alone(site)?,
        };
        let begun = Instant::now();
        let result = server.ask(&format!(
            "select sum(n % 1000 * (r % 997)), max(v) from (select n, v, row_number() over (order by v) r \
             from (select n, md5(n::text) collate \"C\" v from generate_series(1, {rows}) n) a) b"
        ))?;
        let seconds = begun.elapsed().as_secs_f64();
        server.stop()?;
        Ok((seconds, result))
    }

    fn transactions(&self, site: &Site<'_>, start: &Start<'_>) -> Result<f64, BenchError> {
        let (accounts, transactions) = self.size(site);
        let call = match self.load {
            Load::TpcB => "select transfer(:aid, :tid, (:tid + 9) / 10, :delta);",
            _ => "select look(:aid);",
        };
        let server = self.server.start(site, start)?;
        let more = ["-D".to_owned(), format!("accounts={accounts}")];
        let script = format!("{FIRST}{call}\n{LAST}");
        let driven = server.drive((CLIENTS, transactions), &[("transaction", 1, script)], &more)?;
        server.stop()?;
        self.latency.set(Some(driven.latency));
        Ok(driven.per_second)
    }
}

impl Workload for Pgbench {
    fn name(&self) -> &'static str {
        match self.load {
            Load::SelectOnly => "pgbench_select",
            Load::TpcB => "pgbench_tpcb",
            Load::Sort => "postgres_sort",
        }
    }

    fn about(&self, site: &Site<'_>) -> String {
        let (count, transactions) = self.size(site);
        match self.load {
            Load::Sort => format!("PostgreSQL sorts {count} rows by a text in work_mem and numbers them"),
            _ => format!(
                "PostgreSQL, {CLIENTS} sessions, each with {count} of pgbench's accounts in temporary \
                 tables, and {transactions} transactions {}",
                if self.load == Load::TpcB { "like TPC-B's" } else { "that select" }
            ),
        }
    }

    fn measure(&self) -> Measure {
        if self.load == Load::Sort { Measure::Seconds } else { Measure::PerSecond }
    }

    fn prepare(&mut self, site: &Site<'_>) -> Result<(), BenchError> {
        let buffers_mib = site.pick(64, 768);
        let settings = [format!("temp_buffers={buffers_mib}MB"), "work_mem=3GB".to_owned()];
        self.server = Postgres::prepare(site, self.name(), &settings, include_str!("pgbench.sql"))?;
        if self.load == Load::Sort {
            self.expected = self.sorted(site, None)?.1;
        }
        Ok(())
    }

    fn run(&self, site: &Site<'_>, start: &Start<'_>) -> Result<f64, BenchError> {
        if self.load != Load::Sort {
            return self.transactions(site, start);
        }
        let (seconds, result) = self.sorted(site, Some(start))?;
        if result == self.expected {
            return Ok(seconds);
        }
        let reason = format!("it sorted to '{result}', not '{}'", self.expected);
        Err(BenchError::Wrong { command: self.name().to_owned(), reason })
    }

    fn latency(&self) -> Option<Latency> {
        self.latency.get()
    }
}
