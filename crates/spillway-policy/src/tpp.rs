//! TPP: transparent page placement (Al Maruf et al., ASPLOS 2023).
//!
//! From the paper and its kernel patches:
//! - headroom: demotion begins at a higher watermark than the one that stops allocation, so that frames stay
//!   free;
//! - demotion takes pages from the inactive tail and migrates them, nothing is swapped;
//! - only far pages are marked; a hint fault promotes a page that is on the active list, and activates it
//!   otherwise;
//! - promotion may use the headroom that allocation may not.
//!
//! Simplified: the far tier's lists are one bit a page, which demotion clears; the kernel scans at the most
//! that it allows a process (`MAX_SCAN_WINDOW`, 2,560 MiB a second), however many its threads.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::entry::Registered;
use crate::headroom::{Headroom, Watermarks};
use crate::hint_scan::HintScan;
use crate::knowledge::Knowledge;
use crate::machine::{Call, PageIndex, Tier, TieredMachine};
use crate::policy::{Fault, FaultKind, Policy};

/// What a run may set; the defaults are the paper's, or chosen as the file's head says.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Memory marked at once (Linux: `scan_size_mb`).
    pub scan_bytes: u64,
    /// Time between two windows: the least that Linux takes for windows of 256 MiB (`task_scan_min`).
    pub scan_period_us: u64,
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
            allocation_share: 0.005,
            demotion_share: 0.02,
            inactive_share: 0.25,
        }
    }
}

const SCAN: u32 = 0;
const DEMOTE: u32 = 1;

/// The two lists over local pages, and where the window of marks stands.
pub struct Tpp {
    config: Config,
    local: Headroom,
    scan: HintScan,
}

impl Registered for Tpp {
    type Config = Config;
    fn build(config: Config, _seed: u64, _knowledge: &Knowledge) -> Self {
        Self { config, local: Headroom::new(0, config.inactive_share), scan: HintScan::default() }
    }
}

impl Tpp {
    fn watermarks(&self) -> Watermarks {
        let Config { allocation_share, demotion_share, .. } = self.config;
        Watermarks { allocation_share, demotion_share, demote_timer: DEMOTE }
    }
}

impl Policy for Tpp {
    fn start(&mut self, machine: &mut dyn TieredMachine) {
        self.local = Headroom::new(machine.page_count(), self.config.inactive_share);
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
        if !std::mem::replace(&mut self.local.far_active[fault.page as usize], true) {
            return;
        }
        if machine.migrate(&[fault.page], Tier::Local, Call::Kernel) == 1 {
            self.local.lists.insert(fault.page, true);
        }
        self.local.wake_demotion(self.watermarks(), machine);
    }

    fn on_release(&mut self, pages: Range<PageIndex>, _machine: &mut dyn TieredMachine) {
        self.local.release(pages.start);
    }

    fn on_timer(&mut self, timer: u32, machine: &mut dyn TieredMachine) {
        if timer == DEMOTE {
            return self.local.demote(self.watermarks(), machine);
        }
        machine.set_timer(SCAN, self.config.scan_period_us * 1000);
        self.scan.mark_next(machine, self.config.scan_bytes, Some(Tier::Far));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestMachine;

    fn tpp(pages: u32, local: u32, config: Config) -> (Tpp, TestMachine) {
        let mut policy =
            Tpp::build(Config { scan_bytes: 1 << 20, scan_period_us: 1, ..config }, 1, &Knowledge::default());
        let mut machine = TestMachine::new(pages, local);
        policy.start(&mut machine);
        (policy, machine)
    }

    #[test]
    fn the_first_hint_fault_activates_and_the_second_promotes() {
        let (mut policy, mut machine) = tpp(16, 8, Config::default());
        machine.local_capacity = 0;
        machine.touch(&mut policy, 0..16);
        machine.local_capacity = 8;
        machine.pass_ns(&mut policy, 1000);
        assert!(machine.run(&mut policy, 3));
        assert!(machine.moves.is_empty(), "activated only");
        machine.pass_ns(&mut policy, 1000);
        assert!(machine.run(&mut policy, 3));
        assert_eq!(machine.pages_in(Tier::Local), [3]);
    }

    /// What allocation must leave free is there for promotion.
    #[test]
    fn promotion_takes_frames_that_allocation_may_not() {
        let config = Config { allocation_share: 0.5, demotion_share: 0.0, ..Config::default() };
        let (mut policy, mut machine) = tpp(16, 8, config);
        machine.touch(&mut policy, 0..16);
        assert_eq!(machine.free_pages(Tier::Local), 4, "allocation stops");
        for _ in 0..2 {
            machine.pass_ns(&mut policy, 1000);
            machine.run(&mut policy, 9);
        }
        assert_eq!((machine.tier_of(9), machine.free_pages(Tier::Local)), (Some(Tier::Local), 3));
    }

    #[test]
    fn a_demoted_page_has_to_be_activated_anew() {
        let (mut policy, mut machine) = tpp(16, 8, Config { demotion_share: 0.0, ..Config::default() });
        machine.touch(&mut policy, 0..8);
        policy.local.far_active[0] = true;
        policy.config.demotion_share = 0.5;
        let marks = policy.watermarks();
        policy.local.demote(marks, &mut machine);
        assert_eq!(machine.tier_of(0), Some(Tier::Far));
        machine.pass_ns(&mut policy, 1000);
        assert!(machine.run(&mut policy, 0));
        assert_eq!(machine.tier_of(0), Some(Tier::Far), "activated only");
    }

    #[test]
    fn only_far_pages_are_marked() {
        let (mut policy, mut machine) = tpp(16, 8, Config { demotion_share: 0.0, ..Config::default() });
        machine.touch(&mut policy, 0..16);
        machine.pass_ns(&mut policy, 1000);
        let local = machine.pages_in(Tier::Local);
        assert!(!local.is_empty() && local.iter().all(|&page| !machine.is_marked(page)));
        assert!(machine.pages_in(Tier::Far).iter().all(|&page| machine.is_marked(page)));
    }

    #[test]
    fn headroom_is_kept_beyond_what_allocation_may_take() {
        let config = Config { allocation_share: 0.125, demotion_share: 0.5, ..Config::default() };
        let (mut policy, mut machine) = tpp(16, 8, config);
        machine.touch(&mut policy, 0..10);
        assert_eq!(machine.free_pages(Tier::Local), 1, "allocation stops");
        machine.pass_ns(&mut policy, 10);
        assert!(machine.free_pages(Tier::Local) >= 4, "demotion goes on");
        assert!(
            machine.moves.iter().all(|&(page, tier)| page < 5 && tier == Tier::Far),
            "from the inactive tail"
        );
    }
}
