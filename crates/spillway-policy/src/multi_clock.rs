//! Multi-Clock (Maruf, Ghosh et al., HPCA 2022).
//!
//! From the paper: the lists of the kernel's CLOCK and, beside them, a promote list in each tier, which is
//! fed by pages that are referenced again while they are active; kpromoted scans 1,024 pages of each list a
//! second, and migrates the far promote list; where local memory is short, pages at the inactive tail that
//! were not referenced are demoted. Simplified: anonymous pages only.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::entry::Registered;
use crate::knowledge::Knowledge;
use crate::machine::{Call, PageIndex, Tier, TieredMachine};
use crate::page_lists::PageLists;
use crate::policy::Policy;

/// What a run may set; the defaults are the paper's, or chosen as the file's head says.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Time between two rounds of kpromoted.
    pub period_us: u64,
    /// Pages of each list that a round scans.
    pub scan_pages: u32,
    /// Share of local memory that is kept free.
    pub free_share: f64,
    /// Share of local pages that is kept inactive.
    pub inactive_share: f64,
}

impl Default for Config {
    fn default() -> Self {
        Self { period_us: 1_000_000, scan_pages: 1024, free_share: 0.01, inactive_share: 0.25 }
    }
}

const INACTIVE: u8 = 0;
const ACTIVE: u8 = 1;
const PROMOTE: u8 = 2;
const LISTS_A_TIER: u8 = 3;

fn list(tier: Tier, list: u8) -> u8 {
    if tier == Tier::Local { list } else { LISTS_A_TIER + list }
}

/// The lists of both tiers, through which pages rise and fall.
pub struct MultiClock {
    config: Config,
    lists: PageLists,
    /// Referenced once since the page came to its list.
    referenced: Vec<bool>,
}

impl Registered for MultiClock {
    type Config = Config;
    fn build(config: Config, _seed: u64, _knowledge: &Knowledge) -> Self {
        Self { config, lists: PageLists::new(0, 2 * LISTS_A_TIER), referenced: Vec::new() }
    }
}

impl MultiClock {
    fn put(&mut self, tier: Tier, which: u8, page: PageIndex) {
        self.referenced[page as usize] = false;
        self.lists.push_head(list(tier, which), page);
    }

    /// Scans the tail of one list: a page that was referenced twice goes one list up.
    fn scan(&mut self, machine: &mut dyn TieredMachine, tier: Tier, which: u8) {
        let to_scan = self.lists.len(list(tier, which)).min(self.config.scan_pages);
        for _ in 0..to_scan {
            let Some(page) = self.lists.pop_tail(list(tier, which)) else { return };
            let accessed = machine.take_accessed(page);
            let referenced = std::mem::replace(&mut self.referenced[page as usize], accessed);
            if accessed && referenced {
                self.put(tier, which + 1, page);
            } else {
                self.lists.push_head(list(tier, which), page);
            }
        }
    }

    /// Local pages on the promote list are where they should be: they go on being active. Far ones migrate.
    fn promote(&mut self, machine: &mut dyn TieredMachine) {
        while let Some(page) = self.lists.pop_tail(list(Tier::Local, PROMOTE)) {
            self.put(Tier::Local, ACTIVE, page);
        }
        let waiting = self.lists.len(list(Tier::Far, PROMOTE));
        self.make_room(machine, waiting);
        while let Some(page) = self.lists.pop_tail(list(Tier::Far, PROMOTE)) {
            let moved = machine.migrate(&[page], Tier::Local, Call::Kernel) == 1;
            self.put(if moved { Tier::Local } else { Tier::Far }, ACTIVE, page);
        }
    }

    fn refill(&mut self, machine: &mut dyn TieredMachine) {
        let local = self.lists.len(INACTIVE) + self.lists.len(ACTIVE);
        while f64::from(self.lists.len(INACTIVE)) < f64::from(local) * self.config.inactive_share {
            let Some(page) = self.lists.pop_tail(ACTIVE) else { return };
            if machine.take_accessed(page) && !self.referenced[page as usize] {
                self.referenced[page as usize] = true;
                self.lists.push_head(ACTIVE, page);
            } else {
                self.put(Tier::Local, INACTIVE, page);
            }
        }
    }

