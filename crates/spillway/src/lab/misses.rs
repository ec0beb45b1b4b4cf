//! `spillway lab misses`: how often replacement policies miss by a memory trace.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use spillway_core::page::PAGE_SIZE;
use spillway_core::size::Size;
use spillway_lab::misses::{Misses, misses};
use spillway_lab::replay::POLICIES;

use super::arguments::Local;
use super::progress::read_with_progress;
use super::run::{ended, print_json};
use crate::exit::complain;

const EXAMPLE: &str = "\
Example:
  spillway lab record -o sort.trace -- sort big.txt
  spillway lab misses sort.trace --policy sieve,belady --local 10%,20%,40%";

/// Count the misses of LRU, FIFO, CLOCK, SIEVE and Belady's optimum by a trace.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLE)]
pub struct MissesArgs {
    /// The trace; 'spillway lab record' makes one
    #[arg(value_name = "FILE")]
    trace: PathBuf,

    /// The policies: lru, fifo, clock, sieve, belady
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_values = POLICIES)]
    policy: Vec<String>,

    /// Local memory: shares of what the program holds at most, or sizes
    #[arg(long, value_name = "SHARES|SIZES", value_delimiter = ',', default_values = ["10%", "20%", "40%"])]
    local: Vec<Local>,

    /// Print the results as JSON
    #[arg(long)]
    json: bool,
}

/// Replays a trace and prints how often each policy misses.
pub fn run(args: &MissesArgs) -> ExitCode {
    let sizes: Vec<_> = args.local.iter().map(|local| local.0).collect();
    let file = File::open(&args.trace).map_err(Into::into);
    let found = file.and_then(|file| misses(read_with_progress(file), &args.policy, &sizes));
    match found {
        Ok(found) => {
            let mut out = io::stdout().lock();
            ended(if args.json { print_json(&mut out, &found) } else { print(&mut out, &found) })
        }
        Err(error) => {
            complain(format_args!("lab misses: {}: {error}", args.trace.display()));
            ExitCode::FAILURE
        }
    }
}

fn print(out: &mut impl Write, found: &[Misses]) -> io::Result<()> {
    if let Some(Misses { requests, first_touches, .. }) = found.first() {
        writeln!(out, "{requests} accesses, {first_touches} pages touched for the first time")?;
    }
    writeln!(out, "{:<10} {:>12} {:>14} {:>14} {:>8}", "policy", "local", "misses", "fetched", "misses")?;
    for row in found {
        let local = Size::from_bytes(row.local_pages * PAGE_SIZE as u64).to_string();
        let percent = row.misses as f64 / row.requests.max(1) as f64 * 100.0;
        writeln!(
            out,
            "{:<10} {local:>12} {:>14} {:>14} {percent:>7.2}%",
            row.policy,
            row.misses,
            row.fetched_pages()
        )?;
    }
    Ok(())
}
