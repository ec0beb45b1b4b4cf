//! TPC-C on an in-memory row store (HotBox section 6.2: VoltDB; accesses in records of 8 KB, and many random
//! ones to few pages of run-time data).
//!
//! The five transactions with the benchmark's mix (TPC-C revision 5.11, clause 2): new order 45%, payment
//! 43%, order status, delivery and stock level 4% each; customers and items drawn by its skewed NURand; one
//! order line in a hundred supplied by another warehouse. As in VoltDB each site (task) runs the transactions
//! of its warehouses one after the other. Simplified: an order and its lines are one record, and each
//! district keeps its newest orders only; customers are looked up by number; tables are smaller, in
//! proportion; stock level looks at the two newest orders.

use rand::RngExt;
use serde::Deserialize;

use super::entry::{Registered, WorkloadError, at_least, within};
use super::random::{WorkloadRng, rng};
use super::tpcc_tables::{DISTRICTS, LINES_MOST, Order, OrderLine, Tables};
use crate::access::{Access, Accesses};
use crate::memory::AddressSpace;
use crate::workload::{Region, Workload};

/// What a run may set of [`Tpcc`].
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TpccConfig {
    /// The working set to fill, in bytes.
    pub bytes: u64,
    /// The seed that all lots are drawn from.
    pub seed: u64,
    /// Tasks: VoltDB's sites (HotBox: 4).
    pub tasks: usize,
    /// Transactions of all tasks together; 0: one for each record of 8 KB.
    pub transactions: u64,
    /// Random accesses to run-time data for each record that is touched.
    pub runtime_accesses: usize,
    /// Work for a transaction beside its memory accesses. VoltDB takes some 400 us of a processor for one
    /// (dcm Table 1: 39,749 a second on 16), of which accesses to local memory make up 70.
    pub compute_ns: u64,
}

impl Default for TpccConfig {
    fn default() -> Self {
        Self {
            bytes: 64 << 20,
            seed: 1,
            tasks: 4,
            transactions: 0,
            runtime_accesses: 32,
            compute_ns: 330_000,
        }
    }
}

/// The transactions of TPC-C, over tables in memory.
pub struct Tpcc {
    config: TpccConfig,
    regions: Vec<Region>,
    tables: Tables,
    sites: Vec<Site>,
    totals: Totals,
}

struct Site {
    rng: WorkloadRng,
    left: u64,
}

/// What the transactions did, to verify the tables with.
#[derive(Default, Debug)]
struct Totals {
    paid: i64,
    delivered: i64,
    ordered_quantity: i64,
    new_orders: i64,
}

impl Tpcc {
    /// One of the site's warehouses.
    fn warehouse(&mut self, task: usize) -> usize {
        let (warehouses, sites) = (self.tables.warehouses, self.sites.len());
        let mine = (warehouses.saturating_sub(task)).div_ceil(sites);
        let rng = &mut self.sites[task].rng;
        if mine == 0 { rng.random_range(0..warehouses) } else { task + sites * rng.random_range(0..mine) }
    }

    fn new_order(&mut self, task: usize, accesses: &mut Accesses) {
        let home = self.warehouse(task);
        let Self { tables, sites, totals, .. } = self;
        let rng = &mut sites[task].rng;
        let district = home * DISTRICTS + rng.random_range(0..DISTRICTS);
        if tables.is_full(district) {
            // No room for another order before some are delivered.
            self.delivery(task, home, accesses);
            return;
        }
        let customer = tables.draw_customer(rng);
        tables.customers.read(district * tables.customers_per_district + customer, accesses);
        tables.warehouse.read(home, accesses);
        let mut order = Order { customer, lines: Vec::new() };
        for _ in 0..rng.random_range(5..=LINES_MOST) {
            let item = tables.draw_item(rng);
            let remote = tables.warehouses > 1 && rng.random_ratio(1, 100);
            let shift = if remote { rng.random_range(1..tables.warehouses) } else { 0 };
            let supplier = (home + shift) % tables.warehouses;
            let quantity = rng.random_range(1..=10);
            let price = tables.items.read(item, accesses)[0];
            tables.take_stock(supplier * tables.items.len() + item, quantity, accesses);
            totals.ordered_quantity += quantity;
            order.lines.push(OrderLine { item, quantity, amount: price * quantity });
        }
        totals.new_orders += 1;
        tables.append_order(district, &order, accesses);
    }

    fn payment(&mut self, task: usize, accesses: &mut Accesses) {
        let home = self.warehouse(task);
        let Self { tables, sites, totals, .. } = self;
        let rng = &mut sites[task].rng;
        let district = home * DISTRICTS + rng.random_range(0..DISTRICTS);
        // 15% pay elsewhere than where they belong.
        let elsewhere = tables.warehouses > 1 && rng.random_ratio(15, 100);
        let of = if elsewhere { rng.random_range(0..tables.warehouses) * DISTRICTS } else { district };
        let customer = of * tables.customers_per_district + tables.draw_customer(rng);
        let amount = rng.random_range(100..=500_000);
        totals.paid += amount;
        tables.pay(home, district, customer, amount, accesses);
    }

