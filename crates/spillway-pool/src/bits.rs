//! Slots of one extent, a bit for each.

use crate::EXTENT_SLOTS;

/// Words of a bit for each slot of an extent.
pub const BITS_WORDS: usize = EXTENT_SLOTS as usize / 64;

/// A bit for each slot of an extent.
pub type Bits = [u64; BITS_WORDS];

/// The bits of these slots of an extent.
#[must_use]
pub fn bits_of(slots: impl IntoIterator<Item = u32>) -> Bits {
    let mut bits = [0; BITS_WORDS];
    for slot in slots {
        let within = slot % EXTENT_SLOTS;
        bits[within as usize / 64] |= 1 << (within % 64);
    }
    bits
}

/// The slots, within their extent, of these bits.
pub fn slots_of(bits: &Bits) -> impl Iterator<Item = u32> + '_ {
    (0..EXTENT_SLOTS).filter(|slot| has(bits, *slot))
}

/// Whether a slot's bit is set.
#[must_use]
pub fn has(bits: &Bits, slot: u32) -> bool {
    let within = slot % EXTENT_SLOTS;
    bits[within as usize / 64] >> (within % 64) & 1 == 1
}
