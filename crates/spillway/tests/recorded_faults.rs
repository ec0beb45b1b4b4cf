//! Fault traces: what a live pager did, and the same once more in the lab.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;

fn spillway<S: AsRef<OsStr>>(arguments: &[S]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spillway"));
    command.args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn replayed(trace: &Path) -> Value {
    let output = spillway(&[OsStr::new("lab"), "replay".as_ref(), "--json".as_ref(), trace.as_os_str()]);
    assert!(output.status.success(), "{}", stderr(&output));
    let replayed: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(replayed["difference"], Value::Null);
    replayed
}

/// Lines in no order, 16 MiB.
fn lines(folder: &Path) -> String {
    let path = folder.join("lines");
    let line = |i: u64| format!("{:050}\n", i.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    fs::write(&path, (0..330_000).map(line).collect::<String>()).unwrap();
    path.to_str().unwrap().to_owned()
}

/// In both fault modes, with an inactive queue and without.
#[test]
fn a_replay_gives_each_answer_that_the_live_pager_had() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (lines, trace, config) = (lines(folder.path()), path("faults"), path("run.toml"));
    for (mode, share) in [("thread", "0.0"), ("inline", "0.0"), ("thread", "0.2"), ("inline", "0.2")] {
        fs::write(&config, format!("[replacement]\ninactive_share = {share}\n")).unwrap();
        let options = ["run", "--local", "8M", "--store", "ram:", "--fault-mode", mode];
        let files = ["--config", &config, "--record", &trace];
        let program = ["--", "sort", "--parallel=2", "-S", "32M", "-o", "/dev/null", &lines];
        let output = spillway(&[&options[..], &files, &program].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        let replayed = replayed(Path::new(&trace));
        let number = |part: &str, of: &str| replayed[part][of].as_u64().unwrap();
        assert!(number("came", "fetched") > 100 && number("left", "stored") > 100, "{replayed}");
        assert_eq!(replayed["is_whole"], true);
        assert!(replayed["calls"].as_u64().unwrap() > 2000, "{replayed}");
        if share != "0.0" {
            assert!(number("faults", "inactive") > 100, "{replayed}");
        }
    }
}

#[test]
fn programs_of_a_run_have_a_trace_each_and_forked_children_none() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("faults");
    let record = trace.to_str().unwrap();
    let script = "(:); exec sh -c 'echo two'";
    let output = spillway(&["run", "--local", "8M", "--record", record, "--", "sh", "-c", script]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("forked children are not recorded"), "{}", stderr(&output));
    assert!(replayed(&trace)["children_left_out"].as_u64().unwrap() >= 1);
    assert!(replayed(&folder.path().join("faults.2"))["calls"].is_u64());
}

/// Lines in no order, of which 4 MiB of 12 are local.
#[test]
fn an_estimate_takes_settings_and_refuses_wrong_ones() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let line = |i: u64| format!("{:050}\n", i.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    fs::write(path("lines"), (0..120_000).map(line).collect::<String>()).unwrap();
    let lines = path("lines");
    let program = ["--", "sort", "--parallel=1", "-S", "32M", "-o", "/dev/null", &lines];
    let (faults, memory) = (path("faults"), path("memory"));
    for arguments in [
        &["lab", "record", "-o", &memory][..],
        &["run", "--local", "4M", "--block", "4K", "--record", &faults],
    ] {
        let output = spillway(&[arguments, &program].concat());
        assert!(output.status.success(), "{}", stderr(&output));
    }
    let estimate = |setting: &str| {
        spillway(&["lab", "replay", &faults, "--memory", &memory, "--json", "--set", setting])
    };
    for setting in ["newcomer_rank=21", "scan_share=0.05"] {
        let output = estimate(setting);
        assert!(output.status.success(), "{}", stderr(&output));
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        let estimated = told["estimate"]["scanned_when_due"]["fetched_pages"].as_u64().unwrap();
        assert!(estimated > 1000, "{told}");
    }
    for (setting, remedy) in [
        ("newcomer_rank=22", "set it to 0 to 21"),
        ("newcomer_rank=0.5", "expected u8"),
        ("scan_share=1.5", "set it to 0 to 1"),
        ("speed=1", "a key of [replacement]"),
        ("scan_share=nan", "write KEY=NUMBER"),
    ] {
        let output = estimate(setting);
        assert!(
            !output.status.success() && stderr(&output).contains(remedy),
            "{setting}: {}",
            stderr(&output)
        );
    }
}

#[test]
fn what_a_killed_recorder_wrote_is_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("faults");
    let mut run = Command::new(env!("CARGO_BIN_EXE_spillway"));
    run.args(["run", "--local", "8M", "--record"]).arg(&trace).args(["--", "sleep", "60"]);
    let mut run = run.stdin(Stdio::null()).spawn().unwrap();
    while fs::metadata(&trace).map_or(0, |trace| trace.len()) <= 8 {
        sleep(Duration::from_millis(10));
    }
    run.kill().unwrap();
    run.wait().unwrap();
    assert_eq!(replayed(&trace)["is_whole"], false);
}

#[test]
fn a_trace_that_cannot_be_written_or_read_is_refused_in_one_line() {
    for record in ["/dev/full", "/nonexistent/faults"] {
        let output = spillway(&["run", "--local", "8M", "--record", record, "--", "true"]);
        assert_eq!(output.status.code(), Some(125));
        assert!(stderr(&output).contains("name a file that can be written"), "{}", stderr(&output));
    }
    let output = spillway(&["lab", "replay", "/dev/null"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("run --record"), "{}", stderr(&output));
}
