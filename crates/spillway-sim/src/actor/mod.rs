//! A thread of a program: draws one operation after the other, and does what the preload library does around
//! each call.

pub mod ahead;
pub mod devices;
pub mod life;
pub mod mappings;
pub mod strides;

use std::time::Duration;

use spillway_core::page::{PAGE_SHIFT, PAGE_SIZE};
use spillway_pager::space::holds::Frame;
use spillway_pager::threads::calls::Operation;

use crate::access::{Use, reach_in_system_call, use_page};
use crate::config::Habits;
use crate::contents::PARTS;
use crate::process::Pager;
use crate::program::Region;
use crate::space::{Access, Pages, Protection};
use crate::tasks::Wait;
use crate::world::{World, fail, turn, wait, with};

/// Pages of an operation on a range, at most.
const MOST_PAGES: u64 = 80;
/// Pages that one system call holds, at most.
const MOST_HELD_PAGES: u64 = 8;
/// Pages of a stream.
const STREAM_PAGES: u64 = 200;

/// A thread of a program.
#[derive(Clone, Copy)]
pub struct Actor {
    /// The number of its process.
    pub process: usize,
    /// Its number in that process.
    pub thread: usize,
    /// What answers its calls.
    pub pager: Pager,
}

/// What a thread may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Touch,
    Stream,
    Zero,
    Discard,
    DiscardPastHooks,
    Map,
    Unmap,
    Remap,
    Protect,
    Lock,
    AdviseOnFork,
    Fork,
    Pin,
    Trace,
    Hold,
    LeaveInline,
    Rest,
    Stride,
    ChangeAhead,
}

fn deeds(habits: &Habits) -> [(Deed, u64); 19] {
    [
        (Deed::Touch, habits.touch),
        (Deed::Stream, habits.stream),
        (Deed::Zero, habits.zero),
        (Deed::Discard, habits.discard),
        (Deed::DiscardPastHooks, habits.discard_past_hooks),
        (Deed::Map, habits.map),
        (Deed::Unmap, habits.unmap),
        (Deed::Remap, habits.remap),
        (Deed::Protect, habits.protect),
        (Deed::Lock, habits.lock),
        (Deed::AdviseOnFork, habits.on_fork),
        (Deed::Fork, habits.fork),
        (Deed::Pin, habits.pin),
        (Deed::Trace, habits.trace),
        (Deed::Hold, habits.hold),
        (Deed::LeaveInline, habits.leave_inline),
        (Deed::Rest, habits.rest),
        (Deed::Stride, habits.stride),
        (Deed::ChangeAhead, habits.change_ahead),
    ]
}

fn bytes(pages: u64) -> usize {
    (pages as usize) << PAGE_SHIFT
}

fn arguments(pages: &Pages) -> [usize; 2] {
    [bytes(pages.start), bytes(pages.end - pages.start)]
}

impl World {
    fn draw_deed(&mut self) -> Deed {
        let deeds = deeds(&self.config.habits);
        let total: u64 = deeds.iter().map(|(_, weight)| weight).sum();
        let mut drawn = self.draws.below(total);
        for (deed, weight) in deeds {
            if drawn < weight {
                return deed;
            }
            drawn -= weight;
        }
        Deed::Touch
    }

    /// A range of one region for an operation that fits, claimed for it.
    fn claim_range(
        &mut self,
        process: usize,
        may_be_read: bool,
        fits: impl Fn(&Region) -> bool,
    ) -> Option<(Region, Pages)> {
        let program = &mut self.processes[process].program;
        let (region, pages) = program.pick_range(MOST_PAGES, &mut self.draws)?;
        (fits(&region) && program.claim(&pages, may_be_read)).then_some((region, pages))
    }

    fn give_up_claim(&mut self, process: usize, pages: &Pages) {
        self.processes[process].program.give_up_claim(pages);
    }
}

impl Actor {
    /// Does so many operations.
    pub fn run(&mut self, operations: usize) {
        for _ in 0..operations {
            let deed = with(World::draw_deed);
            self.begin(deed);
            self.perform(deed);
            self.end();
        }
    }

    fn begin(&self, deed: Deed) {
        with(|world| {
            world.note(90, deed as u64, || format!("-- {deed:?}"));
            let since = (world.steps, world.clock_ns, format!("{deed:?}"));
            world.processes[self.process].operations.insert(self.thread, since);
        });
    }

    fn end(&self) {
        with(|world| {
            world.count("operations");
            world.processes[self.process].operations.remove(&self.thread);
        });
    }

    fn perform(&mut self, deed: Deed) {
        match deed {
            Deed::Touch => self.touch(),
            Deed::Stream => self.stream(),
            Deed::Stride => self.stride(),
            Deed::ChangeAhead => self.change_ahead(),
            Deed::Zero => self.use_some(Use::Zero),
            Deed::Discard => self.discard(),
            Deed::DiscardPastHooks => self.discard_past_hooks(),
            Deed::Map => self.map_some(),
            Deed::Unmap => self.unmap(),
            Deed::Remap => self.remap(),
            Deed::Protect => self.protect(),
            Deed::Lock => self.lock(),
            Deed::AdviseOnFork => self.advise_on_fork(),
            Deed::Fork => self.fork(),
            Deed::Pin => self.pin(),
            Deed::Trace => with(|world| {
                let process = &mut world.processes[self.process];
                process.is_traced = !process.is_traced;
            }),
            Deed::Hold => self.hold(),
            Deed::LeaveInline => self.leave_inline(),
            Deed::Rest => {
                let time = with(|world| world.draws.below(20_000_000));
                wait(Wait::Sleep, Some(Duration::from_nanos(time)));
            }
        }
    }

