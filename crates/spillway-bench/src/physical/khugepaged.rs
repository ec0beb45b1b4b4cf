//! How long khugepaged takes to promote a region to huge pages, and the CPU that it takes for it.

use std::fs;
use std::time::{Duration, Instant};

use spillway_report::claim::Asks;
use spillway_sys::mapping::Advise;

use super::bytes::size;
use super::experiment::Experiment;
use super::pages::{BASE_BYTES, HUGE_BYTES, Pages};
use super::report::{ExperimentReport, Panel, in_times, times};
use super::stage::Stage;
use crate::BenchError;

/// The experiment behind `bench physical khugepaged`.
pub const EXPERIMENT: Experiment = Experiment {
    paper: "4.7, Table 1",
    about: "how long khugepaged takes to promote a region at four scan rates, and its CPU",
    does,
    run: measure,
};

/// Title of the panel of times.
pub const TIME: &str = "Time to promote the region";
/// Title of the panel of CPU times.
pub const CPU: &str = "CPU of khugepaged meanwhile";
/// Name of the only series: measurements made here.
pub const HERE: &str = "this machine";

const DIRECTORY: &str = "/sys/kernel/mm/transparent_hugepage";
/// Pages that the paper's khugepaged goes over in a scan.
pub const PAPER_PAGES: u64 = 1_000_000;
/// What it promotes, in bytes.
const PAPER_BYTES: f64 = 1.4e12;
/// The paper's rates: name, sleep between scans, and times on Optane for 1.4 TB.
pub const RATES: [(&str, u64, &str); 4] = [
    ("unlimited", 0, "26 min"),
    ("high", 100, "2.08 h"),
    ("moderate", 1000, "6.9 h"),
    ("default", 10_000, "21.4 h"),
];
/// The same times, in seconds.
const PAPER_S: [f64; 4] = [26.0 * 60.0, 2.08 * 3600.0, 6.9 * 3600.0, 21.4 * 3600.0];
/// So much promoted is all: khugepaged leaves what is not aligned.
const ALL: f64 = 0.98;
/// From less nothing can be concluded.
const LEAST: f64 = 0.05;

fn region_bytes(stage: &Stage<'_>) -> u64 {
    stage.amount(256 << 20, 2 << 30)
}

/// A region of this size cannot be gone over in many scans of a million pages. So a scan is this many percent
/// of one, and so is the sleep after it: pages a second are the paper's.
fn part_percent(stage: &Stage<'_>) -> u64 {
    stage.amount(2, 6)
}

fn scanned_pages(stage: &Stage<'_>) -> u64 {
    PAPER_PAGES * part_percent(stage) / 100
}

/// The sleep here that stands for one of the paper's.
fn sleep_here_ms(stage: &Stage<'_>, paper_ms: u64) -> u64 {
    paper_ms * part_percent(stage) / 100
}

/// In how many scans the kernel goes over the region.
fn scans(stage: &Stage<'_>) -> u64 {
    (region_bytes(stage) / BASE_BYTES).div_ceil(scanned_pages(stage))
}

fn does(stage: &Stage<'_>) -> String {
    format!(
        "fills {} of memory with 4 KiB pages and has khugepaged promote them, at four scan rates: sets \
         khugepaged and huge pages for the whole machine for up to {} s",
        size(stage.allowed(region_bytes(stage))),
        RATES.iter().map(|&(_, sleep_ms, _)| limit(stage, sleep_ms).as_secs()).sum::<u64>()
    )
}

/// What is not promoted then is extrapolated.
fn limit(stage: &Stage<'_>, sleep_ms: u64) -> Duration {
    Duration::from_millis(sleep_here_ms(stage, sleep_ms) * (scans(stage) + 1))
        + Duration::from_secs(stage.amount(5, 20))
}

/// How one rate went.
struct Promoted {
    seconds: f64,
    cpu_seconds: f64,
    share: f64,
}