    fn order_status(&mut self, task: usize, accesses: &mut Accesses) {
        let home = self.warehouse(task);
        let rng = &mut self.sites[task].rng;
        let district = home * DISTRICTS + rng.random_range(0..DISTRICTS);
        let customer = self.tables.draw_customer(rng);
        self.tables.customers.read(district * self.tables.customers_per_district + customer, accesses);
        if let Some(newest) = self.tables.newest_orders(district, 1, accesses).next() {
            self.tables.orders.read(newest, accesses);
        }
    }

    fn delivery(&mut self, _task: usize, warehouse: usize, accesses: &mut Accesses) {
        for district in warehouse * DISTRICTS..(warehouse + 1) * DISTRICTS {
            self.totals.delivered += self.tables.deliver(district, accesses);
        }
    }

    fn stock_level(&mut self, task: usize, accesses: &mut Accesses) {
        let home = self.warehouse(task);
        let district = home * DISTRICTS + self.sites[task].rng.random_range(0..DISTRICTS);
        let newest: Vec<_> = self.tables.newest_orders(district, 2, accesses).collect();
        for order in newest {
            let record = self.tables.orders.read(order, accesses);
            for line in Order::from_record(record).lines {
                self.tables.stock.read(home * self.tables.items.len() + line.item, accesses);
            }
        }
    }
}

impl Registered for Tpcc {
    type Config = TpccConfig;
    const NAME: &'static str = "tpcc";
    const ABOUT: &'static str = "TPC-C on rows of 8 KB in memory, with hot run-time data";

    fn new(config: TpccConfig) -> Result<Self, WorkloadError> {
        let name = Self::NAME;
        within(name, "runtime_accesses", config.runtime_accesses, 0..=1024)?;
        at_least(name, config.bytes, 3 << 19)?;
        let mut space = AddressSpace::default();
        let tables = Tables::fill(&mut space, config.bytes, config.runtime_accesses, config.seed);
        let transactions = if config.transactions == 0 { config.bytes / 8192 } else { config.transactions };
        let site = |task: usize| Site {
            rng: rng(config.seed, 16 + task as u64),
            left: transactions / config.tasks as u64,
        };
        let sites = (0..config.tasks).map(site).collect();
        Ok(Self { config, regions: space.into_regions(), tables, sites, totals: Totals::default() })
    }
}

impl Workload for Tpcc {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn regions(&self) -> &[Region] {
        &self.regions
    }

    fn tasks(&self) -> usize {
        self.sites.len()
    }

    fn work_left(&self) -> Option<u64> {
        Some(self.sites.iter().map(|site| site.left).sum())
    }

    fn step(&mut self, task: usize, accesses: &mut Accesses) -> bool {
        let site = &mut self.sites[task];
        if site.left == 0 {
            return false;
        }
        site.left -= 1;
        let (go_on, draw) = (site.left > 0, site.rng.random_range(0..100));
        accesses.push(Access::compute_ns(self.config.compute_ns));
        match draw {
            0..45 => self.new_order(task, accesses),
            45..88 => self.payment(task, accesses),
            88..92 => self.order_status(task, accesses),
            92..96 => {
                let warehouse = self.warehouse(task);
                self.delivery(task, warehouse, accesses);
            }
            _ => self.stock_level(task, accesses),
        }
        self.tables.touch_runtime(accesses);
        go_on
    }

    /// The consistency conditions of TPC-C's clause 3.3.2, and that nothing was lost on the way.
    fn verify(&self) -> Result<(), String> {
        self.tables.check()?;
        let held = self.tables.totals();
        let wanted =
            (self.totals.paid, self.totals.delivered - self.totals.paid, self.totals.ordered_quantity);
        if (held.paid, held.balance, held.stock_taken) != wanted {
            return Err(format!("the tables say {held:?}, the transactions {:?}", self.totals));
        }
        if held.new_orders != self.totals.new_orders {
            return Err(format!(
                "{} orders were placed, {} are numbered",
                self.totals.new_orders, held.new_orders
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::testing::run;

    #[test]
    fn tables_stay_consistent() {
        for (tasks, bytes) in [(1, 2 << 20), (4, 20 << 20)] {
            let config = TpccConfig { bytes, tasks, transactions: 2000, ..TpccConfig::default() };
            let mut tpcc = Tpcc::new(config).unwrap();
            let ran = run(&mut tpcc);
            assert_eq!(tpcc.verify(), Ok(()));
            assert!(tpcc.totals.new_orders > 500 && tpcc.totals.delivered > 0, "{:?}", tpcc.totals);
            assert!(ran.longest_step < 12_000, "{}", ran.longest_step);
        }
    }

    #[test]
    fn a_lost_payment_is_found_out() {
        let mut tpcc =
            Tpcc::new(TpccConfig { bytes: 2 << 20, transactions: 500, ..TpccConfig::default() }).unwrap();
        run(&mut tpcc);
        tpcc.tables.pay(0, 0, 0, 1, &mut Accesses::new());
        assert!(tpcc.verify().is_err());
    }
}
