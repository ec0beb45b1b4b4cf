//! The results in words and tables, which a terminal of 80 columns shows as they are.

use spillway_report::order::distinct;

use super::cell::{UNEQUAL, cell};
use super::goals;
use super::parts::{self, Part};
use super::report::{Configuration, Outcome, ProgramsReport, Rival, Row};

/// All of it in Markdown.
#[must_use]
pub fn markdown(report: &ProgramsReport) -> String {
    parts::markdown(&parts(report))
}

/// All of it, the most telling first.
#[must_use]
pub fn parts(report: &ProgramsReport) -> Vec<Part> {
    let mut parts = Vec::new();
    if !report.rows.is_empty() {
        let (heading, paragraph) =
            (|text: &str| Part::Heading(text.to_owned()), |text: &str| Part::Paragraph(text.to_owned()));
        parts.extend([
            heading("In short"),
            paragraph(
                "How many times as fast as a rival Spillway is: geometric means of the programs that both \
                 sides end well with as much memory, and the worst of these beside zram.",
            ),
            summary(report),
        ]);
        if let Some(table) = goals::table(report) {
            let about = "Set before the first measurement; for Spillway with no flag but --local.";
            parts.extend([heading("Goals"), paragraph(about), table]);
        }
        for versus in Rival::ALL {
            let Some(table) = ratios(report, versus) else { continue };
            parts.extend([heading(&format!("Times as fast as {}", versus.title())), table]);
        }
        if report.rows.iter().any(|row| row.ratio_median.is_some() && !row.memory_is_equal()) {
            let words = format!("{UNEQUAL} The two sides' memory differs by more than 3%: not in the means.");
            parts.push(Part::Paragraph(words));
        }
        parts.extend(lost(report));
        parts.extend([
            heading("Pages and processor time, beside zram"),
            paragraph("Spillway's number first. Pages in: fetched by Spillway, swapped in by the kernel."),
            pages(report),
        ]);
        parts.extend(latency(report));
        parts.extend([
            heading("Memory, beside zram"),
            paragraph(
                "Spillway's number first. Resident anonymous memory of all of the program's processes, a \
                 page that they share counted once: the median of a look every 25 ms from outside, since \
                 it has first come near its most. Besides: what Spillway's stores, the kernel or zram need \
                 more at most. zram's setting is that of its best.",
            ),
            memory(report),
        ]);
    }
    if !report.programs.is_empty() {
        parts.extend([Part::Heading("Programs".to_owned()), programs(report), about(report)]);
    }
    if !report.not_measured.is_empty() {
        parts.extend([Part::Heading("Not measured".to_owned()), Part::List(report.not_measured.clone())]);
    }
    parts
}

fn mib(bytes: u64) -> String {
    (bytes >> 20).to_string()
}

fn owned<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

fn shares(report: &ProgramsReport) -> Vec<u64> {
    distinct(report.rows.iter().map(|row| row.local_pct))
}

fn configurations(report: &ProgramsReport) -> Vec<Configuration> {
    distinct(report.rows.iter().map(|row| row.configuration))
}

fn summary(report: &ProgramsReport) -> Part {
    let mut rows = Vec::new();
    for local_pct in shares(report) {
        for configuration in configurations(report) {
            let of = |versus| report.summary(local_pct, configuration, versus);
            let mean = |versus| of(versus).filter(|summary| summary.programs > 0);
            let mean = |versus| mean(versus).map_or("-".to_owned(), |summary| format!("{:.2}", summary.mean));
            let Some(zram) = of(Rival::Zram).or_else(|| of(Rival::Unlimited)) else { continue };
            let (program, worst) = &zram.worst;
            rows.push(vec![
                format!("{local_pct}%"),
                configuration.name().to_owned(),
                mean(Rival::Zram),
                mean(Rival::Ramdisk),
                mean(Rival::Unlimited),
                if zram.programs > 0 { format!("{worst:.2} {program}") } else { "-".to_owned() },
                format!("{} of {}", zram.programs, report.programs.len()),
                zram.lost.len().to_string(),
            ]);
        }
    }
    let head = owned(["local", "Spillway", "zram", "RAM disk", "unlimited", "worst", "both end", "lost"]);
    Part::Table { head, rows }
}

/// How many times as fast as a rival Spillway is; none where it was not measured.
fn ratios(report: &ProgramsReport, versus: Rival) -> Option<Part> {
    let configurations = configurations(report);
    let mut rows = Vec::new();
    for program in &report.programs {
        for local_pct in shares(report) {
            let of = |configuration| {
                let mut rows = report.beside(local_pct, configuration, versus);
                rows.find(|row| row.program == program.name).map(cell)
            };
            let cells: Vec<Option<String>> = configurations.iter().map(|&one| of(one)).collect();
            if cells.iter().any(Option::is_some) {
                let cells = cells.into_iter().map(|cell| cell.unwrap_or_else(|| "-".to_owned()));
                let first = [program.name.clone(), format!("{local_pct}%")];
                rows.push(first.into_iter().chain(cells).collect());
            }
        }
    }
    let names = configurations.iter().map(|one| one.name().to_owned());
    let head = owned(["program", "local"]).into_iter().chain(names).collect();
    (!rows.is_empty()).then_some(Part::Table { head, rows })
}

