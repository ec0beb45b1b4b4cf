//! `spillway doctor`: what this machine can and cannot do for Spillway. The checks are in `spillway-sys`;
//! this is how they look.

use std::io::{self, Write};
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use clap::Args;
use serde::Serialize;
use spillway_sys::machine::{self, Check, Status};

const EXAMPLE: &str = "\
Examples:
  spillway doctor
  spillway doctor --json

Exit status:
  0  everything essential is there
  1  something essential is missing, and 'run' would refuse to start";

/// Say what this machine can do for Spillway, and how to mend it.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLE)]
pub struct DoctorArgs {
    /// Print the checks as a JSON array
    #[arg(long)]
    json: bool,
}

/// A check as `--json` prints it.
#[derive(Serialize)]
struct Line<'a> {
    check: &'a str,
    status: &'a str,
    essential: bool,
    found: &'a str,
    meaning: &'a str,
    remedy: Option<&'a str>,
}

impl<'a> From<&'a Check> for Line<'a> {
    fn from(check: &'a Check) -> Self {
        Self {
            check: check.name,
            status: check.status.mark(),
            essential: check.essential,
            found: &check.found,
            meaning: check.meaning,
            remedy: check.remedy.as_deref(),
        }
    }
}

/// Runs the command.
pub fn run(args: DoctorArgs) -> ExitCode {
    let mut checks = machine::checks();
    checks.extend(spillway_tier::checks::checks());
    let mut out = anstream::AutoStream::auto(io::stdout().lock());
    let printed = if args.json { print_json(&mut out, &checks) } else { print_lines(&mut out, &checks) };
    match printed {
        // A reader that went away has seen what it wanted.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            crate::exit::complain(format_args!("standard output: {error}; the checks could not be printed"));
            return ExitCode::FAILURE;
        }
        _ => {}
    }
    if checks.iter().any(Check::prevents_running) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn print_json(out: &mut impl Write, checks: &[Check]) -> io::Result<()> {
    let lines = checks.iter().map(Line::from).collect::<Vec<_>>();
    serde_json::to_writer_pretty(&mut *out, &lines)?;
    writeln!(out)?;
    out.flush()
}

fn print_lines(out: &mut impl Write, checks: &[Check]) -> io::Result<()> {
    for check in checks {
        let style = style(check);
        writeln!(out, "{style}{:<8}{style:#}{}", check.status.mark(), hanging(check))?;
        if let Some(command) = &check.remedy {
            writeln!(out, "{:INDENT$}mend: {command}", "")?;
        }
    }
    let failures = checks.iter().filter(|check| check.prevents_running()).count();
    match failures {
        0 => writeln!(out, "\nEverything essential is there.")?,
        1 => writeln!(out, "\n1 essential check failed: 'spillway run' will not start.")?,
        _ => writeln!(out, "\n{failures} essential checks failed: 'spillway run' will not start.")?,
    }
    out.flush()
}

/// Columns of a line, and where the second column of text begins.
const WIDTH: usize = 80;
const INDENT: usize = 8;
const NAME: usize = 21;

/// Name, find and meaning, with what does not fit hanging below.
fn hanging(check: &Check) -> String {
    let mut text = format!("{:<NAME$}", check.name);
    let mut column = INDENT + NAME;
    let sentence = format!("{} - {}", check.found, check.meaning);
    for (index, word) in sentence.split_whitespace().enumerate() {
        let word_columns = word.chars().count();
        if index > 0 && column + 1 + word_columns > WIDTH {
            text.push_str(&format!("\n{:1$}", "", INDENT + NAME));
            column = INDENT + NAME;
        } else if index > 0 {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += word_columns;
    }
    text
}

fn style(check: &Check) -> Style {
    let color = match check.status {
        Status::Ok => AnsiColor::Green,
        Status::Missing if check.essential => AnsiColor::Red,
        Status::Warn | Status::Missing => AnsiColor::Yellow,
    };
    color.on_default()
}
