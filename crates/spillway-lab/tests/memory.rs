//! What a simulated page costs in memory: simulator and policy together, by counting what they allocate.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use peak_alloc::PeakAlloc;
use spillway_core::page::PAGE_BYTES;
use spillway_lab::access::{Access, Accesses};
use spillway_lab::simulator::platform::Platform;
use spillway_lab::simulator::{Interleave, Setup, Simulation, Tenant};
use spillway_lab::workload::{Region, Workload};
use spillway_policy::entry::{PolicyEntry, PolicySettings};
use spillway_policy::knowledge::{Foreknowledge, Knowledge};
use spillway_policy::registry;

#[global_allocator]
static ALLOCATED: PeakAlloc = PeakAlloc;

const PAGES: u32 = 1 << 17;
const START: u64 = 1 << 30;
const MOST_BYTES_PER_PAGE: f64 = 64.0;

/// Goes over all pages, round after round, every second time over the first half only: so pages become hot
/// and cold, and move.
struct Rounds {
    region: [Region; 1],
    left: u32,
    at: u32,
}

impl Workload for Rounds {
    fn name(&self) -> &'static str {
        "rounds"
    }

    fn regions(&self) -> &[Region] {
        &self.region
    }

    fn step(&mut self, _task: usize, accesses: &mut Accesses) -> bool {
        let end = if self.left.is_multiple_of(2) { PAGES } else { PAGES / 2 };
        for page in self.at..self.at + 256 {
            // From page to page the line within it changes, so that not all of them meet in one set of the
            // cache.
            let address = START + u64::from(page) * PAGE_BYTES + u64::from(page % 64) * 64;
            accesses.push(Access::write(address));
        }
        self.at += 256;
        if self.at >= end {
            (self.at, self.left) = (0, self.left - 1);
        }
        self.left > 0
    }

    fn verify(&self) -> Result<(), String> {
        Ok(())
    }
}

fn bytes_per_page(entry: &PolicyEntry) -> f64 {
    let full = Platform::hotbox();
    let factor = f64::from(PAGES) * PAGE_BYTES as f64 / full.working_set_bytes as f64;
    let region = Region { name: "all", start: START, bytes: u64::from(PAGES) * PAGE_BYTES };
    let workload = Box::new(Rounds { region: [region], left: 4, at: 0 });
    let profile = (0..if entry.needs.foreknowledge == Foreknowledge::Profile { PAGES } else { 0 })
        .collect::<Vec<u32>>();
    ALLOCATED.reset_peak_usage();
    let before = ALLOCATED.current_usage();
    let knowledge = Knowledge { profile: profile.into(), ..Knowledge::default() };
    let policy = entry.build(factor, &PolicySettings::new(), 1, &knowledge).unwrap();
    let setup = Setup {
        platform: full.scaled(factor),
        contention: 0.0,
        interleave: Interleave::Clock,
        series_ns: (1e9 * factor) as u64,
        profile: false,
        epoch_ps: None,
        tenants: vec![Tenant { workload, policy, local_pages: PAGES / 5 }],
    };
    Simulation::new(setup).unwrap().run().unwrap();
    (ALLOCATED.peak_usage() - before) as f64 / f64::from(PAGES)
}

/// All policies but Belady's, whose memory grows with the accesses that it knows beforehand.
#[test]
fn a_simulated_page_takes_at_most_64_bytes() {
    let policies =
        registry::entries().iter().filter(|entry| entry.needs.foreknowledge != Foreknowledge::Future);
    let found: Vec<(&str, f64)> = policies.map(|entry| (entry.name, bytes_per_page(entry))).collect();
    println!("{found:.1?}");
    assert!(found.iter().all(|&(_, bytes)| bytes >= 1.0), "nothing was counted: {found:.1?}");
    assert!(found.iter().all(|&(_, bytes)| bytes <= MOST_BYTES_PER_PAGE), "{found:.1?}");
}
