//! What comes out of the rig: a row a run, and whether the goals are met.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

/// What came of one start of a case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// Share of the misses of the last-level cache that local memory served.
    pub local_hit_ratio: f64,
    /// Average time of an access.
    pub amat_ns: f64,
    /// Pages moved to local memory.
    pub promotions: u64,
}

/// One workload under one policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The workload that was run.
    pub workload: String,
    /// The policy: one of the daemon's, `kernel` for NUMA balancing with demotion, `none`, or `all-local`.
    pub policy: String,
    /// Local memory, in percent of the workload's.
    pub local_pct: u32,
    /// Latency of far memory.
    pub latency_ns: u32,
    /// What a neighbour took of the link while it was there, in percent, of a link whose latency rises with
    /// its traffic; none for a link that is never busy.
    #[serde(default)]
    pub contention_pct: Option<u32>,
    /// What far misses took over such a link, on average.
    #[serde(default)]
    pub far_latency_ns: Option<f64>,
    /// Pages that moved either way in a second in which the neighbour was away.
    #[serde(default)]
    pub moved_alone_per_s: Option<f64>,
    /// The same of a second in which it was there.
    #[serde(default)]
    pub moved_beside_per_s: Option<f64>,
    /// Share of the misses of the last-level cache that local memory served.
    pub local_hit_ratio: f64,
    /// The same for the best fixed choice of pages, known afterwards.
    pub oracle_local_hit_ratio: f64,
    /// Share of the accesses that hit the last-level cache.
    pub llc_hit_ratio: f64,
    /// Average time of an access.
    pub amat_ns: f64,
    /// Promoted pages that were used before they were demoted, of those promoted; none where nobody counts
    /// it.
    pub good_put: Option<f64>,
    /// Pages moved to local memory.
    pub promotions: u64,
    /// Pages moved to far memory, without those that were placed there at first sight.
    pub demotions: u64,
    /// Windows of the policy's counters.
    pub windows: Option<u64>,
    /// Of these, with migrations paused at their end.
    pub paused_windows: Option<u64>,
    /// Speed of the workload, its waiting for memory included, in steps of its own.
    pub steps_per_s: f64,
    /// Share of its pages that were local at the end.
    pub pages_local_ratio: f64,
    /// CPU time of looks, of the guest's processor.
    pub telemetry_cpu_pct: Option<f64>,
    /// Time between the last two looks.
    pub scan_interval_ms: Option<f64>,
    /// Accesses that were sampled for the policy; none where none were.
    #[serde(default)]
    pub samples: Option<u64>,
    /// Samples that were lost because there was no room for them.
    #[serde(default)]
    pub lost_samples: Option<u64>,
    /// What came of each start, where there were several: each number above is the median of theirs.
    #[serde(default)]
    pub starts: Vec<Start>,
}

impl Row {
    /// Whether both are of the same workload, policy, memory and neighbour.
    #[must_use]
    pub fn is_of_the_case_of(&self, other: &Self) -> bool {
        self.policy == other.policy
            && self.has_the_memory_of(other)
            && self.contention_pct == other.contention_pct
    }

    fn has_the_memory_of(&self, other: &Self) -> bool {
        (&self.workload, self.local_pct, self.latency_ns)
            == (&other.workload, other.local_pct, other.latency_ns)
    }
}

/// The number in the middle, of two the lower.
fn median<T: PartialOrd + Copy>(rows: &[Row], of: impl Fn(&Row) -> T) -> T {
    let mut values: Vec<T> = rows.iter().map(of).collect();
    values.sort_by(|a, b| a.partial_cmp(b).unwrap_or(Ordering::Equal));
    values[(values.len() - 1) / 2]
}

/// The row of a case that was begun several times. None without a run.
#[must_use]
pub fn median_of_starts(rows: &[Row]) -> Option<Row> {
    let first = rows.first()?;
    if rows.len() == 1 {
        return Some(first.clone());
    }
    let start = |row: &Row| Start {
        local_hit_ratio: row.local_hit_ratio,
        amat_ns: row.amat_ns,
        promotions: row.promotions,
    };
    Some(Row {
        workload: first.workload.clone(),
        policy: first.policy.clone(),
        local_pct: first.local_pct,
        latency_ns: first.latency_ns,
        contention_pct: first.contention_pct,
        far_latency_ns: median(rows, |row| row.far_latency_ns),
        moved_alone_per_s: median(rows, |row| row.moved_alone_per_s),
        moved_beside_per_s: median(rows, |row| row.moved_beside_per_s),
        local_hit_ratio: median(rows, |row| row.local_hit_ratio),
        oracle_local_hit_ratio: median(rows, |row| row.oracle_local_hit_ratio),
        llc_hit_ratio: median(rows, |row| row.llc_hit_ratio),
        amat_ns: median(rows, |row| row.amat_ns),
        good_put: median(rows, |row| row.good_put),
        promotions: median(rows, |row| row.promotions),
        demotions: median(rows, |row| row.demotions),
        windows: median(rows, |row| row.windows),
        paused_windows: median(rows, |row| row.paused_windows),
        steps_per_s: median(rows, |row| row.steps_per_s),
        pages_local_ratio: median(rows, |row| row.pages_local_ratio),
        telemetry_cpu_pct: median(rows, |row| row.telemetry_cpu_pct),
        scan_interval_ms: median(rows, |row| row.scan_interval_ms),
        samples: median(rows, |row| row.samples),
        lost_samples: median(rows, |row| row.lost_samples),
        starts: rows.iter().map(start).collect(),
    })
}

