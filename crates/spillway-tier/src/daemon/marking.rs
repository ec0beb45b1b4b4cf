//! The daemon's dealings with markers: what they say is told to the policies, and what policies marked to
//! them.

use std::borrow::Cow;
use std::ops::Range;
use std::os::fd::BorrowedFd;

use spillway_marker::wire::Report;

use super::Daemon;
use crate::live::LiveMachine;
use crate::markers::Markers;
use crate::status::MigrationStatus;

/// How marked pages migrate.
pub(super) struct Marking {
    markers: Option<Markers>,
    why: String,
}

impl Default for Marking {
    fn default() -> Self {
        Self { markers: None, why: "no program was started by the daemon".to_owned() }
    }
}

impl Marking {
    /// Addresses of a process that are managed: not those where its marker holds pages.
    pub(super) fn managed<'a>(
        &self,
        process: u32,
        ranges: &'a [Range<u64>],
        machine: &mut LiveMachine,
    ) -> Cow<'a, [Range<u64>]> {
        let frames = self.markers.as_ref().and_then(|markers| markers.frames_of(process));
        if frames.is_some() != machine.has_marker(process) {
            machine.set_marker(process, frames.is_some());
        }
        let Some(frames) = frames else { return Cow::Borrowed(ranges) };
        let around = |range: &Range<u64>| {
            [range.start..range.end.min(frames.start), range.start.max(frames.end)..range.end]
        };
        Cow::Owned(ranges.iter().flat_map(around).filter(|part| part.start < part.end).collect())
    }

    pub(super) fn status(&self) -> MigrationStatus {
        let markers = self.markers.as_ref();
        let refused = markers.and_then(|markers| markers.refused.clone());
        let why = refused.map_or(self.why.clone(), |refused| format!("{}; {refused}", self.why));
        MigrationStatus {
            by: if markers.is_some() { "on-demand" } else { "batches" },
            why,
            markers: markers.map_or(0, Markers::len),
            counts: markers.map(|markers| markers.counts.clone()).unwrap_or_default(),
        }
    }
}

impl Daemon {
    /// Pages that policies mark to promote them are marked in their processes, where these have a marker; or
    /// they are not, for the reason given.
    pub fn migrate_by(&mut self, markers: Option<Markers>, why: String) {
        self.marking = Marking { markers, why };
    }

    /// Whether a group's policy marks pages to promote them.
    #[must_use]
    pub fn marks_to_promote(&self) -> bool {
        self.groups.iter().any(|group| group.driver.marks_to_promote())
    }

    /// Can be read when a marker has something to say.
    #[must_use]
    pub fn also_waits_for(&self) -> Option<BorrowedFd<'_>> {
        self.marking.markers.as_ref().map(Markers::ready)
    }

    /// Tells the policies what became of marked pages.
    pub(super) fn hear_markers(&mut self) {
        let Some(markers) = &mut self.marking.markers else { return };
        let told = markers.turn();
        for process in told.ended {
            for group in &mut self.groups {
                group.driver.machine.set_marker(process, false);
            }
        }
        for (process, report) in told.reports {
            let time_ns = report.time_ns.saturating_sub(self.began_ns);
            if let Some(group) = self.groups.iter_mut().find(|group| group.processes.contains_key(&process)) {
                group.driver.marked(process, Report { time_ns, ..report });
            }
        }
    }

    /// Tells the markers what the policies marked.
    pub(super) fn tell_markers(&mut self) {
        let Some(markers) = &mut self.marking.markers else { return };
        for group in &mut self.groups {
            for (process, address) in group.driver.machine.take_wanted() {
                markers.mark(process, address);
            }
        }
        markers.send();
    }
}
