//! `spillway lab sensitivity`: its arguments, and how its results look.

use std::io::{self, Write};
use std::process::ExitCode;
use std::thread;

use clap::Args;
use spillway_core::size::Size;
use spillway_lab::sensitivity::{self, Plan, Sensitivity, Trial};

use super::progress::progress_bar;
use super::run::{ended, print_json};
use crate::exit::complain;

const EXAMPLE: &str = "\
Examples:
  spillway lab sensitivity
  spillway lab sensitivity H10 I8 --constants far_ns,fault_ns --size 16M --json";

/// The figure that compares all policies on all of HotBox's benchmarks.
const FIGURES: [&str; 1] = ["H10"];

/// See which claims of the figures turn when a constant of the time model is halved or doubled.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLE)]
pub struct SensitivityArgs {
    /// The figures' ids [default: H10, HotBox beside its rivals]
    #[arg(value_name = "ID")]
    ids: Vec<String>,

    /// The constants that are changed, by their names in the platform's settings [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    constants: Vec<String>,

    /// Working set of the figures
    #[arg(long, value_name = "SIZE", default_value = "4M")]
    size: Size,

    /// Runs at once [default: one a core]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,

    /// Print the results as JSON
    #[arg(long)]
    json: bool,

    /// Print the results as a table in Markdown
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
}

/// Makes the figures with each constant as it is, halved and doubled, and tells what turns.
pub fn run(args: &SensitivityArgs) -> ExitCode {
    let known = sensitivity::constants();
    if let Some(stray) = args.constants.iter().find(|name| !known.contains(name)) {
        let known = known.join(", ");
        complain(format_args!("'{stray}' is no constant of the time model; take some of {known}"));
        return ExitCode::FAILURE;
    }
    let or =
        |given: &[String], otherwise: Vec<String>| if given.is_empty() { otherwise } else { given.to_vec() };
    let plan = Plan {
        figures: or(&args.ids, FIGURES.map(str::to_owned).to_vec()),
        constants: or(&args.constants, known),
        bytes: args.size.bytes(),
    };
    let threads = args.threads.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from));
    let bar = progress_bar(sensitivity::figures_of(&plan), "figures");
    let found = sensitivity::measure(&plan, threads, &|| bar.inc(1));
    bar.finish_and_clear();
    match found {
        Ok(found) => {
            let mut out = io::stdout().lock();
            ended(if args.json {
                print_json(&mut out, &found)
            } else if args.markdown {
                write!(out, "{}", sensitivity::markdown(&found))
            } else {
                print(&mut out, &found)
            })
        }
        Err(error) => {
            complain(error);
            ExitCode::FAILURE
        }
    }
}

fn print(out: &mut impl Write, found: &Sensitivity) -> io::Result<()> {
    writeln!(out, "with the constants as they are: {}", found.score)?;
    for Trial { constant, factor, score, turns } in &found.trials {
        writeln!(out, "{constant} times {factor}: {score}")?;
        for turn in turns {
            writeln!(out, "    {}", sensitivity::turned(turn))?;
        }
    }
    Ok(())
}
