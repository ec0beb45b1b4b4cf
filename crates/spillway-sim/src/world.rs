//! One world: its tasks, its clock, its machine, and the loop that runs them one step after the other on one
//! thread.
//!
//! Tasks are coroutines. Each call of the seam, each lock and each operation of a store is a [`turn`]: a
//! place where the draws may have another task go on. The clock is virtual: it goes on a little with each
//! turn, and jumps to the next timeout where everybody waits. Equal configurations give equal worlds.

use std::any::Any;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use generator::{Generator, Gn};
use spillway_core::seals::NONCE_BYTES;
use spillway_pager::run::state::RunState;

use crate::config::Config;
use crate::draws::Draws;
use crate::physical::{Physical, Referred};
use crate::process::{Message, Process};
use crate::store_model::StoreModel;
use crate::tasks::{TaskId, Tasks, Wait};
use crate::trace::Trace;

/// Words of a task's stack: 256 KiB of addresses, of which few are touched.
const STACK_WORDS: usize = 1 << 15;
/// A world that goes on for longer is left there: each of its operations has an end, but there are many.
const MOST_STEPS: u64 = 8_000_000;
/// No longer however late its operations are.
const MOST_LATE_STEPS: u64 = 24_000_000;
/// An operation that takes longer keeps its world from being cut short: it may be one that never ends.
const LATE_STEPS: u64 = 500_000;
/// A task that has so many turns without waiting for anything spins: what takes longest, the discard of some
/// thousand pages, has a few ten thousand.
const MOST_TURNS: u64 = 1_000_000;
/// A program's operation must be over after so much virtual time: longer than the pager waits for anything.
const OPERATION_NS: u64 = 400_000_000_000;
/// Times that a task may ask for a lock that another has: longer than any store takes, which are waited for
/// with locks.
pub const MOST_LOCK_TRIES: u32 = 3_000_000;
/// Turns between two looks at what must always hold.
const CHECK_EVERY: u64 = 512;

/// Programs map below this address, the pager's own memory lies above.
const OWN_MEMORY_SHIFT: u32 = 40;

/// What a task does.
pub type Body = Box<dyn FnOnce() + Send>;

/// What went wrong, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Turns that had passed.
    pub step: u64,
    /// The task that ran.
    pub task: String,
    /// What is wrong, in words.
    pub what: String,
}

/// What a world came to.
#[derive(Debug, Default)]
pub struct Outcome {
    /// `None` where all was well.
    pub failure: Option<Failure>,
    /// Turns that it took.
    pub steps: u64,
    /// All events as one number.
    pub digest: u64,
    /// What happened, if it was kept.
    pub trace: Vec<String>,
    /// How often what happened, for who wants to know whether a seed tries anything.
    pub counts: BTreeMap<&'static str, u64>,
}

/// All that there is.
pub struct World {
    /// What it was made from.
    pub config: Config,
    /// Where all chance comes from.
    pub draws: Draws,
    /// The virtual clock, in nanoseconds.
    pub clock_ns: u64,
    /// Turns that were taken so far.
    pub steps: u64,
    /// The threads of all processes, and the machine's own.
    pub tasks: Tasks,
    /// The frames of the machine's memory.
    pub physical: Physical,
    /// What processes refer to, by numbers that come once.
    pub references: BTreeMap<usize, Referred>,
    /// The next of these numbers.
    pub next_references: usize,
    /// Processes, also those that have ended.
    pub processes: Vec<Process>,
    /// Stores, as far as they are not processes' own.
    pub stores: Vec<StoreModel>,
    /// What the processes share.
    pub run: Option<&'static RunState>,
    /// Under which nonce which page was sealed, as a digest.
    pub nonces: BTreeMap<[u8; NONCE_BYTES], u64>,
    /// The supervisor was killed.
    pub supervisor_is_gone: bool,
    /// Devices and locks have kept pages local at some time.
    pub had_pins: bool,
    /// The last version that a program wrote.
    pub version: u32,
    /// What happened, event by event.
    pub trace: Trace,
    /// What went wrong first, if anything.
    pub failure: Option<Failure>,
    /// How often what happened.
    pub counts: BTreeMap<&'static str, u64>,
    /// Nobody runs any more.
    pub is_over: bool,
    next: Option<TaskId>,
    born: Vec<(TaskId, Body)>,
    messages_read: u64,
}

