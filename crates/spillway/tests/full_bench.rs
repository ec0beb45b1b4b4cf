//! `spillway bench dcm` with small inputs: whole programs, which check their results, on each kind of far
//! memory; and `spillway bench pool`. Run by `make test-full`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod bench_common;

use std::fs;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use bench_common::{complaint, finish, set_up};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(20 * 60);

/// The tests set swap devices up.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn dcm(workload: &str) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spillway"));
    command.args(["bench", "dcm", "--quick", "--json", "--workload", workload]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn measures(workload: &str) {
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let before = set_up();
    let output = finish(dcm(workload), PATIENCE);
    assert!(output.status.success(), "{}", complaint(&output));
    assert_eq!(set_up(), before);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["failures"], Value::Array(vec![]), "{}", complaint(&output));
    let measured = &report["workloads"][0];
    assert_eq!(measured["name"], workload);
    let rows = measured["rows"].as_array().unwrap();
    for far in ["shm_fdr", "ram_fdr", "nbd_tcp"] {
        for local_pct in [75, 50, 25] {
            let is = |row: &&Value| row["far"] == far && row["local_pct"] == local_pct;
            let row = rows.iter().find(is).unwrap_or_else(|| panic!("no {far} at {local_pct}% in {report}"));
            assert!(row["normalised"].as_f64().unwrap() > 0.0, "{row}");
        }
        let is = |row: &&Value| row["far"] == far && row["local_pct"] == 25;
        let fetched = rows.iter().find(is).and_then(|row| row["pages_fetched"].as_u64());
        assert!(fetched > Some(0), "nothing was ever far on {far}: {report}");
    }
    // Under swap the kernel may kill what it should wait for, and says so.
    let swaps = rows.iter().filter(|row| row["far"] == "swap_ramdisk").count();
    assert!(swaps == 3 || complaint(&output).contains(workload), "{report}");
}

#[test]
fn the_sequential_micro_benchmark() {
    measures("sequential");
}

#[test]
fn snap_aligns_the_same_reads() {
    measures("snap");
}

#[test]
fn the_books_of_postgres_agree() {
    measures("postgres");
}

#[test]
fn spark_recommends_the_same() {
    measures("spark_als");
}

#[test]
fn spark_ranks_the_same_pages() {
    measures("spark_pagerank");
}

/// The servers that a benchmark has started, by the directory of their data.
fn servers() -> usize {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let commands = processes.filter_map(|entry| fs::read_to_string(entry.path().join("cmdline")).ok());
    commands.filter(|line| line.contains("bin/postgres\0-D\0") && line.contains("/postgres/data\0")).count()
}

#[test]
fn an_interrupt_leaves_no_server_behind() {
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let (before, others) = (set_up(), servers());
    let mut child = dcm("postgres");
    let started = Instant::now();
    while servers() == others {
        assert!(started.elapsed() < PATIENCE && child.try_wait().unwrap().is_none(), "no server comes up");
        std::thread::sleep(Duration::from_millis(20));
    }
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let output = finish(child, PATIENCE);
    assert!(!output.status.success() && complaint(&output).contains("interrupted"), "{}", complaint(&output));
    assert_eq!((set_up(), servers()), (before, others));
}

