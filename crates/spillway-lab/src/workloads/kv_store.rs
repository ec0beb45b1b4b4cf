//! A key-value store as memcached builds it: a chained hash table over items in slab pages of size classes.
//!
//! Items are stored in the order in which they come, so a popular key's neighbours in memory are random ones (HotBox section
//! 6.2). A set overwrites its item in place, since its size stays; the list of least recently used items is left out, as
//! memcached moves an item in it at most once a minute.

use super::random::mix;
use crate::access::Accesses;
use crate::memory::{AddressSpace, Array};

/// A slab page: 1 MiB in memcached, less where the working set is so small that the classes would not get theirs.
const SLAB_PAGE_WORDS: usize = (1 << 20) / 8;
const SLAB_PAGE_LEAST_WORDS: usize = (16 << 10) / 8;
const SLAB_PAGES: usize = 256;
/// The longest value that every store takes.
pub const VALUE_MAX_BYTES: u64 = 16000;
/// Next in chain, key, length in words, version.
const HEADER_WORDS: usize = 4;
const CLASS_GROWTH: f64 = 1.25;
const NO_ITEM: u64 = u64::MAX;

/// The store.
pub struct KvStore {
    buckets: Array<u64>,
    slab: Array<u64>,
    keys: usize,
}

/// What a get found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// The value that was set last.
    Value,
    /// Something else.
    Damaged,
    /// Nothing.
    Missing,
}

impl KvStore {
    /// Fills a store of about `bytes`: keys 0, 1, ... with values of `value_bytes(key)`.
    pub fn fill(
        space: &mut AddressSpace,
        bytes: u64,
        mean_item_bytes: u64,
        value_bytes: impl FnMut(u64) -> u64,
    ) -> Self {
        let buckets = ((bytes / mean_item_bytes.max(1)) as usize).next_power_of_two() / 2;
        let mut loader = Loader::new(buckets.max(1), bytes);
        let keys = loader.load(value_bytes);
        let buckets = space.array("buckets", loader.buckets);
        let slab = space.array("slab", loader.slab);
        Self { buckets, slab, keys }
    }

    /// How many keys it holds.
    pub fn keys(&self) -> usize {
        self.keys
    }

    /// Finds a key and reads its value.
    pub fn get(&self, key: u64, accesses: &mut Accesses) -> Found {
        let Some((item, words)) = self.find(key, accesses) else { return Found::Missing };
        let version = self.slab.data()[item + 3];
        let value = self.slab.read_run(item + HEADER_WORDS..item + HEADER_WORDS + words, accesses);
        let right = (0..).zip(value).all(|(index, &word)| word == value_word(key, version, index));
        if right { Found::Value } else { Found::Damaged }
    }

    /// Finds a key and overwrites its value. False when it is not there.
    pub fn set(&mut self, key: u64, version: u64, accesses: &mut Accesses) -> bool {
        let Some((item, words)) = self.find(key, accesses) else { return false };
        self.slab.set(item + 3, version, accesses);
        let value = self.slab.write_run(item + HEADER_WORDS..item + HEADER_WORDS + words, accesses);
        for (index, word) in (0..).zip(value) {
            *word = value_word(key, version, index);
        }
        true
    }

    /// The version of a key's value, unnoted.
    pub fn version(&self, key: u64) -> Option<u64> {
        let (item, _) = self.find(key, &mut Accesses::new())?;
        Some(self.slab.data()[item + 3])
    }

    fn find(&self, key: u64, accesses: &mut Accesses) -> Option<(usize, usize)> {
        let mut item = self.buckets.get(bucket(key, self.buckets.len()), accesses);
        while item != NO_ITEM {
            let at = item as usize;
            let [next, item_key, words] = *self.slab.read_run(at..at + 3, accesses) else { return None };
            if item_key == key {
                return Some((at, words as usize));
            }
            item = next;
        }
        None
    }
}

