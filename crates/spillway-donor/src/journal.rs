//! What happens at a donor, as it happens: counted, and told as an event.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use spillway_core::size::Size;
use spillway_events::catalogue::donor as told;

use crate::peer::Peer;

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
    /// Somebody has it drained, or stay.
    Drain {
        /// Who has it so.
        peer: Peer,
        /// Whether its runs are to go elsewhere.
        is_draining: bool,
    },
    /// Its machine has become short of memory, or is so no more.
    Short {
        /// What the machine could still give.
        available: Size,
        /// What is kept free there.
        keep_free: Size,
        /// Which of the two.
        is_short: bool,
    },
    /// It is told to end, and waits for those that are there.
    Ending {
        /// Runs that it has.
        runs: u64,
        /// Connections that are open.
        connections: u64,
        /// The most that it waits.
        drain: Duration,
    },
    /// Something about the donor itself.
    Note(String),
}

impl Event {
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
            Self::Drain { peer, is_draining: true } => {
                format!("{peer} has it drained: no new run is let in, and those of pools move away")
            }
            Self::Drain { peer, is_draining: false } => {
                format!("{peer} has it stay: new runs are let in again")
            }
            Self::Short { available, keep_free, is_short: true } => format!(
                "this machine is short of memory ({available} available, {keep_free} are kept free): nothing \
                 is promised, and what runs on pools have here moves to others"
            ),
            Self::Short { available, is_short: false, .. } => {
                format!(
                    "this machine is short of memory no more ({available} available): the donor lends again"
                )
            }
            Self::Ending { runs, connections, drain } => format!(
                "it is told to end: nobody new is let in, and it waits up to {} s for {runs} runs and \
                 {connections} connections to end; a second signal ends it at once",
                drain.as_secs_f64()
            ),
            Self::Note(text) => text.clone(),
        }
    }

    fn tell(&self) {
        let text = &self.text();
        let of = |peer: &Peer| peer.to_string();
        match self {
            Self::ClientCame(peer) => told::client_came(text, &of(peer)),
            Self::ClientLeft { peer, connections, failed } => {
                told::client_left(text, &of(peer), *connections, *failed)
            }
            Self::ConnectionFailed { peer, reason } => told::connection_failed(text, &of(peer), reason),
            Self::ConnectionRefused { peer, reason } => told::connection_refused(text, &of(peer), reason),
            Self::RunGranted { run, peer, granted, free } => {
                told::run_granted(text, &of(peer), *run, granted.bytes(), free.bytes())
            }
            Self::Refused { peer, reason } => told::refused(text, &of(peer), reason),
            Self::RunEnded { run, peer, held } => told::run_ended(text, &of(peer), *run, held.bytes()),
            Self::RunLost { run, peer, grace } => told::run_lost(text, &of(peer), *run, grace.as_secs_f64()),
            Self::RunFound { run, peer } => told::run_found(text, &of(peer), *run),
            Self::RunExpired { run, peer, held } => told::run_expired(text, &of(peer), *run, held.bytes()),
            Self::ExportMade { name, peer } => told::export_made(text, &of(peer), name),
            Self::ExportDropped { name, held, peer } => {
                told::export_dropped(text, &of(peer), name, held.bytes())
            }
            Self::Drain { peer, is_draining } => told::draining(text, &of(peer), *is_draining),
            Self::Short { available, keep_free, is_short } => {
                told::short(text, available.bytes(), keep_free.bytes(), *is_short)
            }
            Self::Ending { runs, connections, .. } => told::ending(text, *runs, *connections),
            Self::Note(_) => told::note(text),
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

/// Counts events and tells them.
#[derive(Debug, Default)]
pub struct Journal {
    connections: AtomicU64,
    failed: AtomicU64,
    refused_connections: AtomicU64,
    granted: AtomicU64,
    refusals: AtomicU64,
    ended: AtomicU64,
    lost: AtomicU64,
    expired: AtomicU64,
}

impl Journal {
    /// Counts a connection that is served; its number.
    pub fn count_connection(&self) -> u64 {
        self.connections.fetch_add(1, Ordering::Relaxed)
    }

    /// Counts and tells what happened.
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
        event.tell();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_from_clients_stay_on_their_line() {
        let event = Event::ExportMade { name: "a\n\"b\u{1b}[2J".into(), peer: Peer::Unknown };
        assert_eq!(event.text(), "an unknown client made export 'a\\n\\\"b\\u{1b}[2J'");
    }
}
