//! `spillway advise`: how much local memory a run that goes on would need, for how much loss.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use spillway_snapshot::reader::{self, Seen};
use spillway_snapshot::snapshot::{Body, Run, Snapshot};

use crate::columns::for_terminal;
use crate::exit::{Refusal, complain};
use crate::short::{bytes, count, micros, percent, printable, seconds};
use crate::status::{is_called, name_of};
use crate::tier::print;
use crate::working_set::{Caveat, Need, Observed, Point, TARGETS};

const EXAMPLE: &str = "\
Examples:
  spillway advise --pid 1234
  spillway advise --pid 1234 --last 60
  spillway advise --pid 1234 --json

It goes by what the run's pager has counted: of each page that was fetched
again, how much had left since it did, and so how often it is touched, and what
that took. With more local memory pages stay longer. What is told aims at four
fifths of the loss, since estimates have been too low by as much. The loss is
LOST of 'spillway top': the time that threads wait for memory, by the time that
passes. 'spillway report' has the same of a history.

Exit status: 0, or 1 if no run has that process.";

/// Say how much local memory a run would need to lose 5%, 10% or 20% of its time to paging.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLE)]
pub struct AdviseArgs {
    /// The run, by any of its processes
    #[arg(long, value_name = "PID")]
    pid: u32,
    /// Say what its last so many seconds tell, beside its whole time: 1 to 600
    #[arg(long, value_name = "SECONDS", default_value_t = 300,
        value_parser = clap::value_parser!(u32).range(1..=600))]
    last: u32,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

/// What `--json` prints of a run.
#[derive(Serialize)]
struct Advice<'a> {
    name: &'a str,
    program_pid: u32,
    local_limit_bytes: u64,
    local_bytes: u64,
    far_bytes: u64,
    /// What its whole time says.
    #[serde(flatten)]
    whole: Estimate,
    /// Of its last minutes, where it has run that long.
    last: Option<Estimate>,
}

/// What some time of a run says.
#[derive(Serialize)]
struct Estimate {
    passed_s: f64,
    lost_share: f64,
    fetch_faults: u64,
    /// What one of them took, on average; none where there was none.
    fetch_us: Option<f64>,
    needs: Vec<Need>,
    curve: Vec<Point>,
    caveats: Vec<Caveat>,
}

impl Estimate {
    fn of(observed: &Observed) -> Self {
        Self {
            passed_s: observed.passed_s,
            lost_share: observed.lost_share(),
            fetch_faults: observed.faults(),
            fetch_us: observed.fetch_us(),
            needs: observed.needs(),
            curve: observed.curve(),
            caveats: observed.caveats(),
        }
    }
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
    let of_run = |seen: &Seen| {
        let snapshot = seen.answer.as_ref().ok().filter(|snapshot| is_called(snapshot, &pid))?;
        let Body::Run { run } = &snapshot.body else { return None };
        Some(((**run).clone(), snapshot.clone()))
    };
    let found = reader::look().into_iter().find_map(|seen| Some((of_run(&seen)?, seen)));
    let ((run, snapshot), seen) = found
        .ok_or_else(|| (1, format!("no run of yours has process {pid}; 'spillway status' lists them")))?;
    let whole = Observed::since_start(&run, snapshot.uptime_s);
    let past = reader::past(&seen, args.last);
    let last = past.map(|past| Observed::since(&past, &run, snapshot.uptime_s, whole.whole_bytes));
    if args.json {
        let advice = Advice {
            name: &snapshot.name,
            program_pid: run.program_pid,
            local_limit_bytes: run.local_limit_bytes,
            local_bytes: run.local_bytes,
            far_bytes: run.far_bytes,
            whole: Estimate::of(&whole),
            last: last.as_ref().map(Estimate::of),
        };
        let text = serde_json::to_string_pretty(&advice).map_err(|error| (1, error.to_string()))?;
        return print(&format!("{text}\n"));
    }
    print(&for_terminal(&describe(&snapshot, &run, &whole, last.as_ref())))
}

fn describe(snapshot: &Snapshot, run: &Run, whole: &Observed, last: Option<&Observed>) -> String {
    let mut text = format!(
        "{} ({}): {} of {} local, {} far\n",
        printable(&name_of(snapshot), 30),
        run.program_pid,
        bytes(run.local_bytes as f64),
        bytes(run.local_limit_bytes as f64),
        bytes(run.far_bytes as f64),
    );
    if run.far_bytes == 0 && whole.faults() == 0 {
        text += "nothing went far and came back: it has as much as it needs\n";
        return text;
    }
    let times: Vec<(String, Estimate)> = std::iter::once(("since its start", whole))
        .chain(last.map(|last| ("lately", last)))
        .map(|(when, observed)| (format!("{when} ({})", seconds(observed.passed_s)), Estimate::of(observed)))
        .collect();
    let mut line = |first: &str, of_time: &dyn Fn(&(String, Estimate)) -> String| {
        let columns: String = times.iter().map(|time| format!("   {:<27}", of_time(time))).collect();
        let _ = writeln!(text, "{first:>15}{}", columns.trim_end());
    };
    line("", &|(when, _)| when.clone());
    line("it lost", &|(_, estimate)| percent(estimate.lost_share));
    line("to lose at most", &|_| "it would need".to_owned());
    for (at, lost_share) in TARGETS.into_iter().enumerate() {
        line(&percent(lost_share), &|(_, estimate)| {
            let local_bytes = estimate.needs.get(at).and_then(|need| need.local_bytes);
            local_bytes.map_or_else(
                || "more alone is not enough".to_owned(),
                |local| format!("{} local", bytes(local as f64)),
            )
        });
    }
    line("by", &|(_, estimate)| format!("{} fetching faults", count(estimate.fetch_faults as f64)));
    line("that took", &|(_, estimate)| {
        estimate.fetch_us.map_or_else(|| "-".to_owned(), |us| format!("{} each", micros(us)))
    });
    text += "New pages are faulted on at any size.\n";
    let mut said = Vec::new();
    for caveat in times.into_iter().flat_map(|(_, estimate)| estimate.caveats) {
        if !said.contains(&caveat) {
            let _ = writeln!(text, "{}", caveat.sentence());
            said.push(caveat);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::metrics::tests::whole_snapshot;
    use crate::working_set::tests::observed;

    #[test]
    fn the_table_has_a_row_for_each_loss_and_a_column_for_each_time() {
        let snapshot = whole_snapshot();
        let Body::Run { run } = &snapshot.body else { panic!("no run") };
        let last = Observed { passed_s: 5.0, lost_us: 4.05e6, ..observed() };
        let text = describe(&snapshot, run, &observed(), Some(&last));
        for words in [
            "since its start (10s)",
            "lately (5s)",
            "it lost   50%",
            "3.5k fetching faults",
            "that took   1.1ms each",
        ] {
            assert!(text.contains(words), "no {words:?} in {text}");
        }
        let rows = |text: &str| text.lines().filter(|line| line.contains('%')).count();
        assert_eq!(rows(&text), 1 + TARGETS.len(), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80 || line.ends_with('.')), "{text}");
        let alone = describe(&snapshot, run, &observed(), None);
        assert!(!alone.contains("lately") && alone.contains("more alone is not enough"), "{alone}");
        let idle = Observed { returns: Vec::new(), ..observed() };
        let fits = Run { far_bytes: 0, ..(**run).clone() };
        assert!(describe(&snapshot, &fits, &idle, None).contains("as much as it needs"));
    }
}
