//! Serving page faults: the word is locked, what the state needs is done, the word unlocked.

use std::time::Duration;

use spillway_core::page_word::{PageInfo, PageState, PageWord};
use spillway_core::transitions::{Service, re_referenced, service};
use spillway_policy::fault_trace::{self, Event, Served};
use spillway_store::{Notice, NoticeKind};
use spillway_sys::uffd::Fault;

use crate::fault::access::Access;
use crate::kernel::{Kernel, planted};
use crate::pages::address::{address_of, page_number_of, target};
use crate::pages::error::{Failure, PageError};
use crate::process::worker::Worker;
use crate::run::state::Counter;

impl<K: Kernel> Worker<K> {
    /// Answers one fault; false when the page cannot be had. When paging is frozen it is left unanswered: the
    /// thaw wakes everybody.
    pub fn serve_fault(&mut self, fault: Fault) -> bool {
        let engine = self.engine;
        let Some(_pass) = engine.enter() else { return true };
        if self.is_in_program && !self.at.kernel.is_inline() {
            // Left meanwhile: the access goes to the handlers now, and what this worker works with may be the
            // program's by now.
            return true;
        }
        let started_ns = K::now_ns();
        if engine.frames.contains(fault.address) {
            // Only we look into frames, and only into full ones: an answer of zeros would be a lie.
            self.refuse(page_number_of(fault.address), &PageError::EmptyFrame);
            return false;
        }
        let page_number = page_number_of(fault.address);
        self.faulting_thread = fault.thread_id;
        self.answered_ns.set(None);
        self.away_pages.set(None);
        let needs_no_room = self.keeps_inactive() && self.is_inactive(page_number);
        if !needs_no_room && !self.will_overlap(page_number) {
            self.make_room_ahead();
        }
        self.meet_stage(page_number);
        let served = match engine.table.find_or_make(page_number) {
            Ok(word) => self.serve_page(page_number, word, fault),
            Err(error) => {
                let lost = PageError::Kernel { what: "give memory for the page table", error };
                self.refuse(page_number, &lost);
                false
            }
        };
        let answered_ns = self.answered_ns.take().unwrap_or_else(K::now_ns);
        self.at.run.note_fault(self.at.entry, answered_ns - started_ns);
        if let Some(away_pages) = self.away_pages.take() {
            self.at.run.returns().note(away_pages, answered_ns - started_ns);
            self.unsampled_ns += answered_ns - started_ns;
        }
        served
    }

    /// Notes that a fault is about to be answered. Who leads gives way to the thread that it wakes, and would
    /// count that thread's time as its own.
    pub(crate) fn note_answer(&self) {
        if self.at.handlers.are_led() {
            self.answered_ns.set(Some(K::now_ns()));
        }
    }

