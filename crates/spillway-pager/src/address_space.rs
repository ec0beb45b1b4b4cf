//! What the program does to its address space, seen from the pager: mapping, unmapping, discarding, moving.
//! Each of these runs on a pager thread, on behalf of a hook that waits.

use std::ops::Range;
use std::sync::atomic::Ordering;

use rustix::io::Errno;
use spillway_core::page::PAGE_SIZE;
use spillway_core::page_word::{PageInfo, PageWord, State};
use spillway_core::transitions::{Service, service};
use spillway_sys::memory;
use spillway_sys::uffd::{Fault, RegisterMode};

use crate::calls::{Operation, Request, TRY_AGAIN};
use crate::charge::Comes;
use crate::engine::{Failure, Lost, Remap, Worker, page_number_of};
use crate::fork::ForkUses;
use crate::message;
use crate::regions::OnFork;
use crate::run_state::{Child, Counter};

const LEAF_BYTES: usize = 2 << 20;

pub(crate) fn fault_mode() -> RegisterMode {
    RegisterMode::MISSING | RegisterMode::WRITE_PROTECT
}

fn pages(range: &Range<usize>) -> (u64, u64) {
    (page_number_of(range.start), page_number_of(range.end))
}

impl Worker {
    /// Does what a hook asks for.
    pub fn serve_call(&mut self, request: Request) -> usize {
        let [a, b, c, d, e, f] = request.arguments;
        match request.operation {
            Operation::ForkBegin => {
                return self.begin_fork(&ForkUses { lived_in: [a, b, c], numbers: [d, e, f] });
            }
            Operation::ForkEnd => {
                self.end_fork(a as u32, Child::from_word(b));
                return 0;
            }
            Operation::Serve => {
                let (write, write_protected) = (b & 1 != 0, b & 2 != 0);
                let fault = Fault { address: a, write, write_protected, thread_id: 0 };
                return usize::from(!self.serve_fault(fault));
            }
            _ => {}
        }
        let Some(_pass) = self.engine.gate.enter() else { return TRY_AGAIN };
        match request.operation {
            Operation::Map => usize::from(self.map_or_leave(a..a + b, c != 0)),
            Operation::Forget => self.forget(a..a + b),
            Operation::Discard => self.discard(a..a + b),
            Operation::RemapBegin => self.begin_remap(a..a + b),
            Operation::RemapEnd => self.end_remap(a..a + b, c..c + d),
            Operation::Grown => self.grown(a, b..b + c),
            Operation::Adopt => self.adopt(a..a + b),
            Operation::Unmanage => self.unmanage(a..a + b),
            Operation::SetOnFork => {
                let wish = [OnFork::Keep, OnFork::Wipe, OnFork::Drop][c.min(2)];
                self.manage_native(&(a..a + b));
                self.engine.regions().set_on_fork(&(a..a + b), wish);
                self.set_inherited(false);
                0
            }
            Operation::CountUnmanaged => {
                self.at.run.count(Counter::UnmanagedBytes, a as u64);
                0
            }
            Operation::LeaveInline => self.leave_inline(),
            Operation::ForkBegin | Operation::ForkEnd | Operation::Serve => 0,
        }
    }

    /// Takes note of a fresh mapping. False when its pages will not count.
    fn map_or_leave(&mut self, range: Range<usize>, may_be_native: bool) -> bool {
        self.forget(range.clone());
        (may_be_native && self.leave_native(&range)) || self.map(range)
    }

    /// Manages a fresh mapping. False when the kernel will not have it, and it stays unmanaged.
    pub(crate) fn map(&mut self, range: Range<usize>) -> bool {
        // What was here before may have been unmapped past our hooks.
        self.sweep(&range);
        let mut regions = self.engine.regions();
        let registered = self.at.managed().register(range.start, range.len(), fault_mode()).is_ok();
        if registered {
            // A child made past our hooks would read zeros where pages are far: it gets nothing here, and a SIGSEGV.
            let _ = memory::inherit(range.start, range.len(), false);
            regions.insert(range, OnFork::Keep);
        } else {
            self.at.run.count(Counter::UnmanagedBytes, range.len() as u64);
        }
        registered
    }

