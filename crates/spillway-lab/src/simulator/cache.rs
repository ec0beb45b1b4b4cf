//! Caches: the last-level cache with LRU, and the small first-level filter before it.

use wide::u32x8;

use super::lru::Order;

/// Ways of the last-level cache (HotBox, Table 1).
const WAYS: usize = 8;

/// The bit of an entry that says that its line was written.
const DIRTY: u32 = 1;

/// Most lines that a cache can tell apart.
pub const MAX_LINES: u64 = (1 << 31) - 2;

/// What looking up a line found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The line was in the cache.
    Hit,
    /// It was not, and now is; the line that made room must be written to memory if there is one here.
    Miss(Option<u64>),
}

#[derive(Clone, Copy, Default)]
struct Set {
    /// Line number + 1, shifted by one for [`DIRTY`]; 0 for nothing.
    entries: [u32; WAYS],
    order: Order<WAYS>,
}

/// A set-associative write-back cache with LRU replacement.
pub struct Cache {
    sets: Vec<Set>,
    mask: u64,
}

impl Cache {
    /// A cache of `bytes`, rounded down to a power of two.
    #[must_use]
    pub fn new(bytes: u64, line_bytes: u64) -> Self {
        let sets = (bytes / line_bytes / WAYS as u64).max(1);
        let sets = 1_u64 << sets.ilog2();
        Self { sets: vec![Set::default(); sets as usize], mask: sets - 1 }
    }

    /// Looks up a line below [`MAX_LINES`], and brings it in.
    #[inline(always)]
    pub fn access(&mut self, line: u64, write: bool) -> Lookup {
        // Folds the upper bits in, as physical placement does: arrays at powers of two do not collide.
        let index = ((line ^ line >> 11 ^ line >> 19) & self.mask) as usize;
        let tag = (line as u32 + 1) << 1;
        let Set { entries, order } = &mut self.sets[index];
        let same = u32x8::new(*entries) & u32x8::splat(!DIRTY);
        let matches = same.simd_eq(u32x8::splat(tag)).to_bitmask();
        let way = if matches != 0 { matches.trailing_zeros() as usize } else { order.oldest() };
        order.note(way);
        let entry = &mut entries[way % WAYS];
        if matches != 0 {
            *entry |= u32::from(write);
            return Lookup::Hit;
        }
        let gone = std::mem::replace(entry, tag | u32::from(write));
        let dirty = gone & DIRTY != 0;
        Lookup::Miss(dirty.then(|| u64::from(gone >> 1) - 1))
    }
}

/// A direct-mapped first-level cache: it only keeps the simulation of repeated accesses to a line cheap, and
/// their cost low.
pub struct LineFilter {
    /// Line number << 1, and whether it was written.
    entries: Vec<u64>,
    mask: u64,
}

const NO_LINE: u64 = u64::MAX;

impl LineFilter {
    /// A filter of `bytes`, rounded down to a power of two.
    #[must_use]
    pub fn new(bytes: u64, line_bytes: u64) -> Self {
        let entries = 1_u64 << (bytes / line_bytes).max(1).ilog2();
        Self { entries: vec![NO_LINE; entries as usize], mask: entries - 1 }
    }

    /// Whether a line is here; a first write to a line that was only read is a miss.
    #[inline]
    #[must_use]
    pub fn has(&self, line: u64, write: bool) -> bool {
        let entry = self.entries[(line & self.mask) as usize];
        entry | u64::from(!write) == line << 1 | 1
    }

    /// Brings a line in.
    #[inline]
    pub fn fill(&mut self, line: u64, write: bool) {
        self.entries[(line & self.mask) as usize] = line << 1 | u64::from(write);
    }

    /// Forgets all lines that it holds.
    pub fn clear(&mut self) {
        self.entries.fill(NO_LINE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// One set of the cache behaves as a list ordered by use.
        #[test]
        fn a_set_is_lru(accesses in proptest::collection::vec((0_u64..12, any::<bool>()), 0..200)) {
            let mut cache = Cache::new(64 * WAYS as u64, 64);
            let mut model: Vec<(u64, bool)> = Vec::new();
            for (line, write) in accesses {
                let found = model.iter().position(|&(other, _)| other == line);
                let expected = match found {
                    Some(at) => {
                        let (_, dirty) = model.remove(at);
                        model.insert(0, (line, dirty || write));
                        Lookup::Hit
                    }
                    None => {
                        model.insert(0, (line, write));
                        let evicted = if model.len() > WAYS { model.pop() } else { None };
                        Lookup::Miss(evicted.filter(|&(_, dirty)| dirty).map(|(line, _)| line))
                    }
                };
                prop_assert_eq!(cache.access(line, write), expected);
            }
        }
    }

    #[test]
    fn the_filter_sends_first_writes_on() {
        let mut filter = LineFilter::new(1024, 64);
        assert!(!filter.has(5, false));
        filter.fill(5, false);
        assert!(filter.has(5, false) && !filter.has(5, true));
        filter.fill(5, true);
        assert!(filter.has(5, false) && filter.has(5, true));
        filter.clear();
        assert!(!filter.has(5, false));
    }
}
