//! `spillway lab judge`: its arguments, and how its results look.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;

use clap::Args;
use serde::Serialize;
use spillway_lab::judge::{self, Judgement, OURS, RIVALS, Searched, Tuned};

use super::progress::progress_bar;
use super::run::{ended, print_json};
use crate::exit::complain;

const EXAMPLE: &str = "\
Examples:
  spillway lab judge --quick
  spillway lab judge --quick --training
  spillway lab judge --json > judgement.json
  spillway lab judge --tune --trials 8 --policies spillway,tpp";

/// Judge the policy 'spillway' against its rivals and the bound, on cells that nothing was tuned on.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLE)]
pub struct JudgeArgs {
    /// Fewer cells with smaller working sets: minutes instead of hours
    #[arg(long)]
    quick: bool,

    /// Judge on the training set instead: what it says there is no result
    #[arg(long, conflicts_with = "quick")]
    training: bool,

    /// Leave all settings as they are, also those that a search has found
    #[arg(long)]
    untuned: bool,

    /// The factors of settings from this file, as '--tune' prints them under 'tuned', in place of those that
    /// are brought along
    #[arg(long, value_name = "FILE", conflicts_with = "untuned")]
    factors: Option<PathBuf>,

    /// Search the settings of policies on the training set instead of judging; prints factors as JSON
    #[arg(long, conflicts_with_all = ["quick", "training", "untuned", "factors"])]
    tune: bool,

    /// Trials of the search for each policy, one of them with the settings as they are
    #[arg(long, value_name = "N", default_value_t = 8, requires = "tune")]
    trials: u64,

    /// The policies whose settings are searched [default: all that are judged]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', requires = "tune")]
    policies: Vec<String>,

    /// Runs at once [default: one a core]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,

    /// Print the results as JSON
    #[arg(long)]
    json: bool,

    /// Print the results as tables in Markdown
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
}

#[derive(Serialize)]
struct Search {
    searched: Vec<Searched>,
    tuned: Tuned,
}

/// Judges our own policy, or searches for settings.
pub fn run(args: &JudgeArgs) -> ExitCode {
    let threads = args.threads.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from));
    let done = if args.tune { tune(args, threads) } else { judge(args, threads) };
    done.unwrap_or_else(|error| {
        complain(error);
        ExitCode::FAILURE
    })
}

fn tune(args: &JudgeArgs, threads: usize) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let all: Vec<&str> = RIVALS.into_iter().chain([OURS]).collect();
    let given: Vec<&str> = args.policies.iter().map(String::as_str).collect();
    let policies = if given.is_empty() { all } else { given };
    let bar = progress_bar(policies.len() * judge::training().len() * args.trials.max(1) as usize, "runs");
    let found = judge::tune(&policies, args.trials, threads, &|| bar.inc(1));
    bar.finish_and_clear();
    let (searched, tuned) = found?;
    Ok(ended(print_json(&mut io::stdout().lock(), &Search { searched, tuned })))
}

fn read_factors(path: &Path) -> Result<Tuned, String> {
    let wrong = |error: &dyn std::fmt::Display| {
        format!("cannot take factors from '{}': {error}; 'lab judge --tune' makes some", path.display())
    };
    let text = fs::read_to_string(path).map_err(|error| wrong(&error))?;
    serde_json::from_str(&text).map_err(|error| wrong(&error))
}

fn judge(args: &JudgeArgs, threads: usize) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let tuned = match &args.factors {
        Some(path) => read_factors(path)?,
        None if args.untuned => Tuned::default(),
        None => Tuned::shipped()?,
    };
    let cells = if args.training { judge::training() } else { judge::judgement(args.quick) };
    let bar = progress_bar(judge::runs_of(&cells), "runs");
    let judged = judge::judge(&cells, &tuned, threads, &|| bar.inc(1));
    bar.finish_and_clear();
    let judged = judged?;
    let mut out = io::stdout().lock();
    Ok(ended(if args.json {
        print_json(&mut out, &judged)
    } else if args.markdown {
        write!(out, "{}", judge::markdown(&judged))
    } else {
        print(&mut out, &judged)
    }))
}

fn print(out: &mut impl Write, judged: &Judgement) -> io::Result<()> {
    writeln!(out, "{:<44} {:<19} {:>6} {:>6}", "", "first of rivals", "over", "over")?;
    writeln!(out, "{:<44} {:<19} {:>6} {:>6}", "cell", "in the cell", "it", "bound")?;
    for verdict in &judged.verdicts {
        let judge::Verdict { cell, best_rival, over_best, over_bound, .. } = verdict;
        writeln!(out, "{cell:<44} {best_rival:<19} {over_best:>6.3} {over_bound:>6.3}")?;
    }
    writeln!(out)?;
    for (rival, over) in &judged.rivals_over_ours {
        writeln!(out, "  {rival:<20} takes {over:.3} of our run time")?;
    }
    writeln!(out, "\n{}", judge::summary(judged))
}
