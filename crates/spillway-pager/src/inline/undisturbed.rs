//! Inline mode's two signals are never blocked, so anybody could send one while its thread is at the pager's
//! work: a handler of the program's might then want a lock that the thread holds, or write to a page that is
//! leaving. Such a signal waits until the work is done.
//!
//! Threads are told apart by their control blocks. Thread-local storage would be found by way of memory that
//! may be far.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use spillway_sys::raw_thread::control_block;
use spillway_sys::signal;

const PLACES: usize = 1024;
const FREE: usize = 0;
const LEAVING: usize = 1;

struct Place {
    /// The control block of a thread at work.
    thread: AtomicUsize,
    /// Signals sent to it meanwhile, a bit each. Only that thread's own handlers set them.
    deferred: AtomicU64,
}

static AT_WORK: [Place; PLACES] =
    [const { Place { thread: AtomicUsize::new(FREE), deferred: AtomicU64::new(0) } }; PLACES];

/// Places in the order in which a thread's is looked for.
fn places(thread: usize) -> impl Iterator<Item = &'static Place> {
    const TRIES: usize = 16;
    let first = thread.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (usize::BITS - PLACES.ilog2());
    (0..TRIES).map(move |offset| &AT_WORK[(first + offset) % PLACES])
}

/// No thread is at work: in a forked child those of its parent are gone.
pub(crate) fn reset() {
    for place in &AT_WORK {
        place.thread.store(FREE, Ordering::Relaxed);
        place.deferred.store(0, Ordering::Relaxed);
    }
}

/// Has a signal wait that was sent while its thread is at work. False where there is nothing to wait for.
#[must_use]
pub fn defer_signal(number: i32) -> bool {
    let thread = control_block();
    let place = places(thread).find(|place| place.thread.load(Ordering::Relaxed) == thread);
    if let Some(place) = place {
        place.deferred.fetch_or(signal::bit(number), Ordering::Relaxed);
    }
    place.is_some()
}

/// Does the pager's work, and lets the signals come afterwards that were sent meanwhile. Work within work is
/// the same work.
pub fn undisturbed<T>(work: impl FnOnce() -> T) -> T {
    let thread = control_block();
    let mut mine = None;
    for place in places(thread) {
        if place.thread.load(Ordering::Relaxed) == thread {
            return work();
        }
        let claimed = place.thread.compare_exchange(FREE, thread, Ordering::SeqCst, Ordering::Relaxed);
        if claimed.is_ok() {
            mine = Some(place);
            break;
        }
    }
    let result = work();
    if let Some(place) = mine {
        // From here on signals come at once; what was deferred is taken before another thread has the place.
        place.thread.store(LEAVING, Ordering::SeqCst);
        let deferred = place.deferred.swap(0, Ordering::SeqCst);
        place.thread.store(FREE, Ordering::SeqCst);
        (1..=64).filter(|&number| deferred & signal::bit(number) != 0).for_each(signal::raise);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_wait_for_the_end_of_the_work_of_their_own_thread() {
        let urgent = 23;
        assert!(!defer_signal(urgent));
        undisturbed(|| {
            undisturbed(|| assert!(defer_signal(urgent)));
            assert!(defer_signal(urgent), "the inner work's end is not the end");
            std::thread::scope(|scope| {
                let other = scope.spawn(|| defer_signal(urgent));
                assert!(!other.join().unwrap());
            });
        });
        assert!(!defer_signal(urgent));
    }
}
