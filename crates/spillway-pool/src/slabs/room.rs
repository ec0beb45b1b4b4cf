//! How much room slabs need, and how much they give.

use crate::EXTENT_SLOTS;

/// Most parts that are data.
pub const MOST_DATA: usize = 8;
/// Most parts that are parity.
pub const MOST_PARITY: usize = 3;
/// Most parts of a slab.
pub const MAX_PARTS: usize = MOST_DATA + MOST_PARITY;
/// Slabs that are written to at the same time by the run's processes.
pub const FRESH_STREAMS: usize = 2;
/// The stream of pages that are moved: what was left of other slabs lives longer than what is new.
pub const MOVED_STREAM: usize = FRESH_STREAMS;
/// All streams, that of moved pages included.
pub const STREAMS: usize = FRESH_STREAMS + 1;

/// Most slabs of a pool: a slot's word has so many bits for them.
pub const MAX_SLABS: u32 = 1 << 20;
/// Most of them that there can be room for at a time.
const MAX_ROOM: u32 = MAX_SLABS / 4 * 3;
/// One number more than there is room for, for each so many.
const MORE_NUMBERS: u32 = 4;
/// Slabs beside those that slots are offered for: one that each stream fills, and one that is emptied.
pub const SPARE_SLABS: u32 = STREAMS as u32 + 1;
/// Slabs of which room is kept in a last resort for pages that are moved.
pub(crate) const SLABS_KEPT_IN_SPILL: u32 = 1;
/// Of eight pages that the other slabs can hold, so many are offered: the rest is dead pages, until what
/// lives beside them is moved.
const OFFERED: u64 = 7;
const OF: u64 = 8;

/// Words of a slab beside the checks of its pages.
pub(crate) const SLAB_WORDS: usize = 16;

/// How a pool's pages are coded, and for how many there is room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coding {
    /// Parts of a slab that are pages as they are: 2 to [`MOST_DATA`].
    pub data: usize,
    /// Parts that are computed of them: 1 to [`MOST_PARITY`].
    pub parity: usize,
    /// Numbers for slabs: more than there is room for at a time, since what donors lost that came back empty
    /// has its numbers still.
    pub slabs: u32,
    /// Slots that are offered.
    pub slots: u32,
    /// Rows of a slab: those of an extent; fewer where a simulation is to come to their end.
    pub rows: u16,
}

impl Coding {
    /// With room for so many slabs, or as many as can be.
    #[must_use]
    pub fn of_slabs(data: usize, parity: usize, room: u32) -> Self {
        let room = room.min(MAX_ROOM);
        let pages = u64::from(room.saturating_sub(SPARE_SLABS)) * pages_of_slab(data);
        let slabs = room + room / MORE_NUMBERS + SPARE_SLABS;
        let slots = (pages * OFFERED / OF).min(u64::from(u32::MAX)) as u32;
        Self { data, parity, slabs, slots, rows: EXTENT_SLOTS as u16 }
    }

    /// Parts of a slab.
    #[must_use]
    pub fn parts(&self) -> usize {
        self.data + self.parity
    }

    /// Words that it takes in the table.
    pub(crate) fn words(&self) -> usize {
        self.slabs as usize * slab_words(self.data) + self.slots as usize
    }
}

/// Words of one slab, with a check for each page, two in a word.
pub(crate) fn slab_words(data: usize) -> usize {
    SLAB_WORDS + data * EXTENT_SLOTS as usize / 2
}

/// Pages that a slab holds.
fn pages_of_slab(data: usize) -> u64 {
    data as u64 * u64::from(EXTENT_SLOTS)
}

/// Extents that a last resort must have for pages coded so to be of use.
#[must_use]
pub fn least_spill_extents(data: usize) -> u32 {
    (SLABS_KEPT_IN_SPILL + 1) * data as u32
}

/// Slabs that so many slots need.
#[must_use]
pub fn slabs_for(slots: u64, data: usize) -> u64 {
    (slots * OF).div_ceil(OFFERED).div_ceil(pages_of_slab(data)) + u64::from(SPARE_SLABS)
}

const _: () = assert!(SLAB_WORDS > MAX_PARTS);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slabs_that_slots_need_offer_them() {
        for data in 2..=8 {
            for slots in [1, 511, 4096, 1_000_003] {
                let coding = Coding::of_slabs(data, 2, slabs_for(slots, data) as u32);
                assert!(u64::from(coding.slots) >= slots, "{coding:?}");
                let fewer = Coding::of_slabs(data, 2, slabs_for(slots, data) as u32 - 1);
                assert!(u64::from(fewer.slots) < slots, "{fewer:?}");
            }
        }
        assert_eq!(Coding::of_slabs(4, 2, SPARE_SLABS).slots, 0);
        assert!(Coding::of_slabs(4, 2, u32::MAX).slabs <= MAX_SLABS);
    }
}
