//! The tables of the paper's figures, ours beside its own, in Markdown.

use std::fmt::Write;

use super::SHARES;
use super::goals;
use super::means::{choices, mean, percent, percent_or_none};
use super::of_snap;
use super::report::{Choice, DcmReport, Far, Row, WorkloadReport};

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
    if report.is_without_choice() {
        text.push_str(
            "\nThis `spillway run` has no `--block`: there is one column, for its own choice of blocks; Fig. \
             14 and 15 need the option.\n",
        );
    }
    static_blocks(text, report);
    of_snap::stages(text, report, &columns(report));
    elastic(text, report);
    if !report.blocks.is_empty() {
        accuracy(text, report);
        composition(text, report);
    }
    against_swap(text, report);
    of_snap::threads(text, report);
    of_snap::file(text, report);
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
    for workload in report.usual() {
        let _ = writeln!(
            text,
            "| {} | {} | {:.2} {} | {} MiB | {} MiB | {} |",
            workload.name,
            workload.about,
            workload.unlimited,
            workload.measure.unit(),
            workload.anonymous_bytes >> 20,
            workload.shared_bytes >> 20,
            percent_or_none(workload.all_local),
        );
    }
}

/// The columns of blocks: the choices, or the one that there is.
fn columns(report: &DcmReport) -> Vec<Option<&str>> {
    let blocks = report.blocks.iter().map(|block| Some(block.as_str()));
    blocks.chain(report.is_without_choice().then_some(None)).collect()
}