thread_local! {
    static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Works on this thread's world. Never across a turn.
pub fn with<T>(work: impl FnOnce(&mut World) -> T) -> T {
    WORLD.with_borrow_mut(|world| match world {
        Some(world) => work(world),
        None => panic!("this thread has no world"),
    })
}

fn may_switch() -> bool {
    generator::is_generator() && !std::thread::panicking()
}

/// A place where another task may go on.
pub fn turn() {
    if may_switch() && with(World::step) {
        switch();
    }
}

#[expect(deprecated, reason = "the pager's code between a task and its turns knows of no scope to hand down")]
fn switch() {
    generator::yield_with(());
}

/// Waits, at most so long. True where somebody ended the wait, false where its time did.
pub fn wait(wait: Wait, most: Option<Duration>) -> bool {
    if !may_switch() {
        return true;
    }
    let Some(me) = with(|world| world.begin_waiting(wait, most)) else { return true };
    if with(|world| world.choose() != Some(me)) {
        switch();
    }
    with(|world| world.tasks.get(me).was_woken)
}

/// Sleeps so long at least.
pub fn sleep(time: Duration) {
    let stretched = with(|world| world.stretched(time));
    wait(Wait::Sleep, Some(stretched));
}

/// Notes that something must not be. The world ends.
pub fn fail(what: impl FnOnce() -> String) {
    with(|world| world.fail(what()));
    turn();
}

/// The same of what must be, where it is not.
pub fn fail_unless(is_so: bool, what: &str) {
    if !is_so {
        fail(|| format!("this does not hold: {what}"));
    }
}

/// The process of the task that runs.
#[must_use]
pub fn current_process() -> Option<usize> {
    with(|world| world.current_process())
}

/// Keeps what a panic says, without printing it, while tasks run.
pub fn keep_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !generator::is_generator() {
            return before(panic);
        }
        PANIC.set(Some(panic.to_string()));
    }));
}

/// Runs a world to its end. `begin` spawns its first task.
pub fn run(config: Config, is_traced: bool, begin: impl FnOnce()) -> Outcome {
    let world = World::new(config, is_traced);
    WORLD.set(Some(world));
    begin();
    let mut running: BTreeMap<TaskId, Generator<'static, (), ()>> = BTreeMap::new();
    loop {
        for (id, body) in with(|world| std::mem::take(&mut world.born)) {
            running.insert(id, Gn::new_opt(STACK_WORDS, body));
        }
        let Some(id) = with(World::take_next) else { break };
        let Some(task) = running.get_mut(&id) else { break };
        let result = catch_unwind(AssertUnwindSafe(|| task.resume()));
        if let Err(panic) = result {
            with(|world| world.fail(panic_text(&*panic)));
        }
        if task.is_done() {
            running.remove(&id);
            with(|world| world.tasks.end(id));
        }
    }
    with(|world| world.is_over = true);
    // What is left unwinds from where it waits; nothing takes a turn any more.
    for (_, task) in running {
        let _ = catch_unwind(AssertUnwindSafe(|| drop(task)));
    }
    let world = WORLD.take();
    world.map_or_else(Outcome::default, World::outcome)
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    let kept = PANIC.take();
    format!("a panic: {}", kept.or(text).unwrap_or_else(|| "of an unknown kind".to_owned()))
}

impl World {
    fn new(config: Config, is_traced: bool) -> Self {
        let draws = Draws::new(config.seed ^ 0xA5A5);
        let tasks = Tasks::new(config.strategy);
        Self {
            draws,
            clock_ns: 1_000_000_000,
            steps: 0,
            tasks,
            physical: Physical::default(),
            processes: Vec::new(),
            stores: Vec::new(),
            run: None,
            nonces: BTreeMap::new(),
            supervisor_is_gone: false,
            references: BTreeMap::new(),
            next_references: 0,
            had_pins: false,
            version: 0,
            trace: Trace::new(is_traced),
            failure: None,
            counts: BTreeMap::new(),
            is_over: false,
            next: None,
            born: Vec::new(),
            messages_read: 0,
            config,
        }
    }

