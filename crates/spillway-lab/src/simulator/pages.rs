//! The simulated pages: one byte each, one byte a huge region, and which addresses they stand for.

use spillway_policy::machine::{PageIndex, Tier};

use crate::workload::Region;
use spillway_core::page::{HUGE_BYTES, PAGE_SHIFT};

/// Bits of a page.
pub mod bit {
    /// Accesses go through without a fault.
    pub const MAPPED: u8 = 1 << 0;
    /// It lies in local memory.
    pub const LOCAL: u8 = 1 << 1;
    /// It was touched, and so lies somewhere.
    pub const TOUCHED: u8 = 1 << 2;
    /// The hardware's accessed bit.
    pub const ACCESSED: u8 = 1 << 3;
    /// Accessed since the last count of pages in use: the truth, which no policy sees.
    pub const IN_USE: u8 = 1 << 4;
    /// Written since it came to where it lies.
    pub const DIRTY: u8 = 1 << 5;
    /// Came to local memory and was not accessed since.
    pub const FRESH: u8 = 1 << 6;
    /// Made to fault by the policy.
    pub const MARKED: u8 = 1 << 7;
}

/// Bits of a huge region.
pub mod region_bit {
    /// The accessed bit of the page table's upper level; of the mapping itself where it is huge.
    pub const ACCESSED: u8 = 1 << 0;
    /// It is mapped as one huge page.
    pub const HUGE: u8 = 1 << 1;
}

/// Where addresses are, as page numbers without gaps: regions are whole huge pages.
pub struct AddressMap {
    /// The first address, in chunks.
    first: u64,
    /// Where each chunk of addresses from `first` on begins in `pages`; at 0 where no region is.
    chunks: Vec<u32>,
    /// First page of each huge page of the chunks that have a region; the first chunk has none.
    pages: Vec<u32>,
    page_shift: u32,
    page_count: u32,
}

const NOT_MAPPED: u32 = u32::MAX;
const HUGE_SHIFT: u32 = HUGE_BYTES.trailing_zeros();

/// Huge pages of a chunk: 2 GiB of addresses. A program's heap and its libraries lie up to 128 TiB apart.
const CHUNK_SHIFT: u32 = 10;
const CHUNK: usize = 1 << CHUNK_SHIFT;

/// Most chunks between the first and the last address: 128 TiB.
const MAX_SPAN: u64 = 1 << (47 - HUGE_SHIFT - CHUNK_SHIFT);

impl AddressMap {
    /// The pages of `page_bytes` of these regions. None where they are empty or too far apart.
    #[must_use]
    pub fn new(regions: &[Region], page_bytes: u64) -> Option<Self> {
        let huge_pages =
            |region: &Region| region.start >> HUGE_SHIFT..(region.start + region.bytes).div_ceil(HUGE_BYTES);
        let first = regions.iter().map(|region| huge_pages(region).start >> CHUNK_SHIFT).min()?;
        let end = regions.iter().map(|region| huge_pages(region).end.div_ceil(CHUNK as u64)).max()?;
        if end - first > MAX_SPAN {
            return None;
        }
        let page_shift = page_bytes.trailing_zeros();
        let mut chunks = vec![0; (end - first) as usize];
        let mut pages = vec![NOT_MAPPED; CHUNK];
        let mut page_count = 0;
        let mut sorted: Vec<&Region> = regions.iter().collect();
        sorted.sort_by_key(|region| region.start);
        for huge in sorted.into_iter().flat_map(huge_pages) {
            let chunk = &mut chunks[((huge >> CHUNK_SHIFT) - first) as usize];
            if *chunk == 0 {
                *chunk = pages.len() as u32;
                pages.resize(pages.len() + CHUNK, NOT_MAPPED);
            }
            let slot = &mut pages[*chunk as usize + huge as usize % CHUNK];
            if *slot == NOT_MAPPED {
                *slot = page_count;
                page_count += 1_u32 << (HUGE_SHIFT - page_shift);
            }
        }
        Some(Self { first, chunks, pages, page_shift, page_count })
    }

