//! What is known of the threads of a process, so that pages can be foreseen for them. How that is done:
//! [`crate::fault::foreseen`].

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use spillway_policy::strides::{Follower, MOST_AHEAD_PAGES};

/// Threads that are followed at a time.
const PLACES: usize = 16;

/// Pages that are foreseen, in the order in which they will be used.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Foreseen {
    pages: [u64; MOST_AHEAD_PAGES],
    count: usize,
    /// The place of the thread that is expected there.
    pub(crate) place: usize,
}

impl Foreseen {
    pub(crate) fn new(place: usize, asked: &[u64]) -> Self {
        let mut foreseen = Self { place, count: asked.len(), ..Self::default() };
        foreseen.pages[..asked.len()].copy_from_slice(asked);
        foreseen
    }

    pub(crate) fn pages(&self) -> &[u64] {
        &self.pages[..self.count]
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// What is known of one thread.
#[derive(Debug, Default)]
pub(crate) struct Place {
    thread: AtomicU32,
    pub(crate) followed: Mutex<Followed>,
    /// Of the pages that were asked for last, a bit for each that came.
    pub(crate) came: AtomicU64,
}

#[derive(Debug, Default)]
pub(crate) struct Followed {
    pub(crate) thread: u32,
    pub(crate) follower: Follower,
}

/// What is known of the threads of a process.
#[derive(Debug, Default)]
pub struct Followers {
    pub(crate) places: [Place; PLACES],
    /// The place that a further thread gets next.
    oldest: AtomicU32,
}

impl Followers {
    pub(crate) fn place_of(&self, thread: u32) -> usize {
        let known = self.places.iter().position(|place| place.thread.load(Ordering::Relaxed) == thread);
        known.unwrap_or_else(|| {
            let place = self.oldest.fetch_add(1, Ordering::Relaxed) as usize % PLACES;
            self.places[place].thread.store(thread, Ordering::Relaxed);
            place
        })
    }
}
