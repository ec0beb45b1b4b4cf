//! `spillway lab replay`: what a live pager did, once more.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use serde_json::Value;
use spillway_lab::bounds::{Bounds, bounds};
use spillway_lab::calibration::Calibration;
use spillway_lab::predict::{Predicted, Scans, predict};
use spillway_lab::replay_faults::{Replayed, replay_faults};
use spillway_lab::trace::TraceError;
use spillway_lab::trace::faults::Outcome;

use super::progress::read_with_progress;
use super::run::{ended, print_json};
use crate::exit::complain;

const EXAMPLE: &str = "\
Example:
  spillway run --local 64M --record node.faults -- node script.js
  spillway lab replay node.faults
  spillway lab record -o node.trace -- node script.js
  spillway lab replay node.faults --memory node.trace --set return_share=1.0
  spillway lab replay node.faults --memory node.trace --calibration this.json

With a memory trace it also tells how often Belady's optimum, LRU and CLOCK
would fetch; with a calibration, what the fetches take.

Exit status: 0 if each answer is the same, 1 if one differs or the trace
cannot be read.";

/// Replay what 'spillway run --record' wrote: the same victims, step by step.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLE)]
pub struct ReplayArgs {
    /// The fault trace to replay
    #[arg(value_name = "FILE")]
    trace: PathBuf,

    /// A memory trace of the same program ('spillway lab record'): how often would the pager fetch by it?
    #[arg(long, value_name = "TRACE")]
    memory: Option<PathBuf>,

    /// What a fetch takes on a machine ('spillway lab calibrate'): how long would those of the estimate take?
    #[arg(long, value_name = "FILE", requires = "memory")]
    calibration: Option<PathBuf>,

    /// A setting of the replacement for that estimate, such as scan_share=0.05; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE", requires = "memory")]
    settings: Vec<String>,

    /// Print the results as JSON
    #[arg(long)]
    json: bool,
}

/// Replays a fault trace and prints what it tells.
pub fn run(args: &ReplayArgs) -> ExitCode {
    let file = File::open(&args.trace).map_err(Into::into);
    let replayed = match file.and_then(|file| replay_faults(read_with_progress(file))) {
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
    let estimated = |path| {
        let calibration = args.calibration.as_deref().map(Calibration::read).transpose()?;
        estimate(path, &replayed, &args.settings, calibration.as_ref())
    };
    let estimate = match args.memory.as_deref().map(estimated) {
        None => None,
        Some(Ok(estimate)) => Some(estimate),
        Some(Err(reason)) => {
            complain(format_args!("lab replay: {reason}"));
            return ExitCode::FAILURE;
        }
    };
    let shown = Shown { replayed: &replayed, estimate };
    let mut out = io::stdout().lock();
    let printed = if args.json { print_json(&mut out, &shown) } else { print(&mut out, &shown) };
    let code = ended(printed);
    match &replayed.difference {
        Some(_) => ExitCode::FAILURE,
        None => code,
    }
}

#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    replayed: &'a Replayed,
    estimate: Option<Estimate>,
}

/// Pages that would be fetched, by a memory trace. No more than an estimate.
#[derive(Serialize)]
struct Estimate {
    /// Scanned when the live pager did.
    scanned_as_live: Predicted,
    /// Scanned as soon as that is due.
    scanned_when_due: Predicted,
    /// What knows the future would fetch, and what others would.
    bounds: Bounds,
    /// What a fetch takes with this trace's store, fault mode and share of pages written, in nanoseconds;
    /// none where it was not measured.
    fetch_ns: Option<f64>,
    /// All fetches of the estimate together, scanned as live, in seconds.
    fetches_s: Option<f64>,
}

