//! Gives back what ended processes held, on a thread of its own. Stores are told to drop what nobody needs
//! any more, and a server may be silent for long, or have no connection left: meanwhile the supervisor goes
//! on to serve the processes that live. What it does for them may be just what the server waits for.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use rustix::io::Errno;
use spillway_store::{Lane, Store};

use crate::run::state::{Child, RunState};

/// What the thread works with: a view of the run, and the stores with their slots among the run's.
pub(crate) struct Means {
    pub(crate) run: RunState,
    pub(crate) stores: Vec<(Range<u32>, Arc<dyn Store>)>,
}

/// What both sides look at.
#[derive(Default)]
struct Shared {
    /// What is given back now or next.
    under_way: Mutex<Vec<Child>>,
    /// Nobody needs the stores' memory any more.
    spares_stores: AtomicBool,
}

impl Shared {
    fn under_way(&self) -> MutexGuard<'_, Vec<Child>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Works until there is nobody left who could ask for more.
    fn work(&self, Means { run, stores }: &Means, ended: &Receiver<Child>) {
        let mut lanes: Vec<Option<Box<dyn Lane>>> = stores.iter().map(|_| None).collect();
        for process in ended {
            run.reap(process.entry, |slots| {
                for ((range, store), lane) in stores.iter().zip(&mut lanes) {
                    let own = slots.iter().filter(|slot| range.contains(slot));
                    self.discard(&**store, lane, own.map(|slot| slot - range.start).collect());
                }
            });
            self.under_way().retain(|other| *other != process);
        }
    }

    /// Has a store drop these slots. Where it cannot be had, they can be used again all the same.
    fn discard(&self, store: &dyn Store, lane: &mut Option<Box<dyn Lane>>, slots: Vec<u32>) {
        if slots.is_empty() || self.spares_stores.load(Ordering::Relaxed) {
            return;
        }
        if lane.is_none() {
            *lane = store.open_lane().ok();
        }
        if let Some(lane) = lane {
            lane.discard(&slots);
        }
    }
}

/// The thread, once there was something to give back.
#[derive(Default)]
pub(crate) struct Reaper {
    shared: Arc<Shared>,
    thread: Option<(Sender<Child>, JoinHandle<()>)>,
}

impl Reaper {
    /// Gives back what a process held, by its entry and its claim. `means` is called where there is no thread
    /// yet.
    ///
    /// # Errors
    /// What `means` could not get: then nothing is given back.
    pub(crate) fn give_back(
        &mut self,
        process: Child,
        means: impl FnOnce() -> Result<Means, Errno>,
    ) -> Result<(), Errno> {
        if self.has(process) {
            return Ok(());
        }
        self.shared.under_way().push(process);
        if self.thread.is_none() {
            let (sender, receiver) = channel();
            let (shared, means) = (Arc::clone(&self.shared), means()?);
            let named = std::thread::Builder::new().name("reaper".into());
            let thread = named.spawn(move || shared.work(&means, &receiver)).map_err(|_| Errno::AGAIN)?;
            self.thread = Some((sender, thread));
        }
        if let Some((sender, _)) = &self.thread {
            let _ = sender.send(process);
        }
        Ok(())
    }

    /// What this process held is being given back.
    pub(crate) fn has(&self, process: Child) -> bool {
        self.shared.under_way().contains(&process)
    }

    /// The run is about to end, and its memory in the stores goes as a whole: what is given back from now on
    /// is not dropped there.
    pub(crate) fn spare_stores(&self) {
        self.shared.spares_stores.store(true, Ordering::Relaxed);
    }

    /// Waits until all is given back. The next one begins anew.
    pub(crate) fn finish(&mut self) {
        if let Some((sender, thread)) = self.thread.take() {
            drop(sender);
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;
    use spillway_store::{LatencyClass, ReadRequest, StoreError, WriteRequest};

    /// Drops slots once both sides are there.
    #[derive(Clone)]
    struct Slow {
        dropped: Arc<Mutex<Vec<u32>>>,
        meets: Arc<Barrier>,
    }

    impl Store for Slow {
        fn latency_class(&self) -> LatencyClass {
            LatencyClass::Remote
        }

        fn uri(&self) -> &str {
            "nbd://slow/"
        }

        fn capacity_slots(&self) -> u32 {
            1500
        }

        fn open_lane(&self) -> Result<Box<dyn Lane>, StoreError> {
            Ok(Box::new(self.clone()))
        }
    }

    impl Lane for Slow {
        fn write(&mut self, _: &mut [WriteRequest<'_>]) {}

        fn read(&mut self, _: &mut [ReadRequest<'_>]) {}

        fn discard(&mut self, slots: &[u32]) {
            self.meets.wait();
            self.dropped.lock().unwrap().extend_from_slice(slots);
        }
    }

    #[test]
    fn who_waits_for_a_store_keeps_nobody_and_all_is_given_back() {
        let (fd, run) = RunState::create(1000, 2000).unwrap();
        let (dropped, meets) = (Arc::default(), Arc::new(Barrier::new(2)));
        let means = || {
            let slow = Slow { dropped: Arc::clone(&dropped), meets: Arc::clone(&meets) };
            let stores: Vec<(Range<u32>, Arc<dyn Store>)> = vec![(500..2000, Arc::new(slow))];
            Ok(Means { run: RunState::map(&fd).unwrap(), stores })
        };
        let mut reaper = Reaper::default();
        let parent = run.claim_process(1).unwrap();
        let ended: Vec<Child> = (0..3).map(|_| run.claim_child(parent).unwrap()).collect();
        let slots = run.slots();
        let take = |process: &Child| slots.take(run.held(process.entry), 500..2000, 700).unwrap();
        let held: Vec<u32> = ended.iter().map(take).collect();
        for &process in &ended {
            reaper.give_back(process, means).unwrap();
            reaper.give_back(process, means).unwrap();
        }
        assert!(ended.iter().all(|&process| reaper.has(process)));
        meets.wait();
        reaper.spare_stores();
        // The second may be at the store already.
        let waits = std::thread::spawn({
            let meets = Arc::clone(&meets);
            move || meets.wait()
        });
        reaper.finish();
        assert!(!ended.iter().any(|&process| reaper.has(process)));
        assert_eq!((slots.used(0..2000), run.processes().collect::<Vec<_>>()), (0, vec![parent]));
        assert_eq!(dropped.lock().unwrap()[0], held[0] - 500);
        if !waits.is_finished() {
            meets.wait();
        }
        waits.join().unwrap();
    }
}
