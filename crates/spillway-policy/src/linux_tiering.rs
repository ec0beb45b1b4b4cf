//! Tiering as Linux has it: NUMA balancing in its tiering mode (`numa_balancing = 2`), with demotion by the
//! multi-generational LRU.
//!
//! From Linux 6.3 and later (`kernel/sched/fair.c`: `should_numa_migrate_memory`,
//! `numa_promotion_adjust_threshold`, `numa_promotion_rate_limit`; `mm/vmscan.c`):
//! - far pages are marked window by window, and the time is noted;
//! - a hint fault promotes a page if it comes within a threshold after the mark, and no more than the rate
//!   limit allows; while a sixteenth of local memory is free, any fault does;
//! - each adjustment period the threshold moves by an eighth of its default, down where there were more
//!   candidates than the rate limit takes, up to twice the default where there were fewer;
//! - promotion that finds no frame above the high watermark fails, and wakes demotion, which frees as much
//!   again above it;
//! - demotion takes the oldest generation ([`crate::generations`]).
//!
//! Simplified: one task's scan at the most that the kernel allows a process (256 MiB every 100 ms), as for
//! TPP; the free memory from which on any fault promotes is a share, where the kernel takes at least 1 GiB;
//! watermarks are those that TPP's file has.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::entry::Registered;
use crate::generations::Generations;
use crate::hint_scan::HintScan;
use crate::knowledge::Knowledge;
use crate::machine::{Call, PageIndex, Tier, TieredMachine};
use crate::policy::{Fault, FaultKind, Policy};

/// What a run may set; the defaults are the kernel's, or chosen as the file's head says.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Memory marked at once (`scan_size_mb`).
    pub scan_bytes: u64,
    /// Time between two windows.
    pub scan_period_us: u64,
    /// Time after a mark within which a fault makes a page hot (`hot_threshold_ms`).
    pub hot_threshold_us: u64,
    /// Time between two adjustments of that threshold (`scan_period_max_ms`).
    pub adjustment_period_us: u64,
    /// Most that is promoted (`numa_balancing_promote_rate_limit_MBps`).
    pub promotion_bytes_per_s: u64,
    /// Share of local memory that must be free for any fault to promote.
    pub plenty_share: f64,
    /// Share of local memory that promotion leaves free.
    pub high_share: f64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            scan_bytes: 256 << 20,
            scan_period_us: 100_000,
            hot_threshold_us: 1_000_000,
            adjustment_period_us: 60_000_000,
            promotion_bytes_per_s: 65_536 << 20,
            plenty_share: 1.0 / 16.0,
            high_share: 0.01,
        }
    }
}

const SCAN: u32 = 0;
const DEMOTE: u32 = 1;

/// Steps in which the threshold goes from nothing to twice its default (`NUMA_MIGRATION_ADJUST_STEPS`).
const STEPS: u64 = 16;
/// By how much candidates may differ from what the limit takes before the threshold moves.
const SLACK: f64 = 0.1;
const NS_PER_S: u64 = 1_000_000_000;

/// Candidates since a time.
#[derive(Clone, Copy, Default)]
struct Counted {
    since_ns: u64,
    pages: u64,
}

/// What is known of far pages, and the generations of local ones.
pub struct LinuxTiering {
    config: Config,
    scan: HintScan,
    generations: Generations,
    /// When each page was marked last, in microseconds.
    marked_us: Vec<u32>,
    /// 0 for the default, as in the kernel.
    threshold_us: u64,
    adjusted: Counted,
    limited: Counted,
    demoting: bool,
    /// Whether local pages are marked too.
    marks_local: bool,
}

impl Registered for LinuxTiering {
    type Config = Config;
    fn build(config: Config, _seed: u64, _knowledge: &Knowledge) -> Self {
        Self {
            config,
            scan: HintScan::default(),
            generations: Generations::new(0),
            marked_us: Vec::new(),
            threshold_us: 0,
            adjusted: Counted::default(),
            limited: Counted::default(),
            demoting: false,
            marks_local: false,
        }
    }
}

fn now_us(machine: &dyn TieredMachine) -> u32 {
    (machine.now_ns() / 1000) as u32
}

impl LinuxTiering {
    /// The same, where local pages are marked and their faults told too.
    pub(crate) fn marking_local(self) -> Self {
        Self { marks_local: true, ..self }
    }

    fn frames(machine: &dyn TieredMachine, share: f64) -> u32 {
        (f64::from(machine.capacity_pages(Tier::Local)) * share).ceil() as u32
    }

    fn limit_pages_per_s(&self, machine: &dyn TieredMachine) -> f64 {
        self.config.promotion_bytes_per_s as f64 / machine.page_bytes() as f64
    }

