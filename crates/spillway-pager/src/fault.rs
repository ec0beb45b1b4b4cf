//! Serving page faults.

use spillway_core::page::PAGE_SIZE;
use spillway_core::page_word::{PageInfo, PageWord, State};
use spillway_core::transitions::{Service, served, service};
use spillway_sys::uffd::Fault;

use rustix::io::Errno;

use crate::engine::{Failure, Lost, Worker, address_of, now_ns, page_number_of};
use crate::message;
use crate::run_state::Counter;

/// What a fault was raised by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
    /// A write to a page that is there but protected.
    Protected,
}

impl From<Fault> for Access {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault { write_protected: true, .. } => Self::Protected,
            Fault { write: true, .. } => Self::Write,
            _ => Self::Read,
        }
    }
}

impl Worker {
    /// Answers one fault; false when the page cannot be had. When paging is frozen it is left unanswered: the thaw wakes
    /// everybody.
    pub fn serve_fault(&mut self, fault: Fault) -> bool {
        let engine = self.engine;
        let Some(_pass) = engine.gate.enter() else { return true };
        let started_ns = now_ns();
        if engine.frames.contains(fault.address) {
            // Only we look into frames, and only into full ones: an answer of zeros would be a lie.
            self.refuse(page_number_of(fault.address), &Lost::EmptyFrame);
            return false;
        }
        let page_number = page_number_of(fault.address);
        self.faulting_thread = fault.thread_id;
        self.answered_ns.set(None);
        self.make_room_ahead();
        let served = match engine.table.find_or_make(page_number) {
            Ok(word) => self.serve_page(page_number, word, fault),
            Err(error) => {
                let lost = Lost::Kernel { what: "give memory for the page table", error };
                self.refuse(page_number, &lost);
                false
            }
        };
        let answered_ns = self.answered_ns.take().unwrap_or_else(now_ns);
        self.at.run.fault_latency().record(answered_ns - started_ns);
        served
    }

    /// Notes that a fault is about to be answered. Who leads gives way to the thread that it wakes, and would count that
    /// thread's time as its own.
    pub(crate) fn note_answer(&self) {
        if self.at.readers.are_led() {
            self.answered_ns.set(Some(now_ns()));
        }
    }

    fn serve_page(&mut self, page_number: u64, word: PageWord<'_>, fault: Fault) -> bool {
        let Some(info) = word.lock_or_leave_waiter() else { return true };
        let service = service(info);
        match self.perform(page_number, info, service, fault.into()) {
            Ok(next) => {
                self.unlock(page_number, word, next);
                if next.generation != info.generation {
                    self.engine.enqueue(page_number, next);
                }
                service != Service::Refuse
            }
            Err(Failure::Retry) => {
                // Locked by us until now, so the fault itself counts as a waiter.
                let _ = word.unlock(info);
                let _ = self.at.managed().wake(fault.address, PAGE_SIZE);
                true
            }
            Err(Failure::Lost(lost)) => {
                self.at.run.count(Counter::FaultsRefused, 1);
                self.refuse(page_number, &lost);
                // A page that lies in its frame, or is stored but finds no room, is not lost with this access.
                let kept = info.is_local() || matches!(lost, Lost::NoRoom { .. });
                let state = if kept { info.state } else { State::Poisoned };
                self.unlock(page_number, word, PageInfo { state, ..info });
                false
            }
        }
    }

    /// Does what the fault needs and returns the page as it is then.
    pub(crate) fn perform(
        &mut self,
        page_number: u64,
        info: PageInfo,
        service: Service,
        access: Access,
    ) -> Result<PageInfo, Failure> {
        let mut next = served(info, service, State::Proactive);
        let run = self.at.run;
        match service {
            Service::MapZeros => {
                run.count(Counter::FaultsFirstTouch, 1);
                return self.first_touch(page_number, info, access);
            }
            Service::Fetch(slot) => {
                run.count(Counter::FaultsFetch, 1);
                return self.fetch_block(page_number, info, slot, access);
            }
            Service::Remap(frame) => {
                run.count(Counter::FaultsInactive, 1);
                self.remap(page_number, frame)?;
            }
            Service::CopyBack(frame) => {
                run.count(Counter::FaultsWriteback, 1);
                // The write-back may wait for this page, so this page must not wait for memory.
                if !self.try_charge(1) {
                    std::thread::sleep(std::time::Duration::from_micros(100));
                    return Err(Failure::Retry);
                }
                self.map_copy_charged(page_number, self.engine.frames.address(frame), true)?;
            }
            Service::LetRetry => {
                run.count(Counter::FaultsOther, 1);
                next = self.let_retry(page_number, info, access)?;
            }
            Service::Refuse => {
                run.count(Counter::FaultsRefused, 1);
                self.poison(page_number);
            }
        }
        Ok(next)
    }

