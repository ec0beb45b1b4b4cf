//! How fast a page trace is replayed: 5 M requests, Zipf(1.0) over 1 M pages, 10% of them local, trace
//! preloaded. `cargo bench -p spillway-lab --bench replay`

use rand::RngExt;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_distr::weighted::WeightedAliasIndex;
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::time::{ClockId, clock_gettime};
use spillway_lab::replay::{PageTrace, replay_named};

const PAGES: usize = 1_000_000;
const REQUESTS: usize = 5_000_000;
const FRAMES: u32 = 100_000;
const RUNS: usize = 7;
const WANTED_M_PER_S: f64 = 15.0;

/// Processor time of this thread, which others on the machine do not lengthen.
fn cpu_s() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let trace = zipf_trace()?;
    println!("{REQUESTS} requests, Zipf(1.0), {PAGES} pages ({} requested), {FRAMES} local", trace.pages());
    for policy in ["lru", "fifo", "clock", "sieve"] {
        let mut rates = Vec::new();
        let mut misses = 0;
        for _ in 0..RUNS {
            let start = cpu_s();
            misses = replay_named(policy, &trace, FRAMES)?.misses;
            rates.push(REQUESTS as f64 / (cpu_s() - start) / 1e6);
        }
        rates.sort_by(f64::total_cmp);
        let median = rates[RUNS / 2];
        let verdict = if median >= WANTED_M_PER_S { "holds" } else { "too slow" };
        println!(
            "{policy:6} {misses:9} misses  {median:6.1} M requests/s (worst {:.1})  {verdict}",
            rates[0]
        );
    }
    Ok(())
}

fn zipf_trace() -> Result<PageTrace, Box<dyn std::error::Error>> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let ranks = WeightedAliasIndex::new((1..=PAGES).map(|rank| 1.0 / rank as f64).collect())?;
    let mut pages: Vec<u64> = (0..PAGES as u64).collect();
    pages.shuffle(&mut rng);
    Ok(PageTrace::new((0..REQUESTS).map(|_| pages[rng.sample(&ranks)]))?)
}
