//! What is known of the threads of a process, so that pages can be foreseen for them. How that is done:
//! [`crate::fault::foreseen`].

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use spillway_policy::strides::{Follower, MOST_AHEAD_PAGES};
use spillway_policy::tape::window::MOST_ASKED_PAGES;

use crate::fault::player::Player;

/// Threads that are followed at a time.
const PLACES: usize = 16;
/// Pages that are foreseen at a time: at most a tape's.
const MOST_PAGES: usize =
    if MOST_AHEAD_PAGES > MOST_ASKED_PAGES { MOST_AHEAD_PAGES } else { MOST_ASKED_PAGES };

/// Pages that are foreseen, in the order in which they will be used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Foreseen {
    pages: [u64; MOST_PAGES],
    count: usize,
    /// The place of the thread that is expected there.
    pub(crate) place: usize,
    /// A tape has them.
    pub(crate) is_by_tape: bool,
}

impl Default for Foreseen {
    fn default() -> Self {
        Self { pages: [0; MOST_PAGES], count: 0, place: 0, is_by_tape: false }
    }
}

impl Foreseen {
    pub(crate) fn new(place: usize, asked: &[u64]) -> Self {
        let mut foreseen = Self { place, count: asked.len(), ..Self::default() };
        foreseen.pages[..asked.len()].copy_from_slice(asked);
        foreseen
    }

    /// Of a tape, and none yet.
    pub(crate) fn by_tape(place: usize) -> Self {
        Self { place, is_by_tape: true, ..Self::default() }
    }

    /// Adds a page; false where there is no room for it.
    pub(crate) fn push(&mut self, page_number: u64) -> bool {
        let Some(place) = self.pages.get_mut(self.count) else { return false };
        *place = page_number;
        self.count += 1;
        true
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
    /// The same of those that a tape has.
    pub(crate) came_by_tape: AtomicU64,
}

#[derive(Debug, Default)]
pub(crate) struct Followed {
    pub(crate) thread: u32,
    pub(crate) follower: Follower,
    pub(crate) player: Player,
}

impl Followed {
    /// Nothing is known of a thread that was not followed until now. Returns whether that is so.
    pub(crate) fn begin(&mut self, thread: u32) -> bool {
        let is_new = self.thread != thread;
        if is_new {
            *self = Self { thread, ..Self::default() };
        }
        is_new
    }
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
