//! What the daemon costs at its default settings: CPU time of all that it does while it manages a program
//! whose scattered tenth is hot, and of the kernel's threads for it, as a share of a core for 10 GiB managed.
//! On any machine: half of its memory is pretended to be slow, and pages that are moved stay where they are,
//! so that the copying itself is not in the figure.
//!
//! Fewer GiB than 10 get their share of the CPU time that scans may take, so that scans come as often as they
//! would at 10.
//!
//! usage: `cargo run --release -p spillway-tier --features testing --example tier_cost --`, and then
//! `[SOURCE [MIB [SECONDS [POLICY]]]]`
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use spillway_core::page::PAGE_SIZE;
use spillway_tier::daemon::Daemon;
use spillway_tier::group::{Config, Group, LocalBudget};
use spillway_tier::settings::KernelSettings;

const GOAL_MIB: f64 = 10.0 * 1024.0;
/// Accesses between two pauses, of a millisecond.
const BATCH: usize = 2000;
const HOT_ONE_IN: usize = 10;

/// The program that is managed: nine of ten accesses go to a tenth of its pages.
fn work(mib: usize) {
    let mut memory = vec![1_u8; mib << 20];
    let pages = memory.len() / PAGE_SIZE;
    // A line, as what is no line stays in the buffer.
    println!("ready");
    let mut random = 88_172_645_463_325_252_u64;
    loop {
        for _ in 0..BATCH {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let (which, hot) = ((random >> 8) as usize, !random.is_multiple_of(10));
            let page = if hot { which % (pages / HOT_ONE_IN) * HOT_ONE_IN } else { which % pages };
            memory[page * PAGE_SIZE] = memory[page * PAGE_SIZE].wrapping_add(1);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What had been taken by the end of a scan.
#[derive(Clone, Copy)]
struct AfterScan {
    scan: u64,
    time_s: f64,
    cpu_s: f64,
}

struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let argument = |at: usize, default: &str| arguments.get(at).cloned().unwrap_or(default.to_owned());
    let (source, mib) = (argument(1, "auto"), argument(2, "1024").parse::<usize>().unwrap());
    if source == "work" {
        return work(mib);
    }
    let seconds: u64 = argument(3, "60").parse().unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    spillway_sys::process::without_huge_pages(&mut command);
    let mut child = Program(command.args(["work", &mib.to_string()]).stdout(Stdio::piped()).spawn().unwrap());
    BufReader::new(child.0.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();

    let directory = tempfile::tempdir().unwrap();
    let (mut settings, _) = KernelSettings::open(&directory.path().join("journal")).unwrap();
    let group = Group {
        name: "cost".into(),
        policy: argument(4, "hotbox"),
        local: Some(LocalBudget::Pct(25.0)),
        pids: vec![child.0.id()],
        ..Group::default()
    };
    let share = mib as f64 / GOAL_MIB;
    let defaults = Config::default();
    let telemetry_cpu_pct = defaults.telemetry_cpu_pct * share.min(1.0);
    let config =
        Config { source: source.parse().unwrap(), group: vec![group], telemetry_cpu_pct, ..defaults };
    let root = directory.path().join("root");
    let mut daemon = Daemon::pretend(config, &root, &mut settings).unwrap();
    // The first scan meets every page for the first time; what comes later is the cost of going on. From the
    // end of a scan to that of another, as most is done in scans.
    let mut ends = Vec::new();
    let began = Instant::now();
    let mut seen = 1;
    while began.elapsed() < Duration::from_secs(seconds) {
        let Some(wait) = daemon.turn().unwrap() else { break };
        let (scan, cpu_s) = daemon.scans_and_cpu_s();
        if scan > seen {
            seen = scan;
            ends.push(AfterScan { scan, time_s: began.elapsed().as_secs_f64(), cpu_s });
        }
        std::thread::sleep(wait);
    }
    let [first, .., last] = ends[..] else { panic!("three scans were not had in {seconds} s: take longer") };
    let measured_s = last.time_s - first.time_s;
    let cpu_pct = (last.cpu_s - first.cpu_s) / measured_s * 100.0;
    let status = daemon.status();
    let group = &status.groups[0];
    println!(
        "{}: {cpu_pct:.2}% of a core for {mib} MiB, so {:.2}% for 10 GiB; a scan every {:.1} s; \
         {:.1} moves a second",
        status.source.name,
        cpu_pct / share,
        measured_s / (last.scan - first.scan) as f64,
        (group.counts.promotions + group.counts.demotions) as f64 / status.uptime_s,
    );
}
