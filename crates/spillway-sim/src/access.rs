//! How a thread of a program reaches a page: the access, its fault, the wait, and again.

use spillway_core::page::PAGE_SHIFT;
use spillway_pager::run::stacks::Origin;

use crate::contents::{PARTS, Tag, write_part};
use crate::process::Pager;
use crate::space::{Access, Faults};
use crate::tasks::Wait;
use crate::world::{World, fail, turn, wait, with};

/// What came of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    /// The access was made.
    Done,
    /// The thread gets SIGBUS.
    Bus,
    /// The thread gets SIGSEGV.
    Segv,
}

/// What a thread does to a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Reads all of it.
    Read,
    /// Writes one part of it, and looks at the rest.
    Write(usize),
    /// Writes zeros all over it.
    Zero,
}

impl Use {
    /// It changes the page.
    #[must_use]
    pub fn is_write(self) -> bool {
        self != Self::Read
    }
}

/// Reaches a page and does `work` there at once, in the turn in which it is reached.
pub fn reach(process: usize, page: u64, write: bool, work: impl FnOnce(&mut World)) -> Reached {
    let address = (page as usize) << PAGE_SHIFT;
    let mut work = Some(work);
    loop {
        turn();
        let access = with(|world| {
            let access = world.processes[process].space.access(&mut world.physical, page, write);
            if access == Access::Done
                && let Some(work) = work.take()
            {
                work(world);
            }
            access
        });
        match access {
            Access::Done => return Reached::Done,
            Access::Segv => return Reached::Segv,
            Access::Bus if was_kept_back(process, address) => {}
            Access::Bus => return Reached::Bus,
            Access::Missing(Faults::Handlers) | Access::Protected(Faults::Handlers) => {
                let is_there = matches!(access, Access::Protected(_));
                with(|world| world.raise(process, address, write, is_there));
                wait(Wait::Page { address }, None);
            }
            Access::Missing(Faults::Signals) | Access::Protected(Faults::Signals) => {
                let was_there = matches!(access, Access::Protected(_));
                if !serve_own_fault(process, address, write, was_there) {
                    return Reached::Bus;
                }
            }
        }
    }
}

/// What the preload library's handler of SIGBUS does. False where the program gets the signal.
fn serve_own_fault(process: usize, address: usize, write: bool, was_there: bool) -> bool {
    let Some(Pager { inline: Some(inline), .. }) = with(|world| world.processes[process].pager) else {
        // Left meanwhile: the access goes to the handlers now.
        return with(|world| !world.processes[process].is_inline);
    };
    with(|world| world.note(80, address as u64, || format!("SIGBUS at {address:#x}, served here")));
    if inline.manages(address) {
        let origin = Origin { instruction: address as u64, ..Origin::default() };
        inline.serve(address, write, was_there, origin)
    } else {
        inline.was_given_up(address, write)
    }
}

/// What that handler does where the page answers as a lost one.
fn was_kept_back(process: usize, address: usize) -> bool {
    let pager = with(|world| world.processes[process].pager);
    pager.and_then(|pager| pager.inline).is_some_and(|inline| inline.was_kept_back(address))
}

/// A thread uses a page, and the oracle looks on.
pub fn use_page(process: usize, page: u64, how: Use) -> Reached {
    let reached = reach(process, page, how.is_write(), |world| world.work_on(process, page, how));
    match reached {
        Reached::Done => {}
        Reached::Bus => with(|world| world.check_refusal(process, page)),
        Reached::Segv => {
            fail(|| format!("process {process} gets SIGSEGV at page {page:#x}, which it may use"));
        }
    }
    reached
}

impl World {
    /// Does to a page that was reached what its user wants.
    pub fn work_on(&mut self, process: usize, page: u64, how: Use) {
        self.check_read(process, page);
        self.count(match how {
            Use::Read => "reads",
            Use::Write(_) => "writes",
            Use::Zero => "writes of zeros",
        });
        let tags = match how {
            Use::Read => return self.settle_expected(process, page),
            Use::Write(part) => vec![(part, self.next_tag(process, page))],
            Use::Zero => (0..PARTS).map(|part| (part, Tag::Zeros)).collect(),
        };
        self.settle_expected(process, page);
        let Some(frame) = self.processes[process].space.frame(page) else { return };
        for (part, tag) in tags {
            write_part(self.physical.page_mut(frame), part, tag);
            self.processes[process].shadow.get_mut(page).tags[part] = tag;
            self.note(81, page, || format!("writes {tag} to part {part} of page {page:#x}"));
        }
    }

    /// A new version of a part of a page.
    pub fn next_tag(&mut self, process: usize, page_number: u64) -> Tag {
        self.version += 1;
        Tag::Written { owner: process as u32, page_number, version: self.version }
    }

    /// Of a page that might have held one of two things it is known now which it was. While somebody discards
    /// it that may change yet.
    fn settle_expected(&mut self, process: usize, page: u64) {
        let expected = self.processes[process].shadow.get(page);
        let Some(or) = expected.or else { return };
        if self.processes[process].program.is_claimed(page) {
            return;
        }
        let holds =
            |world: &Self, tags: crate::contents::Tags| match world.processes[process].space.frame(page) {
                Some(frame) => crate::contents::page_holds(world.physical.page(frame), tags),
                None => tags == crate::contents::ZEROS,
            };
        let tags = if holds(self, expected.tags) { expected.tags } else { or };
        *self.processes[process].shadow.get_mut(page) =
            crate::shadow::Expected { tags, or: None, ..expected };
    }
}

/// An access of the kernel's to memory that a system call uses: in inline mode it cannot have a fault served.
/// Once that is left, handlers serve it.
pub fn reach_in_system_call(process: usize, page: u64, write: bool) -> Access {
    loop {
        turn();
        let access = with(|world| world.processes[process].space.access(&mut world.physical, page, write));
        if !matches!(access, Access::Missing(Faults::Handlers) | Access::Protected(Faults::Handlers)) {
            return access;
        }
        let is_there = matches!(access, Access::Protected(_));
        let address = (page as usize) << PAGE_SHIFT;
        with(|world| world.raise(process, address, write, is_there));
        wait(Wait::Page { address }, None);
    }
}
