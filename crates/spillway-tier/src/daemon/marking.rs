//! How marked pages migrate: by markers in the processes, or in batches, and why.

use std::borrow::Cow;
use std::ops::Range;

use crate::live::LiveMachine;
use crate::markers::Markers;
use crate::status::MigrationStatus;

/// How marked pages migrate.
pub(super) struct Marking {
    pub(super) markers: Option<Markers>,
    pub(super) why: String,
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
