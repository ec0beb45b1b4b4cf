//! Traces on the command line: imported, recorded, repeated, and refused when they are broken.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn lab<S: AsRef<OsStr>>(arguments: &[S]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spillway"));
    command.arg("lab").args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// An access to each of 512 pages, eight times.
fn plain_text() -> String {
    (0..4096)
        .map(|access| format!("{:#x},{}\n", access % 512 * 4096, if access % 3 == 0 { "w" } else { "r" }))
        .collect()
}

fn import(folder: &Path) -> String {
    let (text, trace) = (folder.join("accesses.txt"), folder.join("accesses.trace"));
    fs::write(&text, plain_text()).unwrap();
    let (text, trace) = (text.to_str().unwrap(), trace.to_str().unwrap());
    let output = lab(&["import", "--format", "plain", "--output", trace, text]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("4096 records of 1 tasks, which touch 2.0 MiB"), "{}", stderr(&output));
    trace.to_owned()
}

#[test]
fn help_fits_80_columns_and_has_an_example() {
    for command in ["record", "import", "replay"] {
        let help = String::from_utf8(lab(&[command, "--help"]).stdout).unwrap();
        assert!(help.contains(&format!("spillway lab {command} ")), "{help}");
        assert!(help.lines().all(|line| line.chars().count() <= 80), "{help}");
    }
}

#[test]
fn an_imported_trace_runs_under_a_policy() {
    let folder = tempfile::tempdir().unwrap();
    let trace = import(folder.path());
    let output = lab(&["run", "--trace", &trace, "--policy", "hotbox", "--local", "25%", "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["accesses"], 4096);
    assert_eq!(report["pages"], 512);
    assert_eq!(report["local_pages"], 128);
}

#[test]
fn broken_traces_and_text_are_refused_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let trace = import(folder.path());
    let bytes = fs::read(&trace).unwrap();
    fs::write(&trace, &bytes[..bytes.len() - 5]).unwrap();
    let output = lab(&["run", "--trace", &trace, "--policy", "hotbox"]);
    assert!(!output.status.success() && stderr(&output).contains("cut off"), "{}", stderr(&output));
    assert_eq!(stderr(&output).lines().count(), 1);

    let text = folder.path().join("wrong.txt");
    fs::write(&text, "0x1000,r\n0x1000;r\n").unwrap();
    let written = folder.path().join("wrong.trace");
    let arguments = ["import", "-f", "plain", "-o", written.to_str().unwrap(), text.to_str().unwrap()];
    let output = lab(&arguments);
    assert!(!output.status.success() && stderr(&output).contains("line 2"), "{}", stderr(&output));
    assert!(!written.exists());
}

#[test]
fn a_program_is_recorded_and_runs_as_it_would_alone() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("seq.trace");
    let output = lab(&["record", "-o", trace.to_str().unwrap(), "--", "seq", "1", "3"]);
    // Where QEMU is missing: scripts/install-test-tools.
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(output.stdout, b"1\n2\n3\n");
    let output = lab(&["run", "--trace", trace.to_str().unwrap(), "--policy", "tpp", "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["accesses"].as_u64().unwrap() > 1000);
}

#[test]
fn what_a_recording_lacks_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("none.trace");
    let arguments =
        [OsStr::new("record"), OsStr::new("-o"), trace.as_os_str(), OsStr::new("--"), OsStr::new("true")];
    let mut command = Command::new(env!("CARGO_BIN_EXE_spillway"));
    let output = command.arg("lab").args(arguments).env("PATH", folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("install the package qemu-user"), "{}", stderr(&output));
    assert!(!trace.exists());
}

#[test]
fn a_recorded_programs_exit_status_is_ours() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("exit.trace");
    let output = lab(&["record", "-o", trace.to_str().unwrap(), "--", "sh", "-c", "exit 7"]);
    assert_eq!(output.status.code(), Some(7), "{}", stderr(&output));
    let missing = lab(&["record", "-o", trace.to_str().unwrap(), "--", "/nonexistent/program"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(!stderr(&missing).is_empty());
}
