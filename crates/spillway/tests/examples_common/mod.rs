//! Runs an example, and compares what it prints with what its page says.
#![allow(dead_code)]

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

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
    let running = Command::new("timeout")
        .args([&seconds.to_string(), script.to_str().unwrap()])
        .env("PATH", path)
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .unwrap();
    let group = Pid::from_child(&running);
    let output = running.wait_with_output().unwrap();
    let left = test_kill_process_group(group).is_ok();
    if left {
        let _ = kill_process_group(group, Signal::KILL);
    }
    assert!(!left, "{name} has left processes behind");
    let expected = fs::read_to_string(examples().join(format!("{name}.out"))).unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(out, expected, "{name}: {}: {err}", output.status);
    assert!(output.status.success(), "{name}: {err}");
}
