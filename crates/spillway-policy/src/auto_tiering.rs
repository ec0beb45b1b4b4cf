//! AutoTiering (Kim, Choe and Ahn, ATC 2021).
//!
//! From the paper: every page has a history of n bits, one a scan, set by a hint fault since the scan before;
//! conservative promotion uses free frames only, opportunistic promotion demotes the least accessed local
//! page to make room if that has a shorter history; background demotion keeps frames free, least accessed
//! pages first. Simplified: one local and one far node; pages are ordered by the number of bits in their
//! history.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::entry::Registered;
use crate::hint_scan::HintScan;
use crate::knowledge::Knowledge;
use crate::machine::{Call, PageIndex, Tier, TieredMachine};
use crate::page_lists::PageLists;
use crate::policy::{Fault, FaultKind, Policy};

/// How a far page comes to local memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Promotion {
    /// If a frame is free.
    Conservative,
    /// Also in place of a page that is accessed less.
    Opportunistic,
}

/// What a run may set; the defaults are the paper's, or chosen as the file's head says.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Memory marked at once.
    pub scan_bytes: u64,
    /// Time between two windows: the least that Linux takes for windows of 256 MiB (`task_scan_min`).
    pub scan_period_us: u64,
    /// Whether promotion may demote a page to make room.
    pub promotion: Promotion,
    /// Share of local memory that background demotion keeps free.
    pub free_share: f64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            scan_bytes: 256 << 20,
            scan_period_us: 100_000,
            promotion: Promotion::Opportunistic,
            free_share: 0.01,
        }
    }
}

const SCAN: u32 = 0;
const DEMOTE: u32 = 1;
/// Scans that a page's history tells of, one bit each.
const HISTORY_BITS: u8 = 8;

/// Each page's history of scans, and local pages by how many of them saw each accessed.
pub struct AutoTiering {
    config: Config,
    scan: HintScan,
    history: Vec<u8>,
    /// Local pages by the number of bits in their history.
    by_accesses: PageLists,
    demoting: bool,
}

impl Registered for AutoTiering {
    type Config = Config;
    fn build(config: Config, _seed: u64, _knowledge: &Knowledge) -> Self {
        let by_accesses = PageLists::new(0, HISTORY_BITS + 1);
        Self { config, scan: HintScan::default(), history: Vec::new(), by_accesses, demoting: false }
    }
}

impl AutoTiering {
    fn accesses(&self, page: PageIndex) -> u8 {
        self.history[page as usize].count_ones() as u8
    }

    fn file(&mut self, page: PageIndex) {
        self.by_accesses.push_head(self.accesses(page), page);
    }

    /// The local page with the shortest history, and its length.
    fn least_accessed(&self) -> Option<(PageIndex, u8)> {
        (0..=HISTORY_BITS).find_map(|bits| self.by_accesses.tail(bits).map(|page| (page, bits)))
    }

    fn demote(&mut self, machine: &mut dyn TieredMachine) {
        let keep = (f64::from(machine.capacity_pages(Tier::Local)) * self.config.free_share).ceil() as u32;
        let mut missing = i64::from(keep) - i64::from(machine.free_pages(Tier::Local));
        let mut victims = Vec::new();
        while missing > 0 {
            let Some((page, _)) = self.least_accessed() else { break };
            self.by_accesses.remove(page);
            missing -= i64::from(machine.span(page));
            victims.push(page);
        }
        machine.migrate(&victims, Tier::Far, Call::Kernel);
    }

    fn wake_demotion(&mut self, machine: &mut dyn TieredMachine) {
        let keep = f64::from(machine.capacity_pages(Tier::Local)) * self.config.free_share;
        if !self.demoting && f64::from(machine.free_pages(Tier::Local)) < keep {
            self.demoting = true;
            machine.set_timer(DEMOTE, 0);
        }
    }
}

impl Policy for AutoTiering {
    fn start(&mut self, machine: &mut dyn TieredMachine) {
        self.history = vec![0; machine.page_count() as usize];
        self.by_accesses = PageLists::new(machine.page_count(), HISTORY_BITS + 1);
        machine.set_timer(SCAN, self.config.scan_period_us * 1000);
    }

