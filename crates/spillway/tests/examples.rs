//! The examples print what their pages say.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

/// Runs the example, with the command under test on PATH.
fn prints_what_it_says(name: &str) {
    let ours = Path::new(env!("CARGO_BIN_EXE_spillway")).parent().unwrap();
    let path = format!("{}:{}", ours.display(), std::env::var("PATH").unwrap_or_default());
    let script = examples().join(format!("{name}.sh"));
    let output = Command::new("timeout")
        .args(["60", script.to_str().unwrap()])
        .env("PATH", path)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let expected = fs::read_to_string(examples().join(format!("{name}.out"))).unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(out, expected, "{name}: {}: {err}", output.status);
    assert!(output.status.success(), "{name}: {err}");
}

#[test]
fn a_batch_job_has_a_limit() {
    prints_what_it_says("batch-job");
}

#[test]
fn python_has_more_data_than_local_memory() {
    prints_what_it_says("python");
}

#[test]
fn redis_has_its_far_memory_with_a_donor() {
    prints_what_it_says("redis-with-donor");
}

#[test]
fn every_example_is_run_and_listed() {
    let listed = fs::read_to_string(examples().join("README.md")).unwrap();
    let this = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/examples.rs")).unwrap();
    let paths = fs::read_dir(examples()).unwrap().map(|entry| entry.unwrap().path());
    for path in paths.filter(|path| path.extension().is_some_and(|extension| extension == "sh")) {
        let name = path.file_stem().unwrap().to_str().unwrap();
        assert!(listed.contains(&format!("({name}.sh)")), "examples/README.md does not list {name}");
        assert!(this.contains(&format!("prints_what_it_says(\"{name}\")")), "no test runs {name}");
        assert!(path.with_extension("out").is_file(), "{name}.out is missing");
    }
}
