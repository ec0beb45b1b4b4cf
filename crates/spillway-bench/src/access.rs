//! The measured process: fills memory, accesses it in a pattern for a time, and says how long an access took.
//!
//! Every page carries its number, and every access checks it: a benchmark of memory that comes back wrong is
//! worth nothing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use spillway_core::page::PAGE_SIZE;

const WORDS: usize = PAGE_SIZE / 8;

/// In which order pages are accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum Pattern {
    /// One word of a page chosen at random is read.
    RandomRead,
    /// One word of a page chosen at random is written.
    RandomWrite,
    /// One word of a page chosen by Zipf's law (exponent 1) is read, and every fourth time written.
    Zipf,
    /// Every word is read, page after page.
    SequentialRead,
    /// Every word is read and written, page after page.
    SequentialRw,
    /// One word of every seventeenth page is read.
    Strided,
    /// First every word is read and written, page after page; then words at random are read (as SNAP: load,
    /// then align).
    TwoPhase,
}

impl Pattern {
    /// Its name as in the JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::RandomRead => "random_read",
            Self::RandomWrite => "random_write",
            Self::Zipf => "zipf",
            Self::SequentialRead => "sequential_read",
            Self::SequentialRw => "sequential_rw",
            Self::Strided => "strided",
            Self::TwoPhase => "two_phase",
        }
    }

    /// Whether whole pages are accessed, so that GB/s say more than accesses.
    #[must_use]
    pub fn is_streaming(self) -> bool {
        matches!(self, Self::SequentialRead | Self::SequentialRw)
    }
}

/// What the pages hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum Data {
    /// Contents that nothing can compress.
    Random,
    /// What compresses to about a third, as program data often does.
    Compressible,
}

/// What the measured process is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AccessPlan {
    /// Order of the accesses.
    pub pattern: Pattern,
    /// Contents of the pages.
    pub data: Data,
    /// Memory that is accessed.
    pub memory_bytes: u64,
    /// Threads that access it.
    pub threads: usize,
    /// How long to measure, after the same time of warming up.
    pub measured_ms: u64,
    /// Whether a program that reads whole pages computes with each of their bytes.
    #[serde(default)]
    pub hashes_bytes: bool,
}

/// What came out of the measured process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AccessResult {
    /// Accesses of all threads together while it was measured.
    pub accesses: u64,
    /// The same with the warm-up.
    pub accesses_in_all: u64,
    /// Wall time per access, all threads together.
    pub ns_per_access: f64,
    /// Processor time per access, in the program, its pager and the kernel.
    pub cpu_ns_per_access: f64,
    /// Faults that the kernel itself answered from its swap device.
    pub major_faults: u64,
    /// Peak of the process's resident memory, in bytes.
    pub peak_resident_bytes: u64,
}

pub(crate) struct Memory {
    words: Vec<AtomicU64>,
    pub(crate) pages: usize,
}

