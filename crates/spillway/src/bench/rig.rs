//! `spillway bench rig`: its arguments, and how its results look.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clap::Args;
use clap::builder::PossibleValuesParser;
use serde::Serialize;
use spillway_bench::rig::plan::{POLICIES, Plan, WORKLOADS};
use spillway_bench::rig::report::{Goal, Row, goals};
use spillway_bench::rig::{Progress, lab, measure, page};
use spillway_report::order::distinct;
use spillway_report::whole_file;
use spillway_tier::pace::ScanPace;
use spillway_tier::source::Choice;

use super::session::{
    expect_place, failure, interruption, print_json, printed, progress_bar, show_done, this_command,
};

/// A guest takes many seconds, in which the time left goes down.
const TICK: Duration = Duration::from_secs(1);

const EXAMPLE: &str = "\
Example:
  spillway bench rig --kernel target/guest-kernel --to target/rig --quick
  spillway bench rig --lab target/rig/results.json --to target/rig

Writes results.json, results.md and index.html. 'make rig' fetches the guest's
kernel (scripts/guest-kernel) and the emulator first. With --lab it writes lab.json.";

/// Measure 'tier' in guests that have two memory nodes, beside the kernel's own tiering.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLE)]
pub struct RigArgs {
    /// Where vmlinuz and modules/ of the guest's kernel lie
    #[arg(long, value_name = "DIRECTORY", required_unless_present = "lab")]
    kernel: Option<PathBuf>,
    /// Instead of guests, run in the lab what the daemon's policies did in these results, at one share of
    /// local memory and one latency, and print both
    #[arg(long, value_name = "FILE", conflicts_with = "kernel")]
    lab: Option<PathBuf>,
    /// Where the results go
    #[arg(long, value_name = "DIRECTORY")]
    to: PathBuf,
    /// Only this workload; may be repeated
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(WORKLOADS))]
    workload: Vec<String>,
    /// Only this policy; may be repeated
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(POLICIES))]
    policy: Vec<String>,
    /// Local memory, in percent of the workload's [default: 20,40]
    #[arg(long, value_name = "PCT", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u32).range(5..=95))]
    local: Vec<u32>,
    /// Latencies of far memory, in nanoseconds, those after the first with the first share of local memory
    /// only [default: 750,1500]
    #[arg(long, value_name = "NS", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u32).range(71..=10_000))]
    latency: Vec<u32>,
    /// Runs of each case under 'indigo' and 'kernel', each begun a little later; the
    /// median counts [default: 3, with --quick 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    starts: Option<u32>,
    /// Let the link to far memory be shared, so that its latency rises with its traffic, and a neighbour take
    /// so much of it in every other second, in percent; 0 for none
    #[arg(long, value_name = "PCT", value_delimiter = ',', conflicts_with = "lab")]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=90))]
    contention: Vec<u32>,
    /// Guests at a time [default: as many as there are processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    jobs: Option<u32>,
    /// Least time between two scans of the daemon, in milliseconds [default: 20]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(1..=60_000))]
    scan_interval: Option<u32>,
    /// Most of the guest's processor that the daemon's scans, policy and moves take, in percent [default: 80]
    #[arg(long, value_name = "PCT", value_parser = clap::value_parser!(u32).range(1..=100))]
    telemetry_cpu: Option<u32>,
    /// What decides when the daemon's scans come, as of 'spillway tier' [default: budget]
    #[arg(long, value_name = "PACE", value_parser = pace_name)]
    scan_pace: Option<String>,
    /// Telemetry source of the daemon, as of 'spillway tier --source' [default: auto; for indigo hint-faults,
    /// for hemem and memtis counter-samples]
    #[arg(long, value_name = "NAME", value_parser = source_name)]
    source: Option<String>,
    /// A setting of the daemon's policies, as of 'spillway tier --set'; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Where what each guest printed goes
    #[arg(long, value_name = "DIRECTORY")]
    consoles: Option<PathBuf>,
    /// A shorter time, at one latency and one share of local memory
    #[arg(long)]
    quick: bool,
    /// Print the results as JSON: rows and goals, or with --lab the pairs
    #[arg(long)]
    json: bool,
}

