//! The command line: parses, hands over, reports. What a command does stands in its own file and in the
//! crates below.

mod advise;
mod bench;
mod check;
mod columns;
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
mod kept_library;
mod lab;
mod local_limit;
mod log;
mod pool;
mod record;
mod report;
mod run;
mod run_events;
mod run_recorder;
mod run_stores;
mod short;
mod status;
mod stop;
mod tapes;
mod tier;
mod tier_described;
mod tier_events;
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
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => match error.print() {
            // A reader that went away has seen what it wanted.
            Err(failure) if failure.kind() != std::io::ErrorKind::BrokenPipe => {
                complain(format!("standard output: {failure}; the help could not be printed"));
                ExitCode::FAILURE
            }
            _ => ExitCode::SUCCESS,
        },
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            ExitCode::from(exit::USAGE)
        }
        _ => {
            let (path, named) = named_command(std::env::args_os());
            let mut wrong = error.render().to_string();
            if let Some(advice) = advice(error, &path, &named) {
                wrong.push_str("\n\n");
                wrong.push_str(&advice);
            }
            complain(one_line(&wrong, &path));
            ExitCode::from(exit::USAGE)
        }
    }
}

/// What Rust says of numbers, and what a user can do about it.
const IN_OUR_WORDS: [(&str, &str); 4] = [
    ("invalid digit found in string", "write a whole number"),
    ("cannot parse integer from empty string", "write a whole number"),
    ("number too large to fit in target type", "it is too large"),
    ("invalid float literal", "write a number"),
];

/// Folds clap's paragraphs (what is wrong, tips, usage) into one line that ends with where to read on.
fn one_line(rendered: &str, command: &str) -> String {
    // That an option could be meant as a program's name is no help.
    let is_said = |line: &&str| !line.trim_start().starts_with("tip: to pass '");
    let wrong = rendered
        .split("\n\n")
        .map(|paragraph| {
            let lines: Vec<&str> = paragraph.lines().filter(is_said).collect();
            lines.join(" ").split_whitespace().collect::<Vec<_>>().join(" ")
        })
        .filter(|text| !text.is_empty() && !text.starts_with("Usage:") && !text.starts_with("For more"))
        .collect::<Vec<_>>()
        .join("; ");
    let wrong = wrong.strip_prefix("error: ").unwrap_or(&wrong);
    let wrong = IN_OUR_WORDS.iter().fold(wrong.to_owned(), |text, (rusts, ours)| text.replace(rusts, ours));
    format!("{wrong}; see '{command} --help'")
}

/// The command of ours that a command line names, as far as it names one: how it is called, and what it is.
fn named_command(words: impl Iterator<Item = OsString>) -> (String, clap::Command) {
    let (mut path, mut command) = ("spillway".to_owned(), Cli::command());
    for word in words.skip(1) {
        let Some(named) = word.to_str().and_then(|word| command.find_subcommand(word)).cloned() else {
            break;
        };
        path = format!("{path} {}", named.get_name());
        command = named;
    }
    (path, command)
}

/// What to do about a program among the options of a command that runs one, or options behind the program.
fn advice(error: &Error, path: &str, command: &clap::Command) -> Option<String> {
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
            Some(format!("tip: put '--' before the program: {path} ... -- {word} ..."))
        }
        ErrorKind::MissingRequiredArgument if program.is_trailing_var_arg_set() => {
            let is_option = |word: OsString| {
                word.to_str().is_some_and(|word| word == "--local" || word.starts_with("--local="))
            };
            if std::env::args_os().any(is_option) {
                return Some("tip: options of Spillway's go before the program".to_owned());
            }
            let word = std::env::args().nth(path.split(' ').count()).filter(|word| !word.starts_with('-'))?;
            let takes_limit = command.get_arguments().any(|argument| argument.get_long() == Some("local"));
            takes_limit.then(|| format!("tip: say how much may be local: {path} --local 512M {word} ..."))
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
            one_line(text, "spillway run"),
            "the following required arguments were not provided: --local <SIZE>; see 'spillway run --help'"
        );
    }

    #[test]
    fn a_command_within_a_command_is_where_to_read_on_and_its_tips_help() {
        let named = |line: &str| named_command(line.split(' ').map(OsString::from)).0;
        for (line, path) in [
            ("spillway pool status --jsn", "spillway pool status"),
            ("spillway lab rnu", "spillway lab"),
            ("spillway run --local 1M status", "spillway run"),
            ("spillway", "spillway"),
        ] {
            assert_eq!(named(line), path, "{line}");
        }
        let text = "error: unexpected argument '--locl' found\n\n  \
                    tip: a similar argument exists: '--local'\n  \
                    tip: to pass '--locl' as a value, use '-- --locl'\n\nUsage: x\n";
        assert_eq!(
            one_line(text, "spillway run"),
            "unexpected argument '--locl' found; tip: a similar argument exists: '--local'; \
             see 'spillway run --help'"
        );
        let text = "error: invalid value 'x' for '--pid <PID>': invalid digit found in string\n";
        assert_eq!(
            one_line(text, "spillway explain"),
            "invalid value 'x' for '--pid <PID>': write a whole number; see 'spillway explain --help'"
        );
    }

    #[test]
    fn tips_are_kept() {
        let text = "error: unexpected argument '--jso' found\n\n  tip: a similar argument exists: \
                    '--json'\n\n\
                    Usage: spillway doctor --json\n\nFor more information, try '--help'.\n";
        assert_eq!(
            one_line(text, "spillway doctor"),
            "unexpected argument '--jso' found; tip: a similar argument exists: '--json'; \
             see 'spillway doctor --help'"
        );
    }
}
