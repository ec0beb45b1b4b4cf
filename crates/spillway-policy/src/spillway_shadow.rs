//! A rival in the shadow: what one would have fetched who brings in each page that is used, with those of its
//! block, and keeps those that were used last, told from scans of accessed bits alone.
//!
//! Scans say in which interval a page was used last. So much of memory as was used latest is what such a
//! rival would have had at hand; the others among the pages in use it would have fetched. Where more pages are
//! used within an interval than have room, each may have left before its turn came: all of them are taken to
//! have come. Such a page may have come several times: that no scan can tell, so the count is the least that
//! it would have come to.
//!
//! Blocks grow and shrink as they would have with `dcm` ([`crate::blocks`]): by a step where a block comes and
//! its buddy is used as well, and back to single pages where no more than half of what came is used. So whoever
//! begins to fetch need not begin with single pages.

use std::sync::atomic::AtomicU8;

use crate::blocks::Blocks;
use crate::dcm_blocks::largest_order;
use crate::machine::PageIndex;

/// Pages that were used longer ago than so many scans are alike.
const AGES: usize = 64;

/// What would have been fetched since the last scan.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Fetched {
    pub faults: f64,
    pub pages: f64,
}

/// When each page was used last, by scans, and which are fetched together.
pub(crate) struct Shadow {
    used_at: Vec<u32>,
    scans: u32,
    /// None while they are used by who fetches.
    blocks: Option<Blocks<Vec<AtomicU8>>>,
}

impl Shadow {
    /// For so many pages, with so many frames.
    pub(crate) fn new(pages: u32, frames: u32) -> Self {
        let blocks = Blocks::new(pages, 0, largest_order(frames));
        Self { used_at: vec![0; pages as usize], scans: 0, blocks: Some(blocks) }
    }

    /// Gives its blocks to who fetches from now on.
    pub(crate) fn take_blocks(&mut self) -> Option<Blocks<Vec<AtomicU8>>> {
        self.blocks.take()
    }

    /// Has them back.
    pub(crate) fn return_blocks(&mut self, blocks: Blocks<Vec<AtomicU8>>) {
        self.blocks = Some(blocks);
    }

    /// A page is touched for the first time: it is made where it is used.
    pub(crate) fn note_made(&mut self, page: PageIndex) {
        self.used_at[page as usize] = self.scans;
        if let Some(blocks) = &self.blocks {
            let is_made = |page: u64| self.scans > 0 && self.used_at[page as usize] == self.scans;
            blocks.stretch(page.into(), |buddy, _| is_made(buddy));
        }
    }

    /// A scan has found these in use. What the rival would have fetched since the one before, with so many
    /// frames.
    pub(crate) fn note_scan(&mut self, pages: &[PageIndex], used: &[bool], frames: u32) -> Fetched {
        self.scans += 1;
        let at_hand = self.ages_at_hand(pages, used, frames);
        let is_away = |page: u64| self.age(page as usize) >= at_hand;
        let fetched = match &self.blocks {
            Some(blocks) => fetch(blocks, used, is_away),
            None => Fetched::default(),
        };
        for &page in pages {
            if used[page as usize] {
                self.used_at[page as usize] = self.scans;
            }
        }
        fetched
    }

    /// How many scans ago a page was used last before this one, from 0.
    fn age(&self, page: usize) -> usize {
        ((self.scans - self.used_at[page]) as usize).clamp(1, AGES) - 1
    }

    /// Pages below this age would have been at hand.
    fn ages_at_hand(&self, pages: &[PageIndex], used: &[bool], frames: u32) -> usize {
        let (mut of_age, mut in_use) = ([0_u32; AGES], 0);
        for &page in pages {
            of_age[self.age(page as usize)] += 1;
            in_use += u32::from(used[page as usize]);
        }
        if in_use > frames {
            return 0;
        }
        let mut left = frames;
        for (age, pages) in of_age.into_iter().enumerate() {
            // Of those that have room in part more than half must have some.
            if pages > 2 * left {
                return age;
            }
            left = left.saturating_sub(pages);
        }
        AGES
    }
}

