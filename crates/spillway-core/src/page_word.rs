//! The page-state machine: one 64-bit word a page.
//!
//! States are dcm's (section 3.2, Fig. 4). NotLocal is split in three: a page that was never written
//! (*absent*, reads as zeros), one that a store holds (*far*), and one that is lost (*poisoned*).
//!
//! ```text
//!            first touch                    touch                        touch
//!  Absent ---------------+        +-------------------------+   +---------------------+
//!                        v        v                         |   v                     |
//!  Far ---- fetch ----> Active ---+--> Inactive ------------+  Proactive              |
//!   ^        (or, by chance 0.1,       (local, unmapped)       (its queue's head      |
//!   |         Proactive)                   |                    goes to Active)       |
//!   +--------------------------------- Writeback -------------------------------------+
//! ```
//!
//! Invariant: whoever holds the word's lock bit, and nobody else, changes the word, the page's mapping and
//! who owns its frame. A fault that finds the lock bit set leaves the waiter bit and goes away; whoever then
//! unlocks must wake the page's waiters, whose retried access raises the fault anew. So no thread
//! waits for a page while it holds another, but where one moves pages (mremap: ARCHITECTURE.md).

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering};

/// Where a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// Nowhere: never written, or discarded. Reads as zeros.
    Absent = 0,
    /// In its slot only.
    Far = 1,
    /// Local and mapped, with no known re-reference.
    Active = 2,
    /// Local and mapped, with a known re-reference.
    Proactive = 3,
    /// Local and unmapped, in its frame.
    Inactive = 4,
    /// In its frame, on its way to its slot.
    Writeback = 5,
    /// Lost: every access answers with SIGBUS.
    Poisoned = 6,
}

/// What the word of a page says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageInfo {
    /// Where the page is.
    pub state: State,
    /// Where a store holds it. A local page may keep the slot it was fetched from: a copy that spares the
    /// write-back while the page does not change.
    pub slot: Option<u32>,
    /// Frame of an Inactive or Writeback page. Of a Far one, when it left ([`Departures`]). Of a mapped one
    /// the epoch in which it was write-protected as it came from its slot, 0 where it was not.
    pub frame: u32,
    /// Counts how often the page entered a queue (modulo 128), so that an older entry is known as stale.
    pub generation: u8,
}

const STATE_MASK: u64 = 0x7;
const LOCKED: u64 = 1 << 3;
const WAITER: u64 = 1 << 4;
const GENERATION_SHIFT: u32 = 5;
const GENERATION_MASK: u64 = 0x7F;
const FRAME_SHIFT: u32 = 12;
const FRAME_MASK: u64 = 0xF_FFFF;
const SLOT_SHIFT: u32 = 32;
/// Slots are kept plus one, so that a zeroed word is an absent page.
const NO_SLOT: u64 = 0;

/// Frames that a word can name.
pub const MAX_FRAMES: usize = FRAME_MASK as usize + 1;

/// Counts the pages that have left, so that each can say when that was.
#[derive(Debug, Default)]
pub struct Departures(std::sync::atomic::AtomicU64);

impl Departures {
    /// Pages that leave within one tick of the clock that words have room for: 2^20 ticks are 256 GiB.
    const TICK_PAGES: u64 = 64;

    /// Notes that pages leave.
    pub fn add(&self, pages: u64) {
        self.0.fetch_add(pages, std::sync::atomic::Ordering::Relaxed);
    }

    /// Pages that have left.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// What a page that leaves now keeps in place of its frame.
    #[must_use]
    pub fn now(&self) -> u32 {
        ((self.0.load(std::sync::atomic::Ordering::Relaxed) / Self::TICK_PAGES) & FRAME_MASK) as u32
    }

    /// How many pages have left since, rounded to ticks, and forgetting whole turns of the clock.
    #[must_use]
    pub fn since(&self, then: u32) -> u64 {
        (u64::from(self.now()).wrapping_sub(u64::from(then)) & FRAME_MASK) * Self::TICK_PAGES
    }
}

/// Slots that a word can name.
pub const MAX_SLOTS: u32 = u32::MAX - 1;

impl PageInfo {
    /// A page that was never touched.
    pub const ABSENT: Self = Self { state: State::Absent, slot: None, frame: 0, generation: 0 };

    fn encode(self) -> u64 {
        let slot = self.slot.map_or(NO_SLOT, |slot| u64::from(slot) + 1);
        self.state as u64
            | u64::from(self.generation) << GENERATION_SHIFT
            | (u64::from(self.frame) & FRAME_MASK) << FRAME_SHIFT
            | slot << SLOT_SHIFT
    }

