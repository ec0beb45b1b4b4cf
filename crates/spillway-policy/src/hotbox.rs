//! HotBox: base pages, hot ones migrated one at a time when they are next accessed, cold ones evicted in the
//! background.
//!
//! From "Reconsidering OS Memory Optimizations in the Presence of Disaggregated Memory" (ISMM 2022):
//! - far memory is scanned in blocks at a fixed rate, subtrees without an access are skipped (4.1, 5.2);
//! - a page is cold, warm or hot; scans move it (5.2);
//! - a hot page is unmapped, and migrated by its next access, if a frame is free; else it is mapped again
//!   (5.2);
//! - local memory is scanned by the kernel's two lists between watermarks, so at a rate that grows with
//!   pressure (4.1, 5.1);
//! - scans and migrations pause while the local ratio is stable over three windows, and resume when it
//!   deviates (4.2, 5.3).
//!
//! The paper leaves open, and we chose: the block (256 MiB every 25 ms: 10 GB a second), the window (1 s, as
//! the paper counts accessed pages in 3.2.2), what counts as unchanged (1 point, less than the few points
//! that count as a deviation), what as a deviation (3 points), watermarks (1% and 2%). A window counts only
//! when the scanner has passed often enough since the start for a page to become hot: before that there is no
//! use of migrations to be judged.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::entry::Registered;
use crate::knowledge::Knowledge;
use crate::machine::{Call, PageIndex, Scan, Tier, TieredMachine};
use crate::policy::{CounterWindow, Fault, FaultKind, Policy};
use crate::two_list::TwoList;

/// What a run may set; the defaults are the paper's, or chosen as the file's head says.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Far memory scanned at once.
    pub scan_block_bytes: u64,
    /// Time between two blocks.
    pub scan_period_us: u64,
    /// Most that hot pages may ask to migrate (section 6.2: 2 GB/s).
    pub migration_bytes_per_s: u64,
    /// Share of the two lists that is kept inactive (Linux for 1 GB: 1/4).
    pub inactive_share: f64,
    /// Share of local memory below which eviction begins.
    pub low_share: f64,
    /// Share of local memory at which it ends.
    pub high_share: f64,
    /// Whether to pause migrations of no use (section 4.2).
    pub throttle: bool,
    /// Window over which local and far accesses are counted.
    pub window_us: u64,
    /// Windows of the same ratio that make a steady state (section 5.3).
    pub stable_windows: usize,
    /// By how much the ratio may differ between them.
    pub stable_ratio: f64,
    /// By how much it must deviate for migrations to resume (section 4.2: "a few percentage points").
    pub resume_ratio: f64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            scan_block_bytes: 256 << 20,
            scan_period_us: 25_000,
            migration_bytes_per_s: 2_000_000_000,
            inactive_share: 0.25,
            low_share: 0.01,
            high_share: 0.02,
            throttle: true,
            window_us: 1_000_000,
            stable_windows: 3,
            stable_ratio: 0.01,
            resume_ratio: 0.03,
        }
    }
}

const SCAN: u32 = 0;
const EVICT: u32 = 1;

const COLD: u8 = 1;
const HOT: u8 = 3;

/// The heat of each page, where the scan stands, and whether migration pauses.
pub struct HotBox {
    config: Config,
    lists: TwoList,
    heat: Vec<u8>,
    cursor: PageIndex,
    passes: u32,
    evicting: bool,
    paused: bool,
    ratios: Vec<f64>,
    steady_ratio: f64,
}

impl Registered for HotBox {
    type Config = Config;
    fn build(config: Config, _seed: u64, _knowledge: &Knowledge) -> Self {
        Self {
            config,
            lists: TwoList::new(0, config.inactive_share),
            heat: Vec::new(),
            cursor: 0,
            passes: 0,
            evicting: false,
            paused: false,
            ratios: Vec::new(),
            steady_ratio: 0.0,
        }
    }
}

