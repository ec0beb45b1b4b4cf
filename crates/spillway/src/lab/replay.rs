//! `spillway lab replay`: what a live pager did, once more.

use std::fs::File;
use std::io::{self, BufReader, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use spillway_lab::trace::faults::Outcome;
use spillway_lab::replay_faults::{Replayed, replay_faults};

use super::run::{ended, print_json};
use crate::exit::complain;

const EXAMPLE: &str = "\
Example:
  spillway run --local 64M --record node.faults -- node script.js
  spillway lab replay node.faults

Exit status: 0 if each answer is the same, 1 if one differs or the trace
cannot be read.";

/// Replay what 'spillway run --record' wrote: the same victims, step by step.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLE)]
pub struct ReplayArgs {
    /// The fault trace
    #[arg(value_name = "FILE")]
    trace: PathBuf,

    /// Print the results as JSON
    #[arg(long)]
    json: bool,
}

/// Replays a fault trace and prints what it tells.
pub fn run(args: &ReplayArgs) -> ExitCode {
    let file = File::open(&args.trace).map_err(Into::into);
    let replayed = match file.and_then(|file| replay_faults(BufReader::with_capacity(1 << 20, file))) {
        Ok(replayed) => replayed,
        Err(error) => {
            complain(format_args!("lab replay: {}: {error}", args.trace.display()));
            return ExitCode::FAILURE;
        }
    };
    if replayed.outcome() == Outcome::CutOff {
        complain(format_args!(
            "{}: it has no end: its recorder was stopped; what it holds is replayed",
            args.trace.display()
        ));
    }
    let mut out = io::stdout().lock();
    let printed = if args.json { print_json(&mut out, &replayed) } else { print(&mut out, &replayed) };
    let code = ended(printed);
    match &replayed.difference {
        Some(_) => ExitCode::FAILURE,
        None => code,
    }
}

fn print(out: &mut impl Write, replayed: &Replayed) -> io::Result<()> {
    let Replayed { events, calls, faults, came, left, scans, .. } = replayed;
    match &replayed.difference {
        None => writeln!(out, "{calls} answers, each as the pager had it ({events} events)")?,
        Some(difference) => writeln!(out, "differs from the pager at {difference}")?,
    }
    writeln!(
        out,
        "  faults            {} first touches, {} fetches, {} inactive, {} under write-back, {} other",
        faults.first_touch, faults.fetch, faults.inactive, faults.writeback, faults.other
    )?;
    writeln!(
        out,
        "  pages that came   {} fetched, {} of them with another, {} read ahead; {} of zeros; {} taken over",
        came.fetched + came.read_ahead,
        came.fetched - came.fetch_blocks,
        came.read_ahead,
        came.zeros,
        came.taken_over
    )?;
    writeln!(
        out,
        "  pages that left   {} clean, {} stored, {} zeros, {} given up by the program",
        left.clean, left.stored, left.zeros, left.forgotten
    )?;
    writeln!(
        out,
        "  what is in use    {} pieces scanned, {} of {} mapped pages found in use; {} steps kept a page",
        scans.pieces, scans.used, scans.mapped, replayed.kept_in_use
    )
}
