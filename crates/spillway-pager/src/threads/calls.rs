//! How the program's threads ask the pager for something.
//!
//! A hook runs in the program's thread, under the program's own seccomp filter and with its own file table,
//! so it makes no system call beyond the one that it stands for. It writes its request into a slot and reads
//! a byte of the slot's *doorbell*, a page that is registered and never there: the page fault is the message,
//! and the thread sleeps in it until the pager has answered and maps the page.

use std::marker::PhantomData;
use std::ops::Range;

use rustix::io::Result;
use spillway_core::call_slots::{ARGUMENTS, Doorbells, SLOTS, Slots};
use spillway_core::page::PAGE_SIZE;
use spillway_sys::memory::Area;
use spillway_sys::ranges::FrameRange;

use crate::kernel::live::LiveKernel;
use crate::kernel::{Kernel, planted};

/// What is asked for. Arguments are addresses and lengths in bytes, on page boundaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Operation {
    /// A new anonymous mapping: address, length, whether it may be left to the kernel while there is room.
    /// Returns whether its pages count.
    Map = 1,
    /// This range is about to be unmapped or mapped over: address, length, whether what is local of it may be
    /// dropped now. Returns how many pages held contents that are lost with it.
    Forget = 2,
    /// The program discards this range, which then reads as zeros: address, length. Returns for how many
    /// bytes of it that is done.
    Discard = 3,
    /// This range may be moved by mremap(2): address, length.
    RemapBegin = 4,
    /// That is done: old address, old length, new address (0: it was not), new length.
    RemapEnd = 5,
    /// Manage this range, which holds contents already: address, length.
    Adopt = 6,
    /// Bring this range in and leave it alone from now on (it will be locked): address, length.
    Unmanage = 7,
    /// The program says what a forked child gets of this range: address, length,
    /// [`crate::kernel::ForkAdvice`] as a number. Done here, where no fork can come between the kernel's
    /// knowing of it and ours. Returns 1, or 1 plus the error's number.
    AdviseOnFork = 8,
    /// A fork is about to happen. Three addresses around which threads go on while paging is stopped: in the
    /// stacks of the thread that forks and of its child, and in the child's thread-local storage. Three where
    /// the kernel writes meanwhile: the numbers of the child and its descriptor. Returns the child as one
    /// word ([`crate::run::state::Child`]) or 0 when there is no room for a process, or [`TRY_AGAIN`].
    ForkBegin = 9,
    /// It has happened: the child's pid (0: it failed), the child as one word.
    ForkEnd = 10,
    /// Counts memory that is not managed: length.
    CountUnmanaged = 11,
    /// A mapping has grown in place: its address, where it ended, by how much. Managed if it was.
    Grown = 12,
    /// Serve a fault of the calling thread in its stead: address, 1 for a write plus 2 where the page is
    /// there.
    Serve = 13,
    /// Leave inline mode: faults are served by handlers from now on. The calling thread is the program's only
    /// one.
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
            AdviseOnFork,
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

/// What one thread asks for.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// What is to be done.
    pub operation: Operation,
    /// Addresses, lengths and the like, as the operation says.
    pub arguments: [usize; ARGUMENTS],
}

/// The slots of one process and their doorbells.
pub struct Calls<K = LiveKernel> {
    slots: Slots,
    doorbells: Pages<K>,
}

/// A page for each slot, registered and never there.
struct Pages<K> {
    area: Area,
    kernel: PhantomData<fn() -> K>,
}

impl<K: Kernel> Doorbells for Pages<K> {
    fn touch(&self, slot: usize) {
        K::touch_doorbell(self.area.pages(slot, 1));
    }

    fn unmap(&self, slots: Range<usize>) {
        if planted!(K, "doorbells-stay-mapped") {
            return;
        }
        K::unmap_doorbells(self.area.pages(slots.start, slots.len()));
    }

    fn pause(&self) {
        K::give_way();
    }
}

impl<K: Kernel> Calls<K> {
    /// Free slots.
    ///
    /// # Errors
    /// ENOMEM where there is no address space.
    pub fn new() -> Result<Self> {
        let doorbells = Pages { area: Area::new(SLOTS * PAGE_SIZE)?, kernel: PhantomData };
        Ok(Self { slots: Slots::new(), doorbells })
    }

    /// The doorbells' pages, to be registered.
    #[must_use]
    pub fn doorbells(&self) -> FrameRange<'_> {
        self.doorbells.area.pages(0, SLOTS)
    }

    /// Asks and waits for the answer. Makes no system call but sched_yield(2) and madvise(2), and these only
    /// when 64 threads ask at once, or its doorbell does not ring.
    pub fn call<const N: usize>(&self, operation: Operation, arguments: [usize; N]) -> usize {
        let arguments = std::array::from_fn(|index| arguments.get(index).copied().unwrap_or(0));
        loop {
            let result = self.slots.ask(&self.doorbells, operation as u32, arguments);
            if result != TRY_AGAIN {
                return result;
            }
            K::give_way();
        }
    }

    /// The slot whose doorbell lies at `address`.
    #[must_use]
    pub fn slot_at(&self, address: usize) -> Option<usize> {
        let index = address.checked_sub(self.doorbells.area.address())? / PAGE_SIZE;
        (index < SLOTS).then_some(index)
    }

    /// Takes up a request, once: a thread that was interrupted rings again.
    #[must_use]
    pub fn take(&self, index: usize) -> Option<Request> {
        let (operation, arguments) = self.slots.take(index)?;
        Some(Request { operation: Operation::from_number(operation)?, arguments })
    }

    /// Answers a request and lets its thread go on.
    pub fn answer(&self, kernel: &K, index: usize, result: usize) {
        self.slots.answer(&self.doorbells, index, result, || self.map(kernel, index));
    }

    /// Lets a thread go on that rang for a request which is answered already.
    pub fn let_go(&self, kernel: &K, index: usize) {
        self.slots.let_go(index, || self.map(kernel, index));
    }

    fn map(&self, kernel: &K, index: usize) {
        kernel.map_doorbell(self.doorbells.area.pages(index, 1));
    }

    /// In a forked child, whose only thread asks for nothing now: all slots are free.
    pub fn reset_all(&self) {
        self.slots.reset_all(&self.doorbells);
    }
}