/// Whether something holds that the project wants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Goal {
    /// What is wanted, as an inequality.
    pub wanted: String,
    /// In which run, and what came out.
    pub found: String,
    /// Whether what was found is as wanted.
    pub met: bool,
}

/// Share of the static oracle's local hit ratio that HotBox is to reach.
const OF_ORACLE: f64 = 0.9;
/// Windows after which migrations of no use are to be paused.
const WINDOWS_TO_PAUSE: u64 = 3;

/// Which goals the rows meet, as far as the runs for them were made.
#[must_use]
pub fn goals(rows: &[Row]) -> Vec<Goal> {
    let mut goals = Vec::new();
    for row in rows {
        let of = |policy: &str| {
            rows.iter().find(|other| {
                other.policy == policy
                    && other.has_the_memory_of(row)
                    && other.contention_pct == row.contention_pct
            })
        };
        if row.policy == "indigo" && row.contention_pct.is_some_and(|pct| pct > 0) {
            let of_free = |other: &&Row| {
                other.policy == row.policy && other.has_the_memory_of(row) && other.contention_pct == Some(0)
            };
            goals.extend(rows.iter().find(of_free).map(|free| more_selective(row, free)));
        }
        let uniform = row.workload == "uniform";
        match row.policy.as_str() {
            "hotbox" if uniform => goals.extend(pauses(row)),
            "hotbox" => {
                goals.extend(of("kernel").map(|kernel| at_least(row, kernel)));
                goals.extend((row.workload != "phases").then(|| near_oracle(row)));
            }
            "indigo" if !uniform => goals.extend(of("kernel").map(|kernel| fewer_promotions(row, kernel))),
            _ => {}
        }
    }
    goals.sort_by(|a, b| a.wanted.cmp(&b.wanted));
    goals
}

fn case(row: &Row) -> String {
    let neighbour = match row.contention_pct {
        Some(0) => ", a busy link".to_owned(),
        Some(pct) => format!(", a neighbour of {pct}%"),
        None => String::new(),
    };
    format!("{}, {}% local, {} ns{neighbour}", row.workload, row.local_pct, row.latency_ns)
}

fn more_selective(row: &Row, free: &Row) -> Goal {
    Goal {
        wanted: "INDIGO: fewer promotions beside a neighbour on the link than without".into(),
        found: format!("{}: {} against {} promotions", case(row), row.promotions, free.promotions),
        met: row.promotions < free.promotions,
    }
}

fn at_least(row: &Row, kernel: &Row) -> Goal {
    Goal {
        wanted: "HotBox: local hit ratio at or above the kernel's own tiering".into(),
        found: format!("{}: {:.3} against {:.3}", case(row), row.local_hit_ratio, kernel.local_hit_ratio),
        met: row.local_hit_ratio >= kernel.local_hit_ratio,
    }
}

fn near_oracle(row: &Row) -> Goal {
    Goal {
        wanted: "HotBox: local hit ratio within 10% of the static oracle's".into(),
        found: format!("{}: {:.3} against {:.3}", case(row), row.local_hit_ratio, row.oracle_local_hit_ratio),
        met: row.local_hit_ratio >= OF_ORACLE * row.oracle_local_hit_ratio,
    }
}

fn pauses(row: &Row) -> Option<Goal> {
    let active = row.windows?.checked_sub(row.paused_windows?)?;
    Some(Goal {
        wanted: "HotBox: migrations paused within three windows on uniform access".into(),
        found: format!("{}: {active} windows without a pause, of {}", case(row), row.windows?),
        met: active <= WINDOWS_TO_PAUSE,
    })
}

fn fewer_promotions(row: &Row, kernel: &Row) -> Goal {
    Goal {
        wanted: "INDIGO: fewer promotions than the kernel's tiering at equal or better AMAT".into(),
        found: format!(
            "{}: {} against {} promotions, {:.0} against {:.0} ns",
            case(row),
            row.promotions,
            kernel.promotions,
            row.amat_ns,
            kernel.amat_ns
        ),
        met: row.promotions < kernel.promotions && row.amat_ns <= kernel.amat_ns,
    }
}

