//! How busy the way to far memory is at present, out of what was measured of it: no clock, no I/O.
//!
//! Two kinds of measurement lead to the same numbers:
//! - *probes*: how long reads of far memory take. Of the last second the median counts, as an interrupt makes
//!   single probes long; the least median so far is what the idle link takes. By how much reads take longer
//!   now tells how much of the link is in use, whoever uses it;
//! - *counts*: what the link carried since the last count, or what of it was ours, where that is counted.
//!
//! How the latency of a shared link rises with what it carries is taken to be that of a queue,
//! 1 + a u / (1 - u) times the idle latency at a share u in use. [`DOUBLED_AT`] fixes a. Every memory, switch
//! and processor has a curve of its own, so shares that come from probes are estimates; that the latency
//! has risen is measured.

use std::collections::VecDeque;

use spillway_policy::machine::{LinkTelemetry, Tier};

/// At this share of the link in use a read takes twice as long as on an idle one (chosen).
const DOUBLED_AT: f64 = 0.8;
/// A latency that is above the idle one by no more than this share is noise.
const NOISE: f64 = 0.05;
/// Never less than this share of the bandwidth is said to be left: nobody is kept off a link altogether.
const LEAST_LEFT: f64 = 0.01;
/// Probes count for so long.
const WINDOW_NS: u64 = 1_000_000_000;
/// A median of so many probes says something of the idle link; fewer may all have been lucky.
const TRUSTED_PROBES: usize = 16;
/// Counts are taken so far apart at least: over less, single bursts are seen.
const LEAST_COUNTED_NS: u64 = 50_000_000;

/// The share of a link in use at which a read takes `latency_ns`, by the idle link's latency.
fn share_in_use(latency_ns: f64, idle_ns: f64) -> f64 {
    let rise = latency_ns / idle_ns - 1.0;
    if !rise.is_finite() || rise <= NOISE {
        return 0.0;
    }
    // 1 + a u / (1 - u) is 2 at DOUBLED_AT.
    let a = (1.0 - DOUBLED_AT) / DOUBLED_AT;
    rise / (rise + a)
}

/// Which share of a link's bandwidth so many bytes are in that time.
fn share_of(bytes: f64, bytes_per_s: f64, passed_ns: u64) -> f64 {
    let share = bytes / (bytes_per_s * passed_ns as f64 / 1e9);
    if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 }
}

/// Latency of one tier by probes.
#[derive(Clone, Debug, Default)]
struct Latency {
    /// Probes of the last second: when, and how long a read took.
    probes: VecDeque<(u64, f64)>,
    present_ns: Option<f64>,
    idle_ns: Option<f64>,
}

impl Latency {
    fn note(&mut self, now_ns: u64, latencies_ns: &[f64]) {
        let taken = latencies_ns.iter().filter(|latency_ns| latency_ns.is_finite() && **latency_ns > 0.0);
        self.probes.extend(taken.map(|&latency_ns| (now_ns, latency_ns)));
        while self.probes.front().is_some_and(|(at_ns, _)| at_ns + WINDOW_NS < now_ns) {
            self.probes.pop_front();
        }
        let mut sorted: Vec<f64> = self.probes.iter().map(|&(_, latency_ns)| latency_ns).collect();
        sorted.sort_by(f64::total_cmp);
        let Some(&median_ns) = sorted.get(sorted.len() / 2) else { return };
        self.present_ns = Some(median_ns);
        if sorted.len() >= TRUSTED_PROBES {
            self.idle_ns = Some(self.idle_ns.map_or(median_ns, |idle_ns| idle_ns.min(median_ns)));
        }
    }
}

/// What is known of the link before anything of its load is: by firmware, or measured once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Known {
    /// A read of local memory.
    pub local_ns: f64,
    /// A read of far memory.
    pub far_ns: f64,
    /// All that the link carries.
    pub bytes_per_s: f64,
}

/// What counters of the link say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkCount {
    /// All that the link can carry.
    pub bytes_per_s: f64,
    /// A read of far memory over the idle link.
    pub idle_ns: f64,
    /// A read of far memory at present.
    pub latency_ns: f64,
    /// What the link has carried so far, whosever it was.
    pub carried_bytes: u64,
    /// What of this was this machine's.
    pub own_bytes: u64,
}

