//! What INDIGO keeps of each page: when it was marked, how often it is accessed, and how long its burst has
//! lasted ("INDIGO: Page Migration for Hardware Memory Disaggregation Across a Network", Algorithm 1,
//! sections 4.3 and 5.4).

use crate::machine::PageIndex;

/// What is known of each page, in 8 bytes a page; 9 where promotions must pay at several marks in a row.
pub(crate) struct Telemetry {
    /// When it was last marked, in ticks.
    pub marked_at: Vec<u32>,
    /// Its last rate, packed; 0 for none yet.
    rates: Vec<u16>,
    /// How long its burst has lasted, in units of `unit_ticks`.
    bursts: Vec<u16>,
    /// A part of the marking interval, so that 16 bits hold a thousand of these.
    unit_ticks: u32,
    /// At how many marks in a row its promotion paid; empty where once is enough.
    paid_marks: Vec<u8>,
}

/// Which measurements belong to one burst (Algorithm 1).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Closeness {
    /// Delta1: less than this lies between the rates of two measurements, in accesses per second.
    pub rate_hz: f64,
    /// Delta2: no more than this lies between their marks, in ticks.
    pub ticks: u32,
}

impl Telemetry {
    /// Of pages below `pages` that are marked every `interval_ns`; with the marks at which promotions paid,
    /// where asked for.
    pub fn new(pages: u32, interval_ns: u64, with_paid_marks: bool) -> Self {
        let pages = pages as usize;
        let unit_ticks = (interval_ns / TICK_NS).div_ceil(UNITS_PER_INTERVAL);
        Self {
            unit_ticks: u32::try_from(unit_ticks).unwrap_or(u32::MAX).max(1),
            marked_at: vec![0; pages],
            rates: vec![0; pages],
            bursts: vec![0; pages],
            paid_marks: if with_paid_marks { vec![0; pages] } else { Vec::new() },
        }
    }

    /// A page's last rate, in accesses per second.
    pub fn rate_hz(&self, page: PageIndex) -> f64 {
        unpack_rate(self.rates[page as usize])
    }

    /// How long a page's burst has lasted, in nanoseconds.
    pub fn burst_ns(&self, page: PageIndex) -> u64 {
        u64::from(self.bursts[page as usize]) * u64::from(self.unit_ticks) * TICK_NS
    }

    /// Notes whether a page's promotion pays at this mark. Returns at how many in a row it has.
    pub fn note_paid(&mut self, page: PageIndex, pays: bool) -> u8 {
        match self.paid_marks.get_mut(page as usize) {
            Some(marks) => {
                *marks = if pays { marks.saturating_add(1) } else { 0 };
                *marks
            }
            None => u8::from(pays),
        }
    }

    /// Forgets a page that is no more.
    pub fn forget(&mut self, page: PageIndex) {
        let page = page as usize;
        (self.rates[page], self.bursts[page]) = (0, 0);
        if let Some(marks) = self.paid_marks.get_mut(page) {
            *marks = 0;
        }
    }

    /// Notes a page's rate; what is not close to the rate before begins a burst anew (Algorithm 1, line 7).
    pub fn note_rate(&mut self, page: PageIndex, rate_hz: f64, closeness: Closeness) {
        let rate = &mut self.rates[page as usize];
        let close = *rate != 0 && (rate_hz - unpack_rate(*rate)).abs() < closeness.rate_hz;
        if !close {
            self.bursts[page as usize] = 0;
        }
        *rate = pack_rate(rate_hz);
    }

    /// Notes a page's mark; its burst reaches to this mark if the one before is near enough (the same line).
    pub fn note_mark(&mut self, page: PageIndex, tick: u32, closeness: Closeness) {
        let marked_at = &mut self.marked_at[page as usize];
        let gap = tick.wrapping_sub(*marked_at);
        let burst = &mut self.bursts[page as usize];
        let grown = u32::from(*burst) + gap / self.unit_ticks;
        *burst = if gap <= closeness.ticks { grown.min(u32::from(u16::MAX)) as u16 } else { 0 };
        *marked_at = tick;
    }
}

/// Nanoseconds in a tick. Ticks are counted in 32 bits, which wrap after 73 minutes; what is told apart is
/// much less.
pub(crate) const TICK_NS: u64 = 1 << 10;
/// Most units of burst duration in a marking interval.
const UNITS_PER_INTERVAL: u64 = 64;

/// A rate in 16 bits, to a hundredth: its binary logarithm, 8 bits before the point.
fn pack_rate(rate_hz: f64) -> u16 {
    let bits = rate_hz.max(1e-3).to_bits();
    // The exponent and the first mantissa bits of a float are its logarithm, nearly.
    ((bits >> 44) - (1013 << 8)).min(u64::from(u16::MAX)) as u16
}

