//! `spillway bench dcm`.

use std::io::Write;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use spillway_bench::BenchError;
use spillway_bench::dcm::programs::WorkloadKind;
use spillway_bench::dcm::{Extent, Progress, SHARES, evaluate, tables};

use super::session::{failure, interruption, print_json, progress_bar, this_command};
use crate::exit::complain;

const EXAMPLE: &str = "\
Example:
  spillway bench dcm --quick
  spillway bench dcm --workload snap --repeat 3 --json > dcm.json

Each program runs unlimited, then with 75%, 50% and 25% of its memory local:
on a donor by shared memory and on RAM, both as over InfiniBand FDR, on a donor
by TCP, with blocks of each size (--quick: on the first only), and on Linux
swap on a RAM disk. 'bench report' makes one page of several results, so that
programs and shares can be measured one at a time. Interrupted, it prints what
it has measured so far.

It needs root, and the programs:
apt-get install snap-aligner postgresql python3-venv openjdk-17-jre-headless
PySpark is fetched by pip into ~/.cache/spillway when it is first needed.";

/// Redo dcm's evaluation: whole programs with little local memory.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLE)]
pub struct DcmArgs {
    /// Print the results as JSON, for 'bench report'
    #[arg(long)]
    json: bool,
    /// Small inputs
    #[arg(long)]
    quick: bool,
    /// Only these programs
    #[arg(long, value_name = "PROGRAM", value_enum)]
    workload: Vec<WorkloadKind>,
    /// Only with this share of the memory local, in percent
    #[arg(long, value_name = "PERCENT", value_parser = parse_share)]
    local: Vec<u64>,
    /// How often each run is repeated; the median counts
    #[arg(long, value_name = "N", default_value_t = 1)]
    repeat: usize,
}

fn parse_share(text: &str) -> Result<u64, String> {
    let share = text.parse().ok().filter(|share| SHARES.contains(share));
    share.ok_or_else(|| "write one of the paper's: 75, 50 or 25".to_owned())
}

/// Runs it.
pub fn run(args: &DcmArgs) -> ExitCode {
    let spillway = match this_command() {
        Ok(path) => path,
        Err(error) => return failure(error),
    };
    let workloads = if args.workload.is_empty() {
        WorkloadKind::value_variants().to_vec()
    } else {
        args.workload.clone()
    };
    let shares = if args.local.is_empty() { SHARES.to_vec() } else { args.local.clone() };
    let extent = Extent { quick: args.quick, workloads, shares, repetitions: args.repeat };
    let interrupted = interruption();
    let bar = progress_bar();
    let report = evaluate(&spillway, &extent, &interrupted, &mut |progress| match progress {
        Progress::Preparing(name) => {
            bar.reset();
            bar.set_message(format!("{name}: making its inputs"));
        }
        Progress::Ran(name, done, total) => {
            bar.set_message(name);
            bar.set_length(total as u64);
            bar.set_position(done as u64);
        }
        Progress::Failed(name, error) => bar.suspend(|| complain(format!("bench: {name}: {error}"))),
    });
    bar.finish_and_clear();
    let report = match report {
        Ok(report) => report,
        Err(error) => return failure(error),
    };
    let printed = if args.json {
        print_json(&report)
    } else {
        match write!(std::io::stdout(), "{}", tables::markdown(&report)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => failure(format!("cannot print: {error}")),
        }
    };
    if report.interrupted {
        return failure(BenchError::Interrupted);
    }
    if report.workloads.is_empty() { ExitCode::FAILURE } else { printed }
}
