//! The page of `bench programs`, in Markdown and in HTML.

use std::fmt::Write;
use std::path::Path;

use maud::{Markup, PreEscaped, html};
use spillway_report::chart::Chart;
use spillway_report::document::document;
use spillway_report::markdown::{Page, PageError};
use spillway_report::order::distinct;
use spillway_report::whole_file;

use crate::BenchError;
use crate::programs::parts::Part;
use crate::programs::report::{Configuration, ProgramsReport, Rival, Row};
use crate::programs::text;

const EXPLANATION: &str = "\
Unmodified programs with fixed inputs; their outputs are checked in every run. A ratio above 1 says that \
Spillway is faster.
Both sides hold as much resident anonymous memory, the median since the program has grown, as seen from \
outside; where they differ by more than 3%, a star says so.
A side that was killed for want of memory, took hopelessly long or gave a wrong result has lost, and is \
shown as such. Of zram's settings (read-ahead of one page and of eight; zstd where the kernel has it) and of \
the RAM disk's the best counts.
";

/// What the page is called, and the directory of its plots: small inputs and whole ones have pages of their
/// own, since nothing of them compares.
pub(super) const fn name(report: &ProgramsReport) -> &'static str {
    if report.quick { "programs-benchmark" } else { "programs-whole" }
}

const fn title(report: &ProgramsReport) -> &'static str {
    if report.quick { "Real programs" } else { "Real programs, whole inputs" }
}

/// The page of these runs: of each program the last.
pub(super) fn page(report: &ProgramsReport, note: Option<&str>) -> Result<Page, BenchError> {
    let title = title(report);
    let mut text = format!("# {title}\n\nMade by `spillway bench report` from `spillway bench programs`.\n");
    if let Some(note) = note {
        let _ = writeln!(text, "\n**{note}**");
    }
    let mut page = Page::new(name(report), text);
    let _ = write!(page.text, "\n{}\n\n{EXPLANATION}\n", circumstances(report));
    for (name, chart) in charts(report) {
        page.chart(&name, &chart)?;
    }
    page.text.push_str(&text::markdown(report));
    Ok(page)
}

/// The same as HTML: it holds its pictures and its style, fetches nothing and runs no script.
pub fn html_page(report: &ProgramsReport, note: Option<&str>) -> Result<String, BenchError> {
    let charts: Vec<Chart> = charts(report).into_iter().map(|(_, chart)| chart).collect();
    let charts = charts.iter().filter(|chart| chart.has_values());
    let pictures = charts.map(Chart::svg).collect::<Result<Vec<_>, _>>()?;
    let header = html! {
        header {
            h1 { (title(report)) }
            p { (circumstances(report)) }
        }
    };
    let sections = html! {
        @if let Some(note) = note { p.note { b { (note) } } }
        p.note { (EXPLANATION) }
        @for part in text::parts(report) { (of_part(&part)) }
        section {
            h2 { "Plots" }
            div.charts { @for svg in &pictures { div.card { (PreEscaped(svg)) } } }
        }
    };
    Ok(document(title(report), &header, &sections))
}

/// Writes it into a file.
///
/// # Errors
/// It cannot be written, or a picture cannot be drawn.
pub fn write_html(report: &ProgramsReport, note: Option<&str>, path: &Path) -> Result<(), BenchError> {
    let text = html_page(report, note)?;
    Ok(whole_file::write(path, text).map_err(|reason| PageError { path: path.to_owned(), reason })?)
}

fn of_part(part: &Part) -> Markup {
    match part {
        Part::Heading(text) => html! { h2 { (text) } },
        Part::Paragraph(text) => html! { p.note { (text) } },
        Part::List(items) => html! { ul { @for item in items { li { (item) } } } },
        Part::Table { head, rows } => html! {
            div.card {
                table {
                    thead { tr { @for cell in head { th { (cell) } } } }
                    tbody { @for row in rows { tr { @for cell in row { (of_cell(cell)) } } } }
                }
            }
        },
    }
}

/// A cell in which stars make it stand out.
fn of_cell(cell: &str) -> Markup {
    match cell.strip_prefix("**").and_then(|cell| cell.strip_suffix("**")) {
        Some(cell) => html! { td { b { (cell) } } },
        None => html! { td { (cell) } },
    }
}

fn circumstances(report: &ProgramsReport) -> String {
    let machine = &report.machine;
    format!(
        "Spillway {}, Linux {}, {} CPUs ({}), {} GiB; load before the run {:.1}; {} turn(s){}.",
        machine.spillway,
        machine.kernel,
        machine.cpus,
        machine.processor,
        (machine.memory_bytes + (1 << 29)) >> 30,
        machine.load_before,
        report.repetitions,
        if report.quick { "; small inputs (--quick)" } else { "" },
    )
}