/// The tick in which a time lies.
pub(crate) fn tick(now_ns: u64) -> u32 {
    (now_ns / TICK_NS) as u32
}

/// The rate that so much time from a mark to an access stands for (Equation 2).
pub(crate) fn rate_of(waited_ns: u64) -> f64 {
    1e9 / waited_ns.max(TICK_NS) as f64
}

fn unpack_rate(rate: u16) -> f64 {
    f64::from_bits((u64::from(rate) + (1013 << 8)) << 44)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn telemetry_takes_eight_bytes_and_keeps_rates_to_a_hundredth() {
        for (with_paid_marks, expected) in [(false, 8), (true, 9)] {
            let telemetry = Telemetry::new(1000, 1_000_000_000, with_paid_marks);
            let Telemetry { marked_at, rates, bursts, paid_marks, unit_ticks: _ } = telemetry;
            let bytes = size_of_val(&marked_at[..]) + size_of_val(&rates[..]) + size_of_val(&bursts[..]);
            assert_eq!(bytes + size_of_val(&paid_marks[..]), expected * 1000);
        }
        for rate_hz in [0.002, 1.0, 3.7, 123_456.0, 1e9] {
            let kept = unpack_rate(pack_rate(rate_hz));
            assert!((kept - rate_hz).abs() < 0.01 * rate_hz, "{rate_hz}: {kept}");
        }
    }

    #[test]
    fn bursts_of_many_intervals_are_told_apart_whatever_the_interval() {
        for interval_ns in [1_000, 300_000, 1_000_000_000, 60_000_000_000] {
            let ticks = tick(interval_ns).max(1);
            let closeness = Closeness { rate_hz: 1.0, ticks: 2 * ticks };
            let mut telemetry = Telemetry::new(1, interval_ns, false);
            for round in 0..1000 {
                telemetry.note_mark(0, (round + 5_u32).wrapping_mul(ticks), closeness);
                telemetry.note_rate(0, 5.0, closeness);
            }
            let lasted_ns = telemetry.burst_ns(0) as f64 / (999.0 * f64::from(ticks) * TICK_NS as f64);
            assert!((0.95..=1.0).contains(&lasted_ns), "{interval_ns}: {lasted_ns}");
        }
    }

    /// Algorithm 1 as it is printed: clusters of measurements, each a mark and an access after it.
    fn clusters(measurements: &[(u64, u64)], delta1_hz: f64, delta2_ticks: u64) -> Vec<Vec<usize>> {
        let rate = |at: usize| {
            // The estimate that is kept of a rate is one of 16 bits.
            let (marked, accessed) = measurements[at];
            rate_of((accessed - marked) * TICK_NS)
        };
        let mut clusters: Vec<Vec<usize>> = Vec::new();
        for at in 0..measurements.len() {
            let adds = at > 0
                && (rate(at) - unpack_rate(pack_rate(rate(at - 1)))).abs() < delta1_hz
                && measurements[at].0 - measurements[at - 1].0 <= delta2_ticks;
            match clusters.last_mut().filter(|_| adds) {
                Some(last) => last.push(at),
                None => clusters.push(vec![at]),
            }
        }
        clusters
    }

    proptest! {
        /// What is kept of a page in 8 bytes is the duration of Algorithm 1's last cluster, from the mark of
        /// its first measurement to that of its last.
        #[test]
        fn a_burst_lasts_as_long_as_the_last_cluster_of_algorithm_1(
            steps in vec((0_u64..4, 1_u64..1000), 1..40),
            delta1_hz in prop::sample::select(vec![0.0, 10.0, 1e3, 1e4, 1e6]),
            intervals in 1_u64..4,
        ) {
            const INTERVAL: u64 = 16 * UNITS_PER_INTERVAL;
            let closeness = Closeness { rate_hz: delta1_hz, ticks: (intervals * INTERVAL) as u32 };
            let mut telemetry = Telemetry::new(1, INTERVAL * TICK_NS, false);
            let mut measurements = Vec::new();
            let mut mark = 100 * INTERVAL;
            for (more, waited) in steps {
                // Marks are an interval apart or more: one that waits for an access is not given anew.
                mark += (1 + more) * INTERVAL;
                telemetry.note_mark(0, mark as u32, closeness);
                telemetry.note_rate(0, rate_of(waited * TICK_NS), closeness);
                measurements.push((mark, mark + waited));
                let found = clusters(&measurements, delta1_hz, intervals * INTERVAL);
                let last = found.last().unwrap();
                let ticks = measurements[last[last.len() - 1]].0 - measurements[last[0]].0;
                prop_assert_eq!(telemetry.burst_ns(0), ticks * TICK_NS);
            }
        }
    }
}
