//! What the supervisor's threads for one pool share.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::shared::Shared;

/// What the threads share.
pub(super) struct Site {
    pub(super) shared: Arc<Shared>,
    tell: fn(&str),
    is_over: AtomicBool,
    /// A donor went or came: the user waits to hear that all is well.
    is_news_due: AtomicBool,
    /// By donor: the connection on which the run, or the donor's present life in it, was begun.
    held: Mutex<Vec<OwnedFd>>,
}

impl Site {
    pub(super) fn new(shared: Arc<Shared>, held: Vec<OwnedFd>, tell: fn(&str)) -> Self {
        Self {
            shared,
            tell,
            is_over: AtomicBool::new(false),
            is_news_due: AtomicBool::new(false),
            held: Mutex::new(held),
        }
    }

    /// Nothing is to begin any more.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Lets nothing begin any more.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Release);
    }

    pub(super) fn tell(&self, line: &str) {
        (self.tell)(line);
    }

    /// Has the rebuilder say so once all is well.
    pub(super) fn owe_news(&self) {
        self.is_news_due.store(true, Ordering::Release);
    }

    /// Whether that is due; the caller sees to it.
    pub(super) fn take_news(&self) -> bool {
        self.is_news_due.swap(false, Ordering::AcqRel)
    }

    /// Keeps the connection on which a donor's new life began.
    pub(super) fn hold(&self, donor: usize, connection: OwnedFd) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = held.get_mut(donor) {
            *place = connection;
        }
    }

    /// Gives the connections back; none where a thread has them at this moment.
    pub(super) fn let_go(&self) -> Vec<OwnedFd> {
        self.held.try_lock().map_or_else(|_| Vec::new(), |mut held| std::mem::take(&mut *held))
    }
}
