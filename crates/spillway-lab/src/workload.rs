//! What a workload is: a real algorithm, in tasks that go on step by step and say which memory each step
//! touches.

use crate::access::Accesses;

/// A named piece of a workload's address space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// What lies there, for reports.
    pub name: &'static str,
    /// Where it starts; a multiple of 2 MiB.
    pub start: u64,
    /// How long it is.
    pub bytes: u64,
}

/// A real algorithm over instrumented memory. Deterministic: its parameters and seed say every access.
pub trait Workload: Send {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// The memory that it uses, all of it, from the start.
    fn regions(&self) -> &[Region];

    /// How much of its regions it uses, in bytes, where that is not all of them: shares of local memory are
    /// shares of this.
    fn working_set_bytes(&self) -> Option<u64> {
        None
    }

    /// How many tasks (threads) it runs; they may be stepped in any order, each until it is done.
    fn tasks(&self) -> usize {
        1
    }

    /// Whether it is still loading: touching its memory for the first time, which the papers leave out of
    /// their times.
    fn loading(&self) -> bool {
        false
    }

    /// How much of its work is left, in a unit of its own; none where it cannot tell.
    fn work_left(&self) -> Option<u64> {
        None
    }

    /// Goes on with one task by one step - a vertex, a request, a row: at most a few thousand accesses - and
    /// appends what it touches. False when the task is done; a task that must wait for others returns true
    /// and appends waiting time.
    fn step(&mut self, task: usize, accesses: &mut Accesses) -> bool;

    /// After all tasks are done: whether the algorithm's own result is right.
    ///
    /// # Errors
    /// What is wrong with it.
    fn verify(&self) -> Result<(), String>;
}
