//! What each of Spillway's mechanisms is worth: with one switched otherwise beside everything as usual, in
//! turns, on patterns of accesses and on real programs (as dcm's Fig. 11, 12 and 16 do for dcm).
//!
//! - [`switches`]: the list of them
//! - [`report`], [`text`]: what comes out

pub mod report;
pub mod switches;
pub mod text;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use crate::BenchError;
use crate::access::{Data, Pattern};
use crate::cells::Setting;
use crate::machine::Machine;
use crate::on_access::OnAccess;
use crate::programs::alone;
use crate::programs::list::ProgramKind;
use crate::programs::report::{Configuration, Outcome};
use crate::programs::turns::{Bench, Under};
use crate::whole::workload::{Measure, Scale, Site, Workload};
use report::{AblationReport, Row, Taken, Work};
use switches::{Otherwise, Switch};

/// Share of the memory that may be local, in percent: of a process with a pattern, and of a program.
const LOCAL_PCTS: (u64, u64) = (25, 50);
/// The store of patterns: one that costs little, so that the pager shows.
const STORE: &str = "ram:";

/// How much to measure.
#[derive(Clone, Debug)]
pub struct Extent {
    /// Whether little is measured, and programs have small inputs.
    pub quick: bool,
    /// What is switched, one at a time.
    pub switches: Vec<&'static Switch>,
    /// In what orders memory is accessed.
    pub patterns: Vec<Pattern>,
    /// Numbers of threads, of each pattern.
    pub threads: Vec<usize>,
    /// Programs of `bench programs`.
    pub programs: Vec<ProgramKind>,
    /// Memory of the process with a pattern.
    pub memory_bytes: u64,
    /// Time of one of its measurements.
    pub measured_ms: u64,
    /// Turns; the median counts.
    pub repetitions: usize,
}

/// What a caller hears of as it goes on.
pub enum Progress<'a> {
    /// A program's inputs are made.
    Preparing(&'static str),
    /// So many runs of so many are done.
    Ran(&'a str, usize, usize),
    /// Something could not be measured.
    Failed(&'a str, &'a BenchError),
    /// A workload is done: what there is so far.
    Measured(&'a AblationReport),
}

/// A report in which nothing is yet.
#[must_use]
pub fn empty_report(extent: &Extent) -> AblationReport {
    AblationReport {
        machine: Machine::this(),
        quick: extent.quick,
        repetitions: extent.repetitions,
        memory_bytes: extent.memory_bytes,
        measured_ms: extent.measured_ms,
        local_pcts: LOCAL_PCTS,
        ablated: extent.switches.iter().flat_map(|switch| switch.ways()).collect(),
        rows: Vec::new(),
        not_measured: Vec::new(),
        interrupted: false,
    }
}

/// One side of a workload: everything as usual, or one switch otherwise.
struct Side<'a> {
    way: Option<&'a Otherwise>,
    /// The flags of `spillway run` for it.
    flags: Vec<String>,
}

/// A workload whose sides take turns.
struct Group {
    work: Work,
    kind: Kind,
}

enum Kind {
    Pattern(Setting),
    Program(ProgramKind),
}

struct Ablation<'a, 'b> {
    extent: &'a Extent,
    site: Site<'a>,
    on_access: OnAccess<'a>,
    /// With the run.toml of each way.
    files: PathBuf,
    ways: Vec<Otherwise>,
    done: usize,
    total: usize,
    progress: &'b mut dyn FnMut(Progress<'_>),
}

