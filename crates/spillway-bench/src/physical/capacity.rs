//! What a huge page costs where memory is whole and where it is fragmented, with more and more memory.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use spillway_report::distribution::Distribution;
use spillway_sys::mapping::Advise;

use super::bytes::size;
use super::experiment::Experiment;
use super::pages::{BASE_BYTES, HUGE_BYTES, Pages};
use super::report::{ExperimentReport, Panel, in_times, times};
use super::stage::{Stage, empty_bytes, meminfo};
use super::tier::Region;
use crate::BenchError;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    paper: "4.6, Fig. 10",
    about: "what a huge page costs where memory is whole, and where it is fragmented",
    does,
    run: measure,
};

/// Title of the panel of costs.
pub const COST: &str = "First touch of 2 MiB";
/// Title of the panel of how often there was a huge page.
pub const GOT: &str = "Huge pages that the kernel found";
/// Memory that is not fragmented.
pub const WHOLE: &str = "whole";

const DIRECTORY: &str = "/sys/kernel/mm/transparent_hugepage";
const PAGES: usize = (HUGE_BYTES / BASE_BYTES) as usize;
/// What is left of a case after so long is not measured.
const LONGEST: Duration = Duration::from_secs(30);

/// How memory is fragmented: which pages of each 2 MiB stay taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pattern {
    name: &'static str,
    /// Every so many pages one stays.
    one_in: usize,
}

const PATTERNS: [Pattern; 2] = [
    Pattern { name: "fragmented, 99% free", one_in: PAGES },
    Pattern { name: "fragmented, 50% free", one_in: 2 },
];

fn does(stage: &Stage<'_>) -> String {
    let (least, most) = (capacities(stage)[0], capacities(stage)[capacities(stage).len() - 1]);
    format!(
        "takes every free 2 MiB of the machine and gives back at once all but one page of each, then half of \
         the pages, so that no 2 MiB are free in one piece: {} to {} of memory, of which half stays free for \
         others; they get no huge pages meanwhile, and the kernel moves pages",
        size(least),
        size(most)
    )
}

/// How much memory is not taken away, from little to all.
fn capacities(stage: &Stage<'_>) -> Vec<u64> {
    let empty = empty_bytes() / HUGE_BYTES * HUGE_BYTES;
    let parts: &[u64] = if stage.quick { &[2, 4] } else { &[1, 2, 3, 4] };
    parts.iter().map(|part| empty / 4 * part / HUGE_BYTES * HUGE_BYTES).collect()
}

fn measure(stage: &Stage<'_>, report: &mut ExperimentReport) -> Result<(), BenchError> {
    report.method = Some(
        "memory beyond a capacity is held in whole huge pages, where the paper takes it offline; the kernel \
         zeroes each page, which the paper leaves out"
            .to_owned(),
    );
    let capacities = capacities(stage);
    let total = capacities.len() * (1 + PATTERNS.len());
    let (mut cost, mut got) = (Panel::new(COST, "ns"), Panel::new(GOT, "%"));
    for (at, &capacity) in capacities.iter().enumerate() {
        for which in 0..=PATTERNS.len() {
            let pattern = which.checked_sub(1).map(|pattern| PATTERNS[pattern]);
            let series = pattern.map_or(WHOLE, |pattern| pattern.name);
            stage.step(series, at * (1 + PATTERNS.len()) + which, total)?;
            let what = format!("{series}, {}", size(capacity));
            let measured = one(stage, capacity, pattern);
            stage.settings.restore();
            let Some((touched_ns, percent)) = report.attempt(&what, measured)? else { continue };
            let case = [("capacity_bytes", capacity), ("page_bytes", HUGE_BYTES)];
            let point = size(capacity >> 20 << 20);
            got.value(series, &point, &case, percent);
            cost.distribution(series, &point, &case, Distribution::of(touched_ns));
        }
    }
    report.panels.extend([cost, got]);
    claim(report);
    Ok(())
}

/// Times of the touches, and the share of them that got a huge page.
fn one(stage: &Stage<'_>, capacity: u64, pattern: Option<Pattern>) -> Result<(Vec<u64>, f64), BenchError> {
    Pages::Transparent(HUGE_BYTES).prepare(&stage.settings, 0)?;
    stage.settings.set(format!("{DIRECTORY}/enabled"), "madvise")?;
    // The kernel is not to mend in the background what is broken here.
    if super::settings::read("/proc/sys/vm/compaction_proactiveness").is_ok() {
        stage.settings.set("/proc/sys/vm/compaction_proactiveness", "0")?;
    }
    stage.settings.set(format!("{DIRECTORY}/defrag"), "never")?;
    let mut taken = Taken::new(stage, meminfo("MemFree").unwrap_or(0))?;
    taken.hold(stage, empty_bytes().saturating_sub(capacity))?;
    let free = match pattern {
        Some(pattern) => taken.break_all(stage, pattern)?,
        None => capacity,
    };
    let wanted = stage.amount(256 << 20, 2 << 30).min(free / 4) / HUGE_BYTES * HUGE_BYTES;
    stage.settings.set(format!("{DIRECTORY}/defrag"), "madvise")?;
    touch(stage, wanted)
}

/// Huge pages that were free. What is taken to be broken up is broken up at once: others have free memory at
/// every moment.
struct Taken {
    region: Region,
    /// Where the next one goes.
    next: usize,
    process: OwnedFd,
}

