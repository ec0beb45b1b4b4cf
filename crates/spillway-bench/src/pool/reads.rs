//! The measured process: it fills memory, and reads or writes pages at random for as long as it is told to,
//! again and again. Of each time it says how long its accesses took.

use std::io::{BufRead, Write};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::access::{AccessPlan, Data, Memory, Pattern, mix};

/// An access that takes longer was a fault: a local page is read in less.
const FAULT_NS: u64 = 2_000;

/// What the process is told to do for a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// A word of pages chosen at random is read.
    Read,
    /// A word of pages chosen at random is written.
    Write,
}

impl Order {
    /// The line that says it, without its end.
    pub(super) fn line(self, time: Duration) -> String {
        match self {
            Self::Read => time.as_millis().to_string(),
            Self::Write => format!("write {}", time.as_millis()),
        }
    }

    /// What a line says, and for how long. What is not understood takes no time.
    fn of_line(line: &str) -> (Self, Duration) {
        let (order, ms) = match line.trim().strip_prefix("write ") {
            Some(ms) => (Self::Write, ms),
            None => (Self::Read, line.trim()),
        };
        (order, Duration::from_millis(ms.parse().unwrap_or(0)))
    }
}

/// How long the accesses of one time took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// Accesses that were faults.
    pub faults: u64,
    /// Half of them took at most so long, in microseconds.
    pub median_us: f64,
    /// Of a hundred 99 took at most so long, in microseconds.
    pub p99_us: f64,
    /// The longest took so long, in microseconds.
    pub longest_us: f64,
}

impl Times {
    /// Of all accesses, in nanoseconds.
    fn of(mut all_ns: Vec<u64>) -> Self {
        all_ns.retain(|ns| *ns >= FAULT_NS);
        all_ns.sort_unstable();
        let at = |share: f64| {
            let last = all_ns.len().saturating_sub(1);
            all_ns.get((last as f64 * share) as usize).map_or(0.0, |ns| *ns as f64 / 1e3)
        };
        Self { faults: all_ns.len() as u64, median_us: at(0.5), p99_us: at(0.99), longest_us: at(1.0) }
    }
}

/// Fills so much memory, says `ready`, and then reads it for as many milliseconds as each line of `orders`
/// says, or writes to it where `write` stands before them, with a line of JSON for each.
///
/// # Errors
/// Nobody reads what it says.
pub fn serve(memory_bytes: u64, orders: impl BufRead, mut says: impl Write) -> std::io::Result<()> {
    let plan = AccessPlan {
        pattern: Pattern::RandomRead,
        data: Data::Random,
        memory_bytes,
        threads: 1,
        measured_ms: 0,
        hashes_bytes: false,
    };
    let memory = Memory::new(&plan);
    writeln!(says, "ready")?;
    says.flush()?;
    let mut random = 42;
    for order in orders.lines() {
        let (order, time) = Order::of_line(&order?);
        let times = access_for(&memory, order, time, &mut random);
        writeln!(says, "{}", serde_json::to_string(&times)?)?;
        says.flush()?;
    }
    Ok(())
}

fn access_for(memory: &Memory, order: Order, time: Duration, random: &mut u64) -> Times {
    let mut all_ns = Vec::new();
    let begun = Instant::now();
    while begun.elapsed() < time {
        *random = mix(random.wrapping_add(0x9e37_79b9_7f4a_7c15));
        let page = ((u128::from(*random) * memory.pages as u128) >> 64) as usize;
        let before = Instant::now();
        match order {
            Order::Read => memory.read(page),
            Order::Write => memory.write(page, *random),
        }
        all_ns.push(before.elapsed().as_nanos() as u64);
    }
    Times::of(all_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_alone_count() {
        let times = Times::of((0..100).map(|us| us * 1_000).chain([5_000_000]).collect());
        assert_eq!((times.faults, times.longest_us), (99, 5_000.0));
        assert!((50.0..=51.0).contains(&times.median_us) && times.p99_us == 99.0, "{times:?}");
        assert_eq!(Times::of(vec![]), Times::default());
    }

    #[test]
    fn orders_are_understood_as_they_are_given() {
        let time = Duration::from_millis(300);
        for order in [Order::Read, Order::Write] {
            assert_eq!(Order::of_line(&order.line(time)), (order, time));
        }
        assert_eq!(Order::of_line("sleep"), (Order::Read, Duration::ZERO));
    }

    #[test]
    fn it_reads_or_writes_once_for_each_order() -> std::io::Result<()> {
        let mut said = Vec::new();
        serve(1 << 20, &b"1\nwrite 1\n2\n"[..], &mut said)?;
        let said = String::from_utf8_lossy(&said);
        assert_eq!(said.lines().count(), 4, "{said}");
        assert!(said.starts_with("ready\n") && said.matches("p99_us").count() == 3, "{said}");
        Ok(())
    }
}
