//! Fork: parent and child go on with the same pages, each under the limit.
//!
//! The child inherits the parent's memory as it is: its local pages (shared until one of the two writes), its
//! frames, its page table. What is far it holds in the same slots, which are not written again while both
//! hold them. Both count their local pages in full, so the parent makes room for the child's before the fork.

use std::ops::Range;
use std::sync::atomic::Ordering;

use rustix::process::getpid;
use spillway_core::page::PAGE_SIZE;
use spillway_core::transitions::{Service, service};
use spillway_sys::memory;

use crate::calls::TRY_AGAIN;
use crate::engine::{Worker, now_ns, page_number_of};
use crate::fault::Access;
use crate::message;
use crate::regions::OnFork;
use crate::run_state::{Child, Counter, PID_OF_ANOTHER_NAMESPACE};

const PATIENCE_NS: u64 = 60_000_000_000;
/// Where a store takes nothing, only the end of other processes makes room.
const STORE_FAILED_PATIENCE_NS: u64 = 1_000_000_000;

/// What is used while paging is stopped: addresses, 0 for none.
pub(crate) struct ForkUses {
    /// Where threads go on: in the stacks of the forking thread and of its child, and in the child's thread-local storage.
    pub(crate) lived_in: [usize; 3],
    /// Where the kernel writes the numbers of the child and of its descriptor.
    pub(crate) numbers: [usize; 3],
}

impl ForkUses {
    fn ranges(&self) -> impl Iterator<Item = Range<usize>> {
        const BELOW: usize = 64 << 10;
        const ABOVE: usize = 16 << 10;
        // Up to the last byte of a page, lest the end of a program's wrong address overflow.
        let around = |address: usize, below: usize, above: usize| {
            let end = address.saturating_add(above) | (PAGE_SIZE - 1);
            address.saturating_sub(below) & !(PAGE_SIZE - 1)..end
        };
        let lived_in = self.lived_in.into_iter().map(move |address| around(address, BELOW, ABOVE));
        lived_in.chain(self.numbers.into_iter().map(move |address| around(address, 0, size_of::<u32>())))
    }
}

impl Worker {
    /// Stops paging in this process and reserves what the child will need. Returns the child as one word, 0 when there is
    /// no room, or [`TRY_AGAIN`] while another thread forks.
    pub(crate) fn begin_fork(&mut self, uses: &ForkUses) -> usize {
        if !self.engine.gate.freeze() {
            return TRY_AGAIN;
        }
        // The pages of a mapping on the move are nowhere that the child could find them.
        if !self.engine.remaps().is_empty() {
            self.thaw();
            return TRY_AGAIN;
        }
        // Shared with the child, it could not be moved.
        self.give_up_reserve();
        // What the child inherits is managed on both sides.
        while self.manage_piece().is_some() {}
        uses.ranges().for_each(|range| self.make_local(&range));
        let child = self.at.run.claim_child(self.at.entry).filter(|child| self.make_room_for(child.entry));
        let Some(child) = child else {
            self.thaw();
            return 0;
        };
        uses.ranges().for_each(|range| self.make_local(&range));
        self.flush_slots();
        self.set_inherited(true);
        let run = self.at.run;
        run.slots().share(run.held(self.at.entry), run.held(child.entry));
        let managed = self.at.process().managed_pages().load(Ordering::Relaxed);
        run.process(child.entry).managed_pages().store(managed, Ordering::Relaxed);
        run.count_managed(managed);
        child.to_word()
    }

    /// Brings in the pages of a range, ready to be written.
    fn make_local(&mut self, range: &Range<usize>) {
        let parts = self.engine.regions().within(range);
        for address in parts.into_iter().flat_map(|(part, _)| part.step_by(PAGE_SIZE)) {
            let page_number = page_number_of(address);
            let Ok(word) = self.engine.table.find_or_make(page_number) else { continue };
            let info = self.lock(word);
            let service = service(info);
            let next = match service {
                Service::Refuse => info,
                Service::LetRetry => self.unprotect(page_number, info),
                _ => self.perform(page_number, info, service, Access::Write).unwrap_or(info),
            };
            self.unlock(page_number, word, next);
            if next.generation != info.generation {
                self.engine.enqueue(page_number, next);
            }
        }
    }

    /// Evicts until the child's copy of this process's local pages fits under the limit, and charges it.
    fn make_room_for(&mut self, child: usize) -> bool {
        let run = self.at.run;
        let started_ns = now_ns();
        loop {
            let local = self.local_pages();
            if run.budget().try_charge(local) {
                run.process(child).local_pages().store(local, Ordering::Release);
                return true;
            }
            if self.evict_batch() == 0 {
                let store_failed = self.last_store_error().is_some();
                let patience_ns = if store_failed { STORE_FAILED_PATIENCE_NS } else { PATIENCE_NS };
                if now_ns() - started_ns > patience_ns {
                    message::to_program(&format!(
                        "fork failed, for a second process finds no room: {}",
                        self.why_no_room()
                    ));
                    run.reap(child, |_| {});
                    return false;
                }
                std::thread::sleep(std::time::Duration::from_micros(200));
            }
        }
    }

    /// Managed memory is inherited only by children that our hooks know of.
    pub(crate) fn set_inherited(&self, inherited: bool) {
        for (range, on_fork) in self.engine.regions().iter() {
            if on_fork != OnFork::Drop {
                let _ = memory::inherit(range.start, range.len(), inherited);
            }
        }
    }

    /// Lets paging go on after a fork: `child_pid` is 0 when it failed.
    pub(crate) fn end_fork(&mut self, child_pid: u32, child: Child) {
        let run = self.at.run;
        if child_pid == 0 {
            run.reap(child.entry, |_| {});
        } else {
            // The supervisor notes it too; whoever is first. The child may have come and gone by now.
            let is_as_seen = self.at.process().pid() == getpid().as_raw_nonzero().get().cast_unsigned();
            let pid = if is_as_seen { child_pid } else { PID_OF_ANOTHER_NAMESPACE };
            run.process(child.entry).set_pid_of(child, pid);
            run.count(Counter::Forks, 1);
        }
        self.set_inherited(false);
        self.thaw();
    }

    /// Opens the gate and has every thread that waits for a page try again.
    pub(crate) fn thaw(&self) {
        const LOWEST: usize = 1 << 16;
        const HIGHEST: usize = (1 << 47) - (1 << 12);
        self.engine.gate.thaw();
        let _ = self.at.uffd.wake(LOWEST, HIGHEST - LOWEST);
    }
}
