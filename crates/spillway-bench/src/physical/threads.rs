//! What the first touch costs by the number of threads that touch memory at once.

use spillway_report::claim::Asks;
use spillway_report::distribution::Distribution;

use super::bytes::size;
use super::experiment::Experiment;
use super::pages::{HUGE_BYTES, Pages};
use super::report::{ExperimentReport, Panel, in_times, times};
use super::stage::Stage;
use super::tier::Tier;
use super::touch::{Action, Case, Timed, run};
use crate::BenchError;

/// The experiment behind `bench physical threads`.
pub const EXPERIMENT: Experiment = Experiment {
    paper: "4.5, Fig. 9",
    about: "what the first touch of 4 KiB and of 2 MiB costs by the number of threads",
    does,
    run: measure,
};

/// Title of the panel of costs.
pub const COST: &str = "First touch by threads";
/// Title of the panel of what all threads get together.
pub const RATE: &str = "Memory allocated by all threads together";

const SIZES: [Pages; 2] = [Pages::Base, Pages::Transparent(HUGE_BYTES)];

fn does(stage: &Stage<'_>) -> String {
    format!(
        "takes {} of memory, divided among up to {} threads, and gives it back; has the kernel offer huge \
         pages of 2 MiB where memory asks for them",
        size(stage.allowed(whole_bytes(stage))),
        counts(stage.cpus.len()).last().copied().unwrap_or(1)
    )
}

fn whole_bytes(stage: &Stage<'_>) -> u64 {
    stage.amount(256 << 20, 2 << 30)
}

/// 1, 2, 4, ... and as many as there are CPUs; then twice as many, who must share them.
fn counts(cpus: usize) -> Vec<usize> {
    let mut counts: Vec<usize> =
        std::iter::successors(Some(1), |count| Some(count * 2)).take_while(|&count| count < cpus).collect();
    counts.extend([cpus, 2 * cpus]);
    counts
}

fn measure(stage: &Stage<'_>, report: &mut ExperimentReport) -> Result<(), BenchError> {
    for tier in &stage.tiers {
        of_tier(stage, tier, report)?;
    }
    claim(report, stage.cpus.len());
    Ok(())
}

fn of_tier(stage: &Stage<'_>, tier: &Tier, report: &mut ExperimentReport) -> Result<(), BenchError> {
    let mut cases: Vec<(Pages, usize, Timed)> = tier
        .has(&SIZES)
        .into_iter()
        .flat_map(|pages| {
            counts(stage.cpus.len()).into_iter().map(move |count| (pages, count, Timed::default()))
        })
        .collect();
    let passes = stage.amount(2, 5) as usize;
    let total = passes * cases.len();
    for pass in 0..passes {
        for (at, (pages, threads, timed)) in cases.iter_mut().enumerate() {
            stage.step(&pages.name(), pass * (total / passes) + at, total)?;
            // The paper's way: the same memory in all, whatever the threads.
            let wanted = whole_bytes(stage) / *threads as u64;
            let bytes = stage.memory(wanted, *threads as u64, pages.bytes())?;
            let case =
                Case { tier, pages: *pages, threads: *threads, bytes, action: Action::Touch, cpus: &[] };
            if let Some(measured) = report.attempt(&pages.name(), run(stage, &case))? {
                timed.add(measured);
            }
            stage.settings.restore();
        }
    }
    let panel = |title, unit| Panel::new(stage.title(title, tier), unit);
    panels(report, (panel(COST, "ns"), panel(RATE, "GB/s")), cases);
    Ok(())
}

fn panels(
    report: &mut ExperimentReport,
    (mut cost, mut rate): (Panel, Panel),
    cases: Vec<(Pages, usize, Timed)>,
) {
    for (pages, threads, timed) in cases.into_iter().filter(|case| !case.2.latencies_ns.is_empty()) {
        let case = [("page_bytes", pages.bytes()), ("threads", threads as u64)];
        let (name, point) = (pages.name(), threads.to_string());
        let bytes = timed.latencies_ns.len() as f64 * pages.bytes() as f64;
        rate.value(&name, &point, &case, bytes / timed.wall_ns.max(1) as f64);
        cost.distribution(&name, &point, &case, Distribution::of(timed.latencies_ns));
    }
    report.panels.extend([cost, rate]);
}

fn claim(report: &mut ExperimentReport, cpus: usize) {
    let cost = report.panels[0].clone();
    let all = cpus.to_string();
    for (name, dram, optane) in [("4 KiB", 10.0, "196x"), ("2 MiB", 11.85, "300x")] {
        // Means, as in the paper: a few slow ones are what makes the difference.
        let mean = |point: &str| Some(cost.row(name, point)?.distribution.as_ref()?.mean);
        let grown = times(mean(&all), mean("1"));
        let what = format!("mean of {name} on all CPUs over that of one (96 threads there, {cpus} here)");
        report.beside(&what, Some(&format!("{dram}x")), Some(optane), in_times(grown));
        report.sized(
            &format!("{name} on all CPUs over one, times"),
            &format!("{dram}x on DRAM, by 96 threads"),
            Asks::Larger,
            dram,
            grown.filter(|_| cpus > 1),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_double_up_to_all_cpus_and_twice_as_many() {
        assert_eq!(counts(1), [1, 2]);
        assert_eq!(counts(2), [1, 2, 4]);
        assert_eq!(counts(6), [1, 2, 4, 6, 12]);
    }
}
