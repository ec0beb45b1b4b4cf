//! Pages in and out of lz4's block format, without allocation.

use lz4_flex::block::{CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size};
use spillway_core::page::{PAGE_SIZE, Page};

use super::classes::LARGEST_COMPRESSED_BYTES;

/// Working memory of one lane.
pub struct Codec {
    table: CompressTable,
    packed: Vec<u8>,
}

impl Codec {
    pub fn new() -> Self {
        Self { table: CompressTable::small(), packed: vec![0; get_maximum_output_size(PAGE_SIZE)] }
    }

    /// The page compressed, or as it is (all 4096 bytes) when that is hardly longer.
    pub fn pack<'a>(&'a mut self, page: &'a Page) -> &'a [u8] {
        compress_into_with_table(page, &mut self.packed, &mut self.table)
            .ok()
            .filter(|bytes| *bytes <= LARGEST_COMPRESSED_BYTES)
            .and_then(|bytes| self.packed.get(..bytes))
            .unwrap_or(page)
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
