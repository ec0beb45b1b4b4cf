//! The tasks of a world - threads of programs, of the pager and of the machine - and who of them runs next.

use crate::config::Strategy;
use crate::draws::Draws;

/// Choices between two looks for tasks that starve, and after how many choices they do.
const LOOK_EVERY: u64 = 256;
const STARVED_CHOICES: u64 = 20_000;

/// A task, by its place in [`Tasks`].
pub type TaskId = usize;

/// What a task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Nothing: it runs when its turn comes.
    Nothing,
    /// Only for time to pass.
    Sleep,
    /// A page of its process, or a doorbell.
    Page {
        /// The address that was touched.
        address: usize,
    },
    /// A message of a fault in its process.
    Message,
    /// A futex, by the address of its word.
    Futex(usize),
    /// A process that is about to be ready.
    Process(usize),
    /// Its end: it will never run again.
    Forever,
}

/// One thread of the simulated machine.
#[derive(Debug)]
pub struct Task {
    /// Its name, for the trace.
    pub name: String,
    /// Whose it is; `None` for the machine's own.
    pub process: Option<usize>,
    /// What it waits for.
    pub wait: Wait,
    /// When it stops waiting in any case.
    pub until_ns: Option<u64>,
    /// It has returned, or its process was killed.
    pub is_over: bool,
    /// Its wait ended before its time.
    pub was_woken: bool,
    /// Turns that it has had since it last waited for anything, were it only for time to pass.
    pub turns: u64,
    priority: u64,
    /// Choices made when it last ran, or became able to.
    waits_since: u64,
}

/// All tasks, and whose turn it is.
#[derive(Debug)]
pub struct Tasks {
    list: Vec<Task>,
    runnable: Vec<TaskId>,
    current: Option<TaskId>,
    strategy: Strategy,
    lowest_priority: u64,
    next_timeout_ns: u64,
    choices: u64,
}

impl Tasks {
    /// No tasks so far, to be scheduled by a strategy.
    #[must_use]
    pub fn new(strategy: Strategy) -> Self {
        Self {
            list: Vec::new(),
            runnable: Vec::new(),
            current: None,
            strategy,
            lowest_priority: 1 << 32,
            next_timeout_ns: u64::MAX,
            choices: 0,
        }
    }

    /// Adds a task that can run at once.
    pub fn add(&mut self, name: String, process: Option<usize>, draws: &mut Draws) -> TaskId {
        let id = self.list.len();
        let priority = (1 << 33) + draws.below(1 << 20);
        let (wait, until_ns) = (Wait::Nothing, None);
        self.list.push(Task {
            name,
            process,
            wait,
            until_ns,
            is_over: false,
            was_woken: false,
            turns: 0,
            priority,
            waits_since: self.choices,
        });
        self.runnable.push(id);
        id
    }

    /// The task of that number.
    #[must_use]
    pub fn get(&self, id: TaskId) -> &Task {
        &self.list[id]
    }

    /// Counts a turn of a task. Returns how many it has had without a wait.
    pub fn count_turn(&mut self, id: TaskId) -> u64 {
        self.list[id].turns += 1;
        self.list[id].turns
    }

