//! Pages that are never held: those to which the kernel writes as a thread ends. It writes a thread's number
//! away, for which pthread_join(3) waits, and the owner's death into robust mutexes, and of a thread that
//! ends no fault is served any more (`handle_userfault`, `PF_EXITING`): the write would be given up silently,
//! and somebody wait for ever.
//!
//! A table of atomics: it is written by the program's threads, where no lock may be taken. A page never
//! leaves it.

use std::sync::atomic::{AtomicUsize, Ordering};

use spillway_sys::page::PAGE_SIZE;

const MOST: usize = 4096;

static PAGES: [AtomicUsize; MOST] = [const { AtomicUsize::new(0) }; MOST];
/// Entries from here on were never in use.
static USED: AtomicUsize = AtomicUsize::new(0);
/// There was no room for one.
static IS_FULL: AtomicUsize = AtomicUsize::new(0);

/// Pages of these addresses are never held from now on. One that is held at this moment comes back when it is
/// accessed next, and stays: a thread's last steps, and the making of a mutex, are accesses.
///
/// No system call is made: the program may have forbidden itself any.
pub fn exclude(address: usize, bytes: usize) {
    let first = address / PAGE_SIZE;
    let last = address.saturating_add(bytes.max(1) - 1) / PAGE_SIZE;
    for page in first..=last {
        add(page * PAGE_SIZE);
    }
}

fn add(page: usize) {
    if page == 0 || is_excluded(page) {
        return;
    }
    for (at, entry) in PAGES.iter().enumerate() {
        if entry.load(Ordering::Relaxed) == 0
            && entry.compare_exchange(0, page, Ordering::SeqCst, Ordering::Relaxed).is_ok()
        {
            USED.fetch_max(at + 1, Ordering::SeqCst);
            return;
        }
    }
    IS_FULL.store(1, Ordering::SeqCst);
}

/// Whether a page must not be held. Once the table is full that is so for all.
#[must_use]
pub fn is_excluded(page: usize) -> bool {
    let used = USED.load(Ordering::SeqCst).min(MOST);
    IS_FULL.load(Ordering::SeqCst) != 0
        || PAGES[..used].iter().any(|entry| entry.load(Ordering::SeqCst) == page)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Addresses that nobody has.
    const AT: usize = 1 << 60;

    #[test]
    fn every_page_that_is_touched_by_a_range_is_excluded() {
        assert!(!is_excluded(AT));
        exclude(AT + PAGE_SIZE - 8, 16);
        assert!(is_excluded(AT) && is_excluded(AT + PAGE_SIZE) && !is_excluded(AT + 2 * PAGE_SIZE));
        exclude(AT + 5 * PAGE_SIZE, 0);
        assert!(is_excluded(AT + 5 * PAGE_SIZE), "the page of an address");
    }

    #[test]
    fn threads_exclude_side_by_side() {
        std::thread::scope(|scope| {
            for thread in 1..=4 {
                scope.spawn(move || {
                    for page in 0..64 {
                        let address = AT * 2 + (thread * 1000 + page) * PAGE_SIZE;
                        exclude(address, 8);
                        assert!(is_excluded(address));
                    }
                });
            }
        });
    }
}
