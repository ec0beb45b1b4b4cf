//! How broken memory is, as one number.

/// The share of `pages` that does not lie in whole ranges of 2 MiB, 0 (all of them do) to 1 (none does). 0
/// where there are no pages. Of free memory it is the kernel's *unusable free space index* for order 9
/// (`mm/vmstat.c`, `extfrag/unusable_index`).
#[must_use]
pub fn fragmentation_index(pages: usize, in_whole_ranges: usize) -> f64 {
    if pages == 0 { 0.0 } else { 1.0 - in_whole_ranges.min(pages) as f64 / pages as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_in_whole_ranges_is_not_fragmented() {
        assert_eq!(
            [(0, 0), (512, 512), (1024, 512), (7, 0)].map(|(pages, whole)| fragmentation_index(pages, whole)),
            [0.0, 0.0, 0.5, 1.0]
        );
    }
}
