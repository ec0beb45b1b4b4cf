//! Fork: parent and child go on with the same pages, each under the limit.
//!
//! The child inherits the parent's memory as it is: its local pages (shared until one of the two writes), its
//! frames, its page table. What is far it holds in the same slots, which are not written again while both
//! hold them. Both count their local pages in full, so the parent makes room for the child's before the fork.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Duration;

use spillway_core::page::PAGE_SIZE;
use spillway_core::transitions::{Service, service};
use spillway_store::{Notice, NoticeKind};

use crate::fault::access::Access;
use crate::kernel::{ForkAdvice, Kernel, planted};
use crate::pages::address::{page_number_of, target_of};
use crate::pages::error::{Failure, PageError};
use crate::process::worker::Worker;
use crate::run::state::{Child, Counter, PID_OF_ANOTHER_NAMESPACE};
use crate::space::holds::Frame;
use crate::space::regions::OnFork;
use crate::threads::calls::TRY_AGAIN;

const PATIENCE_NS: u64 = 60_000_000_000;
/// Where a store takes nothing, only the end of other processes makes room.
const STORE_FAILED_PATIENCE_NS: u64 = 1_000_000_000;

/// What is used while paging is stopped: addresses, 0 for none.
pub(crate) struct ForkUses {
    /// Where threads go on: in the stacks of the forking thread and of its child, and in the child's
    /// thread-local storage.
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
        let lived_in = self.lived_in.into_iter().filter(|&address| address != 0);
        let numbers = self.numbers.into_iter().filter(|&address| address != 0);
        lived_in
            .map(move |address| around(address, BELOW, ABOVE))
            .chain(numbers.map(move |address| around(address, 0, size_of::<u32>())))
    }
}

impl<K: Kernel> Worker<K> {
    /// Stops paging in this process and reserves what the child will need. Returns the child as one word, 0
    /// when there is no room, or [`TRY_AGAIN`] while another thread forks.
    pub(crate) fn begin_fork(&mut self, uses: &ForkUses) -> usize {
        if !self.engine.gate.freeze::<K>() {
            return TRY_AGAIN;
        }
        // The pages of a mapping on the move are nowhere that the child could find them.
        if !self.engine.remaps().is_empty() {
            self.thaw();
            return TRY_AGAIN;
        }
        // Shared with the child, it could not be moved.
        self.give_up_reserve();
        self.give_up_stages(false);
        // What the child inherits is managed on both sides.
        while self.manage_piece().is_some() {}
        // What lies there stays, once it is here: making room for the one must not take the other.
        let engine = self.engine;
        let Some(hold) = engine.holds.take(Frame::default()) else {
            self.thaw();
            return TRY_AGAIN;
        };
        if !planted!(K, "stack-evicted-amid-fork") {
            uses.ranges().for_each(|range| hold.add(&range));
        }
        let claimed = self.at.run.claim_child(self.at.entry);
        let Some(child) = claimed.filter(|child| self.make_room_for(child.entry, uses)) else {
            self.thaw();
            return 0;
        };
        if !planted!(K, "unneeded-slots-forked") {
            self.flush_slots();
        }
        self.set_inherited(true);
        let run = self.at.run;
        if !planted!(K, "slots-not-shared") {
            run.slots().share(run.held(self.at.entry), run.held(child.entry));
        }
        let managed = self.at.process().managed_pages().load(Ordering::Relaxed);
        run.process(child.entry).managed_pages().store(managed, Ordering::Relaxed);
        run.count_managed(managed);
        child.to_word()
    }

    /// Brings in the pages of a range, ready to be written: a program may run on a stack in managed memory,
    /// and goes on on it while nobody answers faults. An error where a page has to wait for room, or cannot
    /// be had.
    fn make_local(&mut self, range: &Range<usize>) -> Result<(), Failure> {
        let parts = self.engine.regions().within(range);
        for address in parts.into_iter().flat_map(|(part, _)| part.step_by(PAGE_SIZE)) {
            let page_number = page_number_of(address);
            let Ok(word) = self.engine.table.find_or_make(page_number) else { continue };
            let info = self.lock(word);
            let service = service(info);
            let outcome = match service {
                // Who goes on there would wait for an answer that nobody gives before the fork is over.
                Service::Refuse => Err(PageError::Lost.into()),
                // It may be write-protected since it was fetched, or discarded past our hooks.
                Service::LetRetry => {
                    let is_protected = info.protected_in().is_some();
                    let open = if is_protected { self.unprotect(page_number, info) } else { info };
                    self.perform(page_number, open, service, Access::Write)
                }
                _ => self.perform(page_number, info, service, Access::Write),
            };
            let (next, failure) = outcome.map_or_else(|failure| (info, Err(failure)), |next| (next, Ok(())));
            self.unlock(page_number, word, next);
            if next.generation != info.generation {
                self.enqueue(page_number, next);
            }
            failure?;
        }
        Ok(())
    }

