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

use std::num::NonZeroU32;

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering};

/// The queue that a local page is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// Mapped pages that leave next.
    Active,
    /// Mapped pages with a known re-reference.
    Proactive,
    /// Unmapped pages, in their frames.
    Inactive,
}

/// The time between two forks of a process, in which write protection lasts: a child inherits words, but no
/// protection.
pub type Epoch = NonZeroU32;

/// Where a page is, and what goes with that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageState {
    /// Nowhere: never written, or discarded. Reads as zeros.
    Absent,
    /// In its slot only.
    Far {
        /// Where its store holds it.
        slot: u32,
        /// When it left: see [`Departures`].
        left: u32,
    },
    /// Local, and mapped into the program.
    Mapped {
        /// Since a known re-reference, or without one.
        proactive: bool,
        /// The slot that it was fetched from: a copy that spares the write-back while the page does not
        /// change.
        slot: Option<u32>,
        /// The epoch in which it was write-protected as it came from its slot.
        protected_in: Option<Epoch>,
    },
    /// Local, but unmapped: in a frame.
    Inactive {
        /// The frame that it lies in.
        frame: u32,
        /// As for a mapped page.
        slot: Option<u32>,
        /// It was write-protected until it was unmapped, so its slot holds what its frame does. Never without
        /// a slot.
        is_clean: bool,
    },
    /// In its frame, on its way to a slot. Both are the write-back's.
    Writeback {
        /// The frame that it lies in.
        frame: u32,
    },
    /// Lost: every access answers with SIGBUS.
    Poisoned {
        /// The slot that it could not be had from.
        slot: Option<u32>,
    },
}

/// What the word of a page says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageInfo {
    /// Where the page is.
    pub state: PageState,
    /// Counts how often the page entered a queue (modulo 128), so that an older entry is known as stale.
    pub generation: u8,
}

const STATE_MASK: u64 = 0x7;
const LOCKED: u64 = 1 << 3;
const WAITER: u64 = 1 << 4;
const GENERATION_SHIFT: u32 = 5;
const GENERATION_MASK: u64 = 0x7F;
/// A frame, a departure or an epoch, by the state.
const DETAIL_SHIFT: u32 = 12;
const DETAIL_MASK: u64 = 0xF_FFFF;
const SLOT_SHIFT: u32 = 32;
/// Slots are kept plus one, so that a zeroed word is an absent page.
const NO_SLOT: u64 = 0;

const ABSENT: u64 = 0;
const FAR: u64 = 1;
const ACTIVE: u64 = 2;
const PROACTIVE: u64 = 3;
const INACTIVE: u64 = 4;
const WRITEBACK: u64 = 5;
const POISONED: u64 = 6;
const INACTIVE_CLEAN: u64 = 7;

/// Frames that a word can name.
pub const MAX_FRAMES: usize = DETAIL_MASK as usize + 1;

/// Epochs that a word can name, from 1 on.
pub const MAX_EPOCH: u32 = DETAIL_MASK as u32;

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

    /// What a page that leaves now notes.
    #[must_use]
    pub fn now(&self) -> u32 {
        ((self.0.load(std::sync::atomic::Ordering::Relaxed) / Self::TICK_PAGES) & DETAIL_MASK) as u32
    }

    /// How many pages have left since, rounded to ticks, and forgetting whole turns of the clock.
    #[must_use]
    pub fn since(&self, then: u32) -> u64 {
        (u64::from(self.now()).wrapping_sub(u64::from(then)) & DETAIL_MASK) * Self::TICK_PAGES
    }
}

/// Slots that a word can name.
pub const MAX_SLOTS: u32 = u32::MAX - 1;

impl PageState {
    fn encode(self) -> u64 {
        let (state, detail, slot) = match self {
            Self::Absent => (ABSENT, 0, None),
            Self::Far { slot, left } => (FAR, left, Some(slot)),
            Self::Mapped { proactive, slot, protected_in } => {
                (if proactive { PROACTIVE } else { ACTIVE }, protected_in.map_or(0, Epoch::get), slot)
            }
            Self::Inactive { frame, slot, is_clean } => {
                (if is_clean && slot.is_some() { INACTIVE_CLEAN } else { INACTIVE }, frame, slot)
            }
            Self::Writeback { frame } => (WRITEBACK, frame, None),
            Self::Poisoned { slot } => (POISONED, 0, slot),
        };
        let slot = slot.map_or(NO_SLOT, |slot| u64::from(slot) + 1);
        state | (u64::from(detail) & DETAIL_MASK) << DETAIL_SHIFT | slot << SLOT_SHIFT
    }