    /// Manages the new end of a mapping if its beginning is managed.
    fn grown(&mut self, start: usize, end: Range<usize>) -> usize {
        let first = start..start + PAGE_SIZE;
        if self.is_native(&first) {
            return usize::from(self.map_or_leave(end, true));
        }
        let on_fork = self.engine.regions().within(&first).first().map(|(_, wish)| *wish);
        let Some(on_fork) = on_fork else { return 0 };
        let managed = self.map(end.clone());
        if managed {
            self.engine.regions().set_on_fork(&end, on_fork);
        }
        usize::from(managed)
    }

    /// Manages a mapping that has contents already.
    fn adopt(&mut self, range: Range<usize>) -> usize {
        if !self.map(range.clone()) {
            return 0;
        }
        let Some(populated) = self.populated_pages(&range) else {
            return self.give_up("read the page map", Errno::ACCESS);
        };
        let mut adopted = 0;
        for page_number in populated {
            // Before main, so nothing else runs; a limit below what the program starts with is refused there.
            if self.charge(1, Comes::New).is_err() {
                continue;
            }
            if self.queue_active(page_number) {
                adopted += 1;
            } else {
                self.at.release_local(1);
            }
        }
        self.at.add_managed(adopted);
        adopted as usize
    }

    /// Ends the management of a range that is about to go. Returns how many of its pages had contents.
    ///
    /// The registration goes first: from then on the kernel refuses to map a page here, so a fault's message that
    /// was read long ago cannot bring a word back to life which nobody would ever clear. Invariant: a page whose
    /// word is not absent is registered, but for the time between these two steps.
    pub(crate) fn forget(&mut self, range: Range<usize>) -> usize {
        self.forget_native(&range);
        let parts = self.engine.regions().take(&range);
        let mut held = 0;
        for (part, _) in parts {
            let _ = self.at.managed().unregister(part.start, part.len());
            held += self.sweep(&part);
        }
        held
    }

    /// Makes every page of a range absent and gives back what it held. Returns how many held something.
    fn sweep(&mut self, range: &Range<usize>) -> usize {
        let (from, to) = pages(range);
        let engine = self.engine;
        let mut gone = Gone::default();
        for (page_number, word) in engine.table.range(from, to) {
            let info = self.lock(word);
            self.let_go(info, &mut gone);
            self.unlock(page_number, word, PageInfo { generation: info.generation, ..PageInfo::ABSENT });
        }
        let held = gone.managed as usize;
        self.settle(gone);
        held
    }

    /// Drops the contents of what is native or managed of a range: it reads as zeros afterwards. Returns how many bytes
    /// that are.
    fn discard(&mut self, range: Range<usize>) -> usize {
        let native = self.discard_native(&range);
        let parts = self.engine.regions().within(&range);
        let managed = parts.iter().map(|(part, _)| part.len()).sum::<usize>();
        for (part, _) in parts {
            let mut start = part.start;
            while start < part.end {
                let end = part.end.min((start / LEAF_BYTES + 1) * LEAF_BYTES);
                self.discard_within_leaf(start..end);
                start = end;
            }
        }
        managed + native
    }

    fn discard_within_leaf(&mut self, range: Range<usize>) {
        let (from, to) = pages(&range);
        let locked = self.lock_all(from, to);
        if locked.is_empty() {
            return;
        }
        let _ = memory::discard(range.start, range.len());
        let mut gone = Gone::default();
        for (page_number, word, info) in locked {
            self.let_go(info, &mut gone);
            self.unlock(page_number, word, PageInfo { generation: info.generation, ..PageInfo::ABSENT });
        }
        self.settle(gone);
    }

    /// Locks every page of a range that has a word. Waits for none while it holds another, since whoever holds that one
    /// may be waiting for room.
    fn lock_all(&self, from: u64, to: u64) -> Vec<(u64, PageWord<'static>, PageInfo)> {
        let engine = self.engine;
        loop {
            let mut locked = Vec::new();
            let all = engine.table.range(from, to).all(|(page_number, word)| {
                let info = word.try_lock();
                locked.extend(info.map(|info| (page_number, word, info)));
                info.is_some()
            });
            if all {
                return locked;
            }
            locked.into_iter().for_each(|(page_number, word, info)| self.unlock(page_number, word, info));
            std::thread::sleep(std::time::Duration::from_micros(50));
        }
    }

