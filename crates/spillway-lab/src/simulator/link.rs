//! The link to far memory, shared by cache lines, page transfers and a contending neighbour.
//!
//! Each direction is a queue that drains at the link's bandwidth. Lines and pages share it half and half
//! while both wait, as fair switches do: a line never waits for a whole page, and a page is slowed by lines.
//! A neighbour takes a fixed share of the bandwidth and delays every message by what it has under way
//! (M/D/1).
//!
//! A daemon works through a batch in one event, so it sends pages at times that the cores have yet to come
//! to. Such pages enter the queue when that time has come: lines that are sent before it do not wait for
//! them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::platform::LINE_MESSAGE_BYTES;

/// Picoseconds in a nanosecond.
pub const PS_PER_NS: u64 = 1000;

/// Over how long the link's own use is averaged, in picoseconds.
const USE_WINDOW_PS: u64 = 1_000_000_000;

/// Which way a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From far memory to local memory.
    In,
    /// From local memory to far memory.
    Out,
}

/// Bytes that crossed the link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// As cache lines, headers included.
    pub access_bytes: u64,
    /// Bytes that travelled as pages.
    pub migration_bytes: u64,
}

impl Traffic {
    /// Bytes that travelled, as pages and as lines.
    #[must_use]
    pub fn total_bytes(self) -> u64 {
        self.access_bytes + self.migration_bytes
    }
}

#[derive(Clone, Default)]
struct Queue {
    /// Work of lines and of pages that is still to be done.
    line_ps: u64,
    page_ps: u64,
    last_ps: u64,
    /// Pages that are sent later: when, and their bytes.
    later: BinaryHeap<Reverse<(u64, u64)>>,
    /// When the last of those will be through.
    later_end_ps: u64,
}

impl Queue {
    /// Comes to `now_ps`, with the pages that are sent until then. Returns their bytes.
    fn advance(&mut self, now_ps: u64, ps_per_kib: u64) -> u64 {
        let mut sent_bytes = 0;
        while let Some(&Reverse((at_ps, bytes))) = self.later.peek() {
            if at_ps > now_ps {
                break;
            }
            self.later.pop();
            self.drain(at_ps);
            self.page_ps += work_ps(bytes, ps_per_kib);
            sent_bytes += bytes;
        }
        self.drain(now_ps);
        sent_bytes
    }

    /// Takes off what was done up to `now_ps`.
    fn drain(&mut self, now_ps: u64) {
        let elapsed = now_ps.saturating_sub(self.last_ps);
        self.last_ps = self.last_ps.max(now_ps);
        let lines = self.line_ps.min(elapsed);
        self.line_ps -= lines;
        // Work of lines that shared was counted twice over, so half of its time was left for pages.
        let for_pages = if self.page_ps > 0 { elapsed - lines / 2 } else { 0 };
        self.page_ps = self.page_ps.saturating_sub(for_pages);
    }
}

fn work_ps(bytes: u64, ps_per_kib: u64) -> u64 {
    (bytes * ps_per_kib) >> 10
}

/// The link to far memory, each direction with its queue.
pub struct Link {
    /// Picoseconds a byte, in 1/1024.
    ps_per_kib: u64,
    latency_ps: u64,
    neighbour_wait_ps: u64,
    bytes_per_s: f64,
    queues: [Queue; 2],
    window_end_ps: u64,
    window_bytes: u64,
    own_bytes_per_s: f64,
}

impl Link {
    /// A link of this bandwidth and latency of which a neighbour uses `contention` (0 to below 1).
    #[must_use]
    pub fn new(bytes_per_s: f64, latency_ns: f64, contention: f64) -> Self {
        let left = bytes_per_s * (1.0 - contention);
        let line_ns = LINE_MESSAGE_BYTES as f64 / bytes_per_s * 1e9;
        let wait_ns = line_ns * contention / (2.0 * (1.0 - contention));
        Self {
            ps_per_kib: (1024.0 * 1e12 / left).round() as u64,
            latency_ps: (latency_ns * PS_PER_NS as f64).round() as u64,
            neighbour_wait_ps: (wait_ns * PS_PER_NS as f64).round() as u64,
            bytes_per_s: left,
            queues: Default::default(),
            window_end_ps: USE_WINDOW_PS,
            window_bytes: 0,
            own_bytes_per_s: 0.0,
        }
    }

    /// Counts what comes in, for telemetry.
    fn count(&mut self, direction: Direction, now_ps: u64, bytes: u64) {
        if direction == Direction::Out {
            return;
        }
        if now_ps >= self.window_end_ps {
            self.own_bytes_per_s = self.window_bytes as f64 / (USE_WINDOW_PS as f64 / 1e12);
            self.window_bytes = 0;
            self.window_end_ps = now_ps + USE_WINDOW_PS;
        }
        self.window_bytes += bytes;
    }

    /// Sends a cache line at `now_ps`. Returns when it is through, from then, in picoseconds, latency
    /// included.
    #[inline]
    pub fn line(&mut self, direction: Direction, now_ps: u64) -> u64 {
        let work = work_ps(LINE_MESSAGE_BYTES, self.ps_per_kib);
        let queue = &mut self.queues[direction as usize];
        let sent_bytes = queue.advance(now_ps, self.ps_per_kib);
        queue.line_ps += if queue.page_ps > 0 { 2 * work } else { work };
        let wait_ps = self.latency_ps + self.neighbour_wait_ps + queue.line_ps;
        self.count(direction, now_ps, sent_bytes + LINE_MESSAGE_BYTES);
        wait_ps
    }

