//! MEMTIS (Lee et al., SOSP 2023).
//!
//! From the paper: sampled accesses are counted for each page; pages stand in an exponential histogram of
//! their counts; the hot threshold is the lowest class from which on all pages fit local memory together; the
//! class below is warm and left alone unless frames are wanted; counts are halved periodically; a background
//! thread promotes hot far pages and demotes cold local ones; where base pages would serve more accesses than
//! huge ones do, the most skewed huge pages are split; the period of sampling is adapted, so that samples
//! take no more than a bound (3% of a core) of which an average may be off by half a percentage point.
//! Simplified: thresholds and cooling by numbers of samples in proportion to the pages; a huge page is skewed
//! by the share of its accesses that its hottest eighth takes; base pages are not merged again; the cost of a
//! sample is what the machine says it is, where the paper counts the time of its sampling thread; the period
//! grows and shrinks by a quarter, where the kernel steps through a list of primes; loads and stores have one
//! period.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::entry::Registered;
use crate::knowledge::Knowledge;
use crate::machine::{Call, PageIndex, Sample, Tier, TieredMachine};
use crate::policy::{Mapping, Policy};

/// What a run may set; the defaults are the paper's, or chosen as the file's head says.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// How memory is mapped at first; huge pages are split when they are skewed.
    pub mapping: Mapping,
    /// One access in so many is sampled at first, and never one in fewer.
    pub sample_period_accesses: u32,
    /// What of a core samples may take, on average; 0 leaves the period as it is.
    pub sampling_share: f64,
    /// How far from that the average may be before the period is adapted.
    pub sampling_slack_share: f64,
    /// Time between two adaptations of the period.
    pub sampling_window_us: u64,
    /// Time between two rounds of the migration thread.
    pub period_us: u64,
    /// Samples a page after which thresholds are adapted.
    pub adaptation_samples: f64,
    /// Samples a page after which counts are halved.
    pub cooling_samples: f64,
    /// Share of local memory that is kept free.
    pub free_share: f64,
    /// By how much base pages must serve more accesses locally than pages do now before any is split.
    pub split_benefit: f64,
    /// Huge pages split at most a cooling.
    pub splits: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mapping: Mapping::Huge,
            sample_period_accesses: 200,
            sampling_share: 0.03,
            sampling_slack_share: 0.005,
            sampling_window_us: 15_000_000,
            period_us: 500_000,
            adaptation_samples: 0.25,
            cooling_samples: 4.0,
            free_share: 0.01,
            split_benefit: 0.05,
            splits: 16,
        }
    }
}

/// What a new measurement counts for in the average of the cost of samples.
const NEW_WEIGHT: f64 = 0.8;

/// By how much the period of sampling is adapted at a time.
const PERIOD_STEP: f64 = 1.25;

/// No period is longer.
const LONGEST_PERIOD: u32 = 20_000;

/// How often to sample, by what it costs.
struct SamplingPeriod {
    accesses: u32,
    /// Average share of a core, once one was measured.
    cost_share: Option<f64>,
    /// When the window began, and what samples had cost until then.
    since_ns: u64,
    spent_ns: u64,
}

impl SamplingPeriod {
    /// Ends the window if it is over. Whether the period has changed.
    fn adapt(&mut self, config: &Config, machine: &dyn TieredMachine) -> bool {
        let (now_ns, spent_ns) = (machine.now_ns(), machine.sampling_ns());
        let window_ns = now_ns - self.since_ns;
        if config.sampling_share == 0.0 || window_ns < config.sampling_window_us * 1000 {
            return false;
        }
        let measured = (spent_ns - self.spent_ns) as f64 / window_ns as f64;
        (self.since_ns, self.spent_ns) = (now_ns, spent_ns);
        let before = self.cost_share.unwrap_or(measured);
        let average = NEW_WEIGHT * measured + (1.0 - NEW_WEIGHT) * before;
        self.cost_share = Some(average);
        let factor = if average > config.sampling_share + config.sampling_slack_share {
            PERIOD_STEP
        } else if average < config.sampling_share - config.sampling_slack_share {
            1.0 / PERIOD_STEP
        } else {
            return false;
        };
        let wanted = (f64::from(self.accesses) * factor).round() as u32;
        let wanted = wanted.min(LONGEST_PERIOD).max(config.sample_period_accesses);
        std::mem::replace(&mut self.accesses, wanted) != wanted
    }
}

/// Classes of the histogram: counts of 0, 1, 2-3, 4-7, ...
const CLASSES: usize = 16;

