//! The static oracle: the pages that an earlier, identical run accessed most lie local, and nothing moves.
//!
//! From HotBox, section 3.2.2: "a static policy that places the top hottest pages in local memory, as
//! identified by offline profiling". Hotness is the number of accesses that miss the caches.

use serde::{Deserialize, Serialize};

use crate::entry::Registered;
use crate::knowledge::Knowledge;
use crate::machine::{PageIndex, Tier, TieredMachine};
use crate::policy::{Mapping, Policy};

/// What a run may set; the defaults are the paper's, or chosen as the file's head says.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The unit that is placed.
    pub mapping: Mapping,
}

/// Which pages are among the hottest that local memory holds.
pub struct Oracle {
    config: Config,
    knowledge: Knowledge,
    local: Vec<bool>,
}

impl Registered for Oracle {
    type Config = Config;
    fn build(config: Config, _seed: u64, knowledge: &Knowledge) -> Self {
        Self { config, knowledge: knowledge.clone(), local: Vec::new() }
    }
}

impl Policy for Oracle {
    fn mapping(&self) -> Mapping {
        self.config.mapping
    }

    fn start(&mut self, machine: &mut dyn TieredMachine) {
        let unit = match self.config.mapping {
            Mapping::Base => 1,
            Mapping::Huge => machine.pages_per_huge(),
        };
        let hotness = |first: u32| -> u64 {
            let pages = self.knowledge.profile.iter().skip(first as usize).take(unit as usize);
            pages.map(|&accesses| u64::from(accesses)).sum()
        };
        let mut units: Vec<(u64, PageIndex)> =
            (0..machine.page_count()).step_by(unit as usize).map(|first| (hotness(first), first)).collect();
        // The hottest first; of equals, the first.
        units.sort_unstable_by_key(|&(hotness, first)| (std::cmp::Reverse(hotness), first));
        units.truncate((machine.capacity_pages(Tier::Local) / unit) as usize);
        self.local = vec![false; machine.page_count() as usize];
        for (_, first) in units {
            self.local[first as usize] = true;
        }
    }

    fn place(&mut self, page: PageIndex, _machine: &mut dyn TieredMachine) -> Tier {
        if self.local[page as usize] { Tier::Local } else { Tier::Far }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{PAGES_PER_HUGE, TestMachine};
    use std::sync::Arc;

    fn oracle(mapping: Mapping, profile: Vec<u32>) -> Oracle {
        let knowledge = Knowledge { profile: Arc::new(profile), ..Knowledge::default() };
        Oracle::build(Config { mapping }, 1, &knowledge)
    }

    #[test]
    fn the_hottest_pages_lie_local() {
        let mut machine = TestMachine::new(4, 2);
        let mut policy = oracle(Mapping::Base, vec![1, 9, 3, 7]);
        policy.start(&mut machine);
        machine.touch(&mut policy, 0..4);
        assert_eq!(machine.pages_in(Tier::Local), [1, 3]);
    }

    #[test]
    fn huge_pages_are_placed_by_the_sum_of_their_parts() {
        let mut machine = TestMachine::new(2 * PAGES_PER_HUGE, PAGES_PER_HUGE);
        let mut profile = vec![2; 16];
        profile[..8].fill(1);
        profile[0] = 8;
        let mut policy = oracle(Mapping::Huge, profile);
        policy.start(&mut machine);
        machine.touch(&mut policy, [0, 8]);
        assert_eq!(machine.tier_of(8), Some(Tier::Local));
        assert_eq!(machine.tier_of(0), Some(Tier::Far));
    }
}
