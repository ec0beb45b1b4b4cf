//! `spillway advise`: how much local memory a run that goes on would need, for how much loss.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use spillway_snapshot::reader;
use spillway_snapshot::snapshot::{Body, Run, Snapshot};

use crate::exit::{Refusal, complain};
use crate::short::{bytes, count, percent, printable, seconds};
use crate::status::{is_called, name_of};
use crate::tier::print;
use crate::working_set::{Caveat, Need, Observed, Point};

const EXAMPLE: &str = "\
Examples:
  spillway advise --pid 1234
  spillway advise --pid 1234 --json

It goes by what the run's pager has counted since its start: of each page that
was fetched again, how much had left since it did. So much more local memory
would have spared that fault. The loss is LOST of 'spillway top': the time that
threads wait for memory, by the time that passes. 'spillway report' has the same
of a history.

Exit status: 0, or 1 if no run has that process.";

/// Say how much local memory a run would need to lose 5%, 10% or 20% of its time to paging.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLE)]
pub struct AdviseArgs {
    /// The run, by any of its processes
    #[arg(long, value_name = "PID")]
    pid: u32,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

/// What `--json` prints of a run.
#[derive(Serialize)]
struct Advice<'a> {
    name: &'a str,
    program_pid: u32,
    passed_s: f64,
    lost_share: f64,
    local_limit_bytes: u64,
    local_bytes: u64,
    far_bytes: u64,
    fetch_faults: u64,
    needs: Vec<Need>,
    curve: Vec<Point>,
    caveats: Vec<Caveat>,
}

/// Looks at the run, and prints what it would need.
pub fn run(args: &AdviseArgs) -> ExitCode {
    advise(args).unwrap_or_else(|(status, text)| {
        complain(format!("advise: {text}"));
        ExitCode::from(status)
    })
}

fn advise(args: &AdviseArgs) -> Result<ExitCode, Refusal> {
    let pid = args.pid.to_string();
    let alive = reader::look().into_iter().filter_map(|seen| seen.answer.ok());
    let found =
        alive.filter(|snapshot| is_called(snapshot, &pid)).find_map(|snapshot| match &snapshot.body {
            Body::Run { run } => Some(((**run).clone(), snapshot)),
            Body::Donor { .. } | Body::Tier { .. } => None,
        });
    let (run, snapshot) = found
        .ok_or_else(|| (1, format!("no run of yours has process {pid}; 'spillway status' lists them")))?;
    let observed = Observed::since_start(&run, snapshot.uptime_s);
    if args.json {
        let advice = Advice {
            name: &snapshot.name,
            program_pid: run.program_pid,
            passed_s: observed.passed_s,
            lost_share: observed.lost_share(),
            local_limit_bytes: run.local_limit_bytes,
            local_bytes: run.local_bytes,
            far_bytes: run.far_bytes,
            fetch_faults: observed.faults(),
            needs: observed.needs(),
            curve: observed.curve(),
            caveats: observed.caveats(),
        };
        let text = serde_json::to_string_pretty(&advice).map_err(|error| (1, error.to_string()))?;
        return print(&format!("{text}\n"));
    }
    print(&describe(&snapshot, &run, &observed))
}

fn describe(snapshot: &Snapshot, run: &Run, observed: &Observed) -> String {
    let mut text = format!(
        "{} ({}): {} of {} local, {} far; it lost {} of {} to paging\n",
        printable(&name_of(snapshot), 30),
        run.program_pid,
        bytes(run.local_bytes as f64),
        bytes(run.local_limit_bytes as f64),
        bytes(run.far_bytes as f64),
        percent(observed.lost_share()),
        seconds(observed.passed_s),
    );
    if run.far_bytes == 0 && observed.faults() == 0 {
        text += "nothing went far and came back: it has as much as it needs\n";
        return text;
    }
    text += "to lose at most   it would need\n";
    for need in observed.needs() {
        let local = need.local_bytes.map_or_else(
            || "more memory alone does not do".to_owned(),
            |local| format!("{:>6} local", bytes(local as f64)),
        );
        let _ = writeln!(text, "{:>15}   {local}", percent(need.lost_share));
    }
    let _ = writeln!(
        text,
        "estimated from {} fetching faults since its start; new pages are faulted on at any size",
        count(observed.faults() as f64)
    );
    for caveat in observed.caveats() {
        let _ = writeln!(text, "{}", caveat.sentence());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::metrics::tests::whole_snapshot;
    use crate::working_set::tests::observed;

    #[test]
    fn the_table_has_a_row_for_each_loss_and_says_what_it_goes_by() {
        let snapshot = whole_snapshot();
        let Body::Run { run } = &snapshot.body else { panic!("no run") };
        let text = describe(&snapshot, run, &observed());
        for words in
            ["it lost 50% of 10s", "20%     120M local", "5.0%   more memory alone", "3.5k fetching faults"]
        {
            assert!(text.contains(words), "no {words:?} in {text}");
        }
        let idle = Observed { returns: Vec::new(), ..observed() };
        let fits = Run { far_bytes: 0, ..(**run).clone() };
        assert!(describe(&snapshot, &fits, &idle).contains("as much as it needs"));
    }
}
