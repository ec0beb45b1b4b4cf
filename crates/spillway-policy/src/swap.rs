//! Swap as kernels do it: two-list LRU, background reclaim between two watermarks, direct reclaim,
//! read-ahead.
//!
//! The baseline of HotBox (section 6.2, an optimised swap without block layer) and of dcm (section 6). Taken
//! from Linux: the lists ([`crate::two_list`]), watermarks, reclaim in batches of 32, and read-ahead of up to
//! 8 pages whose window follows its own hits: it grows with the pages of the last window that were used, and
//! falls to one page where none was and the faults are not sequential. Simplified: pages that were read ahead
//! are mapped at once, and clean pages are written back too.

use serde::{Deserialize, Serialize};

use crate::entry::Registered;
use crate::knowledge::Knowledge;
use crate::machine::{Call, PageIndex, Tier, TieredMachine};
use crate::policy::{AccessModel, Fault, Policy};
use crate::two_list::TwoList;

/// What a run may set; the defaults are the paper's, or chosen as the file's head says.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Share of the lists that is kept inactive (Linux for 1 GB: 1/4).
    pub inactive_share: f64,
    /// Share of local memory below which background reclaim begins.
    pub low_share: f64,
    /// Share of local memory at which it ends.
    pub high_share: f64,
    /// Most pages that are read at once (Linux: `page-cluster` = 3, which is 8).
    pub read_ahead_pages: u32,
    /// Pages that a fault reclaims where none is free (Linux: `SWAP_CLUSTER_MAX`).
    pub reclaim_pages: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            inactive_share: 0.25,
            low_share: 0.01,
            high_share: 0.02,
            read_ahead_pages: 8,
            reclaim_pages: 32,
        }
    }
}

const RECLAIM: u32 = 0;

/// The kernel's two lists, and where the last window of read-ahead ended.
pub struct Swap {
    config: Config,
    lists: TwoList,
    reclaiming: bool,
    last_fault: PageIndex,
    last_window: u32,
    read_ahead: Vec<PageIndex>,
}

impl Registered for Swap {
    type Config = Config;
    fn build(config: Config, _seed: u64, _knowledge: &Knowledge) -> Self {
        let lists = TwoList::new(0, config.inactive_share);
        Self { config, lists, reclaiming: false, last_fault: 0, last_window: 1, read_ahead: Vec::new() }
    }
}

impl Swap {
    fn share(machine: &dyn TieredMachine, share: f64) -> u32 {
        (f64::from(machine.capacity_pages(Tier::Local)) * share).ceil() as u32
    }

    fn reclaim(&mut self, machine: &mut dyn TieredMachine, pages: u32) {
        let victims = self.lists.take_victims(machine, pages);
        machine.migrate(&victims, Tier::Far, Call::Locked);
    }

    /// Direct reclaim, where background reclaim has not kept up.
    fn make_room(&mut self, machine: &mut dyn TieredMachine, pages: u32) {
        let free = machine.free_pages(Tier::Local);
        if free < pages {
            self.reclaim(machine, self.config.reclaim_pages.max(pages - free));
        }
        if !self.reclaiming && machine.free_pages(Tier::Local) < Self::share(machine, self.config.low_share) {
            self.reclaiming = true;
            machine.set_timer(RECLAIM, 0);
        }
    }

    /// How many pages to read at this fault.
    fn window(&mut self, machine: &mut dyn TieredMachine, page: PageIndex) -> u32 {
        let hits = std::mem::take(&mut self.read_ahead)
            .into_iter()
            .filter(|&ahead| machine.tier_of(ahead) == Some(Tier::Local) && machine.take_accessed(ahead))
            .count() as u32;
        let sequential = page.abs_diff(self.last_fault) <= self.last_window;
        let wanted = if hits == 0 && !sequential { 1 } else { (hits + 2).next_power_of_two() };
        self.last_fault = page;
        self.last_window = wanted.max(self.last_window / 2).min(self.config.read_ahead_pages).max(1);
        self.last_window
    }
}

impl Policy for Swap {
    fn access_model(&self) -> AccessModel {
        AccessModel::PageFetch
    }

