//! What a run or a daemon says of itself at one moment.
//!
//! Counters grow from the start of what is reported; a reader that wants rates looks twice and divides by the
//! difference of `uptime_s`. docs/reference/snapshot.md describes each key.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::heat::HeatMap;
use crate::histogram::Latency;
use crate::sites::Sites;

/// The version of the form. It grows when a key changes its meaning or goes; new keys leave it as it is.
pub const VERSION: u32 = 1;

/// One look at what is alive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// [`VERSION`] of who answers.
    pub version: u32,
    /// The version of Spillway that answers.
    pub spillway_version: String,
    /// The process that answers: a run's supervisor, or a daemon.
    pub pid: u32,
    /// The user who runs it, by number.
    pub uid: u32,
    /// The name of a run's program, or of the daemon.
    pub name: String,
    /// Time since its start, in seconds.
    pub uptime_s: f64,
    /// What it is, and what it has to say.
    #[serde(flatten)]
    pub body: Body,
}

/// What is alive, by its kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Body {
    /// Programs under `spillway run`.
    Run {
        /// What is counted of the run.
        run: Box<Run>,
    },
    /// A donor of memory, `spillway donor`.
    Donor {
        /// As `spillway donor status --json` prints it.
        donor: Value,
    },
    /// The daemon `spillway tier`.
    Tier {
        /// As `spillway tier status --json` prints it.
        tier: Value,
    },
}

/// Faults since the start, by what they needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Faults {
    /// First touch of a page.
    pub first_touch: u64,
    /// A page fetched from a store.
    pub fetch: u64,
    /// A page that was local but unmapped.
    pub inactive: u64,
    /// A page under write-back.
    pub writeback: u64,
    /// Nothing: served meanwhile, or write protection lifted.
    pub other: u64,
    /// A page that cannot be had: SIGBUS.
    pub refused: u64,
}

impl Faults {
    /// What came since `before`, which is an earlier look at the same faults.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            first_touch: self.first_touch.saturating_sub(before.first_touch),
            fetch: self.fetch.saturating_sub(before.fetch),
            inactive: self.inactive.saturating_sub(before.inactive),
            writeback: self.writeback.saturating_sub(before.writeback),
            other: self.other.saturating_sub(before.other),
            refused: self.refused.saturating_sub(before.refused),
        }
    }

    /// Faults of every kind.
    #[must_use]
    pub fn all(&self) -> u64 {
        let Self { first_touch, fetch, inactive, writeback, other, refused } = *self;
        // Who tells of itself may tell anything.
        [first_touch, fetch, inactive, writeback, other, refused].into_iter().fold(0, u64::saturating_add)
    }
}

/// A run: a program under `spillway run`, with what it has started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The program's process, by number.
    pub program_pid: u32,
    /// `thread` or `inline`: who serves faults.
    pub fault_mode: String,
    /// Why in that mode.
    pub fault_mode_reason: String,
    /// Most memory that may be local.
    pub local_limit_bytes: u64,
    /// Memory that is local, what is left to the kernel included.
    pub local_bytes: u64,
    /// The most that ever was.
    pub peak_local_bytes: u64,
    /// Of the local memory, what is left to the kernel, for it fits under the limit. It counts whole, as it
    /// was mapped.
    pub native_bytes: u64,
    /// Memory that is far.
    pub far_bytes: u64,
    /// Faults of all processes.
    pub faults: Faults,
    /// How long faults took, and how long together: the time lost to paging, summed over threads.
    pub fault_latency: Latency,
    /// Faults that fetched a page, by how much had left since it did. Runs of before this key was have none.
    #[serde(default)]
    pub returns: Vec<Return>,
    /// Pages read from stores.
    pub fetched_pages: u64,
    /// Pages written to stores.
    pub written_pages: u64,
    /// What was fetched before a fault asked for it.
    pub prefetch: Prefetch,
    /// What left, and how.
    pub evictions: Evictions,
    /// The stores, in the order in which they are filled.
    pub stores: Vec<Store>,
    /// The processes with most memory, local and far, at most [`MOST_PROCESSES`].
    pub processes: Vec<Process>,
    /// How many processes there are beyond these.
    pub processes_unlisted: u64,
    /// Processes that ran managed since the start.
    pub processes_started: u64,
    /// Where its programs waited for pages: in histories alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sites: Option<Sites>,
}

