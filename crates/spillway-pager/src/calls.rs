//! How the program's threads ask the pager for something.
//!
//! A hook runs in the program's thread, under the program's own seccomp filter and with its own file table, so it
//! makes no system call beyond the one that it stands for. It writes its request into a slot and reads a byte of
//! the slot's *doorbell*, a page that is registered and never there: the page fault is the message, and the
//! thread sleeps in it until the pager has answered and maps the page.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use rustix::io::Result;
use spillway_core::page::PAGE_SIZE;
use spillway_sys::memory::Area;
use spillway_sys::uffd::Uffd;

const SLOTS: usize = 64;
/// So often a thread looks before it makes sure that its doorbell rings at all: far more than signals interrupt a call, and less
/// than a millisecond where nothing stops it.
const MOST_LOOKS: u32 = 1 << 16;

/// What is asked for. Arguments are addresses and lengths in bytes, on page boundaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Operation {
    /// A new anonymous mapping: address, length, whether it may be left to the kernel while there is room. Returns
    /// whether its pages count.
    Map = 1,
    /// This range is about to be unmapped or mapped over: address, length. Returns how many pages held contents.
    Forget = 2,
    /// The program discards this range, which then reads as zeros: address, length. Returns for how many bytes of it
    /// that is done.
    Discard = 3,
    /// This range may be moved by mremap(2): address, length.
    RemapBegin = 4,
    /// That is done: old address, old length, new address (0: it was not), new length.
    RemapEnd = 5,
    /// Manage this range, which holds contents already: address, length.
    Adopt = 6,
    /// Bring this range in and leave it alone from now on (it will be locked): address, length.
    Unmanage = 7,
    /// What a forked child gets of this range: address, length, `OnFork` as a number.
    SetOnFork = 8,
    /// A fork is about to happen: addresses in the stacks of the thread that forks and of its child, which go on
    /// while paging is stopped. Returns the child's process entry plus one, 0 when there is no room for a
    /// process, or [`TRY_AGAIN`].
    ForkBegin = 9,
    /// It has happened: the child's pid (0: it failed), its process entry.
    ForkEnd = 10,
    /// Counts memory that is not managed: length.
    CountUnmanaged = 11,
    /// A mapping has grown in place: its address, where it ended, by how much. Managed if it was.
    Grown = 12,
    /// Serve a fault of the calling thread in its stead: address, 1 for a write plus 2 where the page is there.
    Serve = 13,
    /// Leave inline mode: faults are served by handlers from now on. The calling thread is the program's only one.
    LeaveInline = 14,
}

impl Operation {
    fn from_number(number: u32) -> Option<Self> {
        use Operation::*;
        [
            Map,
            Forget,
            Discard,
            RemapBegin,
            RemapEnd,
            Adopt,
            Unmanage,
            SetOnFork,
            ForkBegin,
            ForkEnd,
            CountUnmanaged,
            Grown,
            Serve,
            LeaveInline,
        ]
        .into_iter()
        .find(|operation| *operation as u32 == number)
    }
}

/// Answer to a call that another thread's fork keeps out.
pub const TRY_AGAIN: usize = usize::MAX;

/// One request.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// What to do.
    pub operation: Operation,
    /// To what.
    pub arguments: [usize; 4],
}

// A slot goes FREE -> CLAIMED -> PENDING -> RUNNING -> DONE -> SPENT, and FREE once its doorbell is unmapped.
const FREE: u32 = 0;
const CLAIMED: u32 = 1;
const PENDING: u32 = 2;
const RUNNING: u32 = 3;
const DONE: u32 = 4;
const SPENT: u32 = 5;
const RESETTING: u32 = 6;

struct Slot {
    state: AtomicU32,
    operation: AtomicU32,
    arguments: [AtomicUsize; 4],
    result: AtomicUsize,
}

/// The slots of one process and their doorbells.
pub struct Calls {
    slots: [Slot; SLOTS],
    doorbells: Area,
    spent: AtomicU64,
}

impl Calls {
    /// Free slots.
    pub fn new() -> Result<Self> {
        let slots = std::array::from_fn(|_| Slot {
            state: AtomicU32::new(FREE),
            operation: AtomicU32::new(0),
            arguments: [const { AtomicUsize::new(0) }; 4],
            result: AtomicUsize::new(0),
        });
        Ok(Self { slots, doorbells: Area::new(SLOTS * PAGE_SIZE)?, spent: AtomicU64::new(0) })
    }

    /// First address and length of the doorbells.
    #[must_use]
    pub fn doorbells(&self) -> (usize, usize) {
        (self.doorbells.address(), self.doorbells.bytes())
    }

    /// Asks and waits for the answer. Makes no system call but sched_yield(2) and madvise(2), and these only when 64
    /// threads ask at once, or its doorbell does not ring.
    pub fn call(&self, operation: Operation, arguments: [usize; 4]) -> usize {
        loop {
            let result = self.call_once(operation, arguments);
            if result != TRY_AGAIN {
                return result;
            }
            std::thread::yield_now();
        }
    }