    fn adjust_threshold(&mut self, machine: &dyn TieredMachine) {
        let now_ns = machine.now_ns();
        let period_ns = self.config.adjustment_period_us * 1000;
        if now_ns - self.adjusted.since_ns <= period_ns {
            return;
        }
        let default_us = self.config.hot_threshold_us;
        let step_us = (2 * default_us / STEPS).max(1);
        let wanted = self.limit_pages_per_s(machine) * period_ns as f64 / NS_PER_S as f64;
        let before_us = if self.threshold_us == 0 { default_us } else { self.threshold_us };
        let found = self.adjusted.pages as f64;
        self.threshold_us = if found > wanted * (1.0 + SLACK) {
            before_us.saturating_sub(step_us).max(step_us)
        } else if found < wanted * (1.0 - SLACK) {
            (before_us + step_us).min(2 * default_us)
        } else {
            before_us
        };
        self.adjusted = Counted { since_ns: now_ns, pages: 0 };
    }

    /// Whether the limit is reached of this second, this page counted.
    fn is_limited(&mut self, machine: &dyn TieredMachine, page: PageIndex) -> bool {
        let span = u64::from(machine.span(page));
        self.adjusted.pages += span;
        if machine.now_ns() - self.limited.since_ns > NS_PER_S {
            self.limited = Counted { since_ns: machine.now_ns(), pages: 0 };
        }
        self.limited.pages += span;
        self.limited.pages as f64 >= self.limit_pages_per_s(machine)
    }

    /// Whether the fault of a marked page came soon after its mark.
    pub(crate) fn is_hot(&self, machine: &dyn TieredMachine, page: PageIndex) -> bool {
        let waited_us = now_us(machine).wrapping_sub(self.marked_us[page as usize]);
        let threshold_us =
            if self.threshold_us == 0 { self.config.hot_threshold_us } else { self.threshold_us };
        u64::from(waited_us) < threshold_us
    }

    /// Whether the fault of a far page promotes it.
    pub(crate) fn promotes(&mut self, machine: &dyn TieredMachine, page: PageIndex) -> bool {
        let plenty = Self::frames(machine, self.config.plenty_share + self.config.high_share);
        if machine.free_pages(Tier::Local) > plenty {
            self.threshold_us = 0;
            return true;
        }
        self.adjust_threshold(machine);
        self.is_hot(machine, page) && !self.is_limited(machine, page)
    }

    pub(crate) fn promote(&mut self, machine: &mut dyn TieredMachine, page: PageIndex) {
        let high = Self::frames(machine, self.config.high_share);
        if machine.free_pages(Tier::Local) >= high + machine.span(page)
            && machine.migrate(&[page], Tier::Local, Call::Kernel) == 1
        {
            self.generations.insert(page);
        }
        self.wake_demotion(machine);
    }

    pub(crate) fn demote_page(&mut self, machine: &mut dyn TieredMachine, page: PageIndex) {
        if machine.migrate(&[page], Tier::Far, Call::Kernel) == 1 {
            self.generations.remove(page);
        }
    }

    fn wake_demotion(&mut self, machine: &mut dyn TieredMachine) {
        let high = Self::frames(machine, self.config.high_share);
        if !self.demoting && machine.free_pages(Tier::Local) <= high {
            self.demoting = true;
            machine.set_timer(DEMOTE, 0);
        }
    }

    fn demote(&mut self, machine: &mut dyn TieredMachine) {
        let keep = 2 * Self::frames(machine, self.config.high_share);
        let want = (keep + 1).saturating_sub(machine.free_pages(Tier::Local));
        let cold = self.generations.take_cold(machine, want);
        machine.migrate(&cold, Tier::Far, Call::Kernel);
    }

    fn mark(&mut self, machine: &mut dyn TieredMachine) {
        let now_us = now_us(machine);
        let tier = if self.marks_local { None } else { Some(Tier::Far) };
        let marked_us = &mut self.marked_us;
        self.scan.mark_each(machine, self.config.scan_bytes, tier, |page| marked_us[page as usize] = now_us);
    }
}

impl Policy for LinuxTiering {
    fn start(&mut self, machine: &mut dyn TieredMachine) {
        self.generations = Generations::new(machine.page_count());
        self.marked_us = vec![0; machine.page_count() as usize];
        self.adjusted.since_ns = machine.now_ns();
        self.limited.since_ns = machine.now_ns();
        machine.set_timer(SCAN, self.config.scan_period_us * 1000);
    }

