//! `spillway doctor`: what this machine can and cannot do for Spillway. The checks are in `spillway-sys` and
//! `spillway-tier`.
//!
//! - `words`: how they look to a person
//! - `fix`: doing what they propose

mod fix;
mod words;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use spillway_sys::machine::{self, Check, Remedy};

use crate::columns::columns;

const EXAMPLE: &str = "\
Examples:
  spillway doctor
  spillway doctor --all
  sudo spillway doctor --fix

The first line is the answer; what follows is what could be better, with the
command that mends it. --fix shows each such command and asks before it runs
it. It leaves to you what needs your own shell or a restart.

Exit status:
  0  everything essential is there
  1  something essential is missing, and 'run' would refuse to start; or a
     command of --fix failed";

/// Say what this machine can do for Spillway, and how to mend it.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLE)]
pub struct DoctorArgs {
    /// Show every check, also those that are well and those that nobody needs
    #[arg(long)]
    all: bool,
    /// Mend what can be mended, asking before each command
    #[arg(long, conflicts_with_all = ["all", "json"])]
    fix: bool,
    /// Do not ask: run the first command that mends each thing
    #[arg(long, requires = "fix")]
    yes: bool,
    /// Print all checks as a JSON array
    #[arg(long)]
    json: bool,
}

/// A check as `--json` prints it.
#[derive(Serialize)]
struct Line<'a> {
    check: &'a str,
    status: &'a str,
    essential: bool,
    needed_by: &'a str,
    found: &'a str,
    meaning: &'a str,
    remedy: Option<&'a str>,
    remedies: Vec<RemedyLine<'a>>,
}

/// One of a check's remedies as `--json` prints it.
#[derive(Serialize)]
struct RemedyLine<'a> {
    command: &'a str,
    effect: &'a str,
    automatic: bool,
}

impl<'a> From<&'a Check> for Line<'a> {
    fn from(check: &'a Check) -> Self {
        let line = |remedy: &'a Remedy| RemedyLine {
            command: &remedy.command,
            effect: remedy.effect,
            automatic: remedy.is_automatic,
        };
        Self {
            check: check.name,
            status: check.status.mark(),
            essential: check.essential,
            needed_by: check.purpose.word(),
            found: &check.found,
            meaning: check.meaning,
            remedy: check.first_remedy(),
            remedies: check.remedies.iter().map(line).collect(),
        }
    }
}

fn all_checks() -> Vec<Check> {
    let mut checks = machine::checks();
    checks.extend(spillway_tier::checks::checks());
    checks
}

/// Prints what the machine can do; the exit status says whether programs can run.
pub fn run(args: DoctorArgs) -> ExitCode {
    let checks = all_checks();
    if args.fix {
        return fix::run(&checks, args.yes, all_checks);
    }
    let mut out = anstream::AutoStream::auto(io::stdout().lock());
    let printed = match (args.json, args.all) {
        (true, _) => print_json(&mut out, &checks),
        (false, true) => words::print_all(&mut out, &checks, columns()),
        (false, false) => words::print(&mut out, &checks, columns()),
    };
    match printed {
        // A reader that went away has seen what it wanted.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            crate::exit::complain(format_args!("standard output: {error}; the checks could not be printed"));
            ExitCode::FAILURE
        }
        _ => words::code(&checks),
    }
}

fn print_json(out: &mut impl Write, checks: &[Check]) -> io::Result<()> {
    let lines = checks.iter().map(Line::from).collect::<Vec<_>>();
    serde_json::to_writer_pretty(&mut *out, &lines)?;
    writeln!(out)?;
    out.flush()
}
