//! What a run is measured by: totals, and the same over time.

use serde::Serialize;

use super::link::Traffic;

/// What time is spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Scanning accessed bits of local pages.
    ScanLocal,
    /// Scanning accessed bits of far pages.
    ScanFar,
    /// Faults, marks and samples.
    Fault,
    /// Moving pages, fetches included.
    Migration,
}

/// Time that was not the program's own, in picoseconds, by what it was spent on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bill([u64; 4]);

impl Bill {
    /// Adds to it.
    pub fn add(&mut self, work: Work, ps: u64) {
        self.0[work as usize] += ps;
    }

    /// Adds another bill to it.
    pub fn add_all(&mut self, other: Bill) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, ps)| *sum += ps);
    }

    /// What was added since it was `before`.
    #[must_use]
    pub fn since(&self, before: &Bill) -> Bill {
        let mut difference = *self;
        difference.0.iter_mut().zip(before.0).for_each(|(now, before)| *now -= before);
        difference
    }

    /// For one kind of work.
    #[must_use]
    pub fn of(&self, work: Work) -> u64 {
        self.0[work as usize]
    }

    /// For all.
    #[must_use]
    pub fn total_ps(&self) -> u64 {
        self.0.iter().sum()
    }
}

/// Counts since the start of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Accesses of the program.
    pub accesses: u64,
    /// Their time in caches and memory, translation included, in picoseconds.
    pub memory_ps: u64,
    /// Misses of the last-level cache that local memory served.
    pub local_misses: u64,
    /// Those that far memory served.
    pub far_misses: u64,
    /// Page walks.
    pub walks: u64,
    /// Pages that went to local memory.
    pub promotions: u64,
    /// Pages that went to far memory.
    pub demotions: u64,
    /// Promoted pages that were accessed before they were demoted.
    pub promotions_used: u64,
    /// Pages that were fetched beside the one that faulted.
    pub prefetches: u64,
    /// Those of them that were accessed before they left.
    pub prefetches_used: u64,
    /// Faults at marked pages.
    pub hint_faults: u64,
    /// Faults at far pages that had to be fetched.
    pub missing_faults: u64,
    /// Faults at local pages without a mapping.
    pub minor_faults: u64,
    /// Bytes on the link.
    pub traffic: Traffic,
}

impl Counts {
    /// What was counted since it was `before`.
    #[must_use]
    pub fn since(&self, before: &Counts) -> Counts {
        Counts {
            accesses: self.accesses - before.accesses,
            memory_ps: self.memory_ps - before.memory_ps,
            local_misses: self.local_misses - before.local_misses,
            far_misses: self.far_misses - before.far_misses,
            walks: self.walks - before.walks,
            promotions: self.promotions - before.promotions,
            demotions: self.demotions - before.demotions,
            promotions_used: self.promotions_used - before.promotions_used,
            prefetches: self.prefetches - before.prefetches,
            prefetches_used: self.prefetches_used - before.prefetches_used,
            hint_faults: self.hint_faults - before.hint_faults,
            missing_faults: self.missing_faults - before.missing_faults,
            minor_faults: self.minor_faults - before.minor_faults,
            traffic: Traffic {
                access_bytes: self.traffic.access_bytes - before.traffic.access_bytes,
                migration_bytes: self.traffic.migration_bytes - before.traffic.migration_bytes,
            },
        }
    }
}

/// A point of the time series: what happened since the point before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Point {
    /// When it ends, in seconds.
    pub time_s: f64,
    /// Local accesses as a share of all that missed the caches.
    pub local_ratio: f64,
    /// Average time of an access, in nanoseconds.
    pub amat_ns: f64,
    /// Pages promoted a second.
    pub promotions_per_s: f64,
    /// Pages demoted a second.
    pub demotions_per_s: f64,
    /// Pages migrated, either way, in bytes per second.
    pub migration_bytes_per_s: f64,
    /// Cache lines on the link, in bytes per second.
    pub access_bytes_per_s: f64,
    /// Local pages accessed within the window, as a share of local pages.
    pub local_in_use: f64,
}

