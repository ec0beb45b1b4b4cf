//! What a guest left: its console and the counters.

use serde_json::Value;

use super::plan::{Case, Plan};
use super::report::Row;

/// Nanoseconds of any access, and what one takes beyond that when local memory serves it: HotBox, Table 1, 30
/// and 210 cycles of 2.6 GHz. As in the lab, and in `counters.h`.
pub const CACHE_NS: f64 = 11.5;
/// What local memory adds to it; see [`CACHE_NS`].
pub const LOCAL_NS: f64 = 70.0;

/// Where the page counts begin in the file of counters.
const PAGE_COUNTS_AT: usize = 4096;
/// How many there are; behind them lie the samples.
const PAGE_COUNTS: usize = 1 << 16;

/// What the guest printed between the lines that begin and end a section.
fn section<'a>(console: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = console.split_once(&format!("BEGIN {name}\n"))?;
    Some(rest.split_once("END\n")?.0)
}

/// The JSON in a section, after other lines.
fn json(console: &str, name: &str) -> Option<Value> {
    let text = section(console, name)?;
    serde_json::from_str(text.get(text.find("\n{").map_or(text.find('{')?, |at| at + 1)..)?).ok()
}

/// How much a number of the kernel's grew.
fn growth(console: &str, name: &str) -> Option<u64> {
    let value = |section_name| {
        let mut lines = section(console, section_name)?.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse::<u64>().ok())
    };
    value("vmstat-after")?.checked_sub(value("vmstat-before")?)
}

/// The best share of misses that a fixed choice of pages can serve locally.
fn oracle_ratio(counters: &[u8], local_pages: usize) -> Option<f64> {
    let words = counters.get(PAGE_COUNTS_AT..)?.chunks_exact(4).take(PAGE_COUNTS);
    let mut misses: Vec<u64> =
        words.map(|word| u64::from(u32::from_le_bytes([word[0], word[1], word[2], word[3]]))).collect();
    misses.sort_unstable_by(|a, b| b.cmp(a));
    let all: u64 = misses.iter().sum();
    let local: u64 = misses.iter().take(local_pages).sum();
    (all > 0).then(|| local as f64 / all as f64)
}

