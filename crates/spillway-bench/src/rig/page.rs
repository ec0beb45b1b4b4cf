//! The rig's results for people: as a page, and as Markdown.

use std::fmt::Write as _;

use maud::{Markup, PreEscaped, html};
use spillway_report::ChartError;
use spillway_report::chart::Chart;
use spillway_report::document::document;
use spillway_report::order::distinct;

use super::plan::Plan;
use super::report::{Goal, Row};
use crate::machine::Machine;

const COLUMNS: [&str; 15] = [
    "workload",
    "local",
    "far, ns",
    "policy",
    "local hit ratio",
    "static oracle",
    "AMAT, ns",
    "promotions",
    "demotions",
    "good-put",
    "windows paused",
    "samples",
    "neighbour",
    "far misses, ns",
    "moved/s without and with it",
];

fn cells(row: &Row) -> [String; 15] {
    let share = |share: f64| format!("{:.1}%", share * 100.0);
    let windows = row.windows.zip(row.paused_windows).filter(|(windows, _)| *windows > 0);
    [
        row.workload.clone(),
        format!("{}%", row.local_pct),
        row.latency_ns.to_string(),
        row.policy.clone(),
        share(row.local_hit_ratio),
        share(row.oracle_local_hit_ratio),
        amat(row),
        row.promotions.to_string(),
        row.demotions.to_string(),
        row.good_put.map_or("-".to_owned(), share),
        windows.map_or("-".to_owned(), |(windows, paused)| format!("{paused} of {windows}")),
        samples(row),
        neighbour(row.contention_pct).to_owned(),
        row.far_latency_ns.map_or("-".to_owned(), |latency_ns| format!("{latency_ns:.0}")),
        moved(row),
    ]
}

/// Samples that the policy was told of, and how many were lost if any were.
fn samples(row: &Row) -> String {
    match (row.samples, row.lost_samples) {
        (None, _) => "-".to_owned(),
        (Some(samples), None | Some(0)) => samples.to_string(),
        (Some(samples), Some(lost)) => format!("{samples}, {lost} lost"),
    }
}

/// What takes a part of the link beside the workload.
fn neighbour(contention_pct: Option<u32>) -> String {
    match contention_pct {
        None => "-".to_owned(),
        Some(0) => "none".to_owned(),
        Some(pct) => format!("{pct}%"),
    }
}

/// Pages that moved in a second without the neighbour, and with it.
fn moved(row: &Row) -> String {
    let number = |per_s: Option<f64>| per_s.map_or("-".to_owned(), |per_s| format!("{per_s:.0}"));
    match row.contention_pct {
        None => "-".to_owned(),
        Some(_) => format!("{}, {}", number(row.moved_alone_per_s), number(row.moved_beside_per_s)),
    }
}

/// The median, and least and most of several starts.
fn amat(row: &Row) -> String {
    let of_starts = || row.starts.iter().map(|start| start.amat_ns);
    match of_starts().reduce(f64::min).zip(of_starts().reduce(f64::max)) {
        Some((least, most)) => format!("{:.1} ({least:.0}-{most:.0})", row.amat_ns),
        None => format!("{:.1}", row.amat_ns),
    }
}

/// All rows as a Markdown table.
#[must_use]
pub fn markdown(rows: &[Row]) -> String {
    let mut text = format!("| {} |\n|{}\n", COLUMNS.join(" | "), "---|".repeat(COLUMNS.len()));
    for row in rows {
        let _ = writeln!(text, "| {} |", cells(row).join(" | "));
    }
    text
}

/// Local hit ratios of every policy, workload by workload, as a short Markdown table for one latency and one
/// neighbour.
#[must_use]
pub fn short_markdown(rows: &[Row], latency_ns: u32, contention_pct: Option<u32>) -> String {
    let platform = (latency_ns, contention_pct);
    let of_platform = |row: &&Row| (row.latency_ns, row.contention_pct) == platform && row.local_pct < 100;
    let rows: Vec<&Row> = rows.iter().filter(of_platform).collect();
    let policies = distinct(rows.iter().map(|row| row.policy.as_str()));
    let mut text = format!("| workload, local memory | {} | static oracle |\n|---|", policies.join(" | "));
    text.push_str(&"---|".repeat(policies.len() + 1));
    for (workload, local_pct) in distinct(rows.iter().map(|row| (row.workload.as_str(), row.local_pct))) {
        let _ = write!(text, "\n| {workload}, {local_pct}% |");
        let of_case = || rows.iter().filter(|row| row.workload == workload && row.local_pct == local_pct);
        for policy in &policies {
            let row = of_case().find(|row| row.policy == *policy);
            let ratio = row.map_or("-".to_owned(), |row| format!("{:.0}%", row.local_hit_ratio * 100.0));
            let _ = write!(text, " {ratio} |");
        }
        let oracle = of_case().map(|row| row.oracle_local_hit_ratio).fold(0.0, f64::max);
        let _ = write!(text, " {:.0}% |", oracle * 100.0);
    }
    text + "\n"
}

