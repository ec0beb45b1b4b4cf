//! The runs of a pool in `pool status`: as they have registered themselves, and as donors know them.

use serde::Serialize;
use spillway_store::membership::RunState;
use spillway_store::nbd::RunStanding;

use crate::short::{bytes, printable};

/// What a donor has for one run, as `--json` prints it.
#[derive(Serialize)]
pub(super) struct HeldRow {
    /// The donor's number for the run.
    pub(super) number: u64,
    promised_bytes: u64,
    held_bytes: u64,
    is_lost: bool,
}

impl From<RunStanding> for HeldRow {
    fn from(run: RunStanding) -> Self {
        let RunStanding { number, promised_bytes, held_bytes, is_lost } = run;
        Self { number, promised_bytes, held_bytes, is_lost }
    }
}

/// The runs that have registered themselves.
pub(super) fn registered(runs: &[RunState]) -> String {
    let line = |run: &str, copies: &str, sizes: [&str; 5], state: &str| {
        let [stored, spilled, fewer, left, rate] = sizes;
        format!("{run:<21} {copies:>6} {stored:>6} {spilled:>6} {fewer:>6} {left:>6} {rate:>8} {state}")
            .trim_end()
            .to_owned()
            + "\n"
    };
    let mut text = line("RUN", "COPIES", ["STORED", "SPILL", "FEWER", "LEFT", "COPIED/S"], "");
    for run in runs {
        let size = |size: u64| bytes(size as f64);
        // The number is what tells runs of one host apart.
        let pid = format!(":{}", run.pid);
        let name = printable(&run.host, 21_usize.saturating_sub(pid.len())) + &pid;
        let is_copying = run.left_bytes > 0 && run.copied_bytes_per_s > 0;
        let state = match (run.unreachable_bytes, run.endangered_bytes) {
            (1.., _) => "waiting",
            _ if is_copying => "copying",
            (_, 1..) => "in danger",
            _ => "well",
        };
        let [stored, spilled] = [run.stored_bytes, run.spilled_bytes];
        let [fewer, left, rate] = [run.endangered_bytes, run.left_bytes, run.copied_bytes_per_s];
        let sizes = [stored, spilled, fewer, left, rate].map(size);
        text += &line(&name, &run.copies.to_string(), sizes.each_ref().map(String::as_str), state);
    }
    text
}

/// What each donor has for each of its runs.
pub(super) fn held<'a>(donors: impl Iterator<Item = (&'a str, &'a [HeldRow])>) -> String {
    let mut text = String::new();
    for (donor, runs) in donors {
        for run in runs {
            if text.is_empty() {
                text += "DONOR                    RUN  PROMISED  HOLDS\n";
            }
            let size = |size: u64| bytes(size as f64);
            let state = if run.is_lost { " lost" } else { "" };
            let (promised, holds) = (size(run.promised_bytes), size(run.held_bytes));
            text += &format!("{donor:<21} {:>6} {promised:>9} {holds:>6}{state}\n", run.number);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(host: &str) -> RunState {
        RunState {
            host: host.into(),
            pid: 4_194_304,
            copies: 2,
            stored_bytes: 24 << 30,
            endangered_bytes: 8 << 30,
            left_bytes: 7 << 30,
            copied_bytes_per_s: 930_000_000,
            ..RunState::default()
        }
    }

    #[test]
    fn runs_fit_80_columns_and_say_how_they_are() {
        let well = RunState { endangered_bytes: 0, left_bytes: 0, ..run("b") };
        let waiting = RunState { unreachable_bytes: 1, ..run("c") };
        let idle = RunState { copied_bytes_per_s: 0, ..run("d") };
        let runs = [run(&"long-name-of-a-host.".repeat(9)), well, waiting, idle];
        let text = registered(&runs);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let ends: Vec<&str> =
            text.lines().skip(1).map(|line| line.rsplit("  ").next().unwrap_or(line)).collect();
        for (end, state) in ends.iter().zip(["copying", "well", "waiting", "in danger"]) {
            assert!(end.ends_with(state), "{text}");
        }
        assert!(
            text.lines().nth(1).is_some_and(|line| line.contains(":4194304") && line.contains("7.0G")),
            "{text}"
        );
    }

    #[test]
    fn what_donors_have_for_runs_fits_too() {
        let rows = [
            HeldRow { number: 7, promised_bytes: 16 << 30, held_bytes: 1 << 30, is_lost: false },
            HeldRow { number: 123_456, promised_bytes: 16 << 30, held_bytes: 0, is_lost: true },
        ];
        let text = held([("255.255.255.255:65535", &rows[..]), ("b:1", &[])].into_iter());
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.lines().nth(2).is_some_and(|line| line.ends_with(" lost")), "{text}");
        assert_eq!(held([("b:1", &[][..])].into_iter()), "");
    }
}