impl HotBox {
    /// Whether scans and migrations are paused.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    fn frames(machine: &dyn TieredMachine, share: f64) -> u32 {
        (f64::from(machine.capacity_pages(Tier::Local)) * share).ceil() as u32
    }

    fn wake_eviction(&mut self, machine: &mut dyn TieredMachine) {
        if !self.evicting && machine.free_pages(Tier::Local) < Self::frames(machine, self.config.low_share) {
            self.evicting = true;
            machine.set_timer(EVICT, 0);
        }
    }

    fn scan_block(&mut self, machine: &mut dyn TieredMachine) {
        let pages = (self.config.scan_block_bytes / machine.page_bytes()).max(1) as u32;
        let scan = Scan { start: self.cursor, pages, tier: Tier::Far, hierarchical: true };
        let mut hot = Vec::new();
        let heat = &mut self.heat;
        machine.scan(scan, &mut |page, accessed| {
            let heat = &mut heat[page as usize];
            *heat = if accessed { (*heat + 1).min(HOT) } else { (*heat - 1).max(COLD) };
            if accessed && *heat == HOT {
                hot.push(page);
            }
        });
        let most = self.config.migration_bytes_per_s as f64 * self.config.scan_period_us as f64 / 1e6;
        hot.truncate((most / machine.page_bytes() as f64).max(1.0) as usize);
        if !hot.is_empty() {
            machine.mark(&hot);
        }
        self.cursor += pages;
        if self.cursor >= machine.page_count() {
            self.cursor = 0;
            self.passes += 1;
        }
    }

    fn evict(&mut self, machine: &mut dyn TieredMachine) {
        let want =
            Self::frames(machine, self.config.high_share).saturating_sub(machine.free_pages(Tier::Local));
        let cold = self.lists.take_cold(machine, want);
        machine.migrate(&cold, Tier::Far, Call::Kernel);
        for page in cold {
            self.heat[page as usize] = COLD;
        }
    }

    fn pause(&mut self, paused: bool) {
        self.paused = paused;
        self.ratios.clear();
        self.passes = 0;
    }
}

impl Policy for HotBox {
    fn marks_to_promote(&self) -> bool {
        true
    }

    fn start(&mut self, machine: &mut dyn TieredMachine) {
        self.lists = TwoList::new(machine.page_count(), self.config.inactive_share);
        self.heat = vec![COLD; machine.page_count() as usize];
        machine.set_timer(SCAN, self.config.scan_period_us * 1000);
        if self.config.throttle {
            machine.count_accesses(self.config.window_us * 1000);
        }
    }

    fn on_first_touch(&mut self, page: PageIndex, tier: Tier, machine: &mut dyn TieredMachine) {
        if tier == Tier::Local {
            self.lists.insert(page, false);
            self.wake_eviction(machine);
        }
    }

    fn on_fault(&mut self, fault: Fault, machine: &mut dyn TieredMachine) {
        let hot = fault.kind == FaultKind::Hint && self.heat[fault.page as usize] == HOT;
        if !hot || self.paused {
            return;
        }
        // No direct reclaim: without a free frame the page stays where it is, mapped again (section 5.2, 5).
        if machine.migrate(&[fault.page], Tier::Local, Call::Kernel) == 1 {
            self.lists.insert(fault.page, true);
        }
        self.wake_eviction(machine);
    }

    fn on_release(&mut self, pages: Range<PageIndex>, _machine: &mut dyn TieredMachine) {
        self.lists.remove(pages.start);
        self.heat[pages.start as usize] = COLD;
    }

    fn on_timer(&mut self, timer: u32, machine: &mut dyn TieredMachine) {
        if timer == EVICT {
            self.evicting = false;
            return self.evict(machine);
        }
        machine.set_timer(SCAN, self.config.scan_period_us * 1000);
        if !self.paused {
            self.scan_block(machine);
        }
    }

    fn on_counters(&mut self, window: CounterWindow, _machine: &mut dyn TieredMachine) {
        let ratio = window.local_ratio();
        if self.paused {
            if (ratio - self.steady_ratio).abs() > self.config.resume_ratio {
                self.pause(false);
            }
            return;
        }
        if self.passes < u32::from(HOT) {
            return;
        }
        self.ratios.push(ratio);
        if self.ratios.len() < self.config.stable_windows {
            return;
        }
        let (least, most) = self.ratios.iter().fold((1.0_f64, 0.0_f64), |(a, b), &r| (a.min(r), b.max(r)));
        if most - least <= self.config.stable_ratio {
            self.steady_ratio = self.ratios.iter().sum::<f64>() / self.ratios.len() as f64;
            self.pause(true);
        } else {
            self.ratios.remove(0);
        }
    }

