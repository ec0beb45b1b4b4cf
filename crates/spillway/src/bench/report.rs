//! `spillway bench report`: its arguments, and what it reads.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use spillway_bench::page::{self, Results};

use super::session::failure;

const EXAMPLE: &str = "\
Example:
  spillway bench paging --json > paging.json
  spillway bench report --to docs/research paging.json

It writes paging-benchmark.md and its plots beside it; of 'bench programs',
programs-whole.md, or programs-benchmark.md where inputs are small. Of a
comparison that is in several files, the last counts.";

/// Write pages with tables and plots from what the benchmarks printed as JSON.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLE)]
pub struct ReportArgs {
    /// Write the pages into this directory
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// What a reader should know about the runs
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
    /// Files with the JSON of benchmarks
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// Makes the pages; the exit status says whether it could.
pub fn run(args: &ReportArgs) -> ExitCode {
    let results: Result<Vec<Results>, _> = args.files.iter().map(|file| Results::read(file)).collect();
    match results.and_then(|results| page::write(&results, args.note.as_deref(), &args.to)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure(error),
    }
}
