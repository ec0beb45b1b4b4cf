//! `spillway lab calibrate`: what a fetch takes on this machine.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use spillway_bench::calibrate::{Extent, calibrate};
use spillway_bench::cells::FaultMode;
use spillway_core::size::Size;
use spillway_lab::calibration::Calibration;

use super::run::{ended, print_json};
use crate::bench::session::{expect_place, interruption, progress_bar, save, this_command};
use crate::exit::complain;

const EXAMPLE: &str = "\
Example:
  spillway lab calibrate -o this.json
  spillway lab replay node.faults --memory node.trace --calibration this.json

One thread touches pages at random, a quarter of which is local, under
'spillway run --block 4K': over each store, in each fault mode that it allows.";

/// Measure what a fetch takes on this machine, for 'lab replay'.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLE)]
pub struct CalibrateArgs {
    /// Where the measurements go
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// A store to measure, as for 'spillway run' [default: compressed: and ram:]
    #[arg(long, value_name = "URI")]
    store: Vec<String>,

    /// Memory of the measured process
    #[arg(long, value_name = "SIZE", default_value = "128M")]
    memory: Size,

    /// Turns; the median counts
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=99))]
    repeat: u64,

    /// Print the results as JSON
    #[arg(long)]
    json: bool,
}

/// Measures, prints and keeps it.
pub fn run(args: &CalibrateArgs) -> ExitCode {
    match measure(args) {
        Ok(code) => code,
        Err(reason) => {
            complain(format_args!("lab calibrate: {reason}"));
            ExitCode::FAILURE
        }
    }
}

fn measure(args: &CalibrateArgs) -> Result<ExitCode, String> {
    args.output.as_deref().map_or(Ok(()), expect_place)?;
    let usual = || vec!["compressed:".to_owned(), "ram:".to_owned()];
    let extent = Extent {
        stores: if args.store.is_empty() { usual() } else { args.store.clone() },
        fault_modes: FaultMode::value_variants().to_vec(),
        memory_bytes: args.memory.bytes(),
        measured_ms: 500,
        repetitions: args.repeat as usize,
    };
    let bar = progress_bar();
    let calibration = calibrate(&this_command()?, &extent, &interruption(), &mut |done, total| {
        bar.set_length(total as u64);
        bar.set_position(done as u64);
    });
    bar.finish_and_clear();
    let calibration = calibration.map_err(|error| error.to_string())?;
    if let Some(path) = &args.output {
        save(path, &calibration)?;
    }
    let mut out = io::stdout().lock();
    Ok(ended(if args.json { print_json(&mut out, &calibration) } else { print(&mut out, &calibration) }))
}

fn print(out: &mut impl Write, calibration: &Calibration) -> io::Result<()> {
    writeln!(out, "{}", calibration.machine)?;
    writeln!(out, "{:<24}{:<8}{:>20}{:>20}", "store", "mode", "page as it was, us", "page written, us")?;
    for time in &calibration.fetches {
        let (clean_us, written_us) = (time.clean_ns / 1000.0, time.written_ns / 1000.0);
        writeln!(out, "{:<24}{:<8}{clean_us:>20.2}{written_us:>20.2}", time.store, time.fault_mode)?;
    }
    Ok(())
}
