//! Which slots of a run's far memory are whose: stores lie one behind the other.

use std::ops::Range;

use spillway_core::page_word::MAX_SLOTS;
use spillway_core::slots::SLAB_SLOTS;

/// The slots of each store, in the order in which they are filled.
#[must_use]
pub fn slot_ranges(capacities: &[u32]) -> Vec<Range<u32>> {
    let mut start: u32 = 0;
    capacities
        .iter()
        .map(|&slots| {
            // A store begins on a slab of its own, so that no slab lies on two stores.
            let range = start..start.saturating_add(slots).min(MAX_SLOTS);
            start = range.end.checked_next_multiple_of(SLAB_SLOTS).unwrap_or(MAX_SLOTS).min(MAX_SLOTS);
            range
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_lie_one_behind_the_other() {
        assert_eq!(slot_ranges(&[100, 512, 7]), [0..100, 512..1024, 1024..1031]);
        assert_eq!(slot_ranges(&[u32::MAX, 5]), [0..MAX_SLOTS, MAX_SLOTS..MAX_SLOTS]);
    }
}
