//! Eager: promotes a far page at its first hint fault, evicts by lot.

use serde::{Deserialize, Serialize};

use crate::entry::Registered;
use crate::hint_scan::HintScan;
use crate::knowledge::Knowledge;
use crate::machine::{Call, PageIndex, Tier, TieredMachine};
use crate::policy::{Fault, FaultKind, Policy};

/// Settings. Names carry units: what ends in `_us` or `_bytes` shrinks with the working set.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Memory marked at once.
    pub scan_bytes: u64,
    /// Time between two windows.
    pub scan_period_us: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self { scan_bytes: 256 << 20, scan_period_us: 100_000 }
    }
}

/// The pages that are local, out of which lots are drawn.
pub struct Eager {
    config: Config,
    scan: HintScan,
    local: Vec<PageIndex>,
    random: u64,
}

impl Registered for Eager {
    type Config = Config;
    fn build(config: Config, seed: u64, _knowledge: &Knowledge) -> Self {
        Self { config, scan: HintScan::default(), local: Vec::new(), random: seed | 1 }
    }
}

impl Eager {
    fn evict_one(&mut self, machine: &mut dyn TieredMachine) {
        if self.local.is_empty() {
            return;
        }
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let at = (self.random >> 33) as usize % self.local.len();
        machine.migrate(&[self.local.swap_remove(at)], Tier::Far, Call::Kernel);
    }
}

impl Policy for Eager {
    fn start(&mut self, machine: &mut dyn TieredMachine) {
        machine.set_timer(0, self.config.scan_period_us * 1000);
    }

    fn on_first_touch(&mut self, page: PageIndex, tier: Tier, _machine: &mut dyn TieredMachine) {
        if tier == Tier::Local {
            self.local.push(page);
        }
    }

    fn on_fault(&mut self, fault: Fault, machine: &mut dyn TieredMachine) {
        if fault.kind != FaultKind::Hint || machine.tier_of(fault.page) != Some(Tier::Far) {
            return;
        }
        if machine.free_pages(Tier::Local) < machine.span(fault.page) {
            self.evict_one(machine);
        }
        if machine.migrate(&[fault.page], Tier::Local, Call::Kernel) == 1 {
            self.local.push(fault.page);
        }
    }

    fn on_timer(&mut self, timer: u32, machine: &mut dyn TieredMachine) {
        self.scan.mark_next(machine, self.config.scan_bytes, Some(Tier::Far));
        machine.set_timer(timer, self.config.scan_period_us * 1000);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestMachine;

    #[test]
    fn a_far_page_comes_at_its_first_hint_fault() {
        let mut policy = Eager::build(Config::default(), 1, &Knowledge::default());
        let mut machine = TestMachine::new(8, 2);
        policy.start(&mut machine);
        machine.touch(&mut policy, 0..8);
        machine.pass_ns(&mut policy, 100_000_000);
        assert!(machine.run(&mut policy, 5), "it was marked");
        assert_eq!(machine.tier_of(5), Some(Tier::Local));
    }
}
