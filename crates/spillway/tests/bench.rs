//! `spillway bench`: it measures both sides, and leaves the machine as it was, also when it is interrupted.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod bench_common;

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bench_common::{complaint, donors, finish, set_up};
use rustix::process::{Pid, Signal, kill_process};

/// The tests set swap devices up.
static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn bench(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spillway"));
    command.args(["bench", "paging", "--quick", "--memory", "48M", "--threads", "1", "--store", "ram"]);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn it_measures_both_sides_and_leaves_the_machine_as_it_was() {
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let before = set_up();
    let child = bench(&["--pattern", "random_read", "--local", "25", "--page-cluster", "0", "--json"])
        .spawn()
        .unwrap();
    let output = finish(child, Duration::from_secs(120));
    assert!(output.status.success(), "{}", complaint(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = report["rows"].as_array().unwrap();
    assert!(!rows.is_empty(), "{}", complaint(&output));
    for row in rows {
        let number = |key: &str| row[key].as_f64().unwrap_or_else(|| panic!("no {key} in {row}"));
        assert!(number("ns_per_access") > 0.0 && number("versus_ns_per_access") > 0.0, "{row}");
        let ratio = number("versus_ns_per_access") / number("ns_per_access");
        assert!((number("ratio_median") - ratio).abs() < 0.01 * ratio, "{row}");
        assert!(number("misses_per_access") > 0.1 && number("versus_misses_per_access") > 0.1, "{row}");
        assert_eq!(
            (&row["pattern"], &row["store"], &row["local_pct"]),
            (&"random_read".into(), &"ram".into(), &25.into())
        );
        for figure in ["ns_per_access", "versus_ns_per_access"] {
            let (least, most) = (number(&format!("{figure}_min")), number(&format!("{figure}_max")));
            assert!((least..=most).contains(&number(figure)), "{row}");
        }
        assert!(number("cpu_ns_per_access") > 0.0 && number("versus_cpu_ns_per_access") > 0.0, "{row}");
        assert!(["thread", "inline"].contains(&row["fault_mode"].as_str().unwrap()), "{row}");
        assert!(row["command"].as_str().unwrap().starts_with("spillway run --local "), "{row}");
    }
    assert_eq!(set_up(), before);
    a_page_is_made_of(&output.stdout);
}

fn a_page_is_made_of(results: &[u8]) {
    let directory = tempfile::tempdir().unwrap();
    let (file, to) = (directory.path().join("results.json"), directory.path().join("docs"));
    fs::write(&file, results).unwrap();
    let report = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_spillway"));
        command.args(["bench", "report", "--note", "On a busy machine.", "--to"]).arg(&to).arg(&file);
        command.output().unwrap()
    };
    let output = report();
    assert!(output.status.success(), "{}", complaint(&output));
    let page = fs::read_to_string(to.join("paging-benchmark.md")).unwrap();
    assert!(page.contains("On a busy machine.") && page.contains("| random_read | ram |"), "{page}");
    let plot = fs::read_to_string(to.join("paging-benchmark/ratios.svg")).unwrap();
    assert!(page.contains("(paging-benchmark/ratios.svg)") && plot.starts_with("<svg"), "{page}");
    fs::write(&file, &results[..results.len() / 2]).unwrap();
    let output = report();
    let complaint = complaint(&output);
    assert_eq!((output.status.code(), complaint.lines().count()), (Some(1), 1), "{complaint}");
    assert!(complaint.contains("results.json") && complaint.contains("--json"), "{complaint}");
}

#[test]
fn an_interrupt_takes_everything_down() {
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let before = set_up();
    let child = bench(&[]).spawn().unwrap();
    let started = Instant::now();
    while !fs::read_to_string("/proc/swaps").unwrap().contains("32767") {
        assert!(started.elapsed() < Duration::from_secs(60), "no swap device comes up");
        std::thread::sleep(Duration::from_millis(5));
    }
    // A RAM disk that can be swapped out to itself would hang the machine.
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let disk = mounts.lines().find(|line| line.starts_with("spillway-bench ")).map(str::to_owned);
    let disk = disk.expect("the first device is on a RAM disk");
    kill_process(Pid::from_raw(child.id() as i32).unwrap(), Signal::INT).unwrap();
    let output = finish(child, Duration::from_secs(60));
    let complaint = complaint(&output);
    assert!(!output.status.success() && complaint.contains("interrupted"), "{complaint}");
    assert_eq!(set_up(), before);
    assert!(disk.contains("noswap") || complaint.contains("noswap"), "{disk}: {complaint}");
}

#[test]
fn an_interrupt_ends_the_donor_too() {
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let before = set_up();
    let child = bench(&["--store", "nbd_tcp", "--pattern", "zipf"]).spawn().unwrap();
    let mine = format!("\0spillway-bench-{}\0", child.id());
    let started = Instant::now();
    while !donors().iter().any(|line| line.contains(&mine)) {
        assert!(started.elapsed() < Duration::from_secs(60), "no donor comes up");
        std::thread::sleep(Duration::from_millis(5));
    }
    kill_process(Pid::from_raw(child.id() as i32).unwrap(), Signal::TERM).unwrap();
    let output = finish(child, Duration::from_secs(60));
    assert!(!output.status.success() && complaint(&output).contains("interrupted"), "{}", complaint(&output));
    assert_eq!(set_up(), before);
}

#[test]
fn run_options_reach_spillway_run() {
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let child = bench(&["--run-option=--no-such-option", "--pattern", "zipf"]).spawn().unwrap();
    let output = finish(child, Duration::from_secs(60));
    assert_eq!(output.status.code(), Some(1));
    assert!(complaint(&output).contains("'--no-such-option'"), "{}", complaint(&output));
}

#[test]
fn shares_and_numbers_that_make_no_sense_are_a_usage_error() {
    for wrong in [["--local", "100"], ["--threads", "0"], ["--page-cluster", "77"]] {
        let output = finish(bench(&wrong).spawn().unwrap(), Duration::from_secs(10));
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
        assert_eq!(complaint(&output).lines().count(), 1, "{}", complaint(&output));
    }
}
