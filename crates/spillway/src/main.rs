//! The command line: parses, hands over, reports. What a command does stands in its own file and in the
//! crates below.

mod advise;
mod bench;
mod check;
mod configuration;
mod continuing;
mod dashboard;
mod doctor;
mod donor;
mod ending;
mod exit;
mod explain;
mod generate;
mod heat_picture;
mod lab;
mod local_limit;
mod pool;
mod record;
mod report;
mod run;
mod run_recorder;
mod short;
mod status;
mod stop;
mod tapes;
mod tier;
mod top;
mod watch;
mod working_set;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, Error, ErrorKind};
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
    Dashboard(dashboard::DashboardArgs),
    Record(record::RecordArgs),
    Report(report::ReportArgs),
    Tier(tier::TierArgs),
    Explain(explain::ExplainArgs),
    Advise(advise::AdviseArgs),
    Donor(donor::DonorArgs),
    Pool(pool::PoolArgs),
    Doctor(doctor::DoctorArgs),
    Check(check::CheckArgs),
    Lab(lab::LabArgs),
    Bench(bench::BenchArgs),
    Generate(generate::GenerateArgs),
}

fn main() -> ExitCode {
    match Cli::try_parse() {
        Ok(Cli { command: Command::Run(args) }) => run::run(args),
        Ok(Cli { command: Command::Status(args) }) => status::run(&args),
        Ok(Cli { command: Command::Top(args) }) => top::run(&args),
        Ok(Cli { command: Command::Dashboard(args) }) => dashboard::run(&args),
        Ok(Cli { command: Command::Record(args) }) => record::run(&args),
        Ok(Cli { command: Command::Report(args) }) => report::run(&args),
        Ok(Cli { command: Command::Tier(args) }) => tier::run(args),
        Ok(Cli { command: Command::Explain(args) }) => explain::run(&args),
        Ok(Cli { command: Command::Advise(args) }) => advise::run(&args),
        Ok(Cli { command: Command::Donor(args) }) => donor::run(args),
        Ok(Cli { command: Command::Pool(args) }) => pool::run(&args),
        Ok(Cli { command: Command::Doctor(args) }) => doctor::run(args),
        Ok(Cli { command: Command::Check(args) }) => check::run(&args),
        Ok(Cli { command: Command::Lab(args) }) => lab::run(args),
        Ok(Cli { command: Command::Bench(args) }) => bench::run(args),
        Ok(Cli { command: Command::Generate(args) }) => generate::run(&args, Cli::command()),
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
            let named = named_command();
            let mut wrong = error.render().to_string();
            if let Some(advice) = advice(error, named.as_ref()) {
                wrong.push_str("\n\n");
                wrong.push_str(&advice);
            }
            complain(one_line(&wrong, named.as_ref().map(clap::Command::get_name)));
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
fn named_command() -> Option<clap::Command> {
    let first = std::env::args_os().nth(1)?.into_string().ok()?;
    Cli::command().find_subcommand(&first).cloned()
}

/// What to do about a program among the options of a command that runs one, or options behind the program.
fn advice(error: &Error, command: Option<&clap::Command>) -> Option<String> {
    let command = command?;
    let name = command.get_name();
    let program = command
        .get_positionals()
        .find(|positional| positional.is_last_set() || positional.is_trailing_var_arg_set())?;
    let invalid = || match error.get(ContextKind::InvalidArg).or(error.get(ContextKind::InvalidSubcommand)) {
        Some(ContextValue::String(word)) if !word.starts_with('-') => Some(word.as_str()),
        _ => None,
    };
    match error.kind() {
        ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand if program.is_last_set() => {
            let word = invalid()?;
            Some(format!("tip: put '--' before the program: spillway {name} ... -- {word} ..."))
        }
        ErrorKind::MissingRequiredArgument if program.is_trailing_var_arg_set() => {
            let is_option = |word: OsString| {
                word.to_str().is_some_and(|word| word == "--local" || word.starts_with("--local="))
            };
            std::env::args_os().any(is_option).then_some(())?;
            Some("tip: options of Spillway's go before the program".to_owned())
        }
        _ => None,
    }
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
