//! Swap as kernels do it: two-list LRU or, if asked for, generations, background reclaim between two
//! watermarks, direct reclaim, read-ahead.
//!
//! The baseline of HotBox (section 6.2, an optimised swap without block layer) and of dcm (section 6). Taken
//! from Linux: the lists ([`crate::two_list`]) with the second chance that anonymous pages have since 5.9;
//! watermarks; reclaim in batches of 32; read-ahead of up to 8 pages whose window follows its own hits
//! (`__swapin_nr_pages`): it grows with the pages of earlier windows that were used, is two pages where a
//! fault is next to the last one, and shrinks by half at most. What was read ahead waits in the swap cache:
//! it costs what the kernel does to read a page, nobody waits for it, and its first use is a minor fault. A
//! page that was not written since it came leaves without being written, since its slot still holds it.
//! Instead of the lists, `generations` keeps local pages as the multi-generational LRU does
//! ([`crate::generations`]), which distributions switch on (`CONFIG_LRU_GEN`): what a fault brings,
//! read-ahead included, is of the youngest generation, and walks of the page tables find what is in use.
//! Simplified: what lies together in memory lies together in swap; no refault distance makes a page active at
//! once; the page that was asked for is read before those of its window.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::entry::Registered;
use crate::generations::Generations;
use crate::knowledge::Knowledge;
use crate::machine::{Call, PageIndex, Tier, TieredMachine};
use crate::policy::{AccessModel, Fault, FaultKind, Policy};
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
    /// Whether a page must be found accessed twice before it becomes active (Linux since 5.9).
    pub second_chance: bool,
    /// Whether local pages are kept in generations (Linux's MGLRU) in place of the two lists, whose share and
    /// second chance then mean nothing.
    pub generations: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            inactive_share: 0.25,
            low_share: 0.01,
            high_share: 0.02,
            read_ahead_pages: 8,
            reclaim_pages: 32,
            second_chance: true,
            generations: false,
        }
    }
}

const RECLAIM: u32 = 0;

/// How the kernel knows which local page to send away.
enum Lists {
    Two(TwoList),
    Generations(Generations),
}

impl Lists {
    fn new(config: Config, pages: u32) -> Self {
        match (config.generations, config.second_chance) {
            (true, _) => Self::Generations(Generations::new(pages)),
            (false, true) => Self::Two(TwoList::with_second_chance(pages, config.inactive_share)),
            (false, false) => Self::Two(TwoList::new(pages, config.inactive_share)),
        }
    }

    fn insert(&mut self, page: PageIndex) {
        match self {
            Self::Two(lists) => lists.insert(page, false),
            Self::Generations(generations) => generations.insert(page),
        }
    }

    fn remove(&mut self, page: PageIndex) {
        match self {
            Self::Two(lists) => lists.remove(page),
            Self::Generations(generations) => generations.remove(page),
        }
    }

    fn take_victims(&mut self, machine: &mut dyn TieredMachine, pages: u32) -> Vec<PageIndex> {
        match self {
            Self::Two(lists) => lists.take_victims(machine, pages),
            Self::Generations(generations) => generations.take_victims(machine, pages),
        }
    }
}

/// The kernel's lists, and where the last window of read-ahead ended.
pub struct Swap {
    config: Config,
    lists: Lists,
    reclaiming: bool,
    last_fault: PageIndex,
    last_window: u32,
    /// Pages that were read ahead and not used yet.
    is_ahead: Vec<bool>,
    /// Those of them that were used since a window was last chosen.
    hits: u32,
}

impl Registered for Swap {
    type Config = Config;
    fn build(config: Config, _seed: u64, _knowledge: &Knowledge) -> Self {
        let (lists, is_ahead) = (Lists::new(config, 0), Vec::new());
        Self { config, lists, reclaiming: false, last_fault: 0, last_window: 1, is_ahead, hits: 0 }
    }
}

impl Swap {
    fn share(machine: &dyn TieredMachine, share: f64) -> u32 {
        (f64::from(machine.capacity_pages(Tier::Local)) * share).ceil() as u32
    }

    fn reclaim(&mut self, machine: &mut dyn TieredMachine, pages: u32) {
        let victims = self.lists.take_victims(machine, pages);
        victims.iter().for_each(|&page| self.is_ahead[page as usize] = false);
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
    fn window(&mut self, page: PageIndex) -> u32 {
        let is_next = page.abs_diff(self.last_fault) == 1;
        let wanted = match std::mem::take(&mut self.hits) {
            0 if is_next => 2,
            0 => 1,
            hits => (hits + 2).next_power_of_two().max(4),
        };
        self.last_fault = page;
        self.last_window = wanted.min(self.config.read_ahead_pages).max(self.last_window / 2).max(1);
        self.last_window
    }
}

impl Policy for Swap {
    fn access_model(&self) -> AccessModel {
        AccessModel::PageFetch
    }

