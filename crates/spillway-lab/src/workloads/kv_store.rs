//! A key-value store as memcached builds it: a chained hash table over items in slab pages of size classes.
//!
//! Items are stored in the order in which they come, so a popular key's neighbours in memory are random ones
//! (HotBox section 6.2). A set overwrites its item in place, since its size stays; the list of least recently
//! used items is left out, as memcached moves an item in it at most once a minute. What items hold is kept
//! beside the slab, by key, which spares the host the cache misses that are simulated: a value is its
//! version, and its cache lines are noted only.

use super::random::mix;
use crate::access::{Access, Accesses};
use crate::memory::{AddressSpace, note_lines};

/// A slab page: 1 MiB in memcached, less where the working set is so small that the classes would not get
/// theirs.
const SLAB_PAGE_BYTES: u64 = 1 << 20;
const SLAB_PAGE_LEAST_BYTES: u64 = 16 << 10;
const SLAB_PAGES: u64 = 256;
/// The longest value that every store takes.
pub const VALUE_MAX_BYTES: u64 = 16000;
/// An item before its key: links, times, lengths and its version (memcached's `item` with CAS).
const HEADER_BYTES: u64 = 56;
/// What text takes beside key and value: the key's end, flags and length, the value's end.
const TEXT_BYTES: u64 = 10;
const BUCKET_BYTES: u64 = 8;
/// memcached's smallest chunk: an item's header without CAS and 48 bytes.
const CLASS_LEAST_BYTES: u64 = 96;
const CLASS_GROWTH: f64 = 1.25;
const NO_ITEM: u32 = u32::MAX;

/// A hash table of items, in slabs.
pub struct KvStore {
    /// The first item of each chain.
    heads: Vec<u32>,
    /// By key: keys are numbers from 0 up.
    items: Vec<Item>,
    heads_start: u64,
    slab_start: u64,
}

#[derive(Clone, Copy)]
struct Item {
    next: u32,
    version: u32,
    /// Where in the slab it lies, in units of 8 bytes.
    place: u32,
    /// All of it: header, key, value.
    bytes: u32,
}

impl Item {
    fn place_bytes(self) -> u64 {
        8 * u64::from(self.place)
    }
}

/// How long an item's key and its value are, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct ItemSize {
    /// The length of its key, in bytes.
    pub key_bytes: u64,
    /// The length of its value, in bytes.
    pub value_bytes: u64,
}

impl ItemSize {
    /// What memcached keeps for it, before its class of sizes.
    pub fn item_bytes(self) -> u64 {
        HEADER_BYTES + self.key_bytes + TEXT_BYTES + self.value_bytes
    }
}

impl KvStore {
    /// Fills a store of about `bytes`: keys 0, 1, ... with items of `size(key)`.
    pub fn fill(
        space: &mut AddressSpace,
        bytes: u64,
        mean_item_bytes: u64,
        mut size: impl FnMut(u64) -> ItemSize,
    ) -> Self {
        let heads = (bytes / mean_item_bytes.max(1)).next_power_of_two() / 2;
        let heads_bytes = BUCKET_BYTES * heads.max(1);
        let mut slab = Slab::new(bytes.saturating_sub(heads_bytes));
        let mut store = Self {
            heads: vec![NO_ITEM; heads.max(1) as usize],
            items: Vec::new(),
            heads_start: space.reserve("hash table", heads_bytes),
            slab_start: 0,
        };
        while let Some(key) = u32::try_from(store.items.len()).ok().filter(|&key| key != NO_ITEM) {
            let item_bytes = size(key.into()).item_bytes();
            let Some(place) = slab.allocate(item_bytes) else { break };
            let bucket = store.bucket(key.into());
            let next = std::mem::replace(&mut store.heads[bucket], key);
            let (place, bytes) = ((place / 8) as u32, item_bytes as u32);
            store.items.push(Item { next, version: 0, place, bytes });
        }
        store.slab_start = space.reserve("slab", slab.used_bytes);
        store
    }

    /// How many keys it holds.
    pub fn keys(&self) -> usize {
        self.items.len()
    }

    /// Finds a key and reads its value: answers its version.
    pub fn get(&self, key: u64, accesses: &mut Accesses) -> Option<u32> {
        let item = self.items[self.find(key, accesses)?];
        self.note_item(item, Access::read, accesses);
        Some(item.version)
    }

    /// Finds a key and overwrites its value. False when it is not there.
    pub fn set(&mut self, key: u64, version: u32, accesses: &mut Accesses) -> bool {
        let Some(at) = self.find(key, accesses) else { return false };
        self.items[at].version = version;
        self.note_item(self.items[at], Access::write, accesses);
        true
    }