/// The link, with what was measured of it.
#[derive(Clone, Debug)]
pub struct LinkLoad {
    known: Known,
    local: Latency,
    far: Latency,
    /// What of the link is in use, by probes or counts; and what of it this machine uses, where it is known.
    share_in_use: f64,
    own_share: f64,
    own: Option<(u64, u64)>,
    traffic_bytes: f64,
    moved_bytes: u64,
    at_ns: u64,
    counted: Option<(u64, LinkCount)>,
}

impl LinkLoad {
    /// A link that is taken to be idle until something is measured.
    #[must_use]
    pub fn new(known: Known) -> Self {
        Self {
            known,
            local: Latency::default(),
            far: Latency::default(),
            share_in_use: 0.0,
            own_share: 0.0,
            own: None,
            traffic_bytes: 0.0,
            moved_bytes: 0,
            at_ns: 0,
            counted: None,
        }
    }

    /// Reads of a tier took so long each, at `now_ns`.
    pub fn note_probes(&mut self, now_ns: u64, tier: Tier, latencies_ns: &[f64]) {
        match tier {
            Tier::Local => self.local.note(now_ns, latencies_ns),
            Tier::Far => self.far.note(now_ns, latencies_ns),
        }
        if let (Some(latency_ns), Some(idle_ns)) = (self.far.present_ns, self.far.idle_ns) {
            self.share_in_use = share_in_use(latency_ns, idle_ns);
        }
    }

    /// This machine sent and received so many bytes so far. What is too near to the last count is passed
    /// over.
    pub fn note_own(&mut self, now_ns: u64, own_bytes: u64) {
        let (before_ns, before) = *self.own.get_or_insert((now_ns, own_bytes));
        let passed_ns = now_ns.saturating_sub(before_ns);
        if passed_ns < LEAST_COUNTED_NS {
            return;
        }
        // Less than before: some of those that were counted are gone.
        let bytes = own_bytes.saturating_sub(before) as f64;
        self.own_share = share_of(bytes, self.known.bytes_per_s, passed_ns);
        self.traffic_bytes += bytes;
        self.own = Some((now_ns, own_bytes));
    }

    /// `moved_bytes` of pages were moved so far. Without counts the traffic is what probes say that the link
    /// carried, and never less than the pages: whose it was probes cannot tell.
    pub fn note_moved(&mut self, now_ns: u64, moved_bytes: u64) {
        let passed_s = now_ns.saturating_sub(self.at_ns) as f64 / 1e9;
        let moved = moved_bytes.saturating_sub(self.moved_bytes) as f64;
        (self.at_ns, self.moved_bytes) = (self.at_ns.max(now_ns), self.moved_bytes.max(moved_bytes));
        if self.counted.is_none() && self.own.is_none() {
            self.traffic_bytes += moved.max(self.share_in_use * self.known.bytes_per_s * passed_s);
        }
    }

