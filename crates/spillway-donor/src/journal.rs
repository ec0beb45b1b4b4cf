//! What happens at a donor, as it happens: counted, and written down a line an event.
//!
//! Lines are limited in number, each kind of event by itself, so that a client that knocks a thousand times a
//! second fills no disk, and hides nothing else.

use std::io::Write;
use std::os::fd::AsFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};
use spillway_core::size::Size;

use crate::lock;
use crate::peer::Peer;

/// Lines of one kind that may follow each other at once.
const BURST: u32 = 20;
/// Then one comes in this time.
const PAUSE: Duration = Duration::from_secs(1);

/// How events are written down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LineStyle {
    /// They are only counted.
    #[default]
    None,
    /// Lines that are whole sentences.
    Text,
    /// As JSON objects: `event`, and `text` with the sentence.
    Json,
}

/// Something that happened at the donor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The first connection of a client.
    ClientCame(Peer),
    /// Its last one ended.
    ClientLeft {
        /// Which client it was, by address or user.
        peer: Peer,
        /// Connections that it has had since it came.
        connections: u64,
        /// Of these, those that ended by its fault.
        failed: u64,
    },
    /// A connection ended by the client's fault.
    ConnectionFailed {
        /// Which client it was, by address or user.
        peer: Peer,
        /// What it did, in words.
        reason: String,
    },
    /// A connection was turned away, or ended for the sake of another.
    ConnectionRefused {
        /// Which client it was, by address or user.
        peer: Peer,
        /// Why it came to that.
        reason: String,
    },
    /// A run begins, with memory that is promised to it.
    RunGranted {
        /// The number that the donor gave the run.
        run: u64,
        /// Which client it was, by address or user.
        peer: Peer,
        /// How much it is promised.
        granted: Size,
        /// How much is left to promise.
        free: Size,
    },
    /// A run, or an export, was refused.
    Refused {
        /// Which client it was, by address or user.
        peer: Peer,
        /// Why it came to that.
        reason: String,
    },
    /// A run has ended, and its memory is given back.
    RunEnded {
        /// The number that the donor gave the run.
        run: u64,
        /// Which client it was, by address or user.
        peer: Peer,
        /// What it had stored.
        held: Size,
    },
    /// The last connection of a run is lost; its memory is kept for the grace time.
    RunLost {
        /// The number that the donor gave the run.
        run: u64,
        /// Which client it was, by address or user.
        peer: Peer,
        /// How long it is waited for.
        grace: Duration,
    },
    /// A run that was lost is connected again.
    RunFound {
        /// The number that the donor gave the run.
        run: u64,
        /// Which client it was, by address or user.
        peer: Peer,
    },
    /// Nobody came back for a run in its grace time.
    RunExpired {
        /// The number that the donor gave the run.
        run: u64,
        /// Which client it was, by address or user.
        peer: Peer,
        /// What it had stored.
        held: Size,
    },
    /// A named export was made.
    ExportMade {
        /// The name of the export.
        name: String,
        /// Which client it was, by address or user.
        peer: Peer,
    },
    /// A named export was dropped.
    ExportDropped {
        /// The name of the export.
        name: String,
        /// What it held, in bytes.
        held: Size,
        /// Which client it was, by address or user.
        peer: Peer,
    },
    /// Something about the donor itself.
    Note(String),
}

const KINDS: usize = 12;

