//! What Linux's physical memory management costs on this machine, measured as the paper on terabyte-scale
//! memories does (`bench physical`).
//!
//! One file an experiment: [`guest`], [`alloc`], [`breakdown`], [`free`], [`locality`], [`threads`],
//! [`capacity`], [`khugepaged`], [`thp`], [`interference`], [`zeroing`]. What they share:
//!
//! - [`experiment`]: what an experiment is
//! - [`stage`]: tiers, memory to take, settings, interruption; [`settings`]: what is set and set back
//! - [`tier`], [`pages`], [`touch`]: memory in pages of a size, touched and freed
//! - [`profile`]: where the time goes, by samples
//! - [`bfs`], [`memcached`]: the programs
//! - [`report`], [`advice`], [`pool`], [`text`]: what comes out

pub mod advice;
pub mod alloc;
pub mod bfs;
pub mod breakdown;
mod bytes;
pub mod capacity;
pub mod experiment;
pub mod free;
pub mod guest;
pub mod interference;
pub mod khugepaged;
pub mod locality;
pub mod memcached;
pub mod pages;
pub mod pool;
pub mod profile;
pub mod report;
pub mod settings;
pub mod stage;
pub mod text;
pub mod thp;
pub mod threads;
pub mod tier;
pub mod touch;
pub mod zeroing;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use clap::ValueEnum;

use crate::BenchError;
use crate::machine::Machine;
use experiment::Experiment;
use report::{ExperimentReport, LeftOut, PhysicalReport};
use settings::Settings;
use stage::{Progress, Stage};
use tier::Tier;

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// First and second use of memory inside a virtual machine
    Guest,
    /// First touch, by size of page, alone and on all CPUs
    Alloc,
    /// Finding a page, zeroing it, the rest
    Breakdown,
    /// Freeing, by size of page
    Free,
    /// First touch on local and remote nodes
    Locality,
    /// First touch by number of threads
    Threads,
    /// Huge pages from whole and from fragmented memory
    Capacity,
    /// Promotion to huge pages at four scan rates
    Khugepaged,
    /// BFS and memcached under four modes of huge pages
    Thp,
    /// First touch beside programs that write memory
    Interference,
    /// Share of programs' time that goes into zeroing
    Zeroing,
}

impl Kind {
    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    fn experiment(self) -> &'static Experiment {
        match self {
            Self::Guest => &guest::EXPERIMENT,
            Self::Alloc => &alloc::EXPERIMENT,
            Self::Breakdown => &breakdown::EXPERIMENT,
            Self::Free => &free::EXPERIMENT,
            Self::Locality => &locality::EXPERIMENT,
            Self::Threads => &threads::EXPERIMENT,
            Self::Capacity => &capacity::EXPERIMENT,
            Self::Khugepaged => &khugepaged::EXPERIMENT,
            Self::Thp => &thp::EXPERIMENT,
            Self::Interference => &interference::EXPERIMENT,
            Self::Zeroing => &zeroing::EXPERIMENT,
        }
    }
}

/// How much to measure.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Little.
    pub quick: bool,
    /// So much memory at a time and no more, where an experiment does without.
    pub memory_bytes: Option<u64>,
    /// Nodes in place of all.
    pub nodes: Vec<u32>,
    /// Mounts beside the nodes.
    pub mounts: Vec<PathBuf>,
    /// Experiments in place of all.
    pub experiments: Vec<Kind>,
}

/// What is noted of the machine's settings.
const NOTED: [&str; 11] = [
    "/sys/kernel/mm/transparent_hugepage/enabled",
    "/sys/kernel/mm/transparent_hugepage/defrag",
    "/sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs",
    "/sys/kernel/mm/transparent_hugepage/khugepaged/pages_to_scan",
    "/sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_none",
    "/proc/sys/vm/min_free_kbytes",
    "/proc/sys/vm/watermark_scale_factor",
    "/proc/sys/vm/compaction_proactiveness",
    "/proc/sys/vm/zone_reclaim_mode",
    "/proc/sys/vm/overcommit_memory",
    "/proc/sys/vm/swappiness",
];

/// Runs the experiments. One that cannot run is reported as left out, and the others go on. So are those that
/// had not ended when the user interrupted.
///
/// # Errors
/// A tier that is asked for is not there, or another run is at work.
pub fn measure(
    plan: &Plan,
    interrupted: &AtomicBool,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<PhysicalReport, BenchError> {
    let mut tiers = Tier::nodes(&plan.nodes)?;
    for mount in &plan.mounts {
        tiers.push(Tier::mount(mount)?);
    }
    let (settings, restored) = Settings::new()?;
    for what in restored {
        progress(Progress::Note(&format!("a killed run had left a setting; set back: {what}")));
    }
    let noted = NOTED.iter().filter_map(|&path| Some((path.to_owned(), settings::read(path).ok()?)));
    let mut report = PhysicalReport {
        machine: Machine::this(),
        settings: noted.collect::<BTreeMap<_, _>>(),
        tiers: tiers.iter().map(Tier::name).collect(),
        quick: plan.quick,
        clock_ns: touch::clock_ns(),
        experiments: Vec::new(),
        left_out: Vec::new(),
        advice: Vec::new(),
    };
    let cpus = tier::allowed_cpus();
    let progress = RefCell::new(progress);
    let most_bytes = plan.memory_bytes.unwrap_or(u64::MAX);
    let stage = Stage { quick: plan.quick, most_bytes, tiers, settings, cpus, interrupted, progress };
    let all = Kind::value_variants();
    for &kind in if plan.experiments.is_empty() { all } else { &plan.experiments } {
        match run(&stage, kind, &mut report) {
            Err(error @ BenchError::Interrupted) => {
                report.left_out.push(LeftOut { what: kind.name(), reason: error.to_string() });
            }
            ended => ended?,
        }
    }
    report.advice = advice::of(&report);
    Ok(report)
}

fn run(stage: &Stage<'_>, kind: Kind, report: &mut PhysicalReport) -> Result<(), BenchError> {
    let experiment = kind.experiment();
    let name = kind.name();
    let mut measured = ExperimentReport {
        name: name.clone(),
        paper: experiment.paper.to_owned(),
        about: experiment.about.to_owned(),
        does: (experiment.does)(stage),
        ..ExperimentReport::default()
    };
    stage.check()?;
    (stage.progress.borrow_mut())(Progress::Begins(&name, &measured.does));
    let started = Instant::now();
    let ended = (experiment.run)(stage, &mut measured);
    stage.settings.restore();
    measured.wall_s = started.elapsed().as_secs_f64();
    match ended {
        Err(BenchError::Interrupted) => return Err(BenchError::Interrupted),
        Err(error) if measured.panels.is_empty() => {
            report.left_out.push(LeftOut { what: name, reason: error.to_string() });
            return Ok(());
        }
        Err(error) => measured.leave_out("the rest", error),
        Ok(()) => {}
    }
    (stage.progress.borrow_mut())(Progress::Ended(&measured));
    report.experiments.push(measured);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_experiment_says_what_it_does_and_where_the_paper_has_it() {
        stage::tests::quick_stage(|stage| {
            for kind in Kind::value_variants() {
                let experiment = kind.experiment();
                assert!(experiment.paper.starts_with(['4', '5']), "{kind:?}");
                assert!(experiment.about.len() > 20 && (experiment.does)(stage).len() > 20, "{kind:?}");
            }
        });
    }
}
