//! `spillway lab advise`: its arguments, and how its results look.

use std::io::{self, Write};
use std::process::ExitCode;
use std::thread;

use clap::Args;
use spillway_lab::advise::{Advice, advise, most_runs};
use spillway_lab::figures::lab::Lab;
use spillway_lab::run::LocalSize;
use spillway_lab::simulator::platform::Platform;

use super::arguments::{Percent, Simulated};
use super::progress::progress_bar;
use super::run::{ended, print_json};
use crate::exit::complain;

const EXAMPLE: &str = "\
Example:
  spillway lab advise --workload tpcc --local 20% --platform cxl";

/// Say how much local memory a workload needs, under which policy, and what more would bring.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLE)]
pub struct AdviseArgs {
    #[command(flatten)]
    simulated: Simulated,

    /// The local memory that you think of, as a share of the working set
    #[arg(long, value_name = "SHARE", default_value = "20%")]
    local: Percent,

    /// Print the results as JSON
    #[arg(long)]
    json: bool,
}

/// Simulates, and prints what to take.
pub fn run(args: &AdviseArgs) -> ExitCode {
    let share = args.local.0;
    let spec = args.simulated.spec("hotbox", LocalSize::Share(share));
    let bar = progress_bar(most_runs(share), "runs");
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let told = bar.clone();
    let mut lab = Lab::new(spec.bytes, threads).telling(move || told.inc(1));
    let advice = Platform::named(&spec.platform).map_err(Into::into).and_then(|platform| {
        let far_ns = spec.platform_settings.get("far_ns").and_then(serde_json::Value::as_f64);
        let (far_ns, link_bytes_per_s) = (far_ns.unwrap_or(platform.far_ns), platform.link_bytes_per_s);
        advise(&mut lab, &spec, share, far_ns, link_bytes_per_s)
    });
    bar.finish_and_clear();
    match advice {
        Ok(advice) => {
            let mut out = io::stdout().lock();
            ended(if args.json { print_json(&mut out, &advice) } else { print(&mut out, &advice) })
        }
        Err(error) => {
            complain(error);
            ExitCode::FAILURE
        }
    }
}

fn print(out: &mut impl Write, advice: &Advice) -> io::Result<()> {
    let percent = |share: f64| format!("{:.0}%", share * 100.0);
    writeln!(out, "Least local memory, of the working set, at which a policy loses no more than")?;
    writeln!(out, "  {:<14} {:>6} {:>6} {:>6}", "", "5%", "10%", "20%")?;
    for policy in &advice.policies {
        let cells = policy.least_local.iter().map(|(_, share)| share.map_or("-".into(), percent));
        let cells: Vec<String> = cells.map(|cell| format!("{cell:>6}")).collect();
        writeln!(out, "  {:<14} {}", policy.policy, cells.join(" "))?;
    }
    let best = advice.policies.first().map_or("", |policy| policy.policy);
    let loss = |slowdown: f64| format!("{:.1}%", (slowdown - 1.0) * 100.0);
    writeln!(out, "At {} local, {best} is best: it loses {}", percent(advice.local), loss(advice.slowdown))?;
    writeln!(out, "  with 10 points more local memory  {}", loss(advice.slowdown_more_local))?;
    writeln!(out, "  with half the latency             {}", loss(advice.slowdown_half_latency))?;
    writeln!(out, "  with twice the bandwidth          {}", loss(advice.slowdown_double_bandwidth))?;
    if advice.slowdown < 1.0 {
        writeln!(out, "Below 0: its huge pages are faster than base pages, all local")?;
    }
    Ok(())
}
