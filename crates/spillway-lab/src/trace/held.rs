//! How much memory a program holds as its trace goes on: what it has touched and not given back.

use std::collections::HashMap;

use spillway_core::page::{HUGE_BYTES, PAGE_BYTES};

const PAGES_PER_HUGE: u64 = HUGE_BYTES / PAGE_BYTES;
const WORD_BITS: u64 = 64;

/// Which base pages of a huge page are held.
type Held = [u64; (PAGES_PER_HUGE / WORD_BITS) as usize];

/// The pages of 4 KiB that are held, and the most that ever were.
#[derive(Default)]
pub(super) struct HeldPages {
    huge: HashMap<u64, Held>,
    now: u64,
    most: u64,
    last: Option<u64>,
}

impl HeldPages {
    /// A page was touched.
    pub fn touch(&mut self, page_number: u64) {
        if self.last == Some(page_number) {
            return;
        }
        self.last = Some(page_number);
        let held = self.huge.entry(page_number / PAGES_PER_HUGE).or_default();
        let within = page_number % PAGES_PER_HUGE;
        let (word, bit) = (&mut held[(within / WORD_BITS) as usize], 1 << (within % WORD_BITS));
        if *word & bit == 0 {
            *word |= bit;
            self.now += 1;
            self.most = self.most.max(self.now);
        }
    }

    /// So many pages from this one on were given back.
    pub fn release(&mut self, page_number: u64, pages: u64) {
        self.last = None;
        let end = page_number + pages;
        let mut next = page_number;
        while next < end {
            let huge = next / PAGES_PER_HUGE;
            let huge_end = (huge + 1) * PAGES_PER_HUGE;
            if let Some(held) = self.huge.get_mut(&huge) {
                for within in next % PAGES_PER_HUGE..(end.min(huge_end) - huge * PAGES_PER_HUGE) {
                    let (word, bit) = (&mut held[(within / WORD_BITS) as usize], 1 << (within % WORD_BITS));
                    self.now -= u64::from(*word & bit != 0);
                    *word &= !bit;
                }
            }
            next = huge_end;
        }
    }

    /// The most pages that were held at once.
    pub fn most(&self) -> u64 {
        self.most
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn as_many_are_held_as_a_set_holds(
            steps in prop::collection::vec((0_u64..1500, prop::option::of(1_u64..1200)), 0..200),
        ) {
            let (mut held, mut set, mut most) = (HeldPages::default(), HashSet::new(), 0);
            for (page, released) in steps {
                match released {
                    None => {
                        held.touch(page);
                        set.insert(page);
                    }
                    Some(pages) => {
                        held.release(page, pages);
                        set.retain(|held| !(page..page + pages).contains(held));
                    }
                }
                most = most.max(set.len() as u64);
            }
            prop_assert_eq!(held.most(), most);
        }
    }
}
