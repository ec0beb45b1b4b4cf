//! `spillway lab sweep`: its arguments, and how its results look.

use std::path::PathBuf;
use std::process::ExitCode;
use std::{fs, thread};

use clap::Args;
use spillway_lab::sweep::{Grid, TABLE, sweep};

use super::progress::progress_bar;
use crate::exit::complain;

const EXAMPLE: &str = "\
Example:
  spillway lab sweep grid.toml -o out

A grid:
  workloads = [\"memcached-etc\", \"tpcc\"]
  traces = [\"node.trace\", \"sort.trace\"]
  policies = [\"hotbox\", \"tpp\", \"swap\"]
  local = [0.1, 0.2, 0.4]
  far_ns = [750, 1500]
  contention = [0.0, 0.5]
  bytes = 67108864
  platform = \"hotbox\"
  [policy_settings.hotbox]
  throttle = false";

/// Run every combination of a grid; an interrupted sweep goes on where it was.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLE)]
pub struct SweepArgs {
    /// The grid, in TOML
    #[arg(value_name = "SWEEP.toml")]
    grid: PathBuf,

    /// Directory for the results: runs.parquet, and runs.jsonl as they come
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
}

/// Simulates every combination and writes the table.
pub fn run(args: &SweepArgs) -> ExitCode {
    let grid = match read_grid(args) {
        Ok(grid) => grid,
        Err(reason) => {
            complain(reason);
            return ExitCode::FAILURE;
        }
    };
    let bar = progress_bar(0, "runs");
    let progress = |done: usize, all: usize| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let result = sweep(&grid, &args.output, threads, &progress);
    bar.finish();
    match result {
        Ok(()) => {
            let runs = grid.runs().len();
            complain(format_args!("{}: {runs} runs", args.output.join(TABLE).display()));
            ExitCode::SUCCESS
        }
        Err(error) => {
            complain(error);
            ExitCode::FAILURE
        }
    }
}

fn read_grid(args: &SweepArgs) -> Result<Grid, String> {
    let path = args.grid.display();
    let text = fs::read_to_string(&args.grid)
        .map_err(|error| format!("cannot read '{path}': {error}; name a grid"))?;
    toml::from_str(&text)
        .map_err(|error| format!("'{path}' is no grid: {}; see 'spillway lab sweep --help'", error.message()))
}