impl Event {
    /// The kind's name and its place in tables.
    fn kind(&self) -> (&'static str, usize) {
        match self {
            Self::ClientCame(_) => ("client_came", 0),
            Self::ClientLeft { .. } => ("client_left", 1),
            Self::ConnectionFailed { .. } => ("connection_failed", 2),
            Self::ConnectionRefused { .. } => ("connection_refused", 3),
            Self::RunGranted { .. } => ("run_granted", 4),
            Self::Refused { .. } => ("refused", 5),
            Self::RunEnded { .. } => ("run_ended", 6),
            Self::RunLost { .. } => ("run_lost", 7),
            Self::RunFound { .. } => ("run_found", 8),
            Self::RunExpired { .. } => ("run_expired", 9),
            Self::ExportMade { .. } => ("export_made", 10),
            Self::ExportDropped { .. } => ("export_dropped", 11),
            // Of these there are a few in a donor's life.
            Self::Note(_) => ("note", KINDS),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::ClientCame(peer) => format!("{peer} has come"),
            Self::ClientLeft { peer, connections, failed } => {
                format!("{peer} has left, after {connections} connections, of which {failed} failed")
            }
            Self::ConnectionFailed { peer, reason } => format!("a connection of {peer} failed: {reason}"),
            Self::ConnectionRefused { peer, reason } => {
                format!("a connection of {peer} was turned away: {reason}")
            }
            Self::RunGranted { run, peer, granted, free } => {
                format!("run {run} of {peer} begins: {granted} promised, {free} left to promise")
            }
            Self::Refused { peer, reason } => format!("{peer} was refused: {reason}"),
            Self::RunEnded { run, peer, held } => {
                format!("run {run} of {peer} has ended: {held} given back")
            }
            Self::RunLost { run, peer, grace } => format!(
                "run {run} of {peer} is lost: all its connections ended; its memory is kept for {} s",
                grace.as_secs_f64()
            ),
            Self::RunFound { run, peer } => format!("run {run} of {peer} is back"),
            Self::RunExpired { run, peer, held } => {
                format!("run {run} of {peer} did not come back: {held} given back")
            }
            Self::ExportMade { name, peer } => format!("{peer} made export '{}'", name.escape_default()),
            Self::ExportDropped { name, held, peer } => {
                format!("{peer} dropped export '{}': {held} given back", name.escape_default())
            }
            Self::Note(text) => text.clone(),
        }
    }
}

/// What has been counted since the donor began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Connections that were served.
    pub connections: u64,
    /// Of these, connections that ended by the client's fault: garbage, truncation, stalling.
    pub failed_connections: u64,
    /// Connections that were turned away, or ended for the sake of others.
    pub refused_connections: u64,
    /// Runs that were promised memory.
    pub granted_runs: u64,
    /// Runs and exports that were refused.
    pub refusals: u64,
    /// Runs that ended and gave their memory back.
    pub ended_runs: u64,
    /// Times that a run's last connection was lost.
    pub lost_runs: u64,
    /// Lost runs that nobody came back for.
    pub expired_runs: u64,
    /// Requests of connections that have ended, and of those that are open.
    pub requests: u64,
    /// Bytes that were written to exports, by the same connections.
    pub written_bytes: u64,
    /// Bytes that were read from exports, by the same connections.
    pub read_bytes: u64,
}

/// Counts events and writes them down.
#[derive(Debug)]
pub struct Journal {
    style: LineStyle,
    /// Of each kind: lines that may be written now, since when, and how many were not.
    allowances: Mutex<[Allowance; KINDS]>,
    connections: AtomicU64,
    failed: AtomicU64,
    refused_connections: AtomicU64,
    granted: AtomicU64,
    refusals: AtomicU64,
    ended: AtomicU64,
    lost: AtomicU64,
    expired: AtomicU64,
}

#[derive(Clone, Copy, Debug)]
struct Allowance {
    lines: u32,
    since: Option<Instant>,
    unwritten: u64,
}

impl Allowance {
    /// Whether a line may be written now; then also how many were not since the last one.
    fn ask(&mut self, now: Instant) -> Option<u64> {
        let since = *self.since.get_or_insert(now);
        let earned = now.saturating_duration_since(since).as_secs() / PAUSE.as_secs();
        if earned > 0 {
            self.lines = self.lines.saturating_add(earned.min(u64::from(BURST)) as u32).min(BURST);
            self.since = Some(now);
        }
        if self.lines == 0 {
            self.unwritten += 1;
            return None;
        }
        self.lines -= 1;
        Some(std::mem::take(&mut self.unwritten))
    }
}

impl Journal {
    /// A journal that begins.
    #[must_use]
    pub fn new(style: LineStyle) -> Self {
        Self {
            style,
            allowances: Mutex::new([Allowance { lines: BURST, since: None, unwritten: 0 }; KINDS]),
            connections: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            refused_connections: AtomicU64::new(0),
            granted: AtomicU64::new(0),
            refusals: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            expired: AtomicU64::new(0),
        }
    }