/// What comes of these blocks, which then grow or shrink.
fn fetch(blocks: &Blocks<Vec<AtomicU8>>, used: &[bool], is_away: impl Fn(u64) -> bool) -> Fetched {
    let (mut fetched, mut came, mut page) = (Fetched::default(), Vec::new(), 0);
    let end = used.len() as u64;
    let is_used = |page: u64| used.get(page as usize).is_some_and(|used| *used);
    let more_than_half = |pages: std::ops::Range<u64>| {
        let size = pages.end - pages.start;
        2 * pages.filter(|&page| is_used(page)).count() as u64 > size
    };
    while page < end {
        let block = page..blocks.pages(page).end.min(end);
        page = block.end;
        if block.clone().any(|page| is_used(page) && is_away(page)) {
            fetched.faults += 1.0;
            fetched.pages += block.clone().filter(|&page| is_away(page)).count() as f64;
            came.push(block);
        }
    }
    for block in came {
        let (head, size) = (block.start, block.end - block.start);
        let is_as_it_was = blocks.pages(head) == block;
        if size > 1 && !more_than_half(block) {
            blocks.reduce(head, is_used);
        } else if is_as_it_was {
            blocks.stretch(head, |buddy, _| more_than_half(buddy..buddy + size));
        }
    }
    fetched
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGES: u32 = 40;

    fn scan(shadow: &mut Shadow, in_use: impl Fn(u32) -> bool, frames: u32) -> Fetched {
        let used: Vec<bool> = (0..PAGES).map(in_use).collect();
        shadow.note_scan(&(0..PAGES).collect::<Vec<_>>(), &used, frames)
    }

    /// Scans that find these in use, each of them; how many pages the last of them says would have come.
    fn fetched(scans: &[std::ops::Range<u32>], frames: u32) -> f64 {
        let mut shadow = Shadow::new(PAGES, frames);
        let all = scans.iter().map(|in_use| scan(&mut shadow, |page| in_use.contains(&page), frames));
        all.last().unwrap().pages
    }

    #[test]
    fn what_was_used_last_is_at_hand_and_the_rest_would_come() {
        assert_eq!(fetched(&[0..10, 0..10], 10), 0.0);
        assert_eq!(fetched(&[0..10, 10..20], 10), 10.0);
        assert_eq!(fetched(&[0..10, 10..20, 0..10], 20), 0.0, "there is room for both");
        assert_eq!(fetched(&[0..10, 10..20, 0..10], 10), 10.0);
        assert_eq!(fetched(&[0..10, 5..15], 10), 5.0, "half of them were at hand");
    }

    #[test]
    fn of_more_pages_than_have_room_none_is_at_hand() {
        assert_eq!(fetched(&[0..40, 0..40], 40), 0.0);
        assert_eq!(fetched(&[0..40, 0..40], 39), 40.0);
    }

    #[test]
    fn a_page_that_is_made_was_never_fetched() {
        let mut shadow = Shadow::new(PAGES, 4);
        let used = vec![true; PAGES as usize];
        shadow.note_scan(&[0, 1], &used[..2], 4);
        (2..4).for_each(|page| shadow.note_made(page));
        assert_eq!(shadow.note_scan(&[0, 1, 2, 3], &used[..4], 4), Fetched::default());
    }

    #[test]
    fn blocks_grow_with_what_is_used_together_and_shrink_where_little_is() {
        let mut shadow = Shadow::new(PAGES, 16);
        // Whichever half of memory is used, the other has left.
        let mut faults = Vec::new();
        for round in 0..8 {
            let first = 20 * (round % 2);
            faults.push(scan(&mut shadow, |page| (first..first + 16).contains(&page), 16).faults);
        }
        assert_eq!(faults, [16.0, 16.0, 8.0, 8.0, 4.0, 4.0, 4.0, 4.0], "no block takes more than a quarter");
        scan(&mut shadow, |page| page % 4 == 0 && page < 16, 16);
        scan(&mut shadow, |page| page >= 20 && page < 36, 16);
        let few = scan(&mut shadow, |page| page % 4 == 0 && page < 16, 16);
        assert_eq!((few.faults, few.pages), (4.0, 4.0));
    }
}
