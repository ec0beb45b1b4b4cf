//! Whether what a process reads is what it must, and whether a page may be withheld for the reason that is
//! given.

use crate::contents::{ZEROS, describe, holds};
use crate::process::Process;
use crate::space::Entry;
use crate::store_model::StoreModel;
use crate::world::World;

/// What the pager says of why a page is withheld, and whether that can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    WrongChecksum,
    StoreFailed,
    StoreFull,
    Pinned,
    HeldByOthers,
    Unknown,
}

fn reason_of(line: &str) -> Reason {
    let reason = |text: &str, reason| line.contains(text).then_some(reason);
    reason("returned a page with a wrong checksum", Reason::WrongChecksum)
        .or_else(|| reason("returned a page whose seal is wrong", Reason::WrongChecksum))
        .or_else(|| reason("holds no page, or its memory was damaged", Reason::WrongChecksum))
        .or_else(|| reason(" is gone: ", Reason::StoreFailed))
        .or_else(|| reason(" failed: ", Reason::StoreFailed))
        .or_else(|| reason(" is full: ", Reason::StoreFull))
        .or_else(|| reason("every store is full", Reason::StoreFull))
        .or_else(|| reason("all local pages are pinned", Reason::Pinned))
        .or_else(|| reason("the other processes of the run hold the local memory", Reason::HeldByOthers))
        .unwrap_or(Reason::Unknown)
}

impl Process {
    /// What was told last of a page that cannot be had.
    pub fn line_about(&self, page: u64) -> Option<String> {
        let address = format!("{:#x} ", page << 12);
        let is_about = |line: &&String| line.contains(&address) && line.contains("cannot be had");
        self.told.iter().rev().find(is_about).cloned()
    }

    /// mremap(2) moves pages: what was told of one before the program touched it speaks of its old address.
    pub fn move_lines(&mut self, pages: std::ops::Range<u64>) {
        for page in pages {
            if let Some(line) = self.line_about(page) {
                self.shadow.get_mut(page).told_elsewhere = Some(line);
            }
        }
    }
}

impl World {
    /// Checks what a process reads at a page that it has just reached.
    pub fn check_read(&mut self, process: usize, page: u64) {
        let owner = &self.processes[process];
        let expected = owner.shadow.get(page);
        let zeros = [0; spillway_core::page::PAGE_SIZE];
        let contents = match owner.space.entry(page) {
            Entry::Frame { id, .. } => self.physical.page(id),
            _ => &zeros,
        };
        let wrong = (0..expected.tags.len()).find(|&part| {
            let is_other = || expected.or.is_some_and(|tags| holds(contents, part, tags[part]));
            !holds(contents, part, expected.tags[part]) && !is_other()
        });
        if let Some(part) = wrong {
            let found = describe(contents, part);
            let wanted = expected.tags[part];
            self.fail(format!(
                "process {process} reads {found} in part {part} of page {page:#x}, where it wrote \
                 {wanted} last"
            ));
        }
    }

    /// A thread gets SIGBUS for a page: there must be a line that says why, and something that went wrong
    /// before.
    pub fn check_refusal(&mut self, process: usize, page: u64) {
        let shadow = self.processes[process].shadow.get(page);
        let line = self.processes[process].line_about(page).or(shadow.excuse).or(shadow.told_elsewhere);
        let Some(line) = line else {
            self.fail(format!("process {process} gets SIGBUS at page {page:#x}, and no line says why"));
            return;
        };
        let is_justified = match reason_of(&line) {
            Reason::WrongChecksum => self.stores.iter().any(|store| store.has_spoilt),
            Reason::StoreFailed => self.stores.iter().any(|store| store.has_failed),
            Reason::StoreFull => {
                let was_full = self.stores.iter().any(|store| store.has_been_full) || self.is_scarce();
                was_full && !self.must_be_kept_by_full_stores(process, page)
            }
            Reason::Pinned => self.had_pins,
            Reason::HeldByOthers => {
                let cannot_leave = self.had_pins || self.may_want_room();
                self.processes.len() > 1 && cannot_leave
            }
            Reason::Unknown => false,
        };
        if !is_justified {
            self.fail(format!(
                "process {process} gets SIGBUS at page {page:#x} for something that did not happen: {line}"
            ));
        }
        self.count("refusals");
        self.processes[process].shadow.get_mut(page).excuse = Some(line);
    }

    /// The same where nothing but a line tells of it.
    pub fn check_line_about(&mut self, process: usize, page: u64) {
        if self.processes[process].line_about(page).is_some() {
            self.check_refusal(process, page);
        }
    }

    /// A full store keeps what it has: a page that holds something can come in, for its slot is free then.
    /// Not where another process may have taken what it left, or pages that came in cannot leave again.
    fn must_be_kept_by_full_stores(&self, process: usize, page: u64) -> bool {
        let expected = self.processes[process].shadow.get(page);
        let is_stored = expected.or.is_none() && expected.tags != ZEROS;
        let full_at_random = self.stores.iter().any(|store| store.config.faults.full_one_in > 0);
        let failed = self.stores.iter().any(|store| store.has_failed);
        is_stored && self.processes.len() == 1 && !full_at_random && !failed && !self.had_pins
    }

    /// Pages may be unable to leave: stores are full or have failed.
    pub(crate) fn may_want_room(&self) -> bool {
        let has_failed = |store: &StoreModel| store.has_been_full || store.has_failed;
        self.is_scarce() || self.stores.iter().any(has_failed)
    }

    /// The stores may have fewer slots than there are pages.
    pub(crate) fn is_scarce(&self) -> bool {
        let slots: u64 = self.config.stores.iter().map(|store| u64::from(store.slots)).sum();
        slots < 8 * (self.config.program_pages + self.config.limit_pages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_known_by_their_words() {
        let reason = |text: &str| reason_of(&format!("page at 0x1000 cannot be had: {text}"));
        assert_eq!(
            reason("store ram: returned a page with a wrong checksum: it was restarted"),
            Reason::WrongChecksum
        );
        assert_eq!(
            reason("store ram: returned a page whose seal is wrong: it was restarted"),
            Reason::WrongChecksum
        );
        assert_eq!(
            reason("no page can be evicted: store ram: is full: give it a larger size"),
            Reason::StoreFull
        );
        assert_eq!(reason("store nbd://a is gone: reset"), Reason::StoreFailed);
        assert_eq!(reason("store nbd://a failed: EIO"), Reason::StoreFailed);
        assert_eq!(reason("no page can be evicted: all local pages are pinned, or ..."), Reason::Pinned);
        assert_eq!(
            reason("its slot holds another page: please report this mistake of Spillway's"),
            Reason::Unknown
        );
    }
}