/// The row of a run, out of what the guest printed and the counters' file; none where something is missing.
pub fn row(plan: &Plan, case: &Case, console: &str, counters: &[u8]) -> Option<Row> {
    let console = console.replace('\r', "");
    if !console.contains("rig: the workload ended with status 0") {
        return None;
    }
    let workload = json(&console, "workload")?;
    let count = |name: &str| workload[name].as_f64();
    let (accesses, local, far) = (count("accesses")?, count("local_misses")?, count("far_misses")?);
    let misses = local + far;
    let stats = json(&console, "stats");
    let group = stats.as_ref().map(|stats| &stats["groups"][0]);
    let of_group = |name: &str| group.and_then(|group| group[name].as_u64());
    let source = stats.as_ref().map(|stats| &stats["source"]);
    let sampled = source.filter(|source| source["name"] == "counter-samples");
    let of_samples = |name: &str| sampled.and_then(|source| source[name].as_u64());
    let by_kernel = || {
        Some([
            growth(&console, "pgpromote_success")?,
            growth(&console, "pgdemote_kswapd")? + growth(&console, "pgdemote_direct")?,
        ])
    };
    let [promotions, demotions] = match group {
        Some(_) => [of_group("promotions")?, of_group("demotions")? - of_group("placements")?],
        None => by_kernel()?,
    };
    // What a busy link took, as the workload counted it.
    let busy = case.contention_pct.and_then(|_| count("far_waited_ns")).filter(|_| far > 0.0);
    let latency_ns = busy.map_or(f64::from(case.latency_ns), |waited_ns| waited_ns / far);
    let moved_per_s = |moved: &str, seconds: &str| {
        let seconds = count(seconds).filter(|seconds| *seconds > 0.0 && case.contention_pct.is_some())?;
        Some(count(moved)? / seconds)
    };
    let local_pages = (count("pages")? * f64::from(case.local_pct) / 100.0) as usize;
    Some(Row {
        workload: case.workload.clone(),
        policy: case.policy.clone(),
        local_pct: case.local_pct,
        latency_ns: case.latency_ns,
        contention_pct: case.contention_pct,
        far_latency_ns: case.contention_pct.map(|_| latency_ns),
        moved_alone_per_s: moved_per_s("moved_alone", "alone_s"),
        moved_beside_per_s: moved_per_s("moved_beside", "beside_s"),
        local_hit_ratio: local / misses.max(1.0),
        oracle_local_hit_ratio: oracle_ratio(counters, local_pages)?,
        llc_hit_ratio: 1.0 - misses / accesses.max(1.0),
        amat_ns: CACHE_NS + (local * LOCAL_NS + far * latency_ns) / accesses.max(1.0),
        good_put: of_group("promotions_used")
            .filter(|_| promotions > 0)
            .map(|used| used as f64 / promotions as f64),
        promotions,
        demotions,
        windows: of_group("windows"),
        paused_windows: of_group("paused_windows"),
        steps_per_s: count("steps")? / f64::from(plan.measured_s),
        pages_local_ratio: count("local_pages")? / count("pages")?.max(1.0),
        telemetry_cpu_pct: group.and_then(|group| group["telemetry_cpu_pct"].as_f64()),
        scan_interval_ms: group.and_then(|group| group["scan_interval_ms"].as_f64()),
        samples: of_samples("accesses"),
        lost_samples: of_samples("lost"),
        starts: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONSOLE: &str = "noise\r\nBEGIN vmstat-before\r\npgpromote_success 5\r\npgdemote_kswapd \
                           1\r\npgdemote_direct 0\r\nEND\r\n\
        BEGIN workload\r\nspillway: tier: said \
        {something}\r\n{\"steps\": 20, \"accesses\": 1000, \"local_misses\": 30, \"far_misses\": 10, \
        \"pages\": 10, \"local_pages\": 2}\r\nEND\r\nBEGIN vmstat-after\r\npgpromote_success \
        12\r\npgdemote_kswapd 3\r\n\
        pgdemote_direct 4\r\nEND\r\nrig: the workload ended with status 0\r\n";

    fn case(policy: &str) -> Case {
        Case { workload: "bfs".into(), policy: policy.into(), ..of_bfs() }
    }

    fn of_bfs() -> Case {
        Case {
            workload: "bfs".into(),
            policy: String::new(),
            local_pct: 20,
            latency_ns: 1000,
            contention_pct: None,
            start: 0,
        }
    }

    fn counters() -> Vec<u8> {
        let mut counters = vec![0; PAGE_COUNTS_AT];
        [5_u32, 20, 1, 10, 4].iter().for_each(|count| counters.extend(count.to_le_bytes()));
        counters
    }

    #[test]
    fn a_run_of_the_kernels_is_read_from_its_own_counts() {
        let row =
            row(&Plan { measured_s: 10, ..Plan::default() }, &case("kernel"), CONSOLE, &counters()).unwrap();
        assert_eq!((row.promotions, row.demotions, row.good_put, row.windows), (7, 6, None, None));
        assert_eq!((row.local_hit_ratio, row.llc_hit_ratio, row.steps_per_s), (0.75, 0.96, 2.0));
        assert_eq!(row.oracle_local_hit_ratio, 0.75, "two of ten pages: 30 of 40 misses");
        assert!((row.amat_ns - (11.5 + 0.03 * 70.0 + 0.01 * 1000.0)).abs() < 1e-9, "{row:?}");
    }

    #[test]
    fn a_run_of_the_daemons_is_read_from_its_statistics() {
        let stats = r#"{"groups": [{"promotions": 10, "promotions_used": 4, "demotions": 25, "placements": 20,
            "windows": 9, "paused_windows": 6, "telemetry_cpu_pct": 1.5, "scan_interval_ms": 100.0}]}"#;
        let console = format!("BEGIN stats\n{stats}\nEND\n{CONSOLE}");
        let row = row(&Plan::default(), &case("hotbox"), &console, &counters()).unwrap();
        assert_eq!((row.promotions, row.demotions, row.good_put), (10, 5, Some(0.4)));
        assert_eq!((row.windows, row.paused_windows, row.telemetry_cpu_pct), (Some(9), Some(6), Some(1.5)));
    }

    #[test]
    fn a_run_with_samples_tells_how_many_and_they_are_no_misses() {
        let stats = r#"{"groups": [{"promotions": 0, "demotions": 0, "placements": 0}],
            "source": {"name": "counter-samples", "accesses": 1234, "lost": 5}}"#;
        let console = format!("BEGIN stats\n{stats}\nEND\n{CONSOLE}");
        let mut counters = counters();
        counters.resize(PAGE_COUNTS_AT + PAGE_COUNTS * 4, 0);
        counters.extend([0xff; 64]);
        let with = row(&Plan::default(), &case("memtis"), &console, &counters).unwrap();
        assert_eq!(
            (with.samples, with.lost_samples, with.oracle_local_hit_ratio),
            (Some(1234), Some(5), 0.75)
        );
        let without = console.replace("counter-samples", "hint-faults");
        let without = row(&Plan::default(), &case("indigo"), &without, &counters).unwrap();
        assert_eq!((without.samples, without.lost_samples), (None, None), "those are faults");
    }

    #[test]
    fn far_memory_behind_a_busy_link_takes_what_it_took() {
        let counted = "\"steps\": 20, \"far_waited_ns\": 15000, \"moved_alone\": 50, \"alone_s\": 2.5, \
                       \"moved_beside\": 12, \"beside_s\": 1.5";
        let console = CONSOLE.replace("\"steps\": 20", counted);
        let case = Case { contention_pct: Some(36), ..case("kernel") };
        let row = row(&Plan::default(), &case, &console, &counters()).unwrap();
        assert!((row.amat_ns - (11.5 + 0.03 * 70.0 + 0.01 * 1500.0)).abs() < 1e-9, "{row:?}");
        assert_eq!((row.contention_pct, row.far_latency_ns), (Some(36), Some(1500.0)));
        assert_eq!((row.moved_alone_per_s, row.moved_beside_per_s), (Some(20.0), Some(8.0)));
        let case = Case { contention_pct: None, ..case };
        let row = super::row(&Plan::default(), &case, &console, &counters()).unwrap();
        assert_eq!((row.far_latency_ns, row.moved_beside_per_s), (None, None));
    }

    #[test]
    fn a_guest_that_failed_has_no_row() {
        for console in [
            "",
            "BEGIN workload\n{}\nEND\n",
            &CONSOLE.replace("status 0", "status 1"),
            &CONSOLE.replace("20,", ""),
        ] {
            assert!(row(&Plan::default(), &case("kernel"), console, &counters()).is_none(), "{console}");
        }
    }
}
