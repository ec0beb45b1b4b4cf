//! Answers one after another, as runs: what a policy was told, to be told it again.

use std::cell::{Cell, RefCell};

/// Small numbers, one after another, as runs: how often each comes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Runs(pub Vec<(u8, u64)>);

impl Runs {
    /// Adds a number at the end.
    pub fn push(&mut self, number: u8) {
        self.push_many(number, 1);
    }

    /// Adds a number `count` times.
    pub fn push_many(&mut self, number: u8, count: u64) {
        match self.0.last_mut() {
            Some((last, before)) if *last == number => *before = before.saturating_add(count),
            _ if count > 0 => self.0.push((number, count)),
            _ => {}
        }
    }

    /// The numbers in their order.
    pub fn iter(&self) -> impl Iterator<Item = u8> {
        self.0.iter().flat_map(|&(number, count)| (0..count).map(move |_| number))
    }

    /// How many numbers there are.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.0.iter().fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// What the pager was told when its policy asked, in the same order.
pub(super) struct Told<I> {
    numbers: RefCell<I>,
    asked: Cell<u64>,
}

impl<I: Iterator<Item = u8>> Told<I> {
    pub(super) fn next(&self) -> u8 {
        self.asked.set(self.asked.get() + 1);
        self.numbers.borrow_mut().next().unwrap_or_default()
    }

    pub(super) fn asked(&self) -> u64 {
        self.asked.get()
    }
}

pub(super) fn told(runs: &Runs) -> Told<impl Iterator<Item = u8>> {
    Told { numbers: RefCell::new(runs.iter()), asked: Cell::new(0) }
}
