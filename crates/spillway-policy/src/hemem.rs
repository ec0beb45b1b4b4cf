//! HeMem (Raybuck et al., SOSP 2021).
//!
//! From the paper: sampled loads and stores are counted for each page; a page is hot at 8 reads or 4 writes;
//! when a page's count reaches 18, all counts are halved, each when its page is next sampled; a policy thread
//! wakes every 10 ms, promotes hot far pages, those that are written first, and demotes cold local ones to
//! make room; at most 10 GB/s. Simplified: one page size for all regions; stores are sampled when they miss
//! the caches, as loads are.

use std::collections::VecDeque;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::entry::Registered;
use crate::knowledge::Knowledge;
use crate::machine::{Call, PageIndex, Sample, Tier, TieredMachine};
use crate::page_lists::PageLists;
use crate::policy::Policy;

/// What a run may set; the defaults are the paper's, or chosen as the file's head says.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// One access in so many is sampled.
    pub sample_period_accesses: u32,
    /// Reads that make a page hot.
    pub hot_reads: u8,
    /// Writes that make a page hot.
    pub hot_writes: u8,
    /// Count at which all counts are halved.
    pub cooling: u8,
    /// Time between two rounds of the policy thread.
    pub period_us: u64,
    /// Most bytes that migrate in a second, either way.
    pub migration_bytes_per_s: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            sample_period_accesses: 5000,
            hot_reads: 8,
            hot_writes: 4,
            cooling: 18,
            period_us: 10_000,
            migration_bytes_per_s: 10_000_000_000,
        }
    }
}

#[derive(Clone, Copy, Default)]
struct Counts {
    reads: u8,
    writes: u8,
    /// The cooling that these counts have seen.
    cooled_at: u8,
    queued: bool,
}

/// The lists of local pages, hot and cold.
const LOCAL_HOT: u8 = 0;
const LOCAL_COLD: u8 = 1;

/// How often each page was sampled, and the lists of hot and cold pages.
pub struct HeMem {
    config: Config,
    counts: Vec<Counts>,
    coolings: u8,
    lists: PageLists,
    hot_written: VecDeque<PageIndex>,
    hot_read: VecDeque<PageIndex>,
    samples: Vec<Sample>,
}

impl Registered for HeMem {
    type Config = Config;
    fn build(config: Config, _seed: u64, _knowledge: &Knowledge) -> Self {
        Self {
            config,
            counts: Vec::new(),
            coolings: 0,
            lists: PageLists::new(0, 2),
            hot_written: VecDeque::new(),
            hot_read: VecDeque::new(),
            samples: Vec::new(),
        }
    }
}

impl HeMem {
    /// A page's counts, halved for each cooling since they were last seen.
    fn cooled(&mut self, page: PageIndex) -> &mut Counts {
        let coolings = self.coolings;
        let counts = &mut self.counts[page as usize];
        let halvings = u32::from(coolings.wrapping_sub(counts.cooled_at)).min(7);
        counts.reads >>= halvings;
        counts.writes >>= halvings;
        counts.cooled_at = coolings;
        counts
    }

    fn is_hot(&mut self, page: PageIndex) -> bool {
        let (reads, writes) = (self.config.hot_reads, self.config.hot_writes);
        let counts = self.cooled(page);
        counts.reads >= reads || counts.writes >= writes
    }

    fn count(&mut self, machine: &dyn TieredMachine, sample: Sample) {
        let page = if machine.span(sample.page) > 1 {
            sample.page / machine.pages_per_huge() * machine.pages_per_huge()
        } else {
            sample.page
        };
        let counts = self.cooled(page);
        let count = if sample.write { &mut counts.writes } else { &mut counts.reads };
        *count = count.saturating_add(1);
        if counts.reads.max(counts.writes) >= self.config.cooling {
            self.coolings = self.coolings.wrapping_add(1);
        }
        let hot = self.is_hot(page);
        match machine.tier_of(page) {
            Some(Tier::Local) => self.lists.push_head(if hot { LOCAL_HOT } else { LOCAL_COLD }, page),
            Some(Tier::Far) if hot && !self.counts[page as usize].queued => {
                let written = self.counts[page as usize].writes >= self.config.hot_writes;
                self.counts[page as usize].queued = true;
                if written { self.hot_written.push_back(page) } else { self.hot_read.push_back(page) }
            }
            _ => {}
        }
    }

    /// The next hot far page, those that are written first.
    fn next_hot(&mut self, machine: &dyn TieredMachine) -> Option<PageIndex> {
        loop {
            let page = self.hot_written.pop_front().or_else(|| self.hot_read.pop_front())?;
            self.counts[page as usize].queued = false;
            if machine.tier_of(page) == Some(Tier::Far) && self.is_hot(page) {
                return Some(page);
            }
        }
    }

    /// A local page that is cold; hot ones that have cooled become cold on the way.
    fn next_cold(&mut self) -> Option<PageIndex> {
        if self.lists.is_empty(LOCAL_COLD) {
            for _ in 0..self.lists.len(LOCAL_HOT) {
                let page = self.lists.pop_tail(LOCAL_HOT)?;
                let list = if self.is_hot(page) { LOCAL_HOT } else { LOCAL_COLD };
                self.lists.push_head(list, page);
            }
        }
        self.lists.pop_tail(LOCAL_COLD)
    }

