//! What INDIGO keeps of each page: when it was marked, how often it is accessed, and how far it has come
//! ("INDIGO: Page Migration for Hardware Memory Disaggregation Across a Network", Algorithm 1, sections 4.3
//! and 5.4).

use crate::machine::PageIndex;

/// What is known of each page, in 8 bytes a page.
pub(crate) struct Telemetry {
    /// When it was last marked, in ticks.
    pub marked_at: Vec<u32>,
    /// Its last rate, packed; 0 for none yet.
    rates: Vec<u16>,
    /// What else its rule wants to know.
    pub progress: Progress,
}

/// How far each page has come towards its promotion, by the rule that decides.
pub(crate) enum Progress {
    /// For thresholds of burst and rate: how long its burst has lasted, in units of [`BURST_TICKS`].
    Bursts(Vec<u16>),
    /// For the network's rule: at how many marks in a row its promotion paid.
    PaidMarks(Vec<u16>),
}

impl Telemetry {
    /// Of pages below `pages`, with the bursts that their rates form.
    pub fn with_bursts(pages: u32) -> Self {
        Self::new(pages, Progress::Bursts)
    }

    /// The same, with the marks at which each page's promotion paid.
    pub fn with_paid_marks(pages: u32) -> Self {
        Self::new(pages, Progress::PaidMarks)
    }

    fn new(pages: u32, progress: fn(Vec<u16>) -> Progress) -> Self {
        let pages = pages as usize;
        Self { marked_at: vec![0; pages], rates: vec![0; pages], progress: progress(vec![0; pages]) }
    }

    /// A page's last rate, in accesses per second.
    pub fn rate_hz(&self, page: PageIndex) -> f64 {
        unpack_rate(self.rates[page as usize])
    }

    /// Forgets a page that is no more.
    pub fn forget(&mut self, page: PageIndex) {
        let (Progress::Bursts(kept) | Progress::PaidMarks(kept)) = &mut self.progress;
        (self.rates[page as usize], kept[page as usize]) = (0, 0);
    }

    /// Notes a page's rate; what is not close to the rate before begins a burst anew (Algorithm 1).
    pub fn note_rate(&mut self, page: PageIndex, rate_hz: f64, closeness: f64) {
        let rate = &mut self.rates[page as usize];
        let before_hz = unpack_rate(*rate);
        let close = rate_hz <= before_hz * closeness && before_hz <= rate_hz * closeness;
        if let Progress::Bursts(bursts) = &mut self.progress
            && (*rate == 0 || !close)
        {
            bursts[page as usize] = 0;
        }
        *rate = pack_rate(rate_hz);
    }

    /// Notes a page's mark; its burst reaches to this mark if the one before is near enough (Algorithm 1).
    pub fn note_mark(&mut self, page: PageIndex, tick: u32, adjacent_ticks: u32) {
        let marked_at = &mut self.marked_at[page as usize];
        if let Progress::Bursts(bursts) = &mut self.progress {
            let gap = tick.wrapping_sub(*marked_at);
            let burst = &mut bursts[page as usize];
            let grown = u32::from(*burst) + gap / BURST_TICKS;
            *burst = if gap <= adjacent_ticks { grown.min(u32::from(u16::MAX)) as u16 } else { 0 };
        }
        *marked_at = tick;
    }
}

/// The nanoseconds that a burst of [`Progress::Bursts`] stands for.
pub(crate) fn burst_ns(burst: u16) -> u64 {
    u64::from(burst) * u64::from(BURST_TICKS) * TICK_NS
}

/// Nanoseconds in a tick. Ticks are counted in 32 bits, which wrap after 73 minutes; what is told apart is
/// much less.
pub(crate) const TICK_NS: u64 = 1 << 10;
/// Ticks in a unit of burst duration.
const BURST_TICKS: u32 = 64;

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
    use super::*;

    #[test]
    fn telemetry_takes_eight_bytes_and_keeps_rates_to_a_hundredth() {
        for telemetry in [Telemetry::with_bursts(1000), Telemetry::with_paid_marks(1000)] {
            let Telemetry { marked_at, rates, progress } = telemetry;
            let (Progress::Bursts(kept) | Progress::PaidMarks(kept)) = progress;
            let bytes = size_of_val(&marked_at[..]) + size_of_val(&rates[..]) + size_of_val(&kept[..]);
            assert_eq!(bytes, 8 * 1000);
        }
        for rate_hz in [0.002, 1.0, 3.7, 123_456.0, 1e9] {
            let kept = unpack_rate(pack_rate(rate_hz));
            assert!((kept - rate_hz).abs() < 0.01 * rate_hz, "{rate_hz}: {kept}");
        }
    }
}
