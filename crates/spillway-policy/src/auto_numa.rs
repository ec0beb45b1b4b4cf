//! AutoNUMA: the kernel's NUMA balancing (Corbet 2012; Linux `kernel/sched/fair.c`, `mm/mempolicy.c`).
//!
//! From the kernel: a window of 256 MiB is made inaccessible at a period that adapts to the share of local
//! faults, one for all threads of a process (`task_numa_work`); the second hint fault at a page from the same
//! task migrates it; there is no demotion. Simplified: tasks are not moved.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::entry::Registered;
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
    /// Shortest period (Linux: 1 s a pass, but at most 2,560 MiB a second: `task_scan_min`).
    pub least_period_us: u64,
    /// Longest period (Linux: 60 s a pass, `task_scan_max`; here over 48 GiB).
    pub most_period_us: u64,
    /// Share of local faults from which on the period grows (Linux: 7 in 10).
    pub local_share: f64,
}

impl Default for Config {
    fn default() -> Self {
        Self { scan_bytes: 256 << 20, least_period_us: 100_000, most_period_us: 312_500, local_share: 0.7 }
    }
}

const SCAN: u32 = 0;
const NOBODY: u16 = u16::MAX;

/// The task that last faulted at each page, and where the window stands.
pub struct AutoNuma {
    config: Config,
    scan: HintScan,
    last_task: Vec<u16>,
    period_us: u64,
    local_faults: u64,
    far_faults: u64,
}

impl Registered for AutoNuma {
    type Config = Config;
    fn build(config: Config, _seed: u64, _knowledge: &Knowledge) -> Self {
        Self {
            config,
            scan: HintScan::default(),
            last_task: Vec::new(),
            period_us: config.least_period_us,
            local_faults: 0,
            far_faults: 0,
        }
    }
}

impl AutoNuma {
    /// Mostly local faults: there is little to win, so the scan slows down; else it hurries.
    fn adapt(&mut self) {
        let (local, far) = (std::mem::take(&mut self.local_faults), std::mem::take(&mut self.far_faults));
        if local + far == 0 || local as f64 >= self.config.local_share * (local + far) as f64 {
            self.period_us = (self.period_us * 2).min(self.config.most_period_us);
        } else {
            self.period_us = (self.period_us / 2).max(self.config.least_period_us);
        }
    }
}

impl Policy for AutoNuma {
    fn start(&mut self, machine: &mut dyn TieredMachine) {
        self.last_task = vec![NOBODY; machine.page_count() as usize];
        machine.set_timer(SCAN, self.period_us * 1000);
    }

    fn on_fault(&mut self, fault: Fault, machine: &mut dyn TieredMachine) {
        if fault.kind != FaultKind::Hint {
            return;
        }
        let task = (fault.task % u32::from(NOBODY)) as u16;
        let again = std::mem::replace(&mut self.last_task[fault.page as usize], task) == task;
        if machine.tier_of(fault.page) == Some(Tier::Local) {
            self.local_faults += 1;
            return;
        }
        self.far_faults += 1;
        if again {
            machine.migrate(&[fault.page], Tier::Local, Call::Kernel);
        }
    }

    fn on_release(&mut self, pages: Range<PageIndex>, _machine: &mut dyn TieredMachine) {
        self.last_task[pages.start as usize] = NOBODY;
    }

    fn on_timer(&mut self, _timer: u32, machine: &mut dyn TieredMachine) {
        if self.scan.mark_next(machine, self.config.scan_bytes, None) {
            self.adapt();
        }
        machine.set_timer(SCAN, self.period_us * 1000);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestMachine;
    use spillway_core::page::PAGE_BYTES;

    fn auto_numa(local: u32) -> (AutoNuma, TestMachine) {
        let config = Config {
            scan_bytes: 16 * PAGE_BYTES,
            least_period_us: 1,
            most_period_us: 4,
            ..Config::default()
        };
        let mut policy = AutoNuma::build(config, 1, &Knowledge::default());
        let mut machine = TestMachine::new(16, 0);
        policy.start(&mut machine);
        machine.touch(&mut policy, 0..16);
        machine.local_capacity = local;
        (policy, machine)
    }

    fn fault(policy: &mut AutoNuma, machine: &mut TestMachine, page: u32, task: u32) {
        policy.on_fault(Fault { page, kind: FaultKind::Hint, write: false, task }, machine);
    }

    #[test]
    fn the_second_fault_of_the_same_task_migrates() {
        let (mut policy, mut machine) = auto_numa(4);
        for task in [1, 2, 1] {
            fault(&mut policy, &mut machine, 3, task);
            assert!(machine.moves.is_empty());
        }
        fault(&mut policy, &mut machine, 3, 1);
        assert_eq!(machine.pages_in(Tier::Local), [3]);
    }

    #[test]
    fn nothing_is_demoted_to_make_room() {
        let (mut policy, mut machine) = auto_numa(1);
        for page in [3, 3, 4, 4] {
            fault(&mut policy, &mut machine, page, 0);
        }
        assert_eq!(machine.moves, [(3, Tier::Local)]);
    }

    #[test]
    fn the_scan_hurries_while_faults_are_far_and_slows_down_when_they_are_local() {
        let (mut policy, mut machine) = auto_numa(4);
        machine.pass_ns(&mut policy, 15_000);
        assert_eq!(policy.period_us, 4, "no faults");
        fault(&mut policy, &mut machine, 3, 1);
        machine.pass_ns(&mut policy, 4_000);
        assert_eq!(policy.period_us, 2);
        assert!(machine.is_marked(0));
    }
}
