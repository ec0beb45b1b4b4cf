//! A thread of a program: draws one operation after the other, and does what the preload library does around
//! each call.

use std::time::Duration;

use spillway_core::page::PAGE_SHIFT;
use spillway_pager::run::state::Child;
use spillway_pager::threads::calls::Operation;

use crate::access::{Reached, Use, reach_in_system_call, use_page};
use crate::config::Habits;
use crate::contents::{PARTS, write_part};
use crate::pager;
use crate::process::Pager;
use crate::program::{OnFork, Pin, Region};
use crate::space::{Access, Entry, Pages, Protection};
use crate::supervisor::pid_of;
use crate::tasks::Wait;
use crate::world::{World, fail, turn, wait, with};

/// Pages of an operation on a range, at most.
const MOST_PAGES: u64 = 80;
/// Pages of a stream.
const STREAM_PAGES: u64 = 200;

/// Processes of a world for each that may live at a time.
const MOST_FORKS: usize = 3;
/// How long the pager's threads may go on once the program's have ended, in looks at whether they do.
const A_REST: Duration = Duration::from_millis(2);
const MOST_RESTS: usize = 5_000;

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
    SetOnFork,
    Fork,
    Pin,
    Trace,
    Hold,
    LeaveInline,
    Rest,
}

fn deeds(habits: &Habits) -> [(Deed, u64); 17] {
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
        (Deed::SetOnFork, habits.on_fork),
        (Deed::Fork, habits.fork),
        (Deed::Pin, habits.pin),
        (Deed::Trace, habits.trace),
        (Deed::Hold, habits.hold),
        (Deed::LeaveInline, habits.leave_inline),
        (Deed::Rest, habits.rest),
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
            Deed::Zero => self.use_some(Use::Zero),
            Deed::Discard => self.discard(),
            Deed::DiscardPastHooks => self.discard_past_hooks(),
            Deed::Map => self.map_some(),
            Deed::Unmap => self.unmap(),
            Deed::Remap => self.remap(),
            Deed::Protect => self.protect(),
            Deed::Lock => self.lock(),
            Deed::SetOnFork => self.set_on_fork(),
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
            let how = with(|world| {
                let program = &world.processes[self.process].program;
                let region = program.region(page).filter(|_| !program.is_claimed(page))?;
                let may_write = matches!(region.protection, Protection::Write | Protection::Execute);
                let may = may_write || !is_write && region.protection == Protection::Read;
                may.then(|| if is_write { Use::Write(world.draws.index(PARTS)) } else { Use::Read })
            });
            let Some(how) = how else { return };
            self.use_one(page, how);
        }
    }

    fn call(&self, operation: Operation, pages: &Pages) -> usize {
        let [start, length] = arguments(pages);
        self.pager.call(operation, [start, length, 0, 0])
    }

    fn discard(&self) {
        let claimed = with(|world| {
            let claimed = world.claim_range(self.process, true, |region| !region.is_locked)?;
            world.processes[self.process].shadow.begin_discard(claimed.1.clone());
            Some(claimed)
        });
        let Some((_, pages)) = claimed else { return };
        let done = self.call(Operation::Discard, &pages);
        with(|world| {
            let process = &mut world.processes[self.process];
            if done != arguments(&pages)[1] {
                let _ = process.space.discard(&mut world.physical, pages.clone());
            }
            process.shadow.forget(pages.clone());
            world.give_up_claim(self.process, &pages);
        });
    }

    /// A system call that no hook sees: what is mapped is gone at once, what is not there stays what it is.
    fn discard_past_hooks(&self) {
        if self.pager.inline.is_some() {
            return;
        }
        with(|world| {
            let Some((_, pages)) = world.claim_range(self.process, false, |region| !region.is_locked) else {
                return;
            };
            if world.has_shared_in_hand(self.process, &pages) {
                return world.give_up_claim(self.process, &pages);
            }
            let process = &mut world.processes[self.process];
            let present: Vec<u64> =
                pages.clone().filter(|&page| process.space.entry(page).is_present()).collect();
            let _ = process.space.discard(&mut world.physical, pages.clone());
            present.iter().for_each(|&page| process.shadow.forget(page..page + 1));
            world.note(91, pages.start, || format!("discards {pages:x?} past the hooks"));
            world.give_up_claim(self.process, &pages);
        });
        turn();
    }

    fn map_some(&self) {
        let pages = with(|world| {
            let mapped = world.processes[self.process].program.mapped_pages();
            let most = (2 * world.config.program_pages).saturating_sub(mapped);
            world.draws.within(1..=MOST_PAGES * 2).min(most)
        });
        if pages > 0 {
            self.map(pages);
        }
    }

    /// Maps so many pages, as mmap(2) does, and tells the pager.
    pub fn map(&self, count: u64) {
        let (pages, may_be_native) = with(|world| {
            let process = &mut world.processes[self.process];
            let start = process.program.place(count, &mut world.draws);
            let pages = start..start + count;
            // What is merged with its neighbour, the kernel decides.
            let mapping = if world.draws.one_in(2) { 0 } else { start as u32 };
            process.space.map(&mut world.physical, pages.clone(), Protection::Write, mapping);
            (pages, world.config.native && world.draws.one_in(2))
        });
        let [start, length] = arguments(&pages);
        let _ = self.pager.call(Operation::Map, [start, length, usize::from(may_be_native), 0]);
        with(|world| {
            let process = &mut world.processes[self.process];
            process.shadow.forget(pages.clone());
            process.program.regions.push(Region {
                pages,
                protection: Protection::Write,
                is_locked: false,
                on_fork: OnFork::Keep,
            });
        });
    }

    fn unmap(&self) {
        let Some((_, pages)) = with(|world| world.claim_range(self.process, false, |_| true)) else { return };
        let _ = self.call(Operation::Forget, &pages);
        with(|world| {
            let process = &mut world.processes[self.process];
            process.program.carve(&pages);
            process.space.unmap(&mut world.physical, pages.clone());
            process.shadow.forget(pages.clone());
        });
        // Mapped over, as MAP_FIXED does, or left.
        let again = with(|world| world.draws.one_in(3));
        if again {
            with(|world| {
                let process = &mut world.processes[self.process];
                process.space.map(&mut world.physical, pages.clone(), Protection::Write, 0);
            });
            let _ = self.call(Operation::Map, &pages);
        }
        with(|world| {
            if again {
                let region = Region {
                    pages: pages.clone(),
                    protection: Protection::Write,
                    is_locked: false,
                    on_fork: OnFork::Keep,
                };
                world.processes[self.process].program.regions.push(region);
            }
            world.give_up_claim(self.process, &pages);
        });
    }

    /// mremap(2) to another place, longer or shorter or neither.
    fn remap(&self) {
        let drawn = with(|world| {
            let claimed = world.claim_range(self.process, false, |region| !region.is_locked)?;
            let count = claimed.1.end - claimed.1.start;
            let mapped = world.processes[self.process].program.mapped_pages();
            let may_grow = mapped + 40 < 2 * world.config.program_pages;
            let new_count = match world.draws.below(4) {
                0 if may_grow => count + world.draws.within(1..=30),
                1 => world.draws.within(1..=count),
                _ => count,
            };
            let process = &mut world.processes[self.process];
            let to = process.program.place(new_count, &mut world.draws);
            Some((claimed.0, claimed.1, to..to + new_count))
        });
        let Some((region, old, new)) = drawn else { return };
        let [start, length] = arguments(&old);
        let [to, new_length] = arguments(&new);
        let _ = self.call(Operation::RemapBegin, &old);
        let moved = with(|world| world.move_mapping(self.process, &old, &new));
        let _ = self.pager.call(Operation::RemapEnd, [start, length, if moved { to } else { 0 }, new_length]);
        with(|world| {
            let process = &mut world.processes[self.process];
            if moved {
                process.program.carve(&old);
                process.program.regions.push(Region { pages: new, ..region });
            }
            world.give_up_claim(self.process, &old);
        });
    }

    /// mprotect(2), which no hook sees.
    fn protect(&self) {
        with(|world| {
            let Some((_, pages)) = world.claim_range(self.process, false, |_| true) else { return };
            let protection = world.draws.pick(&[
                Protection::Write,
                Protection::Write,
                Protection::Read,
                Protection::None,
                Protection::Execute,
            ]);
            let process = &mut world.processes[self.process];
            let _ = process.space.change(pages.clone(), |attributes| attributes.protection = protection);
            process.program.change(&pages, |region| region.protection = protection);
            world.give_up_claim(self.process, &pages);
        });
        turn();
    }

    /// Locks a range in memory, or unlocks it: mlock(2), or munlock(2).
    fn lock(&self) {
        let claimed = with(|world| {
            // Only a part of what the limit has room for.
            let locked: u64 = world.locked_pages(self.process);
            let may_lock = locked < 40;
            let fits =
                |region: &Region| region.is_locked || may_lock && region.protection == Protection::Write;
            world.claim_range(self.process, false, fits)
        });
        let Some((region, pages)) = claimed else { return };
        if !region.is_locked {
            let _ = self.call(Operation::Unmanage, &pages);
        }
        with(|world| {
            world.had_pins = true;
            let process = &mut world.processes[self.process];
            let lock = !region.is_locked;
            let _ = process.space.change(pages.clone(), |attributes| attributes.is_locked = lock);
            process.program.change(&pages, |region| region.is_locked = lock);
        });
        if !region.is_locked {
            // The kernel brings locked pages in.
            for page in pages.clone() {
                let _ = crate::kernel::access_by_kernel(self.process, page, true);
            }
        }
        with(|world| world.give_up_claim(self.process, &pages));
    }

    fn set_on_fork(&self) {
        let drawn = with(|world| {
            let claimed = world.claim_range(self.process, false, |_| true)?;
            Some((claimed.1, world.draws.pick(&[OnFork::Keep, OnFork::Wipe, OnFork::Drop])))
        });
        let Some((pages, on_fork)) = drawn else { return };
        with(|world| {
            let space = &mut world.processes[self.process].space;
            let _ = space.change(pages.clone(), |attributes| match on_fork {
                OnFork::Keep => {
                    attributes.is_dropped_on_fork = false;
                    attributes.is_wiped_on_fork = false;
                }
                // A program that wants a range wiped takes MADV_DONTFORK back first.
                OnFork::Wipe => {
                    attributes.is_dropped_on_fork = false;
                    attributes.is_wiped_on_fork = true;
                }
                OnFork::Drop => attributes.is_dropped_on_fork = true,
            });
        });
        let [start, length] = arguments(&pages);
        let _ = self.pager.call(Operation::SetOnFork, [start, length, on_fork as usize, 0]);
        with(|world| {
            let program = &mut world.processes[self.process].program;
            program.change(&pages, |region| region.on_fork = on_fork);
            world.give_up_claim(self.process, &pages);
        });
    }

    fn pin(&self) {
        let page = with(|world| {
            let process = &mut world.processes[self.process];
            if process.program.pins.len() > 12 || !process.program.pins.is_empty() && world.draws.one_in(3) {
                let pin = process.program.pins.swap_remove(world.draws.index(process.program.pins.len()));
                world.physical.unpin(pin.frame);
                return None;
            }
            if !process.program.pins.is_empty() && world.draws.one_in(2) {
                world.write_by_device(self.process);
                return None;
            }
            process.program.pick_page(true, &mut world.draws)
        });
        let Some(page) = page else { return turn() };
        with(|world| world.processes[self.process].program.begin_use(page, true));
        let process = self.process;
        let reached = crate::access::reach(process, page, true, |world| {
            world.check_read(process, page);
            if let Some(frame) = world.processes[process].space.frame(page) {
                world.physical.pin(frame);
                world.had_pins = true;
                world.count("pins");
                world.note(92, page, || format!("a device pins page {page:#x}"));
                world.processes[process].program.pins.push(Pin { page, frame });
            }
        });
        with(|world| {
            if reached == Reached::Bus {
                world.check_refusal(process, page);
            }
            world.processes[process].program.end_use(page, true);
        });
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
            let end = start + world.draws.within(1..=8);
            let is_good = |page: &u64| {
                !program.is_claimed(*page)
                    && program.region(*page).is_some_and(|region| region.protection == Protection::Write)
            };
            let pages: Vec<u64> = (start..end).take_while(is_good).collect();
            pages.iter().for_each(|&page| program.begin_use(page, true));
            Some(pages)
        });
        let Some(pages) = pages else { return };
        if let (Some(&first), Some(hold)) = (pages.first(), inline.hold(0)) {
            let mut room = usize::MAX;
            let range = bytes(first)..bytes(first + pages.len() as u64);
            let is_ready = inline.make_ready(range, Some(&hold), &mut room);
            for &page in pages.iter().filter(|_| is_ready) {
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

    fn leave_inline(&mut self) {
        let is_lone = with(|world| {
            let process = &world.processes[self.process];
            process.program.threads == 1 && process.is_inline
        });
        if is_lone && self.pager.inline.is_some() {
            let _ = self.pager.call(Operation::LeaveInline, [0; 4]);
            self.pager.inline = None;
            with(|world| world.processes[self.process].pager = Some(self.pager));
        }
    }

    /// Forks the process, as fork(2) does, if one more may live.
    fn fork(&self) {
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
}

impl World {
    /// Whether the pager has a page in hand that is shared since a fork. Making it the process's own, it
    /// would wait for ever at a page that is discarded past the hooks in that very moment: a known limit of
    /// the pager's.
    fn has_shared_in_hand(&self, process: usize, pages: &Pages) -> bool {
        let process = &self.processes[process];
        let is_shared =
            |page: u64| matches!(process.space.entry(page), Entry::Frame { is_exclusive: false, .. });
        process.pager.is_some_and(|pager| {
            let is_in_hand = |page| pager.engine.table.find(page).is_some_and(|word| word.is_locked());
            pages.clone().any(|page| is_in_hand(page) && is_shared(page))
        })
    }

    fn locked_pages(&self, process: usize) -> u64 {
        let locked = self.processes[process].program.regions.iter().filter(|region| region.is_locked);
        locked.map(|region| region.pages.end - region.pages.start).sum()
    }

    /// mremap(2). False where it fails: not all of the old range is one mapping.
    fn move_mapping(&mut self, process: usize, old: &Pages, new: &Pages) -> bool {
        let (old_count, new_count) = (old.end - old.start, new.end - new.start);
        let process = &mut self.processes[process];
        let Some(attributes) = process.space.one_mapping(old.clone()) else { return false };
        let kept = old_count.min(new_count);
        process.space.map(&mut self.physical, new.clone(), attributes.protection, attributes.mapping);
        let _ = process.space.change(new.clone(), |new| {
            *new = crate::space::Attributes { registered: None, ..attributes };
        });
        process.space.move_pages(&mut self.physical, old.start..old.start + kept, new.start);
        process.space.unmap(&mut self.physical, old.clone());
        process.shadow.forget(new.clone());
        process.shadow.move_pages(old.start..old.start + kept, new.start);
        process.shadow.forget(old.clone());
        self.note(94, new.start, || format!("mremap {old:x?} to {new:x?}"));
        true
    }

    /// A device writes to a page that it holds, whatever the page table says.
    fn write_by_device(&mut self, process: usize) {
        let pins = &self.processes[process].program.pins;
        let pin = pins[self.draws.index(pins.len())];
        if self.processes[process].program.is_claimed(pin.page) {
            return;
        }
        if self.processes[process].space.frame(pin.page) != Some(pin.frame) {
            let entry = self.processes[process].space.entry(pin.page);
            self.fail(format!(
                "page {:#x} was taken from under a device that holds it: its entry says {entry:?}",
                pin.page
            ));
            return;
        }
        let part = self.draws.index(PARTS);
        let tag = self.next_tag(process, pin.page);
        write_part(self.physical.page_mut(pin.frame), part, tag);
        self.processes[process].shadow.get_mut(pin.page).tags[part] = tag;
        self.count("writes by devices");
        self.note(95, pin.page, || format!("a device writes {tag} to part {part} of page {:#x}", pin.page));
    }

    fn fork_process(&mut self, parent: usize, announced: Child) -> crate::process::Process {
        let parent = &mut self.processes[parent];
        let space = parent.space.fork(&mut self.physical);
        let mut shadow = parent.shadow.clone();
        let program = parent.program.forked();
        for region in program.regions.iter().filter(|region| region.on_fork == OnFork::Wipe) {
            shadow.forget(region.pages.clone());
        }
        crate::process::Process {
            space,
            shadow,
            program,
            is_alive: true,
            is_inline: parent.is_inline,
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

impl Actor {
    /// What the first program finds and maps before its main.
    fn begin_program(&self) {
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
                }
            }
            pages
        });
        let _ = self.call(Operation::Adopt, &pages);
        with(|world| {
            world.processes[self.process].program.regions.push(Region {
                pages,
                protection: Protection::Write,
                is_locked: false,
                on_fork: OnFork::Keep,
            });
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
            world.check_quiet_process(self.process);
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