/// Most points that a series keeps: when there are more, pairs become one.
const MAX_POINTS: usize = 512;

struct Mark {
    time_ps: u64,
    counts: Counts,
    in_use: u32,
    local: u32,
}

/// A time series of cumulative counts, thinned out as it grows.
pub struct Series {
    start_ps: u64,
    marks: Vec<Mark>,
    interval_ps: u64,
    next_ps: u64,
}

impl Series {
    /// A series that begins at `start_ps`, with a point every `interval_ps` at first.
    #[must_use]
    pub fn new(start_ps: u64, interval_ps: u64) -> Self {
        let interval_ps = interval_ps.max(1);
        Self { start_ps, marks: Vec::new(), interval_ps, next_ps: start_ps + interval_ps }
    }

    /// When the next point is due.
    #[must_use]
    pub fn next_ps(&self) -> u64 {
        self.next_ps
    }

    /// Adds a point.
    pub fn push(&mut self, time_ps: u64, counts: Counts, in_use: u32, local: u32) {
        self.marks.push(Mark { time_ps, counts, in_use, local });
        if self.marks.len() == MAX_POINTS {
            let mut keep = true;
            self.marks.retain(|_| {
                keep = !keep;
                keep
            });
            self.interval_ps *= 2;
        }
        self.next_ps = time_ps + self.interval_ps;
    }

    /// The points, each the difference to the one before; `page_bytes` turns pages into bytes.
    #[must_use]
    pub fn points(&self, page_bytes: u64) -> Vec<Point> {
        let mut before_ps = self.start_ps;
        let mut before = Counts::default();
        let mut points = Vec::with_capacity(self.marks.len());
        for mark in &self.marks {
            let mut point = point(before_ps, &before, mark, page_bytes);
            point.time_s = (mark.time_ps - self.start_ps) as f64 / 1e12;
            points.push(point);
            before_ps = mark.time_ps;
            before = mark.counts;
        }
        points
    }
}

fn point(before_ps: u64, before: &Counts, mark: &Mark, page_bytes: u64) -> Point {
    let now = &mark.counts;
    let seconds = ratio(mark.time_ps - before_ps, 1_000_000_000_000);
    let local = now.local_misses - before.local_misses;
    let far = now.far_misses - before.far_misses;
    let per_s = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
    let (promotions, demotions) = (now.promotions - before.promotions, now.demotions - before.demotions);
    Point {
        time_s: 0.0,
        local_ratio: if local + far == 0 { 1.0 } else { ratio(local, local + far) },
        amat_ns: ratio(now.memory_ps - before.memory_ps, now.accesses - before.accesses) / 1e3,
        promotions_per_s: per_s(promotions),
        demotions_per_s: per_s(demotions),
        migration_bytes_per_s: per_s((promotions + demotions) * page_bytes),
        access_bytes_per_s: per_s(now.traffic.access_bytes - before.traffic.access_bytes),
        local_in_use: ratio(u64::from(mark.in_use), u64::from(mark.local)),
    }
}

/// A quotient; 0 where there is nothing to divide by.
#[must_use]
pub fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_thins_out_and_loses_nothing() {
        let mut series = Series::new(0, 10);
        let mut time = 0;
        for step in 1..=5000_u64 {
            time = series.next_ps().max(time + 10);
            series.push(time, Counts { promotions: step, ..Counts::default() }, 1, 2);
        }
        let points = series.points(4096);
        assert!(points.len() < MAX_POINTS);
        let mut before_s = 0.0;
        let promoted: f64 = points
            .iter()
            .map(|point| {
                let count = point.promotions_per_s * (point.time_s - before_s);
                before_s = point.time_s;
                count
            })
            .sum();
        assert!((promoted - 5000.0).abs() < 64.0, "{promoted}");
    }
}
