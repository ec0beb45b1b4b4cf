//! What to set on this machine, each with the measurement behind it.

use super::bytes::size;
use super::pages::BASE_BYTES;
use super::report::{Advice, ExperimentReport, Panel, PhysicalReport};
use super::{capacity, khugepaged, thp, threads};

const THP: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
const SLEEP: &str = "/sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs";
const SCANNED: &str = "/sys/kernel/mm/transparent_hugepage/khugepaged/pages_to_scan";
const WATERMARK: &str = "/proc/sys/vm/watermark_scale_factor";
const PROACTIVENESS: &str = "/proc/sys/vm/compaction_proactiveness";

/// khugepaged may take so much of one CPU.
const MOST_DAEMON_PERCENT: f64 = 10.0;
/// kswapd wakes up and frees within this time.
const RECLAIM_MS: f64 = 20.0;
/// So much of the best throughput is as good.
const AS_GOOD: f64 = 0.95;
/// Differences below this are noise.
const CLEAR: f64 = 1.05;

/// What follows from what was measured; nothing for what was not.
#[must_use]
pub fn of(report: &PhysicalReport) -> Vec<Advice> {
    let all = [
        huge_pages(report),
        promotion(report),
        scanned(report),
        watermarks(report),
        compaction(report),
        allocators(report),
    ];
    all.into_iter().flatten().collect()
}

fn experiment<'a>(report: &'a PhysicalReport, name: &str) -> Option<&'a ExperimentReport> {
    report.experiments.iter().find(|experiment| experiment.name == name)
}

pub(super) fn panel<'a>(report: &'a PhysicalReport, name: &str, title: &str) -> Option<&'a Panel> {
    experiment(report, name)?.panel(title)
}

fn advice(report: &PhysicalReport, setting: &str, value: String, why: String, measurement: String) -> Advice {
    Advice {
        setting: setting.to_owned(),
        now: report.settings.get(setting).cloned(),
        value,
        why,
        measurement,
    }
}

/// The mode in which programs took the least time, over all of them.
fn huge_pages(report: &PhysicalReport) -> Option<Advice> {
    let panels: Vec<&Panel> =
        [thp::BFS, thp::MEMCACHED].iter().filter_map(|title| panel(report, "thp", title)).collect();
    let never = |panel: &Panel| panel.rows.iter().find(|row| row.point == "never").map(|row| row.value);
    let modes = panels.first()?.rows.iter().map(|row| row.point.clone());
    // The mean of the programs' ratios to 'never', by which no program counts more for taking longer.
    let slowdown = |mode: &str| -> Option<f64> {
        let logs = panels.iter().map(|panel| {
            let value = panel.rows.iter().find(|row| row.point == mode)?.value;
            Some((value / never(panel)?).ln())
        });
        let logs = logs.collect::<Option<Vec<f64>>>()?;
        Some((logs.iter().sum::<f64>() / logs.len() as f64).exp())
    };
    let measured: Vec<(String, f64)> =
        modes.filter_map(|mode| Some((mode.clone(), slowdown(&mode)?))).collect();
    let best = measured.iter().min_by(|one, other| one.1.total_cmp(&other.1))?;
    let figures: Vec<String> =
        measured.iter().map(|(mode, slowdown)| format!("{mode} {slowdown:.2}")).collect();
    let measurement = format!("thp: time over that under 'never': {}", figures.join(", "));
    let (value, why) = if best.1 * CLEAR > 1.0 {
        let why = "huge pages gain programs here nothing to speak of; 'madvise' leaves the choice to them";
        ("madvise".to_owned(), why.to_owned())
    } else if measured.iter().any(|(mode, slowdown)| mode == "madvise" && *slowdown < best.1 * CLEAR) {
        let why = "as fast as the best mode here, and programs that do not ask for huge pages waste no \
                   memory on them";
        ("madvise".to_owned(), why.to_owned())
    } else if best.0 == "defer" {
        let why = "programs are fastest with it here: huge pages at once where memory is whole, and later by \
                   khugepaged where it is not (enabled: always, defrag: defer)";
        ("always".to_owned(), why.to_owned())
    } else {
        (
            best.0.clone(),
            "programs are fastest with it here, also those that do not ask for huge pages".to_owned(),
        )
    };
    Some(advice(report, THP, value, why, measurement))
}

