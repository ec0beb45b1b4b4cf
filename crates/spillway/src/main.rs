//! The command line: parses, hands over, reports. What a command does stands in its own file and in the
//! crates below.

mod bench;
mod configuration;
mod continuing;
mod doctor;
mod donor;
mod ending;
mod exit;
mod explain;
mod lab;
mod run;
mod run_recorder;
mod short;
mod status;
mod tapes;
mod tier;
mod top;
mod watch;

use std::process::ExitCode;

use clap::error::{Error, ErrorKind};
use clap::{CommandFactory, Parser, Subcommand};

use exit::complain;

const EXAMPLE: &str = "\
Example:
  spillway run --local 512M -- sort -S 2G big.txt > sorted.txt

Exit status:
  2    the command line was not understood
  125  Spillway itself could not start the program
  126  the program was found but cannot be executed
  127  the program was not found
  Otherwise 'run' and 'tier' end as the program does; all others with 0 or 1.";

/// Run programs on more memory than the machine has.
///
/// What is hot stays in local memory; the rest is kept on a slower store: compressed memory, a file, or the
/// idle memory of another machine.
#[derive(Debug, Parser)]
#[command(name = "spillway", version, max_term_width = 80)]
#[command(after_help = EXAMPLE, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::RunArgs),
    Status(status::StatusArgs),
    Top(top::TopArgs),
    Tier(tier::TierArgs),
    Explain(explain::ExplainArgs),
    Donor(donor::DonorArgs),
    Doctor(doctor::DoctorArgs),
    Lab(lab::LabArgs),
    Bench(bench::BenchArgs),
}

fn main() -> ExitCode {
    match Cli::try_parse() {
        Ok(Cli { command: Command::Run(args) }) => run::run(args),
        Ok(Cli { command: Command::Status(args) }) => status::run(&args),
        Ok(Cli { command: Command::Top(args) }) => top::run(&args),
        Ok(Cli { command: Command::Tier(args) }) => tier::run(args),
        Ok(Cli { command: Command::Explain(args) }) => explain::run(&args),
        Ok(Cli { command: Command::Donor(args) }) => donor::run(args),
        Ok(Cli { command: Command::Doctor(args) }) => doctor::run(args),
        Ok(Cli { command: Command::Lab(args) }) => lab::run(args),
        Ok(Cli { command: Command::Bench(args) }) => bench::run(args),
        Err(error) => usage(&error),
    }
}

/// Prints help where it was asked for, or what is wrong with the command line in one line.
fn usage(error: &Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // A reader that went away has seen what it wanted.
            let _ = error.print();
            ExitCode::SUCCESS
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            ExitCode::from(exit::USAGE)
        }
        _ => {
            complain(one_line(&error.render().to_string(), named_command().as_deref()));
            ExitCode::from(exit::USAGE)
        }
    }
}

/// Folds clap's paragraphs (what is wrong, tips, usage) into one line that ends with where to read on.
fn one_line(rendered: &str, command: Option<&str>) -> String {
    let wrong = rendered
        .split("\n\n")
        .map(|paragraph| paragraph.split_whitespace().collect::<Vec<_>>().join(" "))
        .filter(|text| !text.is_empty() && !text.starts_with("Usage:") && !text.starts_with("For more"))
        .collect::<Vec<_>>()
        .join("; ");
    let wrong = wrong.strip_prefix("error: ").unwrap_or(&wrong);
    match command {
        Some(command) => format!("{wrong}; see 'spillway {command} --help'"),
        None => format!("{wrong}; see 'spillway --help'"),
    }
}

/// The subcommand that the command line names, if it is one of ours.
fn named_command() -> Option<String> {
    let first = std::env::args_os().nth(1)?.into_string().ok()?;
    Cli::command().find_subcommand(&first).map(|command| command.get_name().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn usage_errors_fold_into_one_line() {
        let text = "error: the following required arguments were not provided:\n  --local <SIZE>\n\n\
                    Usage: spillway run --local <SIZE> -- <PROGRAM>...\n\nFor more information, try \
                    '--help'.\n";
        assert_eq!(
            one_line(text, Some("run")),
            "the following required arguments were not provided: --local <SIZE>; see 'spillway run --help'"
        );
    }

    #[test]
    fn tips_are_kept() {
        let text = "error: unexpected argument '--jso' found\n\n  tip: a similar argument exists: \
                    '--json'\n\n\
                    Usage: spillway doctor --json\n\nFor more information, try '--help'.\n";
        assert_eq!(
            one_line(text, Some("doctor")),
            "unexpected argument '--jso' found; tip: a similar argument exists: '--json'; \
             see 'spillway doctor --help'"
        );
    }
}