pub(crate) fn mix(mut n: u64) -> u64 {
    n = (n ^ n >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    n = (n ^ n >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ n >> 31
}

/// The part of a page's tag that never changes; the rest of the word is the writers'.
fn tag(page: usize) -> u64 {
    mix(page as u64 + 1) & !0xFFFF
}

impl Memory {
    pub(crate) fn new(plan: &AccessPlan) -> Self {
        let pages = (plan.memory_bytes as usize / PAGE_SIZE).max(1);
        // Zeroed memory that is not touched yet.
        let words: Vec<AtomicU64> = zeroed(pages * WORDS);
        let memory = Self { words, pages };
        for page in 0..pages {
            memory.fill(page, plan.data);
        }
        memory
    }

    fn fill(&self, page: usize, data: Data) {
        let words = &self.words[page * WORDS..(page + 1) * WORDS];
        for (i, word) in words.iter().enumerate() {
            let value = match data {
                Data::Random => mix((page * WORDS + i) as u64),
                // Two words of three repeat their neighbour: small differences, as in arrays and tables.
                Data::Compressible if i % 3 == 0 => mix((page * WORDS + i) as u64) & 0xFFFF_FFFF,
                Data::Compressible => page as u64,
            };
            word.store(value, Ordering::Relaxed);
        }
        words[self.place(page)].store(tag(page), Ordering::Relaxed);
    }

    /// Where in a page its tag lies: not always at the start.
    fn place(&self, page: usize) -> usize {
        page % WORDS
    }

    pub(crate) fn read(&self, page: usize) {
        let word = self.words[page * WORDS + self.place(page)].load(Ordering::Relaxed);
        assert!(word & !0xFFFF == tag(page), "page {page} came back wrong");
    }

    pub(crate) fn write(&self, page: usize, value: u64) {
        let word = &self.words[page * WORDS + self.place(page)];
        // A write that first reads would hide what a plain write costs, so only some are checked.
        if value.is_multiple_of(64) {
            self.read(page);
        }
        word.store(tag(page) | value & 0xFFFF, Ordering::Relaxed);
    }

    fn read_all(&self, page: usize) -> u64 {
        let words = &self.words[page * WORDS..(page + 1) * WORDS];
        let sum = words.iter().fold(0_u64, |sum, word| sum.wrapping_add(word.load(Ordering::Relaxed)));
        self.read(page);
        sum
    }

    /// FNV-1a of the bytes, each of which waits for the one before it.
    fn hash(&self, page: usize) -> u64 {
        let words = &self.words[page * WORDS..(page + 1) * WORDS];
        let bytes = words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes());
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
    }

    fn rewrite_all(&self, page: usize) {
        let words = &self.words[page * WORDS..(page + 1) * WORDS];
        for word in words {
            word.store(word.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        self.read(page);
    }
}

fn zeroed(count: usize) -> Vec<AtomicU64> {
    let mut words = Vec::with_capacity(count);
    words.resize_with(count, || AtomicU64::new(0));
    words
}

/// A thread's own order of pages.
struct Walk {
    pattern: Pattern,
    random: u64,
    next: usize,
    first: usize,
    pages: usize,
    count: u64,
    loading: bool,
    hashes_bytes: bool,
    zipf: Option<Zipf>,
}

impl Walk {
    fn new(plan: &AccessPlan, thread: usize, pages: usize) -> Self {
        // Streams divide the memory; random accesses share it.
        let share = pages / plan.threads;
        let divided =
            matches!(plan.pattern, Pattern::SequentialRead | Pattern::SequentialRw | Pattern::Strided);
        let (first, pages) = if divided { (thread * share, share.max(1)) } else { (0, pages) };
        let zipf = (plan.pattern == Pattern::Zipf).then(|| Zipf::new(pages));
        let random = mix(thread as u64 + 42) | 1;
        let (pattern, hashes_bytes) = (plan.pattern, plan.hashes_bytes);
        Self { pattern, random, next: 0, first, pages, count: 0, loading: true, hashes_bytes, zipf }
    }

    fn draw(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    fn any_page(&mut self) -> usize {
        ((u128::from(self.draw()) * self.pages as u128) >> 64) as usize
    }

    fn following(&mut self, stride: usize) -> usize {
        let page = self.first + self.next;
        self.next += stride;
        if self.next >= self.pages {
            // Each round begins one page later, so that a stride comes round to all pages.
            self.next = (self.next % stride + 1) % stride;
            self.loading = false;
        }
        page
    }

    fn step(&mut self, memory: &Memory) {
        self.count += 1;
        match self.pattern {
            Pattern::RandomRead => memory.read(self.any_page()),
            Pattern::RandomWrite => {
                let page = self.any_page();
                memory.write(page, self.count);
            }
            Pattern::Zipf => {
                let uniform = (self.draw() >> 11) as f64 / (1_u64 << 53) as f64;
                let page = self.zipf.as_ref().map_or(0, |zipf| zipf.page(uniform));
                if self.count.is_multiple_of(4) {
                    memory.write(page, self.count);
                } else {
                    memory.read(page);
                }
            }
            Pattern::SequentialRead => {
                let page = self.following(1);
                std::hint::black_box(memory.read_all(page));
            }
            Pattern::SequentialRw => {
                let page = self.following(1);
                if self.hashes_bytes {
                    std::hint::black_box(memory.hash(page));
                }
                memory.rewrite_all(page);
            }
            Pattern::Strided => {
                let page = self.following(17);
                memory.read(page);
            }
            Pattern::TwoPhase if self.loading => {
                let page = self.following(1);
                memory.rewrite_all(page);
            }
            Pattern::TwoPhase => memory.read(self.any_page()),
        }
    }
}

/// Zipf's law with exponent 1 over pages in a scattered order, by inverting the continuous distribution: rank
/// is `e^(u ln(n+1)) - 1`.
struct Zipf {
    log: f64,
    scatter: u64,
    pages: usize,
}

impl Zipf {
    fn new(pages: usize) -> Self {
        // Any odd multiplier that has no factor in common with the number of pages permutes them.
        let scatter =
            (0..).map(|i| 0x9E37_79B1 + 2 * i).find(|&odd| gcd(odd, pages as u64) == 1).unwrap_or(1);
        Self { log: (pages as f64 + 1.0).ln(), scatter, pages }
    }

    fn page(&self, uniform: f64) -> usize {
        let rank = ((uniform * self.log).exp() - 1.0) as u64;
        (u128::from(rank) * u128::from(self.scatter) % self.pages as u128) as usize
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Runs the plan in this process.
#[must_use]
pub fn measure(plan: &AccessPlan) -> AccessResult {
    let memory = Memory::new(plan);
    let warm = Duration::from_millis(plan.measured_ms);
    let mut walks: Vec<Walk> =
        (0..plan.threads).map(|thread| Walk::new(plan, thread, memory.pages)).collect();
    run(&memory, &mut walks, warm);
    let (before, accesses_before) = (usage(), walks.iter().map(|walk| walk.count).sum::<u64>());
    let elapsed = run(&memory, &mut walks, Duration::from_millis(plan.measured_ms));
    let after = usage();
    let accesses_in_all = walks.iter().map(|walk| walk.count).sum::<u64>();
    let accesses = accesses_in_all - accesses_before;
    let per_access = |ns: f64| ns / accesses.max(1) as f64;
    AccessResult {
        accesses,
        accesses_in_all,
        ns_per_access: per_access(elapsed.as_nanos() as f64),
        cpu_ns_per_access: per_access((after.cpu_ns - before.cpu_ns) as f64),
        major_faults: after.major_faults - before.major_faults,
        peak_resident_bytes: after.peak_resident_bytes,
    }
}

fn run(memory: &Memory, walks: &mut [Walk], time: Duration) -> Duration {
    let started = Instant::now();
    let walk_on = |walk: &mut Walk| {
        // At least once, however long the thread waits for a processor.
        loop {
            (0..64).for_each(|_| walk.step(memory));
            if started.elapsed() >= time {
                break;
            }
        }
    };
    match walks {
        // A program of one thread.
        [walk] => walk_on(walk),
        walks => std::thread::scope(|scope| {
            for walk in walks {
                scope.spawn(|| walk_on(walk));
            }
        }),
    }
    started.elapsed()
}

struct Usage {
    cpu_ns: u64,
    major_faults: u64,
    peak_resident_bytes: u64,
}

/// Of the whole process, its pager included.
fn usage() -> Usage {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name may hold spaces, so fields count from its closing bracket: state is the first.
    let fields: Vec<u64> = stat
        .rsplit_once(')')
        .map(|(_, rest)| rest.split_whitespace().map(|field| field.parse().unwrap_or(0)).collect())
        .unwrap_or_default();
    let field = |index: usize| fields.get(index).copied().unwrap_or(0);
    let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak_kib = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    Usage {
        cpu_ns: cpu.tv_sec as u64 * 1_000_000_000 + cpu.tv_nsec as u64,
        major_faults: field(9),
        peak_resident_bytes: peak_kib.unwrap_or(0) << 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_accesses_and_finds_its_tags() {
        for pattern in Pattern::value_variants() {
            for (data, threads) in [(Data::Random, 1), (Data::Compressible, 3)] {
                let plan = AccessPlan {
                    pattern: *pattern,
                    data,
                    memory_bytes: 1 << 20,
                    threads,
                    measured_ms: 5,
                    hashes_bytes: threads > 1,
                };
                let result = measure(&plan);
                assert!(result.accesses > 0 && result.ns_per_access > 0.0, "{plan:?} {result:?}");
            }
        }
    }

    #[test]
    fn zipf_prefers_few_pages_and_reaches_all() {
        let zipf = Zipf::new(1000);
        let mut counts = vec![0; 1000];
        for i in 0..100_000 {
            counts[zipf.page(f64::from(i) / 100_000.0)] += 1;
        }
        assert!(counts.iter().all(|&count| count > 0));
        counts.sort_unstable();
        assert!(counts[999] > 9_000 && counts[990..].iter().sum::<i32>() > 30_000, "{:?}", &counts[990..]);
    }

    #[test]
    fn strides_come_round_to_all_pages() {
        let plan = AccessPlan {
            pattern: Pattern::Strided,
            data: Data::Random,
            memory_bytes: 100 << 12,
            threads: 1,
            measured_ms: 1,
            hashes_bytes: false,
        };
        for pages in [100, 170, 256] {
            let mut walk = Walk::new(&plan, 0, pages);
            let mut seen = vec![0; pages];
            (0..3 * pages).for_each(|_| seen[walk.following(17)] += 1);
            assert!(seen.iter().all(|&seen| seen == 3), "{pages}: {seen:?}");
        }
    }
}