/// The shortest sleep at which khugepaged leaves the CPU to others.
fn promotion(report: &PhysicalReport) -> Option<Advice> {
    let time = panel(report, "khugepaged", khugepaged::TIME)?;
    let cpu = panel(report, "khugepaged", khugepaged::CPU)?;
    let of = |panel: &Panel, name: &str| panel.at(khugepaged::HERE, name);
    let rates = khugepaged::RATES
        .iter()
        .filter_map(|&(name, sleep_ms, _)| Some((name, sleep_ms, of(time, name)?, of(cpu, name)?)));
    let rates: Vec<_> = rates.collect();
    // Without sleep it scans for ever, also when there is nothing to promote.
    let mut asleep = rates.iter().filter(|rate| rate.1 > 0);
    let chosen = asleep.find(|rate| rate.3 <= MOST_DAEMON_PERCENT).or(rates.last())?;
    let figures: Vec<String> =
        rates.iter().map(|rate| format!("{} {:.2} s at {:.1}% CPU", rate.0, rate.2, rate.3)).collect();
    let why = format!(
        "the shortest sleep between scans of {} pages at which promoting takes at most \
         {MOST_DAEMON_PERCENT}% of a CPU; shorter ones promote sooner and cost programs their CPU",
        khugepaged::PAPER_PAGES
    );
    Some(advice(report, SLEEP, chosen.1.to_string(), why, format!("khugepaged: {}", figures.join(", "))))
}

/// How much it goes over between two sleeps: what the sleep was measured with.
fn scanned(report: &PhysicalReport) -> Option<Advice> {
    promotion(report)?;
    let pages = khugepaged::PAPER_PAGES;
    let why = "what the sleep above was measured with; the kernel's own 4096 pages promote 16 MiB a sleep";
    Some(advice(report, SCANNED, pages.to_string(), why.to_owned(), "khugepaged".to_owned()))
}

/// The watermarks must hold what programs allocate while the kernel begins to reclaim.
fn watermarks(report: &PhysicalReport) -> Option<Advice> {
    let rate = panel(report, "threads", threads::RATE)?;
    let fastest = rate.rows.iter().map(|row| row.value).max_by(f64::total_cmp)?;
    let needed_bytes = fastest * RECLAIM_MS * 1e6;
    let memory_bytes = report.machine.memory_bytes as f64;
    // In tenths of a per mille, as the file has it; the kernel's own is 10, and 1000 its most.
    let value = (needed_bytes / memory_bytes * 10_000.0).ceil().clamp(10.0, 1000.0);
    let why = format!(
        "all threads together allocate up to {fastest:.1} GB/s: so that they do not reclaim memory \
         themselves, {RECLAIM_MS} ms of that ({}) must be free between the watermarks while kswapd wakes up",
        size(needed_bytes as u64 >> 20 << 20)
    );
    let measurement =
        format!("threads: {fastest:.2} GB/s at the most, memory {}", size(report.machine.memory_bytes));
    Some(advice(report, WATERMARK, format!("{value:.0}"), why, measurement))
}

/// Whether it pays to keep memory whole in the background.
fn compaction(report: &PhysicalReport) -> Option<Advice> {
    let cost = panel(report, "capacity", capacity::COST)?;
    let all = |row: &super::report::Row| row.distribution.clone();
    let whole = cost.rows.iter().rfind(|row| row.series == capacity::WHOLE).and_then(all)?;
    let fragmented = cost.rows.iter().rfind(|row| row.series != capacity::WHOLE).and_then(all)?;
    let ratio = fragmented.p99 / whole.p99.max(1.0);
    let (value, why) = if ratio > 2.0 {
        (
            "40",
            "a huge page from fragmented memory stalls its thread: have the kernel make memory whole in the \
             background",
        )
    } else {
        ("20", "fragmentation costs huge pages little here: the kernel's default will do")
    };
    let measurement = format!(
        "capacity: 99th percentile of 2 MiB {:.0} us where half of fragmented memory is free, {:.0} us where \
         memory is whole",
        fragmented.p99 / 1000.0,
        whole.p99 / 1000.0
    );
    Some(advice(report, PROACTIVENESS, value.to_owned(), why.to_owned(), measurement))
}