    /// Notes what a page held that the program gives up. Its word is locked and becomes absent.
    fn let_go(&mut self, info: PageInfo, gone: &mut Gone) {
        match info.state {
            State::Active | State::Proactive => {
                gone.local += 1;
                self.drop_slot(info.slot);
            }
            State::Inactive => {
                gone.local += 1;
                gone.frames.push(info.frame);
                self.drop_slot(info.slot);
            }
            State::Far => self.drop_slot(info.slot),
            // Slot and frame belong to the write-back, which finds the page gone and gives them back.
            State::Writeback | State::Absent | State::Poisoned => {}
        }
        if info.state != State::Absent {
            gone.managed += 1;
        }
    }

    fn settle(&mut self, mut gone: Gone) {
        self.engine.frames.discard(&mut gone.frames);
        self.at.release_local(gone.local);
        self.at.remove_managed(gone.managed);
    }

    /// Takes the pages of a range out of management for the time of an mremap(2) that may move them: what each holds
    /// is kept aside. Registration goes first, as in [`Self::forget`]. Nothing stays locked, since as soon as the
    /// kernel has moved the mapping, another thread may map something else here.
    fn begin_remap(&mut self, range: Range<usize>) -> usize {
        let engine = self.engine;
        if self.is_native(&range) {
            self.lift_native(&range);
            let (parts, words) = (Vec::new(), Vec::new());
            engine.remaps().push(Remap { range, parts, words, is_native: true });
            return 0;
        }
        self.manage_native(&range);
        let parts = engine.regions().take(&range);
        let mut words = Vec::new();
        for (part, _) in &parts {
            let _ = self.at.managed().unregister(part.start, part.len());
            let (from, to) = pages(part);
            for (page_number, word) in engine.table.range(from, to) {
                let info = self.lock_settled(page_number, word);
                if info.state != State::Absent {
                    words.push((page_number, info));
                }
                self.unlock(page_number, word, PageInfo { generation: info.generation, ..PageInfo::ABSENT });
            }
        }
        engine.remaps().push(Remap { range, parts, words, is_native: false });
        0
    }

    /// Locks a page that is not under write-back.
    fn lock_settled(&self, page_number: u64, word: PageWord<'_>) -> PageInfo {
        loop {
            let info = self.lock(word);
            if info.state != State::Writeback {
                return info;
            }
            self.unlock(page_number, word, info);
            std::thread::sleep(std::time::Duration::from_micros(50));
        }
    }

    /// Puts the pages where mremap(2) has put their mapping. `new` starts at 0 when it failed.
    fn end_remap(&mut self, old: Range<usize>, new: Range<usize>) -> usize {
        let remap = {
            let mut remaps = self.engine.remaps();
            let index = remaps.iter().position(|remap| remap.range == old);
            index.map(|index| remaps.swap_remove(index))
        };
        let Some(Remap { parts, words, is_native, .. }) = remap else { return 0 };
        if is_native {
            self.put_native(if new.start == 0 { old.clone() } else { new }, old.len());
            return 0;
        }
        let Some(&(_, on_fork)) = parts.first() else { return 0 };
        let (to, regions) =
            if new.start == 0 { (old.clone(), parts) } else { (new.clone(), vec![(new, on_fork)]) };
        for (range, on_fork) in regions {
            if let Err(error) = self.at.managed().register(range.start, range.len(), fault_mode()) {
                return self.give_up("register a mapping that has moved", error);
            }
            self.engine.regions().insert(range, on_fork);
        }
        let mut gone = Gone::default();
        for (page_number, info) in words {
            let address = (page_number as usize) * PAGE_SIZE - old.start + to.start;
            if address < to.end {
                self.put_word(page_number_of(address), info);
            } else {
                self.let_go(info, &mut gone);
            }
        }
        self.settle(gone);
        0
    }