    fn call_once(&self, operation: Operation, arguments: [usize; 4]) -> usize {
        let index = self.claim();
        let slot = &self.slots[index];
        slot.operation.store(operation as u32, Ordering::Relaxed);
        for (to, from) in slot.arguments.iter().zip(arguments) {
            to.store(from, Ordering::Relaxed);
        }
        slot.state.store(PENDING, Ordering::Release);
        let mut looks = 0_u32;
        while slot.state.load(Ordering::Acquire) != DONE {
            // Faults until the answer is there. A signal may interrupt the wait, hence the loop.
            std::hint::black_box(self.doorbells.words(index * PAGE_SIZE, 1)[0].load(Ordering::Relaxed));
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(MOST_LOOKS) {
                // Who let go a ring for the slot's last request may have come late, and mapped the doorbell for good.
                let _ = self.doorbells.discard(index * PAGE_SIZE, PAGE_SIZE);
            }
        }
        let result = slot.result.load(Ordering::Relaxed);
        slot.state.store(SPENT, Ordering::Release);
        self.spent.fetch_or(1 << index, Ordering::Release);
        result
    }

    fn claim(&self) -> usize {
        loop {
            let free = (0..SLOTS).find(|&index| {
                let state = &self.slots[index].state;
                state.load(Ordering::Relaxed) == FREE
                    && state.compare_exchange(FREE, CLAIMED, Ordering::Acquire, Ordering::Relaxed).is_ok()
            });
            if let Some(index) = free {
                return index;
            }
            // All may be spent, and then no answer is under way after which a handler would see to it.
            self.reset_spent();
            std::thread::yield_now();
        }
    }

    /// The slot whose doorbell lies at `address`.
    #[must_use]
    pub fn slot_at(&self, address: usize) -> Option<usize> {
        let index = address.checked_sub(self.doorbells.address())? / PAGE_SIZE;
        (index < SLOTS).then_some(index)
    }

    /// Takes up a request, once: a thread that was interrupted rings again.
    #[must_use]
    pub fn take(&self, index: usize) -> Option<Request> {
        let slot = &self.slots[index];
        slot.state.compare_exchange(PENDING, RUNNING, Ordering::Acquire, Ordering::Relaxed).ok()?;
        let arguments = slot.arguments.each_ref().map(|argument| argument.load(Ordering::Relaxed));
        let operation = Operation::from_number(slot.operation.load(Ordering::Relaxed))?;
        Some(Request { operation, arguments })
    }

    /// Answers a request and lets its thread go on.
    pub fn answer(&self, uffd: &Uffd, index: usize, result: usize) {
        let slot = &self.slots[index];
        slot.result.store(result, Ordering::Relaxed);
        slot.state.store(DONE, Ordering::Release);
        self.let_go(uffd, index);
        if self.spent.load(Ordering::Relaxed).count_ones() as usize >= SLOTS / 2 {
            self.reset_spent();
        }
    }

    /// Lets a thread go on that rang for a request which is answered already.
    pub fn let_go(&self, uffd: &Uffd, index: usize) {
        let state = self.slots[index].state.load(Ordering::Acquire);
        if state == DONE || state == SPENT {
            let address = self.doorbells.address() + index * PAGE_SIZE;
            if uffd.zero_page(address, PAGE_SIZE).is_err() {
                let _ = uffd.wake(address, PAGE_SIZE);
            }
        }
    }

    /// Unmaps the doorbells of slots that are done with, so that they ring again.
    fn reset_spent(&self) {
        let mut spent = self.spent.swap(0, Ordering::AcqRel);
        while spent != 0 {
            let first = spent.trailing_zeros() as usize;
            let count = (spent >> first).trailing_ones() as usize;
            let run = first..first + count;
            for slot in &self.slots[run.clone()] {
                slot.state.store(RESETTING, Ordering::Relaxed);
            }
            let _ = self.doorbells.discard(first * PAGE_SIZE, count * PAGE_SIZE);
            for slot in &self.slots[run] {
                slot.state.store(FREE, Ordering::Release);
            }
            spent =
                spent.checked_shr((first + count) as u32).map_or(0, |rest| rest << ((first + count) % 64));
            if first + count >= 64 {
                spent = 0;
            }
        }
    }

    /// In a forked child, whose only thread asks for nothing now: all slots are free.
    pub fn reset_all(&self) {
        self.spent.store(0, Ordering::Relaxed);
        let _ = self.doorbells.discard(0, self.doorbells.bytes());
        self.slots.iter().for_each(|slot| slot.state.store(FREE, Ordering::Release));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_found_when_all_are_spent() {
        let calls = Calls::new().unwrap();
        for slot in &calls.slots {
            slot.state.store(SPENT, Ordering::Release);
        }
        calls.spent.store(u64::MAX, Ordering::Release);
        let claimed: Vec<usize> = (0..SLOTS).map(|_| calls.claim()).collect();
        assert_eq!(claimed, (0..SLOTS).collect::<Vec<_>>());
    }

    #[test]
    fn those_that_wait_for_an_answer_are_not_reset() {
        let calls = Calls::new().unwrap();
        for (index, slot) in calls.slots.iter().enumerate() {
            slot.state.store(if index % 3 == 0 { SPENT } else { PENDING }, Ordering::Release);
        }
        calls.spent.store((0..SLOTS).step_by(3).fold(0, |bits, index| bits | 1 << index), Ordering::Release);
        let claimed: Vec<usize> = (0..SLOTS.div_ceil(3)).map(|_| calls.claim()).collect();
        assert_eq!(claimed, (0..SLOTS).step_by(3).collect::<Vec<_>>());
    }
}