    fn on_first_touch(&mut self, page: PageIndex, tier: Tier, machine: &mut dyn TieredMachine) {
        if tier == Tier::Local {
            self.history[page as usize] = 1;
            self.file(page);
            self.wake_demotion(machine);
        }
    }

    fn on_fault(&mut self, fault: Fault, machine: &mut dyn TieredMachine) {
        if fault.kind != FaultKind::Hint {
            return;
        }
        let page = fault.page;
        self.history[page as usize] |= 1;
        if machine.tier_of(page) == Some(Tier::Local) {
            return self.file(page);
        }
        if machine.free_pages(Tier::Local) < machine.span(page)
            && self.config.promotion == Promotion::Opportunistic
        {
            let Some((victim, bits)) = self.least_accessed().filter(|&(_, bits)| bits < self.accesses(page))
            else {
                return;
            };
            debug_assert!(bits < HISTORY_BITS);
            self.by_accesses.remove(victim);
            machine.migrate(&[victim], Tier::Far, Call::Kernel);
        }
        if machine.migrate(&[page], Tier::Local, Call::Kernel) == 1 {
            self.file(page);
        }
        self.wake_demotion(machine);
    }

    fn on_release(&mut self, pages: Range<PageIndex>, _machine: &mut dyn TieredMachine) {
        self.by_accesses.remove(pages.start);
        self.history[pages.start as usize] = 0;
    }

    fn on_timer(&mut self, timer: u32, machine: &mut dyn TieredMachine) {
        if timer == DEMOTE {
            self.demoting = false;
            return self.demote(machine);
        }
        machine.set_timer(SCAN, self.config.scan_period_us * 1000);
        let mut seen = Vec::new();
        self.scan.mark_each(machine, self.config.scan_bytes, None, |page| seen.push(page));
        for page in seen {
            self.history[page as usize] <<= 1;
            if self.by_accesses.list_of(page).is_some() {
                self.file(page);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestMachine;

    fn auto_tiering(promotion: Promotion) -> (AutoTiering, TestMachine) {
        let config = Config { scan_bytes: 1 << 20, scan_period_us: 1, promotion, free_share: 0.0 };
        let mut policy = AutoTiering::build(config, 1, &Knowledge::default());
        let mut machine = TestMachine::new(8, 2);
        policy.start(&mut machine);
        machine.touch(&mut policy, 0..8);
        (policy, machine)
    }

    #[test]
    fn opportunistic_promotion_demotes_the_least_accessed_page() {
        let (mut policy, mut machine) = auto_tiering(Promotion::Opportunistic);
        for _ in 0..3 {
            machine.pass_ns(&mut policy, 1000);
            machine.run(&mut policy, 1);
        }
        machine.pass_ns(&mut policy, 6000);
        machine.run(&mut policy, 5);
        assert_eq!(machine.pages_in(Tier::Local), [1, 5], "0 was not accessed for eight scans");
    }

    #[test]
    fn a_page_is_not_demoted_for_one_that_is_accessed_less() {
        let (mut policy, mut machine) = auto_tiering(Promotion::Opportunistic);
        for _ in 0..4 {
            machine.pass_ns(&mut policy, 1000);
            for page in 0..2 {
                machine.run(&mut policy, page);
            }
        }
        machine.run(&mut policy, 5);
        assert_eq!(machine.pages_in(Tier::Local), [0, 1]);
    }

    #[test]
    fn conservative_promotion_takes_free_frames_only() {
        let (mut policy, mut machine) = auto_tiering(Promotion::Conservative);
        machine.pass_ns(&mut policy, 9000);
        machine.run(&mut policy, 5);
        assert!(machine.moves.is_empty());
        machine.local_capacity = 3;
        machine.pass_ns(&mut policy, 1000);
        machine.run(&mut policy, 5);
        assert_eq!(machine.moves, [(5, Tier::Local)]);
    }

    #[test]
    fn background_demotion_keeps_frames_free() {
        let (mut policy, mut machine) = auto_tiering(Promotion::Conservative);
        policy.config.free_share = 0.5;
        machine.pass_ns(&mut policy, 1000);
        machine.run(&mut policy, 0);
        policy.wake_demotion(&mut machine);
        machine.pass_ns(&mut policy, 10);
        assert_eq!(machine.pages_in(Tier::Local), [0], "1 was accessed less");
    }
}
