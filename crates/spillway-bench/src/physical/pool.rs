//! What follows from the measurements for the frames of `spillway run`: a configuration file for it, with the
//! reason of each setting ("Physical memory management on NVMM", section 5.5: settings by what a tier costs).

use std::fmt::Write;

use super::advice::panel;
use super::pages::BASE_BYTES;
use super::report::PhysicalReport;
use super::{capacity, thp, threads};

/// A setting of `[pool.local]`.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolSetting {
    /// Its name in the file, with the table that it is in: `background.bytes_per_s`.
    pub name: &'static str,
    /// Its value, as TOML has it.
    pub value: String,
    /// Why, with the measurement.
    pub why: String,
}

/// The evictor is on a CPU, and has zeroed more, within this time: a tick of the slowest kernels.
const REFILL_MS: f64 = 4.0;
/// What huge pages must gain, since evicting from one tears it apart.
const WORTH_TEARING: f64 = 0.9;
/// A huge page from fragmented memory may take so many times what one from whole memory takes.
const MOST_STALL: f64 = 2.0;
const MIB: f64 = 1_048_576.0;

/// What follows from what was measured; nothing for what was not.
#[must_use]
pub fn settings(report: &PhysicalReport) -> Vec<PoolSetting> {
    [reserve(report), huge_pages(report), rate(report)].into_iter().flatten().collect()
}

/// The same as a file for `spillway run --config`.
#[must_use]
pub fn toml(report: &PhysicalReport) -> String {
    let mut text = "# Made by 'spillway bench physical --pool' from what it measured. What is not named\n\
                    # here is as without a file: 'spillway run --help' has it.\n\n[pool.local]\n"
        .to_owned();
    for setting in settings(report) {
        let _ = writeln!(text, "# {}\n{} = {}", setting.why, setting.name, setting.value);
    }
    text
}

/// Memory that one thread gets in a second, in bytes.
fn alone_bytes_per_s(report: &PhysicalReport) -> Option<f64> {
    let rows = &panel(report, "threads", threads::RATE)?.rows;
    let is_alone = |case: &std::collections::BTreeMap<String, u64>| {
        case.get("page_bytes") == Some(&BASE_BYTES) && case.get("threads") == Some(&1)
    };
    Some(rows.iter().find(|row| is_alone(&row.case))?.value * 1e9)
}

fn mebibytes(bytes: f64) -> String {
    format!("\"{}M\"", (bytes / MIB).round().max(1.0))
}

fn reserve(report: &PhysicalReport) -> Option<PoolSetting> {
    let bytes_per_s = alone_bytes_per_s(report)?;
    let why = format!(
        "what first writes of one thread use up in {REFILL_MS} ms, until more is zeroed (threads: {:.2} \
         GB/s)",
        bytes_per_s / 1e9
    );
    Some(PoolSetting { name: "reserve_bytes", value: mebibytes(bytes_per_s * REFILL_MS / 1e3), why })
}

fn rate(report: &PhysicalReport) -> Option<PoolSetting> {
    let bytes_per_s = alone_bytes_per_s(report)?;
    let why = "no more than one CPU takes new memory for: background work leaves the others to the program \
               (threads)";
    Some(PoolSetting { name: "background.bytes_per_s", value: mebibytes(bytes_per_s), why: why.to_owned() })
}

fn huge_pages(report: &PhysicalReport) -> Option<PoolSetting> {
    let bfs = panel(report, "thp", thp::BFS)?;
    let of = |mode: &str| bfs.rows.iter().find(|row| row.point == mode).map(|row| row.value);
    let gain = of("always")? / of("never")?;
    let cost = panel(report, "capacity", capacity::COST)?;
    let p99 = |is_whole: bool| {
        let row = cost.rows.iter().rfind(|row| (row.series == capacity::WHOLE) == is_whole)?;
        Some(row.distribution.as_ref()?.p99)
    };
    let stall = p99(false)? / p99(true)?.max(1.0);
    let worth = gain <= WORTH_TEARING && stall <= MOST_STALL;
    let why = format!(
        "BFS takes {gain:.2} of its time with them (thp; {WORTH_TEARING} would be worth it, as eviction \
         tears them apart), one from fragmented memory {stall:.1} times as long at the 99th percentile \
         (capacity; at most {MOST_STALL})"
    );
    Some(PoolSetting { name: "huge_pages", value: worth.to_string(), why })
}

#[cfg(test)]
mod tests {
    use super::super::advice::tests::report;
    use super::super::report::Panel;
    use super::*;
    use spillway_report::distribution::Distribution;

    fn rates(alone: f64) -> Panel {
        let mut panel = Panel::new(threads::RATE, "GB/s");
        panel.value("4 KiB", "1", &[("page_bytes", 4096), ("threads", 1)], alone);
        panel
    }

    fn modes(always: f64) -> Panel {
        let mut panel = Panel::new(thp::BFS, "ns");
        panel.value("this machine", "never", &[], 10.0);
        panel.value("this machine", "always", &[], always);
        panel
    }

    fn capacity(fragmented: u64) -> Panel {
        let mut panel = Panel::new(capacity::COST, "ns");
        panel.distribution("half free", "1 GiB", &[], Distribution::of(vec![fragmented; 9]));
        panel.distribution(capacity::WHOLE, "1 GiB", &[], Distribution::of(vec![100; 9]));
        panel
    }

    fn value(name: &str, panels: Vec<(&str, Panel)>) -> Option<String> {
        settings(&report(panels))
            .into_iter()
            .find(|setting| setting.name == name)
            .map(|setting| setting.value)
    }

    #[test]
    fn faster_memory_gets_a_larger_reserve_and_more_background_work() {
        for (alone, reserve, rate) in [(0.1, "\"1M\"", "\"95M\""), (2.0, "\"8M\"", "\"1907M\"")] {
            assert_eq!(value("reserve_bytes", vec![("threads", rates(alone))]).unwrap(), reserve);
            assert_eq!(value("background.bytes_per_s", vec![("threads", rates(alone))]).unwrap(), rate);
        }
    }

    #[test]
    fn huge_pages_are_asked_for_where_they_gain_much_and_stall_little() {
        let chosen = |always, fragmented| {
            value("huge_pages", vec![("thp", modes(always)), ("capacity", capacity(fragmented))]).unwrap()
        };
        assert_eq!(chosen(8.0, 150), "true");
        assert_eq!(chosen(9.5, 150), "false");
        assert_eq!(chosen(8.0, 1000), "false");
        assert_eq!(value("huge_pages", vec![("thp", modes(8.0))]), None);
    }

    #[test]
    fn without_measurements_nothing_is_set() {
        let empty = report(Vec::new());
        assert!(settings(&empty).is_empty());
        assert!(toml(&empty).ends_with("[pool.local]\n"));
    }
}
