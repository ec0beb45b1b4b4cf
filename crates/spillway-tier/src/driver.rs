//! A policy at work on a [`LiveMachine`]: tells it what happens, in the order in which it happens.

use std::ops::Range;

use spillway_marker::wire::{Outcome, Report};
use spillway_policy::machine::{PageIndex, Tier, TieredMachine};
use spillway_policy::policy::{CounterWindow, Fault, FaultKind, Policy};

use crate::history::Reason;
use crate::live::{Event, LiveMachine};
use crate::source::{Source, SourceError};

/// Makes the policy anew when the machine has grown.
pub type Build = Box<dyn Fn() -> Option<Box<dyn Policy>> + Send>;

/// A policy and its machine.
pub struct Driver {
    /// The machine that the policy acts on.
    pub machine: LiveMachine,
    policy: Box<dyn Policy>,
    build: Build,
    restarts: u64,
}

impl Driver {
    /// Starts a policy on a machine; `build` makes it anew.
    #[must_use]
    pub fn new(mut machine: LiveMachine, mut policy: Box<dyn Policy>, build: Build) -> Self {
        machine.let_marks_stop(policy.marks_to_promote());
        policy.start(&mut machine);
        Self { machine, policy, build, restarts: 0 }
    }

    /// Why the policy has paused, if it has.
    #[must_use]
    pub fn paused(&self) -> Option<String> {
        self.policy.paused()
    }

    /// What the policy goes by at present, where its name and settings do not tell.
    #[must_use]
    pub fn remark(&self) -> Option<String> {
        self.policy.remark()
    }

    /// How often the policy began anew because the processes had grown beyond what it knew.
    #[must_use]
    pub fn restarts(&self) -> u64 {
        self.restarts
    }

    /// Tells the policy of everything that a scan found, and moves what it wants moved.
    fn tell_events(&mut self) {
        // A source that tells of each access at its time lets time pass by itself.
        let mut room_is_made = !self.machine.is_told_at_once();
        loop {
            while let Some(event) = self.machine.take_event() {
                self.tell(event);
                if room_is_made && matches!(event, Event::Accessed(_) | Event::Appeared(..)) {
                    room_is_made = self.let_a_moment_pass();
                }
            }
            self.machine.flush();
            if !self.machine.has_events() {
                return;
            }
        }
    }

    /// What one scan found came one by one, and what the policy put off after an access or a new page, such
    /// as making room, would have come before the next: new pages are local as long as others are cold.
    /// Whether to go on so: where that made no room, all local memory was in use, and no more is known before
    /// the next scan.
    fn let_a_moment_pass(&mut self) -> bool {
        let due = self.machine.next_timer_ns().is_some_and(|at_ns| at_ns <= self.machine.now_ns() + 1);
        let free_before = self.machine.free_pages(Tier::Local);
        self.pass_time(self.machine.now_ns() + 1);
        !due || self.machine.free_pages(Tier::Local) > free_before
    }

    fn tell(&mut self, event: Event) {
        match event {
            Event::Appeared(page, tier) => self.appear(page, tier),
            Event::Displaced(page, tier) => {
                if self.machine.tier_of(page) == Some(tier) {
                    self.first_touch(page, tier);
                }
            }
            Event::Accessed(page) => self.fault(page),
        }
    }

    fn ask(&mut self, reason: Reason, act: impl FnOnce(&mut dyn Policy, &mut LiveMachine)) {
        self.machine.reason = reason;
        act(self.policy.as_mut(), &mut self.machine);
    }

    fn first_touch(&mut self, page: PageIndex, tier: Tier) {
        self.ask(Reason::Policy, |policy, machine| policy.on_first_touch(page, tier, machine));
    }

    /// A page appeared in a tier: the kernel placed it. Where the policy wants it far, or it is more than the
    /// budget holds, it goes there.
    pub fn appear(&mut self, page: PageIndex, found_in: Tier) {
        let accessed = self.machine.take_first_access(page);
        let mut wanted = found_in;
        if found_in == Tier::Local {
            let span = self.machine.span(page);
            // As if it were not placed yet: its own frame is free.
            self.machine.set_frames_in_hand(span);
            self.ask(Reason::Placement, |policy, machine| wanted = policy.place(page, machine));
            if self.machine.free_pages(Tier::Local) < span {
                wanted = Tier::Far;
            }
            self.machine.set_frames_in_hand(0);
        }
        if wanted == found_in {
            self.machine.pages.appear(page, found_in);
        } else {
            self.machine.place_far(page);
        }
        self.first_touch(page, wanted);
        if accessed && self.machine.tier_of(page).is_some() {
            self.machine.resume(page);
        }
    }