fn class_of(count: u32) -> usize {
    ((u32::BITS - count.leading_zeros()) as usize).min(CLASSES - 1)
}

/// The lowest class from which on all `histogram` pages fit into `capacity`, but none that was never
/// accessed.
fn hot_class(histogram: &[u64; CLASSES], capacity: u64) -> usize {
    let mut pages = 0;
    let mut class = CLASSES;
    while class > 1 && pages + histogram[class - 1] <= capacity {
        class -= 1;
        pages += histogram[class];
    }
    class
}

/// How often each page was sampled, and the class from which on pages are hot.
pub struct Memtis {
    config: Config,
    period: SamplingPeriod,
    /// Count of each base page.
    counts: Vec<u16>,
    hot_class: usize,
    samples: Vec<Sample>,
    samples_seen: u64,
    local_samples: u64,
    /// Samples until then; none before the first round, when pages are counted.
    next_adaptation: Option<f64>,
    next_cooling: Option<f64>,
    cursor: PageIndex,
}

impl Registered for Memtis {
    type Config = Config;
    fn build(config: Config, _seed: u64, _knowledge: &Knowledge) -> Self {
        Self {
            config,
            period: SamplingPeriod {
                accesses: config.sample_period_accesses,
                cost_share: None,
                since_ns: 0,
                spent_ns: 0,
            },
            counts: Vec::new(),
            hot_class: CLASSES,
            samples: Vec::new(),
            samples_seen: 0,
            local_samples: 0,
            next_adaptation: None,
            next_cooling: None,
            cursor: 0,
        }
    }
}

impl Memtis {
    /// A mapping's count a base page: what makes huge and base pages comparable.
    fn heat(&self, machine: &dyn TieredMachine, head: PageIndex) -> u32 {
        let span = machine.span(head);
        let counts = &self.counts[head as usize..(head + span) as usize];
        let sum: u32 = counts.iter().map(|&count| u32::from(count)).sum();
        // Rounded up, so that a huge page that is accessed at all is not taken for one that is not.
        sum.div_ceil(span)
    }

    /// Every mapping that was touched.
    fn mappings(machine: &dyn TieredMachine) -> Vec<PageIndex> {
        let mut heads = Vec::new();
        let mut page = machine.next_touched(0);
        while page < machine.page_count() {
            if machine.tier_of(page).is_some() {
                heads.push(page);
            }
            page = machine.next_touched(page + machine.span(page));
        }
        heads
    }

    fn adapt(&mut self, machine: &dyn TieredMachine) {
        let mut histogram = [0; CLASSES];
        for head in Self::mappings(machine) {
            histogram[class_of(self.heat(machine, head))] += u64::from(machine.span(head));
        }
        self.hot_class = hot_class(&histogram, u64::from(machine.capacity_pages(Tier::Local)));
    }

    /// Share of the samples that the hottest base pages would have served, had they been local.
    fn base_ratio(&self, machine: &dyn TieredMachine) -> f64 {
        let mut counts: Vec<u16> = self.counts.clone();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let all: u64 = counts.iter().map(|&count| u64::from(count)).sum();
        let top = counts.iter().take(machine.capacity_pages(Tier::Local) as usize);
        top.map(|&count| u64::from(count)).sum::<u64>() as f64 / all.max(1) as f64
    }

    /// Share of a huge page's accesses that its hottest eighth takes.
    fn skew(&self, head: PageIndex, span: u32) -> f64 {
        let mut counts = self.counts[head as usize..(head + span) as usize].to_vec();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let all: u32 = counts.iter().map(|&count| u32::from(count)).sum();
        let top: u32 = counts.iter().take(span.div_ceil(8) as usize).map(|&count| u32::from(count)).sum();
        f64::from(top) / f64::from(all.max(1))
    }

    fn split(&mut self, machine: &mut dyn TieredMachine) {
        let ratio = self.local_samples as f64 / self.samples_seen.max(1) as f64;
        if self.base_ratio(machine) - ratio < self.config.split_benefit {
            return;
        }
        let mut skewed: Vec<(u64, PageIndex)> = Self::mappings(machine)
            .into_iter()
            .filter(|&head| machine.span(head) > 1 && self.heat(machine, head) > 0)
            .map(|head| ((self.skew(head, machine.span(head)) * 1e6) as u64, head))
            .collect();
        skewed.sort_unstable_by_key(|&(skew, head)| (std::cmp::Reverse(skew), head));
        for (_, head) in skewed.into_iter().take(self.config.splits) {
            machine.split(head);
        }
    }

