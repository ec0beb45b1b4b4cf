//! The page of `bench programs`.

use std::fmt::Write;

use spillway_report::chart::Chart;
use spillway_report::markdown::Page;
use spillway_report::order::distinct;

use crate::BenchError;
use crate::programs::report::{Configuration, ProgramsReport, Rival, Row};
use crate::programs::text;

const EXPLANATION: &str = "\
Unmodified programs with fixed inputs; their outputs are checked in every run. A ratio above 1 says that \
Spillway is faster.
Both sides hold as much resident anonymous memory, the median over the run as seen from outside; where they \
differ by more than 3%, the cell says so.
A side that was killed for want of memory, or gave a wrong result, has lost, and is shown as such. Of swap's \
two read-aheads the better counts.
";

/// The page of these runs: of each program the last.
pub(super) fn page(reports: &[&ProgramsReport], note: Option<&str>) -> Result<Page, BenchError> {
    let mut text =
        "# Real programs\n\nMade by `spillway bench report` from `spillway bench programs`.\n".to_owned();
    if let Some(note) = note {
        let _ = writeln!(text, "\n**{note}**");
    }
    let mut page = Page::new("programs-benchmark", text);
    let Some(report) = merged(reports) else { return Ok(page) };
    let machine = &report.machine;
    let _ = write!(
        page.text,
        "\nSpillway {}, Linux {}, {} CPUs ({}); load before the run {:.1}; {} turn(s){}.\n\n{EXPLANATION}\n",
        machine.spillway,
        machine.kernel,
        machine.cpus,
        machine.processor,
        machine.load_before,
        report.repetitions,
        if report.quick { "; small inputs (`--quick`)" } else { "" },
    );
    for local_pct in distinct(report.rows.iter().map(|row| row.local_pct)) {
        page.chart(&format!("zram-{local_pct}"), &beside_zram(&report, local_pct))?;
    }
    page.text.push_str(&text::markdown(&report));
    Ok(page)
}

/// All in one: a program that was measured again replaces what was there.
fn merged(reports: &[&ProgramsReport]) -> Option<ProgramsReport> {
    let (first, others) = reports.split_first()?;
    let mut all = (*first).clone();
    for report in others {
        let again = |name: &str| report.programs.iter().any(|program| program.name == name);
        all.programs.retain(|program| !again(&program.name));
        all.rows.retain(|row| !again(&row.program));
        all.programs.extend(report.programs.iter().cloned());
        all.rows.extend(report.rows.iter().cloned());
    }
    Some(all)
}

fn beside_zram(report: &ProgramsReport, local_pct: u64) -> Chart {
    let series = Configuration::ALL.map(|configuration| {
        let ratio = |name: &str| {
            let is = |row: &&Row| {
                row.program == name
                    && (row.local_pct, row.configuration, row.versus)
                        == (local_pct, configuration, Rival::Zram)
            };
            report.rows.iter().find(is)?.ratio_median
        };
        let values = report.programs.iter().map(|program| ratio(&program.name)).collect();
        (configuration.name().to_owned(), values)
    });
    Chart {
        line_at: Some(1.0),
        ..Chart::bars(
            format!("Speed beside zram with {local_pct}% of the memory"),
            "times as fast",
            report.programs.iter().map(|program| program.name.clone()).collect(),
            series,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;
    use crate::programs::report::tests::{row, side};
    use crate::programs::report::{Outcome, Program};
    use crate::whole::workload::Measure;

    fn report(ours: f64) -> ProgramsReport {
        let (ours, theirs) =
            (side("", &[(Outcome::Ok, ours)]), side("page-cluster 3", &[(Outcome::Ok, 6.0)]));
        let program = Program {
            name: "sort".to_owned(),
            about: "sorts".to_owned(),
            measure: Measure::Seconds,
            unlimited: 1.0,
            peak_anonymous_bytes: 100 << 20,
        };
        ProgramsReport {
            machine: Machine::this(),
            shares: vec![50],
            quick: true,
            repetitions: 1,
            programs: vec![program],
            rows: vec![row(&ours, &theirs, Measure::Seconds)],
            not_measured: Vec::new(),
            interrupted: false,
        }
    }

    #[test]
    fn the_page_has_the_last_of_each_program() {
        let page = page(&[&report(1.0), &report(2.0)], None).unwrap();
        assert!(page.text.contains("| sort | 3.00 |") && !page.text.contains("6.00"), "{}", page.text);
        assert!(page.text.contains("| geometric mean | 3.00 (1) |"), "{}", page.text);
        assert_eq!(page.pictures.len(), 1);
    }
}