/// What did not end well, and why.
fn lost(report: &ProgramsReport) -> Vec<Part> {
    let named = |row: &Row, side: &str, outcome: Outcome, reason: &Option<String>| {
        let outcome = if outcome == Outcome::Wrong { "wrong" } else { "killed" };
        let reason = reason.as_deref().unwrap_or("no reason known");
        format!("{} at {}%, {side}: {outcome}: {reason}", row.program, row.local_pct)
    };
    let ours = report.rows.iter().filter(|row| row.outcome != Outcome::Ok).map(|row| {
        let side = format!("Spillway {}", row.configuration.name());
        named(row, &side, row.outcome, &row.reason)
    });
    let theirs = report
        .rows
        .iter()
        .filter(|row| row.versus_outcome != Outcome::Ok)
        .map(|row| named(row, row.versus.title(), row.versus_outcome, &row.versus_reason));
    let all: Vec<String> = distinct(ours.chain(theirs));
    if all.is_empty() {
        return Vec::new();
    }
    vec![Part::Heading("Lost".to_owned()), Part::List(all)]
}

fn beside_zram(report: &ProgramsReport, cells: impl Fn(&Row) -> Vec<String>) -> Vec<Vec<String>> {
    let rows = report.rows.iter().filter(|row| row.versus == Rival::Zram);
    rows.map(|row| {
        let first = [row.program.clone(), format!("{}%", row.local_pct), row.configuration.name().to_owned()];
        first.into_iter().chain(cells(row)).collect()
    })
    .collect()
}

fn pages(report: &ProgramsReport) -> Part {
    let rows = beside_zram(report, |row| {
        vec![
            format!("{} / {}", row.fetched_pages, row.swapped_in_pages),
            format!("{:.1} / {:.1}", row.cpu_s, row.versus_cpu_s),
        ]
    });
    Part::Table { head: owned(["program", "local", "Spillway", "pages in", "CPU s"]), rows }
}

/// Of the programs that have clients.
fn latency(report: &ProgramsReport) -> Vec<Part> {
    let rows = beside_zram(report, |row| match (row.latency, row.versus_latency) {
        (Some(ours), Some(theirs)) => vec![
            format!("{:.0} / {:.0}", ours.p50_us, theirs.p50_us),
            format!("{:.0} / {:.0}", ours.p99_us, theirs.p99_us),
        ],
        _ => Vec::new(),
    });
    let rows: Vec<Vec<String>> = rows.into_iter().filter(|row| row.len() == 5).collect();
    if rows.is_empty() {
        return Vec::new();
    }
    let head = owned(["program", "local", "Spillway", "p50 us", "p99 us"]);
    let heading = "Latency of the program's own clients, beside zram".to_owned();
    vec![Part::Heading(heading), Part::Table { head, rows }]
}

fn memory(report: &ProgramsReport) -> Part {
    let rows = beside_zram(report, |row| {
        vec![
            format!("{} / {}", mib(row.anonymous_bytes), mib(row.versus_anonymous_bytes)),
            format!("{} / {}", mib(row.besides_bytes), mib(row.versus_besides_bytes)),
            row.versus_setting.clone(),
        ]
    });
    let head = owned(["program", "local", "Spillway", "resident MiB", "besides MiB", "zram's setting"]);
    Part::Table { head, rows }
}

fn programs(report: &ProgramsReport) -> Part {
    let rows = report.programs.iter().map(|program| {
        let value = format!("{:.2} {}", program.unlimited, program.measure.unit());
        vec![program.name.clone(), value, mib(program.peak_anonymous_bytes)]
    });
    Part::Table { head: owned(["program", "with all memory", "anonymous MiB"]), rows: rows.collect() }
}

fn about(report: &ProgramsReport) -> Part {
    Part::List(report.programs.iter().map(|program| format!("{}: {}", program.name, program.about)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::report::tests::{report_of, row, side};
    use crate::whole::workload::Measure;

    #[test]
    fn means_come_first_and_what_was_lost_has_its_reason() {
        let good = side("page-cluster 3", &[(Outcome::Ok, 2.0)]);
        let mut killed = side("", &[(Outcome::Killed, 0.0)]);
        killed.samples[0].reason = Some("cut off after 9 s".to_owned());
        let lost = Row { program: "node".to_owned(), ..row(&killed, &good, Measure::Seconds) };
        let report = report_of(vec![row(&good, &good, Measure::Seconds), lost]);
        let text = markdown(&report);
        let first = "| 50% | default | 1.00 | - | - | 1.00 sort | 1 of 2 | 1 |";
        for words in [first, "node at 50%, Spillway default: killed: cut off after 9 s", "| node | 50% |"] {
            assert!(text.contains(words), "no '{words}' in {text}");
        }
        assert!(text.find(first) < text.find("## Times as fast as zram"), "{text}");
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    }
}
