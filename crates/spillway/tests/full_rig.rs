//! `spillway bench rig` when somebody ends it early. Run by `make test-full`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use support::guest::kernel;
use support::tools::tool;

#[test]
fn an_interrupt_keeps_the_runs_that_were_made() {
    tool("qemu-system-x86_64", "qemu-system-x86");
    let (kernel, results) = (kernel(), tempfile::tempdir().unwrap());
    let mut command = Command::new(env!("CARGO_BIN_EXE_spillway"));
    command.args(["bench", "rig", "--quick", "--jobs", "1", "--workload", "uniform"]);
    command.args(["--policy", "none", "--policy", "all-local", "--to"]).arg(results.path());
    command.arg("--kernel").arg(kernel.parent().unwrap());
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
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
    assert!(rows[0]["local_hit_ratio"].as_f64() > Some(0.0), "{rows}");
}
