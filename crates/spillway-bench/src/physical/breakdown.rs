//! What a first touch consists of: finding a page, zeroing it, the rest.

use std::time::Instant;

use spillway_report::claim::Asks;

use super::alloc::{ALONE, ON_ALL};
use super::bytes::size;
use super::experiment::Experiment;
use super::pages::{BASE_BYTES, HUGE_BYTES, Pages};
use super::profile::{Counts, Whose, profile};
use super::report::{ExperimentReport, Panel, times};
use super::stage::Stage;
use super::tier::Tier;
use super::touch::{Action, Case, run};
use crate::BenchError;

/// The experiment behind `bench physical breakdown`.
pub const EXPERIMENT: Experiment = Experiment {
    paper: "4.2, Fig. 5, 6",
    about: "what a first touch consists of: finding a page, zeroing it, the rest",
    does,
    run: measure,
};

/// What a first touch consists of.
pub const PARTS: [&str; 3] = ["finding", "zeroing", "the rest"];

const BY_SAMPLES: &str = "sampled: the kernel looks every 100 us of CPU time what it does (software clock of \
                          perf_event); the call chain tells finding (page allocator), zeroing (clear_page) \
                          and the rest of the fault";
const BY_DIFFERENCE: &str = "by difference of paired runs, for this user may not sample the kernel: zeroing \
                             is what writing zeros to memory that is there takes, the rest is a fault that \
                             reads (it maps the page of zeros that all share, or a page that the file has), \
                             and finding is what is left of the first touch";

fn does(stage: &Stage<'_>) -> String {
    format!(
        "takes up to {} of memory at a time and gives it back; has the kernel offer huge pages of one size \
         after the other; samples what the CPUs do meanwhile",
        size(stage.allowed(bytes_each(stage) * stage.cpus.len() as u64))
    )
}

fn bytes_each(stage: &Stage<'_>) -> u64 {
    stage.amount(128 << 20, 1 << 30)
}

/// Title of a panel.
pub fn title(series: &str) -> String {
    format!("A first touch, {series}")
}

fn measure(stage: &Stage<'_>, report: &mut ExperimentReport) -> Result<(), BenchError> {
    let may_sample = profile(stage, Whose::Ours, || Ok(()));
    let by_samples = report.attempt("sampling", may_sample)?.is_some();
    report.method = Some(if by_samples { BY_SAMPLES } else { BY_DIFFERENCE }.to_owned());
    for tier in &stage.tiers {
        of_tier(stage, tier, by_samples, report)?;
    }
    claim(report);
    Ok(())
}

fn of_tier(
    stage: &Stage<'_>,
    tier: &Tier,
    by_samples: bool,
    report: &mut ExperimentReport,
) -> Result<(), BenchError> {
    let wanted: Vec<Pages> = tier
        .has(&Pages::offered())
        .into_iter()
        .filter(|pages| !matches!(pages, Pages::Reserved(bytes) if *bytes > HUGE_BYTES))
        .collect();
    let scenarios = [(ALONE, 1), (ON_ALL, stage.cpus.len())];
    let total = scenarios.len() * wanted.len();
    for (which, (series, threads)) in scenarios.into_iter().enumerate() {
        let name = stage.title(&title(series), tier);
        let mut panel = Panel { stacked: true, ..Panel::new(name, "ns per page") };
        for (at, &pages) in wanted.iter().enumerate() {
            stage.step(&pages.name(), which * wanted.len() + at, total)?;
            let parts = if by_samples {
                sampled(stage, tier, pages, threads)
            } else {
                by_difference(stage, tier, pages, threads)
            };
            stage.settings.restore();
            if let Some(parts) = report.attempt(&pages.name(), parts)? {
                let case = [("page_bytes", pages.bytes()), ("threads", threads as u64)];
                for (part, ns) in PARTS.iter().zip(parts) {
                    panel.value(part, &pages.name(), &case, ns);
                }
            }
        }
        report.panels.push(panel);
    }
    Ok(())
}

/// Nanoseconds a page for each of [`PARTS`].
fn sampled(stage: &Stage<'_>, tier: &Tier, pages: Pages, threads: usize) -> Result<[f64; 3], BenchError> {
    let bytes = stage.memory(bytes_each(stage), threads as u64, pages.bytes())?;
    let case = Case { tier, pages, threads, bytes, action: Action::Touch, cpus: &[] };
    let mut touched = 0;
    let least_ns = stage.amount(100_000_000, 2_000_000_000);
    let ((), counts) = profile(stage, Whose::Ours, || {
        let mut cpu_ns = 0;
        // Enough samples for shares of a hundredth.
        while cpu_ns < least_ns {
            let timed = run(stage, &case)?;
            touched += timed.latencies_ns.len();
            cpu_ns += timed.cpu_ns;
        }
        Ok(())
    })?;
    let per_page = |samples: u64| Counts::time_ns(samples) / touched.max(1) as f64;
    Ok([counts.fault_finding, counts.fault_zeroing, counts.fault_rest].map(per_page))
}

