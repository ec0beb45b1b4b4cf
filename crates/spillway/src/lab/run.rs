//! `spillway lab run` and `spillway lab list`.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use spillway_core::page::PAGE_SIZE;
use spillway_core::size::Size;
use spillway_lab::clairvoyant::{CLAIRVOYANT, Clairvoyant, clairvoyant};
use spillway_lab::run::{Report, RunError, RunSpec, execute_telling};
use spillway_lab::simulator::platform::Platform;
use spillway_lab::workloads;
use spillway_policy::registry;

use super::arguments::{Local, Simulated};
use super::progress::simulation_bar;
use crate::columns::for_terminal;
use crate::exit::complain;

const EXAMPLE: &str = "\
Examples:
  spillway lab run --workload ligra-bfs --policy hotbox --local 20%
  spillway lab run --workload tpcc --policy nimble-huge --local 40% --latency 1us
  spillway lab run --workload graph500-bfs --policy indigo --platform indigo --contention 50% --json";

/// Run one workload under one policy.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLE)]
pub struct RunArgs {
    #[command(flatten)]
    simulated: Simulated,

    /// The policy; 'spillway lab list' names them
    #[arg(long, value_name = "NAME")]
    policy: String,

    /// Local memory: a share of the working set, or a size
    #[arg(long, value_name = "SHARE|SIZE", default_value = "20%")]
    local: Local,

    /// Print everything that was measured as JSON
    #[arg(long)]
    json: bool,
}

const LIST_EXAMPLE: &str = "\
Example:
  spillway lab list --json";

/// Name the policies, workloads and platforms there are.
#[derive(Args, Debug)]
#[command(after_help = LIST_EXAMPLE)]
pub struct ListArgs {
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
}

/// Simulates one run and prints what came of it.
pub fn run(args: &RunArgs) -> ExitCode {
    let spec = args.simulated.spec(&args.policy, args.local.0);
    if args.policy == CLAIRVOYANT {
        return run_clairvoyant(&spec, args.json);
    }
    let report = match simulate(&spec) {
        Ok(report) => report,
        Err(error) => {
            complain(error);
            return ExitCode::FAILURE;
        }
    };
    let mut out = io::stdout().lock();
    let printed = if args.json { print_json(&mut out, &report) } else { print_report(&mut out, &report) };
    ended(printed)
}

/// How often it is shown how far a simulation is.
const PERIOD: Duration = Duration::from_millis(200);

/// Simulates, and shows on a terminal how far that is.
fn simulate(spec: &RunSpec) -> Result<Report, RunError> {
    let bar = simulation_bar();
    let (mut all, mut shown) = (None, None::<Instant>);
    let report = execute_telling(spec, &mut |simulation| {
        if shown.is_some_and(|shown| shown.elapsed() < PERIOD) {
            return;
        }
        shown = Some(Instant::now());
        if let Some(left) = simulation.work_left() {
            let all = *all.get_or_insert(left);
            bar.set_length(all);
            bar.set_position(all.saturating_sub(left));
        }
        bar.set_message(format!("{:.3} s simulated", simulation.simulated_s()));
    });
    bar.finish_and_clear();
    report
}

/// Prints what no policy could beat.
fn run_clairvoyant(spec: &RunSpec, json: bool) -> ExitCode {
    let bar = simulation_bar();
    bar.set_message("everything beforehand");
    let found = clairvoyant(spec);
    bar.finish_and_clear();
    match found {
        Ok(found) => {
            let mut out = io::stdout().lock();
            ended(if json { print_json(&mut out, &found) } else { print_clairvoyant(&mut out, &found) })
        }
        Err(error) => {
            complain(error);
            ExitCode::FAILURE
        }
    }
}

fn print_clairvoyant(out: &mut impl Write, found: &Clairvoyant) -> io::Result<()> {
    let RunSpec { platform, seed, .. } = &found.spec;
    let page_bytes = Platform::named(platform).map_or(PAGE_SIZE as u64, |platform| platform.page_bytes);
    let size = |pages: u32| Size::from_bytes(u64::from(pages) * page_bytes);
    let (used, local) = (found.working_set_pages, found.local_pages.min(found.working_set_pages));
    writeln!(out, "{} with foreknowledge on {platform}, seed {seed}", found.spec.workload_name())?;
    writeln!(out, "  memory            {}, {} of it local", size(used), size(local))?;
    writeln!(out, "  run time          {:.6} s at least; {:.6} s all local", found.run_s, found.all_local_s)?;
    writeln!(
        out,
        "  far and moves     {:.6} s of the cores at least, {:.6} s all far",
        found.least_cost_s, found.all_far_cost_s
    )?;
    writeln!(
        out,
        "  found             {:.6} s with {} moves, {:.2}% above the least",
        found.schedule_cost_s,
        found.moves,
        found.gap * 100.0
    )?;
    writeln!(
        out,
        "  in                {} epochs, {} rounds; a move takes {:.0} ns",
        found.epochs, found.rounds, found.move_ns
    )
}

