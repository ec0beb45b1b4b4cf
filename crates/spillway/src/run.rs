//! `spillway run`: starts a program whose memory is managed.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use spillway_core::size::Size;

const EXAMPLE: &str = "\
Example:
  spillway run --local 512M --store compressed: -- sort -S 2G big.txt";

/// Run a program with less local memory than it needs.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLE)]
pub struct RunArgs {
    /// Most memory that the program and its children keep local, such as 512M
    #[arg(long, value_name = "SIZE")]
    pub local: Size,
    /// Where the rest is kept; several are filled in the order given
    #[arg(long, value_name = "URI")]
    pub store: Vec<String>,
    /// Write a JSON summary to this file when the program ends
    #[arg(long, value_name = "FILE")]
    pub stats: Option<PathBuf>,
    /// Print the summary to stderr as JSON
    #[arg(long)]
    pub json: bool,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

/// Runs the command.
pub fn run(args: RunArgs) -> ExitCode {
    let _ = args;
    crate::complain("run: not built yet; there is no remedy");
    ExitCode::from(70)
}
