//! Devices that hold pages of a program, and read or write them whatever the page table says.
//!
//! In inline mode the hooks see the calls by which a device comes to memory, before the kernel does. One by
//! which a device keeps memory (a ring of io_uring, a request to a driver) ends inline mode first. One that
//! ends when the device has done (O_DIRECT) holds its memory; `VmPin` does not tell of that, for the kernel
//! counts pins that last (`io_buffer_account_pin`, `ib_umem_get`) and no others (`iov_iter_extract_pages`).
//! So what a device keeps in inline mode it was given before the pager came.

use spillway_pager::space::holds::Frame;

use crate::access::{Reached, reach_in_system_call};
use crate::actor::{Actor, bytes};
use crate::contents::{PARTS, write_part};
use crate::program::Pin;
use crate::space::Access;
use crate::world::{World, turn, with};

/// Of so many requests in inline mode one is for a device that keeps memory.
const KEEPS_ONE_IN: u64 = 60;
/// Turns of a transfer.
const MOST_TRANSFER_TURNS: u64 = 40;

impl Actor {
    pub(super) fn pin(&mut self) {
        let goes_on = with(|world| {
            let process = &mut world.processes[self.process];
            if process.program.pins.len() > 12 || !process.program.pins.is_empty() && world.draws.one_in(3) {
                let pin = process.program.pins.swap_remove(world.draws.index(process.program.pins.len()));
                world.physical.unpin(pin.frame);
                return false;
            }
            if !process.program.pins.is_empty() && world.draws.one_in(2) {
                world.use_by_device(self.process);
                return false;
            }
            true
        });
        if !goes_on {
            return turn();
        }
        if self.is_inline() {
            if !with(|world| world.draws.one_in(KEEPS_ONE_IN)) {
                return self.transfer();
            }
            self.leave_inline();
            if self.is_inline() {
                return;
            }
        }
        self.give_to_device();
    }

    fn is_inline(&self) -> bool {
        with(|world| world.processes[self.process].is_inline)
    }

    /// A device is given a page to keep.
    fn give_to_device(&self) {
        let page = with(|world| {
            let process = &mut world.processes[self.process];
            Some((process.program.pick_page(true, &mut world.draws)?, world.draws.one_in(2)))
        });
        let Some((page, writes)) = page else { return turn() };
        with(|world| world.processes[self.process].program.begin_use(page, true));
        let process = self.process;
        let reached = crate::access::reach(process, page, writes, |world| {
            world.check_read(process, page);
            let frame = world.processes[process].space.frame(page);
            // The kernel gives a device no frame to read that another process has too, nor the one of zeros.
            if let Some(frame) = frame.filter(|&frame| writes || world.physical.mappings(frame) == 1) {
                world.pin_for_device(process, Pin { page, frame, writes });
            }
        });
        with(|world| {
            if reached == Reached::Bus {
                world.check_refusal(process, page);
            }
            world.processes[process].program.end_use(page, true);
        });
    }

    /// A system call of inline mode in which a device writes to a page: held until it ends, and pinned.
    fn transfer(&self) {
        let Some(inline) = self.pager.inline else { return };
        let process = self.process;
        let page = with(|world| {
            let program = &mut world.processes[process].program;
            let page = program.pick_page(true, &mut world.draws)?;
            program.begin_use(page, true);
            Some(page)
        });
        let Some(page) = page else { return turn() };
        if let Some(hold) = inline.hold(Frame::default()) {
            let mut room = usize::MAX;
            let is_ready = inline.make_ready(bytes(page)..bytes(page + 1), Some(&hold), &mut room);
            let access = is_ready.then(|| reach_in_system_call(process, page, true));
            match access {
                Some(Access::Done) => self.transfer_to(page),
                Some(Access::Bus) => with(|world| world.check_refusal(process, page)),
                Some(access) => with(|world| {
                    world
                        .fail(format!("a transfer finds page {page:#x} missing, which it holds: {access:?}"));
                }),
                None => {}
            }
            drop(hold);
        }
        with(|world| world.processes[process].program.end_use(page, true));
    }

    fn transfer_to(&self, page: u64) {
        let process = self.process;
        let begun = with(|world| {
            let frame = world.processes[process].space.frame(page)?;
            let pin = Pin { page, frame, writes: true };
            world.physical.pin_for_call(frame);
            world.count("transfers");
            world.note(94, page, || format!("a transfer pins page {page:#x}"));
            world.processes[process].program.transfers.push(pin);
            Some((pin, world.draws.within(0..=MOST_TRANSFER_TURNS)))
        });
        let Some((pin, turns)) = begun else { return };
        (0..turns).for_each(|_| turn());
        with(|world| {
            world.use_pinned(process, pin);
            let transfers = &mut world.processes[process].program.transfers;
            if let Some(index) = transfers.iter().position(|transfer| *transfer == pin) {
                transfers.swap_remove(index);
                world.physical.unpin_after_call(pin.frame);
            }
        });
    }
}

impl World {
    fn pin_for_device(&mut self, process: usize, pin: Pin) {
        self.physical.pin(pin.frame);
        self.had_pins = true;
        self.count("pins");
        self.note(92, pin.page, || format!("a device pins page {:#x}", pin.page));
        self.processes[process].program.pins.push(pin);
    }

    /// Before the pager comes a device may be given a page that was written to.
    pub(super) fn give_to_device_early(&mut self, process: usize, page: u64) {
        if !self.processes[process].is_inline || self.config.habits.pin == 0 || !self.draws.one_in(8) {
            return;
        }
        if let Some(frame) = self.processes[process].space.frame(page) {
            let writes = self.draws.one_in(2);
            self.pin_for_device(process, Pin { page, frame, writes });
        }
    }

    /// A device reads or writes a page that it keeps.
    fn use_by_device(&mut self, process: usize) {
        let pins = &self.processes[process].program.pins;
        let pin = pins[self.draws.index(pins.len())];
        if !self.processes[process].program.is_claimed(pin.page) {
            self.use_pinned(process, pin);
        }
    }

    /// A device reads or writes a page that it holds, whatever the page table says.
    fn use_pinned(&mut self, process: usize, pin: Pin) {
        if self.processes[process].space.frame(pin.page) != Some(pin.frame) {
            let entry = self.processes[process].space.entry(pin.page);
            self.fail(format!(
                "page {:#x} was taken from under a device that holds it: its entry says {entry:?}",
                pin.page
            ));
            return;
        }
        if !pin.writes {
            return self.check_read(process, pin.page);
        }
        let part = self.draws.index(PARTS);
        let tag = self.next_tag(process, pin.page);
        write_part(self.physical.page_mut(pin.frame), part, tag);
        self.processes[process].shadow.get_mut(pin.page).tags[part] = tag;
        self.count("writes by devices");
        self.note(95, pin.page, || format!("a device writes {tag} to part {part} of page {:#x}", pin.page));
    }
}
