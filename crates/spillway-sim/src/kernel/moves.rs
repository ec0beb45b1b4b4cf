//! Moving and copying pages, as UFFDIO_MOVE, UFFDIO_COPY and their like do: partly now and then, and with
//! the wrong count.

use rustix::io::{Errno, Result};
use spillway_core::page::{PAGE_SHIFT, PAGE_SIZE};
use spillway_sys::ranges::{FrameRange, TargetRange};

use crate::kernel::{ZEROS, each, pages_of};
use crate::own_memory;
use crate::space::{Entry, Faults, Own, Pages};
use crate::world::World;

impl World {
    pub(super) fn has_planted(&self, mistake: &str) -> bool {
        self.config.planted.as_deref() == Some(mistake)
    }

    pub(super) fn says_again(&mut self) -> bool {
        self.draws.one_in(self.config.machine.again_one_in)
    }

    pub(super) fn stops_here(&mut self) -> bool {
        self.draws.one_in(self.config.machine.partial_one_in)
    }

    /// Fills neighbouring pages by `fill`. Returns how many went; an error speaks of the first.
    pub(super) fn fill_pages(
        &mut self,
        process: usize,
        pages: Pages,
        faults: Faults,
        mut fill: impl FnMut(&mut Self, usize, u64) -> Result<()>,
    ) -> Result<usize> {
        if self.says_again() {
            return Err(Errno::AGAIN);
        }
        self.processes[process].space.may_fill(pages.clone(), faults)?;
        let mut filled = 0;
        for page in pages.clone() {
            if filled > 0 && self.stops_here() {
                break;
            }
            match fill(self, filled, page) {
                Ok(()) => filled += 1,
                Err(error) if filled == 0 => return Err(error),
                Err(_) => break,
            }
        }
        let start = (pages.start as usize) << PAGE_SHIFT;
        self.wake_pages(process, start..start + filled * PAGE_SIZE);
        Ok(filled)
    }

    pub(super) fn move_out(
        &mut self,
        process: usize,
        to: FrameRange<'_>,
        from: TargetRange,
    ) -> Result<usize> {
        if self.says_again() {
            return Err(Errno::AGAIN);
        }
        self.processes[process].space.may_move(pages_of(from), None)?;
        let mut moved = 0;
        for (frame, page) in each(to).zip(pages_of(from)) {
            if moved > 0 && self.stops_here() {
                break;
            }
            let space = &mut self.processes[process].space;
            if space.own(frame.start()).is_some() {
                self.fail(format!("page {page:#x} is moved to a frame that holds another"));
                return Err(Errno::EXIST);
            }
            match space.take_out(&self.physical, page) {
                Ok(taken) => {
                    let is_zero = taken.is_none();
                    own_memory::fill(frame, taken.map_or(&ZEROS, |id| self.physical.page(id)));
                    space.set_own(frame.start(), Own { is_exclusive: true, is_zero });
                    if let Some(id) = taken {
                        self.physical.unmap(id);
                    }
                    moved += 1;
                }
                Err(error) if moved == 0 => return Err(error),
                Err(_) => break,
            }
        }
        // Below the seam the kernel's count is not believed; a mistake would be to do so.
        let is_miscounted = moved > 0 && self.draws.one_in(self.config.machine.miscounts_one_in);
        if is_miscounted && self.has_planted("move-miscounted") {
            moved = self.draws.index(moved);
            return if moved == 0 { Err(Errno::EXIST) } else { Ok(moved) };
        }
        Ok(moved)
    }

    pub(super) fn move_in(&mut self, process: usize, to: u64, from: FrameRange<'_>) -> Result<()> {
        if self.says_again() {
            return Err(Errno::AGAIN);
        }
        let faults = self.processes[process].faults();
        let space = &mut self.processes[process].space;
        space.may_move(to..to + 1, Some(faults))?;
        let Some(own) = space.own(from.start()) else {
            self.fail(format!("an empty frame is moved to page {to:#x}"));
            return Err(Errno::NOENT);
        };
        if space.entry(to) != Entry::Missing {
            return Err(Errno::EXIST);
        }
        if !own.is_exclusive {
            return Err(Errno::BUSY);
        }
        match own.is_zero {
            true => space.fill_zero(to)?,
            false => space.fill(&mut self.physical, to, &own_memory::contents(from), false)?,
        }
        space.take_own(from.start());
        own_memory::scribble(from);
        let start = (to as usize) << PAGE_SHIFT;
        self.wake_pages(process, start..start + PAGE_SIZE);
        Ok(())
    }

    pub(super) fn move_ready(&mut self, process: usize, to: TargetRange, from: FrameRange<'_>) -> usize {
        let faults = self.processes[process].faults();
        let space = &mut self.processes[process].space;
        if self.config.machine.again_one_in != 0 && self.draws.one_in(self.config.machine.again_one_in)
            || space.may_move(pages_of(to), Some(faults)).is_err()
        {
            return 0;
        }
        let mut moved = 0;
        for (page, reserved) in pages_of(to).zip(each(from)) {
            let space = &mut self.processes[process].space;
            if space.own(reserved.start()).is_none() {
                self.fail(format!("a page that was to be ready is not there, is moved to page {page:#x}"));
                break;
            }
            let stops = moved > 0 && self.draws.one_in(self.config.machine.partial_one_in);
            if stops || space.fill(&mut self.physical, page, &own_memory::contents(reserved), false).is_err()
            {
                break;
            }
            space.take_own(reserved.start());
            own_memory::scribble(reserved);
            moved += 1;
        }
        self.wake_pages(process, to.start()..to.start() + moved * PAGE_SIZE);
        let is_miscounted = moved > 0 && self.draws.one_in(self.config.machine.miscounts_one_in);
        if is_miscounted { self.draws.index(moved) } else { moved }
    }

    pub(super) fn fill_from_frame(
        &mut self,
        process: usize,
        to: TargetRange,
        from: FrameRange<'_>,
    ) -> Result<usize> {
        let faults = self.processes[process].faults();
        if self.processes[process].space.own(from.start()).is_none() {
            self.fail(format!("an empty frame is copied to {:#x}", to.start()));
        }
        let contents = own_memory::contents(from);
        self.fill_pages(process, pages_of(to), faults, |world, _, page| {
            world.processes[process].space.fill(&mut world.physical, page, &contents, false)
        })
    }

    pub(super) fn copy_out(&mut self, process: usize, to: FrameRange<'_>, page: u64) -> Result<()> {
        let space = &mut self.processes[process].space;
        let protection = space.get(page).map(|mapped| mapped.attributes.protection);
        if protection.is_none_or(|protection| protection == crate::space::Protection::None) {
            return Err(Errno::FAULT);
        }
        if space.own(to.start()).is_some() {
            self.fail(format!("page {page:#x} is copied to a frame that holds another"));
            return Err(Errno::EXIST);
        }
        let contents = match space.entry(page) {
            Entry::Frame { id, .. } => self.physical.page(id),
            Entry::Zero { .. } => &ZEROS,
            Entry::Missing | Entry::Poisoned => return Err(Errno::FAULT),
        };
        own_memory::fill(to, contents);
        space.set_own(to.start(), Own { is_exclusive: true, is_zero: false });
        Ok(())
    }
}