fn measure(stage: &Stage<'_>, report: &mut ExperimentReport) -> Result<(), BenchError> {
    let bytes = stage.memory(region_bytes(stage), 2, HUGE_BYTES)?;
    let (mut time, mut cpu) = (Panel::new(TIME, "s"), Panel::new(CPU, "% of one CPU"));
    for (at, (name, sleep_ms, optane)) in RATES.into_iter().enumerate() {
        stage.step(name, at, RATES.len())?;
        let done = promote(stage, bytes, sleep_ms)?;
        stage.settings.restore();
        if done.share < LEAST {
            let reason = format!(
                "{:.0}% promoted in {:.0} s: khugepaged scans the memory of all programs that ask for huge \
                 pages; end them",
                done.share * 100.0,
                done.seconds
            );
            report.leave_out(name, reason);
            continue;
        }
        let case = [("sleep_ms", sleep_ms), ("bytes", bytes)];
        let whole = done.seconds / done.share;
        time.value(HERE, name, &case, whole);
        cpu.value(HERE, name, &case, done.cpu_seconds * 100.0 / done.seconds.max(1e-9));
        if done.share < ALL {
            let percent = done.share * 100.0;
            report
                .notes
                .push(format!("{name}: {percent:.0}% promoted in {:.0} s, extrapolated", done.seconds));
        }
        let hours = whole * PAPER_BYTES / bytes as f64 / 3600.0;
        let here = format!("{whole:.2} s for {}, so {hours:.2} h for 1.4 TB", size(bytes));
        report.beside(
            &format!("{name} (sleep {sleep_ms} ms)"),
            None,
            Some(&format!("{optane} for 1.4 TB")),
            Some(here),
        );
    }
    for ((name, ..), paper_s) in RATES.into_iter().zip(PAPER_S).skip(1) {
        let slower = times(time.at(HERE, name), time.at(HERE, RATES[0].0));
        let paper = paper_s / PAPER_S[0];
        let text = format!("the time of '{name}' over that without sleep, times");
        report.sized(&text, &format!("{paper:.1}x on Optane"), Asks::Larger, paper, slower);
        report.beside(
            &format!("{name} over unlimited"),
            None,
            Some(&format!("{paper:.1}x")),
            in_times(slower),
        );
    }
    report.notes.push(format!(
        "the paper's rates: a million pages a scan. A scan is {}% of that here, so is the sleep after it: \
         pages a second are the same; the kernel's own scan is 4096 pages",
        part_percent(stage)
    ));
    report.panels.extend([time, cpu]);
    Ok(())
}

fn promote(stage: &Stage<'_>, bytes: u64, sleep_ms: u64) -> Result<Promoted, BenchError> {
    let set = |file: &str, value: &str| stage.settings.set(format!("{DIRECTORY}/{file}"), value);
    Pages::Transparent(HUGE_BYTES).prepare(&stage.settings, 0)?;
    set("enabled", "madvise")?;
    set("khugepaged/pages_to_scan", &scanned_pages(stage).to_string())?;
    // Asleep until the region is there.
    set("khugepaged/scan_sleep_millisecs", "1000000")?;
    let daemon = daemon()?;
    let region = stage.tiers[0].map(Pages::Base, bytes)?;
    for offset in (0..bytes as usize).step_by(BASE_BYTES as usize) {
        region.mapping.touch(offset);
        if offset.is_multiple_of(64 << 20) {
            stage.check()?;
        }
    }
    let before_bytes = huge_bytes();
    let advised = region.mapping.advise(0, bytes as usize, Advise::Huge);
    advised.map_err(|error| BenchError::setup("ask for huge pages", error, "use a kernel that has them"))?;
    let cpu_before = daemon.cpu_seconds();
    let started = Instant::now();
    // Wakes it.
    set("khugepaged/scan_sleep_millisecs", &sleep_here_ms(stage, sleep_ms).to_string())?;
    loop {
        stage.check()?;
        let share = huge_bytes().saturating_sub(before_bytes) as f64 / bytes as f64;
        let seconds = started.elapsed().as_secs_f64();
        if share >= ALL || started.elapsed() > limit(stage, sleep_ms) {
            let cpu_seconds = daemon.cpu_seconds() - cpu_before;
            return Ok(Promoted { seconds, cpu_seconds, share: share.min(1.0) });
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Huge pages of this process.
fn huge_bytes() -> u64 {
    let text = fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let kib = text.lines().find_map(|line| line.strip_prefix("AnonHugePages:"));
    kib.and_then(|kib| kib.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) << 10
}

/// The kernel's thread khugepaged, by its pid.
struct Daemon(u32);

fn daemon() -> Result<Daemon, BenchError> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_it = |process: &u32| {
        fs::read_to_string(format!("/proc/{process}/comm")).is_ok_and(|name| name.trim() == "khugepaged")
    };
    let found = numbers.find(is_it);
    let missing = || BenchError::setup("find khugepaged", "no such thread", "measure outside of a container");
    found.map(Daemon).ok_or_else(missing)
}

impl Daemon {
    /// CPU time that it has taken since the kernel started.
    fn cpu_seconds(&self) -> f64 {
        let read = |file: &str| fs::read_to_string(format!("/proc/{}/{file}", self.0)).unwrap_or_default();
        // Nanoseconds, where the kernel counts them.
        let exact = read("schedstat").split_whitespace().next().and_then(|ns| ns.parse::<u64>().ok());
        if let Some(ns) = exact.filter(|&ns| ns > 0) {
            return ns as f64 / 1e9;
        }
        let stat = read("stat");
        // After the name, which may hold spaces: user and system time are the 12th and 13th.
        let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
        let ticks: u64 = fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
        ticks as f64 / rustix::param::clock_ticks_per_second() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::super::stage::tests::quick_stage;
    use super::*;

    #[test]
    fn pages_a_second_are_the_papers_and_each_sleep_is_a_whole_number() {
        quick_stage(|stage| {
            for (name, paper_ms, _) in RATES {
                let (here, pages) = (sleep_here_ms(stage, paper_ms), scanned_pages(stage));
                assert_eq!(here * PAPER_PAGES, paper_ms * pages, "{name}");
            }
            assert!(scans(stage) > 2, "sleeps must show");
        });
        assert!(PAPER_S.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
