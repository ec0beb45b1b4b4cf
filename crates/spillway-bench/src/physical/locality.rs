//! What the first touch costs on the node of the thread and on others.

use spillway_report::claim::Asks;
use spillway_report::distribution::Distribution;

use super::experiment::Experiment;
use super::pages::{HUGE_BYTES, Pages};
use super::report::{ExperimentReport, Panel, in_times, times};
use super::stage::Stage;
use super::tier::Tier;
use super::touch::{Action, Case, run};
use crate::BenchError;

/// The experiment behind `bench physical locality`.
pub const EXPERIMENT: Experiment = Experiment {
    paper: "4.4, Fig. 8",
    about: "what the first touch costs on the thread's own node and on others",
    does,
    run: measure,
};

const SIZES: [Pages; 2] = [Pages::Base, Pages::Transparent(HUGE_BYTES)];

fn does(stage: &Stage<'_>) -> String {
    let bytes = super::bytes::size(stage.allowed(bytes_in_all(stage)));
    format!("takes {bytes} of memory on each node from the CPUs of each node, and gives it back")
}

fn bytes_in_all(stage: &Stage<'_>) -> u64 {
    stage.amount(256 << 20, 2 << 30)
}

fn measure(stage: &Stage<'_>, report: &mut ExperimentReport) -> Result<(), BenchError> {
    let nodes: Vec<(&Tier, u32, &[usize])> = stage
        .tiers
        .iter()
        .filter_map(|tier| match tier {
            Tier::Node { node, cpus } => Some((tier, *node, &cpus[..])),
            Tier::Mount(_) => None,
        })
        .collect();
    if nodes.len() < 2 {
        let reason = "the machine has one node, or one was chosen: a remote one is needed; give a QEMU guest \
                      two (-numa node) and measure inside";
        report.leave_out("remote nodes", reason);
    }
    let from: Vec<_> = nodes.iter().filter(|(_, _, cpus)| !cpus.is_empty()).collect();
    let mut panel = Panel::new("First touch, from node to node", "ns");
    let total = SIZES.len() * from.len() * nodes.len();
    for (at, (pages, (_, node, cpus), (tier, target, _))) in SIZES
        .iter()
        .flat_map(|&pages| from.iter().map(move |&&from| (pages, from)))
        .flat_map(|(pages, from)| nodes.iter().map(move |&to| (pages, from, to)))
        .enumerate()
    {
        let series = if node == target {
            format!("{}, local", pages.name())
        } else {
            format!("{}, remote", pages.name())
        };
        stage.step(&series, at, total)?;
        let threads = cpus.len();
        let bytes = stage.memory(bytes_in_all(stage) / threads as u64, threads as u64, pages.bytes())?;
        let case = Case { tier, pages, threads, bytes, action: Action::Touch, cpus };
        let measured = run(stage, &case);
        if let Some(timed) = report.attempt(&series, measured)? {
            let case =
                [("page_bytes", pages.bytes()), ("cpu_node", u64::from(node)), ("node", u64::from(target))];
            let point = format!("{node} to {target}");
            panel.distribution(&series, &point, &case, Distribution::of(timed.latencies_ns));
        }
    }
    report.panels.push(panel);
    beside(report);
    Ok(())
}

fn beside(report: &mut ExperimentReport) {
    let panel = report.panels[0].clone();
    for pages in SIZES {
        let name = pages.name();
        let of = |where_to: &str| {
            let series = format!("{name}, {where_to}");
            let values = panel.rows.iter().filter(|row| row.series == series).map(|row| row.value);
            values.max_by(f64::total_cmp)
        };
        let ratio = times(of("remote"), of("local"));
        let text = format!("{name}: remote node over local, times");
        report.claim(&text, "Fig. 8: costs more", Asks::Larger, ratio);
        let what = format!("{name}: remote over local");
        report.beside(&what, Some("little"), Some("significantly more"), in_times(ratio));
    }
}
