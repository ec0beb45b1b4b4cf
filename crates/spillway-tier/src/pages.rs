//! The pages that are managed, numbered for policies: 2 MiB of a process's addresses at a time get 512
//! neighbouring numbers when a page of theirs is first seen, and give them back when none is left.

use std::collections::HashMap;

use spillway_core::page::PAGE_BYTES;
use spillway_policy::machine::{PageIndex, Tier};

/// Pages in a chunk: those of a huge mapping.
pub const PAGES_PER_CHUNK: u32 = 512;
/// Addresses in a chunk.
pub const CHUNK_BYTES: u64 = 2 << 20;

/// Bits of a page.
pub mod bit {
    /// It is there and known to the policy.
    pub const TOUCHED: u16 = 1 << 0;
    /// It lies in local memory.
    pub const LOCAL: u16 = 1 << 1;
    /// It was accessed since the policy last asked.
    pub const ACCESSED: u16 = 1 << 2;
    /// The policy has asked since the last scan: until the next there is no new answer.
    pub const TAKEN: u16 = 1 << 3;
    /// The policy waits for its next access.
    pub const MARKED: u16 = 1 << 4;
    /// A scan was had since it was marked, so that what the next one finds is an access after the mark.
    pub const ARMED: u16 = 1 << 5;
    /// The scan that goes on has seen it.
    pub const SEEN: u16 = 1 << 6;
    /// It came to local memory and was not seen in use since.
    pub const FRESH: u16 = 1 << 7;
    /// The kernel refused to move it.
    pub const REFUSED: u16 = 1 << 8;
    /// It is on its way to the tier where it is said to lie.
    pub const MOVING: u16 = 1 << 9;
    /// The last scan found it accessed.
    pub const RECENT: u16 = 1 << 10;
    /// An early scan found it accessed, of which the next steady one tells.
    pub const KEPT: u16 = 1 << 11;
    /// A marker in its process was told to take it out of its place, and has not said what became of it.
    pub const HELD: u16 = 1 << 12;
}

/// Addresses that have numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// The process whose chunk it is.
    pub process: u32,
    /// The first address of the chunk.
    pub address: u64,
    /// It is mapped as one huge page, known by its first.
    pub huge: bool,
    /// A page of it was accessed since a scan last asked.
    pub accessed: bool,
    /// Pages that are there and known to the policy.
    touched: u16,
}

/// The managed pages of a group, and what is known of each.
#[derive(Default)]
pub struct Pages {
    /// Bits of each page.
    pub bits: Vec<u16>,
    chunks: Vec<Option<Chunk>>,
    index: HashMap<(u32, u64), u32>,
    /// The chunk that was last asked for: scans ask for one page after the other.
    last: u32,
    /// Numbers given back, lowest last.
    free: Vec<u32>,
    /// Pages of each tier.
    used: [u32; 2],
    /// Some pages have no number, because all are in use.
    full: bool,
}

impl Pages {
    /// Numbers for this many pages, rounded up to chunks.
    #[must_use]
    pub fn new(pages: u32) -> Self {
        let chunks = pages.div_ceil(PAGES_PER_CHUNK).max(1);
        Self {
            bits: vec![0; (chunks * PAGES_PER_CHUNK) as usize],
            chunks: vec![None; chunks as usize],
            free: (0..chunks).rev().collect(),
            ..Self::default()
        }
    }

