//! Nimble page management (Yan et al., ASPLOS 2019), with base and with huge pages.
//!
//! From the paper and from what HotBox says of it (3.3, 6.5): the lists of both tiers are scanned
//! periodically; hot far pages and cold local ones are exchanged in batches by a system call; at most 2 GB/s.
//! Of how large a batch is there are two readings, and both are here. HotBox says: the larger of the two
//! counts, so that it takes in pages that are not hot, or not cold (6.5). Nimble's kernel isolates hot far
//! pages, as many cold local ones as it has no free frames for, and puts back what found no partner: the
//! smaller count; only where its `MPOL_MF_MOVE_ALL` is asked for it takes pages whether they are hot or cold,
//! up to the size of local memory. Simplified: a page is hot when two scans in a row found it accessed
//! (inactive, referenced, active), cold when two did not; migration by several threads is off, as in HotBox
//! 6.2. The period is what Nimble's launcher does by itself (1 s); the scripts of its evaluation set 5 s.
//! HotBox names none, but that it had to cap Nimble at 2 GB/s speaks for 1 s: of its 2 GB of local memory no
//! more than 0.4 GB could come in a second with 5. `docs/research/figures.md` tells what depends on it.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::entry::Registered;
use crate::knowledge::Knowledge;
use crate::machine::{Call, PageIndex, Scan, Tier, TieredMachine};
use crate::policy::{Mapping, Policy};

/// How large a batch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Batch {
    /// As many as there are hot far pages or cold local ones, whichever are more (HotBox 6.5).
    Larger,
    /// No more hot pages than there is room for in free frames and those of cold ones (Nimble's kernel).
    Smaller,
}

/// What a run may set; the defaults are the paper's, or chosen as the file's head says.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The pages that it works with.
    pub mapping: Mapping,
    /// How many pages of those that are hot and far, and cold and local, change places in a round.
    pub batch: Batch,
    /// Time between two rounds.
    pub period_us: u64,
    /// Most that comes in (HotBox 6.2).
    pub migration_bytes_per_s: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mapping: Mapping::Base,
            batch: Batch::Larger,
            period_us: 1_000_000,
            migration_bytes_per_s: 2_000_000_000,
        }
    }
}

/// Scans in a row that settle what a page is.
const SETTLED: u8 = 2;

/// What the scans of one tier found.
#[derive(Default)]
struct Found {
    /// Hot or cold, whichever is looked for.
    wanted: Vec<PageIndex>,
    /// The other mappings that the scan found.
    rest: Vec<PageIndex>,
}

/// In how many scans in a row each page was accessed, or was not.
pub struct Nimble {
    config: Config,
    /// Scans in a row that found a page accessed, or, from 128 on, that did not.
    streaks: Vec<u8>,
    round: u32,
}

const UNUSED: u8 = 128;

impl Registered for Nimble {
    type Config = Config;
    fn build(config: Config, _seed: u64, _knowledge: &Knowledge) -> Self {
        Self { config, streaks: Vec::new(), round: 0 }
    }
}

impl Nimble {
    /// Scans a tier; far pages are wanted when they are hot, local ones when they are cold.
    fn scan(&mut self, machine: &mut dyn TieredMachine, tier: Tier) -> Found {
        let mut found = Found::default();
        let streaks = &mut self.streaks;
        let scan = Scan { start: 0, pages: machine.page_count(), tier, hierarchical: false };
        machine.scan(scan, &mut |page, accessed| {
            let streak = &mut streaks[page as usize];
            *streak = match (accessed, *streak >= UNUSED) {
                (true, true) => 1,
                (false, false) => UNUSED + 1,
                _ => streak.saturating_add(1).min(if accessed { UNUSED - 1 } else { u8::MAX }),
            };
            let hot = *streak < UNUSED && *streak >= SETTLED;
            let cold = *streak >= UNUSED + SETTLED;
            let wanted = if tier == Tier::Far { hot } else { cold };
            if wanted { found.wanted.push(page) } else { found.rest.push(page) }
        });
        // Each round begins elsewhere, as lists that are rotated do.
        for pages in [&mut found.wanted, &mut found.rest] {
            if !pages.is_empty() {
                let shift = (self.round as usize).wrapping_mul(7919) % pages.len();
                pages.rotate_left(shift);
            }
        }
        found
    }

    fn batch_pages(&self, machine: &dyn TieredMachine) -> usize {
        let bytes = self.config.migration_bytes_per_s as f64 * self.config.period_us as f64 / 1e6;
        let unit = match self.config.mapping {
            Mapping::Base => 1,
            Mapping::Huge => machine.pages_per_huge(),
        };
        (bytes / machine.page_bytes() as f64 / f64::from(unit)).max(1.0) as usize
    }
}

impl Policy for Nimble {
    fn mapping(&self) -> Mapping {
        self.config.mapping
    }

    fn start(&mut self, machine: &mut dyn TieredMachine) {
        self.streaks = vec![0; machine.page_count() as usize];
        machine.set_timer(0, self.config.period_us * 1000);
    }

    fn on_release(&mut self, pages: Range<PageIndex>, _machine: &mut dyn TieredMachine) {
        self.streaks[pages.start as usize] = 0;
    }

