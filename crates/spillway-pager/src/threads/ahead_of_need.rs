//! What a process's evictor thread does ahead of need, under one budget: evicting while there is room still,
//! filling the reserve, re-forming huge pages. What somebody waits for is no background work and asks nobody.

use std::sync::atomic::Ordering;
use std::time::Duration;

use spillway_core::background::Verdict;
use spillway_core::frame_pool::MAX_RUN_FRAMES;
use spillway_core::page::PAGE_SIZE;

use crate::evict::write_back::BATCH_PAGES;
use crate::kernel::Kernel;
use crate::process::worker::Worker;
use crate::threads::background::Background;
use crate::threads::density::Density;

/// Times that work is put off because a fault is being served, before it is left for later.
const PATIENCE: u32 = 200;
/// About as long as serving a fault takes.
const MOMENT: Duration = Duration::from_micros(20);
/// Waits that are shorter than this are not worth going to sleep for good.
const LONGEST_WAIT_NS: u64 = 20_000_000;

impl<K: Kernel> Worker<K> {
    /// Whether the evictor may go on making room ahead of need. When little of it is left, faults are about
    /// to wait for it anyway.
    pub(crate) fn may_evict_ahead(&self, background: &mut Background) -> bool {
        // Where writing takes long the fault would have to do it: that is no work ahead of need.
        let headroom_pages = self.at.run.budget().headroom_pages();
        if self.at.writes_long || headroom_pages < self.at.low_headroom_pages / 2 {
            return true;
        }
        match background.ask(K::now_ns(), BATCH_PAGES * PAGE_SIZE) {
            Verdict::Go => true,
            Verdict::Wait(ns) => {
                // A fault that finds too little wakes the evictor, which would ask again at once.
                K::sleep(Duration::from_nanos(ns.min(MOMENT.as_nanos() as u64 * 50)));
                false
            }
        }
    }

    /// Fills the reserve if it is wanted, in the pauses between faults.
    pub(crate) fn work_in_background(&self, background: &mut Background) {
        let mut put_off = 0;
        while self.may_fill_reserve() && self.at.process().requested_pages().load(Ordering::Relaxed) == 0 {
            let Some(pass) = self.engine.enter() else { return };
            let wait = if self.engine.gate.is_shared() {
                put_off += 1;
                MOMENT
            } else {
                match background.ask(K::now_ns(), MAX_RUN_FRAMES * PAGE_SIZE) {
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
            K::sleep(wait);
        }
    }

    /// Once a second: what was made ready for nobody is given up, and ranges that are whole are made huge
    /// pages.
    pub(crate) fn review_in_background(&self, background: &mut Background, density: &mut Density) {
        if let Some(_pass) = self.engine.enter() {
            self.review_reserve();
            self.give_up_stages(true);
            self.scan_density(density);
        }
        self.form_huge_pages(density, background);
    }
}