    /// How many numbers there are.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.bits.len() as u32
    }

    /// Whether pages were seen for which there was no number.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// Twice as many numbers; those that were given stay.
    pub fn grow(&mut self) {
        let chunks = self.chunks.len() as u32;
        self.bits.resize(self.bits.len() * 2, 0);
        self.chunks.resize(self.chunks.len() * 2, None);
        self.free.splice(0..0, (chunks..2 * chunks).rev());
        self.full = false;
    }

    /// Pages in use of a tier.
    #[must_use]
    pub fn used(&self, tier: Tier) -> u32 {
        self.used[tier as usize]
    }

    /// The chunk of a page.
    #[must_use]
    pub fn chunk(&self, page: PageIndex) -> Option<&Chunk> {
        self.chunks.get((page / PAGES_PER_CHUNK) as usize)?.as_ref()
    }

    /// The same, to be changed.
    pub fn chunk_mut(&mut self, page: PageIndex) -> Option<&mut Chunk> {
        self.chunks.get_mut((page / PAGES_PER_CHUNK) as usize)?.as_mut()
    }

    /// The page that is there at an address: a huge one, where the address lies in one.
    #[must_use]
    pub fn find_mapped(&self, process: u32, address: u64) -> Option<PageIndex> {
        let page = self.find(process, address)?;
        let huge = self.chunk(page).is_some_and(|chunk| chunk.huge);
        let page = if huge { page / PAGES_PER_CHUNK * PAGES_PER_CHUNK } else { page };
        self.tier_of(page).map(|_| page)
    }

    /// Whose page it is, and at what address.
    #[must_use]
    pub fn place_of(&self, page: PageIndex) -> Option<(u32, u64)> {
        let chunk = self.chunk(page)?;
        Some((chunk.process, chunk.address + u64::from(page % PAGES_PER_CHUNK) * PAGE_BYTES))
    }

    /// The page at an address, if it has a number.
    #[must_use]
    pub fn find(&self, process: u32, address: u64) -> Option<PageIndex> {
        let chunk = self.index.get(&(process, address / CHUNK_BYTES))?;
        Some(chunk * PAGES_PER_CHUNK + (address % CHUNK_BYTES / PAGE_BYTES) as u32)
    }

    /// The page at an address; gives it a number if there is one left.
    pub fn find_or_number(&mut self, process: u32, address: u64) -> Option<PageIndex> {
        let start = address / CHUNK_BYTES * CHUNK_BYTES;
        let is_it = |chunk: &Chunk| chunk.process == process && chunk.address == start;
        if self.chunk(self.last * PAGES_PER_CHUNK).is_some_and(is_it) {
            return Some(self.last * PAGES_PER_CHUNK + (address % CHUNK_BYTES / PAGE_BYTES) as u32);
        }
        if let Some(page) = self.find(process, address) {
            self.last = page / PAGES_PER_CHUNK;
            return Some(page);
        }
        let Some(chunk) = self.free.pop() else {
            self.full = true;
            return None;
        };
        self.last = chunk;
        self.chunks[chunk as usize] =
            Some(Chunk { process, address: start, huge: false, accessed: false, touched: 0 });
        self.index.insert((process, address / CHUNK_BYTES), chunk);
        self.find(process, address)
    }

    /// Where a page lies.
    #[must_use]
    pub fn tier_of(&self, page: PageIndex) -> Option<Tier> {
        let bits = *self.bits.get(page as usize)?;
        match (bits & bit::TOUCHED, bits & bit::LOCAL) {
            (0, _) => None,
            (_, 0) => Some(Tier::Far),
            _ => Some(Tier::Local),
        }
    }

    /// Pages that are mapped as one with this first one.
    #[must_use]
    pub fn span(&self, page: PageIndex) -> u32 {
        if self.chunk(page).is_some_and(|chunk| chunk.huge) { PAGES_PER_CHUNK } else { 1 }
    }

    /// A page is there: it comes to be known, in a tier.
    pub fn appear(&mut self, page: PageIndex, tier: Tier) {
        if self.tier_of(page).is_some() {
            return;
        }
        self.used[tier as usize] += self.span(page);
        let local = if tier == Tier::Local { bit::LOCAL } else { 0 };
        let kept = self.bits[page as usize] & (bit::SEEN | bit::ACCESSED | bit::HELD);
        self.bits[page as usize] = kept | bit::TOUCHED | local;
        if let Some(chunk) = self.chunk_mut(page) {
            chunk.touched += 1;
        }
    }

    /// A page is gone.
    pub fn vanish(&mut self, page: PageIndex) {
        let Some(tier) = self.tier_of(page) else { return };
        self.used[tier as usize] -= self.span(page);
        self.bits[page as usize] = 0;
        let Some(chunk) = self.chunk_mut(page) else { return };
        chunk.touched -= 1;
        if chunk.touched == 0 {
            chunk.huge = false;
        }
    }

    /// A page lies in a tier now, and all that was known of its use is old.
    pub fn relocate(&mut self, page: PageIndex, to: Tier) {
        let Some(from) = self.tier_of(page) else { return };
        let span = self.span(page);
        self.used[from as usize] -= span;
        self.used[to as usize] += span;
        let local = if to == Tier::Local { bit::LOCAL | bit::FRESH } else { 0 };
        let kept = self.bits[page as usize] & (bit::SEEN | bit::REFUSED | bit::HELD);
        self.bits[page as usize] = kept | bit::TOUCHED | local;
    }

    /// The first pages of a process's chunks.
    #[must_use]
    pub fn chunks_of(&self, process: u32) -> Vec<PageIndex> {
        let of = |chunk: &Option<Chunk>| chunk.is_some_and(|chunk| chunk.process == process);
        (0..).zip(&self.chunks).filter(|(_, chunk)| of(chunk)).map(|(at, _)| at * PAGES_PER_CHUNK).collect()
    }

    /// The first page from `page` on whose bits of `mask` are these; the number of pages where there is none.
    #[must_use]
    pub fn next_with(&self, page: PageIndex, mask: u16, bits: u16) -> PageIndex {
        let mut page = page;
        while page < self.count() {
            let end = (page / PAGES_PER_CHUNK + 1) * PAGES_PER_CHUNK;
            if self.chunk(page).is_some() {
                let is_it = |found: &u16| found & mask == bits;
                let of_chunk = &self.bits[page as usize..end as usize];
                // Without a way out in the middle, the compiler compares many at a time.
                if of_chunk.iter().fold(false, |any, found| any | is_it(found)) {
                    return page + of_chunk.iter().position(is_it).unwrap_or_default() as u32;
                }
            }
            page = end;
        }
        self.count()
    }

    /// Pages of a process, local and far.
    #[must_use]
    pub fn used_by(&self, process: u32) -> [u64; 2] {
        let mut used = [0; 2];
        for first in self.chunks_of(process) {
            for page in first..first + PAGES_PER_CHUNK {
                if let Some(tier) = self.tier_of(page) {
                    used[tier as usize] += u64::from(self.span(page));
                }
            }
        }
        used
    }

    /// Takes back the numbers of a chunk of which no page is left.
    pub fn release_if_empty(&mut self, first: PageIndex) {
        let at = (first / PAGES_PER_CHUNK) as usize;
        if let Some(chunk) = self.chunks[at].filter(|chunk| chunk.touched == 0) {
            self.index.remove(&(chunk.process, chunk.address / CHUNK_BYTES));
            self.chunks[at] = None;
            self.bits[first as usize..(first + PAGES_PER_CHUNK) as usize].fill(0);
            self.free.push(at as u32);
        }
    }

    /// A chunk is mapped as one huge page from now on, or no longer: its pages are other ones than before.
    pub fn remap(&mut self, page: PageIndex, huge: bool) {
        if self.chunk(page).is_none_or(|chunk| chunk.huge == huge) {
            return;
        }
        let first = page / PAGES_PER_CHUNK * PAGES_PER_CHUNK;
        (first..first + PAGES_PER_CHUNK).for_each(|page| self.vanish(page));
        if let Some(chunk) = self.chunk_mut(page) {
            chunk.huge = huge;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_have_neighbouring_numbers_and_numbers_come_back() {
        let mut pages = Pages::new(1000);
        assert_eq!(pages.count(), 1024);
        let page = pages.find_or_number(7, 5 * CHUNK_BYTES + PAGE_BYTES * 3 + 17).unwrap();
        assert_eq!(page, 3);
        assert_eq!(pages.find_or_number(7, 5 * CHUNK_BYTES + PAGE_BYTES * 4), Some(4));
        assert_eq!(pages.find(8, 5 * CHUNK_BYTES), None, "another process");
        assert_eq!(pages.find_or_number(8, 5 * CHUNK_BYTES), Some(512));
        assert_eq!(pages.place_of(515), Some((8, 5 * CHUNK_BYTES + 3 * PAGE_BYTES)));
        assert!(pages.find_or_number(9, 0).is_none() && pages.is_full());
        pages.grow();
        assert_eq!(pages.find_or_number(9, 0), Some(1024));
        pages.appear(3, Tier::Local);
        pages.release_if_empty(0);
        assert_eq!(pages.find(7, 5 * CHUNK_BYTES + PAGE_BYTES * 3), Some(3), "still in use");
        pages.vanish(3);
        pages.release_if_empty(0);
        assert_eq!(pages.find(7, 5 * CHUNK_BYTES + PAGE_BYTES * 3), None);
        assert_eq!(pages.find_or_number(1, 0), Some(0));
    }

    #[test]
    fn frames_are_counted_by_tier() {
        let mut pages = Pages::new(1024);
        for address in [0, PAGE_BYTES] {
            pages.find_or_number(7, address);
        }
        pages.appear(0, Tier::Local);
        pages.appear(1, Tier::Far);
        pages.appear(1, Tier::Local);
        assert_eq!((pages.used(Tier::Local), pages.used(Tier::Far)), (1, 1), "it is known already");
        pages.relocate(1, Tier::Local);
        assert_eq!((pages.used(Tier::Local), pages.tier_of(1)), (2, Some(Tier::Local)));
        pages.vanish(0);
        pages.vanish(0);
        assert_eq!(pages.used(Tier::Local), 1);
    }

    #[test]
    fn a_huge_mapping_is_one_page_and_takes_the_place_of_those_it_was_made_of() {
        let mut pages = Pages::new(512);
        for page in 0..3_u32 {
            pages.find_or_number(7, u64::from(page) * PAGE_BYTES);
            pages.appear(page, Tier::Far);
        }
        pages.remap(0, true);
        assert_eq!(pages.used(Tier::Far), 0);
        pages.appear(0, Tier::Local);
        assert_eq!((pages.span(0), pages.used(Tier::Local)), (512, 512));
        pages.remap(0, false);
        assert_eq!((pages.span(0), pages.used(Tier::Local)), (1, 0));
    }
}
