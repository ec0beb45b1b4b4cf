//! `spillway bench rig` when somebody ends it early, with a neighbour on the link, and with samples. Run by
//! `make test-full`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use support::guest::{kernel, parsed, section};
use support::tools::tool;

#[test]
fn an_interrupt_keeps_the_runs_that_were_made() {
    tool("qemu-system-x86_64", "qemu-system-x86");
    let (kernel, results) = (kernel(), tempfile::tempdir().unwrap());
    let mut command = Command::new(env!("CARGO_BIN_EXE_spillway"));
    command.args(["bench", "rig", "--quick", "--jobs", "1", "--workload", "uniform"]);
    command.args(["--policy", "none", "--policy", "all-local", "--json", "--to"]).arg(results.path());
    command.arg("--kernel").arg(kernel.parent().unwrap());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = Vec::new();
    for line in BufReader::new(child.stderr.take().unwrap()).lines() {
        said.push(line.unwrap());
        if said.last().unwrap().contains("1 of 2") {
            kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        }
    }
    assert!(!child.wait().unwrap().success(), "{said:?}");
    assert!(said.last().unwrap().contains("interrupted; 1 of 2 runs"), "{said:?}");
    let rows: Value =
        serde_json::from_slice(&fs::read(results.path().join("results.json")).unwrap()).unwrap();
    assert_eq!(rows.as_array().map(Vec::len), Some(1), "{rows}");
    assert_eq!(rows[0]["policy"], "none");
    let told: Value = serde_json::from_reader(child.stdout.take().unwrap()).unwrap();
    assert_eq!(told["rows"], rows);
    assert!(told["goals"].is_array(), "{told}");
    assert!(rows[0]["local_hit_ratio"].as_f64() > Some(0.0), "{rows}");
}

#[test]
fn a_neighbour_on_the_link_is_felt_by_the_workload_and_seen_by_the_daemon() {
    tool("qemu-system-x86_64", "qemu-system-x86");
    let (kernel, results) = (kernel(), tempfile::tempdir().unwrap());
    let consoles = results.path().join("consoles");
    let mut command = Command::new(env!("CARGO_BIN_EXE_spillway"));
    command.args(["bench", "rig", "--quick", "--starts", "1", "--workload", "bfs", "--policy", "indigo"]);
    command.args(["--contention", "0,70", "--to"]).arg(results.path());
    command.arg("--consoles").arg(&consoles).arg("--kernel").arg(kernel.parent().unwrap());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rows: Value =
        serde_json::from_slice(&fs::read(results.path().join("results.json")).unwrap()).unwrap();
    println!("{rows:#}");
    let far_ns = |at: usize| rows[at]["far_latency_ns"].as_f64().unwrap();
    assert_eq!((&rows[0]["contention_pct"], &rows[1]["contention_pct"]), (&0.into(), &70.into()));
    assert!(far_ns(0) > 750.0 && far_ns(1) > far_ns(0) * 1.1, "{} {}", far_ns(0), far_ns(1));
    for moved in ["moved_alone_per_s", "moved_beside_per_s"] {
        assert!(rows[1][moved].as_f64().is_some(), "{moved}");
    }
    let mut seen = 0;
    for console in fs::read_dir(consoles).unwrap() {
        let console = fs::read_to_string(console.unwrap().path()).unwrap().replace('\r', "");
        let link = &parsed(section(&console, "stats"))["link"];
        assert_eq!(link["source"], "counters", "{link}");
        assert_eq!(link["idle_latency_ns"], 750.0, "{link}");
        assert!(
            link["latency_ns"].as_f64() > Some(750.0) && link["traffic_bytes"].as_u64() > Some(0),
            "{link}"
        );
        seen += 1;
    }
    assert_eq!(seen, 2);
}

/// Without a migration a third of the store's misses are local.
#[test]
fn samples_that_the_emulator_takes_bring_hot_pages_to_the_fast_node() {
    tool("qemu-system-x86_64", "qemu-system-x86");
    let (kernel, results) = (kernel(), tempfile::tempdir().unwrap());
    let mut command = Command::new(env!("CARGO_BIN_EXE_spillway"));
    command.args(["bench", "rig", "--quick", "--workload", "kv-hot-tenth", "--policy", "memtis"]);
    command.args(["--set", "sample_period_accesses=50", "--to"]).arg(results.path());
    command.arg("--kernel").arg(kernel.parent().unwrap());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rows: Value =
        serde_json::from_slice(&fs::read(results.path().join("results.json")).unwrap()).unwrap();
    println!("{rows:#}");
    assert!(rows[0]["samples"].as_u64() > Some(1000) && rows[0]["lost_samples"] == 0, "{rows}");
    assert!(rows[0]["local_hit_ratio"].as_f64() > Some(0.6), "{rows}");
}