/// The fewest threads that get as much memory as any.
fn allocators(report: &PhysicalReport) -> Option<Advice> {
    let rate = panel(report, "threads", threads::RATE)?;
    let of_base: Vec<(u64, f64)> = rate
        .rows
        .iter()
        .filter(|row| row.case.get("page_bytes") == Some(&BASE_BYTES))
        .filter_map(|row| Some((*row.case.get("threads")?, row.value)))
        .collect();
    let most = of_base.iter().map(|&(_, rate)| rate).max_by(f64::total_cmp)?;
    let (count, _) = of_base.iter().find(|&&(_, rate)| rate >= AS_GOOD * most)?;
    let figures: Vec<String> =
        of_base.iter().map(|(threads, rate)| format!("{threads}: {rate:.2} GB/s")).collect();
    let why = "the fewest threads that get as much memory a second as any number: more of them only wait for \
               each other";
    let measurement = format!("threads, 4 KiB: {}", figures.join(", "));
    Some(advice(report, "threads that allocate at once", count.to_string(), why.to_owned(), measurement))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::machine::Machine;

    /// A report with these panels.
    pub fn report(panels: Vec<(&str, Panel)>) -> PhysicalReport {
        let experiments =
            panels.into_iter().fold(Vec::<ExperimentReport>::new(), |mut all, (name, panel)| {
                match all.iter_mut().find(|experiment| experiment.name == name) {
                    Some(experiment) => experiment.panels.push(panel),
                    None => all.push(ExperimentReport {
                        name: name.to_owned(),
                        panels: vec![panel],
                        ..ExperimentReport::default()
                    }),
                }
                all
            });
        PhysicalReport {
            machine: Machine { memory_bytes: 10 << 30, ..Machine::this() },
            settings: [(THP.to_owned(), "madvise".to_owned())].into(),
            tiers: vec!["node 0".to_owned()],
            quick: true,
            clock_ns: 30.0,
            experiments,
            left_out: Vec::new(),
            advice: Vec::new(),
        }
    }

    fn modes(title: &str, times: [f64; 4]) -> Panel {
        let mut panel = Panel::new(title, "ns");
        let names = ["never", "madvise", "defer", "always"];
        names.iter().zip(times).for_each(|(name, time)| panel.value("this machine", name, &[], time));
        panel
    }

    fn mode(bfs: [f64; 4], memcached: [f64; 4]) -> Advice {
        let panels = vec![("thp", modes(thp::BFS, bfs)), ("thp", modes(thp::MEMCACHED, memcached))];
        of(&report(panels)).remove(0)
    }

    #[test]
    fn the_mode_of_huge_pages_is_the_fastest_unless_asking_is_as_good() {
        let chosen = mode([10.0, 9.9, 9.0, 7.0], [10.0, 10.0, 9.0, 7.0]);
        assert_eq!((chosen.value.as_str(), chosen.now.as_deref()), ("always", Some("madvise")));
        assert!(chosen.measurement.contains("always 0.70"), "{chosen:?}");
        assert_eq!(mode([10.0, 7.1, 9.0, 7.0], [10.0, 7.0, 9.0, 7.0]).value, "madvise");
        let nothing = mode([10.0, 10.0, 10.0, 9.9], [10.0, 10.0, 10.0, 10.0]);
        assert!(nothing.value == "madvise" && nothing.why.contains("nothing to speak of"), "{nothing:?}");
        assert!(mode([10.0, 10.0, 7.0, 9.0], [10.0, 10.0, 7.0, 9.0]).why.contains("defrag: defer"));
    }

    #[test]
    fn khugepaged_scans_as_often_as_leaves_the_cpu_free() {
        let (mut time, mut cpu) = (Panel::new(khugepaged::TIME, "s"), Panel::new(khugepaged::CPU, "%"));
        for ((name, _, _), (seconds, percent)) in
            khugepaged::RATES.into_iter().zip([(1.0, 5.0), (2.0, 9.0), (10.0, 1.0), (100.0, 0.1)])
        {
            time.value(khugepaged::HERE, name, &[], seconds);
            cpu.value(khugepaged::HERE, name, &[], percent);
        }
        let all = of(&report(vec![("khugepaged", time), ("khugepaged", cpu)]));
        assert_eq!((all[1].setting.as_str(), all[1].value.as_str()), (SCANNED, "1000000"));
        let chosen = &all[0];
        assert_eq!(chosen.value, "100");
        assert!(chosen.measurement.contains("unlimited 1.00 s at 5.0% CPU"), "{chosen:?}");
    }

    #[test]
    fn watermarks_and_allocators_follow_from_the_rate_of_allocation() {
        let mut rate = Panel::new(threads::RATE, "GB/s");
        for (count, value) in [(1, 2.0), (2, 3.9), (4, 4.0), (8, 3.0)] {
            rate.value("4 KiB", &count.to_string(), &[("page_bytes", 4096), ("threads", count)], value);
        }
        let all = of(&report(vec![("threads", rate)]));
        // 4 GB/s for 20 ms are 80 MB, of 10 GiB 0.745%.
        assert_eq!((all[0].setting.as_str(), all[0].value.as_str()), (WATERMARK, "75"));
        assert_eq!(all[1].value, "2");
    }

    #[test]
    fn without_measurements_there_is_no_advice() {
        assert!(of(&report(Vec::new())).is_empty());
    }
}
