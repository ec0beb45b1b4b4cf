//! The stacks of threads that waited for pages, as they were when they did, for who asks in which calls a
//! program waits: copies of their innermost bytes, unwound by whoever takes them out. Nothing is copied
//! unless somebody has asked within the last seconds, and what finds no room is left out: the instructions
//! are counted in any case ([`crate::run::sites`]).

use std::sync::atomic::{AtomicU64, Ordering};

/// Of a stack so much is copied, from the stack pointer on.
pub const STACK_BYTES: usize = 8 << 10;
/// Copies that may lie there until they are taken out. Who asks comes 20 times a second.
const PLACES: usize = 64;
/// Places at which one may be put.
const PROBES: usize = 4;

const ASKED_UNTIL_AT: usize = 0;
const NEXT_AT: usize = 1;
/// Of each place 0 where it is free; else whose copy lies there, and whether it is whole. All together, so
/// that who asks nothing touches one page.
const STATES_AT: usize = 2;
const PLACES_AT: usize = STATES_AT + PLACES;

/// Words of a place.
const SAMPLES_AT: usize = 0;
const INSTRUCTION_AT: usize = 1;
const STACK_POINTER_AT: usize = 2;
const FRAME_POINTER_AT: usize = 3;
const BYTES_AT: usize = 4;
const STACK_AT: usize = 5;
const PLACE_WORDS: usize = STACK_AT + STACK_BYTES / 8;
/// Words that this takes.
pub(super) const STACKS_WORDS: usize = PLACES_AT + PLACES * PLACE_WORDS;

/// Where a thread of the program was when it needed a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The address of its instruction; 0 where a system call needs the page.
    pub instruction: u64,
    /// Its stack pointer; 0 where that is not known.
    pub stack_pointer: u64,
    /// The register that may hold a frame pointer.
    pub frame_pointer: u64,
}

/// A copy of a thread's stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// The process's entry in the run.
    pub entry: usize,
    /// Where the thread was.
    pub origin: Origin,
    /// How many samples this one stands for.
    pub samples: u64,
    /// What lay from the stack pointer on, as far as it was there.
    pub words: Vec<u64>,
}

/// The copies of a run.
#[derive(Clone, Copy)]
pub struct Stacks<'a>(pub(super) &'a [AtomicU64]);

/// Whose copy is being made, or is whole.
const fn state_of(entry: usize, is_whole: bool) -> u64 {
    (entry as u64 + 1) << 1 | is_whole as u64
}

