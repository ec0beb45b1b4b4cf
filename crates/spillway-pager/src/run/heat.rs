//! Where a process's memory is and how much it is used, block by block of its address space: what a process
//! is asked for by who draws a map of it, and answers in words of the run's state.
//!
//! Blocks are of equal size, a power of two, and lie at multiples of it: the least at which all managed and
//! native memory lies in at most [`MOST_BLOCKS`]. So those of two looks fit into each other. Of much memory
//! not each page is looked at, but groups of neighbours evenly apart, other ones at each look. Asked and
//! answered as [`crate::run::inquiry`] is; who asks sees the memory as it was while it was looked through.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use spillway_core::page::PAGE_SHIFT;
use spillway_core::page_word::{PageInfo, PageState};
use spillway_policy::use_history;

/// Blocks of one answer.
pub const MOST_BLOCKS: usize = 127;
/// No block is smaller: 64 KiB.
const LEAST_SHIFT: u32 = 16;
/// Pages that are looked at together: their words are a cache line.
const GROUP_PAGES: u64 = 8;
/// Groups of one look, and hardly more: all pages of 128 MiB.
const MOST_GROUPS: u64 = 4096;
/// From this rank on a page was used in several of the last scans.
const HOT: u8 = use_history::HIGHEST.div_ceil(2);

const ASKED_AT: usize = 0;
const ANSWERED_AT: usize = 1;
/// The binary logarithm of a block's bytes, and how many blocks there are.
const FORM_AT: usize = 2;
/// One group in so many was looked at.
const ONE_IN_AT: usize = 3;
const BLOCKS_AT: usize = 4;
const BLOCK_WORDS: usize = 4;
/// Words that an answer takes: a page.
pub(super) const HEAT_WORDS: usize = BLOCKS_AT + MOST_BLOCKS * BLOCK_WORDS;

/// How a managed page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Warmth {
    /// Local, and used in several of the last scans.
    Hot,
    /// Local, and used in few of them.
    Warm,
    /// Local, and no scans have told of it: it came lately, or nobody may scan.
    Untold,
    /// Local, and used in none of the last scans, or unmapped already.
    Cold,
    /// Local, and the kernel did not let it go when its turn had come.
    Pinned,
    /// On a store alone.
    Far,
    /// On no store and not local: every access gives SIGBUS.
    Lost,
    /// Never written to: it takes no memory.
    Untouched,
}

impl Warmth {
    /// All of them, in the order of [`HeatBlock::looked_at`].
    pub const ALL: [Self; 8] = [
        Self::Hot,
        Self::Warm,
        Self::Untold,
        Self::Cold,
        Self::Pinned,
        Self::Far,
        Self::Lost,
        Self::Untouched,
    ];

    /// By what is known of a page.
    #[must_use]
    pub fn of(info: PageInfo, rank: u8, is_refused: bool) -> Self {
        match (info.state, rank) {
            (PageState::Absent, _) => Self::Untouched,
            (PageState::Far { .. }, _) => Self::Far,
            (PageState::Poisoned { .. }, _) => Self::Lost,
            (PageState::Inactive { .. } | PageState::Writeback { .. }, _) => Self::Cold,
            (PageState::Mapped { .. }, _) if is_refused => Self::Pinned,
            (PageState::Mapped { .. }, use_history::UNKNOWN) => Self::Untold,
            (PageState::Mapped { .. }, 0) => Self::Cold,
            (PageState::Mapped { .. }, HOT..) => Self::Hot,
            (PageState::Mapped { .. }, _) => Self::Warm,
        }
    }
}

/// A block of addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeatBlock {
    /// Its first address, in blocks.
    pub number: u64,
    /// Pages in it under management.
    pub managed_pages: u32,
    /// Pages in it that are left to the kernel.
    pub native_pages: u32,
    /// How those managed pages are that were looked at, by [`Warmth::ALL`].
    pub looked_at: [u16; Warmth::ALL.len()],
}

/// What a process told of its memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heat {
    /// The binary logarithm of a block's bytes.
    pub block_shift: u32,
    /// One group of pages in so many was looked at.
    pub one_in: u64,
    /// The blocks that have memory, by their addresses.
    pub blocks: Vec<HeatBlock>,
}

