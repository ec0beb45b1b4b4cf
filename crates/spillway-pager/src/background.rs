//! What a process's evictor thread does ahead of need, under one budget ([`spillway_core::background`]): evicting while there
//! is room still, filling the reserve, re-forming huge pages. What somebody waits for is no background work and asks nobody.

use std::sync::atomic::Ordering;
use std::time::Duration;

use spillway_core::background::{Budget, Faults, Verdict};
use spillway_core::frame_pool::MAX_RUN_FRAMES;
use spillway_core::latency::Recent;
use spillway_core::page::PAGE_SIZE;

use crate::density::Density;
use crate::engine::{Attachment, Worker, now_ns};
use crate::evict::BATCH_PAGES;
use crate::run_state::Counter;

/// Times that work is put off because a fault is being served, before it is left for later.
const PATIENCE: u32 = 200;
/// About as long as serving a fault takes.
const MOMENT: Duration = Duration::from_micros(20);
/// Waits that are shorter than this are not worth going to sleep for good.
const LONGEST_WAIT_NS: u64 = 20_000_000;

/// The budget and what it judges by.
pub(crate) struct Background {
    budget: Budget,
    faults: Recent,
    pauses: u64,
    density: Density,
}

impl Background {
    pub(crate) fn new(at: &Attachment) -> Self {
        let budget = Budget::new(at.settings.pool.background, now_ns());
        let faults = Recent::new(&at.run.fault_latency());
        Self { budget, faults, pauses: 0, density: Density::default() }
    }

    /// Asks to move `bytes` now. The faults of all processes of the run count.
    pub(crate) fn ask(&mut self, at: &Attachment, bytes: usize) -> Verdict {
        let faults = &mut self.faults;
        let verdict = self.budget.ask(now_ns(), bytes as u64, || {
            let (count, p90_ns) = faults.look(&at.run.fault_latency(), 0.9);
            Faults { count, p90_ns }
        });
        let pauses = self.budget.pauses();
        at.run.count(Counter::BackgroundPauses, pauses - self.pauses);
        self.pauses = pauses;
        verdict
    }
}

impl Worker {
    /// Whether the evictor may go on making room ahead of need. When little of it is left, faults are about to wait for it
    /// anyway.
    pub(crate) fn may_evict_ahead(&self, background: &mut Background) -> bool {
        // Where writing takes long the fault would have to do it: that is no work ahead of need.
        let headroom_pages = self.at.run.budget().headroom_pages();
        if self.at.writes_long || headroom_pages < self.at.low_headroom_pages / 2 {
            return true;
        }
        match background.ask(self.at, BATCH_PAGES * PAGE_SIZE) {
            Verdict::Go => true,
            Verdict::Wait(ns) => {
                // A fault that finds too little wakes the evictor, which would ask again at once.
                std::thread::sleep(Duration::from_nanos(ns.min(MOMENT.as_nanos() as u64 * 50)));
                false
            }
        }
    }

    /// Fills the reserve if it is wanted, in the pauses between faults.
    pub(crate) fn work_in_background(&self, background: &mut Background) {
        let mut put_off = 0;
        while self.may_fill_reserve() && self.at.process().requested_pages().load(Ordering::Relaxed) == 0 {
            let Some(pass) = self.engine.gate.enter() else { return };
            let wait = if self.engine.gate.is_shared() {
                put_off += 1;
                MOMENT
            } else {
                match background.ask(self.at, MAX_RUN_FRAMES * PAGE_SIZE) {
                    Verdict::Go => {
                        put_off = 0;
                        if !self.fill_reserve() {
                            return;
                        }
                        continue;
                    }
                    Verdict::Wait(ns) => Duration::from_nanos(ns),
                }
            };
            drop(pass);
            if put_off > PATIENCE || wait.as_nanos() as u64 > LONGEST_WAIT_NS {
                return;
            }
            std::thread::sleep(wait);
        }
    }

    /// Once a second: what was made ready for nobody is given up, and ranges that are whole are made huge pages.
    pub(crate) fn review_in_background(&self, background: &mut Background) {
        let mut density = std::mem::take(&mut background.density);
        if let Some(_pass) = self.engine.gate.enter() {
            self.review_reserve();
            self.look_at_density(&mut density);
        }
        self.form_huge_pages(&mut density, background);
        background.density = density;
    }
}
