//! What a benchmark changes on the machine, and how it ends.
#![allow(dead_code, reason = "each test target uses its own part")]

use std::fs;
use std::path::Path;
use std::process::{Child, Output};
use std::time::{Duration, Instant};

/// What a benchmark sets up: swap devices, loop devices, mounts, control groups, read-ahead, donors.
pub fn set_up() -> String {
    let lines = |path: &str, wanted: &str| {
        let text = fs::read_to_string(path).unwrap_or_default();
        let mut lines: Vec<String> =
            text.lines().filter(|line| line.contains(wanted)).map(str::to_owned).collect();
        lines.sort();
        lines.join("\n")
    };
    let mut loops: Vec<_> = fs::read_dir("/sys/block")
        .unwrap()
        .filter_map(|entry| {
            let path = entry.unwrap().path();
            let backing = fs::read_to_string(path.join("loop/backing_file")).ok();
            let zram = path.display().to_string().contains("zram").then(|| path.display().to_string());
            backing.or(zram)
        })
        .collect();
    loops.sort();
    let groups = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"].iter().any(|root| {
        fs::read_dir(Path::new(root)).is_ok_and(|mut entries| {
            entries.any(|entry| entry.unwrap().file_name().to_string_lossy().starts_with("spillway-bench-"))
        })
    });
    let swaps = lines("/proc/swaps", "/");
    let mounts = lines("/proc/self/mounts", "spillway-bench");
    let cluster = fs::read_to_string("/proc/sys/vm/page-cluster").unwrap();
    let donors = donors();
    format!("{swaps}\n{loops:?}\n{mounts}\n{groups}\n{cluster}\n{donors:?}")
}

/// The donors of benchmarks.
pub fn donors() -> Vec<String> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let commands = processes.filter_map(|entry| fs::read_to_string(entry.path().join("cmdline")).ok());
    commands.filter(|line| line.contains("\0donor\0") && line.contains("\0spillway-bench-")).collect()
}

pub fn finish(mut child: Child, patience: Duration) -> Output {
    let started = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if started.elapsed() > patience {
            let _ = child.kill();
            panic!("still runs after {patience:?}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    child.wait_with_output().unwrap()
}

pub fn complaint(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