    fn paused(&self) -> Option<String> {
        self.paused.then(|| {
            let local_pct = self.steady_ratio * 100.0;
            format!("{local_pct:.0}% of accesses were local in window after window: migrations gain nothing")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestMachine;
    use spillway_core::page::PAGE_BYTES;

    const PERIOD_NS: u64 = 1_000_000;

    /// 32 pages, all scanned at once every millisecond.
    fn hotbox(local: u32) -> (HotBox, TestMachine) {
        let config = Config {
            scan_block_bytes: 32 * PAGE_BYTES,
            scan_period_us: PERIOD_NS / 1000,
            low_share: 0.0,
            high_share: 0.5,
            ..Config::default()
        };
        let mut policy = HotBox::build(config, 1, &Knowledge::default());
        let mut machine = TestMachine::new(32, local);
        policy.start(&mut machine);
        (policy, machine)
    }

    fn far_pages(policy: &mut HotBox, machine: &mut TestMachine, local: u32) {
        machine.local_capacity = 0;
        machine.touch(policy, 0..32);
        machine.local_capacity = local;
    }

    #[test]
    fn a_page_accessed_in_two_scans_is_hot_and_comes_with_its_next_access() {
        let (mut policy, mut machine) = hotbox(4);
        far_pages(&mut policy, &mut machine, 4);
        machine.run(&mut policy, 5);
        machine.pass_ns(&mut policy, PERIOD_NS);
        assert!(!machine.is_marked(5), "warm");
        machine.run(&mut policy, 5);
        machine.pass_ns(&mut policy, PERIOD_NS);
        assert!(machine.is_marked(5), "hot");
        assert_eq!(machine.tier_of(5), Some(Tier::Far), "not before it is accessed");
        assert!(machine.run(&mut policy, 5));
        assert_eq!(machine.pages_in(Tier::Local), [5]);
    }

    /// Section 4, goal 1: nothing but base pages; and section 4.1: far memory block by block, one a period,
    /// round and round.
    #[test]
    fn base_pages_are_scanned_in_blocks_at_a_fixed_rate() {
        let (mut policy, mut machine) = hotbox(0);
        assert_eq!(policy.mapping(), crate::policy::Mapping::Base);
        policy.config.scan_block_bytes = 8 * PAGE_BYTES;
        far_pages(&mut policy, &mut machine, 0);
        for block in [0, 1, 2, 3, 0] {
            (0..32).for_each(|page| machine.access(page));
            machine.pass_ns(&mut policy, PERIOD_NS);
            let scanned: Vec<_> = (0..32).filter(|&page| !machine.accessed[page]).collect();
            assert_eq!(scanned, (8 * block..8 * block + 8).collect::<Vec<_>>());
        }
    }

    /// Section 4.1: local accessed bits are read as often as frames are wanted, and not at all while there
    /// are enough.
    #[test]
    fn local_memory_is_scanned_the_more_the_higher_the_pressure() {
        let scanned = |touched: u32| {
            let (mut policy, mut machine) = hotbox(16);
            (policy.config.low_share, policy.config.high_share) = (0.25, 0.5);
            machine.touch(&mut policy, 0..touched);
            machine.pass_ns(&mut policy, 10);
            machine.scanned
        };
        let (none, some, more) = (scanned(8), scanned(13), scanned(16));
        assert!(none == 0 && some > 0 && more > some, "{none} {some} {more}");
    }

    #[test]
    fn an_evicted_page_begins_cold() {
        let (mut policy, mut machine) = hotbox(8);
        machine.touch(&mut policy, 0..8);
        policy.heat[0] = HOT;
        policy.evict(&mut machine);
        assert_eq!((machine.tier_of(0), policy.heat[0]), (Some(Tier::Far), COLD));
    }

    #[test]
    fn a_page_cools_when_a_scan_finds_it_unused() {
        let (mut policy, mut machine) = hotbox(4);
        far_pages(&mut policy, &mut machine, 4);
        for page in [5, 6, 6, 5] {
            machine.run(&mut policy, page);
            machine.run(&mut policy, 7);
            machine.pass_ns(&mut policy, PERIOD_NS);
        }
        assert!(!machine.is_marked(5) && machine.is_marked(6));
    }

    #[test]
    fn without_a_free_frame_a_hot_page_is_mapped_again_and_nothing_is_reclaimed() {
        let (mut policy, mut machine) = hotbox(0);
        far_pages(&mut policy, &mut machine, 0);
        for _ in 0..3 {
            machine.run(&mut policy, 5);
            machine.pass_ns(&mut policy, PERIOD_NS);
        }
        assert!(machine.run(&mut policy, 5) && !machine.is_marked(5));
        assert!(machine.moves.is_empty());
    }

    #[test]
    fn subtrees_without_an_access_are_skipped() {
        let (mut policy, mut machine) = hotbox(0);
        far_pages(&mut policy, &mut machine, 0);
        machine.run(&mut policy, 5);
        machine.pass_ns(&mut policy, PERIOD_NS);
        assert_eq!((machine.upper_scanned, machine.scanned), (4, 8));
    }

    #[test]
    fn eviction_runs_between_the_watermarks_in_the_background() {
        let (mut policy, mut machine) = hotbox(8);
        policy.config.low_share = 0.25;
        machine.touch(&mut policy, 0..8);
        assert!(machine.moves.is_empty());
        machine.pass_ns(&mut policy, 10);
        assert_eq!(machine.free_pages(Tier::Local), 4);
        assert_eq!(machine.pages_in(Tier::Far), [0, 1, 2, 3], "the oldest cold ones");
    }

    fn window(policy: &mut HotBox, machine: &mut TestMachine, local: u64) {
        policy.on_counters(CounterWindow { local_accesses: local, far_accesses: 1000 - local }, machine);
    }

    #[test]
    fn three_like_windows_pause_and_a_deviation_resumes() {
        let (mut policy, mut machine) = hotbox(0);
        far_pages(&mut policy, &mut machine, 0);
        window(&mut policy, &mut machine, 500);
        machine.pass_ns(&mut policy, 3 * PERIOD_NS);
        for local in [400, 440, 435] {
            window(&mut policy, &mut machine, local);
            assert!(!policy.is_paused());
        }
        window(&mut policy, &mut machine, 442);
        assert!(policy.is_paused());
        let before = machine.upper_scanned;
        machine.pass_ns(&mut policy, 3 * PERIOD_NS);
        assert_eq!(machine.upper_scanned, before, "no scans");
        machine.local_capacity = 4;
        (machine.marked[5], policy.heat[5]) = (true, HOT);
        assert!(machine.run(&mut policy, 5) && machine.moves.is_empty(), "no migrations");
        window(&mut policy, &mut machine, 460);
        assert!(policy.is_paused());
        window(&mut policy, &mut machine, 480);
        assert!(!policy.is_paused());
    }

    #[test]
    fn without_throttling_nothing_is_counted_and_nothing_pauses() {
        let config = Config { throttle: false, ..Config::default() };
        let mut policy = HotBox::build(config, 1, &Knowledge::default());
        let mut machine = TestMachine::new(32, 4);
        policy.start(&mut machine);
        assert_eq!(machine.counter_window_ns, 0);
        let (mut policy, mut machine) = hotbox(4);
        policy.start(&mut machine);
        assert_eq!(machine.counter_window_ns, 1_000_000_000);
    }

    #[test]
    fn no_more_pages_are_marked_than_the_bandwidth_allows() {
        let (mut policy, mut machine) = hotbox(0);
        policy.config.migration_bytes_per_s = 4 * PAGE_BYTES * 1000;
        far_pages(&mut policy, &mut machine, 0);
        for _ in 0..2 {
            (0..32).for_each(|page| machine.access(page));
            machine.pass_ns(&mut policy, PERIOD_NS);
        }
        assert_eq!(machine.marked.iter().filter(|&&marked| marked).count(), 4);
    }
}
