//! Marks that stop the program: a marker in a process takes a page out of its place, and tells of the next
//! access to it ([`spillway_marker`]). A held page lies where no scan finds it.

use std::collections::BTreeSet;

use spillway_policy::machine::{PageIndex, Tier};

use super::LiveMachine;
use crate::pages::bit;

/// Pages that a group's markers are told of at most between two turns of the daemon: what is marked beyond
/// that is found by scans.
const MOST_WANTED: usize = 4096;

/// What markers do for a group.
#[derive(Debug, Default)]
pub struct Holds {
    /// Processes with a marker.
    processes: BTreeSet<u32>,
    /// Pages that markers are to be told of, by process and address.
    wanted: Vec<(u32, u64)>,
}

impl LiveMachine {
    /// A process has a marker from now on, or has none any more: then all its pages are in their places.
    pub fn set_marker(&mut self, process: u32, there: bool) {
        if there {
            self.holds.processes.insert(process);
            return;
        }
        self.holds.processes.remove(&process);
        self.holds.wanted.retain(|(of, _)| *of != process);
        for first in self.pages.chunks_of(process) {
            (first..first + crate::pages::PAGES_PER_CHUNK)
                .for_each(|page| self.pages.bits[page as usize] &= !bit::HELD);
        }
    }

    /// Whether a process has a marker.
    #[must_use]
    pub fn has_marker(&self, process: u32) -> bool {
        self.holds.processes.contains(&process)
    }

    /// A page that the policy marked: its process's marker is told, if there is one.
    pub(super) fn want_held(&mut self, page: PageIndex) {
        let bits = self.pages.bits[page as usize];
        let may = bits & (bit::MOVING | bit::HELD) == 0
            && self.pages.tier_of(page) == Some(Tier::Far)
            && self.pages.span(page) == 1
            && self.holds.wanted.len() < MOST_WANTED;
        let Some((process, address)) = self.pages.place_of(page).filter(|_| may) else { return };
        if self.has_marker(process) {
            self.pages.bits[page as usize] |= bit::HELD;
            self.holds.wanted.push((process, address));
        }
    }

    /// Pages that markers are to be told of since this was last asked, by process and address.
    pub fn take_wanted(&mut self) -> Vec<(u32, u64)> {
        std::mem::take(&mut self.holds.wanted)
    }

    /// A page is in its place again, or was not taken out of it.
    pub fn release(&mut self, process: u32, address: u64) {
        if let Some(page) = self.pages.find(process, address) {
            self.pages.bits[page as usize] &= !bit::HELD;
        }
    }

    /// Whether a marker has a page.
    pub(super) fn is_held(&self, page: PageIndex) -> bool {
        self.pages.bits[page as usize] & bit::HELD != 0
    }
}
