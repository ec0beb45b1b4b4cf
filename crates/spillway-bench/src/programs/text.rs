//! The results in Markdown, which a terminal of 100 columns shows as it is.

use std::fmt::Write;

use spillway_report::order::distinct;

use super::report::{Configuration, Outcome, ProgramsReport, Rival, Row};

/// All tables, one after the other.
#[must_use]
pub fn markdown(report: &ProgramsReport) -> String {
    let mut text = String::new();
    if !report.programs.is_empty() {
        programs(&mut text, report);
        for versus in Rival::ALL {
            ratios(&mut text, report, versus);
        }
        details(&mut text, report);
    }
    for line in &report.not_measured {
        let _ = writeln!(text, "\nNot measured: {line}");
    }
    text
}

fn mib(bytes: u64) -> String {
    format!("{}", bytes >> 20)
}

fn programs(text: &mut String, report: &ProgramsReport) {
    text.push_str("| program | what it does | unlimited | anonymous MiB |\n|---|---|---|---|\n");
    for program in &report.programs {
        let (value, unit) = (program.unlimited, program.measure.unit());
        let peak = mib(program.peak_anonymous_bytes);
        let _ = writeln!(text, "| {} | {} | {value:.2} {unit} | {peak} |", program.name, program.about);
    }
}

/// What a cell says: the ratio, or who was lost.
pub(crate) fn cell(row: &Row) -> String {
    let lost = |outcome| if outcome == Outcome::Wrong { "wrong" } else { "killed" };
    match row.ratio_median {
        Some(ratio) if row.memory_is_equal() => format!("{ratio:.2}"),
        Some(ratio) => format!("{ratio:.2} (memory differs)"),
        None if row.outcome != Outcome::Ok => format!("Spillway {}", lost(row.outcome)),
        None => format!("{} {}", row.versus.name(), lost(row.versus_outcome)),
    }
}

/// How many times as fast as a rival Spillway is.
fn ratios(text: &mut String, report: &ProgramsReport, versus: Rival) {
    let rows: Vec<&Row> = report.rows.iter().filter(|row| row.versus == versus).collect();
    if rows.is_empty() {
        return;
    }
    let shares = distinct(rows.iter().map(|row| row.local_pct));
    let configurations: Vec<Configuration> = distinct(rows.iter().map(|row| row.configuration));
    let columns: Vec<(u64, Configuration)> =
        shares.iter().flat_map(|&share| configurations.iter().map(move |&one| (share, one))).collect();
    let _ = write!(text, "\nHow many times as fast as {} Spillway is:\n\n| program |", versus.name());
    columns.iter().for_each(|(share, one)| _ = write!(text, " {share}% {} |", one.name()));
    let _ = writeln!(text, "\n|---|{}", "---|".repeat(columns.len()));
    for program in &report.programs {
        let _ = write!(text, "| {} |", program.name);
        for &(share, one) in &columns {
            let is = |row: &&&Row| {
                (row.program.as_str(), row.local_pct, row.configuration) == (&program.name, share, one)
            };
            let said = rows.iter().find(is).map_or("-".to_owned(), |row| cell(row));
            let _ = write!(text, " {said} |");
        }
        text.push('\n');
    }
    let _ = write!(text, "| geometric mean |");
    for &(share, one) in &columns {
        let mean = report.mean(share, one, versus);
        let said = mean.map_or("-".to_owned(), |(mean, programs)| format!("{mean:.2} ({programs})"));
        let _ = write!(text, " {said} |");
    }
    text.push('\n');
}

/// What the comparison with zram came to, number by number.
fn details(text: &mut String, report: &ProgramsReport) {
    let rows: Vec<&Row> = report.rows.iter().filter(|row| row.versus == Rival::Zram).collect();
    if rows.is_empty() {
        return;
    }
    text.push_str(
        "\nBeside zram, Spillway's number first. Memory is resident anonymous memory, the median over the \
         run; \
         \"besides\" is what Spillway or the kernel needs more.\n\n\
         | program | % | Spillway | zram | pages in | CPU s | MiB | besides MiB | p99 us |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        let p99 = match (row.latency, row.versus_latency) {
            (Some(ours), Some(theirs)) => format!("{:.0} / {:.0}", ours.p99_us, theirs.p99_us),
            _ => "-".to_owned(),
        };
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} / {} | {:.1} / {:.1} | {} / {} | {} / {} | {p99} |",
            row.program,
            row.local_pct,
            row.configuration.name(),
            row.versus_setting,
            row.fetched_pages,
            row.swapped_in_pages,
            row.cpu_s,
            row.versus_cpu_s,
            mib(row.anonymous_bytes),
            mib(row.versus_anonymous_bytes),
            mib(row.besides_bytes),
            mib(row.versus_besides_bytes),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::report::tests::{row, side};
    use crate::whole::workload::Measure;

    #[test]
    fn a_cell_says_who_was_lost() {
        let good = side("page-cluster 3", &[(Outcome::Ok, 2.0)]);
        let killed = side("", &[(Outcome::Killed, 0.0)]);
        let wrong = side("", &[(Outcome::Wrong, 0.0)]);
        assert_eq!(cell(&row(&good, &good, Measure::Seconds)), "1.00");
        assert_eq!(cell(&row(&wrong, &good, Measure::Seconds)), "Spillway wrong");
        assert_eq!(cell(&row(&good, &killed, Measure::Seconds)), "zram killed");
        let mut unequal = row(&good, &good, Measure::Seconds);
        unequal.versus_anonymous_bytes *= 2;
        assert_eq!(cell(&unequal), "1.00 (memory differs)");
    }
}
