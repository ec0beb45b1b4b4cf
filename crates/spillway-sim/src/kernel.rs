//! The seam's simulated side: what the pager asks of the kernel, answered by a
//! [`Space`](crate::space::Space), with what the kernel may do or leave drawn from the seed.

mod hand_over;
mod moves;
mod references;

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use rustix::io::{Errno, Result};
use spillway_core::page::{PAGE_SHIFT, PAGE_SIZE, Page};
use spillway_core::seals::NONCE_BYTES;
use spillway_pager::kernel::{ForkAdvice, Kernel, Look, MOST_POPULATED_PAGES, References};
use spillway_sys::memory::{Outsiders, PageMapEntry};
use spillway_sys::ranges::{BounceRange, FrameRange, TargetRange};

use crate::own_memory;
use crate::process::SimKernel;
use crate::space::{Access, Entry, Faults, Own, Pages};
use crate::supervisor::pid_of;
use crate::tasks::Wait;
use crate::world::{self, MOST_LOCK_TRIES, World, fail, fail_unless, turn, wait, with};

/// Times that a thread spins before it sleeps, as the live one does.
const SPINS: u32 = 100;

static ZEROS: Page = [0; PAGE_SIZE];

fn pages_of(range: TargetRange) -> Pages {
    let start = (range.start() >> PAGE_SHIFT) as u64;
    start..start + range.pages() as u64
}

fn addresses(range: TargetRange) -> Range<usize> {
    range.start()..range.start() + range.bytes()
}

