//! Which blocks leave first while pages are fetched: of the oldest those that are foretold to be used least.
//! Not dcm's, and of our own policy.
//!
//! Queues alone tell what came when. Where a program works in some pages and goes through others, those that
//! it goes through push the others out. So a few of the oldest blocks stand for choice together, and the one
//! leaves whose pages are worth the least; what is passed over again and again goes back to where the
//! youngest are. Those that are alike leave in the order in which they came.

use std::ops::Range;

use spillway_core::fifo::Entry;

use crate::machine::PageIndex;

/// Blocks that stand for choice at once, and which part of local memory their pages may be at most: what came
/// last is never among them.
const CANDIDATES: usize = 32;
const PART_OF_LOCAL: u32 = 8;
/// How often a block may be passed over for another that is worth less.
const MOST_PASSES: u8 = 8;
/// Steps in which worth is told apart.
const STEPS: f64 = 32.0;

#[derive(Clone, Copy, Debug)]
struct Candidate {
    entry: Entry,
    pages: u32,
    passes: u8,
}

/// The oldest blocks, and what pages are foretold to be used.
pub(crate) struct Choice {
    uses: Vec<u8>,
    /// Pages that came since it was told last: what their accessed bits say is that they came.
    is_new: Vec<bool>,
    /// The oldest first.
    candidates: Vec<Candidate>,
    most_pages: u32,
}

impl Choice {
    /// Among so many pages, of which `local` fit into local memory.
    pub(crate) fn new(pages: u32, local: u32) -> Self {
        let (uses, is_new) = (vec![0; pages as usize], vec![false; pages as usize]);
        let candidates = Vec::with_capacity(CANDIDATES);
        Self { uses, is_new, candidates, most_pages: local / PART_OF_LOCAL }
    }

    /// How much each page is foretold to be used, as a chance.
    pub(crate) fn note_uses(&mut self, uses: impl Fn(PageIndex) -> f64) {
        for (page, known) in (0..).zip(&mut self.uses) {
            *known = (uses(page) * STEPS).round().clamp(0.0, STEPS) as u8;
        }
        self.is_new.fill(false);
    }

    /// A page has come.
    pub(crate) fn note_came(&mut self, page: PageIndex) {
        self.is_new[page as usize] = true;
    }

    /// Whether a page came since uses were told last.
    pub(crate) fn is_new(&self, page: PageIndex) -> bool {
        self.is_new[page as usize]
    }

    /// Whether older blocks should be offered before the next is taken.
    pub(crate) fn has_room(&self) -> bool {
        let pages: u32 = self.candidates.iter().map(|one| one.pages).sum();
        self.candidates.is_empty() || self.candidates.len() < CANDIDATES && pages < self.most_pages
    }

    /// Adds a block of so many pages, which is younger than all before it.
    pub(crate) fn offer(&mut self, entry: Entry, pages: u32) {
        self.candidates.push(Candidate { entry, pages, passes: 0 });
    }

    /// Drops the blocks for which `keep` is false.
    pub(crate) fn retain(&mut self, keep: impl Fn(Entry) -> bool) {
        self.candidates.retain(|one| keep(one.entry));
    }

    /// The block that leaves next: that of least worth a page, and the oldest of those that are alike.
    /// `pages` says of which pages a block is.
    pub(crate) fn take(&mut self, pages: impl Fn(Entry) -> Range<PageIndex>) -> Option<Entry> {
        let worth = |one: &Candidate| {
            let block = pages(one.entry);
            let sum: u32 = block.clone().map(|page| u32::from(self.uses[page as usize])).sum();
            sum / (block.len() as u32).max(1)
        };
        let worths: Vec<u32> = self.candidates.iter().map(worth).collect();
        let least = *worths.iter().min()?;
        let at = worths.iter().position(|worth| *worth == least)?;
        for (one, worth) in self.candidates.iter_mut().zip(&worths) {
            one.passes += u8::from(*worth > least);
        }
        Some(self.candidates.remove(at).entry)
    }

    /// A block that is to be as one which has just come.
    pub(crate) fn take_young(&mut self) -> Option<Entry> {
        let at = self.candidates.iter().position(|one| one.passes >= MOST_PASSES)?;
        Some(self.candidates.remove(at).entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(page: u32) -> Entry {
        Entry { page_number: u64::from(page), generation: 1 }
    }

    /// A choice among single pages that are foretold to be used by these chances, all of them offered.
    fn choice(uses: &[f64]) -> Choice {
        let pages = uses.len() as u32;
        let mut choice = Choice::new(pages, 1000);
        choice.note_uses(|page| uses[page as usize]);
        (0..pages).for_each(|page| choice.offer(entry(page), 1));
        choice
    }

    fn single(entry: Entry) -> Range<u32> {
        entry.page_number as u32..entry.page_number as u32 + 1
    }

    #[test]
    fn what_is_used_least_leaves_first_and_the_oldest_of_those_that_are_alike() {
        let mut choice = choice(&[0.9, 0.1, 0.5, 0.1]);
        let order: Vec<_> = (0..5).map(|_| choice.take(single).map(|entry| entry.page_number)).collect();
        assert_eq!(order, [Some(1), Some(3), Some(2), Some(0), None]);
    }

    #[test]
    fn what_is_passed_over_again_and_again_is_young_again_and_what_is_alike_never_is() {
        let mut choice = choice(&[0.9, 0.2]);
        for _ in 0..MOST_PASSES {
            assert_eq!(choice.take_young(), None);
            assert_eq!(choice.take(single), Some(entry(1)));
            choice.offer(entry(1), 1);
        }
        assert_eq!(choice.take_young(), Some(entry(0)));
        assert_eq!(choice.take_young(), None, "it was never worth more than what left");
    }

    #[test]
    fn a_block_is_worth_what_its_pages_are_on_average() {
        let mut choice = choice(&[0.9, 0.1, 0.6, 0.6]);
        choice.retain(|entry| entry.page_number % 2 == 0);
        let pair = |entry: Entry| entry.page_number as u32..entry.page_number as u32 + 2;
        let order: Vec<_> = (0..3).map(|_| choice.take(pair).map(|entry| entry.page_number)).collect();
        assert_eq!(order, [Some(0), Some(2), None]);
    }

    #[test]
    fn of_little_memory_few_pages_stand_for_choice() {
        for (local, block_pages, blocks) in [(32, 1, 4), (32, 4, 1), (32, 2, 2), (4, 1, 1), (10_000, 1, 32)] {
            let mut choice = Choice::new(100, local);
            for block in 0..blocks {
                assert!(choice.has_room(), "{local} frames, {block} of {blocks} blocks");
                choice.offer(entry(block * block_pages), block_pages);
            }
            assert!(!choice.has_room(), "{local} frames");
        }
    }
}
