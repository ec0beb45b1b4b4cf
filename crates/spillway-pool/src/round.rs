//! What one look over the table has found to be made anew, handed out to several workers. Each task goes to
//! one worker, so no two ever rebuild one extent, or empty one slab: a rebuild takes it for granted that it
//! is the only one ([`crate::rebuild`]), and of two who move the same pages one would move them in vain. What
//! a worker could not do, since a donor died under it, is found again by the next look, which comes when all
//! workers are done.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::table::Table;

/// The work of one look.
#[derive(Debug)]
pub struct Round<T> {
    tasks: Vec<T>,
    next: AtomicUsize,
}

impl<T> Default for Round<T> {
    fn default() -> Self {
        Self { tasks: Vec::new(), next: AtomicUsize::new(0) }
    }
}

impl<T: Copy> Round<T> {
    /// At most so many of these tasks, which are of different extents or slabs, the most endangered first.
    #[must_use]
    pub fn new(mut tasks: Vec<T>, most: usize) -> Self {
        tasks.truncate(most);
        Self { tasks, next: AtomicUsize::new(0) }
    }

    /// How many tasks it began with.
    #[must_use]
    pub fn tasks(&self) -> usize {
        self.tasks.len()
    }

    /// Tasks that nobody has taken yet.
    #[must_use]
    pub fn left(&self) -> usize {
        self.tasks.len().saturating_sub(self.next.load(Ordering::Relaxed))
    }

    /// The next task, for the caller alone; `None` once all are taken.
    pub fn take(&self, table: &Table<'_>) -> Option<T> {
        let at = self.next.fetch_add(1, Ordering::Relaxed);
        let at = if table.planted("made-by-two") { at / 2 } else { at };
        self.tasks.get(at).copied()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;
    use crate::new_donor::NewDonor;
    use crate::survey::Task;
    use crate::table::{Terms, words_of};

    #[test]
    fn each_task_goes_to_one_worker() {
        let donors = [NewDonor { capacity: 1, domain: 0, text: String::new() }];
        let terms = Terms { extents: 1, wanted: 1, least: 1, joining: 0, coding: None };
        let words: Vec<AtomicU64> = (0..words_of(&donors, terms)).map(|_| AtomicU64::new(0)).collect();
        let table = Table::create(&words, &donors, terms);
        let tasks: Vec<Task> = (0..1_000).map(|extent| Task { extent, copies_left: 1 }).collect();
        let round = Round::new(tasks.clone(), 900);
        let mut taken: Vec<u32> = std::thread::scope(|scope| {
            let work = || std::iter::from_fn(|| round.take(&table)).map(|task| task.extent).collect();
            let workers: Vec<_> = (0..3).map(|_| scope.spawn(work)).collect();
            workers.into_iter().flat_map(|worker| -> Vec<u32> { worker.join().unwrap() }).collect()
        });
        taken.sort_unstable();
        assert_eq!(taken, (0..900).collect::<Vec<_>>());
        assert_eq!((round.tasks(), round.left(), round.take(&table)), (900, 0, None));
    }
}
