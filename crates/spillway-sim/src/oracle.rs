//! What each process must read: a shadow of its memory, and the reasons for which a page may be withheld.

use std::collections::BTreeMap;

use crate::contents::{Tags, ZEROS, describe, holds};
use crate::space::{Entry, Pages};
use crate::world::World;

/// What a page must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// What was written last.
    pub tags: Tags,
    /// What it may hold as well while somebody discards it, and after a fork amid that.
    pub or: Option<Tags>,
    /// Why it was withheld: it may be so again.
    pub excuse: Option<String>,
}

impl Default for Expected {
    fn default() -> Self {
        Self { tags: ZEROS, or: None, excuse: None }
    }
}

/// What a process must read, page by page; zeros where nothing is noted. A child begins with a copy.
#[derive(Clone, Debug, Default)]
pub struct Shadow {
    pages: BTreeMap<u64, Expected>,
}

impl Shadow {
    /// What a page must hold.
    #[must_use]
    pub fn get(&self, page: u64) -> Expected {
        self.pages.get(&page).cloned().unwrap_or_default()
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, page: u64) -> &mut Expected {
        self.pages.entry(page).or_default()
    }

    /// Pages read as zeros from now on.
    pub fn forget(&mut self, pages: Pages) {
        let numbers: Vec<u64> = self.pages.range(pages).map(|(&page, _)| page).collect();
        numbers.iter().for_each(|page| {
            self.pages.remove(page);
        });
    }

    /// Pages are being discarded: they may read as zeros already.
    pub fn begin_discard(&mut self, pages: Pages) {
        self.pages.range_mut(pages).for_each(|(_, expected)| expected.or = Some(ZEROS));
    }

    /// mremap(2).
    pub fn move_pages(&mut self, from: Pages, to: u64) {
        self.forget(to..to + (from.end - from.start));
        let moved: Vec<u64> = self.pages.range(from.clone()).map(|(&page, _)| page).collect();
        for page in moved {
            if let Some(expected) = self.pages.remove(&page) {
                self.pages.insert(page - from.start + to, expected);
            }
        }
    }
}

/// What the pager says of why a page is withheld, and whether that can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    WrongChecksum,
    StoreFailed,
    StoreFull,
    Pinned,
    Unknown,
}

fn reason_of(line: &str) -> Reason {
    let reason = |text: &str, reason| line.contains(text).then_some(reason);
    reason("returned a page with a wrong checksum", Reason::WrongChecksum)
        .or_else(|| reason("holds no page, or its memory was damaged", Reason::WrongChecksum))
        .or_else(|| reason(" is gone: ", Reason::StoreFailed))
        .or_else(|| reason(" failed: ", Reason::StoreFailed))
        .or_else(|| reason(" is full: ", Reason::StoreFull))
        .or_else(|| reason("all local pages are pinned", Reason::Pinned))
        .unwrap_or(Reason::Unknown)
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
                "process {process} reads {found} in part {part} of page {page:#x}, where it wrote {wanted} \
                 last"
            ));
        }
    }

    /// A thread gets SIGBUS for a page: there must be a line that says why, and something that went wrong
    /// before.
    pub fn check_refusal(&mut self, process: usize, page: u64) {
        let address = format!("{:#x} ", page << 12);
        let told = &self.processes[process].told;
        let line = told.iter().rev().find(|line| line.contains(&address) && line.contains("cannot be had"));
        let known = self.processes[process].shadow.get(page).excuse;
        let Some(line) = line.cloned().or(known) else {
            self.fail(format!("process {process} gets SIGBUS at page {page:#x}, and no line says why"));
            return;
        };
        let is_justified = match reason_of(&line) {
            Reason::WrongChecksum => self.stores.iter().any(|store| store.has_spoilt),
            Reason::StoreFailed => self.stores.iter().any(|store| store.has_failed),
            Reason::StoreFull => self.stores.iter().any(|store| store.has_been_full) || self.is_scarce(),
            Reason::Pinned => self.had_pins,
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

    /// The stores may have fewer slots than there are pages.
    pub(crate) fn is_scarce(&self) -> bool {
        let slots: u64 = self.config.stores.iter().map(|store| u64::from(store.slots)).sum();
        slots < 8 * (self.config.program_pages + self.config.limit_pages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contents::Tag;

    const TAGS: Tags = [Tag::Zeros, Tag::Written { owner: 1, page_number: 10, version: 3 }];

    #[test]
    fn what_is_expected_goes_with_the_page() {
        let mut shadow = Shadow::default();
        shadow.get_mut(10).tags = TAGS;
        shadow.move_pages(10..12, 20);
        assert_eq!((shadow.get(10).tags, shadow.get(20).tags), (ZEROS, TAGS));
        let child = shadow.clone();
        shadow.begin_discard(0..100);
        assert_eq!((shadow.get(20).or, child.get(20).or), (Some(ZEROS), None));
        shadow.forget(20..21);
        assert_eq!((shadow.get(20), child.get(20).tags), (Expected::default(), TAGS));
    }

    #[test]
    fn reasons_are_known_by_their_words() {
        let reason = |text: &str| reason_of(&format!("page at 0x1000 cannot be had: {text}"));
        assert_eq!(
            reason("store ram: returned a page with a wrong checksum: it was restarted"),
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