#[test]
fn an_interrupt_keeps_what_was_measured() {
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let before = set_up();
    let mut child = dcm("sequential");
    let started = Instant::now();
    // Swap comes last at each share.
    while set_up() == before || !fs::read_to_string("/proc/swaps").unwrap().contains("loop") {
        assert!(
            started.elapsed() < PATIENCE && child.try_wait().unwrap().is_none(),
            "it never comes to swap"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = finish(child, PATIENCE);
    assert!(!output.status.success() && complaint(&output).contains("interrupted"), "{}", complaint(&output));
    assert_eq!(set_up(), before);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["interrupted"], true);
    let rows = report["workloads"][0]["rows"].as_array().unwrap();
    assert!(rows.iter().any(|row| row["far"] == "nbd_tcp" && row["local_pct"] == 75), "{report}");
}

#[test]
fn a_saved_evaluation_goes_on_cell_by_cell() {
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let before = set_up();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("dcm.json");
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_spillway"));
        command.args(["bench", "dcm", "--json", "--workload", "sequential", "--local", "50"]);
        command.args(arguments).arg("--save").arg(&file);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        finish(command.spawn().unwrap(), PATIENCE)
    };
    let rows = |arguments: &[&str]| {
        let output = run(arguments);
        assert!(output.status.success(), "{}", complaint(&output));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["blocks"], serde_json::json!(["elastic", "streams"]), "{report}");
        report["workloads"][0]["rows"].as_array().unwrap().clone()
    };
    let wanted = ["--quick", "--far", "ram_fdr", "--block", "elastic", "--block", "streams"];
    let first = rows(&wanted);
    assert_eq!(first.len(), 2, "{first:?}");
    let more = rows(&[&wanted[..], &["--far", "file"]].concat());
    assert_eq!((more.len(), &more[..2]), (4, &first[..]), "what was there was measured anew");
    assert!(more[2..].iter().all(|row| row["far"] == "file" && row["pages_fetched"].as_u64() > Some(0)));
    assert_eq!(set_up(), before);
    // Not of this scale.
    let output = run(&wanted[1..]);
    let said = complaint(&output);
    assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.contains("another --quick"), "{said}");
}

#[test]
fn pools_are_measured_beside_one_donor_and_while_donors_die() {
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut command = Command::new(env!("CARGO_BIN_EXE_spillway"));
    command.args(["bench", "pool", "--quick", "--json"]);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let output = finish(child, PATIENCE);
    assert!(output.status.success(), "{}", complaint(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = report["rows"].as_array().unwrap();
    let spilling = |row: &&Value| row["name"].as_str().unwrap().contains("last resort");
    let (spilling, rows): (Vec<&Value>, Vec<&Value>) = rows.iter().partition(spilling);
    assert_eq!((rows.len(), spilling.len()), (10 + 16, 6), "{report}");
    for row in &spilling {
        assert!(
            row["value"].as_f64().unwrap() > 0.0 && row["aim"].is_null() && row["met"].is_null(),
            "{row}"
        );
    }
    // Of 48 MiB at most a fifth has its place on donors, twice, and a few pages of others too.
    let shares = spilling.iter().filter(|row| row["name"].as_str().unwrap().contains("over the pages'"));
    assert!(shares.clone().count() == 2 && shares.clone().all(|row| row["value"].as_f64() > Some(0.2)));
    for row in &rows {
        let value = row["value"].as_f64().unwrap();
        // How many programs have ended when donors died is the only thing that may be nothing.
        let is_some = value > 0.0 || row["aim"] == 0.0;
        assert!(is_some && row["aim"].is_f64() && row["met"].is_boolean(), "{row}");
    }
    let coded = |row: &&Value| row["name"].as_str().unwrap().starts_with("4+2: ");
    let (coded, copies): (Vec<&Value>, Vec<&Value>) = rows.iter().copied().partition(coded);
    for rows in [copies, coded] {
        for what in ["random read", "sequential read", "longest stall", "p99 of faults", "repair"] {
            let is = |row: &&&Value| row["name"].as_str().unwrap().contains(what);
            assert!(rows.iter().any(|row| is(&row)), "no {what} in {report}");
        }
    }
    let of = |what: &str| {
        let row = rows.iter().find(|row| row["name"].as_str().unwrap().contains(what));
        row.unwrap_or_else(|| panic!("no {what} in {report}"))["value"].as_f64().unwrap()
    };
    assert_eq!(of("programs that end"), 0.0, "{report}");
    // Six parts for four pages, and what is dead: less would be pages that are not there.
    assert!(of("donors' memory over") >= 1.5, "{report}");
}
