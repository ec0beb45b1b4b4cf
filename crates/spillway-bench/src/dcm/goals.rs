//! The goals of the evaluation, and whether the figures reach them.

use std::fmt::Write;

use super::SHARES;
use super::means::{choices, mean, percent};
use super::report::{Choice, DcmReport, Far, WorkloadReport};

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
        .usual()
        .flat_map(of_program)
        .filter_map(|(workload, local_pct)| {
            Some(Cell { program: &workload.name, local_pct, value: value(workload, local_pct)? })
        })
        .collect();
    cells.sort_by(|a, b| a.value.total_cmp(&b.value));
    cells
}

/// What is chosen at run time, by its name.
type Chosen = (&'static str, fn(&Choice) -> Option<f64>);
const CHOSEN: [Chosen; 2] = [("elastic", |choice| choice.elastic), ("streams", |choice| choice.streams)];

/// Appends the table of the goals.
pub(super) fn table(text: &mut String, report: &DcmReport) {
    text.push_str("\n## Goals\n\n| far memory | goal | reached | figure |\n|---|---|---|---|\n");
    for far in Far::SPILLWAY {
        for (name, value) in CHOSEN {
            loss(text, report, far, name, value);
        }
        // In points behind the best static size.
        let gaps = cells(report, |workload, local_pct| {
            let choice = workload.choice(far, local_pct)?;
            Some(choice.fixed?.0 - choice.elastic?)
        });
        let goal = "elastic within 5 points of the best static size, everywhere";
        everywhere(text, far, goal, &gaps, GAP, |gap| format!("{:.1} points behind", gap * 100.0));
        for (name, value) in CHOSEN {
            // How many times as fast swap is.
            let leads = cells(report, |workload, local_pct| {
                let swap = workload.choice(Far::SwapRamdisk, local_pct)?.elastic?;
                Some(swap / value(&workload.choice(far, local_pct)?)?)
            });
            let goal = format!("{name} ahead of swap on a RAM disk, everywhere");
            everywhere(text, far, &goal, &leads, 1.0, |lead| format!("{:.2}x of swap", 1.0 / lead));
        }
    }
}

fn line(text: &mut String, far: Far, goal: &str, is_reached: bool, figure: &str) {
    let reached = if is_reached { "yes" } else { "**no**" };
    let _ = writeln!(text, "| {} | {goal} | {reached} | {figure} |", far.name());
}

fn loss(text: &mut String, report: &DcmReport, far: Far, name: &str, value: impl Fn(&Choice) -> Option<f64>) {
    let losses: Vec<f64> =
        choices(report, far, 50).iter().filter_map(|choice| Some(1.0 - value(choice)?)).collect();
    if let Some(loss) = mean(losses.iter().copied()) {
        let goal = format!("{name}: mean loss at D50 at most 6%");
        let figure = format!("{} of {} program(s)", percent(loss), losses.len());
        line(text, far, &goal, loss <= LOSS, &figure);
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
            row(Far::NbdTcp, Some("streams"), 20.0),
            row(Far::SwapRamdisk, None, 12.0),
        ];
        table(&mut text, &report(rows));
        for words in [
            "| shm: donor, as over FDR | elastic: mean loss at D50 at most 6% | **no** | 20.0% of 1 \
             program(s) |",
            "everywhere | **no** | missed in 1 of 1; worst snap at D50: 15.2 points behind |",
            "everywhere | **no** | missed in 1 of 1; worst snap at D50: 0.96x of swap |",
            "| TCP donor | elastic: mean loss at D50 at most 6% | yes | 4.8% of 1 program(s) |",
            "| TCP donor | streams: mean loss at D50 at most 6% | **no** | 50.0% of 1 program(s) |",
            "| TCP donor | elastic ahead of swap on a RAM disk, everywhere | yes | missed in 0 of 1; worst \
             snap at D50: 1.14x of swap |",
        ] {
            assert!(text.contains(words), "no '{words}' in {text}");
        }
        assert!(!text.contains("RAM, as over FDR"), "{text}");
    }
}
