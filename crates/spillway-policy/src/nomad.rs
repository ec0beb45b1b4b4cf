//! Nomad (Xiang et al., OSDI 2024): a promoted page keeps its copy in far memory, and promotion is nobody's
//! wait.
//!
//! From the paper's abstract and the authors' kernel module (`src/nomad_module` of their repository), which
//! stands on TPP's demotion and marks:
//! - a hint fault promotes nothing: the page joins those that faulted lately, and each later fault looks back
//!   over them: one that was accessed since and is active is queued for promotion, one that is not becomes
//!   active; who is more than 20 faults old is forgotten;
//! - a worker promotes what is queued, up to 512 at a time, beside the program;
//! - the far copy is kept (page shadowing), so that a page which was not written since leaves without being
//!   copied; the first write costs a fault and gives the copy up.
//!
//! Simplified: a page that is written while it is copied would be tried again, and here is copied at once;
//! copies take no room in far memory that others want, so none is reclaimed; looking at a page's accessed bit
//! costs what a list's look does.

use std::collections::VecDeque;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::entry::Registered;
use crate::headroom::{Headroom, Watermarks};
use crate::hint_scan::HintScan;
use crate::knowledge::Knowledge;
use crate::machine::{Call, PageIndex, Tier, TieredMachine};
use crate::policy::{Fault, FaultKind, Policy};

/// What a run may set; the defaults are the module's and TPP's, or chosen as the file's head says.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Memory marked at once (Linux: `scan_size_mb`).
    pub scan_bytes: u64,
    /// Time between two windows.
    pub scan_period_us: u64,
    /// Faults that are looked back over (`PG_FAULT_LOOKBACK_DIST`).
    pub lookback_faults: usize,
    /// Most pages that wait for promotion (`PROMOTE_QUEUE_LEN`).
    pub queue_pages: usize,
    /// Share of local memory that allocation leaves free.
    pub allocation_share: f64,
    /// Share of local memory that demotion keeps free (`demote_scale_factor`: 2%).
    pub demotion_share: f64,
    /// Share of the two lists that is kept inactive (Linux for 1 GB: 1/4).
    pub inactive_share: f64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            scan_bytes: 256 << 20,
            scan_period_us: 100_000,
            lookback_faults: 20,
            queue_pages: 512,
            allocation_share: 0.005,
            demotion_share: 0.02,
            inactive_share: 0.25,
        }
    }
}

const SCAN: u32 = 0;
const DEMOTE: u32 = 1;
const PROMOTE: u32 = 2;

/// The two lists over local pages, what faulted lately, and what waits for promotion.
pub struct Nomad {
    config: Config,
    local: Headroom,
    faulted: VecDeque<PageIndex>,
    queue: VecDeque<PageIndex>,
    queued: Vec<bool>,
    scan: HintScan,
    promoting: bool,
}

impl Registered for Nomad {
    type Config = Config;
    fn build(config: Config, _seed: u64, _knowledge: &Knowledge) -> Self {
        Self {
            config,
            local: Headroom::new(0, config.inactive_share),
            faulted: VecDeque::new(),
            queue: VecDeque::new(),
            queued: Vec::new(),
            scan: HintScan::default(),
            promoting: false,
        }
    }
}

impl Nomad {
    fn watermarks(&self) -> Watermarks {
        let Config { allocation_share, demotion_share, .. } = self.config;
        Watermarks { allocation_share, demotion_share, demote_timer: DEMOTE }
    }

    /// Goes over the pages that faulted before; those that are done with are dropped.
    fn look_back(&mut self, machine: &mut dyn TieredMachine) {
        let Self { faulted, local: Headroom { far_active, .. }, queued, queue, config, .. } = self;
        let mut distance = 0;
        faulted.retain(|&page| {
            distance += 1;
            let at = page as usize;
            if machine.tier_of(page) != Some(Tier::Far) || distance > config.lookback_faults {
                return false;
            }
            if !machine.take_accessed(page) {
                return true;
            }
            if !std::mem::replace(&mut far_active[at], true) {
                return true;
            }
            if !queued[at] && queue.len() < config.queue_pages {
                queued[at] = true;
                queue.push_back(page);
            }
            false
        });
    }

    fn wake_promotion(&mut self, machine: &mut dyn TieredMachine) {
        if !self.promoting && !self.queue.is_empty() {
            self.promoting = true;
            machine.set_timer(PROMOTE, 0);
        }
    }