/// A row of nothing, for tests.
#[cfg(test)]
pub(super) fn blank(workload: &str, policy: &str) -> Row {
    Row {
        workload: workload.into(),
        policy: policy.into(),
        local_pct: 20,
        latency_ns: 750,
        contention_pct: None,
        far_latency_ns: None,
        moved_alone_per_s: None,
        moved_beside_per_s: None,
        local_hit_ratio: 0.5,
        oracle_local_hit_ratio: 0.5,
        llc_hit_ratio: 0.9,
        amat_ns: 100.0,
        good_put: None,
        promotions: 10,
        demotions: 10,
        windows: Some(10),
        paused_windows: Some(8),
        steps_per_s: 1.0,
        pages_local_ratio: 0.2,
        telemetry_cpu_pct: None,
        scan_interval_ms: None,
        samples: None,
        lost_samples: None,
        starts: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn met(rows: &[Row]) -> Vec<bool> {
        goals(rows).iter().map(|goal| goal.met).collect()
    }

    #[test]
    fn goals_compare_runs_of_the_same_case() {
        let (hotbox, mut kernel) = (blank("bfs", "hotbox"), blank("bfs", "kernel"));
        assert_eq!(met(&[hotbox.clone(), kernel.clone()]), [true, true]);
        kernel.local_hit_ratio = 0.6;
        assert_eq!(met(&[hotbox.clone(), kernel.clone()]), [false, true]);
        kernel.local_pct = 40;
        assert_eq!(goals(&[hotbox, kernel]).len(), 1, "another case");
        let far_off = Row { local_hit_ratio: 0.44, ..blank("bfs", "hotbox") };
        assert_eq!(met(std::slice::from_ref(&far_off)), [false]);
        assert!(
            met(&[Row { workload: "phases".into(), ..far_off }]).is_empty(),
            "no fixed choice is right there"
        );
    }

    #[test]
    fn indigo_is_to_promote_less_beside_a_neighbour() {
        let free = Row { contention_pct: Some(0), ..blank("bfs", "indigo") };
        let beside = Row { contention_pct: Some(36), promotions: 9, ..free.clone() };
        assert!(!free.is_of_the_case_of(&beside));
        assert_eq!(met(&[free.clone(), beside.clone()]), [true]);
        assert_eq!(met(&[free.clone(), Row { promotions: 10, ..beside.clone() }]), [false]);
        let kernel = Row { contention_pct: Some(36), ..blank("bfs", "kernel") };
        assert_eq!(met(&[free, beside, kernel]), [true, true], "the kernel's is of one case only");
        assert!(met(&[blank("bfs", "indigo")]).is_empty());
    }

    #[test]
    fn of_several_starts_each_number_is_the_median() {
        let start = |amat_ns, promotions| Row { amat_ns, promotions, ..blank("bfs", "kernel") };
        let rows = [start(300.0, 2), start(100.0, 9), start(200.0, 5)];
        let row = median_of_starts(&rows).unwrap();
        assert_eq!((row.amat_ns, row.promotions, row.windows), (200.0, 5, Some(10)));
        assert_eq!(row.starts.iter().map(|start| start.promotions).collect::<Vec<_>>(), [2, 9, 5]);
        assert_eq!(median_of_starts(&rows[..2]).unwrap().amat_ns, 100.0, "an interrupt left two");
        assert_eq!(median_of_starts(&rows[..1]).unwrap(), rows[0]);
        assert_eq!(median_of_starts(&[]), None);
        let cases = [start(1.0, 1), start(2.0, 2), blank("bfs", "hotbox"), blank("uniform", "hotbox")];
        assert_eq!(cases.chunk_by(Row::is_of_the_case_of).map(<[Row]>::len).collect::<Vec<_>>(), [2, 1, 1]);
    }

    #[test]
    fn a_pause_must_come_within_three_windows_and_indigo_must_gain() {
        let uniform = blank("uniform", "hotbox");
        assert_eq!(met(std::slice::from_ref(&uniform)), [true]);
        assert_eq!(met(&[Row { paused_windows: Some(6), ..uniform }]), [false]);
        let (kernel, indigo) = (blank("bfs", "kernel"), blank("bfs", "indigo"));
        assert_eq!(met(&[kernel.clone(), indigo.clone()]), [false], "as many promotions");
        let fewer = Row { promotions: 9, ..indigo };
        assert_eq!(met(&[kernel.clone(), fewer.clone()]), [true]);
        assert_eq!(met(&[kernel, Row { amat_ns: 101.0, ..fewer }]), [false]);
    }
}
