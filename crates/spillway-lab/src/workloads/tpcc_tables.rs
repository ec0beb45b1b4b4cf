//! TPC-C's tables: records of 8 KB, each read and written whole, and the run-time data beside them.

use rand::RngExt;

use super::random::{WorkloadRng, mix, rng};
use crate::access::Accesses;
use crate::memory::{AddressSpace, Array};

/// Districts of a warehouse (TPC-C clause 1.2).
pub const DISTRICTS: usize = 10;
/// Lines of an order at most.
pub const LINES_MOST: usize = 15;
const RECORD_WORDS: usize = 8192 / 8;
/// Records that a warehouse has when there is memory for several.
const WAREHOUSE_BYTES: u64 = 8 << 20;
/// Share of the working set that is run-time data.
const RUNTIME_SHARE: u64 = 50;

/// Records of one kind, numbers in their first words.
pub struct Table {
    words: Array<i64>,
}

impl Table {
    fn fill(
        space: &mut AddressSpace,
        name: &'static str,
        records: usize,
        first_word: impl Fn(usize) -> i64,
    ) -> Self {
        let mut words = vec![0; records * RECORD_WORDS];
        (0..records).for_each(|record| words[record * RECORD_WORDS] = first_word(record));
        Self { words: space.array(name, words) }
    }

    /// How many records it has.
    pub fn len(&self) -> usize {
        self.words.len() / RECORD_WORDS
    }

    /// Reads a whole record, and notes the accesses.
    pub fn read(&self, record: usize, accesses: &mut Accesses) -> &[i64] {
        self.words.read_run(record * RECORD_WORDS..(record + 1) * RECORD_WORDS, accesses)
    }

    /// Writes a whole record, and notes the accesses.
    fn write(&mut self, record: usize, accesses: &mut Accesses) -> &mut [i64] {
        self.words.write_run(record * RECORD_WORDS..(record + 1) * RECORD_WORDS, accesses)
    }

    fn unnoted(&self) -> impl Iterator<Item = &[i64]> {
        self.words.data().chunks(RECORD_WORDS)
    }
}

/// One line of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderLine {
    /// The number of the item.
    pub item: usize,
    /// How many of it are ordered.
    pub quantity: i64,
    /// For how much, in cents.
    pub amount: i64,
}

/// An order, as it lies in a record: customer, number of lines, then the lines.
#[derive(Debug, PartialEq, Eq)]
pub struct Order {
    /// Which customer of the district.
    pub customer: usize,
    /// The items that are ordered.
    pub lines: Vec<OrderLine>,
}

impl Order {
    /// Takes an order out of its record.
    pub fn from_record(record: &[i64]) -> Self {
        let lines = record[2..].chunks(3).take(record[1] as usize);
        let lines =
            lines.map(|line| OrderLine { item: line[0] as usize, quantity: line[1], amount: line[2] });
        Self { customer: record[0] as usize, lines: lines.collect() }
    }

    fn write_to(&self, record: &mut [i64]) {
        record[0] = self.customer as i64;
        record[1] = self.lines.len() as i64;
        for (slot, line) in record[2..].chunks_mut(3).zip(&self.lines) {
            slot.copy_from_slice(&[line.item as i64, line.quantity, line.amount]);
        }
    }

    fn amount(&self) -> i64 {
        self.lines.iter().map(|line| line.amount).sum()
    }
}

/// What the numbers of the tables sum to.
#[derive(Debug)]
pub struct TableTotals {
    /// What the warehouses took.
    pub paid: i64,
    /// What customers were charged less what they paid.
    pub balance: i64,
    /// Items that left the stock.
    pub stock_taken: i64,
    /// Orders that were placed.
    pub new_orders: i64,
}

/// All tables.
///
/// Words: warehouse - paid; district - paid, next order, next to deliver; customer - balance, paid, payments,
/// deliveries; stock - quantity, taken, orders; item - price.
pub struct Tables {
    /// How many warehouses there are.
    pub warehouses: usize,
    /// Customers of a district.
    pub customers_per_district: usize,
    orders_per_district: usize,
    runtime_accesses: usize,
    pub warehouse: Table,
    districts: Table,
    pub customers: Table,
    pub stock: Table,
    pub items: Table,
    pub orders: Table,
    runtime: Array<u64>,
    runtime_rng: WorkloadRng,
    runtime_owed: usize,
    runtime_touched: u64,
    nurand: [u64; 2],
}