    /// A marked page was accessed.
    pub fn fault(&mut self, page: PageIndex) {
        if !self.machine.is_marked(page) || self.machine.tier_of(page).is_none() {
            return;
        }
        self.machine.unmark(page);
        self.machine.counts.hint_faults += 1;
        let fault = Fault { page, kind: FaultKind::Hint, write: false, task: 0 };
        self.ask(Reason::Accessed, |policy, machine| policy.on_fault(fault, machine));
        if self.machine.tier_of(page).is_some() {
            self.machine.resume(page);
        }
    }

    /// Lets time pass up to `now_ns`, with the timers that are due then, and those of them that are due at
    /// once.
    pub fn advance(&mut self, now_ns: u64) {
        self.pass_time(now_ns);
        self.tell_events();
    }

    fn pass_time(&mut self, now_ns: u64) {
        self.machine.set_now_ns(now_ns);
        // A timer set while this runs is due later: time stands still.
        while let Some(timer) = self.machine.take_timer() {
            self.ask(Reason::Policy, |policy, machine| policy.on_timer(timer, machine));
        }
    }

    /// A process accessed an address at `at_ns`, as its source was told. What the policy wants moved for it
    /// moves at the next [`Self::advance`].
    pub fn accessed(&mut self, process: u32, address: u64, at_ns: u64) {
        self.pass_time(at_ns);
        // One that no scan has seen yet is announced by the next.
        let Some(page) = self.machine.pages.find_mapped(process, address) else { return };
        if self.machine.is_marked(page) {
            self.fault(page);
        } else {
            self.machine.resume(page);
        }
    }

    /// Whether marks of the policy may stop the program.
    #[must_use]
    pub fn marks_to_promote(&self) -> bool {
        self.policy.marks_to_promote()
    }

    /// A marker said what became of a page of its process; times are on the machine's clock.
    pub fn marked(&mut self, process: u32, report: Report) {
        self.machine.release(process, report.address);
        if report.outcome == Outcome::Accessed {
            self.accessed(process, report.address, report.time_ns);
        }
    }

    /// A window of the counters is over.
    pub fn window(&mut self, window: CounterWindow) {
        self.ask(Reason::Policy, |policy, machine| policy.on_counters(window, machine));
        self.machine.counts.windows += 1;
        self.machine.counts.paused_windows += u64::from(self.paused().is_some());
    }

    /// Scans a process: which pages are there, and which of them are used. [`Self::act`] tells the policy.
    /// `tier_of` names the tier of a frame, and `most_local_pages` is what the fast nodes have.
    ///
    /// # Errors
    /// The process or the source is gone; of a process that is gone all is forgotten.
    pub fn scan(
        &mut self,
        process: u32,
        ranges: &[Range<u64>],
        source: &mut dyn Source,
        tier_of: &dyn Fn(u64) -> Option<Tier>,
        most_local_pages: u32,
    ) -> Result<(), SourceError> {
        let machine = &mut self.machine;
        let scanned = source.scan(process, ranges, &mut |seen| {
            if let Some(tier) = tier_of(seen.frame) {
                machine.see(process, seen, tier);
            }
        });
        if let Err(error) = scanned {
            if matches!(error, SourceError::Gone(_)) {
                self.forget(process);
            }
            return Err(error);
        }
        self.machine.end_scan(process);
        self.machine.settle_budget(most_local_pages);
        Ok(())
    }

    /// Tells the policy what a scan of a process found, and moves what it wants moved.
    pub fn act(&mut self, process: u32) {
        self.tell_events();
        self.machine.release_numbers(process);
    }

    /// A process is gone, and its pages with it.
    pub fn forget(&mut self, process: u32) {
        self.machine.forget(process);
    }

    /// All processes were scanned: ends the window if it is time, and makes room for more pages where it was
    /// short.
    pub fn end_round(&mut self) {
        if let Some([local_accesses, far_accesses]) = self.machine.take_window() {
            self.window(CounterWindow { local_accesses, far_accesses });
        }
        if self.machine.pages.is_full() {
            self.restart();
        }
    }

    /// Begins anew with twice as many numbers: policies know of their number at the start only.
    fn restart(&mut self) {
        let Some(policy) = (self.build)() else { return };
        self.machine.grow();
        self.policy = policy;
        self.restarts += 1;
        self.policy.start(&mut self.machine);
        for page in 0..self.machine.page_count() {
            if let Some(tier) = self.machine.tier_of(page) {
                self.first_touch(page, tier);
            }
        }
    }
}

#[cfg(test)]
mod tests;