    fn promote(&mut self, machine: &mut dyn TieredMachine) {
        for page in std::mem::take(&mut self.queue) {
            self.queued[page as usize] = false;
            if machine.migrate(&[page], Tier::Local, Call::Kernel) == 1 {
                machine.keep_far_copy(page);
                self.local.lists.insert(page, true);
            }
        }
        self.local.wake_demotion(self.watermarks(), machine);
    }
}

impl Policy for Nomad {
    fn start(&mut self, machine: &mut dyn TieredMachine) {
        self.local = Headroom::new(machine.page_count(), self.config.inactive_share);
        self.queued = vec![false; machine.page_count() as usize];
        machine.set_timer(SCAN, self.config.scan_period_us * 1000);
    }

    fn place(&mut self, page: PageIndex, machine: &mut dyn TieredMachine) -> Tier {
        self.local.place(page, self.watermarks(), machine)
    }

    fn on_first_touch(&mut self, page: PageIndex, tier: Tier, _machine: &mut dyn TieredMachine) {
        if tier == Tier::Local {
            self.local.lists.insert(page, false);
        }
    }

    fn on_fault(&mut self, fault: Fault, machine: &mut dyn TieredMachine) {
        if fault.kind != FaultKind::Hint || machine.tier_of(fault.page) != Some(Tier::Far) {
            return;
        }
        self.look_back(machine);
        self.faulted.push_front(fault.page);
        self.wake_promotion(machine);
    }

    fn on_release(&mut self, pages: Range<PageIndex>, _machine: &mut dyn TieredMachine) {
        let page = pages.start;
        self.local.release(page);
        self.faulted.retain(|&other| other != page);
        if std::mem::take(&mut self.queued[page as usize]) {
            self.queue.retain(|&other| other != page);
        }
    }

    fn on_timer(&mut self, timer: u32, machine: &mut dyn TieredMachine) {
        match timer {
            DEMOTE => self.local.demote(self.watermarks(), machine),
            PROMOTE => {
                self.promoting = false;
                self.promote(machine);
            }
            _ => {
                machine.set_timer(SCAN, self.config.scan_period_us * 1000);
                self.scan.mark_next(machine, self.config.scan_bytes, Some(Tier::Far));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestMachine;
    use spillway_core::page::PAGE_BYTES;

    const PERIOD_NS: u64 = 1_000_000;

    fn nomad() -> (Nomad, TestMachine) {
        let config = Config {
            scan_bytes: 32 * PAGE_BYTES,
            scan_period_us: PERIOD_NS / 1000,
            allocation_share: 0.0,
            demotion_share: 0.0,
            ..Config::default()
        };
        let mut policy = Nomad::build(config, 1, &Knowledge::default());
        let mut machine = TestMachine::new(32, 0);
        policy.start(&mut machine);
        machine.touch(&mut policy, 0..32);
        machine.local_capacity = 8;
        machine.pass_ns(&mut policy, PERIOD_NS);
        (policy, machine)
    }

    #[test]
    fn a_page_that_is_accessed_after_its_fault_becomes_active_and_then_comes() {
        let (mut policy, mut machine) = nomad();
        machine.run(&mut policy, 5);
        machine.run(&mut policy, 6);
        assert!(policy.local.far_active[5], "the next fault found it accessed");
        assert!(machine.moves.is_empty());
        machine.access(5);
        machine.run(&mut policy, 7);
        assert!(machine.moves.is_empty(), "not within anybody's fault");
        machine.pass_ns(&mut policy, 10);
        assert_eq!(machine.moves, [(5, Tier::Local)]);
        assert_eq!(machine.copies, [5], "its far copy is kept");
    }

    #[test]
    fn a_page_that_is_not_accessed_again_is_forgotten_after_so_many_faults() {
        let (mut policy, mut machine) = nomad();
        policy.config.lookback_faults = 3;
        machine.run(&mut policy, 5);
        machine.accessed[5] = false;
        for page in 10..14 {
            machine.run(&mut policy, page);
        }
        assert!(!policy.faulted.contains(&5) && policy.faulted.contains(&13));
    }

    #[test]
    fn no_more_pages_wait_than_the_queue_holds_and_each_once() {
        let (mut policy, mut machine) = nomad();
        policy.config.queue_pages = 2;
        for _ in 0..3 {
            for page in 5..12 {
                machine.marked[page] = true;
                machine.run(&mut policy, page as u32);
            }
        }
        assert_eq!(policy.queue.len(), 2);
        machine.pass_ns(&mut policy, 10);
        assert_eq!(machine.pages_in(Tier::Local).len(), 2);
    }
}
