//! The page of `bench physical` as Markdown with pictures.

use std::fmt::Write;

use spillway_report::markdown::Page;
use spillway_report::violin::HOW_TO_READ;

use super::html;
use crate::BenchError;
use crate::physical::report::{Advice, ExperimentReport, LeftOut, Panel, PhysicalReport, grouped};
use crate::physical::text::{PERCENTILES, number, percentiles};

/// The page of these runs; of an experiment that is in several, the last counts.
pub(super) fn page(reports: &[&PhysicalReport], note: Option<&str>) -> Result<Page, BenchError> {
    let mut text = "# What physical memory costs\n\nMade by `spillway bench report` from `spillway bench \
                    physical --json`. *DRAM* and *Optane* are the paper's machine (96 CPUs, 384 GB of DRAM, \
                    1.65 TB of Optane).\n"
        .to_owned();
    if let Some(note) = note {
        let _ = writeln!(text, "\n**{note}**");
    }
    let mut page = Page::new("physical-memory", text);
    let Some(last) = reports.last() else { return Ok(page) };
    let machine = &last.machine;
    let _ = write!(
        page.text,
        "\nSpillway {}, Linux {}, {} CPUs ({}), {} GiB; load before the run {:.1}{}. Reading the clock takes \
         {:.0} ns, which each time holds about once.\n\n{HOW_TO_READ}\n\n",
        machine.spillway,
        machine.kernel,
        machine.cpus,
        machine.processor,
        (machine.memory_bytes + (1 << 29)) >> 30,
        machine.load_before,
        if last.quick { "; little was measured (`--quick`)" } else { "" },
        last.clock_ns,
    );
    let mut experiments: Vec<&ExperimentReport> = Vec::new();
    for experiment in reports.iter().flat_map(|report| &report.experiments) {
        match experiments.iter_mut().find(|other| other.name == experiment.name) {
            Some(other) => *other = experiment,
            None => experiments.push(experiment),
        }
    }
    let mut advice: Vec<&Advice> = Vec::new();
    for given in reports.iter().flat_map(|report| &report.advice) {
        match advice.iter_mut().find(|other| other.setting == given.setting) {
            Some(other) => *other = given,
            None => advice.push(given),
        }
    }
    page.text.push_str(&advice_table(&advice));
    experiments.iter().try_for_each(|experiment| section(&mut page, experiment))?;
    let left_out: Vec<LeftOut> = reports.iter().flat_map(|report| report.left_out.clone()).collect();
    for left in grouped(&left_out) {
        let _ = writeln!(page.text, "\nLeft out: {}: {}.", left.what, left.reason);
    }
    Ok(page)
}

fn advice_table(advice: &[&Advice]) -> String {
    let mut text = String::new();
    if !advice.is_empty() {
        text.push_str(
            "## What to set on this machine\n\n| setting | now | set to | why | measured \
                       |\n|---|---|---|---|---|\n",
        );
    }
    for advice in advice {
        let (setting, now) = (&advice.setting, advice.now.as_deref().unwrap_or("-"));
        let _ = writeln!(
            text,
            "| {setting} | {now} | **{}** | {} | {} |",
            advice.value, advice.why, advice.measurement
        );
    }
    text
}

fn section(page: &mut Page, report: &ExperimentReport) -> Result<(), BenchError> {
    let _ = write!(
        page.text,
        "\n## {}: {}\n\nThe paper's {}. It {}.",
        report.name, report.about, report.paper, report.does
    );
    if let Some(method) = &report.method {
        let _ = write!(page.text, " How: {method}.");
    }
    page.text.push_str("\n\n");
    for (at, panel) in report.panels.iter().enumerate() {
        if let Some(svg) = html::picture(panel)? {
            page.picture(&format!("{}-{}", report.name, at + 1), &panel.title, svg);
        }
        page.text.push_str(&table(panel));
    }
    if !report.beside.is_empty() {
        page.text.push_str("| | DRAM | Optane | this machine |\n|---|---|---|---|\n");
    }
    for row in &report.beside {
        let cell = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
        let _ = writeln!(
            page.text,
            "| {} | {} | {} | **{}** |",
            row.what,
            cell(&row.dram),
            cell(&row.optane),
            row.here
        );
    }
    page.text.push('\n');
    for claim in &report.claims {
        let verdict = claim.verdicts();
        let mark = if claim.direction { verdict } else { format!("**{verdict}**") };
        let _ = writeln!(
            page.text,
            "- {mark}: {} (the paper: {}); here {:.2}",
            claim.text, claim.paper, claim.value
        );
    }
    report.notes.iter().for_each(|note| {
        let _ = writeln!(page.text, "- {note}");
    });
    for left in grouped(&report.left_out) {
        let _ = writeln!(page.text, "- left out: {}: {}", left.what, left.reason);
    }
    Ok(())
}

fn table(panel: &Panel) -> String {
    let mut text = String::new();
    if panel.rows.iter().any(|row| row.distribution.is_some()) {
        let _ = writeln!(
            text,
            "| | | {} |\n|---|---|{}",
            PERCENTILES.join(" | "),
            "---|".repeat(PERCENTILES.len())
        );
    } else if !panel.rows.is_empty() {
        let _ = writeln!(text, "| | | {} |\n|---|---|---|", panel.unit);
    }
    for row in &panel.rows {
        let values = percentiles(row, &panel.unit).map(|values| values.join(" | "));
        let values = values.unwrap_or_else(|| number(row.value, &panel.unit));
        let _ = writeln!(text, "| {} | {} | {values} |", row.point, row.series);
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::physical::advice::tests::report;
    use spillway_report::distribution::Distribution;

    #[test]
    fn the_page_has_each_experiment_once_with_picture_and_table() {
        let panel = |ns: u64| {
            let mut panel = Panel::new("First touch", "ns");
            panel.distribution("alone", "4 KiB", &[], Distribution::of(vec![ns; 3]));
            panel
        };
        let (old, new) = (report(vec![("alloc", panel(500))]), report(vec![("alloc", panel(700))]));
        let page = page(&[&old, &new], Some("Read this.")).unwrap();
        for words in
            [HOW_TO_READ, "**Read this.**", "(physical-memory/alloc-1.svg)", "| 4 KiB | alone | 700 ns |"]
        {
            assert!(page.text.contains(words), "no '{words}' in {}", page.text);
        }
        assert!(!page.text.contains("500 ns") && page.pictures.len() == 1);
    }
}
