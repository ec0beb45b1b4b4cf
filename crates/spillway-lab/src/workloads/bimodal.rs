//! Hotness-fragmentation micro-benchmark: random reads, most of them to hot pages that are spread over huge
//! pages as the wanted fragmentation says (HotBox section 3.2.2, Fig. 5c).
//!
//! The number of hot base pages stays as it is while `fragmentation` (HF) changes: HF 0 fills huge pages with
//! hot pages, HF 0.2 makes four of five base pages of such a huge page hot. The paper sizes the working set
//! so that every read misses the last-level cache and the huge pages, not the base pages, fit the TLB.

use rand::RngExt;
use rand::seq::index;
use serde::Deserialize;
use spillway_core::page::{HUGE_BYTES, PAGE_SIZE};

use super::entry::{Registered, WorkloadError, at_least, within};
use super::random::{WorkloadRng, mix, rng};
use crate::access::{Access, Accesses};
use crate::memory::AddressSpace;
use crate::workload::{Region, Workload};

const WORDS_PER_PAGE: usize = PAGE_SIZE / 8;
const PAGES_PER_HUGE: usize = HUGE_BYTES as usize / PAGE_SIZE;
const READS_PER_STEP: u64 = 256;

/// What a run may set of [`Bimodal`].
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BimodalConfig {
    /// The working set to fill, in bytes.
    pub bytes: u64,
    /// The seed that all lots are drawn from.
    pub seed: u64,
    /// Tasks, each with its own reads.
    pub tasks: usize,
    /// Reads of all tasks together; 0: as many as the working set has cache lines, eight times.
    pub reads: u64,
    /// Share of the pages that are hot.
    pub hot_share: f64,
    /// Share of the reads that go to hot pages (HotBox: 0.9).
    pub hot_reads: f64,
    /// Hotness fragmentation: share of a huge page with hot pages that is not hot.
    pub fragmentation: f64,
    /// Work between two reads.
    pub compute_ns: u64,
}

impl Default for BimodalConfig {
    fn default() -> Self {
        Self {
            bytes: 64 << 20,
            seed: 1,
            tasks: 1,
            reads: 0,
            hot_share: 0.2,
            hot_reads: 0.9,
            fragmentation: 0.0,
            compute_ns: 1,
        }
    }
}

/// Random reads, most of them to hot pages.
pub struct Bimodal {
    config: BimodalConfig,
    regions: Vec<Region>,
    /// Where the numbers start; each is its index, scrambled.
    numbers: u64,
    hot: Vec<u32>,
    cold: Vec<u32>,
    readers: Vec<Reader>,
}

#[derive(Clone)]
struct Reader {
    rng: WorkloadRng,
    left: u64,
    sum: u64,
}

impl Bimodal {
    /// Which pages are hot, by index.
    pub fn hot_pages(&self) -> &[u32] {
        &self.hot
    }
}

/// Divides the pages into hot and cold ones.
fn spread(pages: usize, config: &BimodalConfig) -> Result<(Vec<u32>, Vec<u32>), WorkloadError> {
    let hot_wanted = ((pages as f64 * config.hot_share) as usize).max(1);
    let per_huge = (PAGES_PER_HUGE as f64 * (1.0 - config.fragmentation)) as usize;
    let mut rng = rng(config.seed, u64::MAX);
    let mut is_hot = vec![false; pages];
    let mut left = hot_wanted;
    for first in (0..pages).step_by(PAGES_PER_HUGE) {
        let in_huge = PAGES_PER_HUGE.min(pages - first);
        let here = left.min(per_huge).min(in_huge);
        for page in index::sample(&mut rng, in_huge, here) {
            is_hot[first + page] = true;
        }
        left -= here;
    }
    if left > 0 {
        let reason = format!("'fragmentation' leaves no room for {left} of {hot_wanted} hot pages");
        return Err(WorkloadError::Setting { name: Bimodal::NAME, reason });
    }
    Ok((0..pages as u32).partition(|&page| is_hot[page as usize]))
}

/// Which word is read next.
fn draw(rng: &mut WorkloadRng, hot_reads: f64, hot: &[u32], cold: &[u32]) -> usize {
    let pages = if cold.is_empty() || rng.random_bool(hot_reads) { hot } else { cold };
    let page = pages[rng.random_range(0..pages.len())] as usize;
    page * WORDS_PER_PAGE + rng.random_range(0..WORDS_PER_PAGE)
}

