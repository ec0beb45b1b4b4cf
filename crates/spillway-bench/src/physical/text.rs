//! The results in words and tables, for a terminal and for pages.

use std::fmt::Write;

use super::report::{ExperimentReport, LeftOut, Panel, PhysicalReport, Row, grouped};

/// A number of its unit in few characters: nanoseconds as people read them.
#[must_use]
pub fn number(value: f64, unit: &str) -> String {
    if !unit.starts_with("ns") {
        return if value.abs() >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") };
    }
    match value {
        ns if ns < 1e3 => format!("{ns:.0} ns"),
        ns if ns < 1e4 => format!("{:.2} us", ns / 1e3),
        ns if ns < 1e6 => format!("{:.0} us", ns / 1e3),
        ns if ns < 1e7 => format!("{:.2} ms", ns / 1e6),
        ns if ns < 1e9 => format!("{:.0} ms", ns / 1e6),
        ns => format!("{:.2} s", ns / 1e9),
    }
}

/// What stands in the columns of a distribution.
pub const PERCENTILES: [&str; 6] = ["p1", "median", "p99", "p99.9", "max", "mean"];

/// The values of these columns.
#[must_use]
pub fn percentiles(row: &Row, unit: &str) -> Option<[String; PERCENTILES.len()]> {
    let all = row.distribution.as_ref()?;
    let values = [all.p1, all.p50, all.p99, all.p99_9, all.max, all.mean];
    Some(values.map(|value| number(value, unit)))
}

/// One experiment, in lines of 80 columns.
#[must_use]
pub fn experiment(report: &ExperimentReport) -> String {
    let mut text = "\n".to_owned();
    text.push_str(&wrapped(&format!("{} ({}): {}", report.name, report.paper, report.about), ""));
    if let Some(method) = &report.method {
        text.push_str(&wrapped(method, "  "));
    }
    report.panels.iter().for_each(|panel| text.push_str(&terminal_table(panel)));
    for beside in &report.beside {
        let paper = [("DRAM", &beside.dram), ("Optane", &beside.optane)];
        let paper: Vec<String> =
            paper.iter().filter_map(|(name, value)| Some(format!("{name} {}", value.as_ref()?))).collect();
        let paper = if paper.is_empty() { String::new() } else { format!(" (paper: {})", paper.join(", ")) };
        text.push_str(&wrapped(&format!("{}: {}{paper}", beside.what, beside.here), "  "));
    }
    for claim in &report.claims {
        let mark = claim.verdicts();
        text.push_str(&wrapped(&format!("{mark}: {}; here {:.2}", claim.text, claim.value), "  "));
    }
    report.notes.iter().for_each(|note| text.push_str(&wrapped(note, "  ")));
    grouped(&report.left_out).iter().for_each(|left| text.push_str(&left_out(left)));
    text
}

/// What is to be said at the end.
#[must_use]
pub fn ending(report: &PhysicalReport) -> String {
    let mut text = String::new();
    grouped(&report.left_out).iter().for_each(|left| text.push_str(&left_out(left)));
    if !report.advice.is_empty() {
        text.push_str("\nWhat to set on this machine\n");
    }
    for advice in &report.advice {
        let now = advice.now.as_ref().map(|now| format!(" (now {now})")).unwrap_or_default();
        let _ = writeln!(text, "{}: {}{now}", advice.setting, advice.value);
        text.push_str(&wrapped(&advice.why, "    "));
        text.push_str(&wrapped(&advice.measurement, "    "));
    }
    text
}

fn left_out(left: &LeftOut) -> String {
    wrapped(&format!("left out: {}: {}", left.what, left.reason), "  ")
}

/// Lines of at most 80 characters.
#[must_use]
pub fn wrapped(text: &str, indent: &str) -> String {
    const WIDTH: usize = 80;
    let mut lines = String::new();
    let mut line = indent.to_owned();
    for word in text.split_whitespace() {
        let is_begun = line.trim().len() > indent.trim().len();
        if is_begun && line.chars().count() + 1 + word.chars().count() > WIDTH {
            lines.push_str(&line);
            lines.push('\n');
            line = format!("{indent}  ");
        } else if is_begun {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines + &line + "\n"
}

fn terminal_table(panel: &Panel) -> String {
    let mut text = format!("\n  {}", panel.title);
    let has_distributions = panel.rows.iter().any(|row| row.distribution.is_some());
    if has_distributions {
        text.push('\n');
        let _ = write!(text, "  {:<30}", "");
        PERCENTILES.iter().for_each(|name| {
            let _ = write!(text, "{name:>8}");
        });
    } else {
        let _ = write!(text, " [{}]", panel.unit);
    }
    text.push('\n');
    for row in &panel.rows {
        let name = format!("{}, {}", row.point, row.series);
        match percentiles(row, &panel.unit) {
            Some(values) => {
                let _ = write!(text, "  {name:<30}");
                values.iter().for_each(|value| {
                    let _ = write!(text, "{value:>8}");
                });
                text.push('\n');
            }
            None => {
                let _ = writeln!(text, "  {name:<50}{:>10}", number(row.value, &panel.unit));
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use spillway_report::claim::Asks;

    use super::*;
    use spillway_report::distribution::Distribution;

    #[test]
    fn numbers_have_units_that_people_read() {
        for (ns, text) in
            [(12.4, "12 ns"), (1500.0, "1.50 us"), (42_000.0, "42 us"), (3e6, "3.00 ms"), (2e9, "2.00 s")]
        {
            assert_eq!(number(ns, "ns"), text);
        }
        assert_eq!((number(1.234, "GB/s"), number(123.4, "%")), ("1.23".to_owned(), "123".to_owned()));
    }

    #[test]
    fn an_experiment_has_its_distributions_and_fits_80_columns() {
        let mut panel = Panel::new("First touch", "ns");
        panel.distribution("on all CPUs", "hugetlb 1 GiB", &[], Distribution::of(vec![1_234_567; 3]));
        panel.value("alone", "4 KiB", &[], 12.0);
        let about = "what the first touch of a page costs, by the size of the page, and so on".to_owned();
        let mut report = ExperimentReport { about, panels: vec![panel], ..ExperimentReport::default() };
        report.beside("what was measured", Some("1x"), None, Some("2x".to_owned()));
        report.sized("costs more", "4x", Asks::Larger, 4.0, Some(2.0));
        report.leave_out(
            "hugetlb",
            "a reason that is so long that it does not fit into one line of eighty columns by far",
        );
        let text = experiment(&report);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let verdicts = "holds, differs in size: costs more";
        for words in ["p99.9", "1.23 ms", "(paper: DRAM 1x)", verdicts, "left out: hugetlb"] {
            assert!(text.contains(words), "no '{words}' in {text}");
        }
    }
}