    fn start(&mut self, machine: &mut dyn TieredMachine) {
        self.lists = Lists::new(self.config, machine.page_count());
        self.is_ahead = vec![false; machine.page_count() as usize];
    }

    fn place(&mut self, page: PageIndex, machine: &mut dyn TieredMachine) -> Tier {
        let span = machine.span(page);
        self.make_room(machine, span);
        Tier::Local
    }

    fn on_first_touch(&mut self, page: PageIndex, tier: Tier, _machine: &mut dyn TieredMachine) {
        if tier == Tier::Local {
            self.lists.insert(page);
        }
    }

    fn on_fault(&mut self, fault: Fault, machine: &mut dyn TieredMachine) {
        if fault.kind != FaultKind::Missing {
            self.hits += u32::from(std::mem::take(&mut self.is_ahead[fault.page as usize]));
            return;
        }
        let window = self.window(fault.page);
        let first = fault.page & !(window - 1);
        let last = (first + window).min(machine.page_count());
        let is_wanted = |page: &PageIndex| *page != fault.page && machine.tier_of(*page) == Some(Tier::Far);
        let ahead: Vec<_> = (first..last).filter(is_wanted).collect();
        self.make_room(machine, ahead.len() as u32 + 1);
        machine.migrate(&[fault.page], Tier::Local, Call::Locked);
        self.lists.insert(fault.page);
        for page in ahead {
            if machine.read_ahead(&[page]) == 1 {
                self.is_ahead[page as usize] = true;
                self.lists.insert(page);
            }
        }
    }

    fn on_release(&mut self, pages: Range<PageIndex>, _machine: &mut dyn TieredMachine) {
        self.lists.remove(pages.start);
        self.is_ahead[pages.start as usize] = false;
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
        machine.calls.clear();
        let mut reads = 0;
        for page in 0..32 {
            reads += u32::from(machine.tier_of(page) == Some(Tier::Far));
            machine.run(&mut policy, page);
        }
        assert!(reads <= 8, "{reads} faults that had to read, for 32 pages in a row");
        for page in [7, 90, 33, 120, 60, 101, 42, 77, 54, 110] {
            machine.run(&mut policy, page);
        }
        assert_eq!(policy.last_window, 1);
    }

    #[test]
    fn each_page_of_a_window_is_read_by_itself_and_mapped_by_a_minor_fault() {
        let (mut policy, mut machine) = swap(16, 0);
        machine.touch(&mut policy, 0..16);
        machine.local_capacity = 16;
        machine.calls.clear();
        let faults = (0..16).filter(|&page| machine.run(&mut policy, page)).count();
        assert_eq!(faults, 16, "one for each page: to read it, or to map what was read ahead");
        assert_eq!((machine.calls.iter().max(), machine.moves.len()), (Some(&1), 16));
        assert!(machine.unmapped.iter().all(|unmapped| !unmapped) && policy.hits > 0);
    }

    #[test]
    fn the_window_is_the_kernels() {
        let (mut policy, _machine) = swap(128, 64);
        let mut window = |page, hits| {
            policy.hits = hits;
            policy.window(page)
        };
        assert_eq!(window(40, 0), 1);
        assert_eq!(window(41, 0), 2, "next to the last fault");
        assert_eq!(window(60, 1), 4);
        assert_eq!(window(80, 3), 8);
        assert_eq!(window(20, 9), 8, "never more than 8");
        assert_eq!([window(50, 0), window(90, 0), window(10, 0), window(70, 0)], [4, 2, 1, 1]);
    }

    #[test]
    fn in_generations_what_walks_found_in_use_stays_and_the_oldest_leaves() {
        let config = Config { generations: true, reclaim_pages: 2, low_share: 0.0, ..Config::default() };
        let mut policy = Swap::build(config, 1, &Knowledge::default());
        let mut machine = TestMachine::new(12, 8);
        policy.start(&mut machine);
        machine.touch(&mut policy, 0..8);
        machine.access(0);
        machine.access(3);
        machine.touch(&mut policy, 8..10);
        assert_eq!(machine.pages_in(Tier::Far), [1, 2], "0 and 3 were accessed");
        machine.always_accessed = true;
        machine.touch(&mut policy, 10..12);
        assert_eq!(machine.pages_in(Tier::Far).len(), 4, "where all is in use some must leave all the same");
    }

    /// By default there are two lists, as in the kernel that the papers compared with.
    #[test]
    fn generations_are_asked_for() {
        assert!(matches!(Swap::build(Config::default(), 1, &Knowledge::default()).lists, Lists::Two(_)));
        let asked: Config = serde_json::from_str(r#"{"generations": true}"#).unwrap();
        let built = Swap::build(asked, 1, &Knowledge::default());
        assert!(matches!(built.lists, Lists::Generations(_)));
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