    /// How many pages there are.
    #[must_use]
    pub fn page_count(&self) -> u32 {
        self.page_count
    }

    /// The page of an address; none where the workload said there is no memory.
    #[inline]
    #[must_use]
    pub fn page_of(&self, address: u64) -> Option<PageIndex> {
        let huge = address >> HUGE_SHIFT;
        let chunk = *self.chunks.get((huge >> CHUNK_SHIFT).wrapping_sub(self.first) as usize)?;
        let first = *self.pages.get(chunk as usize + huge as usize % CHUNK)?;
        let within = (address & (HUGE_BYTES - 1)) >> self.page_shift;
        (first != NOT_MAPPED).then(|| first + within as u32)
    }

    /// The pages that lie whole within so many pages of 4 KiB from this one on.
    pub fn pages_within(&self, page_number: u64, pages: u64) -> impl Iterator<Item = PageIndex> {
        let (start, end) = (page_number << PAGE_SHIFT, (page_number + pages) << PAGE_SHIFT);
        let [first, end] = [start.div_ceil(1 << self.page_shift), end >> self.page_shift];
        (first..end.max(first)).filter_map(|number| self.page_of(number << self.page_shift))
    }
}

/// The pages of one program.
pub struct Pages {
    /// Bits of each page.
    pub flags: Vec<u8>,
    /// Bits of each huge region.
    pub regions: Vec<u8>,
    /// Whether a local page has a copy in far memory, write-protected meanwhile; empty where none ever had.
    far_copies: Vec<bool>,
    /// `log2` of the pages in a huge region.
    pub huge_shift: u32,
    /// Frames of each tier: all, and those in no use.
    capacity: [u32; 2],
    free: [u32; 2],
}

impl Pages {
    /// `page_count` untouched pages, and frames for `local_pages` of them; the far tier has room for all.
    #[must_use]
    pub fn new(page_count: u32, page_bytes: u64, local_pages: u32) -> Self {
        let huge_shift = HUGE_SHIFT - page_bytes.trailing_zeros();
        let capacity = [local_pages.min(page_count), page_count];
        Self {
            flags: vec![0; page_count as usize],
            regions: vec![0; (page_count >> huge_shift) as usize],
            far_copies: Vec::new(),
            huge_shift,
            capacity,
            free: capacity,
        }
    }

    /// Pages in a huge region.
    #[must_use]
    pub fn pages_per_huge(&self) -> u32 {
        1 << self.huge_shift
    }

    /// Frames of a tier.
    #[must_use]
    pub fn capacity(&self, tier: Tier) -> u32 {
        self.capacity[tier as usize]
    }

    /// Unused frames of a tier.
    #[must_use]
    pub fn free(&self, tier: Tier) -> u32 {
        self.free[tier as usize]
    }

    /// Whether a page is part of a huge mapping.
    #[inline]
    #[must_use]
    pub fn is_huge(&self, page: PageIndex) -> bool {
        self.regions[(page >> self.huge_shift) as usize] & region_bit::HUGE != 0
    }

    /// The page that stands for a page: itself, or the first one of its huge mapping.
    #[inline]
    #[must_use]
    pub fn head(&self, page: PageIndex) -> PageIndex {
        if self.is_huge(page) { page >> self.huge_shift << self.huge_shift } else { page }
    }

    /// How many pages a head stands for.
    #[inline]
    #[must_use]
    pub fn span(&self, head: PageIndex) -> u32 {
        if self.is_huge(head) { self.pages_per_huge() } else { 1 }
    }

    /// The bits of the pages that a head stands for.
    pub fn mapping_mut(&mut self, head: PageIndex) -> &mut [u8] {
        let span = self.span(head) as usize;
        &mut self.flags[head as usize..head as usize + span]
    }

    /// Where a page lies.
    #[must_use]
    pub fn tier_of(&self, page: PageIndex) -> Option<Tier> {
        let flags = self.flags[page as usize];
        match (flags & bit::TOUCHED, flags & bit::LOCAL) {
            (0, _) => None,
            (_, 0) => Some(Tier::Far),
            _ => Some(Tier::Local),
        }
    }

