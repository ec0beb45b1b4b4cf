//! `spillway lab train` and what it makes, as somebody meets it who trains an agent.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn lab(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spillway"));
    command.arg("lab").args(arguments).stdin(Stdio::null());
    command
}

/// A training of a few runs.
fn training(out: &Path) -> Command {
    let mut command = lab(&["train", "--workloads", "memcached-etc,hash-join", "--size", "4M"]);
    command.args(["--local", "50%,20%", "--contention", "0%", "--episodes", "2000", "--trials", "2"]);
    command.arg("--out").arg(out);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn succeeded(output: &Output) -> String {
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

fn interrupt(program: &Child) {
    kill_process(Pid::from_child(program), Signal::INT).unwrap();
}

#[test]
fn a_training_that_was_interrupted_comes_to_the_model_of_one_that_was_not() {
    let folder = tempfile::tempdir().unwrap();
    let [whole, cut] = ["whole", "cut"].map(|name| folder.path().join(name));
    let printed = succeeded(&training(&whole).output().unwrap());
    assert!(printed.lines().all(|line| line.chars().count() <= 80 || line.contains("whole")), "{printed}");
    assert!(printed.contains("memcached-etc") && printed.contains("linear bandit"), "{printed}");
    let mut interrupted = training(&cut).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let kept = folder.path().join("cut.part");
    let began = Instant::now();
    // As soon as it keeps something; one that is done before that needs no interruption.
    while fs::metadata(&kept).map_or(0, |file| file.len()) == 0 && interrupted.try_wait().unwrap().is_none() {
        assert!(began.elapsed() < Duration::from_secs(300), "it keeps nothing");
        thread::sleep(Duration::from_millis(5));
    }
    interrupt(&interrupted);
    let was_cut = !interrupted.wait().unwrap().success();
    assert_eq!(kept.exists(), was_cut, "Ctrl-C keeps the outcomes");
    let output = training(&cut).arg("--json").output().unwrap();
    let report: Value = serde_json::from_str(&succeeded(&output)).unwrap();
    if was_cut {
        assert!(report["runs_kept"].as_u64().unwrap() > 0, "{report}");
        assert!(text(&output.stderr).contains("going on"), "{}", text(&output.stderr));
    }
    assert!(report["dqn"]["best_share"].as_f64().unwrap() > 0.0, "{report}");
    assert_eq!(report["cells"].as_array().unwrap().len(), 4, "{report}");
    assert!(fs::read(&whole).unwrap() == fs::read(&cut).unwrap());
}

fn run(workload: &str, local: &str, model: &str) -> Output {
    let model = format!("policy.model={model}");
    let arguments =
        ["run", "--workload", workload, "--size", "4M", "--platform", "indigo", "--policy", "indigo"];
    lab(&arguments).args(["--set", "workload.tasks=32", "--local", local, "--set", &model]).output().unwrap()
}

#[test]
fn a_model_runs_and_says_what_it_goes_by() {
    let printed = succeeded(&run("graph500-bfs", "20%", "shipped"));
    let by = printed.lines().find(|line| line.contains("  by  ")).unwrap();
    assert!(by.contains("agent: bursts of") || by.contains("untrained rule"), "{by}");
    assert!(printed.lines().all(|line| line.chars().count() <= 80), "{printed}");
    // Far memory that is next to never accessed: no training was of that.
    let printed = succeeded(&run("scan", "99%", "shipped"));
    assert!(printed.contains("untrained rule"), "{printed}");
    let untrained =
        lab(&["run", "--workload", "scan", "--size", "4M", "--policy", "indigo"]).output().unwrap();
    assert!(!succeeded(&untrained).contains("  by  "));
}

#[test]
fn a_broken_model_is_refused_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("model");
    let whole = include_bytes!("../../spillway-policy/models/indigo.safetensors");
    for (bytes, told) in [(&whole[..whole.len() / 2], "whole"), (b"hello", "whole"), (&[], "whole")] {
        fs::write(&out, bytes).unwrap();
        let output = run("scan", "20%", out.to_str().unwrap());
        let error = text(&output.stderr);
        assert!(!output.status.success() && error.trim_end().lines().count() == 1, "{error}");
        for told in [told, out.to_str().unwrap(), "lab train"] {
            assert!(error.contains(told), "{error}");
        }
    }
    let missing = text(&run("scan", "20%", "/nowhere").stderr);
    assert!(missing.contains("'/nowhere'") && missing.contains("cannot be read"), "{missing}");
    let unwritable = training(Path::new("/nowhere/model")).output().unwrap();
    assert_eq!(unwritable.status.code(), Some(1));
    assert!(text(&unwritable.stderr).contains("/nowhere/model"), "{}", text(&unwritable.stderr));
}
