//! Runs of `spillway bench physical` and what is in their reports.
#![allow(dead_code, reason = "each test target uses its own part")]

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;

use crate::bench_common::complaint;

/// A setting that `khugepaged` changes.
pub const SLEEP: &str = "/sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs";

/// The experiments change settings of the machine.
pub fn alone() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A run that prints JSON.
pub fn physical(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spillway"));
    command.args(["bench", "physical", "--json"]).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// What a run prints.
pub fn report(command: &mut Command, patience: Duration) -> Value {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Longer than what a pipe holds.
    let child = std::thread::spawn(move || child.wait_with_output().unwrap());
    let started = std::time::Instant::now();
    while !child.is_finished() {
        assert!(started.elapsed() < patience, "still runs after {patience:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.join().unwrap();
    assert!(output.status.success(), "{}", complaint(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The rows of a panel.
pub fn rows(report: &Value, experiment: &str, title: &str) -> Vec<Value> {
    let found = |list: &Value, key: &str, name: &str| -> Option<Value> {
        list.as_array()?.iter().find(|item| item[key] == name).cloned()
    };
    let experiment = found(&report["experiments"], "name", experiment);
    let panel = experiment.and_then(|experiment| found(&experiment["panels"], "title", title));
    panel.unwrap_or_else(|| panic!("no '{title}' in {report}"))["rows"].as_array().unwrap().clone()
}

/// Checks that a row has a whole distribution.
pub fn distribution(row: &Value) {
    let values = ["min", "p1", "p25", "p50", "p75", "p90", "p99", "p99_9", "max"]
        .map(|key| row["distribution"][key].as_f64().unwrap_or_else(|| panic!("no {key} in {row}")));
    assert!(values.is_sorted() && values[0] > 0.0, "{row}");
    assert!(row["distribution"]["count"].as_u64() > Some(0), "{row}");
}

/// Every setting that an experiment may change, and huge pages that are reserved.
pub fn settings() -> String {
    let mut found = Vec::new();
    for root in ["/sys/kernel/mm/transparent_hugepage", "/sys/kernel/mm/hugepages"] {
        collect(Path::new(root), &mut found);
    }
    for name in ["compaction_proactiveness", "watermark_scale_factor", "min_free_kbytes"] {
        let path = format!("/proc/sys/vm/{name}");
        found.push(format!("{path} {}", fs::read_to_string(&path).unwrap_or_default()));
    }
    found.push(format!("journal: {}", Path::new("/run/spillway-bench-physical.json").exists()));
    found.sort();
    found.join("\n")
}

fn collect(directory: &Path, found: &mut Vec<String>) {
    const COUNTERS: [&str; 3] = ["stats", "full_scans", "pages_collapsed"];
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if COUNTERS.iter().any(|counter| path.ends_with(counter)) {
            continue;
        }
        if path.is_dir() {
            collect(&path, found);
        } else if let Ok(text) = fs::read_to_string(&path) {
            found.push(format!("{} {text}", path.display()));
        }
    }
}
