//! Beginnings and ends: programs, threads, forks, and the end of inline mode.

use std::time::Duration;

use spillway_pager::run::state::Child;
use spillway_pager::threads::calls::Operation;

use crate::access::Use;
use crate::actor::{Actor, Deed, bytes};
use crate::pager;
use crate::program::Region;
use crate::space::{Access, Entry, Protection};
use crate::supervisor::pid_of;
use crate::tasks::Wait;
use crate::world::{World, fail, turn, wait, with};

/// Processes of a world for each that may live at a time.
const MOST_FORKS: usize = 3;
/// How long the pager's threads may go on once the program's have ended, in looks at whether they do.
const A_REST: Duration = Duration::from_millis(2);
const MOST_RESTS: usize = 5_000;

impl Actor {
    pub(super) fn leave_inline(&mut self) {
        if with(|world| world.processes[self.process].is_inline) {
            with(|world| world.processes[self.process].handing_over += 1);
            let _ = self.pager.call(Operation::LeaveInline, [0; 4]);
            with(|world| world.processes[self.process].handing_over -= 1);
        }
    }

    /// Forks the process, as fork(2) does, if one more may live.
    pub(super) fn fork(&self) {
        let stack = with(|world| {
            let alive = world.processes.iter().filter(|process| process.is_alive).count();
            let has_forked_enough = world.processes.len() >= MOST_FORKS * world.config.processes;
            if alive >= world.config.processes || has_forked_enough {
                return None;
            }
            let is_there = world.draws.one_in(3);
            let process = &mut world.processes[self.process];
            let page = process.program.pick_page(true, &mut world.draws).filter(|_| is_there);
            let page = page.filter(|&page| process.shadow.get(page).excuse.is_none());
            page.iter().for_each(|&page| process.program.begin_use(page, true));
            Some(page)
        });
        let Some(stack) = stack else { return };
        let at = stack.map_or(0, bytes);
        let begun = self.pager.call(Operation::ForkBegin, [at, 0, 0, 0]);
        if begun != 0 {
            self.use_stack(stack);
            let fails = with(|world| world.draws.one_in(12));
            let child = if fails { None } else { self.fork_now(Child::from_word(begun)) };
            self.use_stack(stack);
            let pid = child.map_or(0, pid_of);
            let _ = self.pager.call(Operation::ForkEnd, [pid as usize, begun, 0, 0]);
        } else {
            with(|world| world.count("forks refused"));
        }
        with(|world| {
            let program = &mut world.processes[self.process].program;
            stack.iter().for_each(|&page| program.end_use(page, true));
        });
    }

    /// A program may run on a stack in managed memory, and nobody answers faults amid a fork.
    fn use_stack(&self, stack: Option<u64>) {
        let Some(page) = stack else { return };
        let access = with(|world| {
            let access = world.processes[self.process].space.access(&mut world.physical, page, true);
            if access == Access::Done {
                world.check_read(self.process, page);
            }
            access
        });
        if access != Access::Done {
            fail(|| format!("the stack at page {page:#x} is not there amid a fork: {access:?}"));
        }
    }

    /// What the kernel does, in one turn. Returns the child.
    fn fork_now(&self, announced: Child) -> Option<usize> {
        let (parent, thread_count) = (self.process, with(|world| world.draws.pick(&[1, 1, 2, 3])));
        let child = with(|world| {
            let child = world.processes.len();
            let forked = world.fork_process(parent, announced);
            world.processes.push(forked);
            child
        });
        let engine = pager::forked_engine(parent, child, self.pager.engine)?;
        with(|world| {
            world.count("forks");
            world.note(93, child as u64, || format!("process {child} is forked off"));
            pager::spawn(world, child, engine, true);
            // A child does less, or nothing would ever end.
            let operations = world.config.operations / 2;
            spawn_program(world, child, thread_count, operations);
        });
        Some(child)
    }

    /// What the first program finds and maps before its main.
    pub(super) fn begin_program(&self) {
        let (adopted, mapped) = with(|world| (world.config.adopted_pages, world.config.program_pages));
        if adopted > 0 {
            self.adopt(adopted);
        }
        let first = mapped.div_ceil(3).max(1);
        for count in [first, first, mapped.saturating_sub(2 * first).max(1)] {
            self.map(count);
        }
    }

