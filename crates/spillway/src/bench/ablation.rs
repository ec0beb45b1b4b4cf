//! `spillway bench ablation`: its arguments, and how its results look.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use spillway_bench::BenchError;
use spillway_bench::ablation::report::AblationReport;
use spillway_bench::ablation::switches::{SWITCHES, Switch};
use spillway_bench::ablation::{Extent, Progress, empty_report, evaluate, text};
use spillway_bench::access::Pattern;
use spillway_bench::programs::list::ProgramKind;
use spillway_core::size::Size;

use super::session::{
    failure, interruption, keep, print_json, printed, progress_bar, saved, show_done, this_command,
};
use crate::exit::complain;

const EXAMPLE: &str = "\
Example:
  spillway bench ablation --quick --save ablation.json
  spillway bench ablation --switch overlap --threads 1 --pattern random_read
  spillway bench ablation --list

Each switch of 'spillway run' and its run.toml is set otherwise, alone, beside
everything as usual, all in turns: on patterns of accesses with 1, 2, 4 and 8
threads (--quick: 1 and 4), and on a handful of programs of 'bench programs'.
Where only patterns or only programs are named, only those are measured.
'--save' keeps what is measured, workload by workload: run it again to go on.
'bench report' makes a page of it.

Programs need root and what scripts/install-bench-programs installs.";

const PATTERNS: [Pattern; 5] = [
    Pattern::RandomRead,
    Pattern::RandomWrite,
    Pattern::Zipf,
    Pattern::SequentialRead,
    Pattern::SequentialRw,
];
const THREADS: [usize; 4] = [1, 2, 4, 8];
const QUICK_THREADS: [usize; 2] = [1, 4];
const PROGRAMS: [ProgramKind; 5] = [
    ProgramKind::Sort,
    ProgramKind::Sqlite,
    ProgramKind::RedisZipf,
    ProgramKind::NumpySort,
    ProgramKind::Graph,
];
const QUICK_PROGRAMS: usize = 2;

/// What each mechanism of Spillway is worth: switched, beside the usual.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLE)]
pub struct AblationArgs {
    /// Print the results as JSON, for 'bench report'
    #[arg(long)]
    json: bool,
    /// Measure little: 64M, 0.2 seconds each, and programs with small inputs
    #[arg(long)]
    quick: bool,
    /// Print the switches, and how each is set
    #[arg(long)]
    list: bool,
    /// Only this switch, of those of '--list'
    #[arg(long, value_name = "SWITCH", value_parser = parse_switch)]
    switch: Vec<&'static Switch>,
    /// Only this order of accesses
    #[arg(long, value_name = "PATTERN", value_enum)]
    pattern: Vec<Pattern>,
    /// Only with so many threads
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=256))]
    threads: Vec<u64>,
    /// Only this program, of those of 'bench programs'
    #[arg(long, value_name = "PROGRAM", value_enum)]
    program: Vec<ProgramKind>,
    /// Memory of the process with a pattern [default: 512M, or 64M with --quick]
    #[arg(long, value_name = "SIZE")]
    memory: Option<Size>,
    /// Turns; the median counts
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=99))]
    repeat: u64,
    /// Keep what is measured in this file, and go on from what it has
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
}

fn parse_switch(name: &str) -> Result<&'static Switch, String> {
    let names = || SWITCHES.iter().map(|switch| switch.name).collect::<Vec<_>>().join(", ");
    Switch::find(name).ok_or_else(|| format!("write one of {}", names()))
}

impl AblationArgs {
    fn extent(&self) -> Extent {
        let names_patterns = !self.pattern.is_empty() || !self.threads.is_empty();
        let programs = match (self.program.is_empty(), names_patterns, self.quick) {
            (false, ..) => self.program.clone(),
            (true, true, _) => Vec::new(),
            (true, false, true) => PROGRAMS[..QUICK_PROGRAMS].to_vec(),
            (true, false, false) => PROGRAMS.to_vec(),
        };
        let patterns = match (self.pattern.is_empty(), self.program.is_empty() || names_patterns) {
            (false, _) => self.pattern.clone(),
            (true, true) => PATTERNS.to_vec(),
            (true, false) => Vec::new(),
        };
        let threads = match (self.threads.is_empty(), self.quick) {
            (false, _) => self.threads.iter().map(|&threads| threads as usize).collect(),
            (true, true) => QUICK_THREADS.to_vec(),
            (true, false) => THREADS.to_vec(),
        };
        Extent {
            quick: self.quick,
            switches: if self.switch.is_empty() { SWITCHES.iter().collect() } else { self.switch.clone() },
            patterns,
            threads,
            programs,
            memory_bytes: self.memory.map_or(if self.quick { 64 << 20 } else { 512 << 20 }, Size::bytes),
            measured_ms: if self.quick { 200 } else { 1000 },
            repetitions: self.repeat as usize,
        }
    }
}

/// What the file has, if it is of such a measurement.
fn begun(path: &Path, extent: &Extent) -> Result<AblationReport, String> {
    let new = empty_report(extent);
    let report = saved(path, |report: &AblationReport| {
        let is_like = (report.quick, report.repetitions) == (new.quick, new.repetitions)
            && (report.memory_bytes, &report.ablated) == (new.memory_bytes, &new.ablated);
        let flags = "it was measured with another --quick, --switch, --memory or --repeat";
        if is_like { Ok(()) } else { Err(flags) }
    })?;
    Ok(AblationReport { interrupted: false, not_measured: Vec::new(), ..report.unwrap_or(new) })
}

fn print(text: &str) -> ExitCode {
    printed(write!(std::io::stdout(), "{text}"))
}

/// The switches, for people or as JSON.
fn list(args: &AblationArgs, extent: &Extent) -> ExitCode {
    let ablated = empty_report(extent).ablated;
    if args.json {
        return print_json(&ablated);
    }
    let line = |how: &str| how.trim_end().replace('\n', " ");
    let lines = ablated.iter().map(|way| format!("{}\n    {}\n", line(&way.how), way.about));
    print(&lines.collect::<String>())
}

/// Runs the benchmark; the exit status says whether all was measured.
pub fn run(args: &AblationArgs) -> ExitCode {
    let extent = args.extent();
    if args.list {
        return list(args, &extent);
    }
    let spillway = match this_command() {
        Ok(path) => path,
        Err(error) => return failure(error),
    };
    let mut report = match args.save.as_deref().map(|path| begun(path, &extent)) {
        None => empty_report(&extent),
        Some(Ok(report)) => report,
        Some(Err(error)) => return failure(error),
    };
    let interrupted = interruption();
    let bar = progress_bar();
    let measured = evaluate(&spillway, &extent, &interrupted, &mut report, &mut |progress| match progress {
        Progress::Preparing(name) => bar.set_message(format!("{name}: making its inputs")),
        Progress::Ran(name, done, total) => show_done(&bar, name, done, total),
        Progress::Failed(name, error) => bar.suspend(|| complain(format!("bench: {name}: {error}"))),
        Progress::Measured(report) => keep(&bar, args.save.as_deref(), report),
    });
    bar.finish_and_clear();
    if let Err(error) = measured {
        return failure(error);
    }
    let printed = if args.json { print_json(&report) } else { print(&text::markdown(&report)) };
    match report.interrupted {
        true => failure(BenchError::Interrupted),
        false if report.not_measured.is_empty() => printed,
        false => ExitCode::FAILURE,
    }
}
