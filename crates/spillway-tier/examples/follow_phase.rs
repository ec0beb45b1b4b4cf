//! How long pages that become hot stay far, where they migrate on demand and where in batches: a program uses
//! one set of scattered pages after another, and the daemon's HotBox follows. On any machine: half of its
//! memory is pretended to be slow, and pages that are moved stay where they are.
//!
//! usage: `cargo run --release -p spillway-tier --features testing --example follow_phase -- LIBRARY BUILD`,
//! and then
//! `[SCAN_INTERVAL_MS [PHASES [HOT_PAGES [MIB]]]]`; LIBRARY is libspillway_preload.so, BUILD what
//! `spillway generate build` of the same build says
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use spillway_core::page::PAGE_SIZE;
use spillway_marker::wire::SOCKET_VARIABLE;
use spillway_tier::daemon::Daemon;
use spillway_tier::group::{Config, Group, LocalBudget};
use spillway_tier::markers::Markers;
use spillway_tier::settings::KernelSettings;

/// Pages that must have come before a phase counts as followed: of those that were far, so many percent.
const FOLLOWED_PCT: u64 = 90;

/// The program: uses every page of the hot set each millisecond, and goes on to the next set at each line it
/// reads. At the end it says how much it did.
fn work(mib: usize, hot: usize) {
    let mut memory = vec![1_u8; mib << 20];
    let pages = memory.len() / PAGE_SIZE;
    let stride = pages / hot;
    println!("ready");
    let (lines, mut phase) = (std::sync::mpsc::channel(), 0);
    let sender = lines.0;
    std::thread::spawn(move || {
        for line in std::io::stdin().lines() {
            let _ = sender.send(line.is_ok());
        }
    });
    loop {
        match lines.1.try_recv() {
            Ok(_) => phase += 1,
            Err(std::sync::mpsc::TryRecvError::Disconnected) => return,
            Err(std::sync::mpsc::TryRecvError::Empty) => {}
        }
        for at in 0..hot {
            let page = at * stride + phase % stride;
            memory[page * PAGE_SIZE] = memory[page * PAGE_SIZE].wrapping_add(1);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Settings {
    library: String,
    build: u64,
    scan_interval_ms: u64,
    phases: usize,
    hot: usize,
    mib: usize,
}

/// Seconds from the beginning of each phase until it was followed.
fn follow(settings: &Settings, on_demand: bool) -> Vec<f64> {
    let markers = on_demand.then(|| Markers::open(settings.build).unwrap());
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["work", &settings.mib.to_string(), &settings.hot.to_string()]);
    spillway_sys::process::without_huge_pages(&mut command);
    if let Some(markers) = &markers {
        command.env("LD_PRELOAD", &settings.library).env(SOCKET_VARIABLE, markers.name());
    }
    let mut program = Program(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
    BufReader::new(program.0.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let (mut kernel_settings, _) = KernelSettings::open(&directory.path().join("journal")).unwrap();
    let group = Group {
        name: "g".into(),
        policy: "hotbox-unthrottled".into(),
        local: Some(LocalBudget::Pct(90.0)),
        pids: vec![program.0.id()],
        ..Group::default()
    };
    let config = Config {
        group: vec![group],
        scan_interval_ms: settings.scan_interval_ms,
        telemetry_cpu_pct: 100.0,
        ..Config::default()
    };
    let mut daemon = Daemon::pretend(config, &directory.path().join("root"), &mut kernel_settings).unwrap();
    daemon.migrate_by(markers, "an example".to_owned());
    let mut times = Vec::new();
    for phase in 0..=settings.phases {
        // A page that was promoted lies where it lay, so that the next scan finds it far again: of the hot
        // pages as many are far as of all.
        let status = daemon.status();
        let (local, far) = (status.groups[0].local_bytes, status.groups[0].far_bytes);
        let far_hot = settings.hot as u64 * far / (local + far).max(1) * FOLLOWED_PCT / 100;
        let before = status.groups[0].counts.promotions;
        writeln!(program.0.stdin.as_mut().unwrap()).unwrap();
        let began = Instant::now();
        loop {
            let wait = daemon.turn().unwrap().expect("the program runs");
            let promoted = daemon.status().groups[0].counts.promotions - before;
            // The first phase only tells how much is far.
            let enough = if phase == 0 { daemon.status().groups[0].scans >= 3 } else { promoted >= far_hot };
            if enough || began.elapsed() > Duration::from_secs(120) {
                break;
            }
            std::thread::sleep(wait.min(Duration::from_millis(1)));
        }
        if phase > 0 {
            times.push(began.elapsed().as_secs_f64());
        }
    }
    times
}

/// The number at the end of a build's name.
fn number_of(build: &str) -> Option<u64> {
    u64::from_str_radix(build.rsplit_once('-')?.1, 16).ok()
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |at: usize, default: usize| arguments.get(at).map_or(default, |text| text.parse().unwrap());
    if arguments.get(1).is_some_and(|first| first == "work") {
        return work(number(2, 0), number(3, 0));
    }
    let settings = Settings {
        library: arguments.get(1).expect("the path of libspillway_preload.so").clone(),
        build: arguments
            .get(2)
            .and_then(|build| number_of(build))
            .expect("what `spillway generate build` says"),
        scan_interval_ms: number(3, 1000) as u64,
        phases: number(4, 5),
        hot: number(5, 2000),
        mib: number(6, 512),
    };
    for (name, on_demand) in [("batches", false), ("on-demand", true)] {
        let mut times = follow(&settings, on_demand);
        times.sort_by(f64::total_cmp);
        let median = times[times.len() / 2];
        println!(
            "{name}: {FOLLOWED_PCT}% of a new hot set had come after {median:.2} s ({:.2} to {:.2}), \
             {:.1} scans of {} ms",
            times[0],
            times[times.len() - 1],
            median * 1000.0 / settings.scan_interval_ms as f64,
            settings.scan_interval_ms
        );
    }
}