    fn serve_page(&mut self, page_number: u64, word: PageWord<'_>, fault: Fault) -> bool {
        K::turn();
        let Some(info) = word.lock_or_leave_waiter() else { return true };
        K::turn();
        let service = service(info);
        self.engine.note(|| noted(page_number, service, fault.into()));
        match self.perform(page_number, info, service, fault.into()) {
            Ok(next) => {
                self.note_used(page_number);
                self.unlock(page_number, word, next);
                if next.generation != info.generation && !planted!(K, "served-page-not-queued") {
                    self.enqueue(page_number, next);
                }
                service != Service::Refuse
            }
            Err(Failure::Retry) => {
                // Locked by us until now, so the fault itself counts as a waiter.
                let _ = word.unlock(info);
                if !planted!(K, "wake-lost-on-retry") {
                    let _ = self.at.kernel.wake(target(page_number, 1));
                }
                true
            }
            Err(Failure::Refused(error)) => {
                self.at.run.count_of(self.at.entry, Counter::FaultsRefused, 1);
                self.refuse(page_number, &error);
                // A page that lies in its frame, or is stored but finds no room, is not lost with this
                // access.
                let kept = info.is_local() || matches!(error, PageError::NoRoom { .. });
                let forgets = planted!(K, "poison-forgotten");
                let lost =
                    if forgets { PageState::Absent } else { PageState::Poisoned { slot: info.slot() } };
                let state = if kept { info.state } else { lost };
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
        let (run, entry) = (self.at.run, self.at.entry);
        match service {
            Service::MapZeros => {
                run.count_of(entry, Counter::FaultsFirstTouch, 1);
                self.first_touch(page_number, info, access)
            }
            Service::Fetch(slot) => {
                run.count_of(entry, Counter::FaultsFetch, 1);
                self.sample_site();
                if let PageState::Far { left, .. } = info.state {
                    self.away_pages.set(Some(self.engine.departures.since(left)));
                }
                self.fetch_block(page_number, info, slot, access)
            }
            Service::Remap(frame) => {
                run.count_of(entry, Counter::FaultsInactive, 1);
                self.remap(page_number, frame)?;
                if planted!(K, "touched-page-stays-inactive") {
                    return Ok(info);
                }
                self.note_re_reference(page_number);
                self.rescue_block(page_number);
                Ok(re_referenced(info))
            }
            Service::CopyBack(frame) => {
                run.count_of(entry, Counter::FaultsWriteback, 1);
                // The write-back may wait for this page, so this page must not wait for memory.
                if !self.try_charge(1) {
                    K::sleep(Duration::from_micros(100));
                    return Err(Failure::Retry);
                }
                self.copy_back(page_number, frame, true)?;
                if planted!(K, "frame-freed-while-written") {
                    self.engine.frames.discard(&self.at.kernel, &mut [frame]);
                }
                Ok(re_referenced(info))
            }
            Service::LetRetry => {
                run.count_of(entry, Counter::FaultsOther, 1);
                Ok(self.let_retry(page_number, info, access))
            }
            Service::Refuse => {
                run.count_of(entry, Counter::FaultsRefused, 1);
                self.poison(page_number);
                Ok(info)
            }
        }
    }

    fn let_retry(&mut self, page_number: u64, info: PageInfo, access: Access) -> PageInfo {
        if access == Access::Protected {
            let info = self.unprotect(page_number, info);
            return self.without_stale_copy(info);
        }
        match self.map_zeros(page_number, access) {
            // Nothing was there: the program has discarded the page past our hooks, and reads zeros.
            Ok(()) => {
                self.at.run.count(Counter::PagesFoundGone, 1);
                self.drop_slot(info.slot());
                info.without_slot()
            }
            Err(_) => {
                let _ = self.at.kernel.wake(target(page_number, 1));
                info
            }
        }
    }

    /// Answers a page's faults with SIGBUS, and says why.
    pub(crate) fn refuse(&mut self, page_number: u64, error: &PageError) {
        let address = address_of(page_number);
        let reason = error.to_string();
        let text = format!("page at {address:#x} cannot be had, so the program gets SIGBUS: {reason}");
        self.tell(&Notice::new(NoticeKind::PageRefused, &text).because(&reason).number(address as u64));
        self.poison(page_number);
    }

    /// In inline mode the faulting thread has its signal already.
    fn poison(&mut self, page_number: u64) {
        let kernel = &self.at.kernel;
        if kernel.is_inline() {
            return;
        }
        let page = target(page_number, 1);
        if kernel.poison(page).is_err() {
            let _ = kernel.wake(page);
        }
    }
}

/// A fault, as a fault trace has it.
fn noted(page_number: u64, service: Service, access: Access) -> Event {
    let served = match service {
        Service::MapZeros => Served::FirstTouch,
        Service::Fetch(_) => Served::Fetch,
        Service::Remap(_) => Served::Inactive,
        Service::CopyBack(_) => Served::Writeback,
        Service::LetRetry | Service::Refuse => Served::Other,
    };
    Event::Fault(fault_trace::Fault { page_number, access: access.into(), served })
}
