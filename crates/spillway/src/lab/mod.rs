//! `spillway lab`: policies against workloads, in simulated time. What it does is in `spillway-lab`; these
//! are its arguments and how its results look.

mod advise;
mod arguments;
mod calibrate;
mod figure;
mod import;
mod judge;
mod misses;
mod progress;
mod record;
mod replay;
mod report;
mod run;
mod sensitivity;
mod sweep;
mod train;
mod tune;

use std::process::ExitCode;

use clap::{Args, Subcommand};

const EXAMPLE: &str = "\
Examples:
  spillway lab list
  spillway lab run --workload memcached-etc --policy hotbox --local 20%
  spillway lab figure H10 --quick";

/// Try policies on workloads in simulated time, before buying hardware.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLE, arg_required_else_help = true)]
pub struct LabArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::RunArgs),
    Figure(figure::FigureArgs),
    Sweep(sweep::SweepArgs),
    Judge(judge::JudgeArgs),
    Sensitivity(sensitivity::SensitivityArgs),
    Train(train::TrainArgs),
    Report(report::ReportArgs),
    Advise(advise::AdviseArgs),
    List(run::ListArgs),
    Record(record::RecordArgs),
    Import(import::ImportArgs),
    Replay(replay::ReplayArgs),
    Misses(misses::MissesArgs),
    Calibrate(calibrate::CalibrateArgs),
}

/// Runs the subcommand that was asked for.
pub fn run(args: LabArgs) -> ExitCode {
    match args.command {
        Command::Run(args) => run::run(&args),
        Command::Figure(args) => figure::run(&args),
        Command::Sweep(args) => sweep::run(&args),
        Command::Judge(args) => judge::run(&args),
        Command::Sensitivity(args) => sensitivity::run(&args),
        Command::Train(args) => train::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Advise(args) => advise::run(&args),
        Command::List(args) => run::list(&args),
        Command::Record(args) => record::run(&args),
        Command::Import(args) => import::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Misses(args) => misses::run(&args),
        Command::Calibrate(args) => calibrate::run(&args),
    }
}
