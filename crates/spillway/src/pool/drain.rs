//! `spillway pool drain`: has everything moved off a donor that is to be switched off.

use std::collections::VecDeque;
use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use spillway_core::page::PAGE_SIZE;
use spillway_core::size::Size;
use spillway_store::nbd::Door;
use spillway_store::nbd::connection::ConnectError;
use spillway_store::spec::PoolDonor;

use super::reach::Reach;
use crate::exit::{Refusal, complain};
use crate::stop::{self, wait_or_stop};

/// How long the donor may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often it is asked.
const PERIOD: Duration = Duration::from_millis(500);
/// A donor that does not answer is asked again for so long.
const AWAY: Duration = Duration::from_secs(5);
/// What does not move for so long needs a word.
const STUCK: Duration = Duration::from_secs(10);
/// The time left is told by what has moved in so long.
const PACE: Duration = Duration::from_secs(5);
/// By less than this it is not told: the first pages say little.
const LEAST_PACE: Duration = Duration::from_secs(1);

const EXAMPLE: &str = "\
Examples:
  spillway pool drain 10.0.0.2:10809
  spillway pool drain 10.0.0.2:10809 --stop

The donor lets in no new run and serves those that it has. Every run of a pool
moves what it has there to its other donors, and goes on meanwhile. When no
run has anything there any more, a line says that it may be switched off. A run
that has it as nbd:// store keeps it until it ends.

Ctrl-C calls it off, as --stop does: the donor takes runs and pages again.

Exit status: 0 once it may be switched off; 1 if it was called off, or the
donor does not answer.";

/// Move everything off a donor, so that it may be switched off.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLE)]
pub struct DrainArgs {
    /// Which donor, by its address and port
    #[arg(value_name = "HOST:PORT")]
    donor: PoolDonor,
    #[command(flatten)]
    reach: Reach,
    /// Call off what an earlier command began: the donor stays
    #[arg(long)]
    stop: bool,
    /// Print lines as JSON
    #[arg(long)]
    json: bool,
}

/// How far it is, as `--json` prints it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Progress {
    donor: String,
    runs_left: u64,
    pages_left: u64,
    bytes_left: u64,
    /// What exports hold that were opened by name: nobody moves that.
    named_bytes: u64,
    /// It may be switched off.
    is_drained: bool,
}

impl Progress {
    /// Whether it is further than another. Pages come and go while runs go on.
    fn is_beyond(&self, other: &Self) -> bool {
        self.is_drained || self.runs_left != other.runs_left || self.pages_left < other.pages_left
    }
}

/// What was left at the looks of the last seconds, in bytes.
#[derive(Debug, Default)]
struct Pace(VecDeque<(Instant, u64)>);

impl Pace {
    /// Notes what is left, and says how long the rest takes by what has moved of late; none where nothing
    /// has, or it is too early to tell.
    fn note(&mut self, now: Instant, bytes_left: u64) -> Option<Duration> {
        self.0.push_back((now, bytes_left));
        while self.0.get(1).is_some_and(|(at, _)| now.duration_since(*at) >= PACE) {
            self.0.pop_front();
        }
        let &(since, before) = self.0.front()?;
        let passed = now.duration_since(since);
        let moved = before.checked_sub(bytes_left).filter(|&moved| moved > 0 && passed >= LEAST_PACE)?;
        Duration::try_from_secs_f64(passed.as_secs_f64() * bytes_left as f64 / moved as f64).ok()
    }
}

/// A time as it is told where it is no more than an estimate.
fn about(left: Duration) -> String {
    match left.as_secs_f64() {
        seconds if seconds < 120.0 => format!("; about {:.0} s", seconds.ceil()),
        seconds => format!("; about {:.0} min", (seconds / 60.0).ceil()),
    }
}

