//! Who uses which slot of far memory, which page it holds, and its checksum.
//!
//! All processes of a run share one table. A slot is free while its reference count is 0. After a fork,
//! parent and child hold the same slots until one of them writes its page anew. Each process notes the slots
//! it holds in a bitmap of its own, also shared, so that what a killed process held can be given back. A
//! reference is counted before it is noted, and un-noted before it is given back: a process killed in between
//! leaks a slot, but no slot is ever free while somebody holds it.

use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

/// `log2` of the slots in a slab: 2 MiB, the stretch of far space given to neighbouring pages.
pub const SLAB_SHIFT: u32 = 9;

/// Slots in a slab.
pub const SLAB_SLOTS: u32 = 1 << SLAB_SHIFT;

/// Words of [`HeldSlots`] for a slab.
const SLAB_WORDS: usize = SLAB_SLOTS as usize / 64;

/// Guards a stored page against accidents: [`CHECKSUM_BITS`] bits.
pub type Checksum = u128;

/// Bits of a checksum that are kept. The other 36 of a slot's two words name the page.
pub const CHECKSUM_BITS: u32 = 92;

/// What a slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contents {
    /// Of the page's bytes.
    pub checksum: Checksum,
    /// The page that was stored here, below 2^35; `None` once mremap(2) has moved it.
    pub page_number: Option<u64>,
}

const PAGE_BITS: u32 = 128 - CHECKSUM_BITS;
const PAGE_MASK: u64 = (1 << PAGE_BITS) - 1;

impl Contents {
    /// Whether this may be what was stored for a page.
    #[must_use]
    pub fn is_of(self, page_number: u64) -> bool {
        self.page_number.is_none_or(|owner| owner == page_number)
    }

    fn pack(self) -> [u64; 2] {
        let owner = self.page_number.map_or(0, |page_number| (page_number + 1) & PAGE_MASK);
        [self.checksum as u64, ((self.checksum >> 64) as u64) << PAGE_BITS | owner]
    }

    fn unpack([low, high]: [u64; 2]) -> Self {
        let checksum = u128::from(high >> PAGE_BITS) << 64 | u128::from(low);
        Self { checksum, page_number: (high & PAGE_MASK).checked_sub(1) }
    }
}

/// The table of all slots of a run.
#[derive(Clone, Copy)]
pub struct SlotTable<'a> {
    /// References, one count a slot.
    pub references: &'a [AtomicU16],
    /// Two words a slot: what it holds.
    pub contents: &'a [AtomicU64],
    /// Slots in use, one count a slab.
    pub slab_used: &'a [AtomicU32],
}

/// The slots that one process holds, a bit each.
#[derive(Clone, Copy)]
pub struct HeldSlots<'a>(pub &'a [AtomicU64]);

impl HeldSlots<'_> {
    fn note(self, slot: u32) {
        self.0[slot as usize / 64].fetch_or(1 << (slot % 64), Ordering::Relaxed);
    }

    /// False when it was not noted.
    fn forget(self, slot: u32) -> bool {
        let bit = 1 << (slot % 64);
        self.0[slot as usize / 64].fetch_and(!bit, Ordering::Relaxed) & bit != 0
    }

    /// The slots held among those of one slab, in ascending order.
    fn in_slab(&self, slab: usize) -> impl Iterator<Item = u32> + '_ {
        let words = slab * SLAB_WORDS..((slab + 1) * SLAB_WORDS).min(self.0.len());
        words.flat_map(|index| {
            let mut bits = self.0[index].load(Ordering::Relaxed);
            std::iter::from_fn(move || {
                let bit = (bits != 0).then(|| bits.trailing_zeros())?;
                bits &= bits - 1;
                Some(index as u32 * 64 + bit)
            })
        })
    }
}

/// The slabs of these slots, that of `near` first.
fn slabs_from(range: &std::ops::Range<u32>, near: u32) -> impl Iterator<Item = u32> + use<> {
    let (begin, end) = (range.start >> SLAB_SHIFT, range.end.div_ceil(SLAB_SLOTS));
    let first = (near >> SLAB_SHIFT).clamp(begin, end);
    (first..end).chain(begin..first)
}