impl Tables {
    /// Tables of about `bytes` together.
    pub fn fill(space: &mut AddressSpace, bytes: u64, runtime_accesses: usize, seed: u64) -> Self {
        let runtime_bytes = (bytes / RUNTIME_SHARE).max(64 << 10);
        let warehouses = (bytes / WAREHOUSE_BYTES).max(1) as usize;
        let records = ((bytes - runtime_bytes) / (8 * RECORD_WORDS as u64)) as usize;
        // Items are the same for all warehouses: each has stock of each.
        let each = (records / warehouses).saturating_sub(1 + DISTRICTS);
        let items = (each * 4 / 10 * warehouses / (warehouses + 1)).max(1);
        let customers_per_district = (each * 35 / 100 / DISTRICTS).max(1);
        let orders_per_district = (each * 25 / 100 / DISTRICTS).max(3);
        let districts = warehouses * DISTRICTS;
        let runtime = space.filled("run-time data", 0, runtime_bytes as usize / 8);
        let mut table = |name, records, first: fn(usize) -> i64| Table::fill(space, name, records, first);
        Self {
            warehouses,
            customers_per_district,
            orders_per_district,
            runtime_accesses,
            warehouse: table("warehouses", warehouses, |_| 0),
            districts: table("districts", districts, |_| 0),
            customers: table("customers", districts * customers_per_district, |_| 0),
            stock: table("stock", warehouses * items, |_| 50),
            items: table("items", items, |item| 100 + (mix(item as u64) % 9900) as i64),
            orders: table("orders", districts * orders_per_district, |_| 0),
            runtime,
            runtime_rng: rng(seed, 1),
            runtime_owed: 0,
            runtime_touched: 0,
            nurand: [mix(seed ^ 1), mix(seed ^ 2)],
        }
    }

    /// A customer of a district, some more often than others (clause 2.1.6).
    pub fn draw_customer(&mut self, rng: &mut WorkloadRng) -> usize {
        self.runtime_owed += 1;
        nurand(rng, self.customers_per_district, self.nurand[0])
    }

    /// An item, some more often than others.
    pub fn draw_item(&mut self, rng: &mut WorkloadRng) -> usize {
        self.runtime_owed += 1;
        nurand(rng, self.items.len(), self.nurand[1])
    }

    /// Touches run-time data as often as the records that were used ask for.
    pub fn touch_runtime(&mut self, accesses: &mut Accesses) {
        let owed = (1 + std::mem::take(&mut self.runtime_owed)) * self.runtime_accesses;
        for _ in 0..owed {
            let at = self.runtime_rng.random_range(0..self.runtime.len());
            self.runtime.update(at, accesses, |count| count + 1);
        }
        self.runtime_touched += owed as u64;
    }

    /// Whether a district has no room for another order.
    pub fn is_full(&self, district: usize) -> bool {
        let district = &self.districts.words.data()[district * RECORD_WORDS..];
        district[1] - district[2] >= self.orders_per_district as i64
    }

    fn order_record(&self, district: usize, number: i64) -> usize {
        district * self.orders_per_district + number as usize % self.orders_per_district
    }

    /// Takes items out of the stock, and refills it when it is low (clause 2.4.2.2).
    pub fn take_stock(&mut self, record: usize, quantity: i64, accesses: &mut Accesses) {
        self.stock.read(record, accesses);
        let stock = self.stock.write(record, accesses);
        stock[0] = if stock[0] >= quantity + 10 { stock[0] - quantity } else { stock[0] - quantity + 91 };
        stock[1] += quantity;
        stock[2] += 1;
    }

    /// Places an order in its district, under the district's next number.
    pub fn append_order(&mut self, district: usize, order: &Order, accesses: &mut Accesses) {
        self.districts.read(district, accesses);
        let row = self.districts.write(district, accesses);
        let number = row[1];
        row[1] += 1;
        let record = self.order_record(district, number);
        order.write_to(self.orders.write(record, accesses));
    }