impl Heat {
    /// Looks through the memory of a process: its managed ranges, those that are left to the kernel, both in
    /// the order of their addresses. `turn` is another number at each look.
    pub fn of(
        managed: &[Range<usize>],
        native: &[Range<usize>],
        turn: u64,
        mut warmth_of: impl FnMut(u64) -> Warmth,
    ) -> Self {
        let block_shift = shift_for(managed, native);
        let mut blocks = Blocks { shift: block_shift, blocks: Vec::with_capacity(MOST_BLOCKS) };
        managed.iter().for_each(|range| blocks.add(range, |block| &mut block.managed_pages));
        native.iter().for_each(|range| blocks.add(range, |block| &mut block.native_pages));
        blocks.blocks.sort_unstable_by_key(|block| block.number);
        let groups: u64 = managed.iter().map(|range| groups_of(range).count() as u64).sum();
        let one_in = groups.div_ceil(MOST_GROUPS).max(1);
        // Groups to be passed over until the next one that is looked at.
        let mut skip = turn % one_in;
        for range in managed {
            let (groups, (first, end)) = (groups_of(range), pages_of(range));
            let mut group = groups.start + skip;
            while group < groups.end {
                let pages = first.max(group * GROUP_PAGES)..end.min((group + 1) * GROUP_PAGES);
                blocks.look_at(pages, &mut warmth_of);
                group += one_in;
            }
            skip = group - groups.end;
        }
        Self { block_shift, one_in, blocks: blocks.blocks }
    }
}

fn pages_of(range: &Range<usize>) -> (u64, u64) {
    (range.start as u64 >> PAGE_SHIFT, range.end as u64 >> PAGE_SHIFT)
}

fn groups_of(range: &Range<usize>) -> Range<u64> {
    let (first, end) = pages_of(range);
    first / GROUP_PAGES..end.div_ceil(GROUP_PAGES)
}

/// The least size of blocks at which there are few enough.
fn shift_for(managed: &[Range<usize>], native: &[Range<usize>]) -> u32 {
    let is_enough = |shift: &u32| {
        let mut blocks = Blocks { shift: *shift, blocks: Vec::with_capacity(MOST_BLOCKS + 1) };
        managed.iter().chain(native).all(|range| blocks.make(range))
    };
    // An address has 47 bits, so at that size all is one.
    (LEAST_SHIFT..usize::BITS - 1).find(is_enough).unwrap_or(usize::BITS - 1)
}

/// Blocks as they come: by address within the managed and within the native ones.
struct Blocks {
    shift: u32,
    blocks: Vec<HeatBlock>,
}

impl Blocks {
    fn numbers(&self, range: &Range<usize>) -> Range<u64> {
        if range.is_empty() {
            return 0..0;
        }
        range.start as u64 >> self.shift..((range.end - 1) as u64 >> self.shift) + 1
    }

    fn place(&mut self, number: u64) -> Option<usize> {
        let found = self.blocks.binary_search_by_key(&number, |block| block.number);
        match found {
            Ok(at) => Some(at),
            Err(_) if self.blocks.len() == MOST_BLOCKS => None,
            Err(at) => {
                self.blocks.insert(at, HeatBlock { number, ..HeatBlock::default() });
                Some(at)
            }
        }
    }

    /// Makes the blocks of a range; false where there would be too many.
    fn make(&mut self, range: &Range<usize>) -> bool {
        self.numbers(range).all(|number| self.place(number).is_some())
    }

    fn add(&mut self, range: &Range<usize>, counted: fn(&mut HeatBlock) -> &mut u32) {
        for number in self.numbers(range) {
            let (start, end) = (number << self.shift, (number + 1) << self.shift);
            let part = (range.end as u64).min(end).saturating_sub((range.start as u64).max(start));
            let pages = u32::try_from(part >> PAGE_SHIFT).unwrap_or(u32::MAX);
            if let Some(at) = self.place(number) {
                let pages_so_far = counted(&mut self.blocks[at]);
                *pages_so_far = pages_so_far.saturating_add(pages);
            }
        }
    }

    /// Looks at the pages of a group, which lies within a block.
    fn look_at(&mut self, pages: Range<u64>, mut warmth_of: impl FnMut(u64) -> Warmth) {
        let number = pages.start >> (self.shift - PAGE_SHIFT);
        if let Ok(at) = self.blocks.binary_search_by_key(&number, |block| block.number) {
            for page in pages {
                let looked_at = &mut self.blocks[at].looked_at[warmth_of(page) as usize];
                *looked_at = looked_at.saturating_add(1);
            }
        }
    }
}

/// The words by which one process is asked for its heat.
#[derive(Clone, Copy)]
pub struct HeatWords<'a>(pub(super) &'a [AtomicU64]);

