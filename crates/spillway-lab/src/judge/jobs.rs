//! Runs on several threads, and their times.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Work on several threads.
pub(crate) struct Jobs<'a> {
    pub threads: usize,
    /// Told each time that one has ended.
    pub ended: &'a (dyn Fn() + Sync),
}

impl Jobs<'_> {
    /// Does all of it; results are in the order of the jobs.
    pub(crate) fn all<T: Sync, R: Send>(&self, jobs: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
        let next = AtomicUsize::new(0);
        let results = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for _ in 0..self.threads.clamp(1, jobs.len().max(1)) {
                scope.spawn(|| {
                    loop {
                        let at = next.fetch_add(1, Ordering::Relaxed);
                        let Some(job) = jobs.get(at) else { return };
                        let result = work(job);
                        (self.ended)();
                        results.lock().unwrap_or_else(PoisonError::into_inner).push((at, result));
                    }
                });
            }
        });
        let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
        results.sort_by_key(|(at, _)| *at);
        results.into_iter().map(|(_, result)| result).collect()
    }
}

pub(crate) fn geometric_mean(values: impl IntoIterator<Item = f64>) -> f64 {
    let (mut sum, mut count) = (0.0, 0.0);
    for value in values {
        sum += value.ln();
        count += 1.0;
    }
    if count > 0.0 { f64::exp(sum / count) } else { f64::NAN }
}