    fn touch(&self) {
        let (how, discarded) = with(|world| {
            let percent = world.config.habits.write_percent;
            let is_write = world.draws.below(100) < percent;
            let how = if is_write { Use::Write(world.draws.index(PARTS)) } else { Use::Read };
            let program = &world.processes[self.process].program;
            (how, program.pick_discarded(&mut world.draws).filter(|_| !is_write))
        });
        match discarded {
            Some(page) => self.use_one(page, how),
            None => self.use_some(how),
        }
    }

    fn use_some(&self, how: Use) {
        let page =
            with(|world| world.processes[self.process].program.pick_page(how.is_write(), &mut world.draws));
        if let Some(page) = page {
            self.use_one(page, how);
        }
    }

    fn use_one(&self, page: u64, how: Use) {
        with(|world| {
            let (steps, clock_ns) = (world.steps, world.clock_ns);
            let process = &mut world.processes[self.process];
            process.program.begin_use(page, how.is_write());
            if let Some(since) = process.operations.get_mut(&self.thread) {
                // Of many pages each has its own time.
                (since.0, since.1) = (steps, clock_ns);
            }
        });
        use_page(self.process, page, how);
        with(|world| world.processes[self.process].program.end_use(page, how.is_write()));
    }

    fn stream(&self) {
        let (start, count, is_write) = with(|world| {
            let percent = world.config.habits.write_percent;
            let is_write = world.draws.below(100) < percent;
            let start = world.processes[self.process].program.pick_page(is_write, &mut world.draws);
            (start, world.draws.within(8..=STREAM_PAGES), is_write)
        });
        let Some(start) = start else { return };
        for page in start..start + count {
            let Some(how) = self.use_of(page, is_write) else { return };
            self.use_one(page, how);
        }
    }

    /// How a page is used next; None where it may not be.
    fn use_of(&self, page: u64, is_write: bool) -> Option<Use> {
        with(|world| {
            let program = &world.processes[self.process].program;
            let region = program.region(page).filter(|_| !program.is_claimed(page))?;
            let may_write = matches!(region.protection, Protection::Write | Protection::Execute);
            let may = may_write || !is_write && region.protection == Protection::Read;
            may.then(|| if is_write { Use::Write(world.draws.index(PARTS)) } else { Use::Read })
        })
    }

    fn call(&self, operation: Operation, pages: &Pages) -> usize {
        let [start, length] = arguments(pages);
        self.pager.call(operation, [start, length, 0, 0])
    }

    /// A system call of inline mode that writes to memory: brought in before, and held.
    fn hold(&self) {
        let Some(inline) =
            self.pager.inline.filter(|_| with(|world| world.processes[self.process].is_inline))
        else {
            return;
        };
        let pages = with(|world| {
            let program = &mut world.processes[self.process].program;
            let start = program.pick_page(true, &mut world.draws)?;
            let most = match world.config.large_call_pages {
                pages if pages > 0 && world.draws.one_in(2) => pages,
                _ => MOST_HELD_PAGES,
            };
            let end = start + world.draws.within(1..=most);
            let is_good = |page: &u64| {
                !program.is_claimed(*page)
                    && program.region(*page).is_some_and(|region| region.protection == Protection::Write)
            };
            let pages: Vec<u64> = (start..end).take_while(is_good).collect();
            pages.iter().for_each(|&page| program.begin_use(page, true));
            Some(pages)
        });
        let Some(pages) = pages else { return };
        if let (Some(&first), Some(hold)) = (pages.first(), inline.hold(Frame::default())) {
            let is_large = pages.len() as u64 > MOST_HELD_PAGES;
            let mut room = if is_large { MOST_HELD_PAGES as usize * PAGE_SIZE } else { usize::MAX };
            let range = bytes(first)..bytes(first + pages.len() as u64);
            // Where all is there a call by a jump goes past what may wait.
            let (by_jump, turns) = with(|world| (world.draws.one_in(2), world.draws.within(0..=20)));
            let is_there = by_jump && !is_large && inline.is_ready(&range, &hold);
            // The kernel may take its time.
            (0..turns).for_each(|_| turn());
            let is_ready = is_there || inline.make_ready(range, Some(&hold), &mut room);
            if is_large && !is_ready {
                with(|world| pages.iter().for_each(|&page| world.check_line_about(self.process, page)));
            }
            // Of more the kernel finds some, and says how far it came.
            for &page in pages.iter().take(MOST_HELD_PAGES as usize).filter(|_| is_ready) {
                match reach_in_system_call(self.process, page, true) {
                    Access::Done => {}
                    // Poisoned for good when it was locked: EFAULT, as SIGBUS elsewhere.
                    Access::Bus => {
                        with(|world| world.check_refusal(self.process, page));
                        break;
                    }
                    access => fail(|| {
                        format!("a system call finds page {page:#x} missing, which it holds: {access:?}")
                    }),
                }
                with(|world| {
                    let part = world.draws.index(PARTS);
                    world.work_on(self.process, page, Use::Write(part));
                    world.count("held pages");
                });
            }
            drop(hold);
        }
        with(|world| {
            let program = &mut world.processes[self.process].program;
            pages.iter().for_each(|&page| program.end_use(page, true));
        });
    }
}
