//! Colloid (Vuppalapati and Agarwal, SOSP 2024): pages are placed so that both tiers take equally long under
//! load.
//!
//! From the authors' patch of Linux 6.3 (`tpp/linux-6.3` of their repository), Colloid on the kernel's own
//! tiering, with what [`crate::linux_tiering`] has of that:
//! - the loaded latency of either tier is measured all the time and smoothed;
//! - while local memory answers no sooner than far memory nothing is promoted, and a hot local page is
//!   demoted in its hint fault;
//! - so local pages are marked as well, and what that costs is part of it.
//!
//! Left out: how many accesses to shift and which pages make them up, since the patch decides page by page
//! (the paper's section 3 does more on sampled accesses, which cannot be told from what we have). What is
//! seen of the tiers is by how much far memory takes longer; where no machine measures local memory under
//! load that is always more than nothing, and what remains of Colloid is its base and the marks of local
//! pages.

use std::ops::Range;

use crate::entry::Registered;
use crate::knowledge::Knowledge;
use crate::linux_tiering::{Config, LinuxTiering};
use crate::machine::{PageIndex, Tier, TieredMachine};
use crate::policy::{Fault, FaultKind, Policy};

/// What a new measurement counts for in the smoothed latency (the patch's `EWMA_EXP` is 1: a half).
const NEW_WEIGHT: f64 = 0.5;

/// The kernel's tiering, and by how much far memory takes longer.
pub struct Colloid {
    base: LinuxTiering,
    /// How much longer a far access takes, smoothed; none before the first measurement.
    far_is_longer_ns: Option<f64>,
}

impl Registered for Colloid {
    type Config = Config;
    fn build(config: Config, seed: u64, knowledge: &Knowledge) -> Self {
        let base = LinuxTiering::build(config, seed, knowledge).marking_local();
        Self { base, far_is_longer_ns: None }
    }
}

impl Colloid {
    fn measure(&mut self, machine: &dyn TieredMachine) {
        let now_ns = machine.link().delta_latency_ns;
        let before_ns = self.far_is_longer_ns.unwrap_or(now_ns);
        self.far_is_longer_ns = Some(before_ns + NEW_WEIGHT * (now_ns - before_ns));
    }

    /// Whether local memory answers no sooner than far memory.
    fn local_is_overloaded(&self) -> bool {
        self.far_is_longer_ns.is_some_and(|longer_ns| longer_ns < 0.5)
    }
}

impl Policy for Colloid {
    fn start(&mut self, machine: &mut dyn TieredMachine) {
        self.measure(machine);
        self.base.start(machine);
    }

    fn on_first_touch(&mut self, page: PageIndex, tier: Tier, machine: &mut dyn TieredMachine) {
        self.base.on_first_touch(page, tier, machine);
    }

    fn on_fault(&mut self, fault: Fault, machine: &mut dyn TieredMachine) {
        if fault.kind != FaultKind::Hint {
            return;
        }
        match machine.tier_of(fault.page) {
            Some(Tier::Local) if self.local_is_overloaded() && self.base.is_hot(machine, fault.page) => {
                self.base.demote_page(machine, fault.page);
            }
            // The base counts its candidates whether they are promoted or not: it is asked first.
            Some(Tier::Far) if self.base.promotes(machine, fault.page) && !self.local_is_overloaded() => {
                self.base.promote(machine, fault.page);
            }
            _ => {}
        }
    }

    fn on_release(&mut self, pages: Range<PageIndex>, machine: &mut dyn TieredMachine) {
        self.base.on_release(pages, machine);
    }

    fn on_timer(&mut self, timer: u32, machine: &mut dyn TieredMachine) {
        self.measure(machine);
        self.base.on_timer(timer, machine);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestMachine;
    use spillway_core::page::PAGE_BYTES;

    const PERIOD_NS: u64 = 1_000_000;

    fn colloid(far_is_longer_ns: f64) -> (Colloid, TestMachine) {
        let config = Config {
            scan_bytes: 32 * PAGE_BYTES,
            scan_period_us: PERIOD_NS / 1000,
            hot_threshold_us: PERIOD_NS / 10_000,
            ..Config::default()
        };
        let mut policy = Colloid::build(config, 1, &Knowledge::default());
        let mut machine = TestMachine::new(32, 16);
        machine.link.delta_latency_ns = far_is_longer_ns;
        policy.start(&mut machine);
        machine.touch(&mut policy, 0..32);
        // Half of local memory is free, so that any fault would promote.
        machine.local_capacity = 32;
        machine.pass_ns(&mut policy, PERIOD_NS + PERIOD_NS / 100);
        (policy, machine)
    }

    #[test]
    fn while_far_memory_takes_longer_hot_pages_are_promoted() {
        let (mut policy, mut machine) = colloid(500.0);
        machine.run(&mut policy, 20);
        machine.run(&mut policy, 3);
        assert_eq!(machine.moves, [(20, Tier::Local)]);
    }

    #[test]
    fn while_local_memory_takes_as_long_nothing_is_promoted_and_what_is_hot_leaves() {
        let (mut policy, mut machine) = colloid(0.0);
        machine.run(&mut policy, 20);
        machine.run(&mut policy, 3);
        assert_eq!(machine.moves, [(3, Tier::Far)]);
    }

    #[test]
    fn a_short_burst_of_load_changes_nothing() {
        let (mut policy, mut machine) = colloid(500.0);
        machine.link.delta_latency_ns = 0.0;
        policy.measure(&machine);
        assert!(!policy.local_is_overloaded());
        (0..12).for_each(|_| policy.measure(&machine));
        assert!(policy.local_is_overloaded());
    }
}