fn picture(
    rows: &[Row],
    workload: &str,
    latency_ns: u32,
    contention_pct: Option<u32>,
) -> Result<String, ChartError> {
    let platform = (workload, latency_ns, contention_pct);
    let of_case: Vec<&Row> = rows
        .iter()
        .filter(|row| (row.workload.as_str(), row.latency_ns, row.contention_pct) == platform)
        .filter(|row| row.local_pct < 100)
        .collect();
    let shares = distinct(of_case.iter().map(|row| row.local_pct));
    let ratio = |policy: &str, local_pct: u32| {
        let row = of_case.iter().find(|row| row.policy == policy && row.local_pct == local_pct);
        row.map(|row| row.local_hit_ratio * 100.0)
    };
    let policies = distinct(of_case.iter().map(|row| row.policy.clone()));
    let series = policies.into_iter().map(|policy| {
        let values = shares.iter().map(|&local_pct| ratio(&policy, local_pct)).collect();
        (policy, values)
    });
    let beside = match contention_pct {
        None => String::new(),
        Some(0) => ", a link that can be busy".to_owned(),
        Some(pct) => format!(", a neighbour of {pct}%"),
    };
    let title = format!("{workload}: misses that local memory served, {latency_ns} ns{beside}");
    let points = shares.iter().map(|share| format!("{share}% local")).collect();
    Chart::bars(title, "%", points, series).svg()
}

/// The page.
///
/// # Errors
/// A picture cannot be drawn.
pub fn page(rows: &[Row], goals: &[Goal], plan: &Plan) -> Result<String, ChartError> {
    let machine = Machine::this();
    let mut pictures = Vec::new();
    let platforms = rows.iter().map(|row| (row.workload.as_str(), row.latency_ns, row.contention_pct));
    for (workload, latency_ns, contention_pct) in distinct(platforms) {
        pictures.push(picture(rows, workload, latency_ns, contention_pct)?);
    }
    let header = html! {
        header {
            h1 { "Hybrid memory on a real kernel" }
            p {
                "Spillway " (machine.spillway) "; guests of two memory nodes under QEMU without \
                                                KVM, " (plan.memory_mib)
                " MiB a workload, " (plan.warm_s) " s of the guest's time to settle \
                                                   and " (plan.measured_s) " s measured"
            }
            nav {
                a href="#goals" { "Goals" }
                a href="#pictures" { "Local hit ratios" }
                a href="#rows" { "All numbers" }
            }
        }
    };
    let sections = html! {
        (goals_section(goals))
        section #pictures {
            h2 { "Local hit ratios" }
            div.charts { @for svg in &pictures { div.card { (PreEscaped(svg)) } } }
        }
        (rows_section(rows))
    };
    Ok(document("Hybrid memory on a real kernel", &header, &sections))
}

fn goals_section(goals: &[Goal]) -> Markup {
    html! {
        section #goals {
            h2 { "Goals: " (goals.iter().filter(|goal| goal.met).count()) " of " (goals.len()) " met" }
            div.card {
                table {
                    thead { tr { th { "wanted" } th { "found" } th { "met" } } }
                    tbody {
                        @for goal in goals {
                            tr {
                                td { (goal.wanted) }
                                td { (goal.found) }
                                td { @if goal.met { "yes" } @else { b { "no" } } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn rows_section(rows: &[Row]) -> Markup {
    html! {
        section #rows {
            h2 { "All numbers" }
            p.note {
                "AMAT is 11.5 ns an access, 70 ns more where local memory serves it, and the latency of far \
                 memory where that does. "
                "The static oracle is the best fixed choice of pages, known afterwards. "
                "Where a range stands behind the AMAT, a case was begun several times, and each number is \
                 the median. "
                "Where there is a neighbour, the link's latency rises with what all together send over it, \
                 the neighbour takes its share of it in every other second, and AMAT counts what far misses \
                 took."
            }
            div.card {
                table {
                    thead { tr { @for column in COLUMNS { th { (column) } } } }
                    tbody { @for row in rows { tr { @for cell in cells(row) { td { (cell) } } } } }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::report::{blank, goals, median_of_starts};

    #[test]
    fn every_run_is_in_the_table_and_on_the_page() {
        let rows = [
            blank("bfs", "hotbox"),
            blank("bfs", "kernel"),
            Row { local_pct: 40, samples: Some(7), lost_samples: Some(2), ..blank("uniform", "hotbox") },
            median_of_starts(&[
                blank("uniform", "kernel"),
                Row { amat_ns: 300.0, ..blank("uniform", "kernel") },
            ])
            .unwrap(),
        ];
        let text = markdown(&rows);
        assert_eq!(text.lines().count(), 2 + rows.len());
        assert!(
            text.contains("| bfs | 20% | 750 | kernel | 50.0% |")
                && text.contains("| 8 of 10 | - |")
                && text.contains("| 8 of 10 | 7, 2 lost |")
                && text.contains("| 100.0 (100-300) |"),
            "{text}"
        );
        let short = short_markdown(&rows, 750, None);
        assert!(short.contains("| workload, local memory | hotbox | kernel | static oracle |"), "{short}");
        assert!(short.contains("| uniform, 40% | 50% | - | 50% |") && short.ends_with("|\n"), "{short}");
        let beside = Row {
            contention_pct: Some(36),
            far_latency_ns: Some(912.4),
            moved_alone_per_s: Some(20.0),
            moved_beside_per_s: Some(7.9),
            ..blank("bfs", "indigo")
        };
        let text = markdown(std::slice::from_ref(&beside));
        assert!(text.contains("| 36% | 912 | 20, 8 |"), "{text}");
        let short = short_markdown(&[blank("bfs", "tpp"), beside.clone()], 750, Some(36));
        assert!(short.contains("indigo") && !short.contains("tpp"), "{short}");
        let page_beside = super::page(&[beside], &[], &Plan::default()).unwrap();
        assert!(page_beside.contains("a neighbour of 36%"), "{page_beside}");
        let page = page(&rows, &goals(&rows), &Plan::default()).unwrap();
        assert!(
            page.contains("bfs: misses that local memory served") && page.contains("3 of 3 met"),
            "{page}"
        );
        assert!(!page.contains("<script") && !page.contains("=\"https"), "fetches nothing");
    }
}
