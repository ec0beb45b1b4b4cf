//! What a running donor tells of itself, as JSON and as text.

use std::fmt;

use serde::{Deserialize, Serialize};
use spillway_core::size::Size;

use crate::journal::Counts;

/// Everything that a donor tells.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The number of the donor's process.
    pub pid: u32,
    /// Its version of Spillway.
    pub version: String,
    /// How long it has run, in seconds.
    pub uptime_s: f64,
    /// Where it listens, as URIs of stores.
    pub listening_on: Vec<String>,
    /// Whether it lets in nobody new and waits for its runs to end.
    pub is_ending: bool,
    /// The memory that it lends.
    pub memory: MemoryStatus,
    /// How its machine is off for memory.
    #[serde(default)]
    pub pressure: Pressure,
    /// Its clients, by address or user.
    pub clients: Vec<ClientStatus>,
    /// Its exports, named ones first.
    pub exports: Vec<ExportStatus>,
    /// What has been counted since it began.
    pub counts: Counts,
}

/// The memory that a donor lends, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryStatus {
    /// Bytes that are lent at present: as many as `--memory` says, or what the machine can spare.
    pub offered_bytes: u64,
    /// Bytes that stored pages take.
    pub used_bytes: u64,
    /// What is promised to runs, taken or not.
    pub promised_bytes: u64,
    /// What is neither promised nor taken.
    pub free_bytes: u64,
    /// Whether pages are kept from being swapped.
    pub is_locked: bool,
}

/// How a machine is off for memory: a donor's pages are safe as long as it is not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pressure {
    /// Bytes that the machine could still give; none where the kernel does not say.
    /// With a control group's limit, what that leaves if it is less.
    pub available_bytes: Option<u64>,
    /// The share of the last ten seconds in which some process waited for memory, 0 to 1: proc_pressure(5).
    /// None where the kernel does not say.
    pub stalled_share: Option<f64>,
    /// Bytes that the donor keeps free there: with less it is short.
    #[serde(default)]
    pub keep_free_bytes: u64,
    /// Whether it is short: it promises nothing, and has what it holds for pools moved away.
    #[serde(default)]
    pub is_short: bool,
}

/// What one client has of the donor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientStatus {
    /// Its address, network or user.
    pub client: String,
    /// Connections that it has now.
    pub connections: u64,
    /// Exports that it made and that still exist.
    pub exports: u64,
    /// What is promised to its runs, in bytes.
    pub promised_bytes: u64,
    /// What its exports hold, in bytes.
    pub held_bytes: u64,
}

/// What one export is and holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExportStatus {
    /// Its name, which may be empty.
    pub name: String,
    /// The number of the run that it is private to; none where everybody sees it.
    pub run: Option<u64>,
    /// Who made it, by address or user.
    pub client: String,
    /// Connections that have it open.
    pub connections: u64,
    /// What is promised to it, in bytes; none where it takes what nobody was promised.
    pub promised_bytes: Option<u64>,
    /// What it holds, in bytes.
    pub held_bytes: u64,
    /// Seconds until a lost run is given up; none while it is connected.
    pub grace_left_s: Option<f64>,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = Size::from_bytes;
        let memory = &self.memory;
        let ending = if self.is_ending { ", ending" } else { "" };
        writeln!(f, "donor {} (version {}), up {:.0} s{ending}", self.pid, self.version, self.uptime_s)?;
        writeln!(f, "listening on {}", self.listening_on.join(" and "))?;
        writeln!(
            f,
            "memory: {} offered, {} used, {} promised, {} free; {}",
            size(memory.offered_bytes),
            size(memory.used_bytes),
            size(memory.promised_bytes),
            size(memory.free_bytes),
            if memory.is_locked { "never swapped" } else { "may be swapped" }
        )?;
        if let Some(available_bytes) = self.pressure.available_bytes {
            let stalled = self.pressure.stalled_share.map_or_else(String::new, |share| {
                format!("; somebody waited for memory {:.1}% of the last 10 s", 100.0 * share)
            });
            let Pressure { keep_free_bytes, is_short, .. } = self.pressure;
            let short = if is_short { "; short: what runs on pools have here moves to others" } else { "" };
            let kept = format!("{} of it kept free", size(keep_free_bytes));
            writeln!(f, "machine: {} available, {kept}{stalled}{short}", size(available_bytes))?;
        }
        for client in &self.clients {
            writeln!(
                f,
                "client {}: {} connections, {} exports, {} promised, {} held",
                client.client,
                client.connections,
                client.exports,
                size(client.promised_bytes),
                size(client.held_bytes)
            )?;
        }
        for export in &self.exports {
            write!(f, "{export}")?;
        }
        let counts = &self.counts;
        writeln!(
            f,
            "since it began: {} connections, {} failed, {} refused; {} runs granted, {} refusals, {} runs \
             ended, {} lost, {} expired; {} requests, {} written, {} read",
            counts.connections,
            counts.failed_connections,
            counts.refused_connections,
            counts.granted_runs,
            counts.refusals,
            counts.ended_runs,
            counts.lost_runs,
            counts.expired_runs,
            counts.requests,
            size(counts.written_bytes),
            size(counts.read_bytes)
        )
    }
}

impl fmt::Display for ExportStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.run {
            Some(run) => write!(f, "run {run} of {}: ", self.client)?,
            // A client chose the name.
            None => write!(f, "export '{}' of {}: ", self.name.escape_default(), self.client)?,
        }
        write!(f, "{} held", Size::from_bytes(self.held_bytes))?;
        if let Some(promised_bytes) = self.promised_bytes {
            write!(f, " of {} promised", Size::from_bytes(promised_bytes))?;
        }
        write!(f, ", {} connections", self.connections)?;
        match self.grace_left_s {
            Some(left_s) => writeln!(f, ", lost, kept for {left_s:.0} s more"),
            None => writeln!(f),
        }
    }
}