/// Faults that fetched pages which had been away about as long: had so much more been local, they would not
/// have been.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Return {
    /// Less than this, in bytes, had left the process since their pages did.
    pub within_bytes: u64,
    /// How many faults these are.
    pub faults: u64,
    /// What they took together, in microseconds.
    pub total_us: f64,
}

/// Processes in one snapshot.
pub const MOST_PROCESSES: usize = 256;

/// Pages fetched before a fault asked for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Prefetch {
    /// How many pages these are.
    pub fetched_ahead_pages: u64,
    /// The share of them that was used, 0 to 1: a lower bound. None where it cannot be known.
    pub accuracy: Option<f64>,
}

/// Pages that left local memory, and those that did not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evictions {
    /// Written to a store.
    pub written_pages: u64,
    /// Dropped, for a store held the same contents.
    pub clean_dropped_pages: u64,
    /// Dropped, for they held zeros.
    pub zero_dropped_pages: u64,
    /// Kept though their turn had come, for scans found them in use.
    pub kept_in_use_pages: u64,
    /// Not evicted, for they could not be: pinned and the like, counted each time.
    pub refused_pages: u64,
    /// Writes that a store refused.
    pub failed_writes: u64,
    /// Writes that a touch made useless.
    pub cancelled_writes: u64,
}

/// How a store is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// It answers, and has room.
    #[default]
    Ok,
    /// It has turned pages away within the last ten seconds, for want of room.
    Full,
    /// It does not answer, and who needs its pages waits.
    Silent,
    /// It has failed a page within the last ten seconds.
    Failing,
    /// The supervisor could not open it, or it is told in a word of a later version.
    #[serde(other)]
    Unknown,
}

/// A store of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Store {
    /// As the user named it.
    pub uri: String,
    /// Pages that it may hold, in bytes before compression.
    pub capacity_bytes: u64,
    /// Pages that it holds, in bytes before compression.
    pub used_bytes: u64,
    /// Memory or disk that it takes; none where it does not say.
    pub stored_bytes: Option<u64>,
    /// Most memory or disk that it may take; none where only the number of pages is bounded.
    pub stored_limit_bytes: Option<u64>,
    /// Bytes before compression to bytes stored; none where nothing is compressed.
    pub compression_ratio: Option<f64>,
    /// Pages read from it.
    pub fetched_pages: u64,
    /// Pages written to it.
    pub written_pages: u64,
    /// Pages that could not be read, or came back wrong.
    pub failed_reads: u64,
    /// Pages that could not be written, but for want of room.
    pub failed_writes: u64,
    /// Pages that it had no room for.
    pub full_refusals: u64,
    /// Of a pool's donor: reads that were asked of another donor too, since this one was silent for longer
    /// than usual. Runs of before this key was hedge none.
    #[serde(default)]
    pub hedged_reads: u64,
    /// Pages are encrypted and signed before they go there. Runs of before this key was do not.
    #[serde(default)]
    pub is_sealed: bool,
    /// How it is at this moment.
    pub health: Health,
}

/// A process of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// By number, as the supervisor knows it; none for one that is being made, or lives in another namespace.
    pub pid: Option<u32>,
    /// What it is called; none where it cannot be read.
    pub name: Option<String>,
    /// `thread` or `inline`: who serves its faults at this moment.
    pub fault_mode: String,
    /// Memory that is local, what is left to the kernel included.
    pub local_bytes: u64,
    /// Of that, what is left to the kernel.
    pub native_bytes: u64,
    /// Memory that is far.
    pub far_bytes: u64,
    /// Its faults since its start.
    pub faults: Faults,
    /// How long they took.
    pub fault_latency: Latency,
    /// Pages read from stores.
    pub fetched_pages: u64,
    /// Of these, those that no fault had asked for yet.
    pub fetched_ahead_pages: u64,
    /// Pages written to stores.
    pub written_pages: u64,
    /// How pages left it, and why some did not. Histories of before this was told have none.
    #[serde(default)]
    pub evictions: Evictions,
    /// Where its memory is and how much it is used: in histories alone, and not of each process there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heat: Option<HeatMap>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_summed_whatever_is_told() {
        let faults = Faults { first_touch: 1, refused: 2, ..Faults::default() };
        assert_eq!(faults.all(), 3);
        assert_eq!(Faults { fetch: u64::MAX, ..faults }.all(), u64::MAX);
    }
}