    /// Sends pages as one message of `bytes` at `now_ps`. Returns when they are through, from then, in
    /// picoseconds, without the latency.
    pub fn pages(&mut self, direction: Direction, now_ps: u64, bytes: u64) -> u64 {
        let queue = &mut self.queues[direction as usize];
        let sent_bytes = queue.advance(now_ps, self.ps_per_kib);
        queue.page_ps += work_ps(bytes, self.ps_per_kib);
        let wait_ps = self.neighbour_wait_ps + queue.page_ps + queue.line_ps / 2;
        self.count(direction, now_ps, sent_bytes + bytes);
        wait_ps
    }

    /// The same at `at_ps`, which the cores, now at `now_ps`, have yet to come to: as far as can be told
    /// before.
    pub fn pages_later(&mut self, direction: Direction, now_ps: u64, at_ps: u64, bytes: u64) -> u64 {
        let queue = &mut self.queues[direction as usize];
        let sent_bytes = queue.advance(now_ps, self.ps_per_kib);
        queue.later.push(Reverse((at_ps, bytes)));
        queue.later_end_ps = queue.later_end_ps.max(at_ps) + work_ps(bytes, self.ps_per_kib);
        let wait_ps = self.neighbour_wait_ps + (queue.later_end_ps - at_ps) + queue.line_ps / 2;
        self.count(direction, now_ps, sent_bytes);
        wait_ps
    }

    /// The least that a cache line takes, latency included, in picoseconds.
    #[must_use]
    pub fn least_line_ps(&self) -> u64 {
        self.latency_ps + self.neighbour_wait_ps + work_ps(LINE_MESSAGE_BYTES, self.ps_per_kib)
    }

    /// The least that pages of `bytes` take as one message, without the latency, in picoseconds.
    #[must_use]
    pub fn page_ps(&self, bytes: u64) -> u64 {
        self.neighbour_wait_ps + work_ps(bytes, self.ps_per_kib)
    }

    /// Latency of the idle link, in picoseconds.
    #[must_use]
    pub fn latency_ps(&self) -> u64 {
        self.latency_ps
    }

    /// Latency of a line sent now, in nanoseconds.
    #[must_use]
    pub fn loaded_latency_ns(&self) -> f64 {
        let queue = &self.queues[Direction::In as usize];
        (self.latency_ps + self.neighbour_wait_ps + queue.line_ps) as f64 / PS_PER_NS as f64
    }

    /// Bandwidth for what comes in that neither the neighbour nor we use, in bytes per second; at least a
    /// hundredth.
    #[must_use]
    pub fn available_bytes_per_s(&self) -> f64 {
        (self.bytes_per_s - self.own_bytes_per_s).max(self.bytes_per_s / 100.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GB_PER_S: f64 = 1e9;

    #[test]
    fn an_idle_link_costs_its_latency_and_its_work() {
        let mut link = Link::new(GB_PER_S, 1000.0, 0.0);
        let least_ps = (link.least_line_ps(), link.page_ps(4096));
        assert_eq!(least_ps, (1_000_000 + LINE_MESSAGE_BYTES * 1000, 4096 * 1000));
        assert_eq!(link.line(Direction::In, 0), least_ps.0);
        assert_eq!(link.pages(Direction::Out, 0, 4096), least_ps.1);
    }

    #[test]
    fn messages_wait_for_those_before_them_and_queues_drain() {
        let mut link = Link::new(GB_PER_S, 0.0, 0.0);
        assert_eq!(link.line(Direction::In, 0), 80_000);
        assert_eq!(link.line(Direction::In, 0), 160_000);
        assert_eq!(link.line(Direction::In, 100_000), 140_000);
        assert_eq!(link.line(Direction::In, 1_000_000), 80_000);
        assert_eq!(link.line(Direction::Out, 100_000), 80_000, "the other direction is free");
    }

    #[test]
    fn lines_share_with_pages_instead_of_waiting_for_them() {
        let mut link = Link::new(GB_PER_S, 0.0, 0.0);
        link.pages(Direction::In, 0, 2 << 20);
        assert_eq!(link.line(Direction::In, 0), 160_000, "twice the time, not 2 ms");
        let mut alone = Link::new(GB_PER_S, 0.0, 0.0);
        assert!(link.pages(Direction::In, 0, 4096) > alone.pages(Direction::In, 0, 4096) + 2_000_000_000);
    }

    #[test]
    fn pages_that_are_sent_later_delay_nobody_before_and_somebody_then() {
        let mut link = Link::new(GB_PER_S, 0.0, 0.0);
        for at in 0..1000 {
            assert_eq!(link.pages_later(Direction::In, 0, 10_000_000 * (at + 1), 4096), 4_096_000);
        }
        for at in 0..100 {
            assert_eq!(link.line(Direction::In, 90_000 * at), 80_000, "no page is under way before 10 us");
        }
        assert_eq!(link.line(Direction::In, 10_000_000), 160_000, "shared with the first page");
        assert_eq!(link.line(Direction::In, 16_000_000), 80_000, "which is through by then");
        assert_eq!(link.line(Direction::In, 10_010_000_000), 80_000, "after the last one");
    }

    #[test]
    fn pages_that_are_sent_later_follow_each_other() {
        let mut link = Link::new(GB_PER_S, 0.0, 0.0);
        assert_eq!(link.pages_later(Direction::Out, 0, 1000, 4096), 4_096_000);
        assert_eq!(link.pages_later(Direction::Out, 0, 1000, 4096), 2 * 4_096_000);
    }

    #[test]
    fn a_neighbour_takes_bandwidth_and_delays() {
        let mut free = Link::new(GB_PER_S, 1000.0, 0.0);
        let mut contended = Link::new(GB_PER_S, 1000.0, 0.5);
        assert_eq!(contended.pages(Direction::In, 0, 4096), 2 * free.pages(Direction::In, 0, 4096) + 40_000);
        assert!(contended.available_bytes_per_s() < 0.51 * GB_PER_S);
    }
}
