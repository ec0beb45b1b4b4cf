//! Who looks after a run's NBD stores while nobody needs them: asks each for a page once a second, so that
//! one that is dead or cut off is told of before a fault finds out, and keeps the run's claims on exports
//! that others may open.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use spillway_core::page::PAGE_SIZE;
use spillway_store::claim::{Claimant, keep};
use spillway_store::{Lane, Notice, NoticeKind, ReadRequest, StoreError, Tell};

const PERIOD: Duration = Duration::from_secs(1);
/// How long [`StoreWatch::pause`] waits for a look that is under way.
const MOST_PAUSE: Duration = Duration::from_secs(2);

/// A store that is looked after.
pub(crate) struct Watched {
    pub(crate) uri: String,
    pub(crate) lane: Box<dyn Lane>,
    /// The claim on it: its slot, and whose it is.
    pub(crate) claim: Option<(u32, Claimant)>,
}

/// The threads that do it.
#[derive(Default)]
pub(crate) struct StoreWatch {
    is_over: Arc<AtomicBool>,
    /// Locked by a thread that is at work.
    at_work: Vec<Arc<Mutex<()>>>,
}

impl StoreWatch {
    /// Looks after these stores, with a thread for each, and tells what happens.
    pub(crate) fn start(stores: Vec<Watched>, tell: Tell) -> Self {
        let mut watch = Self::default();
        for store in stores {
            let (is_over, at_work) = (Arc::clone(&watch.is_over), Arc::<Mutex<()>>::default());
            watch.at_work.push(Arc::clone(&at_work));
            let body = move || look_after(store, &is_over, &at_work, tell);
            // Without it the store is as good, and its end is told when it is needed.
            let _ = std::thread::Builder::new().name("store watch".to_owned()).spawn(body);
        }
        watch
    }

    /// Has no look begin any more, and waits a little for those under way.
    pub(crate) fn pause(&self) {
        self.is_over.store(true, Ordering::Release);
        let until = Instant::now() + MOST_PAUSE;
        for at_work in &self.at_work {
            while at_work.try_lock().is_err() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

impl Drop for StoreWatch {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
    }
}

fn look_after(mut store: Watched, is_over: &AtomicBool, at_work: &Mutex<()>, tell: Tell) {
    let mut told = false;
    loop {
        std::thread::sleep(PERIOD);
        let Ok(_at_work) = at_work.lock() else { return };
        if is_over.load(Ordering::Acquire) {
            return;
        }
        match look(&mut store) {
            Ok(None) => {}
            Ok(Some(Claimant { host, pid, .. })) if !told => {
                told = true;
                let text = format!(
                    "store {}: another run has taken the export (process {pid} on {host}), and both lose \
                     pages that the other overwrites: end one of them",
                    store.uri
                );
                tell(&Notice::new(NoticeKind::StoreTaken, &text).about(&store.uri));
            }
            Err(error @ StoreError::Gone { .. }) => {
                let reason = error.to_string();
                let text = format!("{reason}; what it held is lost");
                return tell(&Notice::new(NoticeKind::StoreGone, &text).because(&reason));
            }
            // One answer is as good as another, as far as being there goes.
            Ok(Some(_)) | Err(_) => {}
        }
    }
}

fn look(store: &mut Watched) -> Result<Option<Claimant>, StoreError> {
    if let Some((slot, own)) = &store.claim {
        return keep(&mut *store.lane, *slot, own);
    }
    let mut page = [0; PAGE_SIZE];
    let mut batch = [ReadRequest { slot: 0, page: &mut page, outcome: Ok(()) }];
    store.lane.read(&mut batch);
    let [ReadRequest { outcome, .. }] = batch;
    outcome.map(|()| None)
}