    fn decode(word: u64) -> Self {
        let state = match word & STATE_MASK {
            0 => State::Absent,
            1 => State::Far,
            2 => State::Active,
            3 => State::Proactive,
            4 => State::Inactive,
            5 => State::Writeback,
            _ => State::Poisoned,
        };
        Self {
            state,
            slot: ((word >> SLOT_SHIFT) as u32).checked_sub(1),
            frame: (word >> FRAME_SHIFT & FRAME_MASK) as u32,
            generation: (word >> GENERATION_SHIFT & GENERATION_MASK) as u8,
        }
    }

    /// The page holds a frame or a mapping, so it counts against the local limit.
    #[must_use]
    pub fn is_local(self) -> bool {
        matches!(self.state, State::Active | State::Proactive | State::Inactive | State::Writeback)
    }

    /// The page is mapped.
    #[must_use]
    pub fn is_mapped(self) -> bool {
        matches!(self.state, State::Active | State::Proactive)
    }

    /// The same mapped page, write-protected in `epoch`; 0 for not at all. Whoever lifts the protection must
    /// clear this first.
    #[must_use]
    pub fn protected_in(self, epoch: u32) -> Self {
        Self { frame: epoch, ..self }
    }

    /// The page is mapped and cannot have changed since it came from its slot, if `epoch` is the present one.
    #[must_use]
    pub fn is_clean(self, epoch: u32) -> bool {
        self.is_mapped() && self.slot.is_some() && self.frame == epoch && epoch != 0
    }

    /// The same page about to enter a queue as `state`.
    #[must_use]
    pub fn queued_as(self, state: State) -> Self {
        let generation = (self.generation + 1) & GENERATION_MASK as u8;
        Self { state, generation, ..self }
    }
}

/// The word of one page, wherever it lies. All zeros is an absent page.
#[derive(Clone, Copy, Debug)]
pub struct PageWord<'a>(pub &'a AtomicU64);

impl PageWord<'_> {
    /// What the word says at this moment; it may change at once.
    #[must_use]
    pub fn peek(self) -> PageInfo {
        PageInfo::decode(self.0.load(Ordering::Acquire))
    }

    /// Whether somebody has the word at this moment.
    #[must_use]
    pub fn is_locked(self) -> bool {
        self.0.load(Ordering::Acquire) & LOCKED != 0
    }

    /// Locks the word, or returns `None` when somebody else has it.
    #[must_use]
    pub fn try_lock(self) -> Option<PageInfo> {
        let word = self.0.load(Ordering::Relaxed);
        if word & LOCKED != 0 {
            return None;
        }
        self.0
            .compare_exchange(word, word | LOCKED, Ordering::Acquire, Ordering::Relaxed)
            .ok()
            .map(PageInfo::decode)
    }

    /// Locks the word for a fault. `None` when somebody else has it: that thread will see the waiter bit and
    /// wake the fault's thread, which then tries again.
    #[must_use]
    pub fn lock_or_leave_waiter(self) -> Option<PageInfo> {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            let wanted = if word & LOCKED != 0 { word | WAITER } else { word | LOCKED };
            match self.0.compare_exchange(word, wanted, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) if word & LOCKED != 0 => return None,
                Ok(_) => return Some(PageInfo::decode(word)),
                Err(now) => word = now,
            }
        }
    }

    /// Writes `info` and gives the lock back. True when faults came meanwhile: the caller must wake the page.
    #[must_use]
    pub fn unlock(self, info: PageInfo) -> bool {
        self.0.swap(info.encode(), Ordering::AcqRel) & WAITER != 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn words_keep_what_they_are_told(
            state in 0_u8..7, slot in proptest::option::of(0..=MAX_SLOTS), frame in 0..MAX_FRAMES as u32,
            generation in 0_u8..128,
        ) {
            let state = PageInfo::decode(u64::from(state)).state;
            let info = PageInfo { state, slot, frame, generation };
            let word = AtomicU64::new(0);
            let word = PageWord(&word);
            prop_assert_eq!(word.try_lock(), Some(PageInfo::ABSENT));
            prop_assert!(!word.unlock(info));
            prop_assert_eq!(word.peek(), info);
        }
    }

    #[test]
    fn departures_are_counted_across_the_turn_of_the_clock() {
        let departures = Departures::default();
        departures.add((1 << 26) - 64);
        let then = departures.now();
        assert_eq!((then, departures.since(then)), ((1 << 20) - 1, 0));
        departures.add(640);
        assert_eq!((departures.now(), departures.since(then)), (9, 640));
    }

    #[test]
    fn a_fault_at_a_locked_page_is_woken() {
        let word = AtomicU64::new(0);
        let word = PageWord(&word);
        let info = word.try_lock().unwrap();
        assert_eq!(word.try_lock(), None);
        assert_eq!(word.lock_or_leave_waiter(), None);
        assert!(word.unlock(info.queued_as(State::Active)), "the waiter must be woken");
        let info = word.lock_or_leave_waiter().unwrap();
        assert_eq!((info.state, info.generation), (State::Active, 1));
        assert!(!word.unlock(info), "the waiter bit is spent");
    }
}
