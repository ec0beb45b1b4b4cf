//! The goals of the evaluation, and whether the figures reach them.

use std::fmt::Write;

use super::SHARES;
use super::means::{choices, mean, percent};
use super::report::{DcmReport, Far, WorkloadReport};

/// The paper's own mean loss at D50.
const LOSS: f64 = 0.06;
/// The paper: elastic blocks are less than 5 points behind the best static size.
const GAP: f64 = 0.05;

/// A figure of one program at one share.
struct Cell<'a> {
    program: &'a str,
    local_pct: u64,
    value: f64,
}

/// What `value` says of each program and share, where it was measured; the worst, the largest, comes last.
fn cells(report: &DcmReport, value: impl Fn(&WorkloadReport, u64) -> Option<f64>) -> Vec<Cell<'_>> {
    let of_program = |workload| SHARES.map(|local_pct| (workload, local_pct));
    let mut cells: Vec<_> = report
        .workloads
        .iter()
        .flat_map(of_program)
        .filter_map(|(workload, local_pct)| {
            Some(Cell { program: &workload.name, local_pct, value: value(workload, local_pct)? })
        })
        .collect();
    cells.sort_by(|a, b| a.value.total_cmp(&b.value));
    cells
}

/// The table.
pub(super) fn table(text: &mut String, report: &DcmReport) {
    text.push_str("\n## Goals\n\n| far memory | goal | reached | figure |\n|---|---|---|---|\n");
    for far in Far::SPILLWAY {
        loss(text, report, far);
        // In points behind the best static size.
        let gaps = cells(report, |workload, local_pct| {
            let choice = workload.choice(far, local_pct)?;
            Some(choice.fixed?.0 - choice.elastic)
        });
        let goal = "elastic within 5 points of the best static size, everywhere";
        everywhere(text, far, goal, &gaps, GAP, |gap| format!("{:.1} points behind", gap * 100.0));
        // How many times as fast swap is.
        let leads = cells(report, |workload, local_pct| {
            let swap = workload.choice(Far::SwapRamdisk, local_pct)?.elastic;
            Some(swap / workload.choice(far, local_pct)?.elastic)
        });
        let goal = "ahead of swap on a RAM disk, everywhere";
        everywhere(text, far, goal, &leads, 1.0, |lead| format!("{:.2}x of swap", 1.0 / lead));
    }
}

fn line(text: &mut String, far: Far, goal: &str, is_reached: bool, figure: &str) {
    let reached = if is_reached { "yes" } else { "**no**" };
    let _ = writeln!(text, "| {} | {goal} | {reached} | {figure} |", far.name());
}

fn loss(text: &mut String, report: &DcmReport, far: Far) {
    let losses = choices(report, far, 50);
    if let Some(loss) = mean(losses.iter().map(|choice| 1.0 - choice.elastic)) {
        line(text, far, "mean loss at D50 at most 6%", loss <= LOSS, &percent(loss));
    }
}

/// A goal that every cell is to reach: in how many it is missed, and the worst.
fn everywhere(
    text: &mut String,
    far: Far,
    goal: &str,
    cells: &[Cell<'_>],
    limit: f64,
    show: impl Fn(f64) -> String,
) {
    let Some(worst) = cells.last() else { return };
    let missed = cells.iter().filter(|cell| cell.value > limit).count();
    let figure = format!(
        "missed in {missed} of {}; worst {} at D{}: {}",
        cells.len(),
        worst.program,
        worst.local_pct,
        show(worst.value)
    );
    line(text, far, goal, missed == 0, &figure);
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::{report, row};
    use super::*;

    #[test]
    fn each_goal_is_held_against_the_figures() {
        let mut text = String::new();
        let rows = vec![
            row(Far::ShmFdr, Some("4K"), 10.5),
            row(Far::ShmFdr, Some("elastic"), 12.5),
            row(Far::NbdTcp, Some("elastic"), 10.5),
            row(Far::SwapRamdisk, None, 12.0),
        ];
        table(&mut text, &report(rows));
        for words in [
            "| shm: donor, as over FDR | mean loss at D50 at most 6% | **no** | 20.0% |",
            "everywhere | **no** | missed in 1 of 1; worst snap at D50: 15.2 points behind |",
            "everywhere | **no** | missed in 1 of 1; worst snap at D50: 0.96x of swap |",
            "| TCP donor | mean loss at D50 at most 6% | yes | 4.8% |",
            "| TCP donor | ahead of swap on a RAM disk, everywhere | yes | missed in 0 of 1; worst snap at \
             D50: 1.14x of swap |",
        ] {
            assert!(text.contains(words), "no '{words}' in {text}");
        }
        assert!(!text.contains("RAM, as over FDR"), "{text}");
    }
}