    fn start(&mut self, machine: &mut dyn TieredMachine) {
        self.lists = TwoList::new(machine.page_count(), self.config.inactive_share);
    }

    fn place(&mut self, page: PageIndex, machine: &mut dyn TieredMachine) -> Tier {
        let span = machine.span(page);
        self.make_room(machine, span);
        Tier::Local
    }

    fn on_first_touch(&mut self, page: PageIndex, tier: Tier, _machine: &mut dyn TieredMachine) {
        if tier == Tier::Local {
            self.lists.insert(page, false);
        }
    }

    fn on_fault(&mut self, fault: Fault, machine: &mut dyn TieredMachine) {
        let window = self.window(machine, fault.page);
        let first = fault.page & !(window - 1);
        let last = (first + window).min(machine.page_count());
        let pages: Vec<_> = (first..last).filter(|&page| machine.tier_of(page) == Some(Tier::Far)).collect();
        self.make_room(machine, pages.len() as u32);
        machine.migrate(&[fault.page], Tier::Local, Call::Locked);
        self.lists.insert(fault.page, false);
        for page in pages.into_iter().filter(|&page| page != fault.page) {
            self.read_ahead.push(page);
            self.lists.insert(page, false);
        }
        // Each page is read by itself: what the kernel does for a page it does for each of a window.
        for &page in &self.read_ahead {
            machine.migrate(&[page], Tier::Local, Call::Locked);
        }
    }

    fn on_timer(&mut self, _timer: u32, machine: &mut dyn TieredMachine) {
        let want =
            Self::share(machine, self.config.high_share).saturating_sub(machine.free_pages(Tier::Local));
        self.reclaim(machine, want);
        self.reclaiming = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestMachine;

    fn swap(pages: u32, local: u32) -> (Swap, TestMachine) {
        let config = Config { reclaim_pages: 2, low_share: 0.0, ..Config::default() };
        let mut policy = Swap::build(config, 1, &Knowledge::default());
        let mut machine = TestMachine::new(pages, local);
        policy.start(&mut machine);
        (policy, machine)
    }

    #[test]
    fn a_full_memory_is_reclaimed_from_its_cold_end() {
        let (mut policy, mut machine) = swap(8, 4);
        machine.touch(&mut policy, 0..4);
        machine.access(0);
        machine.touch(&mut policy, 4..5);
        assert_eq!(machine.pages_in(Tier::Far), [1, 2], "0 was accessed");
    }

    #[test]
    fn read_ahead_opens_on_sequential_faults_and_closes_on_random_ones() {
        let (mut policy, mut machine) = swap(128, 64);
        machine.touch(&mut policy, 0..128);
        let mut faults = 0;
        for page in 0..32 {
            faults += u32::from(machine.run(&mut policy, page));
        }
        assert!(faults <= 8, "{faults} faults for 32 pages in a row");
        for page in [7, 90, 33, 120, 60, 101, 42, 77, 54, 110] {
            machine.run(&mut policy, page);
        }
        assert_eq!(policy.last_window, 1);
    }

    #[test]
    fn each_page_of_a_window_is_read_by_itself() {
        let (mut policy, mut machine) = swap(16, 0);
        machine.touch(&mut policy, 0..16);
        machine.local_capacity = 16;
        machine.calls.clear();
        let faults = (0..16).filter(|&page| machine.run(&mut policy, page)).count();
        assert!(faults < 8, "{faults}");
        assert_eq!((machine.calls.iter().max(), machine.moves.len()), (Some(&1), 16));
    }

    #[test]
    fn background_reclaim_fills_up_to_the_high_watermark() {
        let config = Config { low_share: 0.25, high_share: 0.5, ..Config::default() };
        let mut policy = Swap::build(config, 1, &Knowledge::default());
        let mut machine = TestMachine::new(8, 8);
        policy.start(&mut machine);
        machine.touch(&mut policy, 0..8);
        machine.pass_ns(&mut policy, 10);
        assert_eq!(machine.free_pages(Tier::Local), 4);
    }
}