    fn decode(word: u64) -> Self {
        let slot = ((word >> SLOT_SHIFT) as u32).checked_sub(1);
        let detail = (word >> DETAIL_SHIFT & DETAIL_MASK) as u32;
        match (word & STATE_MASK, slot) {
            (ABSENT, _) => Self::Absent,
            (FAR, Some(slot)) => Self::Far { slot, left: detail },
            (state @ (ACTIVE | PROACTIVE), slot) => {
                Self::Mapped { proactive: state == PROACTIVE, slot, protected_in: Epoch::new(detail) }
            }
            (INACTIVE, slot) => Self::Inactive { frame: detail, slot, is_clean: false },
            (INACTIVE_CLEAN, Some(slot)) => {
                Self::Inactive { frame: detail, slot: Some(slot), is_clean: true }
            }
            (WRITEBACK, _) => Self::Writeback { frame: detail },
            // A far page without a slot cannot be written here; read as what fails closed.
            (_, slot) => Self::Poisoned { slot },
        }
    }
}

impl PageInfo {
    /// A page that was never touched.
    pub const ABSENT: Self = Self { state: PageState::Absent, generation: 0 };

    fn encode(self) -> u64 {
        self.state.encode() | u64::from(self.generation) << GENERATION_SHIFT
    }

    fn decode(word: u64) -> Self {
        let generation = (word >> GENERATION_SHIFT & GENERATION_MASK) as u8;
        Self { state: PageState::decode(word), generation }
    }

    /// As its word has it, but for who holds the word.
    #[must_use]
    pub fn to_bits(self) -> u64 {
        self.encode()
    }

    /// What [`Self::to_bits`] made bits of.
    #[must_use]
    pub fn from_bits(bits: u64) -> Self {
        Self::decode(bits)
    }

    /// The page was never written, or discarded.
    #[must_use]
    pub fn is_absent(self) -> bool {
        self.state == PageState::Absent
    }

    /// The page is in its slot only.
    #[must_use]
    pub fn is_far(self) -> bool {
        matches!(self.state, PageState::Far { .. })
    }

    /// The page holds a frame or a mapping, so it counts against the local limit.
    #[must_use]
    pub fn is_local(self) -> bool {
        matches!(
            self.state,
            PageState::Mapped { .. } | PageState::Inactive { .. } | PageState::Writeback { .. }
        )
    }

    /// The page is mapped.
    #[must_use]
    pub fn is_mapped(self) -> bool {
        matches!(self.state, PageState::Mapped { .. })
    }

    /// The page is on its way to a slot.
    #[must_use]
    pub fn is_under_write_back(self) -> bool {
        matches!(self.state, PageState::Writeback { .. })
    }

    /// The slot that this process holds for the page, but for one that a write-back has.
    #[must_use]
    pub fn slot(self) -> Option<u32> {
        match self.state {
            PageState::Far { slot, .. } => Some(slot),
            PageState::Mapped { slot, .. } | PageState::Inactive { slot, .. } => slot,
            PageState::Poisoned { slot } => slot,
            PageState::Absent | PageState::Writeback { .. } => None,
        }
    }

    /// The same page without a copy in a slot. A page that is far has no other.
    #[must_use]
    pub fn without_slot(self) -> Self {
        let state = match self.state {
            PageState::Mapped { proactive, protected_in, .. } => {
                PageState::Mapped { proactive, slot: None, protected_in }
            }
            PageState::Inactive { frame, .. } => PageState::Inactive { frame, slot: None, is_clean: false },
            PageState::Poisoned { .. } => PageState::Poisoned { slot: None },
            other => other,
        };
        Self { state, ..self }
    }

    /// The queue that the page is in, if it is in one.
    #[must_use]
    pub fn queue(self) -> Option<Queue> {
        match self.state {
            PageState::Mapped { proactive: false, .. } => Some(Queue::Active),
            PageState::Mapped { proactive: true, .. } => Some(Queue::Proactive),
            PageState::Inactive { .. } => Some(Queue::Inactive),
            _ => None,
        }
    }

