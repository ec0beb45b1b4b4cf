//! The TLB of one core: base and huge translations side by side, 4 ways, LRU.

const WAYS: usize = 4;

/// Tells a huge translation from that of a base page.
const HUGE: u32 = 1 << 31;

/// A TLB.
pub struct Tlb {
    /// Keys + 1 of each set, the most recent one first; 0 for nothing.
    sets: Vec<[u32; WAYS]>,
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
        Self { sets: vec![[0; WAYS]; sets as usize], mask: sets - 1 }
    }

    /// Whether a translation was there; now it is.
    #[inline]
    pub fn access(&mut self, key: u32) -> bool {
        let set = &mut self.sets[((key ^ key >> 9) & self.mask) as usize];
        let entry = key + 1;
        if set[0] == entry {
            return true;
        }
        let mut carried = set[0];
        set[0] = entry;
        for slot in &mut set[1..] {
            std::mem::swap(&mut carried, slot);
            if carried == entry {
                return true;
            }
        }
        false
    }

    /// Drops a translation.
    pub fn invalidate(&mut self, key: u32) {
        let set = &mut self.sets[((key ^ key >> 9) & self.mask) as usize];
        if let Some(slot) = set.iter_mut().find(|slot| **slot == key + 1) {
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