    /// All tasks, by their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (TaskId, &Task)> {
        self.list.iter().enumerate()
    }

    /// The task that runs now.
    #[must_use]
    pub fn current(&self) -> Option<TaskId> {
        self.current
    }

    /// Has a task wait.
    pub fn set_waiting(&mut self, id: TaskId, wait: Wait, until_ns: Option<u64>) {
        let task = &mut self.list[id];
        task.turns = 0;
        (task.wait, task.until_ns, task.was_woken) = (wait, until_ns, false);
        self.next_timeout_ns = self.next_timeout_ns.min(until_ns.unwrap_or(u64::MAX));
        self.runnable.retain(|&other| other != id);
    }

    /// Ends a task's wait.
    pub fn wake(&mut self, id: TaskId) {
        let task = &mut self.list[id];
        if task.is_over || matches!(task.wait, Wait::Nothing | Wait::Forever) {
            return;
        }
        (task.wait, task.until_ns, task.was_woken) = (Wait::Nothing, None, true);
        task.waits_since = self.choices;
        self.runnable.push(id);
    }

    /// Ends the wait of all tasks that wait for what `what` says.
    pub fn wake_where(&mut self, what: impl Fn(&Task) -> bool) -> usize {
        let waiting: Vec<TaskId> = self.iter().filter(|(_, task)| what(task)).map(|(id, _)| id).collect();
        waiting.iter().for_each(|&id| self.wake(id));
        waiting.len()
    }

    /// A task never runs again.
    pub fn end(&mut self, id: TaskId) {
        self.list[id].is_over = true;
        self.list[id].wait = Wait::Forever;
        self.list[id].until_ns = None;
        self.runnable.retain(|&other| other != id);
    }

    /// Ends all tasks of a process.
    pub fn end_process(&mut self, process: usize) {
        for id in 0..self.list.len() {
            if self.list[id].process == Some(process) {
                self.end(id);
            }
        }
    }

    /// Who runs next. Wakes those whose time has come, and lets time pass where everybody waits; `None` where
    /// nobody will ever run again.
    pub fn choose(&mut self, clock_ns: &mut u64, draws: &mut Draws) -> Option<TaskId> {
        if self.runnable.is_empty() && self.next_timeout_ns != u64::MAX {
            self.find_next_timeout();
            if self.next_timeout_ns == u64::MAX {
                return None;
            }
            *clock_ns = (*clock_ns).max(self.next_timeout_ns);
        }
        if *clock_ns >= self.next_timeout_ns {
            self.end_timeouts(*clock_ns);
            if self.runnable.is_empty() {
                // The earliest of them is over by now.
                return self.choose(clock_ns, draws);
            }
        }
        self.choices += 1;
        let current = self.current.filter(|id| self.runnable.contains(id));
        let next = match (self.strategy, current) {
            _ if self.runnable.is_empty() => return None,
            (Strategy::Uniform { switch_one_in }, Some(current)) if !draws.one_in(switch_one_in) => current,
            (Strategy::Uniform { .. }, _) => self.runnable[draws.index(self.runnable.len())],
            (Strategy::Priorities { change_one_in }, current) => {
                if let Some(current) = current.filter(|_| draws.one_in(change_one_in)) {
                    self.lowest_priority -= 1;
                    self.list[current].priority = self.lowest_priority;
                }
                self.highest()
            }
        };
        self.list[next].waits_since = self.choices;
        self.current = Some(next);
        Some(next)
    }

    /// The runnable task of the highest priority; now and then one that has waited for long, which no kernel
    /// leaves for ever.
    fn highest(&mut self) -> TaskId {
        if self.choices.is_multiple_of(LOOK_EVERY) {
            let oldest = self.runnable.iter().copied().min_by_key(|&id| self.list[id].waits_since);
            let starved = oldest.filter(|&id| self.choices - self.list[id].waits_since > STARVED_CHOICES);
            if let Some(starved) = starved {
                return starved;
            }
        }
        let first = self.runnable[0];
        self.runnable.iter().fold(first, |best, &id| {
            if self.list[id].priority > self.list[best].priority { id } else { best }
        })
    }

    fn find_next_timeout(&mut self) {
        self.next_timeout_ns = self.list.iter().filter_map(|task| task.until_ns).min().unwrap_or(u64::MAX);
    }

    fn end_timeouts(&mut self, clock_ns: u64) {
        for id in 0..self.list.len() {
            if self.list[id].until_ns.is_some_and(|until| until <= clock_ns) {
                self.wake(id);
                self.list[id].was_woken = false;
            }
        }
        self.find_next_timeout();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three(strategy: Strategy) -> (Tasks, Draws) {
        let (mut tasks, mut draws) = (Tasks::new(strategy), Draws::new(1));
        for name in ["a", "b", "c"] {
            tasks.add(name.to_owned(), Some(0), &mut draws);
        }
        (tasks, draws)
    }

    #[test]
    fn time_passes_where_everybody_waits() {
        let (mut tasks, mut draws) = three(Strategy::Uniform { switch_one_in: 1 });
        let mut clock_ns = 10;
        for (id, until) in [(0, Some(500)), (1, None), (2, Some(300))] {
            tasks.set_waiting(id, Wait::Sleep, until);
        }
        assert_eq!((tasks.choose(&mut clock_ns, &mut draws), clock_ns), (Some(2), 300));
        assert!(!tasks.get(2).was_woken);
        tasks.end(2);
        tasks.wake(1);
        assert_eq!((tasks.choose(&mut clock_ns, &mut draws), clock_ns), (Some(1), 300));
        assert!(tasks.get(1).was_woken);
        tasks.end(1);
        assert_eq!((tasks.choose(&mut clock_ns, &mut draws), clock_ns), (Some(0), 500));
        tasks.end(0);
        assert_eq!(tasks.choose(&mut clock_ns, &mut draws), None);
    }

    #[test]
    fn every_task_has_its_turn() {
        for strategy in [Strategy::Uniform { switch_one_in: 3 }, Strategy::Priorities { change_one_in: 5 }] {
            let (mut tasks, mut draws) = three(strategy);
            let mut turns = [0; 3];
            for _ in 0..600 {
                turns[tasks.choose(&mut 0, &mut draws).unwrap()] += 1;
            }
            assert!(turns.iter().all(|&count| count > 60), "{strategy:?}: {turns:?}");
        }
    }

    #[test]
    fn the_tasks_of_a_process_end_together() {
        let (mut tasks, mut draws) = three(Strategy::Uniform { switch_one_in: 1 });
        let other = tasks.add("d".to_owned(), Some(1), &mut draws);
        tasks.end_process(0);
        tasks.wake(0);
        assert!((0..20).all(|_| tasks.choose(&mut 0, &mut draws) == Some(other)));
    }
}