    /// Whether a page has a copy in far memory.
    #[inline]
    #[must_use]
    pub fn has_far_copy(&self, page: PageIndex) -> bool {
        self.far_copies.get(page as usize).is_some_and(|has| *has)
    }

    /// A page has a copy in far memory from now on, or no more.
    pub fn set_far_copy(&mut self, page: PageIndex, has: bool) {
        if has && self.far_copies.is_empty() {
            self.far_copies = vec![false; self.flags.len()];
        }
        if let Some(copy) = self.far_copies.get_mut(page as usize) {
            *copy = has;
        }
    }

    /// Takes `pages` frames of a tier; false, and nothing is taken, where there are not as many.
    pub fn take_frames(&mut self, tier: Tier, pages: u32) -> bool {
        let free = &mut self.free[tier as usize];
        let enough = *free >= pages;
        if enough {
            *free -= pages;
        }
        enough
    }

    /// Gives frames back to a tier.
    pub fn give_frames(&mut self, tier: Tier, pages: u32) {
        self.free[tier as usize] += pages;
    }

    /// Local pages that were accessed since the last call, and local pages.
    pub fn count_in_use(&mut self) -> (u32, u32) {
        let (mut in_use, mut local) = (0, 0);
        for flags in &mut self.flags {
            let lies_local = *flags & bit::LOCAL != 0;
            local += u32::from(lies_local);
            in_use += u32::from(lies_local && *flags & bit::IN_USE != 0);
            *flags &= !bit::IN_USE;
        }
        (in_use, local)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(start: u64, bytes: u64) -> Region {
        Region { name: "r", start, bytes }
    }

    #[test]
    fn addresses_become_page_numbers_without_gaps() {
        let regions = [region(64 << 30, 3 << 20), region(1 << 30, 4096)];
        let map = AddressMap::new(&regions, 4096).unwrap();
        assert_eq!(map.page_count(), 3 * 512);
        assert_eq!(map.page_of(1 << 30), Some(0));
        assert_eq!(map.page_of((64 << 30) + 4096), Some(513));
        assert_eq!(map.page_of((64 << 30) + (2 << 20)), Some(1024));
        assert_eq!(map.page_of((64 << 30) + (4 << 20)), None);
        assert_eq!(map.page_of(2 << 30), None);
        assert_eq!(map.page_of(0), None);
        assert!(AddressMap::new(&[], 4096).is_none());
    }

    #[test]
    fn of_larger_pages_those_are_within_that_lie_there_whole() {
        let within = |page_bytes, first, pages| {
            let map = AddressMap::new(&[region(2 << 20, 2 << 20)], page_bytes).unwrap();
            map.pages_within(first, pages).collect::<Vec<_>>()
        };
        assert_eq!(within(4096, 511, 3), [0, 1], "no page lies below the region");
        assert_eq!(within(64 << 10, 512 + 15, 33), [1, 2]);
        assert!(within(64 << 10, 512 + 1, 15).is_empty());
    }

    #[test]
    fn a_program_s_heap_and_its_libraries_lie_far_apart() {
        let (heap, library) = (0x55d5_e3c8_4000, 0x7ffc_ffff_f000);
        let map = AddressMap::new(&[region(library, 4096), region(heap, 8192)], 4096).unwrap();
        assert_eq!(
            (map.page_count(), map.page_of(heap), map.page_of(library)),
            (1024, Some(0x84), Some(1023))
        );
        assert_eq!(map.page_of(heap + (2 << 20)), None);
        assert!(AddressMap::new(&[region(0, 4096), region(1 << 48, 4096)], 4096).is_none());
    }

    #[test]
    fn a_huge_mapping_has_one_head() {
        let mut pages = Pages::new(1024, 4096, 512);
        pages.regions[1] |= region_bit::HUGE;
        assert_eq!((pages.head(511), pages.span(511)), (511, 1));
        assert_eq!((pages.head(777), pages.span(512)), (512, 512));
        assert!(pages.take_frames(Tier::Local, 512) && !pages.take_frames(Tier::Local, 1));
    }
}