/// Measures what `report` has not yet. What cannot be measured is reported as such, and the rest goes on.
/// After an interruption `report` has what was measured.
///
/// # Errors
/// What the runs need cannot be set up.
pub fn evaluate(
    spillway: &Path,
    extent: &Extent,
    interrupted: &AtomicBool,
    report: &mut AblationReport,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<(), BenchError> {
    let on_access = OnAccess::new(spillway, extent.memory_bytes, extent.measured_ms, interrupted)?;
    let ways: Vec<Otherwise> = extent.switches.iter().flat_map(|switch| switch.ways()).collect();
    let site = Site::new(spillway, Scale::of_suite(extent.quick), interrupted)?;
    let files = on_access.scratch().to_path_buf();
    let (done, total) = (0, 0);
    let mut ablation = Ablation { extent, site, on_access, files, ways, done, total, progress };
    let mut groups = ablation.groups();
    groups.retain(|group| !report.has(&group.work));
    ablation.total =
        groups.iter().map(|group| ablation.ways_of(group).count() + 1).sum::<usize>() * extent.repetitions;
    for group in &groups {
        match ablation.measure(group) {
            Ok(rows) => {
                report.rows.extend(rows);
                (ablation.progress)(Progress::Measured(report));
            }
            Err(BenchError::Interrupted) => {
                report.interrupted = true;
                return Ok(());
            }
            Err(error) => {
                (ablation.progress)(Progress::Failed(&group.work.name, &error));
                report.not_measured.push(format!("{}: {error}", group.work.name));
            }
        }
    }
    Ok(())
}

impl Ablation<'_, '_> {
    /// All workloads, each on the stores over which a switch does something.
    fn groups(&self) -> Vec<Group> {
        let mut stores: Vec<Option<&String>> = self.ways.iter().map(|way| way.store.as_ref()).collect();
        stores.sort();
        stores.dedup();
        let mut groups = Vec::new();
        for store in stores {
            for &pattern in &self.extent.patterns {
                for &threads in &self.extent.threads {
                    let store = store.map_or(STORE, String::as_str).to_owned();
                    let setting = Setting { pattern, threads, local_pct: LOCAL_PCTS.0, data: Data::Random };
                    let work = Work {
                        name: pattern.name().to_owned(),
                        threads: Some(threads),
                        store: Some(store),
                        unit: "ns an access".to_owned(),
                        more_is_better: false,
                    };
                    groups.push(Group { work, kind: Kind::Pattern(setting) });
                }
            }
            for &program in &self.extent.programs {
                let workload = program.workload();
                let measure = workload.measure();
                let work = Work {
                    name: workload.name().to_owned(),
                    threads: None,
                    store: store.cloned(),
                    unit: measure.unit().to_owned(),
                    more_is_better: measure != Measure::Seconds,
                };
                groups.push(Group { work, kind: Kind::Program(program) });
            }
        }
        groups
    }

    /// The ways that are compared on a workload: those of its store.
    fn ways_of(&self, group: &Group) -> impl Iterator<Item = &Otherwise> {
        let usual = match group.kind {
            Kind::Pattern(_) => Some(STORE),
            Kind::Program(_) => None,
        };
        let is_there = move |way: &&Otherwise| way.store.as_deref().or(usual) == group.work.store.as_deref();
        self.ways.iter().filter(is_there)
    }

    /// Everything as usual, and then each way.
    fn sides(&self, group: &Group) -> Result<Vec<Side<'_>>, BenchError> {
        let store = group.work.store.iter().flat_map(|store| ["--store".to_owned(), store.clone()]);
        let store: Vec<String> = store.collect();
        let mut sides = vec![Side { way: None, flags: store.clone() }];
        for (at, way) in self.ways_of(group).enumerate() {
            let flags = match way.configuration() {
                None => way.how.split(' ').map(str::to_owned).collect(),
                Some(lines) => {
                    let file = self.files.join(format!("run-{at}.toml"));
                    fs::write(&file, lines).map_err(|error| {
                        BenchError::setup("write temporary files", error, "make room, or set TMPDIR")
                    })?;
                    vec!["--config".to_owned(), file.display().to_string()]
                }
            };
            sides.push(Side { way: Some(way), flags: [&store[..], &flags].concat() });
        }
        Ok(sides)
    }

    /// One workload: every side once in each turn.
    fn measure(&mut self, group: &Group) -> Result<Vec<Row>, BenchError> {
        let sides = self.sides(group)?;
        let sides: Vec<(Option<Otherwise>, Vec<String>)> =
            sides.into_iter().map(|side| (side.way.cloned(), side.flags)).collect();
        let turns = match group.kind {
            Kind::Pattern(setting) => self.turns(group, &sides, |ablation, flags| {
                let local = ablation.on_access.local_bytes(&setting).to_string();
                let run = [&["--local".to_owned(), local], flags].concat();
                let sample = ablation.on_access.under_spillway(&setting, &run)?;
                let (value, fetched) = (sample.result.ns_per_access, sample.misses_per_access);
                Ok(Taken { value, fetched, lost: None })
            }),
            Kind::Program(program) => self.on_program(group, program, &sides),
        }?;
        let usual = &turns[0];
        let others = sides.iter().zip(&turns).filter_map(|((way, _), turns)| Some((way.as_ref()?, turns)));
        Ok(others.map(|(way, turns)| Row::new(&group.work, way, turns, usual)).collect())
    }

    /// What each side came to in each turn.
    fn turns(
        &mut self,
        group: &Group,
        sides: &[(Option<Otherwise>, Vec<String>)],
        mut run: impl FnMut(&Self, &[String]) -> Result<Taken, BenchError>,
    ) -> Result<Vec<Vec<Taken>>, BenchError> {
        let mut turns = vec![Vec::new(); sides.len()];
        for _ in 0..self.extent.repetitions {
            for ((_, flags), turns) in sides.iter().zip(&mut turns) {
                turns.push(run(self, flags)?);
                self.done += 1;
                (self.progress)(Progress::Ran(&group.work.name, self.done, self.total));
            }
        }
        Ok(turns)
    }

    fn on_program(
        &mut self,
        group: &Group,
        program: ProgramKind,
        sides: &[(Option<Otherwise>, Vec<String>)],
    ) -> Result<Vec<Vec<Taken>>, BenchError> {
        let mut workload = program.workload();
        (self.progress)(Progress::Preparing(workload.name()));
        workload.prepare(&self.site)?;
        let local_bytes = self.bench(workload.as_ref(), &[], 0)?.share_bytes(LOCAL_PCTS.1);
        let peak_anonymous_bytes = local_bytes * 100 / LOCAL_PCTS.1;
        let turns = self.turns(group, sides, |ablation, flags| {
            let bench = ablation.bench(workload.as_ref(), flags, peak_anonymous_bytes)?;
            let sample = bench.run(Under::Spillway(Configuration::Default), local_bytes, 0)?;
            let lost = (sample.outcome != Outcome::Ok).then(|| sample.reason.unwrap_or_default());
            Ok(Taken { value: sample.value, fetched: sample.fetched_pages as f64, lost })
        });
        self.site.clear();
        turns
    }

    /// A program with these flags; it is run with all memory first where its peak is not known.
    fn bench<'c>(
        &'c self,
        workload: &'c dyn Workload,
        flags: &[String],
        peak_anonymous_bytes: u64,
    ) -> Result<Bench<'c>, BenchError> {
        let mut bench = Bench {
            site: &self.site,
            workload,
            peak_anonymous_bytes,
            donor: None,
            needs_memory: peak_anonymous_bytes == 0,
            flags: flags.to_vec(),
            besides_bytes: 0,
            cut_off: None,
        };
        if peak_anonymous_bytes == 0 {
            bench.peak_anonymous_bytes = alone(&bench, 1, &mut || {})?.peak_anonymous_bytes;
        }
        Ok(bench)
    }
}
