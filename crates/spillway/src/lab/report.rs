//! `spillway lab report`: its arguments, and what it reads.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use spillway_lab::report::report;
use spillway_report::whole_file;

use crate::exit::complain;

/// Where the page goes, in the directory of the results.
const PAGE: &str = "report.html";

const EXAMPLE: &str = "\
Examples:
  spillway lab sweep grid.toml -o out && spillway lab report out
  spillway lab figure all --quick --json >out/figures.json; spillway lab report out

The page needs nothing but itself: open it, or send it.";

/// Make a page to look at from the results of a sweep, of figures, or of both.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLE)]
pub struct ReportArgs {
    /// Directory with the results: runs.parquet of a sweep, figures.json of figures
    #[arg(value_name = "OUT")]
    results: PathBuf,

    /// Where the page goes; otherwise OUT/report.html
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Makes the page; the exit status says whether it could.
pub fn run(args: &ReportArgs) -> ExitCode {
    let page = match report(&args.results) {
        Ok(page) => page,
        Err(error) => {
            complain(error);
            return ExitCode::FAILURE;
        }
    };
    let path = args.output.clone().unwrap_or_else(|| args.results.join(PAGE));
    match whole_file::write(&path, page) {
        Ok(()) => {
            complain(format_args!("{}", path.display()));
            ExitCode::SUCCESS
        }
        Err(error) => {
            complain(format_args!(
                "cannot write '{}': {error}; choose another place with -o",
                path.display()
            ));
            ExitCode::FAILURE
        }
    }
}
