//! What tells a sealed page from every other: the version that it was sealed as, and its tag. Kept beside
//! the slot that the page lies in, on the side of the run.
//!
//! A page is sealed under a *nonce*, which must never serve twice under one key: two pages under one nonce
//! betray each other, and the key's tags with them (NIST SP 800-38D, section 8 and appendix A). So versions
//! are counted once a run, over all its processes and slots: one is taken before a page is sealed, and no
//! step ever goes back. A write that fails, a process that is killed, a slot that another process takes up
//! and a store that restarts cost versions and repeat none. The nonce holds the slot as well.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a nonce, as GCM has them without a further computation.
pub const NONCE_BYTES: usize = 12;

/// Bytes of a tag: GCM's longest.
pub const TAG_BYTES: usize = 16;

/// The last version of a run: 2^60 bytes sealed. What leaks of AES-GCM grows with the square of what one key
/// has sealed, and is a chance of 2^-17 there.
pub const LAST_VERSION: u64 = 1 << 48;

/// Words that a slot's seal takes.
pub const SEAL_WORDS: usize = 3;

/// What a sealed page must be opened with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seal {
    /// The version that it was sealed as, 1 to [`LAST_VERSION`].
    pub version: u64,
    /// What the cipher made of the page, its key and its nonce.
    pub tag: [u8; TAG_BYTES],
}

/// The seals of all slots of a run, and the versions that are left.
#[derive(Clone, Copy)]
pub struct SealTable<'a> {
    /// The last version that somebody took; 0 at first.
    pub versions: &'a AtomicU64,
    /// [`SEAL_WORDS`] words a slot: the version, 0 where nothing was sealed, and the tag.
    pub seals: &'a [AtomicU64],
}

impl SealTable<'_> {
    /// Takes `count` versions that nobody has had: the first of them. `None` where fewer are left; then no
    /// page may be sealed any more.
    #[must_use]
    pub fn take_versions(&self, count: usize) -> Option<u64> {
        let count = u64::try_from(count).ok()?;
        let taken = self.versions.fetch_update(Ordering::AcqRel, Ordering::Acquire, |last| {
            last.checked_add(count).filter(|last| *last <= LAST_VERSION)
        });
        taken.ok().map(|before| before + 1)
    }

    /// Notes what the slot's only holder has stored there.
    pub fn set(&self, slot: u32, seal: Seal) {
        let [version, low, high] = self.words(slot);
        let (tag_low, tag_high) = halves(seal.tag);
        low.store(tag_low, Ordering::Relaxed);
        high.store(tag_high, Ordering::Relaxed);
        version.store(seal.version, Ordering::Release);
    }

    /// What a slot's page must be opened with; `None` where nothing was ever sealed for it.
    #[must_use]
    pub fn of(&self, slot: u32) -> Option<Seal> {
        let [version, low, high] = self.words(slot);
        let version = version.load(Ordering::Acquire);
        let tag = u128::from(high.load(Ordering::Relaxed)) << 64 | u128::from(low.load(Ordering::Relaxed));
        (version != 0).then(|| Seal { version, tag: tag.to_le_bytes() })
    }

    fn words(&self, slot: u32) -> [&AtomicU64; SEAL_WORDS] {
        let at = slot as usize * SEAL_WORDS;
        [&self.seals[at], &self.seals[at + 1], &self.seals[at + 2]]
    }
}

fn halves(tag: [u8; TAG_BYTES]) -> (u64, u64) {
    let tag = u128::from_le_bytes(tag);
    (tag as u64, (tag >> 64) as u64)
}

/// The nonce of a page that is sealed for a slot as a version: four bytes and eight.
#[must_use]
pub fn nonce(slot: u32, version: u64) -> [u8; NONCE_BYTES] {
    let mut nonce = [0; NONCE_BYTES];
    nonce[..4].copy_from_slice(&slot.to_le_bytes());
    nonce[4..].copy_from_slice(&version.to_le_bytes());
    nonce
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn words(slots: usize) -> Vec<AtomicU64> {
        (0..slots * SEAL_WORDS).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn a_seal_comes_back_as_it_was_noted_and_none_is_there_before() {
        let (versions, seals) = (AtomicU64::new(0), words(3));
        let table = SealTable { versions: &versions, seals: &seals };
        assert!((0..3).all(|slot| table.of(slot).is_none()));
        let seal = |version| Seal { version, tag: std::array::from_fn(|at| at as u8 ^ version as u8) };
        table.set(1, seal(7));
        table.set(2, seal(u64::from(u32::MAX) + 9));
        assert_eq!([0, 1, 2].map(|slot| table.of(slot)), [None, Some(seal(7)), Some(seal(0x1_0000_0008))]);
        table.set(1, seal(8));
        assert_eq!(table.of(1), Some(seal(8)));
    }

    #[test]
    fn no_version_is_taken_twice_by_any_of_many_threads() {
        let (versions, seals) = (AtomicU64::new(0), words(1));
        let taken: Vec<u64> = std::thread::scope(|scope| {
            let take = || {
                let table = SealTable { versions: &versions, seals: &seals };
                let of = |count| table.take_versions(count).map(move |first| first..first + count as u64);
                (0..2_000).filter_map(|n| of(n % 5)).flatten().collect::<Vec<u64>>()
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(taken.len(), 4 * 4_000);
        assert_eq!(taken.iter().collect::<HashSet<_>>().len(), taken.len());
        assert!(!taken.contains(&0), "0 says that nothing is sealed");
        assert_eq!(versions.into_inner(), 16_000);
    }

    #[test]
    fn when_the_versions_are_used_up_there_are_none_ever_after() {
        let (versions, seals) = (AtomicU64::new(LAST_VERSION - 10), words(1));
        let table = SealTable { versions: &versions, seals: &seals };
        assert_eq!(table.take_versions(8), Some(LAST_VERSION - 9));
        assert_eq!(table.take_versions(3), None);
        assert_eq!(table.take_versions(2), Some(LAST_VERSION - 1));
        for count in [1, 64, usize::MAX] {
            assert_eq!(table.take_versions(count), None);
        }
        let worn = AtomicU64::new(u64::MAX);
        assert_eq!(SealTable { versions: &worn, seals: &seals }.take_versions(1), None, "it does not wrap");
    }

    #[test]
    fn nonces_differ_where_slot_or_version_does() {
        let of = [(0, 1), (1, 0), (1, 1), (0x100, 1), (1, 0x100), (u32::MAX, 1), (1, LAST_VERSION)];
        let nonces: HashSet<_> = of.map(|(slot, version)| nonce(slot, version)).into_iter().collect();
        assert_eq!(nonces.len(), of.len());
    }
}