/// What a fetch takes by the calibration, for the run of the trace.
fn fetch_ns(replayed: &Replayed, calibration: &Calibration) -> Option<f64> {
    let settings = &replayed.header.as_ref()?.settings;
    let stores = settings["stores"].as_array()?;
    // Of several nobody knows which one a page would come from.
    let [store] = stores.as_slice() else { return None };
    let time = calibration.find(store.as_str()?, settings["fault_mode"].as_str()?)?;
    let left = replayed.left;
    let pages = left.stored + left.clean + left.zeros;
    Some(time.ns(left.stored as f64 / pages.max(1) as f64))
}

fn estimate(
    path: &Path,
    replayed: &Replayed,
    settings: &[String],
    calibration: Option<&Calibration>,
) -> Result<Estimate, String> {
    let mut header = replayed.header.clone().ok_or("the fault trace has no start")?;
    let mut config = serde_json::to_value(header.replacement).map_err(|error| error.to_string())?;
    for setting in settings {
        let (key, value) = setting
            .split_once('=')
            .and_then(|(key, value)| Some((key, value.parse::<serde_json::Number>().ok()?)))
            .filter(|(key, _)| config.get(key).is_some())
            .ok_or_else(|| format!("--set {setting}: write KEY=NUMBER with a key of [replacement]"))?;
        config[key] = Value::Number(value);
    }
    header.replacement = serde_json::from_value(config).map_err(|error| format!("--set: {error}"))?;
    header.replacement.check().map_err(|error| format!("--set: {error}"))?;
    // Read three times, each with a bar of its own.
    let open = || File::open(path).map(read_with_progress);
    let predicted = |scans| predict(open()?, &header, scans);
    let fetch_ns = calibration.and_then(|calibration| fetch_ns(replayed, calibration));
    let all = || -> Result<Estimate, TraceError> {
        let scanned_as_live = predicted(Scans::At(replayed.scan_starts.clone()))?;
        Ok(Estimate {
            scanned_as_live,
            scanned_when_due: predicted(Scans::Due)?,
            bounds: bounds(open()?, header.local_pages)?,
            fetch_ns,
            fetches_s: fetch_ns.map(|ns| ns * scanned_as_live.fetched_pages as f64 / 1e9),
        })
    };
    all().map_err(|error| format!("{}: {error}", path.display()))
}

fn print(out: &mut impl Write, Shown { replayed, estimate }: &Shown<'_>) -> io::Result<()> {
    let Replayed { events, calls, block_calls, faults, came, left, scans, .. } = replayed;
    let blocks = match replayed.header.as_ref().map(|header| header.blocks) {
        Some(None) => "the trace is of version 1, which does not tell enough of blocks".to_owned(),
        _ => format!("{block_calls} of them on blocks"),
    };
    match &replayed.difference {
        None => writeln!(out, "{calls} answers, each as the pager had it; {blocks} ({events} events)")?,
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
    )?;
    estimate.as_ref().map_or(Ok(()), |estimate| print_estimate(out, estimate))
}

fn print_estimate(out: &mut impl Write, estimate: &Estimate) -> io::Result<()> {
    let Estimate { scanned_as_live: live, scanned_when_due: due, bounds, .. } = estimate;
    writeln!(out, "estimate by the memory trace, which touches {} pages", live.touched_pages)?;
    writeln!(out, "  scanned as live   {} fetched, {} scans", live.fetched_pages, live.scans)?;
    writeln!(out, "  scanned when due  {} fetched, {} scans", due.fetched_pages, due.scans)?;
    writeln!(
        out,
        "  others            {} fetched by Belady's optimum, {} by LRU, {} by CLOCK",
        bounds.belady_pages, bounds.lru_pages, bounds.clock_pages
    )?;
    match (estimate.fetches_s, estimate.fetch_ns) {
        (Some(seconds), Some(ns)) => {
            writeln!(out, "  time              {seconds:.3} s, {:.2} us a fetch, as measured", ns / 1000.0)
        }
        _ => writeln!(out, "  time              not measured for this store and fault mode (--calibration)"),
    }
}
