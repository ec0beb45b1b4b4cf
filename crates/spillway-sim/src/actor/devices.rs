//! Devices that hold pages of a program, and read or write them whatever the page table says.

use crate::access::Reached;
use crate::actor::Actor;
use crate::contents::{PARTS, write_part};
use crate::program::Pin;
use crate::world::{World, turn, with};

impl Actor {
    pub(super) fn pin(&self) {
        let page = with(|world| {
            let process = &mut world.processes[self.process];
            if process.program.pins.len() > 12 || !process.program.pins.is_empty() && world.draws.one_in(3) {
                let pin = process.program.pins.swap_remove(world.draws.index(process.program.pins.len()));
                world.physical.unpin(pin.frame);
                return None;
            }
            if !process.program.pins.is_empty() && world.draws.one_in(2) {
                world.use_by_device(self.process);
                return None;
            }
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
                world.physical.pin(frame);
                world.had_pins = true;
                world.count("pins");
                world.note(92, page, || format!("a device pins page {page:#x}"));
                world.processes[process].program.pins.push(Pin { page, frame, writes });
            }
        });
        with(|world| {
            if reached == Reached::Bus {
                world.check_refusal(process, page);
            }
            world.processes[process].program.end_use(page, true);
        });
    }
}

impl World {
    /// A device reads or writes a page that it holds, whatever the page table says.
    fn use_by_device(&mut self, process: usize) {
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
