//! What is to be decided: for each page and epoch whether the page is local.

use std::ops::Range;

/// The time during which a page exists: from its first touch until the program gives it back, or ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Life {
    /// The epoch of its first touch.
    pub first: u32,
    /// The epoch behind its last one.
    pub end: u32,
    /// Its uses, among those of the problem.
    pub uses: Range<usize>,
}

/// What a page's accesses cost in an epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Use {
    /// The epoch that is meant.
    pub epoch: u32,
    /// By how much longer they take while the page is far, in nanoseconds.
    pub far_ns: f32,
}

/// Lives of pages over epochs, under a capacity.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// How many epochs there are.
    pub epochs: u32,
    /// Frames of local memory, in pages.
    pub capacity: u32,
    /// What it costs to bring a page to local memory, in nanoseconds. Its first place costs nothing.
    pub in_ns: f64,
    /// What it costs to send one away, in nanoseconds. At the end of its life it costs nothing.
    pub out_ns: f64,
    /// The lives of the page.
    pub lives: Vec<Life>,
    /// Their uses, life by life, by epoch.
    pub uses: Vec<Use>,
}

impl Problem {
    /// The uses of a life.
    #[must_use]
    pub fn uses_of(&self, life: &Life) -> &[Use] {
        &self.uses[life.uses.clone()]
    }

    /// What everything costs while nothing is ever local, in nanoseconds.
    #[must_use]
    pub fn all_far_ns(&self) -> f64 {
        self.uses.iter().map(|used| f64::from(used.far_ns)).sum()
    }
}
