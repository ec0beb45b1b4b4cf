//! A shadow of a process's memory: what each page must hold.

use std::collections::BTreeMap;

use crate::contents::{Tags, ZEROS};
use crate::space::Pages;

/// What a page must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// What was written last.
    pub tags: Tags,
    /// What it may hold as well while somebody discards it, and after a fork amid that.
    pub or: Option<Tags>,
    /// Why it was withheld: it may be so again.
    pub excuse: Option<String>,
    /// What was told of it when it had another address.
    pub told_elsewhere: Option<String>,
}

impl Default for Expected {
    fn default() -> Self {
        Self { tags: ZEROS, or: None, excuse: None, told_elsewhere: None }
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

    /// Pages have moved to another place (mremap(2)).
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
}