    fn cool(&mut self, machine: &mut dyn TieredMachine) {
        self.split(machine);
        self.counts.iter_mut().for_each(|count| *count >>= 1);
        (self.samples_seen, self.local_samples) = (0, 0);
        self.adapt(machine);
    }

    fn migrate(&mut self, machine: &mut dyn TieredMachine) {
        let mut heads = Self::mappings(machine);
        // Each round begins where the last one was.
        let start = heads.partition_point(|&head| head < self.cursor);
        heads.rotate_left(start);
        let class = |this: &Self, machine: &dyn TieredMachine, head| class_of(this.heat(machine, head));
        let hot: Vec<_> = heads
            .iter()
            .copied()
            .filter(|&head| {
                machine.tier_of(head) == Some(Tier::Far) && class(self, machine, head) >= self.hot_class
            })
            .collect();
        let mut victims: Vec<_> = heads
            .iter()
            .copied()
            .filter(|&head| {
                machine.tier_of(head) == Some(Tier::Local) && class(self, machine, head) < self.hot_class
            })
            .collect();
        // Cold before warm.
        victims.sort_by_key(|&head| std::cmp::Reverse(class(self, machine, head) + 1 < self.hot_class));
        let mut victims = victims.into_iter();
        let spare = (f64::from(machine.capacity_pages(Tier::Local)) * self.config.free_share) as u32;
        Self::make_room(machine, &mut victims, spare);
        for head in hot {
            let span = machine.span(head);
            Self::make_room(machine, &mut victims, span);
            if machine.migrate(&[head], Tier::Local, Call::Kernel) == 0 {
                self.cursor = head;
                return;
            }
        }
        self.cursor = 0;
    }

    fn make_room(machine: &mut dyn TieredMachine, victims: &mut impl Iterator<Item = PageIndex>, pages: u32) {
        while machine.free_pages(Tier::Local) < pages {
            let Some(victim) = victims.next() else { return };
            machine.migrate(&[victim], Tier::Far, Call::Kernel);
        }
    }
}

impl Policy for Memtis {
    fn mapping(&self) -> Mapping {
        self.config.mapping
    }

    fn start(&mut self, machine: &mut dyn TieredMachine) {
        self.counts = vec![0; machine.page_count() as usize];
        machine.sample_accesses(self.config.sample_period_accesses);
        machine.set_timer(0, self.config.period_us * 1000);
    }

    fn on_release(&mut self, pages: Range<PageIndex>, _machine: &mut dyn TieredMachine) {
        self.counts[pages.start as usize..pages.end as usize].fill(0);
    }