    /// Maps a copy of the page at `from`, which is charged already; given back on failure if `charged` for this.
    pub(crate) fn map_copy_charged(
        &mut self,
        page_number: u64,
        from: usize,
        charged: bool,
    ) -> Result<(), Failure> {
        let outcome = self.at.managed().copy(address_of(page_number), from, PAGE_SIZE);
        self.settle_mapping(page_number, outcome, charged)
    }

    /// What to do when a page was mapped, or could not be.
    pub(crate) fn settle_mapping(
        &self,
        page_number: u64,
        outcome: rustix::io::Result<()>,
        charged: bool,
    ) -> Result<(), Failure> {
        match outcome {
            Ok(()) => Ok(()),
            // There already, unmanaged until now: it counts from here on.
            Err(Errno::EXIST) => {
                let _ = self.at.managed().wake(address_of(page_number), PAGE_SIZE);
                Ok(())
            }
            Err(error) => {
                if charged {
                    self.at.release_local(1);
                }
                match error {
                    // The mapping has just gone, or is changing: the access will find out by itself.
                    Errno::NOENT | Errno::AGAIN | Errno::SRCH => Err(Failure::Retry),
                    error => Err(Lost::Kernel { what: "map a page", error }.into()),
                }
            }
        }
    }

    /// Maps a page's own frame again.
    pub(crate) fn remap(&mut self, page_number: u64, frame: u32) -> Result<(), Failure> {
        let (to, from) = (address_of(page_number), self.engine.frames.address(frame));
        self.note_answer();
        match self.at.managed().move_from_frame(to, from) {
            Ok(()) => {
                self.engine.frames.give_back(frame, 1);
                Ok(())
            }
            // Shared with a forked process, or protections differ: a copy will do. Two copies for a moment.
            Err(Errno::BUSY | Errno::INVAL | Errno::AGAIN | Errno::NOENT) => {
                self.map_copy_charged(page_number, from, false)?;
                self.engine.frames.discard(&mut [frame]);
                Ok(())
            }
            Err(error) => Err(Lost::Kernel { what: "move a page back", error }.into()),
        }
    }

    fn let_retry(&mut self, page_number: u64, info: PageInfo, access: Access) -> Result<PageInfo, Failure> {
        let address = address_of(page_number);
        if access == Access::Protected {
            return Ok(self.unprotect(page_number, info));
        }
        match self.map_zeros(page_number, access) {
            // Nothing was there: the program has discarded the page past our hooks, and reads zeros.
            Ok(()) => {
                self.at.run.count(Counter::PagesFoundGone, 1);
                self.drop_slot(info.slot);
                Ok(PageInfo { slot: None, ..info })
            }
            Err(_) => {
                let _ = self.at.managed().wake(address, PAGE_SIZE);
                Ok(info)
            }
        }
    }

    /// Answers a page's faults with SIGBUS, and says why.
    pub(crate) fn refuse(&mut self, page_number: u64, lost: &Lost) {
        let address = address_of(page_number);
        message::to_program(&format!(
            "page at {address:#x} cannot be had, so the program gets SIGBUS: {lost}"
        ));
        self.poison(page_number);
    }

    /// In inline mode the faulting thread has its signal already.
    fn poison(&mut self, page_number: u64) {
        if self.at.is_inline() {
            return;
        }
        let address = address_of(page_number);
        if self.at.managed().poison(address, PAGE_SIZE).is_err() {
            let _ = self.at.managed().wake(address, PAGE_SIZE);
        }
    }
}
