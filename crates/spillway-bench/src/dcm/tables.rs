//! The tables of the paper's figures, ours beside its own, in Markdown.

use std::fmt::Write;

use super::SHARES;
use super::goals;
use super::means::{choices, mean, percent};
use super::report::{DcmReport, Far, WorkloadReport};

/// What the paper says about its Fig. 13: static best, elastic and static worst, by share.
const PAPER_13: [(u64, &str, &str, &str); 3] = [
    (75, "98.5%", "98.4%", "94.4%"),
    (50, "-", "94% on average (abstract), each above 90%", "-"),
    (25, "-", "within 5 points of the best", "up to 50 points below the best"),
];
/// Its Fig. 14: accuracy under D75 and D50.
const PAPER_14: [(&str, &str); 7] = [
    ("4K", "-"),
    ("8K", "0.94"),
    ("16K", "0.86"),
    ("32K", "0.80"),
    ("64K", "0.75"),
    ("elastic", "0.93"),
    ("streams", "-"),
];

/// All tables, in Markdown, one after the other.
#[must_use]
pub fn markdown(report: &DcmReport) -> String {
    let mut text = String::new();
    if !report.workloads.is_empty() {
        all(&mut text, report);
    }
    for failure in &report.failures {
        let _ = writeln!(text, "\nNot measured: {failure}");
    }
    text
}

fn all(text: &mut String, report: &DcmReport) {
    programs(text, report);
    fabric(text, report);
    if report.blocks.is_empty() {
        text.push_str(
            "\nThis `spillway run` has no `--block`: there is one column, for its own choice of blocks; Fig. \
             14 and 15 need the option.\n",
        );
    }
    static_blocks(text, report);
    elastic(text, report);
    if !report.blocks.is_empty() {
        accuracy(text, report);
        composition(text, report);
    }
    against_swap(text, report);
    goals::table(text, report);
}

fn fabric(text: &mut String, report: &DcmReport) {
    text.push_str(
        "\n\"As over FDR\" is a model (`?fabric=fdr`): each message takes at least what the paper's \
         InfiniBand FDR 4x takes by its Fig. 1 and section 2.2, and the messages of a run queue for one \
         link. The donor on this machine needs a processor for each page and may take longer; RAM does not, \
         as one-sided RDMA does not. Microseconds:\n\n",
    );
    text.push_str("| message | latency | occupies the link |\n|---|---|---|\n");
    for message in &report.fabric {
        let us = |ns: u64| ns as f64 / 1000.0;
        let (latency_us, occupancy_us) = (us(message.latency_ns), us(message.occupancy_ns));
        let _ =
            writeln!(text, "| {} KiB | {latency_us:.2} | {occupancy_us:.2} |", message.message_bytes >> 10);
    }
}

fn programs(text: &mut String, report: &DcmReport) {
    text.push_str(
        "| program | what it does | unlimited | anonymous memory | shared memory | Spillway, all local |\n",
    );
    text.push_str("|---|---|---|---|---|---|\n");
    for workload in &report.workloads {
        let _ = writeln!(
            text,
            "| {} | {} | {:.2} {} | {} MiB | {} MiB | {} |",
            workload.name,
            workload.about,
            workload.unlimited,
            workload.measure.unit(),
            workload.anonymous_bytes >> 20,
            workload.shared_bytes >> 20,
            percent(workload.all_local),
        );
    }
}

/// The columns of blocks: the choices, or the one that there is.
fn columns(report: &DcmReport) -> Vec<Option<&str>> {
    let blocks: Vec<_> = report.blocks.iter().map(|block| Some(block.as_str())).collect();
    if blocks.is_empty() { vec![None] } else { blocks }
}

fn static_blocks(text: &mut String, report: &DcmReport) {
    text.push_str("\n## Fig. 10: performance by block size, as a share of the unlimited run's\n\n");
    text.push_str("| program | far memory | local |");
    for block in columns(report) {
        let _ = write!(text, " {} |", block.unwrap_or("its own blocks"));
    }
    let _ = writeln!(text, "\n|---|---|---|{}", "---|".repeat(columns(report).len()));
    for workload in &report.workloads {
        for far in Far::SPILLWAY {
            for local_pct in SHARES {
                let _ = write!(text, "| {} | {} | D{local_pct} |", workload.name, far.name());
                for block in columns(report) {
                    let row = workload.find(far, local_pct, block);
                    let _ = write!(text, " {} |", row.map_or("-".to_owned(), |row| percent(row.normalised)));
                }
                text.push('\n');
            }
        }
    }
    text.push_str(
        "\nThe paper has this as a plot only. Its words: at D25 movielens (small) is best with 32 KiB, \
         twitter and TPC-C with 8 KiB; snap-aligner (small) wants large blocks at D75 and small ones at \
         D25.\n",
    );
}

fn elastic(text: &mut String, report: &DcmReport) {
    text.push_str(
        "\n## Fig. 13: elastic blocks beside the best and the worst static size, mean of the programs\n\n",
    );
    text.push_str("| local | far memory | static best | elastic | static worst |\n|---|---|---|---|---|\n");
    for (local_pct, best, elastic, worst) in PAPER_13 {
        let _ = writeln!(text, "| D{local_pct} | *the paper* | {best} | {elastic} | {worst} |");
        for far in Far::ALL {
            let choices = choices(report, far, local_pct);
            let show = |value: Option<f64>| value.map_or("-".to_owned(), percent);
            let best = mean(choices.iter().filter_map(|choice| Some(choice.fixed?.0)));
            let worst = mean(choices.iter().filter_map(|choice| Some(choice.fixed?.1)));
            let elastic = mean(choices.iter().map(|choice| choice.elastic));
            let (best, elastic, worst) = (show(best), show(elastic), show(worst));
            let _ = writeln!(text, "| D{local_pct} | {} | {best} | {elastic} | {worst} |", far.name());
        }
    }
}