fn static_blocks(text: &mut String, report: &DcmReport) {
    text.push_str("\n## Fig. 10: performance by block size, as a share of the unlimited run's\n\n");
    text.push_str("| program | far memory | local |");
    for block in columns(report) {
        let _ = write!(text, " {} |", block.unwrap_or("its own blocks"));
    }
    let _ = writeln!(text, "\n|---|---|---|{}", "---|".repeat(columns(report).len()));
    for workload in report.usual() {
        for far in Far::SPILLWAY {
            for local_pct in SHARES.into_iter().filter(|&pct| workload.choice(far, pct).is_some()) {
                let _ = write!(text, "| {} | {} | D{local_pct} |", workload.name, far.name());
                for block in columns(report) {
                    let row = workload.find(far, local_pct, block);
                    let _ = write!(text, " {} |", percent_or_none(row.map(|row| row.normalised)));
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
        "\n## Fig. 13: elastic blocks beside the best and the worst static size, mean of the programs\n\n\
         `elastic` is the paper's. `streams`, Spillway's own, is what a run has where no block is named.\n\n",
    );
    text.push_str("| local | far memory | static best | elastic | streams | static worst |\n");
    text.push_str("|---|---|---|---|---|---|\n");
    for (local_pct, best, elastic, worst) in PAPER_13 {
        let _ = writeln!(text, "| D{local_pct} | *the paper* | {best} | {elastic} | - | {worst} |");
        for far in Far::ALL {
            let choices = choices(report, far, local_pct);
            if choices.is_empty() {
                continue;
            }
            let show =
                |of: &dyn Fn(&Choice) -> Option<f64>| percent_or_none(mean(choices.iter().filter_map(of)));
            let best = show(&|choice| Some(choice.fixed?.0));
            let worst = show(&|choice| Some(choice.fixed?.1));
            let (elastic, streams) = (show(&|choice| choice.elastic), show(&|choice| choice.streams));
            let name = far.name();
            let _ = writeln!(text, "| D{local_pct} | {name} | {best} | {elastic} | {streams} | {worst} |");
        }
    }
}

fn accuracy(text: &mut String, report: &DcmReport) {
    text.push_str("\n## Fig. 14: used pages among those that came in with others, mean of D75 and D50\n\n");
    text.push_str("| block | the paper | ours |\n|---|---|---|\n");
    for (block, paper) in PAPER_14 {
        let rows = report.usual().flat_map(|workload| &workload.rows);
        let rows = rows.filter(|row| row.local_pct >= 50 && row.block.as_deref() == Some(block));
        let ours = mean(rows.filter_map(|row| row.prefetch_accuracy));
        let ours = ours.map_or("-".to_owned(), |ours| format!("{ours:.2}"));
        let _ = writeln!(text, "| {block} | {paper} | {ours} |");
    }
    text.push_str(
        "\nThe paper: \"the ratio of the number of prefetched pages to the number of used pages\"; both its \
         figures and ours are the used of the prefetched, at most 1. Of streams a lower bound: the pages of \
         blocks that were used up to their end. Of other blocks, what accessed bits and faults told of the \
         pages that left again.\n",
    );
}

/// Where the paper's figures have one kind of far memory: the kind that compares with it, or the donor.
fn as_the_paper<'a>(workload: &'a WorkloadReport, local_pct: u64, block: &str) -> Option<&'a Row> {
    let find = |far| workload.find(far, local_pct, Some(block));
    find(Far::RamFdr).or_else(|| find(Far::ShmFdr))
}

fn composition(text: &mut String, report: &DcmReport) {
    text.push_str("\n## Fig. 15: in what sizes of blocks the memory came in, over FDR\n\n");
    text.push_str("| program | local | `--block` | blocks |\n|---|---|---|---|\n");
    for workload in report.usual() {
        for (local_pct, block) in SHARES.into_iter().flat_map(|pct| [(pct, "elastic"), (pct, "streams")]) {
            let row = as_the_paper(workload, local_pct, block);
            let Some(sizes) = row.and_then(|row| row.block_composition.as_ref()) else { continue };
            let parts: Vec<_> =
                sizes.iter().map(|(size, share)| format!("{size} {}", percent(*share))).collect();
            let _ = writeln!(text, "| {} | D{local_pct} | {block} | {} |", workload.name, parts.join(", "));
        }
    }
    text.push_str(
        "\nThe paper has this, at the end of a run and of elastic blocks, as a plot only: most blocks stay \
         large at D75 and become smaller from there.\n",
    );
}

fn against_swap(text: &mut String, report: &DcmReport) {
    text.push_str("\n## Beside swap on a RAM disk\n\n| program | local | swap |");
    for far in Far::SPILLWAY {
        let _ = write!(text, " {}: elastic | streams |", far.name());
    }
    let _ = writeln!(text, "\n|---|---|---|{}", "---|---|".repeat(Far::SPILLWAY.len()));
    for workload in report.usual() {
        for local_pct in SHARES {
            let choice = |far| workload.choice(far, local_pct);
            if Far::ALL.into_iter().all(|far| choice(far).is_none()) {
                continue;
            }
            let swap = choice(Far::SwapRamdisk).and_then(|choice| choice.elastic);
            let _ = write!(text, "| {} | D{local_pct} | {} |", workload.name, percent_or_none(swap));
            for far in Far::SPILLWAY {
                let elastic = beside(choice(far).and_then(|choice| choice.elastic), swap);
                let streams = beside(choice(far).and_then(|choice| choice.streams), swap);
                let _ = write!(text, " {elastic} | {streams} |");
            }
            text.push('\n');
        }
    }
}

fn beside(ours: Option<f64>, swap: Option<f64>) -> String {
    match (ours, swap) {
        (Some(ours), Some(swap)) => format!("{}, {:.2}x", percent(ours), ours / swap),
        (ours, _) => percent_or_none(ours),
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
            row(Far::ShmFdr, Some("streams"), 25.0),
            row(Far::RamFdr, Some("4K"), 20.0),
            row(Far::File, Some("4K"), 25.0),
            row(Far::SwapRamdisk, None, 40.0),
        ];
        let text = markdown(&report(rows));
        for words in [
            "| snap | aligns | 10.00 s | 3 MiB | 2 MiB | 98.0% |",
            "| snap | shm: donor, as over FDR | D50 | 50.0% | 80.0% | 62.5% | 40.0% |",
            "| D75 | *the paper* | 98.5% | 98.4% | - | 94.4% |",
            "| D50 | shm: donor, as over FDR | 80.0% | 62.5% | 40.0% | 50.0% |",
            "| 8K | 0.94 | 0.90 |",
            "| snap | D50 | elastic | 4K 25.0%, 64K 75.0% |",
            "| snap | D50 | 25.0% | - | - | 62.5%, 2.50x | 40.0%, 1.60x | - | - |",
            "| 64 KiB | 16.60 | 9.64 |",
            "Not measured: postgres: not installed",
        ] {
            assert!(text.contains(words), "no '{words}' in {text}");
        }
    }

    #[test]
    fn what_the_paper_has_of_snap_alone_stands_in_tables_of_its_own() {
        let rows = vec![
            row(Far::RamFdr, Some("4K"), 20.0),
            row(Far::RamFdr, Some("elastic"), 16.0),
            row(Far::File, Some("4K"), 25.0),
            row(Far::SwapRamdisk, None, 40.0),
        ];
        let mut report = report(rows);
        let mut four = report.workloads[0].clone();
        (four.threads, four.unlimited) = (Some(4), 5.0);
        report.workloads.push(four);
        let text = markdown(&report);
        for words in [
            "| loading | RAM, as over FDR | D50 | 40.0% | 50.0% |",
            "| alignment | RAM, as over FDR | D50 | 53.3% | 66.7% |",
            "| D50 | swap on a RAM disk | 40.00 s | 40.00 s |",
            "| D50 | RAM, as over FDR: elastic | 16.00 s | 16.00 s |",
            "| all | as it is | 10.00 s | 5.00 s |",
            "| D50 | 4K | 40.0% | 50.0% |",
        ] {
            assert!(text.contains(words), "no '{words}' in {text}");
        }
        report.workloads.iter_mut().for_each(|workload| workload.rows.clear());
        let without = markdown(&report);
        assert!(!without.contains("## Fig. 11") && !without.contains("## Fig. 17"), "{without}");
        let of_programs = text.split("## Fig. 10").next().unwrap();
        assert_eq!(of_programs.matches("| snap |").count(), 1, "{of_programs}");
    }

    #[test]
    fn without_a_choice_of_blocks_that_is_said() {
        let text = markdown(&report(vec![row(Far::ShmFdr, None, 20.0)]));
        assert!(text.contains("no `--block`") && !text.contains("## Fig. 14"), "{text}");
        assert!(text.contains("| snap | shm: donor, as over FDR | D50 | 50.0% |"), "{text}");
        assert!(text.contains("| D50 | shm: donor, as over FDR | - | 50.0% | - | - |"), "{text}");
    }
}
