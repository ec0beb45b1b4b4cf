//! `spillway lab figure`: its arguments, and how its results look.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;

use clap::Args;
use serde::Serialize;
use spillway_lab::figures::lab::Lab;
use spillway_lab::figures::{self, FULL_BYTES, Figure, QUICK_BYTES, Score};
use spillway_report::whole_file;

use super::progress::progress_bar;
use super::run::{ended, print_json};
use crate::exit::complain;

const EXAMPLE: &str = "\
Examples:
  spillway lab figure H10 H11
  spillway lab figure all --quick --json
  spillway lab figure all --quick --plots plots --markdown

Exit status:
  0  all claims of the figures hold, in direction and in size
  1  some differ, or a figure could not be made";

/// Make the papers' figures again, and say which of their claims hold.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLE)]
pub struct FigureArgs {
    /// The figures' ids, or 'all'
    #[arg(value_name = "ID", required = true)]
    ids: Vec<String>,

    /// Smaller working sets: minutes instead of an hour
    #[arg(long)]
    quick: bool,

    /// Print the results as JSON
    #[arg(long)]
    json: bool,

    /// Print the claims as a table in Markdown
    #[arg(long, conflicts_with = "json")]
    markdown: bool,

    /// Draw the figures into this directory, as SVG
    #[arg(long, value_name = "DIR")]
    plots: Option<PathBuf>,
}

#[derive(Serialize)]
struct Figures {
    figures: Vec<Figure>,
    score: Score,
}

/// Makes the figures and prints them beside the papers'.
pub fn run(args: &FigureArgs) -> ExitCode {
    let ids: Vec<&str> = args.ids.iter().map(String::as_str).collect();
    let ids = if ids == ["all"] { figures::ids() } else { ids };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let mut lab = Lab::new(if args.quick { QUICK_BYTES } else { FULL_BYTES }, threads);
    let mut made = Vec::new();
    let mut all_made = true;
    let bar = progress_bar(ids.len(), "figures");
    for id in ids {
        match figures::make(id, &mut lab) {
            Ok(figure) => {
                // One by one, for who waits; a reader that went away is found out at the end.
                if !args.json && !args.markdown {
                    let _ = bar.suspend(|| print(&mut io::stdout().lock(), &figure));
                }
                if let Some(reason) = args.plots.as_deref().and_then(|plots| draw(plots, &figure).err()) {
                    complain(reason);
                    return ExitCode::FAILURE;
                }
                made.push(figure);
                bar.inc(1);
            }
            // The others may take an hour: they are not lost for this one.
            Err(error) => {
                bar.suspend(|| complain(format_args!("figure {id} could not be made: {error}")));
                all_made = false;
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    if made.is_empty() {
        // What was wrong has been said.
        return ExitCode::FAILURE;
    }
    let score = Score::of(made.iter().flat_map(|figure| &figure.claims));
    let mut out = io::stdout().lock();
    let printed = match (args.json, args.markdown) {
        (true, _) => print_json(&mut out, &Figures { figures: made, score }),
        (_, true) => write!(out, "{}", figures::markdown(&made)),
        _ => writeln!(out, "{score}"),
    };
    match ended(printed) {
        ExitCode::SUCCESS if !score.is_full() || !all_made => ExitCode::FAILURE,
        status => status,
    }
}

/// Draws each panel of a figure into a file: `H10.svg`, and `H12-2.svg` for a second panel.
fn draw(plots: &Path, figure: &Figure) -> Result<(), String> {
    let unwritable = |path: &Path, error: io::Error| {
        format!("cannot write '{}': {error}; name a directory that can be written to", path.display())
    };
    fs::create_dir_all(plots).map_err(|error| unwritable(plots, error))?;
    for (at, chart) in figure.charts().iter().enumerate() {
        let name = match at {
            0 => format!("{}.svg", figure.id),
            _ => format!("{}-{}.svg", figure.id, at + 1),
        };
        let path = plots.join(name);
        let svg = chart.svg().map_err(|error| error.to_string())?;
        whole_file::write(&path, svg).map_err(|error| unwritable(&path, error))?;
    }
    Ok(())
}

fn print(out: &mut impl Write, figure: &Figure) -> io::Result<()> {
    writeln!(out, "{}  {} ({})", figure.id, figure.title, figure.source)?;
    writeln!(out, "  {}:", figure.unit)?;
    for panel in &figure.panels {
        if !panel.title.is_empty() {
            writeln!(out, "   {} ({})", panel.title, panel.unit)?;
        }
        for value in &panel.values {
            writeln!(out, "    {:<28} {:<24} {:.3}", value.series, value.point, value.value)?;
        }
    }
    for claim in &figure.claims {
        let (direction, size) = (claim.verdict(), claim.size_verdict());
        writeln!(out, "  {direction:<7} {size:<7} {}: {:.3}", claim.text, claim.value)?;
        writeln!(out, "                  (paper: {})", claim.paper)?;
    }
    writeln!(out)
}
