//! The TLB of one core: base and huge translations side by side, 4 ways, LRU.

use wide::u32x4;

use super::lru::Order;

const WAYS: usize = 4;

/// Tells a huge translation from that of a base page.
const HUGE: u32 = 1 << 31;

#[derive(Clone, Copy, Default)]
struct Set {
    /// Keys + 1; 0 for nothing.
    entries: [u32; WAYS],
    order: Order<WAYS>,
}

/// A TLB.
pub struct Tlb {
    sets: Vec<Set>,
    mask: u32,
}

/// The key of a base page's translation.
#[must_use]
pub fn base_key(page: u32) -> u32 {
    page
}

/// The key of a huge page's translation.
#[must_use]
pub fn huge_key(region: u32) -> u32 {
    region | HUGE
}

impl Tlb {
    /// A TLB of `entries` entries, rounded down to a power of two.
    #[must_use]
    pub fn new(entries: u32) -> Self {
        let sets = 1_u32 << (entries / WAYS as u32).max(1).ilog2();
        Self { sets: vec![Set::default(); sets as usize], mask: sets - 1 }
    }

    /// Whether a translation was there; now it is.
    #[inline(always)]
    pub fn access(&mut self, key: u32) -> bool {
        let Set { entries, order } = &mut self.sets[((key ^ key >> 9) & self.mask) as usize];
        let matches = u32x4::new(*entries).simd_eq(u32x4::splat(key + 1)).to_bitmask();
        let way = if matches != 0 { matches.trailing_zeros() as usize } else { order.oldest() };
        order.note(way);
        entries[way % WAYS] = key + 1;
        matches != 0
    }

    /// Drops a translation.
    pub fn invalidate(&mut self, key: u32) {
        let set = &mut self.sets[((key ^ key >> 9) & self.mask) as usize];
        if let Some(slot) = set.entries.iter_mut().find(|slot| **slot == key + 1) {
            *slot = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recent_translation_goes() {
        let mut tlb = Tlb::new(4);
        for key in 0..4 {
            assert!(!tlb.access(key));
        }
        assert!(tlb.access(0));
        assert!(!tlb.access(4), "pushes out 1");
        assert!(tlb.access(0) && !tlb.access(1));
        tlb.invalidate(0);
        assert!(!tlb.access(0));
    }

    #[test]
    fn huge_and_base_keys_differ() {
        let mut tlb = Tlb::new(64);
        assert!(!tlb.access(base_key(7)));
        assert!(!tlb.access(huge_key(7)));
        assert!(tlb.access(base_key(7)) && tlb.access(huge_key(7)));
    }
}