    /// Books a payment at warehouse, district and customer.
    pub fn pay(
        &mut self,
        warehouse: usize,
        district: usize,
        customer: usize,
        amount: i64,
        accesses: &mut Accesses,
    ) {
        self.warehouse.write(warehouse, accesses)[0] += amount;
        self.districts.write(district, accesses)[0] += amount;
        self.customers.read(customer, accesses);
        let customer = self.customers.write(customer, accesses);
        customer[0] -= amount;
        customer[1] += amount;
        customer[2] += 1;
    }

    /// Delivers a district's oldest order, if there is one; answers what it costs.
    pub fn deliver(&mut self, district: usize, accesses: &mut Accesses) -> i64 {
        let row = self.districts.read(district, accesses);
        let (next_order, oldest) = (row[1], row[2]);
        if oldest == next_order {
            return 0;
        }
        self.districts.write(district, accesses)[2] += 1;
        let order = Order::from_record(self.orders.read(self.order_record(district, oldest), accesses));
        let customer =
            self.customers.write(district * self.customers_per_district + order.customer, accesses);
        customer[0] += order.amount();
        customer[3] += 1;
        order.amount()
    }

    /// The records of a district's newest orders, at most `count`.
    pub fn newest_orders(
        &self,
        district: usize,
        count: i64,
        accesses: &mut Accesses,
    ) -> impl Iterator<Item = usize> + use<'_> {
        let next = self.districts.read(district, accesses)[1];
        ((next - count).max(0)..next).rev().map(move |number| self.order_record(district, number))
    }

    /// What the numbers sum to.
    pub fn totals(&self) -> TableTotals {
        let sum = |table: &Table, word: usize| table.unnoted().map(|record| record[word]).sum();
        TableTotals {
            paid: sum(&self.warehouse, 0),
            balance: sum(&self.customers, 0),
            stock_taken: sum(&self.stock, 1),
            new_orders: sum(&self.districts, 1),
        }
    }

    /// Conditions 1 to 4 of clause 3.3.2 as far as these tables have them, and the run-time counters.
    pub fn check(&self) -> Result<(), String> {
        for (warehouse, record) in self.warehouse.unnoted().enumerate() {
            let districts = self.districts.unnoted().skip(warehouse * DISTRICTS).take(DISTRICTS);
            let paid: i64 = districts.map(|district| district[0]).sum();
            if record[0] != paid {
                return Err(format!("warehouse {warehouse} took {}, its districts {paid}", record[0]));
            }
        }
        for (number, district) in self.districts.unnoted().enumerate() {
            let waiting = district[1] - district[2];
            if !(0..=self.orders_per_district as i64).contains(&waiting) {
                return Err(format!("district {number} has {waiting} orders to deliver"));
            }
            for order in district[2]..district[1] {
                let start = self.order_record(number, order) * RECORD_WORDS;
                let order = Order::from_record(&self.orders.words.data()[start..start + RECORD_WORDS]);
                if !(5..=LINES_MOST).contains(&order.lines.len()) {
                    return Err(format!("an order of district {number} has {} lines", order.lines.len()));
                }
            }
        }
        let touched: u64 = self.runtime.data().iter().sum();
        if touched != self.runtime_touched {
            return Err(format!(
                "run-time data was touched {} times and counts {touched}",
                self.runtime_touched
            ));
        }
        Ok(())
    }
}

/// A number from 0 to n - 1 of which those with many bits in common with the constant are likelier (clause
/// 2.1.6).
fn nurand(rng: &mut WorkloadRng, n: usize, constant: u64) -> usize {
    let mask = (n as u64 / 3).next_power_of_two() - 1;
    let skewed = rng.random_range(0..=mask) | rng.random_range(0..n as u64);
    ((skewed + constant % (mask + 1)) % n as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_come_out_of_their_records() {
        let lines = (0..7).map(|item| OrderLine { item, quantity: 3, amount: 100 * item as i64 }).collect();
        let order = Order { customer: 4, lines };
        let mut record = vec![0; RECORD_WORDS];
        order.write_to(&mut record);
        assert_eq!(Order::from_record(&record), order);
        assert_eq!(order.amount(), 2100);
    }

    #[test]
    fn some_are_drawn_more_often() {
        let mut rng = rng(1, 0);
        let mut counts = vec![0u32; 3000];
        (0..300_000).for_each(|_| counts[nurand(&mut rng, 3000, 77)] += 1);
        counts.sort_unstable();
        assert!(counts[0] < 50 && counts[2999] > 300, "{} {}", counts[0], counts[2999]);
    }
}
