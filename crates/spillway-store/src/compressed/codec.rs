//! Pages in and out of lz4's block format, without allocation.

use lz4_flex::block::{CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size};
use spillway_core::page::{PAGE_SIZE, Page};

use super::classes::LARGEST_COMPRESSED_BYTES;

/// Where so many pages in a row have not become smaller, as a matrix of random numbers does not, the next are
/// taken as they are, but for one in [`STUBBORN_TRIED_ONE_IN`]: trying takes longer than copying.
const STUBBORN_PAGES: u32 = 64;
/// Of pages that come after [`STUBBORN_PAGES`] one in so many is tried, scattered: memory has patterns, and
/// each eighth page may be of another kind than those between.
const STUBBORN_TRIED_ONE_IN: u32 = 8;

/// Working memory of one lane.
pub struct Codec {
    table: CompressTable,
    packed: Vec<u8>,
    /// How many pages in a row were taken as they are.
    kept_in_a_row: u32,
}

impl Codec {
    pub fn new() -> Self {
        let packed = vec![0; get_maximum_output_size(PAGE_SIZE)];
        Self { table: CompressTable::small(), packed, kept_in_a_row: 0 }
    }

    /// The page compressed, or as it is (all 4096 bytes) when that is hardly longer, or is expected to be.
    pub fn pack<'a>(&'a mut self, page: &'a Page) -> &'a [u8] {
        let packed = if self.is_worth_a_try() { self.compress(page) } else { None };
        self.kept_in_a_row = packed.map_or(self.kept_in_a_row.wrapping_add(1), |_| 0);
        packed.and_then(|bytes| self.packed.get(..bytes)).unwrap_or(page)
    }

    fn is_worth_a_try(&self) -> bool {
        // Fibonacci hashing (Knuth, The Art of Computer Programming, 6.4): the gaps are 5, 8 and 13 pages.
        let scattered = self.kept_in_a_row.wrapping_mul(0x9E37_79B9);
        self.kept_in_a_row < STUBBORN_PAGES || scattered <= u32::MAX / STUBBORN_TRIED_ONE_IN
    }

    /// How many bytes it has become, where it is worth keeping so.
    fn compress(&mut self, page: &Page) -> Option<usize> {
        let bytes = compress_into_with_table(page, &mut self.packed, &mut self.table).ok()?;
        (bytes <= LARGEST_COMPRESSED_BYTES).then_some(bytes)
    }

    /// Room for `bytes` compressed bytes, to be read into and then given to [`Codec::unpack`].
    pub fn room_for(&mut self, bytes: usize) -> Option<&mut [u8]> {
        self.packed.get_mut(..bytes)
    }

    /// Decompresses what was read into [`Codec::room_for`] the same number of bytes. False when it is not
    /// a whole page.
    pub fn unpack(&self, bytes: usize, page: &mut Page) -> bool {
        let packed = self.packed.get(..bytes).unwrap_or_default();
        decompress_into(packed, page).is_ok_and(|bytes| bytes == PAGE_SIZE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::page_of;
    use proptest::prelude::*;

    #[test]
    fn pages_return() {
        let mut codec = Codec::new();
        for seed in 0..400 {
            let page = page_of(seed);
            let packed = codec.pack(&page).to_vec();
            match seed % 4 {
                0 => assert_eq!(packed, page),
                _ => assert!(packed.len() < 2200, "{} bytes", packed.len()),
            }
            if packed.len() < PAGE_SIZE {
                let mut back = [0; PAGE_SIZE];
                codec.room_for(packed.len()).unwrap().copy_from_slice(&packed);
                assert!(codec.unpack(packed.len(), &mut back));
                assert_eq!(back, page);
            }
        }
    }

    /// Whether each of these pages is taken as it is; seeds that are multiples of four do not compress.
    fn kept(codec: &mut Codec, seeds: impl Iterator<Item = u64>) -> Vec<bool> {
        seeds.map(|seed| codec.pack(&page_of(seed)).len() == PAGE_SIZE).collect()
    }

    #[test]
    fn after_many_pages_that_do_not_compress_few_are_tried_until_one_does() {
        let mut codec = Codec::new();
        let stubborn = |count: u32| (0..u64::from(count)).map(|i| i * 4);
        assert_eq!(kept(&mut codec, stubborn(STUBBORN_PAGES)), [true; STUBBORN_PAGES as usize]);
        let next = kept(&mut codec, (0..20).map(|i| i * 4 + 1));
        let tried = next.iter().position(|&kept| !kept).unwrap();
        assert!((1..=13).contains(&tried), "{next:?}");
        assert!(next[tried..].iter().all(|&kept| !kept), "one was tried, and so are all since: {next:?}");
        // A few that do not compress among others that do change nothing.
        let mixed = kept(&mut codec, 1..400);
        assert!((1..400).zip(&mixed).all(|(seed, &kept)| kept == (seed % 4 == 0)), "{mixed:?}");
    }

    #[test]
    fn a_pattern_does_not_hide_pages_that_compress() {
        for phase in 0..8 {
            let mut codec = Codec::new();
            kept(&mut codec, (0..u64::from(STUBBORN_PAGES)).map(|i| i * 4));
            // Each eighth page does not compress, those between do.
            let is_stubborn = |i: u64| i % 8 == phase;
            let next = kept(&mut codec, (0..400).map(|i| if is_stubborn(i) { i * 4 } else { i * 4 + 1 }));
            let hidden = (0..400).zip(&next).filter(|&(i, &kept)| kept && !is_stubborn(i)).count();
            assert!(hidden <= 26, "{hidden} at phase {phase}");
        }
    }

    proptest! {
        #[test]
        fn garbage_is_refused_or_fills_a_page(garbage in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut codec = Codec::new();
            codec.room_for(garbage.len()).unwrap().copy_from_slice(&garbage);
            codec.unpack(garbage.len(), &mut [0; PAGE_SIZE]);
        }

        #[test]
        fn a_damaged_page_does_no_harm(
            seed: u32,
            at: prop::sample::Index,
            byte: u8,
            cut: prop::sample::Index,
        ) {
            let mut codec = Codec::new();
            let mut packed = codec.pack(&page_of(u64::from(seed) * 4 + 1)).to_vec();
            *at.get_mut(&mut packed) = byte;
            packed.truncate(cut.index(packed.len()) + 1);
            codec.room_for(packed.len()).unwrap().copy_from_slice(&packed);
            codec.unpack(packed.len(), &mut [0; PAGE_SIZE]);
        }
    }
}
