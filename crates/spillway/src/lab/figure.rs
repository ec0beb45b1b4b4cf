//! `spillway lab figure`.

use std::io::{self, Write};
use std::process::ExitCode;
use std::thread;

use clap::Args;
use serde::Serialize;
use spillway_lab::figures::lab::Lab;
use spillway_lab::figures::{self, Figure};

use super::run::{ended, print_json};
use crate::complain;

/// Working set of a figure, in bytes.
const FULL_BYTES: u64 = 128 << 20;
/// The same with `--quick`.
const QUICK_BYTES: u64 = 16 << 20;

const EXAMPLE: &str = "\
Examples:
  spillway lab figure H10
  spillway lab figure all --quick --json

Exit status:
  0  all claims of the figures hold
  1  some differ, or a figure could not be made";

/// Make the papers' figures again, and say which of their claims hold.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLE)]
pub struct FigureArgs {
    /// The figure's id, or 'all'
    #[arg(value_name = "ID")]
    id: String,

    /// Smaller working sets: minutes instead of an hour
    #[arg(long)]
    quick: bool,

    /// Print as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Figures {
    figures: Vec<Figure>,
}

/// Runs the command.
pub fn run(args: &FigureArgs) -> ExitCode {
    let ids = if args.id == "all" { figures::ids() } else { vec![args.id.as_str()] };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let mut lab = Lab::new(if args.quick { QUICK_BYTES } else { FULL_BYTES }, threads);
    let mut made = Vec::new();
    for id in ids {
        match figures::make(id, &mut lab) {
            Ok(figure) => {
                // One by one, for who waits; a reader that went away is found out at the end.
                if !args.json {
                    let _ = print(&mut io::stdout().lock(), &figure);
                }
                made.push(figure);
            }
            Err(error) => {
                complain(error);
                return ExitCode::FAILURE;
            }
        }
    }
    let claims = made.iter().flat_map(|figure| &figure.claims);
    let (all, held) = (claims.clone().count(), claims.filter(|claim| claim.holds).count());
    let mut out = io::stdout().lock();
    let printed = match args.json {
        true => print_json(&mut out, &Figures { figures: made }),
        false => writeln!(out, "{held} of {all} claims hold"),
    };
    match ended(printed) {
        ExitCode::SUCCESS if held < all => ExitCode::FAILURE,
        status => status,
    }
}

fn print(out: &mut impl Write, figure: &Figure) -> io::Result<()> {
    writeln!(out, "{}  {} ({})", figure.id, figure.title, figure.source)?;
    writeln!(out, "  {}:", figure.unit)?;
    for value in &figure.values {
        writeln!(out, "    {:<28} {:<24} {:.3}", value.series, value.point, value.value)?;
    }
    for claim in &figure.claims {
        let verdict = if claim.holds { "holds  " } else { "differs" };
        writeln!(out, "  {verdict} {}: {:.3} (paper: {})", claim.text, claim.measured, claim.paper)?;
    }
    writeln!(out)
}
