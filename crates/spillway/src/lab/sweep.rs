//! `spillway lab sweep`: its arguments, and how its results look.

use std::path::PathBuf;
use std::process::ExitCode;
use std::{fs, io, thread};

use clap::Args;
use serde::Serialize;
use spillway_lab::sweep::{Grid, TABLE, sweep};

use super::progress::progress_bar;
use super::run::{ended, print_json};
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

    /// Print what was made as JSON
    #[arg(long)]
    json: bool,
}

/// What was made, as `--json` prints it.
#[derive(Serialize)]
struct Swept {
    /// The file that the table is in.
    table: String,
    /// Runs of the grid, all of which are in the table.
    runs: usize,
    /// Those of them that were made now.
    runs_made: usize,
    /// Those that an earlier sweep into this directory had made.
    runs_kept: usize,
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
        Ok(runs_made) => {
            let (table, runs) = (args.output.join(TABLE).display().to_string(), grid.runs().len());
            if args.json {
                let swept = Swept { table, runs, runs_made, runs_kept: runs.saturating_sub(runs_made) };
                return ended(print_json(&mut io::stdout().lock(), &swept));
            }
            complain(format_args!("{table}: {runs} runs"));
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
