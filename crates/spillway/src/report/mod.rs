//! `spillway report`: a page of what `spillway record` has kept.
//!
//! - [`story`]: what a run did, made of looks at it;
//! - [`lending`]: what a donor did;
//! - [`page`]: the page.

mod lending;
mod page;
mod story;

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use spillway_report::whole_file;
use spillway_snapshot::history::{Header, HistoryError, Reader};

use crate::exit::{Refusal, complain};
use crate::tier::print;
use lending::{Lenders, Lending, LendingSummary};
use page::Stories;
use story::{Story, Summary, Teller};

const EXAMPLE: &str = "\
Examples:
  spillway record night.history
  spillway report night.history
  spillway report night.history --json

The page needs nothing but itself: no network, no script. A run that was looked
at more than 600 times is shown by so many looks, evenly apart.

Exit status: 0, or 1 if the history cannot be read or the page not written.";

/// Make a page of what 'spillway record' has kept: memory, faults and stores over time.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLE)]
pub struct ReportArgs {
    /// What 'spillway record' has written
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Write the page to this file [default: FILE with .html]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print each run in figures, as JSON, and write no page
    #[arg(long, conflicts_with = "out")]
    json: bool,
}

/// What `--json` prints of a history.
#[derive(Serialize)]
struct Figures<'a> {
    version: u32,
    began_unix_s: f64,
    interval_s: f64,
    is_cut_off: bool,
    runs: Vec<Summary<'a>>,
    donors: Vec<LendingSummary<'a>>,
}

/// Reads, and writes the page or prints figures.
pub fn run(args: &ReportArgs) -> ExitCode {
    report(args).unwrap_or_else(|(status, text)| {
        complain(format!("report: {text}"));
        ExitCode::from(status)
    })
}

fn report(args: &ReportArgs) -> Result<ExitCode, Refusal> {
    let stories = read(&args.file).map_err(|error| {
        let remedy = match error {
            HistoryError::Io(_) => "; name a file that 'spillway record' has written",
            _ => "",
        };
        (1, format!("{}: {error}{remedy}", args.file.display()))
    })?;
    if stories.stories.is_empty() && stories.donors.is_empty() {
        let file = args.file.display();
        return Err((
            1,
            format!("{file}: no run is in it, only the tier daemon; 'spillway tier status' tells of it"),
        ));
    }
    if args.json {
        let Header { version, began_unix_s, interval_s, .. } = stories.header;
        let runs = stories.stories.iter().map(Story::summary).collect();
        let donors = stories.donors.iter().map(Lending::summary).collect();
        let is_cut_off = stories.is_cut_off;
        let figures = Figures { version, began_unix_s, interval_s, is_cut_off, runs, donors };
        let text = serde_json::to_string_pretty(&figures).map_err(|error| (1, error.to_string()))?;
        return print(&format!("{text}\n"));
    }
    let page = page::html(&stories).map_err(|error| (1, error.to_string()))?;
    let out = args.out.clone().unwrap_or_else(|| args.file.with_extension("html"));
    whole_file::write(&out, page)
        .map_err(|error| (1, format!("{}: {error}; name another with --out", out.display())))?;
    print(&format!("{}\n", out.display()))
}

/// Twice: first how often each run was looked at, then as many of these looks as the page shows.
fn read(path: &Path) -> Result<Stories, HistoryError> {
    let mut counting = Reader::new(BufReader::new(File::open(path)?))?;
    let mut teller = Teller::default();
    while let Some(look) = counting.look()? {
        teller.count(&look);
    }
    let mut reader = Reader::new(BufReader::new(File::open(path)?))?;
    let (mut telling, mut lenders) = (teller.telling(), Lenders::default());
    while let Some(look) = reader.look()? {
        lenders.take(&look);
        telling.take(look);
    }
    let (header, is_cut_off) = (reader.header().clone(), reader.is_cut_off());
    Ok(Stories { header, is_cut_off, stories: telling.end(), donors: lenders.end() })
}
