//! `spillway bench programs` with small inputs: real programs under Spillway and under swap. Run by `make
//! test-full`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod bench_common;
mod browser_common;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use bench_common::{complaint, finish, set_up};
use browser_common::shown_without_network;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(20 * 60);

/// The tests set swap devices up.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn programs(names: &[&str], more: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spillway"));
    command.args(["bench", "programs", "--quick", "--json", "--local", "50"]).args(more);
    names.iter().for_each(|name| _ = command.args(["--program", name]));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn measured(names: &[&str], save: &Path, more: &[&str]) -> Value {
    let before = set_up();
    let output = finish(programs(names, &[&["--save", save.to_str().unwrap()], more].concat()), PATIENCE);
    assert!(output.status.success(), "{}", complaint(&output));
    assert_eq!(set_up(), before);
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Every configuration beside every rival, with what a reader of the JSON counts on.
fn expect_every_side(report: &Value, program: &str, configurations: &[&str]) {
    let rows: Vec<&Value> = report["rows"].as_array().unwrap().iter().collect();
    for configuration in configurations {
        for versus in ["zram", "ramdisk", "unlimited"] {
            let is = |row: &&&Value| {
                row["program"] == program && row["configuration"] == *configuration && row["versus"] == versus
            };
            let row = rows.iter().find(is).unwrap_or_else(|| panic!("no {configuration} {versus}: {report}"));
            assert_eq!((&row["outcome"], &row["local_pct"]), (&"ok".into(), &50.into()), "{row}");
            assert!(row["fetched_pages"].as_u64() > Some(0), "nothing was ever far: {row}");
            // The kernel may kill what it should wait for, and that is said.
            let both = row["versus_outcome"] == "ok";
            assert_eq!(row["ratio_median"].as_f64().is_some_and(|ratio| ratio > 0.0), both, "{row}");
            assert_eq!(row["versus_reason"].is_string(), !both, "{row}");
            assert!(row["anonymous_bytes"].as_u64() > Some(8 << 20), "{row}");
            assert!(row["cpu_s"].as_f64() > Some(0.0), "{row}");
            let swaps = both && versus != "unlimited";
            assert_eq!(row["swapped_in_pages"].as_u64() > Some(0), swaps, "{row}");
        }
    }
}

#[test]
fn a_server_and_a_command_are_measured_and_a_saved_run_goes_on() {
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let place = tempfile::tempdir().unwrap();
    let save = place.path().join("programs.json");
    let first = measured(&["redis_zipf"], &save, &[]);
    expect_every_side(&first, "redis_zipf", &["default", "ram", "donor_tcp"]);
    let latency = &first["rows"][0]["latency"];
    assert!(latency["p99_us"].as_f64() >= latency["p50_us"].as_f64(), "{latency}");
    let html = place.path().join("programs.html");
    let both = measured(&["redis_zipf", "graph"], &save, &["--html", html.to_str().unwrap()]);
    expect_every_side(&both, "graph", &["default", "ram", "donor_tcp"]);
    let shown = shown_without_network(&html);
    assert!(shown.contains("redis_zipf") && shown.contains("<svg"), "{shown}");
    let of_redis = |report: &Value| {
        let rows = report["rows"].as_array().unwrap().clone();
        rows.into_iter().filter(|row| row["program"] == "redis_zipf").collect::<Vec<_>>()
    };
    assert_eq!(of_redis(&first), of_redis(&both), "what was measured is not measured again");
}

#[test]
fn a_configuration_can_be_measured_alone() {
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let place = tempfile::tempdir().unwrap();
    let save = place.path().join("programs.json");
    let report = measured(&["pgbench_select"], &save, &["--configuration", "inline"]);
    expect_every_side(&report, "pgbench_select", &["inline"]);
    assert!(
        report["rows"].as_array().unwrap().iter().all(|row| row["configuration"] == "inline"),
        "{report}"
    );
}

#[test]
fn one_kind_of_swap_can_be_left_out() {
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let place = tempfile::tempdir().unwrap();
    let save = place.path().join("programs.json");
    let report = measured(&["gcc"], &save, &["--configuration", "default", "--beside", "zram"]);
    let rows = report["rows"].as_array().unwrap();
    let versus: Vec<&str> = rows.iter().map(|row| row["versus"].as_str().unwrap()).collect();
    assert_eq!(versus, ["zram", "unlimited"], "{report}");
    // What is saved is of other rivals than a run with all.
    let more = ["--save", save.to_str().unwrap(), "--configuration", "default"];
    let output = finish(programs(&["gcc"], &more), PATIENCE);
    assert_eq!(output.status.code(), Some(1), "{}", complaint(&output));
    assert!(complaint(&output).contains("another --quick, --local"), "{}", complaint(&output));
}

/// The whole suite with small inputs: some 6 minutes.
#[test]
fn the_promised_speed_is_reached() {
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let output = finish(programs(&[], &["--configuration", "default", "--check"]), PATIENCE);
    assert!(output.status.success(), "{}", complaint(&output));
}

#[test]
fn a_suite_that_is_not_whole_cannot_be_checked() {
    let output = finish(programs(&["sort"], &["--check"]), PATIENCE);
    assert_eq!(output.status.code(), Some(2), "{}", complaint(&output));
    assert!(complaint(&output).contains("--check"), "{}", complaint(&output));
    let output = finish(programs(&[], &["--configuration", "ram", "--check"]), PATIENCE);
    assert_eq!(output.status.code(), Some(1), "{}", complaint(&output));
    assert!(complaint(&output).contains("--configuration default"), "{}", complaint(&output));
    let output = finish(programs(&[], &["--beside", "zram", "--check"]), PATIENCE);
    assert_eq!(output.status.code(), Some(1), "{}", complaint(&output));
    assert!(complaint(&output).contains("--beside ramdisk"), "{}", complaint(&output));
}

#[test]
fn an_interrupt_leaves_nothing_behind() {
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let before = set_up();
    let mut child = programs(&["memcached_zipf"], &[]);
    let started = Instant::now();
    while !fs::read_to_string("/proc/swaps").unwrap().contains("zram") {
        assert!(started.elapsed() < PATIENCE && child.try_wait().unwrap().is_none(), "it never swaps");
        std::thread::sleep(Duration::from_millis(5));
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = finish(child, PATIENCE);
    assert!(!output.status.success() && complaint(&output).contains("interrupted"), "{}", complaint(&output));
    assert_eq!(set_up(), before);
}
