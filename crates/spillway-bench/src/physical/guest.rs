//! What memory costs inside a virtual machine when it is used for the first time, which the host zeroes too,
//! and for the second.
//!
//! It runs in the guest, and before the others, which then find memory that the host has given.

use std::fs;

use spillway_report::claim::Asks;
use spillway_report::distribution::Distribution;

use super::bytes::size;
use super::experiment::Experiment;
use super::pages::{HUGE_BYTES, Pages};
use super::report::{ExperimentReport, Panel, in_times, times};
use super::stage::{Stage, spare_bytes};
use super::touch::{Action, Case, run};
use crate::BenchError;

/// The experiment behind `bench physical guest`.
pub const EXPERIMENT: Experiment = Experiment {
    paper: "4.10, Fig. 14",
    about: "what memory costs in a virtual machine at its first use, and at its second",
    does,
    run: measure,
};

/// Title of the panel.
pub const COST: &str = "First touch of 2 MiB in a virtual machine";
const USES: [&str; 3] = ["first use", "second use", "third use"];

fn does(stage: &Stage<'_>) -> String {
    format!(
        "takes {} of memory three times in 2 MiB pages and gives it back: a host that had not given it to \
         this machine gives it now",
        size(bytes(stage) >> 20 << 20)
    )
}

/// All that can be spared, unless in a hurry: what was used already costs less, and nobody can tell where it
/// lies.
fn bytes(stage: &Stage<'_>) -> u64 {
    spare_bytes().min(stage.most_bytes).min(stage.amount(4 << 30, u64::MAX)) / HUGE_BYTES * HUGE_BYTES
}

/// Processors tell guests that they are guests.
fn is_guest() -> bool {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = text.lines().find(|line| line.starts_with("flags"));
    flags.is_some_and(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor"))
}

fn measure(stage: &Stage<'_>, report: &mut ExperimentReport) -> Result<(), BenchError> {
    if !is_guest() {
        return Err(BenchError::setup(
            "measure the first use of memory in a virtual machine",
            "this machine is none",
            "run this experiment inside a guest",
        ));
    }
    let pages = Pages::Transparent(HUGE_BYTES);
    let bytes = stage.memory(bytes(stage), 1, HUGE_BYTES)?;
    let mut panel = Panel::new(COST, "ns");
    for (at, name) in USES.iter().enumerate() {
        stage.step(name, at, USES.len())?;
        let tier = &stage.tiers[0];
        let timed = run(stage, &Case { tier, pages, threads: 1, bytes, action: Action::Touch, cpus: &[] })?;
        let case = [("page_bytes", HUGE_BYTES), ("use", at as u64 + 1), ("bytes", bytes)];
        panel.distribution("this machine", name, &case, Distribution::of(timed.latencies_ns));
    }
    let mean = |name: &str| Some(panel.row("this machine", name)?.distribution.as_ref()?.mean);
    let ratio = times(mean(USES[0]), mean(USES[2]));
    report.beside(
        "mean of the first use over that of the third",
        Some("over 2x"),
        Some("over 2x"),
        in_times(ratio),
    );
    let text = "the first use over a later one, times";
    report.claim(text, "more than 2x", Asks::Beyond(2.0), ratio);
    report.notes.push(
        "the host's part is in the first use of memory that it has not given yet, or has taken back (free \
         page reporting, balloons): soon after the start, and again some time after memory was freed"
            .to_owned(),
    );
    report.panels.push(panel);
    Ok(())
}