    fn outcome(self) -> Outcome {
        Outcome {
            failure: self.failure,
            steps: self.steps,
            digest: self.trace.digest(),
            trace: self.trace.into_lines(),
            counts: self.counts,
        }
    }

    /// A new task, which runs when its turn comes.
    pub fn spawn(&mut self, name: String, process: Option<usize>, body: Body) -> TaskId {
        let id = self.tasks.add(name, process, &mut self.draws);
        self.born.push((id, body));
        id
    }

    /// The process of the task that runs.
    #[must_use]
    pub fn current_process(&self) -> Option<usize> {
        self.tasks.current().and_then(|id| self.tasks.get(id).process)
    }

    /// Counts something that happened.
    pub fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// Counts of the pages that a scan finds those that the pager takes for pages of a stream.
    pub(crate) fn count_streamed(&mut self, process: usize, found: &[u64]) {
        let Some(pager) = self.processes[process].pager else { return };
        for &page in found {
            let is_streamed = pager.engine.table.use_of(page).passes_through();
            self.count(if is_streamed { "scanned pages of streams" } else { "scanned other pages" });
        }
    }

    /// Notes an event of the task that runs.
    ///
    /// Addresses of the pager's own memory, which differ from run to run, do not count.
    pub fn note(&mut self, code: u64, number: u64, line: impl FnOnce() -> String) {
        let task = self.tasks.current();
        let (step, clock_ns, tasks) = (self.steps, self.clock_ns, &self.tasks);
        let who = task.map_or(u64::MAX, |id| id as u64);
        let number = if number >> OWN_MEMORY_SHIFT == 0 { number } else { 0 };
        self.trace.note([who << 32 | code, number, step], || {
            let name = task.map_or("", |id| tasks.get(id).name.as_str());
            format!("{step:>8} {:>12.6} {name:<14} {}", clock_ns as f64 / 1e9, line())
        });
    }

    /// Something must not be.
    pub fn fail(&mut self, what: String) {
        if self.failure.is_some() {
            return;
        }
        let task = self.tasks.current().map_or(String::new(), |id| self.tasks.get(id).name.clone());
        self.note(1, 0, || format!("FAILURE {what}"));
        self.failure = Some(Failure { step: self.steps, task, what });
        self.is_over = true;
    }

    /// One turn. True where another task is to go on.
    fn step(&mut self) -> bool {
        let me = self.tasks.current();
        self.steps += 1;
        // A call of the kernel's takes about a microsecond.
        self.clock_ns += 100 + (self.steps & 0x7FF);
        self.have_things_happen();
        if me.is_some_and(|id| self.tasks.count_turn(id) == MOST_TURNS) {
            self.fail("it spins for ever".to_owned());
        }
        if self.steps.is_multiple_of(CHECK_EVERY) {
            self.check_always();
        }
        self.choose() != me || me.is_some_and(|id| self.tasks.get(id).is_over)
    }

    /// Chooses who goes on; nobody where the world is over.
    fn choose(&mut self) -> Option<TaskId> {
        let next = if self.is_over { None } else { self.tasks.choose(&mut self.clock_ns, &mut self.draws) };
        if next.is_none() && !self.is_over {
            self.fail("nobody can go on: every thread waits, and for no time".to_owned());
        }
        self.next = next;
        next
    }

    fn take_next(&mut self) -> Option<TaskId> {
        if self.is_over {
            return None;
        }
        match self.next.take() {
            Some(id) if !self.tasks.get(id).is_over => Some(id),
            _ => self.choose().inspect(|_| self.next = None),
        }
    }

