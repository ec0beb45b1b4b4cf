//! What is replayed, what comes of it, and why it cannot be.

use std::collections::HashMap;

use thiserror::Error;

use super::replacement::NONE;

/// The policies of a replay, by name.
pub const POLICIES: [&str; 5] = ["lru", "fifo", "clock", "sieve", "belady"];

/// Why a trace cannot be replayed.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ReplayError {
    /// No replacement policy has this name.
    #[error(
        "replacement policy '{0}': there is none of this name; take one of {known}",
        known = POLICIES.join(", ")
    )]
    UnknownPolicy(String),
    /// There must be a frame at least.
    #[error("local memory: it has no room for a page; give it one page at least")]
    NoFrames,
    /// Pages and frames are numbered by 32 bits.
    #[error("page trace: it has more than {} pages; replay a part of it", NONE - 1)]
    TooManyPages,
    /// Requests are numbered by 32 bits where they are known beforehand.
    #[error("page trace: it has more than {} requests; replay a part of it", u32::MAX - 1)]
    TooManyRequests,
}

/// A trace of pages, each by a number from 0 up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageTrace {
    requests: Vec<u32>,
    pages: u32,
}

impl PageTrace {
    /// Numbers pages in the order in which they are first requested.
    ///
    /// # Errors
    /// More pages than there are numbers.
    pub fn new(requests: impl IntoIterator<Item = u64>) -> Result<Self, ReplayError> {
        let mut numbers = HashMap::new();
        let mut trace = Self::default();
        for page in requests {
            let next = numbers.len();
            let number = *numbers.entry(page).or_insert(next as u32);
            if next >= NONE as usize {
                return Err(ReplayError::TooManyPages);
            }
            trace.requests.push(number);
        }
        trace.pages = numbers.len() as u32;
        Ok(trace)
    }

    /// How many pages are requested at least once.
    pub fn pages(&self) -> u32 {
        self.pages
    }

    /// The pages in the order of the requests.
    pub fn requests(&self) -> &[u32] {
        &self.requests
    }
}

/// What came of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// Requests of the trace in all.
    pub requests: u64,
    /// Requests that did not find their page.
    pub misses: u64,
}
