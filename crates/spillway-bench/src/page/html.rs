//! The page of `bench physical` as HTML: it holds its pictures and its style, fetches nothing and runs no
//! script.

use std::path::Path;

use maud::{Markup, PreEscaped, html};
use spillway_report::ChartError;
use spillway_report::chart::Chart;
use spillway_report::claim::claims_table;
use spillway_report::document::document;
use spillway_report::markdown::PageError;
use spillway_report::violin::{HOW_TO_READ, Violin, violins};
use spillway_report::whole_file;

use crate::BenchError;
use crate::physical::report::{Beside, ExperimentReport, LeftOut, Panel, PhysicalReport, Row, grouped};
use crate::physical::text::{PERCENTILES, number, percentiles};

/// Writes the page into a file.
pub fn write(report: &PhysicalReport, path: &Path) -> Result<(), BenchError> {
    let text = page(report)?;
    Ok(whole_file::write(path, text).map_err(|reason| PageError { path: path.to_owned(), reason })?)
}

/// The page, as text of HTML.
pub fn page(report: &PhysicalReport) -> Result<String, BenchError> {
    let experiments = report.experiments.iter().map(experiment).collect::<Result<Vec<_>, _>>()?;
    let sections = html! {
        (advice(report))
        @for experiment in &experiments { (experiment) }
        (left_out_wholly(&report.left_out))
        (settings(report))
    };
    Ok(document("What physical memory costs", &header(report), &sections))
}

fn header(report: &PhysicalReport) -> Markup {
    let machine = &report.machine;
    html! {
        header {
            h1 { "What physical memory costs" }
            p {
                "Spillway " (machine.spillway) ", Linux " (machine.kernel) ", " (machine.cpus) " CPUs ("
                (machine.processor) "), " ((machine.memory_bytes + (1 << 29)) >> 30) " GiB; "
                (report.tiers.join(", "))
                @if report.quick { "; little was measured (--quick)" }
            }
            p {
                "Load before the run " (format!("{:.1}", machine.load_before)) "; reading the clock takes "
                (format!("{:.0}", report.clock_ns)) " ns, which each time holds about once"
            }
            p { (HOW_TO_READ) }
            nav {
                a href="#advice" { "What to set" }
                @for ExperimentReport { name, .. } in &report.experiments {
                    a href=(format!("#{name}")) { (name) }
                }
            }
        }
    }
}