    fn begin_waiting(&mut self, wait: Wait, most: Option<Duration>) -> Option<TaskId> {
        let me = self.tasks.current()?;
        self.steps += 1;
        self.have_things_happen();
        if self.tasks.get(me).is_over {
            return Some(me);
        }
        let until_ns = most.map(|time| self.clock_ns.saturating_add(time.as_nanos() as u64));
        self.tasks.set_waiting(me, wait, until_ns);
        Some(me)
    }

    fn stretched(&mut self, time: Duration) -> Duration {
        let most = self.config.machine.sleep_stretch;
        let factor = if self.draws.one_in(2) { 1 + self.draws.below(most) } else { most };
        // In a long world everybody oversleeps: what waits for a minute must not take a day to simulate.
        let oversleeping = 1 + self.steps / LATE_STEPS;
        time.max(Duration::from_nanos(1)).saturating_mul(factor.max(oversleeping) as u32)
    }

    /// What happens whoever runs.
    fn have_things_happen(&mut self) {
        if self.draws.one_in(self.config.machine.spurious_wake_one_in) {
            self.wake_somebody();
        }
        self.do_late_writes();
        if self.config.kills_at.contains(&self.steps) {
            self.kill_somebody();
        }
        if self.steps == self.config.supervisor_dies_at {
            self.note(2, 0, || "the supervisor is killed".to_owned());
            self.supervisor_is_gone = true;
        }
        let is_late = self.has_late_operation();
        let most_steps = if is_late { MOST_LATE_STEPS } else { MOST_STEPS };
        if self.steps > most_steps {
            // There nothing else takes long.
            if is_late && self.config.large_call_pages > 0 {
                self.fail("a system call waits for room that it holds itself".to_owned());
            }
            self.count("worlds cut short");
            self.is_over = true;
        }
    }

    /// A signal ends somebody's wait for a page.
    fn wake_somebody(&mut self) {
        let is_waiting = |wait: Wait| matches!(wait, Wait::Page { .. });
        let waiting: Vec<TaskId> =
            self.tasks.iter().filter(|(_, task)| is_waiting(task.wait)).map(|(id, _)| id).collect();
        if !waiting.is_empty() {
            let id = waiting[self.draws.index(waiting.len())];
            self.note(3, id as u64, || format!("a signal wakes task {id}"));
            self.end_page_wait(id);
        }
    }

    fn end_page_wait(&mut self, id: TaskId) {
        if let Some(process) = self.tasks.get(id).process {
            self.processes[process].queue.retain(|message| message.task != id);
        }
        self.tasks.wake(id);
    }

    /// Ends the wait of all threads of a process that wait for a page within a range of addresses.
    pub fn wake_pages(&mut self, process: usize, range: std::ops::Range<usize>) {
        let waits = |wait: Wait| matches!(wait, Wait::Page { address } if range.contains(&address));
        let waiting: Vec<TaskId> = self
            .tasks
            .iter()
            .filter(|(_, task)| task.process == Some(process) && waits(task.wait))
            .map(|(id, _)| id)
            .collect();
        waiting.into_iter().for_each(|id| self.end_page_wait(id));
    }

    /// Queues a fault of the task that runs, for a handler of its process. The task is to wait for the page
    /// then.
    pub fn raise(&mut self, process: usize, address: usize, write: bool, write_protected: bool) {
        let Some(task) = self.tasks.current() else { return };
        self.note(4, address as u64, || {
            let kind = match (write_protected, write) {
                (true, _) => "write-protected",
                (_, true) => "missing, to write",
                _ => "missing, to read",
            };
            format!("fault at {address:#x}: {kind}")
        });
        self.processes[process].queue.push_back(Message { task, address, write, write_protected });
        let handlers: Vec<TaskId> = self
            .tasks
            .iter()
            .filter(|(_, task)| task.process == Some(process) && task.wait == Wait::Message)
            .map(|(id, _)| id)
            .collect();
        if !handlers.is_empty() {
            let id = handlers[self.draws.index(handlers.len())];
            self.tasks.wake(id);
        }
    }

    /// The oldest fault that no handler has read.
    pub fn read_message(&mut self, process: usize) -> Option<Message> {
        let message = self.processes[process].queue.pop_front()?;
        self.messages_read += 1;
        self.note(5, message.address as u64, || format!("reads the fault at {:#x}", message.address));
        Some(message)
    }