/// The frames of a range, one by one.
fn each(range: FrameRange<'_>) -> impl Iterator<Item = FrameRange<'_>> {
    (0..range.pages()).map(move |page| range.part(page * PAGE_SIZE, PAGE_SIZE))
}

/// An access to a page of the program's by the kernel, on behalf of whoever runs: its fault goes the way of
/// all others. EFAULT where it cannot be made.
pub(crate) fn access_by_kernel(process: usize, page: u64, write: bool) -> Result<()> {
    loop {
        let access = with(|world| world.processes[process].space.access(&mut world.physical, page, write));
        match access {
            Access::Done => return Ok(()),
            Access::Missing(Faults::Handlers) | Access::Protected(Faults::Handlers) => {
                let address = (page as usize) << PAGE_SHIFT;
                let is_there = matches!(access, Access::Protected(_));
                with(|world| world.raise(process, address, write, is_there));
                wait(Wait::Page { address }, None);
            }
            _ => return Err(Errno::FAULT),
        }
    }
}

impl SimKernel {
    /// Does something to this process, with a turn before and one after.
    fn turning<T>(&self, work: impl FnOnce(&mut World, usize) -> T) -> T {
        turn();
        let done = with(|world| work(world, self.process));
        turn();
        done
    }
}

impl Kernel for SimKernel {
    const HUGE_PAGES: usize = 8;

    fn now_ns() -> u64 {
        with(|world| world.clock_ns)
    }

    fn thread_ns() -> u64 {
        Self::now_ns()
    }

    fn sleep(time: Duration) {
        world::sleep(time);
    }

    fn relax(tries: u32) {
        if tries > MOST_LOCK_TRIES {
            fail(|| "a lock is never had: who has it waits too".to_owned());
        }
        if tries > SPINS {
            return world::sleep(Duration::from_micros(50));
        }
        let time = with(|world| 1 + world.draws.below(2_000));
        wait(Wait::Sleep, Some(Duration::from_nanos(time)));
    }

    fn give_way() {
        let time = with(|world| 1 + world.draws.below(200_000));
        world::sleep(Duration::from_nanos(time));
    }

    fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        turn();
        for tries in 0.. {
            match mutex.try_lock() {
                Ok(guard) => return guard,
                Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => Self::relax(tries),
            }
        }
        unreachable!("a lock is asked for until it is had")
    }

    fn turn() {
        turn();
    }

    fn must_hold(what: &str, is_so: impl FnOnce() -> bool) {
        fail_unless(is_so(), what);
    }

    fn seals(nonce: [u8; NONCE_BYTES], page: &Page) {
        with(|world| world.note_nonce(nonce, page));
    }

    fn futex_wait(word: &AtomicU32, expected: u32, most: Duration) {
        turn();
        if word.load(Ordering::Acquire) == expected {
            wait(Wait::Futex(std::ptr::from_ref(word).expose_provenance()), Some(most));
        }
    }

    fn futex_wake(word: &AtomicU32) {
        turn();
        let word = Wait::Futex(std::ptr::from_ref(word).expose_provenance());
        with(|world| {
            let waiting: Vec<usize> =
                world.tasks.iter().filter(|(_, task)| task.wait == word).map(|(id, _)| id).collect();
            if !waiting.is_empty() {
                let id = waiting[world.draws.index(waiting.len())];
                world.tasks.wake(id);
            }
        });
    }

    fn own_pid() -> u32 {
        with(|world| world.current_process().map_or(0, pid_of))
    }

    fn tell(line: &str) {
        with(|world| {
            // Addresses of the pager's own memory differ from run to run, and lines may name them.
            world.note(30, line.len() as u64, || format!("tells: {line}"));
            if let Some(process) = world.current_process() {
                world.processes[process].told.push(line.to_owned());
            }
        });
    }

    fn stop_program() -> ! {
        with(|world| {
            if let Some(process) = world.current_process() {
                if !world.supervisor_is_gone {
                    let line = world.processes[process].told.last().cloned().unwrap_or_default();
                    world.fail(format!("process {process} is stopped by its pager: {line}"));
                }
                world.end_process(process);
            }
        });
        turn();
        panic!("a task goes on after its process was stopped");
    }

    fn has_planted(mistake: &str) -> bool {
        with(|world| world.has_planted(mistake))
    }

    fn is_inline(&self) -> bool {
        with(|world| world.processes[self.process].is_inline)
    }

    fn register(&self, range: TargetRange) -> Result<()> {
        self.turning(|world, process| {
            let faults = world.processes[process].faults();
            world.processes[process].space.register(pages_of(range), faults)
        })
    }

    fn unregister(&self, range: TargetRange) -> Result<()> {
        self.turning(|world, process| {
            let done = world.processes[process].space.unregister(pages_of(range));
            world.wake_pages(process, addresses(range));
            done
        })
    }

    fn hand_to_handlers(&self, range: TargetRange) -> Result<()> {
        self.hand_over(range)
    }

    fn leave_inline(&self) {
        self.turning(|world, process| world.processes[process].is_inline = false);
    }

    fn advise_on_fork(&self, range: TargetRange, advice: ForkAdvice) -> Result<()> {
        self.turning(|world, process| {
            let done = world.processes[process].space.change(pages_of(range), |attributes| match advice {
                ForkAdvice::Inherit => attributes.is_dropped_on_fork = false,
                ForkAdvice::Drop => attributes.is_dropped_on_fork = true,
                ForkAdvice::Keep => attributes.is_wiped_on_fork = false,
                ForkAdvice::Wipe => attributes.is_wiped_on_fork = true,
            });
            world.note(50, range.start() as u64, || format!("{advice:?} on fork {:#x}", range.start()));
            done
        })
    }

    fn copy(&self, to: TargetRange, from: BounceRange<'_>, protected: bool) -> Result<usize> {
        let contents = from.contents();
        self.turning(|world, process| {
            let faults = world.processes[process].faults();
            let filled = world.fill_pages(process, pages_of(to), faults, |world, index, page| {
                let contents = &contents[index * PAGE_SIZE..(index + 1) * PAGE_SIZE];
                world.processes[process].space.fill(&mut world.physical, page, contents, protected)
            });
            world.note(40, to.start() as u64, || format!("copy to {:#x}: {filled:?} pages", to.start()));
            filled.map(|pages| pages * PAGE_SIZE)
        })
    }

    fn copy_from_frame(&self, to: TargetRange, from: FrameRange<'_>) -> Result<()> {
        self.turning(|world, process| {
            let done = world.fill_from_frame(process, to, from).map(|_| ());
            world.note(41, to.start() as u64, || format!("copy from a frame to {:#x}: {done:?}", to.start()));
            done
        })
    }

    fn map_zeros(&self, to: TargetRange) -> Result<usize> {
        self.turning(|world, process| {
            if world.config.machine.no_zero_page {
                return Err(Errno::INVAL);
            }
            let faults = world.processes[process].faults();
            let filled = world.fill_pages(process, pages_of(to), faults, |world, _, page| {
                world.processes[process].space.fill_zero(page)
            });
            world.note(42, to.start() as u64, || format!("zeros at {:#x}: {filled:?} pages", to.start()));
            filled.map(|pages| pages * PAGE_SIZE)
        })
    }

    fn move_from_frame(&self, to: TargetRange, from: FrameRange<'_>) -> Result<()> {
        self.turning(|world, process| {
            let done = world.move_in(process, pages_of(to).start, from);
            world.note(43, to.start() as u64, || format!("move from a frame to {:#x}: {done:?}", to.start()));
            done
        })
    }

    fn move_reserved(&self, to: TargetRange, from: FrameRange<'_>) -> usize {
        self.turning(|world, process| {
            let counted = world.move_ready(process, to, from);
            world.note(44, to.start() as u64, || {
                format!("move what is ready to {:#x}: {counted}", to.start())
            });
            counted * PAGE_SIZE
        })
    }

    fn move_to_frames(&self, to: FrameRange<'_>, from: TargetRange) -> Result<usize> {
        self.turning(|world, process| {
            let moved = world.move_out(process, to, from);
            world.note(45, from.start() as u64, || {
                format!("move {} pages out from {:#x}: {moved:?}", from.pages(), from.start())
            });
            moved.map(|pages| pages * PAGE_SIZE)
        })
    }

    fn copy_to_frame(&self, to: FrameRange<'_>, from: TargetRange) -> Result<()> {
        self.turning(|world, process| {
            let done = world.copy_out(process, to, pages_of(from).start);
            world.note(46, from.start() as u64, || format!("copy {:#x} out: {done:?}", from.start()));
            done
        })
    }

    fn discard(&self, range: TargetRange) -> Result<()> {
        self.turning(|world, process| {
            let done = world.processes[process].space.discard(&mut world.physical, pages_of(range));
            world.note(47, range.start() as u64, || {
                format!("discard {} pages at {:#x}: {done:?}", range.pages(), range.start())
            });
            done
        })
    }

    fn discard_pages(&self, pages: &[TargetRange]) -> bool {
        if !self.can_discard_pages() {
            return false;
        }
        turn();
        for &page in pages {
            let stops = with(|world| {
                let stops = world.draws.one_in(world.config.machine.discard_pages_fails_one_in);
                let space = &mut world.processes[self.process].space;
                stops || space.discard(&mut world.physical, pages_of(page)).is_err()
            });
            with(|world| {
                world.note(48, page.start() as u64, || format!("discard page {:#x}", page.start()));
            });
            if stops {
                return false;
            }
        }
        turn();
        true
    }

    fn can_discard_pages(&self) -> bool {
        with(|world| !world.config.machine.no_discard_pages)
    }

    fn frames_stay(&self) -> bool {
        self.turning(|world, _| !world.config.machine.replaces_frames)
    }

    fn make_own_pages(&self, pages: &[TargetRange]) -> usize {
        turn();
        let is_own = |page: &&TargetRange| self.make_own(**page).is_ok();
        pages.iter().take_while(is_own).count()
    }

    fn refer(&self, pages: &[TargetRange]) -> Option<References> {
        let (references, turns) = self.turning(|world, process| {
            let references = world.refer(process, pages);
            world.note(52, pages.len() as u64, || format!("refers to {} pages: {references:?}", pages.len()));
            // Whoever runs on a busy machine runs long.
            (references, world.draws.below(20))
        });
        (0..turns).for_each(|_| turn());
        references
    }

    fn fill_frames(&self, to: FrameRange<'_>, from: &References) -> Result<()> {
        self.turning(|world, process| {
            let done = world.fill_referred(process, to, from.place);
            world.note(53, to.pages() as u64, || format!("fills {} frames: {done:?}", to.pages()));
            done
        })
    }

    fn pass_over(&self, references: &References, pages: usize) {
        self.turning(|world, _| world.pass_over(references.place, pages));
    }

    fn let_go(&self, references: References) {
        self.turning(|world, _| world.let_go(references.place));
    }

    fn write_protect(&self, range: TargetRange, on: bool) -> Result<()> {
        self.turning(|world, process| {
            let done = world.processes[process].space.write_protect(pages_of(range), on);
            if !on && done.is_ok() {
                world.wake_pages(process, addresses(range));
            }
            world.note(49, range.start() as u64, || format!("protect {:#x} {on}: {done:?}", range.start()));
            done
        })
    }

    fn poison(&self, range: TargetRange) -> Result<()> {
        self.turning(|world, process| {
            let faults = world.processes[process].faults();
            let filled = world.fill_pages(process, pages_of(range), faults, |world, _, page| {
                world.processes[process].space.poison(page)
            })?;
            // What stopped half-way is no success (ioctl_userfaultfd(2)).
            if filled * PAGE_SIZE == range.bytes() { Ok(()) } else { Err(Errno::AGAIN) }
        })
    }

    fn wake(&self, range: TargetRange) -> Result<()> {
        self.turning(|world, process| {
            world.note(50, range.start() as u64, || format!("wakes who waits at {:#x}", range.start()));
            world.wake_pages(process, addresses(range));
        });
        Ok(())
    }

    fn wake_all(&self) {
        self.turning(|world, process| {
            world.note(51, 0, || "wakes who waits for any page".to_owned());
            world.wake_pages(process, 0..usize::MAX);
        });
    }

    /// The programs that are simulated have no memory that they may not read.
    /// Its threads have no stacks.
    fn copy_what_is_there(&self, _: usize, _: &[AtomicU64]) -> usize {
        0
    }

    fn is_forbidden(&self, _: usize) -> bool {
        false
    }

    fn is_readable(&self, address: usize) -> bool {
        turn();
        access_by_kernel(self.process, (address >> PAGE_SHIFT) as u64, false).is_ok()
    }

    fn make_own(&self, range: TargetRange) -> Result<()> {
        turn();
        // As the kernel's own accesses: what is missing or protected faults, and is waited for.
        pages_of(range).try_for_each(|page| access_by_kernel(self.process, page, true))
    }

    #[allow(unsafe_code)]
    unsafe fn target_page<'a>(&self, page: TargetRange) -> &'a Page {
        turn();
        let page = pages_of(page).start;
        with(|world| match world.processes[self.process].space.entry(page) {
            Entry::Frame { id, .. } => own_memory::for_pager(world.physical.page(id)),
            Entry::Zero { .. } => &ZEROS,
            entry => {
                world.fail(format!("the pager reads page {page:#x}, of which nothing is there: {entry:?}"));
                &ZEROS
            }
        })
    }

    fn has_page_map(&self) -> bool {
        with(|world| !world.config.machine.no_page_map)
    }

    fn page_map_entry(&self, address: usize) -> Option<PageMapEntry> {
        if !self.has_page_map() {
            return None;
        }
        self.turning(|world, process| {
            let space = &world.processes[process].space;
            let bits = match space.own(address) {
                Some(own) => 1 << 63 | u64::from(own.is_exclusive && !own.is_zero) << 56,
                None => space.page_map_bits(&world.physical, (address >> PAGE_SHIFT) as u64),
            };
            Some(PageMapEntry::from_bits(bits))
        })
    }

    fn populated(&self, range: TargetRange) -> Option<[u64; MOST_POPULATED_PAGES / 64]> {
        if !self.has_page_map() {
            return None;
        }
        self.turning(|world, process| {
            let space = &world.processes[process].space;
            let mut found = [0; MOST_POPULATED_PAGES / 64];
            for (index, page) in pages_of(range).enumerate() {
                let bits = space.page_map_bits(&world.physical, page);
                found[index / 64] |= u64::from(bits >> 62 != 0) << (index % 64);
            }
            Some(found)
        })
    }

    /// Any guess may be wrong: so these are drawn.
    fn accesses(&self, range: TargetRange, visit: &mut dyn FnMut(u64, bool)) -> Look {
        let found = self.turning(|world, process| {
            if world.config.machine.no_accesses {
                return None;
            }
            let (space, physical) = (&world.processes[process].space, &world.physical);
            let mapped: Vec<u64> =
                pages_of(range).filter(|&page| space.page_map_bits(physical, page) >> 62 != 0).collect();
            world.count_streamed(process, &mapped);
            Some(mapped.into_iter().map(|page| (page, world.draws.one_in(2))).collect::<Vec<_>>())
        });
        let Some(found) = found else { return Look::Never };
        found.into_iter().for_each(|(page, used)| visit(page, used));
        Look::Told
    }

    fn find_accesses(&self, _of_many: bool) {}

    fn reads_own_accesses(&self) -> bool {
        true
    }

    fn forget_accesses(&self, _: TargetRange) {
        turn();
    }

    fn outsiders(&self) -> Option<Outsiders> {
        self.turning(|world, process| {
            let process = &world.processes[process];
            let pinned_bytes = process.space.pinned_pages(&world.physical) << PAGE_SHIFT;
            Some(Outsiders { pinned_bytes, has_unseen_pins: false, is_traced: process.is_traced })
        })
    }

    fn ask_for_huge_pages(&self, _: TargetRange) -> Result<()> {
        Ok(())
    }

    fn collapse(&self, _: TargetRange) -> Result<()> {
        Err(Errno::INVAL)
    }

    #[allow(unsafe_code)]
    unsafe fn frame_page<'a>(&self, frame: FrameRange<'a>) -> &'a Page {
        with(|world| {
            if world.processes[self.process].space.own(frame.start()).is_none() {
                world.fail("the pager reads an empty frame".to_owned());
            }
        });
        // SAFETY: the pager's word, and that of `own_memory`.
        unsafe { frame.page() }
    }

    fn discard_frames(&self, frames: FrameRange<'_>) -> Result<()> {
        self.turning(|world, process| {
            for frame in each(frames) {
                if world.processes[process].space.take_own(frame.start()).is_some() {
                    own_memory::scribble(frame);
                }
            }
        });
        Ok(())
    }

    fn fill_own(&self, page: FrameRange<'_>, from: BounceRange<'_>) {
        self.turning(|world, process| {
            if world.processes[process].space.own(page.start()).is_none() {
                world.fail("an empty stage is filled".to_owned());
            }
            if let Ok(contents) = from.contents().try_into() {
                own_memory::fill(page, contents);
            }
        });
    }

    fn populate_reserve(&self, pages: FrameRange<'_>) -> Result<()> {
        self.turning(|world, process| {
            let own = Own { is_exclusive: true, is_zero: false };
            each(pages).for_each(|page| {
                world.processes[process].space.set_own(page.start(), own);
                own_memory::fill(page, &ZEROS);
            });
        });
        Ok(())
    }

    fn map_doorbell(&self, doorbell: FrameRange<'_>) {
        self.turning(|world, process| {
            let own = Own { is_exclusive: true, is_zero: true };
            world.processes[process].space.set_own(doorbell.start(), own);
            world.wake_pages(process, doorbell.start()..doorbell.start() + PAGE_SIZE);
        });
    }

    fn touch_doorbell(doorbell: FrameRange<'_>) {
        turn();
        let address = doorbell.start();
        let rings = with(|world| {
            let process = world
                .current_process()
                .filter(|&process| world.processes[process].space.own(address).is_none())?;
            world.raise(process, address, false, false);
            Some(process)
        });
        if rings.is_some() {
            wait(Wait::Page { address }, None);
        }
    }

    fn unmap_doorbells(doorbells: FrameRange<'_>) {
        turn();
        with(|world| {
            if let Some(process) = world.current_process() {
                for doorbell in each(doorbells) {
                    world.processes[process].space.take_own(doorbell.start());
                }
            }
        });
        turn();
    }

    fn supervisor_is_gone(&self) -> bool {
        turn();
        with(|world| world.supervisor_is_gone)
    }
}
