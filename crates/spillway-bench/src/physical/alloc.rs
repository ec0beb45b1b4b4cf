//! What the first touch of a page costs, by its size: alone, and with all CPUs at it.

use spillway_report::claim::Asks;
use spillway_report::distribution::Distribution;

use super::bytes::size;
use super::experiment::Experiment;
use super::pages::{BASE_BYTES, HUGE_BYTES, Pages};
use super::report::{ExperimentReport, Panel, in_times, times};
use super::stage::Stage;
use super::tier::Tier;
use super::touch::{Action, Case, Timed, run};
use crate::BenchError;

/// The experiment behind `bench physical alloc`.
pub const EXPERIMENT: Experiment = Experiment {
    paper: "4.1, Fig. 4",
    about: "what the first touch of a page costs, by the size of the page",
    does,
    run: measure,
};

/// The two scenarios of the paper.
pub const ALONE: &str = "alone";
/// Threads on all CPUs at once.
pub const ON_ALL: &str = "on all CPUs";

fn does(stage: &Stage<'_>) -> String {
    format!(
        "takes up to {} of memory at a time and gives it back; has the kernel offer huge pages of one size \
         after the other, and reserves huge pages meanwhile",
        size(stage.allowed(bytes_each(stage, Pages::Transparent(HUGE_BYTES)) * stage.cpus.len() as u64))
    )
}

/// Memory of a thread in one pass.
pub(super) fn bytes_each(stage: &Stage<'_>, pages: Pages) -> u64 {
    match pages.bytes() {
        // Two are enough to have one beside the other.
        bytes if bytes >= 1 << 30 => bytes * stage.amount(1, 2),
        bytes if bytes >= HUGE_BYTES => stage.amount(128 << 20, 1 << 30),
        _ => stage.amount(32 << 20, 512 << 20),
    }
}

/// How often each case is measured, all cases in turns.
pub(super) fn passes(stage: &Stage<'_>) -> usize {
    stage.amount(2, 5) as usize
}

fn measure(stage: &Stage<'_>, report: &mut ExperimentReport) -> Result<(), BenchError> {
    for tier in &stage.tiers {
        let panel = by_size(stage, report, tier, Action::Touch, &title(tier))?;
        report.panels.push(panel);
    }
    claim(report, &title(&stage.tiers[0]));
    Ok(())
}

fn title(tier: &Tier) -> String {
    format!("First touch of a page, {}", tier.name())
}

/// One action in pages of all sizes, alone and on all CPUs.
pub(super) fn by_size(
    stage: &Stage<'_>,
    report: &mut ExperimentReport,
    tier: &Tier,
    action: Action,
    title: &str,
) -> Result<Panel, BenchError> {
    let mut cases: Vec<(Pages, usize, Timed)> = Vec::new();
    for pages in tier.has(&Pages::offered()) {
        cases.push((pages, 1, Timed::default()));
        cases.push((pages, stage.cpus.len(), Timed::default()));
    }
    let total = passes(stage) * cases.len();
    for pass in 0..passes(stage) {
        for (at, (pages, threads, timed)) in cases.iter_mut().enumerate() {
            stage.step(&pages.name(), pass * (total / passes(stage)) + at, total)?;
            let what = format!("{}, {}", pages.name(), scenario(*threads));
            // What the kernel has refused once it is not asked for again.
            if report.left_out.iter().any(|left| left.what == what) {
                continue;
            }
            let measured = once(stage, tier, *pages, *threads, action);
            stage.settings.restore();
            if let Some(measured) = report.attempt(&what, measured)? {
                timed.add(measured);
            }
        }
    }
    let mut panel = Panel::new(title, "ns");
    for (pages, threads, timed) in cases {
        let count = timed.latencies_ns.len() as u64;
        if count == 0 {
            continue;
        }
        if timed.fallbacks * 20 > count {
            let (name, fallbacks) = (pages.name(), timed.fallbacks);
            report.notes.push(format!(
                "{name}, {}: the kernel gave smaller pages {fallbacks} times of {count}",
                scenario(threads)
            ));
        }
        let case = [
            ("page_bytes", pages.bytes()),
            ("threads", threads as u64),
            ("hugetlb", u64::from(matches!(pages, Pages::Reserved(_)))),
        ];
        panel.distribution(scenario(threads), &pages.name(), &case, Distribution::of(timed.latencies_ns));
    }
    Ok(panel)
}

fn once(
    stage: &Stage<'_>,
    tier: &Tier,
    pages: Pages,
    threads: usize,
    action: Action,
) -> Result<Timed, BenchError> {
    let bytes = stage.memory(bytes_each(stage, pages), threads as u64, pages.bytes())?;
    run(stage, &Case { tier, pages, threads, bytes, action, cpus: &[] })
}

fn scenario(threads: usize) -> &'static str {
    if threads == 1 { ALONE } else { ON_ALL }
}

fn claim(report: &mut ExperimentReport, title: &str) {
    let Some(panel) = report.panel(title).cloned() else { return };
    let (base, huge) = (size(BASE_BYTES), size(HUGE_BYTES));
    let ratio = |series: &str| times(panel.at(series, &huge), panel.at(series, &base));
    report.claim("2 MiB over 4 KiB, times", "Fig. 4: costs more", Asks::Larger, ratio(ALONE));
    let as_pages = ratio(ALONE).map(|ratio| ratio / (HUGE_BYTES / BASE_BYTES) as f64);
    report.claim("2 MiB over 512 pages of 4 KiB", "Fig. 4: costs less", Asks::Smaller, as_pages);
    let busy = |point: &str| times(panel.at(ON_ALL, point), panel.at(ALONE, point));
    let text = "4 KiB on all CPUs over alone, times";
    report.sized(text, "as alone on DRAM", Asks::NoMore(1.0), 1.0, busy(&base));
    report.beside(
        "4 KiB, alone",
        Some("1x"),
        Some("1.34x of DRAM"),
        panel.at(ALONE, &base).map(|ns| format!("{ns:.0} ns")),
    );
    let tail = panel.row(ALONE, &base).and_then(|row| row.distribution.as_ref());
    report.beside(
        "4 KiB, alone: maximum over median",
        Some("several orders"),
        Some("several orders"),
        tail.and_then(|all| in_times(times(Some(all.max), Some(all.p50)))),
    );
    report.beside(
        "4 KiB, on all CPUs",
        Some("1x"),
        Some("51x of DRAM"),
        in_times(busy(&base)).map(|ratio| format!("{ratio} of alone")),
    );
    report.beside(
        "2 MiB, alone",
        Some("1x"),
        Some("1.6x of DRAM"),
        panel.at(ALONE, &huge).map(|ns| format!("{:.0} us", ns / 1000.0)),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_follow_from_what_was_measured() {
        let mut panel = Panel::new("t", "ns");
        panel.value(ALONE, "4 KiB", &[], 500.0);
        panel.value(ALONE, "2 MiB", &[], 100_000.0);
        let mut report = ExperimentReport { panels: vec![panel], ..ExperimentReport::default() };
        claim(&mut report, "t");
        assert!(report.claims.len() == 2 && report.claims.iter().all(|claim| claim.direction), "{report:?}");
        // What was not measured stands nowhere.
        assert_eq!(report.beside.len(), 2);
        report.panels[0].rows[1].value = 300_000.0;
        report.claims.clear();
        claim(&mut report, "t");
        assert!(!report.claims[1].direction, "{report:?}");
    }
}
