//! `spillway bench programs` with small inputs: real programs under Spillway and under swap. Run by `make
//! test-full`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod bench_common;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use bench_common::{complaint, finish, set_up};
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

fn measured(names: &[&str], save: &Path) -> Value {
    let before = set_up();
    let output = finish(programs(names, &["--save", save.to_str().unwrap()]), PATIENCE);
    assert!(output.status.success(), "{}", complaint(&output));
    assert_eq!(set_up(), before);
    serde_json::from_slice(&output.stdout).unwrap()
}

fn expect_every_side(report: &Value, program: &str) {
    let rows: Vec<&Value> = report["rows"].as_array().unwrap().iter().collect();
    for configuration in ["default", "inline", "ram", "donor_tcp"] {
        for versus in ["zram", "unlimited"] {
            let is = |row: &&&Value| {
                row["program"] == program && row["configuration"] == configuration && row["versus"] == versus
            };
            let row = rows.iter().find(is).unwrap_or_else(|| panic!("no {configuration} {versus}: {report}"));
            assert_eq!(row["outcome"], "ok", "{row}");
            assert!(row["fetched_pages"].as_u64() > Some(0), "nothing was ever far: {row}");
            // The kernel may kill what it should wait for, and that is said.
            let both = row["versus_outcome"] == "ok";
            assert_eq!(row["ratio_median"].as_f64().is_some_and(|ratio| ratio > 0.0), both, "{row}");
            assert!(row["anonymous_bytes"].as_u64() > Some(16 << 20), "{row}");
        }
    }
}

#[test]
fn a_server_and_a_command_are_measured_and_a_saved_run_goes_on() {
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let place = tempfile::tempdir().unwrap();
    let save = place.path().join("programs.json");
    let first = measured(&["redis_zipf"], &save);
    expect_every_side(&first, "redis_zipf");
    let latency = &first["rows"][0]["latency"];
    assert!(latency["p99_us"].as_f64() >= latency["p50_us"].as_f64(), "{latency}");
    let both = measured(&["redis_zipf", "sort"], &save);
    expect_every_side(&both, "sort");
    let of_redis = |report: &Value| {
        let rows = report["rows"].as_array().unwrap().clone();
        rows.into_iter().filter(|row| row["program"] == "redis_zipf").collect::<Vec<_>>()
    };
    assert_eq!(of_redis(&first), of_redis(&both), "what was measured is not measured again");
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