    /// Memory that had contents before the pager came.
    fn adopt(&self, count: u64) {
        let pages = with(|world| {
            let process = self.process;
            let start = world.processes[process].program.place(count, &mut world.draws);
            let pages = start..start + count;
            world.processes[process].space.map(&mut world.physical, pages.clone(), Protection::Write, 0);
            for page in pages.clone().filter(|page| page % 3 != 0) {
                let is_write = page % 2 == 0;
                world.processes[process].space.access(&mut world.physical, page, is_write);
                if is_write {
                    world.work_on(process, page, Use::Write(0));
                    world.give_to_device_early(process, page);
                }
            }
            pages
        });
        let _ = self.call(Operation::Adopt, &pages);
        with(|world| {
            world.processes[self.process].program.regions.push(Region::new(pages, Protection::Write));
        });
    }

    fn start_others(&self, threads: usize, operations: usize) {
        if let Some(inline) = self.pager.inline {
            inline.note_company();
        }
        with(|world| {
            let pager = world.processes[self.process].pager.unwrap_or(self.pager);
            for thread in 1..threads {
                let mut actor = Actor { thread, pager, ..*self };
                world.processes[self.process].program.threads += 1;
                let body = move || {
                    actor.run(operations);
                    actor.end_thread();
                };
                let name = format!("thread {}.{thread}", self.process);
                world.spawn(name, Some(self.process), Box::new(body));
            }
        });
    }

    /// The last thread looks at all of the program's memory, and ends the process once it is quiet.
    fn end_thread(&self) {
        let is_last = with(|world| {
            let program = &mut world.processes[self.process].program;
            program.threads -= 1;
            program.threads == 0
        });
        if !is_last {
            return;
        }
        if with(|world| world.draws.one_in(2)) {
            self.begin(Deed::Touch);
            self.read_everything();
            self.end();
        }
        for _ in 0..MOST_RESTS {
            wait(Wait::Sleep, Some(A_REST));
            if with(|world| world.is_quiet(self.process)) {
                break;
            }
        }
        with(|world| {
            // A fault may wait for room long after its thread went on, where full stores give none.
            if world.is_quiet(self.process) || !world.may_want_room() {
                world.check_quiet_process(self.process);
            }
            world.note(96, self.process as u64, || format!("process {} ends", self.process));
            world.end_process(self.process);
        });
        turn();
    }

    fn read_everything(&self) {
        let pages: Vec<u64> = with(|world| {
            let process = &world.processes[self.process];
            let readable =
                process.program.regions.iter().filter(|region| region.protection != Protection::None);
            readable.flat_map(|region| region.pages.clone()).collect()
        });
        for page in pages {
            let is_lost = with(|world| {
                let process = &world.processes[self.process];
                process.shadow.get(page).excuse.is_some() || process.space.entry(page) == Entry::Poisoned
            });
            if !is_lost {
                self.use_one(page, Use::Read);
            }
        }
    }
}

impl World {
    fn fork_process(&mut self, parent: usize, announced: Child) -> crate::process::Process {
        let parent = &mut self.processes[parent];
        let space = parent.space.fork(&mut self.physical);
        let mut shadow = parent.shadow.clone();
        let program = parent.program.forked();
        for region in program.regions.iter().filter(|region| region.is_wiped_on_fork) {
            shadow.forget(region.pages.clone());
        }
        crate::process::Process {
            space,
            shadow,
            program,
            is_alive: true,
            is_inline: parent.is_inline,
            uncounted: parent.uncounted,
            // What was said of its parent's pages holds for its own.
            told: parent.told.clone(),
            entry: announced.entry,
            child: Some(announced),
            ..crate::process::Process::default()
        }
    }
}

/// The first thread of a process that is about to be ready, and what it does before it is alone no more.
pub fn spawn_program(world: &mut World, process: usize, threads: usize, operations: usize) {
    world.processes[process].program.threads = 1;
    let body = move || {
        let Some(mut pager) = pager::wait_until_ready(process) else { return };
        pager::ready_inline(process, &mut pager);
        let mut actor = Actor { process, thread: 0, pager };
        if let Some(inline) = pager.inline {
            inline.note_alone();
        }
        if process == 0 {
            actor.begin_program();
        }
        let alone = if threads == 1 { operations } else { operations / 4 };
        actor.run(alone);
        if threads > 1 {
            actor.start_others(threads, operations - alone);
            actor.run(operations - alone);
        }
        actor.end_thread();
    };
    world.spawn(format!("thread {process}.0"), Some(process), Box::new(body));
}
