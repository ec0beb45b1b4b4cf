//! What a daemon says of itself: the form of its reports.

use serde::{Deserialize, Serialize};

use crate::history::{Move, Sum};
use crate::link::LinkStatus;
use crate::live::Counts;
use crate::markers::MarkerCounts;
use crate::pace::ScanPace;
use crate::process::ProcessLayout;
use crate::source::SourceCounts;
use spillway_policy::machine::Tier;

/// The state of the daemon, as `spillway tier status` prints it.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// The daemon's process, by number.
    pub pid: u32,
    /// How long it has run, in seconds.
    pub uptime_s: f64,
    /// Nodes of local memory.
    pub fast: String,
    /// Nodes of far memory.
    pub slow: String,
    /// Where its knowledge comes from.
    pub source: SourceStatus,
    /// The way to far memory.
    pub link: LinkStatus,
    /// How marked pages come to local memory.
    pub migration: MigrationStatus,
    /// Memory that it manages.
    pub managed_bytes: u64,
    /// CPU time of all it does, of one core, since its start.
    pub cpu_pct: f64,
    /// The same for 10 GiB managed; none where nothing is managed.
    pub cpu_pct_per_10_gib: Option<f64>,
    /// The groups that it manages.
    pub groups: Vec<GroupStatus>,
}

/// The telemetry source that is in use.
#[derive(Clone, Debug, Serialize)]
pub struct SourceStatus {
    /// The name that it goes by.
    pub name: String,
    /// Why it was chosen.
    pub why: String,
    /// To what it is exact.
    pub precision: String,
    /// What its knowledge costs, in words.
    pub cost: String,
    /// What it was told.
    #[serde(flatten)]
    pub counts: SourceCounts,
}

/// How marked pages come to local memory.
#[derive(Clone, Debug, Serialize)]
pub struct MigrationStatus {
    /// `on-demand`: by the next access, which stops at the page. `batches`: with what a scan found accessed.
    pub by: &'static str,
    /// Why it is so.
    pub why: String,
    /// Processes with a marker.
    pub markers: usize,
    /// What markers did.
    #[serde(flatten)]
    pub counts: MarkerCounts,
}

/// The state of one group.
#[derive(Clone, Debug, Serialize)]
pub struct GroupStatus {
    /// The name that it goes by.
    pub name: String,
    /// The name of its policy.
    pub policy: String,
    /// Its processes at present, by number.
    pub processes: Vec<u32>,
    /// Most local memory at present.
    pub local_limit_bytes: u64,
    /// Managed memory that is local.
    pub local_bytes: u64,
    /// Managed memory that is far.
    pub far_bytes: u64,
    /// Memory that is left alone.
    pub left_alone: ProcessLayout,
    /// Scans of its processes so far.
    pub scans: u64,
    /// Time between the last two, in milliseconds.
    pub scan_interval_ms: f64,
    /// What decides when they come.
    pub scan_pace: ScanPace,
    /// Of the scans, those that came early because local memory was short.
    pub early_scans: u64,
    /// How far that has come: at 0 scans come steadily, at 3 eight times as often.
    pub scan_pressure: u32,
    /// CPU time of scans, of one core, since the start.
    pub telemetry_cpu_pct: f64,
    /// Of the pages that scans found in use, the share that was local; none before the first.
    pub local_use_ratio: Option<f64>,
    /// What happened since the start, in numbers.
    #[serde(flatten)]
    pub counts: Counts,
    /// What moved in the last minute, and why, in pages.
    pub last_minute: Vec<Sum>,
    /// Why migrations are paused, if they are.
    pub paused: Option<String>,
    /// What the policy goes by at present, where its name and settings do not tell.
    pub remark: Option<String>,
    /// How often the policy began anew because the processes had outgrown what it knew.
    pub policy_restarts: u64,
    /// Why it is no longer managed, if it is not.
    pub ended: Option<String>,
}

/// What is known of a process, or of a page of it.
#[derive(Clone, Debug, Serialize)]
pub struct Explanation {
    /// The process that was asked about.
    pub process: u32,
    /// The group that it belongs to.
    pub group: String,
    /// The policy of the group.
    pub policy: String,
    /// Its managed memory that is local.
    pub local_bytes: u64,
    /// Of its memory, what lies far, in bytes.
    pub far_bytes: u64,
    /// Its memory that is left alone.
    pub left_alone: ProcessLayout,
    /// Why migrations are paused, if they are.
    pub paused: Option<String>,
    /// The page that was asked about.
    pub page: Option<PageExplanation>,
}

/// What is known of a page.
#[derive(Clone, Debug, Serialize)]
pub struct PageExplanation {
    /// The first address of the page.
    pub address: u64,
    /// Where it lies; nowhere if it is not managed.
    pub tier: Option<Tier>,
    /// It is mapped as part of a huge page.
    pub huge: bool,
    /// It was in use when the policy or a scan last found out.
    pub accessed: bool,
    /// The policy waits for its next access.
    pub marked: bool,
    /// The kernel refused to move it.
    pub refused: bool,
    /// Its moves of late.
    pub moves: Vec<Move>,
}

/// What a daemon can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Asks the daemon for its [`Status`].
    Status,
    /// Asks for the same in the form that runs have too: [`spillway_snapshot::snapshot::Snapshot`].
    Snapshot,
    /// Asks for an [`Explanation`] of where a page lies.
    Explain {
        /// The process that is asked about,
        process: u32,
        /// or of the page at this address.
        address: Option<u64>,
    },
}

/// What the daemon answers to a [`Request`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// What was asked for.
    Ok(serde_json::Value),
    /// Why there is nothing to tell.
    Error(String),
}
