//! What one client may hold of a donor, by all its exports.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use spillway_core::page::PAGE_SIZE;
use spillway_core::size::Size;

use crate::peer::Peer;

/// The frames of one client.
#[derive(Debug)]
pub struct Share {
    most: usize,
    held: AtomicUsize,
}

impl Share {
    /// Of so many frames, of which none is held yet.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { most, held: AtomicUsize::new(0) }
    }

    /// How many frames the client may hold.
    #[must_use]
    pub fn most(&self) -> usize {
        self.most
    }

    /// How many more it may have now.
    #[must_use]
    pub fn left(&self) -> usize {
        self.most.saturating_sub(self.held.load(Ordering::Relaxed))
    }

    /// Counts so many more as held, all or none. `false` where they are not left.
    #[must_use]
    pub fn take(&self, frames: usize) -> bool {
        let more = |held: usize| held.checked_add(frames).filter(|held| *held <= self.most);
        self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Counts so many as held no more.
    pub fn give_back(&self, frames: usize) {
        self.held.fetch_sub(frames, Ordering::Relaxed);
    }
}

/// The shares of all clients.
#[derive(Debug, Default)]
pub struct Shares(HashMap<Peer, Weak<Share>>);

impl Shares {
    /// A client's share of at most so much. It is counted for as long as one of its exports is there.
    pub fn of(&mut self, peer: Peer, most: Size) -> Arc<Share> {
        if let Some(share) = self.0.get(&peer).and_then(Weak::upgrade) {
            return share;
        }
        self.0.retain(|_, share| share.strong_count() > 0);
        let share = Arc::new(Share::new((most.bytes() / PAGE_SIZE as u64) as usize));
        self.0.insert(peer, Arc::downgrade(&share));
        share
    }
}