    /// Counters say this at `now_ns`. What is too near to the last count is passed over.
    pub fn note_count(&mut self, now_ns: u64, count: LinkCount) {
        let Some((before_ns, before)) = self.counted else {
            self.counted = Some((now_ns, count));
            return;
        };
        let passed_ns = now_ns.saturating_sub(before_ns);
        if passed_ns < LEAST_COUNTED_NS {
            return;
        }
        // Who counts may begin anew.
        let since = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now) as f64;
        let carried = since(count.carried_bytes, before.carried_bytes);
        self.share_in_use = share_of(carried, count.bytes_per_s, passed_ns);
        self.traffic_bytes += since(count.own_bytes, before.own_bytes);
        self.counted = Some((now_ns, count));
    }

    /// How long a read of far memory takes at present, in nanoseconds.
    #[must_use]
    pub fn latency_ns(&self) -> f64 {
        let counted = self.counted.map(|(_, count)| count.latency_ns);
        counted.or(self.far.present_ns).unwrap_or(self.known.far_ns)
    }

    /// How long it takes over the idle link, as far as one was seen, in nanoseconds.
    #[must_use]
    pub fn idle_latency_ns(&self) -> f64 {
        let counted = self.counted.map(|(_, count)| count.idle_ns);
        counted.or(self.far.idle_ns).unwrap_or(self.known.far_ns)
    }

    /// How long a read of local memory takes at present, in nanoseconds.
    #[must_use]
    pub fn local_latency_ns(&self) -> f64 {
        self.local.present_ns.unwrap_or(self.known.local_ns)
    }

    /// All that the link carries, in bytes per second.
    #[must_use]
    pub fn bytes_per_s(&self) -> f64 {
        self.counted.map_or(self.known.bytes_per_s, |(_, count)| count.bytes_per_s)
    }

    /// Which share of this nobody uses at present.
    #[must_use]
    pub fn share_left(&self) -> f64 {
        (1.0 - self.share_in_use.max(self.own_share)).max(LEAST_LEFT)
    }

    /// What policies are told.
    #[must_use]
    pub fn telemetry(&self) -> LinkTelemetry {
        LinkTelemetry {
            available_bytes_per_s: self.bytes_per_s() * self.share_left(),
            delta_latency_ns: (self.latency_ns() - self.local_latency_ns()).max(0.0),
            traffic_bytes: self.traffic_bytes as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const KNOWN: Known = Known { local_ns: 100.0, far_ns: 300.0, bytes_per_s: 1e9 };

    /// Four probes each 100 ms, from `from_ms` on.
    fn probe(link: &mut LinkLoad, from_ms: u64, rounds: u64, latency_ns: f64) {
        for round in 0..rounds {
            let near = [latency_ns, latency_ns * 1.01, latency_ns * 0.99, latency_ns];
            link.note_probes((from_ms + 100 * round) * MS, Tier::Far, &near);
        }
    }

    #[test]
    fn a_latency_that_doubles_at_four_fifths_tells_how_much_is_in_use() {
        let loaded_ns = |share: f64| 300.0 * (1.0 + 0.25 * share / (1.0 - share));
        for share in [0.3, 0.5, 0.8, 0.95] {
            assert!((share_in_use(loaded_ns(share), 300.0) - share).abs() < 1e-9, "{share}");
        }
        assert_eq!(share_in_use(600.0, 300.0), 0.8);
        assert_eq!(share_in_use(314.0, 300.0), 0.0, "noise");
        assert_eq!(share_in_use(200.0, 300.0), 0.0);
        for (latency_ns, idle_ns) in [(f64::NAN, 300.0), (1.0, 0.0), (0.0, 0.0), (f64::INFINITY, 1.0)] {
            assert_eq!(share_in_use(latency_ns, idle_ns), 0.0, "{latency_ns} {idle_ns}");
        }
    }

    #[test]
    fn before_anything_is_measured_the_link_is_idle_as_firmware_says() {
        let link = LinkLoad::new(KNOWN);
        let telemetry =
            LinkTelemetry { available_bytes_per_s: 1e9, delta_latency_ns: 200.0, traffic_bytes: 0 };
        assert_eq!((link.telemetry(), link.share_left()), (telemetry, 1.0));
    }

    #[test]
    fn probes_show_a_neighbour_come_and_go() {
        let mut link = LinkLoad::new(KNOWN);
        probe(&mut link, 0, 20, 400.0);
        assert_eq!((link.latency_ns(), link.idle_latency_ns(), link.share_left()), (400.0, 400.0, 1.0));
        probe(&mut link, 2000, 20, 800.0);
        assert_eq!((link.latency_ns(), link.idle_latency_ns()), (800.0, 400.0));
        let telemetry = link.telemetry();
        assert!((telemetry.available_bytes_per_s - 2e8).abs() < 1.0, "four fifths are gone: {telemetry:?}");
        assert_eq!(telemetry.delta_latency_ns, 700.0);
        probe(&mut link, 4000, 20, 400.0);
        assert_eq!((link.latency_ns(), link.share_left()), (400.0, 1.0));
    }

    #[test]
    fn a_link_that_was_busy_at_the_start_is_known_once_it_has_been_idle() {
        let mut link = LinkLoad::new(KNOWN);
        probe(&mut link, 0, 20, 800.0);
        assert_eq!(link.share_left(), 1.0, "nothing better was seen yet");
        probe(&mut link, 2000, 20, 400.0);
        probe(&mut link, 4000, 20, 800.0);
        assert!((link.share_left() - 0.2).abs() < 1e-9, "{}", link.share_left());
    }

    #[test]
    fn interrupts_and_lucky_probes_change_nothing() {
        let mut link = LinkLoad::new(KNOWN);
        link.note_probes(0, Tier::Far, &[10.0, f64::NAN, 0.0, -1.0]);
        assert_eq!(link.idle_latency_ns(), 300.0, "one probe is no median");
        probe(&mut link, 2000, 20, 400.0);
        for at_ms in [4000, 4100, 4200] {
            link.note_probes(at_ms * MS, Tier::Far, &[50_000.0, 400.0, 401.0, 10.0]);
        }
        assert_eq!((link.idle_latency_ns(), link.share_left()), (400.0, 1.0));
    }

    #[test]
    fn local_memory_is_as_slow_as_it_is_at_present() {
        let mut link = LinkLoad::new(KNOWN);
        probe(&mut link, 0, 20, 400.0);
        link.note_probes(2000 * MS, Tier::Local, &[150.0]);
        assert_eq!((link.local_latency_ns(), link.telemetry().delta_latency_ns), (150.0, 250.0));
        link.note_probes(4000 * MS, Tier::Local, &[900.0]);
        assert_eq!(link.telemetry().delta_latency_ns, 0.0, "never less than nothing");
    }

    #[test]
    fn traffic_is_what_probes_show_and_at_least_the_pages_that_moved() {
        let mut link = LinkLoad::new(KNOWN);
        link.note_moved(1000 * MS, 5_000_000);
        assert_eq!(link.telemetry().traffic_bytes, 5_000_000);
        probe(&mut link, 1000, 20, 400.0);
        probe(&mut link, 3000, 20, 800.0);
        link.note_moved(5000 * MS, 5_000_000);
        link.note_moved(6000 * MS, 6_000_000);
        let traffic = link.telemetry().traffic_bytes;
        assert!(traffic.abs_diff(5_000_000 + 5 * 800_000_000) < 1000, "{traffic}");
        link.note_moved(5500 * MS, 0);
        assert_eq!(link.telemetry().traffic_bytes, traffic, "neither time nor counts run backwards");
    }

    fn count(carried_bytes: u64, own_bytes: u64) -> LinkCount {
        LinkCount { bytes_per_s: 1e10, idle_ns: 750.0, latency_ns: 900.0, carried_bytes, own_bytes }
    }

    #[test]
    fn where_it_is_counted_counts_are_believed() {
        let mut link = LinkLoad::new(KNOWN);
        probe(&mut link, 0, 20, 400.0);
        link.note_count(1000 * MS, count(1 << 40, 1 << 30));
        link.note_moved(1000 * MS, 7_000_000);
        assert_eq!((link.share_left(), link.telemetry().traffic_bytes), (1.0, 0), "that was before");
        link.note_count(1010 * MS, count(1 << 41, 1 << 31));
        assert_eq!(link.share_left(), 1.0, "too soon");
        link.note_count(2000 * MS, count((1 << 40) + 4_000_000_000, (1 << 30) + 5_000));
        assert!((link.share_left() - 0.6).abs() < 1e-9, "{}", link.share_left());
        let telemetry = link.telemetry();
        assert!((telemetry.available_bytes_per_s - 6e9).abs() < 1.0, "{telemetry:?}");
        assert_eq!((telemetry.delta_latency_ns, telemetry.traffic_bytes), (800.0, 5_000));
        assert_eq!(link.idle_latency_ns(), 750.0);
        link.note_count(3000 * MS, count(99_000_000_000, 1));
        assert_eq!((link.share_left(), link.telemetry().traffic_bytes), (LEAST_LEFT, 5_001), "began anew");
    }

    #[test]
    fn what_this_machine_sends_is_known_where_its_processors_count_it() {
        let mut link = LinkLoad::new(KNOWN);
        probe(&mut link, 0, 20, 400.0);
        link.note_own(2000 * MS, 1 << 40);
        link.note_own(3000 * MS, (1 << 40) + 300_000_000);
        link.note_moved(3000 * MS, 5_000_000);
        assert!((link.share_left() - 0.7).abs() < 1e-9, "more than probes show: {}", link.share_left());
        assert_eq!(link.telemetry().traffic_bytes, 300_000_000, "pages are among them");
        probe(&mut link, 4000, 20, 800.0);
        assert!((link.share_left() - 0.2).abs() < 1e-9, "others are there too: {}", link.share_left());
        link.note_own(3010 * MS, 1 << 41);
        link.note_own(6000 * MS, 5);
        assert_eq!(link.telemetry().traffic_bytes, 300_000_000, "a group of processes is gone");
    }

    #[test]
    fn counters_of_nonsense_do_no_harm() {
        let mut link = LinkLoad::new(KNOWN);
        for (second, bytes_per_s) in [(1, 0.0), (2, 0.0), (3, f64::NAN), (4, -1.0), (5, f64::INFINITY)] {
            link.note_count(second * 1000 * MS, LinkCount { bytes_per_s, ..count(second * 1_000_000, 0) });
            assert!((LEAST_LEFT..=1.0).contains(&link.share_left()), "{bytes_per_s}");
        }
    }
}