    /// Counts a connection that is served; its number.
    pub fn count_connection(&self) -> u64 {
        self.connections.fetch_add(1, Ordering::Relaxed)
    }

    /// Counts and writes down what happened.
    pub fn tell(&self, event: &Event) {
        let count = match event {
            Event::ConnectionFailed { .. } => Some(&self.failed),
            Event::ConnectionRefused { .. } => Some(&self.refused_connections),
            Event::RunGranted { .. } => Some(&self.granted),
            Event::Refused { .. } => Some(&self.refusals),
            Event::RunEnded { .. } => Some(&self.ended),
            Event::RunLost { .. } => Some(&self.lost),
            Event::RunExpired { .. } => Some(&self.expired),
            _ => None,
        };
        if let Some(count) = count {
            count.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(line) = self.line(event, Instant::now()) {
            write_down(&line);
        }
    }

    fn line(&self, event: &Event, now: Instant) -> Option<String> {
        let (name, kind) = event.kind();
        let unwritten = match lock(&self.allowances).get_mut(kind) {
            Some(allowance) => allowance.ask(now)?,
            None => 0,
        };
        let mut text = event.text();
        if unwritten > 0 {
            text.push_str(&format!(" ({unwritten} lines like this one were left out before it)"));
        }
        match self.style {
            LineStyle::None => None,
            LineStyle::Text => Some(format!("spillway donor: {text}")),
            LineStyle::Json => {
                let line = serde_json::json!({ "event": name, "text": text, "left_out": unwritten });
                Some(line.to_string())
            }
        }
    }

    /// What was counted; requests and bytes are the connections'.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counts {
            connections: get(&self.connections),
            failed_connections: get(&self.failed),
            refused_connections: get(&self.refused_connections),
            granted_runs: get(&self.granted),
            refusals: get(&self.refusals),
            ended_runs: get(&self.ended),
            lost_runs: get(&self.lost),
            expired_runs: get(&self.expired),
            ..Counts::default()
        }
    }
}

/// Writes a line to stderr. The donor serves on when nobody reads its lines: a pipe that is full gets none.
fn write_down(line: &str) {
    let stderr = std::io::stderr();
    let mut fds = [PollFd::from_borrowed_fd(stderr.as_fd(), PollFlags::OUT)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    if matches!(poll(&mut fds, Some(&at_once)), Ok(ready) if ready > 0) {
        let _ = writeln!(&stderr, "{line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_limited_by_kind_and_what_was_left_out_is_told() {
        let journal = Journal::new(LineStyle::Text);
        let now = Instant::now();
        let failed = Event::ConnectionFailed { peer: Peer::User(5), reason: "garbage".into() };
        let written = (0..1000).filter(|_| journal.line(&failed, now).is_some()).count();
        assert_eq!(written, BURST as usize);
        let other = journal.line(&Event::ClientCame(Peer::User(6)), now).unwrap();
        assert_eq!(other, "spillway donor: user 6 has come");
        let later = journal.line(&failed, now + PAUSE).unwrap();
        assert_eq!(
            later,
            "spillway donor: a connection of user 5 failed: garbage (980 lines like this one were left out \
             before it)"
        );
        assert!(journal.line(&failed, now + PAUSE).is_none());
        assert!(journal.line(&Event::Note("ends".into()), now).is_some());
    }

    #[test]
    fn names_from_clients_stay_on_their_line_and_json_is_json() {
        let journal = Journal::new(LineStyle::Json);
        let event = Event::ExportMade { name: "a\n\"b\u{1b}[2J".into(), peer: Peer::Unknown };
        let line = journal.line(&event, Instant::now()).unwrap();
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["event"], "export_made");
        assert_eq!(value["text"], "an unknown client made export 'a\\n\\\"b\\u{1b}[2J'");
        assert!(Journal::new(LineStyle::None).line(&event, Instant::now()).is_none());
    }
}
