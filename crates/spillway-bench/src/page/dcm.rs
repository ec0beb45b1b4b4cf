//! The page of `bench dcm`.

use std::fmt::Write;

use spillway_report::chart::Chart;
use spillway_report::markdown::Page;

use crate::BenchError;
use crate::dcm::report::{DcmReport, Far, WorkloadReport};
use crate::dcm::{SHARES, tables};

const EXPLANATION: &str = "\
Each program runs as it is, and then with a share of its anonymous memory local (D75: 75%): Spillway leaves \
shared memory
where it is. Swap lies on a RAM disk with read-ahead of eight pages, under a memory control group that takes \
as many bytes away.
Every program checks its results. Performance is a share of the unlimited run's.
";

/// The page of these runs: of each program the last.
pub(super) fn page(reports: &[&DcmReport], note: Option<&str>) -> Result<Page, BenchError> {
    let mut text =
        "# dcm's evaluation again\n\nMade by `spillway bench report` from `spillway bench dcm`.\n".to_owned();
    if let Some(note) = note {
        let _ = writeln!(text, "\n**{note}**");
    }
    let mut page = Page::new("dcm-benchmark", text);
    let Some(report) = &DcmReport::merged(reports) else { return Ok(page) };
    let machine = &report.machine;
    let _ = write!(
        page.text,
        "\nSpillway {}, Linux {}, {} CPUs ({}); load before the run {:.1}; {} \
         repetition(s){}.\n\n{EXPLANATION}\n",
        machine.spillway,
        machine.kernel,
        machine.cpus,
        machine.processor,
        machine.load_before,
        report.repetitions,
        if report.quick { "; small inputs (`--quick`)" } else { "" },
    );
    for local_pct in SHARES {
        page.chart(&format!("d{local_pct}"), &beside_swap(report, local_pct))?;
    }
    page.text.push_str(&tables::markdown(report));
    Ok(page)
}

fn beside_swap(report: &DcmReport, local_pct: u64) -> Chart {
    let series = Far::ALL.map(|far| {
        let best = |workload: &WorkloadReport| workload.choice(far, local_pct)?.best();
        let values = report.usual().map(|workload| Some(best(workload)? * 100.0)).collect();
        (far.name().to_owned(), values)
    });
    Chart {
        line_at: Some(100.0),
        ..Chart::bars(
            format!("Performance with {local_pct}% of the memory local, the better of elastic and streams"),
            "% of the unlimited run's",
            report.usual().map(|workload| workload.name.clone()).collect(),
            series,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dcm::report::tests::{report, row};

    #[test]
    fn the_page_has_the_tables_and_a_plot_of_each_share_that_was_measured() {
        let report = report(vec![row(Far::ShmFdr, None, 20.0), row(Far::SwapRamdisk, None, 40.0)]);
        let page = page(&[&report], Some("Read this.")).unwrap();
        for words in [
            "**Read this.**",
            "`--quick`",
            "(dcm-benchmark/d50.svg)",
            "| snap | D50 | 25.0% | - | - | 50.0%, 2.00x | - | - | - |",
        ] {
            assert!(page.text.contains(words), "no '{words}' in {}", page.text);
        }
        assert_eq!(page.pictures.len(), 1);
    }
}
