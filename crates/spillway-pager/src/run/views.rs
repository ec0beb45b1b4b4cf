//! What other threads than the supervisor's see of a run.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use rustix::thread::futex;
use spillway_store::Store;

use crate::run::heat::Heat;
use crate::run::inquiry::Told;
use crate::run::settings::Settings;
use crate::run::state::{NOTED_STORES, RunState};

/// Between two looks for an answer.
const PAUSE: Duration = Duration::from_millis(1);

/// Whether the run's pagers are at work.
#[derive(Clone)]
pub struct BusyPagers(Arc<RunState>);

impl BusyPagers {
    /// Looks at this run, by a mapping of its own.
    pub(super) fn new(run: Arc<RunState>) -> Self {
        Self(run)
    }

    /// Some process's pager serves a fault or a request now.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.0.processes().any(|entry| self.0.process(entry).busy_handlers().load(Ordering::Relaxed) > 0)
    }

    /// Some store does not answer, and the user was told that it is waited for.
    #[must_use]
    pub fn waits_for_silent(&self) -> bool {
        self.0.all_store_notes().any(|notes| notes.silent.load(Ordering::Relaxed) != 0)
    }

    /// Some store takes too few connections, and the run's processes take turns with those that there are.
    #[must_use]
    pub fn takes_turns(&self) -> bool {
        self.0.all_store_notes().any(|notes| notes.are_of_turns())
    }
}

/// A view of a run for another thread: what is counted, and the stores as the supervisor has them open.
pub struct RunView {
    /// What the processes share.
    pub run: RunState,
    /// The settings, with the capacities that the stores have offered.
    pub settings: Settings,
    /// The stores in the order of the settings; none where the supervisor could not open it.
    pub stores: Vec<Option<Arc<dyn Store>>>,
}

impl RunView {
    /// Asks a process about its pages, and about one in particular; none where it does not answer in time, or
    /// has ended. One asks at a time.
    #[must_use]
    pub fn inquire(&self, entry: usize, page_number: Option<u64>, patience: Duration) -> Option<Told> {
        let inquiry = self.run.process(entry).inquiry();
        self.ask(entry, patience, || inquiry.ask(page_number), |number| inquiry.answered(number))
    }

    /// Asks a process where its memory is and how much it is used; none as for [`Self::inquire`].
    #[must_use]
    pub fn heat(&self, entry: usize, patience: Duration) -> Option<Heat> {
        let words = self.run.heat(entry);
        self.ask(entry, patience, || words.ask(), |number| words.answered(number))
    }

    fn ask<T>(
        &self,
        entry: usize,
        patience: Duration,
        ask: impl FnOnce() -> u64,
        answered: impl Fn(u64) -> Option<T>,
    ) -> Option<T> {
        let process = self.run.process(entry);
        let claim = process.claim();
        let number = ask();
        let evictor = self.run.evictor_futex(entry);
        // As who sleeps expects it: see the evictor's loop.
        fence(Ordering::SeqCst);
        if evictor.swap(0, Ordering::AcqRel) != 0 {
            let _ = futex::wake(evictor, futex::Flags::empty(), 1);
        }
        let end = Instant::now() + patience;
        loop {
            let told = answered(number);
            if told.is_some() || Instant::now() > end {
                return told.filter(|_| claim != 0 && process.claim() == claim);
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Some process has said that it waits for this store, and none since that it answers. Where stores share
    /// their notes it cannot be said of which that is: false.
    #[must_use]
    pub fn is_waited_for(&self, store: usize) -> bool {
        let shares = |other: usize| other != store && other % NOTED_STORES == store % NOTED_STORES;
        !(0..self.settings.stores.len()).any(shares)
            && self.run.store_notes(store).silent.load(Ordering::Relaxed) != 0
    }
}
