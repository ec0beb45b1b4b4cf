//! The tables, in Markdown.

use std::fmt::Write;

use super::report::{AblationReport, Class, Row};
use super::switches::Otherwise;

/// All tables, one after the other.
#[must_use]
pub fn markdown(report: &AblationReport) -> String {
    let mut text = String::new();
    if !report.rows.is_empty() {
        means(&mut text, report);
        for way in &report.ablated {
            details(&mut text, report, way);
        }
    }
    for reason in &report.not_measured {
        let _ = writeln!(text, "\nNot measured: {reason}");
    }
    text
}

fn ratio(ratio: Option<f64>) -> String {
    ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}"))
}

fn means(text: &mut String, report: &AblationReport) {
    let classes = report.classes();
    text.push_str("## Speed beside the usual, geometric means\n\n| switch | in place of |");
    classes.iter().for_each(|class| _ = write!(text, " {} |", class.name()));
    let _ = writeln!(text, " what it is |\n|---|---|{}---|", "---|".repeat(classes.len()));
    for way in &report.ablated {
        if report.of_way(way).next().is_none() {
            continue;
        }
        let _ = write!(text, "| {} | {} |", way.name(), way.usual);
        for &class in &classes {
            let _ = write!(text, " {} |", ratio(report.mean(way, class)));
        }
        let _ = writeln!(text, " {}{} |", way.about, over(way));
    }
    text.push_str("\nBelow 1: the program is slower so, and the usual is worth that much.\n");
}

fn over(way: &Otherwise) -> String {
    way.store.as_ref().map_or(String::new(), |store| format!(", over `{store}`"))
}

fn details(text: &mut String, report: &AblationReport, way: &Otherwise) {
    let rows: Vec<&Row> = report.of_way(way).collect();
    if rows.is_empty() {
        return;
    }
    let how = way.how.trim_end().replace('\n', " ");
    let _ = writeln!(text, "\n## {}\n\n`{how}`{}: {}.\n", way.name(), over(way), way.about);
    text.push_str("| workload | threads | so | usual | unit | speed | least - most | fetched so | usual |\n");
    text.push_str("|---|---|---|---|---|---|---|---|---|\n");
    for row in rows {
        let threads = row.work.threads.map_or("-".to_owned(), |threads| threads.to_string());
        let speed = match &row.lost {
            None => {
                let ends = format!("{} - {}", ratio(row.ratio_min), ratio(row.ratio_max));
                format!("{} | {ends}", ratio(row.ratio_median))
            }
            Some(reason) => format!("lost | {}", reason.replace('|', "/")),
        };
        let _ = writeln!(
            text,
            "| {} | {threads} | {} | {} | {} | {speed} | {} | {} |",
            row.work.name,
            number(row.with.value),
            number(row.usual.value),
            row.work.unit,
            number(row.with.fetched),
            number(row.usual.fetched)
        );
    }
}

/// With three digits that say something.
fn number(value: f64) -> String {
    match value.abs() {
        large if large >= 100.0 => format!("{value:.0}"),
        middle if middle >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// A class of workloads, with a mean for each way in the order of the list.
pub(crate) fn by_class(report: &AblationReport, class: Class) -> Vec<Option<f64>> {
    report.ablated.iter().map(|way| report.mean(way, class)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::report;
    use super::*;

    #[test]
    fn means_come_first_and_every_workload_has_its_turns() {
        let text = markdown(&report());
        for words in [
            "| block = elastic | streams | 1.00 | 2.00 | 2.00 | how much is fetched at once;",
            "`--block elastic`: how much is fetched at once;",
            "| zipf | 1 | 200 | 110 | ns an access | 0.50 | 0.25 - 1.00 | 20.00 | 11.00 |",
            "| sort | - | 60.00 | 110 | ns an access | lost | signal: 9 | 6.00 | 11.00 |",
            "Not measured: redis_zipf: not installed",
        ] {
            assert!(text.contains(words), "no '{words}' in {text}");
        }
        assert!(!text.contains("block = 64K"), "{text}");
    }
}