impl SlotTable<'_> {
    /// Takes a free slot within `range`: `near` if it is free, else one in the same slab, else any. The slot
    /// is counted once and noted in `held`. `None` when all are in use.
    #[must_use]
    pub fn take(&self, held: HeldSlots<'_>, range: std::ops::Range<u32>, near: u32) -> Option<u32> {
        if range.is_empty() {
            return None;
        }
        let near = near.clamp(range.start, range.end - 1);
        if self.try_take(near) {
            held.note(near);
            return Some(near);
        }
        slabs_from(&range, near).find_map(|slab| self.take_in_slab(held, &range, slab))
    }

    /// Takes a free slot within `range` in a slab of which others are in use, or whose first slot has room,
    /// that of `near` first. `None` when there is none. A store that takes no page of a new slab may still
    /// have room for more in those.
    #[must_use]
    pub fn take_beside_others(
        &self,
        held: HeldSlots<'_>,
        range: std::ops::Range<u32>,
        near: u32,
        has_room: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let is_used = |slab: u32| self.slab_used[slab as usize].load(Ordering::Relaxed) > 0;
        slabs_from(&range, near)
            .filter(|&slab| is_used(slab) || has_room((slab << SLAB_SHIFT).max(range.start)))
            .find_map(|slab| self.take_in_slab(held, &range, slab))
    }

    fn take_in_slab(&self, held: HeldSlots<'_>, range: &std::ops::Range<u32>, slab: u32) -> Option<u32> {
        if self.slab_used[slab as usize].load(Ordering::Relaxed) >= SLAB_SLOTS {
            return None;
        }
        let start = range.start.max(slab << SLAB_SHIFT);
        let end = range.end.min((slab + 1) << SLAB_SHIFT);
        let slot = (start..end).find(|&slot| self.try_take(slot))?;
        held.note(slot);
        Some(slot)
    }

    /// The first slot of a slab within `range` that nobody uses, searching from `from` on, among those whose
    /// first slots are wanted. For placing neighbouring pages side by side; nothing is reserved by it.
    #[must_use]
    pub fn empty_slab(
        &self,
        range: std::ops::Range<u32>,
        from: u32,
        is_wanted: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let slabs = range.start.div_ceil(SLAB_SLOTS)..range.end >> SLAB_SHIFT;
        let from = (from >> SLAB_SHIFT).clamp(slabs.start, slabs.end);
        (from..slabs.end)
            .chain(slabs.start..from)
            .filter(|&slab| self.slab_used[slab as usize].load(Ordering::Relaxed) == 0)
            .map(|slab| slab << SLAB_SHIFT)
            .find(|&slab| is_wanted(slab))
    }

    fn try_take(&self, slot: u32) -> bool {
        let count = &self.references[slot as usize];
        let taken = count.load(Ordering::Relaxed) == 0
            && count.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if taken {
            self.slab_used[(slot >> SLAB_SHIFT) as usize].fetch_add(1, Ordering::Relaxed);
        }
        taken
    }

    /// Others hold the slot too, so it must not be written.
    #[must_use]
    pub fn is_shared(&self, slot: u32) -> bool {
        self.references[slot as usize].load(Ordering::Acquire) > 1
    }

    /// Gives back a reference that `held` notes. When it was the last, `discard` may drop the contents before
    /// the slot can be taken again.
    pub fn release(&self, held: HeldSlots<'_>, slot: u32, discard: impl FnOnce(u32)) {
        if !held.forget(slot) {
            // Given back twice: somebody else's by now. Never free it from under them.
            debug_assert!(false, "slot {slot} released twice");
            return;
        }
        let count = &self.references[slot as usize];
        let mut now = count.load(Ordering::Acquire);
        // The last holder keeps the count at 1 until the contents are gone; nobody else can raise it, since
        // only a holder forks.
        while now > 1 {
            match count.compare_exchange(now, now - 1, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return,
                Err(other) => now = other,
            }
        }
        discard(slot);
        count.store(0, Ordering::Release);
        self.slab_used[(slot >> SLAB_SHIFT) as usize].fetch_sub(1, Ordering::Relaxed);
    }

    /// The slots that a process holds, in ascending order. A slot is counted in its slab before its holder
    /// notes it, so slabs of which nothing is in use are passed over: there are far more of them, and nobody
    /// has touched their memory yet.
    pub fn held_by<'a>(&'a self, held: &'a HeldSlots<'_>) -> impl Iterator<Item = u32> + 'a {
        let is_used = |slab: &usize| self.slab_used[*slab].load(Ordering::Relaxed) > 0;
        (0..self.slab_used.len()).filter(is_used).flat_map(|slab| held.in_slab(slab))
    }

    /// Gives a forked child a reference to every slot that its parent holds.
    pub fn share(&self, parent: HeldSlots<'_>, child: HeldSlots<'_>) {
        for slot in self.held_by(&parent) {
            self.references[slot as usize].fetch_add(1, Ordering::AcqRel);
            child.note(slot);
        }
    }

    /// Notes what the slot's only holder has stored.
    pub fn set_contents(&self, slot: u32, contents: Contents) {
        let [low, high] = contents.pack();
        let at = slot as usize * 2;
        self.contents[at].store(low, Ordering::Relaxed);
        self.contents[at + 1].store(high, Ordering::Release);
    }

    /// What the slot holds.
    #[must_use]
    pub fn contents(&self, slot: u32) -> Contents {
        let at = slot as usize * 2;
        let high = self.contents[at + 1].load(Ordering::Acquire);
        Contents::unpack([self.contents[at].load(Ordering::Relaxed), high])
    }

    /// The page has another address now, though perhaps not in every process that holds the slot.
    pub fn forget_page(&self, slot: u32) {
        self.contents[slot as usize * 2 + 1].fetch_and(!PAGE_MASK, Ordering::AcqRel);
    }

    /// Slots in use within `range` (whole slabs).
    #[must_use]
    pub fn used(&self, range: std::ops::Range<u32>) -> u64 {
        let slabs = (range.start >> SLAB_SHIFT) as usize..range.end.div_ceil(SLAB_SLOTS) as usize;
        self.slab_used[slabs].iter().map(|used| u64::from(used.load(Ordering::Relaxed))).sum()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    struct Memory {
        references: Vec<AtomicU16>,
        contents: Vec<AtomicU64>,
        slab_used: Vec<AtomicU32>,
        held: Vec<Vec<AtomicU64>>,
    }

    impl Memory {
        fn new(slots: usize, processes: usize) -> Self {
            Self {
                references: (0..slots).map(|_| AtomicU16::new(0)).collect(),
                contents: (0..2 * slots).map(|_| AtomicU64::new(0)).collect(),
                slab_used: (0..slots.div_ceil(512)).map(|_| AtomicU32::new(0)).collect(),
                held: (0..processes)
                    .map(|_| (0..slots.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
                    .collect(),
            }
        }

        fn table(&self) -> SlotTable<'_> {
            SlotTable { references: &self.references, contents: &self.contents, slab_used: &self.slab_used }
        }
    }

    proptest! {
        #[test]
        fn no_slot_is_given_twice_or_lost(
            operations in proptest::collection::vec((0_u8..4, any::<u32>()), 0..400),
        ) {
            const SLOTS: u32 = 1100;
            let memory = Memory::new(SLOTS as usize, 2);
            let table = memory.table();
            let held = [HeldSlots(&memory.held[0]), HeldSlots(&memory.held[1])];
            let mut model: BTreeMap<u32, [bool; 2]> = BTreeMap::new();
            for (operation, n) in operations {
                let who = (n % 2) as usize;
                match operation {
                    0 | 1 => {
                        let slot = table.take(held[who], 100..SLOTS, n % SLOTS);
                        let slot = slot.expect("there is room");
                        prop_assert!((100..SLOTS).contains(&slot));
                        let mut holders = [false; 2];
                        holders[who] = true;
                        prop_assert_eq!(model.insert(slot, holders), None);
                        let checksum = (u128::from(n) << 70 | u128::from(slot)) & ((1 << CHECKSUM_BITS) - 1);
                        let page_number = (n % 3 != 0).then_some(u64::from(n) << 3);
                        let contents = Contents { checksum, page_number };
                        table.set_contents(slot, contents);
                        prop_assert_eq!(table.contents(slot), contents);
                        prop_assert!(contents.is_of(u64::from(n) << 3));
                        prop_assert_eq!(contents.is_of(1), page_number.is_none());
                        if n % 2 == 0 { table.forget_page(slot); }
                    }
                    2 => {
                        let mine: Vec<u32> =
                            model.iter().filter(|(_, holders)| holders[who]).map(|(slot, _)| *slot).collect();
                        if let Some(&slot) = mine.get(n as usize % mine.len().max(1)) {
                            let last = !model[&slot][1 - who];
                            let mut discarded = false;
                            table.release(held[who], slot, |_| discarded = true);
                            prop_assert_eq!(discarded, last);
                            if last {
                                model.remove(&slot);
                            } else {
                                model.entry(slot).or_default()[who] = false;
                            }
                        }
                    }
                    _ => {
                        if table.held_by(&held[1 - who]).next().is_none() {
                            table.share(held[who], held[1 - who]);
                            for holders in model.values_mut() { *holders = [true; 2]; }
                        }
                    }
                }
                prop_assert_eq!(table.used(0..SLOTS), model.len() as u64);
                for who in 0..2 {
                    let expected: Vec<u32> =
                        model.iter().filter(|(_, holders)| holders[who]).map(|(slot, _)| *slot).collect();
                    prop_assert_eq!(table.held_by(&held[who]).collect::<Vec<_>>(), expected);
                }
                for (&slot, holders) in &model {
                    prop_assert_eq!(table.is_shared(slot), *holders == [true; 2]);
                    prop_assert_eq!(table.contents(slot).checksum as u32, slot);
                }
            }
        }
    }

    #[test]
    fn beside_others_no_slab_is_begun() {
        let memory = Memory::new(4 * 512, 1);
        let (table, held) = (memory.table(), HeldSlots(&memory.held[0]));
        let (range, none) = (512..3 * 512, |_| false);
        assert_eq!(table.take_beside_others(held, range.clone(), 700, none), None);
        assert_eq!(table.take(held, range.clone(), 600), Some(600));
        assert_eq!(table.take(held, 0..4 * 512, 1600), Some(1600));
        for slot in (512..600).chain(601..1024) {
            assert_eq!(table.take_beside_others(held, range.clone(), 1030, none), Some(slot));
        }
        assert_eq!(
            table.take_beside_others(held, range.clone(), 700, none),
            None,
            "1600 is of another store"
        );
        table.release(held, 777, |_| ());
        assert_eq!(table.take_beside_others(held, range.clone(), 2047, none), Some(777));
        // Of a slab in which nothing is in use the store keeps memory.
        assert_eq!(table.take_beside_others(held, range, 2047, |slot| slot == 1024), Some(1024));
    }

    #[test]
    fn neighbours_lie_side_by_side_and_a_full_range_says_so() {
        let memory = Memory::new(2048, 1);
        let (table, held) = (memory.table(), HeldSlots(&memory.held[0]));
        assert_eq!(table.empty_slab(0..2048, 600, |_| true), Some(512));
        assert_eq!(table.take(held, 0..2048, 700), Some(700));
        assert_eq!(table.take(held, 0..2048, 700), Some(512), "same slab when the place is taken");
        assert_eq!(table.empty_slab(0..2048, 512, |_| true), Some(1024));
        assert_eq!(table.empty_slab(0..2048, 512, |slab| slab != 1024), Some(1536));
        let taken = std::iter::from_fn(|| table.take(held, 0..1024, 0)).count();
        assert_eq!(taken, 1022);
        assert_eq!(table.take(held, 0..1024, 3), None);
        assert_eq!(table.take(held, 5..5, 3), None);
    }
}