    fn put_word(&mut self, page_number: u64, info: PageInfo) {
        // Its protection went with the registration.
        let info = if info.is_mapped() { info.protected_in(0) } else { info };
        if let Some(slot) = info.slot {
            self.at.run.slots().forget_page(slot);
        }
        match self.engine.table.find_or_make(page_number) {
            Ok(word) => {
                let there = self.lock(word);
                let next = PageInfo { generation: there.generation, ..info }.queued_as(info.state);
                self.unlock(page_number, word, next);
                if info.is_local() {
                    self.engine.enqueue(page_number, next);
                }
            }
            Err(error) => {
                self.give_up("give memory for the page table", error);
            }
        }
    }

    /// Contents can no longer be told apart from zeros: the program must not go on.
    fn give_up(&self, what: &'static str, error: Errno) -> usize {
        let lost = Lost::Kernel { what, error };
        message::to_program(&format!("{lost}; the program is stopped before it reads wrong data"));
        message::stop_program()
    }

    /// Brings all pages of a range in and ends its management, before the program locks it in memory.
    fn unmanage(&mut self, range: Range<usize>) -> usize {
        // What is native is in already; managed for a moment, it is counted like the rest.
        self.manage_native(&range);
        self.engine.leaving_ranges.fetch_add(1, Ordering::AcqRel);
        let parts = self.engine.regions().take(&range);
        for (part, on_fork) in parts {
            let engine = self.engine;
            let (from, to) = pages(&part);
            let mut gone = Gone::default();
            // All words stay locked until the range is not registered any more, so that none comes to life again.
            for page_number in from..to {
                let Ok(word) = engine.table.find_or_make(page_number) else { continue };
                let info = self.lock_settled(page_number, word);
                if let Ok(local) = self.bring_in(page_number, info) {
                    gone.local += u64::from(local);
                    gone.managed += u64::from(info.state != State::Absent);
                    self.drop_slot(info.slot);
                }
            }
            let _ = self.at.managed().unregister(part.start, part.len());
            for (page_number, word) in engine.table.range(from, to) {
                let generation = word.peek().generation;
                self.unlock(page_number, word, PageInfo { generation, ..PageInfo::ABSENT });
            }
            self.settle(gone);
            if on_fork != OnFork::Drop {
                let _ = memory::inherit(part.start, part.len(), true);
            }
            self.at.run.count(Counter::UnmanagedBytes, part.len() as u64);
        }
        self.engine.leaving_ranges.fetch_sub(1, Ordering::AcqRel);
        0
    }

    /// Makes a locked page local and mapped without charging it. True when it was charged before.
    fn bring_in(&mut self, page_number: u64, info: PageInfo) -> Result<bool, Failure> {
        match service(info) {
            Service::Fetch(slot) => {
                let from = match self.fetch(page_number, slot) {
                    Ok(from) => from,
                    Err(lost) => {
                        self.refuse(page_number, &lost);
                        return Err(lost.into());
                    }
                };
                self.map_copy_charged(page_number, from, false)?;
                Ok(false)
            }
            Service::Remap(frame) => self.remap(page_number, frame).map(|()| true),
            Service::LetRetry => Ok(true),
            _ => Ok(false),
        }
    }

    /// Registers what is managed with the userfaultfd that handlers read. The program's only thread waits meanwhile, so
    /// nobody finds a page missing between the two registrations.
    fn leave_inline(&self) -> usize {
        let regions = self.engine.regions();
        let Some(signalling) = &self.at.signalling else { return 0 };
        self.engine.forget_protection();
        for (range, _) in regions.iter() {
            let _ = signalling.unregister(range.start, range.len());
            if let Err(error) = self.at.uffd.register(range.start, range.len(), fault_mode()) {
                return self.give_up("leave inline mode", error);
            }
        }
        self.engine.served_by_handlers.store(true, Ordering::Release);
        0
    }

    /// Pages that this process holds local.
    pub(crate) fn local_pages(&self) -> u64 {
        self.at.process().local_pages().load(Ordering::Acquire)
    }
}

/// What pages held that are gone.
#[derive(Default)]
struct Gone {
    local: u64,
    managed: u64,
    frames: Vec<u32>,
}