    /// The epoch in which a mapped page was write-protected; [`None`] where it may be written to.
    #[must_use]
    pub fn protected_in(self) -> Option<Epoch> {
        match self.state {
            PageState::Mapped { protected_in, .. } => protected_in,
            _ => None,
        }
    }

    /// The same page, if it is mapped, write-protected in an epoch or not at all. Whoever lifts the
    /// protection must clear this first.
    #[must_use]
    pub fn with_protection(self, epoch: Option<Epoch>) -> Self {
        match self.state {
            PageState::Mapped { proactive, slot, .. } => {
                Self { state: PageState::Mapped { proactive, slot, protected_in: epoch }, ..self }
            }
            _ => self,
        }
    }

    /// The page is mapped and cannot have changed since it came from its slot, if `epoch` is the present one.
    #[must_use]
    pub fn is_clean(self, epoch: Epoch) -> bool {
        matches!(
            self.state,
            PageState::Mapped { slot: Some(_), protected_in: Some(protected_in), .. } if protected_in == epoch
        )
    }

    /// The same page in another state, about to enter that state's queue.
    #[must_use]
    pub fn queued_as(self, state: PageState) -> Self {
        Self { state, ..self.queued_anew() }
    }

    /// The same page, about to enter its queue once more.
    #[must_use]
    pub fn queued_anew(self) -> Self {
        Self { generation: (self.generation + 1) & GENERATION_MASK as u8, ..self }
    }

    /// The same mapped page, about to enter one of the queues of mapped pages.
    #[must_use]
    pub fn moved_to(self, queue: Queue) -> Self {
        match self.state {
            PageState::Mapped { slot, protected_in, .. } => {
                let proactive = queue == Queue::Proactive;
                self.queued_as(PageState::Mapped { proactive, slot, protected_in })
            }
            _ => self,
        }
    }

    /// The page as one that was never touched, its count of queues kept.
    #[must_use]
    pub fn forgotten(self) -> Self {
        Self { state: PageState::Absent, ..self }
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

    fn states() -> impl Strategy<Value = PageState> {
        let slots = || 0..=MAX_SLOTS;
        let frames = || 0..MAX_FRAMES as u32;
        let kept = move || proptest::option::of(slots());
        let epochs = proptest::option::of((1..=MAX_EPOCH).prop_filter_map("0 is none", Epoch::new));
        prop_oneof![
            Just(PageState::Absent),
            (slots(), frames()).prop_map(|(slot, left)| PageState::Far { slot, left }),
            (any::<bool>(), kept(), epochs).prop_map(|(proactive, slot, protected_in)| {
                PageState::Mapped { proactive, slot, protected_in }
            }),
            (frames(), kept(), any::<bool>()).prop_map(|(frame, slot, is_clean)| {
                PageState::Inactive { frame, slot, is_clean: is_clean && slot.is_some() }
            }),
            frames().prop_map(|frame| PageState::Writeback { frame }),
            kept().prop_map(|slot| PageState::Poisoned { slot }),
        ]
    }

    proptest! {
        #[test]
        fn words_keep_what_they_are_told(state in states(), generation in 0_u8..128) {
            let info = PageInfo { state, generation };
            let word = AtomicU64::new(0);
            let word = PageWord(&word);
            prop_assert_eq!(word.try_lock(), Some(PageInfo::ABSENT));
            prop_assert!(!word.unlock(info));
            prop_assert_eq!(word.peek(), info);
        }

        #[test]
        fn a_page_is_in_one_place(state in states(), generation in 0_u8..128) {
            let info = PageInfo { state, generation };
            prop_assert!(!(info.is_mapped() && (info.is_far() || info.is_absent())));
            prop_assert_eq!(info.queue().is_some(), info.is_local() && !info.is_under_write_back());
            prop_assert_eq!(info.without_slot().slot().is_some(), info.is_far());
            prop_assert_eq!(info.forgotten().slot(), None);
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
        let mapped = PageState::Mapped { proactive: false, slot: None, protected_in: None };
        assert!(word.unlock(info.queued_as(mapped)), "the waiter must be woken");
        let info = word.lock_or_leave_waiter().unwrap();
        assert_eq!(info, PageInfo { state: mapped, generation: 1 });
        assert!(!word.unlock(info), "the waiter bit is spent");
    }
}
