//! Workers that make anew what was lost, several at the same time: while one waits for a donor to give,
//! another waits for one to take. Together they keep to one pace.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use spillway_pool::pace::{MOST_WORKERS, Pace};

use super::site::Site;

/// Workers at the same time: enough that a donor's answer is never what all wait for, few enough that donors
/// serve others between two of their requests.
const WORKERS: usize = 4;
const _: () = assert!(WORKERS <= MOST_WORKERS);

/// Workers, and what they share.
pub(super) struct Crew<W> {
    site: Arc<Site>,
    workers: Vec<W>,
    pace: Mutex<Pace>,
    /// The clock of the pace.
    since: Instant,
}

/// One worker's place among the others.
#[derive(Clone, Copy)]
pub(super) struct Turn<'a> {
    pub(super) site: &'a Site,
    number: usize,
    pace: &'a Mutex<Pace>,
    since: Instant,
}

impl<W: Send> Crew<W> {
    pub(super) fn new(site: &Arc<Site>, worker: impl Fn(usize) -> W) -> Self {
        Self {
            site: Arc::clone(site),
            workers: (0..WORKERS).map(worker).collect(),
            pace: Mutex::new(Pace::new(site.shared.spec.rebuild.bytes())),
            since: Instant::now(),
        }
    }

    /// Has so many workers at most do this beside each other, and returns when all are done.
    pub(super) fn work(&mut self, most: usize, work: impl Fn(&mut W, Turn<'_>) + Sync) {
        let Self { site, workers, pace, since } = self;
        let (site, pace, since, work) = (&**site, &*pace, *since, &work);
        let turn = |number| Turn { site, number, pace, since };
        let Some((first, others)) = workers.split_first_mut() else { return };
        std::thread::scope(|scope| {
            for (number, other) in (1..).zip(others.iter_mut().take(most.saturating_sub(1))) {
                let builder = std::thread::Builder::new().name("pool copy".to_owned());
                // Where no thread can be had, there are fewer workers.
                let _ = builder.spawn_scoped(scope, move || work(other, turn(number)));
            }
            work(first, turn(0));
        });
    }
}

impl Turn<'_> {
    fn now_us(&self) -> u64 {
        self.since.elapsed().as_micros() as u64
    }

    fn with_pace<R>(&self, ask: impl FnOnce(&mut Pace, u64, u64) -> R) -> R {
        let reads = self.site.shared.table().reads();
        let mut pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
        ask(&mut pace, self.now_us(), reads)
    }

    /// Whether the worker may begin something else: what it does not begin the first one does.
    pub(super) fn may_begin(&self) -> bool {
        self.with_pace(|pace, now_us, reads| pace.may_begin(self.number, now_us, reads))
    }

    /// Whether somebody waits for pages, and is to find donors at hand between two chunks.
    pub(super) fn makes_way(&self) -> bool {
        self.with_pace(Pace::makes_way)
    }

    /// Rests for as long as others come first. False where all is over.
    pub(super) fn rest(&self) -> bool {
        self.rest_unless(|| false)
    }

    /// The same, but no longer once it is not to.
    pub(super) fn rest_unless(&self, is_no_time: impl Fn() -> bool) -> bool {
        while !self.site.is_over() {
            if is_no_time() {
                return true;
            }
            match self.with_pace(|pace, now_us, reads| pace.rest_us(self.number, now_us, reads)) {
                0 => return true,
                rest_us => crate::nbd::sleep(Duration::from_micros(rest_us)),
            }
        }
        false
    }

    /// Notes that it has copied so many bytes, which took so long.
    pub(super) fn note_copied(&self, bytes: u64, took: Duration) {
        self.with_pace(|pace, now_us, _| pace.copied(self.number, bytes, took.as_micros() as u64, now_us));
    }
}
