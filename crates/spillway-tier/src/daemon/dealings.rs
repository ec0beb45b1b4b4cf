//! The daemon's dealings with markers: what they say is told to the policies, and what policies marked to
//! them.

use std::os::fd::BorrowedFd;

use spillway_marker::wire::Report;

use super::Daemon;
use super::marking::Marking;
use crate::markers::Markers;

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
