//! `spillway check`: whether a configuration file says what its author means, without running anything.
//!
//! - `examine`: unknown keys and wrong values of any configuration, each with its line
//! - `kinds`: the configurations that there are

mod examine;
mod kinds;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use crate::columns::for_terminal;
use crate::exit::complain;
use crate::tier::print;
use examine::Finding;
use kinds::Kind;

const EXAMPLE: &str = "\
Examples:
  spillway check /etc/spillway/run.toml
  spillway check --kind tier groups.toml

Nothing is started, and what the file names - processes, control groups, nodes -
is not looked for.

Exit status:
  0  'run' or 'tier' would take the file
  1  something is wrong in it, or it cannot be read";

/// Check a configuration file of 'run' or 'tier' without running anything.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLE)]
pub struct CheckArgs {
    /// The file, in TOML
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The command that it is for [default: by what it sets, or its name]
    #[arg(long, value_name = "COMMAND", value_enum)]
    kind: Option<Kind>,
    /// Print what was found as JSON
    #[arg(long)]
    json: bool,
}

/// Findings that are told: of a file that is something else every line is one.
const MOST_FINDINGS: usize = 10;

/// What was found, as `--json` prints it.
#[derive(Serialize)]
struct Report<'a> {
    file: &'a str,
    kind: Kind,
    settings: usize,
    findings: &'a [Finding],
}

/// Checks the file; the exit status says whether all is well with it.
pub fn run(args: &CheckArgs) -> ExitCode {
    let file = args.file.display().to_string();
    let text = match std::fs::read_to_string(&args.file) {
        Ok(text) => text,
        Err(error) => {
            complain(format_args!("check: {file}: {error}; name a text file that can be read"));
            return ExitCode::FAILURE;
        }
    };
    let kind = args.kind.unwrap_or_else(|| Kind::of(&args.file, &text));
    let (settings, findings) = kind.examine(&text);
    let report = Report { file: &file, kind, settings, findings: &findings };
    let text = match args.json {
        true => format!("{}\n", serde_json::to_string_pretty(&report).unwrap_or_default()),
        false => describe(&report),
    };
    match print(&if args.json { text } else { for_terminal(&text) }) {
        Ok(_) if findings.is_empty() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err((status, text)) => {
            complain(text);
            ExitCode::from(status)
        }
    }
}

fn describe(Report { file, kind, settings, findings }: &Report<'_>) -> String {
    let mut text = String::new();
    let command = kind.command();
    if findings.is_empty() {
        let s = if *settings == 1 { "" } else { "s" };
        let _ = writeln!(text, "{file}: well: '{command}' would take it; it sets {settings} value{s}");
    }
    let mut lines: Vec<String> =
        findings.iter().map(|Finding { line, what }| format!("{file}:{line}: {what}")).collect();
    lines.dedup();
    let more = lines.len().saturating_sub(MOST_FINDINGS);
    lines.truncate(MOST_FINDINGS);
    lines.iter().for_each(|line| text += &format!("{line}\n"));
    if more > 0 {
        let _ = writeln!(text, "and {more} more findings; --json has all");
    }
    if !findings.is_empty() {
        let _ = writeln!(text, "checked as a configuration of '{command}'; see '{command} --help'");
    }
    text
}
