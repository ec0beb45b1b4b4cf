//! The state machine of a call: a slot that a thread of the program claims, the pager answers, and somebody
//! frees.
//!
//! A slot goes FREE -> CLAIMED -> PENDING -> RUNNING -> DONE -> SPENT, and FREE once its doorbell is
//! unmapped. Invariants, checked for all interleavings by the loom model below (`make loom`): a request is
//! taken up once and answered with its own result, and no thread sleeps for ever - neither before its
//! doorbell nor for want of a free slot.

use std::ops::Range;

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
#[cfg(loom)]
use loom::thread::yield_now;
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
#[cfg(not(loom))]
use std::thread::yield_now;

/// How many threads can ask at once.
pub const SLOTS: usize = if cfg!(loom) { 2 } else { 64 };
/// So often a thread touches its doorbell before it makes sure that it rings at all: far more than signals
/// interrupt a call, and less than a millisecond where nothing stops it.
const MOST_TOUCHES: u32 = if cfg!(loom) { 1 } else { 1 << 16 };

const FREE: u32 = 0;
const CLAIMED: u32 = 1;
const PENDING: u32 = 2;
const RUNNING: u32 = 3;
const DONE: u32 = 4;
const SPENT: u32 = 5;
const RESETTING: u32 = 6;

/// Words that a request carries.
pub const ARGUMENTS: usize = 6;

/// A page for each slot, whose fault is the message that something is asked.
pub trait Doorbells {
    /// Returns once the slot's doorbell is mapped, or for no reason. Tells the pager when it is not.
    fn touch(&self, slot: usize);
    /// These doorbells ring again when they are touched.
    fn unmap(&self, slots: Range<usize>);
    /// Gives way to the threads that have all slots.
    fn pause(&self) {
        yield_now();
    }
}

struct Slot {
    state: AtomicU32,
    operation: AtomicU32,
    arguments: [AtomicUsize; ARGUMENTS],
    result: AtomicUsize,
}

/// The slots of one process.
pub struct Slots {
    slots: [Slot; SLOTS],
    /// A bit for each slot in SPENT, set after it is: who takes the bit frees the slot.
    spent: AtomicU64,
}

impl Default for Slots {
    fn default() -> Self {
        Self::new()
    }
}

impl Slots {
    /// Slots of which each is free.
    #[must_use]
    pub fn new() -> Self {
        let slots = std::array::from_fn(|_| Slot {
            state: AtomicU32::new(FREE),
            operation: AtomicU32::new(0),
            arguments: std::array::from_fn(|_| AtomicUsize::new(0)),
            result: AtomicUsize::new(0),
        });
        Self { slots, spent: AtomicU64::new(0) }
    }

    /// Asks and waits for the answer.
    pub fn ask(&self, doorbells: &impl Doorbells, operation: u32, arguments: [usize; ARGUMENTS]) -> usize {
        let index = self.claim(doorbells);
        let slot = &self.slots[index];
        slot.operation.store(operation, Ordering::Relaxed);
        for (to, from) in slot.arguments.iter().zip(arguments) {
            to.store(from, Ordering::Relaxed);
        }
        slot.state.store(PENDING, Ordering::Release);
        let mut touches = 0_u32;
        while slot.state.load(Ordering::Acquire) != DONE {
            // Faults until the answer is there. A signal may interrupt the wait, hence the loop.
            doorbells.touch(index);
            touches = touches.wrapping_add(1);
            if touches.is_multiple_of(MOST_TOUCHES) {
                // Who let go a ring for the slot's last request may have come late, and mapped the doorbell
                // for good.
                doorbells.unmap(index..index + 1);
            }
        }
        let result = slot.result.load(Ordering::Relaxed);
        slot.state.store(SPENT, Ordering::Release);
        self.spent.fetch_or(1 << index, Ordering::Release);
        result
    }

