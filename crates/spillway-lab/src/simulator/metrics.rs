//! What a run is measured by: totals, and the same over time.

use serde::{Deserialize, Serialize};

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
    /// Adds the time that some work took, in picoseconds.
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

    /// The time for all work together, in picoseconds.
    #[must_use]
    pub fn total_ps(&self) -> u64 {
        self.0.iter().sum()
    }
}

/// What the cores of a program spent, in picoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Sum over its cores' clocks.
    pub core_ps: u64,
    /// What of it was not the program's own.
    pub bill: Bill,
    /// Daemons on a core of their own.
    pub spare_bill: Bill,
}

impl Spent {
    /// What was spent since it was `before`.
    #[must_use]
    pub fn since(&self, before: &Spent) -> Spent {
        Spent {
            core_ps: self.core_ps - before.core_ps,
            bill: self.bill.since(&before.bill),
            spare_bill: self.spare_bill.since(&before.spare_bill),
        }
    }

    /// The same in seconds, by what it was spent on.
    #[must_use]
    pub fn split(&self) -> TimeSplit {
        let seconds = |ps: u64| ps as f64 / 1e12;
        TimeSplit {
            app_s: seconds(self.core_ps.saturating_sub(self.bill.total_ps())),
            scan_local_s: seconds(self.bill.of(Work::ScanLocal)),
            scan_far_s: seconds(self.bill.of(Work::ScanFar)),
            fault_s: seconds(self.bill.of(Work::Fault)),
            migration_s: seconds(self.bill.of(Work::Migration)),
            spare_s: seconds(self.spare_bill.total_ps()),
        }
    }
}

/// Where the time of a program's cores went, in seconds; daemons on a core of their own apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TimeSplit {
    /// The program itself, its memory accesses included.
    pub app_s: f64,
    /// Scanning accessed bits of local pages.
    pub scan_local_s: f64,
    /// Scanning accessed bits of far pages.
    pub scan_far_s: f64,
    /// Time in faults, in seconds.
    pub fault_s: f64,
    /// Time in moving pages, in seconds.
    pub migration_s: f64,
    /// Daemons on a spare core.
    pub spare_s: f64,
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
    /// Walks through the page table, after TLB misses.
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
    /// Pages sent, either way, in bytes per second.
    pub migration_bytes_per_s: f64,
    /// Cache lines on the link, in bytes per second.
    pub access_bytes_per_s: f64,
    /// Of all pages promoted so far, those that were accessed before they were demoted, as a share.
    pub good_put: f64,
    /// Local base pages accessed within the window: N of hotness fragmentation.
    pub local_pages_in_use: u32,
    /// The same, as a share of local pages.
    pub local_in_use: f64,
    /// Where the time went.
    pub time: TimeSplit,
}

/// Most points that a series keeps: when there are more, pairs become one.
const MAX_POINTS: usize = 512;

struct Mark {
    time_ps: u64,
    counts: Counts,
    spent: Spent,
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

    /// Adds a point; where there are too many, every second goes.
    pub fn push(&mut self, time_ps: u64, counts: Counts, spent: Spent, in_use: u32, local: u32) {
        self.marks.push(Mark { time_ps, counts, spent, in_use, local });
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

    /// The points, each the difference to the one before.
    #[must_use]
    pub fn points(&self) -> Vec<Point> {
        let zero = Mark {
            time_ps: self.start_ps,
            counts: Counts::default(),
            spent: Spent::default(),
            in_use: 0,
            local: 0,
        };
        let before = std::iter::once(&zero).chain(&self.marks);
        let points = before.zip(&self.marks).map(|(before, mark)| Point {
            time_s: (mark.time_ps - self.start_ps) as f64 / 1e12,
            ..point(before, mark)
        });
        points.collect()
    }
}

fn point(before: &Mark, mark: &Mark) -> Point {
    let window = mark.counts.since(&before.counts);
    let seconds = ratio(mark.time_ps - before.time_ps, 1_000_000_000_000);
    let misses = window.local_misses + window.far_misses;
    let per_s = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
    Point {
        time_s: 0.0,
        local_ratio: if misses == 0 { 1.0 } else { ratio(window.local_misses, misses) },
        amat_ns: ratio(window.memory_ps, window.accesses) / 1e3,
        promotions_per_s: per_s(window.promotions),
        demotions_per_s: per_s(window.demotions),
        migration_bytes_per_s: per_s(window.traffic.migration_bytes),
        access_bytes_per_s: per_s(window.traffic.access_bytes),
        good_put: ratio(mark.counts.promotions_used, mark.counts.promotions),
        local_pages_in_use: mark.in_use,
        local_in_use: ratio(u64::from(mark.in_use), u64::from(mark.local)),
        time: mark.spent.since(&before.spent).split(),
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
            let counts = Counts { promotions: step, ..Counts::default() };
            series.push(time, counts, Spent::default(), 1, 2);
        }
        let points = series.points();
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
