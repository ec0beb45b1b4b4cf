//! `spillway bench programs`: its arguments, and how its results look.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use spillway_bench::BenchError;
use spillway_bench::page::programs::write_html;
use spillway_bench::programs::list::ProgramKind;
use spillway_bench::programs::report::{Configuration, ProgramsReport, Rival};
use spillway_bench::programs::{Extent, Progress, SHARES, empty_report, evaluate, promises, text};

use super::session::{
    failure, interruption, keep, print_json, printed, progress_bar, saved, show_done, this_command,
};
use crate::exit::complain;

const EXAMPLE: &str = "\
Example:
  spillway bench programs --quick --save programs.json --html programs.html
  spillway bench programs --program redis_zipf --program sort --repeat 3
  spillway bench programs --quick --local 50 --configuration default --check

Each program runs with all memory, and with 75%, 50% and 25% of its anonymous
memory local: under Spillway with no other flag, inline, with 'ram:' and with a
donor over TCP, and under Linux swap on zram and on a RAM disk, read-ahead of
one page and of eight, the better counts (--quick: not inline, and the RAM disk
with eight). Swap's limit is settled so that both hold as much. Outputs are
checked. A run that takes hopelessly long is cut off, and lost.
'--save' keeps what is measured, share by share: run it again to go on.

It needs root, zram and the programs: scripts/install-bench-programs installs
them. PySpark is fetched by pip into ~/.cache/spillway when it is first needed.";

/// Real programs with little memory, beside zram and swap on a RAM disk.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLE)]
pub struct ProgramsArgs {
    /// Print the results as JSON, for 'bench report'
    #[arg(long)]
    json: bool,
    /// Measure with inputs of a tenth, once: all but PySpark's in less than 25
    /// minutes
    #[arg(long)]
    quick: bool,
    /// Measure only these programs, in place of all
    #[arg(long, value_name = "PROGRAM", value_enum)]
    program: Vec<ProgramKind>,
    /// Only with this share of the memory local, in percent
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u64).range(5..=95))]
    local: Vec<u64>,
    /// Only with Spillway set up so
    #[arg(long, value_name = "CONFIGURATION", value_enum)]
    configuration: Vec<Configuration>,
    /// Only beside this kind of swap
    #[arg(long, value_name = "RIVAL", value_enum)]
    beside: Vec<Rival>,
    /// Turns; the median counts [default: 3, or 1 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=99))]
    repeat: Option<u64>,
    /// Fail where the speed that SPECIFICATION.md promises is not reached: of
    /// the whole suite, at 50%, without flags
    #[arg(long, conflicts_with = "program")]
    check: bool,
    /// Keep what is measured in this file, and go on from what it has
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Write a page with tables and plots to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

impl ProgramsArgs {
    fn extent(&self) -> Extent {
        let configurations =
            if self.quick { Configuration::QUICK.to_vec() } else { Configuration::ALL.to_vec() };
        let is_asked_for = |rival: &Rival| self.beside.is_empty() || self.beside.contains(rival);
        let or = |given: &[Configuration]| if given.is_empty() { configurations } else { given.to_vec() };
        Extent {
            quick: self.quick,
            programs: if self.program.is_empty() {
                ProgramKind::usual(self.quick)
            } else {
                self.program.clone()
            },
            shares: if self.local.is_empty() { SHARES.to_vec() } else { self.local.clone() },
            configurations: or(&self.configuration),
            rivals: Rival::SWAP.into_iter().filter(is_asked_for).collect(),
            repetitions: self.repeat.unwrap_or(if self.quick { 1 } else { 3 }) as usize,
        }
    }
}

/// Whether what is promised was reached, if that is asked; what was not is named.
fn keeps_promises(args: &ProgramsArgs, report: &ProgramsReport) -> bool {
    let broken = if args.check { promises::broken(report) } else { Vec::new() };
    broken.iter().for_each(|promise| complain(format!("bench: promise not kept: {promise}")));
    broken.is_empty()
}

/// What the file has, if it is of such a measurement.
fn begun(path: &Path, extent: &Extent) -> Result<ProgramsReport, String> {
    let report = saved(path, |report: &ProgramsReport| {
        let is_like = (report.quick, report.repetitions) == (extent.quick, extent.repetitions)
            && (&report.shares, &report.configurations) == (&extent.shares, &extent.configurations)
            && report.rivals == extent.rivals;
        let flags = "it was measured with another --quick, --local, --configuration, --beside or --repeat";
        if is_like { Ok(()) } else { Err(flags) }
    })?;
    let report = report.unwrap_or_else(|| empty_report(extent));
    Ok(ProgramsReport { interrupted: false, not_measured: Vec::new(), ..report })
}

/// Runs the benchmark; the exit status says whether all was measured.
pub fn run(args: &ProgramsArgs) -> ExitCode {
    let spillway = match this_command() {
        Ok(path) => path,
        Err(error) => return failure(error),
    };
    let extent = args.extent();
    if let Err(error) = promises::can_be_checked(&extent)
        && args.check
    {
        return failure(format!("--check: {error}"));
    }
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
    // With what could not be measured.
    keep(&bar, args.save.as_deref(), &report);
    if let Err(error) = measured {
        return failure(error);
    }
    if let Some(path) = &args.html
        && let Err(error) = write_html(&report, None, path)
    {
        return failure(error);
    }
    let printed = if args.json {
        print_json(&report)
    } else {
        printed(write!(std::io::stdout(), "{}", text::markdown(&report)))
    };
    match report.interrupted {
        true => failure(BenchError::Interrupted),
        false if report.not_measured.is_empty() && keeps_promises(args, &report) => printed,
        false => ExitCode::FAILURE,
    }
}