fn accuracy(text: &mut String, report: &DcmReport) {
    text.push_str("\n## Fig. 14: used pages among those that came in with others, mean of D75 and D50\n\n");
    text.push_str("| block | the paper | ours |\n|---|---|---|\n");
    for (block, paper) in PAPER_14 {
        let rows = report.workloads.iter().flat_map(|workload| &workload.rows);
        let rows = rows.filter(|row| row.local_pct >= 50 && row.block.as_deref() == Some(block));
        let ours = mean(rows.filter_map(|row| row.prefetch_accuracy));
        let ours = ours.map_or("not in the statistics".to_owned(), |ours| format!("{ours:.2}"));
        let _ = writeln!(text, "| {block} | {paper} | {ours} |");
    }
    text.push_str(
        "\nOf streams a lower bound: the pages of blocks that were used up to their end. Of other blocks, \
         what accessed bits and faults told of the pages that left again.\n",
    );
}

fn composition(text: &mut String, report: &DcmReport) {
    text.push_str(
        "\n## Fig. 15: in what sizes of elastic blocks the memory came in, on the donor over FDR\n\n",
    );
    text.push_str("| program | local | blocks |\n|---|---|---|\n");
    for workload in &report.workloads {
        for local_pct in SHARES {
            let row = workload.find(Far::ShmFdr, local_pct, Some("elastic"));
            let blocks = row.and_then(|row| row.block_composition.as_ref()).map(|sizes| {
                let parts = sizes.iter().map(|(size, share)| format!("{size} {}", percent(*share)));
                parts.collect::<Vec<_>>().join(", ")
            });
            let blocks = blocks.unwrap_or_else(|| "not in the statistics".to_owned());
            let _ = writeln!(text, "| {} | D{local_pct} | {blocks} |", workload.name);
        }
    }
    text.push_str(
        "\nThe paper has this, at the end of a run, as a plot only: most blocks stay large at D75 and become \
         smaller from there.\n",
    );
}

fn against_swap(text: &mut String, report: &DcmReport) {
    text.push_str("\n## As Fig. 16: beside swap on a RAM disk\n\n| program | local | swap |");
    for far in Far::SPILLWAY {
        let _ = write!(text, " {} |", far.name());
    }
    let _ = writeln!(text, "\n|---|---|---|{}", "---|".repeat(Far::SPILLWAY.len()));
    for workload in &report.workloads {
        for local_pct in SHARES {
            let swap = workload.choice(Far::SwapRamdisk, local_pct).map(|choice| choice.elastic);
            let show = swap.map_or("-".to_owned(), percent);
            let _ = write!(text, "| {} | D{local_pct} | {show} |", workload.name);
            for far in Far::SPILLWAY {
                let _ = write!(text, " {} |", beside(workload, far, local_pct, swap));
            }
            text.push('\n');
        }
    }
    text.push_str(
        "\nThe paper has this for snap-aligner, as a plot only. Its words: with 16 and 8 GB local (of 63.6) \
         more processors make swap slower, and dcm faster.\n",
    );
}

fn beside(workload: &WorkloadReport, far: Far, local_pct: u64, swap: Option<f64>) -> String {
    let ours = workload.choice(far, local_pct).map(|choice| choice.elastic);
    match (ours, swap) {
        (Some(ours), Some(swap)) => format!("{}, {:.2}x", percent(ours), ours / swap),
        (Some(ours), None) => percent(ours),
        _ => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::{report, row};
    use super::*;

    #[test]
    fn ours_stand_beside_the_papers() {
        let rows = vec![
            row(Far::ShmFdr, Some("4K"), 20.0),
            row(Far::ShmFdr, Some("8K"), 12.5),
            row(Far::ShmFdr, Some("elastic"), 16.0),
            row(Far::SwapRamdisk, None, 40.0),
        ];
        let text = markdown(&report(rows));
        for words in [
            "| snap | aligns | 10.00 s | 3 MiB | 2 MiB | 98.0% |",
            "| snap | shm: donor, as over FDR | D50 | 50.0% | 80.0% | 62.5% |",
            "| D75 | *the paper* | 98.5% | 98.4% | 94.4% |",
            "| D50 | shm: donor, as over FDR | 80.0% | 62.5% | 50.0% |",
            "| 8K | 0.94 | 0.90 |",
            "| snap | D50 | 4K 25.0%, 64K 75.0% |",
            "| snap | D50 | 25.0% | 62.5%, 2.50x | - | - |",
            "| 64 KiB | 16.60 | 9.64 |",
            "Not measured: postgres: not installed",
        ] {
            assert!(text.contains(words), "no '{words}' in {text}");
        }
    }

    #[test]
    fn without_a_choice_of_blocks_that_is_said() {
        let text = markdown(&report(vec![row(Far::ShmFdr, None, 20.0)]));
        assert!(text.contains("no `--block`") && !text.contains("## Fig. 14"), "{text}");
        assert!(text.contains("| snap | shm: donor, as over FDR | D50 | 50.0% |"), "{text}");
        assert!(text.contains("| D50 | shm: donor, as over FDR | - | 50.0% | - |"), "{text}");
    }
}
