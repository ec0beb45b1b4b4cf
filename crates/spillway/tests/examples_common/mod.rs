//! Runs an example, and compares what it prints with what its page says.
#![allow(dead_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

/// Runs the example, with the command under test on PATH.
pub fn prints_what_it_says(name: &str) {
    prints_in_the_end(name, 60, &[]);
}

/// The same of one that may take so many seconds, with further variables.
pub fn prints_in_the_end(name: &str, seconds: u32, variables: &[(&str, &Path)]) {
    let ours = Path::new(env!("CARGO_BIN_EXE_spillway")).parent().unwrap();
    let path = format!("{}:{}", ours.display(), std::env::var("PATH").unwrap_or_default());
    let script = examples().join(format!("{name}.sh"));
    let output = Command::new("timeout")
        .args([&seconds.to_string(), script.to_str().unwrap()])
        .env("PATH", path)
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let expected = fs::read_to_string(examples().join(format!("{name}.out"))).unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(out, expected, "{name}: {}: {err}", output.status);
    assert!(output.status.success(), "{name}: {err}");
}
