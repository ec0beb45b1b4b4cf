//! PostgreSQL under a load like TPC-C: processes made by fork, each of which serves a session.
//!
//! It keeps lasting tables in shared memory, which Spillway leaves local. So each session has a warehouse of
//! its own in temporary tables, which lie in the memory of its process, as the partitions of the paper's
//! VoltDB do.

use crate::BenchError;
use crate::whole::conditions::Start;
use crate::whole::postgres;
use crate::whole::workload::{Measure, Site, Workload};

const CLIENTS: u32 = 4;
/// TPC-C's mix: how many of a hundred transactions are of each kind.
const MIX: [(&str, u32, &str); 5] = [
    ("new_order", 45, "select new_order(:d, :c, :lines, :items)"),
    ("payment", 43, "select payment(:d, :c, 100 + :c)"),
    ("order_status", 4, "select order_status(:d, :c)"),
    ("delivery", 4, "select delivery()"),
    ("stock_level", 4, "select stock_level(:d)"),
];
/// A session makes its warehouse before its first transaction, and checks its books after the last. What a
/// transaction draws is as in TPC-C's clause 2.1.6.
const FIRST: &str = "\\set number :number + 1
\\if :number = 1
select load(:customers, :items);
\\endif
\\set d random(1, 10)
\\set c ((random(0, 1023) | random(1, :customers)) % :customers) + 1
\\set lines random(5, 15)
";
const LAST: &str = "\\if :number = :transactions
select close_books(:customers, :items);
\\endif
";

/// PostgreSQL with its data.
#[derive(Default)]
pub struct Postgres {
    server: postgres::Postgres,
}

struct Scale {
    customers: u32,
    items: u32,
    /// How many each session does.
    transactions: u32,
    temp_buffers_mib: u32,
}

fn scale(site: &Site<'_>) -> Scale {
    site.scaled(
        Scale { customers: 1_000, items: 50_000, transactions: 1_500, temp_buffers_mib: 64 },
        Scale { customers: 3_000, items: 100_000, transactions: 15_000, temp_buffers_mib: 256 },
        Scale { customers: 40_000, items: 1_050_000, transactions: 60_000, temp_buffers_mib: 1024 },
    )
}

impl Workload for Postgres {
    fn name(&self) -> &'static str {
        "postgres"
    }

    fn about(&self, site: &Site<'_>) -> String {
        let scale = scale(site);
        format!(
            "PostgreSQL, {CLIENTS} sessions that each load a warehouse of {} items into temporary tables and \
             do {} transactions like TPC-C's; the memory of its processes is far, its shared memory is not",
            scale.items, scale.transactions
        )
    }

    fn measure(&self) -> Measure {
        Measure::PerSecond
    }

    fn prepare(&mut self, site: &Site<'_>) -> Result<(), BenchError> {
        let settings = [format!("temp_buffers={}MB", scale(site).temp_buffers_mib)];
        self.server = postgres::Postgres::prepare(site, "postgres", &settings, include_str!("tpcc.sql"))?;
        Ok(())
    }

    fn run(&self, site: &Site<'_>, start: &Start<'_>) -> Result<f64, BenchError> {
        let server = self.server.start(site, start)?;
        let Scale { customers, items, transactions, .. } = scale(site);
        let sizes = [("customers", customers), ("items", items)];
        let more: Vec<String> =
            sizes.iter().flat_map(|(name, value)| ["-D".to_owned(), format!("{name}={value}")]).collect();
        let scripts = MIX.map(|(name, weight, sql)| (name, weight, format!("{FIRST}{sql};\n{LAST}")));
        let driven = server.drive((CLIENTS, transactions), &scripts, &more)?;
        server.stop()?;
        Ok(driven.per_second)
    }
}
