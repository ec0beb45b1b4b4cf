//! The TLB of one core: base and huge translations, side by side or each with entries of their own; 4 ways,
//! LRU.

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

/// A TLB with entries for base and for huge pages.
pub struct Tlb {
    sets: Vec<Set>,
    base_mask: u32,
    /// Where the sets of huge translations begin.
    huge_first: u32,
    huge_mask: u32,
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
    /// A TLB of `entries` entries, and of `huge_entries` for huge pages, each rounded down to a power of two;
    /// 0 huge ones: all pages share.
    #[must_use]
    pub fn new(entries: u32, huge_entries: u32) -> Self {
        let sets = |entries: u32| 1_u32 << (entries / WAYS as u32).max(1).ilog2();
        let base = sets(entries);
        let (huge_first, huge) = if huge_entries > 0 { (base, sets(huge_entries)) } else { (0, base) };
        let all = vec![Set::default(); (huge_first + huge) as usize];
        Self { sets: all, base_mask: base - 1, huge_first, huge_mask: huge - 1 }
    }

    #[inline(always)]
    fn set(&mut self, key: u32) -> &mut Set {
        let folded = key ^ key >> 9;
        let huge = self.huge_first + (folded & self.huge_mask);
        let at = if key & HUGE != 0 { huge } else { folded & self.base_mask };
        &mut self.sets[at as usize]
    }

    /// Whether a translation was there; now it is.
    #[inline(always)]
    pub fn access(&mut self, key: u32) -> bool {
        let Set { entries, order } = self.set(key);
        let matches = u32x4::new(*entries).simd_eq(u32x4::splat(key + 1)).to_bitmask();
        let way = if matches != 0 { matches.trailing_zeros() as usize } else { order.oldest() };
        order.note(way);
        entries[way % WAYS] = key + 1;
        matches != 0
    }

    /// Drops every translation. A TLB is small, so that this costs no more than a generation in each entry
    /// would.
    pub fn flush(&mut self) {
        self.sets.fill(Set::default());
    }

    /// Drops a translation, if it is there.
    pub fn invalidate(&mut self, key: u32) {
        if let Some(slot) = self.set(key).entries.iter_mut().find(|slot| **slot == key + 1) {
            *slot = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recent_translation_goes() {
        let mut tlb = Tlb::new(4, 0);
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
        let mut tlb = Tlb::new(64, 0);
        assert!(!tlb.access(base_key(7)));
        assert!(!tlb.access(huge_key(7)));
        assert!(tlb.access(base_key(7)) && tlb.access(huge_key(7)));
    }

    #[test]
    fn huge_pages_may_have_entries_of_their_own() {
        let mut tlb = Tlb::new(64, 4);
        assert!((0..5).all(|region| !tlb.access(huge_key(region))));
        assert!(!tlb.access(huge_key(0)), "pushed out by the fifth");
        assert!((0..64).all(|page| !tlb.access(base_key(page))));
        assert!(tlb.access(huge_key(4)), "base pages do not push it out");
        tlb.invalidate(huge_key(4));
        assert!(!tlb.access(huge_key(4)));
    }

    #[test]
    fn a_flush_drops_base_and_huge_translations() {
        let mut tlb = Tlb::new(64, 4);
        let keys = || (0..64).map(base_key).chain((0..4).map(huge_key));
        keys().for_each(|key| assert!(!tlb.access(key)));
        tlb.flush();
        keys().for_each(|key| assert!(!tlb.access(key)));
    }
}
