//! What freeing a page costs, by its size.

use spillway_report::claim::Asks;
use spillway_report::distribution::Distribution;

use super::alloc::{ALONE, ON_ALL, by_size, bytes_each};
use super::bytes::size;
use super::experiment::Experiment;
use super::pages::{BASE_BYTES, HUGE_BYTES, Pages};
use super::report::{ExperimentReport, in_times, times};
use super::stage::Stage;
use super::touch::{Action, Case, run};
use crate::BenchError;

/// The experiment behind `bench physical free`.
pub const EXPERIMENT: Experiment = Experiment {
    paper: "4.3, Fig. 7",
    about: "what giving back a page costs, by its size",
    does,
    run: measure,
};

/// The system call by itself.
const CALL: &str = "nothing there";

fn does(stage: &Stage<'_>) -> String {
    let bytes = stage.allowed(bytes_each(stage, Pages::Transparent(HUGE_BYTES)) * stage.cpus.len() as u64);
    format!(
        "fills up to {} of memory and frees it page by page; sets huge pages as 'alloc' does",
        size(bytes)
    )
}

fn measure(stage: &Stage<'_>, report: &mut ExperimentReport) -> Result<(), BenchError> {
    for tier in &stage.tiers {
        let title = format!("Freeing a page, {}", tier.name());
        let mut panel = by_size(stage, report, tier, Action::Free, &title)?;
        let bytes = stage.memory(16 << 20, 1, BASE_BYTES)?;
        let nothing =
            Case { tier, pages: Pages::Base, threads: 1, bytes, action: Action::FreeNothing, cpus: &[] };
        let nothing = run(stage, &nothing)?;
        panel.distribution(
            CALL,
            "4 KiB",
            &[("page_bytes", BASE_BYTES)],
            Distribution::of(nothing.latencies_ns),
        );
        report.panels.push(panel);
    }
    let panel = &report.panels[0];
    let call = panel.at(CALL, "4 KiB");
    let ratio = times(panel.at(ALONE, "2 MiB"), panel.at(ALONE, "4 KiB"));
    let busy = times(panel.at(ON_ALL, "4 KiB"), panel.at(ALONE, "4 KiB"));
    let over_call = times(panel.at(ALONE, "4 KiB"), call);
    let text = "freeing 4 KiB over the system call for nothing, times";
    report.claim(text, "not the paper's: a look at the method", Asks::Larger, over_call);
    report.claim("freeing 2 MiB over freeing 4 KiB, times", "more on DRAM", Asks::Larger, ratio);
    let untouched = ratio.map(|ratio| (HUGE_BYTES / BASE_BYTES) as f64 / ratio);
    let text = "freeing touches no page: 512 pages of 4 KiB over one of 2 MiB, times";
    report.claim(text, "Fig. 7: does not touch the page", Asks::MuchLarger, untouched);
    report.sized("freeing 4 KiB on all CPUs over alone, times", "as alone", Asks::NoMore(1.0), 1.0, busy);
    let ratio = in_times(ratio).map(|ratio| format!("{ratio} of 4 KiB"));
    report.beside("freeing 2 MiB", Some("more than 4 KiB"), Some("the same or less"), ratio);
    let busy = in_times(busy).map(|ratio| format!("{ratio} of alone"));
    report.beside("freeing 4 KiB on all CPUs", Some("as alone"), Some("as alone"), busy);
    report.notes.push(format!(
        "each page is freed by a system call of its own, which takes {:.0} ns where nothing is there",
        call.unwrap_or(0.0)
    ));
    Ok(())
}