    fn on_timer(&mut self, timer: u32, machine: &mut dyn TieredMachine) {
        self.round += 1;
        let far = self.scan(machine, Tier::Far);
        let local = self.scan(machine, Tier::Local);
        let (hot, cold) = (far.wanted.len(), local.wanted.len());
        let (batch, also_hot, also_cold) = match self.config.batch {
            Batch::Larger => (hot.max(cold), far.rest, local.rest),
            Batch::Smaller => (hot, Vec::new(), Vec::new()),
        };
        let batch = batch.min(self.batch_pages(machine));
        let mut promote = far.wanted.into_iter().chain(also_hot).take(batch).peekable();
        let mut free = Vec::new();
        let mut frames = machine.free_pages(Tier::Local);
        while let Some(&page) = promote.peek() {
            if frames < machine.span(page) {
                break;
            }
            frames -= machine.span(page);
            free.push(page);
            promote.next();
        }
        if !free.is_empty() {
            machine.migrate(&free, Tier::Local, Call::System);
        }
        let demote = local.wanted.into_iter().chain(also_cold);
        let pairs: Vec<_> = promote.zip(demote).collect();
        if !pairs.is_empty() {
            machine.exchange(&pairs, Call::System);
        }
        machine.set_timer(timer, self.config.period_us * 1000);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{PAGES_PER_HUGE, TestMachine};
    use spillway_core::page::PAGE_BYTES;

    const PERIOD_NS: u64 = 1_000_000_000;

    fn nimble(mapping: Mapping, pages: u32, local: u32) -> (Nimble, TestMachine) {
        let mut policy = Nimble::build(Config { mapping, ..Config::default() }, 1, &Knowledge::default());
        let mut machine = TestMachine::new(pages, local);
        policy.start(&mut machine);
        (policy, machine)
    }

    #[test]
    fn a_batch_is_as_large_as_the_larger_count() {
        let (mut policy, mut machine) = nimble(Mapping::Base, 16, 4);
        machine.touch(&mut policy, 0..16);
        for _ in 0..2 {
            (0..4).chain([9]).for_each(|page| machine.access(page));
            machine.pass_ns(&mut policy, PERIOD_NS);
        }
        assert_eq!(machine.calls, [1], "one hot page far, none cold: a warm one goes for it");
        assert_eq!(machine.tier_of(9), Some(Tier::Local));
        machine.calls.clear();
        machine.pass_ns(&mut policy, 2 * PERIOD_NS);
        assert_eq!(
            machine.calls.last(),
            Some(&4),
            "four cold pages local, none hot: cold ones come for them"
        );
    }

    #[test]
    fn a_smaller_batch_has_a_hot_page_for_each_cold_one() {
        let (mut policy, mut machine) = nimble(Mapping::Base, 16, 4);
        policy.config.batch = Batch::Smaller;
        machine.touch(&mut policy, 0..16);
        for _ in 0..2 {
            // Three hot far pages; of the local ones 2 and 3 are cold.
            [0, 1, 8, 9, 10].into_iter().for_each(|page| machine.access(page));
            machine.pass_ns(&mut policy, PERIOD_NS);
        }
        assert_eq!(machine.calls, [2]);
        assert!([0, 1].iter().all(|&page| machine.tier_of(page) == Some(Tier::Local)));
        machine.calls.clear();
        for _ in 0..2 {
            machine.pages_in(Tier::Local).into_iter().for_each(|page| machine.access(page));
            machine.pass_ns(&mut policy, PERIOD_NS);
        }
        assert!(machine.calls.is_empty(), "none hot and far, so nothing moves: {:?}", machine.calls);
    }

    #[test]
    fn the_batch_is_capped_by_bandwidth() {
        let (mut policy, mut machine) = nimble(Mapping::Base, 64, 16);
        policy.config.migration_bytes_per_s = PAGE_BYTES * 3;
        machine.touch(&mut policy, 0..64);
        for _ in 0..2 {
            (16..64).for_each(|page| machine.access(page));
            machine.pass_ns(&mut policy, PERIOD_NS);
        }
        assert_eq!(machine.calls, [3]);
    }

    #[test]
    fn huge_pages_are_exchanged_whole() {
        let (mut policy, mut machine) = nimble(Mapping::Huge, 4 * PAGES_PER_HUGE, PAGES_PER_HUGE);
        machine.touch(&mut policy, (0..4).map(|huge| huge * PAGES_PER_HUGE));
        for _ in 0..2 {
            machine.access(2 * PAGES_PER_HUGE);
            machine.pass_ns(&mut policy, PERIOD_NS);
        }
        assert_eq!(machine.tier_of(2 * PAGES_PER_HUGE + 5), Some(Tier::Local));
        assert_eq!(machine.tier_of(0), Some(Tier::Far));
    }

    #[test]
    fn free_frames_are_filled_without_an_exchange() {
        let (mut policy, mut machine) = nimble(Mapping::Base, 8, 0);
        machine.touch(&mut policy, 0..8);
        machine.local_capacity = 4;
        for _ in 0..2 {
            machine.access(6);
            machine.pass_ns(&mut policy, PERIOD_NS);
        }
        assert_eq!(machine.moves, [(6, Tier::Local)]);
    }
}