    fn kill_somebody(&mut self) {
        let alive: Vec<usize> =
            (0..self.processes.len()).filter(|&process| self.processes[process].is_alive).collect();
        if !alive.is_empty() {
            let process = alive[self.draws.index(alive.len())];
            self.note(6, process as u64, || format!("process {process} is killed"));
            self.count("kills");
            self.end_process(process);
        }
    }

    /// A process ends: its threads stop where they are.
    pub fn end_process(&mut self, process: usize) {
        self.tasks.end_process(process);
        self.let_all_go(process);
        self.leave_on_its_way(process);
        let ended = &mut self.processes[process];
        if ended.is_alive {
            ended.is_alive = false;
            ended.queue = VecDeque::new();
            let program = &mut ended.program;
            let (pins, transfers) =
                (std::mem::take(&mut program.pins), std::mem::take(&mut program.transfers));
            ended.space.end(&mut self.physical);
            pins.into_iter().for_each(|pin| self.physical.unpin(pin.frame));
            transfers.into_iter().for_each(|pin| self.physical.unpin_after_call(pin.frame));
            self.tasks.wake_where(|task| task.wait == Wait::Process(process));
        }
    }

    fn has_late_operation(&self) -> bool {
        let alive = self.processes.iter().filter(|process| process.is_alive);
        alive
            .flat_map(|process| process.operations.values())
            .any(|(since, ..)| self.steps - since > LATE_STEPS)
    }

    /// No operation of a program takes for ever.
    pub(crate) fn check_operations(&mut self) {
        let (steps, clock_ns) = (self.steps, self.clock_ns);
        let slow = self.processes.iter().enumerate().filter(|(_, process)| process.is_alive).find_map(
            |(number, process)| {
                let is_slow = |since: &(u64, u64, String)| clock_ns - since.1 > OPERATION_NS;
                let (thread, since) = process.operations.iter().find(|(_, since)| is_slow(since))?;
                Some(format!(
                    "thread {thread} of process {number} is not done with '{}' after {} turns and {} s",
                    since.2,
                    steps - since.0,
                    (clock_ns - since.1) / 1_000_000_000
                ))
            },
        );
        if let Some(what) = slow {
            self.fail(what);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Overrides;

    fn config(seed: u64) -> Config {
        let config = Config::of_seed(seed, &Overrides::default());
        Config { kills_at: Vec::new(), supervisor_dies_at: 0, ..config }
    }

    fn spawn(name: &str, body: impl FnOnce() + Send + 'static) {
        with(|world| world.spawn(name.to_owned(), None, Box::new(body)));
    }

    fn end() {
        with(|world| world.is_over = true);
        turn();
    }

    #[test]
    fn equal_seeds_give_equal_worlds_and_others_differ() {
        let digest = |seed| {
            run(config(seed), false, || {
                for number in 0..4_u64 {
                    spawn("one", move || {
                        for round in 0..50 {
                            with(|world| world.note(number, round, String::new));
                            turn();
                        }
                        if number == 0 {
                            sleep(Duration::from_secs(1));
                            end();
                        }
                    });
                }
            })
            .digest
        };
        assert_eq!(digest(5), digest(5));
        assert_ne!(digest(5), digest(6));
    }

    #[test]
    fn a_panic_fails_the_world_and_not_the_simulator() {
        keep_panics();
        let outcome = run(config(1), false, || spawn("one", || panic!("a mistake")));
        let failure = outcome.failure.unwrap();
        assert!(failure.what.contains("a mistake"), "{}", failure.what);
        assert_eq!(failure.task, "one");
    }

    #[test]
    fn who_waits_for_ever_is_found() {
        let outcome = run(config(1), true, || {
            spawn("one", || {
                wait(Wait::Futex(1), None);
            });
            spawn("two", || sleep(Duration::from_secs(5)));
        });
        assert!(outcome.failure.unwrap().what.contains("nobody can go on"));
        assert!(outcome.trace.last().unwrap().contains("FAILURE"));
    }
}
