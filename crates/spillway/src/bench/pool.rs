//! `spillway bench pool`: its arguments, and how its results look.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use spillway_bench::pool::{Extent, Progress, Row, measure, reads};
use spillway_core::size::Size;

use super::session::{Results, failure, interruption, print_json, progress_bar, show_done, this_command};

/// A part takes many seconds, in which the time left goes down.
const TICK: Duration = Duration::from_secs(1);

const EXAMPLE: &str = "\
Example:
  spillway bench pool --quick
  spillway bench pool --json

It starts three donors on addresses of this machine, runs a program on them
and on one plain NBD donor, and kills one of the three while the program reads.
Each page is on two donors, and sealed where it is not said otherwise. Then the
same with pages coded over six donors (4+2), two of which are killed; of eight
where what they had is to be made anew. At last both with donors that have
little room, so that most pages go to a file (?spill=file:), beside file:.

Exit status: 0 when all was measured, whether or not the aims are met.";

/// Measure a pool of donors beside one donor, and while one of them dies.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLE)]
pub struct PoolArgs {
    /// Print the results as JSON, with a row for each: name, value, aim, met (null where nobody has said
    /// what it should be)
    #[arg(long)]
    json: bool,
    /// Measure little: 64M, and once
    #[arg(long)]
    quick: bool,
    /// Memory of the measured program [default: 256M, or 64M with --quick]
    #[arg(long, value_name = "SIZE")]
    memory: Option<Size>,
    /// How often each comparison is repeated [default: 3, or 1 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100))]
    repeat: Option<u64>,
}

/// Runs the benchmark; the exit status says whether all was measured.
pub fn run(args: &PoolArgs) -> ExitCode {
    let spillway = match this_command() {
        Ok(path) => path,
        Err(error) => return failure(error),
    };
    let extent = Extent {
        memory_bytes: args.memory.map_or(if args.quick { 64 << 20 } else { 256 << 20 }, Size::bytes),
        measured_ms: 1000,
        repetitions: args.repeat.unwrap_or(if args.quick { 1 } else { 3 }) as usize,
    };
    let interrupted = interruption();
    let results = Results::new();
    let bar = progress_bar();
    bar.enable_steady_tick(TICK);
    let measured = measure(&spillway, extent, &interrupted, &mut |progress| match progress {
        Progress::Row(_) if args.json => {}
        Progress::Row(row) => bar.suspend(|| results.print(line(row))),
        Progress::Done(done, all) => show_done(&bar, "", done, all),
    });
    bar.finish_and_clear();
    match measured {
        Ok(report) if args.json => print_json(&report),
        Ok(_) => results.ended(),
        Err(error) => failure(error),
    }
}

fn line(row: &Row) -> String {
    let met = match row.met {
        Some(true) => "met",
        Some(false) => "missed",
        None => "",
    };
    let aim = row.aim.map_or_else(|| "no aim".to_owned(), |aim| format!("aim {aim:>7.2}  {met}"));
    format!("{:<69} {:>9.2}  {aim}\n", row.name, row.value)
}

/// The measured program, which `bench pool` starts.
#[derive(Debug, Args)]
pub struct ReadsArgs {
    #[arg(long)]
    memory: Size,
}

/// Reads as it is told on standard input.
pub fn run_reads(args: &ReadsArgs) -> ExitCode {
    match reads::serve(args.memory.bytes(), std::io::stdin().lock(), std::io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure(error),
    }
}