    /// Evicts until the child's copy of this process's local pages fits under the limit, those of the stacks
    /// among them, and charges it.
    fn make_room_for(&mut self, child: usize, uses: &ForkUses) -> bool {
        let run = self.at.run;
        let started_ns = K::now_ns();
        loop {
            // Before the child is charged, which gets them too.
            let stacks_are_local = uses.ranges().try_for_each(|range| self.make_local(&range));
            if let Err(Failure::Refused(error)) = stacks_are_local {
                let reason = error.to_string();
                let text = format!("fork failed, for a page of the stack cannot be had: {reason}");
                self.tell(&Notice::new(NoticeKind::ForkRefused, &text).because(&reason));
                run.reap(child, |_| {});
                return false;
            }
            let local = self.local_pages() - if planted!(K, "child-charged-less") { 1 } else { 0 };
            if stacks_are_local.is_ok() && run.budget().try_charge(local) {
                run.process(child).local_pages().store(local, Ordering::Release);
                return true;
            }
            if self.evict_batch() == 0 {
                let store_failed = self.engine.last_store_error().is_some();
                let patience_ns = if store_failed { STORE_FAILED_PATIENCE_NS } else { PATIENCE_NS };
                if K::now_ns() - started_ns > patience_ns {
                    let reason = self.why_no_room().to_string();
                    let text = format!("fork failed, for a second process finds no room: {reason}");
                    self.tell(&Notice::new(NoticeKind::ForkRefused, &text).because(&reason));
                    run.reap(child, |_| {});
                    return false;
                }
                K::sleep(Duration::from_micros(200));
            }
        }
    }

    /// Managed memory is inherited only by children that our hooks know of.
    pub(crate) fn set_inherited(&self, inherited: bool) {
        let advice = if inherited { ForkAdvice::Inherit } else { ForkAdvice::Drop };
        for (range, on_fork) in self.engine.regions().iter() {
            if !on_fork.is_dropped {
                let _ = self.at.kernel.advise_on_fork(target_of(range), advice);
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
            let is_as_seen = self.at.process().pid() == K::own_pid();
            let pid = if is_as_seen { child_pid } else { PID_OF_ANOTHER_NAMESPACE };
            run.process(child.entry).set_pid_of(child, pid);
            run.count(Counter::Forks, 1);
        }
        self.set_inherited(false);
        self.thaw();
    }

    /// Opens the gate and has every thread that waits for a page try again.
    pub(crate) fn thaw(&self) {
        self.engine.gate.thaw();
        self.at.kernel.wake_all();
    }

    /// Pages that this process holds local.
    pub(crate) fn local_pages(&self) -> u64 {
        self.at.process().local_pages().load(Ordering::Acquire)
    }

    /// In a forked child: registers what the parent had managed, but for what the child does not inherit.
    ///
    /// # Errors
    /// The kernel's, where it refuses to register a range: the child must not run.
    pub fn adopt_after_fork(&mut self) -> rustix::io::Result<()> {
        self.engine.calls.reset_all();
        self.engine.holds.reset();
        if planted!(K, "buffers-forgotten-after-fork") {
            self.engine.own_queues.forget::<K>();
        }
        if !planted!(K, "protection-kept-after-fork") {
            self.engine.forget_protection();
        }
        let regions: Vec<_> = self.engine.regions().iter().collect();
        for (range, on_fork) in regions {
            if !on_fork.is_dropped {
                self.at.kernel.register(target_of(range.clone()))?;
            }
            if on_fork != OnFork::default() {
                self.forget(&range, false);
            }
            if on_fork.is_wiped && !on_fork.is_dropped {
                self.map(range.clone());
                // As the kernel keeps MADV_WIPEONFORK, for the child's own children.
                if !planted!(K, "wipe-forgotten") {
                    self.engine.change_regions().insert(range, on_fork);
                }
            }
        }
        self.set_inherited(false);
        Ok(())
    }
}
