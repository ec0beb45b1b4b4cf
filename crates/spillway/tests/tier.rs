//! `spillway tier` and `explain` as their users meet them, on a machine that need not have a slow node.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::process::{Command, Output};

use serde_json::Value;

fn spillway(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_spillway")).args(arguments).output().unwrap()
}

/// The one line that a command complained with, and its status.
fn complaint(arguments: &[&str]) -> (i32, String) {
    let output = spillway(arguments);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(text.lines().count(), 1, "{arguments:?}: {text}");
    assert!(output.stdout.is_empty() && text.starts_with("spillway: "), "{arguments:?}: {text}");
    (output.status.code().unwrap(), text)
}

#[test]
fn a_node_that_is_not_there_is_refused() {
    let own = std::process::id().to_string();
    let state = tempfile::tempdir().unwrap();
    let state = state.path().to_str().unwrap();
    let (code, text) =
        complaint(&["tier", "--beside-kernel", "--slow", "900", "--state", state, "--pid", &own]);
    assert!(code == 125 && text.contains("node 900"), "{code}: {text}");
    let (code, text) = complaint(&["tier", "--slow", "3-1", "--pid", &own]);
    assert!(code == 2 && text.contains("3-1") && text.contains("spillway tier --help"), "{code}: {text}");
}

#[test]
fn a_policy_that_cannot_run_live_is_refused_before_the_program_starts() {
    let (code, text) = complaint(&["tier", "--beside-kernel", "--policy", "belady", "--", "false"]);
    assert!(code == 125 && text.contains("lab only") && text.contains("hotbox"), "{code}: {text}");
    let (code, text) = complaint(&["tier", "--policy", "hotbox", "--set", "speed=1", "--", "false"]);
    assert!(code == 125 && text.contains("'speed'"), "{code}: {text}");
    let (code, text) = complaint(&["tier", "--local", "0%", "--", "false"]);
    assert!(code == 2 && text.contains("such as 20%"), "{code}: {text}");
}

#[test]
fn a_configuration_of_nonsense_is_refused_in_one_line() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "[[group]]\nname = 'g'\npolicy = 'hotbox'\nlocal = 'lots'\n").unwrap();
    let path = file.path().to_str().unwrap();
    let (code, text) = complaint(&["tier", "--config", path]);
    assert!(code == 125 && text.contains("'lots'") && text.contains(path), "{code}: {text}");
    std::fs::write(file.path(), "[[group]]\nname = 'g'\npolicy = 'hotbox'\n").unwrap();
    let (code, text) = complaint(&["tier", "--config", path]);
    assert!(code == 125 && text.contains("pids or cgroups"), "{code}: {text}");
}

#[test]
fn an_option_of_a_group_beside_a_file_is_refused_in_one_line() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "[[group]]\nname = 'g'\npolicy = 'hotbox'\npids = [1]\n").unwrap();
    let path = file.path().to_str().unwrap();
    let (code, text) = complaint(&["tier", "--policy", "indigo", "--config", path]);
    assert!(code == 125 && text.contains("--policy") && text.contains(path), "{code}: {text}");
    // It is the option that counts, not what the file says.
    let (code, text) = complaint(&["tier", "--scan-interval", "0", "--config", path]);
    assert!(code == 125 && text.contains("scan_interval_ms"), "{code}: {text}");
}

#[test]
fn without_a_daemon_status_and_explain_say_so() {
    let state = tempfile::tempdir().unwrap();
    let state = state.path().to_str().unwrap();
    for arguments in [&["tier", "status", "--state", state][..], &["explain", "--pid", "1", "--state", state]]
    {
        let (code, text) = complaint(arguments);
        assert!(code == 1 && text.contains("no daemon runs here"), "{code}: {text}");
    }
    let (code, text) = complaint(&["explain", "--pid", "1", "heap"]);
    assert!(code == 2 && text.contains("'heap' is no address"), "{code}: {text}");
}

#[test]
fn doctor_shows_tiers_telemetry_and_conflicts() {
    let output = spillway(&["doctor", "--json"]);
    let checks: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    for name in ["memory-tiers", "tier-telemetry", "tier-migration", "tier-conflicts"] {
        let check = checks.iter().find(|check| check["check"] == name).unwrap();
        assert!(!check["found"].as_str().unwrap().is_empty() && check["essential"] == false, "{check}");
    }
    let tiers = checks.iter().find(|check| check["check"] == "memory-tiers").unwrap();
    assert!(tiers["found"].as_str().unwrap().contains("node 0 ("), "{tiers}");
}