impl HeatWords<'_> {
    fn word(&self, at: usize) -> u64 {
        self.0[at].load(Ordering::Relaxed)
    }

    fn set(&self, at: usize, word: u64) {
        self.0[at].store(word, Ordering::Relaxed);
    }

    /// Asks; returns the number by which the answer is known.
    pub(super) fn ask(&self) -> u64 {
        self.0[ASKED_AT].fetch_add(1, Ordering::Release) + 1
    }

    /// The answer to what was asked by this number; none as long as there is none.
    pub(super) fn answered(&self, number: u64) -> Option<Heat> {
        if self.0[ANSWERED_AT].load(Ordering::Acquire) != number {
            return None;
        }
        let form = self.word(FORM_AT);
        let blocks = (form & u64::from(u32::MAX)) as usize;
        let block = |block: usize| {
            let at = BLOCKS_AT + block * BLOCK_WORDS;
            let pages = self.word(at + 1);
            let (first, second) = (self.word(at + 2), self.word(at + 3));
            HeatBlock {
                number: self.word(at),
                managed_pages: (pages >> 32) as u32,
                native_pages: pages as u32,
                looked_at: std::array::from_fn(|which| {
                    let word = if which < 4 { first } else { second };
                    (word >> (which % 4 * 16)) as u16
                }),
            }
        };
        Some(Heat {
            block_shift: (form >> 32) as u32,
            one_in: self.word(ONE_IN_AT),
            blocks: (0..blocks.min(MOST_BLOCKS)).map(block).collect(),
        })
    }

    /// Whether something was asked that is not answered.
    pub(crate) fn is_open(&self) -> bool {
        self.0[ASKED_AT].load(Ordering::Acquire) != self.0[ANSWERED_AT].load(Ordering::Relaxed)
    }

    /// Answers what was asked by the number that stands there before `tell` is called with it.
    pub(crate) fn answer(&self, tell: impl FnOnce(u64) -> Heat) {
        let number = self.0[ASKED_AT].load(Ordering::Acquire);
        let heat = tell(number);
        let blocks = &heat.blocks[..heat.blocks.len().min(MOST_BLOCKS)];
        self.set(FORM_AT, u64::from(heat.block_shift) << 32 | blocks.len() as u64);
        self.set(ONE_IN_AT, heat.one_in);
        for (block, at) in blocks.iter().zip((BLOCKS_AT..).step_by(BLOCK_WORDS)) {
            let packed = |counts: &[u16]| {
                counts.iter().rev().fold(0, |word: u64, &count| word << 16 | u64::from(count))
            };
            let (first, second) = block.looked_at.split_at(4);
            self.set(at, block.number);
            self.set(at + 1, u64::from(block.managed_pages) << 32 | u64::from(block.native_pages));
            self.set(at + 2, packed(first));
            self.set(at + 3, packed(second));
        }
        self.0[ANSWERED_AT].store(number, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::slice::from_ref;

    const PAGE: usize = 1 << PAGE_SHIFT;
    const BLOCK: usize = 1 << LEAST_SHIFT;

    fn looked_at(block: &HeatBlock, warmth: Warmth) -> u16 {
        block.looked_at[warmth as usize]
    }

    #[test]
    fn pages_are_told_by_where_they_are_and_by_their_use() {
        let of = |state, rank| Warmth::of(PageInfo { state, generation: 0 }, rank, false);
        let mapped = PageState::Mapped { proactive: false, slot: None, protected_in: None };
        assert_eq!(of(mapped, 0), Warmth::Cold);
        assert_eq!([of(mapped, 1), of(mapped, HOT - 1)], [Warmth::Warm; 2]);
        assert_eq!([of(mapped, HOT), of(mapped, use_history::HIGHEST)], [Warmth::Hot; 2]);
        assert_eq!(of(mapped, use_history::UNKNOWN), Warmth::Untold);
        let (far, lost) = (PageState::Far { slot: 1, left: 0 }, PageState::Poisoned { slot: None });
        assert_eq!([of(far, 21), of(lost, 21)], [Warmth::Far, Warmth::Lost]);
        assert_eq!(
            [of(PageState::Writeback { frame: 1 }, 21), of(PageState::Absent, 0)],
            [Warmth::Cold, Warmth::Untouched]
        );
        // It is in use for the pager, so that it is not tried again at once.
        let pinned = PageInfo { state: mapped, generation: 0 };
        assert_eq!(Warmth::of(pinned, use_history::HIGHEST, true), Warmth::Pinned);
    }

    #[test]
    fn small_memory_is_told_page_by_page_and_what_is_native_beside_it() {
        let managed = [BLOCK..BLOCK + 3 * PAGE, 2 * BLOCK - PAGE..2 * BLOCK + PAGE];
        let native = 5 * BLOCK..6 * BLOCK;
        let heat = Heat::of(&managed, from_ref(&native), 7, |page| {
            if page == (BLOCK / PAGE) as u64 { Warmth::Hot } else { Warmth::Far }
        });
        assert_eq!((heat.block_shift, heat.one_in), (LEAST_SHIFT, 1));
        let numbers: Vec<u64> = heat.blocks.iter().map(|block| block.number).collect();
        assert_eq!(numbers, [1, 2, 5]);
        let pages: Vec<_> =
            heat.blocks.iter().map(|block| (block.managed_pages, block.native_pages)).collect();
        assert_eq!(pages, [(4, 0), (1, 0), (0, 16)]);
        let counts: Vec<_> = heat
            .blocks
            .iter()
            .map(|block| (looked_at(block, Warmth::Hot), looked_at(block, Warmth::Far)))
            .collect();
        assert_eq!(counts, [(1, 3), (0, 1), (0, 0)]);
        assert!(Heat::of(&[], &[], 0, |_| Warmth::Hot).blocks.is_empty());
    }

    #[test]
    fn much_memory_is_looked_at_in_part_and_each_group_has_its_turn() {
        let bytes = 3 << 30;
        let managed = 1 << 40..(1 << 40) + bytes;
        let mut seen = std::collections::BTreeSet::new();
        let groups = bytes as u64 / PAGE as u64 / GROUP_PAGES;
        let mut one_in = 1;
        for turn in 0..24 {
            let mut count = 0;
            let heat = Heat::of(from_ref(&managed), &[], turn, |page| {
                count += 1;
                seen.insert(page / GROUP_PAGES);
                Warmth::Warm
            });
            one_in = heat.one_in;
            assert!((1..=MOST_GROUPS * GROUP_PAGES).contains(&count), "{count}");
            assert_eq!(heat.blocks.len(), 96, "32 MiB each");
            let told: u64 = heat.blocks.iter().map(|block| u64::from(looked_at(block, Warmth::Warm))).sum();
            assert_eq!(told, count);
        }
        assert_eq!((one_in, seen.len() as u64), (24, groups));
    }

    #[test]
    fn what_was_told_is_read_as_it_was() {
        let words: Vec<AtomicU64> = (0..HEAT_WORDS).map(|_| AtomicU64::new(0)).collect();
        let words = HeatWords(&words);
        assert!(!words.is_open());
        let block = |number| HeatBlock {
            number,
            managed_pages: u32::MAX,
            native_pages: 7,
            looked_at: [1, 2, 3, 4, 5, 6, u16::MAX, 8],
        };
        let told = Heat { block_shift: 21, one_in: 9, blocks: (0..127).map(block).collect() };
        for _ in 0..2 {
            let number = words.ask();
            assert!(words.is_open() && words.answered(number).is_none());
            words.answer(|asked| {
                assert_eq!(asked, number);
                told.clone()
            });
            assert!(!words.is_open());
            assert_eq!(words.answered(number).as_ref(), Some(&told));
            assert_eq!(words.answered(number + 1), None);
        }
    }

    proptest! {
        #[test]
        fn however_memory_lies_there_are_few_blocks_and_no_page_is_left_out(
            lengths in proptest::collection::vec((0_usize..1 << 14, 1_usize..2000, any::<bool>()), 0..60),
        ) {
            let (mut managed, mut native, mut at) = (Vec::new(), Vec::new(), 0);
            for (gap, pages, is_native) in lengths {
                let start = at + gap * PAGE;
                at = start + pages * PAGE;
                if is_native { native.push(start..at) } else { managed.push(start..at) }
            }
            let heat = Heat::of(&managed, &native, 3, |_| Warmth::Cold);
            prop_assert!(heat.blocks.len() <= MOST_BLOCKS);
            prop_assert!(heat.blocks.is_sorted_by(|one, other| one.number < other.number));
            let pages =
                |ranges: &[Range<usize>]| ranges.iter().map(|range| range.len() / PAGE).sum::<usize>();
            let told = |of: fn(&HeatBlock) -> u32| heat.blocks.iter().map(of).sum::<u32>() as usize;
            prop_assert_eq!(told(|block| block.managed_pages), pages(&managed));
            prop_assert_eq!(told(|block| block.native_pages), pages(&native));
            let looked: u64 = heat.blocks.iter().map(|block| u64::from(looked_at(block, Warmth::Cold))).sum();
            prop_assert!(looked <= MOST_GROUPS * GROUP_PAGES);
            prop_assert!(heat.one_in > 1 || looked as usize == pages(&managed));
        }
    }
}
