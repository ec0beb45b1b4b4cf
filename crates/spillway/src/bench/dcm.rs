//! `spillway bench dcm`: its arguments, and how its results look.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use spillway_bench::BenchError;
use spillway_bench::dcm::cells::Wanted;
use spillway_bench::dcm::programs::WorkloadKind;
use spillway_bench::dcm::report::{BLOCKS, DcmReport, Far};
use spillway_bench::dcm::{Extent, Progress, SHARES, empty_report, evaluate, tables};

use super::session::{
    failure, interruption, keep, print_json, printed, progress_bar, saved, show_done, this_command,
};
use crate::exit::complain;

const EXAMPLE: &str = "\
Example:
  spillway bench dcm --quick
  spillway bench dcm --workload snap --local 50 --far ram_fdr --save dcm.json

Each program has at least 2 GiB of memory and takes at least half a minute
(--quick: a tenth and less). It runs unlimited, then with 75%, 50% and 25% of
its memory local: on RAM and on a donor by shared memory, both as over
InfiniBand FDR, on a donor by TCP, with blocks of each size (--quick: on RAM
only), and on Linux swap on a RAM disk; SNAP on a file too, and with 1, 2, 4
and 8 threads. 'RAM, as over FDR' compares with the paper.
'--save' keeps what is measured, run by run: run it again to go on.
'bench report' makes one page of several results.

It needs root, and the programs:
apt-get install snap-aligner postgresql python3-venv openjdk-17-jre-headless
PySpark is fetched by pip into ~/.cache/spillway when it is first needed.
Files lie in TMPDIR, where SNAP takes 6 GB: name an NVMe there to have far
memory on it.";

/// Redo dcm's evaluation: whole programs with little local memory.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLE)]
pub struct DcmArgs {
    /// Print the results as JSON, for 'bench report'
    #[arg(long)]
    json: bool,
    /// Measure with small inputs
    #[arg(long)]
    quick: bool,
    /// Measure only these programs, in place of all
    #[arg(long, value_name = "PROGRAM", value_enum)]
    workload: Vec<WorkloadKind>,
    /// Only with this share of the memory local, in percent
    #[arg(long, value_name = "PERCENT", value_parser = parse_share)]
    local: Vec<u64>,
    /// Only with this for what is not local
    #[arg(long, value_name = "FAR", value_enum)]
    far: Vec<Far>,
    /// Only with this '--block' of 'spillway run'
    #[arg(long, value_name = "BLOCK", value_parser = parse_block)]
    block: Vec<&'static str>,
    /// Only with so many threads, of programs where that can be chosen
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    threads: Vec<u32>,
    /// How often each run is repeated; the median counts
    #[arg(long, value_name = "N", default_value_t = 1)]
    repeat: usize,
    /// Keep what is measured in this file, and go on from what it has
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Keep inputs that take long to make in this directory
    #[arg(long, value_name = "DIR")]
    inputs: Option<PathBuf>,
}

fn parse_share(text: &str) -> Result<u64, String> {
    let share = text.parse().ok().filter(|share| SHARES.contains(share));
    share.ok_or_else(|| "write one of the paper's: 75, 50 or 25".to_owned())
}

fn parse_block(text: &str) -> Result<&'static str, String> {
    let block = BLOCKS.into_iter().find(|block| *block == text);
    block.ok_or_else(|| format!("write one of {}", BLOCKS.join(", ")))
}

impl DcmArgs {
    fn extent(&self) -> Extent {
        let wanted = Wanted {
            workloads: self.workload.clone(),
            shares: self.local.clone(),
            fars: self.far.clone(),
            blocks: self.block.clone(),
            threads: self.threads.clone(),
        };
        Extent { quick: self.quick, wanted, repetitions: self.repeat, inputs: self.inputs.clone() }
    }
}

/// What the file has, if it is of such a measurement.
fn begun(path: &Path, extent: &Extent) -> Result<DcmReport, String> {
    let report = saved(path, |report: &DcmReport| {
        let is_like = (report.quick, report.repetitions) == (extent.quick, extent.repetitions);
        if is_like { Ok(()) } else { Err("it was measured with another --quick or --repeat") }
    })?;
    let report = report.unwrap_or_else(|| empty_report(extent));
    Ok(DcmReport { interrupted: false, failures: Vec::new(), ..report })
}

fn print(args: &DcmArgs, report: &DcmReport) -> ExitCode {
    if args.json {
        return print_json(report);
    }
    printed(write!(std::io::stdout(), "{}", tables::markdown(report)))
}

/// Runs the benchmark; the exit status says whether all was measured.
pub fn run(args: &DcmArgs) -> ExitCode {
    let spillway = match this_command() {
        Ok(path) => path,
        Err(error) => return failure(error),
    };
    let extent = args.extent();
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
    if report.workloads.is_empty() {
        return if report.interrupted { failure(BenchError::Interrupted) } else { ExitCode::FAILURE };
    }
    let printed = print(args, &report);
    if report.interrupted { failure(BenchError::Interrupted) } else { printed }
}
