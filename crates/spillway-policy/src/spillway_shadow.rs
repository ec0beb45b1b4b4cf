//! A rival in the shadow: how many pages one would have fetched who brings in each page that is used and
//! keeps those that were used last, told from scans of accessed bits alone.
//!
//! Scans say in which interval a page was used last. So much of memory as was used latest is what such a
//! rival would have had at hand; the others among the pages in use it would have fetched. Within an interval
//! it may have fetched a page several times, where more pages are used than have room: that no scan can tell,
//! so the count is the least that it would have come to.

use crate::machine::PageIndex;

/// Pages that were used longer ago than so many scans are alike.
const AGES: usize = 64;

/// When each page was used last, by scans.
#[derive(Default)]
pub(crate) struct Shadow {
    used_at: Vec<u32>,
    scans: u32,
}

impl Shadow {
    /// For so many pages.
    pub(crate) fn new(pages: u32) -> Self {
        Self { used_at: vec![0; pages as usize], scans: 0 }
    }

    /// A page is touched for the first time: it is made where it is used.
    pub(crate) fn note_made(&mut self, page: PageIndex) {
        self.used_at[page as usize] = self.scans;
    }

    /// A scan has found these in use. How many of them the rival would have fetched since the one before,
    /// with so many frames.
    pub(crate) fn note_scan(&mut self, pages: &[PageIndex], used: &[bool], frames: u32) -> f64 {
        self.scans += 1;
        // Pages by the scans since they were used, and those of them that are used now.
        let (mut of_age, mut used_of_age) = ([0_u32; AGES], [0_u32; AGES]);
        for &page in pages {
            let used_at = &mut self.used_at[page as usize];
            let age = ((self.scans - *used_at) as usize).min(AGES) - 1;
            of_age[age] += 1;
            if used[page as usize] {
                used_of_age[age] += 1;
                *used_at = self.scans;
            }
        }
        let (mut left, mut fetched) = (f64::from(frames), 0.0);
        for (&all, &used) in of_age.iter().zip(&used_of_age) {
            let held = left.min(f64::from(all));
            left -= held;
            if all > 0 {
                fetched += f64::from(used) * (1.0 - held / f64::from(all));
            }
        }
        fetched
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGES: u32 = 40;

    /// Scans that find these in use, each of them; what the last of them says.
    fn fetched(scans: &[std::ops::Range<u32>], frames: u32) -> f64 {
        let (pages, mut shadow) = ((0..PAGES).collect::<Vec<_>>(), Shadow::new(PAGES));
        let scan = |in_use: &std::ops::Range<u32>| {
            let used: Vec<bool> = (0..PAGES).map(|page| in_use.contains(&page)).collect();
            shadow.note_scan(&pages, &used, frames)
        };
        scans.iter().map(scan).last().unwrap()
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
    fn of_more_pages_than_have_room_a_part_is_at_hand() {
        assert_eq!(fetched(&[0..40, 0..40], 10), 30.0);
    }

    #[test]
    fn a_page_that_is_made_was_never_fetched() {
        let mut shadow = Shadow::new(PAGES);
        let used = vec![true; PAGES as usize];
        shadow.note_scan(&[0, 1], &used, 4);
        (2..4).for_each(|page| shadow.note_made(page));
        assert_eq!(shadow.note_scan(&[0, 1, 2, 3], &used, 4), 0.0);
    }
}