impl Registered for Bimodal {
    type Config = BimodalConfig;
    const NAME: &'static str = "bimodal";
    const ABOUT: &'static str = "random reads, 90% to pages that huge pages share with cold";

    fn new(mut config: BimodalConfig) -> Result<Self, WorkloadError> {
        let name = Self::NAME;
        within(name, "hot_share", config.hot_share, 0.0..=1.0)?;
        within(name, "hot_reads", config.hot_reads, 0.0..=1.0)?;
        within(name, "fragmentation", config.fragmentation, 0.0..=0.998)?;
        at_least(name, config.bytes, (PAGE_SIZE * PAGES_PER_HUGE) as u64)?;
        if config.reads == 0 {
            config.reads = config.bytes / 8;
        }
        let pages = config.bytes as usize / PAGE_SIZE;
        let (hot, cold) = spread(pages, &config)?;
        let mut space = AddressSpace::default();
        let numbers = space.reserve("numbers", (pages * PAGE_SIZE) as u64);
        let readers = (0..config.tasks)
            .map(|task| Reader {
                rng: rng(config.seed, 1 + task as u64),
                left: config.reads / config.tasks as u64,
                sum: 0,
            })
            .collect();
        Ok(Self { config, regions: space.into_regions(), numbers, hot, cold, readers })
    }
}

impl Workload for Bimodal {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn regions(&self) -> &[Region] {
        &self.regions
    }

    fn tasks(&self) -> usize {
        self.readers.len()
    }

    fn work_left(&self) -> Option<u64> {
        Some(self.readers.iter().map(|reader| reader.left).sum())
    }

    fn step(&mut self, task: usize, accesses: &mut Accesses) -> bool {
        let reader = &mut self.readers[task];
        let reads = reader.left.min(READS_PER_STEP);
        for _ in 0..reads {
            let word = draw(&mut reader.rng, self.config.hot_reads, &self.hot, &self.cold);
            accesses.push(Access::read(self.numbers + 8 * word as u64));
            reader.sum = reader.sum.wrapping_add(mix(word as u64));
            accesses.push(Access::compute_ns(self.config.compute_ns));
        }
        reader.left -= reads;
        reader.left > 0
    }

    fn verify(&self) -> Result<(), String> {
        for (task, reader) in self.readers.iter().enumerate() {
            let mut rng = rng(self.config.seed, 1 + task as u64);
            let reads = self.config.reads / self.config.tasks as u64;
            let expected = (0..reads).fold(0u64, |sum, _| {
                let word = draw(&mut rng, self.config.hot_reads, &self.hot, &self.cold);
                sum.wrapping_add(mix(word as u64))
            });
            if reader.sum != expected {
                return Err(format!("task {task} summed {}, not {expected}", reader.sum));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Action;

    fn config(fragmentation: f64) -> BimodalConfig {
        BimodalConfig { bytes: 32 << 20, reads: 200_000, fragmentation, ..BimodalConfig::default() }
    }

    #[test]
    fn hot_pages_are_as_many_and_spread_as_asked() {
        for (fragmentation, huge_pages) in [(0.0, 4), (0.2, 5), (0.5, 7)] {
            let bimodal = Bimodal::new(config(fragmentation)).unwrap();
            assert_eq!(bimodal.hot_pages().len(), 1638);
            let mut huge: Vec<_> = bimodal.hot_pages().iter().map(|page| page / 512).collect();
            huge.dedup();
            assert_eq!(huge.len(), huge_pages, "{fragmentation}");
        }
        assert!(Bimodal::new(config(0.9)).is_err());
    }

    #[test]
    fn nine_in_ten_reads_are_hot() {
        let mut bimodal = Bimodal::new(config(0.2)).unwrap();
        let base = bimodal.regions()[0].start;
        let hot: std::collections::HashSet<_> =
            bimodal.hot_pages().iter().map(|&page| u64::from(page)).collect();
        let mut accesses = Accesses::new();
        while bimodal.step(0, &mut accesses) {}
        let reads = accesses.iter().filter_map(|access| match access.action() {
            Action::Read(address) => Some((address - base) / PAGE_SIZE as u64),
            _ => None,
        });
        let (hits, all) =
            reads.fold((0, 0), |(hits, all), page| (hits + u64::from(hot.contains(&page)), all + 1));
        assert_eq!(all, 200_000);
        assert!((179_000..181_000).contains(&hits), "{hits}");
        assert_eq!(bimodal.verify(), Ok(()));
    }
}
