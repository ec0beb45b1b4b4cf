//! Getting a frame under the local limit, which all processes of the run share.

use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::thread::futex;

use crate::engine::{Attachment, Failure, Lost, Worker, now_ns};

/// How long a fault may wait for memory before it is refused. Stores have shorter limits of their own.
const PATIENCE_NS: u64 = 150_000_000_000;
/// After this long without a page from the processes that hold more than their share, a process gives its own.
const OTHERS_PATIENCE_NS: u64 = 10_000_000;
const REQUEST_PAGES: u64 = 64;

impl Worker {
    /// Charges one page to the local limit, evicting as needed.
    pub(crate) fn charge(&mut self) -> Result<(), Failure> {
        let mut waiting_since_ns = None;
        loop {
            if self.try_charge() {
                return Ok(());
            }
            let now = now_ns();
            let since = *waiting_since_ns.get_or_insert(now);
            let others_first = self.holds_less_than_its_share() && now - since < OTHERS_PATIENCE_NS;
            if others_first {
                self.ask_the_largest();
            } else if self.evict_batch() > 0 {
                continue;
            }
            if self.engine.gate.is_frozen() {
                return Err(Failure::Retry);
            }
            if now - since > PATIENCE_NS || (now - since > OTHERS_PATIENCE_NS && self.nothing_helps()) {
                return Err(Failure::Lost(self.why_no_room()));
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Charges one page if there is room.
    pub(crate) fn try_charge(&self) -> bool {
        let charged = self.at.run.budget().try_charge(1);
        if charged {
            self.at.add_local(1);
        }
        if self.at.run.budget().headroom_pages() < self.at.low_headroom_pages {
            wake_evictor(self.at, self.at.entry);
        }
        charged
    }

    fn holds_less_than_its_share(&self) -> bool {
        let run = self.at.run;
        let count = run.processes().count().max(1) as u64;
        let local = self.at.process().local_pages().load(Ordering::Relaxed);
        local * count * 2 < run.budget().limit_pages.load(Ordering::Relaxed)
    }

    fn ask_the_largest(&self) {
        let run = self.at.run;
        let local = |entry: &usize| run.process(*entry).local_pages().load(Ordering::Relaxed);
        if let Some(largest) = run.processes().filter(|&entry| entry != self.at.entry).max_by_key(local) {
            run.process(largest).requested_pages().store(REQUEST_PAGES, Ordering::Release);
            wake_evictor(self.at, largest);
        }
    }

    /// A store has failed for good, or everything is pinned: waiting longer changes nothing.
    fn nothing_helps(&self) -> bool {
        self.last_store_error().is_some()
    }

    fn last_store_error(&self) -> Option<spillway_store::StoreError> {
        self.engine.last_store_error.lock().ok().and_then(|error| error.clone())
    }

    fn why_no_room(&self) -> Lost {
        let reason = match self.last_store_error() {
            Some(error) => error.to_string(),
            None => "all local pages are pinned, or the local limit is too small for the program".to_owned(),
        };
        Lost::NoRoom { reason }
    }
}

/// Wakes the evictor of a process of the run.
pub(crate) fn wake_evictor(at: &Attachment, entry: usize) {
    let word = at.run.evictor_futex(entry);
    if word.swap(0, Ordering::AcqRel) != 0 {
        let _ = futex::wake(word, futex::Flags::empty(), 1);
    }
}