/// What guests came to, as `--json` prints it.
#[derive(Serialize)]
struct Results<'a> {
    rows: &'a [Row],
    goals: &'a [Goal],
}

fn source_name(text: &str) -> Result<String, String> {
    text.parse::<Choice>().map(|_| text.to_owned())
}

fn pace_name(text: &str) -> Result<String, String> {
    text.parse::<ScanPace>().map(|_| text.to_owned())
}

impl RigArgs {
    fn plan(&self) -> Plan {
        let mut plan = Plan { kernel: self.kernel.clone().unwrap_or_default(), ..Plan::default() };
        if self.quick || self.lab.is_some() {
            plan.latency_ns.truncate(1);
            plan.local_pct.truncate(1);
        }
        if self.quick {
            (plan.memory_mib, plan.warm_s, plan.measured_s, plan.starts) = (32, 4, 3, 1);
        }
        plan.contention_pct.clone_from(&self.contention);
        plan.scan_ms = self.scan_interval.unwrap_or(plan.scan_ms);
        plan.telemetry_cpu_pct = self.telemetry_cpu.unwrap_or(plan.telemetry_cpu_pct);
        plan.scan_pace = self.scan_pace.clone().unwrap_or(plan.scan_pace);
        plan.starts = self.starts.unwrap_or(plan.starts);
        plan.source.clone_from(&self.source);
        plan.settings.clone_from(&self.set);
        plan.consoles.clone_from(&self.consoles);
        let jobs = self.jobs.and_then(|jobs| usize::try_from(jobs).ok());
        plan.jobs = jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
        for (asked, planned) in [(&self.workload, &mut plan.workloads), (&self.policy, &mut plan.policies)] {
            if !asked.is_empty() {
                planned.clone_from(asked);
            }
        }
        for (asked, planned) in [(&self.local, &mut plan.local_pct), (&self.latency, &mut plan.latency_ns)] {
            if !asked.is_empty() {
                planned.clone_from(asked);
            }
        }
        plan
    }
}

/// Runs the guests; the exit status says whether all ended well.
pub fn run(args: &RigArgs) -> ExitCode {
    let plan = args.plan();
    if let Some(results) = &args.lab {
        return compare_with_lab(results, args, &plan).unwrap_or_else(failure);
    }
    let made = fs::create_dir_all(&args.to).map_err(|error| no_directory(&args.to, &error));
    if let Err(reason) = made.and_then(|()| expect_place(&args.to.join("results.json"))) {
        return failure(reason);
    }
    let spillway = match this_command() {
        Ok(path) => path,
        Err(error) => return failure(error),
    };
    let (mut all, mut done) = (0, 0);
    let bar = progress_bar();
    bar.enable_steady_tick(TICK);
    let mut tell = |progress: Progress<'_>| {
        let text = match progress {
            Progress::Begins(runs) => {
                all = runs;
                format!("{runs} runs, {} at a time", plan.jobs)
            }
            Progress::Ended(row, wall_s) => {
                done += 1;
                format!("{done} of {all}: {}, {wall_s:.0} s", describe(row))
            }
            Progress::Failed(case, why) => {
                done += 1;
                format!("{done} of {all}: {} under {} failed: {why}", case.workload, case.policy)
            }
        };
        bar.suspend(|| {
            let _ = writeln!(std::io::stderr(), "rig: {text}");
        });
        show_done(&bar, "", done, all);
    };
    let interrupted = interruption();
    let measured = measure(&plan, &spillway, &interrupted, &mut tell);
    bar.finish_and_clear();
    let (rows, failed) = match measured {
        Ok(measured) => measured,
        Err(error) => return failure(error),
    };
    let printed = match write(args, &rows, &plan) {
        Ok(printed) => printed,
        Err(error) => return failure(error),
    };
    if interrupted.load(Ordering::Relaxed) {
        let made = rows.len();
        return failure(format!("interrupted; {made} of {all} runs are in {}", args.to.display()));
    }
    if failed > 0 {
        return failure(format!("{failed} of {all} runs failed; see above"));
    }
    printed
}