    /// Demotes unreferenced pages from the inactive tail until there are frames for `waiting` pages.
    fn make_room(&mut self, machine: &mut dyn TieredMachine, waiting: u32) {
        let spare = (f64::from(machine.capacity_pages(Tier::Local)) * self.config.free_share) as u32;
        let mut left_to_scan = 2 * (self.lists.len(INACTIVE) + self.lists.len(ACTIVE));
        let mut cold = Vec::new();
        let mut missing = (waiting + spare).saturating_sub(machine.free_pages(Tier::Local));
        while missing > 0 && left_to_scan > 0 {
            left_to_scan -= 1;
            self.refill(machine);
            let Some(page) = self.lists.pop_tail(INACTIVE) else { break };
            if machine.take_accessed(page) {
                self.put(Tier::Local, ACTIVE, page);
            } else {
                missing = missing.saturating_sub(machine.span(page));
                cold.push(page);
            }
        }
        machine.migrate(&cold, Tier::Far, Call::Kernel);
        for page in cold {
            self.put(Tier::Far, INACTIVE, page);
        }
    }
}

impl Policy for MultiClock {
    fn start(&mut self, machine: &mut dyn TieredMachine) {
        self.lists = PageLists::new(machine.page_count(), 2 * LISTS_A_TIER);
        self.referenced = vec![false; machine.page_count() as usize];
        machine.set_timer(0, self.config.period_us * 1000);
    }

    fn on_first_touch(&mut self, page: PageIndex, tier: Tier, _machine: &mut dyn TieredMachine) {
        self.put(tier, INACTIVE, page);
    }

    fn on_release(&mut self, pages: Range<PageIndex>, _machine: &mut dyn TieredMachine) {
        self.lists.remove(pages.start);
        self.referenced[pages.start as usize] = false;
    }

    fn on_timer(&mut self, timer: u32, machine: &mut dyn TieredMachine) {
        for tier in [Tier::Local, Tier::Far] {
            self.scan(machine, tier, ACTIVE);
            self.scan(machine, tier, INACTIVE);
        }
        self.promote(machine);
        machine.set_timer(timer, self.config.period_us * 1000);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestMachine;

    const PERIOD_NS: u64 = 1_000_000_000;

    fn multi_clock(config: Config) -> (MultiClock, TestMachine) {
        let mut policy = MultiClock::build(config, 1, &Knowledge::default());
        let mut machine = TestMachine::new(16, 4);
        policy.start(&mut machine);
        machine.touch(&mut policy, 0..16);
        (policy, machine)
    }

    #[test]
    fn a_far_page_is_promoted_when_it_is_referenced_again_while_active() {
        let (mut policy, mut machine) = multi_clock(Config::default());
        for round in 1..=4 {
            machine.access(9);
            machine.pass_ns(&mut policy, PERIOD_NS);
            assert_eq!(machine.tier_of(9) == Some(Tier::Local), round == 4, "round {round}");
        }
    }

    #[test]
    fn a_page_referenced_once_a_while_stays() {
        let (mut policy, mut machine) = multi_clock(Config::default());
        for _ in 0..8 {
            machine.access(9);
            machine.pass_ns(&mut policy, 2 * PERIOD_NS);
        }
        assert_eq!(machine.tier_of(9), Some(Tier::Far));
    }

    #[test]
    fn unreferenced_pages_are_demoted_to_make_room() {
        let (mut policy, mut machine) = multi_clock(Config { inactive_share: 1.0, ..Config::default() });
        for _ in 0..4 {
            [0, 1, 3, 9].into_iter().for_each(|page| machine.access(page));
            machine.pass_ns(&mut policy, PERIOD_NS);
        }
        assert_eq!(machine.moves, [(2, Tier::Far), (9, Tier::Local)]);
    }

    #[test]
    fn a_round_scans_so_many_pages_of_each_list() {
        let (mut policy, mut machine) =
            multi_clock(Config { scan_pages: 3, free_share: 0.0, ..Config::default() });
        machine.pass_ns(&mut policy, PERIOD_NS);
        assert_eq!(machine.scanned, 6);
    }
}
