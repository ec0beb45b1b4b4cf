//! What is measured alike for codes and ciphers: time in alternating rounds, allocations, memory.

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub const PAGE_BYTES: usize = 4096;

/// More than the caches of a processor hold: pages that are gone through in turns come from memory.
pub const COLD_BYTES: usize = 64 << 20;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

/// The system's allocator, which counts what is asked of it.
pub struct Counting;

// SAFETY: everything is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(at, layout) }
    }
}

/// How often Rust's allocator was asked for memory meanwhile. What C code takes by itself is not seen.
pub fn allocations(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.load(Relaxed);
    work();
    ALLOCATIONS.load(Relaxed) - before
}

/// Nanoseconds that the process has computed, on all its threads: what others do on the machine is not in it.
pub fn computed_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the place to write to is there.
    let done = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    assert_eq!(done, 0, "the clock of the process");
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The middle of some numbers, and between which the middle half of them lies.
#[derive(Clone, Copy)]
pub struct Spread {
    pub low: f64,
    pub median: f64,
    pub high: f64,
}

impl Spread {
    pub fn of(mut numbers: Vec<f64>) -> Self {
        numbers.sort_by(f64::total_cmp);
        let at = |share: f64| numbers[((numbers.len() - 1) as f64 * share).round() as usize];
        Self { low: at(0.25), median: at(0.5), high: at(0.75) }
    }

    pub fn json(&self) -> serde_json::Value {
        let round = |number: f64| (number * 10.0).round() / 10.0;
        serde_json::json!({
            "median_ns": round(self.median), "low_ns": round(self.low), "high_ns": round(self.high),
        })
    }
}

/// Runs each contender once a round, so that all of them meet the same weather, beginning with another each
/// time. `work` gives the nanoseconds that one page took. The first round warms up and does not count.
pub fn alternate<T>(contenders: &mut [T], rounds: usize, mut work: impl FnMut(&mut T) -> f64) -> Vec<Spread> {
    let mut times = vec![Vec::new(); contenders.len()];
    for round in 0..=rounds {
        for turn in 0..contenders.len() {
            let at = (turn + round) % contenders.len();
            let time = work(&mut contenders[at]);
            if round > 0 {
                times[at].push(time);
            }
        }
    }
    times.into_iter().map(Spread::of).collect()
}

/// Bytes of memory that are this process's alone, and those that it has of files.
pub fn memory() -> (u64, u64) {
    let text = fs::read_to_string("/proc/self/smaps_rollup").expect("Linux tells what a process holds");
    let kib = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).expect("every kernel has this line");
        line.split_whitespace().nth(1).and_then(|number| number.parse::<u64>().ok()).expect("a number")
    };
    let (all, own) = (kib("Rss:"), kib("Anonymous:"));
    (own << 10, (all - own) << 10)
}
