//! The page of `bench ablation`.

use std::fmt::Write;

use spillway_report::chart::Chart;
use spillway_report::markdown::Page;

use crate::BenchError;
use crate::ablation::report::AblationReport;
use crate::ablation::text;

const EXPLANATION: &str = "\
Each switch is set otherwise, alone, beside everything as usual; all sides take turns. Patterns are those of \
`bench paging`,
on `ram:`; programs are those of `bench programs`, on the usual store. A speed is that beside the usual in \
the same turn: the
median with the least and the most. Above 1x it is faster so. Pages fetched are for each access, of a \
program in all.
";

/// The page of these runs.
pub(super) fn page(reports: &[&AblationReport], note: Option<&str>) -> Result<Page, BenchError> {
    let mut text = "# What each mechanism is worth\n\nMade by `spillway bench report` from `spillway bench \
                    ablation`.\n"
        .to_owned();
    if let Some(note) = note {
        let _ = writeln!(text, "\n**{note}**");
    }
    let mut page = Page::new("ablation", text);
    let Some(report) = &AblationReport::merged(reports) else { return Ok(page) };
    let machine = &report.machine;
    let _ = write!(
        page.text,
        "\nSpillway {}, Linux {}, {} CPUs ({}); load before the run {:.1}. Patterns: {} MiB, {}% of them \
         local, {} s each. Programs: {}% of their memory local{}. {} turn(s).\n\n{EXPLANATION}\n",
        machine.spillway,
        machine.kernel,
        machine.cpus,
        machine.processor,
        machine.load_before,
        report.memory_bytes >> 20,
        report.local_pcts.0,
        report.measured_ms as f64 / 1000.0,
        report.local_pcts.1,
        if report.quick { ", small inputs (`--quick`)" } else { "" },
        report.repetitions,
    );
    page.chart("speed", &speeds(report))?;
    page.text.push_str(&text::markdown(report));
    Ok(page)
}

fn speeds(report: &AblationReport) -> Chart {
    let classes = report.classes().into_iter();
    let series = classes.map(|class| (class.name(), text::by_class(report, class)));
    Chart {
        line_at: Some(1.0),
        ..Chart::bars(
            "Speed with a switch set otherwise",
            "x of the usual, geometric mean",
            report.ablated.iter().map(|way| way.name()).collect(),
            series,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ablation::report::tests::report;

    #[test]
    fn the_page_has_a_plot_and_the_tables() {
        let page = page(&[&report()], Some("Read this.")).unwrap();
        for words in ["**Read this.**", "`--quick`", "(ablation/speed.svg)", "| block = elastic | streams |"]
        {
            assert!(page.text.contains(words), "no '{words}' in {}", page.text);
        }
        assert_eq!(page.pictures.len(), 1);
    }
}
