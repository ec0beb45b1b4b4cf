//! The goals of the suite, set before its first measurement, and whether the figures reach them.

use super::cell::cell;
use super::parts::Part;
use super::report::{Configuration, Outcome, ProgramsReport, Rival, Row, geometric_mean};

/// Shares of the memory, in percent, at which they are to be reached.
pub const GOAL_SHARES: [u64; 2] = [50, 25];
/// Spillway without flags over the best that zram does: the geometric mean of all programs.
const SUITE: f64 = 1.5;
/// The same of the worst program.
const WORST: f64 = 1.0;
/// The same of one program.
const OF_PROGRAMS: [(&str, f64); 2] = [("redis_uniform", 1.2), ("redis_zipf", 1.5)];
/// Pages that Spillway fetches over those that the kernel swaps in, in the worst program.
const FETCHES_WORST: f64 = 1.0;
/// The same, the geometric mean of all programs.
const FETCHES_MEAN: f64 = 0.85;
/// Where the kernel swaps in fewer pages than this, their ratio says nothing.
const FEWEST_PAGES: u64 = 1000;

/// The table of the goals; none where nothing was measured at their shares.
pub(super) fn table(report: &ProgramsReport) -> Option<Part> {
    let rows: Vec<Vec<String>> = GOAL_SHARES.iter().flat_map(|&share| of_share(report, share)).collect();
    let head = ["local", "goal", "reached", "figure"].map(str::to_owned).to_vec();
    (!rows.is_empty()).then_some(Part::Table { head, rows })
}

fn of_share(report: &ProgramsReport, local_pct: u64) -> Vec<Vec<String>> {
    let line = |goal: String, is_reached: bool, figure: String| {
        let reached = if is_reached { "yes" } else { "**no**" }.to_owned();
        vec![format!("{local_pct}%"), goal, reached, figure]
    };
    let Some(summary) = report.summary(local_pct, Configuration::Default, Rival::Zram) else {
        return Vec::new();
    };
    let named = |what: &str, programs: &[String]| match programs {
        [] => String::new(),
        programs => format!("; {what}: {}", programs.join(", ")),
    };
    let lost = named("lost", &summary.lost);
    let left_out = named("unequal", &summary.unequal);
    let is_whole = summary.lost.is_empty();
    let (program, worst) = &summary.worst;
    let mut lines = vec![
        line(
            format!("zram's best, mean {SUITE}"),
            is_whole && summary.mean >= SUITE,
            format!("{:.2} of {}{left_out}{lost}", summary.mean, summary.programs),
        ),
        line(
            format!("the worst {WORST:.1}"),
            is_whole && *worst >= WORST,
            format!("{worst:.2} {program}{lost}"),
        ),
    ];
    for (program, goal) in OF_PROGRAMS {
        let mut rows = report.beside(local_pct, Configuration::Default, Rival::Zram);
        if let Some(row) = rows.find(|row| row.program == program) {
            let is_reached = row.ratio_median.is_some_and(|ratio| ratio >= goal) || is_won(row);
            lines.push(line(format!("{program} {goal}"), is_reached, cell(row)));
        }
    }
    lines.extend(
        fetches(report, local_pct)
            .map(|(mean, count, program, worst)| {
                [
                    line(
                        format!("fetched over swapped in, mean {FETCHES_MEAN}"),
                        mean <= FETCHES_MEAN,
                        format!("{mean:.2} of {count}"),
                    ),
                    line(
                        format!("the same, worst {FETCHES_WORST:.1}"),
                        worst <= FETCHES_WORST,
                        format!("{worst:.2} {program}"),
                    ),
                ]
            })
            .into_iter()
            .flatten(),
    );
    lines
}

/// Spillway has ended well where zram has not.
fn is_won(row: &Row) -> bool {
    row.outcome == Outcome::Ok && row.versus_outcome != Outcome::Ok
}

/// Pages fetched over pages swapped in, where both have ended well in as much memory: the mean, of how many,
/// and the worst.
fn fetches(report: &ProgramsReport, local_pct: u64) -> Option<(f64, usize, &str, f64)> {
    let rows = report.beside(local_pct, Configuration::Default, Rival::Zram);
    let both = rows.filter(|row| {
        row.ratio_median.is_some() && row.memory_is_equal() && row.swapped_in_pages >= FEWEST_PAGES
    });
    // None fetched counts as one, for the sake of the mean.
    let of_row = |row: &Row| row.fetched_pages.max(1) as f64 / row.swapped_in_pages as f64;
    let ratios: Vec<(&str, f64)> = both.map(|row| (row.program.as_str(), of_row(row))).collect();
    let (program, worst) = ratios.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let mean = geometric_mean(ratios.iter().map(|(_, ratio)| *ratio));
    Some((mean, ratios.len(), program, worst))
}

#[cfg(test)]
mod tests {
    use super::super::parts::markdown;
    use super::super::report::tests::{report_of, row, side};
    use super::*;
    use crate::whole::workload::Measure;

    fn row_of(program: &str, ratio: f64, fetched_pages: u64) -> Row {
        let (ours, theirs) = (side("", &[(Outcome::Ok, 1.0)]), side("", &[(Outcome::Ok, ratio)]));
        let row = row(&ours, &theirs, Measure::Seconds);
        Row { program: program.to_owned(), fetched_pages, swapped_in_pages: 10_000, ..row }
    }

    fn shown(rows: Vec<Row>) -> String {
        markdown(&[table(&report_of(rows)).unwrap()])
    }

    #[test]
    fn each_goal_is_held_against_the_figures() {
        let text = shown(vec![row_of("redis_uniform", 1.0, 9_000), row_of("sort", 4.0, 4_000)]);
        for words in [
            "| 50% | zram's best, mean 1.5 | yes | 2.00 of 2 |",
            "| 50% | the worst 1.0 | yes | 1.00 redis_uniform |",
            "| 50% | redis_uniform 1.2 | **no** | 1.00 |",
            "| 50% | fetched over swapped in, mean 0.85 | yes | 0.60 of 2 |",
            "| 50% | the same, worst 1.0 | yes | 0.90 redis_uniform |",
        ] {
            assert!(text.contains(words), "no '{words}' in {text}");
        }
        assert!(!text.contains("redis_zipf") && !text.contains("25%"), "{text}");
    }

    #[test]
    fn what_is_left_out_for_its_memory_is_named() {
        let roomy = Row { versus_anonymous_bytes: 104, ..row_of("xz", 0.1, 4_000) };
        let text = shown(vec![row_of("sort", 4.0, 4_000), roomy]);
        assert!(text.contains("mean 1.5 | yes | 4.00 of 1; unequal: xz |"), "{text}");
    }

    #[test]
    fn a_program_that_spillway_loses_misses_the_suites_goals() {
        let good = row_of("sort", 4.0, 4_000);
        let lost = Row { outcome: Outcome::Killed, ratio_median: None, ..row_of("node", 4.0, 4_000) };
        let text = shown(vec![good, lost]);
        assert!(text.contains("mean 1.5 | **no** | 4.00 of 1; lost: node |"), "{text}");
        assert!(text.contains("the worst 1.0 | **no** | 4.00 sort; lost: node |"), "{text}");
    }
}