    fn claim(&self, doorbells: &impl Doorbells) -> usize {
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
            self.reset_spent(doorbells);
            doorbells.pause();
        }
    }

    /// Takes up a request, once: its operation and arguments.
    #[must_use]
    pub fn take(&self, index: usize) -> Option<(u32, [usize; ARGUMENTS])> {
        let slot = &self.slots[index];
        slot.state.compare_exchange(PENDING, RUNNING, Ordering::Acquire, Ordering::Relaxed).ok()?;
        let arguments = slot.arguments.each_ref().map(|argument| argument.load(Ordering::Relaxed));
        Some((slot.operation.load(Ordering::Relaxed), arguments))
    }

    /// Answers a request; `map` maps its doorbell and wakes who sleeps there.
    pub fn answer(&self, doorbells: &impl Doorbells, index: usize, result: usize, map: impl FnOnce()) {
        let slot = &self.slots[index];
        slot.result.store(result, Ordering::Relaxed);
        slot.state.store(DONE, Ordering::Release);
        self.let_go(index, map);
        if self.spent.load(Ordering::Relaxed).count_ones() as usize >= SLOTS / 2 {
            self.reset_spent(doorbells);
        }
    }

    /// Lets a thread go on whose request is answered already.
    pub fn let_go(&self, index: usize, map: impl FnOnce()) {
        let state = self.slots[index].state.load(Ordering::Acquire);
        if state == DONE || state == SPENT {
            map();
        }
    }

    /// Unmaps the doorbells of slots that are done with, so that they ring again.
    fn reset_spent(&self, doorbells: &impl Doorbells) {
        let mut spent = self.spent.swap(0, Ordering::AcqRel);
        while spent != 0 {
            let first = spent.trailing_zeros() as usize;
            let run = first..first + (spent >> first).trailing_ones() as usize;
            for slot in &self.slots[run.clone()] {
                slot.state.store(RESETTING, Ordering::Relaxed);
            }
            doorbells.unmap(run.clone());
            for index in run {
                self.slots[index].state.store(FREE, Ordering::Release);
                spent &= !(1 << index);
            }
        }
    }

    /// In a forked child, whose only thread asks for nothing now: all slots are free.
    pub fn reset_all(&self, doorbells: &impl Doorbells) {
        self.spent.store(0, Ordering::Relaxed);
        doorbells.unmap(0..SLOTS);
        self.slots.iter().for_each(|slot| slot.state.store(FREE, Ordering::Release));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Doorbells that nobody touches.
    struct Unused;

    impl Doorbells for Unused {
        fn touch(&self, _: usize) {}
        fn unmap(&self, _: Range<usize>) {}
    }

    #[test]
    fn a_slot_is_found_when_all_are_spent() {
        let slots = Slots::new();
        for slot in &slots.slots {
            slot.state.store(SPENT, Ordering::Release);
        }
        slots.spent.store(u64::MAX, Ordering::Release);
        let claimed: Vec<usize> = (0..SLOTS).map(|_| slots.claim(&Unused)).collect();
        assert_eq!(claimed, (0..SLOTS).collect::<Vec<_>>());
    }

    #[test]
    fn those_that_wait_for_an_answer_are_not_reset() {
        let slots = Slots::new();
        for (index, slot) in slots.slots.iter().enumerate() {
            slot.state.store(if index % 3 == 0 { SPENT } else { PENDING }, Ordering::Release);
        }
        slots.spent.store((0..SLOTS).step_by(3).fold(0, |bits, index| bits | 1 << index), Ordering::Release);
        let claimed: Vec<usize> = (0..SLOTS.div_ceil(3)).map(|_| slots.claim(&Unused)).collect();
        assert_eq!(claimed, (0..SLOTS).step_by(3).collect::<Vec<_>>());
    }
}

