//! Placement at a site of 10,000 donors: how even the load is, what is lost where 1% of them die at one time,
//! and what repair takes; beside random placement, and beside what can be computed on paper. What it says is
//! in docs/research/placement.md.
//!
//! `cargo run --release -p spillway-pool --example placement_at_scale -- --seed 1`

mod failures;
mod layout;
mod measure;
mod paper;
mod progress;
mod random;
mod repair;
mod report;
mod site;
mod tables;
#[cfg(test)]
mod tests;

use std::process::ExitCode;

use clap::Parser;

use crate::measure::{Effort, measure};
use crate::progress::Progress;
use crate::site::{SCHEMES, Terms};

/// Simulates placement at a large site.
#[derive(Clone, Debug, Parser)]
struct Options {
    /// Dice of this seed are thrown; the same seed gives the same
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print JSON in place of tables
    #[arg(long)]
    json: bool,
    /// Donors of the site
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u16).range(64..=60_000))]
    donors: u16,
    /// Racks, the failure domains, in which they stand
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u16).range(40..=10_000))]
    racks: u16,
    /// GiB that each donor lends
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..))]
    offered_gib: u16,
    /// Percent of all memory that runs have been promised
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u8).range(1..=80))]
    full_percent: u8,
    /// Percent of what it asks for that a run writes
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u8).range(1..=100))]
    written_percent: u8,
    /// GiB of the smallest run
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
    least_run_gib: u16,
    /// GiB of the largest run; sizes are even on a logarithmic scale
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..))]
    most_run_gib: u16,
    /// Runs that begin at one time, and see the same free memory
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..))]
    at_once: u16,
    /// How often all runs are replaced by others before anything is measured
    #[arg(long, default_value_t = 1)]
    turns: u8,
    /// Neighbouring extents of 2 MiB that are placed as one
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u8).range(1..))]
    together: u8,
}

const GIB: u64 = 1 << 30;

impl Options {
    fn terms(&self) -> Terms {
        Terms {
            donors: self.donors.into(),
            racks: self.racks.min(self.donors).into(),
            offered_bytes: u64::from(self.offered_gib) * GIB,
            full: f64::from(self.full_percent) / 100.0,
            written: f64::from(self.written_percent) / 100.0,
            least_run_bytes: u64::from(self.least_run_gib) * GIB,
            most_run_bytes: u64::from(self.most_run_gib.max(self.least_run_gib)) * GIB,
            at_once: self.at_once.into(),
            turns: self.turns.into(),
            together: self.together.into(),
            seed: self.seed,
        }
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let progress = Progress::begin();
    let terms = options.terms();
    let of = |scheme| measure(terms, scheme, Effort::FULL, &progress);
    let report = report::Report { terms: report::Site::of(&terms), schemes: SCHEMES.map(of).to_vec() };
    progress.end();
    if !options.json {
        print!("{}", tables::text(&report));
        return ExitCode::SUCCESS;
    }
    match serde_json::to_string_pretty(&report) {
        Ok(text) => println!("{text}"),
        Err(error) => {
            eprintln!("placement_at_scale: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
