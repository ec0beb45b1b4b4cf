//! Memory that is touched for the first time, and freed: each page by itself, timed, on one CPU or on many at
//! once.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};

use super::pages::Pages;
use super::stage::Stage;
use super::tier::{Region, Tier, pin};
use crate::BenchError;

/// What is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The first touch of a page.
    Touch,
    /// Giving back a page that is there.
    Free,
    /// Giving back a page that is not there: what the system call costs by itself.
    FreeNothing,
}

/// One case to measure.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    /// Which memory.
    pub tier: &'a Tier,
    /// In which pages.
    pub pages: Pages,
    /// Threads at once, each with memory of its own.
    pub threads: usize,
    /// Memory of each thread.
    pub bytes: u64,
    /// What is timed.
    pub action: Action,
    /// CPUs that the threads run on, in turn; all where it is empty.
    pub cpus: &'a [usize],
}

/// What was timed.
#[derive(Clone, Debug, Default)]
pub struct Timed {
    /// Each page, of all threads.
    pub latencies_ns: Vec<u64>,
    /// CPU time of the threads, in all.
    pub cpu_ns: u64,
    /// Time from the first thread's start to the last one's end.
    pub wall_ns: u64,
    /// Huge pages in whose place the kernel gave smaller ones, machine-wide.
    pub fallbacks: u64,
}

impl Timed {
    /// Adds another time of the same.
    pub fn add(&mut self, other: Self) {
        self.latencies_ns.extend(other.latencies_ns);
        self.cpu_ns += other.cpu_ns;
        self.wall_ns += other.wall_ns;
        self.fallbacks += other.fallbacks;
    }

    /// CPU time of one page.
    #[must_use]
    pub fn cpu_ns_per_page(&self) -> f64 {
        self.cpu_ns as f64 / self.latencies_ns.len().max(1) as f64
    }
}

/// Measures a case once, with the machine set for its pages.
pub fn run(stage: &Stage<'_>, case: &Case<'_>) -> Result<Timed, BenchError> {
    stage.check()?;
    let count = case.bytes / case.pages.bytes();
    case.pages.prepare(&stage.settings, count * case.threads as u64)?;
    // Before any thread waits for another.
    let regions: Vec<Region> =
        (0..case.threads).map(|_| case.tier.map(case.pages, case.bytes)).collect::<Result<_, _>>()?;
    let before = case.pages.given();
    let barrier = Barrier::new(case.threads);
    let cpus = if case.cpus.is_empty() { &stage.cpus } else { case.cpus };
    let interrupted = stage.interrupted;
    let threads: Vec<Thread> = std::thread::scope(|scope| {
        let running: Vec<_> = regions
            .iter()
            .enumerate()
            .map(|(at, region)| {
                let (barrier, cpu) = (&barrier, cpus[at % cpus.len()]);
                scope.spawn(move || {
                    pin(cpu);
                    thread(region, case, barrier, interrupted)
                })
            })
            .collect();
        running
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    stage.check()?;
    let mut timed = Timed { wall_ns: wall_ns(&threads), ..Timed::default() };
    for thread in threads {
        timed.latencies_ns.extend(thread.latencies_ns?);
        timed.cpu_ns += thread.cpu_ns;
    }
    if let (Some((_, before)), Some((_, after))) = (before, case.pages.given()) {
        timed.fallbacks = after - before;
    }
    Ok(timed)
}

struct Thread {
    latencies_ns: Result<Vec<u64>, BenchError>,
    cpu_ns: u64,
    started: Instant,
    ended: Instant,
}

fn wall_ns(threads: &[Thread]) -> u64 {
    let started = threads.iter().map(|thread| thread.started).min();
    let ended = threads.iter().map(|thread| thread.ended).max();
    started.zip(ended).map_or(0, |(started, ended)| (ended - started).as_nanos() as u64)
}

/// CPU time of the calling thread.
#[must_use]
pub fn thread_cpu_ns() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn thread(region: &Region, case: &Case<'_>, barrier: &Barrier, interrupted: &AtomicBool) -> Thread {
    let unit = case.pages.bytes() as usize;
    let count = region.mapping.bytes() / unit;
    // Not zero: what is timed must not include the first touch of this.
    let mut latencies_ns = vec![u64::MAX; count];
    if case.action == Action::Free {
        (0..count).for_each(|page| region.mapping.touch(page * unit));
    }
    barrier.wait();
    let (started, cpu_before) = (Instant::now(), thread_cpu_ns());
    let mut all_well = Ok(());
    for (page, latency_ns) in latencies_ns.iter_mut().enumerate() {
        if interrupted.load(Ordering::Relaxed) || all_well.is_err() {
            break;
        }
        let begun = Instant::now();
        match case.action {
            Action::Touch => region.mapping.touch(page * unit),
            Action::Free | Action::FreeNothing => all_well = region.free(page * unit, unit),
        }
        *latency_ns = begun.elapsed().as_nanos() as u64;
    }
    let (ended, cpu_ns) = (Instant::now(), thread_cpu_ns() - cpu_before);
    Thread { latencies_ns: all_well.map(|()| latencies_ns), cpu_ns, started, ended }
}

/// What reading the clock costs.
#[must_use]
pub fn clock_ns() -> f64 {
    const READINGS: u32 = 10_000;
    let started = Instant::now();
    for _ in 0..READINGS {
        std::hint::black_box(Instant::now());
    }
    started.elapsed().as_nanos() as f64 / f64::from(READINGS)
}

#[cfg(test)]
mod tests {
    use super::super::stage::tests::quick_stage;
    use super::*;

    #[test]
    fn every_page_is_timed_once_on_every_thread() {
        quick_stage(|stage| {
            for action in [Action::Touch, Action::Free, Action::FreeNothing] {
                let case = Case {
                    tier: &stage.tiers[0],
                    pages: Pages::Base,
                    threads: 2,
                    bytes: 1 << 20,
                    action,
                    cpus: &[],
                };
                let timed = run(stage, &case).unwrap();
                assert_eq!(timed.latencies_ns.len(), 512);
                assert!(timed.latencies_ns.iter().all(|&ns| ns < 1 << 40), "{timed:?}");
                assert!(timed.wall_ns > 0 && timed.cpu_ns > 0, "{timed:?}");
            }
        });
    }
}
