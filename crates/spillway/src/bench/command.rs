//! `spillway bench command`: its arguments, and how its results look.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use spillway_bench::command::{Extent, Local, measure, text};
use spillway_core::size::Size;

use super::session::{failure, interruption, print_json, printed, progress_bar, this_command};

const EXAMPLE: &str = "\
Example:
  spillway bench command --local 50% -- python3 analyse.py
  spillway bench command --local 128M --output sorted \\
    -- sort --buffer-size=512M --output=sorted lines

The command runs once, to know what it writes; then with all memory; then in
turns under 'spillway run --local' and under Linux swap on zram (read-ahead of
one page and of eight, the better counts), whose limit is settled so that both
hold as much memory. What it prints and its --output files must always be the
same; its standard input is empty. Without root or zram Spillway is measured
alone, and that is said; a share such as 50% takes root, for a control group
counts what the command takes.";

/// Your own command with little memory: under Spillway, beside zram.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLE)]
pub struct CommandArgs {
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
    /// Most memory that it keeps local: a size, or a share of what it takes
    #[arg(long, value_name = "SIZE|PERCENT", value_parser = local)]
    local: Local,
    /// Where the rest goes, as for 'spillway run'; may be given several times
    #[arg(long, value_name = "URI")]
    store: Vec<String>,
    /// How faults are served, as for 'spillway run'
    #[arg(long, value_name = "MODE")]
    fault_mode: Option<String>,
    /// A file that it writes: removed before each run, and compared after it
    #[arg(long, value_name = "FILE")]
    output: Vec<PathBuf>,
    /// Do not compare what it writes: it differs from run to run
    #[arg(long)]
    any_output: bool,
    /// Turns; the median counts
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=99))]
    repeat: u64,
    /// The program and its arguments; options of Spillway's go before it
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// A size such as `128M`, or a share such as `50%`.
fn local(text: &str) -> Result<Local, String> {
    const WRITE: &str = "write a size or a share of what the command takes, such as 128M or 50%";
    let Some(percent) = text.strip_suffix('%') else {
        return text.parse().map(|size: Size| Local::Bytes(size.bytes())).map_err(|_| WRITE.to_owned());
    };
    let percent = percent.trim().parse().ok().filter(|percent| (1.0..=100.0).contains(percent));
    percent.map(|percent: f64| Local::Share(percent / 100.0)).ok_or_else(|| WRITE.to_owned())
}

impl CommandArgs {
    fn extent(&self) -> Extent {
        let stores = self.store.iter().flat_map(|uri| ["--store".to_owned(), uri.clone()]);
        let mode = self.fault_mode.iter().flat_map(|mode| ["--fault-mode".to_owned(), mode.clone()]);
        Extent {
            command: self.command.clone(),
            local: self.local,
            flags: stores.chain(mode).collect(),
            outputs: self.output.clone(),
            any_output: self.any_output,
            repetitions: self.repeat as usize,
        }
    }
}

/// Runs the benchmark; the exit status says whether every run ended well.
pub fn run(args: &CommandArgs) -> ExitCode {
    let spillway = match this_command() {
        Ok(path) => path,
        Err(error) => return failure(error),
    };
    let interrupted = interruption();
    let bar = progress_bar();
    let measured = measure(&spillway, &args.extent(), &interrupted, &mut |what| {
        bar.set_message(format!("running {what}"));
        bar.tick();
    });
    bar.finish_and_clear();
    let report = match measured {
        Ok(report) => report,
        Err(error) => return failure(error),
    };
    let printed = match args.json {
        true => print_json(&report),
        false => printed(write!(std::io::stdout(), "{}", text::table(&report))),
    };
    if report.is_well() { printed } else { ExitCode::FAILURE }
}
