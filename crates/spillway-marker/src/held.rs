//! Which pages are held, and in which frame each. No system call is made here.

use std::collections::BTreeMap;
use std::ops::Range;

/// A page that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// Where it belongs.
    pub address: usize,
    /// The frame that it is in.
    pub frame: usize,
}

/// Pages by the address where they belong.
#[derive(Debug, Default)]
pub struct Held {
    pages: BTreeMap<usize, (usize, u64)>,
    free: Vec<usize>,
}

impl Held {
    /// Nothing is held; there are so many frames.
    #[must_use]
    pub fn new(frames: usize) -> Self {
        Self { pages: BTreeMap::new(), free: (0..frames).rev().collect() }
    }

    /// How many pages are held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// The frame of a page, if it is held.
    #[must_use]
    pub fn frame_of(&self, address: usize) -> Option<usize> {
        self.pages.get(&address).map(|(frame, _)| *frame)
    }

    /// Takes an empty frame; none where all are full.
    pub fn take_frame(&mut self) -> Option<usize> {
        self.free.pop()
    }

    /// A frame is empty.
    pub fn release_frame(&mut self, frame: usize) {
        self.free.push(frame);
    }

    /// A page is in a frame from `now_ns` on.
    pub fn insert(&mut self, page: Page, now_ns: u64) {
        self.pages.insert(page.address, (page.frame, now_ns));
    }

    /// A page is held no more; its frame is not free yet.
    pub fn remove(&mut self, address: usize) -> Option<Page> {
        self.pages.remove(&address).map(|(frame, _)| Page { address, frame })
    }

    /// All that are held, by address.
    pub fn all(&self) -> impl Iterator<Item = Page> + '_ {
        self.pages.iter().map(|(&address, &(frame, _))| Page { address, frame })
    }

    /// Whether one of these addresses is held.
    #[must_use]
    pub fn has_any_in(&self, range: &Range<usize>) -> bool {
        range.start < range.end && self.pages.range(range.clone()).next().is_some()
    }

    /// Those of these addresses are held no more; their frames are not free yet.
    pub fn remove_range(&mut self, range: Range<usize>) -> Vec<Page> {
        if range.start >= range.end {
            return Vec::new();
        }
        let addresses: Vec<_> = self.pages.range(range).map(|(&address, _)| address).collect();
        addresses.into_iter().filter_map(|address| self.remove(address)).collect()
    }

    /// Addresses have moved, and with them what is held. Returns where the pages were.
    pub fn relocate(&mut self, from: Range<usize>, to: usize) -> Vec<usize> {
        if from.start >= from.end {
            return Vec::new();
        }
        let moved: Vec<_> = self.pages.range(from.clone()).map(|(&address, &held)| (address, held)).collect();
        for (address, _) in &moved {
            self.pages.remove(address);
        }
        for (address, held) in &moved {
            self.pages.insert(address - from.start + to, *held);
        }
        moved.into_iter().map(|(address, _)| address).collect()
    }

    /// Those that have been held since `before_ns` or longer.
    #[must_use]
    pub fn held_since(&self, before_ns: u64) -> Vec<usize> {
        let old = |&(_, &(_, since_ns)): &(&usize, &(usize, u64))| since_ns <= before_ns;
        self.pages.iter().filter(old).map(|(&address, _)| address).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 4096;

    fn holding(addresses: &[usize]) -> Held {
        let mut held = Held::new(8);
        for (at, &address) in addresses.iter().enumerate() {
            let frame = held.take_frame().unwrap();
            held.insert(Page { address: address * PAGE, frame }, at as u64);
        }
        held
    }

    fn addresses(held: &Held) -> Vec<usize> {
        held.all().map(|page| page.address / PAGE).collect()
    }

    #[test]
    fn a_frame_is_one_pages_until_it_is_released() {
        let mut held = holding(&[3, 1]);
        assert_eq!((held.len(), held.frame_of(3 * PAGE), held.frame_of(PAGE)), (2, Some(0), Some(1)));
        let page = held.remove(3 * PAGE).unwrap();
        assert_eq!(held.frame_of(3 * PAGE), None);
        let others: Vec<_> = std::iter::from_fn(|| held.take_frame()).collect();
        assert!(others.len() == 6 && !others.contains(&page.frame));
        held.release_frame(page.frame);
        assert_eq!(held.take_frame(), Some(page.frame));
    }

    #[test]
    fn ranges_are_dropped_and_moved_whole() {
        let mut held = holding(&[1, 2, 3, 9]);
        assert!(held.has_any_in(&(2 * PAGE..3 * PAGE)) && !held.has_any_in(&(4 * PAGE..9 * PAGE)));
        let dropped = held.remove_range(2 * PAGE..4 * PAGE);
        assert_eq!(dropped.iter().map(|page| page.address / PAGE).collect::<Vec<_>>(), [2, 3]);
        // Onto addresses that overlap with where they were.
        let frames = [held.frame_of(PAGE), held.frame_of(9 * PAGE)];
        assert_eq!(held.relocate(PAGE..10 * PAGE, 5 * PAGE), [PAGE, 9 * PAGE]);
        assert_eq!(addresses(&held), [5, 13]);
        assert_eq!([held.frame_of(5 * PAGE), held.frame_of(13 * PAGE)], frames);
        assert!(held.remove_range(PAGE..PAGE).is_empty() && held.relocate(PAGE..PAGE, 0).is_empty());
    }

    #[test]
    fn the_oldest_are_found() {
        let held = holding(&[7, 4, 5]);
        assert_eq!(held.held_since(1), [4 * PAGE, 7 * PAGE]);
    }
}