/// Fills the memory of a store before it is instrumented.
struct Loader {
    buckets: Vec<u64>,
    slab: Vec<u64>,
    slab_words: usize,
    /// For each class, the end of its newest page and where the next item in it goes.
    classes: Vec<(usize, usize)>,
    class_words: Vec<usize>,
    page_words: usize,
}

impl Loader {
    fn new(buckets: usize, bytes: u64) -> Self {
        let slab_words = (bytes as usize / 8).saturating_sub(buckets);
        let page_words = (slab_words / SLAB_PAGES).clamp(SLAB_PAGE_LEAST_WORDS, SLAB_PAGE_WORDS);
        let mut class_words = vec![8];
        while let Some(&words) = class_words.last().filter(|&&words| words < page_words) {
            class_words.push(((words as f64 * CLASS_GROWTH) as usize + 1).min(page_words));
        }
        Self {
            buckets: vec![NO_ITEM; buckets],
            slab: Vec::with_capacity(slab_words),
            slab_words,
            classes: vec![(0, 0); class_words.len()],
            class_words,
            page_words,
        }
    }

    /// Stores keys until the memory is full; answers how many.
    fn load(&mut self, mut value_bytes: impl FnMut(u64) -> u64) -> usize {
        for key in 0.. {
            let words = value_bytes(key).div_ceil(8) as usize;
            let Some(item) = self.allocate(HEADER_WORDS + words) else { return key as usize };
            let bucket = bucket(key, self.buckets.len());
            let header = [self.buckets[bucket], key, words as u64, 0];
            self.buckets[bucket] = item as u64;
            self.slab[item..item + HEADER_WORDS].copy_from_slice(&header);
            for (index, word) in (0..).zip(&mut self.slab[item + HEADER_WORDS..item + HEADER_WORDS + words]) {
                *word = value_word(key, 0, index);
            }
        }
        0
    }

    fn allocate(&mut self, words: usize) -> Option<usize> {
        let class = self.class_words.partition_point(|&class_words| class_words < words);
        let class_words = *self.class_words.get(class)?;
        let (end, next) = self.classes[class];
        let item = if next + class_words <= end {
            next
        } else {
            let page = self.slab.len();
            if page + class_words > self.slab_words {
                return None;
            }
            let page_end = (page + self.page_words).min(self.slab_words);
            self.slab.resize(page_end, 0);
            self.classes[class].0 = page_end;
            page
        };
        self.classes[class].1 = item + class_words;
        Some(item)
    }
}

fn bucket(key: u64, buckets: usize) -> usize {
    (mix(key) % buckets as u64) as usize
}

fn value_word(key: u64, version: u64, index: u64) -> u64 {
    (key.rotate_left(32) ^ version).wrapping_add(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gets_what_was_set() {
        let mut space = AddressSpace::default();
        let mut store = KvStore::fill(&mut space, 4 << 20, 300, |key| 8 + mix(key) % 600);
        let keys = store.keys() as u64;
        assert!(keys > 5000, "{keys}");
        let mut accesses = Accesses::new();
        assert_eq!(store.get(keys, &mut accesses), Found::Missing);
        assert!(!store.set(keys, 1, &mut accesses));
        for key in 0..keys {
            assert_eq!(store.get(key, &mut accesses), Found::Value);
        }
        assert!(store.set(17, 3, &mut accesses));
        assert_eq!((store.get(17, &mut accesses), store.version(17)), (Found::Value, Some(3)));
        assert_eq!(store.get(18, &mut accesses), Found::Value);
        store.slab.data_mut().iter_mut().for_each(|word| *word ^= u64::from(*word == value_word(17, 3, 0)));
        assert_eq!(store.get(17, &mut accesses), Found::Damaged);
    }

    #[test]
    fn chains_are_short() {
        let mut space = AddressSpace::default();
        let store = KvStore::fill(&mut space, 4 << 20, 300, |_| 200);
        let mut accesses = Accesses::new();
        for key in 0..store.keys() as u64 {
            store.find(key, &mut accesses);
        }
        assert!(accesses.len() < store.keys() * 5, "{} for {}", accesses.len(), store.keys());
    }
}