impl Taken {
    /// Takes nothing yet, and at most `bytes`.
    fn new(stage: &Stage<'_>, bytes: u64) -> Result<Self, BenchError> {
        let bytes = (bytes / HUGE_BYTES).max(1) * HUGE_BYTES;
        let region = stage.tiers[0].map(Pages::Transparent(HUGE_BYTES), bytes)?;
        let own = rustix::process::getpid();
        let process = rustix::process::pidfd_open(own, rustix::process::PidfdFlags::empty())
            .map_err(|error| BenchError::setup("open itself", error, "use Linux 5.3 or later"))?;
        Ok(Self { region, next: 0, process })
    }

    /// One more, unless no whole one is free.
    fn take(&mut self, stage: &Stage<'_>) -> Result<Option<usize>, BenchError> {
        stage.check()?;
        let offset = self.next;
        if offset >= self.region.mapping.bytes() {
            return Ok(None);
        }
        let fallbacks = || Pages::Transparent(HUGE_BYTES).given().map_or(0, |(_, fallbacks)| fallbacks);
        let before = fallbacks();
        self.region.mapping.touch(offset);
        if fallbacks() > before {
            self.region.free(offset, HUGE_BYTES as usize)?;
            return Ok(None);
        }
        self.next += HUGE_BYTES as usize;
        Ok(Some(offset))
    }

    /// Takes `bytes` and keeps them whole.
    fn hold(&mut self, stage: &Stage<'_>, bytes: u64) -> Result<(), BenchError> {
        for _ in 0..bytes / HUGE_BYTES {
            if self.take(stage)?.is_none() {
                break;
            }
        }
        Ok(())
    }

    /// Breaks up all that is free and whole. Returns how many bytes of it are free.
    fn break_all(&mut self, stage: &Stage<'_>, pattern: Pattern) -> Result<u64, BenchError> {
        let mut freed = 0;
        while let Some(offset) = self.take(stage)? {
            freed += self.break_up(offset, pattern)?;
        }
        Ok(freed)
    }

    fn break_up(&self, offset: usize, pattern: Pattern) -> Result<u64, BenchError> {
        let base = BASE_BYTES as usize;
        // Part of a huge page would otherwise stay with the whole until memory is short.
        let split = self.region.mapping.advise(offset, base, Advise::Cold);
        split.map_err(|error| BenchError::setup("split a huge page", error, "use Linux 5.4 or later"))?;
        if pattern.one_in == PAGES {
            self.region.free(offset + base, HUGE_BYTES as usize - base)?;
            return Ok(HUGE_BYTES - BASE_BYTES);
        }
        let given =
            (0..PAGES).filter(|page| !page.is_multiple_of(pattern.one_in)).map(|page| offset + page * base);
        let count = given.clone().count() as u64;
        if self.region.mapping.discard_pages(&self.process, given) {
            Ok(count * BASE_BYTES)
        } else {
            Err(BenchError::setup("give back single pages", "the kernel refuses", "see what 'dmesg' says"))
        }
    }
}

/// Times of first touches of `bytes` in huge pages, and how many percent of them were huge.
fn touch(stage: &Stage<'_>, bytes: u64) -> Result<(Vec<u64>, f64), BenchError> {
    let huge = Pages::Transparent(HUGE_BYTES);
    let region = stage.tiers[0].map(huge, bytes.max(HUGE_BYTES))?;
    let before = huge.given().unwrap_or_default();
    let started = Instant::now();
    let mut touched_ns = Vec::new();
    for offset in (0..region.mapping.bytes()).step_by(HUGE_BYTES as usize) {
        stage.check()?;
        let begun = Instant::now();
        region.mapping.touch(offset);
        touched_ns.push(begun.elapsed().as_nanos() as u64);
        if started.elapsed() > LONGEST {
            break;
        }
    }
    let after = huge.given().unwrap_or_default();
    let (given, fallbacks) = (after.0 - before.0, after.1 - before.1);
    Ok((touched_ns, given as f64 * 100.0 / (given + fallbacks).max(1) as f64))
}

fn claim(report: &mut ExperimentReport) {
    let cost = report.panels[0].clone();
    let Some(most) = cost.rows.iter().rev().find(|row| row.series == WHOLE).map(|row| row.point.clone())
    else {
        return;
    };
    let all = |series: &str| cost.row(series, &most)?.distribution.clone();
    let whole = all(WHOLE);
    for (pattern, median, tail) in [(PATTERNS[0], "unaffected", "7393x"), (PATTERNS[1], "12495x", "11740x")] {
        let fragmented = all(pattern.name);
        let of = |value: fn(&Distribution) -> f64| {
            times(fragmented.as_ref().map(value), whole.as_ref().map(value))
        };
        let what = |which: &str| format!("{}, {which}, over whole memory's", pattern.name);
        report.beside(&what("median"), None, Some(median), in_times(of(|all| all.p50)));
        report.beside(&what("99th percentile"), None, Some(tail), in_times(of(|all| all.p99)));
        let mean = of(|all| all.mean);
        let text = format!("{}: mean cost over whole memory's, times", pattern.name);
        report.at_least(&text, "Fig. 10", mean, 1.0);
    }
    report.notes.push(
        "the paper's ratios leave zeroing out, which makes them larger; a touch that got no huge page took \
         the kernel's attempt to make one, and a small page"
            .to_owned(),
    );
}