/// Has a donor drained, and waits for it; or calls that off.
pub fn drain(args: &DrainArgs) -> Result<ExitCode, Refusal> {
    let door = args.reach.door(&args.donor).map_err(|reason| (1, reason))?;
    // Before anything is begun, so that it can be called off from then on.
    let stop = stop::on(&[SIGHUP, SIGINT, SIGTERM]).map_err(|error| (1, format!("signals: {error}")))?;
    tell(args, &door, !args.stop)?;
    if args.stop {
        say(args, &format!("donor {} stays: it takes runs and pages again", args.donor));
        return Ok(ExitCode::SUCCESS);
    }
    let mut last: Option<Progress> = None;
    let (mut moved, mut has_told_stuck) = (Instant::now(), false);
    let (mut away_since, mut pace) = (None, Pace::default());
    loop {
        match look(args, &door) {
            Ok(progress) => {
                away_since = None;
                let left = pace.note(Instant::now(), progress.bytes_left);
                if last.as_ref().is_none_or(|last| progress.is_beyond(last)) {
                    moved = Instant::now();
                    report(args, &progress, left);
                    last = Some(progress.clone());
                }
                if progress.is_drained {
                    return Ok(ExitCode::SUCCESS);
                }
            }
            Err(error) => {
                let since = *away_since.get_or_insert_with(Instant::now);
                if since.elapsed() >= AWAY {
                    return Err((1, gone(args, &error)));
                }
            }
        }
        if moved.elapsed() >= STUCK && !std::mem::replace(&mut has_told_stuck, true) {
            complain(format!("pool: {}", stuck(args)));
        }
        if wait_or_stop(&stop, Instant::now() + PERIOD) {
            tell(args, &door, false)?;
            let text = format!("called off: donor {} stays; what was moved stays where it is", args.donor);
            return Err((1, text));
        }
    }
}

fn tell(args: &DrainArgs, door: &Door, is_draining: bool) -> Result<(), Refusal> {
    spillway_store::nbd::drain(door, is_draining, PATIENCE).map_err(|error| {
        (1, format!("donor {}: {error}; see that it runs, and is of this version", args.donor))
    })
}

fn look(args: &DrainArgs, door: &Door) -> Result<Progress, ConnectError> {
    let standing = spillway_store::nbd::standing(door, PATIENCE)?;
    if !standing.is_draining {
        let reason = "it is not being drained any more: somebody has called that off, or it was restarted";
        return Err(ConnectError::Refused(reason.to_owned()));
    }
    Ok(Progress {
        donor: args.donor.to_string(),
        runs_left: standing.runs,
        pages_left: standing.run_bytes / PAGE_SIZE as u64,
        bytes_left: standing.run_bytes,
        named_bytes: standing.held_bytes.saturating_sub(standing.run_bytes),
        is_drained: standing.runs == 0,
    })
}

fn report(args: &DrainArgs, progress: &Progress, left: Option<Duration>) {
    let Progress { donor, runs_left, pages_left, bytes_left, named_bytes, is_drained } = progress;
    let size = Size::from_bytes;
    let text = if args.json {
        serde_json::to_string(progress).unwrap_or_default()
    } else if !is_drained {
        let (bytes_left, about) = (size(*bytes_left), left.map_or_else(String::new, about));
        format!("donor {donor}: {pages_left} pages ({bytes_left}) of {runs_left} runs are left{about}")
    } else if *named_bytes > 0 {
        let kept = size(*named_bytes);
        format!("donor {donor} holds nothing of any run; exports by name hold {kept}, which go with it")
    } else {
        format!("donor {donor} may be switched off: no run has anything there")
    };
    say_line(&text);
}

/// Says something that is no progress.
fn say(args: &DrainArgs, text: &str) {
    if args.json { complain(format!("pool: {text}")) } else { say_line(text) }
}

fn say_line(text: &str) {
    let mut out = std::io::stdout().lock();
    // It goes on when nobody reads its lines.
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

fn gone(args: &DrainArgs, error: &ConnectError) -> String {
    format!(
        "donor {}: {error}; runs of a pool that had pages there copy them from their other donors",
        args.donor
    )
}

fn stuck(args: &DrainArgs) -> String {
    format!(
        "nothing has moved off donor {} for {} s: its runs may have no other donor with room (they say so), \
         or be nbd:// runs, which keep it until they end; it is waited for, and Ctrl-C calls it off",
        args.donor,
        STUCK.as_secs()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_is_by_what_has_moved_of_late() {
        let began = Instant::now();
        let at = |ms| began + Duration::from_millis(ms);
        let mut pace = Pace::default();
        assert_eq!(pace.note(at(0), 1000), None);
        // Too early to tell.
        assert_eq!(pace.note(at(500), 900), None);
        assert_eq!(pace.note(at(1000), 800), Some(Duration::from_secs(4)));
        // Nothing has moved, or pages have come.
        for ms in [6000, 6500, 7500] {
            pace.note(at(ms), 800);
        }
        assert_eq!(pace.note(at(11_000), 800), None);
        assert_eq!(pace.note(at(11_500), 900), None);
        // What came long ago does not count.
        assert_eq!(pace.note(at(16_500), 400), Some(Duration::from_secs(4)));
    }

    #[test]
    fn times_are_told_in_round_numbers() {
        let told = |seconds| about(Duration::from_secs_f64(seconds));
        assert_eq!([told(0.2), told(11.5), told(119.9)], ["; about 1 s", "; about 12 s", "; about 120 s"]);
        assert_eq!(told(121.0), "; about 3 min");
    }
}