/// A reader that went away has seen what it wanted.
pub fn ended(printed: io::Result<()>) -> ExitCode {
    match printed {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            complain(format_args!(
                "cannot print the result: {error}; free space or close nothing it writes to"
            ));
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

/// Prints a value as JSON, in lines.
pub fn print_json(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    writeln!(out)
}

fn print_report(out: &mut impl Write, report: &Report) -> io::Result<()> {
    let RunSpec { policy, platform, seed, .. } = &report.spec;
    let workload = report.spec.workload_name();
    let page_bytes = Platform::named(platform).map_or(PAGE_SIZE as u64, |platform| platform.page_bytes);
    let size = |pages: u32| Size::from_bytes(u64::from(pages) * page_bytes);
    let percent = |share: f64| format!("{:.1}%", share * 100.0);
    let per_s = |bytes: f64| format!("{}/s", Size::from_bytes(bytes as u64));
    let cores_s = report.time.app_s
        + report.time.scan_local_s
        + report.time.scan_far_s
        + report.time.fault_s
        + report.time.migration_s;
    let of_time = |seconds: f64| percent(if cores_s > 0.0 { seconds / cores_s } else { 0.0 });
    writeln!(out, "{workload} under {policy} on {platform}, seed {seed}")?;
    if let Some(remark) = &report.remark {
        writeln!(out, "  by                {remark}")?;
    }
    let (used, local) = (report.working_set_pages, report.local_pages.min(report.working_set_pages));
    writeln!(out, "  memory            {}, {} of it local", size(used), size(local))?;
    writeln!(out, "  run time          {:.6} s", report.run_s)?;
    writeln!(out, "  accesses          {}, {:.1} ns on average", report.accesses, report.amat_ns)?;
    writeln!(out, "  cache misses      {}, {} local", report.llc_misses, percent(report.local_hit_ratio))?;
    writeln!(
        out,
        "  pages promoted    {} ({:.0}/s), {} of them used",
        report.promotions,
        report.promotions_per_s,
        percent(report.good_put)
    )?;
    writeln!(out, "  pages demoted     {} ({:.0}/s)", report.demotions, report.demotions_per_s)?;
    writeln!(out, "  migration         {}", per_s(report.migration_bytes_per_s))?;
    writeln!(
        out,
        "  faults            {} hint, {} missing, {} minor",
        report.hint_faults, report.missing_faults, report.minor_faults
    )?;
    writeln!(
        out,
        "  link              {} of lines, {} of pages",
        Size::from_bytes(report.access_bytes),
        Size::from_bytes(report.migration_bytes)
    )?;
    writeln!(out, "  local in use      {} of local pages in a window", percent(report.local_in_use))?;
    writeln!(
        out,
        "  time              app {}, faults {}, migration {}",
        of_time(report.time.app_s),
        of_time(report.time.fault_s),
        of_time(report.time.migration_s)
    )?;
    writeln!(
        out,
        "  scans             local {}, far {} of the time",
        of_time(report.time.scan_local_s),
        of_time(report.time.scan_far_s)
    )
}

#[derive(Serialize)]
struct Named {
    name: &'static str,
    about: &'static str,
}

#[derive(Serialize)]
struct Listing {
    policies: Vec<Named>,
    workloads: Vec<Named>,
    platforms: &'static [&'static str],
}

/// Prints what workloads, policies and platforms there are.
pub fn list(args: &ListArgs) -> ExitCode {
    let listing = Listing {
        policies: registry::entries()
            .iter()
            .map(|e| Named { name: e.name, about: e.about })
            .chain([Named {
                name: CLAIRVOYANT,
                about: "What no choice of residency can beat; a bound, lab run only",
            }])
            .collect(),
        workloads: workloads::entries().iter().map(|e| Named { name: e.name, about: e.about }).collect(),
        platforms: &spillway_lab::simulator::platform::NAMES,
    };
    let mut out = io::stdout().lock();
    ended(if args.json {
        print_json(&mut out, &listing)
    } else {
        out.write_all(for_terminal(&in_words(&listing)).as_bytes())
    })
}

fn in_words(listing: &Listing) -> String {
    let mut text = String::new();
    for (title, entries) in [("policies", &listing.policies), ("workloads", &listing.workloads)] {
        text += &format!("{title}\n");
        for Named { name, about } in entries {
            text += &format!("  {name:<18} {about}\n");
        }
    }
    text + &format!("platforms\n  {}\n", listing.platforms.join(", "))
}
