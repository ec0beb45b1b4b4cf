//! The figures that the paper has of snap-aligner alone: its two stages (Fig. 11), numbers of processors
//! (Fig. 16), and an SSD in place of memory elsewhere (Fig. 17).

use std::fmt::Write;

use super::SHARES;
use super::means::percent_or_none;
use super::report::{DcmReport, Far, WorkloadReport};
use crate::whole::workload::{Measure, Stage};

/// The program whose stages and threads the paper tells apart.
const SNAP: &str = "snap";

fn seconds_of(stages: &[Stage], name: &str) -> Option<f64> {
    stages.iter().find(|stage| stage.name == name).map(|stage| stage.seconds)
}

/// Fig. 11: how each stage fares with each block.
pub(super) fn stages(text: &mut String, report: &DcmReport, blocks: &[Option<&str>]) {
    let Some(snap) = report.usual().find(|workload| workload.name == SNAP) else { return };
    if snap.unlimited_stages.is_empty() || snap.rows.is_empty() {
        return;
    }
    text.push_str("\n## Fig. 11: SNAP's stages by block size, as a share of the unlimited run's\n\n");
    text.push_str("| stage | far memory | local |");
    blocks.iter().for_each(|block| _ = write!(text, " {} |", block.unwrap_or("its own blocks")));
    let _ = writeln!(text, "\n|---|---|---|{}", "---|".repeat(blocks.len()));
    for stage in &snap.unlimited_stages {
        for far in Far::SPILLWAY {
            for local_pct in SHARES.into_iter().filter(|&pct| snap.choice(far, pct).is_some()) {
                let _ = write!(text, "| {} | {} | D{local_pct} |", stage.name, far.name());
                for block in blocks {
                    let row = snap.find(far, local_pct, *block);
                    let ours = row.and_then(|row| seconds_of(&row.stages, &stage.name));
                    let share = ours.map(|ours| Measure::Seconds.normalised(stage.seconds, ours));
                    let _ = write!(text, " {} |", percent_or_none(share));
                }
                text.push('\n');
            }
        }
    }
    text.push_str(
        "\nThe paper has this as a plot only. Its words: loading prefers 64 KiB, alignment 4 KiB at D25.\n",
    );
}

/// SNAP with all numbers of threads that were measured, the least first.
fn by_threads(report: &DcmReport) -> Vec<(u32, &WorkloadReport)> {
    let of_snap = report.workloads.iter().filter(|workload| workload.name == SNAP);
    let mut counts: Vec<_> = of_snap.filter_map(|workload| Some((workload.threads?, workload))).collect();
    counts.sort_by_key(|&(threads, _)| threads);
    counts
}

/// Fig. 16: seconds by threads and local memory, beside swap.
pub(super) fn threads(text: &mut String, report: &DcmReport) {
    let counts = by_threads(report);
    if counts.len() < 2 {
        return;
    }
    text.push_str("\n## Fig. 16: SNAP's seconds by threads, beside swap on a RAM disk\n\n| local | under |");
    counts.iter().for_each(|(threads, _)| _ = write!(text, " {threads} thread(s) |"));
    let _ = writeln!(text, "\n|---|---|{}", "---|".repeat(counts.len()));
    let mut line = |name: &str, seconds: &dyn Fn(&WorkloadReport) -> Option<f64>| {
        let seconds: Vec<_> = counts.iter().map(|(_, workload)| seconds(workload)).collect();
        if seconds.iter().any(Option::is_some) {
            let show = |seconds: &Option<f64>| seconds.map_or("-".to_owned(), |s| format!("{s:.2} s"));
            let cells: Vec<_> = seconds.iter().map(show).collect();
            let _ = writeln!(text, "| {name} | {} |", cells.join(" | "));
        }
    };
    line("all | as it is", &|workload| Some(workload.unlimited));
    for local_pct in SHARES {
        let value = |far, block| {
            move |workload: &WorkloadReport| workload.find(far, local_pct, block).map(|row| row.value)
        };
        line(&format!("D{local_pct} | {}", Far::SwapRamdisk.name()), &value(Far::SwapRamdisk, None));
        for block in ["elastic", "streams"] {
            let name = format!("D{local_pct} | {}: {block}", Far::RamFdr.name());
            line(&name, &value(Far::RamFdr, Some(block)));
        }
    }
    text.push_str(
        "\nThe paper has this as a plot only. Its words: with 16 and 8 GB local (of 63.6) more processors \
         make swap slower, and dcm faster.\n",
    );
}

/// Fig. 17: a file in place of memory elsewhere.
pub(super) fn file(text: &mut String, report: &DcmReport) {
    let on_file = |workload: &&WorkloadReport| workload.rows.iter().any(|row| row.far == Far::File);
    for workload in report.usual().filter(on_file) {
        let _ = write!(
            text,
            "\n## Fig. 17: {} with a file as far memory, as a share of the unlimited run's\n\n\
             | local | block | {} | {} |\n|---|---|---|---|\n",
            workload.name,
            Far::File.name(),
            Far::RamFdr.name()
        );
        let rows = workload.rows.iter().filter(|row| row.far == Far::File);
        for row in rows {
            let block = row.block.as_deref();
            let remote = workload.find(Far::RamFdr, row.local_pct, block).map(|row| row.normalised);
            let (local_pct, block) = (row.local_pct, block.unwrap_or("its own"));
            let (ours, remote) = (percent_or_none(Some(row.normalised)), percent_or_none(remote));
            let _ = writeln!(text, "| D{local_pct} | {block} | {ours} | {remote} |");
        }
        text.push_str(
            "\nThe paper has this on an Optane SSD with 4 KiB blocks, as a plot only. Its words: at D25 \
             12 points less than with memory elsewhere.\n",
        );
    }
}
