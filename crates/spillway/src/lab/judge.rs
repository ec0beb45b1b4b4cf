//! `spillway lab judge`: its arguments, and how its results look.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;

use clap::Args;
use serde::de::DeserializeOwned;
use spillway_lab::judge::{self, Budget, Case, Judgement, OURS, Tuned};

use super::progress::progress_bar;
use super::run::{ended, print_json};
use super::tune;
use crate::exit::complain;

const EXAMPLE: &str = "\
Examples:
  spillway lab judge --quick
  spillway lab judge --quick --training
  spillway lab judge --json > judgement.json
  spillway lab judge --known judgement.json --explain
  spillway lab judge --tune --save search.json > found.json
  spillway lab judge --tune --trials 8 --rounds 1 --policies spillway,tpp";

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

    /// Run our own policy only: of rivals and of the bound take what this file has, which an earlier
    /// judgement printed as JSON, of the same cells with the same settings
    #[arg(long, value_name = "FILE", conflicts_with = "tune")]
    known: Option<PathBuf>,

    /// Tell of each cell what the best rival did there, and what ours did
    #[arg(long, conflicts_with_all = ["tune", "json", "markdown"])]
    explain: bool,

    /// Search the settings of policies on the training set instead of judging; prints factors as JSON
    #[arg(long, conflicts_with_all = ["quick", "training", "untuned", "factors", "markdown"])]
    tune: bool,

    /// Trials of a round of the search for each policy, one of them with what was best before; most end on
    /// small working sets
    #[arg(long, value_name = "N", default_value_t = 24, requires = "tune",
          value_parser = clap::value_parser!(u64).range(2..=10_000))]
    trials: u64,

    /// Rounds of the search, each around what was best in the one before
    #[arg(long, value_name = "N", default_value_t = 2, requires = "tune",
          value_parser = clap::value_parser!(u64).range(1..=100))]
    rounds: u64,

    /// The policies whose settings are searched [default: all that are judged]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', requires = "tune")]
    policies: Vec<String>,

    /// Keep the search in this file: policies that it has are not searched again
    #[arg(long, value_name = "FILE", requires = "tune")]
    save: Option<PathBuf>,

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

/// Judges our own policy, or searches for settings.
pub fn run(args: &JudgeArgs) -> ExitCode {
    let threads = args.threads.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from));
    let budget = Budget { trials: args.trials, rounds: args.rounds };
    let done = if args.tune {
        tune::run(&args.policies, budget, threads, args.save.as_deref())
    } else {
        judge(args, threads)
    };
    done.unwrap_or_else(|error| {
        complain(error);
        ExitCode::FAILURE
    })
}

/// What another call printed.
fn read<T: DeserializeOwned>(path: &Path, what: &str, made_by: &str) -> Result<T, String> {
    let wrong = |error: &dyn std::fmt::Display| {
        format!("cannot take {what} from '{}': {error}; '{made_by}' makes some", path.display())
    };
    let text = fs::read_to_string(path).map_err(|error| wrong(&error))?;
    serde_json::from_str(&text).map_err(|error| wrong(&error))
}

fn judge(args: &JudgeArgs, threads: usize) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let tuned = match &args.factors {
        Some(path) => read(path, "factors", "lab judge --tune")?,
        None if args.untuned => Tuned::default(),
        None => Tuned::shipped()?,
    };
    let known: Option<Judgement> =
        args.known.as_deref().map(|path| read(path, "a judgement", "lab judge --json")).transpose()?;
    let cells = if args.training { judge::training() } else { judge::judgement(args.quick) };
    let case = Case { cells: &cells, tuned: &tuned, known: known.as_ref() };
    let bar = progress_bar(case.runs(), "runs");
    let judged = case.judge(threads, &|| bar.inc(1));
    bar.finish_and_clear();
    let judged = judged?;
    let mut out = io::stdout().lock();
    Ok(ended(if args.json {
        print_json(&mut out, &judged)
    } else if args.markdown {
        write!(out, "{}", judge::markdown(&judged))
    } else {
        print(&mut out, &judged, args.explain)
    }))
}

fn print(out: &mut impl Write, judged: &Judgement, explains: bool) -> io::Result<()> {
    writeln!(out, "{:<44} {:<19} {:>6} {:>6}", "", "first of rivals", "over", "over")?;
    writeln!(out, "{:<44} {:<19} {:>6} {:>6}", "cell", "in the cell", "it", "bound")?;
    for verdict in &judged.verdicts {
        let judge::Verdict { cell, best_rival, over_best, over_bound, .. } = verdict;
        writeln!(out, "{cell:<44} {best_rival:<19} {over_best:>6.3} {over_bound:>6.3}")?;
        if explains {
            for (name, did) in [best_rival.as_str(), OURS].into_iter().zip(verdict.best_and_ours()) {
                writeln!(out, "    {name:<19} {}", did.in_words())?;
            }
        }
    }
    writeln!(out)?;
    for (rival, over) in &judged.rivals_over_ours {
        writeln!(out, "  {rival:<20} takes {over:.3} of our run time")?;
    }
    writeln!(out, "\n{}", judge::summary(judged))
}