/// All interleavings of threads that ask and handlers that answer.
#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::sync::{Arc, Condvar, Mutex};
    use loom::thread;

    /// What the kernel knows of the doorbells.
    #[derive(Default)]
    struct Kernel {
        is_mapped: [bool; SLOTS],
        /// How often who slept before a doorbell was woken.
        woken: [u32; SLOTS],
        /// Rings that no handler has read, oldest first.
        rings: Vec<usize>,
        are_all_answered: bool,
    }

    /// Doorbells whose faults are locks and condition variables.
    struct Modelled {
        kernel: Mutex<Kernel>,
        changed: Condvar,
    }

    impl Modelled {
        fn new() -> Self {
            Self { kernel: Mutex::new(Kernel::default()), changed: Condvar::new() }
        }

        fn map(&self, slot: usize) {
            let mut kernel = self.kernel.lock().unwrap();
            kernel.is_mapped[slot] = true;
            kernel.woken[slot] += 1;
            self.changed.notify_all();
        }

        /// A signal ends the sleep of who touches this doorbell.
        fn interrupt(&self, slot: usize) {
            self.kernel.lock().unwrap().woken[slot] += 1;
            self.changed.notify_all();
        }

        /// The next ring; none once all is answered.
        fn next_ring(&self) -> Option<usize> {
            let mut kernel = self.kernel.lock().unwrap();
            while kernel.rings.is_empty() {
                if kernel.are_all_answered {
                    return None;
                }
                kernel = self.changed.wait(kernel).unwrap();
            }
            Some(kernel.rings.remove(0))
        }

        fn end(&self) {
            self.kernel.lock().unwrap().are_all_answered = true;
            self.changed.notify_all();
        }
    }

    impl Doorbells for Modelled {
        fn touch(&self, slot: usize) {
            let mut kernel = self.kernel.lock().unwrap();
            if kernel.is_mapped[slot] {
                return;
            }
            let before = kernel.woken[slot];
            kernel.rings.push(slot);
            self.changed.notify_all();
            // Without a time limit: an answer that is lost is a deadlock, which loom reports.
            while kernel.woken[slot] == before {
                kernel = self.changed.wait(kernel).unwrap();
            }
        }

        fn unmap(&self, slots: Range<usize>) {
            let mut kernel = self.kernel.lock().unwrap();
            slots.for_each(|slot| kernel.is_mapped[slot] = false);
        }
    }

    fn ask(slots: &Slots, doorbells: &Modelled, number: usize) {
        assert_eq!(
            slots.ask(doorbells, 1, [number, 0, 0, 0, 0, 0]),
            number + 100,
            "another request's answer"
        );
    }

    fn serve(slots: &Slots, doorbells: &Modelled) {
        while let Some(index) = doorbells.next_ring() {
            match slots.take(index) {
                Some((_, arguments)) => {
                    slots.answer(doorbells, index, arguments[0] + 100, || doorbells.map(index));
                }
                None => slots.let_go(index, || doorbells.map(index)),
            }
        }
    }

    /// The first of `askers` threads asks so many times, the others once each, while signals come if
    /// `interrupted`.
    fn model(askers: usize, times: usize, interrupted: bool, preemptions: usize) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(preemptions);
        builder.check(move || {
            let shared = Arc::new((Slots::new(), Modelled::new()));
            let start = |run: Box<dyn Fn(&Slots, &Modelled) + Send>| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || run(&shared.0, &shared.1))
            };
            let handler = start(Box::new(serve));
            let mut others: Vec<_> = (1..askers)
                .map(|asker| start(Box::new(move |slots, doorbells| ask(slots, doorbells, asker * 10))))
                .collect();
            if interrupted {
                others.push(start(Box::new(|_, doorbells| doorbells.interrupt(0))));
            }
            (0..times).for_each(|time| ask(&shared.0, &shared.1, time));
            others.into_iter().for_each(|other| other.join().unwrap());
            shared.1.end();
            handler.join().unwrap();
        });
    }

    #[test]
    fn loom_one_thread_asks_more_often_than_there_are_slots() {
        model(1, 3, false, 2);
    }

    #[test]
    fn loom_threads_that_ask_at_once_get_each_their_own_answer() {
        model(2, 1, false, 2);
    }

    /// Both slots are spent, and no answer is under way after which a handler would free them.
    #[test]
    fn loom_who_finds_all_slots_spent_goes_on() {
        model(2, 2, false, 1);
    }

    #[test]
    fn loom_a_signal_while_it_waits_loses_no_answer() {
        model(1, 3, true, 2);
    }
}
