//! How far apart things are in pages, in few buckets: four a power of two.

/// Below this all distances are one.
const LEAST_SHIFT: u32 = 6;
const SUB_BITS: u32 = 2;
/// Powers of two that are told apart: up to 2^26 pages, 256 GiB.
const OCTAVES: usize = 20;

/// Buckets that distances fall into.
pub const DISTANCES: usize = 1 + (OCTAVES << SUB_BITS);

/// The bucket of a distance of so many pages.
#[must_use]
pub fn bucket_of(pages: u64) -> usize {
    if pages < 1 << LEAST_SHIFT {
        return 0;
    }
    let octave = pages.ilog2();
    let within = (pages >> (octave - SUB_BITS)) as usize & ((1 << SUB_BITS) - 1);
    (1 + (((octave - LEAST_SHIFT) as usize) << SUB_BITS) + within).min(DISTANCES - 1)
}

/// All distances of a bucket are less than this, in pages; the last one has those beyond too.
#[must_use]
pub fn end_of(bucket: usize) -> u64 {
    let Some(place) = bucket.checked_sub(1) else { return 1 << LEAST_SHIFT };
    let (octave, within) = (place >> SUB_BITS, place & ((1 << SUB_BITS) - 1));
    ((1 << SUB_BITS) + within as u64 + 1) << (LEAST_SHIFT + octave as u32 - SUB_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_distance_is_below_the_end_of_its_bucket_and_not_below_the_one_before(pages in 0_u64..1 << 26) {
            let bucket = bucket_of(pages);
            prop_assert!(pages < end_of(bucket));
            prop_assert!(bucket == 0 || pages >= end_of(bucket - 1));
        }
    }

    #[test]
    fn what_is_farther_than_any_is_in_the_last() {
        assert_eq!((bucket_of(1 << 26), bucket_of(u64::MAX)), (DISTANCES - 1, DISTANCES - 1));
        assert_eq!((end_of(0), end_of(1), end_of(DISTANCES - 1)), (64, 80, 1 << 26));
    }
}