    fn note_item(&self, item: Item, access: fn(u64) -> Access, accesses: &mut Accesses) {
        let start = self.slab_start + item.place_bytes();
        note_lines(start, start + u64::from(item.bytes), access, accesses);
    }

    fn find(&self, key: u64, accesses: &mut Accesses) -> Option<usize> {
        let bucket = self.bucket(key);
        accesses.push(Access::read(self.heads_start + BUCKET_BYTES * bucket as u64));
        let mut at = self.heads[bucket];
        while at != NO_ITEM {
            let item = &self.items[at as usize];
            accesses.push(Access::read(self.slab_start + item.place_bytes()));
            // An item's number is its key.
            if u64::from(at) == key {
                return Some(at as usize);
            }
            at = item.next;
        }
        None
    }

    fn bucket(&self, key: u64) -> usize {
        (mix(key) % self.heads.len() as u64) as usize
    }
}

/// Hands out the memory of items, from pages that each belong to a class of sizes.
struct Slab {
    bytes: u64,
    page_bytes: u64,
    used_bytes: u64,
    class_bytes: Vec<u64>,
    /// For each class where the next item in its newest page goes, and where that page ends.
    newest: Vec<(u64, u64)>,
}

impl Slab {
    fn new(bytes: u64) -> Self {
        let page_bytes = (bytes / SLAB_PAGES / 8 * 8).clamp(SLAB_PAGE_LEAST_BYTES, SLAB_PAGE_BYTES);
        let mut class_bytes = vec![CLASS_LEAST_BYTES];
        while let Some(&last) = class_bytes.last().filter(|&&last| last < page_bytes) {
            class_bytes.push(((last as f64 * CLASS_GROWTH) as u64).next_multiple_of(8).min(page_bytes));
        }
        let newest = vec![(0, 0); class_bytes.len()];
        Self { bytes, page_bytes, used_bytes: 0, class_bytes, newest }
    }

    /// Where an item goes; None when it does not fit any more.
    fn allocate(&mut self, item_bytes: u64) -> Option<u64> {
        let class = self.class_bytes.partition_point(|&class_bytes| class_bytes < item_bytes);
        let class_bytes = *self.class_bytes.get(class)?;
        let (next, end) = self.newest[class];
        let (place, end) = if next + class_bytes <= end {
            (next, end)
        } else {
            let page_end = (self.used_bytes + self.page_bytes).min(self.bytes / 8 * 8);
            (std::mem::replace(&mut self.used_bytes, page_end), page_end)
        };
        if place + class_bytes > end {
            return None;
        }
        self.newest[class] = (place + class_bytes, end);
        Some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(key: u64) -> ItemSize {
        ItemSize { key_bytes: 16, value_bytes: mix(key) % 600 }
    }

    fn store(bytes: u64) -> KvStore {
        KvStore::fill(&mut AddressSpace::default(), bytes, 380, size)
    }

    #[test]
    fn gets_what_was_set() {
        let mut store = store(4 << 20);
        let keys = store.keys() as u64;
        assert!(keys > 5000, "{keys}");
        let mut accesses = Accesses::new();
        assert_eq!(store.get(keys, &mut accesses), None);
        assert!(!store.set(keys, 1, &mut accesses));
        assert!(store.set(17, 3, &mut accesses));
        let versions: Vec<_> = (0..keys).map(|key| store.get(key, &mut accesses)).collect();
        assert!((0..).zip(versions).all(|(key, version)| version == Some(if key == 17 { 3 } else { 0 })));
    }

    #[test]
    fn items_do_not_overlap_and_lie_in_their_slab() {
        let mut space = AddressSpace::default();
        let store = KvStore::fill(&mut space, 4 << 20, 380, size);
        let mut items = store.items.clone();
        items.sort_by_key(|item| item.place);
        let end = |item: Item| item.place_bytes() + u64::from(item.bytes);
        assert!(items.windows(2).all(|pair| end(pair[0]) <= pair[1].place_bytes()));
        let regions = space.into_regions();
        assert!(end(items[items.len() - 1]) <= regions[1].bytes);
        // Size classes are a quarter apart, and each has a page that is not full.
        let used: u64 = items.iter().map(|item| u64::from(item.bytes)).sum();
        assert!(used * 10 > regions[1].bytes * 8, "{used} of {}", regions[1].bytes);
    }

    #[test]
    fn chains_are_short() {
        let store = store(4 << 20);
        let mut accesses = Accesses::new();
        assert!((0..store.keys() as u64).all(|key| store.find(key, &mut accesses).is_some()));
        assert!(accesses.len() < store.keys() * 3, "{} for {}", accesses.len(), store.keys());
    }
}
