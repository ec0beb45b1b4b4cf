//! The results for a terminal of 80 columns.

use std::fmt::Write;

use super::{CommandReport, Condition, Row};
use crate::programs::report::Outcome;

/// The table, and what it comes to in a sentence.
#[must_use]
pub fn table(report: &CommandReport) -> String {
    let mut text = String::new();
    let flags: String = report.flags.iter().map(|flag| format!("{flag} ")).collect();
    let local = size(report.local_bytes);
    let _ = writeln!(text, "spillway run --local {local} {flags}-- {}\n", report.command.join(" "));
    text.push_str(&line(["", "time", "", "resident", "besides", "pages in", "CPU"].map(str::to_owned)));
    report.rows.iter().for_each(|row| text.push_str(&line(cells(row))));
    text.push('\n');
    let turns = if report.repetitions == 1 { "One turn".to_owned() } else { medians(report.repetitions) };
    let _ = writeln!(text, "{turns}. {}", outputs(report));
    if let Some((ratio, is_equal)) = report.against_zram() {
        let but = if is_equal { "" } else { ", but the two held different memory: take a longer run" };
        let _ = writeln!(text, "Spillway is {ratio:.2} times as fast as zram{but}.");
    }
    for row in &report.rows {
        row.reason.iter().for_each(|reason| _ = writeln!(text, "{}: {reason}", name(row.condition)));
    }
    report.not_measured.iter().for_each(|reason| _ = writeln!(text, "Not measured: {reason}"));
    text
}

/// As `--local` takes it.
fn size(bytes: u64) -> String {
    if bytes.is_multiple_of(1 << 20) { format!("{}M", bytes >> 20) } else { bytes.to_string() }
}

fn medians(turns: usize) -> String {
    format!("Medians of {turns} turns")
}

fn line(cells: [String; 7]) -> String {
    let [name, time, ratio, resident, besides, pages, cpu] = cells;
    let line = format!("{name:<12}{time:>10}{ratio:>9}{resident:>11}{besides:>11}{pages:>11}{cpu:>10}");
    format!("{}\n", line.trim_end())
}

fn cells(row: &Row) -> [String; 7] {
    let bytes = |bytes: Option<u64>| bytes.map_or("-".to_owned(), |bytes| format!("{} MiB", bytes >> 20));
    let name = name(row.condition).to_owned();
    let (time, ratio) = match row.times_as_long {
        Some(ratio) => (format!("{:.2} s", row.seconds), format!("x {ratio:.2}")),
        None if row.outcome == Outcome::Wrong => ("wrong".to_owned(), String::new()),
        // The command's own status for what it could not start.
        None if row.reason.as_ref().is_some_and(|reason| reason.starts_with("exit status: 125")) => {
            ("no start".to_owned(), String::new())
        }
        None => ("killed".to_owned(), String::new()),
    };
    let pages = match row.condition {
        Condition::Unlimited => String::new(),
        _ => row.pages_in.to_string(),
    };
    [
        name,
        time,
        ratio,
        bytes(row.anonymous_bytes),
        bytes(row.besides_bytes),
        pages,
        format!("{:.2} s", row.cpu_s),
    ]
}

fn name(condition: Condition) -> &'static str {
    match condition {
        Condition::Unlimited => "all memory",
        Condition::Spillway => "Spillway",
        Condition::Zram => "zram",
    }
}

fn outputs(report: &CommandReport) -> &'static str {
    match report.rows.iter().any(|row| row.outcome == Outcome::Wrong) {
        true => "Outputs DIFFER: please report this.",
        false if report.rows.iter().any(|row| row.outcome == Outcome::Killed) => "A run did not end well.",
        false if report.any_output => "Outputs were not compared.",
        false => "All outputs are equal.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;

    fn row(condition: Condition, outcome: Outcome, seconds: f64) -> Row {
        Row {
            condition,
            setting: String::new(),
            outcome,
            reason: (outcome != Outcome::Ok).then(|| "signal: 9".to_owned()),
            seconds,
            times_as_long: (outcome == Outcome::Ok).then_some(seconds),
            cpu_s: 1234.56,
            anonymous_bytes: Some(1 << 40),
            besides_bytes: None,
            pages_in: 4_000_000_000,
        }
    }

    fn report(rows: Vec<Row>) -> CommandReport {
        CommandReport {
            machine: Machine::this(),
            command: vec!["sort".to_owned()],
            flags: Vec::new(),
            local_bytes: 128 << 20,
            any_output: false,
            repetitions: 3,
            rows,
            not_measured: Vec::new(),
        }
    }

    #[test]
    fn a_table_fits_a_terminal_and_says_who_is_faster() {
        let text = table(&report(vec![
            row(Condition::Unlimited, Outcome::Ok, 1.0),
            row(Condition::Spillway, Outcome::Ok, 99_999.0),
            row(Condition::Zram, Outcome::Ok, 49_999.5),
        ]));
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        assert!(text.contains("run --local 128M -- sort"), "{text}");
        assert!(
            text.contains(
                "\nMedians of 3 turns. All outputs are equal.\nSpillway is 0.50 times as fast as zram.\n"
            ),
            "{text}"
        );
    }

    #[test]
    fn who_is_lost_is_shown_and_not_compared() {
        let text = table(&report(vec![
            row(Condition::Spillway, Outcome::Wrong, 0.0),
            row(Condition::Zram, Outcome::Killed, 0.0),
        ]));
        assert!(text.contains("wrong") && text.contains("killed") && text.contains("DIFFER"), "{text}");
        assert!(!text.contains("as fast"), "{text}");
        assert!(text.contains("\nzram: signal: 9\n"), "{text}");
        let refused = Row {
            reason: Some("exit status: 125; it said: no".to_owned()),
            ..row(Condition::Spillway, Outcome::Killed, 0.0)
        };
        let text = table(&report(vec![refused]));
        assert!(text.contains("no start") && !text.contains("killed"), "{text}");
    }
}