    fn on_timer(&mut self, timer: u32, machine: &mut dyn TieredMachine) {
        let mut samples = std::mem::take(&mut self.samples);
        machine.take_samples(&mut samples);
        let taken = samples.len() as f64;
        for sample in samples.drain(..) {
            let count = &mut self.counts[sample.page as usize];
            *count = count.saturating_add(1);
            self.samples_seen += 1;
            self.local_samples += u64::from(machine.tier_of(sample.page) == Some(Tier::Local));
        }
        self.samples = samples;
        let pages = f64::from(machine.managed_pages());
        let [adaptation, cooling] =
            [self.config.adaptation_samples, self.config.cooling_samples].map(|samples| pages * samples);
        let next_adaptation = self.next_adaptation.unwrap_or(adaptation) - taken;
        let next_cooling = self.next_cooling.unwrap_or(cooling) - taken;
        (self.next_adaptation, self.next_cooling) = (Some(next_adaptation), Some(next_cooling));
        if next_cooling <= 0.0 {
            self.next_cooling = Some(cooling);
            self.cool(machine);
        } else if next_adaptation <= 0.0 {
            self.next_adaptation = Some(adaptation);
            self.adapt(machine);
        }
        self.migrate(machine);
        if self.period.adapt(&self.config, machine) {
            machine.sample_accesses(self.period.accesses);
        }
        machine.set_timer(timer, self.config.period_us * 1000);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{PAGES_PER_HUGE, TestMachine};

    const PERIOD_NS: u64 = 500_000_000;

    fn memtis(mapping: Mapping, pages: u32, local: u32) -> (Memtis, TestMachine) {
        let mut policy = Memtis::build(Config { mapping, ..Config::default() }, 1, &Knowledge::default());
        let mut machine = TestMachine::new(pages, local);
        policy.start(&mut machine);
        let step = if mapping == Mapping::Huge { PAGES_PER_HUGE } else { 1 };
        machine.touch(&mut policy, (0..pages).step_by(step as usize));
        (policy, machine)
    }

    fn sample(machine: &mut TestMachine, page: u32, times: usize) {
        machine.samples.extend(std::iter::repeat_n(Sample { page, write: false }, times));
    }

    #[test]
    fn the_hot_set_is_as_large_as_local_memory() {
        let mut histogram = [0; CLASSES];
        (histogram[6], histogram[4], histogram[2]) = (3, 4, 5);
        assert_eq!(hot_class(&histogram, 7), 3, "classes 6 and 4 fit, and empty 3");
        assert_eq!(hot_class(&histogram, 6), 5);
        assert_eq!(hot_class(&histogram, 100), 1, "never those that were not accessed");
    }

    #[test]
    fn hot_pages_come_and_cold_ones_go_before_warm_ones() {
        let (mut policy, mut machine) = memtis(Mapping::Base, 16, 2);
        sample(&mut machine, 0, 4);
        sample(&mut machine, 9, 8);
        machine.pass_ns(&mut policy, PERIOD_NS);
        assert_eq!(machine.pages_in(Tier::Local), [0, 9]);
        sample(&mut machine, 10, 16);
        machine.pass_ns(&mut policy, PERIOD_NS);
        assert_eq!(machine.pages_in(Tier::Local), [9, 10]);
    }

    #[test]
    fn warm_pages_are_left_alone_while_no_frame_is_wanted() {
        let (mut policy, mut machine) = memtis(Mapping::Base, 16, 2);
        sample(&mut machine, 0, 8);
        sample(&mut machine, 1, 4);
        sample(&mut machine, 9, 4);
        machine.pass_ns(&mut policy, PERIOD_NS);
        assert!(machine.moves.is_empty(), "9 is as warm as 1");
    }

    #[test]
    fn the_period_follows_the_bound_on_what_samples_cost() {
        let (mut policy, mut machine) = memtis(Mapping::Base, 16, 2);
        let window_ns = 30 * PERIOD_NS;
        // A tenth of a core: four windows later the period has grown four times.
        for expected in [250, 313, 391, 489] {
            machine.sampling_ns += window_ns / 10;
            machine.pass_ns(&mut policy, window_ns);
            assert_eq!(machine.sample_period, expected);
        }
        // As much as may be: it stays. The average forgets four fifths a window.
        for _ in 0..3 {
            machine.sampling_ns += window_ns * 3 / 100;
            machine.pass_ns(&mut policy, window_ns);
        }
        assert_eq!(machine.sample_period, 611, "one step more until the average had come down");
        for _ in 0..20 {
            machine.pass_ns(&mut policy, window_ns);
        }
        assert_eq!(machine.sample_period, 200, "never shorter than it began");
    }

    #[test]
    fn counts_are_halved_after_so_many_samples() {
        let (mut policy, mut machine) = memtis(Mapping::Base, 16, 2);
        sample(&mut machine, 3, 64);
        machine.pass_ns(&mut policy, PERIOD_NS);
        assert_eq!(policy.counts[3], 32);
    }

    #[test]
    fn skewed_huge_pages_are_split_where_base_pages_serve_more() {
        let (mut policy, mut machine) = memtis(Mapping::Huge, 4 * PAGES_PER_HUGE, PAGES_PER_HUGE);
        // One hot base page in each huge page, all of which would fit.
        (0..4).for_each(|huge| sample(&mut machine, huge * PAGES_PER_HUGE + 1, 50));
        machine.pass_ns(&mut policy, PERIOD_NS);
        assert_eq!(machine.splits.len(), 4);
        machine.pass_ns(&mut policy, 3 * PERIOD_NS);
        (0..4).for_each(|huge| {
            assert_eq!(machine.tier_of(huge * PAGES_PER_HUGE + 1), Some(Tier::Local), "{huge}")
        });
    }

    #[test]
    fn evenly_accessed_huge_pages_stay_whole() {
        let (mut policy, mut machine) = memtis(Mapping::Huge, 2 * PAGES_PER_HUGE, PAGES_PER_HUGE);
        (0..PAGES_PER_HUGE).for_each(|page| sample(&mut machine, page, 20));
        machine.pass_ns(&mut policy, PERIOD_NS);
        assert!(machine.splits.is_empty());
    }
}
