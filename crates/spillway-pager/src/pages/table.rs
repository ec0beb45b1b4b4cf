//! The words of all managed pages, found by address. Sparse: a leaf of 512 words stands for 2 MiB of
//! addresses and is made at the first fault there, so metadata costs 0.27% of the memory in use.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::{Errno, Result};
use spillway_core::page_word::PageWord;
use spillway_policy::use_history::UseHistory;
use spillway_sys::memory::Area;

const LEAF_SHIFT: u32 = 9;
const LEAF_PAGES: usize = 1 << LEAF_SHIFT;
/// A leaf and what goes with it: a header, and for each page two bytes that say how it is used and one of its
/// block.
const LEAF_WORDS: usize = BLOCK_BYTES + LEAF_PAGES / 8;
const USE_WORDS: usize = LEAF_PAGES + HEADER_WORDS;
/// Pages whose uses a word holds.
const USES_A_WORD: usize = 4;
const BLOCK_BYTES: usize = USE_WORDS + LEAF_PAGES / USES_A_WORD;
const HEADER_WORDS: usize = 8;
/// 47 bits of address, 12 within the page, 9 within the leaf; the rest in two levels.
const LEVEL_SHIFT: u32 = 13;
const LEVEL_ENTRIES: usize = 1 << LEVEL_SHIFT;
const AREA_BYTES: usize = 4 << 30;
const COMMIT_BYTES: usize = 1 << 20;

/// Words by page number. Leaves are never taken back, so a word that was found stays valid.
pub struct PageTable {
    area: Area,
    /// Bytes of the area used and committed. Locked only while a table is made.
    used: Mutex<(usize, usize)>,
}

impl PageTable {
    /// A table in which no page has a word yet.
    ///
    /// # Errors
    /// ENOMEM where there is no address space.
    pub fn new() -> Result<Self> {
        let area = Area::reserve(AREA_BYTES)?;
        let table = Self { area, used: Mutex::new((0, 0)) };
        table.allocate(LEVEL_ENTRIES * 8)?;
        Ok(table)
    }

    /// The same words, where a forked child finds them. For a simulated fork.
    ///
    /// # Errors
    /// The kernel's, where it gives no memory; EBUSY while a table is being made.
    pub fn for_child(&self) -> Result<Self> {
        let used = *self.used.try_lock().map_err(|_| Errno::BUSY)?;
        let area = Area::reserve(AREA_BYTES)?;
        area.commit(0, used.1)?;
        for (to, from) in area.words(0, used.0 / 8).iter().zip(self.area.words(0, used.0 / 8)) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        Ok(Self { area, used: Mutex::new(used) })
    }

    fn allocate(&self, bytes: usize) -> Result<usize> {
        let mut used = self.used.lock().map_err(|_| Errno::DEADLK)?;
        let (start, end) = (used.0, used.0 + bytes);
        if end > AREA_BYTES {
            return Err(Errno::NOMEM);
        }
        if end > used.1 {
            let committed = end.next_multiple_of(COMMIT_BYTES);
            self.area.commit(used.1, committed)?;
            used.1 = committed;
        }
        used.0 = end;
        Ok(start)
    }

    /// The table behind `entry` (as its offset), made of `words` words if there is none.
    fn descend(&self, entry: &AtomicU64, words: usize) -> Result<usize> {
        match entry.load(Ordering::Acquire) {
            0 => {
                let made = self.allocate(words * 8)? as u64;
                // Who comes second wastes a table, once.
                match entry.compare_exchange(0, made, Ordering::AcqRel, Ordering::Acquire) {
                    Ok(_) => Ok(made as usize),
                    Err(other) => Ok(other as usize),
                }
            }
            offset => Ok(offset as usize),
        }
    }

    fn indices(page_number: u64) -> (usize, usize, usize) {
        let leaf = page_number as usize >> LEAF_SHIFT;
        (
            leaf >> LEVEL_SHIFT & (LEVEL_ENTRIES - 1),
            leaf & (LEVEL_ENTRIES - 1),
            page_number as usize & (LEAF_PAGES - 1),
        )
    }