fn by_difference(
    stage: &Stage<'_>,
    tier: &Tier,
    pages: Pages,
    threads: usize,
) -> Result<[f64; 3], BenchError> {
    let bytes = stage.memory(bytes_each(stage), threads as u64, pages.bytes())?;
    let case = |action| Case { tier, pages, threads, bytes, action, cpus: &[] };
    let whole = run(stage, &case(Action::Touch))?.cpu_ns_per_page();
    let zeroing = zeroing_ns_per_byte(stage, tier)? * pages.bytes() as f64;
    let rest = mapping_ns(stage, tier)?.min(whole);
    Ok([(whole - zeroing - rest).max(0.0), zeroing.min(whole - rest), rest])
}

/// Zeroing memory that is there and not in a cache.
fn zeroing_ns_per_byte(stage: &Stage<'_>, tier: &Tier) -> Result<f64, BenchError> {
    let bytes = stage.memory(64 << 20, 1, BASE_BYTES)?;
    let mut region = tier.map(Pages::Base, bytes)?;
    region.mapping.bytes_mut().fill(1);
    let started = Instant::now();
    region.mapping.bytes_mut().fill(0);
    Ok(started.elapsed().as_nanos() as f64 / bytes as f64)
}

/// A fault that finds nothing and zeroes nothing: it maps the page of zeros that all share, or one that a
/// file has already.
fn mapping_ns(stage: &Stage<'_>, tier: &Tier) -> Result<f64, BenchError> {
    let bytes = stage.memory(16 << 20, 1, BASE_BYTES)?;
    let mut region = tier.map(Pages::Base, bytes)?;
    let is_file = matches!(tier, Tier::Mount(_));
    if is_file {
        region.mapping.bytes_mut().fill(1);
        let unmapped = region.mapping.discard(0, bytes as usize);
        unmapped
            .map_err(|error| BenchError::setup("unmap pages of a file", error, "see what 'dmesg' says"))?;
    }
    let started = Instant::now();
    for offset in (0..bytes as usize).step_by(BASE_BYTES as usize) {
        // A fault that reads a file maps its neighbours, too.
        if is_file {
            region.mapping.touch(offset);
        } else {
            std::hint::black_box(region.mapping.look(offset));
        }
    }
    Ok(started.elapsed().as_nanos() as f64 / (bytes / BASE_BYTES) as f64)
}

fn claim(report: &mut ExperimentReport) {
    let panel = |series: &str| report.panel(&title(series)).cloned();
    let (Some(alone), Some(busy)) = (panel(ALONE), panel(ON_ALL)) else { return };
    let share = |panel: &Panel, point: &str| {
        let whole: f64 = PARTS.iter().filter_map(|part| panel.at(part, point)).sum();
        times(panel.at("zeroing", point), Some(whole))
    };
    let (base, huge) = (size(BASE_BYTES), size(HUGE_BYTES));
    report.claim(
        "zeroing's share of a first touch of 2 MiB",
        "more than 90% on Optane",
        Asks::Beyond(0.9),
        share(&alone, &huge),
    );
    let more = times(share(&alone, &huge), share(&alone, &base));
    let text = "zeroing's share of 2 MiB over that of 4 KiB, times";
    report.claim(text, "Fig. 5: more for higher orders", Asks::Larger, more);
    let finding = times(busy.at("zeroing", &huge), busy.at("finding", &huge));
    let text = "2 MiB on all CPUs: zeroing over finding, times";
    report.claim(text, "less than finding on DRAM", Asks::Smaller, finding);
    let percent = |share: Option<f64>| share.map(|share| format!("{:.0}%", share * 100.0));
    report.beside(
        "share of zeroing, 2 MiB, on all CPUs",
        Some("less than finding's"),
        Some("over 90%"),
        percent(share(&busy, &huge)),
    );
    report.beside(
        "share of zeroing, 4 KiB, on all CPUs",
        Some("-"),
        Some("most of it"),
        percent(share(&busy, &base)),
    );
    let shared = share(&alone, &base);
    report.beside("share of zeroing, 4 KiB, alone", None, None, percent(shared));
}

#[cfg(test)]
mod tests {
    use super::super::stage::tests::quick_stage;
    use super::*;

    #[test]
    fn the_difference_of_runs_adds_up_and_has_no_negative_part() {
        quick_stage(|stage| {
            let directory = tempfile::tempdir().unwrap();
            for tier in [&stage.tiers[0], &Tier::mount(directory.path()).unwrap()] {
                let parts = by_difference(stage, tier, Pages::Base, 1).unwrap();
                assert!(parts.iter().all(|&ns| ns >= 0.0) && parts[2] > 0.0, "{parts:?}");
            }
        });
    }
}
