//! What the first touch costs while other threads write memory.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use spillway_report::claim::Asks;
use spillway_report::distribution::Distribution;

use super::bytes::size;
use super::experiment::Experiment;
use super::pages::{BASE_BYTES, Pages};
use super::report::{ExperimentReport, Panel, in_times, times};
use super::stage::Stage;
use super::tier::{Tier, pin};
use super::touch::{Action, Case, Timed, run};
use crate::BenchError;

/// The experiment behind `bench physical interference`.
pub const EXPERIMENT: Experiment = Experiment {
    paper: "4.9, Fig. 13",
    about: "what a fault costs beside 0 to 4 threads that write memory",
    does,
    run: measure,
};

/// Title of the panel of times.
pub const LATENCY: &str = "First touch of 4 KiB beside writers";
/// Title of the panel of CPU times, which do not hold the time in which a writer had the CPU.
pub const CPU: &str = "CPU time of a first touch of 4 KiB beside writers";

const MOST_WRITERS: usize = 4;

fn does(stage: &Stage<'_>) -> String {
    format!(
        "takes {} of memory for up to {MOST_WRITERS} threads, which write it without pause for some seconds, \
         and {} to touch",
        size(stage.allowed(writer_bytes(stage) * MOST_WRITERS as u64)),
        size(stage.allowed(touched_bytes(stage) * stage.cpus.len() as u64))
    )
}

fn writer_bytes(stage: &Stage<'_>) -> u64 {
    stage.amount(64 << 20, 256 << 20)
}

fn touched_bytes(stage: &Stage<'_>) -> u64 {
    stage.amount(64 << 20, 1 << 30)
}

/// CPUs for the writers: those that are not measured on, where there are any.
fn writer_cpus(cpus: &[usize], measured: usize) -> &[usize] {
    if measured < cpus.len() { &cpus[measured..] } else { cpus }
}

fn measure(stage: &Stage<'_>, report: &mut ExperimentReport) -> Result<(), BenchError> {
    for tier in &stage.tiers {
        of_tier(stage, tier, report)?;
    }
    claim(report, stage.cpus.len());
    Ok(())
}

/// Who writes and who faults has memory of the same tier.
fn of_tier(stage: &Stage<'_>, tier: &Tier, report: &mut ExperimentReport) -> Result<(), BenchError> {
    let bytes = stage.memory(writer_bytes(stage), 2 * MOST_WRITERS as u64, BASE_BYTES)?;
    // There before anything is timed.
    let memories = (0..MOST_WRITERS).map(|_| {
        let mut region = tier.map(Pages::Base, bytes)?;
        region.mapping.bytes_mut().fill(1);
        Ok(region)
    });
    let mut memories = memories.collect::<Result<Vec<_>, BenchError>>()?;
    let mut cases: Vec<(usize, usize, Timed)> = Vec::new();
    let concurrent = if stage.cpus.len() > 1 { vec![1, stage.cpus.len()] } else { vec![1] };
    for faulting in concurrent {
        cases.extend((0..=MOST_WRITERS).map(|writers| (faulting, writers, Timed::default())));
    }
    let passes = stage.amount(2, 5) as usize;
    let total = passes * cases.len();
    for pass in 0..passes {
        for (at, (faulting, writers, timed)) in cases.iter_mut().enumerate() {
            stage.step(&format!("{writers} writers"), pass * (total / passes) + at, total)?;
            let bytes = stage.memory(touched_bytes(stage), *faulting as u64, BASE_BYTES)?;
            let case = Case {
                tier,
                pages: Pages::Base,
                threads: *faulting,
                bytes,
                action: Action::Touch,
                cpus: &[],
            };
            let cpus = writer_cpus(&stage.cpus, *faulting);
            timed.add(beside(&mut memories[..*writers], cpus, || run(stage, &case))?);
        }
    }
    let panel = |title| Panel::new(stage.title(title, tier), "ns");
    panels(report, (panel(LATENCY), panel(CPU)), cases);
    Ok(())
}

