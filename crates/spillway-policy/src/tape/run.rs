//! What stands on a tape: runs of neighbouring pages, by names that do not depend on addresses.

/// Pages of a run at most.
pub const MOST_RUN_PAGES: u64 = 64;
/// Mappings that one tape tells apart, at most.
pub const MOST_MAPPINGS: usize = 1 << 20;
/// Pages of a mapping that has a name, at most: 16 TiB.
pub const MOST_MAPPING_PAGES: u64 = 1 << 32;

const ORDINAL_BITS: u32 = 24;
const PAGE_SHIFT: u32 = 6;
const MAPPING_SHIFT: u32 = 38;

/// A mapping, whatever its address: how many pages it was born with, and how many of that length came before
/// it. So a small mapping more or less renames no large one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name(u64);

impl Name {
    /// The mapping of `pages` pages before which `ordinal` came; `None` where there are too many of them, or
    /// of either.
    #[must_use]
    pub fn new(pages: u64, ordinal: u64) -> Option<Self> {
        let fits = (1..=MOST_MAPPING_PAGES).contains(&pages) && ordinal < 1 << ORDINAL_BITS;
        fits.then_some(Self(pages << ORDINAL_BITS | ordinal))
    }

    /// The name as one word, which is not 0.
    #[must_use]
    pub fn to_word(self) -> u64 {
        self.0
    }

    /// The name that a word stands for, if it does.
    #[must_use]
    pub fn from_word(word: u64) -> Option<Self> {
        Self::new(word >> ORDINAL_BITS, word & ((1 << ORDINAL_BITS) - 1))
    }
}

/// Neighbouring pages that came by one fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Run {
    /// The mapping, as a place in a list of names: below [`MOST_MAPPINGS`].
    pub mapping: u32,
    /// The first page, from the mapping's start.
    pub page: u32,
    /// How many: 1 to [`MOST_RUN_PAGES`].
    pub pages: u8,
}

impl Run {
    /// The run in one word, which is never 0.
    #[must_use]
    pub fn to_word(self) -> u64 {
        let mapping = u64::from(self.mapping) + 1;
        mapping << MAPPING_SHIFT | u64::from(self.page) << PAGE_SHIFT | u64::from(self.pages.max(1) - 1)
    }

    /// The run that a word stands for, if it does.
    #[must_use]
    pub fn from_word(word: u64) -> Option<Self> {
        let mapping = (word >> MAPPING_SHIFT).checked_sub(1)?;
        let pages = (word & (MOST_RUN_PAGES - 1)) as u8 + 1;
        let page = (word >> PAGE_SHIFT) as u32;
        (mapping < MOST_MAPPINGS as u64).then_some(Self { mapping: mapping as u32, page, pages })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn runs(mappings: u32) -> impl Strategy<Value = Run> {
        let pages = 1..=MOST_RUN_PAGES as u8;
        (0..mappings, any::<u32>(), pages).prop_map(|(mapping, page, pages)| Run { mapping, page, pages })
    }

    proptest! {
        #[test]
        fn runs_and_names_come_back_from_their_words(
            run in runs(MOST_MAPPINGS as u32), pages in 1..=MOST_MAPPING_PAGES, ordinal in 0_u64..1 << 24,
        ) {
            prop_assert!(run.to_word() != 0);
            prop_assert_eq!(Run::from_word(run.to_word()), Some(run));
            let name = Name::new(pages, ordinal).unwrap();
            prop_assert_eq!(Name::from_word(name.to_word()), Some(name));
        }
    }

    #[test]
    fn what_has_no_room_has_no_name() {
        for (pages, ordinal) in [(0, 0), (MOST_MAPPING_PAGES + 1, 0), (1, 1 << 24)] {
            assert_eq!(Name::new(pages, ordinal), None);
        }
        assert_eq!((Run::from_word(0), Name::from_word(0)), (None, None));
        assert_eq!(Run::from_word(u64::MAX), None);
    }
}