impl<'a> Stacks<'a> {
    fn state(&self, at: usize) -> &'a AtomicU64 {
        &self.0[STATES_AT + at % PLACES]
    }

    fn place(&self, at: usize) -> &'a [AtomicU64] {
        &self.0[PLACES_AT + at % PLACES * PLACE_WORDS..][..PLACE_WORDS]
    }

    /// Has copies made until then, by the monotonic clock.
    pub fn ask(&self, until_ns: u64) {
        self.0[ASKED_UNTIL_AT].store(until_ns, Ordering::Relaxed);
    }

    /// Whether somebody wants them.
    pub(crate) fn is_asked(&self, now_ns: impl FnOnce() -> u64) -> bool {
        match self.0[ASKED_UNTIL_AT].load(Ordering::Relaxed) {
            0 => false,
            until_ns => now_ns() < until_ns,
        }
    }

    /// Notes where a thread of process `entry` is; `copy` copies its stack into the words, and says how many
    /// bytes it has copied. Waits for nobody: where there is no room nothing is noted.
    pub(crate) fn note(
        &self,
        entry: usize,
        origin: Origin,
        samples: u64,
        copy: impl FnOnce(&[AtomicU64]) -> usize,
    ) {
        let first = self.0[NEXT_AT].fetch_add(1, Ordering::Relaxed) as usize % PLACES;
        let is_taken = |at: &usize| {
            let written = state_of(entry, false);
            self.state(*at).compare_exchange(0, written, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        let Some(at) = (first..first + PROBES).find(is_taken) else { return };
        let place = self.place(at);
        let bytes = copy(&place[STACK_AT..]).min(STACK_BYTES) as u64;
        for (word, value) in [
            (SAMPLES_AT, samples),
            (INSTRUCTION_AT, origin.instruction),
            (STACK_POINTER_AT, origin.stack_pointer),
            (FRAME_POINTER_AT, origin.frame_pointer),
            (BYTES_AT, bytes),
        ] {
            place[word].store(value, Ordering::Relaxed);
        }
        self.state(at).store(state_of(entry, true), Ordering::Release);
    }

    /// The entry is another process's: what it has, or was killed while it made it, goes.
    pub(super) fn forget(&self, entry: usize) {
        for state in (0..PLACES).map(|at| self.state(at)) {
            for is_whole in [false, true] {
                let old = state_of(entry, is_whole);
                let _ = state.compare_exchange(old, 0, Ordering::Relaxed, Ordering::Relaxed);
            }
        }
    }

    /// Takes out the copies that are whole.
    #[must_use]
    pub fn take(&self) -> Vec<Stack> {
        (0..PLACES).filter_map(|at| self.take_from(at)).collect()
    }

    fn take_from(&self, at: usize) -> Option<Stack> {
        let state = self.state(at).load(Ordering::Acquire);
        if state & 1 == 0 {
            return None;
        }
        let place = self.place(at);
        let word = |at: usize| place[at].load(Ordering::Relaxed);
        let words = (word(BYTES_AT) as usize).min(STACK_BYTES) / 8;
        let taken = Stack {
            entry: (state >> 1) as usize - 1,
            origin: Origin {
                instruction: word(INSTRUCTION_AT),
                stack_pointer: word(STACK_POINTER_AT),
                frame_pointer: word(FRAME_POINTER_AT),
            },
            samples: word(SAMPLES_AT),
            words: (STACK_AT..STACK_AT + words).map(word).collect(),
        };
        // Where it is another's by now, what was read of it may be of both.
        let is_same = self.state(at).compare_exchange(state, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        is_same.then_some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORIGIN: Origin = Origin { instruction: 0x40_1000, stack_pointer: 0x7ff0, frame_pointer: 5 };

    fn words() -> Vec<AtomicU64> {
        (0..STACKS_WORDS).map(|_| AtomicU64::new(0)).collect()
    }

    /// Copies so many words, each of this value.
    fn of(value: u64, count: usize) -> impl FnOnce(&[AtomicU64]) -> usize {
        move |to| {
            to[..count].iter().for_each(|word| word.store(value, Ordering::Relaxed));
            count * 8
        }
    }

    #[test]
    fn a_copy_is_taken_out_once_and_as_it_was_made() {
        let words = words();
        let stacks = Stacks(&words);
        stacks.note(3, ORIGIN, 2, of(9, 4));
        let expected = Stack { entry: 3, origin: ORIGIN, samples: 2, words: vec![9; 4] };
        assert_eq!((stacks.take(), stacks.take()), (vec![expected], vec![]));
    }

    #[test]
    fn what_finds_no_room_is_left_out_and_room_comes_by_taking_out() {
        let words = words();
        let stacks = Stacks(&words);
        (0..3 * PLACES as u64).for_each(|value| stacks.note(0, ORIGIN, 1, of(value, STACK_BYTES / 8)));
        assert_eq!(stacks.take().len(), PLACES);
        stacks.note(1, ORIGIN, 1, of(7, 0));
        let taken = stacks.take();
        assert_eq!((taken.len(), taken[0].words.len(), taken[0].entry), (1, 0, 1));
    }

    #[test]
    fn what_a_process_left_goes_with_it_even_half_made() {
        let words = words();
        let stacks = Stacks(&words);
        for entry in [1, 2] {
            stacks.note(entry, ORIGIN, 1, of(1, 1));
        }
        // Killed amid the copy.
        stacks.state(9).store(state_of(1, false), Ordering::Relaxed);
        stacks.forget(1);
        let free = (0..PLACES).filter(|&at| stacks.state(at).load(Ordering::Relaxed) == 0);
        assert_eq!(free.count(), PLACES - 1);
        assert_eq!(stacks.take().iter().map(|stack| stack.entry).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn nobody_is_asked_unless_somebody_asks_and_for_as_long_as_that() {
        let words = words();
        let stacks = Stacks(&words);
        assert!(!stacks.is_asked(|| unreachable!("no clock is read")));
        stacks.ask(50);
        assert!(stacks.is_asked(|| 49) && !stacks.is_asked(|| 50));
    }
}
