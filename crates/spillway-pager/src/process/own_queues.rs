//! What each pager thread has of its own of dcm's queues ([`spillway_policy::thread_queues`]).
//!
//! It lies here, not with the threads: a thread's end loses nothing, a forked child finds its parent's with
//! the rest, and whoever runs short can look into all of it. A place that serves faults in inline mode counts
//! as a thread, whichever thread of the program is there.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use rustix::io::{Errno, Result};
use spillway_core::fifo::Entry;
use spillway_core::page_word::Queue;
use spillway_policy::dcm::Config;
use spillway_policy::thread_queues::ThreadQueues;

use crate::kernel::Kernel;

/// A fault trace numbers no more.
const MOST_THREADS: usize = 1024;

/// What the threads of a process have of their own.
///
/// Locks: one thread's at a time, held for a few instructions; who needs that of the shared queues too has
/// that first.
pub(crate) struct OwnQueues {
    threads: Vec<Mutex<ThreadQueues>>,
    next: AtomicUsize,
    /// Pages that come in wait in buffers.
    pub(crate) has_buffers: bool,
    /// What is unmapped lies in sub-queues.
    pub(crate) has_inactive: bool,
}

impl OwnQueues {
    /// For `threads` threads, if they are to have anything. Where there are more, some share.
    pub(crate) fn new(config: &Config, local_pages: usize, seed: u64, threads: usize) -> Self {
        let (has_buffers, has_inactive) = (config.thread_buffer_pages > 0, config.thread_inactive);
        let count = if has_buffers || has_inactive { threads.clamp(1, MOST_THREADS) } else { 0 };
        let own = |place| Mutex::new(ThreadQueues::new(config, local_pages, seed, place));
        Self { threads: (0..count).map(own).collect(), next: AtomicUsize::new(0), has_buffers, has_inactive }
    }

    /// A copy, as fork(2) leaves it.
    ///
    /// # Errors
    /// EBUSY where a lock is held.
    pub(crate) fn for_child(&self) -> Result<Self> {
        let copy =
            |own: &Mutex<ThreadQueues>| Ok(Mutex::new(own.try_lock().map_err(|_| Errno::BUSY)?.clone()));
        let threads = self.threads.iter().map(copy).collect::<Result<_>>()?;
        Ok(Self { threads, next: AtomicUsize::new(0), ..*self })
    }

    /// The number of a new thread.
    pub(crate) fn take_place(&self) -> u16 {
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        next.checked_rem(self.threads.len()).unwrap_or_default() as u16
    }

    /// How many threads have something of their own.
    pub(crate) fn count(&self) -> u16 {
        self.threads.len() as u16
    }

    /// What one of [`Self::count`] threads has.
    pub(crate) fn lock<K: Kernel>(&self, place: u16) -> MutexGuard<'_, ThreadQueues> {
        K::lock(&self.threads[usize::from(place)])
    }

    /// For a mistake that is planted: drops what buffers hold.
    pub(crate) fn forget<K: Kernel>(&self) {
        (0..self.count()).for_each(|place| self.lock::<K>(place).forget_buffered());
    }

    /// All entries in buffers and sub-queues, if nobody has any at this moment.
    pub(crate) fn entries_now(&self) -> Option<Vec<(Queue, Entry)>> {
        let mut entries = Vec::new();
        for own in &self.threads {
            let mut own = own.try_lock().ok()?;
            entries.extend(own.iter_buffered());
            own.drop_stale(|entry| {
                entries.push((Queue::Inactive, entry));
                true
            });
        }
        Some(entries)
    }
}