    fn migrate(&mut self, machine: &mut dyn TieredMachine) {
        let most = self.config.migration_bytes_per_s as f64 * self.config.period_us as f64 / 1e6;
        let mut left_bytes = most.max(machine.page_bytes() as f64);
        while let Some(page) = self.next_hot(machine) {
            let bytes = f64::from(machine.span(page)) * machine.page_bytes() as f64;
            if left_bytes < bytes {
                self.counts[page as usize].queued = true;
                return self.hot_read.push_front(page);
            }
            if machine.free_pages(Tier::Local) < machine.span(page) {
                let Some(victim) = self.next_cold() else { return };
                machine.migrate(&[victim], Tier::Far, Call::Kernel);
                left_bytes -= bytes;
            }
            if machine.migrate(&[page], Tier::Local, Call::Kernel) == 1 {
                self.lists.push_head(LOCAL_HOT, page);
            }
            left_bytes -= bytes;
        }
    }
}

impl Policy for HeMem {
    fn start(&mut self, machine: &mut dyn TieredMachine) {
        self.counts = vec![Counts::default(); machine.page_count() as usize];
        self.lists = PageLists::new(machine.page_count(), 2);
        machine.sample_accesses(self.config.sample_period_accesses);
        machine.set_timer(0, self.config.period_us * 1000);
    }

    fn on_first_touch(&mut self, page: PageIndex, tier: Tier, _machine: &mut dyn TieredMachine) {
        if tier == Tier::Local {
            self.lists.push_head(LOCAL_COLD, page);
        }
    }

    fn on_release(&mut self, pages: Range<PageIndex>, _machine: &mut dyn TieredMachine) {
        self.lists.remove(pages.start);
        let counts = &mut self.counts[pages.start as usize];
        // It may stand in a queue still, which finds that it is not hot.
        *counts = Counts { queued: counts.queued, cooled_at: self.coolings, ..Counts::default() };
    }

    fn on_timer(&mut self, timer: u32, machine: &mut dyn TieredMachine) {
        let mut samples = std::mem::take(&mut self.samples);
        machine.take_samples(&mut samples);
        samples.drain(..).for_each(|sample| self.count(machine, sample));
        self.samples = samples;
        self.migrate(machine);
        machine.set_timer(timer, self.config.period_us * 1000);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestMachine;
    use spillway_core::page::PAGE_BYTES;

    fn hemem() -> (HeMem, TestMachine) {
        let mut policy = HeMem::build(Config::default(), 1, &Knowledge::default());
        let mut machine = TestMachine::new(16, 2);
        policy.start(&mut machine);
        machine.touch(&mut policy, 0..16);
        (policy, machine)
    }

    fn sample(machine: &mut TestMachine, page: u32, write: bool, times: usize) {
        machine.samples.extend(std::iter::repeat_n(Sample { page, write }, times));
    }

    #[test]
    fn eight_reads_or_four_writes_make_a_page_hot() {
        for (write, times, hot) in [(false, 7, false), (false, 8, true), (true, 3, false), (true, 4, true)] {
            let (mut policy, mut machine) = hemem();
            sample(&mut machine, 9, write, times);
            machine.pass_ns(&mut policy, 10_000_000);
            assert_eq!(machine.tier_of(9) == Some(Tier::Local), hot, "{times} {write}");
        }
    }

    #[test]
    fn written_pages_go_first_and_cold_ones_make_room() {
        let (mut policy, mut machine) = hemem();
        sample(&mut machine, 9, false, 8);
        sample(&mut machine, 10, true, 4);
        machine.pass_ns(&mut policy, 10_000_000);
        let order: Vec<_> = machine.moves.iter().map(|&(page, _)| page).collect();
        assert_eq!(order, [0, 10, 1, 9]);
    }

    #[test]
    fn all_counts_are_halved_when_one_reaches_eighteen() {
        let (mut policy, mut machine) = hemem();
        sample(&mut machine, 9, false, 7);
        sample(&mut machine, 10, false, 18);
        sample(&mut machine, 9, false, 1);
        machine.pass_ns(&mut policy, 10_000_000);
        assert_eq!(policy.counts[9].reads, 4, "7 / 2 and one more");
        assert_eq!(machine.tier_of(9), Some(Tier::Far));
        assert_eq!(machine.tier_of(10), Some(Tier::Local));
    }

    #[test]
    fn no_more_migrates_than_the_cap() {
        let (mut policy, mut machine) = hemem();
        policy.config.migration_bytes_per_s = 2 * PAGE_BYTES * 100;
        sample(&mut machine, 9, false, 8);
        sample(&mut machine, 10, false, 8);
        machine.pass_ns(&mut policy, 10_000_000);
        assert_eq!(machine.moves.len(), 2, "one page and its victim");
        machine.pass_ns(&mut policy, 10_000_000);
        assert_eq!(machine.moves.len(), 4);
    }
}