    /// What an entry leads to, if it was made.
    fn behind(&self, entry: &AtomicU64, words: usize) -> Option<&[AtomicU64]> {
        let offset = entry.load(Ordering::Acquire) as usize;
        (offset != 0).then(|| self.area.words(offset, words))
    }

    /// The entries of the leaves that lie below `top`.
    fn middle(&self, top: usize) -> Option<&[AtomicU64]> {
        self.behind(&self.area.words(0, LEVEL_ENTRIES)[top], LEVEL_ENTRIES)
    }

    fn leaf(&self, page_number: u64) -> Option<&[AtomicU64]> {
        let (top, middle, _) = Self::indices(page_number);
        self.behind(&self.middle(top)?[middle], LEAF_WORDS)
    }

    /// The word of a page, if anything near it was ever touched.
    #[must_use]
    pub fn find(&self, page_number: u64) -> Option<PageWord<'_>> {
        Some(PageWord(&self.leaf(page_number)?[Self::indices(page_number).2]))
    }

    /// The word of a page.
    ///
    /// # Errors
    /// ENOMEM where the machine gives no memory for a further part of the table.
    pub fn find_or_make(&self, page_number: u64) -> Result<PageWord<'_>> {
        let (top, middle, within) = Self::indices(page_number);
        let table = self.descend(&self.area.words(0, LEVEL_ENTRIES)[top], LEVEL_ENTRIES)?;
        let leaf = self.descend(&self.area.words(table, LEVEL_ENTRIES)[middle], LEAF_WORDS)?;
        Ok(PageWord(&self.area.words(leaf, LEAF_WORDS)[within]))
    }

    /// Where on the stores the pages of this 2 MiB are placed side by side: the first slot of a slab, plus
    /// one; 0 when no slab was chosen yet.
    #[must_use]
    pub fn slab_of(&self, page_number: u64) -> Option<&AtomicU64> {
        Some(&self.leaf(page_number)?[LEAF_PAGES])
    }

    /// How the pages of this 2 MiB were fetched last, by streams upwards; see [`spillway_policy::streams`].
    #[must_use]
    pub fn stream_of(&self, page_number: u64) -> Option<&AtomicU64> {
        Some(&self.leaf(page_number)?[LEAF_PAGES + 1])
    }

    /// The same of streams downwards.
    #[must_use]
    pub fn downward_stream_of(&self, page_number: u64) -> Option<&AtomicU64> {
        Some(&self.leaf(page_number)?[LEAF_PAGES + 4])
    }

    /// How often pages of this 2 MiB were written soon after they were fetched; see [`crate::evict::clean`].
    #[must_use]
    pub fn writes_of(&self, page_number: u64) -> Option<&AtomicU64> {
        Some(&self.leaf(page_number)?[LEAF_PAGES + 2])
    }

    /// When these 2 MiB were last made a huge page, or could not be; see [`crate::threads::density`].
    #[must_use]
    pub fn huge_try_of(&self, page_number: u64) -> Option<&AtomicU64> {
        Some(&self.leaf(page_number)?[LEAF_PAGES + 3])
    }

    /// How a page was used, as far as is known: a guess, which nobody locks for.
    #[must_use]
    pub fn use_of(&self, page_number: u64) -> UseHistory {
        let found = self.use_bits(page_number);
        found.map_or(UseHistory::NEW, |(word, shift)| {
            UseHistory::from_bits((word.load(Ordering::Relaxed) >> shift) as u16)
        })
    }

    /// Notes how a page was used. Where two note at once, the history of a page nearby may be lost.
    pub fn set_use(&self, page_number: u64, history: UseHistory) {
        let Some((word, shift)) = self.use_bits(page_number) else { return };
        let others = word.load(Ordering::Relaxed) & !(u64::from(u16::MAX) << shift);
        word.store(others | u64::from(history.to_bits()) << shift, Ordering::Relaxed);
    }

    fn use_bits(&self, page_number: u64) -> Option<(&AtomicU64, u32)> {
        self.part_of(page_number, USE_WORDS, USES_A_WORD)
    }

    /// A page's part of the words from `first` of its leaf on, each of which holds those of so many pages:
    /// the word that it lies in, and the bits before it there.
    fn part_of(&self, page_number: u64, first: usize, pages_a_word: usize) -> Option<(&AtomicU64, u32)> {
        let within = Self::indices(page_number).2;
        let shift = within % pages_a_word * (u64::BITS as usize / pages_a_word);
        Some((&self.leaf(page_number)?[first + within / pages_a_word], shift as u32))
    }

    /// What is noted of a page for the sake of its block: see [`crate::pages::block_notes`].
    pub(crate) fn block_byte(&self, page_number: u64) -> Option<(&AtomicU64, u32)> {
        self.part_of(page_number, BLOCK_BYTES, 8)
    }

    /// The words of the pages `from..to` that were ever touched or lie near one that was.
    pub fn range(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, PageWord<'_>)> {
        let leaves = from >> LEAF_SHIFT..to.div_ceil(LEAF_PAGES as u64);
        (leaves.start >> LEVEL_SHIFT..leaves.end.div_ceil(LEVEL_ENTRIES as u64))
            .filter_map(move |top| Some((top << LEVEL_SHIFT, self.middle(top as usize)?)))
            .flat_map(move |(first, entries)| {
                let within = leaves.start.max(first)..leaves.end.min(first + LEVEL_ENTRIES as u64);
                within.map(move |leaf| (leaf << LEAF_SHIFT, &entries[(leaf - first) as usize]))
            })
            .filter_map(move |(start, entry)| Some((start, self.behind(entry, LEAF_WORDS)?)))
            .flat_map(move |(start, words)| {
                let first = from.max(start) - start;
                let last = (to - start).min(LEAF_PAGES as u64);
                (first..last).map(move |within| (start + within, PageWord(&words[within as usize])))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spillway_core::page_word::{PageInfo, PageState};

    #[test]
    fn each_page_has_a_history_of_its_own() {
        let table = PageTable::new().unwrap();
        let pages = [0, 1, 7, 8, 511];
        table.set_use(0, UseHistory::USED_LAST);
        assert_eq!(table.use_of(0), UseHistory::NEW, "nothing near it was ever touched");
        assert!(table.find_or_make(0).is_ok());
        for (i, &page) in pages.iter().enumerate() {
            table.set_use(page, UseHistory::from_bits(0x3F0 + i as u16));
        }
        let found = pages.map(|page| table.use_of(page).to_bits());
        assert_eq!(found, [0x3F0, 0x3F1, 0x3F2, 0x3F3, 0x3F4]);
        assert_eq!([2, 6, 510].map(|page| table.use_of(page)), [UseHistory::NEW; 3]);
        assert_eq!(table.find(511).unwrap().peek(), PageInfo::ABSENT);
    }

    #[test]
    fn words_are_found_where_they_were_put() {
        let table = PageTable::new().unwrap();
        let numbers = [0, 1, 511, 512, 0x7_FFFF_FFFF, 0x5_5555_4321];
        assert!(numbers.iter().all(|&number| table.find(number).is_none()));
        for (i, &number) in numbers.iter().enumerate() {
            let word = table.find_or_make(number).unwrap();
            let info = word.try_lock().unwrap();
            assert_eq!(info, PageInfo::ABSENT);
            let _ = word.unlock(PageInfo { state: PageState::Far { slot: i as u32, left: 0 }, ..info });
        }
        for (i, &number) in numbers.iter().enumerate() {
            assert_eq!(table.find(number).unwrap().peek().slot(), Some(i as u32));
        }
        let far: Vec<u64> =
            table.range(1, 513).filter(|(_, word)| word.peek().is_far()).map(|(n, _)| n).collect();
        assert_eq!(far, [1, 511, 512]);
        assert_eq!(table.range(1 << 30, 1 << 31).count(), 0);
    }
}
