//! What a huge page costs where memory is whole and where it is fragmented, with more and more memory.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use spillway_report::claim::Asks;
use spillway_report::distribution::Distribution;
use spillway_sys::mapping::Advise;

use super::bytes::size;
use super::experiment::Experiment;
use super::pages::{BASE_BYTES, HUGE_BYTES, Pages};
use super::profile::{Counts, Whose, profile};
use super::report::{ExperimentReport, Panel, in_times, times};
use super::stage::{Stage, empty_bytes, meminfo};
use super::tier::Region;
use crate::BenchError;

/// The experiment behind `bench physical capacity`.
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
/// Title of the panel of what zeroing takes of it, and what the rest does.
pub const PARTS: &str = "First touch of 2 MiB by samples, mean";
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
         zeroes each page, which the paper leaves out: samples of every 100 us of CPU time tell how much of \
         a touch that is"
            .to_owned(),
    );
    let capacities = capacities(stage);
    let total = capacities.len() * (1 + PATTERNS.len());
    let (mut cost, mut got) = (Panel::new(COST, "ns"), Panel::new(GOT, "%"));
    let mut parts = Panel::new(PARTS, "ns");
    for (at, &capacity) in capacities.iter().enumerate() {
        for which in 0..=PATTERNS.len() {
            let pattern = which.checked_sub(1).map(|pattern| PATTERNS[pattern]);
            let series = pattern.map_or(WHOLE, |pattern| pattern.name);
            stage.step(series, at * (1 + PATTERNS.len()) + which, total)?;
            let what = format!("{series}, {}", size(capacity));
            let measured = one(stage, capacity, pattern);
            stage.settings.restore();
            let Some((touched, counts)) = report.attempt(&what, measured)? else { continue };
            let Touched { touched_ns, percent } = touched;
            let case = [("capacity_bytes", capacity), ("page_bytes", HUGE_BYTES)];
            let point = size(capacity >> 20 << 20);
            got.value(series, &point, &case, percent);
            if let Some(counts) = report.attempt("without zeroing", counts)? {
                let each = |samples: u64| Counts::time_ns(samples) / touched_ns.len().max(1) as f64;
                let rest = counts.fault_finding + counts.fault_rest;
                parts.value(&zeroing(series), &point, &case, each(counts.fault_zeroing));
                parts.value(&without(series), &point, &case, each(rest));
            }
            cost.distribution(series, &point, &case, Distribution::of(touched_ns));
        }
    }
    report.panels.extend([cost, got]);
    if !parts.rows.is_empty() {
        report.panels.push(parts);
    }
    claim(report);
    Ok(())
}

/// Name of the series of what zeroing takes.
fn zeroing(series: &str) -> String {
    format!("{series}: zeroing")
}

/// Name of the series of what the rest takes.
fn without(series: &str) -> String {
    format!("{series}: without zeroing")
}

/// What the touches of a case took.
struct Touched {
    /// Each of them, in nanoseconds.
    touched_ns: Vec<u64>,
    /// How many percent of them got a huge page.
    percent: f64,
}

/// What the touches took, and what went on meanwhile; an error of its own where there are no samples.
type Sampled = (Touched, Result<Counts, BenchError>);

/// The touches of one case.
fn one(stage: &Stage<'_>, capacity: u64, pattern: Option<Pattern>) -> Result<Sampled, BenchError> {
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
    match profile(stage, Whose::Ours, || touch(stage, wanted)) {
        Ok((touched, counts)) => Ok((touched, Ok(counts))),
        Err(BenchError::Interrupted) => Err(BenchError::Interrupted),
        // Nothing was touched yet where samples cannot be taken; whatever else is wrong comes again.
        Err(error) => Ok((touch(stage, wanted)?, Err(error))),
    }
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
fn touch(stage: &Stage<'_>, bytes: u64) -> Result<Touched, BenchError> {
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
    Ok(Touched { touched_ns, percent: given as f64 * 100.0 / (given + fallbacks).max(1) as f64 })
}

fn claim(report: &mut ExperimentReport) {
    let cost = report.panels[0].clone();
    let Some(most) = cost.rows.iter().rev().find(|row| row.series == WHOLE).map(|row| row.point.clone())
    else {
        return;
    };
    let all = |series: &str| cost.row(series, &most)?.distribution.clone();
    let whole = all(WHOLE);
    let parts = report.panel(PARTS).cloned();
    let part = |series: String| parts.as_ref()?.at(&series, &most);
    // What a touch of whole memory takes without zeroing: what the paper's ratios are of.
    let whole_ns = part(without(WHOLE));
    for (pattern, median, tail) in [(PATTERNS[0], 1.0, 7393.0), (PATTERNS[1], 12495.0, 11740.0)] {
        let (name, fragmented) = (pattern.name, all(pattern.name));
        let of = |value: fn(&Distribution) -> f64| {
            times(fragmented.as_ref().map(value), whole.as_ref().map(value))
        };
        let left = |value: fn(&Distribution) -> f64| {
            let rest = fragmented.as_ref().map(value)? - part(zeroing(name))?;
            times(Some(rest.max(0.0)), whole_ns)
        };
        let what = |which: &str| format!("{name}, {which}, over whole memory's");
        let in_paper =
            |number: f64| if number == 1.0 { "unaffected".to_owned() } else { format!("{number}x") };
        report.beside(&what("median"), None, Some(&in_paper(median)), in_times(of(|all| all.p50)));
        report.beside(&what("99th percentile"), None, Some(&in_paper(tail)), in_times(of(|all| all.p99)));
        let text = |which: &str| format!("{}, times", what(which));
        if median == 1.0 {
            // What zeroing takes is most of a median touch, and its spread more than the rest.
            report.claim(&text("median"), "unaffected", Asks::NoMore(1.0), of(|all| all.p50));
        } else {
            let claimed = text("median without zeroing");
            report.sized(&claimed, &in_paper(median), Asks::Larger, median, left(|all| all.p50));
        }
        let claimed = text("99th percentile without zeroing");
        report.sized(&claimed, &in_paper(tail), Asks::Larger, tail, left(|all| all.p99));
    }
    report.notes.push(
        "the paper's ratios leave zeroing out, which makes them larger: so do the claims, by the samples' \
         mean; a touch that got no huge page took the kernel's attempt to make one, and a small page"
            .to_owned(),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_leave_out_what_zeroing_takes() {
        let (mut cost, mut parts) = (Panel::new(COST, "ns"), Panel::new(PARTS, "ns"));
        for (series, ns, zeroing_ns, rest_ns) in [
            (WHOLE, 250, 240.0, 10.0),
            (PATTERNS[0].name, 255, 240.0, 12.0),
            (PATTERNS[1].name, 2240, 240.0, 2000.0),
        ] {
            cost.distribution(series, "1 GiB", &[], Distribution::of(vec![ns; 9]));
            parts.value(&zeroing(series), "1 GiB", &[], zeroing_ns);
            parts.value(&without(series), "1 GiB", &[], rest_ns);
        }
        let mut report = ExperimentReport { panels: vec![cost, parts], ..ExperimentReport::default() };
        claim(&mut report);
        let found: Vec<(bool, f64)> =
            report.claims.iter().map(|claim| (claim.direction, claim.value)).collect();
        assert_eq!(found, [(true, 1.02), (true, 1.5), (true, 200.0), (true, 200.0)], "{report:?}");
        assert!(report.claims[3].size == Some(false) && report.claims[0].size.is_none());
        // Without samples what cannot be said is not said.
        report.panels.pop();
        report.claims.clear();
        claim(&mut report);
        assert_eq!(report.claims.len(), 1);
    }
}