/// All in one: a program that was measured again replaces what was there.
pub(super) fn merged(reports: &[&ProgramsReport]) -> Option<ProgramsReport> {
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

/// The plots, by the names of their files.
fn charts(report: &ProgramsReport) -> Vec<(String, Chart)> {
    let shares = distinct(report.rows.iter().map(|row| row.local_pct));
    let of_share = |&local_pct: &u64| {
        let line = |chart: Chart| Chart { line_at: Some(1.0), ..chart };
        let speed = |versus: Rival| {
            let title = format!("Speed beside {}, {local_pct}% of the memory local", versus.title());
            let chart = bars(report, (local_pct, versus), title, "times as fast", |row| row.ratio_median);
            (format!("{}-{local_pct}", versus.name()), line(chart))
        };
        let title = format!("Pages fetched over pages that zram swaps in, {local_pct}% of the memory local");
        let pages = bars(report, (local_pct, Rival::Zram), title, "times as many", |row| {
            let ratio = row.fetched_pages as f64 / row.swapped_in_pages as f64;
            row.ratio_median.and(Some(ratio)).filter(|ratio| ratio.is_finite())
        });
        [
            speed(Rival::Zram),
            (format!("pages-{local_pct}"), line(pages)),
            speed(Rival::Ramdisk),
            speed(Rival::Unlimited),
        ]
    };
    shares.iter().flat_map(of_share).collect()
}

/// A bar for each configuration at each program.
fn bars(
    report: &ProgramsReport,
    (local_pct, versus): (u64, Rival),
    title: String,
    unit: &str,
    value: impl Fn(&Row) -> Option<f64>,
) -> Chart {
    let configurations: Vec<Configuration> = distinct(report.rows.iter().map(|row| row.configuration));
    let series = configurations.into_iter().map(|configuration| {
        let of_program = |name: &str| {
            let mut rows = report.beside(local_pct, configuration, versus);
            rows.find(|row| row.program == name).and_then(&value)
        };
        let values = report.programs.iter().map(|program| of_program(&program.name)).collect();
        (configuration.name().to_owned(), values)
    });
    let names = report.programs.iter().map(|program| program.name.clone()).collect();
    Chart::bars(title, unit, names, series)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::report::Outcome;
    use crate::programs::report::tests::{report_of, row, side};
    use crate::whole::workload::Measure;

    fn report(ours: f64) -> ProgramsReport {
        let (ours, theirs) =
            (side("", &[(Outcome::Ok, ours)]), side("page-cluster 3", &[(Outcome::Ok, 6.0)]));
        report_of(vec![row(&ours, &theirs, Measure::Seconds)])
    }

    #[test]
    fn the_page_has_the_last_of_each_program() {
        let (first, second) = (report(1.0), report(2.0));
        let merged = merged(&[&first, &second]).unwrap();
        let page = page(&merged, Some("Read this.")).unwrap();
        assert!(page.text.contains("| sort | 50% | 3.00 |") && !page.text.contains("6.00"), "{}", page.text);
        assert!(page.text.contains("**Read this.**"), "{}", page.text);
        // Speed and pages beside zram, the only rival.
        assert_eq!(page.pictures.len(), 2);
    }

    #[test]
    fn small_inputs_and_whole_ones_have_pages_of_their_own() {
        let whole = ProgramsReport { quick: false, ..report(2.0) };
        let directory = tempfile::tempdir().unwrap();
        crate::page::write(&[report(1.0), whole].map(crate::page::Results::Programs), None, directory.path())
            .unwrap();
        for (name, speed) in [("programs-benchmark", "| sort | 50% | 6.00 |"), ("programs-whole", "| 3.00 |")]
        {
            let text = std::fs::read_to_string(directory.path().join(format!("{name}.md"))).unwrap();
            assert!(text.contains(speed) && text.contains(&format!("({name}/zram-50.svg)")), "{text}");
            assert!(directory.path().join(format!("{name}.html")).is_file());
        }
    }

    #[test]
    fn the_html_page_has_the_tables_and_the_plots_and_no_stars() {
        let html = html_page(&report(12.0), None).unwrap();
        for words in ["<td>0.50</td>", "<td><b>no</b></td>", "<svg", "<h2>Goals</h2>"] {
            assert!(html.contains(words), "no '{words}' in {html}");
        }
        assert!(!html.contains("**"), "{html}");
    }
}
