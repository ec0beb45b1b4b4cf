//! What a scan costs: CPU time of a telemetry source, and of the policy behind it, per GiB of a process that
//! uses a tenth of its memory between two scans; and whether pages that are used all the time are seen in
//! use.
//!
//! usage: `cargo run --release -p spillway-tier --example scan_cost -- [SOURCE [MIB]]`
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::hint::black_box;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use spillway_core::page::PAGE_SIZE;
use spillway_policy::machine::{LinkTelemetry, Tier};
use spillway_tier::driver::Driver;
use spillway_tier::group::{Group, LocalBudget};
use spillway_tier::live::{Limits, LiveMachine};
use spillway_tier::mover::KernelMover;
use spillway_tier::process;
use spillway_tier::room::NodeRoom;
use spillway_tier::source::{self, Choice, Wanted};

const SCANS: u32 = 10;
/// Few enough that their translations fit into any TLB.
const BUSY_PAGES: usize = 64;

fn cpu_ms() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 / 1e6
}

fn driver(pages: u32) -> Driver {
    let link = LinkTelemetry { available_bytes_per_s: 1e10, delta_latency_ns: 500.0, traffic_bytes: 0 };
    let limits = Limits {
        local: LocalBudget::Pct(100.0),
        local_pages: 0,
        far_pages: pages,
        migration_bytes_per_s: 1 << 30,
        link,
    };
    let mut machine = LiveMachine::new(pages, limits, Box::new(KernelMover));
    // All is said to be far, so that the scan of far memory has its work; there is no room for a promotion.
    machine.set_room(Tier::Far, NodeRoom(vec![(0, pages)]));
    let group = Group { name: "cost".into(), policy: "hotbox".into(), ..Group::default() };
    Driver::new(machine, group.build_policy().unwrap(), Box::new(|| None))
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let choice: Choice = arguments.next().map_or(Choice::Auto, |name| name.parse().unwrap());
    let mib: usize = arguments.next().map_or(1024, |mib| mib.parse().unwrap());
    let mut busy = vec![1_u8; (BUSY_PAGES + 2) * PAGE_SIZE];
    let busy_start = (busy.as_ptr().expose_provenance() / PAGE_SIZE + 1) * PAGE_SIZE;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Uses a few pages and nothing else, on and on.
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                busy.iter_mut().step_by(PAGE_SIZE).for_each(|byte| *byte = byte.wrapping_add(1));
                black_box(&busy);
            }
        });
        measure(choice, mib, busy_start as u64);
        stop.store(true, Ordering::Relaxed);
    });
}

fn measure(choice: Choice, mib: usize, busy_start: u64) {
    let mut source = source::open(Wanted { choice, ..Wanted::default() }).unwrap().source;
    let mut memory = vec![1_u8; mib << 20];
    let process = std::process::id();
    let ranges = process::layout(Path::new("/"), process).unwrap().managed;
    let mut driver = driver((mib as u32 + 256) * 256);
    let busy_end = busy_start + (BUSY_PAGES * PAGE_SIZE) as u64;
    let (mut source_ms, mut all_ms, mut busy_seen) = (0.0, 0.0, 0);
    for scan in 0..=SCANS {
        for page in (scan as usize % 10..memory.len() / PAGE_SIZE).step_by(10) {
            memory[page * PAGE_SIZE] += 1;
        }
        std::thread::sleep(Duration::from_millis(100));
        let began_ms = cpu_ms();
        let mut seen_now = 0;
        let count = |seen: source::Seen| (busy_start..busy_end).contains(&seen.address) && seen.accessed;
        source.scan(process, &ranges, &mut |seen| seen_now += u32::from(count(seen))).unwrap();
        let source_now_ms = cpu_ms() - began_ms;
        std::thread::sleep(Duration::from_millis(100));
        let began_ms = cpu_ms();
        driver.scan(process, &ranges, source.as_mut(), &|_| Some(Tier::Far), 1 << 30).unwrap();
        driver.act(process);
        driver.advance(u64::from(scan) * 1_000_000_000);
        driver.end_round();
        // The first scan meets every page for the first time.
        if scan > 0 {
            source_ms += source_now_ms;
            all_ms += cpu_ms() - began_ms;
            busy_seen += seen_now;
        }
    }
    let gib = mib as f64 / 1024.0;
    let (source_ms, all_ms) = (source_ms / f64::from(SCANS) / gib, all_ms / f64::from(SCANS) / gib);
    println!(
        "{}: {source_ms:.1} ms per GiB and scan; with HotBox {all_ms:.1} ms; \
         {:.0}% of pages used all the time were seen in use; 2% of a core is a scan every {:.1} s at 10 GiB",
        source.facts().name,
        f64::from(busy_seen) * 100.0 / f64::from(BUSY_PAGES as u32 * SCANS),
        all_ms * 10.0 / 1e3 / 0.02,
    );
}
