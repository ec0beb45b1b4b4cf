//! `spillway top`: what runs on this machine, once a second.
//!
//! - [`rates`]: two looks make rates;
//! - [`history`]: the last minutes of them; [`sort`]: the order of rows;
//! - [`app`]: what is shown, and what keys do to it;
//! - [`list`], [`detail`], [`pools`], [`help`]: the screens, in the colours of [`palette`]; [`heat`]: a map
//!   in one;
//! - [`terminal`]: takes the terminal, and gives it back whatever happens.

mod app;
mod detail;
mod heat;
mod help;
mod history;
mod list;
mod palette;
mod pools;
pub mod rates;
mod sort;
mod terminal;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use spillway_snapshot::reader;

use crate::exit::{Refusal, complain};
use crate::pool::{Looked, Pools, PoolsArgs};
use crate::status::NOTHING;
use crate::tier::print;
use rates::{Looks, Rows};

const EXAMPLE: &str = "\
Examples:
  spillway top
  spillway top --once
  spillway top --once --json
  spillway top --pool etcd://10.0.0.9:2379/lab

FLT/s are faults a second, P50 and P99 what they took in the last interval, LOST
the time that threads waited for them in percent of the time that passed: 200%
where two threads waited all the time. IN/s and OUT/s are fetched and written.

Keys: q ends, arrows choose, Enter shows one in detail, s sorts by the next
column, r the other way round, p shows the pools that --pool names, ? helps.
Where NO_COLOR is set it does without colours.

Exit status: 0; 1 if standard output is no terminal, or --once finds nothing.";

/// Time between the two looks of `--once`.
const ONCE: Duration = Duration::from_millis(500);

/// Watch what runs on this machine: programs on far memory, and daemons.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLE)]
pub struct TopArgs {
    /// Time between two looks, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = parse_interval)]
    interval: Duration,
    /// Print what is seen within half a second, and end
    #[arg(long)]
    once: bool,
    /// Print it as JSON
    #[arg(long, requires = "once")]
    json: bool,
    #[command(flatten)]
    pools: PoolsArgs,
}

/// What `--once --json` prints.
#[derive(Serialize)]
struct Printed<'a> {
    #[serde(flatten)]
    rows: &'a Rows,
    /// The pools that were named.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pools: &'a [Looked],
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.1..=3600.0).contains(seconds));
    seconds
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "write a number of seconds from 0.1 to 3600".to_owned())
}

/// Watches, until a key or a signal ends it.
pub fn run(args: &TopArgs) -> ExitCode {
    let watched = if args.once { once(args) } else { watch(args) };
    watched.unwrap_or_else(|(status, text)| {
        complain(text);
        ExitCode::from(status)
    })
}

fn once(args: &TopArgs) -> Result<ExitCode, Refusal> {
    let mut looks = Looks::default();
    looks.take(reader::look());
    let begun = Instant::now();
    let pools = args.pools.look();
    std::thread::sleep(ONCE.saturating_sub(begun.elapsed()));
    looks.take(reader::look());
    let rows = looks.seen();
    let is_empty = rows.rows.is_empty() && rows.silent.is_empty();
    let status = ExitCode::from(u8::from(is_empty && !pools.iter().any(Looked::is_known)));
    if args.json {
        let printed = Printed { rows, pools: &pools };
        let text = serde_json::to_string_pretty(&printed).map_err(|error| (1, format!("top: {error}")))?;
        print(&format!("{text}\n"))?;
        return Ok(status);
    }
    if is_empty && pools.is_empty() {
        return Err((1, format!("top: {NOTHING}")));
    }
    let list = if is_empty { format!("{NOTHING}\n") } else { list::text(rows) };
    print(&(list + &pools::text(&pools, list::WIDTH)))?;
    Ok(status)
}

fn watch(args: &TopArgs) -> Result<ExitCode, Refusal> {
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return Err((1, "top: standard input and output are no terminal; give --once".to_owned()));
    }
    let pools = Pools::watch(&args.pools, args.interval).map_err(|error| (1, format!("top: {error}")))?;
    terminal::watch(args.interval, pools)
        .map_err(|error| (1, format!("top: the terminal: {error}; 'top --once' needs none")))
}
