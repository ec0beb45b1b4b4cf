//! `spillway lab train`: its arguments, and how its results look.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::thread;

use clap::Args;
use clap::builder::PossibleValuesParser;
use indicatif::ProgressBar;
use spillway_core::size::Size;
use spillway_lab::train::cells::{Plan, trained_on};
use spillway_lab::train::{Judged, Progress, Trained, kept_at, train};
use spillway_policy::indigo_model::AgentKind;

use super::arguments::Percent;
use super::progress::progress_bar;
use super::run::{ended, print_json};
use crate::exit::complain;

const EXAMPLE: &str = "\
Examples:
  spillway lab train --out model.safetensors
  spillway lab train --workloads redis,tpcc --out model.safetensors
  spillway lab run --workload tpcc --policy indigo \\
    --set policy.model=model.safetensors

What is interrupted goes on where it was when it is started again in the
same words: outcomes of runs are kept beside the model, in a file that ends
in .part, until the model is there.";

/// Train INDIGO's agent, which chooses thresholds for promotions; write it to a file.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLE)]
pub struct TrainArgs {
    /// The policy whose agent is trained
    #[arg(long, value_name = "NAME", default_value = "indigo", value_parser = ["indigo"])]
    policy: String,

    /// The workloads, each in another form than the figures'; 'spillway lab list' names them
    /// [default: those of the model that is brought along]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    workloads: Vec<String>,

    /// Where the model goes
    #[arg(short, long, value_name = "FILE")]
    out: PathBuf,

    /// Working set of each workload
    #[arg(long, value_name = "SIZE", default_value = "8M")]
    size: Size,

    /// Local limits, one after the other [default: 90% to 10% by tens]
    #[arg(long, value_name = "SHARES", value_delimiter = ',')]
    local: Vec<Percent>,

    /// How much of the link a neighbour takes
    #[arg(long, value_name = "PERCENTS", value_delimiter = ',', default_value = "0%,45%")]
    contention: Vec<Percent>,

    /// Which agent: the paper's deep Q-network, or a linear bandit
    #[arg(long, value_name = "KIND", default_value = "dqn",
        value_parser = PossibleValuesParser::new(["dqn", "linear"]))]
    agent: String,

    /// Episodes for each local limit
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    episodes: u64,

    /// Trials of the search for the clustering's delta1 and delta2
    #[arg(long, value_name = "N", default_value_t = 12)]
    trials: usize,

    /// Seed: one seed, one model
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Print the results as JSON
    #[arg(long)]
    json: bool,
}

impl TrainArgs {
    fn plan(&self) -> Plan {
        let standard = Plan::standard(self.seed);
        let shares = |given: &[Percent], standard: Vec<f64>| {
            if given.is_empty() { standard } else { given.iter().map(|percent| percent.0).collect() }
        };
        let workloads = if self.workloads.is_empty() {
            standard.workloads.clone()
        } else {
            trained_on(self.workloads.iter().map(String::as_str), self.seed)
        };
        Plan {
            workloads,
            bytes: self.size.bytes(),
            local_shares: shares(&self.local, standard.local_shares.clone()),
            contention: shares(&self.contention, standard.contention.clone()),
            agent: if self.agent == "linear" { AgentKind::Linear } else { AgentKind::Dqn },
            episodes: self.episodes,
            trials: Some(self.trials),
            ..standard
        }
    }
}

/// Runs, learns, and writes the model.
pub fn run(args: &TrainArgs) -> ExitCode {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let kept = kept_at(&args.out);
    if kept.exists() {
        complain(format_args!("{}: going on with the runs that it keeps", kept.display()));
    }
    let bars: Mutex<Option<(bool, ProgressBar)>> = Mutex::new(None);
    let result = train(&args.plan(), &args.out, threads, &|progress| show(&bars, progress));
    if let Ok(Some((_, bar))) = bars.into_inner() {
        bar.finish_and_clear();
    }
    match result {
        Ok(trained) => {
            let mut out = io::stdout().lock();
            ended(if args.json { print_json(&mut out, &trained) } else { print(&mut out, args, &trained) })
        }
        Err(error) => {
            complain(error);
            ExitCode::FAILURE
        }
    }
}

/// A bar for the runs, and one for the episodes after them.
fn show(bars: &Mutex<Option<(bool, ProgressBar)>>, progress: Progress) {
    let (learning, done, all) = match progress {
        Progress::Runs(done, all) => (false, done as u64, all as u64),
        Progress::Episodes(done, all) => (true, done, all),
    };
    let Ok(mut bars) = bars.lock() else { return };
    if bars.as_ref().is_none_or(|(of_learning, _)| *of_learning != learning) {
        if let Some((_, before)) = bars.take() {
            before.finish_and_clear();
        }
        *bars = Some((learning, progress_bar(0, if learning { "episodes" } else { "runs" })));
    }
    if let Some((_, bar)) = &*bars {
        bar.set_length(all);
        bar.set_position(done);
    }
}

fn print(out: &mut impl Write, args: &TrainArgs, trained: &Trained) -> io::Result<()> {
    let Trained { card, runs_made, runs_kept, runs_s, learning_s, cells, unobserved, .. } = trained;
    let names: Vec<&str> = card.training.workloads.iter().map(|one| one.workload.as_str()).collect();
    writeln!(out, "{}: an agent trained on", args.out.display())?;
    for name in &names {
        writeln!(out, "  {name}")?;
    }
    writeln!(out, "  contexts          {}, and {unobserved} too short to be seen", cells.len())?;
    writeln!(out, "  runs              {runs_made} in {runs_s:.0} s, {runs_kept} kept from before")?;
    writeln!(out, "  learning          {learning_s:.1} s")?;
    writeln!(
        out,
        "  bursts            rates within {:.1} an interval, marks within {:.2}",
        card.deltas.closeness_per_interval, card.deltas.adjacent_intervals
    )?;
    print_judged(out, "network", &trained.dqn)?;
    print_judged(out, "linear bandit", &trained.linear)
}

fn print_judged(out: &mut impl Write, name: &str, judged: &Judged) -> io::Result<()> {
    let Judged { best_share, mean_loss, over_untrained } = judged;
    writeln!(
        out,
        "  {name:<17} best in {:.0}%, {:.1}% lost; {over_untrained:.3} of the untrained",
        best_share * 100.0,
        mean_loss * 100.0
    )
}