/// Does `work` while each memory is written again and again by a thread of its own. It begins once each has
/// been written as a whole.
fn beside<T>(memories: &mut [super::tier::Region], cpus: &[usize], work: impl FnOnce() -> T) -> T {
    /// Also when `work` panics, or the scope would wait for ever.
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let ended = AtomicBool::new(false);
    let all_write = Barrier::new(memories.len() + 1);
    std::thread::scope(|scope| {
        let _stop = Stop(&ended);
        for (at, memory) in memories.iter_mut().enumerate() {
            let (cpu, ended, all_write) = (cpus[at % cpus.len()], &ended, &all_write);
            scope.spawn(move || {
                pin(cpu);
                memory.mapping.bytes_mut().fill(1);
                all_write.wait();
                let mut value = 1_u8;
                while !ended.load(Ordering::Relaxed) {
                    // Never 0, which memory that nobody wrote holds.
                    value = value % u8::MAX + 1;
                    memory.mapping.bytes_mut().chunks_mut(1 << 20).for_each(|chunk| {
                        if !ended.load(Ordering::Relaxed) {
                            chunk.fill(value);
                        }
                    });
                }
            });
        }
        all_write.wait();
        work()
    })
}

fn panels(
    report: &mut ExperimentReport,
    (mut latency, mut cpu): (Panel, Panel),
    cases: Vec<(usize, usize, Timed)>,
) {
    for (faulting, writers, timed) in cases {
        let case = [("page_bytes", BASE_BYTES), ("threads", faulting as u64), ("writers", writers as u64)];
        let (series, point) = (series(faulting), format!("{writers}"));
        cpu.value(&series, &point, &case, timed.cpu_ns_per_page());
        latency.distribution(&series, &point, &case, Distribution::of(timed.latencies_ns));
    }
    report.panels.extend([latency, cpu]);
}

/// Name of the series in which so many threads fault.
pub(super) fn series(faulting: usize) -> String {
    if faulting == 1 { "1 thread faults".to_owned() } else { format!("{faulting} threads fault") }
}

fn claim(report: &mut ExperimentReport, cpus: usize) {
    let latency = report.panels[0].clone();
    let cpu = report.panels[1].clone();
    let one = series(1);
    let mean = |writers: &str| Some(latency.row(&one, writers)?.distribution.as_ref()?.mean);
    for (writers, optane) in [("2", 1.79), ("4", 7.34)] {
        let grown = times(mean(writers), mean("0"));
        let what = format!("one thread faults, {writers} threads write, mean over that without");
        let paper = format!("{optane}x");
        report.beside(&what, Some("within limits"), Some(&paper), in_times(grown));
        // Of CPU time: where writers have no CPUs of their own faults wait for them.
        let grown = times(cpu.at(&one, writers), cpu.at(&one, "0"));
        let text = format!("CPU time of a fault beside {writers} writers over that without, times");
        report.sized(&text, &format!("{paper} on Optane"), Asks::Larger, optane, grown);
    }
    if cpus <= MOST_WRITERS {
        report.notes.push(format!(
            "with {cpus} CPUs, writers share those that are left: they wait for each other, and with all \
             CPUs faulting the faults wait for them too, which CPU time leaves out"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::super::stage::tests::quick_stage;
    use super::*;

    #[test]
    fn writers_have_cpus_of_their_own_where_there_are_any() {
        assert_eq!(writer_cpus(&[0, 1, 2], 1), [1, 2]);
        assert_eq!(writer_cpus(&[0, 1], 2), [0, 1]);
    }

    #[test]
    fn writers_write_until_the_work_is_done() {
        quick_stage(|stage| {
            let mut memories = [stage.tiers[0].map(Pages::Base, 1 << 20).unwrap()];
            beside(&mut memories, &stage.cpus, || ());
            assert!(memories[0].mapping.bytes_mut().iter().all(|byte| *byte > 0));
        });
    }
}