    fn on_first_touch(&mut self, page: PageIndex, tier: Tier, machine: &mut dyn TieredMachine) {
        if tier == Tier::Local {
            self.generations.insert(page);
            self.wake_demotion(machine);
        }
    }

    fn on_fault(&mut self, fault: Fault, machine: &mut dyn TieredMachine) {
        let far = machine.tier_of(fault.page) == Some(Tier::Far);
        if fault.kind == FaultKind::Hint && far && self.promotes(machine, fault.page) {
            self.promote(machine, fault.page);
        }
    }

    fn on_release(&mut self, pages: Range<PageIndex>, _machine: &mut dyn TieredMachine) {
        self.generations.remove(pages.start);
    }

    fn on_timer(&mut self, timer: u32, machine: &mut dyn TieredMachine) {
        if timer == DEMOTE {
            self.demoting = false;
            return self.demote(machine);
        }
        machine.set_timer(SCAN, self.config.scan_period_us * 1000);
        self.mark(machine);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestMachine;
    use spillway_core::page::PAGE_BYTES;

    const PERIOD_NS: u64 = 1_000_000;

    /// 32 pages, all marked every millisecond; hot is what faults within a tenth of that.
    fn linux(local: u32) -> (LinuxTiering, TestMachine) {
        let config = Config {
            scan_bytes: 32 * PAGE_BYTES,
            scan_period_us: PERIOD_NS / 1000,
            hot_threshold_us: PERIOD_NS / 10_000,
            plenty_share: 0.25,
            ..Config::default()
        };
        let mut policy = LinuxTiering::build(config, 1, &Knowledge::default());
        let mut machine = TestMachine::new(32, local);
        policy.start(&mut machine);
        machine.touch(&mut policy, 0..32);
        (policy, machine)
    }

    /// The page is accessed so long after the next mark.
    fn access_after(policy: &mut LinuxTiering, machine: &mut TestMachine, page: u32, ns: u64) {
        machine.pass_ns(policy, PERIOD_NS - machine.now_ns % PERIOD_NS + ns);
        assert!(machine.run(policy, page), "page {page} was marked");
    }

    #[test]
    fn a_page_that_faults_soon_after_its_mark_is_promoted_and_one_that_faults_late_is_not() {
        let (mut policy, mut machine) = linux(16);
        machine.pass_ns(&mut policy, 1);
        access_after(&mut policy, &mut machine, 20, PERIOD_NS / 2);
        assert_eq!(machine.tier_of(20), Some(Tier::Far));
        access_after(&mut policy, &mut machine, 21, PERIOD_NS / 100);
        assert_eq!(machine.tier_of(21), Some(Tier::Local));
    }

    #[test]
    fn while_much_is_free_any_fault_promotes() {
        let (mut policy, mut machine) = linux(16);
        machine.local_capacity = 32;
        access_after(&mut policy, &mut machine, 20, PERIOD_NS / 2);
        assert_eq!(machine.tier_of(20), Some(Tier::Local));
    }

    #[test]
    fn no_more_is_promoted_than_the_limit_allows() {
        let (mut policy, mut machine) = linux(16);
        policy.config.promotion_bytes_per_s = PAGE_BYTES;
        machine.pass_ns(&mut policy, 1);
        access_after(&mut policy, &mut machine, 21, PERIOD_NS / 100);
        assert_eq!(machine.tier_of(21), Some(Tier::Far));
    }

    #[test]
    fn the_threshold_rises_where_the_limit_takes_more_and_falls_where_it_takes_less() {
        let (mut policy, mut machine) = linux(16);
        let default_us = policy.config.hot_threshold_us;
        policy.config.adjustment_period_us = 1000;
        machine.now_ns += 2 * PERIOD_NS;
        policy.adjust_threshold(&machine);
        assert_eq!(policy.threshold_us, default_us + default_us / 8);
        policy.config.promotion_bytes_per_s = 1;
        policy.adjusted.pages = 100;
        machine.now_ns += 2 * PERIOD_NS;
        policy.adjust_threshold(&machine);
        assert!(policy.threshold_us <= default_us + 1, "{}", policy.threshold_us);
    }

    #[test]
    fn a_promotion_that_finds_no_frame_fails_and_wakes_demotion() {
        let (mut policy, mut machine) = linux(16);
        machine.local_capacity = 16;
        policy.config.high_share = 0.25;
        let before = machine.pages_in(Tier::Local).len();
        access_after(&mut policy, &mut machine, 21, PERIOD_NS / 100);
        machine.pass_ns(&mut policy, 10);
        assert!(machine.pages_in(Tier::Local).len() < before, "frames were freed");
        assert!(machine.free_pages(Tier::Local) >= 8);
    }
}
