//! What the supervisor's threads for one pool share.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::shared::Shared;
use crate::{Notice, Tell};

/// How long [`Site::await_rest`] waits for work that is under way.
const MOST_REST: Duration = Duration::from_secs(3);

/// How the run's pages are, as the last look has found them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Found {
    pub(super) stored_bytes: u64,
    pub(super) endangered_bytes: u64,
    pub(super) unreachable_bytes: u64,
    /// Bytes of pages that are to be copied still.
    pub(super) left_bytes: u64,
    /// Bytes of pages that are in the last resort.
    pub(super) spilled_bytes: u64,
}

/// What the threads share.
pub(super) struct Site {
    pub(super) shared: Arc<Shared>,
    tell: Tell,
    is_over: AtomicBool,
    /// A donor went or came: the user waits to hear that all is well.
    is_news_due: AtomicBool,
    /// By donor: the connection on which the run, or the donor's present life in it, was begun, where it is
    /// here. Of a last resort there is none.
    held: Mutex<Vec<Option<OwnedFd>>>,
    /// Of each thread: locked by it while it is at work.
    at_work: Mutex<Vec<Arc<Mutex<()>>>>,
    found: Mutex<Found>,
    /// Bytes copied in all.
    copied_bytes: AtomicU64,
}

impl Site {
    pub(super) fn new(shared: Arc<Shared>, held: Vec<OwnedFd>, tell: Tell) -> Self {
        let mut held: Vec<Option<OwnedFd>> = held.into_iter().map(Some).collect();
        if let Some(resort) = shared.last_resort() {
            // Those that joined since stand after it.
            held.insert(resort.donor.min(held.len()), None);
        }
        Self {
            shared,
            tell,
            is_over: AtomicBool::new(false),
            is_news_due: AtomicBool::new(false),
            held: Mutex::new(held),
            at_work: Mutex::default(),
            found: Mutex::default(),
            copied_bytes: AtomicU64::new(0),
        }
    }

    /// Has a thread do this again and again until all is over.
    pub(super) fn spawn(
        self: &Arc<Self>,
        name: &str,
        period: Duration,
        mut work: impl FnMut() + Send + 'static,
    ) {
        let (site, at_work) = (Arc::clone(self), Arc::<Mutex<()>>::default());
        self.at_work().push(Arc::clone(&at_work));
        let body = move || {
            loop {
                std::thread::sleep(period);
                let Ok(_at_work) = at_work.lock() else { return };
                if site.is_over() {
                    return;
                }
                work();
            }
        };
        if let Err(error) = std::thread::Builder::new().name(name.to_owned()).spawn(body) {
            self.tell(&format!("the pool's donors are not looked after: {error}"));
        }
    }

    fn at_work(&self) -> MutexGuard<'_, Vec<Arc<Mutex<()>>>> {
        self.at_work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits, for a bounded time, until no thread is at work.
    pub(super) fn await_rest(&self) {
        let until = Instant::now() + MOST_REST;
        let mut number = 0;
        // One that is at work may have begun another.
        while let Some(at_work) = { self.at_work().get(number).cloned() } {
            while at_work.try_lock().is_err() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(5));
            }
            number += 1;
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

    pub(super) fn tell<'a>(&self, notice: impl Into<Notice<'a>>) {
        (self.tell)(&notice.into());
    }

    /// Has the rebuilder say so once all is well.
    pub(super) fn owe_news(&self) {
        self.is_news_due.store(true, Ordering::Release);
    }

    /// Whether that is due; the caller sees to it.
    pub(super) fn take_news(&self) -> bool {
        self.is_news_due.swap(false, Ordering::AcqRel)
    }

    /// Notes what a look has found.
    pub(super) fn note_found(&self, found: Found) {
        *self.found.lock().unwrap_or_else(PoisonError::into_inner) = found;
    }

    /// What the last look has found.
    pub(super) fn found(&self) -> Found {
        *self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn count_copied(&self, bytes: u64) {
        self.copied_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes copied so far.
    pub(super) fn copied_bytes(&self) -> u64 {
        self.copied_bytes.load(Ordering::Relaxed)
    }

    /// Keeps the connection on which a donor's new life began.
    pub(super) fn hold(&self, donor: usize, connection: OwnedFd) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.len() <= donor {
            held.resize_with(donor + 1, || None);
        }
        held[donor] = Some(connection);
    }

    /// Tells a donor that the run, or its present life there, has ended, so that it gives its memory back.
    pub(super) fn end_part(&self, donor: usize) {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        // Its place stays taken: they are by number.
        let connection = held.get(donor).and_then(Option::as_ref);
        let connection = connection.and_then(|connection| connection.try_clone().ok());
        drop(held);
        connection.iter().for_each(crate::nbd::end);
    }

    /// Gives the connections back, by donor; none where a thread has them at this moment, or one is missing.
    pub(super) fn let_go(&self) -> Vec<OwnedFd> {
        let mut held =
            self.held.try_lock().map_or_else(|_| Vec::new(), |mut held| std::mem::take(&mut *held));
        if let Some(resort) = self.shared.last_resort().filter(|resort| resort.donor < held.len()) {
            held.remove(resort.donor);
        }
        held.into_iter().collect::<Option<Vec<_>>>().unwrap_or_default()
    }
}
