//! What is told of a run's stores when it has ended.
//!
//! What a program had far is given back as it ends, so the sizes are those of when a store was seen to hold
//! most: the supervisor looks about once a second.

use std::time::{Duration, Instant};

use serde::Serialize;
use spillway_pager::run::report::Report;
use spillway_pager::run::views::RunView;
use spillway_snapshot::snapshot::Store;

use crate::watch::run_snapshot;

/// A look goes over all slots of far memory, and a run may begin thousands of processes a second.
const PAUSE: Duration = Duration::from_millis(100);

/// The statistics of a run that has ended: `--json` and `--stats`.
#[derive(Debug, Serialize)]
pub struct Statistics {
    /// Of all processes and stores together.
    #[serde(flatten)]
    pub report: Report,
    /// Of each store by itself.
    pub stores: Vec<Store>,
}

/// The stores of a run that goes on, as they were seen.
pub struct StoresSeen {
    view: RunView,
    seen: Vec<Store>,
    next: Instant,
}

impl StoresSeen {
    /// Begins to look at the stores of this run.
    pub fn new(view: RunView) -> Self {
        Self { view, seen: Vec::new(), next: Instant::now() }
    }

    /// Looks once more, unless it has just looked.
    pub fn look(&mut self) {
        if Instant::now() >= self.next {
            note(&mut self.seen, run_snapshot::stores(&self.view));
            self.next = Instant::now() + PAUSE;
        }
    }

    /// Each store as it was when it held most, with what was counted up to now.
    pub fn told(mut self) -> Vec<Store> {
        note(&mut self.seen, run_snapshot::stores(&self.view));
        self.seen
    }
}

/// Counts and health are those of now; sizes are, where there was never more.
fn note(seen: &mut Vec<Store>, now: Vec<Store>) {
    for store in now {
        match seen.iter_mut().find(|before| before.uri == store.uri) {
            Some(before) if before.used_bytes > store.used_bytes => {
                *before = Store {
                    used_bytes: before.used_bytes,
                    stored_bytes: before.stored_bytes,
                    compression_ratio: before.compression_ratio,
                    ..store
                };
            }
            Some(before) => *before = store,
            None => seen.push(store),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::metrics::tests::whole_snapshot;
    use spillway_snapshot::snapshot::{Body, Health};

    #[test]
    fn a_store_is_told_with_its_largest_sizes_and_its_last_counts() {
        let Body::Run { run } = whole_snapshot().body else { panic!("no run") };
        let [store] = &run.stores[..] else { panic!("{:?}", run.stores) };
        let at = |used_bytes: u64, stored_bytes: Option<u64>, fetched_pages: u64| Store {
            used_bytes,
            stored_bytes,
            compression_ratio: stored_bytes.map(|stored| used_bytes as f64 / stored as f64),
            fetched_pages,
            ..store.clone()
        };
        let mut seen = Vec::new();
        for look in [at(4096, Some(1024), 1), at(12288, Some(4096), 2), at(8192, Some(4096), 3)] {
            note(&mut seen, vec![look]);
        }
        let second = Store { uri: "file:/x?size=1G".to_owned(), ..at(0, None, 0) };
        note(&mut seen, vec![Store { health: Health::Ok, ..at(0, None, 7) }, second]);
        let [first, second] = &seen[..] else { panic!("{seen:?}") };
        assert_eq!(
            (first.used_bytes, first.stored_bytes, first.compression_ratio),
            (12288, Some(4096), Some(3.0))
        );
        assert_eq!((first.fetched_pages, first.health), (7, Health::Ok));
        assert_eq!((second.used_bytes, second.stored_bytes), (0, None));
    }
}