/// Runs in the lab what the rig's results say, prints both, and writes lab.json.
fn compare_with_lab(results: &Path, args: &RigArgs, plan: &Plan) -> Result<ExitCode, String> {
    let text = fs::read(results)
        .map_err(|error| format!("cannot read {}: {error}; name a rig's results.json", results.display()))?;
    let rows: Vec<Row> = serde_json::from_slice(&text)
        .map_err(|error| format!("{}: {error}; name a rig's results.json", results.display()))?;
    let pairs = lab::compare(plan, &rows, &mut |pair| {
        let text = format!("{} under {}: {:+.1} points apart", pair.workload, pair.policy, pair.points());
        let _ = writeln!(std::io::stderr(), "rig: {text}");
    });
    let pairs = pairs.map_err(|error| error.to_string())?;
    let json = serde_json::to_string_pretty(&pairs).map_err(|error| error.to_string())?;
    let path = args.to.join("lab.json");
    fs::create_dir_all(&args.to)
        .and_then(|()| whole_file::write(&path, json + "\n"))
        .map_err(|error| format!("cannot write {}: {error}; check --to", path.display()))?;
    if args.json {
        return Ok(print_json(&pairs));
    }
    Ok(printed(writeln!(std::io::stdout(), "{}", lab::markdown(&pairs))))
}

fn no_directory(to: &Path, error: &std::io::Error) -> String {
    format!("cannot make {}: {error}; check --to", to.display())
}

fn describe(row: &Row) -> String {
    let Row { workload, policy, local_pct, latency_ns, .. } = row;
    let beside = row.contention_pct.map_or_else(String::new, |pct| format!(", neighbour {pct}%"));
    format!(
        "{workload} under {policy}, {local_pct}% local, {latency_ns} ns{beside}: local hit ratio {:.3}, \
         AMAT {:.1} ns, {} promotions",
        row.local_hit_ratio, row.amat_ns, row.promotions
    )
}

/// Writes the results, and prints which goals they meet.
fn write(args: &RigArgs, rows: &[Row], plan: &Plan) -> Result<ExitCode, String> {
    let to = args.to.as_path();
    let goals = goals(rows);
    let json = serde_json::to_string_pretty(rows).map_err(|error| error.to_string())?;
    let platforms = rows.iter().map(|row| (row.latency_ns, row.contention_pct));
    let short: Vec<String> = distinct(platforms)
        .into_iter()
        .map(|(latency_ns, contention_pct)| {
            let beside =
                contention_pct.map_or_else(String::new, |pct| format!(", a neighbour that takes {pct}%"));
            let table = page::short_markdown(rows, latency_ns, contention_pct);
            format!("Far memory of {latency_ns} ns{beside}:\n\n{table}\n")
        })
        .collect();
    let markdown = format!("{}{}", short.concat(), page::markdown(rows));
    let page = page::page(rows, &goals, plan).map_err(|error| error.to_string())?;
    fs::create_dir_all(to).map_err(|error| no_directory(to, &error))?;
    for (name, text) in
        [("results.json", json + "\n"), ("results.md", markdown.clone()), ("index.html", page)]
    {
        let path = to.join(name);
        whole_file::write(&path, text)
            .map_err(|error| format!("cannot write {}: {error}; check --to", path.display()))?;
    }
    if args.json {
        return Ok(print_json(&Results { rows, goals: &goals }));
    }
    let mut out = std::io::stdout();
    let outcome = writeln!(out, "{markdown}").and_then(|()| {
        goals.iter().try_for_each(|goal| {
            writeln!(out, "{}: {}: {}", if goal.met { "met" } else { "NOT met" }, goal.wanted, goal.found)
        })
    });
    Ok(printed(outcome))
}