fn advice(report: &PhysicalReport) -> Markup {
    html! {
        section #advice {
            h2 { "What to set on this machine" }
            @if report.advice.is_empty() {
                p.note {
                    "Nothing that was measured says what to set: "
                    "run 'thp', 'khugepaged', 'threads' and 'capacity'."
                }
            } @else {
                div.card {
                    table {
                        thead {
                            tr {
                                @for head in ["setting", "now", "set to", "why", "measured"] { th { (head) } }
                            }
                        }
                        tbody {
                            @for advice in &report.advice {
                                tr {
                                    td { (advice.setting) }
                                    td { @if let Some(now) = &advice.now { (now) } @else { "-" } }
                                    td { b { (advice.value) } }
                                    td { (advice.why) }
                                    td { (advice.measurement) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn experiment(report: &ExperimentReport) -> Result<Markup, BenchError> {
    let pictures = report.panels.iter().map(picture).collect::<Result<Vec<_>, _>>()?;
    Ok(html! {
        section id=(report.name) {
            h2 { (report.name) ": " (report.about) }
            p.note {
                "The paper's " (report.paper) ". It " (report.does) "."
                @if let Some(method) = &report.method { " How: " (method) "." }
            }
            div.charts { @for svg in pictures.iter().flatten() { div.card { (PreEscaped(svg)) } } }
            @if !report.beside.is_empty() { (beside(&report.beside)) }
            @if !report.claims.is_empty() { div.card { (claims_table(&report.claims, 2)) } }
            @for note in &report.notes { p.note { (note) } }
            @for left in grouped(&report.left_out) { p.note { "Left out: " (left.what) ": " (left.reason) } }
            div.card {
                details { summary { "All numbers" } @for panel in &report.panels { (numbers(panel)) } }
            }
        }
    })
}

/// Violins where there are distributions, bars or lines where there is one value each.
pub(super) fn picture(panel: &Panel) -> Result<Option<String>, ChartError> {
    let violin = |row| {
        let Row { series, point, distribution, .. }: &Row = row;
        Violin { series, point, distribution: distribution.as_ref() }
    };
    let shown: Vec<_> = panel.rows.iter().map(violin).collect();
    if let Some(svg) = violins(&panel.title, &shown, &|value| number(value, &panel.unit))? {
        return Ok(Some(svg));
    }
    if panel.rows.is_empty() {
        return Ok(None);
    }
    let values = panel.rows.iter().map(|row| (row.series.as_str(), row.point.as_str(), row.value));
    Chart::of(&panel.title, &panel.unit, panel.stacked, values).svg().map(Some)
}

fn beside(rows: &[Beside]) -> Markup {
    let cell = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
    html! {
        div.card {
            table {
                thead { tr { th { "" } th { "paper, DRAM" } th { "paper, Optane" } th { "this machine" } } }
                tbody {
                    @for row in rows {
                        tr {
                            td { (row.what) }
                            td { (cell(&row.dram)) }
                            td { (cell(&row.optane)) }
                            td { b { (row.here) } }
                        }
                    }
                }
            }
        }
    }
}

fn numbers(panel: &Panel) -> Markup {
    let has_distributions = panel.rows.iter().any(|row| row.distribution.is_some());
    let percentiles = |row| percentiles(row, &panel.unit);
    html! {
        h3 { (panel.title) }
        table {
            thead {
                tr {
                    th {} th {}
                    @if has_distributions {
                        th.number { "count" }
                        @for name in PERCENTILES { th.number { (name) } }
                    } @else { th.number { (panel.unit) } }
                }
            }
            tbody {
                @for row in &panel.rows {
                    tr {
                        td { (row.point) }
                        td { (row.series) }
                        @if let Some((all, values)) = row.distribution.as_ref().zip(percentiles(row)) {
                            td.number { (all.count) }
                            @for value in values { td.number { (value) } }
                        } @else { td.number { (number(row.value, &panel.unit)) } }
                    }
                }
            }
        }
    }
}

fn left_out_wholly(left_out: &[LeftOut]) -> Markup {
    html! {
        @if !left_out.is_empty() {
            section #left-out {
                h2 { "Left out" }
                @for left in grouped(left_out) { p { b { (left.what) } ": " (left.reason) } }
            }
        }
    }
}

fn settings(report: &PhysicalReport) -> Markup {
    html! {
        section #settings {
            h2 { "How the machine was set" }
            p.note { "It is set so again." }
            div.card {
                table {
                    tbody { @for (path, value) in &report.settings { tr { td { (path) } td { (value) } } } }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::physical::advice::tests::report;
    use spillway_report::distribution::Distribution;

    #[test]
    fn the_page_has_violins_the_paper_and_what_was_left_out_and_refers_to_nothing() {
        let mut violins = Panel::new("First touch", "ns");
        violins.distribution("alone", "4 KiB", &[], Distribution::of(vec![500, 600, 700]));
        let mut bars = Panel { stacked: true, ..Panel::new("Parts", "ns") };
        bars.value("zeroing", "4 KiB", &[], 300.0);
        let mut report = report(vec![("alloc", violins), ("breakdown", bars)]);
        report.experiments[0].beside("4 KiB", Some("1x"), Some("51x <of DRAM>"), Some("0.6 us".to_owned()));
        report.left_out.push(LeftOut { what: "khugepaged".to_owned(), reason: "not root".to_owned() });
        let page = page(&report).unwrap();
        for words in [
            "51x &lt;of DRAM&gt;",
            "600 ns",
            "Left out",
            "not root",
            "id=\"advice\"",
            "<polygon",
            "zeroing",
            HOW_TO_READ,
        ] {
            assert!(page.contains(words), "no '{words}' in {page}");
        }
        assert_eq!(page.matches("<svg").count(), 2);
        let outside = page.replace("http://www.w3.org/2000/svg", "");
        for reference in ["http:", "https:", "src=", "<script"] {
            assert!(!outside.contains(reference), "the page refers to '{reference}'");
        }
    }
}
