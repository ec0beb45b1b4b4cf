//! `spillway bench`: Spillway beside what a user would take instead, and what memory itself costs.

mod access;
mod dcm;
mod paging;
mod physical;
mod report;
mod rig;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::{Args, Subcommand};
use indicatif::{HumanDuration, ProgressBar, ProgressState, ProgressStyle};
use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGTERM};

use crate::complain;

const EXAMPLE: &str = "\
Example:
  spillway bench paging --quick
  spillway bench physical --quick --html memory.html";

/// Measure Spillway beside Linux swap, and what physical memory costs.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLE)]
pub struct BenchArgs {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Debug, Subcommand)]
enum Bench {
    Paging(paging::PagingArgs),
    Dcm(dcm::DcmArgs),
    Physical(physical::PhysicalArgs),
    Rig(rig::RigArgs),
    Report(report::ReportArgs),
    #[command(hide = true)]
    Access(access::AccessArgs),
}

/// Runs the benchmark.
pub fn run(args: BenchArgs) -> ExitCode {
    match args.bench {
        Bench::Paging(args) => paging::run(&args),
        Bench::Dcm(args) => dcm::run(&args),
        Bench::Physical(args) => physical::run(&args),
        Bench::Rig(args) => rig::run(&args),
        Bench::Report(args) => report::run(&args),
        Bench::Access(args) => access::run(&args),
    }
}

fn print_json(value: &impl serde::Serialize) -> ExitCode {
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    match writeln!(std::io::stdout(), "{text}") {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(format!("bench: cannot print: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn failure(error: impl std::fmt::Display) -> ExitCode {
    complain(format!("bench: {error}"));
    ExitCode::FAILURE
}

/// Set when the user interrupts, so that everything is taken down before the end.
fn interruption() -> Arc<AtomicBool> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        let _ = signal_hook::flag::register(signal, Arc::clone(&interrupted));
    }
    interrupted
}

fn this_command() -> Result<PathBuf, String> {
    std::env::current_exe().map_err(|error| format!("cannot find itself: {error}; call it by its path"))
}

/// How much is done and how long the rest takes, where somebody looks.
fn progress_bar() -> ProgressBar {
    let bar = ProgressBar::no_length();
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {done}{msg}") {
        bar.set_style(style.with_key("done", write_done));
    }
    bar
}

/// Nothing before it is known how much there is to do.
fn write_done(state: &ProgressState, to: &mut dyn std::fmt::Write) {
    if let Some(all) = state.len().filter(|&all| all > 0) {
        let _ = write!(to, "{} of {all}, {:#} left ", state.pos(), HumanDuration(state.eta()));
    }
}
