//! `spillway lab import`: a trace from what other tools print.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use spillway_lab::trace::TraceSummary;
use spillway_lab::trace::import::{Addresses, TextFormat, import_with};

use super::progress::read_with_progress;
use super::record::{Written, tell, write_trace};
use super::run::{ended, print_json};
use crate::exit::complain;

const EXAMPLE: &str = "\
Examples:
  valgrind --tool=lackey --trace-mem=yes --log-file=out.lackey PROGRAM
  spillway lab import --format lackey -o program.trace out.lackey
  printf '0x1000,r\\n0x2000,w\\n' | spillway lab import -f plain -o two.trace";

/// Turn Valgrind's or your own list of memory accesses into a trace.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLE)]
pub struct ImportArgs {
    /// How the accesses are written
    #[arg(short, long, value_name = "FORMAT")]
    format: Format,

    /// Number pages of 4 KiB in the order in which they first come, whatever their addresses are: for those
    /// that are hashes, or too far apart for any memory
    #[arg(long)]
    renumber: bool,

    /// Where the trace goes
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// Print what was written as JSON
    #[arg(long)]
    json: bool,

    /// Where the accesses stand; otherwise, and for '-', on standard input
    #[arg(value_name = "INPUT")]
    input: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// What 'valgrind --tool=lackey --trace-mem=yes' prints
    Lackey,
    /// Lines of an address, a comma, and r or w
    Plain,
}

/// Turns another tool's trace into one of the lab's.
pub fn run(args: &ImportArgs) -> ExitCode {
    match import_file(args) {
        Ok(summary) if args.json => {
            ended(print_json(&mut io::stdout().lock(), &Written::of(&args.output, &summary)))
        }
        Ok(summary) => {
            tell(&args.output, &summary);
            ExitCode::SUCCESS
        }
        Err(message) => {
            complain(format_args!("lab import: {message}"));
            ExitCode::FAILURE
        }
    }
}

fn import_file(args: &ImportArgs) -> Result<TraceSummary, String> {
    let format = match args.format {
        Format::Lackey => TextFormat::Lackey,
        Format::Plain => TextFormat::Plain,
    };
    let addresses = if args.renumber { Addresses::Renumbered } else { Addresses::Kept };
    let Some(input) = args.input.as_ref().filter(|input| *input != Path::new("-")) else {
        return write_trace(&args.output, |out| import_with(format, addresses, io::stdin().lock(), out));
    };
    let file = File::open(input).map_err(|error| format!("{}: {error}; check its path", input.display()))?;
    write_trace(&args.output, |out| import_with(format, addresses, read_with_progress(file), out))
}
